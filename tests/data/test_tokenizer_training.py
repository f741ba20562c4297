"""Tokenizers, joint and separate; BPE-dropout; encoding."""

import itertools
import random
import unicodedata

import pytest
from transformers import AutoTokenizer

from hf_capsule_mt.data import (
    BPEDropout,
    drop_long,
    embedded_corpus,
    encode,
    sentence_pairs,
    train_separate_tokenizers,
    train_tokenizer,
)
from tests.fixtures.tiny import tiny_tokenizer

KINDS = ["joint", "separate"]


def make(kind):
    pairs = sentence_pairs()
    pairs = [next(pairs) for _ in range(400)]
    if kind == "separate":
        return train_separate_tokenizers(*zip(*pairs, strict=True), 600, 700)
    return train_tokenizer((side for pair in pairs for side in pair), 700)


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
    english, german = zip(*itertools.islice(sentence_pairs(), 1000, 1100), strict=True)
    assert dict(loaded(list(english), text_target=list(german))) == dict(
        tokenizer(list(english), text_target=list(german))
    )
    assert loaded.batch_decode(loaded(text_target=list(german))["input_ids"], skip_special_tokens=True) == list(german)
    assert (loaded.pad_token_id, loaded.eos_token_id, loaded.unk_token_id) == (0, 1, 2)
    assert len(loaded) == len(tokenizer) <= 700
    assert getattr(loaded, "target_vocab_size", None) == getattr(tokenizer, "target_vocab_size", None)


@pytest.fixture(scope="module")
def tokenizer():
    sides = itertools.chain.from_iterable(itertools.islice(sentence_pairs(), 400))
    return train_tokenizer(sides, 700)


TEXTS = [side for pair in itertools.islice(sentence_pairs(), 1100, 1150) for side in pair] + [
    "日本 ▁ x",
    "",
    "a" * 200,
]


def test_the_merges_are_those_of_the_library(tokenizer):
    segmenter = BPEDropout(tokenizer, 0.1).segmenters["source"]
    for text in TEXTS:
        assert segmenter.with_dropout(text, 0.0, random.Random(0)) == tokenizer(text)["input_ids"]


def test_dropout_is_a_pure_function_of_seed_epoch_and_index(tokenizer):
    def encoded(seed, epoch, order=1):
        dropout = BPEDropout(tokenizer, 0.2, seed)
        ids = {index: dropout.encode(TEXTS[index], epoch=epoch, index=index) for index in range(100)[::order]}
        return [ids[index] for index in range(100)]

    first = encoded(1, 0)
    assert first == encoded(1, 0, order=-1)
    for another in (encoded(2, 0), encoded(1, 1)):
        assert sum(left != right for left, right in zip(first, another, strict=True)) > 80
    dropout = BPEDropout(tokenizer, 0.2, 1)
    same_text = {tuple(dropout.encode(TEXTS[0], epoch=0, index=index)) for index in range(20)}
    assert len(same_text) > 5


def test_texts_stay_the_same_and_lengths_are_bounded(tokenizer):
    serialized = tokenizer.backend_tokenizer.to_str()
    dropout = BPEDropout(tokenizer, 0.3)
    longer = 0
    for index, text in enumerate(TEXTS):
        plain = tokenizer(text)["input_ids"]
        ids = dropout.encode(text, epoch=0, index=index)
        assert tokenizer.decode(ids, skip_special_tokens=True) == text
        assert ids[-1] == tokenizer.eos_token_id
        assert len(ids) <= dropout.longest(len(plain))
        longer += len(ids) > len(plain)
    assert longer > len(TEXTS) / 2
    assert tokenizer.backend_tokenizer.to_str() == serialized


def test_encoding_and_dropping():
    tokenizer = tiny_tokenizer()
    part = embedded_corpus(50, 1, 1)["train"]
    encoded = encode(part, tokenizer, "en", "de")
    assert set(encoded.column_names) == {"input_ids", "labels", "source_length", "target_length"}
    for row, pair in zip(encoded, part["translation"], strict=True):
        assert (row["source_length"], row["target_length"]) == (len(row["input_ids"]), len(row["labels"]))
        assert tokenizer.decode(row["labels"], skip_special_tokens=True) == pair["de"]
        assert row["labels"][-1] == tokenizer.eos_token_id
    short, dropped = drop_long(encoded, 20)
    assert 0 < dropped == 50 - len(short)
    assert max(max(short["source_length"]), max(short["target_length"])) <= 20
    cut = encode(part, tokenizer, "en", "de", max_length=8, keep_text=True)
    assert max(cut["source_length"]) == 8
    assert all(ids[-1] == tokenizer.eos_token_id for ids in cut["input_ids"])
    assert cut["translation"] == part["translation"]
    assert tokenizer.backend_tokenizer.truncation is None  # nobody who saves it has asked for a limit
