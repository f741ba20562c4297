"""Text to train on and to test with."""

from hf_capsule_mt.data.embedded_corpus import embedded_corpus, sentence_pairs
from hf_capsule_mt.data.tokenizer import train_tokenizer

__all__ = ["embedded_corpus", "sentence_pairs", "train_tokenizer"]
