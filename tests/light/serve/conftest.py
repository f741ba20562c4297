"""Servers in processes of their own."""

import fcntl
import os
import re
import resource
import signal
import subprocess
import sys
import termios

import pytest

from tests.light.serve.processes import FAKE, GOLDEN, ROOT


@pytest.fixture
def start(tmp_path):
    """Start a command that serves; return the process and its address.

    files: how many files it may have open at once.
    terminal: the file descriptor of its controlling terminal.
    """
    started = []

    def start(*command, files=None, terminal=None):
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
        command = [sys.executable, *command]

        def prepare():
            signal.signal(signal.SIGHUP, signal.SIG_DFL)  # which nohup ignores, if it runs the tests
            if files is not None:
                resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
            if terminal is not None:
                fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)

        with open(tmp_path / "stderr", "wb") as errors:
            server = subprocess.Popen(
                command,
                cwd=tmp_path,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                preexec_fn=prepare,
                pass_fds=() if terminal is None else (terminal,),
                start_new_session=terminal is not None,
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
    def serve_fake(seconds=0.0, *, terminal=None, **changes):
        settings = {"read_seconds": 10.0, "stop_seconds": 10, "most_connections": 100, "file_seconds": 5, **changes}
        return start("-c", FAKE.format(seconds=seconds, **settings), terminal=terminal)

    return serve_fake
