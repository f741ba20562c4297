"""Coverage out of the run that translates, against a second pass of the model: `model.score_coverage`."""

import pytest
import torch

from capsule_mt.engine.search import Readings, SearchOptions
from hf_capsule_mt.decoding.generate import GenerateDecoder
from tests.decoding.models import END, PAD, SOURCES, batch, build, strictly
from tests.decoding.test_shortlist import SOME

HEAD = (1, 2)  # layer, head

SEARCHES = {
    "greedy, cut": {},  # random models do not end by themselves: the last token is read by a step of its own
    "greedy, ended": {"forced_eos_token_id": END},
    "beam": {"num_beams": 3, "num_return_sequences": 3},
    "ended at different steps": {"num_beams": 4, "num_return_sequences": 4, "length_penalty": 0.0},
    "forbidden tokens": {"num_beams": 2, "no_repeat_ngram_size": 2, "suppress_tokens": [3, 4], "min_new_tokens": 3},
}


def assert_equals_a_second_pass(model, fast, inputs, **search):
    """Compare what coverage is computed from: its quotient magnifies rounding where FUTURE hardly falls."""
    seen = []
    original = type(model).coverage_of_falls

    def recording(self, input_ids, attention_mask, past, future, **falls):
        seen.append({"past": past, "future": future, "keep": attention_mask.bool(), **falls})
        return original(self, input_ids, attention_mask, past, future, **falls)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(model), "coverage_of_falls", recording)
        found = fast.generate(**inputs, **search, return_dict_in_generate=True, return_coverage=True)
        copies = search.get("num_return_sequences", 1)
        repeated = {name: values.repeat_interleave(copies, dim=0) for name, values in inputs.items()}
        expected = model.score_coverage(**repeated, labels=found.sequences[:, 1:])
    assert len(seen) == 2
    for name in ("past", "future", "keep", "fall", "agreed", "log_prob"):
        torch.testing.assert_close(seen[0][name], seen[1][name], atol=1e-4, rtol=1e-4, msg=name)
    assert torch.equal(found.coverage.words, expected.words)
    return found


@pytest.mark.parametrize("name", ["guided", "rnmt_guided"])
def test_it_equals_a_second_pass(name):
    model = build(name)
    fast = strictly(model, int8=False)
    free = model.generate(**batch(), num_beams=4, num_return_sequences=4)[:, 1:]
    early = int(free[:, 3].mode().values)  # an end token that some hypotheses write early
    for title, search in SEARCHES.items():
        config_end = model.config.eos_token_id
        if title == "ended at different steps":
            model.config.eos_token_id = model.generation_config.eos_token_id = early
        assert_equals_a_second_pass(model, fast, batch(), **search)
        model.config.eos_token_id = model.generation_config.eos_token_id = config_end


def test_padding_on_the_left():
    model = build("rnmt_guided")
    fast = strictly(model, int8=False)
    longest = max(map(len, SOURCES))
    inputs = {
        "input_ids": torch.tensor([[PAD] * (longest - len(source)) + source for source in SOURCES]),
        "attention_mask": torch.tensor([[0] * (longest - len(source)) + [1] * len(source) for source in SOURCES]),
    }
    found = assert_equals_a_second_pass(model, fast, inputs, num_beams=2)
    assert bool((found.coverage.past[1, :-2] == 0).all())


def test_limits_by_source():
    """The forced end counts in the log-probability of the coverage."""
    model = build("guided")
    fast = strictly(model, int8=False)
    limits = torch.tensor([3, 5, 13, 1])
    assert_equals_a_second_pass(model, fast, batch(), num_beams=2, limits=limits, max_new_tokens=14)


def test_where_the_backend_does_not_follow_it_a_second_pass_does():
    model = build("guided_once")
    assert_equals_a_second_pass(model, strictly(model, int8=False), batch())
    plain = strictly(build("plain"), int8=False)
    with pytest.raises(ValueError, match='need `guided_routing` "guided"'):
        plain.generate(**batch(), return_dict_in_generate=True, return_coverage=True)
    with pytest.raises(ValueError, match="`return_coverage` needs `return_dict_in_generate=True`"):
        strictly(build("guided")).generate(**batch(), return_coverage=True)


def test_in_int8_it_is_close_and_a_batch_equals_its_sentences():
    model = build("guided")
    settings = {"num_beams": 3, "return_dict_in_generate": True, "return_coverage": True}
    exact, rounded = (strictly(model, int8=int8) for int8 in (False, True))
    together = rounded.generate(**batch(), **settings)
    for number, source in enumerate(SOURCES):
        alone = rounded.generate(**batch([source]), **settings)
        torch.testing.assert_close(together.coverage.past[number, : len(source)], alone.coverage.past[0])
        torch.testing.assert_close(together.coverage.covered[number, : len(source)], alone.coverage.covered[0])
    # of the same first token: what was said later may be another translation
    one = {**settings, "max_new_tokens": 1, "num_beams": 1}
    before, after = (fast.generate(**batch(), **one).coverage for fast in (exact, rounded))
    assert float((before.past - after.past).abs().max()) < 0.05


@pytest.mark.parametrize("name", ["stock", "guided", "heads"])
def test_the_attention_of_a_head(name):
    """What a search reads is what a forced pass of the model reads, to the last token."""
    model = build(name)
    fast, slow = strictly(model, int8=False), GenerateDecoder(model)
    early = int(model.generate(**batch())[:, 4].mode().values)
    searches = [
        {},
        {"forces_end": [True] * 4},
        {"num_beams": 3, "num_return_sequences": 3},
        {"num_beams": 2, "no_repeat_ngram_size": 2, "suppress_tokens": [3, 4, PAD], "min_new_tokens": 3},
        {"num_beams": 2, "limits": [3, 5, 13, 1], "forces_end": [True] * 4},
    ]
    for end in (END, early):
        model.config.eos_token_id = model.generation_config.eos_token_id = end
        for search in searches:
            options = SearchOptions(
                **{"limits": [14] * 4, "suppress_tokens": [PAD], "readings": Readings(HEAD), **search}
            )
            for source, found in zip(SOURCES, fast.decoder_for(options).translate(SOURCES, options), strict=True):
                for one in found:
                    (forced,) = slow.force([source], [one.ids], options.readings)
                    expected = [
                        0.0 if one.ids == [end] else max(column) for column in zip(*forced.received, strict=True)
                    ]
                    assert one.received == pytest.approx(expected, abs=1e-4)
                    assert one.score == pytest.approx(sum(forced.log_probs) / len(one.ids), abs=2e-4)
    for missing in ((2, 0), (0, 4), (-1, 0)):
        assert fast.decoder_for(Readings(missing)) is None


@pytest.mark.parametrize("shortlist", [False, SOME])
@pytest.mark.parametrize("int8", [False, True])
def test_the_attention_in_a_batch_and_of_threads_is_that_of_a_sentence(int8, shortlist, monkeypatch):
    fast = strictly(build("guided"), int8=int8, shortlist=shortlist)
    settings = {"num_beams": 3, "num_return_sequences": 2, "readings": Readings(HEAD)}
    settings["shortlist"] = fast.shortlist

    def translated(sources):
        options = SearchOptions(limits=[14] * len(sources), **settings)
        return fast.decoder_for(options).translate(sources, options)

    alone = [found for source in SOURCES for found in translated([source])]
    for threads in (1, 2, 5):
        monkeypatch.setattr(torch, "get_num_threads", lambda threads=threads: threads)
        assert translated(SOURCES) == alone
