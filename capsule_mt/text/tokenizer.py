"""The tokenizer that text handling needs, as a protocol."""

from collections.abc import Sequence
from itertools import pairwise
from operator import eq
from typing import NamedTuple, Protocol


class Encoded(NamedTuple):
    """A text as the model reads it: token ids with special tokens, and the characters that each token stands for."""

    ids: list[int]
    offsets: list[tuple[int, int] | None]


class Tokenizer(Protocol):
    """A tokenizer of both languages.

    unknown_id: the token for what the vocabulary lacks; `None` without such a token.
    special_ids: tokens without text: start, end, padding.
    language_tokens: the target languages of a multilingual OPUS-MT model, such as ">>deu<<"; else empty.
    """

    @property
    def unknown_id(self) -> int | None: ...

    @property
    def special_ids(self) -> frozenset[int]: ...

    @property
    def language_tokens(self) -> Sequence[str]: ...

    def encode(self, text: str) -> Encoded:
        """Encode a source."""
        ...

    def encode_target(self, text: str) -> list[int]:
        """Encode a translation as the model writes it, with its end token."""
        ...

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of a translation, without special tokens."""
        ...


def unknown_tokens(tokenizer: Tokenizer, text: str, encoded: Encoded) -> set[int]:
    """Return the indices of tokens for what the vocabulary lacks: unknown tokens, and bytes of a character."""
    ids, offsets, unknown_id = encoded.ids, encoded.offsets, tokenizer.unknown_id
    unknown = {index for index, token in enumerate(ids) if token == unknown_id} if unknown_id in ids else set()
    # bytes of one character share its offsets, and none of them is text alone
    if text.isascii() or not any(map(eq, offsets, offsets[1:])):  # a fast answer for most texts
        return unknown
    for index, (span, next_span) in enumerate(pairwise(offsets)):
        if span is not None and span == next_span and span[1] - span[0] == 1:
            unknown |= {i for i in (index, index + 1) if "\ufffd" in tokenizer.decode([ids[i]])}
    return unknown
