"""Read and write a stranger's file in a process of its own, which has limited time and memory and can be killed.

No pattern, no parser and no library then holds up this process: `re` and `expat` keep Python's lock while they work.
"""

import contextlib
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

from capsule_mt.formats.child import MAX_CONTENTS, receive, send
from capsule_mt.formats.units import FormatError, Translated, Unit

SECONDS = 5.0  # for reading a file, and for writing it
MEMORY = 512 << 20  # bytes
# isolated, and without site-packages: the formats need nothing but Python
CODE = "import sys; sys.path.append({root!r}); from capsule_mt.formats.child import main; main()"


class Source(NamedTuple):
    """A file as it was sent. `encoding` and `language` are those of `reading.parse`."""

    content: bytes
    format: str
    name: str
    encoding: str | None = None
    language: str | None = None


class Texts(NamedTuple):
    """What is to be translated of a file; no `units` where they have too many `characters`."""

    units: list[Unit]
    keep: tuple[str, ...]
    characters: int


class StoppedError(Exception):
    """The process was stopped because nobody waits for it."""


class Worker:
    """A process that reads files, one at a time. It starts with the first one, and again where one ended it.

    A file is read again when it is written, so that nothing waits in memory for its translation.
    """

    def __init__(self, seconds: float = SECONDS, memory: int = MEMORY) -> None:
        self.seconds, self.memory = seconds, memory
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()  # one file at a time
        self._reason: str | None = None  # why this process was killed

    def read(self, source: Source, max_characters: int) -> Texts:
        """Return what is to be translated, or raise the `FormatError` of what is wrong."""
        answer, _ = self._ask(source, max_characters=max_characters, translations=None)
        units = [Unit(str(text), str(place)) for text, place in answer["units"]]
        return Texts(units, tuple(map(str, answer["keep"])), int(answer["characters"]))

    def write(self, source: Source, translations: Sequence[Sequence[Translated]]) -> list[bytes]:
        """Return the file with each of these translations."""
        return self._ask(source, translations=translations)[1]

    def stop(self) -> None:
        """End the process, whatever it does; the next file starts another one."""
        self._kill("stopped")

    def _kill(self, reason: str) -> None:
        process = self._process
        if process is not None:
            self._reason = reason
            process.kill()

    def _ask(self, source: Source, **job: Any) -> tuple[dict[str, Any], list[bytes]]:
        if len(source.content) > MAX_CONTENTS:
            raise FormatError(f"{source.name}: has {len(source.content)} bytes, at most {MAX_CONTENTS} are read")
        with self._lock:
            process = self._started()
            timer = threading.Timer(self.seconds, self._kill, ["late"])
            timer.start()
            try:
                message = {**source._asdict(), **job}
                del message["content"]
                send(cast(Any, process.stdin), message, [source.content])
                answer, files = receive(cast(Any, process.stdout))
            except (OSError, EOFError, ValueError):
                raise self._error(source.name, process) from None
            finally:
                timer.cancel()
            if answer.get("is_last"):
                self._end(process)
        if "error" in answer:
            raise FormatError(str(answer["error"]))
        return answer, files

    def _started(self) -> "subprocess.Popen[bytes]":
        if self._process is None or self._process.poll() is not None:
            root = str(Path(__file__).resolve().parents[2])
            limits = [str(self.memory), str(self.seconds)]
            command = [sys.executable, "-I", "-S", "-c", CODE.format(root=root), *limits]
            self._reason = None
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        return self._process

    def _error(self, name: str, process: "subprocess.Popen[bytes]") -> Exception:
        """Return why a process has not answered, after its end."""
        self._end(process)
        if self._reason == "stopped":
            return StoppedError(f"{name}: not read, nobody waits for it")
        if self._reason == "late" or process.returncode == -getattr(signal, "SIGXCPU", 0):
            return FormatError(f"{name}: takes more than the {self.seconds:g} s that reading or writing it may")
        return FormatError(f"{name}: the process that read it has ended with code {process.returncode}")

    def _end(self, process: "subprocess.Popen[bytes]") -> None:
        self._process = None
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            with contextlib.suppress(OSError):  # for what it has not read
                cast(Any, pipe).close()
