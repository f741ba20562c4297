"""What `capsule-mt calibrate --reverse` measures, with a model whose coverage is given."""

from dataclasses import dataclass
from types import SimpleNamespace

from capsule_mt.calibration import verifying
from capsule_mt.calibration.omissions import WithOmissions
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


def test_points_are_measured(monkeypatch, capsys):
    labelled = [
        WithOmissions(source, "", {match.span(): match.start() in lost for match in WORDS.finditer(source)}, 0)
        for source, lost in zip(SOURCES, LOST, strict=True)
    ]
    marked = {"sure": [(13,), ()], "likely": [(13,), (16, 0)], "all": [(13, 3), (16, 21, 0)]}

    def cover(translator, examples, method, *, marks):
        return [marks_of(one.source, *places) for one, places in zip(examples, marked[marks], strict=True)]

    monkeypatch.setattr(verifying, "coverage_of_examples", cover)
    found = verifying.measure_marks(None, labelled)
    assert found == {
        "sure": {"marks": 1, "precision": 1.0, "recall": 0.33},
        "likely": {"marks": 3, "precision": 0.67, "recall": 0.67},
        "all": {"marks": 5, "precision": 0.6, "recall": 1.0},
    }
    assert list(found) == list(MARKS)
    assert "marks='likely': 2 of 3 are right, and 2 of 3 omissions are marked" in capsys.readouterr().out


def test_an_alarm_flags_few_whole_translations(monkeypatch):
    texts = [f"{n} two three four five six seven eight." for n in range(400)]

    def cover(translator, examples, method):  # a whole translation loses a word now and then
        lengths = [len(one.translation.split()) for one in examples]
        lost = [int(one.source.split()[0]) % 50 == 0 for one in examples]
        return [SimpleNamespace(score=(length - low) / 8) for length, low in zip(lengths, lost, strict=True)]

    monkeypatch.setattr(verifying, "coverage_of_examples", cover)
    alarm = verifying.choose_alarm(None, texts, texts)
    assert alarm["flagged"] <= 2 * verifying.FLAGGED
    assert alarm["score"] <= 1
    assert alarm["caught"] == {"three words": 1.0, "a quarter": 1.0, "a half": 1.0}
