"""Whether a difference would be there with other seeds: Student's t-test, in plain Python."""

import math
from collections.abc import Sequence
from statistics import fmean, stdev


def paired_t_test(differences: Sequence[float]) -> float:
    """The two-sided p-value of the mean of these differences, one of each seed, being other than zero.

    It takes the differences for a sample from a normal distribution, and knows nothing of the sentences behind each.
    """
    if len(differences) < 2:
        raise ValueError(f"a t-test needs at least two differences, got {len(differences)}")
    mean, spread = fmean(differences), stdev(differences)
    if spread == 0:
        return 1.0 if mean == 0 else 0.0
    return student_two_sided(mean / spread * math.sqrt(len(differences)), len(differences) - 1)


def p_over_seeds(differences: Sequence[float]) -> float | None:
    """The p-value of the mean difference among seeds; None for a single one, which says nothing of others."""
    return paired_t_test(differences) if len(differences) > 1 else None


def student_two_sided(t: float, degrees: int) -> float:
    """How often |T| > |t| for Student's T, by the finite sums for whole degrees of freedom.

    Abramowitz and Stegun, 26.7.3 and 26.7.4.
    """
    angle = math.atan2(abs(t), math.sqrt(degrees))
    odd = degrees % 2
    term, total = math.cos(angle) if odd else 1.0, 0.0
    for k in range(degrees // 2):
        total += term
        term *= (2 * k + 1 + odd) / (2 * k + 2 + odd) * math.cos(angle) ** 2
    inside = math.sin(angle) * total
    return 1 - (2 / math.pi * (angle + inside) if odd else inside)
