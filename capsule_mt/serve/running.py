"""Run the application under uvicorn, and stop it without losing an accepted request."""

import asyncio
import logging
import os
import socket
import sys
import time
from collections.abc import Mapping
from types import FrameType

import uvicorn

from capsule_mt.catalog.pairs import LanguagePair
from capsule_mt.serve.answers import Limits
from capsule_mt.serve.app import build_app
from capsule_mt.serve.batching import Batcher
from capsule_mt.serve.connections import BACKLOG, Connections, protocol_with
from capsule_mt.serve.files import Readers
from capsule_mt.serve.metrics import Metrics
from capsule_mt.text.detecting import Detector
from capsule_mt.translate.text_translator import TextTranslator

SWITCH_SECONDS = 0.001  # a thread's turn in Python: cutting a long text takes many milliseconds
SECONDS_TO_ANSWER = 2  # to send errors to the remaining requests, after the time to stop is over


def bind(host: str, port: int) -> socket.socket:
    """Bind an address before any model is loaded; port 0 is any free one."""
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except (OSError, OverflowError) as error:
        raise OSError(f"`--host {host} --port {port}` cannot be listened on: {error}") from None
    return listener


class Server(uvicorn.Server):
    """A server that stops at the first signal, within `stop_seconds`; a second signal ends the process at once."""

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
        self.deadline = 0.0

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self.should_exit:
            os._exit(128 + sig)
        self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self.deadline = time.monotonic() + self.stop_seconds
        asyncio.get_running_loop().call_later(self.stop_seconds, self.abandon)
        await super().shutdown(sockets)

    def abandon(self) -> None:
        for batcher in self.batchers:
            batcher.abandon()
        self.readers.close()

    def close(self) -> bool:
        """End threads and processes; return whether every thread had finished its work in time."""
        self.readers.close()
        closed = [batcher.close(max(0.0, self.deadline - time.monotonic())) for batcher in self.batchers]
        return all(closed)


def batchers_of(translators: Mapping[LanguagePair, TextTranslator]) -> dict[LanguagePair, Batcher]:
    """Return the batcher of each pair; the pairs of one model share one, and so its threads."""
    batcher_of: dict[int, Batcher] = {}
    for translator in translators.values():
        if id(translator) not in batcher_of:
            batcher_of[id(translator)] = Batcher(translator)
    return {pair: batcher_of[id(translator)] for pair, translator in translators.items()}


def run_server(
    translators: Mapping[LanguagePair, TextTranslator],
    listener: socket.socket,
    limits: Limits,
    connections: Connections,
    detector: Detector | None,
    stop_seconds: int,
) -> bool:
    """Serve until SIGTERM or Ctrl-C, then answer the accepted requests; return whether there was time for all."""
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
        backlog=BACKLOG,
        http=protocol,
        proxy_headers=bool(proxies),
        forwarded_allow_ips=proxies,
    )
    server = Server(config, batchers, readers, stop_seconds)
    listener.listen(BACKLOG)
    host, port = listener.getsockname()[:2]
    address = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
    print(f"{', '.join(map(str, batchers))} at {address} (the API: {address}/docs)", flush=True)
    try:
        server.run(sockets=[listener])
    finally:
        all_answered = server.close()
    return all_answered
