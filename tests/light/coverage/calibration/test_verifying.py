"""What `capsule-mt calibrate --reverse` measures, with a model whose coverage is given."""

import sys
from dataclasses import dataclass
from types import SimpleNamespace

import pytest

from capsule_mt.coverage.calibration import verifying
from capsule_mt.coverage.calibration.omissions import WithOmissions
from capsule_mt.coverage.options import MARKS
from capsule_mt.text.words import WORDS

SOURCES = ["Er hat einen alten Hut.", "Sie kauft sehr, sehr viel."]
LOST = [(13,), (16, 21)]  # where the words begin that are left out


@dataclass
class Marked:
    text: str
    start: int
    end: int
    marked: bool


def marks_of(source, *marked):
    """A coverage that marks the words at these places of a source."""
    words = [Marked(match[0], *match.span(), match.start() in marked) for match in WORDS.finditer(source)]
    return SimpleNamespace(words=words, score=1 - 0.2 * len(marked))


def test_the_marks_of_each_option_are_compared_with_the_aligner(monkeypatch, capsys):
    labelled = [
        WithOmissions(source, "", {match.span(): match.start() in lost for match in WORDS.finditer(source)}, 0)
        for source, lost in zip(SOURCES, LOST, strict=True)
    ]
    marked = {"sure": [(13,), ()], "likely": [(13,), (16, 0)], "all": [(13, 3), (16, 21, 0)]}

    def cover(translator, examples, method, *, marks):
        return [marks_of(example.source, *spans) for example, spans in zip(examples, marked[marks], strict=True)]

    monkeypatch.setattr(verifying, "coverage_of_examples", cover)
    verifying.print_marks(None, labelled)
    printed = capsys.readouterr().out.splitlines()
    agreed = [(1, 1), (2, 3), (3, 5)]
    for option, (hits, marks), line in zip(MARKS, agreed, printed, strict=True):
        omissions = f"which have {hits} of the 3 omissions that it sees"
        assert line.startswith(f"marks={option!r}: the aligner agrees with {hits} of {marks}, {omissions}")


def test_an_alarm_of_unrelated_translations_flags_few_related_ones(monkeypatch, capsys):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    texts = [f"{number} words" + " more" * (number % 7) for number in range(400)]

    def adequacy(sources, translations):  # every 50th of the texts' own translations seems half unrelated
        return [
            SimpleNamespace(hallucination=0.9 if source != line else 0.5 if int(source.split()[0]) % 50 == 0 else 0.1)
            for source, line in zip(sources, translations, strict=True)
        ]

    translator = SimpleNamespace(adequacy=adequacy)
    alarm = verifying.choose_unrelated_alarm(translator, texts, texts)
    assert alarm["score"] == pytest.approx(0.7)  # halfway between 0.5 and 0.9
    assert capsys.readouterr().err.count("400 of 400 translations: adequacy") == 2  # own ones, then exchanged ones
    assert alarm["flagged"] <= 2 * verifying.FLAGGED_SHARE
    assert alarm["caught"] == {"another sentence's": 1.0}
    assert verifying.choose_unrelated_alarm(translator, texts[:50], texts[:50]) is None
    # text with several references has most sources twice: two equal translations are not exchanged
    assert verifying.choose_unrelated_alarm(translator, texts + texts[:300], texts + texts[:300]) == alarm
    assert verifying.choose_unrelated_alarm(translator, texts[:50] * 4, texts[:50] * 4) is None


def test_an_alarm_of_unrelated_translations_is_not_below_what_few_genuine_ones_exceed():
    texts = [f"{number} words" for number in range(400)]

    def adequacy(sources, translations):  # free translations look less related than exchanged ones
        return [
            SimpleNamespace(hallucination=0.9 if source == line else 0.5)
            for source, line in zip(sources, translations, strict=True)
        ]

    assert verifying.choose_unrelated_alarm(SimpleNamespace(adequacy=adequacy), texts, texts)["score"] == 0.9


def test_an_alarm_flags_few_whole_translations(monkeypatch):
    texts = [f"{n} two three four five six seven eight." for n in range(400)]

    def cover(translator, examples, method):  # a whole translation loses a word now and then
        lengths = [len(example.translation.split()) for example in examples]
        lost = [int(example.source.split()[0]) % 50 == 0 for example in examples]
        return [SimpleNamespace(score=(length - low) / 8) for length, low in zip(lengths, lost, strict=True)]

    monkeypatch.setattr(verifying, "coverage_of_examples", cover)
    alarm = verifying.choose_alarm(None, texts, texts)
    assert alarm["flagged"] <= 2 * verifying.FLAGGED_SHARE
    assert alarm["score"] <= 1
    assert alarm["caught"] == {"three words": 1.0, "a quarter": 1.0, "a half": 1.0}


def test_the_alarm_of_given_translations_is_chosen_on_those_of_any_length(monkeypatch):
    pairs = [
        (f"{n} two", "short") if n % 41 == 0 else (f"{n} two", f"{n} two three four five six seven eight.")
        for n in range(400)
    ]

    def cover(translator, examples, method):
        return [SimpleNamespace(score=len(example.translation.split()) / 10) for example in examples]

    monkeypatch.setattr(verifying, "coverage_of_examples", cover)
    alarm = verifying.choose_human_alarm(None, pairs)
    assert alarm["score"] == 0.1  # of the ten short ones
    assert alarm["flagged"] == 0.0
    assert alarm["caught"] == {"three words": 0.0, "a quarter": 0.0, "a half": 0.0}
    assert verifying.choose_human_alarm(None, pairs[:50]) is None
