"""Conversions of checkpoints: to transformers, to int8, to Marian, to fewer languages."""
