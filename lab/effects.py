"""Does it help: for each method its mean gain over seeds, with a 95 % interval and the answer.

Where a plan has several arms, the answer is by the spread of all of them: blocks where the arms of a seed share their
start, pooled variance where they do not (lab.over_seeds).
"""

import html
import math
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import NamedTuple

from hf_capsule_mt.evaluation.results import markdown_table
from lab.over_seeds import Estimate, paired
from lab.paper_tables import TABLES


class Gains(NamedTuple):
    """The differences to a baseline, one a seed, and how many seeds were planned.

    p: over seeds, corrected for all rows of the plan, or of the column where there was none.
    plan_estimate: the same gain by the spread of all arms of the plan, p corrected likewise.
    margin: of equivalence, in BLEU, if the plan has one.
    failure: which arm has a run that did not learn. Such a gain has no values.
    explored: whether it is not counted, nor corrected.
    """

    values: list[float]
    planned: int
    p: float | None = None
    plan_estimate: Estimate | None = None
    margin: float | None = None
    failure: str = ""
    explored: bool = False

    @property
    def complete(self) -> bool:
        return bool(self.failure) or len(self.values) == self.planned

    @property
    def estimate(self) -> Estimate | None:
        """By the spread of the plan, or else of these values."""
        return self.plan_estimate or paired(self.values)


# {how the models were trained: {the title of a method: its gains}}
Columns = Mapping[str, Mapping[str, Gains]]
SIGNIFICANT = 0.05
COLORS = ("#1f77b4", "#ff7f0e", "#2ca02c", "#9467bd")  # of the columns
THICK = 'stroke-width="1.6"'
AXIS_LENGTH = 400


class Method(NamedTuple):
    """A method, the run that has it, and the row of a paper's table that claims a gain for it."""

    title: str
    run: str
    baseline: str
    table: str


METHODS = (
    Method("Layers: linear combination (no routing)", "linear", "plain", "dou1"),
    Method("Layers: dynamic combination (no routing)", "dynamic_combination", "plain", "dou1"),
    Method("Layers: dynamic routing", "dynamic_routing", "plain", "dou1"),
    Method("Layers: EM routing", "em_routing", "plain", "dou1"),
    Method("Heads: EM routing, two lowest encoder layers", "head_em_lower", "plain", "li4"),
    Method("Heads: EM routing, all attentions", "head_em_everywhere", "plain", "li2"),
    Method("Past and future: guided routing", "gdr_both", "plain", "gdr2"),
    Method("Past and future, recurrent model", "rnmt_gdr", "rnmt", "gdr1"),
    Method("CapsNMT: capsules instead of pooling", "capsnmt", "pooling", "capsnmt1"),
    Method("CapsNMT: the same, both distilled", "capsnmt_distilled", "pooling_distilled", "capsnmt1"),
)


def published(method: Method) -> float | None:
    """Return the gain that the paper prints, in its column of English-German, or in its only one."""
    figures = {row.run: row.printed for row in TABLES[method.table].rows}
    column = next((name for name in ("BLEU en-de", "BLEU") if name in figures[method.run]), None)
    if column is None or column not in figures[method.baseline]:
        return None
    return float(figures[method.run][column]) - float(figures[method.baseline][column])


def differences(scores: Mapping[int, float], baseline_scores: Mapping[int, float]) -> list[float]:
    """Return the difference to the baseline of the same seed, for each seed that both have."""
    return [scores[seed] - baseline_scores[seed] for seed in sorted(scores.keys() & baseline_scores.keys())]


def effect(values: Sequence[float]) -> str:
    """Format a mean difference with its interval over seeds.

    >>> effect([0.5, 0.7]), effect([0.5]), effect([])
    ('+0.60 [-0.67, +1.87], n = 2', '+0.50, n = 1', '')
    """
    return f"{mean_over_seeds(values)}, n = {len(values)}" if values else ""


def mean_over_seeds(values: Sequence[float], form: str = "+.2f") -> str:
    """Format a mean with its interval over seeds, if there are several."""
    return estimated(paired(values), form=form) or format(fmean(values), form)


def estimated(estimate: Estimate | None, with_90: bool = False, form: str = "+.2f") -> str:
    """Format an estimate, perhaps with its interval of 90 %, too.

    >>> estimated(Estimate(0.366, 0.031, 0.701, p=0.04)), estimated(None)
    ('+0.37 [+0.03, +0.70]', '')
    >>> estimated(Estimate(0.02, -0.16, 0.20, p=0.8, half_90=0.15), with_90=True)
    '+0.02 [-0.16, +0.20]; 90 %: [-0.13, +0.17]'
    """
    if estimate is None:
        return ""
    mean, low, high, _, half = estimate
    at_90 = f"; 90 %: [{mean - half:{form}}, {mean + half:{form}}]" if with_90 else ""
    return f"{mean:{form}} [{low:{form}}, {high:{form}}]{at_90}"


def shown(gains: Gains) -> str:
    """Format a gain with the interval that gives its answer.

    >>> shown(Gains([0.5, 0.7], 2, plan_estimate=Estimate(0.6, 0.4, 0.8, p=0.01))), shown(Gains([0.5], 2))
    ('+0.60 [+0.40, +0.80], n = 2', '+0.50, n = 1')
    """
    if gains.plan_estimate is None:
        return effect(gains.values)
    return f"{estimated(gains.plan_estimate)}, n = {len(gains.values)}"


def verdict(estimate: Estimate | None) -> str:
    """Say what the interval of a mean difference in BLEU allows.

    >>> [verdict(Estimate(0.0, low, high, p=0.5)) for low, high in ((0.1, 0.6), (-0.6, -0.1), (-0.31, 0.45))]
    ['helps', 'hurts', 'within 0.5 BLEU of nothing']
    """
    if estimate is None:
        return "open"
    _, low, high, *_ = estimate
    if low > 0:
        return "helps"
    if high < 0:
        return "hurts"
    bound = round(max(-low, high), 2)  # as it is printed
    return f"within {math.ceil(round(10 * bound, 6)) / 10:.1f} BLEU of nothing"


def answer(gains: Gains) -> str:
    """Return the verdict once all planned seeds are trained, until then how many are.

    With a margin of equivalence, the verdict is "helps" or "hurts", "equivalent", both, or "open".

    >>> answer(Gains([0.5, 0.51], 2, p=0.03)), answer(Gains([0.5, 0.51], 3))
    ('helps', '2 of 3 seeds are trained')
    >>> answer(Gains([0.5, 0.51], 2, p=0.06))
    'helps, but not after correction'
    >>> estimate = Estimate(0.1, 0.02, 0.18, p=0.04, half_90=0.07)
    >>> answer(Gains([0.1, 0.1], 2, plan_estimate=estimate, margin=0.2))
    'helps, equivalent within 0.2 BLEU'
    >>> answer(Gains([0.5, 0.51], 2, explored=True))
    'helps (exploration)'
    >>> answer(Gains([0.1, 0.1], 2, plan_estimate=estimate._replace(p=0.08, half_90=0.11), margin=0.2))
    'open'
    """
    if gains.failure:
        return gains.failure
    if not gains.complete:
        return f"{len(gains.values)} of {gains.planned} seeds are trained"
    words, estimate = verdict(gains.estimate), gains.plan_estimate
    p = gains.p if estimate is None else estimate.p
    is_effect = words in ("helps", "hurts")
    if is_effect and p is not None and p >= SIGNIFICANT:
        is_effect, words = False, f"{words}, but not after correction"
    words += " (exploration)" if is_effect and gains.explored else ""
    if gains.margin is None:
        return words
    is_equivalent = estimate is not None and estimate.is_within(gains.margin)
    return ", ".join([words] * is_effect + [f"equivalent within {gains.margin:g} BLEU"] * is_equivalent) or "open"


def titles(columns: Columns) -> list[str]:
    """Return the papers' methods, then all others that have gains."""
    with_gains = [name for gains in columns.values() for name in gains]
    return list(dict.fromkeys([method.title for method in METHODS] + with_gains))


def effects_table(columns: Columns) -> str:
    """Return a row for each method: the paper's gain, and the answer of each column."""
    printed = {method.title: published(method) for method in METHODS}
    rows = []
    for title in titles(columns):
        column_gains = [gains.get(title) for gains in columns.values()]
        cells = [": ".join(filter(None, [answer(gains), shown(gains)])) if gains else "" for gains in column_gains]
        gain = printed.get(title)
        rows.append([title, "" if gain is None else f"{gain:+.2f}", *cells])
    return markdown_table(["method", "paper", *columns], rows)


def draw_effects(columns: Columns) -> str:
    """Draw the means with their intervals as SVG, a line for each method, beside the papers' gains."""
    names = titles(columns)
    printed = {method.title: gain for method in METHODS if (gain := published(method)) is not None}
    drawn = [  # colour, how far below the middle of its line, title, mean, interval
        (color, 8 * (index - (len(columns) - 1) / 2), title, *(gains.estimate or 3 * [fmean(gains.values)])[:3])
        for index, (color, column) in enumerate(zip(COLORS, columns.values(), strict=False))
        for title, gains in column.items()
        if gains.values  # the mean of one seed has no interval
    ]
    ends = [0.0, *printed.values(), *(end for *_, low, high in drawn for end in (low, high))]
    low, high, left = math.floor(min(ends)), math.ceil(max(ends)), 7 * max(map(len, names)) + 20
    top, row_height = 22 * (len(columns) + 1) + 10, 28
    width, bottom = left + AXIS_LENGTH + 20, top + row_height * len(names)

    def x_of(gain: float) -> str:
        return f"{left + AXIS_LENGTH / (high - low) * (gain - low):.1f}"

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{bottom + 46}" '
        f'viewBox="0 0 {width} {bottom + 46}" font-family="sans-serif" font-size="13">',
        '<rect width="100%" height="100%" fill="#fff"/>',
    ]
    for index, (label, color) in enumerate(zip(["paper", *columns], [None, *COLORS], strict=False)):
        line = 18 + 22 * index
        parts += [_mark(f"{left}", line, color), f'<text x="{left + 12}" y="{line + 4}">{html.escape(label)}</text>']
    step = math.ceil((high - low) / 12)
    for gain in range(math.ceil(low / step) * step, high + 1, step):
        x = x_of(gain)
        parts.append(f'<path d="M{x} {top}V{bottom}" stroke="{"#ddd" if gain else "#666"}"/>')
        parts.append(f'<text x="{x}" y="{bottom + 18}" text-anchor="middle">{f"{gain:+}" if gain else 0}</text>')
    title = "gain in BLEU, with 95 % intervals over seeds"
    parts.append(f'<text x="{left + AXIS_LENGTH // 2}" y="{bottom + 38}" text-anchor="middle">{title}</text>')
    middles = {title: top + row_height * (index + 0.5) for index, title in enumerate(names)}
    parts += [
        f'<text x="{left - 8}" y="{y + 4:g}" text-anchor="end">{html.escape(title)}</text>'
        for title, y in middles.items()
    ]
    for color, offset, title, mean, *interval in drawn:
        y, (start, end) = middles[title] + offset, map(x_of, interval)
        parts.append(f'<path d="M{start} {y - 3:g}v6m0-3H{end}m0-3v6" fill="none" stroke="{color}" {THICK}/>')
        parts.append(_mark(x_of(mean), y, color))
    parts += [_mark(x_of(gain), middles[title], None) for title, gain in printed.items()]
    return "\n".join(parts) + "\n</svg>\n"


def _mark(x: str, y: float, color: str | None) -> str:
    """Draw a dot, or the sign of a paper's gain."""
    shape = f'<circle r="4" fill="{color}"/>' if color else '<path d="m0-5 5 5-5 5-5-5z" fill="none" stroke="#444"/>'
    return f'<g transform="translate({x} {y:g})">{shape}</g>'
