"""Translate files of any size in windows: memory stays constant, and an interrupted run resumes."""

import contextlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import IO, Any, NamedTuple

from capsule_mt.files.outputs import open_output, read_object, remove_partials, write_output
from capsule_mt.files.progress import Progress
from capsule_mt.messages import warn

SETTINGS_FILE = "settings.json"


class Window(NamedTuple):
    """Consecutive lines of the input, or pairs of lines.

    number: the index of the window.
    first_line: the index of its first line.
    """

    number: int
    first_line: int
    lines: list[Any]


def windows_of(lines: Iterable[Any], size: int, has_line: Callable[[], bool] | None = None) -> Iterator[Window]:
    """Yield windows of `size` lines; the last may be shorter.

    has_line: whether the next line is there. A window also ends where it is not, so that a slow writer sees its
        translations at once.
    """
    remaining, first_line = iter(lines), 0
    for number in count():
        window = []
        for line in remaining:
            window.append(line)
            if len(window) == size or (has_line is not None and not has_line()):
                break
        if not window:
            return
        yield Window(number, first_line, window)
        first_line += len(window)


class Part(NamedTuple):
    """The results of a window: the text of each output, and the reasons of failed lines by their index."""

    texts: list[bytes]
    failures: dict[int, str]


class WindowedOutput:
    """Output files, written in parts, one for each window of the input, and joined at the end.

    A part is written whole or not at all and starts with its digest; its name has its window's number and a digest of
    its text and the settings. So an interrupted run skips finished parts when it starts again with the same settings,
    and several processes, on several machines, write side by side, sharing only this folder. Missing and damaged parts
    are written again.
    """

    def __init__(
        self, outputs: list[Path], settings: dict[str, Any], restart: bool = False, is_main: bool = True
    ) -> None:
        """Resume an interrupted run of the same settings, or raise an error that names the settings that differ.

        Args:
            settings: everything that the outputs depend on besides the text.
            restart: discard the parts of an interrupted run; only if no other process writes.
            is_main: whether this process holds the locks; exactly one of the processes that write side by side does.
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
        settings, old = json.loads(self.settings), read_object(self.folder / SETTINGS_FILE)
        if old is not None and old != settings:
            changed = [name for name in sorted({**old, **settings}) if old.get(name) != settings.get(name)]
            changes = "; ".join(f"{name}: {old.get(name)!r} then, {settings.get(name)!r} now" for name in changed)
            raise ValueError(
                f"{self.folder} is of an interrupted run with other settings ({changes}); `--restart` discards it"
            )
        if is_main:
            write_output(self.folder / SETTINGS_FILE, self.settings)

    def begin(self, window: Window) -> None:
        """Register the next window. Call it for every window, in order: the output consists of these windows."""
        digest = _sha256("\n".join([self.settings, *map(str, window.lines)]).encode("utf-8"))[:16]
        self.stems.append(f"{window.number:08d}-{digest}")

    def is_done(self) -> bool:
        """Return whether the part of the latest window is already there; warn if it is damaged or its text changed."""
        if self._read(self.stems[-1]) is not None:
            return True
        number, path = self.stems[-1].partition("-")[0], self._path(self.stems[-1])
        if path.exists():
            warn(f"{path} is damaged: its lines are translated again.")
        elif next(self.folder.glob(f"{number}-*.part"), None) is not None:
            warn(f"The input or the settings differ from those of {path.parent}: changed lines are translated.")
        return False

    def write(self, columns: list[list[str]], failures: dict[int, str]) -> None:
        """Write the part of the latest window: the lines of each output."""
        texts = ["".join(f"{line}\n" for line in lines).encode("utf-8") for lines in columns]
        header = {"bytes": [len(text) for text in texts], "failures": failures}
        content = json.dumps(header).encode("utf-8") + b"\n" + b"".join(texts)
        write_output(self._path(self.stems[-1]), _sha256(content).encode("ascii") + b"\n" + content)

    def count_done(self) -> int:
        """Return the number of windows that have a part, from any process."""
        return sum(self._path(stem).exists() for stem in self.stems)

    def finish(self, convert: Callable[[bytes], bytes] | None = None) -> dict[int, str]:
        """Join the parts of all windows, and remove them; return why lines failed, by their index.

        Hold the locks of the outputs meanwhile.

        Args:
            convert: makes the first output from its joined lines, which must fit into memory.
        """
        failures: dict[int, str] = {}
        joined: list[bytes] = []
        with contextlib.ExitStack() as stack:
            streams = [stack.enter_context(open_output(path)) for path in self.outputs]
            for stem in self.stems:
                part = self._read(stem)
                if part is None:
                    raise ValueError(
                        f"{self._path(stem)} is missing or damaged: the same command again translates its lines again"
                    )
                joined += part.texts[:1] if convert else []
                for stream, text in list(zip(streams, part.texts, strict=True))[1 if convert else 0 :]:
                    stream.write(text)
                failures |= part.failures
            if convert is not None:
                streams[0].write(convert(b"".join(joined)))
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
        """Return a part, or `None` if it is missing or damaged."""
        try:
            digest, _, content = self._path(stem).read_bytes().partition(b"\n")
        except FileNotFoundError:
            return None
        if _sha256(content).encode("ascii") != digest:
            return None
        first_line, _, joined = content.partition(b"\n")
        header, texts = json.loads(first_line), []
        for size in header["bytes"]:
            texts.append(joined[:size])
            joined = joined[size:]
        return Part(texts, {int(index): reason for index, reason in header["failures"].items()})


def write_windows(
    windows: Iterable[Window],
    lines_of: Callable[[int, list[Any]], tuple[list[list[str]], dict[int, str]]],
    output: WindowedOutput | None,
    streams: Sequence[IO[bytes]],
    *,
    progress: Progress,
    share: tuple[int, int] = (0, 1),
) -> None:
    """Write the lines of each window: as a part of an output that resumes, or into one stream for each column.

    Args:
        lines_of: returns a window's output lines, and why some failed; it takes the index of the first line, and the
            input lines.
        share: the index of this process, and the number of processes.
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
