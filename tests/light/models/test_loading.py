"""`load_model`: the golden checkpoints translate as recorded, and what does not fit is an error that names it."""

import json
import math
import re
from pathlib import Path

import pytest

from capsule_mt import Translator
from capsule_mt.commands import convert
from capsule_mt.engine.program import UnsupportedModelError
from capsule_mt.engine.search import Readings, SearchOptions
from capsule_mt.models.loading import load_model
from capsule_mt.models.shortlist import FILE_NAME, Shortlist
from capsule_mt.models.weights import CheckpointError
from capsule_mt.options.table import CHANGES_TRANSLATIONS, NEUTRAL
from tests.light.engine.conftest import TIERS
from tests.light.models.files import FOLDER, edit_json, golden

FAMILIES = ("capsule_marian", "capsnmt", "capsule_rnmt")
RELEASED = Path(__file__).parents[3] / "checkpoints"


def expected_of(family):
    return json.loads((FOLDER / family / "expected.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("family", FAMILIES)
def test_golden_checkpoints(family, tmp_path):
    model = load_model(golden(family, tmp_path / family))
    expected = expected_of(family)
    sources = [model.tokenizer.encode(pair["source"]).ids for pair in expected["pairs"]]
    limits = [model.generation["max_new_tokens"]] * len(sources)
    for measured in expected["measured"]["translations"]:
        options = SearchOptions(limits=limits, num_beams=measured["num_beams"])
        hypotheses = [best for best, *_ in model.decoder.translate(sources, options)]
        assert [model.tokenizer.decode(one.ids) for one in hypotheses] == [one["target"] for one in expected["pairs"]]
        assert [one.score for one in hypotheses] == pytest.approx(measured["scores"], abs=1e-4)
        assert not any(one.was_cut for one in hypotheses)
    targets = [model.tokenizer.encode_target(pair["target"]) for pair in expected["pairs"]]
    forced = model.decoder.force(sources, targets, Readings())
    for one, best in zip(forced, hypotheses, strict=True):
        assert sum(one.log_probs) / len(one.log_probs) == pytest.approx(best.score, abs=1e-4)


@pytest.mark.skipif("amx" not in TIERS, reason="the processor, or the system, has no tiles")
@pytest.mark.parametrize("name", [*FAMILIES, "capsule-marian-de-en", "capsnmt-de-en"])
def test_tiles_change_no_bit(name, tmp_path, monkeypatch):
    folder = golden(name, tmp_path / name) if name in FAMILIES else RELEASED / name
    results = []
    for tier in ("amx", "avx512"):
        monkeypatch.setenv("HF_CAPSULE_MT_TIER", tier)
        model = load_model(folder, int8=True)
        assert model.decoder.engine.tier == tier
        sources = [model.tokenizer.encode(pair["source"]).ids for pair in expected_of("capsule_marian")["pairs"]]
        options = SearchOptions(limits=[20] * len(sources), num_beams=5, num_return_sequences=5)
        results.append([[vars(beam) for beam in beams] for beams in model.decoder.translate(sources, options)])
        results.append(model.decoder.force(sources, sources, Readings()))
    assert results[:2] == results[2:]


def test_a_file_is_not_a_folder_and_int8_is_a_bool(tmp_path):
    folder = golden("capsule_marian", tmp_path / "model")
    with pytest.raises(CheckpointError, match=r"config\.json: is a file, name the model's folder$"):
        load_model(folder / "config.json")
    with pytest.raises(TypeError, match="`int8` must be True or False, got 'no'"):
        load_model(folder, int8="no")


def test_an_adapter_says_how_it_becomes_a_model(tmp_path, monkeypatch):
    (tmp_path / "adapter_config.json").write_text("{}")
    message = re.escape(f"{tmp_path}: is an adapter, not a model: translate with it by `capsule-mt translate`; if ")
    with pytest.raises(CheckpointError, match=message):
        load_model(tmp_path)
    monkeypatch.setattr("sys.argv", ["capsule-mt", str(tmp_path), str(tmp_path / "out"), "--to", "int8"])
    with pytest.raises(CheckpointError, match=message):
        convert.main()


def test_a_folder_of_models_names_them(tmp_path):
    names = [f"model {number}" for number in range(6)]
    for name in names[:2]:
        golden("capsule_marian", tmp_path / name)
    message = "has neither config.json nor a model of Marian; it holds models, name one, or several for `serve`: "
    with pytest.raises(CheckpointError) as refusal:
        load_model(tmp_path)
    assert str(refusal.value) == f"{tmp_path}: {message}'{tmp_path}/model 0' '{tmp_path}/model 1'"
    for name in names[2:]:
        golden("capsule_marian", tmp_path / name)
    with pytest.raises(CheckpointError, match=r"model 3' \.\.\.$"):
        load_model(tmp_path)


def test_what_a_model_says_of_itself(tmp_path):
    calibration = {"attention": {"head": [0, 1]}}
    folder = golden("capsule_marian", tmp_path / "model")
    edit_json(folder / "config.json", coverage_calibration=calibration)
    model = load_model(folder)
    assert (model.start, model.end, model.pad, model.name) == (0, 1, 0, str(folder))
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    assert model.longest_source == model.longest_target == config["max_position_embeddings"]
    assert model.head_shape == (config["decoder_layers"], config["decoder_attention_heads"])
    assert model.calibration == calibration
    assert model.generation["max_new_tokens"] == 40
    edit_json(folder / "generation_config.json", num_beams=0)
    with pytest.raises(CheckpointError, match=r"generation_config\.json: `num_beams` must be"):
        load_model(folder)
    (folder / "generation_config.json").unlink()
    edit_json(folder / "config.json", num_beams=3, bad_words_ids=[[0]], max_length=30)
    assert load_model(folder).generation == {"num_beams": 3, "bad_words_ids": [[0]], "max_length": 30}


@pytest.mark.parametrize("file", ["config.json", "generation_config.json"])
@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("use_cache", 5, "`use_cache` must be True or False, got 5"),
        ("use_cache", "yes", "`use_cache` must be True or False, got 'yes'"),
        ("do_sample", 0, "`do_sample` must be True or False, got 0"),
        ("num_beam_groups", True, "`num_beam_groups` must be a whole number, got True"),
        ("encoder_no_repeat_ngram_size", 1.5, "`encoder_no_repeat_ngram_size` must be a whole number, got 1.5"),
        ("guidance_scale", "1", "`guidance_scale` must be a number, got '1'"),
    ],
)
def test_an_option_that_the_engine_lacks_is_refused_for_its_type(file, field, value, message, tmp_path):
    folder = golden("capsule_marian", tmp_path / "model")
    edit_json(folder / file, **{field: value})
    with pytest.raises(CheckpointError, match=re.escape(f"{file}: {message}")):
        load_model(folder)
    edit_json(folder / file, diversity_penalty=0, encoder_repetition_penalty=1, **{field: None})
    assert load_model(folder).generation["max_new_tokens"] == 40


def test_a_shortlist(tmp_path):
    folder = golden("capsnmt", tmp_path / "model")
    Shortlist.of_translations({}, [5, 6, 7], (700, 700)).save(folder / FILE_NAME)
    model = load_model(folder, shortlist=True)
    options = SearchOptions(limits=[4], shortlist=model.shortlist)
    ((hypothesis,),) = model.decoder.translate([[9, 10, 1]], options)
    assert set(hypothesis.ids) <= {1, 5, 6, 7}
    Shortlist.of_translations({}, [5], (700, 7)).save(folder / FILE_NAME)
    with pytest.raises(ValueError, match="`shortlist` is for vocabularies of 700 and 7 tokens"):
        load_model(folder, shortlist=folder / FILE_NAME)


@pytest.mark.parametrize(
    ("value", "error", "actual"),
    [(3.5, TypeError, "3.5 (float)"), (1, TypeError, "1 (int)"), (b"lex.bin", TypeError, "b'lex.bin' (bytes)"),
     (["lex.bin"], TypeError, "['lex.bin'] (list)"), ("", ValueError, "an empty string")],
)  # fmt: skip
def test_a_shortlist_that_is_not_a_file_is_named(value, error, actual, tmp_path):
    message = f"`shortlist` must be True, False or a file of `capsule-mt shortlist`, got {actual}"
    with pytest.raises(error, match=re.escape(message)):
        load_model(tmp_path, shortlist=value)


@pytest.mark.parametrize(
    ("family", "fields", "message"),
    [
        (
            "capsnmt",
            {"model_type": "nllb-moe"},
            "type 'nllb-moe' is not supported by the engine, only marian, capsule_marian, m2m_100",
        ),
        ("capsnmt", {"quantization_config": {"bits": 4}}, "a quantised model"),
        (
            "capsnmt",
            {"aggregation": "attention"},
            "`aggregation` 'attention' is not supported by the engine, only capsules",
        ),
        (
            "capsule_marian",
            {"layer_aggregation_placement": "beside"},
            "`layer_aggregation_placement` 'beside' is not supported by the engine, only replaces, adds",
        ),
        ("capsule_marian", {"layer_aggregation": "other"}, "`layer_aggregation` 'other' .* only none, linear"),
        (
            "capsule_marian",
            {"em_input_activation": "matrix"},
            "`em_input_activation` 'matrix' is not supported by the engine",
        ),
        (
            "capsule_marian",
            {"decoder_self": "ssru", "head_aggregation": "em_routing", "head_aggregation_sites": ["decoder_self"]},
            "`head_aggregation` on \"decoder_self\" has no heads with `decoder_self` 'ssru'",
        ),
        (
            "capsule_marian",
            {"activation_function": "mish"},
            "`activation_function` 'mish' is not supported by the engine",
        ),
        (
            "capsule_marian",
            {"decoder_attention_heads": 5},
            "`decoder_attention_heads` 5 is not supported by the engine",
        ),
        (
            "capsule_marian",
            {"eos_token_id": [1, 2]},
            r"`eos_token_id` \[1, 2\] is not "
            "supported by the engine, only one",
        ),
    ],
)
def test_what_only_transformers_knows(family, fields, message, tmp_path):
    folder = golden(family, tmp_path / "model")
    (folder / "generation_config.json").unlink()
    edit_json(folder / "config.json", **fields)
    with pytest.raises(UnsupportedModelError, match=message):
        load_model(folder)


@pytest.mark.parametrize(
    ("family", "fields", "message"),
    [
        ("capsnmt", {"hidden_size": "wide"}, "`hidden_size` must be a number from 2 to 134217728, got 'wide'"),
        ("capsnmt", {"num_iterations": 10**9}, "`num_iterations` must be a number from 1 to 1000"),
        ("capsnmt", {"encoder_layers": 10**8}, r"model\.safetensors: lacks `model\.encoder\.layers\.1\.lstm"),
        (
            "capsnmt",
            {"num_capsules": 3},
            r"`model\.encoder\.aggregation\.votes\.weight` is \[576, 48\], but .*432",
        ),
        (
            "capsnmt",
            {"separable_scoring": False},
            r"has `model\.encoder\.aggregation\.\w+_scoring\.\w+`, which the configuration does not",
        ),
        (
            "capsule_marian",
            {"layer_aggregation_num_capsules": 7},
            r"`layer_aggregation_num_capsules` \(7\) must",
        ),
        (
            "capsule_marian",  # it has the old name
            {"layer_aggregation_placement": "replaces"},
            r"config\.json: `layer_aggregation_residual` True contradicts `layer_aggregation_placement` 'replaces'",
        ),
        ("capsule_marian", {"decoder_start_token_id": None}, r"config\.json: lacks `decoder_start_token_id`"),
        *(
            ("capsule_marian", {"coverage_calibration": calibration}, message)
            for calibration, message in (
                ([], "`coverage_calibration` must be an object"),
                ({"deletion": {"words": [[0, math.nan]]}}, "deletion.words` must be at most 10000 points"),
                ({"deletion": {"sentences": [[0, 1], [1, 0]]}}, "deletion.sentences` must be .* never falling"),
                ({"attention": {"head": [7, 0]}}, "attention.head` must be a layer and a head of 2 and"),
                ({"optional_words": "a"}, "`coverage_calibration.optional_words` must be a list"),
                ({"length": {"start": 1, "slope": "2", "more": {}}}, "length.slope` must be a number from"),
                ({"length": {"start": 1, "slope": 2, "more": {"a": "b"}}}, "length.more` must be words .* by their"),
                ({"length": {"start": 1, "slope": 2}}, "`coverage_calibration.length` lacks `more`"),
                (
                    {"attention": {"threshold": 0.5}},
                    "`coverage_calibration.attention` lacks `head`, which `capsule-mt",
                ),
                ({"deletion": {"threshold": 0.5}}, "`coverage_calibration.deletion` lacks `words`"),
                ({"deletion": {"words": [[0, 0]]}}, "`coverage_calibration.deletion` lacks `sentences`"),
                ({"deletion": {"words": [[0, 0], [0, 1]]}}, "deletion.words` must be .* x rising"),
                ({"verified": {"alarm": {"score": 0.5}}}, "verified.alarm` lacks `flagged`"),
                (
                    {"verified": {"right_marks": {"sure": [2, 1]}}},
                    r"right_marks.sure` must be how many marks were right, and how many were read, got \[2, 1",
                ),
                ({"verified": {"right_marks": {"likely": [0, 0]}}}, "right_marks.likely` must be how many"),
                ({"verified": {"right_marks": {"all": "x" * 5000}}}, r"must be how many .*, got 'x{196}\.\.\.$"),
                ({"verified": {"retries_marks": 1}}, "verified.retries_marks` must be true or false, got 1"),
                ({"verified": {"shortness": "much"}}, "verified.shortness` must be from 0 to 100, got 'much'"),
            )
        ),
        ("capsule_marian", {"num_beams": 10**7}, "`num_beams` must be a whole number from 1 to 256, got 10000000"),
        ("capsule_marian", {"length_penalty": math.inf}, "`length_penalty` must be a number from -100 to 100"),
        ("capsule_marian", {"early_stopping": "soon"}, "`early_stopping` must be False, True or"),
        ("capsule_marian", {"suppress_tokens": [700]}, "`suppress_tokens` must be lists of tokens from 0 to 699"),
    ],
)
def test_what_does_not_fit_together(family, fields, message, tmp_path):
    folder = golden(family, tmp_path / "model")
    (folder / "generation_config.json").unlink()
    edit_json(folder / "config.json", **fields)
    with pytest.raises(CheckpointError, match=message) as error:
        load_model(folder)
    assert str(folder) in str(error.value)


# of options that the engine lacks, a value that changes translations, and one that changes none
GENERATION_VALUES = {
    "do_sample": (True, False),
    "penalty_alpha": (0.6, 0.0),
    "num_beam_groups": (2, 1),
    "diversity_penalty": (0.5, 0.0),
    "constraints": ([[5]], []),
    "force_words_ids": ([[5]], []),
    "encoder_repetition_penalty": (1.2, 1.0),
    "encoder_no_repeat_ngram_size": (3, 0),
    "guidance_scale": (2.0, 1.0),
    "dola_layers": ("high", None),
    "begin_suppress_tokens": ([5], []),
    "forced_decoder_ids": ([[1, 5]], None),
    "sequence_bias": ([[[5], -5.0]], []),
    "exponential_decay_length_penalty": ([5, 1.1], None),
    "stop_strings": (["Hut"], []),
    "token_healing": (True, False),
    "watermarking_config": ({"bias": 2.0}, None),
}


@pytest.mark.parametrize("name", CHANGES_TRANSLATIONS)
def test_an_option_of_generate_in_config_json_is_not_dropped(name, tmp_path):
    """Without a generation_config.json, transformers reads it there."""
    folder = golden("capsule_marian", tmp_path / "model")
    (folder / "generation_config.json").unlink()
    expected = Translator.from_pretrained(folder)("The hat.").text
    changing, neutral = GENERATION_VALUES[name]
    edit_json(folder / "config.json", **{name: neutral})
    assert Translator.from_pretrained(folder)("The hat.").text == expected
    edit_json(folder / "config.json", **{name: changing})
    with pytest.raises(ValueError, match=f"^the native engine does not support `{name}`"):
        Translator.from_pretrained(folder)("The hat.")


def test_options_of_generate_in_config_json_are_those_that_transformers_reads():
    transformers = pytest.importorskip("transformers")
    known = transformers.GenerationConfig().to_dict()
    assert set(CHANGES_TRANSLATIONS) - {*known} <= {"forced_decoder_ids"}  # of older versions
    assert set(CHANGES_TRANSLATIONS) == {*GENERATION_VALUES}
    # these alone do not change what is translated
    assert set(NEUTRAL) - {*CHANGES_TRANSLATIONS} == {"use_cache", "return_dict_in_generate"}
    config = {name: changing for name, (changing, _) in GENERATION_VALUES.items() if name in known}
    read = transformers.GenerationConfig.from_model_config(dict(config))
    assert {name for name in config if getattr(read, name)} == {*config}


def test_a_regular_expression_that_does_not_end(tmp_path):
    folder = golden("capsule_marian", tmp_path / "model")
    content = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    bomb = {"type": "Split", "pattern": {"Regex": r"(a|a?)+$"}, "behavior": "Isolated", "invert": False}
    content["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [bomb, content["pre_tokenizer"]]}
    (folder / "tokenizer.json").write_text(json.dumps(content), encoding="utf-8")
    tokenizer = load_model(folder).tokenizer
    with pytest.raises(CheckpointError, match=r"tokenizer\.json: does not tokenise 'aaaa"):
        tokenizer.encode("a" * 60 + "!")


def test_beside_a_generation_config_the_tokens_of_config_json_do_not_count(tmp_path):
    """As in `generate()`: it begins with `bos_token_id`, and forces no end, which only config.json has."""
    folder = golden("capsule_marian", tmp_path / "model")
    generation, model = folder / "generation_config.json", load_model(folder)
    fields = {"eos_token_id": model.end, "pad_token_id": model.pad, "bos_token_id": 7}
    edit_json(folder / "config.json", forced_eos_token_id=model.end)
    generation.write_text(json.dumps(fields))
    changed = load_model(folder)
    assert (changed.start, changed.generation.get("forced_eos_token_id")) == (7, None)
    generation.write_text(json.dumps({**fields, "eos_token_id": None}))
    with pytest.raises(CheckpointError, match=r"generation_config\.json: lacks `eos_token_id`, .* from config\.json"):
        load_model(folder)
    generation.unlink()
    assert load_model(folder).start == model.start


def test_other_names_of_fields(tmp_path):
    folder = golden("capsule_marian", tmp_path / "model")
    layers = json.loads((folder / "config.json").read_text())["encoder_layers"]
    edit_json(folder / "config.json", num_hidden_layers=layers)
    load_model(folder)
    edit_json(folder / "config.json", encoder_layers=None)
    load_model(folder)
    edit_json(folder / "config.json", encoder_layers=layers, num_hidden_layers=layers + 1)
    with pytest.raises(CheckpointError, match=rf"`num_hidden_layers` {layers + 1} and `encoder_layers` {layers} are"):
        load_model(folder)
