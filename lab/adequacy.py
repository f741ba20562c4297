"""How well measures of adequacy find what people have labelled: the area under the ROC curve of each for each label.

    python -m lab.adequacy --labelled labelled_outputs.tsv --align-with train.de train.en
    python -m lab.adequacy --labelled labelled_outputs.tsv --align-with train.de train.en \\
        --scores "my model=coverage.txt" --output outputs/adequacy-de-en.json

The labelled file is tab-separated with a header: the columns `src` and `mt`, and a column of 0 and 1 for each label.
The text for the aligner also says how long a translation should be, by the words of its source. A file of numbers, one
on a line, the higher the better the translation, adds any other measure, a column `ref` the coverage difference to it.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from capsule_mt.commands.console import HelpFormatter, run
from capsule_mt.coverage.calibration.lengths import fit_length
from capsule_mt.coverage.calibration.word_alignment import fit_aligner
from capsule_mt.files.reading import read_lines, read_parallel
from hf_capsule_mt.evaluation import write_result
from hf_capsule_mt.evaluation.adequacy import adequacy_measures, coverage_difference_ratio
from lab.area_under_curve import area_under_curve, auc_markdown
from lab.records import read_rows

BY_WORDS = "shorter than its words"


def named_file(argument: str) -> tuple[str, Path]:
    name, _, path = argument.rpartition("=")
    return name or Path(path).stem, Path(path)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=HelpFormatter)
    parser.add_argument("--labelled", type=Path, required=True, help="the labelled translations")
    parser.add_argument(
        "--any-of",
        nargs="+",
        action="append",
        default=[],
        metavar="NAME LABEL",
        help="a further label that holds where any of these does: --any-of hallucination a b",
    )
    parser.add_argument(
        "--align-with",
        type=Path,
        nargs="+",
        required=True,
        metavar="SOURCE TARGET",
        help="parallel text for the word aligner, in pairs of files",
    )
    parser.add_argument(
        "--scores",
        type=named_file,
        nargs="+",
        default=[],
        metavar="NAME=FILE",
        help="a number on a line for each translation",
    )
    parser.add_argument("--bootstrap", type=int, default=1000, help="samples for the 95 %% intervals")
    parser.add_argument(
        "--output", type=Path, default=Path("outputs/adequacy-de-en.json"), help="the result file to write"
    )
    return parser.parse_args()


def shortness(expected: np.ndarray, translations: Sequence[str]) -> np.ndarray:
    """Return (expected - actual characters) / sqrt(expected) of each translation."""
    return (expected - [len(line) for line in translations]) / expected**0.5


def main() -> None:
    arguments = parse_arguments()
    rows = read_rows(arguments.labelled)
    table = {name: [row[name] for row in rows] for name in rows[0]}
    sources, hypotheses = table["src"], table["mt"]
    names = [name for name, values in table.items() if set(values) == {"0", "1"}]
    labels: dict[str, Sequence[bool]] = {name: [value == "1" for value in table[name]] for name in names}
    for name, *parts in arguments.any_of:
        labels[name] = [any(values) for values in zip(*(labels[part] for part in parts), strict=True)]

    if len(arguments.align_with) % 2:
        raise SystemExit("--align-with takes pairs of files: SOURCE TARGET SOURCE TARGET ...")
    files = [read_parallel(arguments.align_with[n : n + 2]) for n in range(0, len(arguments.align_with), 2)]
    training = [[line for pair in files for line in pair[side]] for side in (0, 1)]
    # the text to be judged is aligned best if the aligner has read it; it does not read the labels
    aligner = fit_aligner(
        training[0] + sources, training[1] + hypotheses, progress=lambda step: print(f"Aligner: {step}")
    )
    measures: dict[str, Sequence[float]] = dict(adequacy_measures(sources, hypotheses, aligner))
    length = fit_length(*training)
    expected = np.array([length.predict(source) for source in sources])
    measures[BY_WORDS] = shortness(expected, hypotheses).tolist()
    if "ref" in table:
        links = [aligner.align_lines(sources, lines) for lines in (hypotheses, table["ref"])]
        ratios = [coverage_difference_ratio([ours], [[theirs]]) for ours, theirs in zip(*links, strict=True)]
        measures["coverage difference to the reference"] = [-1.0 if ratio is None else -ratio for ratio in ratios]
    for name, path in arguments.scores:
        measures[name] = [-float(line) for line in read_lines(path)]

    areas = {
        measure: {label: area_under_curve(scores, marked, arguments.bootstrap) for label, marked in labels.items()}
        for measure, scores in measures.items()
    }
    markdown = auc_markdown(areas)
    result: dict[str, Any] = {
        "kind": "adequacy",
        "sentences": len(sources),
        "positives": {name: sum(values) for name, values in labels.items()},
        "aligner": {"files": [path.name for path in arguments.align_with], "sentence_pairs": len(training[0])},
        "bootstrap_samples": arguments.bootstrap,
        "auc": areas,
    }
    path = write_result(arguments.output, result)
    print(f"{markdown}\nResult: {path}")


if __name__ == "__main__":
    run(main)
