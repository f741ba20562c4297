"""Shortlists: nothing changes when everything is on them, and what is not on them is never written."""

import pytest
import torch

from capsule_mt.models.shortlist import FILE_NAME, Shortlist
from hf_capsule_mt import Translator, to_fast
from tests.decoding.models import END, SOURCES, VOCABULARY, batch, build, strictly

SIZES = (VOCABULARY, VOCABULARY)
# each source token may become 15 tokens of its own
SOME = Shortlist.of_translations({token: range(30 + token, 45 + token) for token in range(30)}, [3, 4, 5], SIZES)


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
