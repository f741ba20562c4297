"""A lock on an output, so that two processes never write the same one; a process that died holds none."""

import contextlib
import os
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path

SECONDS_BETWEEN_TRIES = 0.05


class OutputTakenError(BlockingIOError):
    """Another process writes this output."""


@contextlib.contextmanager
def lock_output(path: str | os.PathLike[str], *, wait: bool = False) -> Iterator[None]:
    """Hold the lock of an output while the block runs; raise `OutputTakenError` that names the holder if there is one.

    With `wait`, wait for it instead.

    The lock of an existing folder is the file `.lock` in it, of anything else `.NAME.lock` beside it, so make
    a folder before you lock it. The system releases the lock when the process ends, however it ends. Of several
    processes that write one output together, let only the main one lock it.
    """
    target = Path(path).resolve()
    file = target / ".lock" if target.is_dir() else target.with_name(f".{target.name}.lock")
    file.parent.mkdir(parents=True, exist_ok=True)
    holder = file.with_name(f"{file.name}.holder")  # not the lock itself, which Windows lets nobody read
    while (descriptor := _locked(file)) is None:
        if not wait:
            raise OutputTakenError(
                f"{path} is being written by {_read(holder) or 'another process'}: wait until it has ended, or choose "
                "another output"
            )
        time.sleep(SECONDS_BETWEEN_TRIES)
    try:
        holder.write_text(f"process {os.getpid()} on {socket.gethostname()} since {time.ctime()}", encoding="utf-8")
        yield
    finally:
        for left in (holder, file):  # before the lock is released: nobody else's are removed
            with contextlib.suppress(OSError):  # Windows removes no open file
                left.unlink()
        _set_lock(descriptor, False)  # processes that were forked have the descriptor, too
        os.close(descriptor)


def _locked(file: Path) -> int | None:
    """Return the descriptor of a file that this process has locked, or `None` if another one has."""
    while True:
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            _set_lock(descriptor, True)
            if _is_at(descriptor, file):
                return descriptor
        except (BlockingIOError, PermissionError):  # the latter on Windows
            os.close(descriptor)
            return None
        os.close(descriptor)  # its last holder has removed it meanwhile


def _is_at(descriptor: int, file: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(file))
    except FileNotFoundError:
        return False


if sys.platform == "win32":
    import msvcrt

    def _set_lock(descriptor: int, taken: bool) -> None:
        os.lseek(descriptor, 0, os.SEEK_SET)
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK if taken else msvcrt.LK_UNLCK, 1)

else:
    import fcntl

    def _set_lock(descriptor: int, taken: bool) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB if taken else fcntl.LOCK_UN)


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return ""
