"""Read the bytes of a file with the reader of its format, and translate them."""

import codecs
import io
import re
import zlib
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from capsule_mt.files.encodings import check_encoding, encoding_of_mark, is_utf8
from capsule_mt.files.reading import decoded
from capsule_mt.formats.format import Format, InputFile
from capsule_mt.formats.registry import FLAGGING, INDEX, TABLES, format_named
from capsule_mt.formats.units import (
    FormatError,
    Parsed,
    Translated,
    Unit,
    named_errors,
    notes_of,
    translated,
)
from capsule_mt.messages import warn
from capsule_mt.text.languages import file_code

PLAIN = "text"  # not in the registry: the whole file is one unit
GZIP = b"\x1f\x8b"
MAX_UNPACKED = 256 << 20  # bytes
MAX_DECLARATION = 4096  # bytes of a file in which it may declare its encoding


class Source(NamedTuple):
    """A file as it was sent; its options are those of `parse`."""

    content: bytes
    format: str
    name: str
    encoding: str | None = None
    language: str | None = None
    column: str | None = None
    flag_all: bool = False


def parse(
    content: bytes,
    format: str,
    *,
    name: object = "the file",
    encoding: str | None = None,
    column: str | None = None,
    language: str | None = None,
    flag_all: bool = False,
) -> Parsed:
    """Read a file, and write it once as a trial: a file that cannot be written fails before it is translated.

    Args:
        format: one of `INDEX`, or `PLAIN`.
        name: the file's name in messages.
        encoding: by default the one that the file states, else that of its format, mostly UTF-8.
        column: the column of a table to translate, by its number from 1 or its name.
        language: the code of the target language, which some formats state.
        flag_all: flag every translation for review, not only those that fail a check.
    """
    shown = str(name)
    check_options(format, shown, column, flag_all)
    source = Source(content, format, shown, encoding, language, column, flag_all)
    with named_errors(shown, format):
        read_after_trial(source)
        return NamedFile(read(source), source)  # again: the trial has changed the first one


def check_options(format: str, name: str, column: str | None, flag_all: bool) -> None:
    """Raise a `ValueError` for an unknown format, or one that lacks or needs other options than these."""
    if format not in (PLAIN, *INDEX):
        raise ValueError(f"`format` must be one of {', '.join(INDEX)}, got {format!r}")
    if format in TABLES and column is None:
        raise ValueError(f"{name}: a table needs the column to translate (`--column 2`)")
    if format not in TABLES and column is not None:
        raise ValueError(f"{name}: `column` is for tables ({', '.join(TABLES)}), this is {format}")
    if flag_all and format not in FLAGGING:
        raise ValueError(f"{name}: `flag_all` is for {', '.join(FLAGGING)}; {format} does not have flags")


class NamedFile:
    """A parsed file whose errors on writing name it."""

    def __init__(self, file: Parsed, source: Source) -> None:
        self._file, self._name, self._format, self._flag_all = file, source.name, source.format, source.flag_all
        self.units, self.keep = file.units, file.keep

    def write(self, translations: Sequence[Translated]) -> bytes:
        if len(translations) != len(self.units):
            raise ValueError(
                f"`translations` must have one for each of the {len(self.units)} units, got {len(translations)}"
            )
        if self._flag_all:
            translations = [translation._replace(needs_review=True) for translation in translations]
        with named_errors(self._name, self._format):
            return self._file.write(translations)


def read_after_trial(source: Source) -> Parsed:
    """Read a file and write it as a trial, which changes it: take only its units."""
    file = read(source)
    file.write([Translated(unit.text) for unit in file.units])
    return file


def read(source: Source) -> Parsed:
    """Read a file with the reader of its format; a packed one is packed again when it is written."""
    content, name = source.content, source.name
    if content.startswith(GZIP) and name.lower().endswith(".gz"):
        return _Packed(read(source._replace(content=_unpacked(content, name))))
    format = PLAIN_TEXT if source.format == PLAIN else format_named(source.format)
    language = None if source.language is None else file_code(source.language)
    if language is not None and format.has_language_tags:
        language = language.replace("_", "-")
    if format.is_binary:
        return format.reader(InputFile(name, content, "", None, language, source.column))
    text, encoding = _decoded(source, format)
    if format.needs_line_feeds and "\r" in text and "\n" not in text:
        raise FormatError(f"{name}: its lines end with CR alone, as on old Macs; let them end with LF or CRLF")
    file = format.reader(InputFile(name, content, text, encoding, language, source.column))
    return _WithByteOrderMark(file) if format.keeps_mark and content.startswith(codecs.BOM_UTF8) else file


def _decoded(source: Source, format: Format) -> tuple[str, str | None]:
    """Return the text of a file, and the encoding that the caller names or the file states."""
    content, name = source.content, source.name
    for start, reason in format.refused_starts.items():
        if content.startswith(start):
            raise FormatError(f"{name}: {reason}")
    encoding = source.encoding or encoding_of_mark(content) or _declared(content, format.declaration)
    if encoding is None and format.default_encoding is not None and not is_utf8(content):
        encoding = format.default_encoding
    try:
        check_encoding(encoding or "utf-8")
    except ValueError as error:
        raise FormatError(f"{name}: {error}") from None
    try:
        return decoded(content, name, encoding), encoding
    except ValueError as error:
        raise FormatError(str(error)) from None


def _declared(content: bytes, declaration: bytes | None) -> str | None:
    """Return the encoding that a file declares."""
    match = re.search(declaration, content[:MAX_DECLARATION]) if declaration is not None else None
    if match is None or match[1] == b"CHARSET":  # as templates have it (.pot)
        return None
    return match[1].decode("ascii")


class _Plain:
    """A text without a format: one unit."""

    keep: Sequence[str] = ()

    def __init__(self, text: str) -> None:
        self.units = [Unit(text, "the text")]

    def write(self, translations: Sequence[Translated]) -> bytes:
        (translated,) = translations
        return (self.units[0].text if translated.text is None else translated.text).encode()


PLAIN_TEXT = Format(
    name=PLAIN,
    suffixes=(),
    title="Text",
    reader=lambda file: _Plain(file.text),
    keeps_mark=False,
    translated="everything",
    unchanged="nothing",
)


class _WithByteOrderMark:
    """A file with a byte-order mark, by which some programs recognise UTF-8."""

    def __init__(self, file: Parsed) -> None:
        self._file, self.units, self.keep = file, file.units, file.keep

    def write(self, translations: Sequence[Translated]) -> bytes:
        return codecs.BOM_UTF8 + self._file.write(translations)


class _Packed:
    """A file inside a gzip file."""

    def __init__(self, file: Parsed) -> None:
        self._file, self.units, self.keep = file, file.units, file.keep

    def write(self, translations: Sequence[Translated]) -> bytes:
        import gzip  # late: few files are packed

        return gzip.compress(self._file.write(translations), mtime=0)


def _unpacked(content: bytes, name: str) -> bytes:
    """Return the content of a gzip file; no more is inflated than we read."""
    import gzip  # late: few files are packed

    try:
        with gzip.GzipFile(fileobj=io.BytesIO(content)) as stream:
            unpacked = stream.read(MAX_UNPACKED + 1)
    except (EOFError, OSError, zlib.error) as error:
        raise FormatError(f"{name}: the gzip file is damaged ({error})") from None
    if len(unpacked) > MAX_UNPACKED:
        raise FormatError(f"{name}: unpacks to more than {MAX_UNPACKED} bytes, the most that are read")
    return unpacked


def translate_file(
    content: bytes,
    format: str,
    translate: Callable[..., Sequence[Any]],
    *,
    name: object = "the file",
    encoding: str | None = None,
    column: str | None = None,
    language: str | None = None,
    flag_all: bool = False,
    **unknown: Any,
) -> bytes:
    """Return a file of the same kind with its texts translated.

        translate_file(page, "html", translator, name="page.html")

    These cause a warning: a text that stays in the source language, a language of a `.po` that changes, a translation
    with other placeholders, in place of which some formats keep the text, and one of a plural form that lost its
    number.

    Args:
        translate: a `Translator`, or another callable that takes a list of texts, and `keep`, and returns a
            `Translation` of each. A `partial` of a `Translator` has options for it, such as `num_beams`. With
            `coverage`, what it finds flags translations.
        name, encoding, column, flag_all: those of `parse`.
        language: that of `parse`; by default the target language of the `Translator`.
    """
    if unknown:
        raise TypeError(
            f"`translate_file` does not have an option `{next(iter(unknown))}`; it has name, encoding, column, "
            "language and flag_all. Options of a `Translator` go into a partial: "
            f"`translate_file(content, {format!r}, partial(translator, num_beams=4))`"
        )
    if isinstance(translate, partial) and (translate.keywords.get("num_return_sequences") or 1) > 1:
        raise ValueError("`num_return_sequences` must be 1: a file has one translation of each text")
    if language is None:
        language = target_language_of(translate)
    options: dict[str, Any] = {"encoding": encoding, "column": column, "language": language, "flag_all": flag_all}
    parsed = parse(content, format, name=name, **options)
    for location, note in notes_of(parsed.units):
        warn(f"{name}, {location}: {note}")
    texts = [unit.text for unit in parsed.units]
    kept = translate.keywords.get("keep", ()) if isinstance(translate, partial) else ()
    translations = translate(texts, keep=list(dict.fromkeys((*parsed.keep, *kept))))
    for unit, translation in zip(parsed.units, translations, strict=True):
        facts = unit.facts(translation.text)
        if facts["has_other_placeholders"]:
            warn(f"{name}, {unit.location}: the placeholders of the translation differ from the text's: check it")
        if "lost_number" in facts:
            from capsule_mt.coverage.problems import problem_of  # late: most files have no such text

            warn(f"{name}, {unit.location}: {problem_of('plural', number=unit.number).message}")
    pairs = zip(parsed.units, translations, strict=True)
    return parsed.write([translated(unit, translation) for unit, translation in pairs])


def target_language_of(translate: Callable[..., object]) -> str | None:
    """Return the target language of a `Translator`, also of one with some options; `None` of other callables."""
    if isinstance(translate, partial):
        return translate.keywords.get("tgt_lang") or target_language_of(translate.func)
    return getattr(translate, "target_language", None)
