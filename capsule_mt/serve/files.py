"""Uploaded files: read and written in child processes; their translations are stored for ten minutes."""

import asyncio
import secrets
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeAlias, TypeVar
from weakref import WeakValueDictionary

from capsule_mt.formats.worker import StoppedError, Worker

WORKERS = 2
FILE_SECONDS, MAX_FILES = 600, 32
Answer = TypeVar("Answer")
Task: TypeAlias = Callable[[Worker], Answer]


class Readers:
    """Two processes that read and write files; a client uses one at a time, and its next file waits."""

    def __init__(self) -> None:
        self._workers = [Worker() for _ in range(WORKERS)]
        self._idle = list(self._workers)
        self._slots = asyncio.Semaphore(WORKERS)
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        # separate threads: those of `asyncio.to_thread` queue texts, which must not wait for files
        self._threads = ThreadPoolExecutor(WORKERS, thread_name_prefix="files")
        self._is_closed = False

    async def run(self, client: str, task: Task[Answer]) -> Answer:
        """Run a task in a process for a client; if it is cancelled, the process is killed."""
        turn = self._turns.setdefault(client, asyncio.Lock())
        async with turn, self._slots:
            if self._is_closed:
                raise StoppedError("the server is stopping")
            worker = self._idle.pop()
            try:
                return await asyncio.get_running_loop().run_in_executor(self._threads, task, worker)
            except asyncio.CancelledError:
                worker.stop()
                raise
            finally:
                self._idle.append(worker)

    def close(self) -> None:
        """Kill the processes, whatever they are doing."""
        self._is_closed = True
        for worker in self._workers:
            worker.stop()
        self._threads.shutdown(wait=False)


class Files:
    """Stores the latest `MAX_FILES` translated files, each for `FILE_SECONDS`."""

    def __init__(self) -> None:
        self._files: dict[str, tuple[float, bytes]] = {}  # by name: the time when it expires, its content

    def store(self, name: str, content: bytes) -> str:
        """Store a file; return the name to fetch it by, which others cannot guess."""
        self._drop_expired()
        while len(self._files) >= MAX_FILES:
            del self._files[next(iter(self._files))]
        name = f"{secrets.token_urlsafe(16)}.{name}"
        self._files[name] = (time.monotonic() + FILE_SECONDS, content)
        return name

    def get(self, name: str) -> bytes | None:
        self._drop_expired()
        return self._files[name][1] if name in self._files else None

    def _drop_expired(self) -> None:
        now = time.monotonic()
        self._files = {name: file for name, file in self._files.items() if file[0] > now}
