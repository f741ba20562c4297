"""How well marks agree with what people labelled in translations of other systems.

    python -m lab.published halomi.tsv checkpoints/capsule-marian-de-en --reverse checkpoints/capsule-marian-en-de \\
        --languages deu_Latn eng_Latn --output outputs/halomi-de-en.json
    python -m lab.published en-de.annotator1.jsonl en-de.annotator2.jsonl checkpoints/capsule-marian-en-de \\
        --reverse checkpoints/capsule-marian-de-en --output outputs/contrastive-en-de.json

HalOmi (Dale et al. 2023) is a table with tabs: <<< and >>> enclose what people marked as left out of the source, or as
made up in the translation. The annotations of Vamvas and Sennrich (2022), `annotations/*.jsonl` of their repository,
judge the spans that their method marks: each is a `bad-translation`, or an error of the method. We take the
annotations that have two labels and no error in the source. They do not contain the words that their method misses, so
our recall is relative to the errors that their method finds.

We measure the area under the ROC curve of the doubt of each word, or of the most doubtful word of a span; how many
marks are right, for each choice of `marks`.
"""

import argparse
import csv
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from capsule_mt import Coverage, CoverageOptions, Translator
from capsule_mt.commands.console import HelpFormatter, run
from capsule_mt.coverage.names import Marks
from capsule_mt.coverage.options import MARKS
from capsule_mt.files.reading import read_lines
from capsule_mt.text.words import is_mark
from hf_capsule_mt.evaluation import write_result
from hf_capsule_mt.evaluation.results import markdown_table
from lab.area_under_curve import area_under_curve

Span = tuple[int, int]
LEFT_OUT, MADE_UP = "left out", "made up"
_BRACKET = re.compile("<<<|>>>")


class Judged(NamedTuple):
    """A translation and its labels by people, each by kind: "left out" of the source, "made up" in the translation.

    wrong: the spans of the errors.
    judged: the spans that people judged, and whether these are errors; empty if people judged all words.
    is_wrong: whether the sentence has an error.
    """

    source: str
    translation: str
    wrong: dict[str, list[Span]]
    judged: dict[str, list[tuple[list[Span], bool]]] = {}
    is_wrong: dict[str, bool] = {}


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=HelpFormatter)
    parser.add_argument("labelled", type=Path, nargs="+", help="the file of HalOmi, or files of annotations")
    parser.add_argument("model", help="the folder of a model of the direction")
    parser.add_argument("--reverse", required=True, help="the folder of a reverse model")
    parser.add_argument("--languages", nargs=2, metavar=("SOURCE", "TARGET"), help="of HalOmi, such as deu_Latn")
    parser.add_argument("--output", type=Path, default=Path("outputs/published.json"), help="the result file")
    return parser.parse_args()


def bracketed(text: str) -> tuple[str, list[Span]]:
    """Return a text without its brackets, and the spans that they enclosed."""
    plain, spans = "", list[Span]()
    for index, part in enumerate(_BRACKET.split(text)):
        if index % 2:
            spans.append((len(plain), len(plain) + len(part)))
        plain += part
    return plain, spans


def read_halomi(path: Path, languages: Sequence[str]) -> list[Judged]:
    """Return the translations from one language to another."""
    labelled = []
    for row in csv.DictReader(read_lines(path), delimiter="\t"):
        if [row["src_lang"], row["tgt_lang"]] == list(languages):
            (source, left_out), (translation, made_up) = bracketed(row["omit_spans"]), bracketed(row["hall_spans"])
            classes = {LEFT_OUT: row["class_omit"], MADE_UP: row["class_hall"]}
            is_wrong = {kind: not name.startswith("1_") for kind, name in classes.items()}
            labelled.append(Judged(source, translation, {LEFT_OUT: left_out, MADE_UP: made_up}, is_wrong=is_wrong))
    return labelled


def read_annotations(path: Path) -> list[Judged]:
    """Return the translations whose marked spans an annotator judged."""
    annotations = []
    for line in read_lines(path):
        row = json.loads(line)
        if len(row["label"]) == 2 and "source-error" not in row["label"]:
            error = row["coverage_error_type"]
            spans = [
                (int(start), int(end))
                for start, end in (part.split("-") for part in row[f"predicted_{error}_spans"].split(" | "))
            ]
            unit = (spans, "bad-translation" in row["label"])
            kind = LEFT_OUT if error == "undertranslation" else MADE_UP
            annotations.append(Judged(row["source"], row["data"], {}, {kind: [unit]}))
    return annotations


def units_of(annotation: Judged, kind: str, coverage: Coverage) -> list[tuple[float, bool, bool]]:
    """Return the doubt of each word, or of each judged span, whether it is marked, and whether it is wrong."""
    words = [
        ((word.start, word.end), 1 - share, word.marked)
        for word, share in (
            ((word, word.covered) for word in coverage.words)
            if kind == LEFT_OUT
            else ((word, word.supported) for word in coverage.target_words)
        )
        if not is_mark(word.text)
    ]
    judged = annotation.judged.get(kind, [])
    if not annotation.judged:
        judged = [
            ([span], any(_overlap(span, wrong_span) for wrong_span in annotation.wrong[kind])) for span, _, _ in words
        ]
    units = []
    for spans, is_wrong in judged:
        doubts = [
            (doubt, marked) for word_span, doubt, marked in words if any(_overlap(word_span, span) for span in spans)
        ]
        if doubts:
            units.append((max(doubt for doubt, _ in doubts), any(marked for _, marked in doubts), is_wrong))
    return units


def _overlap(first: Span, second: Span) -> bool:
    return first[0] < second[1] and second[0] < first[1]


def measured(labelled: Sequence[Judged], coverages: Mapping[Marks, list[Coverage]]) -> dict[str, Any]:
    """Return, for each kind that has labels, the area, and the number of marks for each choice of `marks`."""
    record: dict[str, Any] = {}
    for kind in (LEFT_OUT, MADE_UP):
        by_point = {
            point: [
                unit
                for annotation, coverage in zip(labelled, covered, strict=True)
                for unit in units_of(annotation, kind, coverage)
            ]
            for point, covered in coverages.items()
        }
        doubts, _, wrong = zip(*by_point["all"], strict=True) if by_point["all"] else ((), (), ())
        if not any(wrong) or all(wrong):
            continue
        marks = {
            point: {"marks": sum(marked for _, marked, _ in units), "right": sum(m and w for _, m, w in units)}
            for point, units in by_point.items()
        }
        area = area_under_curve(doubts, wrong)
        record[kind] = {"judged": len(wrong), "wrong": sum(wrong), "auc": area, "marks": marks}
    return record


def table(records: Sequence[Mapping[str, Any]]) -> str:
    """Return results as a Markdown table."""
    rows = []
    for record in records:
        for kind, measures in record["measures"].items():
            area, counts_by_point = measures["auc"], [measures["marks"][point] for point in MARKS]
            cells = [f"{counts['right']} of {counts['marks']}" for counts in counts_by_point]
            recall = counts_by_point[1]["right"] / measures["wrong"]
            shown = f"{area['auc']:.2f} [{area['low']:.2f}, {area['high']:.2f}]"
            sentences = record["sentences"].get(kind)
            rows.append(
                [
                    f"`{record['model']}`, {record['translations']}",
                    kind,
                    f"{measures['wrong']} of {measures['judged']}",
                    shown,
                    *cells,
                    f"{recall:.2f}",
                    f"{sentences['auc']:.2f} ({sentences['positives']})" if sentences else "",
                ]
            )
    points = [f'`"{point}"`' for point in MARKS]
    header = ["model, translations", "words", "labelled", "AUC", *points, 'recall of `"likely"`', "sentences, AUC"]
    return markdown_table(header, rows)


def main() -> None:
    arguments = parse_arguments()
    if arguments.languages:
        labelled = [annotation for path in arguments.labelled for annotation in read_halomi(path, arguments.languages)]
    else:
        labelled = [annotation for path in arguments.labelled for annotation in read_annotations(path)]
    translator = Translator.from_pretrained(arguments.model, reverse=arguments.reverse)
    texts = [annotation.source for annotation in labelled], [annotation.translation for annotation in labelled]
    coverages: dict[Marks, list[Coverage]] = {
        point: translator.cover(*texts, coverage=CoverageOptions(method="verified", marks=point, support=True))
        for point in MARKS
    }
    sentences: dict[str, Any] = {}
    if all(annotation.is_wrong for annotation in labelled):
        scores = [score for score in translator.adequacy(*texts) if score is not None]
        by_kind = {
            LEFT_OUT: [score.omission for score in scores],
            MADE_UP: [score.hallucination for score in scores],
        }
        sentences = {
            kind: area_under_curve(values, [annotation.is_wrong[kind] for annotation in labelled])
            for kind, values in by_kind.items()
        }
    record: dict[str, Any] = {"kind": "labelled by people", "file": arguments.labelled[0].name}
    record |= {"model": Path(arguments.model).name, "translations": len(labelled)}
    record |= {"measures": measured(labelled, coverages), "sentences": sentences}
    path = write_result(arguments.output, record)
    print(f"{table([record])}\nResult: {path}")


if __name__ == "__main__":
    run(main)
