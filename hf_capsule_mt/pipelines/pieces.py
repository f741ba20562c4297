"""Texts, the pieces they are translated in, and the order of the work."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import torch
from torch.utils.data import Dataset

from hf_capsule_mt.pipelines.sentences import UNSPACED_STOPS, Span


@dataclass
class Piece:
    """What goes through the model at once: a sentence of a text, or a part of one that is too long.

    output_ids: [returned, T], each padded on the right; `scores` [returned].
    coverage: what `coverage_scores` says of them, without the batch and its padding.
    """

    span: Span
    token_ids: list[int]
    settings: dict[str, Any]
    output_ids: torch.Tensor | None = None
    scores: torch.Tensor | None = None
    was_cut: bool = False
    coverage: dict[str, torch.Tensor] | None = None


@dataclass
class Document:
    """One of the texts that the user gave, and the pieces it is translated in."""

    text: str
    pieces: list[Piece] = field(default_factory=list)


def batches_of(pieces: list[Piece], batch_size: int, batch_tokens: int | None) -> Iterator[list[Piece]]:
    """Batches of pieces of similar length, longest first, by the number of pieces or of tokens, padding included."""
    in_order = sorted(pieces, key=lambda piece: len(piece.token_ids), reverse=True)
    first = 0
    while first < len(in_order):
        longest = len(in_order[first].token_ids)
        size = batch_size if batch_tokens is None else max(1, batch_tokens // longest)
        yield in_order[first : first + size]
        first += size


class TranslationIterator:
    """Reads texts in windows, translates each window at once, and gives its results one by one."""

    def __init__(self, texts: Any, translate: Callable[[list[Any]], list[Any]], window: int) -> None:
        self.texts = texts
        self.translate = translate
        self.window = window

    def __len__(self) -> int:
        return len(self.texts)

    def __iter__(self) -> Iterator[Any]:
        texts = iter(self.texts) if hasattr(self.texts, "__iter__") else _items(self.texts)
        while window := list(islice(texts, self.window)):
            yield from self.translate(window)


class TextsOf(Dataset[Any]):
    """A sized iterable, as what transformers' base class reads lazily."""

    def __init__(self, texts: Any) -> None:
        self.texts = texts

    def __len__(self) -> int:
        return len(self.texts)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.texts)


def _items(texts: Any) -> Iterator[Any]:
    """The items of what only has a length and `[]`, as a `KeyDataset`."""
    return (texts[index] for index in range(len(texts)))


def join_translations(document: Document, translations: list[str]) -> str:
    """The translations of the pieces, with the space that is between them in the text.

    Where there is none, as in Chinese, there is one in a translation that does not end as Chinese does.
    """
    joined = ""
    for number, (piece, translation) in enumerate(zip(document.pieces, translations, strict=True)):
        if number > 0:
            between = document.text[document.pieces[number - 1].span.end : piece.span.start]
            joined += between or ("" if joined.endswith(tuple(UNSPACED_STOPS)) else " ")
        joined += translation
    return joined
