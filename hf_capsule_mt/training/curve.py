"""Draw a training's losses and scores as SVG, from what the Trainer logged, without a program for pictures."""

import html
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

CURVE_FILE = "training_curve.svg"
WIDTH, PANEL_HEIGHT, LEFT, RIGHT, TOP, GAP = 640, 200, 60, 20, 30, 50
MAX_TICKS = 6
MAX_POINTS = 1000  # of a line; longer ones lose points between
LOSSES = {"nll_loss": "training", "eval_nll_loss": "validation"}
SMOOTHED_LOSSES = {"loss": "training", "eval_loss": "validation"}  # of a model that does not tell the others
COLORS = ("#1f77b4", "#d62728")

Points = list[tuple[float, float]]  # step and value


@dataclass(frozen=True)
class Panel:
    """A plot: its title, and lines by name."""

    title: str
    lines: Mapping[str, Points]


def training_curve(log_history: Sequence[Mapping[str, Any]]) -> str | None:
    """Return the curves of a log, a panel for losses and one for BLEU; `None` if no line has two points."""
    nll = _lines(log_history, LOSSES)
    panels = [
        Panel("cross entropy a token", nll) if nll else Panel("loss", _lines(log_history, SMOOTHED_LOSSES)),
        Panel("BLEU of the validation set", _lines(log_history, {"eval_bleu": "validation"})),
    ]
    panels = [panel for panel in panels if panel.lines]
    return _drawn(panels) if panels else None


def _lines(log_history: Sequence[Mapping[str, Any]], names: Mapping[str, str]) -> dict[str, Points]:
    lines = {}
    for key, name in names.items():
        points = [(entry["step"], float(entry[key])) for entry in log_history if key in entry and "step" in entry]
        points = [point for point in points if math.isfinite(point[1])]
        if len({step for step, _ in points}) > 1:
            lines[name] = points[:: math.ceil(len(points) / MAX_POINTS)]
    return lines


def _drawn(panels: Sequence[Panel]) -> str:
    height = TOP + (PANEL_HEIGHT + GAP) * len(panels)
    last_step = max(step for panel in panels for points in panel.lines.values() for step, _ in points)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" '
        'font-family="sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="#fff"/>',
    ]
    for index, panel in enumerate(panels):
        parts += _drawn_panel(panel, TOP + index * (PANEL_HEIGHT + GAP), last_step)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _drawn_panel(panel: Panel, top: float, last_step: float) -> list[str]:
    values = [value for points in panel.lines.values() for _, value in points]
    low, high = min(values), max(values)
    if low == high:
        low, high = low - 0.5, high + 0.5
    bottom, right = top + PANEL_HEIGHT, WIDTH - RIGHT

    def x_of(step: float) -> float:
        return LEFT + (right - LEFT) * step / last_step

    def y_of(value: float) -> float:
        return bottom - PANEL_HEIGHT * (value - low) / (high - low)

    parts = [f'<text x="{LEFT}" y="{top - 10}">{html.escape(panel.title)}</text>']
    for value in _ticks(low, high):
        parts.append(f'<path d="M{LEFT} {y_of(value):.1f}H{right}" stroke="#ddd"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{y_of(value) + 4:.1f}" text-anchor="end">{value:g}</text>')
    for step in _ticks(0, last_step):
        parts.append(f'<text x="{x_of(step):.1f}" y="{bottom + 16}" text-anchor="middle">{step:g}</text>')
    parts.append(f'<path d="M{LEFT} {top}V{bottom}H{right}" fill="none" stroke="#666"/>')
    parts.append(f'<text x="{right}" y="{bottom + 32}" text-anchor="end">step</text>')
    for index, (name, points) in enumerate(panel.lines.items()):
        color = COLORS[index % len(COLORS)]
        line = " ".join(f"{x_of(step):.1f},{y_of(value):.1f}" for step, value in points)
        parts.append(f'<polyline points="{line}" fill="none" stroke="{color}" stroke-width="1.5"/>')
        x = right - 90 * (len(panel.lines) - index)
        parts.append(f'<text x="{x}" y="{top - 10}" fill="{color}">{html.escape(name)}</text>')
    return parts


def _ticks(low: float, high: float) -> list[float]:
    """Return round numbers from `low` to `high`, at most `MAX_TICKS` + 1, by 1, 2 or 5 times a power of 10."""
    rough = (high - low) / MAX_TICKS
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough)
    first = math.ceil(low / step)
    return [number * step for number in range(first, math.floor(high / step + 1e-9) + 1)]
