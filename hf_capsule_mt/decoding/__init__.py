"""What decodes for a model of transformers: the native engine, or `generate()`."""
