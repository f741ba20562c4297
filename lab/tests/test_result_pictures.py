"""Pictures of results are files with something in them; what cannot be drawn is refused."""

from pathlib import Path
from typing import Any

import matplotlib
import pytest

from lab.result_pictures import SweepPoint, draw_auc, draw_probing, draw_sweep
from tests.analysis.test_pictures import colours

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
