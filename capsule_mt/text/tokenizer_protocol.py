"""The tokenizer that text handling needs, as a protocol."""

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from itertools import pairwise
from operator import eq
from typing import Any, NamedTuple, Protocol

# the signs of ASCII that a vocabulary may lack, and the pieces of a byte that then stand for them
RARE_SIGNS = r"#$%&()*+/:;<=>@[\]^_`{|}~"
BYTE_PIECES = tuple(f"<0x{ord(sign):02X}>" for sign in RARE_SIGNS)


class Encoded(NamedTuple):
    """A text as the model reads it: token ids with special tokens, and the characters that each token stands for.

    may_have_bytes: whether some tokens may be bytes of one character.
    """

    ids: list[int]
    offsets: Sequence[tuple[int, int] | None]
    may_have_bytes: bool = True


class LaterOffsets(Sequence[tuple[int, int] | None]):
    """The offsets of tokens, computed when they are first read: those of most texts never are."""

    def __init__(self, compute: Callable[[], list[tuple[int, int] | None]]) -> None:
        self._compute = compute

    @cached_property
    def _offsets(self) -> list[tuple[int, int] | None]:
        return self._compute()

    def __len__(self) -> int:
        return len(self._offsets)

    def __getitem__(self, index: Any) -> Any:
        return self._offsets[index]

    def __iter__(self) -> Iterator[tuple[int, int] | None]:
        return iter(self._offsets)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and self._offsets == [*other]


class Tokenizer(Protocol):
    """A tokenizer of both languages.

    unknown_id: the token for what the vocabulary lacks; `None` without such a token.
    special_ids: tokens without text: start, end, padding.
    byte_ids, target_byte_ids: `byte_ids_of` the vocabularies of sources and translations.
    language_tokens: the target languages of a multilingual OPUS-MT model, such as ">>deu<<"; else empty.
    """

    @property
    def unknown_id(self) -> int | None: ...

    @property
    def special_ids(self) -> frozenset[int]: ...

    @property
    def byte_ids(self) -> frozenset[int]: ...

    @property
    def target_byte_ids(self) -> frozenset[int]: ...

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


def byte_ids_of(id_of: Callable[[str], int | None], unknown_id: int | None) -> frozenset[int]:
    """Return the ids of bytes that stand for the signs of ASCII that a vocabulary may lack.

    id_of: returns the id of a piece; `unknown_id` or `None` for one that the vocabulary lacks.
    """
    return frozenset(token for token in map(id_of, BYTE_PIECES) if token is not None) - {unknown_id}


def unknown_tokens(tokenizer: Tokenizer, text: str, encoded: Encoded) -> set[int]:
    """Return the indices of tokens for what the vocabulary lacks: unknown tokens, and bytes of a character."""
    ids, unknown_id = encoded.ids, tokenizer.unknown_id
    unknown = {index for index, token in enumerate(ids) if token == unknown_id} if unknown_id in ids else set()
    if not encoded.may_have_bytes:
        return unknown
    byte_ids = tokenizer.byte_ids
    if not byte_ids.isdisjoint(ids):
        unknown |= {index for index, token in enumerate(ids) if token in byte_ids}
    if text.isascii():  # a fast answer for most texts
        return unknown
    offsets = encoded.offsets
    # bytes of one character share its offsets, and none of them is text alone
    if not any(map(eq, offsets, offsets[1:])):
        return unknown
    for index, (span, next_span) in enumerate(pairwise(offsets)):
        if span is not None and span == next_span and span[1] - span[0] == 1:
            unknown |= {i for i in (index, index + 1) if "\ufffd" in tokenizer.decode([ids[i]])}
    return unknown
