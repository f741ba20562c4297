"""Run the application under uvicorn, and stop it without losing a request."""

import contextlib
import socket
from collections.abc import Mapping

import uvicorn

from hf_capsule_mt.pipelines.translator import Translator
from hf_capsule_mt.serve.app import Limits, build_app
from hf_capsule_mt.serve.batching import Batcher
from hf_capsule_mt.serve.languages import LanguagePair
from hf_capsule_mt.serve.metrics import Metrics

BACKLOG = 2048


def bind(host: str, port: int) -> socket.socket:
    """Take an address, before any model is loaded; port 0 is any free one."""
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        taken = socket.socket(family)
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(address)
    except (OSError, OverflowError) as error:
        raise OSError(f"`--host {host} --port {port}` cannot be listened on: {error}") from None
    return taken


def run_server(
    translators: Mapping[LanguagePair, Translator],
    listener: socket.socket,
    limits: Limits,
    *,
    max_batch: int,
    wait_seconds: float,
    max_queue: int,
) -> None:
    """Serve until SIGTERM or Ctrl-C; then answer what was accepted, and return.

    uvicorn raises the signal again at the end, for the handler that was there before.
    """
    metrics = Metrics()
    batchers = {
        pair: Batcher(
            translator,
            max_batch=max_batch,
            wait_seconds=wait_seconds,
            max_queue=max_queue,
            on_batch=lambda size, pair=str(pair): metrics.batches.add(size, pair=pair),  # type: ignore[misc]
        )
        for pair, translator in translators.items()
    }
    server = uvicorn.Server(uvicorn.Config(build_app(batchers, limits, metrics), log_level="warning", backlog=BACKLOG))
    listener.listen(BACKLOG)
    host, port = listener.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    print(
        f"{', '.join(map(str, batchers))} at http://{shown}:{port} (the API: http://{shown}:{port}/docs)", flush=True
    )
    try:
        with contextlib.suppress(KeyboardInterrupt):
            server.run(sockets=[listener])
    finally:
        for batcher in batchers.values():
            batcher.close()
