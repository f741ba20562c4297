"""The tokenizer in a folder; tests/decoding/test_tokenizer.py holds it to transformers'."""

import pytest

from capsule_mt.engine.program import UnsupportedModelError
from capsule_mt.models.tokenizer import FileTokenizer
from tests.light.models.files import edit_json, golden


@pytest.fixture
def folder(tmp_path):
    return golden("capsule_marian", tmp_path / "model")


def test_names_of_special_tokens_in_a_text_are_text(folder):
    text = "A </s> in a <pad>."
    splitting = FileTokenizer(folder)
    assert splitting.decode(splitting.encode(text).ids) == text
    edit_json(folder / "tokenizer_config.json", split_special_tokens=False)
    assert FileTokenizer(folder).encode(text).ids.count(1) == 2


def test_spaces_are_cleaned_up_where_a_tokenizer_asks(folder):
    ids = FileTokenizer(folder).encode("He does n't sing , he reads .").ids
    edit_json(folder / "tokenizer_config.json", clean_up_tokenization_spaces=True, unk_token={"content": "<unk>"})
    tokenizer = FileTokenizer(folder)
    assert tokenizer.decode(ids) == "He doesn't sing, he reads."
    assert tokenizer.unknown_id == 2


def test_a_tokenizer_of_another_kind(folder):
    (folder / "tokenizer.json").unlink()
    with pytest.raises(UnsupportedModelError, match=r"tokenizer\.json: no such file; .* needs hf-capsule-mt"):
        FileTokenizer(folder)
