"""Run the application under uvicorn, and answer the accepted requests before it stops."""

import asyncio
import ctypes
import errno
import gc
import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from types import FrameType

import uvicorn

from capsule_mt.catalog.pairs import LanguagePair
from capsule_mt.serve.answers import Answers, RequestLimits
from capsule_mt.serve.app import build_app
from capsule_mt.serve.batching import Batcher
from capsule_mt.serve.connections import Connections, protocol_with
from capsule_mt.serve.files import Readers
from capsule_mt.serve.metrics import Metrics
from capsule_mt.text.detecting import Detector
from capsule_mt.translate.text_translator import TextTranslator

M_ARENA_MAX = -8  # of malloc.h
# New objects between two searches for garbage. The start of the program sets 100,000, and memory then grows with each
# request whose client leaves before the answer.
COLLECTION_THRESHOLD = 1000
SWITCH_SECONDS = 0.001  # a thread's turn in Python: cutting a long text takes many milliseconds
LISTENING_ADVICE: dict[int | None, str] = {
    errno.EADDRINUSE: "; choose another --port",
    errno.EACCES: "; choose a --port from 1024 on, and put a proxy in front of it",
    errno.EADDRNOTAVAIL: "; choose a --host that is an address of this machine, or 0.0.0.0 for all of them",
}
Models = tuple[Mapping[LanguagePair, TextTranslator], Detector | None]
SECONDS_TO_ANSWER = 2  # to send errors to the remaining requests, after the time to stop is over


def bind(host: str, port: int) -> socket.socket:
    """Bind an address before any model is loaded; port 0 is any free one."""
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except (OSError, OverflowError) as error:
        advice = LISTENING_ADVICE.get(getattr(error, "errno", None), "")
        raise OSError(f"`--host {host} --port {port}` cannot be listened on: {error}{advice}") from None
    return listener


class Server(uvicorn.Server):
    """A server that stops at the first signal, within `stop_seconds`, plus `SECONDS_TO_ANSWER` to send errors.

    A second signal ends the process at once.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        batchers: Mapping[LanguagePair, Batcher],
        readers: Readers,
        stop_seconds: int,
    ) -> None:
        super().__init__(config)
        config.timeout_graceful_shutdown = stop_seconds + SECONDS_TO_ANSWER
        self.batchers, self.readers, self.stop_seconds = set(batchers.values()), readers, stop_seconds
        self.deadline, self.gave_up = 0.0, False
        self.had_terminal = has_terminal()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self.should_exit:
            os._exit(128 + sig)
        self.should_exit = True

    def handle_hangup(self, sig: int, frame: FrameType | None) -> None:
        """Stop if the terminal of the server was closed; else say that there is nothing to reload."""
        if self.had_terminal and not has_terminal():
            self.handle_exit(sig, frame)
        else:
            # not `print`, which a signal may have interrupted
            os.write(2, b"SIGHUP: there is nothing to reload, since `--models FILE` does not name the models\n")

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self.loop = asyncio.get_running_loop()
        await super().startup(sockets)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self.deadline = time.monotonic() + self.stop_seconds
        asyncio.get_running_loop().call_later(self.stop_seconds, self.abandon)
        await super().shutdown(sockets)

    def abandon(self) -> None:
        self.gave_up = bool(self.server_state.tasks)  # requests without an answer
        for batcher in self.batchers:
            batcher.abandon()
        self.readers.close()

    def close(self) -> bool:
        """End threads and processes; return whether all requests were answered and all threads ended in time."""
        self.readers.close()
        closed = [batcher.close(max(0.0, self.deadline - time.monotonic())) for batcher in self.batchers]
        return all(closed) and not self.gave_up


def has_terminal() -> bool:
    """Return whether this process has a controlling terminal, which a service does not have."""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR))
    except OSError:
        return False
    return True


class Reloader:
    """Replaces the models at SIGHUP; texts that were queued before are translated by the old ones."""

    def __init__(self, server: Server, answers: Answers, load: Callable[[], Models]) -> None:
        self.server, self.answers, self.load = server, answers, load
        self._loading = threading.Lock()

    def handle_signal(self, sig: int, frame: FrameType | None) -> None:
        threading.Thread(target=self._reload, name="reloader", daemon=True).start()

    def _reload(self) -> None:
        """Load the models in this thread, and let the thread of the requests take them."""
        with self._loading:
            try:
                translators, detector = self.load()
            except Exception as error:  # whatever a model raises, the old ones stay
                if not self.server.should_exit:
                    print(f"the models stay as they were: {error}", file=sys.stderr, flush=True)
                return
            self.server.loop.call_soon_threadsafe(self._replace, translators, detector)

    def _replace(self, translators: Mapping[LanguagePair, TextTranslator], detector: Detector | None) -> None:
        old = set(self.answers.batchers.values())
        batchers = batchers_of(translators, old)
        self.answers.replace(batchers, detector)
        self.server.batchers |= set(batchers.values())
        print(f"{', '.join(map(str, batchers))} from now on", flush=True)
        retired = old - set(batchers.values())
        if retired:
            threading.Thread(target=self._retire, args=(retired,), name="retiring", daemon=True).start()

    def _retire(self, batchers: set[Batcher]) -> None:
        """Close batchers once no request can be about to queue texts in them."""
        time.sleep(self.answers.limits.request_seconds)
        for batcher in batchers:
            batcher.close()
        with suppress(RuntimeError):  # the loop has ended
            self.server.loop.call_soon_threadsafe(self.server.batchers.difference_update, batchers)


def share_memory() -> None:
    """Let all threads allocate from two arenas: glibc's eight for each core keep what threads of old models leave."""
    if sys.platform == "linux":
        with suppress(AttributeError):  # another C library
            ctypes.CDLL(None).mallopt(M_ARENA_MAX, 2)


def batchers_of(
    translators: Mapping[LanguagePair, TextTranslator], running: Iterable[Batcher] = ()
) -> dict[LanguagePair, Batcher]:
    """Return the batcher of each pair; the pairs of one model share one, and so its threads.

    running: batchers that stay in use for the same translators.
    """
    batcher_of = {id(batcher.translator): batcher for batcher in running}
    for translator in translators.values():
        if id(translator) not in batcher_of:
            batcher_of[id(translator)] = Batcher(translator)
    return {pair: batcher_of[id(translator)] for pair, translator in translators.items()}


def run_server(
    translators: Mapping[LanguagePair, TextTranslator],
    listener: socket.socket,
    limits: RequestLimits,
    connections: Connections,
    detector: Detector | None,
    stop_seconds: int,
    reload: Callable[[], Models] | None = None,
) -> bool:
    """Serve until SIGTERM or Ctrl-C, then answer the accepted requests; return whether there was time for all.

    reload: loads the models to serve from SIGHUP on.
    """
    share_memory()
    gc.set_threshold(COLLECTION_THRESHOLD)
    metrics, readers = Metrics(), Readers()
    batchers = batchers_of(translators)
    sys.setswitchinterval(SWITCH_SECONDS)
    # warnings about a text concern its client, not the operator
    logging.getLogger("capsule_mt").setLevel(logging.ERROR)
    logging.getLogger("capsule_mt.serve").setLevel(logging.WARNING)
    app, protocol = build_app(batchers, limits, metrics, detector, readers), protocol_with(connections)
    proxies = [str(network) for network in connections.proxies]
    config = uvicorn.Config(
        app,
        log_level="warning",
        backlog=connections.backlog,
        http=protocol,
        proxy_headers=bool(proxies),
        forwarded_allow_ips=proxies,
    )
    server = Server(config, batchers, readers, stop_seconds)
    if os.name == "posix":
        if reload is not None:
            signal.signal(signal.SIGHUP, Reloader(server, app.state.answers, reload).handle_signal)
        elif signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # as nohup leaves it
            signal.signal(signal.SIGHUP, server.handle_hangup)
    listener.listen(connections.backlog)
    host, port = listener.getsockname()[:2]
    address = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
    print(f"{', '.join(map(str, batchers))} at {address} (the API: {address}/docs)", flush=True)
    try:
        server.run(sockets=[listener])
    finally:
        all_answered = server.close()
    return all_answered
