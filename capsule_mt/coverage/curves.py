"""The evidence (logit) of a share, and piecewise linear curves."""

import math
from bisect import bisect_left
from collections.abc import Sequence
from operator import itemgetter

# the logit of a share that float32 cannot tell from 0 or 1
LARGEST_EVIDENCE = 16.0
Curve = Sequence[Sequence[float]]


def sigmoid(value: float) -> float:
    """Return the share whose logit is `value`."""
    return 1 / (1 + math.exp(-value)) if value > -700 else 0.0


def evidence_of(covered: float) -> float:
    """Return the logit of a share, within bounds. By deletion, this is how many nats a word adds to a translation."""
    if not 0.0 < covered < 1.0:
        return math.copysign(LARGEST_EVIDENCE, covered - 0.5)
    return min(max(math.log(covered / (1 - covered)), -LARGEST_EVIDENCE), LARGEST_EVIDENCE)


def on_curve(points: Curve, value: float) -> float:
    """Interpolate a curve of points (x, y) linearly; it is constant beyond its ends."""
    if len(points) == 1:
        return points[0][1]
    right = len(points) - 1
    if value <= points[right][0]:  # most values are beyond the last point
        right = bisect_left(points, value, 1, right, key=itemgetter(0))
    (x0, y0), (x1, y1) = points[right - 1], points[right]
    return y0 + min(max((value - x0) / (x1 - x0), 0.0), 1.0) * (y1 - y0)
