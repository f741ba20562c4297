"""The server as strangers use it: slow and many connections, and the clients of LibreTranslate as they are."""

import asyncio
import contextlib
import json
import resource
import shutil
import socket
import subprocess
from collections import Counter
from functools import partial
from pathlib import Path

import pytest

pytest.importorskip("uvicorn")

import httpx
from uvicorn import Config
from uvicorn.server import ServerState

from capsule_mt.serve.connections import MAX_DISCARDED, OTHER_FILES, TURNS, Connections, max_open_files, protocol_with
from tests.light.serve.processes import body_of, open_request, read_answer


async def connect(address, data=b""):
    reader, writer = await asyncio.open_connection(*address.removeprefix("http://").split(":"))
    writer.write(data)
    await writer.drain()
    return reader, writer


def num_files():
    return len(list(Path("/dev/fd").iterdir()))


HEAD = b"POST /translate HTTP/1.1\r\nHost: localhost\r\n"


def test_a_head_has_some_time_to_arrive(serve_fake):
    """Of the first request of a connection, and of a later one."""
    _, address = serve_fake(read_seconds=2)

    async def slow():
        reader, _ = await connect(address, HEAD)
        first = await read_answer(reader)
        assert await reader.read() == b""  # closed
        return first

    async def slow_after_an_answer(data_before=b"", data_after=b""):
        reader, writer = await open_request(address, (body := body_of("a")) + data_before, len(body))
        answer = await read_answer(reader)
        # read at once: what arrives after the server has closed resets the connection, and unread data are lost
        later = asyncio.ensure_future(reader.readuntil(b"\r\n"))
        await asyncio.sleep(2.2)  # an answered connection may be idle for longer
        writer.write(data_after)
        status_line = await later
        with contextlib.suppress(ConnectionResetError):
            await reader.read()  # closed
        return answer, status_line

    async def all_at_once():
        later_halves = ({"data_before": HEAD}, {"data_after": HEAD}, {"data_before": HEAD[:9], "data_after": HEAD[9:]})
        return await asyncio.gather(slow(), *(slow_after_an_answer(**halves) for halves in later_halves))

    (head, answer), *answers = asyncio.run(all_at_once())
    assert (head.split()[1], list(answer)) == ("408", ["error"])
    for (head, answer), later in answers:
        assert (head.split()[1], answer) == ("200", {"translatedText": "A"})
        assert later == b"HTTP/1.1 408 Request Timeout\r\n"


@pytest.mark.parametrize("length", [b"3", b"38"])
def test_a_request_with_two_lengths_is_refused_and_what_follows_it_is_not_read(serve_fake, length):
    """A proxy may go by the other length: what it takes for a body would be a request of its next client's."""
    _, address = serve_fake()
    lengths = b"Content-Length: " + length + b"\r\n" + CHUNKED

    async def send():
        reader, _ = await connect(address, HEAD + lengths + b"0\r\n\r\n" + GET_HEALTH + b"\r\n")
        return await read_answer(reader), await reader.read()

    (head, answer), rest = asyncio.run(send())
    assert head.split()[1] == "400"
    assert answer == {"error": "a request has Content-Length or Transfer-Encoding, not both"}
    assert rest == b""


GET_HEALTH = b"GET /health HTTP/1.1\r\nHost: localhost\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    ("request_bytes", "statuses"),
    [
        (b"GET / HTTP/1.1 x\r\n\r\n", ["400"]),
        (GET_HEALTH + b"\r\nGET / HTTP/1.1 x\r\n\r\n", ["200", "400"]),
        (HEAD + CHUNKED + b"3\r\nabc\r\nzz\r\n", ["400"]),
    ],
)
def test_what_is_not_http_is_refused_as_everything_else(serve_fake, request_bytes, statuses):
    _, address = serve_fake()

    async def send():
        reader, _ = await connect(address, request_bytes)
        answers = [await read_answer(reader) for _ in statuses]
        assert await reader.read() == b""
        return answers

    answers = asyncio.run(send())
    assert [head.split()[1] for head, _ in answers] == statuses
    assert answers[-1][1] == {"error": "the request is not HTTP/1.1 that can be read"}


def test_what_is_not_http_after_the_answer_closes_the_connection(serve_fake, tmp_path):
    """/health does not wait for the body of a request; a second answer would be an error of the server's."""
    _, address = serve_fake()

    async def send():
        reader, writer = await connect(address, GET_HEALTH + CHUNKED)
        head, _ = await read_answer(reader)
        writer.write(b"zz\r\n")
        return head.split()[1], await reader.read()

    assert asyncio.run(send()) == ("200", b"")
    assert "Traceback" not in (tmp_path / "stderr").read_text()


@pytest.mark.parametrize("headers", [(), ("Transfer-Encoding: chunked",)])
def test_who_sends_too_much_reads_the_answer(serve_fake, headers, tmp_path):
    """A socket that is closed while bytes arrive is reset, which can destroy an answer that was sent before."""
    _, address = serve_fake()
    body = b"x" * (8 << 20)
    content = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body) if headers else body
    lines = b"\r\n".join([*(header.encode() for header in headers or (f"Content-Length: {len(body)}",)), b"", b""])

    def send():
        """Send all of the request before reading anything, as most clients do."""
        host, port = address.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=60) as client:
            client.sendall(HEAD + lines + content)
            answer = b""
            while received := client.recv(1 << 16):
                answer += received
        return answer

    answer = send()
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert b"the request has more than" in answer
    assert "Traceback" not in (tmp_path / "stderr").read_text()


def test_what_follows_a_request_that_is_too_long_is_read_within_limits(serve_fake):
    _, address = serve_fake()
    too_much = MAX_DISCARDED + (64 << 20)  # more than the buffers of both sides hold

    async def send():
        _, writer = await open_request(address, b"", 1 << 40)
        chunk, num_sent = b"x" * (1 << 20), 0
        with contextlib.suppress(ConnectionError):
            while num_sent < too_much:
                writer.write(chunk)
                await writer.drain()
                num_sent += len(chunk)
        writer.close()
        return num_sent

    assert asyncio.run(send()) < too_much

    async def drip():
        reader, writer = await open_request(address, b"x" * 200_000, 1 << 40)
        head, _ = await read_answer(reader)
        assert await reader.read() == b""
        with contextlib.suppress(ConnectionError):
            for _ in range(300):
                writer.write(b"x")
                await writer.drain()
                await asyncio.sleep(0.2)
            pytest.fail("the server reads what follows for ever")
        return head

    assert asyncio.run(drip()).split()[1] == "413"


def test_who_sends_no_more_gets_an_answer_and_who_has_gone_is_not_waited_for(serve_fake):
    _, address = serve_fake(seconds=1.0)

    async def half_close():
        reader, writer = await open_request(address, body := body_of("a"), len(body))
        writer.write_eof()
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        answer = await read_answer(reader)
        assert await reader.read() == b""
        return answer[1]

    async def leave():
        _, writer = await open_request(address, body := body_of("slow"), len(body))
        writer.close()
        async with httpx.AsyncClient(timeout=60) as client:
            for _ in range(300):
                if 'path="/translate",status="499"' in (await client.get(f"{address}/metrics")).text:
                    return
                await asyncio.sleep(0.2)
        pytest.fail("the server waits for who has gone")

    assert asyncio.run(half_close()) == {"translatedText": "A"}
    asyncio.run(leave())


def test_head_is_answered_as_get_without_a_body(serve_fake):
    _, address = serve_fake()
    with httpx.Client(base_url=address) as client:  # one connection: a body would be read as the next answer
        for path in ("/", "/page.js", "/languages", "/health", "/frontend/settings"):
            head, get = client.head(path), client.get(path)
            assert (head.status_code, head.content) == (200, b"")
            assert {**head.headers, "date": ""} == {**get.headers, "date": ""}
        assert client.head("/translate").status_code == 405


def test_there_are_limits_of_connections(serve_fake):
    _, address = serve_fake(most_connections=3, read_seconds=60)

    async def connect_often():
        open_ones = [await connect(address, HEAD) for _ in range(3)]
        reader, _ = await connect(address)
        head, answer = await read_answer(reader)
        assert (head.split()[1], answer) == ("503", {"error": "the server accepts 3 connections; try again later"})
        open_ones[0][1].close()
        for _ in range(300):  # until the server sees that it is closed
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):  # refused before it was read
                reader, _ = await open_request(address, body := body_of("a"), len(body))
                head, answer = await read_answer(reader)
                if head.split()[1] != "503":
                    return answer
            await asyncio.sleep(0.1)
        return None

    assert asyncio.run(connect_often()) == {"translatedText": "A"}


def test_an_address_has_limits_but_not_that_of_a_proxy_on_this_machine():
    connections = Connections(
        max_number=10, max_per_address=2, number=3, by_address=Counter({"192.0.2.7": 3, "127.0.0.1": 3})
    )
    assert connections.refusal("192.0.2.7") == "the server accepts 2 connections from an address; close some of yours"
    assert connections.refusal("127.0.0.1") == ""
    assert connections.refusal("192.0.2.8") == ""
    connections.number = 11
    assert "the server accepts 10 connections" in connections.refusal("192.0.2.8")


def test_no_more_connections_than_files_may_be_open(monkeypatch):
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (256, 512))
    asked = []
    monkeypatch.setattr(resource, "setrlimit", lambda kind, limits: asked.append(limits))
    assert max_open_files() == 512
    assert asked == [(512, 512)]
    connections = Connections()
    assert connections.max_number + TURNS * (connections.backlog + 1) + OTHER_FILES == 512
    assert Connections(max_number=5).max_number == 5


def test_files_suffice_if_each_turn_of_the_loop_brings_a_full_backlog():
    """Refused connections are closed only turns later."""
    connections = Connections(max_number=8, max_per_address=8, backlog=4)
    config = Config(app=None, backlog=connections.backlog, http=protocol_with(connections))
    config.load()
    clients, numbers = [], []

    async def attack():
        loop = asyncio.get_running_loop()
        protocol = partial(config.http_protocol_class, config, ServerState(), {})
        server = await loop.create_server(protocol, "127.0.0.1", 0, backlog=connections.backlog)
        files_before = num_files()
        for _ in range(30):
            for _ in range(connections.backlog + 1):
                clients.append(client := socket.socket())
                client.setblocking(False)
                client.connect_ex(server.sockets[0].getsockname())
            await asyncio.sleep(0)
            numbers.append(num_files() - files_before - len(clients))
        server.close()

    asyncio.run(attack())
    for client in clients:
        client.close()
    most = connections.max_number + TURNS * (connections.backlog + 1)
    assert most - connections.backlog - 1 < max(numbers) <= most


@pytest.mark.slow
def test_unfinished_heads_do_not_close_the_server(serve, tmp_path):
    """Even if they use up the files that the server may open, it answers others, and logs nothing."""
    _, address = serve("--read-seconds", "2", files=256)

    async def attack():
        for _ in range(400):
            await connect(address, HEAD)
        for _ in range(120):
            reader, _ = await connect(address, b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
            head = (await reader.read(15)).decode()
            if head == "HTTP/1.1 200 OK":
                return True
            await asyncio.sleep(0.5)
        return False

    assert asyncio.run(attack())
    assert (tmp_path / "stderr").read_text() == ""


@pytest.mark.slow
def test_clients_of_libretranslate(serve):
    from deep_translator import LibreTranslator
    from libretranslatepy import LibreTranslateAPI

    _, address = serve()
    client = LibreTranslateAPI(address)
    assert client.translate("He sleeps.", "en", "de") == "Er schläft."
    assert client.detect("He sleeps in the house.")[0]["language"] == "en"
    assert {"code": "en", "name": "English", "targets": ["de", "en"]} in client.languages()
    deep = LibreTranslator(source="en", target="de", custom_url=f"{address}/", api_key="any")
    assert deep.translate("He sleeps.") == "Er schläft."
    assert deep.translate_batch(["He sleeps.", "She sleeps."])[0] == "Er schläft."


# what their READMEs show, with the address of this server
OF_NPM = """
const { translate } = require("libretranslate");
const { libreTranslate } = require("libretranslate-ts");
(async () => {
  const apiurl = process.argv[2];
  libreTranslate.setApiEndpoint(apiurl);
  libreTranslate.setApiKey("");
  const found = [await translate({ query: "He sleeps.", source: "en", target: "de", apiurl })];
  found.push(await translate({ query: "He sleeps in the house.", target: "de", format: "html", apiurl }));
  found.push(await libreTranslate.detect("He sleeps in the house."));
  found.push(await libreTranslate.translate("He sleeps.", "en", "de", 1));
  found.push(await libreTranslate.translate("He sleeps.", "en", "fr"));
  found.push(await libreTranslate.listLanguages());
  console.log(JSON.stringify(found));
})();
"""


@pytest.mark.slow
def test_clients_of_libretranslate_in_node(serve, tmp_path):
    if shutil.which("node") is None or shutil.which("npm") is None:
        pytest.skip("needs node and npm")
    install = ["npm", "install", "--no-audit", "--no-fund", "libretranslate@1.0.1", "libretranslate-ts@0.5.12"]
    installed = subprocess.run(install, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    if installed.returncode:
        pytest.skip(f"npm installs nothing here: {installed.stderr[:200]}")
    (tmp_path / "clients.cjs").write_text(OF_NPM, encoding="utf-8")
    _, address = serve()
    process = subprocess.run(
        ["node", "clients.cjs", address], cwd=tmp_path, capture_output=True, text=True, timeout=300
    )
    assert process.returncode == 0, process.stderr
    plain, auto_translation, detected, translated, refused, languages = json.loads(process.stdout)
    assert (plain, translated["translatedText"]) == ("Er schläft.", "Er schläft.")
    assert translated["alternatives"] == []  # all are far less probable
    assert auto_translation.startswith("Er schläft")
    assert detected["language"] == "en"
    assert refused["error"].startswith("fr is not supported")
    assert {"code": "en", "name": "English", "targets": ["de", "en"]} in languages
