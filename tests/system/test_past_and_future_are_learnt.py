"""A trained model with guided dynamic routing shows what Zheng et al. 2019 claim of PAST and FUTURE.

Measured on the golden checkpoint `word_for_word`, whose numbers no training and no processor changes: the paper's own
overlap rate, the way of words from FUTURE to PAST when their translation is produced, and whether coverage finds a
translation that left one out. Target word n translates source word n, and each word is one token.
"""

import json
from typing import NamedTuple

import pytest
import torch
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

from hf_capsule_mt import CapsuleMarianMTModel
from hf_capsule_mt.analysis.past_future import forced_curves, mean_overlap_rate, overlap_rates
from tests.fixtures.word_for_word import TRANSLATION, sentences
from tests.golden.make import EXPECTED, FOLDER, measure_marks

LEFT_OUT = 1  # the place of the word that the shortened translations lack


class Trained(NamedTuple):
    model: CapsuleMarianMTModel
    tokenizer: object
    sources: list[str]


@pytest.fixture(scope="module")
def trained() -> Trained:
    folder = FOLDER / "word_for_word"
    model = AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
    return Trained(model, AutoTokenizer.from_pretrained(folder), sentences(100, seed=7))


def batch(trained: Trained, without: int | None = None):
    """The sentences with their translations, without the word of one place if asked for, padded with -100."""
    targets = [[TRANSLATION[word] for word in text.split()] for text in trained.sources]
    if without is not None:
        targets = [words[:without] + words[without + 1 :] for words in targets]
    encoded = trained.tokenizer(
        trained.sources, text_target=[" ".join(words) for words in targets], padding=True, return_tensors="pt"
    )
    labels = encoded["labels"].masked_fill(encoded["labels"] == trained.tokenizer.pad_token_id, -100)
    return encoded["input_ids"], encoded["attention_mask"], labels


def test_overlap_rate(trained):
    """The paper reports 0.72 and 0.70 after training on a million sentences; of forty words chance finds more."""
    untrained = CapsuleMarianMTModel(trained.model.config).eval()
    chance, rate = (mean_overlap_rate(overlap_rates(model, *batch(trained))) for model in (untrained, trained.model))
    assert min(rate) > 0.95
    assert max(chance) < 0.7


def test_words_move_from_future_to_past_when_their_translation_is_produced(trained):
    """Shares of the source words, when their translation is about to be produced and when it has been read."""
    curves = forced_curves(trained.model, *batch(trained))
    future_before, after, mean_fall = [], [], []
    for number, text in enumerate(trained.sources):
        length = len(text.split())
        past, future = curves.past[number], curves.future[number]
        for position in range(length):
            future_before.append((past[position, position], future[position, position]))
            after.append((past[position, position + 1], future[position, position + 1]))
            mean_fall.append((future[position, 0] - future[position, length]) / length)
    future_before, after = torch.tensor(future_before), torch.tensor(after)
    assert (after[:, 0] - after[:, 1] > future_before[:, 0] - future_before[:, 1]).float().mean() > 0.95
    rise, fall = (after - future_before).mean(0)[0], (future_before - after).mean(0)[1]
    assert rise > 0.2
    assert fall > 0.2
    assert fall > 1.5 * torch.stack(mean_fall).mean()


def test_coverage_finds_what_was_left_out(trained):
    complete, short = (
        trained.model.score_coverage(input_ids, mask, labels=labels)
        for input_ids, mask, labels in (batch(trained), batch(trained, without=LEFT_OUT))
    )
    assert (complete.score[:, None] > short.score[None]).float().mean() > 0.95  # area under the curve
    left_out, translated = short.untranslated[:, LEFT_OUT], complete.untranslated[complete.words]
    assert left_out.float().mean() > 2 * translated.float().mean()


def test_marks_of_the_models_own_translations():
    """Equal to those of the day on which the checkpoint was made; one word is near the threshold."""
    expected = json.loads((FOLDER / "word_for_word" / EXPECTED).read_text(encoding="utf-8"))["marks"]
    for name, count in measure_marks(FOLDER / "word_for_word").items():
        assert abs(count - expected[name]) <= 2, name
