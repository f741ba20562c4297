"""Who asks: API keys, and how many requests a minute each client has."""

import asyncio
import logging
import os
import time
from dataclasses import dataclass, field
from hashlib import sha256

from fastapi import HTTPException, Request

WRONG_KEY_SECONDS = 1.0  # that a wrong key waits for its answer
MOST_REMEMBERED = 10_000
CONTACT = "Please contact the server operator to get an API key"

logger = logging.getLogger("capsule_mt.serve")


@dataclass(frozen=True)
class Keys:
    """The API keys, by their digests, and the requests a minute of each; none: nobody needs a key."""

    limits: dict[bytes, int | None] = field(default_factory=dict)

    @classmethod
    def load(cls, file: str | os.PathLike[str]) -> "Keys":
        """Read a file with a key a line, after which may be its requests a minute; `#` begins a comment."""
        limits: dict[bytes, int | None] = {}
        with open(file, encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                words = line.partition("#")[0].split()
                if not words:
                    continue
                key = _digest(words[0])
                if len(words) > 2 or (len(words) == 2 and not words[1].isdecimal()) or key in limits:
                    raise ValueError(
                        f"{file}, line {number}: must be a key that no other line has, and how many requests a minute "
                        "it may send, if that is limited"
                    )
                limits[key] = int(words[1]) if len(words) == 2 else None
        if not limits:
            raise ValueError(f"{file}: has no key")
        return cls(limits)

    def __bool__(self) -> bool:
        return bool(self.limits)

    def __contains__(self, key: object) -> bool:
        return _digest(str(key)) in self.limits

    def limit(self, key: str) -> int | None:
        """Return how many requests a minute a key has, if it has a number of its own."""
        return self.limits[_digest(key)]


def _digest(key: str) -> bytes:
    return sha256(key.encode("utf-8", "surrogatepass")).digest()


class Rates:
    """Counts the requests of each client: it has so many at once, and gets them back in the course of a minute."""

    def __init__(self) -> None:
        self._left: dict[str, tuple[float, float]] = {}  # of each client: requests, and when that was

    def take(self, client: str, limit: int) -> float:
        """Take one request; return after how many seconds there will be one, 0 if there was."""
        now = time.monotonic()
        left, before = self._left.pop(client, (float(limit), now))
        left = min(float(limit), left + (now - before) * limit / 60)
        wait = 0.0 if left >= 1 else (1 - left) * 60 / limit
        self._left[client] = (left if wait else left - 1, now)
        if len(self._left) > MOST_REMEMBERED:
            del self._left[next(iter(self._left))]  # who has asked least recently
        return wait


class Doorkeeper:
    """Lets requests in by their key and the limit of their client.

    keys: what is let in.
    limit: the requests a minute of a client, without one of its own; 0 for no limit.
    """

    def __init__(self, keys: Keys, limit: int) -> None:
        self.keys, self.limit = keys, limit
        self._rates = Rates()

    async def admit(self, request: Request, key: str) -> str:
        """Return the name of the client that asks; raise the error of LibreTranslate if it may not."""
        address = address_of(request)
        client, limit = f"address {address}", self.limit
        if self.keys:
            if not key:
                raise HTTPException(403, CONTACT)
            if key not in self.keys:
                logger.warning("a wrong API key from %s", address)
                await asyncio.sleep(WRONG_KEY_SECONDS)
                raise HTTPException(403, "Invalid API key")
            own = self.keys.limit(key)
            client, limit = f"key {key}", limit if own is None else own
        if limit and (wait := self._rates.take(client, limit)):
            raise HTTPException(429, f"Slowdown: {limit} per 1 minute", {"Retry-After": str(int(wait) + 1)})
        return client


def address_of(request: Request) -> str:
    return request.client.host if request.client else ""


def key_in_head(request: Request) -> str:
    """Return the key of a request without fields: `Authorization: Bearer KEY`, or of the query string."""
    kind, _, key = request.headers.get("authorization", "").partition(" ")
    return key.strip() if kind.lower() == "bearer" else request.query_params.get("api_key", "")
