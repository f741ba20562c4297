"""The sections of the report that are no tables of papers: studies of marks, of aligners and of speed, as Markdown."""

from collections.abc import Callable, Mapping

from lab import by_hand
from lab.lengths import render_lengths
from lab.records import Records
from lab.tables import arms_table, provenance, provenance_of_names

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


def student_or_teacher(records: Records, file: str, arms: Mapping[str, str], baseline: str) -> str:
    return f"{arms_table(records.runs(file), arms, baseline)}\n\n{provenance(records, file, arms)}"


def read_by_hand(records: Records) -> str:
    """Return the marks of left-out words beside what a reader named."""
    read = [record for record in records.read("studies") if record.get("kind") == "read by hand"]
    return f"{by_hand.table(read)}\n\n{provenance_of_names(records, 'studies', [record['name'] for record in read])}"


def lengths(records: Records) -> str:
    measured = [record for name, record in records.named("studies").items() if name.startswith("linear-time")]
    about = "`{command}` on {hardware[cpu]}, medians of {repeats}:\n\n"
    parts = [about.format(**record) + render_lengths(record) for record in measured]
    return "\n\n".join([*parts, provenance_of_names(records, "studies", [record["name"] for record in measured])])


SECTIONS: dict[str, Callable[[Records], str]] = {
    "strong_student": lambda records: student_or_teacher(records, "strong_student", STUDENT, "plain"),
    "strong_teacher": lambda records: student_or_teacher(records, "strong_teacher", TEACHER, "marian"),
    "read_by_hand": read_by_hand,
    "lengths": lengths,
}
