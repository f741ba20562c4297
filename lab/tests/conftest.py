"""Run every test offline, seeded and on one thread, as tests/conftest.py does, commands in a folder of their own."""

import itertools
import runpy

import pytest

from hf_capsule_mt.data import sentence_pairs
from tests.conftest import _seeded

__all__ = ["_seeded"]


@pytest.fixture
def pictures():
    """Skip a command that draws where matplotlib is missing."""
    pytest.importorskip("matplotlib", reason="pictures need matplotlib").use("agg")


@pytest.fixture
def command(monkeypatch, tmp_path, capsys):
    """Run a command in a folder with text: train.en/de, test.en/de, and two systems' translations of the latter."""
    pairs = list(itertools.islice(sentence_pairs(), 340))
    for name, part in (("train", pairs[:300]), ("test", pairs[300:])):
        for side, language in enumerate(("en", "de")):
            (tmp_path / f"{name}.{language}").write_text("".join(f"{pair[side]}\n" for pair in part))
    targets = [german for _, german in pairs[300:]]
    worse = [" ".join(line.split()[: -(n % 3) or None]) for n, line in enumerate(targets)]
    (tmp_path / "good.hyp").write_text("".join(f"{line}\n" for line in targets))
    (tmp_path / "worse.hyp").write_text("".join(f"{line}\n" for line in worse))
    monkeypatch.chdir(tmp_path)

    def run(name: str, arguments: str) -> str:
        monkeypatch.setattr("sys.argv", [name, *arguments.split()])
        runpy.run_module(f"lab.{name}", run_name="__main__")
        return capsys.readouterr().out

    return run
