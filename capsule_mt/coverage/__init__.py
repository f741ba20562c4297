"""Coverage: which source words a translation leaves out."""
