"""Ordinary clients lose nothing beside hostile ones, in a short run; and what is lost is noticed."""

import asyncio
import contextlib
import sys

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


def test_a_client_ends_that_missed_its_cancellation():
    async def deaf():
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(60)
        await asyncio.sleep(60)

    async def end():
        task = asyncio.create_task(deaf())
        await asyncio.sleep(0)
        await asyncio.wait_for(strangers._end([task]), 120)
        assert task.cancelled()

    asyncio.run(end())
