"""A lock on an output, so that two processes never write the same one; a process that died holds none."""

import contextlib
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

from filelock import FileLock, Timeout


class OutputTakenError(BlockingIOError):
    """Another process writes this output."""


@contextlib.contextmanager
def lock_output(path: str | os.PathLike[str], *, wait: bool = False) -> Iterator[None]:
    """Hold the lock of an output while the block runs; raise `OutputTakenError` that names the holder if there is one.

    With `wait`, wait for it instead.

    The lock of an existing folder is the file `.lock` in it, that of anything else is `.NAME.lock` beside it, so make
    a folder before you lock it. The system releases the lock when the process ends, however it ends. Of several
    processes that write one output together, let only the main one lock it.
    """
    target = Path(path).resolve()
    file = target / ".lock" if target.is_dir() else target.with_name(f".{target.name}.lock")
    file.parent.mkdir(parents=True, exist_ok=True)
    holder = file.with_name(f"{file.name}.holder")  # not the lock itself, which Windows lets nobody read
    lock = FileLock(file)
    try:
        lock.acquire(timeout=-1 if wait else 0)
    except Timeout:
        raise OutputTakenError(
            f"{path} is being written by {_read(holder) or 'another process'}: wait until it has ended, or choose "
            "another output"
        ) from None
    try:
        holder.write_text(f"process {os.getpid()} on {socket.gethostname()} since {time.ctime()}", encoding="utf-8")
        yield
    finally:
        for left in (holder, file):  # filelock notices that it has locked a removed file, and tries again
            with contextlib.suppress(OSError):  # Windows removes no open file
                left.unlink()
        lock.release()


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return ""
