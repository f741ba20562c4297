"""Encoding and padding."""

import torch

from hf_capsule_mt.data import TranslationCollator, drop_long, embedded_corpus, encode
from tests.fixtures.tiny import tiny_tokenizer


def test_encoding_and_dropping():
    tokenizer = tiny_tokenizer()
    part = embedded_corpus(50, 1, 1)["train"]
    encoded = encode(part, tokenizer, "en", "de")
    assert set(encoded.column_names) == {"input_ids", "labels", "source_length", "target_length"}
    for row, pair in zip(encoded, part["translation"], strict=True):
        assert (row["source_length"], row["target_length"]) == (len(row["input_ids"]), len(row["labels"]))
        assert tokenizer.decode(row["labels"], skip_special_tokens=True) == pair["de"]
        assert row["labels"][-1] == tokenizer.eos_token_id
    kept, dropped = drop_long(encoded, 20)
    assert 0 < dropped == 50 - len(kept)
    assert max(max(kept["source_length"]), max(kept["target_length"])) <= 20
    cut = encode(part, tokenizer, "en", "de", max_length=8, keep_text=True)
    assert max(cut["source_length"]) == 8
    assert all(ids[-1] == tokenizer.eos_token_id for ids in cut["input_ids"])
    assert cut["translation"] == part["translation"]


def test_padding():
    rows = [{"input_ids": [5, 1], "labels": [6, 7, 1]}, {"input_ids": [8, 9, 4, 1], "labels": [1]}]
    batch = TranslationCollator(pad_token_id=0)(rows)
    torch.testing.assert_close(batch["input_ids"], torch.tensor([[5, 1, 0, 0], [8, 9, 4, 1]]))
    torch.testing.assert_close(batch["attention_mask"], torch.tensor([[1, 1, 0, 0], [1, 1, 1, 1]]))
    torch.testing.assert_close(batch["labels"], torch.tensor([[6, 7, 1], [1, -100, -100]]))
    assert TranslationCollator(0, pad_to_multiple_of=8)(rows)["labels"].shape == (2, 8)
