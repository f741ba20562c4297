"""Read text files, plain or gzipped, line by line: the same lines and the same errors for every command."""

import codecs
import io
import os
import time
from collections import deque
from collections.abc import Iterator, Sequence
from typing import BinaryIO, cast

from capsule_mt.files.binary import refuse_binary
from capsule_mt.messages import with_unit

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
BYTES_AT_ONCE = 1 << 16
SECONDS_FOR_NEXT_LINE = 0.1


def decode_lines(
    stream: "BinaryIO | LiveLines", name: str | os.PathLike[str], encoding: str | None = None
) -> Iterator[str]:
    """Yield the lines of a stream without their ends and without a byte-order mark.

    Only a line feed ends a line: `str.splitlines` also splits at form feeds, U+2028 and others, which occur inside
    sentences and would shift one side of a parallel text against the other.

    Args:
        name: the file's name in errors.
        encoding: by default UTF-8.

    Raises:
        ValueError: It is not text in this encoding, or the gzip stream is damaged or cut off.
    """
    lines = _decode_utf8(stream, name)
    if encoding is not None:
        from capsule_mt.files.encodings import check_encoding  # late: most files are UTF-8

        if codecs.lookup(check_encoding(encoding)).name != "utf-8":
            lines = _decode_by_wrapper(stream, name, encoding)
    num_lines = 0
    try:
        for line in lines:
            num_lines += 1
            yield line
    except Exception as error:
        if not _is_of_damaged_gzip(error):
            raise
        raise ValueError(f"{name}, after line {num_lines}: the gzip file is damaged ({error})") from None


def _is_of_damaged_gzip(error: Exception) -> bool:
    import gzip  # late: this is an error
    import zlib

    return isinstance(error, (EOFError, gzip.BadGzipFile, zlib.error))


class LiveLines:
    """The lines of a pipe or a terminal, and whether the next one is there without waiting.

    Args:
        descriptor: an open file descriptor that `select` takes.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor, self._lines, self._has_ended = descriptor, deque[bytes](), False
        self._unfinished: list[bytes] = []  # the line that has no end yet: joined once, however long it is

    def __iter__(self) -> Iterator[bytes]:
        while True:
            while self._lines:
                yield self._lines.popleft()
            if self._has_ended:
                return
            self._read()

    def has_line(self) -> bool:
        """Return whether the next line, or the end, comes within a tenth of a second."""
        import select

        end = time.monotonic() + SECONDS_FOR_NEXT_LINE
        while not self._lines and not self._has_ended:
            seconds = end - time.monotonic()
            if seconds < 0 or not select.select([self._descriptor], [], [], seconds)[0]:
                return False
            self._read()
        return True

    def _read(self) -> None:
        content = os.read(self._descriptor, BYTES_AT_ONCE)
        *lines, unfinished = content.split(b"\n")
        if lines:
            lines[0] = b"".join([*self._unfinished, lines[0]])
            self._unfinished = []
        self._lines.extend(line + b"\n" for line in lines)
        if unfinished:
            self._unfinished.append(unfinished)
        if not content:
            self._has_ended = True
            if self._unfinished:
                self._lines.append(b"".join(self._unfinished))


def _decode_utf8(stream: "BinaryIO | LiveLines", name: str | os.PathLike[str]) -> Iterator[str]:
    for line_number, line in enumerate(stream, start=1):
        if line_number == 1:
            refuse_binary(line, name)
        text = line.removesuffix(b"\n").removesuffix(b"\r")
        try:
            yield (text.removeprefix(BYTE_ORDER_MARK) if line_number == 1 else text).decode("utf-8")
        except UnicodeDecodeError as error:
            from capsule_mt.files.encodings import encoding_hint

            reason = f"{error.reason} at byte {error.start}"
            raise ValueError(f"{name}, line {line_number}: not UTF-8 ({reason}){encoding_hint(text)}") from None


def _decode_by_wrapper(stream: "BinaryIO | LiveLines", name: str | os.PathLike[str], encoding: str) -> Iterator[str]:
    """Decode text whose bytes cannot be cut into lines: a line feed may be two bytes, or a part of a character."""
    line_number = 0
    try:
        lines = io.TextIOWrapper(cast(BinaryIO, stream), encoding, newline="\n")
        for line_number, line in enumerate(lines, start=1):
            yield (line.removeprefix("\ufeff") if line_number == 1 else line).removesuffix("\n").removesuffix("\r")
    except UnicodeError as error:
        reason = getattr(error, "reason", error)
        raise ValueError(f"{name}, after line {line_number}: not {encoding} ({reason})") from None


def decoded(content: bytes, name: object, encoding: str | None = None) -> str:
    """Return the text of a file; without an `encoding`, by its byte-order mark, or else as UTF-8.

    If the bytes are not in that encoding, the error names the line, and the likely encoding if there is one.
    """
    from capsule_mt.files.encodings import MAX_SAMPLE, check_encoding, encoding_hint, encoding_of_mark  # late

    stated = encoding or encoding_of_mark(content)
    refuse_binary(content[:MAX_SAMPLE], name, stated)
    used = stated or "utf-8"
    try:
        return content.decode(check_encoding(used)).removeprefix("\ufeff")
    except UnicodeError as error:
        start, reason = getattr(error, "start", 0), getattr(error, "reason", str(error))
        line = content.count(b"\n", 0, start) + 1
        column = start - (content.rfind(b"\n", 0, start) + 1)
        shown = "UTF-8" if used in ("utf-8", "utf-8-sig") else used
        raise ValueError(
            f"{name}, line {line}: not {shown} ({reason} at byte {column}){encoding_hint(content)}"
        ) from None


def open_text(path: str | os.PathLike[str]) -> BinaryIO:
    """Open a file for `decode_lines`; a file whose name ends in .gz is unpacked."""
    if not os.path.exists(path):
        raise ValueError(f"{path}: no such file")
    if os.path.isdir(path):
        raise ValueError(f"{path} is a folder; a file of text is needed")
    if os.path.splitext(path)[1] != ".gz":
        return open(path, "rb")
    if os.path.isfile(path) and os.path.getsize(path) == 0:
        raise ValueError(f"{path}, after line 0: the gzip file is damaged (it has no bytes)")
    import gzip

    return cast(BinaryIO, gzip.open(path, "rb"))


def read_bytes(path: str | os.PathLike[str]) -> bytes:
    """Return the content of a file, unpacked if its name ends in .gz."""
    with open_text(path) as stream:
        try:
            return stream.read()
        except Exception as error:
            if not _is_of_damaged_gzip(error):
                raise
            raise ValueError(f"{path}: the gzip file is damaged ({error})") from None


def iterate_lines(path: str | os.PathLike[str]) -> Iterator[str]:
    """Yield the lines of a file as `decode_lines` does, one at a time, for files larger than memory."""
    with open_text(path) as stream:
        yield from decode_lines(stream, path)


def read_lines(path: str | os.PathLike[str]) -> list[str]:
    """Return the lines of a file."""
    return list(iterate_lines(path))


def read_parallel(paths: Sequence[str | os.PathLike[str]]) -> list[list[str]]:
    """Return the lines of several files, which must have the same number of lines."""
    sides = [read_lines(path) for path in paths]
    for path, lines in zip(paths, sides, strict=True):
        if len(lines) != len(sides[0]):
            raise ValueError(f"{path}: has {with_unit(len(lines), 'lines')}, but {paths[0]} has {len(sides[0])}")
    return sides
