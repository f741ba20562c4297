"""Files in and out: text read in one way, outputs written whole, locks, digests, and the lines that failed."""
