"""Significance: the sign test by hand and on its paper's numbers, resampling against sacreBLEU's own command."""

import itertools
import json
import math
import subprocess
import sys

import numpy as np
import pytest
import sacrebleu
from sacrebleu.significance import _bootstrap_resample

from hf_capsule_mt.evaluation.comparison import as_text, build_report
from hf_capsule_mt.evaluation.metrics import sacrebleu_metric
from hf_capsule_mt.evaluation.significance import (
    binomial_two_sided,
    compare_systems,
    exact_randomisation,
    sign_test_collins,
)

REFERENCE = [f"the {noun} is on the small table in room {n}" for n, noun in enumerate(["cat", "dog", "cup"] * 8)]
BASELINE = [line.replace("small", "little") if n % 2 else line for n, line in enumerate(REFERENCE)]
SYSTEM = [line.replace("on the", "upon a") if n % 12 == 0 else line for n, line in enumerate(REFERENCE)]


def test_binomial_by_hand():
    assert binomial_two_sided(8, 2) == pytest.approx(2 * (1 + 10 + 45) / 1024)
    assert binomial_two_sided(2, 8) == pytest.approx(2 * (1 + 10 + 45) / 1024)
    assert binomial_two_sided(5, 0) == pytest.approx(2 / 32)
    assert binomial_two_sided(3, 3) == 1.0
    assert binomial_two_sided(0, 0) == 1.0
    with pytest.raises(ValueError, match="must not be negative"):
        binomial_two_sided(-1, 2)


def test_binomial_on_the_numbers_of_collins_et_al():
    """Their Section 5: of 2000 sentences 52.85 % improved and 36.4 % got worse, significant at p <= 0.01."""
    p_value = binomial_two_sided(1057, 728)
    assert p_value <= 0.01
    # the normal approximation, which is good for so many
    z = (1057 - 728 - 1) / math.sqrt(1057 + 728)
    assert p_value == pytest.approx(math.erfc(z / math.sqrt(2)), rel=0.02)


def test_sign_test_counts_what_one_sentence_does_to_the_corpus():
    # the odd sentences of the baseline have one wrong word, numbers 0 and 12 of the system have two: 12 against 2
    test = sign_test_collins(SYSTEM, BASELINE, [REFERENCE])
    assert (test.wins, test.losses, test.ties) == (12, 2, 10)
    assert test.p_value == pytest.approx(2 * (1 + 14 + 91) / 2**14)
    # done the slow way, with whole corpora
    baseline = sacrebleu.corpus_bleu(BASELINE, [REFERENCE]).score
    after = [
        sacrebleu.corpus_bleu([*BASELINE[:n], SYSTEM[n], *BASELINE[n + 1 :]], [REFERENCE]).score
        for n in range(len(BASELINE))
    ]
    assert (sum(score > baseline for score in after), sum(score < baseline for score in after)) == (12, 2)


@pytest.mark.parametrize(("option", "attribute"), [("--paired-bs", "p_bootstrap"), ("--paired-ar", "p_randomisation")])
def test_p_values_are_those_of_the_command_sacrebleu(tmp_path, option, attribute):
    for name, lines in (("reference", REFERENCE), ("baseline", BASELINE), ("system", SYSTEM)):
        (tmp_path / name).write_text("\n".join(lines) + "\n")
    command = [sys.executable, "-m", "sacrebleu", "reference", "-i", "baseline", "system", option, "--format", "json"]
    process = subprocess.run(
        [*command, "--paired-bs-n", "300", "--paired-ar-n", "300"],
        cwd=tmp_path, capture_output=True, text=True, check=True,
    )  # fmt: skip
    expected = json.loads(process.stdout)[1]["BLEU"]
    row = compare_systems({"a": BASELINE, "b": SYSTEM}, [REFERENCE], ["bleu"], 300, 300)["b"]["bleu"]
    assert getattr(row, attribute) == pytest.approx(expected["p_value"], abs=1e-4)
    assert row.score == pytest.approx(expected["score"], abs=0.01)
    if option == "--paired-bs":
        assert row.confidence == pytest.approx(expected["ci"], abs=0.01)


@pytest.mark.parametrize("metric", ["bleu", "chrf", "ter"])
def test_interval_of_the_difference_resamples_both_systems_alike(monkeypatch, metric):
    """sacreBLEU resamples one system; with one seed, its samples of two systems are the same sentences."""
    scorer = sacrebleu_metric(metric)

    def samples(lines):
        counts = scorer._extract_corpus_statistics(lines, [REFERENCE])
        return np.array([sample.score for sample in _bootstrap_resample(counts, scorer, 200)[1]])

    def interval():
        rows = compare_systems({"a": BASELINE, "b": SYSTEM, "c": BASELINE}, [REFERENCE], [metric], 200, 9)
        assert rows["c"][metric].difference_interval == (0, 0)  # as paired samples of equal translations are
        return rows["b"][metric].difference_interval

    expected = np.sort(samples(SYSTEM) - samples(BASELINE))[[5, 194]]  # without a fortieth at either end
    assert interval() == pytest.approx(expected, rel=1e-4)
    monkeypatch.setenv("SACREBLEU_SEED", "7")
    reseeded = np.sort(samples(SYSTEM) - samples(BASELINE))[[5, 194]]
    assert interval() == pytest.approx(reseeded, rel=1e-4)


def test_exchanges_of_few_sentences_are_counted_exactly():
    nearly_equal, changed = (
        [SYSTEM[n] if n in lines else line for n, line in enumerate(BASELINE)] for lines in ([3], [3, 5, 7])
    )
    row = compare_systems({"a": BASELINE, "b": nearly_equal}, [REFERENCE], ["bleu", "chrf"], 50, 50)["b"]
    assert [row[metric].p_randomisation for metric in row] == [1.0, 1.0]  # both exchanges have the same difference
    differences = []
    for exchanged in itertools.chain.from_iterable(itertools.combinations([3, 5, 7], size) for size in range(4)):
        pairs = [(b, a) if n in exchanged else (a, b) for n, (a, b) in enumerate(zip(changed, BASELINE, strict=True))]
        scores = [sacrebleu.corpus_bleu(list(side), [REFERENCE]).score for side in zip(*pairs, strict=True)]
        differences.append(abs(scores[0] - scores[1]))
    expected = sum(difference >= differences[0] - 1e-9 for difference in differences) / len(differences)
    assert exact_randomisation(changed, BASELINE, [REFERENCE], "bleu") == expected == 0.25  # all or none exchanged
    assert exact_randomisation(SYSTEM, BASELINE, [REFERENCE], "bleu") is None


def test_report():
    sources = [f"<Quelle> {n} | *" for n in range(len(REFERENCE))]
    report = build_report({"plain": BASELINE, "em": SYSTEM}, [REFERENCE], sources, ["bleu", "ter"], 20, 100, 100)
    differences = report.differences["em"]
    # the even sentences, that the baseline gets wrong, and two that the system does; no sentence that is the same
    assert {item.number for item in differences} == {*range(2, 25, 2), 1, 13}
    assert {item.number for item in differences if item.gain < 0} == {1, 13}
    gains = [abs(item.gain) for item in differences]
    assert gains == sorted(gains, reverse=True)
    text = as_text(report)
    row = report.comparisons["em"]["bleu"]
    lower, upper = row.difference_interval
    assert lower < row.difference < upper
    for part in ("12/10/2", "upon a", "<Quelle> 0 | *", "95 % of difference", f"{lower:+.2f} to {upper:+.2f}"):
        assert part in text
    assert json.loads(json.dumps(report.as_dict()))["comparisons"]["em"]["bleu"]["difference_interval"] == [
        lower,
        upper,
    ]


def test_a_report_says_which_systems_write_one_sentence_for_all_sources():
    number = len(REFERENCE)
    systems = {"plain": BASELINE, "em": ["A sentence."] * number, "dynamic": [*["Another."] * (number - 1), "Else."]}

    def text(*names):
        chosen = {name: systems[name] for name in names}
        return as_text(
            build_report(chosen, [REFERENCE], metrics=["bleu"], bootstrap_samples=9, randomisation_trials=9)
        )

    assert "collapsed" not in as_text(
        build_report({"plain": BASELINE, "good": SYSTEM}, [REFERENCE], None, ["bleu"], 5, 9, 9)
    )
    one_collapsed = text("plain", "em")
    assert f"em has collapsed: {number} of {number} translations are the same sentence: A sentence.\n" in one_collapsed
    assert "have collapsed" not in one_collapsed
    both_collapsed = text("em", "dynamic")
    assert (
        f"dynamic has collapsed: {number - 1} of {number} translations are the same sentence: Another."
        in both_collapsed
    )
    assert (
        "Both systems have collapsed: a difference between them tells nothing about their methods." in both_collapsed
    )
    assert "2 systems have collapsed" in text("plain", "em", "dynamic")
