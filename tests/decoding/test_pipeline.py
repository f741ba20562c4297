"""`pipeline("translation")`: records, laziness and settings, as transformers' own had them."""

import json
import math

import pytest
import torch
from datasets import Dataset
from transformers import GenerationConfig, pipeline
from transformers.pipelines.pt_utils import KeyDataset

from capsule_mt.files.lines import coverage_record
from hf_capsule_mt import CoverageOptions, Translator, to_fast
from hf_capsule_mt.decoding.pipeline import TranslationPipeline
from hf_capsule_mt.hub import plain_pipeline
from tests.fixtures.tiny import save_tiny_checkpoint
from tests.fixtures.word_for_word import sentences

TEXTS = ["The child sleeps.", "An old man buys twenty-three red apples at the market.", "Who laughs?", "No."]
WORDS = sentences(12, seed=99)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    return str(save_tiny_checkpoint(tmp_path_factory.mktemp("capsule"), layer_aggregation="em_routing"))


@pytest.fixture(scope="module")
def translator(checkpoint):
    # the model's own translations: with `copy`, doubled words, which a random model writes, start a second search
    return pipeline("translation", model=checkpoint, copy=False)


@pytest.fixture(scope="module")
def omitting(word_for_word):
    """A pipeline and a `Translator` of a model that leaves words out."""
    pipe = pipeline("translation", model=str(word_for_word))
    return pipe, Translator(pipe.model, pipe.tokenizer)


def by_hand(translator, text, **settings):
    batch = translator.tokenizer(text, return_tensors="pt")
    ids = translator.model.generate(**batch, **settings)
    return translator.tokenizer.batch_decode(ids, skip_special_tokens=True)


def texts_of(records):
    return [record["translation_text"] for record in records]


def test_shapes_of_the_results(translator):
    expected = [by_hand(translator, text)[0] for text in TEXTS]
    assert translator(TEXTS[0]) == [{"translation_text": expected[0]}]
    for texts in (TEXTS, tuple(TEXTS)):
        assert translator(texts) == [{"translation_text": text} for text in expected]
    assert translator(TEXTS, batch_size=3) == [{"translation_text": text} for text in expected]
    several = translator(TEXTS, num_beams=3, num_return_sequences=2)
    settings = {"num_beams": 3, "num_return_sequences": 2}
    assert [texts_of(records) for records in several] == [by_hand(translator, text, **settings) for text in TEXTS]


@pytest.mark.parametrize("return_text", [None, False, True])
def test_what_records_hold(translator, return_text):
    """As in transformers 4.57.1: `return_tensors` alone decides, whatever `return_text` is."""
    exported = plain_pipeline.TranslationPipeline(model=translator.model, tokenizer=translator.tokenizer)
    expected = translator(TEXTS)
    ids = translator.model.generate(**translator.tokenizer(TEXTS[0], return_tensors="pt"))[0]
    for pipe in (translator, exported):
        for return_tensors in (None, False):
            assert pipe(TEXTS, return_tensors=return_tensors, return_text=return_text) == expected
        (record,) = pipe(TEXTS[0], return_tensors=True, return_text=return_text)
        assert record.keys() == {"translation_token_ids"}
        assert torch.equal(record["translation_token_ids"], ids)
        assert pipe([]) == []


def test_lazy_inputs(translator):
    expected = translator(TEXTS)
    for lazy in (
        (text for text in TEXTS),
        dict.fromkeys(TEXTS).keys(),
        KeyDataset(Dataset.from_dict({"en": TEXTS}), "en"),
    ):
        assert [records[0] for records in translator(lazy, batch_size=2)] == expected


def test_settings_at_init_and_at_call(checkpoint, translator):
    built = pipeline("translation", model=checkpoint, max_new_tokens=3, num_beams=2, copy=False)
    expected = [by_hand(translator, text, max_new_tokens=3, num_beams=2)[0] for text in TEXTS]
    assert texts_of(built(TEXTS)) == texts_of(translator(TEXTS, max_new_tokens=3, num_beams=2)) == expected
    assert pipeline("translation", model=checkpoint, int8=True).translator.fast.int8
    with pytest.raises(ValueError, match="needs a `tokenizer`, got None"):
        type(translator)(translator.model)


def test_stop_strings_need_no_tokenizer(tmp_path):
    """Both pipelines, the exported one too, have one to give to `generate()`."""
    # seeded: other tests change nothing
    pipe = pipeline("translation", model=str(save_tiny_checkpoint(tmp_path)), copy=False)
    exported = plain_pipeline.TranslationPipeline(model=pipe.model, tokenizer=pipe.tokenizer)
    (free,) = texts_of(pipe(TEXTS[1]))
    stop = next(letter for letter in free if letter.isascii())
    (expected,) = by_hand(pipe, TEXTS[1], stop_strings=[stop], tokenizer=pipe.tokenizer)
    assert len(expected) < len(free)
    for translating in (pipe, exported):
        assert texts_of(translating(TEXTS[1], stop_strings=[stop])) == [expected]


@pytest.mark.parametrize(
    ("options", "parameters"),
    [
        (CoverageOptions(), {"coverage": None, "return_coverage": True}),
        (CoverageOptions(method="deletion"), {}),
        (CoverageOptions(0.9, 4), {}),
        (CoverageOptions(weight=5.0), {"num_beams": 4}),
    ],
)
def test_coverage_is_that_of_the_translator(omitting, options, parameters):
    pipe, translator = omitting
    settings = {"num_beams": parameters["num_beams"]} if "num_beams" in parameters else {}
    records = pipe(WORDS, batch_size=6, **({"coverage": options} | parameters))
    for translation, record in zip(
        translator(WORDS, batch_size=6, coverage=options, **settings), records, strict=True
    ):
        assert record["translation_text"] == translation.text
        assert record["coverage"] == coverage_record(translation.coverage)
        json.dumps(record["coverage"])
    if options.threshold is not None:
        below = [record["coverage"]["sentences"][0]["below_threshold"] for record in records]
        assert below == [record["coverage"]["score"] < 0.9 for record in records]


def test_a_saved_pipeline_needs_no_remote_code(translator, tmp_path):
    translator.save_pretrained(tmp_path)
    assert not list(tmp_path.glob("*.py"))
    assert "custom_pipelines" not in (tmp_path / "config.json").read_text()
    assert pipeline("translation", model=str(tmp_path))(TEXTS, copy=False) == translator(TEXTS)


@pytest.mark.parametrize("task", ["translation", "translation_en_to_de"])
def test_a_model_must_be_named(task):
    with pytest.raises(ValueError, match=r"needs a `model`, a folder or a name on the hub, such as pipeline\("):
        pipeline(task)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (None, r"`texts\[0\]` must be a string, got None \(NoneType\)$"),
        (b"bytes", r"`texts\[0\]` must be a string, got b'bytes' \(bytes\)$"),
        ([["a"]], r"`texts\[0\]` must be a string, got \['a'\] \(list\)$"),
        ({"text": "a"}, r"`texts\[0\]` must be a string, got {'text': 'a'} \(dict\)$"),
        (["a", math.nan], r"`texts\[1\]` must be a string, got nan \(float\)$"),
    ],
)
def test_what_is_no_text(translator, wrong, message):
    with pytest.raises(ValueError, match="the pipeline translates strings and lists of strings: " + message):
        translator(wrong)


@pytest.mark.parametrize("kind", [Translator, TranslationPipeline])
def test_only_a_model_is_taken_as_one(translator, kind):
    fast = to_fast(translator.model)
    for argument, message in (
        (fast, "got a FastTranslator: give its `model`, with `int8=True`$"),
        (translator.model.name_or_path, "got a str: `Translator.from_pretrained` takes a folder or a name$"),
    ):
        with pytest.raises(TypeError, match="`model` must be a model of transformers, " + message):
            kind(argument, tokenizer=translator.tokenizer)


def test_what_is_refused(translator):
    generate_settings = dict.fromkeys(vars(GenerationConfig()).keys() - {"transformers_version"})
    assert texts_of(translator("No.", **generate_settings, return_tensors=None)) == texts_of(translator("No."))
    for parameters, message in (
        ({"num_beams": 0}, "`num_beams` must be a whole number from 1 to 256, got 0"),
        ({"coverage": CoverageOptions(weight=1.0)}, "`num_beams` is 1"),
        ({"coverage": CoverageOptions(method="verified")}, '"verified"` needs a reverse model'),
        ({"return_coverages": False}, "`return_coverages` is not an option of .* `return_coverage`"),
        ({"stop_sequence": "."}, "`stop_sequence` is not an option of this pipeline: use `stop_strings`, a list of"),
        ({"return_type": None}, "`return_type` is not an option of this pipeline: use `return_tensors`$"),
        ({"num_beems": None}, "`num_beems` is not an option of .* `num_beams`"),
    ):
        with pytest.raises(ValueError, match=message):
            translator("No.", **parameters)
    with pytest.raises(KeyError):
        pipeline("translate", model=translator.model, tokenizer=translator.tokenizer)
