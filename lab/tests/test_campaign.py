"""The campaign finds nothing in a short run, and notices what it is there to notice."""

import contextlib
import json
import random
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from hf_capsule_mt.modeling.loading import load_checkpoint
from lab import campaign, campaign_tries
from lab.benchmark_tables import render_campaign
from lab.campaign_inputs import MALFORMED, damage_file, hostile_lines
from lab.campaign_processes import can_mount, enlarge_disk, small_disk
from lab.campaign_tries import Bench, Job, Section, check_refusal, finish, flat_memory, interrupt
from tests.fixtures.tiny import save_tiny_checkpoint


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_one_try_of_each_section(tmp_path):
    words = [sys.executable, "-m", "lab.campaign", "--tries", "1", "--seed", "7", "--minutes", "60"]
    ended = subprocess.run([*words, "--output", tmp_path / "c.json"], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    sections = json.loads((tmp_path / "c.json").read_text())["sections"]
    assert {section["tries"] for section in sections.values()} == {1}
    assert (tmp_path / "c.md").read_text() == ended.stdout[ended.stdout.index("| what was tried") :]


def test_a_failure_is_told_with_how_to_repeat_it(monkeypatch, capsys):
    def fails(bench, chance):
        (bench.folder / "left").mkdir()
        assert chance.random() < 0, "a line is lost"

    class NoBench:
        def __init__(self, folder, checkpoint, progress):
            self.folder, self.memory = folder, {"native": {"2": 9, "20": 10}}

    sections = {"bad": Section("bad things", "kills", fails), "good": Section("good things", "kills", lambda *_: 3)}
    sections |= {"once": Section("one thing", "kills", lambda *_: 1, tries=1)}
    sections |= {"disk-job": Section("what needs a disk", "disks", fails)}
    for module in (campaign, campaign_tries):
        monkeypatch.setattr(module, "SECTIONS", sections)
    monkeypatch.setattr(campaign, "Bench", NoBench)
    monkeypatch.setattr(campaign, "start_server", lambda folder: None)
    monkeypatch.setattr(campaign, "can_mount", lambda folder: False)
    monkeypatch.setattr("sys.argv", ["lab.campaign", "--tries", "2", "--seed", "5", "--sections", *sections])
    assert campaign.main() == 1
    printed = capsys.readouterr().out
    table = "| bad things | 2 | 0 kills | 2 |\n| good things | 2 | 6 kills | 0 |\n| one thing | 1 | 1 kills | 0 |"
    assert f"{table}\n\nPeak memory" in printed  # without the disk
    assert "| backend | 2 lines | 20 lines |\n|---|---|---|\n| `native` | 9 | 10 |\n" in printed
    assert "- `python -m lab.campaign --sections bad --seed 6 --tries 1`: a line is lost" in printed


def test_minutes_end_it(monkeypatch, tmp_path):
    monkeypatch.setattr(campaign, "Bench", lambda *arguments: SimpleNamespace(memory={}))
    monkeypatch.setattr(campaign, "start_server", lambda folder: None)
    monkeypatch.setattr(campaign, "can_mount", lambda folder: True)
    arguments = SimpleNamespace(minutes=0.0, tries=None, seed=1, sections=["full"], checkpoint=None)
    assert campaign.campaign(arguments, tmp_path)["sections"]["full"]["tries"] == 0


@pytest.mark.parametrize(
    ("code", "content", "complaint"),
    [(0, "lost", "not as an undisturbed run gives it"), (1, "whole", "ended with 1"), (0, "whole", None)],
)
def test_what_a_resumed_run_must_give(code, content, complaint, tmp_path):
    (tmp_path / "out").write_text(content)
    bench = SimpleNamespace(start=lambda *_: SimpleNamespace(end=lambda: (code, "said")))
    job = Job(lambda output: ["translate"], "", ("out",), 1.0, {"out": b"whole"}, 5)
    if complaint is None:
        assert finish(bench, job, tmp_path) == "said"
        (tmp_path / "out.1.partial").touch()
        complaint = "left behind"
    with pytest.raises(AssertionError, match=complaint):
        finish(bench, job, tmp_path)


@pytest.mark.parametrize(
    ("code", "said", "complaint"),
    [
        (130, "capsule-mt: interrupted; the same command resumes\n", None),
        (130, "capsule-mt: interrupted\n", "no sentence"),
        (130, "Traceback: interrupted; the same command resumes\n", "a traceback"),
        (-2, "", "exit code -2 after Ctrl-C"),
    ],
)
def test_what_ctrl_c_must_end_with(code, said, complaint, tmp_path):
    (tmp_path / ".lock").touch()
    command = SimpleNamespace(wait=lambda seconds: None, send=lambda number: True, end=lambda: (code, said))
    bench = SimpleNamespace(start=lambda *_: command)
    job = Job(lambda output: ["distill"], "", (), 1.0, {}, 0)
    with pytest.raises(AssertionError, match=complaint) if complaint else contextlib.nullcontext():
        assert interrupt(bench, job, tmp_path, signal.SIGINT, 0.0)


@pytest.mark.parametrize("growth", [1, 20])
def test_memory_that_grows_is_a_failure(growth, monkeypatch, tmp_path):
    class Grows:
        def __init__(self, words, folder):
            self.lines = Path(words[3]).read_text()
            Path(words[5]).write_text(self.lines)

        def end(self, longest):
            self.peak = 300 + growth * (len(self.lines.split("\n")) > 10_000)
            return 0, ""

    monkeypatch.setattr(campaign_tries, "Command", Grows)
    monkeypatch.chdir(tmp_path)
    names = iter("abcd")
    bench = SimpleNamespace(folder=tmp_path, checkpoint="model", text=["a"], memory={})
    bench.new = lambda: tmp_path / next(names)
    bench.write = lambda name, lines: Bench.write(bench, name, lines)
    fails = pytest.raises(AssertionError, match=r"native: 300 MiB .* then 320")
    with fails if growth > 9 else contextlib.nullcontext():
        assert flat_memory(bench, random.Random(1)) == 4
    assert bench.memory["native"] == {"2,000": 300, "20,000": 300 + growth}


def test_a_disk_of_its_own(tmp_path):
    if not can_mount(tmp_path / "probe"):
        pytest.skip("no file system can be mounted here")
    disk = tmp_path / "disk"
    with small_disk(disk, 1 << 16):
        with pytest.raises(OSError, match="No space left"):
            (disk / "file").write_bytes(bytes(1 << 17))
        enlarge_disk(disk)
        (disk / "file").write_bytes(bytes(1 << 17))
    assert not any(disk.iterdir())


@pytest.mark.parametrize(("code", "said"), [(0, "error: x"), (-11, "error: x"), (1, "Traceback error: x"), (1, "oh")])
def test_what_is_no_refusal(code, said):
    check_refusal(2, "capsule-mt: error: x")
    with pytest.raises(AssertionError):
        check_refusal(code, said)


@pytest.mark.parametrize("kind", MALFORMED)
def test_malformed_copies_do_not_load(kind, tmp_path):
    folder = save_tiny_checkpoint(tmp_path / "checkpoint", guided_routing="guided", guided_capsule_dim=8)
    load_checkpoint(folder)
    MALFORMED[kind](folder, random.Random(3))
    with pytest.raises((ValueError, OSError)):
        load_checkpoint(folder)


def test_hostile_lines_keep_the_plain_ones():
    plain = ["one", "two", "three"] * 9
    lines, places = hostile_lines(plain, random.Random(2))
    assert [lines[place] for place in places] == plain
    assert len(lines) > len(plain)
    assert not any("\n" in line for line in lines)
    "\n".join(lines).encode()


def test_damage_changes_a_file(tmp_path):
    for seed in range(9):
        (tmp_path / "file").write_bytes(b"content")
        damage_file(tmp_path / "file", random.Random(seed))
        assert (tmp_path / "file").read_bytes() != b"content"


def test_the_table_of_a_result_without_failures():
    section = {"title": "kills", "counted": "kills", "tries": 1200, "disturbances": 3000, "failures": []}
    assert render_campaign({"sections": {"kill": section}}).endswith("| kills | 1,200 | 3,000 kills | 0 |")
