"""Shortlists: nothing changes when everything is on them, and what is not on them is never written."""

from dataclasses import replace

import pytest
import torch
from hf_capsule_mt.fast import Shortlist, to_fast
from hf_capsule_mt.fast.shortlist import FILE_NAME

from hf_capsule_mt import Translator
from tests.fast.models import END, SOURCES, VOCABULARY, batch, build
from tests.fast.test_translator import SEARCHES

SIZES = (VOCABULARY, VOCABULARY)
EVERYTHING = Shortlist.of_translations({}, range(VOCABULARY), SIZES)
# each source token may become 15 tokens of its own
SOME = Shortlist.of_translations({token: range(30 + token, 45 + token) for token in range(30)}, [3, 4, 5], SIZES)


@pytest.mark.parametrize("int8", [False, True])
@pytest.mark.parametrize("name", ["plain", "capsules", "rnmt_guided"])
def test_with_everything_on_it_nothing_changes(name, backend, int8):
    model = build(name)
    whole, listed = (to_fast(model, int8=int8, backend=backend, shortlist=one) for one in (False, EVERYTHING))
    for search in SEARCHES.values():
        expected, found = (
            fast.generate(**batch(), **search, return_dict_in_generate=True) for fast in (whole, listed)
        )
        assert torch.equal(found.sequences, expected.sequences), search
        if search.get("num_beams", 1) > 1:
            torch.testing.assert_close(found.sequences_scores, expected.sequences_scores)


@pytest.mark.parametrize("int8", [False, True])
def test_only_listed_tokens_are_written(backend, int8):
    fast = to_fast(build("plain"), int8=int8, backend=backend, shortlist=SOME)
    for search in SEARCHES.values():
        together = fast.generate(**batch(), **search, return_dict_in_generate=True)
        for number, source in enumerate(SOURCES):
            copies = search.get("num_return_sequences", 1)
            rows = together.sequences[number * copies : (number + 1) * copies]
            allowed = SOME.of_source(source, END)
            assert len(allowed) < VOCABULARY / 1.5
            written = rows[:, 1:][rows[:, 1:] != fast.model.config.pad_token_id]
            assert bool(torch.isin(written.int(), allowed).all()), search
            # what the others of its batch may write has no influence
            alone = fast.generate(**batch([source]), **search, return_dict_in_generate=True)
            assert torch.equal(rows[:, : alone.sequences.shape[1]], alone.sequences), search


def test_it_equals_forbidding_the_others(backend):
    """In float32, with one source: the tokens of `generate()` when all tokens outside of the list are suppressed."""
    model = build("plain")
    fast = to_fast(model, int8=False, backend=backend, shortlist=SOME)
    allowed = SOME.of_source(SOURCES[0], END).tolist()
    others = [token for token in range(VOCABULARY) if token not in allowed]
    expected = model.generate(**batch(SOURCES[:1]), suppress_tokens=others)
    assert torch.equal(fast.generate(**batch(SOURCES[:1])), expected)


def test_coverage_is_among_the_listed_tokens(backend):
    model = build("guided")
    settings = {"return_dict_in_generate": True, "return_coverage": True, "num_beams": 2}
    whole, listed = (
        to_fast(model, int8=False, backend=backend, shortlist=one).generate(**batch(), **settings).coverage
        for one in (False, EVERYTHING)
    )
    torch.testing.assert_close(whole.covered, listed.covered)
    torch.testing.assert_close(whole.log_prob, listed.log_prob)


def test_files(tmp_path):
    SOME.save(tmp_path / FILE_NAME)
    for path in (tmp_path, tmp_path / FILE_NAME):
        loaded = Shortlist.load(path)
        assert torch.equal(loaded.of_source([5, 6], END), SOME.of_source([5, 6], END))
    model = build("plain")
    model.name_or_path = str(tmp_path)
    assert to_fast(model, shortlist=True).shortlist.vocabulary == VOCABULARY
    with pytest.raises(FileNotFoundError, match="capsule-mt shortlist CHECKPOINT SOURCE TARGET"):
        to_fast(model, shortlist=tmp_path / "none")


def test_a_damaged_list_is_refused():
    damages = [
        {"tokens": torch.full_like(SOME.tokens, 10**8)},
        {"frequent": SOME.frequent - 300},
        {"starts": SOME.starts + 1},
        {"tokens": SOME.tokens[:-1]},
        {"tokens": SOME.tokens.float()},
    ]
    for damage in damages:
        with pytest.raises(ValueError, match="`shortlist` is damaged"):
            to_fast(build("plain"), shortlist=replace(SOME, **damage))
    wide = replace(SOME, tokens=SOME.tokens.long(), frequent=SOME.frequent.long())
    assert wide.of_source([5, 6]).dtype == torch.int32


def test_what_is_refused(word_for_word, tmp_path):
    SOME.save(tmp_path / FILE_NAME)
    with pytest.raises(ValueError, match="`shortlist` is for vocabularies of 211 and 211 tokens, but the model's"):
        Translator.from_pretrained(word_for_word, device="cpu", shortlist=tmp_path)
    with pytest.raises(ValueError, match="`shortlist` is for one float32 model on a CPU"):
        Translator.from_pretrained(word_for_word, device="cpu", shortlist=tmp_path, backend="transformers")
    nothing = Shortlist.of_translations({}, [], SIZES)
    with pytest.raises(ValueError, match="2 beams with a shortlist of 1 tokens"):
        to_fast(build("plain"), backend="native", shortlist=nothing).generate(**batch(), num_beams=2)
