"""Scores against other people's tools and hand-worked cases, with signatures, also by length; the files of results."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import sacrebleu
from transformers import EvalPrediction

from hf_capsule_mt.evaluation import read_result, write_result
from hf_capsule_mt.evaluation.length_buckets import score_by_length
from hf_capsule_mt.evaluation.metrics import METRICS, compute_metrics, metric_signature, score_corpus
from tests.fixtures.tiny import tiny_tokenizer

HYPOTHESES = [
    "Das ist ein kleiner Test .",
    "Der alte Mann kauft einen roten Hut , der alte Mann kauft .",
    "Äpfel sind GRÜN und gesund",
    "WIR gehen nach Hause",
    "Ja .",
]
REFERENCES = [
    [
        "Dies ist ein kleiner Test .",
        "Der alte Mann kauft einen roten Hut .",
        "äpfel sind grün und sehr gesund .",
        "wir gehen jetzt nach Hause .",
        "Nein , danke .",
    ],
    [
        "Das ist nur ein kleiner Versuch .",
        "Der Alte kauft einen roten Hut .",
        "Äpfel sind Grün und gesund !",
        "Wir gehen heim",
        "Ja , bitte .",
    ],
]


def test_scores_are_those_of_sacrebleu_with_their_signatures():
    scores = score_corpus(HYPOTHESES, REFERENCES, METRICS)
    assert scores["bleu"].score == pytest.approx(sacrebleu.corpus_bleu(HYPOTHESES, REFERENCES).score)
    lowered = sacrebleu.corpus_bleu(HYPOTHESES, REFERENCES, lowercase=True)
    assert scores["bleu_uncased"].score == pytest.approx(lowered.score)
    assert scores["bleu_uncased"].score > scores["bleu"].score
    assert scores["chrf"].score == pytest.approx(sacrebleu.corpus_chrf(HYPOTHESES, REFERENCES).score)
    assert scores["chrf++"].score == pytest.approx(sacrebleu.corpus_chrf(HYPOTHESES, REFERENCES, word_order=2).score)
    assert "|nc:6|nw:2|" in scores["chrf++"].signature
    assert scores["ter"].score == pytest.approx(sacrebleu.corpus_ter(HYPOTHESES, REFERENCES).score)
    assert f"version:{sacrebleu.__version__}" in scores["bleu"].signature
    assert "nrefs:2|case:mixed|eff:no|tok:13a|smooth:exp" in scores["bleu"].signature
    assert "case:lc" in scores["bleu_uncased"].signature
    assert "tok:none" in score_corpus(HYPOTHESES, REFERENCES, ["bleu"], "none")["bleu"].signature


@pytest.mark.parametrize("name", METRICS)
@pytest.mark.parametrize("references", [REFERENCES, REFERENCES[:1]], ids=["two references", "one reference"])
@pytest.mark.parametrize("tokenize", ["13a", "none"])
def test_a_signature_without_scoring_is_that_of_the_score(name, references, tokenize):
    scored = score_corpus(HYPOTHESES, references, [name], tokenize)[name].signature
    assert metric_signature(name, len(references), tokenize) == scored


def test_text_that_is_not_parallel_is_refused():
    with pytest.raises(ValueError, match=r"`references\[1\]` must have a line for each of the 5 hypotheses, got 4"):
        score_corpus(HYPOTHESES, [REFERENCES[0], REFERENCES[1][:4]])
    with pytest.raises(TypeError, match="must be a list of strings"):
        score_corpus(HYPOTHESES, REFERENCES[0])
    with pytest.raises(ValueError, match="give at least one of each"):
        score_corpus([], [[]])
    with pytest.raises(ValueError, match=r"`name` must be one of bleu, .*, got 'meteor'"):
        score_corpus(HYPOTHESES, REFERENCES, ["meteor"])


@pytest.mark.slow
def test_every_metric_loads_by_path_without_a_network(tmp_path):
    """In a process of its own, which is told that it is offline and has no cache."""
    script = f"""
import evaluate
from hf_capsule_mt.evaluation.metrics import METRICS, metric_path, score_corpus
hypotheses, references = {HYPOTHESES!r}, {REFERENCES!r}
for name in METRICS:
    found = evaluate.load(metric_path(name)).compute(
        predictions=hypotheses, references=[list(pair) for pair in zip(*references)])
    expected = score_corpus(hypotheses, references, [name])[name]
    assert found == {{"score": expected.score, "signature": expected.signature, "text": expected.text}}, (name, found)
single = evaluate.load(metric_path("bleu")).compute(predictions=hypotheses, references=references[0])
assert single["score"] == score_corpus(hypotheses, references[:1], ["bleu"])["bleu"].score
print("loaded", len(METRICS))
"""
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path), "HF_EVALUATE_OFFLINE": "1"}
    environment["PYTHONPATH"] = str(Path(__file__).resolve().parents[2])
    process = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False
    )
    assert process.returncode == 0, process.stderr[-2000:]
    assert f"loaded {len(METRICS)}" in process.stdout


def test_compute_metrics_refuses_unknown_metrics_before_a_training_begins():
    for metrics, wrong in ((["bleu", "blue"], "blue"), ("bleu", "bleu")):
        with pytest.raises(ValueError, match=rf"`metrics` takes a list of bleu, .*, ter, got '{wrong}'"):
            compute_metrics(tiny_tokenizer(), metrics)


def test_compute_metrics_reads_padded_predictions_and_masked_labels():
    tokenizer = tiny_tokenizer()
    texts = ["Der alte Mann kauft einen Hut.", "Das Kind singt."]
    labels = tokenizer(texts, padding=True, return_tensors="np")["input_ids"]
    predictions = np.concatenate([np.full((2, 1), tokenizer.pad_token_id), labels, np.full((2, 1), -100)], axis=1)
    masked = np.where(labels == tokenizer.pad_token_id, -100, labels)
    scores = compute_metrics(tokenizer, ["bleu", "chrf", "ter"])(EvalPrediction(predictions, masked))
    assert scores["bleu"] == pytest.approx(100)
    assert scores["ter"] == 0
    assert scores["generated_tokens"] == (masked != -100).sum() / 2


SOURCES_BY_LENGTH = ["a b", "a b c", "a b c d", "a b c d e f g"]
REFERENCE_BY_LENGTH = [
    "das ist ein Test",
    "der Mann kauft den Hut",
    "wir gehen jetzt nach Hause",
    "es ist nicht so gut hier",
]
HYPOTHESES_BY_LENGTH = ["das ist ein Test", "der Mann kauft den Hut", "wir gehen jetzt nach", "es ist so gut"]


def test_every_sentence_is_in_one_bucket_and_edges_belong_to_the_lower():
    buckets = score_by_length(SOURCES_BY_LENGTH, HYPOTHESES_BY_LENGTH, [REFERENCE_BY_LENGTH], edges=[3, 5, 6])
    assert [bucket.label for bucket in buckets] == ["0-3", "4-5", "6-6", "7+"]
    assert [bucket.sentences for bucket in buckets] == [2, 1, 0, 1]
    assert buckets[0].score == pytest.approx(100)
    assert buckets[1].score == pytest.approx(
        score_corpus(HYPOTHESES_BY_LENGTH[2:3], [REFERENCE_BY_LENGTH[2:3]], ["bleu"])["bleu"].score
    )
    assert (buckets[1].hypothesis_words, buckets[1].reference_words) == (4, 5)
    assert buckets[2].score is None
    assert buckets[3].as_dict()["label"] == "7+"


def test_a_result_carries_its_circumstances(tmp_path, monkeypatch):
    monkeypatch.setattr("sys.argv", ["scripts/benchmark.py", "--size", "tiny one"])
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", None)
    path = write_result(tmp_path / "folder" / "result.json", {"score": 1.5})
    result = read_result(path)
    assert result["score"] == 1.5
    assert result["command"] == "python scripts/benchmark.py --size 'tiny one'"
    assert {"torch", "transformers", "python"} <= set(result["software"])
    assert result["hardware"]["cpu"]
    assert result["commit"] is None or re.fullmatch(r"[0-9a-f]{40}\+?", result["commit"])
    assert [file.name for file in path.parent.iterdir()] == ["result.json"]
    json.loads(path.read_text())
