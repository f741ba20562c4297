"""The server as a process on the loopback interface: a hundred clients, its memory, and its end."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("uvicorn")

import httpx

ROOT = Path(__file__).resolve().parents[3]
GOLDEN = ROOT / "tests" / "golden" / "capsule_marian"
PAIRS = json.loads((GOLDEN / "expected.json").read_text(encoding="utf-8"))["pairs"]
CLIENTS, REQUESTS = 100, 20
# the translator of a test; `{seconds}` are those of a batch
FAKE = """
import sys
from capsule_mt.serve.app import Limits
from capsule_mt.serve.languages import LanguagePair
from capsule_mt.serve.running import bind, run_server
from tests.light.serve.fakes import Upper

translators = {{LanguagePair("en", "de"): Upper(seconds={seconds})}}
limits = Limits(read_seconds={read_seconds})
batches = {{"max_batch": 32, "wait_seconds": 0.0, "max_queue": 65536}}
ended = run_server(translators, bind("127.0.0.1", 0), limits, stop_seconds={stop_seconds}, **batches)
print("all answered" if ended else "not all answered", flush=True)
"""


@pytest.fixture
def start(tmp_path):
    """Start a command that serves; return the process and its address."""
    started = []

    def start(*command):
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
        command = [sys.executable, *command]
        with open(tmp_path / "stderr", "wb") as errors:
            server = subprocess.Popen(
                command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=errors, text=True
            )
        started.append(server)
        line = server.stdout.readline()
        assert line.startswith("en-de at http://127.0.0.1:"), (tmp_path / "stderr").read_text()
        return server, re.search(r"http://\S+", line)[0]

    yield start
    for server in started:
        server.kill()
        server.communicate()


@pytest.fixture
def serve(start):
    return lambda *options: start("-m", "capsule_mt", "serve", f"en-de={GOLDEN}", "--port", "0", *options)


@pytest.fixture
def serve_fake(start):
    def serve_fake(seconds=0.0, read_seconds=10.0, stop_seconds=10):
        return start("-c", FAKE.format(seconds=seconds, read_seconds=read_seconds, stop_seconds=stop_seconds))

    return serve_fake


async def open_request(address, body, length):
    """Send the head of a request and a body, which may be shorter than its length; return what reads the answer."""
    reader, writer = await asyncio.open_connection(*address.removeprefix("http://").split(":"))
    head = f"POST /translate HTTP/1.1\r\nHost: server\r\nContent-Length: {length}\r\n\r\n"
    writer.write(head.encode() + body)
    await writer.drain()
    return reader, writer


async def read_answer(reader):
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    return head, json.loads(await reader.readexactly(int(re.search(r"content-length: (\d+)", head)[1])))


def body_of(texts):
    return json.dumps({"q": texts, "source": "en", "target": "de"}).encode()


# ---- the end
def test_a_half_sent_request_does_not_keep_the_server_from_stopping(serve_fake):
    server, address = serve_fake(read_seconds=0.5)

    async def send_half():
        reader, _ = await open_request(address, b'{"q": ', 1000)
        await asyncio.sleep(0.1)
        server.send_signal(signal.SIGTERM)
        return await read_answer(reader)

    head, answer = asyncio.run(send_half())
    assert head.startswith("HTTP/1.1 408 ")
    assert answer == {"error": "the request did not arrive within 0.5 s"}
    assert server.wait(10) == 0
    assert server.stdout.read() == "all answered\n"


def test_what_takes_longer_than_the_server_has_gets_an_error(serve_fake):
    server, address = serve_fake(seconds=30, stop_seconds=1)

    async def ask():
        reader, _ = await open_request(address, body := body_of("a"), len(body))
        await asyncio.sleep(0.2)
        server.send_signal(signal.SIGINT)
        return await read_answer(reader)

    head, answer = asyncio.run(ask())
    assert head.startswith("HTTP/1.1 503 ")
    assert answer == {"error": "the server is stopping"}
    assert server.stdout.readline() == "not all answered\n"


def test_the_second_signal_ends_it_at_once(serve_fake, tmp_path):
    server, address = serve_fake(seconds=30, stop_seconds=60)

    async def ask():
        connection = await open_request(address, body := body_of("a"), len(body))
        await asyncio.sleep(0.2)
        server.send_signal(signal.SIGTERM)
        await asyncio.sleep(0.5)
        assert server.poll() is None
        server.send_signal(signal.SIGTERM)
        code = server.wait(5)
        connection[1].close()
        return code

    assert asyncio.run(ask()) == 128 + signal.SIGTERM
    assert (tmp_path / "stderr").read_text() == ""


@pytest.mark.slow
def test_sigterm_finishes_what_was_accepted(serve):
    server, address = serve("--wait-ms", "3000", "--max-batch", "1000")  # the texts still wait when the signal comes

    async def stop_in_between():
        async with httpx.AsyncClient(base_url=address, timeout=60) as session:
            bodies = [{"q": pair["source"], "source": "en", "target": "de"} for pair in PAIRS]
            waiting = [asyncio.create_task(session.post("/translate", json=body)) for body in bodies]
            queued = f'capsule_mt_queued_sentences{{pair="en-de"}} {len(PAIRS)}'
            while queued not in (await session.get("/metrics")).text:
                await asyncio.sleep(0.01)
            server.send_signal(signal.SIGTERM)
            return [response.json() for response in await asyncio.gather(*waiting)]

    assert asyncio.run(stop_in_between()) == [{"translatedText": pair["target"]} for pair in PAIRS]
    assert server.wait(30) == 0


# ---- the command
def test_help_imports_no_server():
    code = (
        "import sys; sys.argv[1:] = ['serve', '--help']\n"
        "from capsule_mt.commands import main\n"
        "try:\n    main()\nexcept SystemExit: pass\n"
        "print(sorted({'fastapi', 'uvicorn', 'asyncio', 'torch', 'tokenizers'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert "usage: capsule-mt serve" in done.stdout
    assert done.stdout.splitlines()[-1] == "[]"


def test_a_taken_port_is_one_sentence(serve_fake):
    _, address = serve_fake()
    port = address.rsplit(":", 1)[1]
    command = [sys.executable, "-m", "capsule_mt", "serve", f"en-de={GOLDEN}", "--port", port]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1
    assert f"error: `--host 127.0.0.1 --port {port}` cannot be listened on" in done.stderr
    assert "Traceback" not in done.stderr


# ---- load
async def client_of(address, number, seconds, requests):
    """Translate one to three sentences at a time; each answer must be that of its own request.

    Over a bare connection: a hundred clients of httpx take more of the processor than the server.
    """
    reader, writer = await asyncio.open_connection(*address.removeprefix("http://").split(":"))
    for request in range(requests):
        size = 1 + (number + request) % 3
        chosen = [PAIRS[(7 * number + 3 * request + offset) % len(PAIRS)] for offset in range(size)]
        body = body_of([pair["source"] for pair in chosen])
        head = f"POST /translate HTTP/1.1\r\nHost: server\r\nContent-Length: {len(body)}\r\n\r\n"
        began = time.perf_counter()
        writer.write(head.encode() + body)
        head, answer = await read_answer(reader)
        seconds.append(time.perf_counter() - began)
        assert head.startswith("HTTP/1.1 200 "), head
        assert answer == {"translatedText": [pair["target"] for pair in chosen]}
    writer.close()


async def load(address, requests):
    """Let all clients send their requests; return the seconds of each, and of all together."""
    seconds, began = [], time.perf_counter()
    await asyncio.gather(*(client_of(address, number, seconds, requests) for number in range(CLIENTS)))
    return sorted(seconds), time.perf_counter() - began


def memory(address):
    page = httpx.get(f"{address}/metrics").text
    return int(re.search(r"^process_resident_memory_bytes (\d+)$", page, flags=re.MULTILINE)[1])


@pytest.mark.slow
def test_a_hundred_clients_lose_nothing(serve, capsys):
    server, address = serve()
    asyncio.run(load(address, REQUESTS))  # the pools of all libraries grow to what they need
    before = memory(address) if Path("/proc/self/statm").exists() else None
    for _ in range(3):
        seconds, whole = asyncio.run(load(address, REQUESTS))
        assert len(seconds) == CLIENTS * REQUESTS
        texts = sum(1 + (number + request) % 3 for number in range(CLIENTS) for request in range(REQUESTS))
        with capsys.disabled():
            p50, p95 = (1000 * seconds[int(share * len(seconds))] for share in (0.5, 0.95))
            print(
                f"\n{CLIENTS} clients, {len(seconds)} requests, {texts} sentences, p50 {p50:.0f} ms, p95 {p95:.0f} ms"
            )
            print(f"{len(seconds) / whole:.0f} requests/s, {texts / whole:.0f} sentences/s")
    if before is not None:
        after = memory(address)
        with capsys.disabled():
            print(f"memory {before / 2**20:.1f} MiB -> {after / 2**20:.1f} MiB")
        assert after < before + 32 * 2**20
    page = httpx.get(f"{address}/metrics").text
    assert f'capsule_mt_texts_total{{pair="en-de"}} {4 * texts:g}' in page
    assert 'capsule_mt_queued_sentences{pair="en-de"} 0' in page
    server.send_signal(signal.SIGTERM)
    assert server.wait(30) == 0
