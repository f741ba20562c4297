"""Servers in processes of their own."""

import os
import re
import resource
import subprocess
import sys

import pytest

from tests.light.serve.processes import FAKE, GOLDEN, ROOT


@pytest.fixture
def start(tmp_path):
    """Start a command that serves, with at most `files` files open at once; return the process and its address."""
    started = []

    def start(*command, files=None):
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
        command = [sys.executable, *command]
        limit = files and (lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (files, files)))
        with open(tmp_path / "stderr", "wb") as errors:
            server = subprocess.Popen(
                command,
                cwd=tmp_path,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                preexec_fn=limit,
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
    def serve(*options, files=None):
        return start("-m", "capsule_mt", "serve", f"en-de={GOLDEN}", "--port", "0", *options, files=files)

    return serve


@pytest.fixture
def serve_fake(start):
    def serve_fake(seconds=0.0, **changes):
        settings = {"read_seconds": 10.0, "stop_seconds": 10, "most_connections": 100, "file_seconds": 5, **changes}
        return start("-c", FAKE.format(seconds=seconds, **settings))

    return serve_fake
