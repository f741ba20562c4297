"""Which rate an arm gets, by the rule of lab/as_printed.md, from the BLEU of one seed on the validation set."""

from collections.abc import Mapping

FIRST = (5e-4, 1e-3)
LEVEL = 0.1  # BLEU: of rates that are no farther from the best, the lowest is taken


def next_rates(scores: Mapping[float, float]) -> list[float]:
    """Return the rates to train next: the first two, then one beyond the best as long as the best is at an end.

    >>> next_rates({0.0005: 40.0}), next_rates({0.0005: 40.0, 0.001: 40.2}), next_rates({0.0005: 40.0, 0.001: 40.0})
    ([0.001], [0.002], [0.00025])
    >>> next_rates({0.00025: 39.9, 0.0005: 40.0, 0.001: 39.8})
    []
    """
    if missing := [rate for rate in FIRST if rate not in scores]:
        return missing
    rates = sorted(scores)
    best = max(rates, key=lambda rate: scores[rate])  # the first of equals, so the lowest
    if best == rates[0]:
        return [best / 2]
    return [2 * best] if best == rates[-1] else []


def chosen_rate(scores: Mapping[float, float]) -> float | None:
    """Return the lowest rate that is level with the best; None while there are rates to train.

    >>> chosen_rate({0.00025: 39.9, 0.0005: 40.0, 0.001: 39.8}), chosen_rate({0.0005: 40.0, 0.001: 40.2})
    (0.00025, None)
    """
    if next_rates(scores):
        return None
    best = max(scores.values())
    return min(rate for rate, score in scores.items() if round(best - score, 6) <= LEVEL)
