"""A registry like Mozilla's, with a model of each architecture and vocabulary in it, trained and written by Marian."""

from pathlib import Path

import pytest

from capsule_mt import PivotTranslator, Translator, load
from capsule_mt.catalog.mozilla import read_registry
from capsule_mt.catalog.store import model_folder
from capsule_mt.commands import convert, models
from capsule_mt.engine.search import Readings
from capsule_mt.files.lock import lock_output
from tests.fixtures.marian_models import PRINTED_STEP, SOURCES, TARGETS
from tests.light.catalog.conftest import Registry
from tests.marian.judge import Judge
from tests.marian.variants import options_of

pytestmark = pytest.mark.slow
# name in the registry: its architecture there, and the variant that is trained
MODELS = {
    "de-en": ("base-memory", "student-base-memory"),
    "de-en:base": ("base", "student-base"),
    "de-en:tiny": ("tiny", "student-tiny"),
    "en-zh_hant": ("base", "student-two-base"),
    "zh_hant-en": ("tiny", "student-two"),
    "en-pt": ("tiny", "student-tiny"),
}
INT8_ERROR = 0.02  # the mean difference of log-probabilities from those of float32 is at most 0.01


def binary(judge: Judge, variant: str, gemm: str) -> Path:
    """Return the `.bin` that Marian makes of a variant."""
    folder = judge.train(variant)
    file = folder / f"{gemm}.bin"
    with lock_output(file, wait=True):
        if not file.exists():
            judge.run("convert", "-f", folder / "model.npz", "-t", file, "--gemm-type", gemm)
    return file


def fill(registry: Registry, judge: Judge, gemm: str) -> None:
    for name, (architecture, variant) in MODELS.items():
        file, (_, vocabularies) = binary(judge, variant, gemm), options_of(variant)
        kinds = ["vocab"] if len(set(vocabularies)) == 1 else ["srcVocab", "trgVocab"]
        content = {"model": file.read_bytes()}
        for kind, vocabulary in zip(kinds, vocabularies, strict=False):
            content[kind] = (file.parent / vocabulary).read_bytes()
        registry.add(name.partition(":")[0], architecture, content=content)
    registry.publish()


def log_probs(translator: Translator) -> list[list[float]]:
    model = translator.loaded
    sources = [model.tokenizer.encode(text).ids for text in SOURCES]
    targets = [model.tokenizer.encode_target(text) for text in TARGETS]
    return [hypothesis.log_probs for hypothesis in model.decoder.force(sources, targets, Readings())]


def test_every_model_scores_as_marian(registry, judge):
    fill(registry, judge, "float32")
    assert {entry.name for entry in read_registry()} == set(MODELS)
    for name, (_, variant) in MODELS.items():
        folder, (_, vocabularies) = judge.train(variant), options_of(variant)
        expected = judge.scores(folder, folder / "model.npz", vocabularies)
        translator = Translator.from_pretrained(name)
        for scores, expected_scores in zip(log_probs(translator), expected, strict=True):
            assert scores == pytest.approx(expected_scores, abs=2 * PRINTED_STEP)


def test_every_model_in_int8(registry, judge):
    fill(registry, judge, "intgemm8")
    for name, (_, variant) in MODELS.items():
        folder, (_, vocabularies) = judge.train(variant), options_of(variant)
        expected = judge.scores(folder, folder / "model.npz", vocabularies)
        for int8 in (False, True):
            scores = log_probs(Translator.from_pretrained(name, int8=int8))
            errors = [
                abs(score - expected_score)
                for line, expected_line in zip(scores, expected, strict=True)
                for score, expected_score in zip(line, expected_line, strict=True)
            ]
            assert sum(errors) / len(errors) < INT8_ERROR, (name, int8)


def test_names_regions_and_pairs_through_english(registry, judge, call, tmp_path):
    fill(registry, judge, "float32")
    assert model_folder("en-zh-TW", "") == model_folder("en-zh_hant", "")
    assert model_folder("zh-Hant-en", "") == model_folder("zh_hant-en", "")
    loaded: dict[str, Translator] = {}
    to_pt, to_chinese = (load(name, loaded=loaded) for name in ("de-pt-BR", "de-zh-TW"))
    assert isinstance(to_pt, PivotTranslator)
    assert to_pt.first is to_chinese.first
    assert {Path(folder).name for folder in loaded} == {"de-en", "en-pt", "en-zh_hant"}
    english = load("de-en")(SOURCES[0]).text
    assert to_pt(SOURCES[0]).text == load("en-pt")(english).text
    call(convert, "en-zh-TW", tmp_path / "hub", "--to", "huggingface")
    assert log_probs(Translator.from_pretrained(tmp_path / "hub")) == log_probs(load("en-zh_hant"))


def test_the_rows_of_a_check(registry, judge, call):
    fill(registry, judge, "intgemm8")
    code, printed, _ = call(models, "--check", "de-en", "en-zh-TW")
    assert code == 0
    rows = [row.split(" | ") for row in printed.splitlines()[2:]]
    assert [(row[2], row[3], row[4]) for row in rows] == [
        ("v1.12.42", "6 + 4 layers of 96, ssru", "500"),
        ("v1.12.42", "6 + 2 layers of 128, ssru", "340 and 340"),
    ]


def test_a_binary_of_a_later_format(registry, judge):
    file = binary(judge, "student-tiny", "float32")
    content = {"model": b"\2" + file.read_bytes()[1:], "vocab": (file.parent / "joint.spm").read_bytes()}
    registry.add("en-de", "tiny", content=content)
    registry.publish()
    with pytest.raises(ValueError, match=r"is a `\.bin` of version 2, newer than this program"):
        load("en-de")
