"""Dynamic batching: one thread for each model translates what requests have queued, together."""

import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from math import ceil

from capsule_mt.text.line_failures import Failure, translate_lines
from hf_capsule_mt.pipelines.results import CoverageOptions, Translation
from hf_capsule_mt.pipelines.translator import Translator

SMOOTHING = 0.1  # of the running mean of the seconds that a text takes


class QueueFullError(Exception):
    """There is no room for these texts now; `retry_after` is when there should be, in seconds."""

    def __init__(self, retry_after: int) -> None:
        super().__init__(f"the server is busy; try again in {retry_after} s")
        self.retry_after = retry_after


class StoppingError(Exception):
    """The server stops and takes no more texts."""


@dataclass
class Item:
    """A text in the queue."""

    text: str
    coverage: bool
    result: "Future[Translation | Failure]" = field(default_factory=Future)
    arrived: float = field(default_factory=time.monotonic)


class Batcher:
    """Queues the texts of requests and translates them in batches, in one thread.

    A batch starts as soon as `max_batch` texts wait, or the first of them has waited for `wait_seconds`. Texts keep
    their order; a text that cannot be translated is a `Failure` and costs the others nothing.

    Args:
        translator: used by the thread alone.
        max_batch: the most texts of a batch, and the most sentences that go through the model at once.
        max_queue: the most texts that wait.
        on_batch: called with the number of texts of each batch.
    """

    def __init__(
        self,
        translator: Translator,
        *,
        max_batch: int = 32,
        wait_seconds: float = 0.005,
        max_queue: int = 512,
        on_batch: Callable[[int], None] | None = None,
    ) -> None:
        self.translator = translator
        self.max_batch, self.max_queue = max_batch, max_queue
        self.wait_seconds = wait_seconds
        self.on_batch = on_batch
        self._queue: deque[Item] = deque()
        self._changed = threading.Condition()
        self._stopping = False
        self._seconds_per_text = 0.0
        self._thread = threading.Thread(target=self._work, name="batcher", daemon=True)
        self._thread.start()

    def submit(self, texts: list[str], coverage: bool = False) -> "list[Future[Translation | Failure]]":
        """Queue all of the texts, or none of them if there is no room."""
        items = [Item(text, coverage) for text in texts]
        with self._changed:
            if self._stopping:
                raise StoppingError("the server is stopping")
            if len(self._queue) + len(items) > self.max_queue:
                raise QueueFullError(max(1, ceil(len(self._queue) * self._seconds_per_text)))
            self._queue.extend(items)
            self._changed.notify()
        return [item.result for item in items]

    def __len__(self) -> int:
        """How many texts wait."""
        return len(self._queue)

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive() and not self._stopping

    def close(self) -> None:
        """Translate what is queued, then end the thread."""
        with self._changed:
            self._stopping = True
            self._changed.notify()
        self._thread.join()

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
            return [self._queue.popleft() for _ in range(min(self.max_batch, len(self._queue)))]

    def _work(self) -> None:
        while batch := self._next_batch():
            started = time.monotonic()
            # a request that was cancelled needs no translation
            running = [item for item in batch if item.result.set_running_or_notify_cancel()]
            for coverage in (False, True):
                self._translate([item for item in running if item.coverage == coverage], coverage)
            seconds = (time.monotonic() - started) / len(batch)
            known = self._seconds_per_text or seconds
            self._seconds_per_text = known + SMOOTHING * (seconds - known)
            if self.on_batch is not None:
                self.on_batch(len(batch))

    def _translate(self, items: list[Item], coverage: bool) -> None:
        if not items:
            return

        def translate(texts: list[str]) -> list[Translation]:
            options = CoverageOptions() if coverage else None
            return self.translator(texts, coverage=options, scores=False, batch_size=self.max_batch)

        try:
            found = translate_lines(translate, [item.text for item in items])
        except BaseException as error:  # no text can be translated: each request gets the error, the thread goes on
            for item in items:
                item.result.set_exception(error)
            return
        for item, translation in zip(items, found, strict=True):
            item.result.set_result(translation)
