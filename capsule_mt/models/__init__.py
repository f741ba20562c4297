"""From a folder on disk to a model that decodes: readers, writers of programs, tokenizers."""
