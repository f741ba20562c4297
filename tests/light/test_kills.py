"""Commands that write, killed before each change of their folder, or on a full disk: they then end as if none was."""

import re
import shutil
import sys
from importlib import import_module
from pathlib import Path

import pytest

from capsule_mt.conversions.to_huggingface import write_huggingface
from tests.fixtures.kills import KILLS, contents, count_kills, refusal_by_a_full_disk, run_program
from tests.fixtures.students import write_student
from tests.fixtures.word_for_word import TRANSLATION, sentences

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform == "win32", reason="forks")]

COMMANDS = {
    "lines": "translate model --input in.txt --output out/text --coverage out/c.tsv --alignments out/a --window 2",
    "a catalog": "translate model --input in.po --output out/out.po --coverage out/c.jsonl --window 2",
    "scores": (
        "score model --sources in.txt --translations target.txt --output out/scores.tsv --window 2 --coverage deletion"
    ),
    "int8": "convert model out/int8 --to int8",
    "small": "convert model out/small --to small --text in.txt",
    "web": "convert model out/web --to web --languages en-de",
    "huggingface": "convert student out/hf --to huggingface",
    "marian": "convert checkpoint out/marian --to marian",
    "a calibration": "calibrate model many.txt many.target --sentences 20 --method deletion --output out/model",
    "a calibration in place": "calibrate out/own many.txt many.target --sentences 20 --method deletion",
}


@pytest.fixture
def folder(word_for_word, tmp_path, monkeypatch):
    lines, many = sentences(6, seed=5), sentences(60, seed=6)
    shutil.copytree(word_for_word, tmp_path / "model")
    write_huggingface(write_student(tmp_path / "student"), tmp_path / "checkpoint")
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


@pytest.mark.parametrize("name", COMMANDS)
def test_a_killed_command_runs_again(name, folder):
    num_kills = count_kills(COMMANDS[name], folder / "out", lambda: prepare(folder))
    print(f"{name}: {num_kills} kills")
    assert num_kills >= KILLS[name]


@pytest.mark.parametrize("name", COMMANDS)
def test_a_full_disk_is_one_error_and_old_files_stay(name, folder):
    out, arguments = folder / "out", COMMANDS[name]
    prepare(folder)
    original = contents(out)
    assert run_program(arguments) == 0
    expected = contents(out)
    written = {path: content for path, content in expected.items() if original.get(path) != content}
    limits = {0, *(len(content) // 2 for content in written.values()), max(map(len, written.values())) - 1}
    for most_bytes in sorted(limits):
        prepare(folder)
        for path in written if arguments.startswith(("translate", "score")) else ():
            (out / path).write_bytes(b"old\n")
        kept = contents(out)
        status, message = refusal_by_a_full_disk(arguments, most_bytes)
        assert status == 1, (most_bytes, message)
        assert re.search(r"error: .*File too large: .*'(.*/)?out/", message.splitlines()[-1]), message
        assert "Traceback" not in message
        after = contents(out)
        assert {path: after.get(path) for path in kept} == kept, most_bytes
        assert run_program(arguments) == 0
        assert contents(out) == expected, most_bytes


def test_two_processes_on_one_output(folder):
    """The second is refused while the first one writes, and no lock stays."""
    from capsule_mt.files.lock import OutputTakenError, lock_output

    prepare(folder)
    for name in ("lines", "scores", "int8", "a calibration in place"):
        words = COMMANDS[name].split()
        target = words[1] if "in place" in name else next(word for word in words if word.startswith("out/"))
        module = import_module(f"capsule_mt.commands.{words[0]}")
        sys.argv = ["capsule-mt", *words[1:]]
        with lock_output(folder / target), pytest.raises(OutputTakenError):
            module.main()
    assert not list(Path(folder, "out").rglob(".*lock*"))
