"""The table of search options, and the options as a decoder receives them. It does not import other subpackages."""
