"""Translate files of any size in windows: memory stays constant, and an interrupted run resumes."""

import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

# a translation may hold them, from a byte of the vocabulary; a line of the output may not
LINE_BREAKS_IN_A_LINE = re.compile(r"[\r\n]+")


class Window(NamedTuple):
    """Some lines of the input, and the number of the first, from 0."""

    number: int
    first_line: int
    lines: list[str]


def windows_of(lines: Iterable[str], size: int) -> Iterator[Window]:
    remaining, number = iter(lines), 0
    while window := list(islice(remaining, size)):
        yield Window(number, number * size, window)
        number += 1


def one_line(text: str) -> str:
    return LINE_BREAKS_IN_A_LINE.sub(" ", text)


def coverage_json(number: int, coverage: dict[str, Any]) -> str:
    return json.dumps({"line": number, **coverage}, ensure_ascii=False)


def coverage_tsv(number: int, coverage: dict[str, Any]) -> str:
    """Format the number of a line from 0, its score, its untranslated words and its repeated phrases."""
    untranslated = " ".join(word["word"] for word in coverage["words"] if word["untranslated"])
    return f"{number}\t{coverage['score']:.4f}\t{untranslated}\t{'; '.join(coverage['repetitions'])}"


class WindowedOutput:
    """Output files, written as one part for each window of the input and joined at the end.

    A part is written whole or not at all, and named after its window and the text in it. So a run that was interrupted
    skips what is there when it is started again with the same settings, and several processes write side by side.
    """

    def __init__(self, outputs: list[Path], settings: dict[str, Any], restart: bool = False) -> None:
        """`settings`: everything that the translations depend on beside the text."""
        self.outputs = outputs
        self.folder = outputs[0].with_name(outputs[0].name + ".parts")
        if restart and self.folder.exists():
            shutil.rmtree(self.folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        kept, wanted = self.folder / "settings.json", json.dumps(settings, indent=2, sort_keys=True)
        if kept.exists() and kept.read_text(encoding="utf-8") != wanted:
            raise ValueError(
                f"{self.folder} is of an interrupted run with other settings than these; `--restart` discards it"
            )
        _write_whole(kept, wanted)
        self.stems: list[str] = []

    def has(self, window: Window) -> bool:
        """Return whether a window is done. Call it for every window, in order: the output has these windows."""
        digest = hashlib.sha256("\n".join(window.lines).encode("utf-8")).hexdigest()[:16]
        self.stems.append(f"{window.number:08d}-{digest}")
        return all(part.exists() for part in self._parts(self.stems[-1]))

    def write(self, columns: list[list[str]]) -> None:
        """Write the lines of each output for the last window that `has` was called with."""
        for part, lines in zip(self._parts(self.stems[-1]), columns, strict=True):
            _write_whole(part, "".join(f"{line}\n" for line in lines))

    def finish(self) -> None:
        """Join the parts of all windows, and remove them."""
        for output, path in enumerate(self.outputs):
            partial = path.with_name(path.name + ".partial")
            with open(partial, "wb") as whole:
                for stem in self.stems:
                    with open(self._parts(stem)[output], "rb") as part:
                        shutil.copyfileobj(part, whole)
            partial.replace(path)
        shutil.rmtree(self.folder)

    def _parts(self, stem: str) -> list[Path]:
        return [self.folder / f"{stem}.{output}" for output in range(len(self.outputs))]


def _write_whole(path: Path, text: str) -> None:
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    partial.write_text(text, encoding="utf-8")
    partial.replace(path)
