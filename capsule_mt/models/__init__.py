"""From a folder on disk to a model that decodes or encodes: readers, writers of programs, tokenizers."""
