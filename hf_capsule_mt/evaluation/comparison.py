"""Report on systems against a baseline: scores, significance, and the sentences that differ most."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from hf_capsule_mt.evaluation.metrics import sacrebleu_metric
from hf_capsule_mt.evaluation.repeats import Repeats, count_repeats
from hf_capsule_mt.evaluation.significance import SMALLER_IS_BETTER, Comparison, compare_systems

HEADER = (
    *("system", "metric", "score", "95 %", "difference", "95 % of difference"),
    *("p (bootstrap)", "p (randomisation)", "p (sign)", "w/t/l"),
)


@dataclass(frozen=True)
class SentenceDifference:
    """A sentence that system and baseline translate differently; its gain is positive if the system is better."""

    number: int
    gain: float  # of chrF
    texts: list[tuple[str, str]]  # source, reference, and both translations, each with its name


@dataclass(frozen=True)
class Report:
    """The report that `capsule-mt compare` prints and saves."""

    baseline: str
    comparisons: dict[str, dict[str, Comparison]]
    differences: dict[str, list[SentenceDifference]]  # by system, the most different first
    sentences: int
    repeats: dict[str, Repeats]  # by system: its most frequent translation

    def as_dict(self) -> dict[str, Any]:
        """Return the fields for JSON."""
        return asdict(self)


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
    (baseline, baseline_lines), *compared = systems.items()
    chrf = sacrebleu_metric("chrf")

    def difference(name: str, n: int) -> SentenceDifference:
        old, new = baseline_lines[n], systems[name][n]
        texts = [("source", sources[n])] if sources else []
        texts += [("reference", references[0][n]), (baseline, old), (name, new)]
        alternatives = [lines[n] for lines in references]
        gain = chrf.sentence_score(new, alternatives).score - chrf.sentence_score(old, alternatives).score
        return SentenceDifference(n + 1, gain, texts)

    differences = {}
    for name, lines in compared:
        different = [difference(name, n) for n in range(len(lines)) if lines[n] != baseline_lines[n]]
        differences[name] = sorted(different, key=lambda item: (-abs(item.gain), item.number))[:most_different]
    repeats = {name: count_repeats(lines, references[0]) for name, lines in systems.items()}
    return Report(baseline, comparisons, differences, len(baseline_lines), repeats)


def table_rows(report: Report) -> list[tuple[str, ...]]:
    """Return the table's rows, the baseline first. One star marks p < 0.05 in all three tests, two p < 0.01."""
    first = next(iter(report.comparisons.values()))
    rows: list[tuple[str, ...]] = [
        (report.baseline, metric, f"{row.baseline_score:.2f}", f"± {row.baseline_confidence:.2f}", *[""] * 6)
        for metric, row in first.items()
    ]
    for name, metrics in report.comparisons.items():
        for metric, row in metrics.items():
            sign = row.sign_test
            p_values = (row.p_bootstrap, row.p_randomisation, sign.p_value)
            stars = "**" if max(p_values) < 0.01 else "*" if max(p_values) < 0.05 else ""
            lower, upper = row.difference_interval
            difference = (f"{row.difference:+.2f}{stars}", f"{lower:+.2f} to {upper:+.2f}")
            scores = (f"{row.score:.2f}", f"± {row.confidence:.2f}", *difference)
            counts = f"{sign.wins}/{sign.ties}/{sign.losses}"
            rows.append((name, metric, *scores, *(f"{p:.4f}" for p in p_values), counts))
    return rows


def collapses(report: Report) -> list[str]:
    """Return a warning for each system that writes one sentence for most of the distinct references."""
    collapsed = {name: repeats for name, repeats in report.repeats.items() if repeats.has_collapsed}
    lines = [f"{name} has collapsed: {repeats}: {repeats.translation}" for name, repeats in collapsed.items()]
    if len(collapsed) > 1:
        who = "Both systems" if len(collapsed) == len(report.repeats) == 2 else f"{len(collapsed)} systems"
        lines.append(f"{who} have collapsed: a difference between them tells nothing about their methods.")
    return lines


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
    lines += ["", *collapses(report), *notes(report)]
    for name, differences in report.differences.items():
        if differences:
            lines += ["", f"Sentences that differ most: {name} and {report.baseline}"]
        for item in differences:
            lines += ["", f"{item.number}  ({item.gain:+.1f} chrF)"]
            lines += [f"  {label}: {text}" for label, text in item.texts]
    return "\n".join(lines) + "\n"
