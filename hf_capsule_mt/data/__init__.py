"""Text to train on and to test with."""

from hf_capsule_mt.data.embedded_corpus import embedded_corpus, sentence_pairs

__all__ = ["embedded_corpus", "sentence_pairs"]
