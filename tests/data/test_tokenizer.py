"""The tokenizer: round trips, special tokens, both sides, saved and loaded."""

import random
import unicodedata

import pytest
from transformers import AutoTokenizer

from hf_capsule_mt.data import sentence_pairs, train_tokenizer


@pytest.fixture(scope="module")
def tokenizer():
    pairs = sentence_pairs()
    return train_tokenizer((side for _ in range(500) for side in next(pairs)), vocab_size=700)


def test_sentences_round_trip_through_a_saved_tokenizer(tokenizer, tmp_path):
    tokenizer.save_pretrained(tmp_path)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    pairs = sentence_pairs(9)
    for text in (side for _ in range(200) for side in next(pairs)):
        ids = loaded(text)["input_ids"]
        assert ids == tokenizer(text)["input_ids"]
        assert ids[-1] == loaded.eos_token_id
        assert loaded.decode(ids, skip_special_tokens=True) == text
    assert (loaded.pad_token_id, loaded.eos_token_id, loaded.unk_token_id) == (0, 1, 2)
    assert len(loaded) == 700


def test_unseen_characters_are_spelt_in_bytes(tokenizer):
    chance = random.Random(0)
    for _ in range(300):
        text = "".join(
            chr(chance.choice([chance.randint(33, 0xD7FF), chance.randint(0x1F300, 0x1F6FF)])) for _ in range(8)
        )
        text = unicodedata.normalize("NFKC", f"a {text} b")
        if "▁" in text or unicodedata.normalize("NFKC", text) != text:
            continue
        ids = tokenizer(text)["input_ids"]
        assert tokenizer.unk_token_id not in ids
        assert tokenizer.decode(ids, skip_special_tokens=True) == text


def test_targets(tokenizer):
    batch = tokenizer(["one", "two three"], text_target=["eins", "zwei drei"], padding=True, return_tensors="pt")
    assert set(batch) == {"input_ids", "attention_mask", "labels"}
    assert batch["labels"][0][-1] == tokenizer.pad_token_id


def test_too_small_a_vocabulary():
    with pytest.raises(ValueError, match="`vocab_size` must be at least 259, got 100"):
        train_tokenizer(["a"], 100)
