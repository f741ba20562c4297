"""nginx and Caddy in front of a server, with the configurations of docs/serving.md and our ports and certificates."""

import contextlib
import re
import shutil
import socket
import ssl
import subprocess
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

pytest.importorskip("uvicorn")

import httpx

from capsule_mt.serve.clients import WRONG_KEYS_A_MINUTE
from tests.light.serve.processes import ROOT

PAGE = ROOT / "docs" / "serving.md"
HOST = "translate.example.org"
REQUEST = {"q": "a b", "source": "en", "target": "de"}


def example(first_words):
    """Return the code block of the page that starts with these words."""
    return re.search(rf"```\n({re.escape(first_words)}.*?)```", PAGE.read_text(), re.DOTALL)[1]


@pytest.fixture
def free_port():
    """A port for a proxy, bound until the test ends: so the system gives it to no other test."""
    with socket.socket() as reservation:
        reservation.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as nginx and Caddy do, which share it
        reservation.bind(("127.0.0.1", 0))
        yield reservation.getsockname()[1]


def nginx(folder, port, server):
    certificate = ["-keyout", folder / "key.pem", "-out", folder / "certificate.pem", "-subj", f"/CN={HOST}"]
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    subprocess.run(["openssl", "req", "-x509", *key, *certificate], check=True, capture_output=True)
    site = example("limit_conn_zone").replace("listen 443 ssl", f"listen 127.0.0.1:{port} ssl")
    site = site.replace("/etc/ssl/translate.pem", f"{folder}/certificate.pem").replace("127.0.0.1:5000", server)
    site = site.replace("/etc/ssl/translate.key", f"{folder}/key.pem")
    paths = "".join(
        f"{name}_temp_path {folder}/{name};\n" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    (folder / "nginx.conf").write_text(
        f"daemon off; pid {folder}/pid; error_log stderr;\nevents {{}}\nhttp {{\naccess_log off;\n{paths}{site}}}\n"
    )
    return ["nginx", "-c", folder / "nginx.conf", "-e", "stderr"], f"https://127.0.0.1:{port}"


def caddy(folder, port, server):
    site = example(HOST).replace("127.0.0.1:5000", server).replace(f"{HOST} {{", f"http://{HOST}:{port} {{", 1)
    (folder / "Caddyfile").write_text(f"{{\n    admin off\n    auto_https off\n}}\n{site}")
    return ["caddy", "run", "--adapter", "caddyfile", "--config", folder / "Caddyfile"], f"http://127.0.0.1:{port}"


def client_at(address, local_address=None):
    """Return a client of the proxy at `address`, which connects from `local_address`."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    transport = httpx.HTTPTransport(verify=context, local_address=local_address)
    return httpx.Client(base_url=address, headers={"Host": HOST}, transport=transport, timeout=120)


@contextlib.contextmanager
def running(command, address):
    proxy = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        with client_at(address) as client:
            for _ in range(600):
                if proxy.poll() is not None:
                    raise AssertionError(proxy.stderr.read())
                with contextlib.suppress(httpx.TransportError):
                    if client.get("/health").status_code == 200:
                        break
                time.sleep(0.1)
            yield client
    finally:
        proxy.terminate()
        proxy.communicate()


def status_of_long_request(client):
    """Post a request that is too long and return the status; retry, as the server's early close may cut its answer."""
    for _ in range(5):
        with contextlib.suppress(httpx.RemoteProtocolError):
            headers = {"Content-Type": "application/json"}
            return client.post("/translate", content=b"x" * 200_000, headers=headers).status_code
    return None


@pytest.mark.parametrize(("options", "status"), [((), 429), (("--proxies", "127.0.0.0/8"), 200)])
def test_only_a_trusted_proxy_may_state_client_addresses(options, status, serve):
    _, server = serve("--req-limit", "1", *options)
    for address, expected in (("192.0.2.1", 200), ("192.0.2.2", status)):
        headers = {"X-Forwarded-For": address}
        assert httpx.post(f"{server}/translate", json=REQUEST, headers=headers).status_code == expected


@pytest.fixture(params=[nginx, caddy])
def proxy(request):
    if shutil.which(request.param.__name__) is None:
        pytest.skip(f"{request.param.__name__} is not installed")
    return request.param


@pytest.mark.slow
def test_the_examples_of_the_page(proxy, free_port, serve, tmp_path):
    """They forward requests with the client's address and the host name, and refuse long ones."""
    _, server = serve("--hosts", HOST, "--proxies", "127.0.0.1", "--req-limit", "3", "--read-seconds", "2")
    folder = tmp_path / "proxy"
    folder.mkdir()
    with running(*proxy(folder, free_port, server.removeprefix("http://"))) as client:
        assert client.post("/translate", json=REQUEST).status_code == 200
        assert status_of_long_request(client) in (413, 502)  # Caddy 2.6 answers 502
        response = client.post("/translate", json=REQUEST, headers={"X-Forwarded-For": "10.0.0.1"})
        assert response.status_code == 200  # counted for its real address: the client's header is ignored
        for address in ("10.0.0.2", "10.0.0.3"):
            last = client.post("/translate", json=REQUEST, headers={"X-Forwarded-For": address})
        assert last.status_code == 429
        assert (
            httpx.post(f"{server}/translate", json=REQUEST).status_code == 400
        )  # under a host name that is not allowed


@pytest.mark.slow
def test_files_and_keys_through_the_examples_of_the_page(proxy, free_port, serve, tmp_path):
    """A file's link has the proxy's address, large files are refused, and wrong keys count against their client."""
    folder, keys = tmp_path / "proxy", tmp_path / "keys"
    folder.mkdir()
    keys.write_text("right")
    _, server = serve("--hosts", HOST, "--proxies", "127.0.0.1", "--api-keys", str(keys))
    command, address = proxy(folder, free_port, server.removeprefix("http://"))
    with running(command, address) as client, client_at(address, "127.0.0.2") as stranger:

        def upload(content):
            data = {"source": "en", "target": "de", "api_key": "right"}
            return client.post("/translate_file", data=data, files={"file": ("a.md", content)})

        response = upload(b"a *b*\n")
        assert response.status_code == 200, response.text
        url = httpx.URL(response.json()["translatedFileUrl"])
        assert (url.scheme, url.host) == (httpx.URL(address).scheme, HOST)
        assert client.get(url.raw_path.decode()).content.endswith(b"\n")
        with contextlib.suppress(httpx.TransportError):  # the proxy closes the connection early
            assert upload(b"a" * 1_000_000).status_code in (413, 502)
        with ThreadPoolExecutor(WRONG_KEYS_A_MINUTE + 5) as threads:  # at once, as the allowance refills with time
            options = {"json": {**REQUEST, "api_key": "wrong"}}
            attempts = [threads.submit(stranger.post, "/translate", **options) for _ in range(WRONG_KEYS_A_MINUTE + 5)]
        statuses = Counter(attempt.result().status_code for attempt in attempts)
        assert statuses.keys() == {403, 429}
        assert statuses[403] >= WRONG_KEYS_A_MINUTE
        assert client.post("/translate", json={**REQUEST, "api_key": "right"}).status_code == 200
