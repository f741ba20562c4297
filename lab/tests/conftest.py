"""Run every test offline, seeded and on one thread, as tests/conftest.py does, commands in a folder of their own."""

import runpy

import pytest

from tests.conftest import _seeded, pictures, text_folder

__all__ = ["_seeded", "pictures", "text_folder"]


@pytest.fixture
def command(monkeypatch, text_folder, capsys):
    """Run a command in a folder with text."""

    def run(name: str, arguments: str) -> str:
        monkeypatch.setattr("sys.argv", [name, *arguments.split()])
        runpy.run_module(name, run_name="__main__")
        return capsys.readouterr().out

    return run
