"""How right marks are on translations that were read word by word.

    python -m lab.by_hand lab/sheets/firefox_en_pt.tsv outputs/enpt --reverse outputs/pten --student \\
        --text tatoeba tatoeba.eng.gz --text flores flores.eng.gz --output outputs/read-firefox-en-pt.json

The model translates the lines of a sheet greedily, as it did for the reader, and marks words by each method and, for
"verified", each value of `marks`. A mark is right if the reader named the word; borderline words are counted
separately. Intervals are Wilson's, 95 %.
lab/sheets/README.md has the rules of the labels.
"""

import argparse
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from capsule_mt import CoverageOptions, Translation, Translator
from capsule_mt.commands.console import HelpFormatter, run
from capsule_mt.coverage.names import MARKS
from capsule_mt.files.reading import read_lines
from capsule_mt.text.words import WORDS
from hf_capsule_mt.evaluation import write_result
from hf_capsule_mt.evaluation.results import markdown_table
from lab.over_seeds import wilson
from lab.records import read_rows

Span = tuple[int, int]
ASKED: dict[str, CoverageOptions] = {
    point: CoverageOptions(method="verified", marks=point, threshold=0) for point in MARKS
}
ASKED["attention"] = CoverageOptions(method="attention", threshold=0)


class Labels(NamedTuple):
    """What a reader named in a source, by its characters: words that are surely left out, and borderline ones."""

    sure: set[Span]
    borderline: set[Span]


def spans_of(text: str, names: str) -> set[Span]:
    """Return the spans of named words: `word`, `word#2` for its second occurrence, `wor*` for a word by its prefix."""
    named_spans = set()
    for name in names.split():
        word, _, number = name.partition("#")
        prefix = word.removesuffix("*") if word.endswith("*") else None
        spans = [
            match.span()
            for match in WORDS.finditer(text)
            if (match[0] == word if prefix is None else match[0].startswith(prefix))
        ]
        if not 1 <= int(number or 1) <= len(spans) or (len(spans) > 1 and not number):
            raise ValueError(f"{name!r} must name one word of {text!r}, which has {word!r} {len(spans)} times")
        named_spans.add(spans[int(number or 1) - 1])
    return named_spans


def digest(text: str) -> str:
    """Return what a sheet has in place of a translation of a text that must not be passed on."""
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()[:12]}"


def sources_of(rows: Sequence[dict[str, str]], files: dict[str, str]) -> list[str]:
    """Return the source of each row: a line of the file of its text."""
    texts = {name: read_lines(file) for name, file in files.items()}
    if unknown := {row["text"] for row in rows} - texts.keys():
        raise ValueError(
            f"`--text` must name the file of {', '.join(sorted(unknown))}, got {', '.join(texts) or 'none'}"
        )
    return [texts[row["text"]][int(row["line"]) - 1] for row in rows]


def marks_under(labels: Sequence[Labels], marked: Sequence[set[Span]]) -> dict[str, int]:
    """Return how many words are marked and named, and how many marks are right or borderline."""
    pairs = list(zip(labels, marked, strict=True))
    return {
        "named": sum(len(label.sure) for label in labels),
        "borderline named": sum(len(label.borderline) for label in labels),
        "marks": sum(map(len, marked)),
        "right": sum(len(label.sure & spans) for label, spans in pairs),
        "borderline": sum(len(label.borderline & spans) for label, spans in pairs),
    }


def table(records: Iterable[Mapping[str, Any]]) -> str:
    """Return the marks of results as Markdown: how many are right, with the interval and the recall of "likely"."""
    rows = []
    for record in records:
        for words, by_point in record["marks"].items():
            if words == "made up":  # of older records
                continue
            likely = by_point["likely"]
            low, high = wilson(likely["right"], likely["marks"])
            precision = likely["right"] / max(likely["marks"], 1)
            counts = {point: f"{count['right']} of {count['marks']}" for point, count in by_point.items()}
            named = f"{likely['named']} ({likely['borderline named']})"
            cells = [
                *(named, counts["sure"], counts["likely"], f"{precision:.2f} [{low:.2f}, {high:.2f}]"),
                f"{likely['right'] / max(likely['named'], 1):.2f}",
                *(counts["all"], counts.get("attention", "")),
            ]
            rows.append([f"`{record['sheet']}`, {record['translations']}", words, *cells])
    header = ["sheet, translations", "words", "named (borderline)", '`"sure"`', '`"likely"`', "precision", "recall"]
    return markdown_table([*header, '`"all"`', "attention alone"], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=HelpFormatter)
    parser.add_argument("sheet", type=Path, help="a sheet of lab/sheets")
    parser.add_argument("model", type=Path, help="the folder of the model that translates")
    parser.add_argument("--reverse", type=Path, required=True, help="the folder of the reverse model")
    parser.add_argument(
        "--student", action="store_true", help="translate in int8, with the shortlist, sentence by sentence"
    )
    parser.add_argument(
        "--text", nargs=2, action="append", default=[], metavar=("NAME", "FILE"), help="sources of the sheet"
    )
    parser.add_argument("--half", choices=["choose", "report"], help="of a fresh sheet, only this half")
    parser.add_argument("--output", type=Path, default=Path("outputs/read-by-hand.json"), help="the result file")
    arguments = parser.parse_args()
    rows = read_rows(arguments.sheet)
    if arguments.half is not None:
        rows = [row for row in rows if row["half"] == arguments.half]
    sources = sources_of(rows, dict(arguments.text))
    translator = Translator.from_pretrained(
        arguments.model, int8=arguments.student, shortlist=arguments.student, reverse=arguments.reverse
    )
    translations_by_method = {
        point: translator(sources, num_beams=1, split_sentences=arguments.student, coverage=asked)
        for point, asked in ASKED.items()
    }
    own_texts = [translation.text.strip() for translation in translations_by_method["attention"]]
    indices = [n for n, row in enumerate(rows) if row["translation"] in (own_texts[n], digest(own_texts[n]))]
    if not indices:
        raise ValueError(f"{arguments.model} gives none of the translations of {arguments.sheet}")
    record: dict[str, Any] = {"kind": "read by hand", "sheet": arguments.sheet.stem, "translations": len(indices)}
    record |= {"differ": len(rows) - len(indices)}
    columns = ("left out", "left out, borderline")
    labels = [Labels(*(spans_of(sources[n], rows[n][column]) for column in columns)) for n in indices]
    marks = {
        point: [marked(translations[n]) for n in indices] for point, translations in translations_by_method.items()
    }
    record["marks"] = {"left out": {point: marks_under(labels, spans) for point, spans in marks.items()}}
    for n, result, spans in zip(indices, labels, marks["all"], strict=True):
        for start, end in sorted(spans - result.sure):
            print(f"{rows[n]['text']} {rows[n]['line']}: {sources[n][start:end]!r} is marked, and not left out")
    path = write_result(arguments.output, record)
    print(f"\n{table([record])}\n{record['translations']} translations, {record['differ']} differ and are left out")
    print(f"Result: {path}")


def marked(translation: Translation) -> set[Span]:
    """Return the characters of the words that are marked as left out."""
    coverage = translation.coverage
    assert coverage is not None
    return {(word.start, word.end) for word in coverage.untranslated}


if __name__ == "__main__":
    run(main)
