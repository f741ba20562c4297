"""Calibrated coverage: what `capsule-mt calibrate` keeps in a checkpoint's configuration, applied."""

from typing import Any

import torch

# the logit of a share that float32 cannot tell from 0 or 1
LARGEST_EVIDENCE = 16.0
CALIBRATED_THRESHOLD = 0.5

Calibration = dict[str, list[list[float]]]


def calibration_of(config: Any, method: str) -> Calibration | None:
    """Return the curves of one method, "words" and "sentences", if the checkpoint has them."""
    found: Calibration | None = (getattr(config, "coverage_calibration", None) or {}).get(method)
    return found


def evidence_of(covered: torch.Tensor) -> torch.Tensor:
    """Return the logit of shares, which is finite: by deletion, how much a word helps the translation, in nats."""
    return covered.logit(eps=torch.finfo(covered.dtype).tiny).clamp(-LARGEST_EVIDENCE, LARGEST_EVIDENCE)


def on_curve(points: list[list[float]], values: torch.Tensor) -> torch.Tensor:
    """Read a curve of points (x, y) at these values, by linear interpolation; constant beyond its ends."""
    x, y = (torch.tensor(column, device=values.device, dtype=values.dtype) for column in zip(*points, strict=True))
    if len(x) == 1:
        return y.expand_as(values)
    right = torch.searchsorted(x, values.contiguous()).clamp(1, len(x) - 1)
    share = ((values - x[right - 1]) / (x[right] - x[right - 1])).clamp(0, 1)
    return y[right - 1] + share * (y[right] - y[right - 1])
