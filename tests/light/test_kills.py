"""Every command that writes, killed before each change of its folder: the same command then ends as if none was."""

import os
import shutil
import sys
from pathlib import Path

import pytest

from capsule_mt.commands import calibrate, convert, score, translate
from tests.fixtures.kills import is_killed
from tests.fixtures.students import write_student
from tests.fixtures.word_for_word import TRANSLATION, sentences

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform == "win32", reason="forks")]

MAX_KILLS = 30  # of a command with more changes, at equal distances
COMMANDS = {
    "lines": (translate, "model --input in.txt --output out/text --coverage out/c.tsv --alignments out/a --window 2"),
    "a catalog": (translate, "model --input in.po --output out/out.po --coverage out/c.jsonl --window 2"),
    "scores": (
        score,
        "model --sources in.txt --translations target.txt --output out/scores.tsv --window 2 --coverage deletion",
    ),
    "int8": (convert, "model out/int8 --to int8"),
    "web": (convert, "model out/web --to web --languages en-de"),
    "huggingface": (convert, "student out/hf --to huggingface"),
    "a calibration": (calibrate, "model many.txt many.target --sentences 20 --method deletion --output out/model"),
    "a calibration in place": (calibrate, "out/own many.txt many.target --sentences 20 --method deletion"),
}


@pytest.fixture
def folder(word_for_word, tmp_path, monkeypatch):
    lines, many = sentences(6, seed=5), sentences(60, seed=6)
    shutil.copytree(word_for_word, tmp_path / "model")
    write_student(tmp_path / "student")
    (tmp_path / "in.txt").write_text("\n".join(lines) + "\n")
    entries = "".join(f'\nmsgid "{line}"\nmsgstr ""\n' for line in lines)
    (tmp_path / "in.po").write_text('msgid ""\nmsgstr "Content-Type: text/plain; charset=UTF-8\\n"\n' + entries)
    for name, texts in (("target.txt", lines), ("many.target", many)):
        words = (" ".join(TRANSLATION[word] for word in text.split()) for text in texts)
        (tmp_path / name).write_text("".join(f"{line}\n" for line in words))
    (tmp_path / "many.txt").write_text("".join(f"{line}\n" for line in many))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def prepare(folder):
    shutil.rmtree(folder / "out", ignore_errors=True)
    shutil.copytree(folder / "model", folder / "out" / "own")


def contents(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_killed_command_runs_again(name, folder):
    module, arguments = COMMANDS[name]
    out = folder / "out"

    def run():
        for stream in (1, 2):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
        sys.argv = [f"capsule-mt {module.__name__.rpartition('.')[2]}", *arguments.split()]
        module.main()

    def is_killed_before(change):
        prepare(folder)
        return is_killed(run, change, out)

    assert not is_killed_before(10**6)
    expected = contents(out)
    num_changes = 1
    while is_killed_before(num_changes):
        num_changes *= 2
    changes = range(1, num_changes, max(1, num_changes // MAX_KILLS))
    num_kills = 0
    for change in changes:
        if not is_killed_before(change):
            break
        num_kills += 1
        if module is convert and expected.items() <= contents(out).items():
            continue  # killed after its last step: it refuses a folder that is there
        assert not is_killed(run, 10**6, out)
        assert contents(out) == expected, change
    assert num_kills >= 4
    print(f"{name}: {num_kills} kills")


def test_two_processes_on_one_output(folder):
    """The second is refused while the first one writes, and no lock stays."""
    from capsule_mt.files.lock import OutputTakenError, lock_output

    prepare(folder)
    for name in ("lines", "scores", "int8", "a calibration in place"):
        module, arguments = COMMANDS[name]
        words = arguments.split()
        target = words[0] if "in place" in name else next(word for word in words if word.startswith("out/"))
        sys.argv = ["capsule-mt", *words]
        with lock_output(folder / target), pytest.raises(OutputTakenError):
            module.main()
    assert not list(Path(folder, "out").rglob(".*lock*"))
