"""Probing results as a table, by hand."""

from lab.probing_table import Accuracies, probing_table


def result(encoder: str, task: str, seed: int, accuracy: float) -> dict:
    return {"encoder": encoder, "task": task, "seed": seed, "accuracy": accuracy, "majority": 0.25,
            "sentences": {"train": 9, "validation": 9, "test": 1234}}  # fmt: skip


RESULTS = [
    result("outputs/plain", "WC", 1, 0.50),
    result("outputs/plain", "WC", 2, 0.60),
    result("outputs/plain", "SentLen", 2, 0.40),
    result("outputs/em", "WC", 3, 0.99),
    result("outputs/em", "WC", 2, 0.63),
    result("outputs/em", "WC", 1, 0.51),
    result("outputs/em", "SentLen", 1, 0.80),
    result("outputs/new", "SentLen", 2, 0.45),
]


def test_differences_are_of_the_same_seeds():
    found = Accuracies(RESULTS)
    assert found.encoders == ["outputs/plain", "outputs/em", "outputs/new"]
    assert found.of("outputs/em", "WC") == [99.0, 63.0, 51.0]
    assert found.of("outputs/new", "WC") == []
    assert [round(value, 9) for value in found.differences("outputs/em", "WC")] == [3.0, 1.0]
    assert found.differences("outputs/em", "SentLen") == []


def test_table():
    explanation, empty, *lines = probing_table(RESULTS).splitlines()
    assert "differences to the first encoder" in explanation
    assert empty == ""
    assert lines[0] == "| encoder | SentLen | WC |"  # in the order of the paper
    assert lines[2:] == [
        "| commonest class | 25.0 | 25.0 |",
        "| test sentences | 1,234 | 1,234 |",
        "| plain | 40.0 | 55.0 ± 7.1 |",
        "| em | 80.0 | 71.0 ± 25.0 |",
        "| new | 45.0 |  |",
        "| em against plain |  | +2.0 (p=0.295) |",  # t = 2 with one degree of freedom: 1 - 2 / pi * atan(2)
        "| new against plain | +5.0 |  |",
        "| paper: concat | 97.22 | 97.92 |",
        "| paper: simple_routing | 97.10 | 98.85 |",
        "| paper: em_routing | 96.26 | 98.75 |",
    ]
