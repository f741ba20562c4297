"""What `capsule-mt convert --to marian` writes, scored by Marian itself, and what Marian writes and we refuse."""

import pytest

from capsule_mt.conversions.to_huggingface import write_huggingface
from capsule_mt.conversions.to_marian import MODEL_FILE, write_marian_folder
from capsule_mt.engine.program import UnsupportedModelError
from capsule_mt.engine.search import Readings
from capsule_mt.models.loading import load_model
from capsule_mt.models.marian_files import TYPE_NAMES, open_marian
from hf_capsule_mt.hub import firefox
from tests.fixtures.marian_models import PRINTED_STEP, SOURCES, TARGETS, marian_folder

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", ["default", "ssru", "two-spm", "untied"])
def test_marian_scores_what_is_written_as_the_engine_does(name, tmp_path, judge):
    write_huggingface(marian_folder(name, tmp_path / "marian"), tmp_path / "hub")
    write_marian_folder(tmp_path / "hub", tmp_path / "back")
    vocabularies = ["srcvocab.spm", "trgvocab.spm"] if name == "two-spm" else ["vocab.spm"] * 2
    expected = judge.scores(tmp_path / "back", tmp_path / "back" / MODEL_FILE, vocabularies)
    model = load_model(tmp_path / "hub")
    sources = [model.tokenizer.encode(text).ids for text in SOURCES]
    targets = [model.tokenizer.encode_target(text) for text in TARGETS]
    for hypothesis, scores in zip(model.decoder.force(sources, targets, Readings()), expected, strict=True):
        assert hypothesis.log_probs == pytest.approx(scores, abs=2 * PRINTED_STEP)


@pytest.mark.parametrize("name", ["ssru", "two-spm"])
def test_a_student_is_compared_with_marian_before_it_is_pushed(name, tmp_path, judge, monkeypatch):
    monkeypatch.setenv(firefox.PYMARIAN, judge.python)
    folder = marian_folder(name, tmp_path / "de-en")
    write_huggingface(folder, tmp_path / "hub")
    assert firefox.check_student(folder, tmp_path / "hub").endswith("and their scores are Marian's.")
    monkeypatch.setattr(firefox, "SCORE_TOLERANCE", -1.0)
    with pytest.raises(firefox.StudentCheckError, match=r"differs from that of the engine by"):
        firefox.check_student(folder, tmp_path / "hub")


@pytest.mark.parametrize("name", sorted({*TYPE_NAMES.values()} - {"float16", "int8"}))
def test_a_type_that_is_not_read_has_the_name_that_marian_converts_to(name, tmp_path, judge):
    source = marian_folder("default", tmp_path / "marian") / "model.npz"
    judge.run("convert", "--from", source, "--to", tmp_path / "model.bin", "--gemm-type", name)
    if name in ("float32", "intgemm8"):
        open_marian(tmp_path / "model.bin")
        return
    with pytest.raises(UnsupportedModelError, match=f"` is of type {name}, which is not read; only float32, float16,"):
        open_marian(tmp_path / "model.bin")
