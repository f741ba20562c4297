"""What strangers send to a server in a process of its own: others are answered, memory stays small, and it ends."""

import asyncio
import io
import json
import os
import signal
import zipfile
from pathlib import Path

import pytest

pytest.importorskip("uvicorn")

import httpx

from tests.light.formats.files import PO, XLIFF_2, docx
from tests.light.serve.processes import open_request, read_answer

MAX_MEMORY = 700 << 20  # bytes of the server and its children together
BOMB = 100 << 20
linux = pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="processes are read as Linux has them")
SECONDS_PER_ANSWER = 0.02  # of the processor for /health
MAX_SECONDS = 1.0  # of the processor for a file in the server's own process; to read one there takes many
SECONDS_TO_ANSWER = 300  # of the clock; other processes may take the processor
LONG_SECONDS = 300  # for a file: what is answered before has not waited for one


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
    "deep.xliff": (b"<a>" * 30_000, "deep.xliff, line 1: elements are nested more than 200 deep"),
    "digits.srt": (b"1\n" + b"9" * 5000 + b":00:01,000 --> 00:00:02,000\na", "digits.srt: no line has times"),
    "bzip2.docx": (bzip2_docx, "bzip2.docx: word/document.xml is compressed by method 12"),
}
SLOW_UPLOADS = {
    "tags.html": (b"<a b=" * 20_000, "tags.html: takes longer than 5 s to read or write"),
    "elements.docx": (lambda: docx("<w:p/>" * 12_000_000), "elements.docx: takes "),
}


def children_of(pid: int) -> list[int]:
    children = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for file in children for child in file.read_text().split()]


def seconds_of(pid: int) -> float:
    """Return the seconds of the processor that a process has taken, without its children's."""
    user, system = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def memory_of(pid: int) -> int:
    """Return the bytes of memory of a process and its children."""
    pages = 0
    for process_id in (pid, *children_of(pid)):
        try:
            pages += int(Path(f"/proc/{process_id}/statm").read_text().split()[1])
        except (FileNotFoundError, ProcessLookupError):  # it has just ended
            continue
    return pages * os.sysconf("SC_PAGE_SIZE")


async def upload(address: str, name: str, content: bytes) -> httpx.Response:
    form = {"data": {"source": "en", "target": "de"}, "files": {"file": (name, content)}}
    async with httpx.AsyncClient(timeout=SECONDS_TO_ANSWER) as client:
        return await client.post(f"{address}/translate_file", **form)


async def beside(process, address: str, work: "asyncio.Future[httpx.Response]") -> tuple[int, int]:
    """Ask for /health until the work is done; return the number of answers, and the most memory."""
    answers, memory = 0, 0
    async with httpx.AsyncClient(timeout=SECONDS_TO_ANSWER) as client:
        while not work.done():
            assert (await client.get(f"{address}/health")).status_code == 200
            answers += not work.done()
            memory = max(memory, memory_of(process.pid))
            await asyncio.sleep(0.02)
    return answers, memory


def check(serve, uploads, min_answers) -> None:
    """Seconds of the processor tell how long a file could have held up others; those of the clock, how busy we are."""
    process, address = serve()

    async def send(name: str, content: bytes, message: str | None) -> None:
        start_seconds = seconds_of(process.pid)
        work = asyncio.ensure_future(upload(address, name, content))
        answers, memory = await asyncio.wait_for(beside(process, address, work), SECONDS_TO_ANSWER)
        assert answers >= min_answers, name
        assert seconds_of(process.pid) - start_seconds < MAX_SECONDS + answers * SECONDS_PER_ANSWER, name
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
    assert process.wait(120) == 0


@linux
@pytest.mark.parametrize(
    ("uploads", "min_answers"), [(UPLOADS, 0), pytest.param(SLOW_UPLOADS, 5, marks=pytest.mark.slow)]
)
def test_a_hostile_file_is_refused_and_holds_up_nobody(serve, uploads, min_answers):
    check(serve, uploads, min_answers)


JSON, FORM = "application/json", "application/x-www-form-urlencoded"
BODIES = {  # as large as requests may be
    "brackets": (JSON, b"[" * 125_000),
    "texts": (JSON, json.dumps({"q": ["a"] * 24_000, "source": "en", "target": "de"}).encode()),
    "fields": (JSON, b"{" + b",".join(b'"k%d":1' % number for number in range(10_000)) + b"}"),
    "escapes": (JSON, b'{"q":"' + b"\\u0041" * 20_000 + b'"}'),
    "form": (FORM, b"q=a&" * 31_000),
    "percents": (FORM, b"q=" + b"%41" * 41_000),
    "parts": (
        "multipart/form-data; boundary=x",
        b'--x\r\nContent-Disposition: form-data; name="q"\r\n\r\na\r\n' * 2_000,
    ),
}


@linux
def test_a_large_request_holds_the_loop_for_a_moment(serve_fake):
    """/health waits for the steps of the event loop before it; each of these requests takes less than 0.1 s of it."""
    process, address = serve_fake()
    with httpx.Client(base_url=address, timeout=SECONDS_TO_ANSWER) as client:
        for name, (kind, body) in BODIES.items():
            for attempt in range(11):
                if attempt == 1:  # the first one may import what it needs
                    before = seconds_of(process.pid)
                response = client.post("/translate", content=body, headers={"Content-Type": kind})
                assert response.status_code == 400, name
            assert seconds_of(process.pid) - before < 10 * 0.1, name


async def being_read(process, address: str) -> "asyncio.Future[httpx.Response]":
    """Send a file that takes minutes, and wait until a process of the server's reads it."""
    work = asyncio.ensure_future(upload(address, *slow_file()))
    while not any(seconds_of(child) > 0.3 for child in children_of(process.pid)):
        assert not work.done()
        await asyncio.sleep(0.02)
    return work


@linux
def test_a_file_that_is_read_does_not_keep_the_server_from_stopping(serve_fake):
    process, address = serve_fake(stop_seconds=1, file_seconds=LONG_SECONDS)

    async def stop_beside() -> None:
        work = await being_read(process, address)
        process.send_signal(signal.SIGTERM)
        response = await work
        assert (response.status_code, response.json()) == (503, {"error": "the server is stopping"})

    asyncio.run(stop_beside())
    assert process.wait(120) == 0


@linux
def test_a_client_has_one_process_and_the_others_go_on(serve_fake):
    """Files of one client wait for each other; that of a client with another address does not wait for them."""
    process, address = serve_fake(stop_seconds=1, file_seconds=LONG_SECONDS)

    async def ask() -> None:
        hostile = [await being_read(process, address)]
        hostile += [asyncio.ensure_future(upload(address, *slow_file())) for _ in range(2)]
        await asyncio.sleep(0.5)
        body = json.dumps({"q": "<p>a", "source": "en", "target": "de", "format": "html"}).encode()
        reader, writer = await open_request(address, body, len(body), "X-Forwarded-For: 192.0.2.7")
        head, answer = await read_answer(reader)
        assert head.startswith("HTTP/1.1 200 ")
        assert answer == {"translatedText": "<p>A"}
        assert not any(work.done() for work in hostile)
        writer.close()
        process.send_signal(signal.SIGTERM)  # or the files are read on
        assert {(await work).status_code for work in hostile} == {503}

    asyncio.run(ask())
    assert process.wait(120) == 0


@linux
def test_a_client_that_has_gone_leaves_its_process_to_others(serve_fake):
    process, address = serve_fake(file_seconds=LONG_SECONDS)

    async def ask() -> None:
        work = await being_read(process, address)
        (reader,) = children_of(process.pid)
        work.cancel()
        assert (await upload(address, "a.md", b"a *b*")).status_code == 200
        assert reader not in children_of(process.pid)  # killed: it has not read the first file to its end

    asyncio.run(ask())


def slow_file() -> tuple[str, bytes]:
    return "tags.html", b"<a b=" * 20_000
