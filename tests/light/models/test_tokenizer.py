"""The tokenizer in a folder. tests/decoding/test_tokenizer.py compares it with transformers'."""

import pytest

from capsule_mt.engine.program import UnsupportedModelError
from capsule_mt.models.tokenizer import FileTokenizer
from tests.light.models.files import edit_json, golden


@pytest.fixture
def folder(tmp_path):
    return golden("capsule_marian", tmp_path / "model")


def test_text_that_looks_like_a_special_token_is_split_by_default(folder):
    text = "A </s> in a <pad>."
    tokenizer = FileTokenizer(folder)
    assert tokenizer.decode(tokenizer.encode(text).ids) == text
    edit_json(folder / "tokenizer_config.json", split_special_tokens=False)
    assert FileTokenizer(folder).encode(text).ids.count(1) == 2


def test_spaces_are_cleaned_up_if_the_configuration_says_so(folder):
    ids = FileTokenizer(folder).encode("He does n't sing , he reads .").ids
    edit_json(folder / "tokenizer_config.json", clean_up_tokenization_spaces=True, unk_token={"content": "<unk>"})
    tokenizer = FileTokenizer(folder)
    assert tokenizer.decode(ids) == "He doesn't sing, he reads."
    assert tokenizer.unknown_id == 2


def test_a_folder_without_tokenizer_json_is_refused(folder):
    (folder / "tokenizer.json").unlink()
    with pytest.raises(UnsupportedModelError, match=r"tokenizer\.json: no such file; .* needs hf-capsule-mt"):
        FileTokenizer(folder)
