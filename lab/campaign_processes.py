"""Commands of the program in processes of their own, which can be killed or left without space.

A server imports the libraries once and forks for each command, which then starts in a fraction of a second instead of
many: a kill hits the command at work, and a minute has room for many tries. Needs a system that forks.
"""

import multiprocessing
import os
import re
import resource
import runpy
import signal
import sys
import threading
import time
import traceback
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path

from capsule_mt.commands.console import CODE_OF_SIGINT

LONGEST = 300.0  # seconds after which a command counts as hanging
PRELOADED = [
    *("hf_capsule_mt.training", "capsule_mt.text", "hf_capsule_mt.hub", "hf_capsule_mt.decoding"),
    *("datasets", "transformers.models.marian.modeling_marian", "sacrebleu"),
]
CONTEXT = multiprocessing.get_context("forkserver")
Content = dict[str, bytes]
ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",  # threads do not survive a fork
    "TOKENIZERS_PARALLELISM": "false",
    "HF_HUB_OFFLINE": "1",
    "HF_DATASETS_DISABLE_PROGRESS_BARS": "1",
    "PYTHONWARNINGS": "ignore::UserWarning:multiprocessing.resource_tracker",  # killed processes leave semaphores
}


class Command:
    """A running `capsule-mt` with some arguments.

    Args:
        folder: the working folder.
        file_size: the bytes after which no file grows, which looks to the command like a full disk.
        environment: variables that it has besides those of the server.

    Attributes:
        peak: the most memory that it had, in MiB, once it has ended by itself; before, 0.
    """

    def __init__(
        self,
        words: Sequence[str],
        folder: Path,
        file_size: int | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.words, self.killed, self.peak = list(words), False, 0.0
        self._blocks: list[bytes] = []
        receiver, sender = CONTEXT.Pipe(duplex=False)
        arguments = (self.words, str(folder), file_size, dict(environment or {}), sender)
        self._process = CONTEXT.Process(target=_run, args=arguments, daemon=True)
        self._process.start()
        sender.close()
        os.read(receiver.fileno(), 1)  # the program begins
        self._reader = threading.Thread(target=self._read, args=(receiver,), daemon=True)
        self._reader.start()

    @property
    def is_running(self) -> bool:
        return self._process.is_alive()

    @property
    def output(self) -> str:
        """What it has printed until now."""
        return b"".join(self._blocks).decode("utf-8", "replace")

    def send(self, number: signal.Signals) -> bool:
        """Send a signal; return whether the command was still running."""
        self.killed = self.is_running and self._process.pid is not None
        if self.killed:
            os.kill(self._process.pid or 0, number)
        return self.killed

    def wait(self, seconds: float) -> None:
        self._process.join(seconds)

    def end(self, longest: float = LONGEST) -> tuple[int, str]:
        """Wait for the end; return the exit code, negative after a signal, and everything that was printed."""
        self._process.join(longest)
        hangs = self._process.is_alive()
        if hangs:
            self._process.kill()
            self._process.join()
        self._reader.join(LONGEST)
        message = self.output
        stated = re.search("\\0peak ([0-9]+)$", message)
        if stated is not None:
            message, self.peak = message[: stated.start()], int(stated[1]) / 1024
        if hangs:
            raise AssertionError(f"{' '.join(self.words)} still runs after {longest:.0f} s: {message[-500:]}")
        return self._process.exitcode or 0, message

    def _read(self, receiver: Connection) -> None:
        while block := os.read(receiver.fileno(), 1 << 16):
            self._blocks.append(block)
        receiver.close()


def start_server(folder: Path) -> None:
    """Set what the server imports, once the first command starts it, and the folder of the commands' caches."""
    os.environ.update(ENVIRONMENT, HF_DATASETS_CACHE=str(folder / "datasets"))
    CONTEXT.set_forkserver_preload(PRELOADED)


def run(words: Sequence[str], folder: Path, file_size: int | None = None) -> tuple[int, str]:
    """Run a command to its end; return its exit code and everything that it printed."""
    return Command(words, folder, file_size).end()


def contents(folder: Path, patterns: tuple[str, ...]) -> Content:
    return {file.name: file.read_bytes() for pattern in patterns for file in sorted(folder.glob(pattern))}


def check_refusal(code: int, message: str) -> None:
    """Check that a command ended with an error in one sentence."""
    assert code > 0, f"exit code {code}: {message[-1000:]}"
    assert "Traceback" not in message, f"a traceback: {message[-1500:]}"
    assert "error: " in message, f"no sentence: {message[-1000:]}"


def timed(words: Sequence[str], folder: Path) -> float:
    """Run a command that must succeed; return its seconds."""
    started = time.perf_counter()
    code, message = run(words, folder)
    if code != 0:
        raise ValueError(f"{' '.join(words)} ended with {code}: {message[-2000:]}")
    return time.perf_counter() - started


def _run(
    words: list[str], folder: str, file_size: int | None, environment: dict[str, str], output: Connection
) -> None:
    """Become `python -m capsule_mt`, with both streams in one pipe."""
    for descriptor in (1, 2):
        os.dup2(output.fileno(), descriptor)
    output.close()
    sys.stdout, sys.stderr = (os.fdopen(number, "w", buffering=1, encoding="utf-8") for number in (1, 2))
    os.chdir(folder)
    os.environ.update(environment)
    if file_size is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (file_size, file_size))
    sys.argv = ["capsule-mt", *words]
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
        os.write(1, b"\n")
        runpy.run_module("capsule_mt", run_name="__main__", alter_sys=True)
    except KeyboardInterrupt as stopped:  # before `main` runs, no program can report it in one sentence
        if any(frame.name == "main" for frame in traceback.extract_tb(stopped.__traceback__)):
            raise
        sys.exit(CODE_OF_SIGINT)
    finally:
        os.write(1, f"\0peak {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss}".encode())
