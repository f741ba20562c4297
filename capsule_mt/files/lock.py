"""A lock on an output, so that two processes never write to it at once; the lock of a dead process is free."""

import contextlib
import os
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from capsule_mt.files.outputs import check_new_folder, is_stream, naming_errors, remove_partials, write_output

SECONDS_BETWEEN_TRIES = 0.05


class OutputTakenError(BlockingIOError):
    """Another process is writing this output."""


def write_alone(path: str | os.PathLike[str], content: str | bytes) -> None:
    """Write a file as `write_output` does, while no other process does; remove what killed processes left of it."""
    with contextlib.nullcontext() if is_stream(path) else lock_output(path, wait=True):
        remove_partials(Path(path))
        write_output(path, content)


@contextlib.contextmanager
def lock_output(path: str | os.PathLike[str], *, wait: bool = False) -> Iterator[None]:
    """Hold the lock of an output while the block runs.

    The lock of an existing folder is the file `.lock` in it, of anything else `.NAME.lock` beside it, so make a folder
    before you lock it. The system releases the lock when the process and its forks end, however they end. If several
    processes write an output together, let only the main one lock it.

    Args:
        wait: wait for another process that holds the lock.

    Raises:
        OutputTakenError: Another process holds the lock; the error names it, if it is known.
    """
    target = Path(path).resolve()
    file = target / ".lock" if target.is_dir() else target.with_name(f".{target.name}.lock")
    file.parent.mkdir(parents=True, exist_ok=True)
    holder = file.with_name(f"{file.name}.holder")  # not the lock itself, which Windows lets nobody read
    while (descriptor := _locked(file)) is None:
        if not wait:
            raise OutputTakenError(
                f"{path} is being written by {_read(holder) or 'another process'}: wait for it to end, or choose "
                "another output"
            )
        time.sleep(SECONDS_BETWEEN_TRIES)
    try:
        description = f"process {os.getpid()} on {socket.gethostname()} since {time.ctime()}"
        with naming_errors(holder):
            holder.write_text(description, encoding="utf-8")
        yield
    finally:
        for lock_file in (holder, file):  # before the lock is released, or the files may be another process's
            with contextlib.suppress(OSError):  # Windows does not remove an open file
                lock_file.unlink()
        _set_lock(descriptor, is_locked=False)  # closing is not enough: forked processes have the descriptor, too
        os.close(descriptor)


@contextlib.contextmanager
def open_folder(path: Path) -> Iterator[Path]:
    """Yield the path of a folder that the block makes; it gets the name `path` if the block ends without an error.

    `path` must be new or empty, and is so again after an error. No other process writes it meanwhile, and what a
    killed one left is removed. Errors of writing are named as by `naming_errors`.
    """
    import shutil  # late: not every lock is a folder's

    check_new_folder(path)
    target = path.resolve()
    if was_empty := target.exists():
        target.rmdir()  # now: the lock of a folder that exists would be in it
    partial = target.with_name(f".{target.name}.partial")  # hidden, so that it is nobody's own folder
    with naming_errors(path), lock_output(target):
        shutil.rmtree(partial, ignore_errors=True)
        try:
            yield partial
            partial.rename(target)
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            if was_empty:
                target.mkdir(exist_ok=True)
            raise


def _locked(file: Path) -> int | None:
    """Lock a file and return its descriptor, or `None` if another process holds the lock."""
    while True:
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            _set_lock(descriptor, is_locked=True)
            if _is_at(descriptor, file):
                return descriptor
        except (BlockingIOError, PermissionError):  # the latter on Windows
            os.close(descriptor)
            return None
        os.close(descriptor)  # the last holder has removed the file meanwhile: lock a new one


def _is_at(descriptor: int, file: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(file))
    except FileNotFoundError:
        return False


if sys.platform == "win32":
    import msvcrt

    def _set_lock(descriptor: int, is_locked: bool) -> None:
        os.lseek(descriptor, 0, os.SEEK_SET)
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK if is_locked else msvcrt.LK_UNLCK, 1)

else:
    import fcntl

    def _set_lock(descriptor: int, is_locked: bool) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB if is_locked else fcntl.LOCK_UN)


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return ""
