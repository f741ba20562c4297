"""What strangers send to a server in a process of its own: others are answered, memory stays, and it ends."""

import asyncio
import io
import json
import os
import signal
import time
import zipfile
from pathlib import Path

import pytest

pytest.importorskip("uvicorn")

import httpx

from tests.light.formats.files import PO, XLIFF_2, docx
from tests.light.serve.processes import open_request, read_answer

MAX_MEMORY = 700 << 20  # bytes of the server and its children together
BOMB = 100 << 20
SECONDS_TO_ANSWER = 15  # 5 s of reading, on a machine that does other things, too


def bzip2_docx() -> bytes:
    """Return a Word document of few bytes that becomes megabytes, and states that it has 1000."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_BZIP2) as archive, archive.open("word/document.xml", "w") as part:
        for _ in range(BOMB >> 20):
            part.write(b" " * (1 << 20))
    return stream.getvalue().replace(BOMB.to_bytes(4, "little"), (1000).to_bytes(4, "little"))


ATTRIBUTE = XLIFF_2.replace("<segment>", f'<segment{" " * 60_000}id="a">').encode()
UPLOADS = {
    "spaces.md": (b"a" + b" " * 60_000 + b"b", "request (60002) exceeds text limit (5000)"),
    "attribute.xliff": (ATTRIBUTE, None),
    "plurals.po": (
        PO.replace("nplurals=2", "nplurals=1000000").encode(),
        "plurals.po, line 2: `nplurals` must be 1 to 10, got 1000000",
    ),
    "declaration.html": (b"<p>a<![x]>b", "declaration.html: not html that can be read and written (AssertionError"),
    "digits.srt": (b"1\n" + b"9" * 5000 + b":00:01,000 --> 00:00:02,000\na", "digits.srt: no line has times"),
    "bzip2.docx": (bzip2_docx, "bzip2.docx: word/document.xml is compressed by method 12"),
}
SLOW_UPLOADS = {
    "tags.html": (b"<a b=" * 20_000, "tags.html: takes longer than 5 s to read or write"),
    "elements.docx": (lambda: docx("<w:p/>" * 12_000_000), "elements.docx: takes "),
    "deep.xliff": (b"<a>" * 30_000, "deep.xliff, line 1: elements are nested more than 200 deep"),
}


def memory_of(pid: int) -> int:
    """Return the bytes of memory of a process and its children."""
    children = Path(f"/proc/{pid}/task").glob("*/children")
    pids = [pid, *(int(child) for file in children for child in file.read_text().split())]
    pages = 0
    for process_id in pids:
        try:
            pages += int(Path(f"/proc/{process_id}/statm").read_text().split()[1])
        except (FileNotFoundError, ProcessLookupError):  # it has just ended
            continue
    return pages * os.sysconf("SC_PAGE_SIZE")


async def upload(address: str, name: str, content: bytes) -> httpx.Response:
    form = {"data": {"source": "en", "target": "de"}, "files": {"file": (name, content)}}
    async with httpx.AsyncClient(timeout=60) as client:
        return await client.post(f"{address}/translate_file", **form)


async def beside(process, address: str, work: "asyncio.Future[httpx.Response]") -> tuple[float, int]:
    """Ask for /health until the work is done; return the longest wait, and the most memory."""
    longest, memory = 0.0, 0
    async with httpx.AsyncClient(timeout=60) as client:
        while not work.done():
            started = time.perf_counter()
            assert (await client.get(f"{address}/health")).status_code == 200
            longest = max(longest, time.perf_counter() - started)
            memory = max(memory, memory_of(process.pid))
            await asyncio.sleep(0.02)
    return longest, memory


def check(serve, uploads) -> None:
    process, address = serve()

    async def send(name: str, content: bytes, message: str | None) -> None:
        work = asyncio.ensure_future(upload(address, name, content))
        longest, memory = await asyncio.wait_for(beside(process, address, work), SECONDS_TO_ANSWER)
        assert longest < 2, name
        assert memory < MAX_MEMORY, name
        response = work.result()
        if message is None:
            assert response.status_code == 200, response.text
        else:
            assert response.status_code == 400
            assert message in response.json()["error"]

    for name, (content, message) in uploads.items():
        asyncio.run(send(name, content() if callable(content) else content, message))
    process.send_signal(signal.SIGTERM)
    assert process.wait(10) == 0


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is read as Linux has it")
@pytest.mark.parametrize("uploads", [UPLOADS, pytest.param(SLOW_UPLOADS, marks=pytest.mark.slow)])
def test_a_hostile_file_is_refused_and_holds_up_nobody(serve, uploads):
    check(serve, uploads)


def test_a_file_that_is_read_does_not_keep_the_server_from_stopping(serve_fake):
    process, address = serve_fake(stop_seconds=1)

    async def stop_beside() -> float:
        work = asyncio.ensure_future(upload(address, *slow_file()))
        await asyncio.sleep(0.7)
        assert not work.done()
        started = time.perf_counter()
        process.send_signal(signal.SIGTERM)
        response = await work
        assert (response.status_code, response.json()) == (503, {"error": "the server is stopping"})
        return started

    started = asyncio.run(stop_beside())
    assert process.wait(30) == 0
    assert time.perf_counter() - started < 5


def test_a_client_has_one_process_and_the_others_go_on(serve_fake):
    """Files of one client wait for each other; that of a client with another address does not wait for them."""
    _, address = serve_fake()

    async def ask() -> None:
        hostile = [asyncio.ensure_future(upload(address, *slow_file())) for _ in range(3)]
        await asyncio.sleep(0.5)
        body = json.dumps({"q": "<p>a", "source": "en", "target": "de", "format": "html"}).encode()
        started = time.perf_counter()
        reader, writer = await open_request(address, body, len(body), "X-Forwarded-For: 192.0.2.7")
        head, answer = await read_answer(reader)
        assert head.startswith("HTTP/1.1 200 ")
        assert answer == {"translatedText": "<p>A"}
        assert time.perf_counter() - started < 2
        assert not any(work.done() for work in hostile)
        writer.close()
        for work in hostile:
            work.cancel()

    asyncio.run(ask())


def test_a_client_that_has_gone_leaves_its_process_to_others(serve_fake):
    _, address = serve_fake()

    async def ask() -> None:
        work = asyncio.ensure_future(upload(address, *slow_file()))
        await asyncio.sleep(0.7)
        work.cancel()
        started = time.perf_counter()
        response = await upload(address, "a.md", b"a *b*")
        assert response.status_code == 200
        assert time.perf_counter() - started < 3

    asyncio.run(ask())


def slow_file() -> tuple[str, bytes]:
    return "tags.html", SLOW_UPLOADS["tags.html"][0]
