"""The page of analyses: no cell is empty without a reason, and numbers are those of the records."""

from lab.analyses import (
    ANALYSES,
    CAPSNMT,
    CURVES,
    EMBEDDED,
    EVALUATED,
    GUIDED,
    GUIDED_ITERATIONS,
    ITERATIONS,
    NUMBERS_OF_CAPSULES,
    OVERLAPS,
    PROBES,
    READ_BLIND,
    ROUTED,
    WIDE,
    by_length,
    table,
)
from lab.records import Records


def test_numbers_come_from_the_records(tmp_path):
    records = Records(tmp_path)
    shares = [{"offset": offset, "past": 0.2 + 0.1 * offset, "future": 0.5, "words": 9} for offset in range(-3, 4)]
    records.keep("studies", {"name": GUIDED, "around_the_step": shares})
    for record, entropy in zip(ROUTED, (2.5, 2.6), strict=False):
        layers = [{"entropy": 4.852, "diversity": 0.0}, {"entropy": entropy, "diversity": 0.38}]
        records.keep("studies", {"name": record, "routings": {"encoder.layer_aggregation": layers}})
    accuracies = [("trained", 0.9), ("trained", 0.8), ("untrained", 0.5), ("untrained", 0.4)]
    results = [{"encoder": encoder, "accuracy": accuracy} for encoder, accuracy in accuracies]
    records.keep("studies", {"name": PROBES, "results": results})
    routing = [{"entropy": 2.08, "effective_capsules": 8.0}, {"entropy": 1.0265, "effective_capsules": 5.42}]
    records.keep("studies", {"name": CAPSNMT, "routings": {"encoder.aggregation": routing}})
    for record, rate in zip(OVERLAPS, (0.5, 0.6, 0.7), strict=True):
        records.keep("studies", {"name": record, "overlap_rates": {"past": rate, "future": rate - 0.1}})
    systems = {system: {"coverage_difference_ratio": ratio} for system, ratio in (("plain", 0.9), ("guided", 0.912))}
    records.keep("studies", {"name": EVALUATED, "systems": systems})
    entry = {"plain": 3.0, "guided": 2.5, "interval": [-1.25, 0.25]}
    records.keep("studies", {"name": READ_BLIND, "measures": {"under": entry}})
    for run, score in (("em_routing_512_capsules", 96.5), ("em_routing_512_wide", 96.25)):
        records.keep(WIDE, {"run": run, "seed": 1, "scores": {"bleu": {"score": score}}})
    scores = {run: number for runs in (GUIDED_ITERATIONS, ITERATIONS) for number, run in enumerate(runs, 1)}
    scores |= dict.fromkeys(NUMBERS_OF_CAPSULES[:3], 7.0) | {"plain": 9.0, "capsnmt": 5.0, "capsnmt_hybrid": 8.0}
    for run, score in scores.items():
        records.keep(EMBEDDED, {"run": run, "seed": 1, "scores": {"bleu": {"score": score}}})
    records.keep(EMBEDDED, {"run": "capsnmt", "seed": 2, "scores": {"bleu": {"score": 6.0}}})
    text = table(records)
    assert text.count("BLEU 1.00 / 2.00 / 3.00 / 4.00 / 5.00; plain 9.00") == 2
    assert "BLEU 7.00 / 7.00 / 7.00 / 3.00; plain 9.00; at width" in text
    assert "BLEU 8.00 with attention, 5.50 (5.00 to 6.00) without; Transformer 9.00" in text
    assert "at width 512: 96.50 with 512 capsules, 96.25 with 128, one seed" in text
    assert "entropy 4.85 / 2.55 (2.50 to 2.60); diversity 0.00 / 0.38, encoder, 2 seeds" in text
    assert "mean of the ten: 85.0 for the released encoder, 45.0 for an untrained one" in text
    assert "0.900 plain, 0.912 guided" in text
    assert "UNDER 3.00 plain, 2.50 guided (-1.25 to +0.25)" in text
    assert "PAST 0.10 / 0.20 / 0.30 / 0.40; FUTURE 0.50 / 0.50 / 0.50 / 0.50, 9 words" in text
    assert "entropy 1.03; 5.4 of 8 capsules in use" in text
    assert "PAST 0.60 (0.50 to 0.70), FUTURE 0.50 (0.40 to 0.60), three seeds" in text
    rows = [line.split("|")[1:-1] for line in text.strip().splitlines()[2:]]
    assert len(rows) == len(ANALYSES)
    assert all(cell.strip() for row in rows for cell in row[:4])


def test_gains_by_length_are_over_seeds(tmp_path):
    """Gains of 1.2, 0.9 and 0.9 have a mean of 1 and a standard error of 0.1: t(2) = 4.30."""
    records = Records(tmp_path)
    for curve in CURVES:
        gains = [1.2, 0.9, 0.9, 1.0, 1.0, 1.0][: len(curve.seeds)]
        for seed, gain in zip(curve.seeds, gains, strict=True):
            for run, score in ((curve.baseline, 20.0), (curve.run, 20 + gain)):
                words = {"hypothesis_words": 10 + (run == curve.run), "reference_words": 10.5}
                bins = [
                    {"label": label, "sentences": n, "score": score, **words} for label, n in (("0-9", 99), ("10+", 7))
                ]
                record = {"run": run, "seed": seed, "by_length": bins, "coverage_difference_ratio": score / 100}
                records.keep(curve.study, record)
    lines = by_length(records).splitlines()
    (row,) = [line for line in lines if "recurrent" in line and "0-9" in line]
    assert "| 99 | 20.00 | 21.00 | +1.00 [+0.57, +1.43] | 10.00 | +1.00 [+1.00, +1.00] | 10.50 |" in row
    assert not any("10+" in line for line in lines), "a bin of 7 sentences says nothing"
    (coverage,) = [line for line in lines if "recurrent" in line and "0-9" not in line]
    assert coverage.endswith("| 0.200 | 0.210 | +0.010 [+0.006, +0.014] | 3 |")
