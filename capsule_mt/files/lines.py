"""Format translations as the lines of text files."""

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
        columns: returns the lines of each output file for the index of a line, the line, and its result or `Failure`.
            A line for which it raises a `ValueError`, such as for numbers that are not finite, has failed.
        prefix: the beginning of a message, before the number of the line.
        strict: raise the first failure.
        labels: names of the lines in messages, instead of numbers.
        probe: a line without fault, by default a text.
    """

    def __init__(
        self,
        translate: Callable[[list[Any]], list[Any]],
        columns: Callable[[int, Any, Any], list[list[str]]],
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
        results = translate_lines(self.translate, lines, self.probe)
        for line_index, (line, result) in enumerate(zip(lines, results, strict=True), start=first_line):
            try:
                rows.append(self.columns(line_index, line, result))
            except ValueError as error:
                result = Failure(describe(error))
                rows.append(self.columns(line_index, line, result))
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
    `support` and the words of the translation are there if they were requested. Marks are unverified unless `method`
    is "verified".
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
    record |= {"repetitions": list(coverage.repetitions), "checks": checks}
    return record if coverage.method is None else {**record, "method": coverage.method}


def _word_and_span(word: Any) -> dict[str, Any]:
    return {"word": word.text, "start": word.start, "end": word.end}


def pharaoh(record: dict[str, Any]) -> str:
    """Format the alignment of a record as in `0-0 1-2`; empty for a failed line."""
    return " ".join(f"{source}-{target}" for source, target in record.get("alignment") or ())
