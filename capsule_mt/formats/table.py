"""Tables (.tsv, .csv): one column is translated in its place."""

import csv
import io
import re
from collections.abc import Sequence

from capsule_mt.formats.units import FormatError, Translated, Unit

BREAKS = re.compile(r"[\t\r\n]+")  # which a cell of .tsv cannot have
DELIMITERS = ",;\t|"


class TableFile:
    """A table of which one column is translated: by its number, from 1, or by its name in the first row."""

    keep: Sequence[str] = ()

    def __init__(self, text: str, column: str, *, is_csv: bool = False, name: str = "the table") -> None:
        self._ending = "\r\n" if "\r\n" in text else "\n"
        self._is_csv, self._ends = is_csv, text.endswith("\n")
        self._delimiter = "\t"
        if is_csv:
            first = text.partition("\n")[0]
            self._delimiter = max(DELIMITERS, key=first.count)
            try:
                self._rows = list(csv.reader(io.StringIO(text, newline=""), delimiter=self._delimiter, strict=True))
            except csv.Error as error:
                raise FormatError(f"{name}: no table of .csv ({error})") from None
        else:
            self._rows = [line.removesuffix("\r").split("\t") for line in text.removesuffix("\n").split("\n")]
        self._place, first_row = self._column(column, name)
        self._numbers = []
        self.units: list[Unit] = []
        for number, row in enumerate(self._rows[first_row:], start=first_row):
            if self._place >= len(row):
                if any(row):
                    shown = f"{len(row)} columns, and column {self._place + 1} is to be translated (`--column`)"
                    raise FormatError(f"{name}, row {number + 1}: {shown}")
                continue
            self._numbers.append(number)
            self.units.append(Unit(row[self._place], f"row {number + 1}"))

    def write(self, translations: Sequence[Translated]) -> bytes:
        rows = [list(row) for row in self._rows]
        for number, translated in zip(self._numbers, translations, strict=True):
            if translated.text is not None:
                rows[number][self._place] = translated.text if self._is_csv else BREAKS.sub(" ", translated.text)
        if self._is_csv:
            stream = io.StringIO(newline="")
            csv.writer(stream, delimiter=self._delimiter, lineterminator=self._ending).writerows(rows)
            return stream.getvalue().encode("utf-8")
        return (self._ending.join("\t".join(row) for row in rows) + self._ending * self._ends).encode("utf-8")

    def _column(self, column: str, name: str) -> tuple[int, int]:
        """Return the place of the column, and the first row that is translated."""
        if column.isdecimal() and int(column) >= 1:
            return int(column) - 1, 0
        names = self._rows[0] if self._rows else []
        if column not in names:
            shown = ", ".join(names)[:200]
            raise FormatError(f"{name}: `--column` takes a number from 1 or one of {shown}; got {column!r}")
        return names.index(column), 1
