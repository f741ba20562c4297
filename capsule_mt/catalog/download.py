"""Download files over HTTP: complete or not at all, with a catalog's checksums, resuming after a broken connection."""

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

from capsule_mt.catalog.entries import (
    MAX_RATIO,
    MAX_SMALL,
    OFFLINE,
    CatalogError,
    DownloadError,
    RemoteFile,
    is_offline,
)
from capsule_mt.files.outputs import read_object

BLOCK = 1 << 16
TIMEOUT = 30.0  # seconds without a byte
TRIES = 4  # in a row without a new byte
SECONDS_BETWEEN_TRIES = 1.0
TRANSIENT_STATUSES = (408, 429, 500, 502, 503, 504)
MAX_JSON = 1 << 26  # bytes: Mozilla's registry has 1 MB
GZIP = b"\x1f\x8b"
NETWORK_ERRORS = (http.client.HTTPException, ConnectionError, TimeoutError, urllib.error.URLError)


class _NoDowngrade(urllib.request.HTTPRedirectHandler):
    """Refuse redirections from https to http."""

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> urllib.request.Request | None:
        if req.full_url.startswith("https:") and not newurl.startswith("https:"):
            raise urllib.error.HTTPError(newurl, code, "a redirection from https to http", headers, fp)
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def read_json(url: str) -> Any:
    """Download a small JSON file and return its content."""
    try:
        with _open(url, {"Accept-Encoding": "identity"}) as response:
            content = response.read(MAX_JSON + 1)
    except NETWORK_ERRORS as error:
        raise _download_error(url, error) from None
    if len(content) > MAX_JSON:
        raise CatalogError(f"{url}: has more than {MAX_JSON} bytes")
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        raise CatalogError(f"{url}: is not JSON ({error})") from None


def download(file: RemoteFile, folder: Path, on_bytes: Callable[[int], object] = lambda count: None) -> None:
    """Download a file into a folder, unless it is there. An interrupted download is resumed if the server can.

    Args:
        on_bytes: called with the number of bytes that are there or arrive; negative if they must be downloaded again.
    """
    target = folder / file.name
    part, part_facts = folder / f"{file.name}.part", folder / f"{file.name}.part.json"
    if target.exists():
        on_bytes(target.stat().st_size)
        for path in (part, part_facts):  # of a process that was killed after its last step
            path.unlink(missing_ok=True)
        return
    if part.exists() and not read_object(part_facts):  # killed while it wrote them: `part` may be of any version
        part.unlink()
    on_bytes(_size(part))
    tries = TRIES
    while True:
        old_size = _size(part)
        try:
            if _receive(file, part, part_facts, on_bytes):
                break
            reason: Exception = ConnectionError("the connection breaks off")
        except NETWORK_ERRORS as error:
            if not _is_transient(error, started=old_size > 0):
                raise _download_error(file.url, error) from None
            reason = error
        tries = TRIES if _size(part) > old_size else tries - 1
        if tries == 0:
            raise _download_error(file.url, reason) from None
        time.sleep(SECONDS_BETWEEN_TRIES)
    try:
        _check_and_move(file, part, target)
    except ValueError as error:
        part.unlink()
        raise DownloadError(f"{file.url}: {error}; run the command again to download it anew") from None
    part_facts.unlink(missing_ok=True)


def _open(url: str, headers: dict[str, str]) -> Any:
    if is_offline() and not url.startswith("file:"):
        raise CatalogError(f"{url} is not read: {OFFLINE} or HF_HUB_OFFLINE is set")
    request = urllib.request.Request(url, headers={"User-Agent": "capsule-mt", **headers})
    return urllib.request.build_opener(_NoDowngrade).open(request, timeout=TIMEOUT)


def _receive(file: RemoteFile, part: Path, part_facts: Path, on_bytes: Callable[[int], object]) -> bool:
    """Download over one connection; return whether the file is complete.

    part_facts: a JSON file with the total `length`, and the `validator` that lets a later connection resume.
    """
    # without "gzip" here, a server that stores a .gz file may unpack it on the way, and the ranges would not fit
    headers = {"Accept-Encoding": "gzip" if file.url.endswith(".gz") else "identity"}
    size, facts = _size(part), read_object(part_facts) or {}
    if size and size == facts.get("length"):
        return True
    if size and facts.get("validator"):
        headers |= {"Range": f"bytes={size}-", "If-Range": facts["validator"]}
    with _open(file.url, headers) as response:
        answer = response.headers
        resumes = response.status == 206 and (answer.get("Content-Range") or "").startswith(f"bytes {size}-")
        if size and not resumes:
            on_bytes(-size)
            size = 0
        length = answer.get("Content-Length")
        total = None if length is None else size + int(length)
        if not resumes:
            etag = answer.get("ETag") or ""
            # If-Range takes strong validators alone; a weak ETag begins with W/
            validator = etag if etag and not etag.startswith("W/") else answer.get("Last-Modified")
            part.unlink(missing_ok=True)  # before its facts: of two versions, a kill between them must not make one
            part_facts.write_text(json.dumps({"validator": validator if total else None, "length": total}))
        with open(part, "ab" if resumes else "wb") as stream:
            while block := response.read(BLOCK):
                stream.write(block)
                on_bytes(len(block))
    return total is None or _size(part) == total


def _check_and_move(file: RemoteFile, part: Path, target: Path) -> None:
    """Unpack a complete download if it is packed, check size and SHA-256, and move it to `target`.

    Raises:
        ValueError: the file is damaged; the message says how.
    """
    with open(part, "rb") as stream:
        is_packed = file.url.endswith(".gz") and stream.read(2) == GZIP
    sha256, size = hashlib.sha256(), 0
    max_size = max(MAX_SMALL, MAX_RATIO * _size(part))
    unpacked = target.with_name(f"{target.name}.unpacked")
    with contextlib.ExitStack() as stack:
        source = stack.enter_context(open(part, "rb"))
        output = stack.enter_context(open(unpacked, "wb")) if is_packed else None
        for block in _unpacked_blocks(source) if is_packed else iter(lambda: source.read(BLOCK), b""):
            sha256.update(block)
            size += len(block)
            if file.size is not None and size > file.size:
                raise ValueError(f"has more than {file.size} bytes")
            if size > max_size:
                raise ValueError(f"unpacks to more than {MAX_RATIO} times its size")
            if output is not None:
                output.write(block)
    if file.size is not None and size != file.size:
        raise ValueError(f"has {size} bytes, but the catalog says {file.size}")
    if file.sha256 is not None and sha256.hexdigest() != file.sha256.lower():
        raise ValueError(f"its SHA-256 is {sha256.hexdigest()}, but the catalog says {file.sha256}")
    if is_packed:
        unpacked.replace(target)
        part.unlink()
    else:
        part.replace(target)


def _unpacked_blocks(stream: IO[bytes]) -> Iterator[bytes]:
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


def _is_transient(error: Exception, *, started: bool) -> bool:
    """Return whether another try may succeed; a host that was never reached will not be."""
    if isinstance(error, urllib.error.HTTPError):
        return error.code in TRANSIENT_STATUSES
    return started or not isinstance(error, urllib.error.URLError)


def _download_error(url: str, error: Exception) -> DownloadError:
    """Turn an error of the network into one that names the URL."""
    if isinstance(error, urllib.error.HTTPError):
        download_error = DownloadError(f"{url}: the server answers {error.code} ({error.reason})")
        download_error.status = error.code
        return download_error
    reason = getattr(error, "reason", None) or error
    host = urllib.parse.urlsplit(url).netloc or url
    return DownloadError(
        f"{url}: {host} cannot be reached ({reason}); without a network, name a downloaded model (`capsule-mt models` "
        "lists them) or a folder"
    )
