"""The campaign finds nothing in a short run, and notices what it is there to notice."""

import random
import subprocess
import sys
from types import SimpleNamespace

import pytest

from hf_capsule_mt.modeling.loading import load_checkpoint
from lab import campaign, campaign_tries
from lab.campaign_inputs import MALFORMED, damage_file, hostile_lines
from lab.campaign_table import render_campaign
from lab.campaign_tries import Job, Section, check_refusal, finish
from tests.fixtures.tiny import save_tiny_checkpoint


@pytest.mark.slow
def test_one_try_of_each_section(tmp_path):
    words = [sys.executable, "-m", "lab.campaign", "--tries", "1", "--seed", "7", "--minutes", "8"]
    ended = subprocess.run([*words, "--output", tmp_path / "c.json"], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert (tmp_path / "c.md").read_text() == ended.stdout[ended.stdout.index("| what was tried") :]


def test_a_failure_is_told_with_how_to_repeat_it(monkeypatch, capsys):
    def fails(bench, chance):
        (bench.folder / "left").mkdir()
        assert chance.random() < 0, "a line is lost"

    class NoBench:
        def __init__(self, folder, checkpoint, progress):
            self.folder = folder

    sections = {"bad": Section("bad things", "kills", fails), "good": Section("good things", "kills", lambda *_: 3)}
    for module in (campaign, campaign_tries):
        monkeypatch.setattr(module, "SECTIONS", sections)
    monkeypatch.setattr(campaign, "Bench", NoBench)
    monkeypatch.setattr(campaign, "start_server", lambda folder: None)
    monkeypatch.setattr("sys.argv", ["lab.campaign", "--tries", "2", "--seed", "5", "--sections", "bad", "good"])
    assert campaign.main() == 1
    printed = capsys.readouterr().out
    assert "| bad things | 2 | 0 kills | 2 |\n| good things | 2 | 6 kills | 0 |" in printed
    assert "- `python -m lab.campaign --sections bad --seed 6 --tries 1`: a line is lost" in printed


def test_minutes_end_it(monkeypatch):
    monkeypatch.setattr(campaign, "Bench", lambda *arguments: None)
    monkeypatch.setattr(campaign, "start_server", lambda folder: None)
    arguments = SimpleNamespace(minutes=0.0, tries=None, seed=1, sections=["full"], checkpoint=None)
    assert campaign.campaign(arguments, None)["sections"]["full"]["tries"] == 0


@pytest.mark.parametrize(
    ("code", "content", "complaint"),
    [(0, "lost", "not as an undisturbed run gives it"), (1, "whole", "ended with 1"), (0, "whole", None)],
)
def test_what_a_resumed_run_must_give(code, content, complaint, tmp_path):
    (tmp_path / "out").write_text(content)
    bench = SimpleNamespace(start=lambda *_: SimpleNamespace(end=lambda: (code, "said")))
    job = Job(lambda output: ["translate"], "", ("out",), 1.0, {"out": b"whole"})
    if complaint is None:
        assert finish(bench, job, tmp_path) == "said"
        (tmp_path / "out.1.partial").touch()
        complaint = "left behind"
    with pytest.raises(AssertionError, match=complaint):
        finish(bench, job, tmp_path)


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
