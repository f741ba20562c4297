"""Layers, file types and converters of CTranslate2: our tokens and scores against its own, on 1,000 lines."""

import json

import pytest
import torch

from capsule_mt.engine.program import UnsupportedModelError
from capsule_mt.engine.search import Readings, SearchOptions
from capsule_mt.models.loading import load_model
from tests.ctranslate2.judge import LINES, cut, pieces
from tests.ctranslate2.variants import BUILT_REFUSED, VARIANTS
from tests.decoding.test_languages import CODES, folders
from tests.fixtures.marian_models import SOURCES, TARGETS, marian_folder
from tests.fixtures.opus_mt import save_opus_mt
from tests.light.models.test_ctranslate2 import distance

pytestmark = pytest.mark.slow
LIMIT, NUM_LINES = 32, 1000
__all__ = ["folders"]


def search_options(model, count, limit):
    options = {
        name: model.generation[name] for name in ("min_new_tokens", "suppress_tokens") if name in model.generation
    }
    return SearchOptions(limits=[limit] * count, **options)


def assert_tokens_are_equal(model, tokens, lines, translations, tokenizer=None):
    tokenizer = tokenizer or model.tokenizer
    sources, first = [tokenizer.encode(line).ids for line in lines], getattr(tokenizer, "first_ids", [])
    search = search_options(model, len(sources), LIMIT)._replace(prefixes=[first] * len(sources))
    for (best, *_), (hypotheses, _) in zip(model.decoder.translate(sources, search), translations, strict=True):
        assert [tokens[token] for token in best.ids if token != model.end] == hypotheses[0]


def tokens_of(folder):
    names = ("shared_vocabulary.json", "target_vocabulary.json")
    (file,) = (folder / name for name in names if (folder / name).exists())
    return json.loads(file.read_text("utf-8"))


@pytest.mark.parametrize("name", VARIANTS)
def test_tokens_are_equal(name, judge, tmp_path):
    folder, lines = judge.build(tmp_path / name, **VARIANTS[name]), LINES[:NUM_LINES]
    expected = judge.run("translate", folder=str(folder), sources=cut(lines), beam_size=1, max_decoding_length=LIMIT)
    assert_tokens_are_equal(load_model(folder), tokens_of(folder), lines, expected)
    assert len({tuple(hypotheses[0]) for hypotheses, _ in expected}) > 100


@pytest.mark.parametrize("name", BUILT_REFUSED)
def test_a_variant_is_refused_by_name(name, judge, tmp_path):
    variant, message = BUILT_REFUSED[name]
    with pytest.raises(UnsupportedModelError, match=message):
        load_model(judge.build(tmp_path / name, **variant))


@pytest.mark.parametrize("name", ["default", "int8", "marian-int8", "post"])
def test_int8_differs_by_rounding(name, judge, tmp_path):
    folder = judge.build(tmp_path / name, **VARIANTS[name])
    arguments = {"folder": str(folder), "sources": cut(SOURCES), "targets": cut(TARGETS)}
    exact, rounded = (judge.run("score", **arguments, compute_type=kind) for kind in ("float32", "int8"))
    model = load_model(folder, int8=True)
    sources = [model.tokenizer.encode(line).ids for line in SOURCES]
    targets = [model.tokenizer.encode_target(line) for line in TARGETS]
    scores = [forced.log_probs for forced in model.decoder.force(sources, targets, Readings())]

    assert distance(scores, exact) <= 1.5 * distance(rounded, exact)


@pytest.mark.parametrize("quantization", [None, "float16", "int8"])
def test_a_conversion_of_opus_mt_is_read(quantization, judge, tmp_path):
    """Users of CTranslate2 add the end of a source themselves, as transformers' tokenizer does."""
    torch.manual_seed(3)
    checkpoint, folder = save_opus_mt(tmp_path / "opus"), tmp_path / "converted"
    copied = ["source.spm", "target.spm"]
    judge.run("convert", checkpoint=str(checkpoint), folder=str(folder), quantization=quantization, copied=copied)
    original, model, lines = load_model(checkpoint), load_model(folder), LINES[-NUM_LINES:]
    tokens, sources = tokens_of(folder), [original.tokenizer.encode(line).ids for line in lines]
    assert [model.tokenizer.encode(line).ids for line in lines] == sources
    expected = judge.run(
        "translate",
        folder=str(folder),
        sources=[[tokens[token] for token in ids] for ids in sources],
        beam_size=1,
        max_decoding_length=LIMIT,
    )
    assert_tokens_are_equal(model, tokens, lines, expected)


def test_a_conversion_of_marian_is_read(judge, tmp_path):
    checkpoint, folder = marian_folder("yml", tmp_path / "yml"), tmp_path / "converted"
    vocabularies = [str(checkpoint / "joint.yml")] * 2
    judge.run(
        "convert_marian",
        checkpoint=str(checkpoint / "model.npz"),
        vocabularies=vocabularies,
        folder=str(folder),
        quantization=None,
    )
    for name in ("source.spm", "target.spm"):
        (folder / name).write_bytes((checkpoint / name).read_bytes())
    lines = LINES[:NUM_LINES]
    expected = judge.run("translate", folder=str(folder), sources=cut(lines), beam_size=1, max_decoding_length=LIMIT)
    assert_tokens_are_equal(load_model(folder), tokens_of(folder), lines, expected)


@pytest.mark.parametrize("quantization", [None, "int8_float32"])
@pytest.mark.parametrize("name", ["nllb", "m2m100"])
def test_a_conversion_of_many_languages_is_read(name, quantization, judge, tmp_path, folders):
    checkpoint, folder = folders[name][0], tmp_path / "converted"
    copied = ["sentencepiece.bpe.model"]
    judge.run("convert", checkpoint=str(checkpoint), folder=str(folder), quantization=quantization, copied=copied)
    model, tokens, lines = load_model(folder), tokens_of(folder), LINES[:NUM_LINES]
    codes = [CODES[name][code] for code in ("de", "en")]
    tokenizer = model.tokenizer.for_pair(*codes)
    original = load_model(checkpoint).tokenizer.for_pair(*codes)
    sources = [original.encode(line).ids for line in lines]
    assert [tokenizer.encode(line).ids for line in lines] == sources
    prefix = [tokens[tokenizer.first_ids[0]]]
    expected = judge.run(
        "translate",
        folder=str(folder),
        sources=[[tokens[token] for token in ids] for ids in sources],
        target_prefix=[prefix] * len(lines),
        beam_size=1,
        max_decoding_length=LIMIT,
    )
    assert_tokens_are_equal(model, tokens, lines, expected, tokenizer)


def test_a_beam_finds_about_what_ctranslate2s_does(judge, tmp_path):
    """It divides by the length without the end, and stops otherwise: most translations are equal, not all."""
    folder, lines = judge.build(tmp_path / "post", **VARIANTS["post"]), LINES[:200]
    expected = judge.run("translate", folder=str(folder), sources=cut(lines), max_decoding_length=LIMIT)
    model = load_model(folder)
    beams = {name: model.generation[name] for name in ("num_beams", "length_penalty")}
    search = search_options(model, len(lines), LIMIT)._replace(**beams)
    sources, tokens = [model.tokenizer.encode(line).ids for line in lines], tokens_of(folder)
    ours = [best.ids for best, *_ in model.decoder.translate(sources, search)]
    equal = [
        [tokens[token] for token in ids if token != model.end] == hypotheses[0]
        for ids, (hypotheses, _) in zip(ours, expected, strict=True)
    ]
    print(f"{sum(equal)} of {len(equal)}")
    assert sum(equal) > 0.9 * len(equal)


def test_the_vocabulary_of_the_judge_has_all_pieces():
    assert len(pieces()) > 300
