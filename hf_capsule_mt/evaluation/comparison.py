"""Report on systems against a baseline: scores, significance, and the sentences that differ most."""

import html
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from hf_capsule_mt.evaluation.results import markdown_table
from hf_capsule_mt.evaluation.significance import (
    SMALLER_IS_BETTER,
    Comparison,
    compare_systems,
    confidence_interval,
    sentence_scores,
)


@dataclass(frozen=True)
class SentenceDifference:
    """A sentence that system and baseline translate differently; `gain` is positive if the system is better."""

    number: int
    gain: float
    source: str | None
    reference: str
    baseline: str
    system: str


@dataclass(frozen=True)
class Report:
    """The report that `capsule-mt compare` prints and saves."""

    baseline: str
    baseline_scores: dict[str, tuple[float, float]]  # metric: score, half the width of its 95 % interval
    comparisons: dict[str, dict[str, Comparison]]
    differences: dict[str, list[SentenceDifference]]  # by system; none for a system without differences
    sentences: int

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


HEADER = ("system", "metric", "score", "95 %", "difference", "p (bootstrap)", "p (randomisation)", "p (sign)", "w/t/l")


def build_report(
    systems: Mapping[str, Sequence[str]],
    references: Sequence[Sequence[str]],
    sources: Sequence[str] | None = None,
    metrics: Sequence[str] = ("bleu", "chrf", "ter"),
    most_different: int = 5,
    bootstrap_samples: int = 1000,
    randomisation_trials: int = 10_000,
) -> Report:
    """Compare every system with the first; rank sentences by the difference of their chrF."""
    comparisons = compare_systems(systems, references, metrics, bootstrap_samples, randomisation_trials)
    (baseline, baseline_lines), *others = systems.items()
    before = sentence_scores(baseline_lines, references)
    differences = {}
    for name, lines in others:
        gains = [new - old for new, old in zip(sentence_scores(lines, references), before, strict=True)]
        order = sorted(range(len(gains)), key=lambda n: (-abs(gains[n]), n))[:most_different]
        different = [
            SentenceDifference(
                n + 1, gains[n], sources[n] if sources else None, references[0][n], baseline_lines[n], lines[n]
            )
            for n in order
            if lines[n] != baseline_lines[n]
        ]
        if different:
            differences[name] = different
    first = next(iter(comparisons.values()))
    baseline_scores = {
        metric: (row.baseline_score, confidence_interval(baseline_lines, references, metric, bootstrap_samples)[1])
        for metric, row in first.items()
    }
    return Report(baseline, baseline_scores, comparisons, differences, len(baseline_lines))


def table_rows(report: Report) -> list[tuple[str, ...]]:
    """Return the table's rows, the baseline first. One star marks p < 0.05 in all three tests, two p < 0.01."""
    rows: list[tuple[str, ...]] = []
    for metric, (score, width) in report.baseline_scores.items():
        rows.append((report.baseline, metric, f"{score:.2f}", f"± {width:.2f}", "", "", "", "", ""))
    for name, metrics in report.comparisons.items():
        for metric, row in metrics.items():
            sign = row.sign_test
            worst = max(row.p_bootstrap, row.p_randomisation, sign.p_value)
            stars = "**" if worst < 0.01 else "*" if worst < 0.05 else ""
            rows.append(
                (
                    name,
                    metric,
                    f"{row.score:.2f}",
                    f"± {row.confidence:.2f}",
                    f"{row.difference:+.2f}{stars}",
                    f"{row.p_bootstrap:.4f}",
                    f"{row.p_randomisation:.4f}",
                    f"{sign.p_value:.4f}",
                    f"{sign.wins}/{sign.ties}/{sign.losses}",
                )
            )
    return rows


def notes(report: Report) -> list[str]:
    """Return the table's legend and the signatures."""
    row = next(iter(report.comparisons.values()))
    lower = ", ".join(sorted(SMALLER_IS_BETTER & set(row)))
    lines = [
        f"{report.sentences} sentences; differences to {report.baseline}"
        + (f"; smaller is better for {lower}" if lower else ""),
        "*: p < 0.05 in all three tests, **: p < 0.01. w/t/l: sentences won, tied and lost in the sign test of "
        "Collins et al. 2005.",
    ]
    return lines + [f"{metric}: {comparison.signature}" for metric, comparison in row.items()]


def as_text(report: Report) -> str:
    """Format the report for a terminal."""
    rows = [HEADER, *table_rows(report)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADER))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    lines += ["", *notes(report)]
    for name, differences in report.differences.items():
        lines += ["", f"Sentences that differ most: {name} and {report.baseline}"]
        for item in differences:
            lines += ["", f"{item.number}  ({item.gain:+.1f} chrF)"]
            lines += [f"  {label}: {text}" for label, text in _texts(report, name, item)]
    return "\n".join(lines) + "\n"


def as_markdown(report: Report) -> str:
    """Format the report as Markdown."""
    lines = [markdown_table(HEADER, ([_escape(cell) for cell in row] for row in table_rows(report)))]
    lines += ["", *(f"- {_escape(note)}" for note in notes(report))]
    for name, differences in report.differences.items():
        lines += ["", f"### Sentences that differ most: {_escape(name)} and {_escape(report.baseline)}", ""]
        for item in differences:
            lines.append(f"- sentence {item.number} ({item.gain:+.1f} chrF)")
            lines += [f"    - {label}: {_escape(text)}" for label, text in _texts(report, name, item)]
    return "\n".join(lines) + "\n"


def as_html(report: Report) -> str:
    """Format the report as one self-contained HTML page."""
    cells = "".join(f"<th>{html.escape(cell)}</th>" for cell in HEADER)
    body = "".join(
        "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>\n" for row in table_rows(report)
    )
    parts = [f"<table>\n<tr>{cells}</tr>\n{body}</table>", "<ul>"]
    parts += [f"<li>{html.escape(note)}</li>" for note in notes(report)] + ["</ul>"]
    for name, differences in report.differences.items():
        parts.append(f"<h2>Sentences that differ most: {html.escape(name)} and {html.escape(report.baseline)}</h2>")
        for item in differences:
            parts.append(f"<h3>Sentence {item.number} ({item.gain:+.1f} chrF)</h3><dl>")
            parts += [
                f"<dt>{html.escape(label)}</dt><dd>{html.escape(text)}</dd>"
                for label, text in _texts(report, name, item)
            ]
            parts.append("</dl>")
    style = (
        "body{font-family:sans-serif;max-width:70em;margin:2em auto}td,th{padding:.2em .8em;text-align:right;"
        "border-bottom:1px solid #ccc}td:first-child,th:first-child{text-align:left}dt{font-weight:bold}"
    )
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>Comparison with '
        f"{html.escape(report.baseline)}</title><style>{style}</style></head>\n<body>\n"
        + "\n".join(parts)
        + "\n</body></html>\n"
    )


def _texts(report: Report, name: str, item: SentenceDifference) -> list[tuple[str, str]]:
    texts = [("source", item.source)] if item.source is not None else []
    return [*texts, ("reference", item.reference), (report.baseline, item.baseline), (name, item.system)]


def _escape(text: str) -> str:
    """Escape text so that Markdown shows it unchanged."""
    return "".join("\\" + mark if mark in "\\`*_{}[]<>|#" else mark for mark in text)
