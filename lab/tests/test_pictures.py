"""The pictures of results and of the papers' tables."""

from pathlib import Path
from typing import Any

import matplotlib
import pytest

from lab import result_pictures, table_pictures
from lab.result_pictures import SweepPoint, draw_auc, draw_differences, draw_probing, draw_sweep
from lab.table_pictures import draw_setting, draw_what_came_of_claims
from tests.analysis.test_routing_statistics import colours

matplotlib.use("agg")


def probed(encoder: str, seed: int) -> dict[str, Any]:
    return {
        "encoder": encoder, "task": "Tense", "seed": seed, "accuracy": 0.8 + seed / 50, "majority": 0.5,
        "sentences": {"test": 100},
    }  # fmt: skip


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
    assert [path.name for path in draw_setting(results, tmp_path)] == ["lengths.png", "differences.png"]
    results["em_routing_1_iterations"] = {
        1: result(19.0, routing | {"layer_aggregation_num_iterations": 1}, plain=-1.0)
    }
    pictures = draw_setting(results, tmp_path)
    assert [path.name for path in pictures] == ["dou_iterations.png", "lengths.png", "differences.png"]
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


def test_what_lies_far_away_is_an_arrow(tmp_path):
    rows = {"near": [0.4, -0.2], "far below": [-96.0], "far above": [5.0, 6.0]}
    assert colours(draw_differences(rows, tmp_path / "differences.png")) > 10


def test_no_seed_is_lost_beyond_the_edge(tmp_path, monkeypatch):
    written = []
    monkeypatch.setattr(
        result_pictures,
        "save_picture",
        lambda figure, path: written.extend(t.get_text() for t in figure.axes[0].texts),
    )
    rows = {"low rate": [1.1, 3.7, 1.8], "mean": [4.0, 5.0], "near": [3.1], "both": [-98.2, -0.1, 98.4]}
    draw_differences(rows, tmp_path / "differences.png")
    assert written == ["+3.7", "+4.5", "+3.1", "-98.2", "+98.4"]


def test_claims_are_drawn_beside_what_came_of_them(tmp_path, monkeypatch):
    file = tmp_path / "claims.png"
    ours = {
        "em_routing": {1: result(20.0, {}, plain=0.5), 2: result(20.0, {}, plain=-0.25)},
        "capsnmt": {1: result(20.0, {}, pooling=1.0, capsnmt_ablated=8.0), 2: result(20.0, {}, pooling=2.0)},
    }
    assert colours(draw_what_came_of_claims({"Ours": ours, "Other": {}}, file)) > 10
    drawn = {}
    monkeypatch.setattr(table_pictures, "draw_claims", lambda claims, path: drawn.update(claims))
    draw_what_came_of_claims({"Ours": ours, "Other": {"em_routing": {1: result(30.0, {}, plain=0.75)}}}, file)
    found = {
        (claim.text, claim.printed and round(claim.printed, 2)): claim.found
        for group in drawn.values()
        for claim in group
    }
    assert found["EM routing", 1.5] == {"Ours": [0.5, -0.25], "Other": [0.75]}
    assert found["capsules in the place of pooling", 4.4] == {"Ours": [1.0, 2.0]}
    assert found["capsules: these, positions, and separable composition and scoring", 1.0] == {"Ours": [8.0]}
    assert found["the same at half of our learning rate", None] == {}
    assert draw_what_came_of_claims({"Ours": {"plain": {1: result(20.0, {})}}}, file) is None
    assert not file.exists()  # no picture of results that are gone
