"""Read a large file, or a package, in a process of its own, as the server does: so a slow parser can be stopped."""

from collections.abc import Sequence
from typing import Any
from weakref import finalize

from capsule_mt.formats.reading import Source, check_options, parse
from capsule_mt.formats.units import Parsed, Translated
from capsule_mt.formats.worker import Worker

SMALL = 16 << 10  # bytes: `html.parser` takes less than three seconds for the worst page of this size
PACKAGE = b"PK"  # begins .docx, .epub and their like, which are larger inside
SECONDS, SECONDS_PER_MIB = 60.0, 60.0  # of the processor
MEMORY, MEMORY_PER_BYTE = 4 << 30, 128  # an XML document takes about 60 bytes for each of its own
MAX_MESSAGE = 1 << 30  # bytes: more than the server allows, since the file is the user's own


class ParsedApart:
    """A parsed file whose parser runs in a process of its own, which reads the file again to write it."""

    def __init__(self, source: Source) -> None:
        size = len(source.content)
        seconds, memory = SECONDS + SECONDS_PER_MIB * size / (1 << 20), max(MEMORY, MEMORY_PER_BYTE * size)
        self._source, self._worker = source, Worker(seconds, memory, MAX_MESSAGE, forks=True)
        finalize(self, self._worker.close)
        texts = self._worker.read(source, MAX_MESSAGE)
        self.units, self.keep = texts.units, texts.keep

    def write(self, translations: Sequence[Translated]) -> bytes:
        with self._worker as worker:
            (content,) = worker.write(self._source, [translations])
        return content


def parse_apart(content: bytes, format: str, *, name: object, **options: Any) -> Parsed:
    """Return what `parse` returns for these options; a small file that is not a package is read in this process."""
    if len(content) < SMALL and not content.startswith(PACKAGE):
        return parse(content, format, name=name, **options)
    check_options(format, str(name), options.get("column"), options.get("flag_all", False))
    return ParsedApart(Source(content, format, str(name), **options))
