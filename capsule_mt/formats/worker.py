"""Read and write untrusted files in a child process with limited time and memory, which can be killed.

A slow pattern or parser then cannot block this process: `re` and `expat` hold Python's global lock while they work.
"""

import contextlib
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, cast

from capsule_mt.formats.child import LIMITS_SECONDS, MAX_CONTENTS, MAX_HEAD, Limits, receive, send, serve
from capsule_mt.formats.forked import Forked, can_fork
from capsule_mt.formats.units import FormatError, Translated, Unit

SECONDS = 5.0  # of the processor to read a file, and again to write it
# The process ends itself after these seconds of the processor. On a busy machine they take longer by the clock, and a
# good file must not be refused: so this process kills it only after this many times as many seconds.
WAIT = 6 if LIMITS_SECONDS else 1
MEMORY = 512 << 20  # bytes
# isolated, and without site-packages: the formats need only the standard library
CODE = "import sys; sys.path.append({root!r}); from capsule_mt.formats.child import main; main()"
Process: TypeAlias = "subprocess.Popen[bytes] | Forked"


class Source(NamedTuple):
    """A file as it was sent; its options are those of `reading.parse`."""

    content: bytes
    format: str
    name: str
    encoding: str | None = None
    language: str | None = None
    column: str | None = None
    flag_all: bool = False


class Texts(NamedTuple):
    """The texts of a file to translate; `units` is empty if they have too many `characters`."""

    units: list[Unit]
    keep: tuple[str, ...]
    characters: int


class StoppedError(Exception):
    """The process was stopped because nobody waits for its answer."""


class Worker:
    """A process that reads files, one at a time. It starts with the first file, and restarts after one that ended it.

    To write a file, it reads it again: no file stays in memory while its texts are being translated.

    max_message: bytes of texts, and of files, that are exchanged with the process; by default those of a server.
    forks: fork this process if that is safe, instead of starting an interpreter.
    """

    def __init__(
        self, seconds: float = SECONDS, memory: int = MEMORY, max_message: int | None = None, forks: bool = False
    ) -> None:
        self.seconds, self.memory, self.forks = seconds, memory, forks
        self.max_head, self.max_contents = max_message or MAX_HEAD, max_message or MAX_CONTENTS
        self._process: Process | None = None
        self._lock = threading.Lock()  # one file at a time
        self._is_stopped = self._is_late = False  # why we killed the process

    def read(self, source: Source, max_characters: int) -> Texts:
        """Return the texts to translate, or raise a `FormatError` that names the fault."""
        answer, _ = self._send(source, max_characters=max_characters, translations=None)
        units = [Unit(*map(str, unit)) for unit in answer["units"]]
        return Texts(units, tuple(map(str, answer["keep"])), int(answer["characters"]))

    def write(self, source: Source, translations: Sequence[Sequence[Translated]]) -> list[bytes]:
        """Return one file for each of these lists of translations."""
        return self._send(source, translations=translations)[1]

    def __enter__(self) -> "Worker":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the process; the next file starts another one."""
        if self._process is not None:
            self._end(self._process)

    def stop(self) -> None:
        """Kill the process, whatever it is doing, and raise `StoppedError` for each file until `resume`."""
        self._is_stopped = True
        process = self._process
        if process is not None:
            process.kill()

    def resume(self) -> None:
        """Read files again after `stop`."""
        self._is_stopped = False

    def _kill_late(self, process: Process) -> None:
        self._is_late = True
        process.kill()

    def _send(self, source: Source, **job: Any) -> tuple[dict[str, Any], list[bytes]]:
        if len(source.content) > self.max_contents:
            raise FormatError(f"{source.name}: {len(source.content)} bytes, at most {self.max_contents} are read")
        with self._lock:
            if self._is_stopped:
                raise _stopped(source.name)
            process = self._running_process()
            if self._is_stopped:  # while it started: `stop` did not see it
                process.kill()
            timer = threading.Timer(WAIT * self.seconds, self._kill_late, [process])
            timer.start()
            try:
                message = {**source._asdict(), **job}
                del message["content"]
                send(cast(Any, process.stdin), message, [source.content])
                answer, files = receive(cast(Any, process.stdout), self.max_head, self.max_contents)
            except (OSError, EOFError, ValueError):
                raise self._error(source.name, process) from None
            except BaseException:  # Ctrl-C: the process ignores it
                self._end(process)
                raise
            finally:
                timer.cancel()
            if answer.get("is_last"):
                self._end(process)
        if "error" in answer:
            raise FormatError(str(answer["error"]))
        return answer, files

    def _running_process(self) -> Process:
        if self._process is None or self._process.poll() is not None:
            limits = Limits(self.seconds, self.memory, self.max_head, self.max_contents)
            self._is_late = False
            if self.forks and can_fork():
                self._process = Forked(lambda stdin, stdout: serve(stdin, stdout, limits))
            else:
                root = str(Path(__file__).resolve().parents[2])
                command = [sys.executable, "-I", "-S", "-c", CODE.format(root=root), *map(str, limits)]
                self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        return self._process

    def _error(self, name: str, process: Process) -> Exception:
        """Return the error that explains why a process has not answered, after it ended."""
        self._end(process)
        if self._is_stopped:
            return _stopped(name)
        if self._is_late or process.returncode == -getattr(signal, "SIGPROF", 0):
            return FormatError(f"{name}: takes longer than {self.seconds:g} s to read or write")
        return FormatError(f"{name}: the process that read it ended with code {process.returncode}")

    def _end(self, process: Process) -> None:
        self._process = None
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            with contextlib.suppress(OSError):  # closing flushes what the dead process has not read
                cast(Any, pipe).close()


def _stopped(name: str) -> StoppedError:
    return StoppedError(f"{name}: not read, its client has gone")
