"""Open the files of a model's folder, which is not trusted: only regular ones. A link must stay in its folder, or be
one of Hugging Face's cache.
"""

import mmap
import os
import stat
from io import BufferedReader
from threading import Lock

from capsule_mt.messages import check_path

MIN_MAPPED_SIZE = 1 << 17  # bytes: reading fewer is faster than mapping them
MAX_TEXT = 1 << 26  # bytes of a file that is read whole, such as tokenizer.json: the largest known one has 34 MB
# O_NONBLOCK: opening a pipe would wait for its writer. O_BINARY: else Windows translates line ends
FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
HUB_BLOBS = os.path.join(os.pardir, os.pardir, "blobs")  # the files of a snapshot in the cache of Hugging Face


class CheckpointError(ValueError):
    """A checkpoint is damaged, or its files do not fit together. The message names the file or the folder."""


def check_name_or_folder(value: object, argument: str) -> None:
    """Refuse an argument that cannot name a model."""
    check_path(value, argument, "the folder or the name of a model, as a string or a path")


def check_shortlist(value: object) -> None:
    """Refuse a `shortlist` that is not a path, True, False or `None`."""
    if value is not None and not isinstance(value, bool):
        check_path(value, "shortlist", "True, False or a file of `capsule-mt shortlist`")


def open_file(file: str | os.PathLike[str], max_size: int | None = None) -> BufferedReader:
    """Open a file of a model for reading, as `open_descriptor` does."""
    descriptor = open_descriptor(file, max_size)
    try:
        return open(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def open_descriptor(file: str | os.PathLike[str], max_size: int | None = None) -> int:
    """Open a file of a model; return its descriptor, which the caller closes.

    Args:
        max_size: the largest size in bytes; by default any size.

    Raises:
        CheckpointError: no such file, a link to elsewhere, a folder, a pipe or a device, or too large a file.
    """
    _refuse_links_to_elsewhere(file)
    try:
        descriptor = os.open(file, FLAGS)
    except FileNotFoundError:
        raise CheckpointError(f"{os.fspath(file)}: no such file") from None
    except OSError as error:
        if os.path.isfile(file):  # without permission, say
            raise
        raise CheckpointError(f"{os.fspath(file)}: is not a regular file ({error.strerror})") from None
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise CheckpointError(f"{os.fspath(file)}: is not a regular file")
        if max_size is not None and status.st_size > max_size:
            raise CheckpointError(f"{os.fspath(file)}: has {status.st_size} bytes; at most {max_size} are read")
        return descriptor
    except BaseException:
        os.close(descriptor)
        raise


class OpenFile:
    """A file of a model, open until this object is dropped. Threads and forked processes may share it."""

    def __init__(self, file: str | os.PathLike[str]) -> None:
        self.descriptor = open_descriptor(file)
        self._lock = Lock()

    def __del__(self) -> None:
        if hasattr(self, "descriptor"):
            os.close(self.descriptor)

    def read(self, start: int, size: int) -> bytes:
        """Return `size` bytes from `start` on, or fewer if the file ends before."""
        if hasattr(os, "pread"):  # it does not move the offset, which forked processes share
            return os.pread(self.descriptor, size, start)
        with self._lock:  # Windows lacks `os.pread`, and does not fork
            os.lseek(self.descriptor, start, os.SEEK_SET)
            return os.read(self.descriptor, size)

    def content(self, start: int, size: int) -> "bytes | memoryview":
        """Return the same, aligned for the engine; many that are aligned in the file stay there until used.

        If the file ends before, return fewer bytes, or none.
        """
        if size < MIN_MAPPED_SIZE:
            return self.read(start, size)
        if os.fstat(self.descriptor).st_size < start + size:
            return b""
        # a map for each tensor, so that its memory is freed with it
        padding = start % mmap.ALLOCATIONGRANULARITY
        mapped = mmap.mmap(self.descriptor, padding + size, access=mmap.ACCESS_READ, offset=start - padding)
        content = memoryview(mapped)[padding:]
        return content if start % 8 == 0 else bytes(content)  # the engine reads aligned numbers only


def read_file(file: str | os.PathLike[str]) -> bytes:
    """Return the content of a file of a model; refuse more than `MAX_TEXT` bytes."""
    with open_file(file, MAX_TEXT) as stream:
        return stream.read()


def read_text(file: str | os.PathLike[str]) -> str:
    """Return the text of a file of a model in UTF-8, with its line ends as they are."""
    try:
        return read_file(file).decode()
    except UnicodeDecodeError:
        raise CheckpointError(f"{os.fspath(file)}: is not UTF-8") from None


def _refuse_links_to_elsewhere(file: str | os.PathLike[str]) -> None:
    """Refuse a link out of the file's folder, except for the cache of Hugging Face, whose snapshots are links."""
    if not os.path.islink(file):
        return
    folder, target = os.path.realpath(os.path.dirname(file)), os.path.realpath(file)
    allowed = folder, os.path.realpath(os.path.join(folder, HUB_BLOBS))
    if not any(os.path.dirname(target) == parent or target.startswith(parent + os.sep) for parent in allowed):
        raise CheckpointError(
            f"{os.fspath(file)}: is a link to {target}, outside of the model's folder: copy the file there"
        )
