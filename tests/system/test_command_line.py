"""Wrong input to a command is one line that names it, without a traceback; the help shows the defaults."""

import argparse
import errno
import importlib.util
import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch

import hf_capsule_mt.commands
from capsule_mt.commands import COMMANDS, main
from capsule_mt.commands.console import TRACEBACK, run
from hf_capsule_mt.training import distillation
from tests.fixtures.tiny import save_tiny_checkpoint

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
NAMES = [*COMMANDS, *(name for group in hf_capsule_mt.commands.COMMANDS.values() for name in group)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("input")
    save_tiny_checkpoint(folder / "em", layer_aggregation="em_routing", layer_aggregation_num_capsules=4)
    (folder / "broken").mkdir()  # passes for a checkpoint until it is loaded
    (folder / "broken" / "config.json").write_text("{bad")
    (folder / "empty").touch()
    (folder / "empty_folder").mkdir()
    (folder / "marian").mkdir()
    (folder / "marian" / "model.npz").touch()
    (folder / "three").write_text("a cat\na dog\na man\n")
    (folder / "two").write_text("a cat\na dog\n")
    (folder / "bad.yaml").write_text("a: [b\n")
    return folder


WRONG = {
    "evaluate --hypotheses nofile --references two": "nofile: no such file",
    "evaluate --hypotheses two --references two --tokenize x": "`tokenize` must be one of none, zh, 13a, ",
    "analyze empty_folder --sources two --targets two --output out": "empty_folder: not a checkpoint",
    "shortlist marian two two": "marian: not a checkpoint (a folder with a config.json), but a folder of Marian: "
    "convert it by `capsule-mt convert marian OUT --to huggingface`, and use OUT",
    "average --checkpoints marian marian --output out": "it by `capsule-mt convert marian OUT --to huggingface`, and",
    "analyze em --sources two --targets two --show 3 --output out": "--show 3: two has 2 sentences",
    "average --checkpoints em em --output em/../em": "has weights of its own, which the average would replace: name a",
    "push em model": "`repo_id` must be owner/name, such as your-name/model, got 'model'",
    "push nofolder owner/model": "nofolder: no such folder",
    "train bad.yaml": "bad.yaml: not YAML",
    "train embedded/plain --init_from empty_folder/a --output_dir out": "empty_folder/a: no such folder; the hub is",
    "train embedded/plain --bf16 maybe": "`training.bf16` must be bool, got 'maybe'",
    "translate em --input two --num-beams 0": "--num-beams: must be a whole number from 1 to 256, got 0",
    "translate em --input two --int8 --dtype bfloat16": "`int8=True` is for one float32 model on a CPU",
    "translate em --input two --coverage out.tsv --coverage-method attention": "needs a head that aligns words",
    "score em --sources two --translations three": "two: has 2 lines, but three has more",
    "score em --sources two --translations two --coverage verified": "a reverse model: give em a",
    "shortlist em empty empty": "empty: no sentences",
    "translate em --input two --shortlist": "`capsule-mt shortlist CHECKPOINT SOURCE TARGET` of hf-capsule-mt",
    # outputs are refused before anything is read
    "translate broken --input two --output two": "two is read and written",
    "export em empty_folder/../em": "empty_folder/../em: exists and is not empty; name a new folder",
    "compare a=three b=two --references two --output empty/out": "empty is a file",
}


@pytest.mark.parametrize("command", WRONG)
def test_wrong_input(command, folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    monkeypatch.setattr("sys.argv", ["capsule-mt", *command.split()])
    assert_complains(main, WRONG[command], capsys)


def assert_complains(call, message, capsys):
    with pytest.raises(SystemExit) as stopped:
        call()
    code, said = stopped.value.code, capsys.readouterr().err
    if isinstance(code, str):  # the interpreter prints it, and exits with 1
        said, code = said + code, 1
    assert code in (1, 2)
    assert message in said
    assert "Traceback" not in said


def raising(error):
    return Mock(side_effect=error)


def test_errors_of_the_user_are_one_line_and_bugs_have_a_traceback(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["scripts/some.py"])
    run(lambda: None)
    with pytest.raises(SystemExit, match=r"^3$"):
        run(lambda: 3)
    wrong = ValueError("`size` must be\n  even")
    with pytest.raises(SystemExit, match=r"^some\.py: error: `size` must be even$"):
        run(raising(wrong))
    for error in (MemoryError(), torch.OutOfMemoryError("out of memory"), OSError(errno.ENOSPC, "No space left")):
        with pytest.raises(SystemExit, match=r"^some\.py: error: .*(out of memory|No space left)"):
            run(raising(error))
    with pytest.raises(RuntimeError, match="shapes differ"):  # a bug
        run(raising(RuntimeError("shapes differ")))
    monkeypatch.setenv(TRACEBACK, "1")
    with pytest.raises(ValueError, match="even"):
        run(raising(wrong))


@pytest.fixture
def _own_handler():
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, handler)


def interrupted(command, monkeypatch, capfd):
    """Run a command that Ctrl-C ends; return the only line that it must have printed."""
    monkeypatch.setattr("sys.argv", ["capsule-mt", *command.split()])
    with pytest.raises(SystemExit, match=r"^130$"):
        sys.exit(main())
    assert signal.getsignal(signal.SIGINT) != signal.default_int_handler  # a second Ctrl-C prints no traceback
    return capfd.readouterr().err.splitlines()[-1]


@pytest.mark.usefixtures("_own_handler")
@pytest.mark.parametrize("name", NAMES)
def test_ctrl_c_is_one_sentence(name, monkeypatch, capfd):
    if name == "serve" and importlib.util.find_spec("fastapi") is None:
        pytest.skip("`capsule-mt serve` needs fastapi, which is not installed")
    for parse in ("parse_args", "parse_known_args"):
        monkeypatch.setattr(argparse.ArgumentParser, parse, lambda *_: os.kill(os.getpid(), signal.SIGINT))
    message = interrupted(name, monkeypatch, capfd)
    resumes = "; the same command resumes" if name in ("train", "distill") else ""
    assert message == f"capsule-mt {name}: interrupted{resumes}"


@pytest.mark.usefixtures("_own_handler")
@pytest.mark.parametrize(
    ("command", "resumes"),
    [
        ("translate em --input two --cpu --output cut", True),
        ("translate em --input two --cpu", False),
        ("score em --sources two --translations two --cpu --output cut.tsv", True),
        ("distill recipe.yaml parts --teacher em --cpu", True),
    ],
)
def test_ctrl_c_at_work_says_whether_the_same_command_resumes(command, resumes, folder, monkeypatch, capfd):
    recipe = "data: {train: {embedded: 2}}\nlanguages: {source: en, target: de}\nmodel: {model_type: capsnmt}\n"
    recipe += "tokenizer: {vocab_size: 300}"
    (folder / "recipe.yaml").write_text(recipe)

    def kill(*arguments, **settings):
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.chdir(folder)
    monkeypatch.setattr("capsule_mt.files.lines.translate_lines", kill)
    monkeypatch.setattr(distillation, "translate_lines", kill)
    message = interrupted(command, monkeypatch, capfd)
    assert message == f"capsule-mt {command.split()[0]}: interrupted" + (
        "; the same command resumes" if resumes else ""
    )
    assert not list(folder.glob(".*lock*"))
    assert not (folder / "cut").exists()


def test_ctrl_c_in_a_pipe(folder):
    command = [sys.executable, "-m", "capsule_mt", "translate", "em", "--cpu", "--window", "1"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    # a shell's background jobs ignore Ctrl-C, and so would what they start
    listen = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    with subprocess.Popen(command, cwd=folder, text=True, preexec_fn=listen, **pipes) as process:
        process.stdin.write("a cat\n" * 3)
        process.stdin.flush()
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        complaints = process.stderr.read()
    assert process.returncode == 130
    assert f"\n{complaints}".endswith("\ncapsule-mt translate: interrupted\n")  # on a line of its own
    assert "Traceback" not in complaints


@pytest.mark.parametrize("said", ["print('a' * 10**6)", "print('a')"])
def test_a_reader_that_is_gone(said):
    code = "import sys\nfrom capsule_mt.commands.console import run\n"
    code += f"sys.stdin.read()\nrun(lambda: {said} and None)"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        process.stdout.close()  # before anything is said
        process.stdin.close()
        complaint = process.stderr.read()
    assert (process.returncode, complaint) == (141, "")


def test_a_full_disk_behind_stdout():
    code = "import sys\nfrom capsule_mt.commands.console import run\nsys.argv = ['some']\nrun(lambda: print('a'))"
    with open("/dev/full", "w") as full:
        process = subprocess.run(
            [sys.executable, "-c", code], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert (process.returncode, process.stderr) == (1, "some: error: [Errno 28] No space left on device\n")
