"""A forked copy of this process that reads and writes files: it starts in milliseconds, with everything imported.

Only a process with a single thread may fork: another thread's locks would stay locked in the copy forever.
"""

import gc
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import BinaryIO

THREADS = "/proc/self/task"  # of this process, those of libraries, too


def can_fork() -> bool:
    """Return whether this process has one thread, on a system that shows all of them: Linux."""
    try:
        return sys.platform == "linux" and len(os.listdir(THREADS)) == 1
    except OSError:
        return False


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Let SIGINT and SIGTERM wait: an error that their handlers raise would leave a fork that nobody ends."""
    earlier = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, earlier)


class Forked:
    """A forked process with the attributes and methods of `subprocess.Popen` that a worker needs.

    serve: what the process does; its arguments are its standard input and output.
    """

    def __init__(self, serve: Callable[[BinaryIO, BinaryIO], None]) -> None:
        self.returncode: int | None = None
        child_input, parent_output = os.pipe()
        parent_input, child_output = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            _serve_and_exit(serve, child_input, child_output)
        os.close(child_input)
        os.close(child_output)
        self.stdin: BinaryIO = os.fdopen(parent_output, "wb")
        self.stdout: BinaryIO = os.fdopen(parent_input, "rb")

    def poll(self) -> int | None:
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self) -> int:
        if self.returncode is None:
            self.returncode = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self.returncode

    def kill(self) -> None:
        if self.poll() is None:  # else another process may have its number
            os.kill(self.pid, signal.SIGKILL)


def _serve_and_exit(serve: Callable[[BinaryIO, BinaryIO], None], child_input: int, child_output: int) -> None:
    """Never return: the code after the fork is the parent's."""
    status = 1
    try:
        os.dup2(child_input, 0)
        os.dup2(child_output, 1)
        gc.freeze()  # garbage of the parent would close files of this process, which get the same numbers
        os.closerange(3, os.sysconf("SC_OPEN_MAX"))  # locks and pipes of the parent must close when it ends
        serve(os.fdopen(0, "rb"), os.fdopen(1, "wb"))
        status = 0
    finally:
        os._exit(status)  # without the parent's handlers, and without writing what its streams hold
