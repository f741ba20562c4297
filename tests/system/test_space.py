"""The Space in examples/: a person sees the routing of a sentence. It needs gradio, which no extra has: 340 MB."""

import importlib.util
import os
import socket
import subprocess
import sys
import time

import pytest

from tests.conftest import GOLDEN

ROOT = GOLDEN.parents[1]
IS_MISSING = importlib.util.find_spec("gradio") is None


@pytest.mark.slow
@pytest.mark.skipif(IS_MISSING, reason="gradio is not installed: pip install gradio")
def test_a_sentence_and_its_pictures(browser, screenshots, tmp_path):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    paths = os.pathsep.join((str(ROOT), os.environ.get("PYTHONPATH", "")))
    environment = {**os.environ, "PYTHONPATH": paths, "GRADIO_SERVER_PORT": str(port), "GRADIO_ANALYTICS_ENABLED": "0"}
    process = subprocess.Popen([sys.executable, ROOT / "examples/space/app.py"], cwd=tmp_path, env=environment)
    try:
        deadline = time.monotonic() + 300
        while socket.socket().connect_ex(("127.0.0.1", port)) and process.poll() is None:
            assert time.monotonic() < deadline, "the Space does not answer"
            time.sleep(0.5)
        page = browser.new_page()
        page.set_default_timeout(300_000)
        page.goto(f"http://127.0.0.1:{port}")
        page.get_by_role("button", name="Translate and draw").click()
        page.locator("img[alt=routing]").first.wait_for()
        assert page.get_by_label("Translation").input_value() == "I bought a new book yesterday."
        assert page.locator("img[alt=routing]").count() == 1
        assert page.evaluate("document.querySelector('img[alt=routing]').naturalWidth") > 300
        page.screenshot(path=screenshots / "space.png", full_page=True)
    finally:
        process.terminate()
        process.wait(30)
