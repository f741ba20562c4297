"""Choose a format by a file's name, and parse the bytes of the file."""

import codecs
import io
import os
import re
import zlib
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from capsule_mt.formats.units import FormatError, Parsed, Translated, Unit, named_errors, notes_of, translated
from capsule_mt.messages import warn
from capsule_mt.text.languages import file_code, is_known_language

# the formats and the suffixes of their files
FORMATS = {
    "html": (".html", ".htm", ".xhtml"),
    "srt": (".srt",),
    "vtt": (".vtt",),
    "ass": (".ass", ".ssa"),
    "po": (".po", ".pot"),
    "xliff": (".xliff", ".xlf", ".sdlxliff", ".mqxliff", ".mxliff", ".poxliff"),
    "markdown": (".md", ".markdown", ".mdx"),
    "docx": (".docx",),
    "pptx": (".pptx",),
    "odt": (".odt", ".odp"),
    "epub": (".epub",),
    "json": (".json",),
    "arb": (".arb",),
    "yaml": (".yml", ".yaml"),
    "properties": (".properties",),
    "strings": (".strings",),
    "stringsdict": (".stringsdict",),
    "android": (".xml",),
    "resx": (".resx", ".resw"),
    "qt": (".ts",),
    "tsv": (".tsv",),
    "csv": (".csv",),
}
# catalogs of apps, whose messages are loaded by a program
CATALOGS = ("json", "arb", "properties", "strings", "stringsdict", "android", "resx", "qt", "yaml")
TABLE_FORMATS = ("tsv", "csv")
ARCHIVE_FORMATS = ("docx", "pptx", "odt", "epub")
LINE_FORMATS = ("po", "properties", "yaml", "srt", "vtt", "ass", "markdown", *TABLE_FORMATS)  # line breaks count
FLAGGING_FORMATS = ("po", "xliff", "qt")  # in which a translation can be flagged for review
BCP_47_FORMATS = ("html", "epub", "xliff")  # which state a language as "pt-BR"; others also as "pt_BR"
# programs of the Translate Toolkit that make a .po of a kind of file
CONVERTERS = {".toml": "toml2po", ".ini": "ini2po", ".ftl": "fluent2po", ".php": "php2po", ".rc": "rc2po"}
# suffixes of files whose lines are sentences; a file may also be named after its language, as text.pt_BR
LINE_SUFFIXES = (".txt", ".text", ".src", ".trg", ".tgt", ".ref", ".hyp")
# suffixes of files that are more than lines of text and that we cannot read, and what else to do with them
UNREADABLE_SUFFIXES = {
    **{suffix: f"`{program}` of the Translate Toolkit makes a .po of it" for suffix, program in CONVERTERS.items()},
    ".adoc": "`asciidoc2po` of the Translate Toolkit makes a .po of it",
    ".ics": "`ical2po` of the Translate Toolkit makes a .po of it",
    ".sub": "`sub2po` of the Translate Toolkit makes a .po of it",
    ".xcstrings": "let Xcode export the localization as .xliff",
    **dict.fromkeys((".json5", ".jsonc"), "write it as .json, without comments"),
    **dict.fromkeys((".jsonl", ".tmx", ".svg", ".rst", ".tex", ".ipynb", ".sbv", ".ttml"), ""),
    **dict.fromkeys((".tbx", ".dtd", ".catkeys"), ""),
}
GZIP = b"\x1f\x8b"
MAX_UNPACKED = 256 << 20  # bytes
# how a file begins that is XML or HTML, whatever its name is
MARKUP_START = (
    rb"(?i)(?:\xef\xbb\xbf)?\s*(?:<!--(?s:.*?)-->\s*)?"
    rb"<(?:\?xml\s|!doctype\s|!entity\s|html[\s>]|[a-z][\w:.-]*\s[^<>]*\bxmlns\b)"
)
WHOLE_PAGE = rb"(?i)<(?:html|head)[\s>]"
PLAIN = "text"  # the whole file is one unit
# where a file declares its encoding
DECLARATIONS = {
    "html": rb"""(?i)<meta[^>]+charset\s*=\s*(?:["']\s*)?([\w.:-]+)""",
    "po": rb"charset=([\w.:-]+)",
    **dict.fromkeys(
        ("xliff", "stringsdict", "android", "resx", "qt"), rb"""<\?xml[^>]*encoding\s*=\s*["']([\w.:-]+)"""
    ),
}


def suffix_of(name: object) -> str:
    """Return the suffix of a name in lower case, without a final .gz."""
    stem, suffix = os.path.splitext(str(name).lower())
    return os.path.splitext(stem)[1] if suffix == ".gz" else suffix


def format_of(name: object) -> str | None:
    """Return the format of a file by its name, which may also end in .gz; `None` if we do not have a reader for it."""
    suffix = suffix_of(name)
    return next((format for format, suffixes in FORMATS.items() if suffix in suffixes), None)


def has_plain_lines(name: object) -> bool:
    """Return whether a file has plain lines of text by its name, which may also end in .gz."""
    suffix = suffix_of(name)
    return suffix in ("", *LINE_SUFFIXES) or is_known_language(suffix[1:])


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
        format: one of `FORMATS`, or `PLAIN`.
        name: the file's name in messages.
        encoding: by default the one that the file declares, else UTF-8.
        column: the column of a table to translate, by its number from 1 or its name.
        language: the code of the target language, which some formats state.
        flag_all: flag every translation for review, not only those that fail a check.
    """
    shown = str(name)
    check_options(format, shown, column, flag_all)
    if language is not None:
        language = file_code(language)
        if format in BCP_47_FORMATS:
            language = language.replace("_", "-")
    options = (content, format, shown, encoding, column, language)
    with named_errors(shown, format):
        read_after_trial(*options)
        return NamedFile(read(*options), shown, format, flag_all)  # again: the trial has changed the first one


def check_options(format: str, name: str, column: str | None, flag_all: bool) -> None:
    """Raise a `ValueError` if a format does not have these options."""
    if format not in (PLAIN, *FORMATS):
        raise ValueError(f"`format` must be one of {', '.join(FORMATS)}, got {format!r}")
    if format in TABLE_FORMATS and column is None:
        raise ValueError(f"{name}: a table needs the column to translate (`--column 2`)")
    if format not in TABLE_FORMATS and column is not None:
        raise ValueError(f"{name}: `column` is for tables ({', '.join(TABLE_FORMATS)}), this is {format}")
    if flag_all and format not in FLAGGING_FORMATS:
        raise ValueError(f"{name}: `flag_all` is for {', '.join(FLAGGING_FORMATS)}; {format} does not have flags")


class NamedFile:
    """A parsed file whose errors on writing name it."""

    def __init__(self, file: Parsed, name: str, format: str, flag_all: bool = False) -> None:
        self._file, self._name, self._format, self._flag_all = file, name, format, flag_all
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


def read_after_trial(*options: Any) -> Parsed:
    """Read a file and write it as a trial, which changes it: take only its units. The options are those of `read`."""
    file = read(*options)
    file.write([Translated(unit.text) for unit in file.units])
    return file


def read(
    content: bytes, format: str, name: str, encoding: str | None, column: str | None, language: str | None
) -> Parsed:
    """Read a file with the class of its format; a packed one is packed again when it is written."""
    if content.startswith(GZIP) and name.lower().endswith(".gz"):
        return _Packed(read(_unpacked(content, name), format, name, encoding, column, language))
    from capsule_mt.files.encodings import check_encoding, encoding_of_mark, is_utf8  # late, as the formats
    from capsule_mt.files.reading import decoded

    if format in ARCHIVE_FORMATS:
        return _archive(content, format, name, language)
    if format in ("strings", "stringsdict") and content.startswith(b"bplist"):
        raise FormatError(f"{name}: is a binary property list, as in a built app: translate the file of the project")
    declared = encoding or encoding_of_mark(content) or _declared(content, format)
    if format == "properties" and declared is None and not is_utf8(content):  # the encoding before Java 9
        declared = "latin-1"
    try:
        check_encoding(declared or "utf-8")
    except ValueError as error:
        raise FormatError(f"{name}: {error}") from None
    try:
        text = decoded(content, name, declared)
    except ValueError as error:
        raise FormatError(str(error)) from None
    if format == PLAIN:
        return _Plain(text)
    if format in LINE_FORMATS and "\r" in text and "\n" not in text:
        raise FormatError(f"{name}: its lines end with CR alone, as on old Macs; let them end with LF or CRLF")
    if format == "html":
        from capsule_mt.formats.html import HtmlFile

        # browsers do not read a page as UTF-8 unless it says so: in ASCII, other characters are references (`&#231;`)
        is_ascii = declared is None and content.isascii() and re.search(WHOLE_PAGE, content) is not None
        return HtmlFile(text, declared or ("ascii" if is_ascii else "utf-8"), language)
    if format == "po":  # written without a byte-order mark, which gettext refuses
        from capsule_mt.formats.po import PoFile

        return PoFile(text, name, language)
    if format in CATALOGS:
        return read_catalog(text, content, format, name, language, encoding)
    file: Parsed
    if format in ("srt", "vtt", "ass"):
        from capsule_mt.formats.subtitles import SubtitleFile

        file = SubtitleFile(text, format, name)
    elif format == "xliff":
        from capsule_mt.formats.xliff import XliffFile

        file = XliffFile(text, name, language)
    elif format == "markdown":
        from capsule_mt.formats.markdown import MarkdownFile

        file = MarkdownFile(text)
    else:
        from capsule_mt.formats.table import TableFile

        file = TableFile(text, str(column), is_csv=format == "csv", name=name)
    return _WithByteOrderMark(file) if content.startswith(codecs.BOM_UTF8) else file


def _archive(content: bytes, format: str, name: str, language: str | None) -> Parsed:
    """Read a zip file of XML."""
    if format == "docx":
        from capsule_mt.formats.docx import DocxFile

        return DocxFile(content, name)
    if format == "pptx":
        from capsule_mt.formats.pptx import PptxFile

        return PptxFile(content, name)
    if format == "odt":
        from capsule_mt.formats.odt import OdtFile

        return OdtFile(content, name)
    from capsule_mt.formats.epub import EpubFile

    return EpubFile(content, name, language)


def read_catalog(
    text: str, content: bytes, format: str, name: str, language: str | None, encoding: str | None = None
) -> Parsed:
    """Read a catalog of an app with the class of its format."""
    from capsule_mt.formats.android import AndroidFile
    from capsule_mt.formats.apple import StringsdictFile, StringsFile
    from capsule_mt.formats.json_catalog import JsonCatalog
    from capsule_mt.formats.properties import PropertiesFile
    from capsule_mt.formats.qt import QtFile
    from capsule_mt.formats.resx import ResxFile
    from capsule_mt.formats.yaml_catalog import YamlCatalog

    if format == "strings":  # with the byte-order mark that it has
        return StringsFile(text, name, language, content, encoding)
    file: Parsed
    if format == "properties":
        file = PropertiesFile(text, name, language, content)
    elif format in ("json", "arb"):
        file = JsonCatalog(text, name, language, is_arb=format == "arb")
    elif format == "resx":
        file = ResxFile(text, name)
    else:
        readers = {"android": AndroidFile, "qt": QtFile, "stringsdict": StringsdictFile, "yaml": YamlCatalog}
        file = readers[format](text, name, language)
    return _WithByteOrderMark(file) if content.startswith(codecs.BOM_UTF8) else file


class _Plain:
    """A text without a format: one unit."""

    keep: Sequence[str] = ()

    def __init__(self, text: str) -> None:
        self.units = [Unit(text, "the text")]

    def write(self, translations: Sequence[Translated]) -> bytes:
        (translated,) = translations
        return (self.units[0].text if translated.text is None else translated.text).encode()


def _declared(content: bytes, format: str) -> str | None:
    """Return the encoding that a file declares in its first 4096 bytes."""
    match = re.search(DECLARATIONS[format], content[:4096]) if format in DECLARATIONS else None
    if match is None or match[1] == b"CHARSET":  # as templates have it (.pot)
        return None
    return match[1].decode("ascii")


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

    A text that stays in the source language, and a language that the file states and that changes, cause a warning.

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
    pairs = zip(texts, translations, strict=True)
    return parsed.write([translated(text, translation) for text, translation in pairs])


def target_language_of(translate: Callable[..., object]) -> str | None:
    """Return the target language of a `Translator`, also of one with some options; `None` of other callables."""
    if isinstance(translate, partial):
        return translate.keywords.get("tgt_lang") or target_language_of(translate.func)
    return getattr(translate, "target_language", None)
