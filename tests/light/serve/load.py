"""A server under load: honest clients beside hostile ones, while it loads its models again and again.

    python -m tests.light.serve.load --clients 200 --hostile 5 --seconds 600 --reload 10 --output load.json

Each client has an address of its own. Every answer to an honest one must be the translation that it got before; the
server must outlive the run, and its memory in the last tenth of it be at most a tenth above that in the fifth one.
"""

import argparse
import asyncio
import contextlib
import itertools
import json
import os
import random
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

from tests.light.serve.processes import GOLDEN, ROOT, read_answer
from tests.light.serve.test_uploads import BODIES, UPLOADS, memory_of

SENTENCES = (ROOT / "tests" / "fixtures" / "marian" / "train.en").read_text("utf-8").splitlines()[:60]
MAX_GROWTH = 1.1
SAMPLES_EVERY = 0.5  # seconds
START_SECONDS = 15.0  # in which the honest clients come
SLOW_SECONDS = 5.0  # that a hostile client takes over a request


@dataclass
class Run:
    """What happened in a run."""

    port: int
    deadline: float
    target: str
    expected: dict[str, str] = field(default_factory=dict)
    seconds: list[float] = field(default_factory=list)
    faults: Counter[str] = field(default_factory=Counter)
    hostile: Counter[str] = field(default_factory=Counter)
    reloads: int = 0
    memory: list[tuple[int, int]] = field(default_factory=list)  # bytes of the server, and with its children
    threads: list[int] = field(default_factory=list)
    longest_pause: float = 0.0  # seconds in which the clients themselves got no turn

    @property
    def goes_on(self) -> bool:
        return time.monotonic() < self.deadline


async def connect(run: Run, host: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", run.port, local_addr=(host, 0))


def body_of(run: Run, texts: str | list[str]) -> bytes:
    return json.dumps({"q": texts, "source": "en", "target": run.target}).encode()


def request(path: str, body: bytes, kind: str = "application/json", length: int | None = None) -> bytes:
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {kind}\r\n"
    return f"{head}Content-Length: {len(body) if length is None else length}\r\n\r\n".encode() + body


async def honest(run: Run, host: str, generator: random.Random) -> None:
    """Translate texts one after another, over one connection until it ends."""
    writer = None
    await asyncio.sleep(START_SECONDS * generator.random())
    while run.goes_on:
        text, start = generator.choice(SENTENCES), time.monotonic()
        try:
            if writer is None:
                reader, writer = await connect(run, host)
            writer.write(request("/translate", body_of(run, text)))
            head, answer = await asyncio.wait_for(read_answer(reader), 120)
        except (OSError, EOFError, asyncio.TimeoutError) as error:
            run.faults[type(error).__name__] += 1
            if writer is not None:
                writer.transport.abort()
            writer = None
            continue
        run.seconds.append(time.monotonic() - start)
        if not head.startswith("HTTP/1.1 200 "):
            run.faults[f"{head.split()[1]} {answer}"[:200]] += 1
        elif answer["translatedText"] != run.expected.setdefault(text, answer["translatedText"]):
            run.faults["another translation than before"] += 1
    if writer is not None:
        writer.close()


# ---- hostile clients
async def send(run: Run, host: str, data: bytes, seconds: float) -> None:
    """Send bytes, and read what comes for some seconds."""
    reader, writer = await connect(run, host)
    with contextlib.suppress(OSError, asyncio.TimeoutError):
        writer.write(data)
        line = await asyncio.wait_for(reader.readline(), seconds)
        run.hostile[line[9:12].decode("ascii", "replace") or "closed"] += 1
        await asyncio.sleep(0.01)
    writer.close()


async def half_requests(run: Run, host: str, generator: random.Random) -> None:
    data = request("/translate", body_of(run, "a"), length=1000)
    await send(run, host, data[: generator.randrange(1, len(data))], SLOW_SECONDS)


async def large_bodies(run: Run, host: str, generator: random.Random) -> None:
    kind, body = generator.choice([*BODIES.values()])
    await send(run, host, request("/translate", body, kind), SLOW_SECONDS)


async def not_http(run: Run, host: str, generator: random.Random) -> None:
    await send(run, host, generator.randbytes(generator.randrange(1, 5000)) + b"\r\n\r\n", SLOW_SECONDS)


async def leaves(run: Run, host: str, generator: random.Random) -> None:
    """Ask over many connections, and close all of them before an answer."""
    connections = [await connect(run, host) for _ in range(20)]
    for _, writer in connections:
        writer.write(request("/translate", body_of(run, [*generator.choices(SENTENCES, k=20)])))
    await asyncio.sleep(generator.random())
    for _, writer in connections:
        writer.transport.abort()
    run.hostile["left"] += len(connections)
    await asyncio.sleep(1)


async def hostile_files(run: Run, host: str, generator: random.Random) -> None:
    name, content = generator.choice([*FILES.items()])
    fields = (("source", "", b"en"), ("target", "", run.target.encode()), ("file", f'; filename="{name}"', content))
    parts = (
        f'--x\r\nContent-Disposition: form-data; name="{field}"{more}\r\n\r\n'.encode() + value + b"\r\n"
        for field, more, value in fields
    )
    body = b"".join(parts) + b"--x--\r\n"
    await send(run, host, request("/translate_file", body, "multipart/form-data; boundary=x"), 60)


FILES = {name: content() if callable(content) else content for name, (content, _) in UPLOADS.items()}
HOSTILE: list[Callable[[Run, str, random.Random], Awaitable[None]]] = [
    *(half_requests, large_bodies, not_http, leaves, hostile_files),
]


async def be_hostile(run: Run, host: str, index: int) -> None:
    generator = random.Random(f"hostile {index}")
    while run.goes_on:
        try:
            await HOSTILE[index % len(HOSTILE)](run, host, generator)
        except OSError as error:
            run.hostile[type(error).__name__] += 1
            await asyncio.sleep(0.1)


# ---- the server
async def reload(run: Run, server: "subprocess.Popen[str]", models: Path, languages: str, every: float) -> None:
    """Let the server take the same model from another folder, which it therefore loads."""
    folders = itertools.cycle([models.with_name("second"), models.with_name("first")])
    while every < run.deadline - time.monotonic():
        await asyncio.sleep(every)
        models.write_text(f"{languages}={next(folders)}\n")
        server.send_signal(signal.SIGHUP)
        run.reloads += 1


async def sample(run: Run, server: "subprocess.Popen[str]") -> None:
    page = os.sysconf("SC_PAGE_SIZE")
    while run.goes_on and server.poll() is None:
        pages = int(Path(f"/proc/{server.pid}/statm").read_text().split()[1])
        run.memory.append((pages * page, memory_of(server.pid)))
        run.threads.append(len(os.listdir(f"/proc/{server.pid}/task")))
        wake = time.monotonic() + SAMPLES_EVERY
        await asyncio.sleep(SAMPLES_EVERY)
        run.longest_pause = max(run.longest_pause, time.monotonic() - wake)


async def drive(run: Run, server: "subprocess.Popen[str]", models: Path, arguments: argparse.Namespace) -> None:
    hosts = [f"127.1.{index // 200}.{index % 200 + 1}" for index in range(arguments.clients + arguments.hostile)]
    clients = [honest(run, host, random.Random(host)) for host in hosts[: arguments.clients]]
    clients += [be_hostile(run, host, index) for index, host in enumerate(hosts[arguments.clients :])]
    await asyncio.gather(
        *clients, reload(run, server, models, arguments.languages, arguments.reload), sample(run, server)
    )


def report(run: Run, arguments: argparse.Namespace, load: tuple[float, float]) -> dict[str, object]:
    quantiles = statistics.quantiles(run.seconds, n=100) if len(run.seconds) > 1 else [0.0] * 99
    megabytes = [size / 1e6 for size, _ in run.memory]
    size = len(megabytes)
    parts = [megabytes[size * index // 10 : size * (index + 1) // 10] for index in range(10)]
    tenths = [statistics.median(part) for part in parts]
    return {
        "clients": arguments.clients,
        "hostile_clients": arguments.hostile,
        "seconds": arguments.seconds,
        "answers": len(run.seconds),
        "median_seconds": round(quantiles[49], 2),
        "p99_seconds": round(quantiles[98], 2),
        "faults": dict(run.faults),
        "hostile_requests": dict(run.hostile),
        "reloads": run.reloads,
        "megabytes": [round(value, 1) for value in tenths],
        "threads": [run.threads[0], run.threads[size // 2], run.threads[-1], max(run.threads)],
        "longest_pause_of_the_clients": round(run.longest_pause, 2),
        "most_megabytes_with_children": round(max(size for _, size in run.memory) / 1e6, 1),
        "load_average": [round(value, 1) for value in load],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, default=GOLDEN, help="a folder with a model")
    parser.add_argument("--languages", default="en-de", help="of the model, from English")
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--hostile", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--reload", type=float, default=10, help="seconds between two reloads")
    parser.add_argument("--request-seconds", type=int, default=60, help="of the server: it keeps old models as long")
    parser.add_argument("--output", type=Path, help="a JSON file for the result")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        models = Path(temporary, "models")
        for name in ("first", "second"):
            shutil.copytree(arguments.model, models.with_name(name))
        models.write_text(f"{arguments.languages}={models.with_name('first')}\n")
        errors = Path(temporary, "stderr")
        command = [sys.executable, "-m", "capsule_mt", "serve", "--models", str(models), "--port", "0"]
        command += ["--request-seconds", str(arguments.request_seconds)]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
        with open(errors, "wb") as stream:
            server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stream, text=True, env=environment)
        try:
            assert server.stdout is not None
            address = re.search(r"http://127.0.0.1:(\d+)", server.stdout.readline())
            if address is None:
                sys.exit(f"the server does not start: {errors.read_text()}")
            target = arguments.languages.partition("-")[2]
            run = Run(int(address[1]), time.monotonic() + arguments.seconds, target)
            start_load = os.getloadavg()[0]
            asyncio.run(drive(run, server, models, arguments))
            result = report(run, arguments, (start_load, os.getloadavg()[0]))
            if server.poll() is not None:
                run.faults[f"the server has ended with code {server.returncode}"] += 1
            server.send_signal(signal.SIGTERM)
            result["end"] = server.wait(120)
            lines = errors.read_text().splitlines()
            result["errors"] = [line for line in lines if line != "WARNING:  Invalid HTTP request received."][-20:]
        finally:
            server.kill()
    text = json.dumps(result, ensure_ascii=False)
    print(text)
    if arguments.output is not None:
        arguments.output.write_text(text + "\n")
    *_, middle, _, _, _, _, last = result["megabytes"]
    sys.exit(1 if run.faults or last > MAX_GROWTH * middle or result["end"] or result["errors"] else 0)


if __name__ == "__main__":
    main()
