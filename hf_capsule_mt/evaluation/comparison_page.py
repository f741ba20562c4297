"""The page of `capsule-mt compare --html`: a plot of all sentences that differ, and a table of them with filters.

One file without a network: its policy forbids every load. Without scripts, plots and tables stay, filters do not.
"""

import html
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import Path

from capsule_mt.text.reading import read_lines
from hf_capsule_mt.evaluation.comparison import (
    HEADER,
    Report,
    SentenceDifference,
    notes,
    sentence_texts,
    table_rows,
)

MOST_SENTENCES = 2000  # of a system: more would make a page that browsers are slow to show
WIDTH, HEIGHT = 960, 340  # of a plot, in its own units
LEFT, RIGHT, TOP, BOTTOM = 56, 12, 12, 44  # margins
GOLDEN = 0.618  # spreads sentences of one length

STYLE = """
:root{color-scheme:light dark;--back:#fff;--text:#1c1e21;--faint:#62666d;--line:#d8dbe0;--better:#0868ac;
--worse:#b8500a;--mark-better:#cfe6f7;--mark-worse:#fbdcc4}
@media (prefers-color-scheme:dark){:root{--back:#16181c;--text:#e6e7e9;--faint:#a0a5ad;--line:#3a3e45;--better:#6cb8ee;
--worse:#f19a5b;--mark-better:#17405e;--mark-worse:#5c3213}}
body{font:16px/1.45 system-ui,sans-serif;max-width:72rem;margin:0 auto;padding:1rem;
background:var(--back);color:var(--text)}
h1{font-size:1.5rem}h2{font-size:1.2rem;margin-top:2.5rem}p,li,figcaption{color:var(--faint)}figure{margin:0}
svg{width:100%;height:auto;font:13px system-ui,sans-serif}svg text{fill:var(--faint)}svg line{stroke:var(--line)}
svg .zero{stroke:var(--faint)}svg a{fill-opacity:.55}.better{fill:var(--better)}.worse{fill:var(--worse)}
svg .out{fill-opacity:.06}svg a:hover{fill-opacity:1}
.scroll{overflow-x:auto}table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
td,th{padding:.3rem .6rem;text-align:right;border-bottom:1px solid var(--line);vertical-align:top}
td:first-child,th:first-child,.texts{text-align:left}th{vertical-align:bottom}
tr:target{outline:2px solid var(--better)}
.texts{width:100%;min-width:16rem}.texts div{margin-bottom:.2rem}
.texts b{color:var(--faint);font-weight:normal;margin-right:.5em}
mark{background:var(--mark-worse);color:inherit;border-radius:3px}.system mark{background:var(--mark-better)}
form{display:flex;flex-wrap:wrap;gap:.6rem 1.5rem;align-items:end;margin:1rem 0}fieldset{border:0;margin:0;padding:0}
legend{padding:0;color:var(--faint);font-size:.85rem}input{width:5.5rem}input,button{font:inherit;color:inherit;
background:var(--back);border:1px solid var(--line);border-radius:4px;padding:.2rem .4rem}[hidden]{display:none}
"""
SCRIPT = """
for (const section of document.querySelectorAll("section")) {
  const form = section.querySelector("form");
  if (!form) continue;
  form.hidden = false;
  const rows = [...section.querySelectorAll("tr[id]")];
  const dots = rows.map((row) => section.querySelector(`a[href="#${row.id}"]`));
  const bounds = [...form.querySelectorAll("input")];
  const mean = (shown, field) =>
    (shown.reduce((sum, row) => sum + Number(row.dataset[field]), 0) / shown.length).toFixed(1);
  const filter = () => {
    const asked = bounds.filter((input) => input.value !== "");
    rows.forEach((row, n) => {
      const inside = asked.every((input) => {
        const value = row.dataset[input.dataset.field];
        if (value === undefined) return false;
        return input.name === "least" ? Number(value) >= input.valueAsNumber : Number(value) <= input.valueAsNumber;
      });
      row.hidden = !inside;
      dots[n].classList.toggle("out", !inside);
    });
    const shown = rows.filter((row) => !row.hidden);
    form.querySelector("output").value = `${shown.length} of ${rows.length} sentences` + (shown.length
      ? `; mean difference ${mean(shown, "chrf")} chrF, ${mean(shown, "bleu")} BLEU` : "");
  };
  form.addEventListener("input", filter);
  form.addEventListener("reset", () => setTimeout(filter));
  form.addEventListener("submit", (event) => event.preventDefault());
  filter();
}
"""


@dataclass(frozen=True)
class SentenceCoverage:
    """The coverage of a translation, None where it has none, and the source words that it leaves out."""

    score: float | None
    untranslated: str = ""


def read_coverage(path: Path, num_sentences: int) -> list[SentenceCoverage]:
    """Return the coverage of each sentence from a file of `translate --coverage` or `score --coverage`."""
    found = []
    lines = read_lines(path)
    if len(lines) != num_sentences:
        raise ValueError(f"{path}: has {len(lines)} lines, but there are {num_sentences} sentences")
    for number, line in enumerate(lines):
        try:
            first, coverage = _from_json(line) if path.suffix == ".jsonl" else _from_columns(line)
        except (AttributeError, KeyError, TypeError, ValueError):
            raise ValueError(f"{path}, line {number + 1}: no coverage as `translate --coverage` writes it") from None
        if first != number:
            raise ValueError(f"{path}, line {number + 1}: is of sentence {first}, but {number} is wanted (from 0)")
        found.append(coverage)
    return found


def _from_columns(line: str) -> tuple[int, SentenceCoverage]:
    number, *columns = line.split("\t")
    if not any(columns):
        return int(number), SentenceCoverage(None)
    score, untranslated, _ = columns[-3:]
    return int(number), SentenceCoverage(float(score), untranslated)


def _from_json(line: str) -> tuple[int, SentenceCoverage]:
    record = json.loads(line)
    if "error" in record:
        return record["line"], SentenceCoverage(None)
    coverage = record.get("coverage", record)
    left_out = " ".join(word["word"] for word in coverage["words"] if word["untranslated"])
    return record["line"], SentenceCoverage(float(coverage["score"]), left_out)


def as_html(report: Report, coverage: Mapping[str, Sequence[SentenceCoverage]] | None = None) -> str:
    """Format the report as one self-contained page.

    Args:
        coverage: of each sentence, by system, the baseline included; of some systems or none.
    """
    title = html.escape(f"{', '.join(report.comparisons)} against {report.baseline}")
    sections = [_section(report, number, name, coverage or {}) for number, name in enumerate(report.comparisons)]
    legend = "".join(f"<li>{html.escape(note)}</li>\n" for note in notes(report))
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        '<meta http-equiv="Content-Security-Policy" '
        "content=\"default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'\">\n"
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{title}</title><style>{STYLE}</style></head>\n<body><h1>{title}</h1>\n"
        + "\n".join(sections)
        + f"\n<h2>Notes</h2><ul>{legend}</ul>\n<script>{SCRIPT}</script></body></html>\n"
    )


def _section(report: Report, number: int, name: str, coverage: Mapping[str, Sequence[SentenceCoverage]]) -> str:
    """Return what is said of one system: its plot, its scores, its sentences with their filters."""
    different = report.differences.get(name, [])
    shown = different[:MOST_SENTENCES]
    names = {"words": "source words" if shown and shown[0].source is not None else "reference words"}
    names |= {"chrf": "chrF difference", "bleu": "BLEU difference"}
    covered = {system: coverage[system] for system in (report.baseline, name) if system in coverage}
    names |= {f"coverage{place}": f"coverage of {system}" for place, system in enumerate(covered)}
    rows = [_values(item, covered) for item in shown]
    parts = [f"<section><h2>{html.escape(name)}</h2>"] if len(report.comparisons) > 1 else ["<section>"]
    if shown:
        better = sum(item.gain > 0 for item in different)
        worse = sum(item.gain < 0 for item in different)
        counted = f"{len(different)} of {report.sentences} sentences differ: {better} better by chrF, {worse} worse."
        if len(shown) < len(different):
            counted += f" The page has the {len(shown)} whose chrF differs most."
        parts.append(_plot(rows, [item.number for item in shown], number, names["words"]))
        parts.append(f"<p>{counted} Blue dots are better than {html.escape(report.baseline)}, orange ones worse.</p>")
    scores = [row for row in table_rows(report) if row[0] in (report.baseline, name)]
    parts.append(f'<div class="scroll">{_table(HEADER, scores)}</div>')
    if shown:
        parts.append(_filters(names))
        heads = "".join(f"<th>{html.escape(text)}</th>" for text in ("sentence", "", *names.values()))
        body = [
            _row(report, name, number, item, values, {s: lines[item.number - 1] for s, lines in covered.items()})
            for item, values in zip(shown, rows, strict=True)
        ]
        parts.append(f'<div class="scroll"><table>\n<tr>{heads}</tr>\n{"".join(body)}</table></div>')
    return "\n".join(parts) + "</section>"


def _values(item: SentenceDifference, covered: Mapping[str, Sequence[SentenceCoverage]]) -> dict[str, float | None]:
    """Return what the filters read of a sentence; None for a coverage that is not known."""
    words = len((item.reference if item.source is None else item.source).split())
    values: dict[str, float | None] = {"words": words, "chrf": item.gain, "bleu": item.bleu_gain}
    return values | {f"coverage{n}": lines[item.number - 1].score for n, lines in enumerate(covered.values())}


def _plot(rows: Sequence[Mapping[str, float | None]], numbers: Sequence[int], section: int, label: str) -> str:
    """Draw the difference of chrF over the length, a dot for a sentence that links to its row."""
    lengths, gains = ([row[key] or 0.0 for row in rows] for key in ("words", "chrf"))
    low, high = min(0.0, *gains), max(0.0, *gains)
    gap = _step(high - low)
    low, high = math.floor(low / gap) * gap, math.ceil(high / gap) * gap or (gap if low == 0 else 0.0)
    across = max(1.0, *lengths) + 1

    def x_of(value: float) -> float:
        return LEFT + value / across * (WIDTH - LEFT - RIGHT)

    def y_of(value: float) -> float:
        return TOP + (high - value) / (high - low) * (HEIGHT - TOP - BOTTOM)

    parts = []
    for tick in range(round(low / gap), round(high / gap) + 1):
        y, kind, value = y_of(tick * gap), ' class="zero"' if tick == 0 else "", f"{tick * gap:+g}" if tick else "0"
        parts.append(f'<line{kind} x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{value}</text>')
    stride = max(1, round(_step(across)))
    for tick in range(0, int(across) + 1, stride):
        parts.append(f'<text x="{x_of(tick):.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{tick}</text>')
    for number, words, gain in zip(numbers, lengths, gains, strict=True):
        x, kind = x_of(words + (number * GOLDEN % 1 - 0.5) * 0.7), "better" if gain > 0 else "worse"
        parts.append(
            f'<a href="#s{section}-{number}" class="{kind}" tabindex="-1"><circle cx="{x:.1f}" cy="{y_of(gain):.1f}" '
            f'r="4"><title>sentence {number}: {gain:+.1f} chrF, {words:g} words</title></circle></a>'
        )
    parts.append(f'<text x="{(LEFT + WIDTH) / 2}" y="{HEIGHT - 6}" text-anchor="middle">{label}</text>')
    middle = (HEIGHT - BOTTOM) / 2
    parts.append(
        f'<text x="14" y="{middle}" text-anchor="middle" transform="rotate(-90 14 {middle})">chrF difference</text>'
    )
    described = f"Difference of chrF of {len(rows)} sentences by their {label}"
    picture = f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{described}">\n'
    return f"<figure>{picture}{chr(10).join(parts)}</svg></figure>"


def _step(span: float) -> float:
    """Return the distance of about six round ticks in a span."""
    rough = max(span, 1e-6) / 6
    power = 10.0 ** math.floor(math.log10(rough))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * 0.999)


def _filters(names: Mapping[str, str]) -> str:
    """Return a form with a least and a most for each number; the script shows it."""
    fields = []
    for key, name in names.items():
        step = "1" if key == "words" else "any"
        bounds = (("least", "from"), ("most", "to"))
        inputs = " ".join(
            f'<input type="number" step="{step}" name="{bound}" data-field="{key}" placeholder="{shown}" '
            f'aria-label="{html.escape(name)}, {shown}">'
            for bound, shown in bounds
        )
        fields.append(f"<fieldset><legend>{html.escape(name)}</legend>{inputs}</fieldset>")
    return f'<form hidden>{"".join(fields)}<button type="reset">Show all</button><output></output></form>'


def _row(
    report: Report,
    name: str,
    section: int,
    item: SentenceDifference,
    values: Mapping[str, float | None],
    coverage: Mapping[str, SentenceCoverage],
) -> str:
    data = "".join(f' data-{key}="{value:.6g}"' for key, value in values.items() if value is not None)
    cells = [f"{values['words']:g}", f"{item.gain:+.1f}", f"{item.bleu_gain:+.1f}"]
    cells += ["" if found.score is None else f"{found.score:.2f}" for found in coverage.values()]
    old, new = _marked(item.baseline, item.system)
    texts: list[str] = []
    for (label, text), kind in zip(
        sentence_texts(report, name, item)[::-1], ("system", "baseline", "reference", "source"), strict=False
    ):
        shown = {"system": new, "baseline": old}.get(kind, html.escape(text))
        texts.insert(0, _text(kind, label, shown))
    texts += [
        _text("left-out", f"left out by {system}", html.escape(found.untranslated))
        for system, found in coverage.items()
        if found.untranslated
    ]
    numbers = "".join(f"<td>{cell}</td>" for cell in cells)
    shown = f'<td>{item.number}</td><td class="texts">{"".join(texts)}</td>{numbers}'
    return f'<tr id="s{section}-{item.number}"{data}>{shown}</tr>\n'


def _text(kind: str, label: str, shown: str) -> str:
    return f'<div class="{kind}"><b>{html.escape(label)}</b><span dir="auto">{shown}</span></div>'


def _marked(old: str, new: str) -> tuple[str, str]:
    """Return two texts as HTML with marks around what the other does not have: words, or signs without spaces."""
    space = " " if " " in old or " " in new else ""
    sides = [text.split() if space else list(text) for text in (old, new)]
    shown: tuple[list[str], list[str]] = ([], [])
    for kind, *bounds in SequenceMatcher(a=sides[0], b=sides[1], autojunk=False).get_opcodes():
        for side, parts, start, end in zip(sides, shown, bounds[::2], bounds[1::2], strict=True):
            text = html.escape(space.join(side[start:end]))
            if text:
                parts.append(text if kind == "equal" else f"<mark>{text}</mark>")
    return space.join(shown[0]), space.join(shown[1])


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    heads = "".join(f"<th>{html.escape(cell)}</th>" for cell in header)
    body = ["<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>\n" for row in rows]
    return f"<table>\n<tr>{heads}</tr>\n{''.join(body)}</table>"
