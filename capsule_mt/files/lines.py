"""Format translations as the lines of text files."""

import json
import math
import re
from collections.abc import Callable, Sequence
from typing import Any

from capsule_mt.files.line_failures import Failure, describe, translate_lines
from capsule_mt.files.progress import write_line

# a translation may have them, since vocabularies have every byte; a line of the output may not
LINE_BREAKS = re.compile(r"[\r\n]+")


class WindowLines:
    """Turns windows of the input into lines of the output files, and records why lines failed.

    Args:
        translate: returns the results of lines.
        columns: returns the lines of each output file for the index of a line and its result or `Failure`. A line for
            which it raises a `ValueError`, such as for numbers that are not finite, has failed.
        prefix: the beginning of a message, before the number of the line.
        strict: raise the first failure.
        labels: names of the lines in messages, instead of numbers.
        probe: a line without fault, by default a text.
    """

    def __init__(
        self,
        translate: Callable[[list[Any]], list[Any]],
        columns: Callable[[int, Any], list[list[str]]],
        prefix: str,
        strict: bool = False,
        probe: Any = None,
        labels: Sequence[str] | None = None,
    ) -> None:
        self.translate, self.columns, self.prefix, self.strict, self.probe = translate, columns, prefix, strict, probe
        self.labels = labels
        self.failures: dict[int, str] = {}  # reasons by the index of the line

    def __call__(self, first_line: int, lines: list[Any]) -> tuple[list[list[str]], dict[int, str]]:
        """Return the lines of each output file for a window, and why some of its lines failed."""
        rows, failures = [], {}
        for line_index, result in enumerate(translate_lines(self.translate, lines, self.probe), start=first_line):
            try:
                rows.append(self.columns(line_index, result))
            except ValueError as error:
                result = Failure(describe(error))
                rows.append(self.columns(line_index, result))
            if isinstance(result, Failure):
                failures[line_index] = result.reason
        self.report(failures)
        return [[line for cell in column for line in cell] for column in zip(*rows, strict=True)], failures

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

    Sentences have `below_threshold` if a threshold is set.
    `support` and the words of the translation are there if they were requested.
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
    checks = [{"kind": check.kind, "missing": check.missing, "added": check.added} for check in coverage.checks]
    return {**record, "repetitions": list(coverage.repetitions), "checks": checks}


def _word_and_span(word: Any) -> dict[str, Any]:
    return {"word": word.text, "start": word.start, "end": word.end}


def pharaoh(record: dict[str, Any]) -> str:
    """Format the alignment of a record as in `0-0 1-2`; empty for a failed line."""
    return " ".join(f"{source}-{target}" for source, target in record.get("alignment") or ())


def coverage_json(line: int | str, record: dict[str, Any]) -> str:
    """Format the coverage of a record as JSON, or the reason why it is missing.

    line: the index of a line, or the label of a text in a file that is more than lines.
    """
    coverage = record.get("coverage") or {"error": record.get("failure", "the coverage was not found")}
    key = "place" if isinstance(line, str) else "line"
    text_facts = {name: record[name] for name in ("unknown", "language") if name in record}
    return json.dumps({key: line, **coverage, **text_facts}, ensure_ascii=False, allow_nan=False)


def coverage_tsv(line: int | str, record: dict[str, Any]) -> str:
    """Format the coverage of a record: line, score, untranslated words, repetitions, unsupported words, checks.

    Without a coverage, only the line is filled in. `line` is as in `coverage_json`.
    """
    coverage = record.get("coverage")
    if coverage is None:
        return f"{line}\t\t\t\t\t"
    if math.isnan(coverage["score"]):
        raise ValueError("the coverage is not a number: the model's logits are not finite")
    untranslated = " ".join(word["word"] for word in coverage["words"] if word["untranslated"])
    unsupported = " ".join(word["word"] for word in coverage.get("target_words", ()) if word["unsupported"])
    checks = "; ".join(map(_check_text, coverage.get("checks", ())))
    cells = [line, f"{coverage['score']:.4f}", untranslated, "; ".join(coverage["repetitions"]), unsupported, checks]
    return "\t".join(map(str, cells))


def _check_text(check: dict[str, str]) -> str:
    """Format a check as in "numbers -1,234 +12": what the translation lacks, and what it has added."""
    parts = [
        sign + one_line(check[name]).replace("\t", " ")
        for sign, name in (("-", "missing"), ("+", "added"))
        if check[name]
    ]
    return " ".join([check["kind"], *parts])


def scored_json(line_index: int, record: dict[str, Any] | Failure) -> str:
    """Format the scores of an existing translation as JSON; of a failed line, the reason.

    record: its `score` and `tokens`, whether it was `cut`, and the record of its `coverage` if there is one.
    """
    values = {"error": record.reason} if isinstance(record, Failure) else record
    return json.dumps({"line": line_index, **values}, ensure_ascii=False, allow_nan=False)


def scored_tsv(line_index: int, record: dict[str, Any] | Failure) -> str:
    """Format the scores of an existing translation: line, score, tokens, then adequacy and coverage if they are there.

    The columns of adequacy are omission, hallucination, and "unrelated" where that raises the alarm. A blank source
    has an empty score; of a failed line, only the line is filled in.
    """
    if isinstance(record, Failure):
        return f"{line_index}\t\t"
    score = record["score"]
    if score is not None and math.isnan(score):
        raise ValueError("the score is not a number: the model's logits are not finite")
    adequacy = [record[name] for name in ("omission", "hallucination") if name in record]
    score, *adequacy_columns = ("" if value is None else f"{value:.4f}" for value in (score, *adequacy))
    if "is_unrelated" in record:
        adequacy_columns.append("unrelated" if record["is_unrelated"] else "")
    row = "\t".join([str(line_index), score, str(record["tokens"]), *adequacy_columns])
    return row + coverage_tsv(line_index, record).removeprefix(str(line_index)) if "coverage" in record else row
