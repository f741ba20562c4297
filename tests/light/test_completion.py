"""`capsule-mt completion`: what a word may become, and the scripts in real shells."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from capsule_mt.commands import COMMANDS, completion, console
from capsule_mt.commands.completion import candidates

REPOSITORY = Path(__file__).parents[2]
SHELLS = {
    "bash": "{script}\nCOMP_WORDS=(capsule-mt {words} '{prefix}') COMP_CWORD={index}; _capsule_mt\n"
    "echo ${{COMPREPLY[@]}}",
    "fish": "{script}\ncomplete -C 'capsule-mt {words} {prefix}'",
}


@pytest.fixture(autouse=True)
def restored(monkeypatch):
    """Undo, after a test, what completion replaces in this process."""
    monkeypatch.setattr(console, "print_help", None)
    monkeypatch.setattr(sys, "argv", [])


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["transl"], ["translate"]),
        (["help", "sc"], ["score"]),
        (["translate", "--form"], ["--format"]),
        (["translate", "--format", "x"], ["xliff"]),
        (["translate", "--format", "=", "x"], ["xliff"]),  # as bash cuts --format=x
        (["translate", "--output", "x"], []),  # a file
        (["models", "re"], ["remove"]),
        (["models", "remove", "--"], ["--help"]),
        (["convert", "--te"], ["--text"]),
        (["nothing", "x"], []),
    ],
)
def test_what_a_word_may_become(words, expected):
    assert candidates(words) == expected


def test_no_command_is_run_and_each_has_its_options(capsys):
    for command in set(COMMANDS) - {"completion"}:
        assert {"-h", "--help"} <= set(candidates([command, "-"])), command
    assert capsys.readouterr() == ("", "")


def test_downloaded_models_are_named(monkeypatch, tmp_path):
    monkeypatch.setenv("CAPSULE_MT_CACHE", str(tmp_path))
    assert candidates(["translate", "en"]) == []
    monkeypatch.setattr("capsule_mt.catalog.store.downloaded_models", lambda: [type("Model", (), {"name": "en-pt"})])
    assert candidates(["translate", "en"]) == candidates(["models", "remove", "en"]) == ["en-pt"]


@pytest.mark.parametrize("shell", SHELLS)
def test_a_shell_takes_the_script(shell, tmp_path):
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    program = tmp_path / "capsule-mt"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m capsule_mt "$@"\n')
    program.chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHONPATH": str(REPOSITORY)}
    for words, prefix, expected in (("", "transl", "translate"), ("translate --format", "x", "xliff")):
        line = SHELLS[shell].format(
            script=completion.SCRIPTS[shell], words=words, prefix=prefix, index=len(words.split()) + 1
        )
        process = subprocess.run([shell, "-c", line], capture_output=True, text=True, env=environment, check=False)
        assert process.stdout.split() == [expected], process.stderr
