"""Print docs/errors.md: exit codes, classes, and what to do about the messages of tools/errors.tsv.

    python -m tools.errors > docs/errors.md

A message in backticks is a part of an error or a warning of the code, or of another program that `FOREIGN` names.
"""

import argparse
import csv
import inspect
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from capsule_mt.catalog.entries import CatalogError, DownloadError
from capsule_mt.commands import console
from capsule_mt.engine.library import NativeUnavailableError
from capsule_mt.engine.program import UnsupportedModelError
from capsule_mt.files.line_failures import FAILED_LINES_STATUS
from capsule_mt.formats.units import FormatError
from capsule_mt.models.opening import CheckpointError

TABLE = Path(__file__).with_suffix(".tsv")
CLASSES = (CheckpointError, UnsupportedModelError, NativeUnavailableError, CatalogError, DownloadError, FormatError)
EXIT_CODES = {
    0: "success",
    1: "an error without a code of its own, such as one in the input",
    console.CODE_OF_USAGE: "most errors in the arguments; `--help` lists them",
    FAILED_LINES_STATUS: "done, but some lines could not be translated or scored; stderr has the reasons",
    console.CODE_OF_SIGINT: "stopped by Ctrl-C; the message says if the same command resumes",
    console.CODE_OF_SIGPIPE: "the output was closed by its reader, such as `head`",
}
# messages of pip and transformers, in the order of the table
FOREIGN = (
    "requires a different Python",
    "Unknown task translation",
    "does not recognize this architecture",
    "contains custom code which must be executed",
    "is not a valid model identifier",
    "couldn't connect to",
    "no file named model.safetensors",
)
HEAD = f"""\
<!-- `python -m tools.errors` writes this page from tools/errors.tsv and the code. -->

# Errors

With this page you can find out what to do about an error or a warning that does not say it itself.

A command prints an expected error without its traceback, which `{console.TRACEBACK}=1` adds. `capsule-mt doctor` shows
what your machine has: versions, the processor, the engine's kernels, downloaded models. Paste its output into a bug
report.
"""


class Row(NamedTuple):
    """What a user sees, in a section of the page, and what to do about it."""

    section: str
    message: str
    advice: str


def rows() -> list[Row]:
    """Return the rows of the table."""
    with TABLE.open(encoding="utf-8", newline="") as file:
        _, *lines = csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
    return [Row(*line) for line in lines]


def page() -> str:
    """Return docs/errors.md."""
    return "\n".join([HEAD, *_sections()])


def _sections() -> Iterator[str]:
    for section, group in groupby(rows(), key=lambda row: row.section):
        yield _table(section, "you see | what to do", (f"{row.message} | {row.advice}" for row in group))
    codes = (f"{code} | {meaning}" for code, meaning in sorted(EXIT_CODES.items()))
    yield _table("Exit codes of commands", "code | meaning", codes)
    classes = (f"`{error.__module__}.{error.__name__}` | {_summary(error)}" for error in CLASSES)
    yield _table("Classes in Python", "class | when", classes)


def _table(title: str, head: str, lines: Iterator[str]) -> str:
    return "\n".join([f"## {title}\n", f"| {head} |", "|---|---|", *(f"| {line} |" for line in lines), ""])


def _summary(error: type[Exception]) -> str:
    return " ".join((inspect.getdoc(error) or "").split())


def main() -> None:
    argparse.ArgumentParser(prog="python -m tools.errors", description=__doc__).parse_args()
    print(page(), end="")


if __name__ == "__main__":
    main()
