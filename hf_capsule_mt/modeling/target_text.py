"""The target side of a tokenizer, which may have a vocabulary of its own: its tokens, and the text that they make."""

from collections.abc import Iterable
from itertools import takewhile
from typing import Any


def has_separate_vocabularies(tokenizer: Any) -> bool:
    return bool(getattr(tokenizer, "separate_vocabs", False))


def decode_target(tokenizer: Any, sequence: Iterable[int], clean_up_tokenization_spaces: bool | None = None) -> str:
    """Return the text of a generated sequence, from the decoder's start token on, without its special tokens.

    `MarianTokenizer` has the ids of special tokens in the source vocabulary alone. In another target vocabulary they
    may be words, which it would leave out.
    """
    clean_up = clean_up_tokenization_spaces
    if not has_separate_vocabularies(tokenizer):
        return str(tokenizer.decode(sequence, skip_special_tokens=True, clean_up_tokenization_spaces=clean_up))
    special = set(tokenizer.all_special_tokens)
    words = [tokenizer.decoder.get(int(token), tokenizer.unk_token) for token in sequence][1:]
    words = [word for word in takewhile(lambda word: word != tokenizer.eos_token, words) if word not in special]
    tokenizer._decode_use_source_tokenizer = False
    text = str(tokenizer.convert_tokens_to_string(words))
    return str(tokenizer.clean_up_tokenization(text)) if clean_up else text


def target_vocabulary(tokenizer: Any) -> dict[str, int]:
    """Return the ids of a tokenizer's target tokens, which may have a vocabulary of their own."""
    backend = getattr(tokenizer, "_target_backend", None)  # of a SeparateVocabulariesTokenizer
    vocabulary = backend.get_vocab() if backend is not None else getattr(tokenizer, "target_encoder", None)
    return tokenizer.get_vocab() if vocabulary is None else vocabulary


def vocabularies_of(tokenizer: Any) -> list[dict[str, int]]:
    """Return the source and the target vocabulary of a tokenizer: the id of each token."""
    return [tokenizer.get_vocab(), target_vocabulary(tokenizer)]
