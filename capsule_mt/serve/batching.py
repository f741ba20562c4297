"""Dynamic batching: one thread for each model translates what requests have queued, together."""

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future, InvalidStateError
from dataclasses import dataclass, field
from math import ceil
from typing import Any, NamedTuple, Protocol

from capsule_mt.coverage.results import Coverage, CoverageOptions, Marks
from capsule_mt.text.line_failures import PROBE, translate_lines

SMOOTHING = 0.1  # of the running mean of the seconds that a text takes
# of what is left out, among the hypotheses of beam search: as `retry_beams` of `CoverageOptions` has it
COVERAGE_WEIGHT = 5.0


class Translates(Protocol):
    """What a `Batcher` needs of a `capsule_mt.Translator`."""

    def __call__(self, texts: Any, **options: Any) -> Any: ...

    @property
    def has_reverse(self) -> bool: ...

    @property
    def precision(self) -> Mapping[str, float]: ...

    def cover(
        self, texts: list[str], translations: list[str], *, coverage: CoverageOptions, batch_size: int
    ) -> list[Coverage]: ...


class QueueFullError(Exception):
    """There is no room for these texts now; `retry_after` is when there should be, in seconds."""

    def __init__(self, retry_after: int) -> None:
        super().__init__(f"the server is busy; try again in {retry_after} s")
        self.retry_after = retry_after


class StoppingError(Exception):
    """The server stops: it takes no more texts, or had no time for these."""

    def __init__(self) -> None:
        super().__init__("the server is stopping")


class Settings(NamedTuple):
    """What is asked of a text; those of equal settings are translated together."""

    coverage: bool = False
    beams: int | None = None
    is_check: bool = False
    marks: Marks = "likely"


@dataclass
class Item:
    """A text in the queue; `translation` is given where it is to be checked."""

    text: str
    settings: Settings
    translation: str = ""
    result: "Future[Any]" = field(default_factory=Future)
    arrived: float = field(default_factory=time.monotonic)

    def finish(self, result: Any) -> None:
        """Give the result or the exception to who waits, unless nobody does any more."""
        with contextlib.suppress(InvalidStateError):
            if isinstance(result, BaseException):
                self.result.set_exception(result)
            else:
                self.result.set_result(result)


class Batcher:
    """Queues the texts of requests and translates them in batches, in one thread.

    A batch starts as soon as `max_batch` texts wait, or the first of them has waited for `wait_seconds`. Texts keep
    their order; a text that cannot be translated is a `Failure` and costs the others nothing.

    Args:
        translator: used by the thread alone.
        options: of each call of the translator, such as its languages.
        max_batch: the most texts of a batch, and the most sentences that go through the model at once.
        max_queue: the most texts that wait.
        on_batch: called with the number of texts of each batch.
    """

    def __init__(
        self,
        translator: Translates,
        *,
        options: Mapping[str, Any] | None = None,
        max_batch: int = 32,
        wait_seconds: float = 0.005,
        max_queue: int = 512,
        on_batch: Callable[[int], None] | None = None,
    ) -> None:
        self.translator, self.options = translator, options or {}
        self.max_batch, self.max_queue = max_batch, max_queue
        self.wait_seconds = wait_seconds
        self.on_batch = on_batch
        self._queue: deque[Item] = deque()
        self._batch: list[Item] = []
        self._changed = threading.Condition()
        self._stopping = False
        self._seconds_per_text = 0.0
        self._thread = threading.Thread(target=self._work, name="batcher", daemon=True)
        self._thread.start()

    def submit(
        self, texts: list[str], coverage: bool = False, beams: int | None = None, marks: Marks = "likely"
    ) -> "list[Future[Any]]":
        """Queue all of the texts, or none of them if there is no room; each gives a `Translation` or a `Failure`."""
        settings = Settings(coverage, beams, marks=marks)
        return self._submit([Item(text, settings) for text in texts])

    def submit_checks(self, texts: list[str], translations: list[str], marks: Marks = "likely") -> "list[Future[Any]]":
        """Queue given translations, to find what they left out; each gives a `Coverage` or a `Failure`."""
        pairs, settings = zip(texts, translations, strict=True), Settings(is_check=True, marks=marks)
        return self._submit([Item(text, settings, translation) for text, translation in pairs])

    def _submit(self, items: list[Item]) -> "list[Future[Any]]":
        with self._changed:
            if self._stopping:
                raise StoppingError
            if len(self._queue) + len(items) > self.max_queue:
                raise QueueFullError(max(1, ceil(len(self._queue) * self._seconds_per_text)))
            self._queue.extend(items)
            self._changed.notify()
        return [item.result for item in items]

    @property
    def precision(self) -> Mapping[str, float]:
        """The share of marks that were right, by `marks` of `CoverageOptions`, where that was measured."""
        return self.translator.precision

    def __len__(self) -> int:
        """How many texts wait."""
        return len(self._queue)

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive() and not self._stopping

    def close(self, seconds: float | None = None) -> bool:
        """Translate what is queued, then end the thread; return whether that took no longer than these seconds."""
        with self._changed:
            self._stopping = True
            self._changed.notify()
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def abandon(self) -> None:
        """Take no more texts, and give a `StoppingError` to all who wait."""
        with self._changed:
            self._stopping = True
            for item in (*self._batch, *self._queue):
                item.finish(StoppingError())
            self._queue.clear()
            self._changed.notify()

    def _next_batch(self) -> list[Item]:
        """Wait for texts and return a batch; an empty one when the work is over."""
        with self._changed:
            self._changed.wait_for(lambda: self._queue or self._stopping)
            if not self._queue:
                return []
            deadline = self._queue[0].arrived + self.wait_seconds
            while len(self._queue) < self.max_batch and not self._stopping:
                if (left := deadline - time.monotonic()) <= 0:
                    break
                self._changed.wait(left)
            self._batch = [self._queue.popleft() for _ in range(min(self.max_batch, len(self._queue)))]
            return self._batch

    def _work(self) -> None:
        while batch := self._next_batch():
            started = time.monotonic()
            for settings, items in self._wanted(batch).items():
                self._translate(items, settings)
            seconds = (time.monotonic() - started) / len(batch)
            known = self._seconds_per_text or seconds
            self._seconds_per_text = known + SMOOTHING * (seconds - known)
            if self.on_batch is not None:
                self.on_batch(len(batch))

    def _wanted(self, batch: list[Item]) -> dict[Settings, list[Item]]:
        """Return by their settings the texts of a batch that nobody has cancelled."""
        wanted: dict[Settings, list[Item]] = {}
        with self._changed:
            for item in batch:
                if not item.result.done() and item.result.set_running_or_notify_cancel():
                    wanted.setdefault(item.settings, []).append(item)
        return wanted

    def _translate(self, items: list[Item], settings: Settings) -> None:
        options: dict[str, Any] = {**self.options, "scores": False, "batch_size": self.max_batch}
        if settings.beams is not None:
            options["num_beams"] = settings.beams
        # words that were made up are found where there is a model of the other direction
        weight = COVERAGE_WEIGHT if (settings.beams or 1) > 1 else None
        coverage = CoverageOptions(weight=weight, marks=settings.marks, support=self.translator.has_reverse)
        if settings.coverage:
            options["coverage"] = coverage

        def translate(some: list[Item]) -> list[Any]:
            texts = [item.text for item in some]
            if settings.is_check:
                translations = [item.translation for item in some]
                return self.translator.cover(texts, translations, coverage=coverage, batch_size=self.max_batch)
            return self.translator(texts, **options)

        try:
            found: list[Any] = translate_lines(translate, items, Item(PROBE, settings, PROBE))
        except BaseException as error:  # no text can be translated: each request gets the error, the thread goes on
            found = [error] * len(items)
        for item, result in zip(items, found, strict=True):
            item.finish(result)
