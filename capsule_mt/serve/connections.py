"""Limits on uvicorn's connections: their number, in all and by address, and the time for a request's head."""

import asyncio
import socket
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from ipaddress import IPv4Network, IPv6Network, ip_address
from typing import Any, TypeAlias, cast

from uvicorn.protocols.http.h11_impl import H11Protocol

from capsule_mt.serve.clients import client_of

BACKLOG = 128  # connections that the system holds until we accept them
TURNS = 3  # of asyncio's loop that accept `backlog + 1` each, before the connections refused in the first are closed
OTHER_FILES = 64  # files that the process has open besides connections
ANSWER = "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n"
LOOPBACK = ("127.", "::1")
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"  # clients accept any number of these before the answer
MAX_DISCARDED = 32 << 20  # bytes of a request that follow its answer, before the connection is closed
DISCARDING_SECONDS = 5.0
Network: TypeAlias = IPv4Network | IPv6Network
PROBE_SECONDS = 0.25  # between checks that a client that has finished sending is still connected


@dataclass
class Connections:
    """The open connections, and their limits.

    max_number: the limit on all; lowered to what the system allows in open files.
    max_per_address: the limit of one address, or network of IPv6; loopback addresses and proxies are exempt.
    head_seconds: the time in which the head of a request must arrive.
    proxies: the addresses whose `X-Forwarded-For` names the client.
    backlog: the connections that the system holds; lowered, too.
    number, by_address: the connections that are open now.
    """

    max_number: int = 1000
    max_per_address: int = 100
    head_seconds: float = 10.0
    proxies: tuple[Network, ...] = ()
    backlog: int = BACKLOG
    number: int = 0
    by_address: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        num_files = max_open_files()
        self.backlog = min(self.backlog, num_files // 8)
        num_unrefused = num_files - TURNS * (self.backlog + 1) - OTHER_FILES
        self.max_number = min(self.max_number, max(1, num_unrefused))

    def refusal(self, address: str) -> str:
        """Return why a connection that was just opened is one too many, or an empty string."""
        if self.number > self.max_number:
            return f"the server accepts {self.max_number} connections; try again later"
        if self.by_address[client_of(address)] > self.max_per_address and not self._is_exempt(address):
            return f"the server accepts {self.max_per_address} connections from an address; close some of yours"
        return ""

    def _is_exempt(self, address: str) -> bool:
        return address.startswith(LOOPBACK) or any(ip_address(address) in network for network in self.proxies)


def max_open_files() -> int:
    """Raise the soft limit on open files as far as allowed, up to 65536, and return it; 8192 on Windows."""
    if sys.platform == "win32":
        return 8192
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    target = 65536 if hard == resource.RLIM_INFINITY else min(hard, 65536)
    if soft != resource.RLIM_INFINITY and soft < target:
        resource.setrlimit(resource.RLIMIT_NOFILE, (target, hard))
        soft = target
    return 65536 if soft == resource.RLIM_INFINITY else soft


class LingeringTransport:
    """A transport that closes lingeringly (RFC 9112, 9.6): a client that still sends can read the answer.

    A socket that is closed while bytes arrive is reset, which can destroy an answer that was sent before. So we stop
    sending, discard what arrives within limits, and then close.

    is_answered_early: returns whether the answer was sent before all of the request had arrived.
    """

    def __init__(self, transport: asyncio.Transport, is_answered_early: Callable[[], bool]) -> None:
        self._transport, self._is_answered_early = transport, is_answered_early
        self._num_discarded = 0
        self._timer: asyncio.TimerHandle | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    @property
    def is_lingering(self) -> bool:
        return self._timer is not None

    def is_closing(self) -> bool:
        return self.is_lingering or self._transport.is_closing()

    def close(self) -> None:
        """Close, lingeringly if the answer was sent before all of the request arrived; at once if called again."""
        if self.is_closing() or not self._is_answered_early():
            self._transport.close()
            return
        self._timer = asyncio.get_running_loop().call_later(DISCARDING_SECONDS, self._transport.close)
        if self._transport.can_write_eof():
            self._transport.write_eof()
        self._transport.resume_reading()

    def discard(self, data: bytes) -> None:
        self._num_discarded += len(data)
        if self._num_discarded > MAX_DISCARDED:
            self._transport.close()

    def stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()


_Protocol: Any = H11Protocol


class LimitedProtocol(_Protocol):
    """uvicorn's protocol with limits; `protocol_with` names the connections that it counts.

    It is the one by h11, which uvicorn always has: `httptools` does not tell how much of the next head has arrived.
    """

    open_connections: Connections

    def connection_made(self, transport: asyncio.Transport) -> None:
        self.is_refused, self.head_timer = False, None
        peer = transport.get_extra_info("peername")
        self.address = str(peer[0]) if isinstance(peer, tuple) and peer else ""
        self.open_connections.number += 1
        self.open_connections.by_address[client_of(self.address)] += 1
        super().connection_made(LingeringTransport(transport, self.is_answered_early))
        if reason := self.open_connections.refusal(self.address):
            self.refuse("503 Service Unavailable", reason)
        else:
            self.await_head()

    def is_answered_early(self) -> bool:
        """Return whether the answer was sent before all of the request had arrived."""
        cycle = getattr(self, "cycle", None)
        return cycle is not None and cycle.response_complete and cycle.more_body

    def data_received(self, data: bytes) -> None:
        if self.transport.is_lingering:
            self.transport.discard(data)
        if self.is_refused or self.transport.is_lingering:
            return
        super().data_received(data)
        cycle = getattr(self, "cycle", None)
        if cycle is not None and not cycle.response_complete:
            self.stop_awaiting()
        elif self.head_timer is None:
            self.await_head()

    def on_response_complete(self) -> None:
        """Limit the time of a next head that began to arrive before this answer was sent."""
        super().on_response_complete()
        unread, _ = self.conn.trailing_data
        if self.cycle.response_complete and unread and not self.transport.is_closing():
            self._unset_keepalive_if_required()
            self.await_head()

    def eof_received(self) -> bool:
        """Keep a connection whose client has closed its sending side and waits for the answer."""
        cycle = getattr(self, "cycle", None)
        if self.is_refused or cycle is None or cycle.more_body or cycle.response_complete:
            return False
        cycle.keep_alive = False
        if not cycle.response_started:
            self.transport.write(CONTINUE)  # a client that has gone answers with a reset, which `probe` sees
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
        self.transport.stop_timer()
        self.open_connections.number -= 1
        self.open_connections.by_address[client_of(self.address)] -= 1
        self.open_connections.by_address += Counter()  # drops addresses without connections
        super().connection_lost(error)

    def await_head(self) -> None:
        self.head_timer = self.loop.call_later(self.open_connections.head_seconds, self.give_up)

    def stop_awaiting(self) -> None:
        if self.head_timer is not None:
            self.head_timer.cancel()
            self.head_timer = None

    def give_up(self) -> None:
        seconds = self.open_connections.head_seconds
        self.refuse("408 Request Timeout", f"the request did not arrive within {seconds:g} s")

    def send_400_response(self, msg: str) -> None:
        """Refuse what is not HTTP; only close if an answer to its beginning has been started."""
        if str(self.conn.our_state) in ("IDLE", "SEND_RESPONSE"):  # h11's names: nothing of an answer has been sent
            self.refuse("400 Bad Request", "the request is not HTTP/1.1 that can be read")
        else:
            self.transport.close()

    def refuse(self, status: str, reason: str) -> None:
        """Answer without reading the request, and close."""
        self.is_refused = True
        body = f'{{"error": "{reason}"}}'.encode()
        self.transport.write(ANSWER.format(status=status, length=len(body)).encode() + body)
        self.transport.close()


def protocol_with(connections: Connections) -> type[asyncio.Protocol]:
    """Return the protocol that limits these connections."""
    return cast(type[asyncio.Protocol], type("LimitedProtocol", (LimitedProtocol,), {"open_connections": connections}))
