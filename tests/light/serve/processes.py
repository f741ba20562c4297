"""Code that starts a server for a test, and HTTP requests to it without a library."""

import asyncio
import json
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
GOLDEN = ROOT / "tests" / "golden" / "capsule_marian"
# the translator of a test; a batch takes `{seconds}`
FAKE = """
import sys
from ipaddress import ip_network
from functools import partial
from capsule_mt.formats.worker import Worker
from capsule_mt.serve import files
from capsule_mt.serve.answers import RequestLimits
from capsule_mt.serve.connections import Connections
from capsule_mt.catalog.pairs import LanguagePair
from capsule_mt.serve.running import bind, run_server
from tests.light.serve.fakes import Upper

translators = {{LanguagePair("en", "de"): Upper(seconds={seconds})}}
limits = RequestLimits(read_seconds={read_seconds})
files.Worker = partial(Worker, seconds={file_seconds})
this_machine = ip_network("127.0.0.1")
connections = Connections(max_number={most_connections}, head_seconds={read_seconds}, proxies=(this_machine,))
listener = bind("127.0.0.1", 0)
ended = run_server(translators, listener, limits, connections, None, {stop_seconds})
print("all answered" if ended else "not all answered", flush=True)
"""


async def open_request(address, body, length, *headers):
    """Send the head of a request and a body, which may be shorter than `length`; return the streams."""
    reader, writer = await asyncio.open_connection(*address.removeprefix("http://").split(":"))
    lines = ("POST /translate HTTP/1.1", "Host: localhost", f"Content-Length: {length}", *headers)
    writer.write("\r\n".join((*lines, "\r\n")).encode() + body)
    await writer.drain()
    return reader, writer


async def read_answer(reader):
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    return head, json.loads(await reader.readexactly(int(re.search(r"content-length: (\d+)", head)[1])))


def body_of(texts):
    return json.dumps({"q": texts, "source": "en", "target": "de"}).encode()
