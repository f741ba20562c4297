"""Format translations as the lines of text files."""

import re
from collections.abc import Callable, Sequence
from typing import Any

from capsule_mt.files.line_failures import Failure, describe, translate_lines
from capsule_mt.files.progress import write_line
from capsule_mt.files.windows import Row

# a translation may have them, since vocabularies have every byte; a line of the output may not
LINE_BREAKS = re.compile(r"[\r\n]+")


class RowMaker:
    """Turns lines of the input into rows of the output files, and records why lines failed.

    Args:
        translate: returns the results of lines.
        columns: returns the lines of each output file for the index of a line, the line, and its result or `Failure`.
            A line for which it raises a `ValueError`, such as for numbers that are not finite, has failed.
        prefix: the beginning of a message, before the number of the line.
        note: adds to a result what only the index of its line tells.
        needs_check: whether a person should check the result of a line.
        strict: raise the first failure.
        labels: names of the lines in messages, instead of numbers.
        probe: a line without fault, by default a text.
    """

    def __init__(
        self,
        translate: Callable[[list[Any]], list[Any]],
        columns: Callable[[int, Any, Any], list[list[str]]],
        prefix: str,
        needs_check: Callable[[Any, Any], bool] = lambda line, result: False,
        strict: bool = False,
        probe: Any = None,
        labels: Sequence[str] | None = None,
        note: Callable[[int, Any], None] = lambda index, result: None,
    ) -> None:
        self.translate, self.columns, self.prefix, self.needs_check = translate, columns, prefix, needs_check
        self.strict, self.probe, self.labels, self.note = strict, probe, labels, note
        self.failures: dict[int, str] = {}  # reasons by the index of the line
        self.flagged = 0

    def __call__(self, indices: list[int], lines: list[Any]) -> list[Row]:
        """Return the rows of lines at these indices of the input."""
        rows, failures = [], {}
        results = translate_lines(self.translate, lines, self.probe)
        for index, line, result in zip(indices, lines, results, strict=True):
            if not isinstance(result, Failure):
                self.note(index, result)
            try:
                columns = self.columns(index, line, result)
            except ValueError as error:
                result = Failure(describe(error))
                columns = self.columns(index, line, result)
            if isinstance(result, Failure):
                failures[index] = result.reason
                rows.append(Row(columns, result.reason))
            else:
                rows.append(Row(columns, None, self.needs_check(line, result)))
        self.flagged += sum(row.is_flagged for row in rows)
        self.report(failures)
        return rows

    def report(self, failures: dict[int, str]) -> None:
        """Print why lines failed, once for each line; if strict, raise the first failure."""
        for line_index, reason in failures.items():
            label = line_index + 1 if self.labels is None else self.labels[line_index]
            message = f"{self.prefix} {label}: {reason}"
            if self.strict:
                raise ValueError(message)
            if line_index not in self.failures:
                write_line(message)
            self.failures[line_index] = reason


def one_line(text: str) -> str:
    """Return a text with spaces instead of line breaks."""
    return LINE_BREAKS.sub(" ", text)


def coverage_record(coverage: Any) -> dict[str, Any]:
    """Return a coverage (`capsule_mt.Coverage`) as plain values, with the keys of the output files.

    Sentences have `below_threshold` if a threshold is set. `support` and `target_words` are there if they were
    requested. Marks are unverified unless `method` is "verified".
    """
    sentences = [
        {"start": sentence.start, "end": sentence.end, "score": sentence.score} for sentence in coverage.sentences
    ]
    for values in sentences if coverage.threshold is not None else ():
        values["below_threshold"] = values["score"] < coverage.threshold
    words = [{**_word_and_span(word), "covered": word.covered, "untranslated": word.marked} for word in coverage.words]
    record = {"score": coverage.score, "sentences": sentences, "words": words}
    if coverage.support is not None:
        record["support"] = coverage.support
        record["target_words"] = [
            {**_word_and_span(word), "supported": word.supported, "unsupported": word.marked}
            for word in coverage.target_words
        ]
    record |= {"repetitions": list(coverage.repetitions), "checks": _check_records(coverage.checks)}
    facts = {"method": coverage.method, "precision": coverage.precision}
    record |= {name: value for name, value in facts.items() if value is not None}
    return record if coverage.judgement is None else {**record, "judgement": judgement_record(coverage.judgement)}


def judgement_record(judgement: Any) -> dict[str, Any]:
    """Return a judgement (`capsule_mt.coverage.judgement`) as plain values."""
    words = {
        "left_out": [{**_word_and_span(word), "probability": word.probability} for word in judgement.left_out],
        "made_up": [{**_word_and_span(word), "probability": word.probability} for word in judgement.made_up],
    }
    reasons = [
        {"name": reason.name, "is_fault": reason.is_fault, "source": reason.source, "target": reason.target}
        | ({} if reason.share is None else {"share": reason.share})
        for reason in judgement.reasons
    ]
    checks = _check_records(judgement.checks)
    return {"similarity": judgement.similarity, **words, "reasons": reasons, "checks": checks}


def _check_records(checks: Any) -> list[dict[str, Any]]:
    return [{"kind": check.kind, "missing": check.missing, "added": check.added} for check in checks]


def _word_and_span(word: Any) -> dict[str, Any]:
    return {"word": word.text, "start": word.start, "end": word.end}


def pharaoh(record: dict[str, Any]) -> str:
    """Format the alignment of a record as in `0-0 1-2`; empty for a failed line."""
    return " ".join(f"{source}-{target}" for source, target in record.get("alignment") or ())
