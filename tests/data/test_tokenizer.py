"""The tokenizers: round trips of any text, special tokens, both sides, saved and loaded."""

import random
import unicodedata

import pytest
from transformers import AutoTokenizer

from hf_capsule_mt.data import sentence_pairs, train_separate_tokenizers, train_tokenizer

KINDS = ["bpe", "unigram", "separate bpe", "separate unigram"]


def make(kind):
    pairs = sentence_pairs()
    pairs = [next(pairs) for _ in range(400)]
    separate, _, model = kind.rpartition(" ")
    if separate:
        return train_separate_tokenizers(*zip(*pairs, strict=True), 600, 700, model)
    return train_tokenizer((side for pair in pairs for side in pair), 700, model)


@pytest.fixture(scope="module", params=KINDS)
def saved(request, tmp_path_factory):
    tokenizer = make(request.param)
    folder = tmp_path_factory.mktemp("tokenizer")
    tokenizer.save_pretrained(folder)
    return tokenizer, AutoTokenizer.from_pretrained(folder)


def random_texts(number):
    """Any code points, with those that tokenizers use for themselves more often than chance would have it."""
    chance = random.Random(0)
    ours = ["▁", "\uf8ff", "0", "1", " ", "</s>", "<pad>", "<unk>", "<0x41>", "\n", "\t", "\x00", "ﬁ", "Å"]

    def character():
        while True:
            planes = [(32, 126), (0, 0xD7FF), (0xE000, 0x10FFFF)]
            code = chance.randint(*chance.choice(planes))
            if unicodedata.category(chr(code)) != "Cn":  # what no version of Unicode has assigned yet, one may soon
                return chr(code)

    for _ in range(number):
        size = chance.randint(0, 10)
        yield "".join(chance.choice(ours) if chance.random() < 0.3 else character() for _ in range(size))


def test_ten_thousand_random_strings_round_trip(saved):
    _, tokenizer = saved
    texts = list(random_texts(10_000))
    expected = [unicodedata.normalize("NFKC", text) for text in texts]
    for side in ("text", "text_target"):
        encoded = tokenizer(**{side: texts})["input_ids"]
        reserved = {tokenizer.pad_token_id, tokenizer.unk_token_id}
        assert all(ids[-1] == tokenizer.eos_token_id and not reserved & set(ids) for ids in encoded)
        source = {"use_source_tokenizer": True} if side == "text" else {}
        decoded = tokenizer.batch_decode(encoded, skip_special_tokens=True, **source)
        # the library's tables of Unicode are older than Python's: it leaves a few characters as they are
        assert [unicodedata.normalize("NFKC", text) for text in decoded] == expected


def test_sentences_through_a_saved_tokenizer(saved):
    tokenizer, loaded = saved
    pairs = sentence_pairs(9)
    english, german = zip(*(next(pairs) for _ in range(100)), strict=True)
    assert dict(loaded(list(english), text_target=list(german))) == dict(
        tokenizer(list(english), text_target=list(german))
    )
    assert loaded.batch_decode(loaded(text_target=list(german))["input_ids"], skip_special_tokens=True) == list(german)
    assert (loaded.pad_token_id, loaded.eos_token_id, loaded.unk_token_id) == (0, 1, 2)
    assert len(loaded) == len(tokenizer) <= 700
    assert getattr(loaded, "target_vocab_size", None) == getattr(tokenizer, "target_vocab_size", None)


def test_targets(saved):
    _, tokenizer = saved
    batch = tokenizer(["one", "two three"], text_target=["eins", "zwei drei"], padding=True, return_tensors="pt")
    assert set(batch) == {"input_ids", "attention_mask", "labels"}
    assert tokenizer.batch_decode(batch["labels"], skip_special_tokens=True) == ["eins", "zwei drei"]


def test_separate_vocabularies_are_separate():
    tokenizer = make("separate bpe")
    assert (len(tokenizer), tokenizer.target_vocab_size) == (600, 700)
    assert tokenizer("weil")["input_ids"] != tokenizer(text_target="weil")["input_ids"]


def test_wrong_settings():
    with pytest.raises(ValueError, match="`vocab_size` must be at least 259, got 100"):
        train_tokenizer(["a"], 100)
    with pytest.raises(ValueError, match='`model` must be "bpe" or "unigram", got \'wordpiece\''):
        train_tokenizer(["a"], 500, "wordpiece")
