"""Files that clients send: read and written in processes of their own, and kept until they are fetched."""

import asyncio
import secrets
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeAlias, TypeVar
from weakref import WeakValueDictionary

from capsule_mt.formats.apart import StoppedError, Worker

WORKERS = 2
FILE_SECONDS, MOST_FILES = 600, 32
Answer = TypeVar("Answer")
Task: TypeAlias = Callable[[Worker], Answer]


class Readers:
    """Two processes that read and write files, of which a client has one at a time: its next file waits."""

    def __init__(self) -> None:
        self._workers = [Worker() for _ in range(WORKERS)]
        self._idle = list(self._workers)
        self._slots = asyncio.Semaphore(WORKERS)
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        # threads of their own: those of `asyncio.to_thread` queue texts
        self._threads = ThreadPoolExecutor(WORKERS, thread_name_prefix="files")
        self._is_closed = False

    async def run(self, client: str, task: Task[Answer]) -> Answer:
        """Let a process do something for a client; cancelled, the process ends."""
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
        """End the processes, whatever they do."""
        self._is_closed = True
        for worker in self._workers:
            worker.stop()
        self._threads.shutdown(wait=False)


class Files:
    """Keeps the files that were translated, each for some time, and not too many."""

    def __init__(self) -> None:
        self._files: dict[str, tuple[float, bytes]] = {}

    def keep(self, name: str, content: bytes) -> str:
        """Keep a file; return the name by which nobody else guesses it."""
        self.get("")
        while len(self._files) >= MOST_FILES:
            del self._files[next(iter(self._files))]
        name = f"{secrets.token_urlsafe(16)}.{name}"
        self._files[name] = (time.monotonic() + FILE_SECONDS, content)
        return name

    def get(self, name: str) -> bytes | None:
        now = time.monotonic()
        self._files = {name: file for name, file in self._files.items() if file[0] > now}
        return self._files[name][1] if name in self._files else None
