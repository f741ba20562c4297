"""Translate files of any size in windows of lines; a run that writes files resumes after an interruption."""

import contextlib
import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import count
from typing import IO, TYPE_CHECKING, Any, NamedTuple

from capsule_mt.files.outputs import open_output, read_object, remove_partials, write_output
from capsule_mt.files.progress import Progress
from capsule_mt.messages import warn

if TYPE_CHECKING:
    from pathlib import Path

SETTINGS_FILE = "settings.json"
FIRST_LINES = 16  # translated at once, until the speed is known
SECONDS_AT_ONCE = 4.0  # of work, after which progress is shown
SECONDS_BETWEEN_SAVES = 10.0  # of the unfinished rows of a window, at most


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


class Row(NamedTuple):
    """The results of a line: its lines in each output, why it failed, and whether a person should check it."""

    columns: list[list[str]]
    failure: str | None = None
    is_flagged: bool = False


class Totals(NamedTuple):
    """What a report counts: the lines of the input, those to check, and those that failed."""

    lines: int
    flagged: int
    failed: int


class ReportFrame(NamedTuple):
    """What a report needs once all its rows are there.

    header: formats what precedes them.
    rank: what they are sorted by, the least first; `None` leaves them in the order of the input.
    """

    header: Callable[[Totals], bytes]
    rank: Callable[[bytes], Any] | None = None

    def arranged(self, rows: Iterable[bytes]) -> Iterable[bytes]:
        """Return the rows in order; those of a report that is sorted must fit into memory."""
        return rows if self.rank is None else sorted(rows, key=self.rank)


class Part(NamedTuple):
    """The results of a window: the text of each output, and the reasons of failed lines by their index."""

    texts: list[bytes]
    failures: dict[int, str]
    flagged: int


class WindowedOutput:
    """Output files, written in parts, one for each window of the input, and joined at the end.

    A part is written whole or not at all and starts with its digest; its name has its window's number and a digest of
    its text and the settings. So an interrupted run skips finished parts when it starts again with the same settings,
    and several processes, on several machines, write side by side, sharing only this folder. Missing and damaged parts
    are written again.
    """

    def __init__(
        self, outputs: "list[Path]", settings: dict[str, Any], restart: bool = False, is_main: bool = True
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
        self.num_lines = 0
        self.totals: Totals | None = None  # `None` until this process joins the windows
        self.settings = json.dumps(settings, indent=2, sort_keys=True)
        if is_main:
            _remove(self._finished)
            for path in self.outputs:
                remove_partials(path)
        if restart:
            self._discard()
        settings, old = json.loads(self.settings), read_object(self.folder / SETTINGS_FILE)
        # a run that an error ended before it saved anything has nothing to resume or to lose
        if old is not None and old != settings and not (is_main and self._is_empty):
            changed = [name for name in sorted({**old, **settings}) if old.get(name) != settings.get(name)]
            changes = "; ".join(f"{name}: {old.get(name)!r} then, {settings.get(name)!r} now" for name in changed)
            raise ValueError(
                f"{self.folder} is from an interrupted run with other settings ({changes}); `--restart` discards it"
            )
        if is_main:
            write_output(self.folder / SETTINGS_FILE, self.settings)

    @property
    def _is_empty(self) -> bool:
        return not any(path.suffix in (".part", ".rows") for path in self.folder.iterdir())

    def begin(self, window: Window) -> None:
        """Register the next window. Call it for every window, in order: the output consists of these windows."""
        digest = _sha256("\n".join([self.settings, *map(str, window.lines)]).encode("utf-8"))[:16]
        self.stems.append(f"{window.number:08d}-{digest}")
        self.num_lines += len(window.lines)

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

    def write(self, columns: list[list[str]], failures: dict[int, str], flagged: int = 0) -> None:
        """Write the part of the latest window: the lines of each output."""
        texts = ["".join(f"{line}\n" for line in lines).encode("utf-8") for lines in columns]
        header = {"bytes": [len(text) for text in texts], "failures": failures, "flagged": flagged}
        _write_with_digest(self._path(self.stems[-1]), json.dumps(header).encode("utf-8") + b"\n" + b"".join(texts))
        self._path(self.stems[-1], ".rows").unlink(missing_ok=True)

    def save_rows(self, rows: Mapping[int, Row]) -> None:
        """Save the rows of the latest window that are done, by their indices in it."""
        _write_with_digest(self._path(self.stems[-1], ".rows"), json.dumps(rows).encode("ascii"))

    def saved_rows(self) -> dict[int, Row]:
        """Return the rows of the latest window that an interrupted run has saved."""
        content = _read_with_digest(self._path(self.stems[-1], ".rows"))
        return {} if content is None else {int(index): Row(*row) for index, row in json.loads(content).items()}

    def count_done(self) -> int:
        """Return the number of windows that have a part, from any process."""
        return sum(self._path(stem).exists() for stem in self.stems)

    def finish(
        self,
        convert: Callable[[bytes], bytes] | None = None,
        frames: Mapping[int, ReportFrame] | None = None,
    ) -> dict[int, str]:
        """Join the parts of all windows, and remove them; return why lines failed, by their index.

        Hold the locks of the outputs meanwhile.

        Args:
            convert: makes the first output from its joined lines, which must fit into memory.
            frames: those of reports, by the index of the output.
        """
        failures: dict[int, str] = {}
        num_flagged = 0
        frames = frames or {}
        collected: dict[int, list[bytes]] = {index: [] for index, frame in frames.items() if frame.rank is not None}
        if convert is not None:
            collected[0] = []
        with contextlib.ExitStack() as stack:
            streams = [stack.enter_context(open_output(path)) for path in self.outputs]
            for index, frame in frames.items():
                streams[index].write(frame.header(self._totals()))
            for stem in self.stems:
                part = self._read(stem)
                if part is None:
                    raise ValueError(
                        f"{self._path(stem)} is missing or damaged: run the same command again to translate its lines"
                    )
                for index, (stream, text) in enumerate(zip(streams, part.texts, strict=True)):
                    if index in collected:
                        collected[index].append(text)
                    else:
                        stream.write(text)
                failures |= part.failures
                num_flagged += part.flagged
            for index, texts in collected.items():
                joined = b"".join(texts)
                if index in frames:
                    streams[index].writelines(frames[index].arranged(joined.splitlines(keepends=True)))
                elif convert is not None:
                    streams[index].write(convert(joined))
        self._discard()
        self.totals = Totals(self.num_lines, num_flagged, len(failures))
        return failures

    @property
    def _finished(self) -> "Path":
        return self.folder.with_name(f"{self.folder.name}.finished")

    def _discard(self) -> None:
        """Remove the parts; the folder goes in one step first, so that no kill leaves parts without settings."""
        if self.folder.exists():
            self.folder.rename(self._finished)
            _remove(self._finished)

    def _path(self, stem: str, suffix: str = ".part") -> "Path":
        return self.folder / f"{stem}{suffix}"

    def _totals(self) -> Totals:
        """Return the totals of all windows; a missing or damaged part counts as empty, and `finish` refuses it."""
        parts = [part for part in map(self._read, self.stems) if part is not None]
        return Totals(self.num_lines, sum(part.flagged for part in parts), sum(len(part.failures) for part in parts))

    def _read(self, stem: str) -> Part | None:
        """Return a part, or `None` if it is missing or damaged."""
        content = _read_with_digest(self._path(stem))
        if content is None:
            return None
        first_line, _, joined = content.partition(b"\n")
        header, texts = json.loads(first_line), []
        for size in header["bytes"]:
            texts.append(joined[:size])
            joined = joined[size:]
        failures = {int(index): reason for index, reason in header["failures"].items()}
        return Part(texts, failures, header["flagged"])


class HeldBack(NamedTuple):
    """A stream, and the file where its rows wait for their header, which has the totals."""

    stream: IO[bytes]
    rows: IO[bytes]

    def release(self, frame: ReportFrame, totals: Totals) -> None:
        """Write the header and the rows into the stream."""
        self.rows.seek(0)
        self.stream.write(frame.header(totals))
        self.stream.writelines(frame.arranged(self.rows))


@contextlib.contextmanager
def holding_back(stream: IO[bytes]) -> Iterator[HeldBack]:
    """Yield a stream with a temporary file for its rows."""
    import tempfile  # late: most runs write no report

    with tempfile.TemporaryFile() as rows:
        yield HeldBack(stream, rows)


class Pace:
    """Chooses how many lines to translate at once: `SECONDS_AT_ONCE` at the latest speed, at least `FIRST_LINES`."""

    def __init__(self) -> None:
        self.num_lines = FIRST_LINES

    def update(self, num_lines: int, seconds: float) -> None:
        """Choose by how long the last lines took."""
        self.num_lines = max(FIRST_LINES, round(num_lines / max(seconds, 1e-6) * SECONDS_AT_ONCE))


def write_windows(
    windows: Iterable[Window],
    rows_of: Callable[[list[int], list[Any]], list[Row]],
    output: WindowedOutput | None,
    streams: Sequence[IO[bytes]],
    *,
    progress: Progress,
    share: tuple[int, int] = (0, 1),
) -> None:
    """Write the lines of each window: as a part of an output that resumes, or into one stream for each column.

    Args:
        rows_of: returns the rows of lines; it takes their indices in the input, and the lines.
        share: the index of this process, and the number of processes.
    """
    pace = Pace()
    for window in windows:
        if output is None:
            columns, _, _ = _joined(_rows(window, rows_of, None, progress, pace), window.first_line)
            for stream, lines in zip(streams, columns, strict=True):
                stream.write("".join(f"{line}\n" for line in lines).encode())
                stream.flush()
            continue
        output.begin(window)
        if window.number % share[1] == share[0] and not output.is_done():
            output.write(*_joined(_rows(window, rows_of, output, progress, pace), window.first_line))
        else:
            progress.skip(len(window.lines))


def _rows(
    window: Window,
    rows_of: Callable[[list[int], list[Any]], list[Row]],
    output: WindowedOutput | None,
    progress: Progress,
    pace: Pace,
) -> list[Row]:
    """Return the rows of a window, a few lines at a time; `output` saves them every `SECONDS_BETWEEN_SAVES`."""
    rows = {} if output is None else output.saved_rows()
    progress.skip(len(rows))
    # the longest first: lines of one length make full batches, and those that follow are not slower than expected
    waiting = sorted((index for index in range(len(window.lines)) if index not in rows), key=_length_in(window))
    saved = time.monotonic()
    try:
        while waiting:
            indices, waiting = sorted(waiting[: pace.num_lines]), waiting[pace.num_lines :]
            started = time.monotonic()
            results = rows_of(
                [window.first_line + index for index in indices], [window.lines[index] for index in indices]
            )
            pace.update(len(indices), time.monotonic() - started)
            rows.update(zip(indices, results, strict=True))
            progress.update(len(indices))
            if output is not None and waiting and time.monotonic() - saved > SECONDS_BETWEEN_SAVES - SECONDS_AT_ONCE:
                output.save_rows(rows)
                saved = time.monotonic()
    except KeyboardInterrupt:
        if output is not None:
            output.save_rows(rows)
        raise
    return [rows[index] for index in range(len(window.lines))]


def _length_in(window: Window) -> Callable[[int], int]:
    """Return a key that sorts the indices of a window's lines, or pairs of lines, the longest first."""
    return lambda index: -sum(map(len, window.lines[index]))


def _joined(rows: Sequence[Row], first_line: int) -> tuple[list[list[str]], dict[int, str], int]:
    """Return the lines of each output, why lines failed by their index in the input, and the number to check."""
    columns = [
        [line for lines in column for line in lines] for column in zip(*(row.columns for row in rows), strict=True)
    ]
    failures = {index: row.failure for index, row in enumerate(rows, start=first_line) if row.failure is not None}
    return columns, failures, sum(row.is_flagged for row in rows)


def _write_with_digest(path: "Path", content: bytes) -> None:
    write_output(path, _sha256(content).encode("ascii") + b"\n" + content)


def _read_with_digest(path: "Path") -> bytes | None:
    """Return the content of a file that starts with its digest, or `None` if it is missing or damaged."""
    try:
        digest, _, content = path.read_bytes().partition(b"\n")
    except FileNotFoundError:
        return None
    return content if _sha256(content).encode("ascii") == digest else None


def _sha256(content: bytes) -> str:
    import hashlib  # late: programs that write no file do without

    return hashlib.sha256(content).hexdigest()


def _remove(folder: "Path") -> None:
    import shutil

    if folder.exists():
        shutil.rmtree(folder)
