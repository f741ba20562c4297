"""Digests are equal for copies of a checkpoint, and differ for what does not translate the same."""

import shutil

import pytest
import torch
from hf_capsule_mt.files import digests
from hf_capsule_mt.files.digests import model_digests, tokenizer_digest
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

from capsule_mt.text.digests import digest
from tests.conftest import GOLDEN
from tests.golden.make import TOKENIZER


@pytest.mark.parametrize("family", ["capsule_marian", "capsnmt", "capsule_rnmt"])
def test_a_copy_is_the_same_model(family, tmp_path):
    copy = shutil.copytree(GOLDEN / family, tmp_path / "copy")
    one, other = (AutoModelForSeq2SeqLM.from_pretrained(path) for path in (GOLDEN / family, copy))
    assert model_digests(one) == model_digests(other)
    copy = shutil.copytree(TOKENIZER, tmp_path / "tokenizer")
    one, other = (AutoTokenizer.from_pretrained(path) for path in (TOKENIZER, copy))
    assert tokenizer_digest(one) == tokenizer_digest(other)


def test_each_change_is_named():
    model = AutoModelForSeq2SeqLM.from_pretrained(GOLDEN / "word_for_word")
    before = model_digests(model)
    with torch.no_grad():
        next(model.parameters()).view(-1)[-1] += 1e-3
    after = model_digests(model)
    assert {name for name in before if before[name] != after[name]} == {"weights"}
    model.config.num_routing_iterations = 7
    model.generation_config.num_beams = 7
    changed = model_digests(model)
    assert {name for name in before if after[name] != changed[name]} == {"configuration", "generation_config"}
    tokenizer = AutoTokenizer.from_pretrained(GOLDEN / "word_for_word")
    before = tokenizer_digest(tokenizer)
    tokenizer.add_tokens(["new"])
    assert tokenizer_digest(tokenizer) != before


def test_tied_weights_are_read_once(monkeypatch):
    model = AutoModelForSeq2SeqLM.from_pretrained(GOLDEN / "capsule_marian")
    tied, read = model_digests(model), []
    monkeypatch.setattr(digests, "digest", read.extend)
    model_digests(model)
    names = {name for name, _ in model.named_parameters()} | {name for name, _ in model.named_buffers()}
    expected = sum(value.nbytes for name, value in model.state_dict().items() if name in names)
    assert sum(part.nbytes for part in read if not isinstance(part, str)) == expected
    assert expected < sum(value.nbytes for value in model.state_dict().values())
    monkeypatch.undo()
    model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.detach().clone())
    assert model_digests(model)["weights"] != tied["weights"]  # they may part from now on


def test_a_full_disk_is_an_error_of_the_system(monkeypatch):
    """tokenizers raises a bare `Exception`, which would be a traceback."""
    tokenizer = AutoTokenizer.from_pretrained(GOLDEN / "word_for_word")

    def fail(folder):
        raise Exception("File too large (os error 27)")

    monkeypatch.setattr(tokenizer, "save_pretrained", fail)
    with pytest.raises(OSError, match=r"the tokenizer could not be saved there .*File too large"):
        tokenizer_digest(tokenizer)


def test_parts_count_with_their_length():
    assert digest(["ab", "c"]) != digest(["a", "bc"])
    assert digest(["a", b"b"]) == digest([b"a", "b"])
