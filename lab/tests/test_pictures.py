"""The pictures of results and of the papers' tables."""

from pathlib import Path
from typing import Any

import matplotlib
import pytest

from lab import table_pictures
from lab.result_pictures import SweepPoint, draw_auc, draw_probing, draw_sweep
from lab.table_pictures import draw_setting
from tests.analysis.test_routing_statistics import colours

matplotlib.use("agg")


def probed(encoder: str, seed: int) -> dict[str, Any]:
    return {
        "encoder": encoder, "task": "Tense", "seed": seed, "accuracy": 0.8 + seed / 50, "majority": 0.5,
        "sentences": {"test": 100},
    }  # fmt: skip


@pytest.mark.slow
def test_result_pictures(tmp_path: Path) -> None:
    area = {"auc": 0.8, "low": 0.7, "high": 0.9}
    paths = [
        draw_sweep([SweepPoint(n, 20 + n + seed, "all") for n in (1, 2, 3) for seed in (0, 0.5)],
                   tmp_path / "sweep.png", "iterations", baseline=20.0),
        draw_auc({"short": {"omission": area, "repetition": area}}, tmp_path / "auc.png"),
        draw_probing([probed("concat", 1), probed("em", 1), probed("em", 2), probed("checkpoints/a", 1)],
                     {"concat": {"Tense": 80.0}, "em": {"Tense": 82.0}}, tmp_path / "probing.png"),
    ]  # fmt: skip
    assert all(colours(path) > 10 for path in paths)
    with pytest.raises(ValueError, match="at least one run"):
        draw_sweep([], tmp_path / "sweep.png", "iterations")
    with pytest.raises(ValueError, match="at least one training"):
        draw_probing([], {}, tmp_path / "probing.png")


BUCKETS = [
    {"label": label, "score": 20.0, "sentences": 9, "hypothesis_words": 5.0, "reference_words": 6.0}
    for label in ("0-10", "11-20")
]


def result(bleu: float, model: dict, **differences: float) -> dict:
    return {
        "recipe": {"model": {"model_type": "capsule_marian", "d_model": 32, "encoder_attention_heads": 4,
                             "decoder_attention_heads": 4} | model},
        "scores": {"bleu": {"score": bleu}}, "by_length": BUCKETS,
        "comparisons": {baseline: {"difference": value} for baseline, value in differences.items()},
    }  # fmt: skip


def test_what_there_is_enough_of_is_drawn(tmp_path):
    routing = {"layer_aggregation": "em_routing"}
    results = {
        "plain": {1: result(20.0, {}), 2: result(21.0, {})},
        "em_routing": {1: result(21.0, routing, plain=1.0), 2: result(20.5, routing, plain=-0.5)},
    }
    assert [path.name for path in draw_setting(results, tmp_path)] == ["lengths.png"]
    results["em_routing_1_iterations"] = {
        1: result(19.0, routing | {"layer_aggregation_num_iterations": 1}, plain=-1.0)
    }
    pictures = draw_setting(results, tmp_path)
    assert [path.name for path in pictures] == ["dou_iterations.png", "lengths.png"]
    assert all(colours(path) > 10 for path in pictures)
    (tmp_path / "other.png").touch()
    assert draw_setting({"plain": {1: result(20.0, {})}}, tmp_path) == []
    assert [path.name for path in tmp_path.iterdir()] == ["other.png"]  # no picture of results that are gone


def test_a_sweep_has_its_points_and_its_baseline(tmp_path, monkeypatch):
    drawn = {}

    def keep(points, path, field, baseline):
        drawn[path.stem] = [(point.value, point.score) for point in points], field, baseline
        return path

    monkeypatch.setattr(table_pictures, "draw_sweep", keep)
    routing = {"layer_aggregation": "em_routing", "layer_aggregation_num_capsules": 8}
    results = {
        "plain": {1: result(20.0, {}), 2: result(22.0, {})},
        "em_routing": {1: result(21.0, {"layer_aggregation": "em_routing"})},
        "em_routing_8_capsules": {1: result(19.0, routing), 3: result(18.0, routing)},
    }
    draw_setting(results, tmp_path)
    assert drawn == {"dou_capsules": ([(8, 19.0), (8, 18.0), (32, 21.0)], "layer_aggregation_num_capsules", 21.0)}
