"""Text files, plain or gzipped, line by line."""

import csv
import gzip
import os
from collections.abc import Iterable, Sequence
from pathlib import Path


def read_lines(path: str | os.PathLike[str]) -> list[str]:
    """The lines of a UTF-8 file without their ends; a name that ends in .gz is unpacked."""
    file = Path(path)
    if not file.is_file():
        raise ValueError(f"{file}: no such file")
    content = file.read_bytes()
    text = (gzip.decompress(content) if file.suffix == ".gz" else content).decode("utf-8")
    return [line.rstrip("\r") for line in text.removesuffix("\n").split("\n")] if text else []


def write_lines(path: str | os.PathLike[str], lines: Iterable[str]) -> None:
    """What `read_lines` reads. The same lines always make the same file, packed or not."""
    file = Path(path)
    content = "".join(f"{line}\n" for line in lines).encode("utf-8")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(gzip.compress(content, mtime=0) if file.suffix == ".gz" else content)


def read_parallel(paths: Sequence[str | os.PathLike[str]]) -> list[list[str]]:
    """The lines of several files, which must be as many in each."""
    sides = [read_lines(path) for path in paths]
    for path, lines in zip(paths, sides, strict=True):
        if len(lines) != len(sides[0]):
            raise ValueError(f"{path}: has {len(lines)} lines, but {paths[0]} has {len(sides[0])}")
    return sides


def read_table(path: str | os.PathLike[str]) -> dict[str, list[str]]:
    """The columns of a tab-separated file with a header and without quoting."""
    header, *rows = csv.reader(read_lines(path), delimiter="\t", quoting=csv.QUOTE_NONE)
    for number, row in enumerate(rows, start=2):
        if len(row) != len(header):
            raise ValueError(f"{path}:{number}: has {len(row)} columns, but the header has {len(header)}")
    return {name: [row[column] for row in rows] for column, name in enumerate(header)}
