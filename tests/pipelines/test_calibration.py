"""Calibrated coverage: the curves of a checkpoint's configuration, applied, and coverage of given translations."""

import pytest
import torch
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

from hf_capsule_mt import CapsuleMarianConfig, CoverageOptions, Translator
from hf_capsule_mt.pipelines.word_coverage import evidence_of, on_curve
from tests.conftest import GOLDEN
from tests.fixtures.tiny import save_tiny_marian
from tests.fixtures.word_for_word import sentences

TEXTS = sentences(6, seed=7)
# everything in doubt is half translated
CURVES = {"words": [[0.0, 0.25], [16.0, 0.75]], "sentences": [[0.0, 0.0], [0.5, 0.2], [1.0, 1.0]]}


def test_a_curve_is_read_as_numpy_does():
    values = torch.tensor([[-1.0, 0.0, 0.25], [0.5, 0.75, 2.0]])
    read = on_curve(CURVES["sentences"], values)
    assert torch.allclose(read, torch.tensor([[0.0, 0.0, 0.1], [0.2, 0.6, 1.0]]))
    assert on_curve([[0.3, 0.5]], values).tolist() == [[0.5] * 3] * 2


def test_evidence_is_finite():
    evidence = evidence_of(torch.tensor([0.0, 0.5, 1.0]))
    assert evidence.tolist() == [-16.0, 0.0, 16.0]
    assert torch.allclose(evidence_of(torch.tensor([3.0, -5.0]).sigmoid()), torch.tensor([3.0, -5.0]), atol=1e-4)


@pytest.mark.parametrize("method", ["guided", "deletion"])
def test_curves_apply(method):
    translator = Translator.from_pretrained(GOLDEN / "word_for_word")
    options = CoverageOptions(method=method)
    texts = [*TEXTS, "balu Xyz"]
    before = translator(texts, coverage=options)
    translator.model.config.coverage_calibration = {method: CURVES}
    after = translator(texts, coverage=options)
    for one, other in zip(before, after, strict=True):
        evidence = evidence_of(torch.tensor([word.covered for word in one.coverage.words]))
        expected = on_curve(CURVES["words"], evidence)
        expected[[word.text == "Xyz" for word in one.coverage.words]] = 0  # which the vocabulary does not know
        assert [word.covered for word in other.coverage.words] == pytest.approx(expected.tolist(), abs=1e-5)
        assert [word.untranslated for word in other.coverage.words] == (expected < 0.5).tolist()
        score = on_curve(CURVES["sentences"], expected.mean()[None])
        assert other.coverage.score == pytest.approx(float(score), abs=1e-5)
        assert [word.past for word in one.coverage.words] == [word.past for word in other.coverage.words]


@pytest.mark.parametrize("method", ["guided", "deletion"])
def test_coverage_of_given_translations(method):
    translator = Translator.from_pretrained(GOLDEN / "word_for_word")
    options = CoverageOptions(method=method)
    own = translator(TEXTS, coverage=options)
    given = translator.cover([*TEXTS, " "], [*(found.text for found in own), ""], coverage=options, batch_size=3)
    for one, other in zip(own, given, strict=False):
        assert [word.text for word in one.coverage.words] == [word.text for word in other.words]
        assert [word.covered for word in other.words] == pytest.approx(
            [word.covered for word in one.coverage.words], abs=1e-4
        )
    assert given[-1].score == 1
    with pytest.raises(ValueError, match="`texts` are 6, but `translations` 1"):
        translator.cover(TEXTS, ["BALU"])


def test_scores_of_given_translations():
    translator = Translator.from_pretrained(GOLDEN / "word_for_word")
    model, tokenizer = translator.model, translator.tokenizer
    given = [*(found.text for found in translator(TEXTS[:3])), "BALU"]
    texts = [*TEXTS[:2], TEXTS[0], " "]
    found = translator.score(texts, given, batch_tokens=30)
    assert found[-1].score is None
    for text, translation, one in zip(texts[:3], given, found, strict=False):
        pair = tokenizer(text, text_target=translation, return_tensors="pt")
        with torch.no_grad():
            expected = -model(**pair).nll_loss
        assert one.score == pytest.approx(float(expected), abs=1e-5)
        assert (one.text, one.coverage, one.was_cut) == (translation, None, False)
        assert one.segments[0].target_ids[1:] == tuple(pair["labels"][0].tolist())
    assert found[2].score < found[0].score - 1  # another sentence's translation
    covered = translator.score(texts, given, coverage=CoverageOptions())
    assert [one.score for one in covered] == pytest.approx([one.score for one in found], abs=1e-5)
    long = " ".join([given[0]] * 20)
    (cut,) = translator.score([texts[0]], [long])
    assert cut.was_cut
    assert len(cut.segments[0].target_ids) == 1 + model.config.max_position_embeddings


def test_curves_are_saved(tmp_path):
    saved = {"guided": CURVES}
    CapsuleMarianConfig(coverage_calibration=saved).save_pretrained(tmp_path / "own")
    assert CapsuleMarianConfig.from_pretrained(tmp_path / "own").coverage_calibration == saved
    with pytest.raises(ValueError, match="`coverage_calibration` has the curves"):
        CapsuleMarianConfig(coverage_calibration={"guided": {"words": [[0, 0]]}})
    save_tiny_marian(tmp_path)
    model = AutoModelForSeq2SeqLM.from_pretrained(tmp_path)
    model.config.coverage_calibration = {"deletion": CURVES}
    model.save_pretrained(tmp_path)
    model = AutoModelForSeq2SeqLM.from_pretrained(tmp_path)
    covered = Translator(model, AutoTokenizer.from_pretrained(tmp_path))("No.", coverage=CoverageOptions()).coverage
    assert 0.2 <= covered.words[0].covered <= 0.8
