"""Format translations as the lines of text files."""

import json
import math
import re
from collections.abc import Callable, Sequence
from typing import Any

from capsule_mt.files.line_failures import Failure, describe, translate_lines
from capsule_mt.files.progress import write_line

# a translation may hold them, from a byte of the vocabulary; a line of the output may not
LINE_BREAKS_IN_A_LINE = re.compile(r"[\r\n]+")


class WindowLines:
    """Turns windows of the input into lines of the output files, and keeps why lines failed.

    Args:
        translate: gives the results of some lines.
        columns: gives the lines of each output file for the number of a line, from 0, and its result or `Failure`. A
            line with a `ValueError`, as of numbers that are not finite, has failed.
        place: what a message begins with, before the line.
        strict: raise the first failure.
        places: what to call the lines in messages, where that is no number.
        probe: a line without fault, by default a text.
    """

    def __init__(
        self,
        translate: Callable[[list[Any]], list[Any]],
        columns: Callable[[int, Any], list[list[str]]],
        place: str,
        strict: bool = False,
        probe: Any = None,
        places: Sequence[str] | None = None,
    ) -> None:
        self.translate, self.columns, self.place, self.strict, self.probe = translate, columns, place, strict, probe
        self.places = places
        self.failures: dict[int, str] = {}

    def __call__(self, first_line: int, lines: list[Any]) -> tuple[list[list[str]], dict[int, str]]:
        """Return the lines of each output file for a window, and why lines of it failed."""
        rows, failures = [], {}
        for number, result in enumerate(translate_lines(self.translate, lines, self.probe), start=first_line):
            try:
                rows.append(self.columns(number, result))
            except ValueError as error:
                result = Failure(describe(error))
                rows.append(self.columns(number, result))
            if isinstance(result, Failure):
                failures[number] = result.reason
        self.report(failures)
        return [[line for own in column for line in own] for column in zip(*rows, strict=True)], failures

    def report(self, failures: dict[int, str]) -> None:
        """Print why lines failed, once; if strict, raise it."""
        for number, reason in failures.items():
            message = f"{self.place} {number + 1 if self.places is None else self.places[number]}: {reason}"
            if self.strict:
                raise ValueError(message)
            if number not in self.failures:
                write_line(message)
            self.failures[number] = reason


def one_line(text: str) -> str:
    return LINE_BREAKS_IN_A_LINE.sub(" ", text)


def coverage_record(coverage: Any) -> dict[str, Any]:
    """Return a coverage (`capsule_mt.Coverage`) as plain values, with the keys that the files have.

    A word's `past` and `future` are there where guided routing was read. Where there is a threshold, a sentence says
    whether it is `below_threshold`; where it was asked for, there is `support`, and the words of the translation.
    """
    sentences = [{"start": one.start, "end": one.end, "score": one.score} for one in coverage.sentences]
    for sentence in sentences if coverage.threshold is not None else ():
        sentence["below_threshold"] = sentence["score"] < coverage.threshold
    words = []
    for word in coverage.words:
        read = {name: getattr(word, name) for name in ("past", "future") if getattr(word, name) is not None}
        words.append({**_placed(word), "covered": word.covered, **read, "untranslated": word.marked})
    found = {"score": coverage.score, "sentences": sentences, "words": words}
    if coverage.support is not None:
        found["support"] = coverage.support
        found["target_words"] = [
            {**_placed(word), "supported": word.supported, "unsupported": word.marked}
            for word in coverage.target_words
        ]
    return {**found, "repetitions": list(coverage.repetitions)}


def _placed(word: Any) -> dict[str, Any]:
    return {"word": word.text, "start": word.start, "end": word.end}


def pharaoh(record: dict[str, Any]) -> str:
    """Format the alignment of a record, as in `0-0 1-2`; of a failed line, nothing."""
    return " ".join(f"{source}-{target}" for source, target in record.get("alignment") or ())


def coverage_json(number: int | str, record: dict[str, Any]) -> str:
    """Format the coverage of a record as JSON with its line or place; where there is none, the reason."""
    described = record.get("coverage") or {"error": record.get("failure", "the coverage was not found")}
    place = {"place" if isinstance(number, str) else "line": number}
    of_text = {name: record[name] for name in ("unknown", "language") if name in record}
    return json.dumps({**place, **described, **of_text}, ensure_ascii=False, allow_nan=False)


def coverage_tsv(number: int | str, record: dict[str, Any]) -> str:
    """Format the line from 0 or place, its score, its untranslated words, what is repeated, and what is made up.

    Where there is no coverage, the number is alone.
    """
    coverage = record.get("coverage")
    if coverage is None:
        return f"{number}\t\t\t\t"
    if math.isnan(coverage["score"]):
        raise ValueError("the coverage is not a number: the model's logits are not finite")
    untranslated = " ".join(word["word"] for word in coverage["words"] if word["untranslated"])
    unsupported = " ".join(word["word"] for word in coverage.get("target_words", ()) if word["unsupported"])
    return f"{number}\t{coverage['score']:.4f}\t{untranslated}\t{'; '.join(coverage['repetitions'])}\t{unsupported}"


def scored_json(number: int, record: dict[str, Any] | Failure) -> str:
    """Format the scores of a given translation as JSON with the number of its line; of a failed line, the reason.

    record: its `score`, `tokens`, whether it was `cut`, and the record of its `coverage` if there is one.
    """
    described = {"error": record.reason} if isinstance(record, Failure) else record
    return json.dumps({"line": number, **described}, ensure_ascii=False, allow_nan=False)


def scored_tsv(number: int, record: dict[str, Any] | Failure) -> str:
    """Format the number of a line from 0, the score of its translation and its tokens, and what its coverage has.

    A blank source has no score, and a failed line has the number alone.
    """
    if isinstance(record, Failure):
        return f"{number}\t\t"
    score = record["score"]
    if score is not None and math.isnan(score):
        raise ValueError("the score is not a number: the model's logits are not finite")
    numbers = [record[name] for name in ("omission", "hallucination") if name in record]
    score, *ranks = ("" if value is None else f"{value:.4f}" for value in (score, *numbers))
    line = "\t".join([str(number), score, str(record["tokens"]), *ranks])
    return line + coverage_tsv(number, record).removeprefix(str(number)) if "coverage" in record else line
