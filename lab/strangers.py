"""Let ordinary and hostile clients ask a server at once, and check that the ordinary ones lose nothing.

    python -m lab.strangers --minutes 10 --clients 100 --output outputs/strangers.json
    python -m lab.strangers --minutes 2 --clients 1 --kinds letters unknown emoji words --turn-seconds 15

Starts `capsule-mt serve` on the loopback interface; each client has its own address, which needs Linux. Ordinary
clients send one to three sentences at a time; each answer must be that of the same sentences alone. They are by
themselves and beside one client of each hostile kind, in turns. Prints their times, those of /health, and how the
memory of the server grew; exits with 1 if an answer was lost, wrong, or no error of the API.
"""

import argparse
import asyncio
import contextlib
import itertools
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import linear_regression
from typing import Any

from capsule_mt.commands.console import HelpFormatter, checkpoint_folder, positive, run
from capsule_mt.files.outputs import check_outputs
from hf_capsule_mt.data import sentence_pairs
from hf_capsule_mt.evaluation import write_result
from hf_capsule_mt.evaluation.results import markdown_table

CHECKPOINT = Path("checkpoints/capsule-marian-de-en")
SENTENCES = 60
LONGEST = 4999  # characters of a hostile text; a server takes 5,000
SECONDS_TO_ANSWER = 300
SECONDS_TO_STOP = 60
PAUSE = 0.05  # of hostile clients
MEMORY_EVERY = 10.0
HEALTH_EVERY = 0.1
HEALTH_CLIENT = 280
WARM_UP_SHARE = 3  # the first third of the time: allocators and caches grow
OTHER_TEXTS = {
    "letters": "a" * LONGEST,
    "words": ("ab " * LONGEST)[:LONGEST],
    "joiners": "\u200d" * LONGEST,
    "unknown": "漢" * LONGEST,
    "unknown words": ("Ich habe 漢字. " * LONGEST)[:LONGEST],
    "emoji": "\U0001f600" * LONGEST,
    "commas": ("x," * LONGEST)[:LONGEST],
    "pieces": ("aaaaaaaaaaaaaaaa. " * LONGEST)[:LONGEST],
}
HEAD = "POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n"


@dataclass
class Server:
    """A running server: its process, port, and the languages that it translates."""

    process: subprocess.Popen[str]
    port: int
    source: str
    target: str

    async def connect(self, client: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect from an address of the client's own."""
        local = (f"127.0.{1 + client // 250}.{1 + client % 250}", 0)
        return await asyncio.open_connection("127.0.0.1", self.port, local_addr=local)

    def request(self, texts: str | list[str], **fields: Any) -> bytes:
        body = json.dumps({"q": texts, "source": self.source, "target": self.target, **fields}).encode()
        return HEAD.format(path="/translate", length=len(body)).encode() + body

    @property
    def memory(self) -> float:
        """MiB that are resident."""
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


async def read_answer(reader: asyncio.StreamReader) -> tuple[int, Any]:
    while (head := (await reader.readuntil(b"\r\n\r\n")).decode()).startswith("HTTP/1.1 100 "):
        pass
    length = re.search(r"content-length: (\d+)", head)
    body = await reader.readexactly(int(length[1]) if length else 0)
    return int(head.split()[1]), json.loads(body)


async def ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes) -> tuple[int, Any]:
    writer.write(request)
    return await asyncio.wait_for(read_answer(reader), SECONDS_TO_ANSWER)


# ---- hostile clients: what each does with a connection, again and again; it returns what came of it
Hostile = Callable[[Server, asyncio.StreamReader, asyncio.StreamWriter], Awaitable[str]]


def sends(text: str) -> Hostile:
    """Send a text, which a server must translate or refuse."""

    async def client(server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> str:
        status, answer = await ask(reader, writer, server.request(text))
        assert status == 200 or isinstance(answer["error"], str)
        return str(status)

    return client


def uploads(name: str, content: bytes) -> Hostile:
    """Send a file, which a server must translate or refuse."""
    boundary = b"strangers"

    def part(head: str, value: bytes) -> bytes:
        return b"--%s\r\nContent-Disposition: form-data; %s\r\n\r\n%s\r\n" % (boundary, head.encode(), value)

    async def client(server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> str:
        languages = {"source": server.source, "target": server.target}
        parts = [part(f'name="{field}"', language.encode()) for field, language in languages.items()]
        body = b"".join([*parts, part(f'name="file"; filename="{name}"', content), b"--%s--\r\n" % boundary])
        head = HEAD.replace("application/json", f"multipart/form-data; boundary={boundary.decode()}")
        request = head.format(path="/translate_file", length=len(body)).encode() + body
        status, answer = await ask(reader, writer, request)
        assert status == 200 or isinstance(answer["error"], str)
        return str(status)

    return client


async def half_sent(server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> str:
    """Send a body that never ends."""
    writer.write(server.request("Hallo.")[:-5])
    return str((await read_answer(reader))[0])


async def half_head(server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> str:
    """Send a head byte by byte."""
    for byte in server.request("Hallo.")[:40]:
        writer.write(bytes([byte]))
        await asyncio.sleep(1)
    return str((await read_answer(reader))[0])


async def leaves(server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> str:
    """Leave before the request is answered."""
    writer.write(server.request("a" * LONGEST))
    await writer.drain()
    await asyncio.sleep(PAUSE)
    return "left"


async def half_closes(server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> str:
    """Say that nothing more will be sent, and wait for the answer."""
    writer.write(server.request("Hallo."))
    writer.write_eof()
    status, _ = await read_answer(reader)
    assert status == 200, f"a half-closed client got {status}"
    return str(status)


async def reads_nothing(server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> str:
    """Send one request after the other, and never read an answer."""
    for _ in range(20):
        writer.write(server.request("Hallo."))
        await writer.drain()
    await asyncio.sleep(5)
    return "unread"


async def noise(server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> str:
    """Send what is no HTTP."""
    writer.write(os.urandom(4096))
    await asyncio.wait_for(reader.read(), SECONDS_TO_ANSWER)
    return "noise"


async def too_long(server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> str:
    """Send a body of 10 MB."""
    writer.write(HEAD.format(path="/translate", length=10**7).encode())
    for _ in range(100):
        writer.write(b"x" * 10**5)
        await writer.drain()
    return str((await read_answer(reader))[0])


async def wrong(server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> str:
    """Send fields of wrong kinds."""
    return str((await ask(reader, writer, server.request([], beams="many")))[0])


async def many_connections(server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> str:
    """Hold sixty connections at once that say nothing."""
    connections = [await server.connect(249) for _ in range(60)]
    await asyncio.sleep(2)
    for _, connection in connections:
        connection.close()
    return "silent"


KINDS: dict[str, Hostile] = {
    **{name: sends(text) for name, text in OTHER_TEXTS.items()},
    "slow page": uploads("a.html", b"<a b=" * 20_000),
    "slow file": uploads("a.md", b"*a _b " * 15_000),
    "half a body": half_sent,
    "half a head": half_head,
    "leaves": leaves,
    "half-closed": half_closes,
    "reads nothing": reads_nothing,
    "no HTTP": noise,
    "10 MB": too_long,
    "wrong fields": wrong,
    "silent connections": many_connections,
}


async def hostile(server: Server, number: int, kind: str, answers: Counter[str]) -> None:
    """Do over a new connection what a kind does, until the turn is over."""
    while True:
        reader, writer = await server.connect(number)
        try:
            answers[await KINDS[kind](server, reader, writer)] += 1
        except (ConnectionError, asyncio.IncompleteReadError):
            answers["closed"] += 1
        finally:
            writer.close()
        await asyncio.sleep(PAUSE)


# ---- ordinary clients
@dataclass
class Load:
    """What the ordinary clients have seen: seconds by whether hostile ones were there, and what went wrong."""

    seconds: dict[bool, list[float]] = field(default_factory=lambda: {False: [], True: []})
    failures: list[str] = field(default_factory=list)
    answers: dict[str, Counter[str]] = field(default_factory=dict)
    health: dict[bool, list[float]] = field(default_factory=lambda: {False: [], True: []})
    memory: list[tuple[float, float]] = field(default_factory=list)  # seconds from the start, and MiB
    is_disturbed: bool = False


async def ordinary(server: Server, number: int, pairs: list[tuple[str, str]], load: Load) -> None:
    """Ask on one connection, again and again; each answer must be that of its own request."""
    reader, writer = await server.connect(number)
    try:
        for request in itertools.count():
            chosen = [pairs[(7 * number + 3 * request + n) % len(pairs)] for n in range(1 + (number + request) % 3)]
            was_disturbed, began = load.is_disturbed, time.perf_counter()
            status, answer = await ask(reader, writer, server.request([source for source, _ in chosen]))
            if was_disturbed == load.is_disturbed:
                load.seconds[was_disturbed].append(time.perf_counter() - began)
            if status != 200 or answer["translatedText"] != [target for _, target in chosen]:
                load.failures.append(f"an ordinary client got {status}: {str(answer)[:200]}")
    finally:
        writer.close()


async def check_health(server: Server, load: Load) -> None:
    """Ask for /health again and again, each time on a new connection, as monitors do."""
    while True:
        was_disturbed, began = load.is_disturbed, time.perf_counter()
        reader, writer = await server.connect(HEALTH_CLIENT)
        try:
            status, _ = await ask(reader, writer, b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        finally:
            writer.close()
        load.health[was_disturbed].append(time.perf_counter() - began)
        if status != 200:
            load.failures.append(f"/health answered {status}")
        await asyncio.sleep(HEALTH_EVERY)


async def _watched(name: str, work: Awaitable[None], load: Load) -> None:
    """Run a client, and note how it failed if it did."""
    try:
        await work
    except Exception as error:
        load.failures.append(f"{name}: {type(error).__name__}: {error}")


async def _end(tasks: Collection[asyncio.Task[None]]) -> None:
    """Cancel tasks until they have ended: before Python 3.12 `wait_for` loses a cancellation that meets an answer."""
    while tasks:
        for task in tasks:
            task.cancel()
        _, tasks = await asyncio.wait(tasks, timeout=1)


async def try_strangers(server: Server, arguments: argparse.Namespace) -> Load:
    """Let the clients ask, the hostile ones in every second turn."""
    load = Load(answers={kind: Counter() for kind in arguments.kinds})
    sources = [pair[server.source == "de"] for pair in itertools.islice(sentence_pairs(), SENTENCES)]
    reader, writer = await server.connect(0)
    pairs = []
    for source in sources:
        status, answer = await ask(reader, writer, server.request(source))
        assert status == 200, answer
        pairs.append((source, answer["translatedText"]))
    writer.close()
    clients = [
        asyncio.create_task(_watched("an ordinary client", ordinary(server, number, pairs, load), load))
        for number in range(arguments.clients)
    ]
    clients.append(asyncio.create_task(_watched("/health", check_health(server, load), load)))
    start = time.monotonic()
    end = start + 60 * arguments.minutes
    while time.monotonic() < end and not load.failures:
        hostile_clients = [
            asyncio.create_task(_watched(kind, hostile(server, 300 + index, kind, load.answers[kind]), load))
            for index, kind in enumerate(arguments.kinds)
            if load.is_disturbed
        ]
        until = time.monotonic() + arguments.turn_seconds
        while (remaining := until - time.monotonic()) > 0 and not load.failures:
            await asyncio.sleep(min(remaining, MEMORY_EVERY))
            load.memory.append((time.monotonic() - start, server.memory))
        await _end(hostile_clients)
        load.is_disturbed = not load.is_disturbed
    await _end(clients)
    return load


@contextlib.contextmanager
def started(checkpoint: Path, options: list[str]) -> Iterator[Server]:
    """Start a server on a free port of the loopback interface, and end it."""
    command = [sys.executable, "-m", "capsule_mt", "serve", str(checkpoint), "--port", "0", *options]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        match = re.match(r"(\w+)-(\w+) at http://[^:]+:(\d+) ", line)
        if match is None:
            raise ValueError(f"the server did not start: {line}")
        yield Server(process, int(match[3]), match[1], match[2])
        process.send_signal(signal.SIGTERM)
        code = process.wait(SECONDS_TO_STOP)
        if code != 0:
            raise ValueError(f"the server ended with {code}")
    finally:
        process.kill()
        process.wait()


def percentile(seconds: list[float], share: float) -> float:
    return 1000 * sorted(seconds)[int(share * len(seconds))]


def summary(load: Load, arguments: argparse.Namespace) -> dict[str, Any]:
    times = {
        name: {"requests": len(seconds), "p50": percentile(seconds, 0.5), "p95": percentile(seconds, 0.95)}
        for name, seconds in (("alone", load.seconds[False]), ("beside hostile ones", load.seconds[True]))
        if seconds
    }
    health = {
        name: {"requests": len(seconds), "p50": percentile(seconds, 0.5), "p99": percentile(seconds, 0.99)}
        for name, seconds in (("alone", load.health[False]), ("beside hostile ones", load.health[True]))
        if seconds
    }
    warm = [point for point in load.memory if point[0] >= load.memory[-1][0] / WARM_UP_SHARE]
    return {
        "kind": "strangers",
        "minutes": arguments.minutes,
        "clients": arguments.clients,
        "times": times,
        "health": health,
        "memory": {
            "first": load.memory[0][1],
            "warm": warm[0][1],
            "last": load.memory[-1][1],
            "most": max(memory for _, memory in load.memory),
            "slope": 60 * linear_regression(*zip(*warm, strict=True)).slope if len(warm) > 1 else 0.0,
        },
        "memory_by_second": load.memory,
        "answers": load.answers,
        "failures": load.failures,
    }


def render(result: dict[str, Any]) -> str:
    rows = [
        [name, f"{times['requests']:,}", f"{times['p50']:.0f}", f"{times['p95']:.0f}"]
        for name, times in result["times"].items()
    ]
    parts = [markdown_table([f"{result['clients']} ordinary clients", "answers", "p50 (ms)", "p95 (ms)"], rows)]
    health = [
        [name, f"{times['requests']:,}", f"{times['p50']:.0f}", f"{times['p99']:.0f}"]
        for name, times in result["health"].items()
    ]
    parts.append(markdown_table(["/health", "answers", "p50 (ms)", "p99 (ms)"], health))
    kinds = [
        [kind, ", ".join(f"{number:,} x {answer}" for answer, number in sorted(times.items()))]
        for kind, times in result["answers"].items()
    ]
    parts.append(markdown_table(["hostile client", "answers"], kinds))
    memory = result["memory"]
    parts.append(
        f"Memory of the server: {memory['first']:.0f} MiB at the beginning, {memory['warm']:.0f} after the warm-up, "
        f"{memory['last']:.0f} at the end, at most {memory['most']:.0f}; {memory['slope']:+.2f} MiB a minute after "
        f"the warm-up. {len(result['failures'])} failures."
    )
    return "\n\n".join([*parts, *(f"- {failure}" for failure in result["failures"][:20])])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=HelpFormatter)
    parser.add_argument(
        "--checkpoint", type=checkpoint_folder, default=CHECKPOINT, help="what the server translates by"
    )
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--turn-seconds", type=float, default=30, help="with and without hostile clients, in turns")
    parser.add_argument("--clients", type=positive, default=100, help="ordinary ones")
    parser.add_argument("--kinds", nargs="+", choices=list(KINDS), default=list(KINDS), help="hostile clients")
    parser.add_argument("--output", type=Path, help="the result file")
    arguments = parser.parse_args()
    check_outputs([arguments.output])
    with started(arguments.checkpoint, ["--request-seconds", "300"]) as server:  # machines may be busy
        load = asyncio.run(try_strangers(server, arguments))
        result = summary(load, arguments)
        print(render(result), flush=True)
    if arguments.output is not None:
        write_result(arguments.output, result)
    return int(bool(load.failures))


if __name__ == "__main__":
    run(main)
