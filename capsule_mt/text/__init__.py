"""Text: sentences, words, windows of a file, and what is kept as it is."""
