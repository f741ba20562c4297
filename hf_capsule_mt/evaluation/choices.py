"""What the commands offer: names that need no library."""

METRICS = ("bleu", "bleu_uncased", "chrf", "chrf++", "ter")
DEFAULT_METRICS = ("bleu", "bleu_uncased", "chrf", "ter")
LENGTH_EDGES = (10, 20, 30, 40, 50)  # of the groups of sources, in words
