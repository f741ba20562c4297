"""The clients: their names, API keys, and the limit of requests a minute of each client."""

import asyncio
import logging
import os
import time
from dataclasses import dataclass, field
from hashlib import sha256
from ipaddress import IPv6Address, ip_address, ip_network
from pathlib import Path

from fastapi import HTTPException, Request

WRONG_KEY_SECONDS = 1.0  # before a wrong key gets its answer
WRONG_KEYS_A_MINUTE = 10  # of a client; after that, its keys are not looked at, however many it sends at once
IPV6_PREFIX = 64  # bits of a network; a client of IPv6 has all addresses of one
MAX_REMEMBERED = 10_000  # clients
CONTACT = "Please contact the server operator to get an API key"

logger = logging.getLogger("capsule_mt.serve")


@dataclass(frozen=True)
class Keys:
    """The digests of the API keys, and the limit of each in requests a minute. Without keys, anyone may ask."""

    limits: dict[bytes, int | None] = field(default_factory=dict)

    @classmethod
    def load(cls, file: str | os.PathLike[str]) -> "Keys":
        """Read a file with one key a line, optionally followed by its requests a minute; `#` starts a comment."""
        limits: dict[bytes, int | None] = {}
        try:
            lines = Path(file).read_text(encoding="utf-8-sig").split("\n")
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or error
            raise ValueError(
                f"`--api-keys {file}` cannot be read: {reason}; name a file with one key a line"
            ) from None
        for line_number, line in enumerate(lines, 1):
            words = line.partition("#")[0].split()
            if not words:
                continue
            key = _digest(words[0])
            if len(words) > 2 or (len(words) == 2 and not words[1].isdecimal()) or key in limits:
                raise ValueError(
                    f"{file}, line {line_number}: must be a key that no other line has, and optionally its limit "
                    "in requests a minute, as in `KEY 60`"
                )
            limits[key] = int(words[1]) if len(words) == 2 else None
        if not limits:
            raise ValueError(f"{file}: has no key; write one key a line")
        return cls(limits)

    def __bool__(self) -> bool:
        return bool(self.limits)

    def __contains__(self, key: object) -> bool:
        return _digest(str(key)) in self.limits

    def limit(self, key: str) -> int | None:
        """Return the limit of a key in requests a minute, or `None` if its line does not set one."""
        return self.limits[_digest(key)]


def _digest(key: str) -> bytes:
    return sha256(key.encode("utf-8", "surrogatepass")).digest()


class Rates:
    """Counts requests: a client may send a minute's limit at once, and regains it evenly over a minute."""

    def __init__(self) -> None:
        self._allowances: dict[str, tuple[float, float]] = {}  # requests left, time of the last one

    def take(self, client: str, limit: int) -> float:
        """Take a request from a client's allowance; return 0, or the seconds until it may send one."""
        allowance = self._allowance(client, limit)
        wait = self.wait(client, limit)
        self._allowances.pop(client, None)
        self._allowances[client] = (allowance if wait else allowance - 1, time.monotonic())
        if len(self._allowances) > MAX_REMEMBERED:
            del self._allowances[next(iter(self._allowances))]  # the client that has been silent for longest
        return wait

    def wait(self, client: str, limit: int) -> float:
        """Return the seconds until a client may send a request, without taking one."""
        allowance = self._allowance(client, limit)
        return 0.0 if allowance >= 1 else (1 - allowance) * 60 / limit

    def _allowance(self, client: str, limit: int) -> float:
        now = time.monotonic()
        allowance, last_time = self._allowances.get(client, (float(limit), now))
        return min(float(limit), allowance + (now - last_time) * limit / 60)


class Doorkeeper:
    """Admits requests by their key and the limit of their client.

    keys: the accepted keys.
    limit: the requests a minute of a client without a limit of its own; 0 for no limit.
    """

    def __init__(self, keys: Keys, limit: int) -> None:
        self.keys, self.limit = keys, limit
        self._rates, self._wrong_keys = Rates(), Rates()

    async def admit(self, request: Request, key: str) -> str:
        """Return the name of the client; raise an `HTTPException` if it is not admitted."""
        client, limit = f"address {client_of(address_of(request))}", self.limit
        if self.keys:
            if not key:
                raise HTTPException(403, CONTACT)
            await self.check_key(request, key)
            key_limit = self.keys.limit(key)
            client, limit = f"key {key}", limit if key_limit is None else key_limit
        if limit and (wait := self._rates.take(client, limit)):
            raise HTTPException(429, f"Slowdown: {limit} per 1 minute", {"Retry-After": str(int(wait) + 1)})
        return client

    async def check_key(self, request: Request, key: str) -> None:
        """Refuse a wrong key, and every key of a client that has sent too many wrong ones."""
        address = address_of(request)
        client = client_of(address)
        if wait := self._wrong_keys.wait(client, WRONG_KEYS_A_MINUTE):
            raise HTTPException(429, "Too many wrong API keys", {"Retry-After": str(int(wait) + 1)})
        if key not in self.keys:
            self._wrong_keys.take(client, WRONG_KEYS_A_MINUTE)
            logger.warning("a wrong API key from %s", address)
            await asyncio.sleep(WRONG_KEY_SECONDS)
            raise HTTPException(403, "Invalid API key")


def client_of(address: str) -> str:
    """Return the name of an address's client: the address, or for IPv6 its network, all of which a client has."""
    try:
        ip = ip_address(address.partition("%")[0])
    except ValueError:  # of a Unix socket, say
        return address
    if not isinstance(ip, IPv6Address):
        return str(ip)
    return str(ip.ipv4_mapped or ip_network((ip, IPV6_PREFIX), strict=False))


def address_of(request: Request) -> str:
    return request.client.host if request.client else ""


def key_in_head(request: Request) -> str:
    """Return the key of `Authorization: Bearer KEY`, or `api_key` of the query string; empty without both."""
    kind, _, key = request.headers.get("authorization", "").partition(" ")
    return key.strip() if kind.lower() == "bearer" else request.query_params.get("api_key", "")
