"""What text handling asks of a tokenizer."""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple, Protocol


class Encoded(NamedTuple):
    """A text as the model reads it: token ids with special tokens, and the characters that each stands for."""

    ids: list[int]
    offsets: list[tuple[int, int] | None]


class Tokenizer(Protocol):
    """A tokenizer of both languages.

    unknown_id: the token that stands for what the vocabulary lacks, if there is one.
    special_ids: tokens without text: start, end, padding.
    language_tokens: of a multilingual OPUS-MT model, such as ">>deu<<"; empty for any other.
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
    """Return which tokens stand for what the vocabulary lacks: unknown ones, or a byte of a character."""
    ids, offsets, unknown_id = encoded.ids, encoded.offsets, tokenizer.unknown_id
    found = {n for n, token in enumerate(ids) if token == unknown_id} if unknown_id in ids else set()
    for n, (span, other) in enumerate(pairwise(offsets)) if not text.isascii() else ():
        if span is not None and span == other and span[1] - span[0] == 1:
            found |= {m for m in (n, n + 1) if "\ufffd" in tokenizer.decode([ids[m]])}
    return found
