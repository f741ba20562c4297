"""How much BLEU a change of typography costs."""

from collections.abc import Sequence

import pytest

from lab.typography import CHANGES, losses, words_alone

LINES = [f'The "old" man\'s dog - number 1,{number}00 - remembers everything he wanted.' for number in range(10, 20)]


def test_each_change_but_those_of_letters_leaves_the_words_alone() -> None:
    letters = {"Title Case", "small letters", "CAPITALS", "narrow no-break spaces in numbers"}
    for name in CHANGES.keys() - letters:
        assert [words_alone(CHANGES[name](line)) for line in LINES] == [words_alone(line) for line in LINES], name


def test_a_model_that_copies_loses_by_what_it_cannot_read() -> None:
    def copies_up_to_soft_hyphen(lines: Sequence[str]) -> list[str]:
        return [line.split("\u00ad")[0] for line in lines]

    rows = {row["change"]: row for row in losses(copies_up_to_soft_hyphen, LINES, LINES)}
    assert rows["soft hyphens inside words"]["lost"] > 10
    assert rows["zero-width spaces inside words"]["lost"] == pytest.approx(0)
    assert rows["soft hyphens inside words"]["lines"] == len(LINES)
    assert "decomposed accents" not in rows  # none of the lines has an accent
