"""The server as a process on the loopback interface: a hundred clients, its memory, and its end."""

import asyncio
import json
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("uvicorn")

import httpx

from tests.light.serve.processes import GOLDEN, ROOT, body_of, open_request, read_answer

PAIRS = json.loads((GOLDEN / "expected.json").read_text(encoding="utf-8"))["pairs"]
CLIENTS, REQUESTS = 100, 20


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
    assert server.wait(60) == 0
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
        code = server.wait(60)
        connection[1].close()
        return code

    assert asyncio.run(ask()) == 128 + signal.SIGTERM
    assert (tmp_path / "stderr").read_text() == ""


# ---- the command
def test_a_check_translates_by_each_model_and_ends(tmp_path):
    command = [sys.executable, "-m", "capsule_mt", "serve", "--check", "--port", "0"]
    done = subprocess.run([*command, f"en-de={GOLDEN}"], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    assert re.fullmatch(
        r"en-de: translates, in [\d.]+ s of processor time\nlanguages are (not )?detected\n", done.stdout
    )
    broken = shutil.copytree(GOLDEN, tmp_path / "broken")
    (broken / "tokenizer.json").write_text("{", encoding="utf-8")
    done = subprocess.run([*command, f"en-de={broken}"], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (1, "")
    assert f"error: {broken}" in done.stderr


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
    """Translate one to three sentences at a time; each answer must belong to its request.

    Over a bare connection: a hundred clients of httpx take more of the processor than the server.
    """
    reader, writer = await asyncio.open_connection(*address.removeprefix("http://").split(":"))
    for request in range(requests):
        size = 1 + (number + request) % 3
        chosen = [PAIRS[(7 * number + 3 * request + offset) % len(PAIRS)] for offset in range(size)]
        body = body_of([pair["source"] for pair in chosen])
        head = f"POST /translate HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
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
        with capsys.disabled():
            p50, p95 = (1000 * seconds[int(share * len(seconds))] for share in (0.5, 0.95))
            print(f"\n{len(seconds) / whole:.0f} requests/s, p50 {p50:.0f} ms, p95 {p95:.0f} ms")
    if before is not None:
        assert memory(address) < before + 32 * 2**20
    texts = sum(1 + (number + request) % 3 for number in range(CLIENTS) for request in range(REQUESTS))
    page = httpx.get(f"{address}/metrics").text
    assert f'capsule_mt_texts_total{{pair="en-de"}} {4 * texts:g}' in page
    assert 'capsule_mt_queued_sentences{pair="en-de"} 0' in page
    server.send_signal(signal.SIGTERM)
    assert server.wait(60) == 0
