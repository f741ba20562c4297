"""Stop calls of the engine: from another thread, at Ctrl-C, and when their time is over."""

from _thread import start_new_thread
from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar, Token
from threading import TIMEOUT_MAX, Event, Timer

GO_ON, FINISH, GIVE_UP = 0, 1, 2  # `enum stop` of native/engine.h
LOOK_SECONDS = 0.1  # waiting for a thread: no signal ends a longer wait on Windows

_current: ContextVar["Stop | None"] = ContextVar("stop", default=None)


class StoppedError(BaseException):
    """A call of the engine was stopped by `Stop.set`. Handlers of `Exception`, which it is not, let it pass."""

    def __init__(self) -> None:
        super().__init__("the translation was stopped")


class Stop:
    """Lets any thread stop the calls of the engine in a `with` block.

    stop = Stop()
    with stop:
        translator(texts)  # raises StoppedError soon after `stop.set()`
    """

    def __init__(self) -> None:
        self.is_set = False
        self._flags: list[array[int]] = []
        self._tokens: list[Token[Stop | None]] = []

    def set(self) -> None:
        self.is_set = True
        for flag in list(self._flags):
            flag[0] = GIVE_UP

    def __enter__(self) -> "Stop":
        self._tokens.append(_current.set(self))
        return self

    def __exit__(self, *error: object) -> None:
        _current.reset(self._tokens.pop())


def raise_if_stopped() -> None:
    """Raise a `StoppedError` if the `Stop` of this `with` block is set."""
    stop = _current.get()
    if stop is not None and stop.is_set:
        raise StoppedError


@contextmanager
def stoppable(seconds: float | None = None) -> Iterator["array[int]"]:
    """Yield the flag that the engine reads during this call; after `seconds`, the engine finishes with what it has."""
    flag, stop = array("i", [GO_ON]), _current.get()
    timer = None if seconds is None else _finish_after(seconds, flag)
    if stop is not None:
        stop._flags.append(flag)  # before `is_set` is read: a `set` from now on finds the flag
    try:
        raise_if_stopped()
        yield flag
        raise_if_stopped()
    finally:
        if stop is not None:
            stop._flags.remove(flag)
        if timer is not None:
            timer.cancel()


def _finish_after(seconds: float, flag: "array[int]") -> Timer:
    """Start a timer that lets the calls with this flag finish with what they have."""

    def finish() -> None:
        flag[0] = flag[0] or FINISH

    timer = Timer(min(seconds, TIMEOUT_MAX), finish)
    timer.daemon = True
    if seconds > 0:
        timer.start()
    else:
        finish()
    return timer


def run_all(work: Callable[[int], None], count: int, flag: "array[int]") -> None:
    """Call `work` with 0 here, and with 1 to `count` - 1 each in a thread of its own, and wait for all.

    An exception here, such as that of Ctrl-C, makes the other threads give up.
    """
    if count == 1:
        work(0)
        return
    ended: list[BaseException | None] = []
    changed = Event()

    def run(number: int) -> None:
        error: BaseException | None = None
        try:
            work(number)
        except BaseException as raised:
            error = raised
        ended.append(error)
        changed.set()

    threads: list[int] = []

    def wait() -> None:
        while len(ended) < len(threads):
            changed.wait(LOOK_SECONDS)
            changed.clear()

    try:
        for number in range(1, count):
            threads.append(start_new_thread(run, (number,)))  # a `Thread` would wait until it runs
        work(0)
        wait()
    except BaseException:
        flag[0] = GIVE_UP
        wait()
        raise
    for error in ended:
        if error is not None:
            raise error
