"""The table of search options, and the options as a decoder receives them. This room imports no other."""
