"""Let a run end in its own way at the first SIGTERM or Ctrl-C."""

import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any


class StoppedBySignal(KeyboardInterrupt):
    """A run got SIGTERM or SIGINT. Not an `Exception`, so that no library swallows it."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


def stop(number: int) -> None:
    raise StoppedBySignal(number)


@contextlib.contextmanager
def first_signal(handle: Callable[[int], None]) -> Iterator[None]:
    """Call `handle` with the number of the first SIGTERM or SIGINT; the earlier handlers get the second one."""
    owner = os.getpid()

    def caught(number: int, frame: FrameType | None) -> None:
        restore()
        if os.getpid() == owner:
            handle(number)
        else:  # a forked worker dies of a signal as if this handler were not there
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    def restore() -> None:
        for number, handler in handlers.items():
            signal.signal(number, handler)

    handlers: dict[int, Any] = {}
    try:
        for number in (signal.SIGTERM, signal.SIGINT):
            handlers[number] = signal.signal(number, caught)
    except ValueError:  # only the main thread gets signals
        pass
    try:
        yield
    finally:
        restore()
