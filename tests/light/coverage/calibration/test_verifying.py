"""What `capsule-mt calibrate --reverse` measures, with a model whose coverage is given."""

from dataclasses import dataclass
from types import SimpleNamespace

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
