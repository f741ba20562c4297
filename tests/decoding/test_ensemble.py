"""Ensembles of models of one vocabulary."""

import itertools
import math

import pytest
import torch
from transformers import AutoModelForSeq2SeqLM, pipeline

from hf_capsule_mt.data import sentence_pairs, train_tokenizer
from tests.fixtures.tiny import save_tiny_checkpoint, save_tiny_marian

TEXTS = ["The child sleeps.", "An old man buys twenty-three red apples at the market.", "Who laughs?"]


@pytest.fixture(scope="module")
def paths(tmp_path_factory):
    """A capsule model and a Marian of the same vocabulary."""
    folder = tmp_path_factory.mktemp("ensemble")
    torch.manual_seed(1)
    save_tiny_checkpoint(folder / "first", layer_aggregation="em_routing")
    save_tiny_marian(folder / "second")
    return [str(folder / "first"), str(folder / "second")]


def average_log_probs(models, source, prefix):
    """The logarithm of the average probability of each next token [V], without any cache."""
    with torch.no_grad():
        logs = [model(**source, decoder_input_ids=prefix).logits[0, -1].log_softmax(dim=-1) for model in models]
    return torch.stack(logs).logsumexp(dim=0) - math.log(len(logs))


def by_hand(models, tokenizer, text, beams, steps):
    """Beam search without an end token, written out: tokens and average log-probability of the best."""
    source = tokenizer(text, return_tensors="pt")
    beam = [(0.0, [tokenizer.pad_token_id])]
    for _ in range(steps):
        candidates = []
        for total, prefix in beam:
            scores = average_log_probs(models, source, torch.tensor([prefix]))
            values, tokens = scores.topk(beams)
            candidates += [(total + float(v), [*prefix, int(t)]) for v, t in zip(values, tokens, strict=True)]
        beam = sorted(candidates, reverse=True)[:beams]
    return beam[0][1]


@pytest.mark.parametrize("beams", [1, 4])
def test_equals_the_average_of_probabilities(paths, beams):
    translator = pipeline("translation", model=paths[0], ensemble=[paths[1]])
    models = [AutoModelForSeq2SeqLM.from_pretrained(path).eval() for path in paths]
    # no token ends a translation here, so that every hypothesis has the same length
    records = translator(TEXTS, num_beams=beams, max_new_tokens=6, eos_token_id=-1, return_tensors=True, batch_size=3)
    for text, record in zip(TEXTS, records, strict=True):
        assert record["translation_token_ids"].tolist() == by_hand(models, translator.tokenizer, text, beams, 6)


def test_a_member_of_another_vocabulary_of_the_same_size_is_refused(paths, tmp_path):
    folder = save_tiny_checkpoint(tmp_path / "other")
    pairs = itertools.islice(sentence_pairs(), 1000, 1400)
    train_tokenizer((side.upper() for pair in pairs for side in pair), vocab_size=500).save_pretrained(folder)
    with pytest.raises(ValueError, match=r"other: its tokens stand for other words than those of .*first"):
        pipeline("translation", model=paths[0], ensemble=[folder])
