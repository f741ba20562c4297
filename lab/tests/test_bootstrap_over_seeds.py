"""The bootstrap over several seeds, against that of one."""

import pytest

from hf_capsule_mt.evaluation.significance import compare_systems
from lab.bootstrap_over_seeds import bootstrap_over_seeds

REFERENCE = [f"the {thing} is on the small table in room {n}" for n, thing in enumerate(["cat", "dog", "cup"] * 8)]
BASELINE = [line.replace("small", "little") if n % 2 else line for n, line in enumerate(REFERENCE)]
SYSTEM = [line.replace("on the", "upon a") if n % 12 == 0 else line for n, line in enumerate(REFERENCE)]


def test_one_seed_over_seeds_is_the_paired_bootstrap() -> None:
    row = compare_systems({"a": BASELINE, "b": SYSTEM}, [REFERENCE], ["bleu"], 300, 1)["b"]["bleu"]
    difference, p_value = bootstrap_over_seeds([SYSTEM], [BASELINE], [REFERENCE], samples=300)
    assert difference == pytest.approx(row.difference)
    assert p_value == pytest.approx(row.p_bootstrap)


def test_over_seeds_the_differences_are_averaged() -> None:
    difference, p_value = bootstrap_over_seeds([SYSTEM, BASELINE], [BASELINE, SYSTEM], [REFERENCE], samples=100)
    assert (difference, p_value) == (0, 1)
    twice, p_twice = bootstrap_over_seeds([SYSTEM] * 2, [BASELINE] * 2, [REFERENCE], samples=100)
    once, p_once = bootstrap_over_seeds([SYSTEM], [BASELINE], [REFERENCE], samples=100)
    assert twice == pytest.approx(once)
    assert p_twice == p_once  # the same sentences again are no further evidence
    with pytest.raises(ValueError, match="as many systems as baselines"):
        bootstrap_over_seeds([SYSTEM], [], [REFERENCE])
