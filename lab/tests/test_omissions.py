"""Studies of what translations leave out: gold links, given translations, ROC areas, and marks of words."""

import re

import numpy as np
import pytest

from capsule_mt import Translator
from lab.adequacy import shortness
from lab.align import alignment_error_rate, links_by_model, read_gold_links
from lab.area_under_curve import (
    Judged,
    area_under_curve,
    measures,
    precision_at_recall,
)
from lab.records import Records
from lab.report import LAB


def test_error_rate_by_hand() -> None:
    predicted, sure = [frozenset({(0, 0), (1, 1), (2, 2)})], [frozenset({(0, 0)})]
    possible = [frozenset({(0, 0), (1, 1)})]
    assert alignment_error_rate(predicted, sure, possible) == pytest.approx(1 - (1 + 2) / (3 + 1))
    assert alignment_error_rate(sure, sure, sure) == 0
    with pytest.raises(ValueError, match="at least one link"):
        alignment_error_rate([frozenset()], [frozenset()], [frozenset()])


def test_gold_links() -> None:
    sure, every = read_gold_links("1-1 2p3 10-4")
    assert sure == {(0, 0), (9, 3)}
    assert every == {(0, 0), (1, 2), (9, 3)}
    with pytest.raises(ValueError, match="links such as 1-1 or 2p3"):
        read_gold_links("1-1 2:3")


def test_links_by_the_model_that_translated_are_its_alignment():
    translator = Translator.from_pretrained(LAB.parent / "checkpoints/capsule-marian-de-en")
    source = "Das Wetter ist heute schön , aber kalt ."
    translation = translator(source, alignment=True)
    links = links_by_model(translator, [(source.split(), translation.text.split())])
    assert {(3, 4), (4, 3)} < links[0] == set(translation.alignment)


def test_shortness_by_hand():
    expected, lines = np.array([16.0, 4.0]), ["a" * 8, "a" * 6]
    assert shortness(expected, lines).tolist() == [2.0, -1.0]


def test_area_under_curve_by_hand() -> None:
    # of the four pairs (labelled, not labelled) three have the labelled one on top
    assert area_under_curve([1, 2, 3, 4], [False, True, False, True])["auc"] == 0.75
    assert area_under_curve([0, 2, 2, 3], [False, True, False, True])["auc"] == (1 + 0.5 + 1 + 1) / 4
    perfect = area_under_curve([0.0, 1.0, 2.0, 3.0], [False, False, True, True])
    assert perfect == {"auc": 1, "low": 1, "high": 1, "positives": 2, "negatives": 2}


def test_measures_by_hand():
    judged = [
        Judged((0.1, 0.9, 0.8), (True, False, False), 0.6),
        Judged((0.7, 0.85), (True, False), 0.75),
        Judged((0.6, 1.0), (False, False), 0.8),
    ]
    measured = measures(judged, samples=50)
    assert measured["word_auc"]["value"] == pytest.approx(9 / 10)  # 0.6 is below the omitted 0.7
    assert measured["sentence_auc"]["value"] == 1
    assert precision_at_recall(judged) == pytest.approx(2 / 3)  # 0.1, 0.6, 0.7 find both
    assert all(measure["low"] <= measure["value"] <= measure["high"] for measure in measured.values())
    assert measures([Judged((0.5,), (False,), 0.5)], samples=5)["word_auc"] is None


def test_the_page_says_what_was_measured():
    measured = Records(LAB / "results").named("studies")["word-omissions-de-en"]["measures"]
    areas = [
        measured["references with words dropped"][method]["word_auc"]["value"] for method in ("attention", "guided")
    ]
    text = " ".join((LAB.parent / "docs/does-it-help.md").read_text(encoding="utf-8").split())  # no line ends
    claim = text.split("area under the ROC")[1]
    assert re.findall(r"\b0\.\d\d\b", claim)[: len(areas)] == [f"{area:.2f}" for area in areas]
