"""Released checkpoints, the folders of checkpoints/: they load, and give the translations kept beside them."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from transformers import AutoModel, AutoModelForSeq2SeqLM, AutoTokenizer, pipeline

from hf_capsule_mt.hub import check_export
from hf_capsule_mt.hub.exporting import tokenless_environment

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = sorted(path.parent for path in (ROOT / "checkpoints").glob("*/config.json"))
LARGEST_FOLDER, LARGEST_TOGETHER = 25_000_000, 60_000_000
WITHOUT_PACKAGE = """
import json, sys
sys.modules["hf_capsule_mt"] = None
import torch, transformers
folder, texts, num_beams = sys.argv[1], json.loads(sys.argv[2]), int(sys.argv[3])
translator = transformers.pipeline(
    task="translation", model=folder, trust_remote_code=True, dtype=torch.float32, device="cpu"
)
print(json.dumps([record["translation_text"] for record in translator(texts, num_beams=num_beams)]))
"""
released = pytest.mark.skipif(not FOLDERS, reason="nothing is released yet: checkpoints/ has no folder")


@pytest.fixture(params=FOLDERS or [None], ids=lambda folder: folder.name if folder else "none")
def release(request):
    kept = json.loads((request.param / "translations.json").read_text(encoding="utf-8"))
    return request.param, kept["sources"], kept["translations"], kept["num_beams"]


@released
def test_auto_classes_and_pipeline(release):
    folder, sources, expected, num_beams = release
    assert type(AutoModel.from_pretrained(folder)).__module__.startswith("hf_capsule_mt.")
    model = AutoModelForSeq2SeqLM.from_pretrained(folder, dtype=torch.float32)
    translator = pipeline("translation", model=model, tokenizer=AutoTokenizer.from_pretrained(folder), device="cpu")
    records = translator(sources, num_beams=num_beams, batch_size=16)
    same = [record["translation_text"] == text for record, text in zip(records, expected, strict=True)]
    assert sum(same) >= 0.98 * len(same)  # processors add in other orders, which may decide a tie


@released
def test_without_the_package(release, tmp_path):
    folder, sources, expected, num_beams = release
    check_export(folder)
    command = [sys.executable, "-c", WITHOUT_PACKAGE, str(folder), json.dumps(sources[:8]), str(num_beams)]
    done = subprocess.run(
        command, cwd=tmp_path, env=tokenless_environment(tmp_path), capture_output=True, text=True, check=True
    )
    there = json.loads(done.stdout.splitlines()[-1])
    assert sum(one == other for one, other in zip(there, expected, strict=False)) >= 7


@released
def test_size_and_card(release):
    card = (release[0] / "README.md").read_text(encoding="utf-8")
    for section in ("Intended use and limits", "Training", "Scores", "Speed", "Environment"):
        assert f"## {section}" in card
    assert "licence not recorded" not in card
    sizes = [sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) for folder in FOLDERS]
    assert max(sizes) <= LARGEST_FOLDER
    assert sum(sizes) <= LARGEST_TOGETHER
