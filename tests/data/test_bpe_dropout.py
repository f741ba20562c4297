"""BPE-dropout: a pure function of seed, epoch and index, within a known length, and no trace in the tokenizer."""

import itertools
import random

import pytest

from hf_capsule_mt.data import BPEDropout, embedded_corpus, encode, sentence_pairs, train_tokenizer
from hf_capsule_mt.data.encoding import DropoutDataset


@pytest.fixture(scope="module")
def tokenizer():
    sides = itertools.chain.from_iterable(itertools.islice(sentence_pairs(), 400))
    return train_tokenizer(sides, 700)


TEXTS = [side for pair in itertools.islice(sentence_pairs(4), 50) for side in pair] + ["日本 ▁ x", "", "a" * 200]


def test_the_merges_are_those_of_the_library(tokenizer):
    segmenter = BPEDropout(tokenizer, 0.1).segmenters["source"]
    for text in TEXTS:
        assert segmenter.with_dropout(text, 0.0, random.Random(0)) == tokenizer(text)["input_ids"]


def test_a_pure_function(tokenizer):
    def encoded(seed, epoch, order=1):
        dropout = BPEDropout(tokenizer, 0.2, seed)
        ids = {index: dropout.encode(TEXTS[index], epoch=epoch, index=index) for index in range(100)[::order]}
        return [ids[index] for index in range(100)]

    first = encoded(1, 0)
    assert first == encoded(1, 0, order=-1)
    for other in (encoded(2, 0), encoded(1, 1)):
        assert sum(one != two for one, two in zip(first, other, strict=True)) > 80
    dropout = BPEDropout(tokenizer, 0.2, 1)
    same_text = {tuple(dropout.encode(TEXTS[0], epoch=0, index=index)) for index in range(20)}
    assert len(same_text) > 5


def test_texts_stay_the_same_and_lengths_are_bounded(tokenizer):
    before = tokenizer.backend_tokenizer.to_str()
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
    assert tokenizer.backend_tokenizer.to_str() == before


def test_as_a_data_set(tokenizer):
    corpus = encode(embedded_corpus(20, 1, 1)["train"], tokenizer, "en", "de", keep_text=True)
    dataset = DropoutDataset(corpus, BPEDropout(tokenizer, 0.1), "en", "de")
    first = [dataset[index] for index in range(20)]
    for index, example in enumerate(first):
        assert len(example["input_ids"]) <= dataset.source_lengths[index]
        assert len(example["labels"]) <= dataset.target_lengths[index]
    dataset.set_epoch(1)
    assert [dataset[index] for index in range(20)] != first
    dataset.set_epoch(0)
    assert [dataset[index] for index in range(20)] == first


def test_other_tokenizers_are_refused():
    unigram = train_tokenizer(["a b c", "b c d"] * 50, 400, "unigram")
    with pytest.raises(ValueError, match=r"needs a fast tokenizer of type BPE, got .* \(Unigram\)"):
        BPEDropout(unigram, 0.1)
    with pytest.raises(ValueError, match=r"`dropout` must be a probability in \[0, 1\), got 1"):
        BPEDropout(unigram, 1)
