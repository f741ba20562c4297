"""What a coverage or a judge finds, in words and most certain first, for a person who checks translations.

The page lists what a coverage finds in JavaScript (serve/page/marks.js); tests/vectors/problems.json holds cases for
both.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple, cast

from capsule_mt.coverage.reasons import LEVELS, MIN_PRECISION, MIN_SUPPORT, REASONS, ROW_LENGTH, Level

Side = Literal["source", "target"]
Values = Mapping[str, Any]
# the reasons of a judge that are estimates
JUDGED = {
    "another text": "unrelated",
    "another language": "foreign",
    "left out": "left_out",
    "made up": "made_up",
    "order": "order",
}
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

    level: how certain it is.
    reason: its name in `REASONS`, empty where there is no translation or no check.
    spans: where it is, if that is known.
    share: the share of such marks that is right, if it was measured for the model or the judge.
    """

    level: Level
    message: str
    spans: tuple[ProblemSpan, ...] = ()
    reason: str = ""
    share: float | None = None

    @property
    def message_with_share(self) -> str:
        """The message for a reader who does not know how right such marks are."""
        if self.share is None:
            return self.message
        return f"{self.message} ({int(100 * self.share + 0.5)} % of such marks are right)"

    def as_values(self) -> dict[str, Any]:
        """Return it as plain values, as reports and the server's answers have it."""
        values: dict[str, Any] = {"level": self.level, "reason": self.reason, "message": self.message}
        values["spans"] = [span._asdict() for span in self.spans]
        return values if self.share is None else {**values, "share": self.share}


def problem_of(
    reason: str,
    spans: Sequence[ProblemSpan] = (),
    *,
    is_added: bool = False,
    share: float | None = None,
    **fields: str,
) -> Problem:
    """Return a problem with the level and the message of a reason, whose fields are given."""
    row = REASONS[reason]
    message = (row.added if is_added else row.message).format(**fields)
    return Problem(row.level, message, tuple(spans), reason, share)


def problems_in(source: str, translation: str, record: Values) -> list[Problem]:
    """Return what to check in a translation, most certain first.

    Args:
        record: what is known about it: any of `language`, `unknown`, `has_other_placeholders`, `lost_number`,
            `coverage` (as for `problems_of`) and `judgement` (`capsule_mt.files.lines.judgement_record`).
    """
    problems = [problem_of("empty")] if source.strip() and not translation.strip() else []
    if "language" in record:
        problems.append(problem_of("language", language=record["language"]))
    if "unknown" in record:
        problems.append(problem_of("unreadable", part=f"{record['unknown']:.0%}"))
    if "lost_number" in record:
        problems.append(problem_of("plural", number=record["lost_number"]))
    coverage = record.get("coverage")
    if coverage is not None:
        problems += problems_of(coverage, source, translation)
    judgement = record.get("judgement")
    if judgement is not None:
        problems += _problems_of_judgement(judgement, source, translation, with_checks=coverage is None)
    checks = (coverage or judgement or {}).get("checks", ())
    if record.get("has_other_placeholders") and not any(check["kind"] == "placeholders" for check in checks):
        problems.append(problem_of("items"))
    return _sorted(problems)


def problems_of(coverage: Values, source: str, translation: str) -> list[Problem]:
    """Return what a coverage finds, most certain first.

    Args:
        coverage: the record of a coverage (`capsule_mt.files.lines.coverage_record`).
    """
    checks = coverage.get("checks", ())
    if not any(check["kind"] == "doubled" for check in checks):
        doubled = ({"kind": "doubled", "missing": "", "added": phrase} for phrase in coverage["repetitions"])
        checks = [*checks, *doubled]
    faults = _problems_of_checks(checks, source, translation)
    alarms = [
        ProblemSpan("source", sentence["start"], sentence["end"])
        for sentence in coverage["sentences"]
        if sentence.get("below_threshold")
    ]
    omissions = [*_omissions(coverage, source, alarms)]
    fault_spans = [span for fault in faults for span in fault.spans]
    doubts = [
        doubt
        for doubt in (*omissions, *_inventions(coverage, translation))
        if not any(_is_in(doubt.spans[0], span) for span in fault_spans)
    ]
    # an alarm that a problem within its sentence explains is not repeated
    explained = [*fault_spans, *(span for omission in omissions for span in omission.spans)]
    incomplete = [
        problem_of("incomplete", words=source[alarm.start : alarm.end])
        for alarm in alarms
        if not any(_is_in(span, alarm) for span in explained)
    ]
    return _sorted([*faults, *incomplete, *doubts])


def made_up_indices(supported: Sequence[float]) -> set[int]:
    """Return which words of a translation are in a row of words that are probably made up.

    Args:
        supported: how far the source supports each word. A shorter text counts as if supported words completed it.
    """
    rows = [range(start, start + ROW_LENGTH) for start in range(len(supported) - ROW_LENGTH + 1)]
    rows = rows or [range(len(supported))]
    made_up = (row for row in rows if math.prod(supported[index] for index in row) < MIN_SUPPORT**ROW_LENGTH)
    return {index for row in made_up for index in row}


def _sorted(problems: Sequence[Problem]) -> list[Problem]:
    return sorted(problems, key=lambda problem: LEVELS.index(problem.level))


def _problems_of_judgement(
    judgement: Values, source: str, translation: str, *, with_checks: bool
) -> Iterator[Problem]:
    """Yield what a judge finds, and with `with_checks` what rules have found for it."""
    if with_checks:
        yield from _problems_of_checks(judgement["checks"], source, translation)
    for reason in judgement["reasons"]:
        words = [("source", word) for word in judgement["left_out"]] if reason["name"] == "left out" else []
        words += [("target", word) for word in judgement["made_up"]] if reason["name"] == "made up" else []
        if not reason["is_fault"]:
            spans = [ProblemSpan(cast(Side, side), word["start"], word["end"]) for side, word in words]
            about, name = reason["source"] or reason["target"], JUDGED[reason["name"]]
            yield problem_of(name, spans, share=reason.get("share"), words=about, unverified="")
        elif reason["name"] == "copy" and not any(check["kind"] == "untranslated" for check in judgement["checks"]):
            yield problem_of("copy")


def _problems_of_checks(checks: Sequence[Values], source: str, translation: str) -> list[Problem]:
    """Return what rules have found as problems."""
    numbers = [check for check in checks if check["kind"] == "numbers"]
    are_changed = all(any(check[side] for check in numbers) for side in ("missing", "added"))
    return [_problem_of_check(check, source, translation, are_changed) for check in checks if _is_reason(check)]


def _is_reason(check: Values) -> bool:
    """Return whether a check is a reason of its own: a pair of brackets is not, which people add and leave out."""
    return check["kind"] != "brackets" or len(check["missing"] or check["added"]) == 1


def _problem_of_check(check: Values, source: str, translation: str, are_changed: bool) -> Problem:
    """Return what a rule has found as a problem.

    are_changed: whether numbers are missing and others were added.
    """
    kind, missing, added = check["kind"], check["missing"], check["added"]
    if kind == "sentences":
        unit = "sentence" if missing == "1" else "sentences"
        comparison = "longer" if int(missing) < int(added) else "shorter"
        return problem_of(kind, missing=f"{missing} {unit}", added=added, comparison=comparison)
    spans = [
        _span_of("source", source, missing, kind == "end"),
        _span_of("target", translation, f"{added} {added}" if kind == "doubled" else added, kind == "end"),
        _span_of("target", translation, missing) if kind == "untranslated" else None,
    ]
    reason = kind
    if kind == "numbers":
        reason = "swapped_numbers" if missing and added else "numbers" if are_changed else "lone_numbers"
    is_added = not missing and bool(REASONS[reason].added)
    found_spans = [span for span in spans if span is not None]
    return problem_of(reason, found_spans, is_added=is_added, missing=missing, added=added)


def _omissions(coverage: Values, source: str, alarms: Sequence[ProblemSpan]) -> Iterator[Problem]:
    """Yield marked words of the source, those in alarmed sentences first.

    Verified ones are probably left out if their sentence raises the alarm, or most marks of the model are right.
    """
    is_verified, precision = coverage.get("method", "verified") == "verified", coverage.get("precision")
    is_precise = precision is not None and precision >= MIN_PRECISION
    spans = [span for span, _ in _runs_of_marks(coverage["words"], source, "source")]
    are_confirmed = [any(_begins_in(span, alarm) for alarm in alarms) for span in spans]
    for span, is_confirmed in sorted(zip(spans, are_confirmed, strict=True), key=lambda row: not row[1]):
        words, unverified = source[span.start : span.end], "" if is_verified else ", unverified"
        reason = "left_out" if is_verified and (is_confirmed or is_precise) else "perhaps_left_out"
        yield problem_of(reason, [span], share=precision if is_verified else None, words=words, unverified=unverified)


def _inventions(coverage: Values, translation: str) -> Iterator[Problem]:
    """Yield marked words of the translation, which are probable if one of them is in a row with hardly any support."""
    target_words = coverage.get("target_words", ())
    made_up = {target_words[index]["start"] for index in made_up_indices([word["supported"] for word in target_words])}
    for span, run in _runs_of_marks(target_words, translation, "target"):
        is_probable = any(word["start"] in made_up for word in run)
        words = translation[span.start : span.end]
        yield problem_of("made_up" if is_probable else "perhaps_made_up", [span], words=words)


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


def _runs_of_marks(words: Sequence[Values], text: str, side: Side) -> Iterator[tuple[ProblemSpan, list[Values]]]:
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
        yield ProblemSpan(side, run[0]["start"], run[-1]["end"]), run


def _begins_in(inner: ProblemSpan, outer: ProblemSpan) -> bool:
    return inner.side == outer.side and outer.start <= inner.start < outer.end


def _is_in(inner: ProblemSpan, outer: ProblemSpan) -> bool:
    return inner.side == outer.side and outer.start <= inner.start and inner.end <= outer.end
