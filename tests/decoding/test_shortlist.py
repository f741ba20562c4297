"""Shortlists: nothing changes when everything is on them, and what is not on them is never written."""

import pytest
import torch

from capsule_mt.models.shortlist import FILE_NAME, Shortlist
from hf_capsule_mt import Translator, to_fast
from tests.decoding.models import END, SOURCES, VOCABULARY, batch, build, strictly
from tests.decoding.test_fast import SEARCHES

SIZES = (VOCABULARY, VOCABULARY)
EVERYTHING = Shortlist.of_translations({}, range(VOCABULARY), SIZES)
# each source token may become 15 tokens of its own
SOME = Shortlist.of_translations({token: range(30 + token, 45 + token) for token in range(30)}, [3, 4, 5], SIZES)


@pytest.mark.parametrize("int8", [False, True])
@pytest.mark.parametrize("name", ["plain", "capsules", "rnmt_guided"])
def test_with_everything_on_it_nothing_changes(name, int8):
    model = build(name)
    whole, listed = (strictly(model, int8=int8, shortlist=one) for one in (False, EVERYTHING))
    for search in SEARCHES.values():
        expected, found = (
            fast.generate(**batch(), **search, return_dict_in_generate=True) for fast in (whole, listed)
        )
        assert torch.equal(found.sequences, expected.sequences), search
        if search.get("num_beams", 1) > 1:
            torch.testing.assert_close(found.sequences_scores, expected.sequences_scores)


@pytest.mark.parametrize("int8", [False, True])
def test_only_listed_tokens_are_written(int8):
    fast = strictly(build("plain"), int8=int8, shortlist=SOME)
    for search in SEARCHES.values():
        together = fast.generate(**batch(), **search)
        for number, source in enumerate(SOURCES):
            copies = search.get("num_return_sequences", 1)
            rows = together[number * copies : (number + 1) * copies]
            allowed = SOME.of_source(source, END)
            assert len(allowed) < VOCABULARY / 1.5
            written = set(rows[:, 1:].flatten().tolist()) - {fast.model.config.pad_token_id}
            assert written <= set(allowed), search
            # what the others of its batch may write has no influence
            alone = fast.generate(**batch([source]), **search)
            assert torch.equal(rows[:, : alone.shape[1]], alone), search


def test_it_equals_forbidding_the_others():
    """In float32, with one source: the tokens of `generate()` when all tokens outside of the list are suppressed."""
    model = build("plain")
    others = sorted(set(range(VOCABULARY)) - set(SOME.of_source(SOURCES[0], END)))
    expected = model.generate(**batch(SOURCES[:1]), suppress_tokens=others)
    assert torch.equal(strictly(model, int8=False, shortlist=SOME).generate(**batch(SOURCES[:1])), expected)


def test_what_is_refused(word_for_word, tmp_path):
    SOME.save(tmp_path / FILE_NAME)
    with pytest.raises(ValueError, match="`shortlist` is for vocabularies of 211 and 211 tokens, but the model's"):
        Translator.from_pretrained(word_for_word, device="cpu", shortlist=tmp_path)
    with pytest.raises(ValueError, match="`shortlist` is for one float32 model on a CPU"):
        Translator.from_pretrained(word_for_word, device="cpu", shortlist=tmp_path, backend="transformers")
    nothing = Shortlist.of_translations({}, [], SIZES)
    with pytest.raises(ValueError, match="2 beams with a shortlist of 1 tokens"):
        strictly(build("plain"), shortlist=nothing).generate(**batch(), num_beams=2)
    model = build("plain")
    model.name_or_path = str(tmp_path)
    assert to_fast(model, shortlist=True).shortlist.vocabulary == VOCABULARY
