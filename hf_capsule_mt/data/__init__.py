"""Parallel text: corpora, the embedded corpus, cleaning, tokenizers, encoded examples."""

from transformers import AutoTokenizer, PreTrainedConfig

from hf_capsule_mt.data.bpe_dropout import BPEDropout
from hf_capsule_mt.data.cleaning import Cleaning, clean
from hf_capsule_mt.data.embedded_corpus import embedded_corpus, sentence_pairs
from hf_capsule_mt.data.encoding import DropoutDataset, drop_long, encode
from hf_capsule_mt.data.separate_tokenizer import SeparateVocabulariesTokenizer
from hf_capsule_mt.data.sources import load_translation_data
from hf_capsule_mt.data.tokenizer_training import train_separate_tokenizers, train_tokenizer


class _SeparateVocabularies(PreTrainedConfig):
    """Exists only because `AutoTokenizer` registers a tokenizer class together with a configuration class."""

    model_type = "separate_vocabularies"


AutoTokenizer.register(_SeparateVocabularies, fast_tokenizer_class=SeparateVocabulariesTokenizer, exist_ok=True)

__all__ = [
    "BPEDropout",
    "Cleaning",
    "DropoutDataset",
    "SeparateVocabulariesTokenizer",
    "clean",
    "drop_long",
    "embedded_corpus",
    "encode",
    "load_translation_data",
    "sentence_pairs",
    "train_separate_tokenizers",
    "train_tokenizer",
]
