"""The light tokenizer against transformers', on a checkpoint's files."""

import pytest
from transformers import AutoTokenizer

from capsule_mt.models.checkpoint_tokenizer import FileTokenizer
from hf_capsule_mt.data import sentence_pairs, train_separate_tokenizers
from hf_capsule_mt.decoding.transformers_tokenizer import TransformersTokenizer
from hf_capsule_mt.modeling.target_text import decode_target
from tests.golden.make import TOKENIZER

TEXTS = ["", " ", "Ein Satz.", "  zwei  Leerzeichen ", "ﬁ ² ½ é", "日本語 😀", "</s> <pad> <unk> ▁ \uf8ff0", "a\nb\tc"]


def folders(tmp_path):
    pairs = [pair for pair, _ in zip(sentence_pairs(), range(400), strict=False)]
    sides = [[pair[side] for pair in pairs] for side in (0, 1)]
    train_separate_tokenizers(*sides, vocab_size=400, show_progress=False).save_pretrained(tmp_path / "separate")
    return {"golden": TOKENIZER, "separate": tmp_path / "separate"}


@pytest.mark.parametrize("kind", ["golden", "separate"])
def test_it_equals_that_of_transformers(kind, tmp_path):
    folder = folders(tmp_path)[kind]
    light, heavy = FileTokenizer(folder), AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    texts = TEXTS + [text for pair, _ in zip(sentence_pairs(), range(30), strict=False) for text in pair]
    for text in texts:
        encoded = heavy(text, return_offsets_mapping=True)
        ids, offsets, _ = light.encode(text)
        assert ids == encoded["input_ids"]
        assert offsets == [span if span[0] < span[1] else None for span in map(tuple, encoded["offset_mapping"])]
        targets = heavy(text_target=text)["input_ids"]
        assert light.encode_target(text) == targets
        assert light.decode(targets) == decode_target(heavy, [heavy.pad_token_id, *targets, heavy.pad_token_id])
    assert light.unknown_id == heavy.unk_token_id
    assert light.special_ids == set(heavy.all_special_ids) - {heavy.unk_token_id}
    adapter = TransformersTokenizer(heavy)
    assert light.byte_ids == adapter.byte_ids
    assert light.target_byte_ids == adapter.target_byte_ids
    assert light.byte_ids
