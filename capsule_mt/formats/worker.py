"""Read and write files to translate in the sandbox."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from capsule_mt.files.sandbox.worker import Sandbox
from capsule_mt.formats.child import answer
from capsule_mt.formats.reading import Source
from capsule_mt.formats.units import FormatError, Translated, Unit


class Texts(NamedTuple):
    """The texts of a file to translate; `units` is empty if they have too many `characters`."""

    units: list[Unit]
    keep: tuple[str, ...]
    characters: int


class Worker(Sandbox):
    """A process that reads files, one at a time.

    To write a file, it reads it again: it keeps no file while the texts are being translated.
    """

    answer, error_type = staticmethod(answer), FormatError

    def read(self, source: Source, max_characters: int) -> Texts:
        """Return the texts to translate, or raise a `FormatError` that names the fault."""
        answer, _ = self._send_source(source, max_characters=max_characters, translations=None)
        units = [Unit(*map(str, unit)) for unit in answer["units"]]
        return Texts(units, tuple(map(str, answer["keep"])), int(answer["characters"]))

    def write(self, source: Source, translations: Sequence[Sequence[Translated]]) -> list[bytes]:
        """Return one file for each of these lists of translations."""
        return self._send_source(source, translations=translations)[1]

    def _send_source(self, source: Source, **job: Any) -> tuple[dict[str, Any], list[bytes]]:
        options = source._asdict()
        content, name = options.pop("content"), options.pop("name")
        return self._send(name, [content], **options, **job)
