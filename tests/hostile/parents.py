"""Whether a process reads a stranger's bytes itself: what it opens, and which parsers it calls.

`capsule_mt.files.sandbox` reads them in another process, whose interpreter has none of these hooks.
"""

import csv
import gzip
import html.parser
import os
import sys
import xml.parsers.expat
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from capsule_mt.formats import child, reading
from capsule_mt.models import probing
from capsule_mt.models.probe import ProbeProcess

# what reads an uploaded file: the gate to all formats, and what their readers call
PARSERS: tuple[tuple[Any, str], ...] = (
    *((reading, "parse"), (child, "answer"), (zipfile, "ZipFile"), (xml.parsers.expat, "ParserCreate")),
    *((html.parser.HTMLParser, "feed"), (csv, "reader"), (gzip, "decompress"), (gzip, "GzipFile")),
    *((zlib, "decompress"), (zlib, "decompressobj")),
)


class ReadInParentError(AssertionError):
    """The server's own process called a parser."""


@contextmanager
def without_parsers() -> Iterator[list[str]]:
    """Let every parser of uploaded files fail in this process, and yield the names of those that were called."""
    called: list[str] = []

    def refuse(name: str) -> Any:
        def parser(*arguments: object, **options: object) -> None:
            called.append(name)
            raise ReadInParentError(f"{name} was called in the server's process")

        return parser

    patches = [patch.object(owner, name, refuse(f"{owner.__name__}.{name}")) for owner, name in PARSERS]
    try:
        for patcher in patches:
            patcher.start()
        yield called
    finally:
        for patcher in patches:
            patcher.stop()


def opened_before_the_sandbox(folder: Path, load: Any) -> list[str]:
    """Return the files of a folder that this process opened before another process had loaded them.

    The hook stays until this process ends, so call this in a process of its own.
    """
    prefix, opened, is_loaded = os.path.join(os.path.realpath(folder), ""), list[str](), False
    load_in_process = ProbeProcess.load

    def probe(*arguments: Any, **options: Any) -> None:
        nonlocal is_loaded
        load_in_process(*arguments, **options)
        is_loaded = True

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and isinstance(arguments[0], str) and not is_loaded:
            path = os.path.realpath(arguments[0])
            opened.extend([os.path.basename(path)] if path.startswith(prefix) else [])

    sys.addaudithook(hook)
    with patch.object(ProbeProcess, "load", probe), probing.probing_every_model():
        try:
            load(str(folder))
        except ValueError as error:
            print(f"refused: {error}")
    return opened
