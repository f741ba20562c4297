"""Strings nobody thought of: the pipeline answers or refuses each."""

import random

import pytest
from transformers import pipeline

from hf_capsule_mt import CapsuleMarianMTModel
from tests.fixtures.tiny import save_tiny_checkpoint

POOLS = {
    "spaces": " \t\n\r\v\f\x1c\u00a0\u2003\u3000\u2028\ufeff\u200b",
    "control": "".join(map(chr, range(32))) + "\x7f\x80\x9f\u200e\u202e\u2066",
    "emoji": "🙂👩\u200d👧🇩🇪👍🏽❤\ufe0f🏴",
    "right to left": "שלום عليكم.؟ \u200f،",
    "letters": "The child sleeps. Das Kind schläft! Кто? 誰。 ก็ e\u0301",
    "surrogates": "a\ud800\udc00\udfff b",
    "anything": None,
}


def strings(number, longest, seed=0):
    generator = random.Random(seed)
    yield from ("", " ", "\n", "\x00", "\ud800", "a" * longest, "🙂" * longest, ". " * (longest // 2), "。" * longest)
    for _ in range(number - 9):
        pool = POOLS[generator.choice(list(POOLS))]
        length = generator.choice((1, 2, 5, 20, 60))
        if generator.random() < 1 / 2000:
            length = longest
        choose = generator.choice
        yield "".join(choose(pool) if pool else chr(generator.randrange(0x110000)) for _ in range(length))


@pytest.fixture(scope="module")
def translator(tmp_path_factory):
    folder = save_tiny_checkpoint(tmp_path_factory.mktemp("fuzz"))
    model = CapsuleMarianMTModel.from_pretrained(folder)
    model.generation_config.max_new_tokens = 2
    return pipeline("translation", model=model, tokenizer=str(folder))


def check(translator, texts):
    records = translator(texts, batch_size=64)
    assert len(records) == len(texts)
    for text, record in zip(texts, records, strict=True):
        assert isinstance(record["translation_text"], str)
        if not text.strip():
            assert record["translation_text"] == ""
    sample = random.Random(1).sample(range(len(texts)), 40)
    for index in sample:  # in order: each is what it is alone
        assert translator(texts[index])[0] == records[index]


def test_strings(translator):
    check(translator, list(strings(600, 2_000)))


@pytest.mark.slow
def test_ten_thousand_strings(translator):
    check(translator, list(strings(10_000, 10_000)))


@pytest.mark.parametrize("wrong", [None, 3, b"bytes", ["a", None], [["a"]], {"text": "a"}, [b"a"], 2.5])
def test_what_is_no_text(translator, wrong):
    with pytest.raises(ValueError, match="the pipeline translates strings and lists of strings, got a"):
        translator(wrong)
