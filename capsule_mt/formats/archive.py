"""Documents that are zip files of XML, such as .docx, read and written within limits."""

import io
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from capsule_mt.formats.units import FormatError
from capsule_mt.formats.xml import MAX_BYTES, Element, parse

# the methods that office programs use; bzip2 and LZMA inflate far more, whatever size the archive states
COMPRESSION_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)


class Kind(NamedTuple):
    """A kind of document: what messages call it, and the part without which a zip file is something else."""

    name: str
    main_part: str


class Archive:
    """The parts of a document. All that are not written anew stay as they are, in their order."""

    def __init__(self, content: bytes, name: str, kind: Kind) -> None:
        self.name, self._kind = name, kind
        with self._errors():
            self._zip = zipfile.ZipFile(io.BytesIO(content))
            self._parts = {part.filename: part for part in self._zip.infolist()}
            self._check(self._zip.infolist())

    @property
    def names(self) -> list[str]:
        return list(self._parts)

    def read(self, part: str) -> bytes:
        """Return the content of a part; no more is inflated than the size that the archive states."""
        with self._errors(), self._zip.open(self._parts[part]) as stream:
            return stream.read(self._parts[part].file_size)

    def tree(self, part: str, allows_doctype: bool = False) -> Element:
        """Return a part that is XML."""
        return parse(self.read(part), f"{self.name}, {part}", allows_doctype)

    def written(self, contents: Mapping[str, Callable[[], bytes]]) -> bytes:
        """Return the archive with new contents of these parts."""
        stream = io.BytesIO()
        with zipfile.ZipFile(stream, "w") as archive:
            for part, info in self._parts.items():
                archive.writestr(info, contents[part]() if part in contents else self.read(part))
        return stream.getvalue()

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except FormatError:
            raise
        except (
            *(zipfile.BadZipFile, zipfile.LargeZipFile, zlib.error),
            *(EOFError, NotImplementedError, RuntimeError, OSError, ValueError),
        ) as error:
            raise FormatError(f"{self.name}: not {self._kind.name}, or a damaged one ({str(error)[:200]})") from None

    def _check(self, parts: Sequence[zipfile.ZipInfo]) -> None:
        """Raise an error if the archive is something else or would take too much memory."""
        names = Counter(part.filename for part in parts)
        if self._kind.main_part not in names:
            raise FormatError(f"{self.name}: not {self._kind.name}, it does not have {self._kind.main_part}")
        duplicate = next((part for part, count in names.items() if count > 1), None)
        if duplicate is not None:
            raise FormatError(f"{self.name}: has the part {duplicate[:80]} twice")
        unsupported = next((part for part in parts if part.compress_type not in COMPRESSION_METHODS), None)
        if unsupported is not None:
            raise FormatError(
                f"{self.name}: {unsupported.filename[:80]} is compressed by method {unsupported.compress_type}; "
                f"{self._kind.name} has 8 (deflate) or 0 (stored): save it again"
            )
        size = sum(part.file_size for part in parts)
        if size > MAX_BYTES:
            raise FormatError(f"{self.name}: its parts have {size} bytes, at most {MAX_BYTES} are read")
