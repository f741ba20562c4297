"""Report on systems against a baseline: scores, significance, and the sentences that differ most."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from sacrebleu.metrics.base import Metric

from hf_capsule_mt.evaluation.significance import (
    SMALLER_IS_BETTER,
    Comparison,
    compare_systems,
    confidence_interval,
    metric_name,
    sentence_scores,
)


@dataclass(frozen=True)
class SentenceDifference:
    """A sentence that system and baseline translate differently; its gain is positive if the system is better."""

    number: int
    gain: float  # of chrF
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
    differences: dict[str, list[SentenceDifference]]  # by system, the most different first; none without differences
    sentences: int

    def as_dict(self) -> dict[str, Any]:
        """Return the fields for JSON."""
        return asdict(self)


HEADER = ("system", "metric", "score", "95 %", "difference", "p (bootstrap)", "p (randomisation)", "p (sign)", "w/t/l")


def build_report(
    systems: Mapping[str, Sequence[str]],
    references: Sequence[Sequence[str]],
    sources: Sequence[str] | None = None,
    metrics: Sequence[str | Metric] = ("bleu", "chrf", "ter"),
    most_different: int = 5,
    bootstrap_samples: int = 1000,
    randomisation_trials: int = 10_000,
) -> Report:
    """Compare every system with the first; rank sentences by the difference of their chrF."""
    comparisons = compare_systems(systems, references, metrics, bootstrap_samples, randomisation_trials)
    (baseline, baseline_lines), *others = systems.items()
    before = sentence_scores(baseline_lines, references, "chrf")
    differences = {}
    for name, lines in others:
        chrf = [new - old for new, old in zip(sentence_scores(lines, references, "chrf"), before, strict=True)]
        different = [
            SentenceDifference(
                n + 1, chrf[n], sources[n] if sources else None, references[0][n], baseline_lines[n], lines[n]
            )
            for n in sorted(range(len(chrf)), key=lambda n: (-abs(chrf[n]), n))
            if lines[n] != baseline_lines[n]
        ][:most_different]
        if different:
            differences[name] = different
    first = next(iter(comparisons.values()))
    scorers = {metric_name(metric): metric for metric in metrics}
    baseline_scores = {
        name: (
            row.baseline_score,
            confidence_interval(baseline_lines, references, scorers[name], bootstrap_samples)[1],
        )
        for name, row in first.items()
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
            lines += [f"  {label}: {text}" for label, text in sentence_texts(report, name, item)]
    return "\n".join(lines) + "\n"


def sentence_texts(report: Report, name: str, item: SentenceDifference) -> list[tuple[str, str]]:
    """Return the labels and texts to show of a sentence: source, reference, baseline, system."""
    texts = [("source", item.source)] if item.source is not None else []
    return [*texts, ("reference", item.reference), (report.baseline, item.baseline), (name, item.system)]
