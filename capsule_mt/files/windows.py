"""Translate files of any size in windows: memory stays constant, and an interrupted run resumes."""

import contextlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import IO, Any, NamedTuple

from capsule_mt.files.outputs import open_output, read_object, remove_partials, write_output
from capsule_mt.files.progress import Progress
from capsule_mt.messages import warn

SETTINGS_FILE = "settings.json"


class Window(NamedTuple):
    """Some lines of the input, or pairs of them, and the number of the first, from 0."""

    number: int
    first_line: int
    lines: list[Any]


def windows_of(lines: Iterable[Any], size: int) -> Iterator[Window]:
    remaining, number = iter(lines), 0
    while window := list(islice(remaining, size)):
        yield Window(number, number * size, window)
        number += 1


class Part(NamedTuple):
    """What a window gives: the text of each output, and why lines of it failed, by their number."""

    texts: list[bytes]
    failures: dict[int, str]


class WindowedOutput:
    """Output files, written as one part for each window of the input and joined at the end.

    A part is written whole or not at all, states its digest, and is named after its window, the text in it and the
    settings. So a run that was interrupted skips what is there when it is started again with the same settings, and
    several processes, on several machines, write side by side: they share this folder and nothing else. What is
    missing or damaged is done again.
    """

    def __init__(
        self, outputs: list[Path], settings: dict[str, Any], restart: bool = False, is_main: bool = True
    ) -> None:
        """Take up what an interrupted run of the same settings has left, or raise an error that names what differs.

        Args:
            settings: everything that the outputs depend on beside the text.
            restart: discard what an interrupted run has left; only where no other process writes.
            is_main: False for all but one of the processes that write side by side: the one that holds the locks.
        """
        self.outputs = outputs
        first = outputs[0].resolve()
        self.folder = first.with_name(first.name + ".parts")
        self.stems: list[str] = []
        self.settings = json.dumps(settings, indent=2, sort_keys=True)
        if is_main:
            _remove(self._finished)
            for path in self.outputs:
                remove_partials(path)
        if restart:
            self._discard()
        settings, before = json.loads(self.settings), read_object(self.folder / SETTINGS_FILE)
        if before is not None and before != settings:
            changed = [name for name in sorted({**before, **settings}) if before.get(name) != settings.get(name)]
            shown = "; ".join(f"{name}: {before.get(name)!r} then, {settings.get(name)!r} now" for name in changed)
            raise ValueError(
                f"{self.folder} is of an interrupted run with other settings ({shown}); `--restart` discards it"
            )
        if is_main:
            write_output(self.folder / SETTINGS_FILE, self.settings)

    def begin(self, window: Window) -> None:
        """Note the next window. Call it for every window, in order: the output has these windows."""
        digest = _sha256("\n".join([self.settings, *map(str, window.lines)]).encode("utf-8"))[:16]
        self.stems.append(f"{window.number:08d}-{digest}")

    def is_done(self) -> bool:
        """Return whether the window that began last is done."""
        if self._read(self.stems[-1]) is not None:
            return True
        number, path = self.stems[-1].partition("-")[0], self._path(self.stems[-1])
        if path.exists():
            warn(f"{path} is damaged: its lines are translated again.")
        elif next(self.folder.glob(f"{number}-*.part"), None) is not None:
            warn(f"The input or the settings differ from those of {path.parent}: changed lines are translated.")
        return False

    def write(self, columns: list[list[str]], failures: dict[int, str]) -> None:
        """Write the lines of each output for the window that began last."""
        texts = ["".join(f"{line}\n" for line in lines).encode("utf-8") for lines in columns]
        stated = {"bytes": [len(text) for text in texts], "failures": failures}
        content = json.dumps(stated).encode("utf-8") + b"\n" + b"".join(texts)
        write_output(self._path(self.stems[-1]), _sha256(content).encode("ascii") + b"\n" + content)

    def count_done(self) -> int:
        """Return the number of windows whose part is there, written by any process."""
        return sum(self._path(stem).exists() for stem in self.stems)

    def finish(self, convert: Callable[[bytes], bytes] | None = None) -> dict[int, str]:
        """Join the parts of all windows, and remove them; return why lines failed, by their number.

        Hold the locks of the outputs meanwhile.

        Args:
            convert: make the first output of its joined lines, which then fit into the memory.
        """
        failures: dict[int, str] = {}
        joined: list[bytes] = []
        with contextlib.ExitStack() as stack:
            wholes = [stack.enter_context(open_output(path)) for path in self.outputs]
            for stem in self.stems:
                part = self._read(stem)
                if part is None:
                    raise ValueError(
                        f"{self._path(stem)} is missing or damaged: the same command again translates its lines again"
                    )
                joined += part.texts[:1] if convert else []
                for whole, text in list(zip(wholes, part.texts, strict=True))[1 if convert else 0 :]:
                    whole.write(text)
                failures |= part.failures
            if convert is not None:
                wholes[0].write(convert(b"".join(joined)))
        self._discard()
        return failures

    @property
    def _finished(self) -> Path:
        return self.folder.with_name(f"{self.folder.name}.finished")

    def _discard(self) -> None:
        """Remove the parts; the folder goes in one step first, so that no kill leaves parts without settings."""
        if self.folder.exists():
            self.folder.rename(self._finished)
            _remove(self._finished)

    def _path(self, stem: str) -> Path:
        return self.folder / f"{stem}.part"

    def _read(self, stem: str) -> Part | None:
        """Return a part, or `None` if it is missing or not as it was written."""
        try:
            digest, _, content = self._path(stem).read_bytes().partition(b"\n")
        except FileNotFoundError:
            return None
        if _sha256(content).encode("ascii") != digest:
            return None
        header, _, joined = content.partition(b"\n")
        stated, texts = json.loads(header), []
        for size in stated["bytes"]:
            texts.append(joined[:size])
            joined = joined[size:]
        return Part(texts, {int(number): reason for number, reason in stated["failures"].items()})


def write_windows(
    windows: Iterable[Window],
    lines_of: Callable[[int, list[Any]], tuple[list[list[str]], dict[int, str]]],
    output: WindowedOutput | None,
    streams: Sequence[IO[bytes]],
    *,
    progress: Progress,
    share: tuple[int, int] = (0, 1),
) -> None:
    """Write the lines of each window: as a part of an output that resumes, or else into a stream for each column.

    Args:
        lines_of: gives them, and why lines failed, for the number of its first line and its lines.
        share: the number of this process, and of how many.
    """
    for window in windows:
        if output is None:
            for stream, column in zip(streams, lines_of(window.first_line, window.lines)[0], strict=True):
                stream.write("".join(f"{line}\n" for line in column).encode())
                stream.flush()
        else:
            output.begin(window)
            if window.number % share[1] == share[0] and not output.is_done():
                output.write(*lines_of(window.first_line, window.lines))
        progress.update(len(window.lines))


def _sha256(content: bytes) -> str:
    import hashlib  # late: programs that write no file do without

    return hashlib.sha256(content).hexdigest()


def _remove(folder: Path) -> None:
    import shutil

    if folder.exists():
        shutil.rmtree(folder)
