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

from tests.conftest import GOLDEN

ROOT = Path(__file__).resolve().parents[2]
PAIRS = json.loads((GOLDEN / "capsule_marian" / "expected.json").read_text(encoding="utf-8"))["pairs"]
CLIENTS, REQUESTS = 100, 20


@pytest.fixture
def start(tmp_path):
    """Start the server with options; return the process and its address."""
    started = []

    def start(*options):
        command = [sys.executable, "-m", "hf_capsule_mt", "serve", f"en-de={GOLDEN / 'capsule_marian'}", "--port", "0"]
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
        with open(tmp_path / "stderr", "wb") as errors:
            server = subprocess.Popen(
                [*command, *options], cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=errors, text=True
            )
        started.append(server)
        line = server.stdout.readline()
        assert line.startswith("en-de at http://127.0.0.1:"), (tmp_path / "stderr").read_text()
        return server, re.search(r"http://\S+", line)[0]

    yield start
    for server in started:
        server.kill()
        server.communicate()


async def client_of(address, number, seconds, requests):
    """Translate one to three sentences at a time; each answer must be that of its own request.

    Over a bare connection: a hundred clients of httpx take more of the processor than the server.
    """
    reader, writer = await asyncio.open_connection(*address.removeprefix("http://").split(":"))
    for request in range(requests):
        size = 1 + (number + request) % 3
        chosen = [PAIRS[(7 * number + 3 * request + offset) % len(PAIRS)] for offset in range(size)]
        body = json.dumps({"q": [pair["source"] for pair in chosen], "source": "en", "target": "de"}).encode()
        head = f"POST /translate HTTP/1.1\r\nHost: server\r\nContent-Length: {len(body)}\r\n\r\n"
        began = time.perf_counter()
        writer.write(head.encode() + body)
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        answer = await reader.readexactly(int(re.search(r"content-length: (\d+)", head)[1]))
        seconds.append(time.perf_counter() - began)
        assert head.startswith("HTTP/1.1 200 "), head
        assert json.loads(answer) == {"translatedText": [pair["target"] for pair in chosen]}
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
def test_a_hundred_clients_lose_nothing(start, capsys):
    server, address = start()
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
    assert 'capsule_mt_queued_texts{pair="en-de"} 0' in page
    server.send_signal(signal.SIGTERM)
    assert server.wait(30) == 0


@pytest.mark.slow
def test_sigterm_finishes_what_was_accepted(start):
    server, address = start("--wait-ms", "3000", "--max-batch", "1000")  # the texts still wait when the signal comes

    async def stop_in_between():
        async with httpx.AsyncClient(base_url=address, timeout=60) as session:
            bodies = [{"q": pair["source"], "source": "en", "target": "de"} for pair in PAIRS]
            waiting = [asyncio.create_task(session.post("/translate", json=body)) for body in bodies]
            queued = f'capsule_mt_queued_texts{{pair="en-de"}} {len(PAIRS)}'
            while queued not in (await session.get("/metrics")).text:
                await asyncio.sleep(0.01)
            server.send_signal(signal.SIGTERM)
            return [response.json() for response in await asyncio.gather(*waiting)]

    assert asyncio.run(stop_in_between()) == [{"translatedText": pair["target"]} for pair in PAIRS]
    assert server.wait(30) == 0


@pytest.mark.slow
def test_a_taken_port_is_one_sentence(start):
    _, address = start()
    port = address.rsplit(":", 1)[1]
    command = ["serve", f"en-de={GOLDEN / 'capsule_marian'}", "--port", port]
    done = subprocess.run(
        [sys.executable, "-m", "hf_capsule_mt", *command], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 1
    assert f"error: `--host 127.0.0.1 --port {port}` cannot be listened on" in done.stderr
    assert "Traceback" not in done.stderr
