"""Read untrusted files in a child process with limited time and memory, which can be killed.

A slow pattern or parser then cannot block this process: `re` and `expat` hold Python's global lock while they work.
"""

import contextlib
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias, TypeVar, cast

from capsule_mt.files.sandbox.child import LIMITS_SECONDS, MAX_CONTENTS, MAX_HEAD, Answer, Limits, receive, send, serve
from capsule_mt.files.sandbox.forked import Forked, can_fork, uninterrupted

SECONDS = 5.0  # of the processor to read a file, and again to write it
# The process ends itself after these seconds of the processor. On a busy machine they take longer by the clock, and a
# good file must not be refused: so this process kills it only after this many times as many seconds.
WAIT = 6 if LIMITS_SECONDS else 1
MEMORY = 512 << 20  # bytes
# isolated, and without site-packages
CODE = (
    "import sys; sys.path += {folders!r}; from {module} import {function} as answer; "
    "from capsule_mt.files.sandbox.child import main; main(answer)"
)
Process: TypeAlias = "subprocess.Popen[bytes] | Forked"
SandboxType = TypeVar("SandboxType", bound="Sandbox")


class ReadingStoppedError(Exception):
    """The process was stopped before it answered: its client has gone, or the server stops."""


class Sandbox:
    """A process that reads files, one at a time. It starts with the first file, and restarts after one that ended it.

    answer: what the process does with a job: a function at the top of a module.
    error_type: of errors that name the fault of a file.
    reported_types: the other types of errors that `answer` may report, by name.
    libraries: third-party packages that `answer` imports.
    max_message: bytes of texts, and of files, that are exchanged with the process; by default those of a server.
    without_process: what to do where no process can be started, to end the error.
    forks: fork this process if that is safe, instead of starting an interpreter.
    """

    answer: Answer
    error_type: type[Exception] = ValueError
    reported_types: Mapping[str, type[Exception]] = {}
    libraries: Sequence[str] = ()
    without_process = ""

    def __init__(
        self, seconds: float = SECONDS, memory: int = MEMORY, max_message: int | None = None, forks: bool = False
    ) -> None:
        self.seconds, self.memory, self.forks = seconds, memory, forks
        self.max_head, self.max_contents = max_message or MAX_HEAD, max_message or MAX_CONTENTS
        self._process: Process | None = None
        self._lock = threading.Lock()  # one file at a time
        self._is_stopped = self._is_late = False  # why we killed the process

    def __enter__(self: SandboxType) -> SandboxType:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the process; the next file starts another one."""
        if self._process is not None:
            self._end(self._process)

    def stop(self) -> None:
        """Kill the process, whatever it is doing, and raise `ReadingStoppedError` for each file until `resume`."""
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

    def _send(self, name: str, contents: Sequence[bytes] = (), **job: Any) -> tuple[dict[str, Any], list[bytes]]:
        """Return the answer to a job, and its files; raise an error that begins with `name`."""
        size = sum(map(len, contents))
        if size > self.max_contents:
            raise self.error_type(f"{name}: {size} bytes, at most {self.max_contents} are read")
        with self._lock:
            if self._is_stopped:
                raise _stopped(name)
            try:
                process = self._running_process()
            except (OSError, ValueError) as error:
                raise self.error_type(
                    f"{name}: needs a process of its own to be read, but Python cannot be started ({error})"
                    f"{self.without_process}"
                ) from None
            if self._is_stopped:  # while it started: `stop` did not see it
                process.kill()
            timer = threading.Timer(WAIT * self.seconds, self._kill_late, [process])
            try:
                timer.start()
                send(cast(Any, process.stdin), {"name": name, **job}, contents)
                answer, files = receive(cast(Any, process.stdout), self.max_head, self.max_contents)
            except (OSError, EOFError, ValueError):
                raise self._error(name, process) from None
            except BaseException:  # Ctrl-C or SIGTERM: the process ignores them
                self._end(process)
                raise
            finally:
                timer.cancel()
            if answer.get("is_last"):
                self._end(process)
        if "error" in answer:
            error_type = self.reported_types.get(answer.get("kind", ""), self.error_type)
            raise error_type(str(answer["error"]))
        return answer, files

    def _running_process(self) -> Process:
        if self._process is None or self._process.poll() is not None:
            limits = Limits(self.seconds, self.memory, self.max_head, self.max_contents)
            self._is_late = False
            if self.forks and can_fork():
                with uninterrupted():
                    self._process = Forked(lambda stdin, stdout: serve(stdin, stdout, limits, self.answer))
            else:
                folders, answer = folders_of(self.libraries), self.answer
                code = CODE.format(folders=folders, module=answer.__module__, function=answer.__name__)
                if not sys.executable or hasattr(sys, "frozen"):  # Python is inside of another program
                    raise ValueError("its program is not known")
                command = [sys.executable, "-I", "-S", "-c", code, *map(str, limits)]
                self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        return self._process

    def _error(self, name: str, process: Process) -> Exception:
        """Return the error that explains why a process has not answered, after it ended."""
        self._end(process)
        if self._is_stopped:
            return _stopped(name)
        if self._is_late or process.returncode == -getattr(signal, "SIGPROF", 0):
            return self.error_type(f"{name}: takes longer than {self.seconds:g} s to read or write")
        return self.error_type(f"{name}: the process that read it ended with code {process.returncode}")

    def _end(self, process: Process) -> None:
        self._process = None
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            with contextlib.suppress(OSError):  # closing flushes what the dead process has not read
                cast(Any, pipe).close()


def folders_of(libraries: Sequence[str]) -> list[str]:
    """Return the folders of this package and of libraries; those that are not installed have none."""
    from importlib.util import find_spec  # late: most processes need no library

    specs = [find_spec(library) for library in libraries]
    origins = [spec.origin for spec in specs if spec is not None and spec.origin is not None]
    roots = [Path(__file__).resolve().parents[3], *(Path(origin).resolve().parents[1] for origin in origins)]
    return list(dict.fromkeys(map(str, roots)))


def _stopped(name: str) -> ReadingStoppedError:
    return ReadingStoppedError(f"{name}: not read, its client has gone")
