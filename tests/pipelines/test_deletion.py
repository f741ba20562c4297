"""Coverage of any model: what happens to the probability of a translation when a word of its source is deleted."""

from types import SimpleNamespace

import pytest
import torch
from hf_capsule_mt.pipelines import deletion
from hf_capsule_mt.pipelines.source_batch import SourceBatch, WordTokens
from hf_capsule_mt.pipelines.tokenizer import token_offsets
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

from capsule_mt.text.sentences import Span
from capsule_mt.text.words import SourceWord, source_words
from hf_capsule_mt import CoverageOptions, Translator
from tests.conftest import GOLDEN
from tests.fixtures.tiny import save_tiny_marian
from tests.fixtures.word_for_word import TRANSLATION, sentences

BY_DELETION = CoverageOptions(method="deletion")
TEXTS = sentences(40, seed=99)


@pytest.fixture(scope="module")
def translator():
    return Translator.from_pretrained(GOLDEN / "word_for_word")


def test_dropped_words_are_less_needed(translator):
    # nothing of a missing word can be needed, so it ranks below the translated ones
    missing, translated = [], []
    for text, found in zip(TEXTS, translator(TEXTS, batch_size=40, coverage=BY_DELETION), strict=True):
        assert [word.text for word in found.coverage.words] == text.split()
        for word in found.coverage.words:
            is_missing = TRANSLATION[word.text] not in found.text.split()
            (missing if is_missing else translated).append(word)
    assert len(missing) > 50
    assert len(translated) > 50
    ranked = [one.covered < other.covered for one in missing for other in translated]
    assert sum(ranked) / len(ranked) > 0.97
    assert sum(word.untranslated for word in missing) > 15
    assert not any(word.untranslated for word in translated)


def test_the_odds_by_hand(translator):
    text = TEXTS[2]
    found = translator(text, coverage=BY_DELETION)

    def log_prob(source):
        batch = translator.tokenizer(source, return_tensors="pt")
        labels = torch.tensor([found.segments[0].target_ids[1:]])
        with torch.no_grad():
            logits = translator.model(**batch, labels=labels).logits
        return -torch.nn.functional.cross_entropy(logits[0], labels[0], reduction="sum")

    whole = log_prob(text)
    assert found.score == pytest.approx(float(whole) / len(found.token_ids[1:]), abs=1e-5)
    words = text.split()
    for number, word in enumerate(found.coverage.words):
        shortened = " ".join(words[:number] + words[number + 1 :])
        assert word.covered == pytest.approx(float((whole - log_prob(shortened)).sigmoid()), abs=1e-5)
        assert (word.past, word.future) == (None, None)
    assert found.coverage.score == pytest.approx(sum(word.covered for word in found.coverage.words) / len(words))


def test_neither_batches_nor_chunks_matter(translator, monkeypatch):
    settings = {"coverage": BY_DELETION, "num_beams": 3, "num_return_sequences": 3}
    alone = [translator(text, **settings) for text in TEXTS[:5]]
    monkeypatch.setattr(deletion, "LOGITS_AT_ONCE", 2000)
    together = translator(TEXTS[:5], batch_size=5, **settings)
    for ones, others in zip(alone, together, strict=True):
        for one, other in zip(ones, others, strict=True):
            assert one.text == other.text
            assert [word.covered for word in one.coverage.words] == pytest.approx(
                [word.covered for word in other.coverage.words], abs=1e-5
            )


def test_effects_in_chunks_are_those_of_all_at_once(translator, monkeypatch):
    found = translator(TEXTS[0])
    source = translator.tokenizer(TEXTS[0], return_tensors="pt")
    batch = SourceBatch(source["input_ids"], source["attention_mask"])
    deleted = torch.eye(batch.input_ids.shape[1], dtype=torch.bool)[:-1]
    sequence = torch.tensor([found.token_ids])
    expected = deletion.deletion_effects(translator.model, batch, sequence, deleted)
    monkeypatch.setattr(deletion, "LOGITS_AT_ONCE", 1)
    torch.testing.assert_close(deletion.deletion_effects(translator.model, batch, sequence, deleted), expected)


def test_what_is_left_of_a_source():
    # padded on the left, on the right; the last has nothing but the deleted word
    input_ids = torch.tensor([[0, 5, 6, 7, 1], [5, 6, 1, 0, 0], [5, 0, 0, 0, 0]])
    mask = torch.tensor([[0, 1, 1, 1, 1], [1, 1, 1, 0, 0], [1, 0, 0, 0, 0]])
    word = SourceWord(Span(0, 1), [0], is_mark=False, is_unknown=False)
    words = WordTokens.of([[word, word._replace(tokens=[1, 2])], [word], [word]], mask)
    batch = SourceBatch(input_ids, mask, words=words)
    rows, deleted = words.counts.nonzero(as_tuple=True)
    left = deletion.without_tokens(batch, rows, words.tokens[rows, deleted], pad_token_id=0)
    assert left.input_ids.tolist() == [[6, 7, 1], [5, 1, 0], [6, 1, 0], [0, 0, 0]]
    assert left.attention_mask.tolist() == [[1, 1, 1], [1, 1, 0], [1, 1, 0], [1, 0, 0]]


def test_any_model(tmp_path):
    save_tiny_marian(tmp_path)
    model, tokenizer = AutoModelForSeq2SeqLM.from_pretrained(tmp_path), AutoTokenizer.from_pretrained(tmp_path)
    translator = Translator(model, tokenizer)
    text = "An old man buys twenty-three red apples. Who laughs?"
    found = translator(text, num_beams=2, coverage=CoverageOptions(threshold=0.9, retry_beams=3))
    words = ["An", "old", "man", "buys", "twenty-three", "red", "apples", ".", "Who", "laughs", "?"]
    assert [word.text for word in found.coverage.words] == words
    assert all(0 <= word.covered <= 1 for word in found.coverage.words)
    assert found.coverage.words[-1].covered == 1
    assert translator("?!", coverage=BY_DELETION).coverage.score == 1


def test_unknown_tokens_of_a_tokenizer_that_knows_no_places():
    pieces = {4: "▁The", 3: "<unk>", 5: "▁man", 6: "s", 2: "</s>"}
    tokenizer = SimpleNamespace(
        is_fast=False,
        all_special_ids=[2, 3],
        unk_token_id=3,
        convert_ids_to_tokens=lambda ids: [pieces[token_id] for token_id in ids],
    )
    text, token_ids = "The 老老老老老老老老老老老老 mans 🙂", [4, 3, 5, 6, 3, 2]
    offsets = token_offsets(tokenizer, text, token_ids, "")
    words = source_words(text, offsets, token_ids, 3)
    assert [(text[word.span.start : word.span.end], word.is_unknown, word.is_mark) for word in words] == [
        ("The", False, False),
        ("老" * 12, True, False),
        ("mans", False, False),
        ("🙂", True, True),
    ]
