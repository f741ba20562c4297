"""Every option of Marian's transformer: our scores and translations against Marian's."""

import pytest

from capsule_mt.engine.program import UnsupportedModelError
from capsule_mt.engine.search import Readings, SearchOptions
from capsule_mt.models.loading import load_model
from tests.fixtures.marian_models import PRINTED_STEP, SOURCES, TARGETS
from tests.marian.judge import normalises_keys_alone
from tests.marian.variants import REFUSED, VARIANTS, options_of

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", VARIANTS)
def test_a_variant_is_read_as_marian_means_it(name, judge):
    folder, (options, vocabularies) = judge.train(name), options_of(name)
    if name in REFUSED:
        with pytest.raises(UnsupportedModelError, match=f"`{REFUSED[name]}`"):
            load_model(folder)
        return
    model = load_model(folder)
    sources = [model.tokenizer.encode(text).ids for text in SOURCES]
    targets = [model.tokenizer.encode_target(text) for text in TARGETS]
    scores = judge.scores(folder, folder / "model.npz", vocabularies)
    for hypothesis, expected in zip(model.decoder.force(sources, targets, Readings()), scores, strict=True):
        assert hypothesis.log_probs == pytest.approx(expected, abs=2 * PRINTED_STEP)
    if normalises_keys_alone(options):
        return
    limits = [3 * len(ids) for ids in sources]
    search = SearchOptions(limits=limits, suppress_tokens=model.generation["suppress_tokens"])
    for limit, (best, *_), (text, count) in zip(
        limits, model.decoder.translate(sources, search), judge.greedy(folder, vocabularies), strict=True
    ):
        if count < limit:  # else Marian's own limit may have cut it
            text = text if vocabularies[1].endswith(".spm") else text.replace(" ", "").replace("\u2581", " ")
            assert model.tokenizer.decode([token for token in best.ids if token != model.end]) == text.strip()
