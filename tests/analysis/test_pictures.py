"""Pictures are files with something in them; what cannot be drawn is refused."""

import matplotlib
import pytest
import torch
from matplotlib import image

from hf_capsule_mt.analysis.pictures import (
    draw_agreement,
    draw_by_length,
    draw_iteration_statistics,
    draw_word_curves,
    draw_word_map,
)
from hf_capsule_mt.evaluation.length_buckets import score_by_length

matplotlib.use("agg")


def colours(path) -> int:
    pixels = image.imread(path)
    return len({tuple(pixel) for pixel in pixels.reshape(-1, pixels.shape[-1]).round(2).tolist()})


def test_routing_pictures(tmp_path):
    torch.manual_seed(0)
    weights = [torch.rand(6, 8).softmax(-1).double() for _ in range(3)]
    statistics = {"encoder": [{"entropy": 2.0 - n, "diversity": 0.1 * n} for n in range(3)]}
    words = ["▁Das", "▁$", "▁Haus"]
    paths = [
        draw_iteration_statistics(statistics, tmp_path / "new folder" / "iterations.png"),
        draw_agreement(weights, tmp_path / "agreement.png"),
        draw_word_curves(torch.rand(3, 4), torch.rand(3, 4), words, ["a", "b", "c", "</s>"], tmp_path / "curves.png"),
        draw_word_map(torch.rand(3, 4), words, tmp_path / "map.png"),
    ]
    assert all(colours(path) > 10 for path in paths)
    with pytest.raises(ValueError, match="`words` must be as many as the 3 rows"):
        draw_word_map(torch.rand(3, 4), words[:2], tmp_path / "map.png")


def test_scores_by_length(tmp_path):
    lines = ["a b c d e", "a b c d e f g h"]
    buckets = [bucket.as_dict() for bucket in score_by_length(lines, lines, [lines], edges=[6])]
    assert colours(draw_by_length({"plain": buckets, "em": buckets}, tmp_path / "lengths.png")) > 10
    with pytest.raises(ValueError, match="must have the same buckets, but em has"):
        draw_by_length({"plain": buckets, "em": buckets[:1]}, tmp_path / "lengths.png")
