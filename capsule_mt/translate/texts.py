"""The texts of a call: checked, read in windows, and their pieces in batches of similar length."""

from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from itertools import islice
from typing import Any, Generic, TypeVar, cast

from capsule_mt.messages import shown

Result = TypeVar("Result")


def batches_of(lengths: Sequence[int], batch_size: int, batch_tokens: int | None = None) -> Iterator[list[int]]:
    """Yield batches of similar lengths, longest first, as indices into `lengths`.

    A batch has up to `batch_size` pieces, or else up to `batch_tokens` padded tokens, but at least one piece.
    """
    longest_first = sorted(range(len(lengths)), key=lambda index: -lengths[index])
    start = 0
    while start < len(longest_first):
        size = batch_size if batch_tokens is None else max(1, batch_tokens // lengths[longest_first[start]])
        yield longest_first[start : start + size]
        start += size


def check_texts(texts: Iterable[object], name: str) -> None:
    """Refuse an argument with an element that is not a string, and name the element."""
    for index, text in enumerate(texts):
        check_text(text, f"{name}[{index}]")


def check_text(text: object, name: str) -> None:
    """Refuse what is not a string."""
    if not isinstance(text, str):
        raise TypeError(f"`{name}` must be a string, got {shown(text)} ({type(text).__name__})")


class TranslationIterator(Generic[Result]):
    """Reads texts in windows, translates each window at once, and yields its results in order."""

    def __init__(
        self,
        texts: object,
        translate: Callable[[list[str]], list[Result]],
        window: int,
        check: Callable[[object, str], None] = check_text,
    ) -> None:
        """`texts`: an iterable, or a sequence that has only `[]`, such as a `KeyDataset`."""
        self.texts = texts
        self.translate = translate
        self.window = window
        self.check = check

    def __len__(self) -> int:
        return len(cast(Sized, self.texts))  # a generator has no length, and says so

    def __iter__(self) -> Iterator[Result]:
        texts: Iterator[tuple[int, str]] = enumerate(iter(cast(Any, self.texts)))
        while window := list(islice(texts, self.window)):
            for index, text in window:
                self.check(text, f"texts[{index}]")
            yield from self.translate([text for _, text in window])
