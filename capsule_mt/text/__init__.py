"""Language: sentences, words, the normal form, and what is kept as it is."""
