"""The options of Marian's decoder: each is known, and `max-length-factor` cuts where Marian cuts."""

import re

import pytest

from capsule_mt.models import marian_decoder
from capsule_mt.models.loading import load_model
from capsule_mt.translate.search_plan import search_options
from tests.fixtures.marian_models import SOURCES
from tests.marian.judge import write_text

pytestmark = pytest.mark.slow


def test_every_option_is_known(judge):
    names = re.findall(r"^ +(?:-\w,)?--([a-z][a-z0-9-]+)", judge.run("decode", "--help"), re.MULTILINE)
    assert len(names) > 100
    known = marian_decoder.READ | marian_decoder.HARMLESS | marian_decoder.MODEL_OPTIONS | {*marian_decoder.REFUSED}
    known |= {"weights", "tsv-fields", "skip-cost", "help", "authors", "cite", "build-info"}
    unknown = [name for name in names if name not in known and not name.startswith(marian_decoder.OTHER_MODELS)]
    assert unknown == []


@pytest.mark.parametrize("factor", ["0.1", "0.3", "0.5", "1.5", "2.5"])
def test_a_translation_has_at_most_a_factor_of_its_source(factor, judge):
    folder = judge.train("default")
    configuration = folder / "decoder.yml"
    configuration.write_text(f"models: [model.npz]\nmax-length-factor: {factor}\n")
    try:
        model = load_model(folder)
    finally:
        configuration.unlink()
    sources = [model.tokenizer.encode(text).ids for text in SOURCES]
    hypotheses = model.decoder.translate(sources, search_options(model, list(map(len, sources)), {}))
    arguments = ["-m", folder / "model.npz", "-v", *[folder / "joint.spm"] * 2, "-w", 200, "--quiet", "-b", 1]
    arguments += ["--n-best", "--word-scores", "--mini-batch", 1, "--maxi-batch", 1, "--max-length-factor", factor]
    printed = judge.run("decode", *arguments, stdin=write_text(folder, "test", "de", "joint.spm"))
    for (best, *_), line in zip(hypotheses, printed.splitlines(), strict=True):
        _, text, scores, *_ = line.split(" ||| ")
        assert len(best.ids) == len(scores.split("WordScores=")[1].split())
        assert model.tokenizer.decode([token for token in best.ids if token != model.end]) == text.strip()
