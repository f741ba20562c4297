"""Marks of words against known omissions."""

import json
import shutil

import pytest

from hf_capsule_mt.evaluation.omissions import WithOmissions, omissions_of
from hf_capsule_mt.pipelines import Coverage, Word
from lab.word_judgements import Judged, judge, measures, precision_at_recall
from tests.conftest import GOLDEN
from tests.fixtures.word_for_word import TRANSLATION, sentences


def test_content_words_are_found_by_their_characters():
    words = tuple(
        Word(text, start, end, 1, 0, share, False)
        for text, start, end, share in (("a-b", 0, 3, 0.2), ("c", 4, 5, 0.9))
    )
    example = WithOmissions("a-b c", "", {(2, 3): True, (4, 5): False}, 1)
    assert judge(example, Coverage(0.5, words, (), ())) == Judged((0.2, 0.9), (True, False), 0.5)


def test_measures_by_hand():
    judged = [
        Judged((0.1, 0.9, 0.8), (True, False, False), 0.6),
        Judged((0.7, 0.85), (True, False), 0.75),
        Judged((0.6, 1.0), (False, False), 0.8),
    ]
    found = measures(judged, samples=50)
    assert found["word_auc"]["value"] == pytest.approx(9 / 10)  # 0.6 is below the omitted 0.7
    assert found["sentence_auc"]["value"] == 1
    assert precision_at_recall(judged) == pytest.approx(2 / 3)  # 0.1, 0.6, 0.7 find both
    # bins of 0.1, 0.6, 0.7, 0.8 (0.8, 0.85), 0.9 (0.9, 1.0)
    assert found["calibration_error"]["value"] == pytest.approx((0.1 + 0.4 + 0.7 + 0.35 + 0.1) / 7)
    assert all(one["low"] <= one["value"] <= one["high"] for one in found.values())
    assert measures([Judged((0.5,), (False,), 0.5)], samples=5)["word_auc"] is None
    assert measures(judged, samples=5, calibrated=False)["calibration_error"] is None


def test_labels_of_own_translations():
    wanted, given = frozenset({(0, 0), (1, 1)}), frozenset({(1, 0)})
    (example,) = omissions_of(["alt Mann ja"], ["man"], [wanted], [given])
    assert example.is_omitted == {(0, 3): True, (4, 8): False}
    assert omissions_of(["ja"], [""], [frozenset()], [frozenset()]) == []


def test_the_command(command, tmp_path):
    texts = sentences(60, seed=5)
    (tmp_path / "a").write_text("".join(f"{text}\n" for text in texts))
    (tmp_path / "b").write_text("".join(" ".join(TRANSLATION[w] for w in text.split()) + "\n" for text in texts))
    shutil.copytree(GOLDEN / "word_for_word", tmp_path / "model")
    printed = command("word_omissions", "model a b --num-beams 1 --bootstrap 20 --output out.json")
    result = json.loads((tmp_path / "out.json").read_text())
    assert set(result["measures"]) == {"references with words dropped", "own, 1 beams"}
    by_method = result["measures"]["own, 1 beams"]
    assert set(by_method) == {"guided", "deletion", "length ratio"}
    assert by_method["deletion"]["word_auc"]["value"] > 0.9
    assert by_method["guided"]["word_auc"]["value"] > 0.8
    assert set(result["time_relative_to_translation"]) == {"guided", "deletion"}
    assert "| own, 1 beams | deletion |" in printed
