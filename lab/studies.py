"""The sections of the report that are no tables of papers: studies of marks, of aligners and of speed, as Markdown."""

from collections.abc import Callable, Mapping
from typing import Any

from hf_capsule_mt.evaluation.results import markdown_table
from lab import alarm, by_hand, published
from lab.lengths import render_lengths
from lab.records import Records
from lab.tables import provenance_of_names, render_study

STUDENT = {
    "start": "the student, as it is",
    "plain": "plain, trained further",
    "linear": "linear combination",
    "em": "EM routing",
    "em_frozen": "EM routing, only new weights trained",
    "guided_frozen": "guided routing, only new weights trained",
}
TEACHER = {
    "start": "the teacher",
    "marian": "Marian, as many parameters",
    "capsules": "CapsNMT",
    "pooling": "the same with pooling",
}


def word_omissions(records: Records) -> str:
    """Return how well each method finds words that are missing, in references and in a model's own translations."""
    record = records.named("studies")["word-omissions-de-en"]
    dropped, greedy = (record["measures"][kind] for kind in ("references with words dropped", "own, greedy"))
    rows = []
    for method in dropped:
        cells = []
        for by_method in (dropped, greedy):
            cells += [_word_auc(by_method[method]), f"{by_method[method]['precision']['value']:.2f}"]
        time = record["time_relative_to_translation"].get(method)
        rows.append([f'`"{method}"`' if time else method, *cells, f"{time:.2f}" if time else ""])
    header = ["dropped words", "precision at recall 0.6", "own translations", "precision at recall 0.6", "time"]
    return markdown_table(["method", *header], rows)


def guided_marks(records: Records) -> str:
    """Return how well guided routing on a strong student finds dropped words, beside the student's best head."""
    methods = ("guided", "attention", "length ratio")
    rows = []
    for record in _of_kind(records, "word omissions"):
        if record["checkpoint"].startswith("guided_frozen"):
            dropped = record["measures"]["references with words dropped"]
            rows.append([f"`{record['checkpoint']}`", *(_word_auc(dropped[method]) for method in methods)])
    return markdown_table(["model", '`"guided"`', '`"attention"`: the chosen head', "length ratio"], rows)


def _word_auc(measures: Mapping[str, Mapping[str, float]]) -> str:
    area = measures["word_auc"]
    return f"{area['value']:.2f} [{area['low']:.2f}, {area['high']:.2f}]"


def _of_kind(records: Records, kind: str) -> list[Mapping[str, Any]]:
    return [record for record in records.read("studies") if record.get("kind") == kind]


def _all_of_kind(kind: str, render: Callable[[list[Mapping[str, Any]]], str]) -> Callable[[Records], str]:
    """Return a section with all records of a kind, and their commits."""

    def section(records: Records) -> str:
        of_kind = _of_kind(records, kind)
        return f"{render(of_kind)}\n\n{provenance_of_names(records, 'studies', [entry['name'] for entry in of_kind])}"

    return section


def lengths(records: Records) -> str:
    record = records.named("studies")["linear-time-cpu"]
    about = f"`{record['command']}` on {record['hardware']['cpu']}, medians of {record['repeats']}:"
    return "\n\n".join([about, render_lengths(record), provenance_of_names(records, "studies", ["linear-time-cpu"])])


SECTIONS: dict[str, Callable[[Records], str]] = {
    "strong_student": lambda records: render_study(records, "strong_student", STUDENT, "plain"),
    "strong_teacher": lambda records: render_study(records, "strong_teacher", TEACHER, "marian"),
    "word_omissions": lambda records: (
        f"{word_omissions(records)}\n\n{provenance_of_names(records, 'studies', ['word-omissions-de-en'])}"
    ),
    "guided_marks": guided_marks,
    "read_by_hand": _all_of_kind("read by hand", by_hand.table),
    "judged_by_people": _all_of_kind("judged by people", published.table),
    "alarm": _all_of_kind("alarm", alarm.table),
    "lengths": lengths,
}
