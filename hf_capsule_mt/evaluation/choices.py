"""What the commands offer: names that need no library."""

METRICS = ("bleu", "bleu_uncased", "chrf", "chrf++", "ter")
DEFAULT_METRICS = ("bleu", "bleu_uncased", "chrf", "ter")
