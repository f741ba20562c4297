"""The tokenizer in a folder; tests/decoding/test_tokenizer.py holds it to transformers'."""

import json
import shutil

import pytest

from capsule_mt.engine.program import UnsupportedModelError
from capsule_mt.models.tokenizer import FileTokenizer
from capsule_mt.models.weights import CheckpointError
from tests.light.models.files import edit_json, golden


@pytest.fixture
def folder(tmp_path):
    return golden("capsule_marian", tmp_path / "model")


def test_texts(folder):
    tokenizer = FileTokenizer.in_folder(folder)
    text = "Every  sister sells ﬁsh. 鱼"
    ids, offsets = tokenizer.encode(text)
    assert ids[-1] == 1
    assert offsets[-1] is None
    covered = {n for start, end in filter(None, offsets) for n in range(start, end)}
    assert [text[n] for n in range(len(text)) if n not in covered and text[n] != " "] == []
    assert tokenizer.encode_target(text) == ids
    assert tokenizer.decode([0, *ids, 0]) == "Every  sister sells fish. 鱼"
    assert tokenizer.unknown_id == 2
    assert tokenizer.special_ids == {0, 1}
    assert tokenizer.language_tokens == []


def test_names_of_special_tokens_in_a_text_are_text(folder):
    text = "A </s> in a <pad>."
    splitting = FileTokenizer.in_folder(folder)
    assert splitting.decode(splitting.encode(text).ids) == text
    edit_json(folder / "tokenizer_config.json", split_special_tokens=False)
    assert FileTokenizer.in_folder(folder).encode(text).ids.count(1) == 2


def test_a_vocabulary_for_each_language(folder):
    content = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    vocabulary = content["model"]["vocab"]
    one, other = list(vocabulary)[-2:]
    vocabulary[one], vocabulary[other] = vocabulary[other], vocabulary[one]
    (folder / "target_tokenizer.json").write_text(json.dumps(content), encoding="utf-8")
    tokenizer = FileTokenizer.in_folder(folder)
    source, target = tokenizer.encode(one.replace("▁", " ")).ids, tokenizer.encode_target(one.replace("▁", " "))
    assert source != target
    assert tokenizer.decode(target) == tokenizer.decode(tokenizer.encode_target(tokenizer.decode(target)))
    assert tokenizer.decode(source) != tokenizer.decode(target)


def test_spaces_are_cleaned_up_where_a_tokenizer_asks(folder):
    ids = FileTokenizer.in_folder(folder).encode("He does n't sing , he reads .").ids
    edit_json(folder / "tokenizer_config.json", clean_up_tokenization_spaces=True, unk_token={"content": "<unk>"})
    tokenizer = FileTokenizer.in_folder(folder)
    assert tokenizer.decode(ids) == "He doesn't sing, he reads."
    assert tokenizer.unknown_id == 2


def test_files_that_are_no_tokenizers(folder):
    (folder / "tokenizer.json").write_text('{"model": 5}')
    with pytest.raises(CheckpointError, match=r"tokenizer\.json: does not load: "):
        FileTokenizer.in_folder(folder)
    (folder / "tokenizer.json").unlink()
    with pytest.raises(UnsupportedModelError, match=r"tokenizer\.json: no such file; .* needs hf-capsule-mt"):
        FileTokenizer.in_folder(folder)
    shutil.copy(folder / "config.json", folder / "tokenizer.json")
    (folder / "tokenizer_config.json").write_text("[]")
    with pytest.raises(CheckpointError, match=r"tokenizer_config\.json: must be a JSON object"):
        FileTokenizer.in_folder(folder)
