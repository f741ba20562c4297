"""`GenerateDecoder` equals `EngineDecoder`, and leaves to `generate()` what the engine does not know."""

import json
import logging

import pytest
import torch
from transformers import AutoModelForSeq2SeqLM

from capsule_mt.engine.search import Readings, SearchOptions
from capsule_mt.models.loading import load_model
from hf_capsule_mt.decoding.fast import FastTranslator
from hf_capsule_mt.decoding.generate import GenerateDecoder
from hf_capsule_mt.decoding.processors import TargetPrefix
from tests.decoding.models import PAD, SOURCES, build
from tests.light.models.files import golden

FAMILIES = ("capsule_marian", "capsnmt", "capsule_rnmt")
SEARCHES = {
    "greedy": {},
    "beam": {"num_beams": 4, "num_return_sequences": 2},
    "long": {"num_beams": 3, "length_penalty": 2.0, "early_stopping": "never"},
    "early": {"num_beams": 3, "early_stopping": True, "min_new_tokens": 6},
    "ngrams": {"num_beams": 2, "no_repeat_ngram_size": 2, "suppress_tokens": [30, 40]},
    "penalty": {"repetition_penalty": 1.3},
    "penalty and beams": {"num_beams": 3, "num_return_sequences": 3, "repetition_penalty": 1.3, "min_new_tokens": 20},
    "reward": {"repetition_penalty": 0.8, "num_beams": 2, "no_repeat_ngram_size": 2, "prefixes": [[50, 60]] * 6},
    "forced": {"num_beams": 2, "limits": [3, 9, 4, 9, 5, 9], "forces_end": [True, False] * 3},
    "prefixes": {"num_beams": 2, "prefixes": [[50, 60], [], [70], [], [], [80]]},
}


@pytest.fixture(scope="module", params=FAMILIES)
def family(request, tmp_path_factory):
    """The engine and `generate()` of a golden checkpoint, some sources and translations of them."""
    folder = golden(request.param, tmp_path_factory.mktemp("golden") / request.param)
    light = load_model(folder)
    pairs = json.loads((folder / "expected.json").read_text(encoding="utf-8"))["pairs"][:6]
    sources = [light.tokenizer.encode(pair["source"]).ids for pair in pairs]
    targets = [light.tokenizer.encode_target(pair["target"]) for pair in pairs]
    return light, GenerateDecoder(AutoModelForSeq2SeqLM.from_pretrained(folder).eval()), sources, targets


def readings_of(light):
    return [Readings(head=(0, 1))] if light.head_shape[0] else []


@pytest.mark.parametrize("search", SEARCHES)
def test_translations_are_equal(family, search):
    light, heavy, sources, _ = family
    options = SearchOptions(**{"limits": [30] * 6, **SEARCHES[search]})
    for readings in (None, *readings_of(light)):
        expected, actual = (
            decoder.translate(sources, options._replace(readings=readings)) for decoder in (light.decoder, heavy)
        )
        for expected_beams, actual_beams in zip(expected, actual, strict=True):
            assert len(expected_beams) == options.num_return_sequences
            for expected_one, actual_one in zip(expected_beams, actual_beams, strict=True):
                assert (expected_one.ids, expected_one.was_cut) == (actual_one.ids, actual_one.was_cut)
                assert expected_one.score == pytest.approx(actual_one.score, abs=1e-4)
                assert expected_one.received == pytest.approx(actual_one.received, abs=1e-4)


def test_forced_passes_are_equal(family, monkeypatch):
    light, heavy, sources, targets = family
    ragged = [*targets[:-1], targets[-1][-1:]]  # an end alone
    for readings in (Readings(), *readings_of(light)):
        expected, actual = (decoder.force(sources, ragged, readings) for decoder in (light.decoder, heavy))
        for expected_one, actual_one in zip(expected, actual, strict=True):
            assert expected_one.log_probs == pytest.approx(actual_one.log_probs, abs=1e-4)
            assert (expected_one.attention is None) == (actual_one.attention is None) == (readings.head is None)
            for step, expected_step in zip(expected_one.attention or [], actual_one.attention or [], strict=True):
                assert step == pytest.approx(expected_step, abs=1e-4)
    monkeypatch.setattr("hf_capsule_mt.decoding.generate.LOGITS_AT_ONCE", 1)
    for expected_one, actual_one in zip(actual, heavy.force(sources, ragged, readings), strict=True):  # in parts
        assert expected_one.log_probs == pytest.approx(actual_one.log_probs, rel=1e-6, abs=1e-5)


def heard(caplog, monkeypatch):
    monkeypatch.setattr(logging.getLogger("transformers"), "propagate", True)
    caplog.clear()
    return lambda: [record.getMessage() for record in caplog.records]


def options(**settings):
    return SearchOptions(limits=[14] * len(SOURCES), suppress_tokens=[PAD], **settings)


def test_what_the_engine_does_not_know_goes_to_generate_with_one_line(caplog, monkeypatch):
    model = build("plain")
    plain, fast = GenerateDecoder(model), GenerateDecoder(model, fast=FastTranslator(model, int8=False))
    lines = heard(caplog, monkeypatch)
    for settings in (
        {"encoder_repetition_penalty": 1.3},
        {"do_sample": True, "top_k": 5},
        {"logits_processor": [int]},
    ):
        if "logits_processor" in settings:
            settings = {"logits_processor": [TargetPrefix([[5]], 1)]}
        asked = options(transformers_only=settings)
        torch.manual_seed(3)
        expected = plain.translate(SOURCES, asked)
        for _ in range(2):
            torch.manual_seed(3)
            actual = fast.translate(SOURCES, asked)
            # these scores are a forced pass of the engine
            for (left,), (right,) in zip(actual, expected, strict=True):
                assert left.ids == right.ids
                assert left.score == pytest.approx(right.score, abs=1e-3)
        name = next(iter(settings))
        (line,) = [line for line in lines() if f"`{name}" in line]
        assert line.endswith("is left to transformers' generate().")
    torch.manual_seed(4)
    sampled = plain.translate(SOURCES, options(transformers_only={"do_sample": True}))
    assert sampled != plain.translate(SOURCES, options(transformers_only={"do_sample": True}))


def test_the_engine_alone_decodes_what_it_knows(monkeypatch):
    model = build("guided")
    fast = GenerateDecoder(model, fast=FastTranslator(model, int8=False))
    monkeypatch.setattr(type(model), "generate", None)
    monkeypatch.setattr(type(model), "forward", None)
    ((hypothesis, _), *_) = fast.translate(
        SOURCES, options(num_beams=2, num_return_sequences=2, readings=Readings((1, 2)))
    )
    (forced, *_) = fast.force(SOURCES[:1], [hypothesis.ids], Readings((1, 2)))
    assert sum(forced.log_probs) / len(forced.log_probs) == pytest.approx(hypothesis.score, abs=1e-4)
    assert forced.attention == hypothesis.attention


def test_a_call_undoes_what_the_model_sets():
    model = build("plain")
    decoder = GenerateDecoder(model)
    free = [best.ids for (best,) in decoder.translate(SOURCES, options(num_beams=2))]
    model.generation_config.update(no_repeat_ngram_size=1, length_penalty=5.0)
    tokens = [best.ids for (best,) in decoder.translate(SOURCES, options(num_beams=2))]
    assert tokens == free
    assert [best.ids for (best,) in decoder.translate(SOURCES, options(num_beams=2, no_repeat_ngram_size=1))] != free


def test_an_end_token_of_a_call():
    """Any token may end a translation: nothing after it counts, and it is not cut."""
    model = build("plain")
    decoder = GenerateDecoder(model)
    free = [best.ids for (best,) in decoder.translate(SOURCES, options())]
    end = free[0][3]
    hypotheses = [
        hypothesis for (hypothesis,) in decoder.translate(SOURCES, options(transformers_only={"eos_token_id": end}))
    ]
    for ids, one in zip(free, hypotheses, strict=True):
        assert one.ids == (ids[: ids.index(end) + 1] if end in ids else ids)
        assert one.was_cut == (end not in ids)
    (forced,) = (one.log_probs for one in decoder.force(SOURCES[:1], [hypotheses[0].ids], Readings()))
    assert hypotheses[0].score == pytest.approx(sum(forced) / len(forced), abs=1e-5)
    endless = decoder.translate(SOURCES, options(transformers_only={"eos_token_id": -1}))
    assert [len(one.ids) for (one,) in endless] == [14] * 4
