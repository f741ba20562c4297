"""What coverage is made of, read in the run that translates, against a forced pass of the model."""

import pytest

from capsule_mt.engine.search import Hypothesis, Readings, SearchOptions
from hf_capsule_mt.decoding.generate import GenerateDecoder
from tests.decoding.models import END, PAD, SOURCES, batch, build, strictly

HEAD = (1, 2)  # layer, head


@pytest.mark.parametrize(
    ("name", "readings"),
    [
        *((name, Readings(HEAD)) for name in ("stock", "guided", "heads")),
        *((name, Readings(guided=True)) for name in ("guided", "rnmt_guided")),
    ],
)
def test_a_search_reads_what_a_forced_pass_reads(name, readings):
    """A head, or PAST and FUTURE, to the last token; hypotheses of a beam end at different steps."""
    model = build(name)
    fast, slow = strictly(model, int8=False), GenerateDecoder(model)
    early = int(model.generate(**batch(), num_beams=4, num_return_sequences=4)[:, 4].mode().values)
    searches = [
        {},
        {"forces_end": [True] * 4},
        {"num_beams": 4, "num_return_sequences": 4, "length_penalty": 0.0},
        {"num_beams": 2, "no_repeat_ngram_size": 2, "suppress_tokens": [3, 4, PAD], "min_new_tokens": 3},
        {"num_beams": 2, "limits": [3, 5, 13, 1], "forces_end": [True] * 4},
    ]
    for end in (END, early):
        model.config.eos_token_id = model.generation_config.eos_token_id = end
        for search in searches:
            options = SearchOptions(**{"limits": [14] * 4, "suppress_tokens": [PAD], "readings": readings, **search})
            for source, found in zip(SOURCES, fast.decoder_for(options).translate(SOURCES, options), strict=True):
                for one in found:
                    (forced,) = slow.force([source], [one.ids], readings)
                    assert one.score == pytest.approx(sum(forced.log_probs) / len(one.ids), abs=2e-4)
                    expected = Hypothesis(one.ids, [], one.was_cut)
                    expected.read(forced, end)
                    if readings.guided:
                        for kind in ("past", "future", "fall", "agreed"):
                            values = getattr(one.guided, kind)
                            assert values == pytest.approx(getattr(expected.guided, kind), abs=1e-4), kind
                    else:
                        assert one.received == pytest.approx(expected.received, abs=1e-4)
    for missing in ((2, 0), (0, 4), (-1, 0)):
        assert fast.decoder_for(Readings(missing)) is None
