"""What only the laboratory reads and writes as text: tables, and translations kept gzipped."""

import csv
import gzip
import os
from collections.abc import Iterable
from pathlib import Path

from hf_capsule_mt.files.text import read_lines


def write_lines(path: str | os.PathLike[str], lines: Iterable[str]) -> None:
    """Write what `read_lines` reads. The same lines always make the same bytes, gzipped or not."""
    file = Path(path)
    content = "".join(f"{line}\n" for line in lines).encode("utf-8")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(gzip.compress(content, mtime=0) if file.suffix == ".gz" else content)


def read_table(path: str | os.PathLike[str]) -> dict[str, list[str]]:
    """Return the columns of a tab-separated file with a header and without quoting."""
    header, *rows = csv.reader(read_lines(path), delimiter="\t", quoting=csv.QUOTE_NONE)
    for number, row in enumerate(rows, start=2):
        if len(row) != len(header):
            raise ValueError(f"{path}:{number}: has {len(row)} columns, but the header has {len(header)}")
    return {name: [row[column] for row in rows] for column, name in enumerate(header)}
