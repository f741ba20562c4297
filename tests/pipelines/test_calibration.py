"""Calibrated coverage: the curves of a checkpoint's configuration, applied, and coverage of given translations."""

import pytest
import torch
from hf_capsule_mt.pipelines.word_coverage import evidence_of, on_curve
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

from hf_capsule_mt import CapsuleMarianConfig, CoverageOptions, Translator
from tests.conftest import GOLDEN
from tests.fixtures.tiny import save_tiny_marian
from tests.fixtures.word_for_word import TRANSLATION, sentences

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


HEAD = [1, 2]


@pytest.mark.parametrize("method", ["attention", "guided", "deletion"])
def test_curves_apply(method):
    translator = Translator.from_pretrained(GOLDEN / "word_for_word")
    head = {"head": HEAD} if method == "attention" else {}
    if head:
        translator.model.config.coverage_calibration = {method: head}
    options = CoverageOptions(method=method)
    texts = [*TEXTS, "balu Xyz"]
    before = translator(texts, coverage=options)
    translator.model.config.coverage_calibration = {method: CURVES | head}
    after = translator(texts, coverage=options)
    for one, other in zip(before, after, strict=True):
        evidence = evidence_of(torch.tensor([word.covered for word in one.coverage.words]))
        expected = on_curve(CURVES["words"], evidence)
        expected[[word.text == "Xyz" for word in one.coverage.words]] = 0  # which the vocabulary does not know
        assert [word.covered for word in other.coverage.words] == pytest.approx(expected.tolist(), abs=1e-5)
        assert [word.untranslated for word in other.coverage.words] == (expected < 0.5).tolist()
        score = on_curve(CURVES["sentences"], expected.mean()[None])
        most = 1 - float((expected < 0.5).float().mean())  # no more than what is not marked
        assert other.coverage.score == pytest.approx(min(float(score), most), abs=1e-5)
        assert [word.past for word in one.coverage.words] == [word.past for word in other.coverage.words]
        has_past = {word.past is not None and word.future is not None for word in other.coverage.words}
        assert has_past == {method == "guided"}


@pytest.mark.parametrize("method", ["attention", "guided", "deletion"])
def test_optional_words_do_not_count(method):
    translator = Translator.from_pretrained(GOLDEN / "word_for_word")
    curves = {method: CURVES | ({"head": HEAD} if method == "attention" else {})}
    text, options = TEXTS[0], CoverageOptions(method=method)
    given = " ".join(TRANSLATION[word] for word in text.split()[:1])
    found = []
    for optional in ([], [word.casefold() for word in text.split()[1:]]):
        translator.model.config.coverage_calibration = curves | {"optional_words": optional}
        found += translator.cover([text], [given], coverage=options)
    every, first = found
    assert any(word.untranslated for word in every.words[1:])
    assert not any(word.untranslated for word in first.words[1:])
    assert [word.covered for word in first.words] == [word.covered for word in every.words]
    assert first.words[0] == every.words[0]
    of_first = float(on_curve(CURVES["sentences"], torch.tensor([first.words[0].covered])))
    assert first.score == pytest.approx(min(of_first, 1 - first.words[0].untranslated), abs=1e-5)


def test_function_words_count_where_they_are_marked():
    translator = Translator.from_pretrained(GOLDEN / "word_for_word")
    text, options = TEXTS[0], CoverageOptions(method="guided")
    given = " ".join(TRANSLATION[word] for word in text.split()[:1])
    found = []
    for threshold in (0.5, 0.0):
        lists = {"function_words": [word.casefold() for word in text.split()[1:]]}
        translator.model.config.coverage_calibration = {"guided": CURVES | {"threshold": threshold}} | lists
        found += translator.cover([text], [given], coverage=options)
    marked, unmarked = found
    assert any(word.untranslated for word in marked.words[1:])
    counted = [word for word in marked.words if word.untranslated or word == marked.words[0]]
    score = on_curve(CURVES["sentences"], torch.tensor([sum(word.covered for word in counted) / len(counted)]))
    most = 1 - sum(word.untranslated for word in counted) / len(counted)
    assert marked.score == pytest.approx(min(float(score), most), abs=1e-5)
    assert not any(word.untranslated for word in unmarked.words)
    of_first = on_curve(CURVES["sentences"], torch.tensor([unmarked.words[0].covered]))
    assert unmarked.score == pytest.approx(float(of_first), abs=1e-5)


@pytest.mark.parametrize("method", ["attention", "guided", "deletion"])
def test_coverage_of_given_translations(method):
    translator = Translator.from_pretrained(GOLDEN / "word_for_word")
    if method == "attention":
        translator.model.config.coverage_calibration = {method: CURVES | {"head": HEAD}}
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


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_attention_received_by_hand(tmp_path, attention):
    save_tiny_marian(tmp_path)
    for folder in (tmp_path, GOLDEN / "capsule_marian"):
        model = AutoModelForSeq2SeqLM.from_pretrained(folder, attn_implementation=attention)
        tokenizer = AutoTokenizer.from_pretrained(folder)
        translator = Translator(model, tokenizer)
        model.config.coverage_calibration = {"attention": {"head": [1, 1]}}
        texts = ["The old man sleeps.", "He buys a red hat, and she buys two old books."]
        settings = {"num_beams": 3, "num_return_sequences": 2, "max_new_tokens": 12, "coverage": CoverageOptions()}
        together = translator(texts, batch_size=2, **settings)
        eager = AutoModelForSeq2SeqLM.from_pretrained(folder, attn_implementation="eager")
        for text, found in zip(texts, together, strict=True):
            for translation in found:
                (segment,) = translation.segments
                source = torch.tensor([segment.source_ids])
                target = torch.tensor([segment.target_ids])
                with torch.no_grad():
                    output = eager(
                        input_ids=source, decoder_input_ids=target[:, :-1], output_attentions=True, use_cache=False
                    )
                received = output.cross_attentions[1][0, 1].amax(dim=0)  # [S], the end token's step too
                words = zip(translator.source_words(text, segment), translation.coverage.words, strict=True)
                for (_, tokens), word in words:
                    expected = float(received[tokens].max()) if word.text.isalnum() else 1.0
                    assert word.covered == pytest.approx(expected, abs=1e-5)
                log_probs = output.logits[0].log_softmax(dim=-1).gather(1, target[0, 1:, None])
                assert translation.score == pytest.approx(float(log_probs.mean()), abs=1e-5)


def test_curves_are_saved(tmp_path):
    lists = {"optional_words": ["sich"], "function_words": ["der", "sich"]}
    saved = {"guided": CURVES | {"threshold": 0.4}, "deletion": CURVES} | lists
    CapsuleMarianConfig(coverage_calibration=saved).save_pretrained(tmp_path / "own")
    assert CapsuleMarianConfig.from_pretrained(tmp_path / "own").coverage_calibration == saved
    with pytest.raises(ValueError, match="`coverage_calibration` has the curves"):
        CapsuleMarianConfig(coverage_calibration={"guided": {"words": [[0, 0]]}})
    with pytest.raises(ValueError, match="a layer below 3 and a head below 4, got \\[3, 0\\]"):
        CapsuleMarianConfig(
            decoder_layers=3, decoder_attention_heads=4, coverage_calibration={"attention": CURVES | {"head": [3, 0]}}
        )
    save_tiny_marian(tmp_path)
    model = AutoModelForSeq2SeqLM.from_pretrained(tmp_path)
    model.config.coverage_calibration = {"deletion": CURVES}
    model.save_pretrained(tmp_path)
    model = AutoModelForSeq2SeqLM.from_pretrained(tmp_path)
    covered = Translator(model, AutoTokenizer.from_pretrained(tmp_path))("No.", coverage=CoverageOptions()).coverage
    assert 0.2 <= covered.words[0].covered <= 0.8
