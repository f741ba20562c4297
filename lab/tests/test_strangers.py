"""Ordinary clients lose nothing beside hostile ones, in a short run; and what is lost is noticed."""

import argparse
import asyncio
import sys
from collections import Counter

import pytest

pytest.importorskip("uvicorn")

from lab import strangers
from tests.conftest import GOLDEN

linux = pytest.mark.skipif(sys.platform != "linux", reason="each client has an address of its own")


@linux
@pytest.mark.slow
def test_a_short_run(tmp_path, monkeypatch, capsys):
    checkpoint = tmp_path / "golden-en-de"
    checkpoint.symlink_to(GOLDEN / "capsule_marian")
    words = f"--checkpoint {checkpoint} --minutes 0.3 --clients 4 --turn-seconds 4".split()
    monkeypatch.setattr(sys, "argv", ["lab.strangers", *words])
    assert strangers.main() == 0
    assert "0 failures." in capsys.readouterr().out


def test_a_wrong_answer_is_noticed():
    load = strangers.Load(
        answers={"letters": Counter({"200": 3})}, memory=[70.0, 71.0], failures=["got another's text"]
    )
    load.seconds = {False: [0.1, 0.2], True: [0.3, 0.4]}
    arguments = argparse.Namespace(minutes=1.0, clients=2)
    text = strangers.render(strangers.summary(load, arguments))
    assert "| beside hostile ones | 2 | 400 | 400 |" in text
    assert "1 failures.\n\n- got another's text" in text

    async def lost():
        raise ConnectionResetError("the line is dead")

    asyncio.run(strangers._watched("letters", lost(), load))
    assert load.failures[-1] == "letters: ConnectionResetError: the line is dead"
