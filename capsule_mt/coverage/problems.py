"""What a coverage finds, in words and most certain first, for a person who checks translations.

The page has the same list in JavaScript (serve/page/marks.js); tests/vectors/problems.json holds cases for both.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

Side = Literal["source", "target"]
Values = Mapping[str, Any]
# kinds of checks whose messages have the same form
NOUNS = {
    "numbers": "number",
    "months": "month",
    "weekdays": "weekday",
    "signs": "sign",
    "placeholders": "placeholder",
    "tags": "tag",
    "urls": "address",
    "brackets": "pair of brackets",
    "negation": "negation",
}
UNRELATED = "Perhaps a translation of another text"
EMPTY = "The translation is empty."
BETWEEN_WORDS = r"[\W_]+"
HAS_LETTER = re.compile(r"[^\W_]")
MIN_COVERED = 0.5  # a word below it, such as an article, is shown with the marked words around it


class ProblemSpan(NamedTuple):
    """The characters `start` to `end` of the source or of the translation."""

    side: Side
    start: int
    end: int


class Problem(NamedTuple):
    """Something to check in a translation.

    level: "fault" if a rule has found it, "doubt" if it is an estimate.
    spans: where it is; none if it concerns a whole text.
    """

    level: Literal["fault", "doubt"]
    message: str
    spans: tuple[ProblemSpan, ...] = ()

    def as_values(self) -> dict[str, Any]:
        """Return it as plain values, as reports and the server's answers have it."""
        return {"level": self.level, "message": self.message, "spans": [span._asdict() for span in self.spans]}


def problems_in(source: str, translation: str, record: Values) -> list[Problem]:
    """Return what to check in a translation, most certain first.

    Args:
        record: what is known about it: any of `is_unrelated`, `language`, `unknown`, `coverage` (as for `problems_of`)
            and `has_other_placeholders`.
    """
    problems = [Problem("fault", EMPTY)] if source.strip() and not translation.strip() else []
    if "language" in record:
        problems.append(Problem("doubt", f"The text seems to be in another language: {record['language']}"))
    if "unknown" in record:
        problems.append(Problem("fault", f"The model cannot read {record['unknown']:.0%} of the text."))
    coverage = record.get("coverage")
    if coverage is not None:
        problems += problems_of(coverage, source, translation)
    checks = () if coverage is None else coverage.get("checks", ())
    if record.get("has_other_placeholders") and not any(check["kind"] == "placeholders" for check in checks):
        problems.append(Problem("fault", "The placeholders are others, or in another order."))
    if record.get("is_unrelated"):
        problems.append(Problem("doubt", f"{UNRELATED}."))
    return sorted(problems, key=lambda problem: problem.level == "doubt")


def problems_of(coverage: Values, source: str, translation: str) -> list[Problem]:
    """Return what a coverage finds: faults, then doubts: alarms, single words, and last of all unrelated sentences.

    Args:
        coverage: the record of a coverage (`capsule_mt.files.lines.coverage_record`).
    """
    checks = coverage.get("checks", ())
    faults = [_problem_of_check(check, source, translation) for check in checks]
    if not any(check["kind"] == "doubled" for check in checks):
        doubled = ({"kind": "doubled", "missing": "", "added": phrase} for phrase in coverage["repetitions"])
        faults += [_problem_of_check(check, source, translation) for check in doubled]
    alarms = [
        ProblemSpan("source", sentence["start"], sentence["end"])
        for sentence in coverage["sentences"]
        if sentence.get("below_threshold")
    ]
    unverified = "" if coverage.get("method", "verified") == "verified" else ", unverified"

    omissions = [*_problems_of_words(coverage["words"], source, "source", f"Perhaps left out{unverified}")]
    # those that an alarm confirms come first
    omissions.sort(key=lambda omission: not any(_begins_in(omission.spans[0], alarm) for alarm in alarms))
    inventions = _problems_of_words(coverage.get("target_words", ()), translation, "target", "Perhaps made up")
    fault_spans = [span for fault in faults for span in fault.spans]
    doubts = [
        doubt for doubt in (*omissions, *inventions) if not any(_is_in(doubt.spans[0], span) for span in fault_spans)
    ]
    # an alarm that a problem within its sentence explains is not repeated
    explained = [*fault_spans, *(span for omission in omissions for span in omission.spans)]
    incomplete = [
        Problem("doubt", f"Perhaps incomplete: {source[alarm.start : alarm.end]}")
        for alarm in alarms
        if not any(_is_in(span, alarm) for span in explained)
    ]
    unrelated = [
        Problem("doubt", f"{UNRELATED}: {source[sentence['start'] : sentence['end']]}")
        for sentence in coverage["sentences"]
        if sentence.get("is_unrelated")
    ]
    return [*faults, *incomplete, *doubts, *unrelated]


def _problem_of_check(check: Values, source: str, translation: str) -> Problem:
    """Return what a rule has found as a problem."""
    kind, missing, added = check["kind"], check["missing"], check["added"]
    if kind == "sentences":
        unit = "sentence" if missing == "1" else "sentences"
        comparison = "longer" if int(missing) < int(added) else "shorter"
        return Problem("fault", f"The text has {missing} {unit}, the translation {added}, and is much {comparison}.")
    is_last = kind == "end"
    spans = [
        _span_of("source", source, missing, is_last),
        _span_of("target", translation, f"{added} {added}" if kind == "doubled" else added, is_last),
        _span_of("target", translation, missing) if kind == "untranslated" else None,
    ]
    if is_last:
        message = f"The text ends with “{missing}”, the translation with “{added}”."
    elif kind == "untranslated":
        message = f"Not translated: {missing}"
    elif kind == "doubled":
        message = f"Said twice in a row: {added}"
    elif kind == "names":
        message = f"The name “{missing}” became “{added}”."
    elif kind == "numbers" and missing and added:
        message = f"Two numbers change places: “{missing}”, “{added}”."
    elif missing:
        message = f"The {NOUNS[kind]} {missing} is missing in the translation."
    else:
        message = f"The {NOUNS[kind]} {added} is only in the translation."
    return Problem("fault", message, tuple(span for span in spans if span is not None))


def _span_of(side: Side, text: str, words: str, is_last: bool = False) -> ProblemSpan | None:
    """Return where a text has these words, and not as a part of a longer word or number; `None` if it lacks them."""
    parts = words.split()
    if not parts:
        return None
    word_start = r"(?<![^\W_])" if HAS_LETTER.match(parts[0]) else ""
    word_end = r"(?![^\W_])" if HAS_LETTER.match(parts[-1][-1]) else ""
    pattern = word_start + BETWEEN_WORDS.join(map(re.escape, parts)) + word_end
    spans = (ProblemSpan(side, *match.span()) for match in re.finditer(pattern, text, re.IGNORECASE))
    return [None, *spans][-1] if is_last else next(spans, None)


def _problems_of_words(words: Sequence[Values], text: str, side: Side, message: str) -> Iterator[Problem]:
    """Yield runs of marked words. Neither punctuation nor words that are probably left out, too, end a run."""
    runs: list[list[Values]] = [[]]
    for word in words:
        if not HAS_LETTER.search(text, word["start"], word["end"]):
            continue
        if word.get("untranslated") or word.get("unsupported"):
            runs[-1].append(word)
        elif runs[-1] and word.get("covered", 1.0) >= MIN_COVERED:
            runs.append([])
    for run in filter(None, runs):
        start, end = run[0]["start"], run[-1]["end"]
        yield Problem("doubt", f"{message}: {text[start:end]}", (ProblemSpan(side, start, end),))


def _begins_in(inner: ProblemSpan, outer: ProblemSpan) -> bool:
    return inner.side == outer.side and outer.start <= inner.start < outer.end


def _is_in(inner: ProblemSpan, outer: ProblemSpan) -> bool:
    return inner.side == outer.side and outer.start <= inner.start and inner.end <= outer.end
