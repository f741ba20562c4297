"""One line on stderr: how far a command is, how fast it goes, and the time left."""

import sys
import time
from types import TracebackType

from capsule_mt.messages import with_unit

SECONDS_BETWEEN_LINES = 0.2
_current: "Progress | None" = None  # the one between `__enter__` and `__exit__`; its line may be hidden


class Progress:
    """A line of progress, as `1,200 of 5,000 lines, 310 a second, 12 s left`.

    Args:
        total: the number of units; `None` if it is unknown.
        unit: the plural of what is counted, such as "lines".
        shown: whether to print the line; by default, only if stderr is a terminal.
    """

    def __init__(self, total: int | None, unit: str, shown: bool | None = None) -> None:
        self.total, self.unit = total, unit
        self.shown = sys.stderr is not None and sys.stderr.isatty() if shown is None else shown
        self.count, self._skipped, self.started, self._next_print_time = 0, 0, time.monotonic(), 0.0

    def __enter__(self) -> "Progress":
        global _current
        _current = self
        self.update(0)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        global _current
        _current = None
        if self.shown:
            print(f"\r\033[K{self}", file=sys.stderr, flush=True)

    def update(self, number: int) -> None:
        """Add a number of finished units."""
        self.count += number
        if self.shown and time.monotonic() >= self._next_print_time:
            print(f"\r\033[K{self}", end="", file=sys.stderr, flush=True)
            self._next_print_time = time.monotonic() + SECONDS_BETWEEN_LINES

    def skip(self, number: int) -> None:
        """Add a number of units that an earlier run has finished, which say nothing about the speed."""
        self._skipped += number
        self.update(number)

    def __str__(self) -> str:
        rate = (self.count - self._skipped) / max(time.monotonic() - self.started, 1e-9)
        counts = with_unit(self.count if self.total is None else self.total, self.unit)
        line = counts if self.total is None else f"{self.count:,} of {counts}"
        line += f", {rate:,.{0 if rate >= 10 else 1}f} a second"
        if self.total is not None and rate and self.count < self.total:
            line += f", {_duration((self.total - self.count) / rate)} left"
        return line


def write_line(message: str) -> None:
    """Print a message on stderr; if a line of progress is shown, keep that line below it."""
    if _current is None or not _current.shown:
        print(message, file=sys.stderr)
        return
    print(f"\r\033[K{message}\n{_current}", end="", file=sys.stderr, flush=True)


def _duration(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {seconds} s" if minutes else f"{seconds} s"
