"""Download files over HTTP: whole or not at all, checked, and on from where a broken connection left them."""

import base64
import contextlib
import errno
import hashlib
import http.client
import json
import shutil
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
from capsule_mt.text.outputs import read_object

BLOCK = 1 << 16
LARGEST_TEXT = 64 << 20  # bytes of a catalog
LARGEST_FILE = 8 << 30  # bytes that a file may unpack to whose size no catalog says
TIMEOUT = 30.0  # seconds without a byte
TRIES = 4  # that bring nothing new
SECONDS_BETWEEN_TRIES = 1.0
PASSING = (408, 429, 500, 502, 503, 504)
GZIP = b"\x1f\x8b"
NETWORK_ERRORS = (http.client.HTTPException, ConnectionError, TimeoutError, urllib.error.URLError)


class _DamagedError(Exception):
    """What was downloaded is not what the catalog describes."""


class _NoDowngrade(urllib.request.HTTPRedirectHandler):
    """Follow no redirection from https to http."""

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> urllib.request.Request | None:
        if req.full_url.startswith("https:") and not newurl.startswith("https:"):
            raise urllib.error.HTTPError(newurl, code, "a redirection from https to http", headers, fp)
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def read_url(url: str) -> bytes:
    """Return the content of a small file."""
    for attempt in range(TRIES):
        try:
            with _open(url, {"Accept-Encoding": "identity"}) as response:
                content: bytes = response.read(LARGEST_TEXT + 1)
                length = response.headers.get("Content-Length")
            if len(content) > LARGEST_TEXT:
                raise DownloadError(f"{url}: has more than {LARGEST_TEXT} bytes")
            if length is None or len(content) == int(length):
                return content
        except NETWORK_ERRORS as error:
            if attempt == TRIES - 1 or not _may_pass(error, begun=False):
                raise _explained(url, error) from None
        time.sleep(SECONDS_BETWEEN_TRIES)
    raise DownloadError(f"{url}: the connection breaks off")


def read_json(url: str) -> Any:
    """Return what a small file of JSON has."""
    content = read_url(url)
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
    for last_try in (False, True):
        _receive_all(file, part, facts, on_bytes)
        try:
            _check_and_place(file, part, facts, target)
        except _DamagedError as damaged:
            on_bytes(-part.stat().st_size)
            part.unlink()
            facts.unlink(missing_ok=True)
            if last_try:
                raise DownloadError(f"{file.url}: {damaged}; it was downloaded twice") from None
            continue
        facts.unlink(missing_ok=True)
        return


def check_room(folder: Path, size: int) -> None:
    """Raise an error if a disk has less room than a model takes."""
    free = shutil.disk_usage(folder).free
    if free < size:
        raise OSError(
            errno.ENOSPC, f"the model takes {size / 1e6:.1f} MB, but {free / 1e6:.1f} MB are free", str(folder)
        )


def _open(url: str, headers: dict[str, str]) -> Any:
    if is_offline() and not url.startswith("file:"):
        raise CatalogError(f"{url} is not asked: {OFFLINE} or HF_HUB_OFFLINE is set")
    request = urllib.request.Request(url, headers={"User-Agent": "capsule-mt", **headers})
    return urllib.request.build_opener(_NoDowngrade).open(request, timeout=TIMEOUT)


def _receive_all(file: RemoteFile, part: Path, facts: Path, on_bytes: Callable[[int], object]) -> None:
    """Download into `part`, over as many connections as it takes."""
    if part.exists() and not read_object(facts):
        part.unlink()
    on_bytes(_size(part))
    tries = TRIES
    while True:
        before = _size(part)
        try:
            if _receive(file, part, facts, on_bytes):
                return
            reason: Exception = ConnectionError("the connection breaks off")
        except NETWORK_ERRORS as error:
            if isinstance(error, urllib.error.HTTPError) and error.code == 416:  # the file has become another one
                on_bytes(-before)
                part.unlink(missing_ok=True)
            elif not _may_pass(error, begun=before > 0):
                raise _explained(file.url, error) from None
            reason = error
        tries = TRIES if _size(part) > before else tries - 1
        if tries == 0:
            raise _explained(file.url, reason) from None
        time.sleep(SECONDS_BETWEEN_TRIES)


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
            known = {"validator": validator, "length": total, "md5": _md5_of(found)}
            facts.write_text(json.dumps(known))
        with _named_if_full(part), open(part, "ab" if resumes else "wb") as stream:
            while block := response.read(BLOCK):
                stream.write(block)
                on_bytes(len(block))
    return total is None or _size(part) == total


@contextlib.contextmanager
def _named_if_full(file: Path) -> Iterator[None]:
    """Say which file a full disk does not take."""
    try:
        yield
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise OSError(error.errno, "the disk is full; the same command goes on from here", str(file)) from None
        raise


def _md5_of(headers: HTTPMessage) -> str | None:
    """Return the digest that Google's storage sends of what it has stored, in hexadecimal."""
    for line in headers.get_all("x-goog-hash") or ():
        for one in line.split(","):
            if one.strip().startswith("md5="):
                with contextlib.suppress(ValueError):
                    return base64.b64decode(one.strip().removeprefix("md5=")).hex()
    return None


def _check_and_place(file: RemoteFile, part: Path, facts: Path, target: Path) -> None:
    """Unpack a whole download if it is packed, compare it with what the catalog says, and give it its name."""
    wanted = (read_object(facts) or {}).get("md5")
    if wanted:
        with open(part, "rb") as stream:
            found = hashlib.md5(stream.read(), usedforsecurity=False).hexdigest()
        if found != wanted:
            raise _DamagedError(f"its MD5 is {found}, but the server says {wanted}")
    with open(part, "rb") as stream:
        is_packed = file.url.endswith(".gz") and stream.read(2) == GZIP
    sha256, size = hashlib.sha256(), 0
    unpacked = target.with_name(f"{target.name}.unpacked")
    with contextlib.ExitStack() as stack:
        stack.enter_context(_named_if_full(unpacked))
        source = stack.enter_context(open(part, "rb"))
        written = stack.enter_context(open(unpacked, "wb")) if is_packed else None
        for block in _unpacked(source) if is_packed else iter(lambda: source.read(BLOCK), b""):
            sha256.update(block)
            size += len(block)
            if size > (LARGEST_FILE if file.size is None else file.size):
                raise _DamagedError(f"has more than {LARGEST_FILE if file.size is None else file.size} bytes")
            if written is not None:
                written.write(block)
    if file.size is not None and size != file.size:
        raise _DamagedError(f"has {size} bytes, but the catalog says {file.size}")
    if file.sha256 is not None and sha256.hexdigest() != file.sha256.lower():
        raise _DamagedError(f"its SHA-256 is {sha256.hexdigest()}, but the catalog says {file.sha256}")
    if file.git_sha1 is not None:
        git = hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False)
        git.update(part.read_bytes())
        if git.hexdigest() != file.git_sha1:
            raise _DamagedError(f"git would call it {git.hexdigest()}, but the catalog says {file.git_sha1}")
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
            raise _DamagedError("the gzip file is cut off")
    except zlib.error as error:
        raise _DamagedError(f"the gzip file is damaged ({error})") from None


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
