"""Download files over HTTP: whole or not at all, checked, and on from where a broken connection left them."""

import contextlib
import hashlib
import http.client
import json
import time
import urllib.error
import urllib.parse
import urllib.request
import zlib
from collections.abc import Callable, Iterator
from http.client import HTTPMessage
from pathlib import Path
from typing import IO, Any

from capsule_mt.catalog.entries import OFFLINE, CatalogError, DownloadError, RemoteFile, is_offline
from capsule_mt.files.outputs import read_object

BLOCK = 1 << 16
TIMEOUT = 30.0  # seconds without a byte
TRIES = 4  # that bring nothing new
SECONDS_BETWEEN_TRIES = 1.0
PASSING = (408, 429, 500, 502, 503, 504)
GZIP = b"\x1f\x8b"
NETWORK_ERRORS = (http.client.HTTPException, ConnectionError, TimeoutError, urllib.error.URLError)


class _NoDowngrade(urllib.request.HTTPRedirectHandler):
    """Follow no redirection from https to http."""

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> urllib.request.Request | None:
        if req.full_url.startswith("https:") and not newurl.startswith("https:"):
            raise urllib.error.HTTPError(newurl, code, "a redirection from https to http", headers, fp)
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def read_json(url: str) -> Any:
    """Return what a small file of JSON has."""
    try:
        with _open(url, {"Accept-Encoding": "identity"}) as response:
            content = response.read()
    except NETWORK_ERRORS as error:
        raise _explained(url, error) from None
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        raise CatalogError(f"{url}: is no JSON ({error})") from None


def download(file: RemoteFile, folder: Path, on_bytes: Callable[[int], object] = lambda count: None) -> None:
    """Put a file into a folder. What is there already stays; what was begun there goes on.

    Args:
        on_bytes: called with how many bytes more have arrived; less than 0 when some have to come again.
    """
    target = folder / file.name
    if target.exists():
        on_bytes(target.stat().st_size)
        return
    part, facts = folder / f"{file.name}.part", folder / f"{file.name}.part.json"
    if part.exists() and not read_object(facts):
        part.unlink()
    on_bytes(_size(part))
    tries = TRIES
    while True:
        before = _size(part)
        try:
            if _receive(file, part, facts, on_bytes):
                break
            reason: Exception = ConnectionError("the connection breaks off")
        except NETWORK_ERRORS as error:
            if not _may_pass(error, begun=before > 0):
                raise _explained(file.url, error) from None
            reason = error
        tries = TRIES if _size(part) > before else tries - 1
        if tries == 0:
            raise _explained(file.url, reason) from None
        time.sleep(SECONDS_BETWEEN_TRIES)
    try:
        _check_and_place(file, part, target)
    except ValueError as damaged:
        part.unlink()
        raise DownloadError(f"{file.url}: {damaged}; the same command downloads it again") from None
    facts.unlink(missing_ok=True)


def _open(url: str, headers: dict[str, str]) -> Any:
    if is_offline() and not url.startswith("file:"):
        raise CatalogError(f"{url} is not asked: {OFFLINE} or HF_HUB_OFFLINE is set")
    request = urllib.request.Request(url, headers={"User-Agent": "capsule-mt", **headers})
    return urllib.request.build_opener(_NoDowngrade).open(request, timeout=TIMEOUT)


def _receive(file: RemoteFile, part: Path, facts: Path, on_bytes: Callable[[int], object]) -> bool:
    """Download over one connection; return whether the file is whole."""
    # a server unpacks what is stored as .gz for those who do not say that they can
    headers = {"Accept-Encoding": "gzip" if file.url.endswith(".gz") else "identity"}
    have, known = _size(part), read_object(facts) or {}
    if have and have == known.get("length"):
        return True
    if have and known.get("validator"):
        headers |= {"Range": f"bytes={have}-", "If-Range": known["validator"]}
    with _open(file.url, headers) as response:
        found = response.headers
        resumes = response.status == 206 and (found.get("Content-Range") or "").startswith(f"bytes {have}-")
        if have and not resumes:
            on_bytes(-have)
            have = 0
        length = found.get("Content-Length")
        total = None if length is None else have + int(length)
        if not resumes:
            etag = found.get("ETag") or ""
            validator = etag if etag and not etag.startswith("W/") else found.get("Last-Modified")
            facts.write_text(json.dumps({"validator": validator if total else None, "length": total}))
        with open(part, "ab" if resumes else "wb") as stream:
            while block := response.read(BLOCK):
                stream.write(block)
                on_bytes(len(block))
    return total is None or _size(part) == total


def _check_and_place(file: RemoteFile, part: Path, target: Path) -> None:
    """Unpack a whole download if it is packed, compare it with what the catalog says, and give it its name.

    A `ValueError` says how it is damaged.
    """
    with open(part, "rb") as stream:
        is_packed = file.url.endswith(".gz") and stream.read(2) == GZIP
    sha256, size = hashlib.sha256(), 0
    unpacked = target.with_name(f"{target.name}.unpacked")
    with contextlib.ExitStack() as stack:
        source = stack.enter_context(open(part, "rb"))
        written = stack.enter_context(open(unpacked, "wb")) if is_packed else None
        for block in _unpacked(source) if is_packed else iter(lambda: source.read(BLOCK), b""):
            sha256.update(block)
            size += len(block)
            if file.size is not None and size > file.size:
                raise ValueError(f"has more than {file.size} bytes")
            if written is not None:
                written.write(block)
    if file.size is not None and size != file.size:
        raise ValueError(f"has {size} bytes, but the catalog says {file.size}")
    if file.sha256 is not None and sha256.hexdigest() != file.sha256.lower():
        raise ValueError(f"its SHA-256 is {sha256.hexdigest()}, but the catalog says {file.sha256}")
    if is_packed:
        unpacked.replace(target)
        part.unlink()
    else:
        part.replace(target)


def _unpacked(stream: IO[bytes]) -> Iterator[bytes]:
    """Yield the content of a gzip file in blocks."""
    unpacker = zlib.decompressobj(wbits=31)
    try:
        while block := stream.read(BLOCK):
            while block:
                yield unpacker.decompress(block, 16 * BLOCK)
                block = unpacker.unconsumed_tail
        if not unpacker.eof:
            raise ValueError("the gzip file is cut off")
    except zlib.error as error:
        raise ValueError(f"the gzip file is damaged ({error})") from None


def _size(file: Path) -> int:
    return file.stat().st_size if file.exists() else 0


def _may_pass(error: Exception, *, begun: bool) -> bool:
    """Whether it makes sense to try again: not for a host that was never reached."""
    if isinstance(error, urllib.error.HTTPError):
        return error.code in PASSING
    return begun or not isinstance(error, urllib.error.URLError)


def _explained(url: str, error: Exception) -> DownloadError:
    """Return the error that says what to do."""
    if isinstance(error, urllib.error.HTTPError):
        found = DownloadError(f"{url}: the server answers {error.code} ({error.reason})")
        found.status = error.code
        return found
    reason = getattr(error, "reason", None) or error
    host = urllib.parse.urlsplit(url).netloc or url
    return DownloadError(f"{url}: {host} cannot be reached ({reason}); models that are downloaded need no network")
