"""Read sentence pairs from text, TSV, CSV, JSON lines and Parquet; errors name the file, and the line or row."""

import csv
import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from capsule_mt.files.reading import iterate_lines

Pair = tuple[str, str]
Pairs = Iterator[tuple[Pair, Pair]]  # source and target, and the file and line of each


def require_text(pair: Pair, languages: Pair, positions: Pair) -> Pair:
    """Return the pair; raise an error that names the position of a side without text, such as its file and line."""
    for text, language, position in zip(pair, languages, positions, strict=True):
        if not text.strip():
            raise ValueError(
                f"{position}: the {language} side is empty; `cleaning: {{drop_empty: true}}` drops such pairs"
            )
    return pair


def read_text(files: tuple[str, ...], languages: Pair, settings: dict[str, Any]) -> Pairs:
    """Yield the pairs of two files with a sentence per line and equally many lines."""
    source_file, target_file = files
    sources, targets = iterate_lines(source_file), iterate_lines(target_file)
    number = 0
    while True:
        source, target = next(sources, None), next(targets, None)
        if source is None or target is None:
            break
        number += 1
        yield (source, target), (f"{source_file}, line {number}", f"{target_file}, line {number}")
    if source is not None or target is not None:
        short, long = (source_file, target_file) if source is None else (target_file, source_file)
        raise ValueError(f"{short} ends after line {number}, but {long} has a line {number + 1}")


def read_tsv(files: tuple[str, ...], languages: Pair, settings: dict[str, Any]) -> Pairs:
    """Yield two columns of a file split at tabs alone: quotes stay quotes, and "NA" stays a word."""
    (file,) = files
    rows = ((number, line.split("\t")) for number, line in enumerate(iterate_lines(file), start=1))
    return _columns(rows, file, settings.get("columns", [0, 1]))


def read_csv(files: tuple[str, ...], languages: Pair, settings: dict[str, Any]) -> Pairs:
    """Yield two columns of a file with commas and quotes; without `columns`, those that line 1 names as languages."""
    (file,) = files
    return _columns(_csv_rows(file), file, settings.get("columns", languages))


def _csv_rows(file: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the rows of a CSV file, each with the number of its last line; a quoted field may have several."""
    reader = csv.reader((f"{line}\n" for line in iterate_lines(file)), strict=True)
    try:
        for row in reader:
            yield reader.line_num, row
    except csv.Error as error:
        raise ValueError(f"{file}, line {reader.line_num}: not CSV ({error})") from None


def _columns(rows: Iterator[tuple[int, list[str]]], file: str, columns: Sequence[int | str]) -> Pairs:
    """Yield two columns of numbered rows, by their numbers from 0 or by their names in row 1."""
    named = any(isinstance(column, str) for column in columns)
    indices: Sequence[Any] = columns
    for number, fields in rows:
        if named:
            missing = [column for column in columns if column not in fields]
            if missing:
                raise ValueError(f"{file}, line {number}: no column {missing[0]!r}, the header has {fields}")
            indices, named = [fields.index(str(column)) for column in columns], False
            continue
        if max(indices) >= len(fields):
            raise ValueError(
                f"{file}, line {number}: {len(fields)} columns, but column {max(indices)} (from 0) is needed"
            )
        position = f"{file}, line {number}"
        yield (fields[indices[0]], fields[indices[1]]), (position, position)


def read_parquet(files: tuple[str, ...], languages: Pair, settings: dict[str, Any]) -> Pairs:
    """Yield two columns of a Parquet file, by default the languages, or those of its column `translation`."""
    import pyarrow
    from pyarrow.parquet import ParquetFile

    (file,) = files
    try:
        table = ParquetFile(file)
    except pyarrow.ArrowInvalid as error:
        raise ValueError(f"{file}: not Parquet ({error})") from None
    columns = settings.get("columns", languages)
    names = table.schema_arrow.names
    is_nested = "columns" not in settings and "translation" in names
    missing = [column for column in columns if column not in names]
    if missing and not is_nested:
        raise ValueError(f"{file}: no column {missing[0]!r}, it has {names}")
    number = 0
    for batch in table.iter_batches(columns=["translation"] if is_nested else list(columns)):
        for row in batch.to_pylist():
            number += 1
            position = f"{file}, row {number}"
            pair = (row["translation"] or {}) if is_nested else row
            for column in columns:
                if not isinstance(pair.get(column), str):
                    raise ValueError(f"{position}: no text {column!r}, but {pair.get(column)!r}")
            yield (pair[columns[0]], pair[columns[1]]), (position, position)


def read_jsonl(files: tuple[str, ...], languages: Pair, settings: dict[str, Any]) -> Pairs:
    """Yield the pairs of a file with an object per line: the two languages, or a `translation` with them."""
    (file,) = files
    for number, line in enumerate(iterate_lines(file), start=1):
        position = f"{file}, line {number}"
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise ValueError(f"{position}: not JSON ({error})") from None
        row = row.get("translation", row) if isinstance(row, dict) else None
        if not isinstance(row, dict):
            raise ValueError(f"{position}: not an object with {languages[0]} and {languages[1]}: {line[:60]}")
        for language in languages:
            if not isinstance(row.get(language), str):
                raise ValueError(f"{position}: no text {language!r}, the line has {sorted(row)}")
        yield (row[languages[0]], row[languages[1]]), (position, position)


READERS: dict[str, Callable[..., Pairs]] = {
    "text": read_text,
    "tsv": read_tsv,
    "csv": read_csv,
    "jsonl": read_jsonl,
    "parquet": read_parquet,
}
