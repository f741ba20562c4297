"""Tables (.tsv, .csv): the texts of one column are replaced by their translations."""

import csv
import io
import re
from collections.abc import Sequence

from capsule_mt.formats.format import Format
from capsule_mt.formats.units import FormatError, Translated, Unit

BREAKS = re.compile(r"[\t\r\n]+")  # characters that a cell of .tsv cannot hold
QUOTED_CELL = re.compile(r'"[^"]*"')
DELIMITERS = ",;\t|"
DELIMITER_LINE = re.compile(r"sep=([^\w\r\n\"])(\r?\n|$)")  # with which Excel begins a table
MAX_SHOWN = 200  # characters of names in an error

TSV = Format(
    name="tsv",
    suffixes=(".tsv",),
    title="Tables, separated by tabs",
    reader=lambda file: TableFile(file.text, str(file.column), name=file.name),
    needs_column=True,
    needs_line_feeds=True,
    translated="one column: `--column 2`, or `--column text` by its name in the first row",
    unchanged="all other columns, the row of names if `--column` is a name",
    limits="tabs and line breaks in a translation become spaces",
)
CSV = Format(
    name="csv",
    suffixes=(".csv",),
    title="Tables, separated by commas, semicolons, tabs or bars",
    reader=lambda file: TableFile(file.text, str(file.column), is_csv=True, name=file.name),
    needs_column=True,
    needs_line_feeds=True,
    translated="one column: `--column 2`, or `--column text` by its name in the first row",
    unchanged="all other columns, the row of names if `--column` is a name, the delimiter, Excel's `sep=;` line",
)


class TableFile:
    """A table with the column to translate, by its number from 1 or by its name in the first row."""

    keep: Sequence[str] = ()

    def __init__(self, text: str, column: str, *, is_csv: bool = False, name: str = "the table") -> None:
        self._ending = "\r\n" if "\r\n" in text else "\n"
        self._is_csv, self._has_final_break = is_csv, text.endswith("\n")
        self._delimiter, self._quotes_all, self._delimiter_line = "\t", False, ""
        if is_csv:
            named = DELIMITER_LINE.match(text)
            self._delimiter_line = named[0] if named else ""
            text = text[len(self._delimiter_line) :]
            first = QUOTED_CELL.sub("", text).partition("\n")[0]  # these can contain delimiters and line breaks
            self._delimiter = named[1] if named else max(DELIMITERS, key=first.count)
            try:
                self._rows = list(csv.reader(io.StringIO(text, newline=""), delimiter=self._delimiter, strict=True))
            except csv.Error as error:
                raise FormatError(f"{name}: not a valid .csv table ({error})") from None
            self._quotes_all = self._written(self._rows, quotes_all=True) == text
        else:
            self._rows = [line.removesuffix("\r").split("\t") for line in text.removesuffix("\n").split("\n")]
        self._column_index, first_row = self._find_column(column, name)
        self._row_indices = []
        self.units: list[Unit] = []
        num_lines_before = 1 if self._delimiter_line else 0
        for row_index, row in enumerate(self._rows[first_row:], start=first_row):
            row_number = row_index + 1 + num_lines_before
            if self._column_index >= len(row):
                if any(row):
                    missing = f"column {self._column_index + 1} (`--column`) is missing, the row has {len(row)}"
                    raise FormatError(f"{name}, row {row_number}: {missing}")
                continue
            self._row_indices.append(row_index)
            self.units.append(Unit(row[self._column_index], f"row {row_number}"))

    def write(self, translations: Sequence[Translated]) -> bytes:
        rows = [list(row) for row in self._rows]
        for row_index, translated in zip(self._row_indices, translations, strict=True):
            if translated.text is not None:
                cell = translated.text if self._is_csv else BREAKS.sub(" ", translated.text)
                rows[row_index][self._column_index] = cell
        if self._is_csv:
            return (self._delimiter_line + self._written(rows, self._quotes_all)).encode("utf-8")
        table = self._ending.join("\t".join(row) for row in rows) + self._ending * self._has_final_break
        return table.encode("utf-8")

    def _written(self, rows: Sequence[Sequence[str]], quotes_all: bool) -> str:
        """Return rows as .csv; without `quotes_all`, only cells that need quotes have them."""
        stream = io.StringIO(newline="")
        writer = csv.writer(
            stream,
            delimiter=self._delimiter,
            lineterminator=self._ending,
            quoting=csv.QUOTE_ALL if quotes_all else csv.QUOTE_MINIMAL,
        )
        writer.writerows(rows)
        return stream.getvalue() if self._has_final_break else stream.getvalue().removesuffix(self._ending)

    def _find_column(self, column: str, name: str) -> tuple[int, int]:
        """Return the index of the column, and of the first row to translate."""
        if column.isdecimal() and int(column) >= 1:
            return int(column) - 1, 0
        names = self._rows[0] if self._rows else []
        if names in ([], [""]):
            raise FormatError(
                f"{name}: has no row of names; name the column by its number from 1, not by "
                f"`--column {shortened(column)}`"
            )
        if column not in names:
            listed, wrong = shortened(", ".join(names)), shortened(repr(column))
            raise FormatError(f"{name}: `--column` takes a number from 1 or one of {listed}; got {wrong}")
        return names.index(column), 1


def shortened(text: str) -> str:
    """Return a text for an error, cut to `MAX_SHOWN` characters."""
    return text if len(text) <= MAX_SHOWN else f"{text[: MAX_SHOWN - 3]}..."
