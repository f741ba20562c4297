"""The input and output files of `capsule-mt translate`: find the input and its format, read it, format the output."""

import argparse
import json
import os
import re
import sys
import zlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from capsule_mt.catalog.entries import is_archive, pair_named
from capsule_mt.commands.console import file_path
from capsule_mt.files.binary import REFUSED_SUFFIXES, refusal_of
from capsule_mt.files.line_failures import Failure
from capsule_mt.files.lines import one_line, pharaoh
from capsule_mt.files.progress import write_line
from capsule_mt.files.reading import open_text, read_bytes
from capsule_mt.formats.registry import (
    BY_SUFFIX,
    FLAGGING,
    INDEX,
    LINE_SUFFIXES,
    TABLES,
    UNREADABLE_SUFFIXES,
    format_of,
    has_plain_lines,
    suffix_of,
)
from capsule_mt.formats.units import Parsed, notes_of
from capsule_mt.messages import out_of

if TYPE_CHECKING:
    from pathlib import Path

LINES = "lines"
STDIN = "-"
# a positional argument with such a suffix is a file, not a model or a text, whether it exists or not
FILE_SUFFIXES = (".txt", ".gz", *REFUSED_SUFFIXES, *UNREADABLE_SUFFIXES, *BY_SUFFIX)
# suffixes that tell the kind of a file; a .txt may have anything
KNOWN_SUFFIXES = frozenset(FILE_SUFFIXES) - {".txt", ".gz"}
MODEL_SUFFIXES = (".npz", ".bin", ".spm", ".safetensors")
REPORT_SUFFIXES = (".tsv", ".html", ".jsonl")  # of a report of what to check
# how a file begins that is XML or HTML, whatever its name is
MARKUP_START = (
    rb"(?i)(?:\xef\xbb\xbf)?\s*(?:<!--(?s:.*?)-->\s*)?"
    rb"<(?:\?xml\s|!doctype\s|!entity\s|html[\s>]|[a-z][\w:.-]*\s[^<>]*\bxmlns\b)"
)
MAX_START = 2048  # bytes of a file that may show that it is XML
MAX_SHOWN = 5  # passages to be checked, on stderr
MAX_SHOWN_TEXT = 60  # characters of each


def encoding(text: str) -> str:
    """An `argparse` type: the name of an encoding."""
    from capsule_mt.files.encodings import check_encoding  # late: most files are UTF-8 and need no table

    try:
        return check_encoding(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error).removeprefix("`encoding` ")) from None


def add_files(group: "argparse._ActionsContainer") -> None:
    """Add the options that say how the input is read."""
    group.add_argument(
        "--format",
        choices=(LINES, *INDEX),
        help="the format of the input (default: by the extension of the file; a file that ends in .txt or a "
        "language's code, or has no extension, and a pipe are lines of text)",
    )
    group.add_argument(
        "--column", metavar="N", help="in a .tsv or .csv: the column to translate, as a number or a name"
    )
    group.add_argument(
        "--flag-all",
        action="store_true",
        help=f"in {', '.join(INDEX[name].suffixes[0] for name in FLAGGING)}: flag every translation for review "
        "(fuzzy, needs-review-translation), not only those with a fault",
    )
    group.add_argument(
        "--encoding", type=encoding, help="the input's encoding (default: the one that the file states, or UTF-8)"
    )


def take_input(arguments: argparse.Namespace, parser: argparse.ArgumentParser) -> None:
    """Move a file or a text among the positional arguments to the input, and set its format."""
    models, files, texts = list[str](), list[str](), list[str]()
    for text in arguments.model:
        (files if _is_file(text) else texts if _is_text(text, after_model=bool(models)) else models).append(text)
    inputs = [*files, *map(repr, texts), *([] if arguments.input is None else [str(arguments.input)])]
    if not models:
        _refuse_model_file(files, parser)
    if len(files) + bool(texts) + (arguments.input is not None) > 1:
        is_output = len(files) == 2 and os.path.exists(files[0]) and not os.path.exists(files[1])
        hint = f"; to write {files[1]}, name it by `--output {files[1]}`" if is_output else ""
        parser.error(f"one file is translated at a time, got {', '.join(inputs)}{hint}")
    if not models:
        parser.error(f"name a model before the {'file' if files else 'text'}, got only {inputs[0]}")
    for name in models[1:]:
        if os.path.isdir(name) and not os.path.isfile(os.path.join(name, "config.json")):
            parser.error(
                f"{name}: is a folder, but neither a file to translate nor a checkpoint that decodes together with "
                f"{models[0]} (it lacks a config.json). Translate each of its files by a command of its own"
            )
        if is_archive(name):
            parser.error(
                f"{name}: is an archive, not text: unpack it, and translate each of its files; a model of OPUS-MT in "
                "a .zip cannot decode together with others"
            )
        if not _is_model(name):
            parser.error(
                f"{name}: no such file or model. To translate a text that looks like a file name, pipe it in: "
                f"`echo TEXT | {parser.prog} {models[0]}`"
            )
    arguments.model = models
    # words without quotes are one text; texts with quotes are a line each
    arguments.text = (" " if not any(map(_has_space, texts)) else "\n").join(texts) if texts else None
    if files:
        arguments.input = file_path(files[0])
    if str(arguments.input) == STDIN:
        arguments.input = None
    format_is_stated = arguments.format is not None
    _choose_format(arguments, parser)
    _check_output_suffix(arguments, parser, format_is_stated)


def _refuse_model_file(files: list[str], parser: argparse.ArgumentParser) -> None:
    """Refuse a file of a model that is named instead of its folder, and an archive that does not exist."""
    for file in files:
        if file.endswith(MODEL_SUFFIXES):
            parser.error(f"{file}: is a file of a model; name its folder, {os.path.dirname(file) or '.'}")
        if file.endswith((".zip", ".argosmodel")) and not os.path.exists(file):
            parser.error(f"{file}: no such file")


def _is_file(text: str) -> bool:
    if is_archive(text):  # a model of OPUS-MT
        return False
    return text == STDIN or text.lower().endswith(FILE_SUFFIXES) or os.path.isfile(text)


def _has_space(text: str) -> bool:
    return any(map(str.isspace, text))


def _is_text(text: str, after_model: bool) -> bool:
    """Return whether an argument is what to translate: it has a space, or it is a word that follows the model."""
    if os.path.exists(text):
        return False
    looks_like_file = "/" in text or os.sep in text or text[-5:].rstrip(".").count(".") > 0
    return _has_space(text) or (after_model and not looks_like_file and not _is_model(text))


def _is_model(text: str) -> bool:
    """Return whether a text is a folder, or a name that a catalog may have."""
    if os.path.exists(text) or pair_named(text) or text.startswith("opus-mt-"):
        return True
    folder, separator, name = text.partition("/")
    return bool(separator and folder and name) and not os.path.isdir(os.path.dirname(text))


def _choose_format(arguments: argparse.Namespace, parser: argparse.ArgumentParser) -> None:
    by_name, refusal = format_of(arguments.input), refusal_of(arguments.input)
    if arguments.format is None and refusal is not None and os.path.exists(arguments.input):
        parser.error(f"{arguments.input}: {refusal}; --format {LINES} reads it if it is text all the same")
    if arguments.format is None and by_name is None and (complaint := _no_lines(arguments.input)) is not None:
        parser.error(
            f"{arguments.input}: {complaint}; --format {LINES} translates each line as text, "
            "including keys, code and markup"
        )
    if arguments.format is None and by_name in TABLES and arguments.column is None:
        parser.error(
            f"{arguments.input}: name the column to translate, as a number or a name: --column 2; --format {LINES} "
            "translates whole lines"
        )
    if arguments.format is None:
        arguments.format = by_name or LINES
    if arguments.text is not None and (arguments.format != LINES or arguments.encoding is not None):
        parser.error(f"--format and --encoding apply to files, but the input is the text {arguments.text[:40]!r}")
    if arguments.flag_all and arguments.format not in FLAGGING:
        parser.error(f"--flag-all is for {', '.join(FLAGGING)}, the input is {arguments.format}")
    if arguments.format == LINES:
        if arguments.column is not None:
            parser.error(f"--column is for .tsv and .csv (or with --format tsv), got {input_name(arguments)}")
        return
    if arguments.n_best > 1:
        parser.error(f"--n-best {arguments.n_best} is for lines of text, the input is {arguments.format}")


def _check_output_suffix(
    arguments: argparse.Namespace, parser: argparse.ArgumentParser, format_is_stated: bool
) -> None:
    """Refuse an output whose name tells another kind of file than the one that is written: that of the input."""
    suffix, input_suffix, format = suffix_of(arguments.output), suffix_of(arguments.input), arguments.format
    # the name of text.en does not tell a kind, and text.ts may be its translation into Tsonga
    if format == LINES and (format_is_stated or input_suffix != ".txt"):
        return
    suffixes = INDEX[format].suffixes if format in INDEX else (".txt",)
    if suffix not in KNOWN_SUFFIXES or suffix in (input_suffix, *suffixes):
        return
    kind = "lines of text" if format == LINES else format
    right_suffix = input_suffix if input_suffix in suffixes else suffixes[0]
    parser.error(
        f"--output {arguments.output}: is named as {suffix}, but the output has the kind of the input, and "
        f"{input_name(arguments)} is {kind}: end its name in {right_suffix}"
    )


def _no_lines(path: str | None) -> str | None:
    """Return why a file without a format is not lines of text, by its name or its beginning; `None` if it is."""
    if path is None or not os.path.exists(path):  # reported when it is read
        return None
    suffix = suffix_of(path)
    beginning = b"" if suffix in UNREADABLE_SUFFIXES else _beginning(path)
    if re.match(MARKUP_START, beginning):
        return (
            "begins as XML or HTML, and its name does not tell which kind: --format html or --format xliff reads it "
            "as such"
        )
    if beginning.startswith(b"#!"):
        return "begins as a program (#!)"
    if has_plain_lines(path):
        return None
    readers = ", ".join(format.suffixes[0] for format in INDEX.values())
    advice = f"; {UNREADABLE_SUFFIXES[suffix]}" if UNREADABLE_SUFFIXES.get(suffix) else ""
    return (
        f"there is no reader for {suffix}, but for {readers}; lines of text end in {', '.join(LINE_SUFFIXES)} or a "
        f"language's code (.de, .pt_BR, .deu_Latn), or do not have an extension{advice}"
    )


def _beginning(path: str) -> bytes:
    """Return the first bytes of a file, but take none from a pipe; what cannot be read is reported when it is read."""
    if not os.path.isfile(path):
        return b""
    try:
        with open_text(path) as stream:
            return stream.read(MAX_START)
    except (OSError, EOFError, ValueError, zlib.error):
        return b""


def input_name(arguments: argparse.Namespace) -> str:
    """Return the name of the input in messages."""
    return "the text" if arguments.text is not None else str(arguments.input or "stdin")


def read_file(arguments: argparse.Namespace) -> Parsed | None:
    """Read an input that has a format; `None` for lines of text, which are read one by one."""
    if arguments.format == LINES:
        return None
    from capsule_mt.formats.apart import parse_apart  # late: lines of text need no parser

    if arguments.input is None:
        content = sys.stdin.buffer.read()  # left open: the progress line asks whether it is a terminal
    else:
        content = read_bytes(arguments.input)
    return parse_apart(
        content,
        arguments.format,
        name=arguments.input or "stdin",
        encoding=arguments.encoding,
        column=arguments.column,
        language=arguments.tgt_lang or language_of(arguments, "target"),
        flag_all=arguments.flag_all,
    )


def language_of(arguments: argparse.Namespace, side: Literal["source", "target"]) -> str | None:
    """Return the language code of one side of the model, if its name or its files give it."""
    from capsule_mt.catalog.pairs import pair_of  # late: a pipe does not need it

    pair = pair_of(arguments.model[0])
    return None if pair is None else getattr(pair, side)


class OutputFormat(NamedTuple):
    """Formats results as lines of the output files: the text, and if requested, coverage and alignments.

    n_best: the number of translations of a line, which get a line each.
    coverage: the suffix of the report, without its dot.
    labels: for an input with a format, the name of each unit. Its translations are kept as JSON until all are there.
    """

    n_best: int = 1
    coverage: str | None = None
    alignments: bool = False
    labels: Sequence[str] | None = None

    def columns(self, index: int, line: str, result: list[dict[str, Any]] | Failure) -> list[list[str]]:
        """Return the lines of each file for the records of a line or unit of the input."""
        records = [{"failure": result.reason}] * self.n_best if isinstance(result, Failure) else result
        label: int | str = index + 1
        if self.labels is None:
            columns = [[self._text(index, record) for record in records]]
        else:
            label = self.labels[index]
            columns = [[json.dumps(_checked_unit(line, record), ensure_ascii=False) for record in records]]
        if self.coverage is not None:
            columns.append(self._report(label, line, result))
        if self.alignments:
            columns.append([pharaoh(record) for record in records])
        return columns

    def _report(self, label: int | str, line: str, result: list[dict[str, Any]] | Failure) -> list[str]:
        from capsule_mt.commands.reports import ReportRow, finite, report_lines  # late: a pipe does not need it

        assert self.coverage is not None
        rows = [ReportRow(label, line, None, result, [""], {})] * self.n_best if isinstance(result, Failure) else []
        for record in () if isinstance(result, Failure) else result:
            coverage = record.get("coverage") or {"error": "the coverage was not found"}
            values = {**coverage, **{name: record[name] for name in ("unknown", "language") if name in record}}
            score = finite(coverage.get("score"))
            rows.append(ReportRow(label, line, record["translation_text"], record, [score], values))
        return [line for row in rows for line in report_lines(self.coverage, row)]

    def _text(self, index: int, record: dict[str, Any]) -> str:
        text = one_line(record.get("translation_text", ""))
        if self.n_best == 1:
            return text
        score = float("-inf") if "failure" in record else record.get("score", 0.0)
        return f"{index} ||| {text} ||| {score:.4f}"


class CheckedUnit(NamedTuple):
    """The translation of a unit, `None` if it failed, and what to check in it."""

    text: str | None
    messages: list[str]


def _checked_unit(text: str, record: dict[str, Any]) -> CheckedUnit:
    translation = record.get("translation_text")
    if translation is None:
        return CheckedUnit(None, [])
    from capsule_mt.coverage.problems import problems_in  # late: a pipe does not need it

    return CheckedUnit(translation, [problem.message for problem in problems_in(text, translation, record)])


def checked_units(lines: bytes) -> list[CheckedUnit]:
    """Read back the translations of units that `OutputFormat` wrote as JSON."""
    return [CheckedUnit(*json.loads(line)) for line in lines.split(b"\n") if line]


def report(parsed: Parsed, units: list[CheckedUnit], coverage: "Path | None") -> None:
    """Print on stderr the first passages that a person should check, with a reason, and what was not translated."""
    for location, note in notes_of(parsed.units):
        write_line(f"{location}: {note}")
    to_check = [(source, unit) for source, unit in zip(parsed.units, units, strict=True) if unit.messages]
    if not to_check and coverage is None:
        return
    report_count(len(to_check), len(units), "passages", coverage)
    for source, unit in to_check[:MAX_SHOWN]:
        text = one_line(source.text)
        shown = f"{text[:MAX_SHOWN_TEXT]}..." if len(text) > MAX_SHOWN_TEXT else text
        write_line(f"  {source.location}: {unit.messages[0].rstrip('.')}: {shown}")
    if len(to_check) > MAX_SHOWN:
        write_line(f"  and {len(to_check) - MAX_SHOWN} more")


def report_count(num_flagged: int, total: int, unit: str, coverage: "Path | None") -> None:
    """Print on stderr how many lines or passages a person should check, and which report lists them."""
    reference = f": see {coverage}" if coverage is not None else ""
    write_line(f"{out_of(num_flagged, total, unit)} to check{reference}")
