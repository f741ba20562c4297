"""Reports for a person who checks translations: a row for each line or passage, as .tsv, .jsonl or .html.

A row has the number of the line, from 1, or the location in a file, what seems to be wrong, in words and most certain
first, and both texts. The .jsonl has all values of the coverage, too; the .html only what is to be checked,
the most certain lines first.
"""

import html
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from capsule_mt.coverage.problems import Problem, ProblemSpan, problems_in
from capsule_mt.coverage.reasons import LEVELS
from capsule_mt.files.line_failures import Failure
from capsule_mt.files.lines import one_line
from capsule_mt.files.windows import ReportFrame, Totals
from capsule_mt.messages import with_unit

TSV_COLUMNS = ("what to check", "source", "translation")  # after those of the row
PAGE_HEAD = (
    '<!doctype html><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>To check</title>'
    "<style>body{font:1rem/1.5 system-ui,sans-serif;margin:1rem}table{border-collapse:collapse;width:100%}"
    "th,td{border-top:1px solid #8888;padding:.4rem .8rem .4rem 0;text-align:left;vertical-align:top}"
    "ul{margin:0;padding-left:1.2em}mark{background:#fd06;color:inherit}"
    ".fault{text-decoration:underline solid #c00}.probable{text-decoration:underline dashed}"
    ".hint{text-decoration:underline dotted}"
    "@media(max-width:40rem){tbody,tr,td{display:block}"
    "tr{border-top:1px solid #8888;padding:.4rem 0}td{border:0;padding:0}tr:first-child{display:none}}"
    ":root{color-scheme:light dark}</style>"
)
RANK = "data-rank="  # of a row: the least is the most certain
TABLE_HEAD = "<table><tr><th>Where<th>What to check<th>Source<th>Translation"


class ReportRow(NamedTuple):
    """A line of the input with its translation.

    label: the number of the line, from 1, or the location of a passage.
    translation: `None` if there is none.
    record: what is known about the translation, or why there is none.
    columns: the cells of a .tsv between the label and what to check.
    values: what a .jsonl has besides the texts.
    """

    label: int | str
    source: str
    translation: str | None
    record: Mapping[str, Any] | Failure
    columns: Sequence[str]
    values: Mapping[str, Any]


def report_lines(form: str, row: ReportRow) -> list[str]:
    """Return the lines of a report, "jsonl", "tsv" or "html", for a row of the input."""
    if form == "jsonl":
        return [_json(row)]
    if form == "tsv":
        return [_tsv(row)]
    return list(_html(row))


def report_frame(
    form: str, names: Sequence[str], unit: str, columns: Sequence[str] = ("score",)
) -> ReportFrame | None:
    """Return the first lines of a report, its subject and the names of its columns, and the order of its rows.

    A .jsonl does not have a frame: each of its lines is a line of the input.

    Args:
        names: the program with its version, the input and the models.
        unit: the plural of what is counted, such as "lines".
        columns: the names of `ReportRow.columns`.
    """
    if form == "jsonl":
        return None

    def header(totals: Totals) -> bytes:
        counts = f"{with_unit(totals.lines, unit)}, {totals.flagged} to check, {totals.failed} failed"
        subject = one_line(f"{', '.join(names)}: {counts}")
        if form == "html":
            return f"{PAGE_HEAD}<p>{html.escape(subject)}</p>\n{TABLE_HEAD}\n".encode()
        columns_line = "\t".join((unit.removesuffix("s"), *columns, *TSV_COLUMNS))
        return f"# {subject}\n{columns_line}\n".encode()

    return ReportFrame(header, _rank_of_row if form == "html" else None)


def finite(value: float | None) -> str:
    """Format a score, which may be missing; a `ValueError` says that it is not a number."""
    if value is None:
        return ""
    if math.isnan(value):
        raise ValueError("the score is not a number: the model's logits are not finite")
    return f"{value:.4f}"


def _problems_of_row(row: ReportRow) -> list[Problem]:
    if isinstance(row.record, Failure):
        if row.translation is None:
            return [Problem("fault", f"Not translated: {row.record.reason}")]
        failure = Problem("fault", f"Not checked: {row.record.reason}")
        return [failure, *problems_in(row.source, row.translation, row.record.record)]
    return problems_in(row.source, row.translation or "", row.record)


def _json(row: ReportRow) -> str:
    values: dict[str, Any] = {"place" if isinstance(row.label, str) else "line": row.label, "source": row.source}
    if row.translation is not None:
        values["translation"] = row.translation
    if isinstance(row.record, Failure):
        values |= {"error": row.record.reason, **row.values}
    else:
        values |= {"problems": [problem.as_values() for problem in _problems_of_row(row)], **row.values}
    return json.dumps(values, ensure_ascii=False, allow_nan=False)


def _tsv(row: ReportRow) -> str:
    # a full stop would stand before the semicolon
    messages = "; ".join(problem.message_with_share.rstrip(".") for problem in _problems_of_row(row))
    cells = [str(row.label), *row.columns, messages, row.source, row.translation or ""]
    return "\t".join(one_line(cell).replace("\t", " ") for cell in cells)


def _html(row: ReportRow) -> Iterator[str]:
    """Yield the row of a table, unless there is nothing to check."""
    problems = _problems_of_row(row)
    if not problems:
        return
    messages = "".join(f"<li>{html.escape(problem.message_with_share)}" for problem in problems)
    texts = [
        _marked(text, side, problems) for side, text in (("source", row.source), ("target", row.translation or ""))
    ]
    cells = [html.escape(str(row.label)), f"<ul>{messages}</ul>", *texts]
    yield one_line(f"<tr {RANK}{_rank(problems)}><td>{'<td>'.join(cells)}")


def _rank(problems: Sequence[Problem]) -> int:
    """Return a number by the level and the share of the most certain problem: the more certain, the less it is."""
    shares = [problem.share or 0.0 for problem in problems if problem.level == problems[0].level]
    return 101 * LEVELS.index(problems[0].level) + 100 - round(100 * max(shares))


def _rank_of_row(row: bytes) -> int:
    """Return the rank of a row of the .html."""
    return int(row.partition(b">")[0].rpartition(RANK.encode())[2])


def _marked(text: str, side: str, problems: Sequence[Problem]) -> str:
    """Return a text as HTML, with the spans of its problems marked; of two that overlap, the more certain one."""
    marked: list[tuple[ProblemSpan, str]] = []
    for problem in problems:
        for span in problem.spans:
            is_free = all(span.end <= mark.start or mark.end <= span.start for mark, _ in marked)
            if span.side == side and is_free:
                marked.append((span, problem.level))
    parts, position = list[str](), 0
    for (_, start, end), level in sorted(marked):
        parts += [html.escape(text[position:start]), f'<mark class="{level}">{html.escape(text[start:end])}</mark>']
        position = end
    return "".join([*parts, html.escape(text[position:])])
