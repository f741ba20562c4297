"""Connections of uvicorn with limits: how many there are, of all and of each address, and how long a head may take."""

import asyncio
import socket
import sys
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, cast

from uvicorn.protocols.http.auto import AutoHTTPProtocol

BACKLOG = 128  # that wait until they are accepted
OTHER_FILES = 64  # that the process has open besides connections
ANSWER = "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n"
LOOPBACK = ("127.", "::1")
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"  # of which every client expects any number before its answer
PROBE_SECONDS = 0.25  # between looks whether a client that sends no more has gone


@dataclass
class Connections:
    """The open connections, and their limits.

    most: how many there may be; `most_files` lowers it to what the system allows.
    most_of_address: how many of one address; an address of this machine, such as that of a proxy, may have all.
    head_seconds: how long the head of a request may take to arrive.
    """

    most: int = 1000
    most_of_address: int = 100
    head_seconds: float = 10.0
    number: int = 0
    of_address: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.most = min(self.most, max(1, most_files() - BACKLOG - OTHER_FILES))

    def refusal(self, address: str) -> str:
        """Return why there is no room for one more, or an empty string."""
        if self.number > self.most:
            return f"the server has {self.most} connections; try again later"
        if self.of_address[address] > self.most_of_address and not address.startswith(LOOPBACK):
            return f"the server has {self.most_of_address} connections of your address; close some"
        return ""


def most_files() -> int:
    """Return how many files this process may have open, after asking for as many as it may ask for."""
    if sys.platform == "win32":
        return 8192
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 65536 if hard == resource.RLIM_INFINITY else min(hard, 65536)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        soft = wanted
    return 65536 if soft == resource.RLIM_INFINITY else soft


def protocol_with(connections: Connections) -> type[asyncio.Protocol]:
    """Return uvicorn's protocol with these limits."""
    base: Any = AutoHTTPProtocol

    class Limited(base):
        def connection_made(self, transport: asyncio.Transport) -> None:
            self.is_refused, self.head_timer = False, None
            peer = transport.get_extra_info("peername")
            self.address = str(peer[0]) if isinstance(peer, tuple) and peer else ""
            connections.number += 1
            connections.of_address[self.address] += 1
            super().connection_made(transport)
            if reason := connections.refusal(self.address):
                self.refuse("503 Service Unavailable", reason)
            else:
                self.await_head()

        def data_received(self, data: bytes) -> None:
            if self.is_refused:
                return
            super().data_received(data)
            cycle = getattr(self, "cycle", None)
            if cycle is not None and not cycle.response_complete:
                self.stop_awaiting()
            elif self.head_timer is None:
                self.await_head()

        def eof_received(self) -> bool:
            """Keep the connection of a client that will send no more, but waits for its answer."""
            cycle = getattr(self, "cycle", None)
            if self.is_refused or cycle is None or cycle.more_body or cycle.response_complete:
                return False
            cycle.keep_alive = False
            if not cycle.response_started:
                self.transport.write(CONTINUE)  # a client that has gone answers this with a reset
            self.probe()
            return True

        def probe(self) -> None:
            if self.transport.is_closing():
                return
            if self.transport.get_extra_info("socket").getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                self.transport.abort()
            else:
                self.loop.call_later(PROBE_SECONDS, self.probe)

        def connection_lost(self, error: Exception | None) -> None:
            self.stop_awaiting()
            connections.number -= 1
            connections.of_address[self.address] -= 1
            connections.of_address += Counter()  # drops those without any
            super().connection_lost(error)

        def await_head(self) -> None:
            self.head_timer = self.loop.call_later(connections.head_seconds, self.give_up)

        def stop_awaiting(self) -> None:
            if self.head_timer is not None:
                self.head_timer.cancel()
                self.head_timer = None

        def give_up(self) -> None:
            seconds = connections.head_seconds
            self.refuse("408 Request Timeout", f"the request did not arrive within {seconds:g} s")

        def refuse(self, status: str, reason: str) -> None:
            """Answer without reading on, and close."""
            self.is_refused = True
            body = f'{{"error": "{reason}"}}'.encode()
            self.transport.write(ANSWER.format(status=status, length=len(body)).encode() + body)
            self.transport.close()

    return cast(type[asyncio.Protocol], Limited)
