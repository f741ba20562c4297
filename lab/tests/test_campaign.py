"""The campaign finds nothing in a short run, and notices what it is there to notice."""

import json
import random
import subprocess
import sys

import pytest

from hf_capsule_mt.modeling.loading import load_checkpoint
from lab import campaign, campaign_tries
from lab.campaign_inputs import MALFORMED
from lab.campaign_tries import Section
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


@pytest.mark.parametrize("kind", MALFORMED)
def test_malformed_copies_do_not_load(kind, tmp_path):
    folder = save_tiny_checkpoint(tmp_path / "checkpoint", guided_routing="guided", guided_capsule_dim=8)
    load_checkpoint(folder)
    MALFORMED[kind](folder, random.Random(3))
    with pytest.raises((ValueError, OSError)):
        load_checkpoint(folder)
