"""Uploaded files: read and written in child processes; their translations are stored for at most ten minutes."""

import asyncio
import secrets
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, TypeAlias, TypeVar
from weakref import WeakValueDictionary

from capsule_mt.files.sandbox.worker import ReadingStoppedError
from capsule_mt.formats.worker import Worker

WORKERS = 2
FILE_SECONDS, MAX_FILES = 600, 32
MAX_STORED_BYTES = 256 << 20
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
        async with self._turns.setdefault(client, asyncio.Lock()):
            await self._slots.acquire()
            if self._is_closed:
                self._slots.release()
                raise ReadingStoppedError("the server is stopping")
            worker = self._idle.pop()
            work = asyncio.get_running_loop().run_in_executor(self._threads, task, worker)
            work.add_done_callback(lambda _: self._set_idle(worker))
            try:
                await asyncio.wait({work})  # which does not cancel it
            except asyncio.CancelledError:
                worker.stop()
                work.add_done_callback(asyncio.Future.exception)  # or it would be logged as never retrieved
                raise
            return work.result()

    def _set_idle(self, worker: Worker) -> None:
        """Let the next file have a worker; its thread has ended, so that a late `stop` cannot meet that file."""
        if not self._is_closed:
            worker.resume()
        self._idle.append(worker)
        self._slots.release()

    def close(self) -> None:
        """Kill the processes, whatever they are doing."""
        self._is_closed = True
        for worker in self._workers:
            worker.stop()
        self._threads.shutdown(wait=False)


class StoredFile(NamedTuple):
    client: str
    expires: float
    content: bytes


class Files:
    """Stores the latest `MAX_FILES` translated files of each client, each for at most `FILE_SECONDS`.

    If all files together exceed `MAX_STORED_BYTES`, the client that has most loses its oldest file.
    """

    def __init__(self) -> None:
        self._files: dict[str, StoredFile] = {}  # by name, the oldest first

    def store(self, client: str, name: str, content: bytes) -> str:
        """Store a file of a client; return the name to fetch it by, which others cannot guess."""
        self._drop_expired()
        if self._count(client) >= MAX_FILES:
            self._drop_oldest(client)
        while (sizes := self._sizes()) and sizes.total() + len(content) > MAX_STORED_BYTES:
            self._drop_oldest(sizes.most_common(1)[0][0])
        name = f"{secrets.token_urlsafe(16)}.{name}"
        self._files[name] = StoredFile(client, time.monotonic() + FILE_SECONDS, content)
        return name

    def get(self, name: str) -> bytes | None:
        self._drop_expired()
        return self._files[name].content if name in self._files else None

    def _count(self, client: str) -> int:
        return sum(file.client == client for file in self._files.values())

    def _sizes(self) -> Counter[str]:
        sizes: Counter[str] = Counter()
        for file in self._files.values():
            sizes[file.client] += len(file.content)
        return sizes

    def _drop_oldest(self, client: str) -> None:
        del self._files[next(name for name, file in self._files.items() if file.client == client)]

    def _drop_expired(self) -> None:
        now = time.monotonic()
        self._files = {name: file for name, file in self._files.items() if file.expires > now}
