"""Raw bytes sent to a real server: each request gets an answer of HTTP or is closed, and the next client is served."""

import asyncio
import contextlib
import json
import re

import pytest

pytest.importorskip("uvicorn")

BODY = json.dumps({"q": "a b", "source": "en", "target": "de"}).encode()
HEALTH = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
CHUNKED = b"Transfer-Encoding: chunked"
MAX_SECONDS = 30.0  # on a busy machine; the limit of a slow request is 2 s


def request(*headers: bytes, body: bytes = BODY, line: bytes = b"POST /translate HTTP/1.1", has_length=True) -> bytes:
    defaults = [b"Host: localhost"] if not any(header.lower().startswith(b"host") for header in headers) else []
    if not any(header.lower().startswith(b"content-type") for header in headers):
        defaults.append(b"Content-Type: application/json")
    if has_length:
        defaults.append(b"Content-Length: %d" % len(body))
    return b"\r\n".join([line, *defaults, *headers, b"", body])


def part(head: bytes, content: bytes = b"a") -> bytes:
    return b"--x\r\n" + head + b"\r\n\r\n" + content + b"\r\n"


def form(*parts: bytes, end: bytes = b"--x--\r\n") -> list[bytes]:
    """Return requests with these parts for both paths."""
    content_type = b"Content-Type: multipart/form-data; boundary=x"
    paths = b"/translate", b"/translate_file"
    return [request(content_type, body=b"".join(parts) + end, line=b"POST %b HTTP/1.1" % path) for path in paths]


def chunked(body: bytes, encoding: bytes = CHUNKED) -> bytes:
    return request(encoding, body=body, has_length=False)


NAMED = b'Content-Disposition: form-data; name="%b"'
FILE = b'Content-Disposition: form-data; name="file"; filename="%b"'
LANGUAGES = part(NAMED % b"source", b"en"), part(NAMED % b"target", b"de")
WHOLE = b"%x\r\n%b\r\n0\r\n\r\n" % (len(BODY), BODY)
LENGTHS = (b"-1", b"+5", b"0x10", b"1e3", b"1_0", b"5 ", b"5,5", b"5, 6", b"", b"9" * 23, b"\xb2", b"5;", b"5\0",
           b"NaN", b"1000000000", b"5", b"63")  # fmt: skip
TRANSFERS = (b"chunked", b"Chunked", b"chunked, chunked", b"gzip", b"gzip, chunked", b"identity", b"xchunked",
             b"chunked;q=1", b"\x0bchunked", b"", b"chunked\0", b"deflate, identity")  # fmt: skip
CHUNKS = (b"-1", b"F" * 20, b"7fffffffffffffff", b"0x5", b"5;" + b"a" * 50_000, b"5 ", b" 5", b"g", b"", b"5\n",
          b"0" * 30 + b"5", b"\xff", b"1e")  # fmt: skip
LINES = (
    *(b"GET /\r\n", b"GET /health HTTP/1.0", b"GET / HTTP/2.0", b"GET / HTTP/1.9", b"GET / HTTP/9999", b"GET /health"),
    *(
        b"PRI * HTTP/2.0",
        b"GET  /health  HTTP/1.1",
        b"GET\t/health\tHTTP/1.1",
        b"CONNECT a:443 HTTP/1.1",
        b"\0" * 5000,
    ),
    *(b"GET http://other/health HTTP/1.1", b"GET other:80 HTTP/1.1", b"OPTIONS * HTTP/1.1", b"TRACE / HTTP/1.1"),
    *(b"A" * 60_000 + b" / HTTP/1.1", b"G\xffT / HTTP/1.1", b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03" + bytes(500)),
    *(bytes(range(256)) * 100, b"SSH-2.0-OpenSSH_9", b"\r\n" * 50 + b"GET /health HTTP/1.1"),
)
PATHS = (b"/../../etc/passwd", b"//etc/passwd", b"/%2e%2e/%2e%2e/etc/passwd", b"/\xff", b"/%ff", b"/%00", b"/%",
         b"/%zz", b"/health/", b"/health;a", b"/health?" + b"a" * 60_000, b"/" + b"a" * 70_000, b"/health#a",
         b"\\health", b"health", b"/page.js%00.html", b"/download_file/../../x", b"/download_file/%2e%2e%2fx",
         b"/download_file/" + b"a" * 3000, b"/translate?q=%ud800", b"/translate?" + b"q=a&" * 10_000,
         "/\u00fc".encode(), b"/openapi.json")  # fmt: skip
HEADERS = (
    *(
        b"Host: a\r\nHost: b",
        b"Host: a\xff/\\@:99999999",
        b"Host:",
        b"Host: " + b"a" * 60_000,
        b"X: " + b"a" * 200_000,
    ),
    *(b"\r\n".join(b"X%d: a" % index for index in range(5000)), b"X: a\0b", b"X\0: a", b"no colon", b": a", b"X Y: a"),
    *(
        b"X: a\r\n b",
        b"X: a\rb",
        b"X: \xff",
        b"Expect: 100-continue",
        b"Expect: 200-ok",
        b"Connection: " + b"close," * 5000,
    ),
    *(
        b"Connection: Host, Content-Length",
        b"X-Forwarded-For: " + b"1.2.3.4, " * 3000,
        b"X-Forwarded-For: \xff;,,::1%eth0",
    ),
    *(
        b"X-Forwarded-For: [::1]:80",
        b"X-Forwarded-Proto: javascript",
        b"Authorization: Bearer \xff\xfe",
        b"Origin: null",
    ),
    *(b"Authorization: Bearer " + b"a" * 50_000, b"Range: bytes=0-,0-,0-", b"Cookie: " + b"a=b;" * 10_000),
    *(b"Content-Encoding: gzip", b"Upgrade: websocket\r\nConnection: Upgrade", b"Upgrade: h2c\r\nConnection: Upgrade"),
)
TYPES = (b"application/json; charset=utf-16", b"application/json; charset=" + b"x" * 9000, b"multipart/form-data",
         b"\xff", b"multipart/form-data; boundary=", b"multipart/form-data; boundary=" + b"a" * 300,
         b"multipart/mixed; boundary=x", b"application/x-www-form-urlencoded; charset=idna", b"a/b/c;;;=",
         b"application/json, text/plain")  # fmt: skip
FORMS = (
    form(part(b"Content-Disposition: form-data")),
    form(part(b"")),
    form(part(NAMED % (b"a" * 90_000))),
    form(part(NAMED % b"q"), end=b""),
    form(part(b'Content-Disposition: form-data; name="q\0"; filename="\0"')),
    form(part(FILE % b"../../../etc/x.html", b"<p>a"), *LANGUAGES),
    form(part(FILE % b"a\r\nX: y.html", b"<p>a"), *LANGUAGES),
    form(part(b"Content-Disposition: form-data; name=file; filename*=UTF-8''%ff%00", b"<p>a"), *LANGUAGES),
    form(part(NAMED % b"q" + b"\r\nContent-Transfer-Encoding: base64", b"////"), *LANGUAGES),
    form(part(NAMED % b"q" + b"\r\nContent-Type: text/plain; charset=rot13", b"\xff"), *LANGUAGES),
    form(*[part(FILE % b"a.html", b"<p>a")] * 2, *LANGUAGES),
)
FIELDS = (b'{"q": NaN}', b"[" * 60_000, b'{"a":' * 20_000, BODY + b"x", b"null", b'"a"', b"", b'{"q":"\xff"}',
          json.dumps({"q": "a"}).encode("utf-16"), b"\xef\xbb\xbf" + BODY, b'{"q":true,"source":false,"target":null}',
          *(b'{"source":"en","target":"de",%b}' % field for field in (
              b'"q":"a","num_beams":1e999', b'"q":"a","num_beams":' + b"9" * 5000, b'"q":"a","q":"b"',
              b'"q":"\\ud800"', b'"q":"\\u0000"', b'"q":{"a":1}', b'"q":[[["a"]]]',
              b'"q":"a","' + b"x" * 20_000 + b'":1', b'"q":"a","__proto__":{"q":1}', b'"q":"a","alternatives":-1',
              b'"q":"a","alternatives":1000000', b'"q":"a","format":"\\u0000"',
         b'"q":"a","source":["en"]')))  # fmt: skip
REQUESTS: list[bytes] = [
    *(request(b"Content-Length: " + length, has_length=False) for length in LENGTHS),
    *(request(b"Content-Length: " + length) for length in LENGTHS),
    *(chunked(WHOLE, b"Transfer-Encoding: " + name) for name in TRANSFERS),
    *(request(b"Transfer-Encoding: " + name, body=WHOLE) for name in TRANSFERS),
    *(chunked(size + b"\r\nhello\r\n0\r\n\r\n") for size in CHUNKS),
    chunked(WHOLE, b"Transfer-Encoding : chunked"),
    chunked(WHOLE.replace(b"\r\n", b"\n")),
    chunked(b"5\r\nhello0\r\n\r\n"),
    chunked(WHOLE[:-2] + b"Content-Length: 5\r\nX: " + b"a" * 200_000 + b"\r\n\r\n"),
    chunked(b"".join(b"1\r\n%c\r\n" % byte for byte in BODY) + b"0\r\n\r\n"),
    chunked((b"ffff\r\n" + b"a" * 65_535 + b"\r\n") * 3 + b"0\r\n\r\n"),
    *(line + b"\r\nHost: localhost\r\n\r\n" for line in LINES),
    HEALTH.replace(b"\r\n", b"\n"),
    HEALTH.replace(b"\r\n", b"\r"),
    HEALTH * 500,
    request() * 100,
    request() + bytes(4) + b"\r\n\r\n",
    request() + HEALTH[:20],
    *(request(body=b"", line=b"GET %b HTTP/1.1" % path) for path in PATHS),
    *(request(header) for header in HEADERS),
    *(request(b"Content-Type: " + name) for name in TYPES),
    *(whole for requests in FORMS for whole in requests),
    *(request(body=body, line=b"POST %b HTTP/1.1" % path) for body in FIELDS for path in (b"/translate", b"/cover")),
    b"",
    b"POST /tr",
    request(body=BODY[:5], has_length=False),
]


async def answers_to(address: str, request_bytes: bytes) -> bytes:
    """Return all that the server sends until it closes the connection, which we close for sending."""
    reader, writer = await asyncio.open_connection(*address.removeprefix("http://").split(":"))
    answers = b""
    try:
        writer.write(request_bytes)
        await writer.drain()
        with contextlib.suppress(OSError):  # the server has answered and closed; what it sent can still be read
            writer.write_eof()
        while content := await reader.read(1 << 16):
            answers += content
    except ConnectionError:  # closed before it was all sent
        pass
    finally:
        writer.close()
    return answers


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_every_raw_request_is_answered_and_the_next_client_is_served(serve_fake, tmp_path):
    process, address = serve_fake(read_seconds=2)

    async def send(request_bytes: bytes) -> bytes:
        return await asyncio.wait_for(answers_to(address, request_bytes), MAX_SECONDS)

    for request_bytes in REQUESTS:
        answers = asyncio.run(send(request_bytes))
        shown = request_bytes[:200]
        assert answers[:9] in (b"", b"HTTP/1.1 "), shown
        statuses = set(re.findall(rb"^HTTP/1\.1 (\d{3})", answers, re.MULTILINE))
        assert not {status for status in statuses if status.startswith(b"5")} - {b"501"}, (shown, answers[-200:])
        assert asyncio.run(send(HEALTH)).endswith(b'{"status":"ok"}'), shown
        assert process.poll() is None
    assert "Traceback" not in (tmp_path / "stderr").read_text()
