"""Further tries of the campaign: a server with clients, a model that changes while it is read, broken downloads.

Each try returns the number of its disturbances.
"""

import gzip
import hashlib
import http.client
import json
import random
import re
import shutil
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from lab.campaign_processes import LONGEST, Command, check_refusal, contents
from lab.campaign_tries import Bench

CLIENTS = 6
MOST_CHANGES = 5  # changes of weights in a try: a change counts once it meets a running translator
PAIR = {"source": "en", "target": "de"}
HEAD = b"POST /translate HTTP/1.1\r\nHost: localhost\r\nContent-Length: 90\r\n\r\n{"
BROKEN = (http.client.HTTPException, ConnectionError)


# ---- a server
class Client(threading.Thread):
    """Asks for line after line over one connection until it breaks, and compares each answer with the expected one."""

    def __init__(self, port: int, lines: list[str], expected: list[str], chance: random.Random) -> None:
        super().__init__(daemon=True)
        self.port, self.pairs = port, list(zip(lines, expected, strict=True))
        self.first = chance.randrange(len(lines))
        self.answered, self.asked_at, self.failure = 0, 0.0, ""

    def run(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=LONGEST)
        try:
            for number in range(10**6):
                text, expected = self.pairs[(self.first + number) % len(self.pairs)]
                self.asked_at = time.monotonic()
                connection.request("POST", "/translate", json.dumps({"q": text, **PAIR}))
                answer = json.load(connection.getresponse())
                if answer.get("error") == "the server is stopping":
                    return
                if answer.get("translatedText") != expected:
                    self.failure = f"{text!r} became {answer} instead of {expected!r}"
                    return
                self.answered += 1
        except BROKEN:
            pass
        finally:
            connection.close()


def port_of(server: Command) -> int:
    """Return the port that a server says that it listens on."""
    until = time.monotonic() + LONGEST
    while time.monotonic() < until and server.is_running:
        match = re.search(r" at http://127\.0\.0\.1:(\d+) ", server.output)
        if match is not None:
            return int(match[1])
        time.sleep(0.01)
    raise AssertionError(f"the server did not start: {server.output[-1000:]}")


def served(bench: Bench, chance: random.Random) -> int:
    """Ask a server from several clients, beside slow ones, and end it at a random moment; then ask another one."""
    lines = bench.text
    expected = bench.jobs["translate"].expected["out"].decode().split("\n")[:-1]
    first_signal = chance.choice([signal.SIGKILL, signal.SIGTERM])
    answered = 0
    for ends_by in (first_signal, signal.SIGTERM):
        server = Command(["serve", f"en-de={bench.checkpoint}", "--port", "0", "--read-seconds", "2"], bench.folder)
        port = port_of(server)
        clients = [Client(port, lines, expected, chance) for _ in range(CLIENTS)]
        slow = [socket.create_connection(("127.0.0.1", port)) for _ in range(3)]
        for slow_client in slow:
            slow_client.sendall(HEAD[: chance.randint(1, len(HEAD))])
        for client in clients:
            client.start()
        server.wait(chance.uniform(0.1, 4.0))
        ended_at = time.monotonic()
        server.send(ends_by)
        code, message = server.end()
        for client in clients:
            client.join(LONGEST)
            assert not client.is_alive(), "a client still waits for its answer"
            assert not client.failure, client.failure
            if ends_by == signal.SIGTERM and client.answered == 0:
                assert client.asked_at > ended_at - 1.0, "a request that was sent long before SIGTERM got no answer"
        for slow_client in slow:
            slow_client.close()
        answered += sum(client.answered for client in clients)
        if ends_by == signal.SIGTERM:
            assert code == 0, f"SIGTERM ended the server with {code}: {message[-1000:]}"
        else:
            assert code in (0, -first_signal), f"exit code {code}: {message[-1000:]}"
        assert "Traceback" not in message, f"a traceback: {message[-1500:]}"
    assert answered, "no client got any answer"
    return 2


# ---- a model that changes
def changed_model(bench: Bench, chance: random.Random) -> int:
    """Change the weights under a running translator: its output is that of one of the models, or it refuses."""
    for _ in range(MOST_CHANGES):
        if _is_changed_while_running(bench, chance):
            return 1
    return 0


def _is_changed_while_running(bench: Bench, chance: random.Random) -> bool:
    checkpoint, output = bench.new(), bench.new()
    shutil.copytree(bench.checkpoint, checkpoint, ignore=shutil.ignore_patterns("checkpoint-*"))
    job = bench.jobs["translate"]
    words = [str(checkpoint) if word == str(bench.checkpoint) else word for word in job.words(output)]
    weights, content = checkpoint / "model.safetensors", (checkpoint / "model.safetensors").read_bytes()
    changed = bytearray(content)
    for offset in range(len(content) // 2, len(content), 997):  # other weights, no other header
        changed[offset] ^= 1
    command = Command(words, bench.folder)
    command.wait(chance.uniform(0, job.seconds))
    hit = command.is_running
    kind = chance.choice(["replaced", "overwritten", "removed"])
    if kind == "overwritten":
        weights.write_bytes(changed)
    elif kind == "removed":
        weights.unlink()
    else:
        beside = checkpoint / "beside"
        beside.write_bytes(changed)
        beside.replace(weights)
    code, message = command.end()
    if code == 0:
        written = contents(output, job.results)
        if written != job.expected:  # it has begun to load after the change
            code, message = Command([*words, "--restart"], bench.folder).end()
            assert contents(output, job.results) == written, f"weights {kind}: the output is that of no model"
        return hit
    check_refusal(code, message)
    weights.write_bytes(content)
    code, message = Command(words, bench.folder).end()
    assert code == 0, f"the same command with the old weights ended with {code}: {message[-1000:]}"
    assert contents(output, job.results) == job.expected, f"weights {kind}: two models have written the output"
    return hit


# ---- downloads
@contextmanager
def registry(content: dict[str, bytes], chance: random.Random) -> Iterator[str]:
    """Serve a registry with one model, en-pt, and break off at random."""
    files = {f"/models/{name}.gz": gzip.compress(data, 1, mtime=0) for name, data in content.items()}
    model = next(iter(content))
    described: dict[str, dict[str, object]] = {
        kind: {"path": f"models/{name}.gz"} for kind, name in zip(("model", "vocab"), content, strict=True)
    }
    described["model"] |= {
        "uncompressedSize": len(content[model]),
        "uncompressedHash": hashlib.sha256(content[model]).hexdigest(),
    }

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *args: object) -> None:
            pass

        def do_GET(self) -> None:
            data = files[self.path]
            asked = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
            start = int(asked[1]) if asked else 0
            self.send_response(206 if asked else 200)
            self.send_header("Content-Length", str(len(data) - start))
            if asked:
                self.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
            self.end_headers()
            breaks_off = self.path.endswith(".gz") and chance.random() < 0.6
            length = chance.randrange(len(data) - start + 1) if breaks_off else len(data) - start
            with suppress(ConnectionError):
                self.wfile.write(data[start : start + length])
            self.close_connection = self.close_connection or breaks_off

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    url = f"http://127.0.0.1:{server.server_address[1]}"
    version = {"architecture": "tiny", "releaseStatus": "Release", "files": described}
    files["/models.json"] = json.dumps({"baseUrl": url, "models": {"en-pt": [version]}}).encode()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"{url}/models.json"
    finally:
        server.shutdown()
        server.server_close()


def broken_downloads(bench: Bench, chance: random.Random) -> int:
    """Download a model by its name while connections break off and the command is killed: in the end it is whole."""
    content = {"model.enpt.bin": chance.randbytes(300_000), "vocab.enpt.spm": chance.randbytes(9_000)}
    cache, kills = bench.new(), 0
    with registry(content, chance) as url:
        environment = {"CAPSULE_MT_REGISTRY": url, "CAPSULE_MT_CACHE": str(cache), "HF_HUB_OFFLINE": ""}
        for attempt in range(30):
            command = Command(["models", "download", "en-pt"], bench.folder, environment=environment)
            if attempt < 3:
                command.wait(chance.uniform(0, 2.0))
                kills += command.send(signal.SIGKILL)
            code, message = command.end()
            if code == 0:
                break
            if not command.killed:
                check_refusal(code, message)
        else:
            raise AssertionError(f"thirty downloads failed: {message[-1000:]}")
    folder = next(path for path in Path(cache).rglob("en-pt") if path.is_dir())
    for name, data in content.items():
        assert (folder / name).read_bytes() == data, f"{name} is not what the registry has"
    return kills
