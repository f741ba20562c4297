"""How well a judge agrees with what people labelled in translations of other systems.

    python -m lab.published halomi halomi_core.tsv --output outputs/judge-halomi.json
    python -m lab.published synced synced_ende_eval_gold.tsv --output outputs/judge-synced.json
    python -m lab.published mqm sxs_mqm_generalMT2023_ende.3ratingsPerSegment.tsv --output outputs/judge-mqm.json

HalOmi (Dale et al. 2023): <<< and >>> enclose what people marked as left out of the source, or as made up in the
translation. Of its German-English and English-German rows, every second one has chosen the judge; the others are read:
the area under the ROC curve of each word's probability, and for bands of it, how many words people marked.
SynCED-EnDe (Chopra et al. 2025): pairs with a critical error or without; a pair is flagged if it has a reason of any
level. WMT 2023 MQM, side by side (Freitag et al.): the area of a line's largest mean of left-out words, for
translations where two of three raters marked an omission against `NUM_COMPLETE` where none did.
"""

import argparse
import csv
import random
import re
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from capsule_mt import Judge
from capsule_mt.commands.console import HelpFormatter, run
from capsule_mt.coverage.calibration.fitting import rank_auc
from capsule_mt.coverage.calibration.judging import marked_pair
from capsule_mt.coverage.problems import problems_in
from capsule_mt.files.lines import judgement_record
from capsule_mt.files.reading import read_lines
from capsule_mt.judge.judge import DEFAULT_ENCODER
from capsule_mt.judge.numbers import largest_window
from hf_capsule_mt.evaluation import write_result

Record = dict[str, Any]
BANDS = (0.5, 0.7, 0.9, 1.0)
SEED, NUM_COMPLETE = 97, 500
HUMAN = "refA"  # the system of MQM that is people's translations
NO_ERROR_OF_SYSTEM = ("Found", "Missed")  # labels that raters gave to planted errors


def halomi(judge: Judge, path: Path) -> Record:
    rows = csv.DictReader(read_lines(path), delimiter="\t", quoting=csv.QUOTE_NONE)
    rows_by_languages = [((row["src_lang"][:2], row["tgt_lang"][:2]), row) for row in rows]
    held_out = [row for row in rows_by_languages if set(row[0]) == {"de", "en"}][1::2]
    units: dict[str, dict[str, list[tuple[float, bool]]]] = defaultdict(lambda: defaultdict(list))
    for languages in sorted({languages for languages, _ in held_out}):
        pairs = [marked_pair(row) for row_languages, row in held_out if row_languages == languages]
        judgements = judge.score([pair.source for pair in pairs], [pair.target for pair in pairs])
        for pair, judgement in zip(pairs, judgements, strict=True):
            assert judgement is not None
            sides = (
                ("left out", judgement.source_words, pair.left_out),
                ("made up", judgement.target_words, pair.made_up),
            )
            for kind, words, spans in sides:
                units[kind]["-".join(languages)] += [
                    (word.probability, any(word.start < end and word.end > start for start, end in spans))
                    for word in words
                ]
    return {
        "pairs": len(held_out),
        "auc": {
            f"{kind}, {name}": area_under_curve([share for share, _ in values], [label for _, label in values])
            for kind, by_direction in units.items()
            for name, values in by_direction.items()
        },
        "bands": {
            kind: bands_of([unit for values in by_direction.values() for unit in values])
            for kind, by_direction in units.items()
        },
    }


def area_under_curve(scores: Sequence[float], labels: Sequence[bool], samples: int = 1000) -> dict[str, float]:
    """Return how often a labelled sentence scores higher than an unlabelled one: 0.5 is chance.

    Equal scores count half. `low` and `high` are the 95 % bootstrap interval over sentences.
    """
    values, marked = np.asarray(scores, dtype=float), np.asarray(labels, dtype=bool)
    if len(values) != len(marked):
        raise ValueError(f"`scores` and `labels` must be as long as each other, got {len(values)}, {len(marked)}")
    if not marked.any() or marked.all():
        raise ValueError("`labels` must have both marked and unmarked sentences")
    chance = np.random.default_rng(1)
    inside, outside = np.flatnonzero(marked), np.flatnonzero(~marked)
    drawn = []
    for _ in range(samples):  # the same number of each, drawn with replacement
        chosen = np.concatenate([chance.choice(inside, len(inside)), chance.choice(outside, len(outside))])
        drawn.append(rank_auc(values[chosen], marked[chosen]))
    low, high = np.quantile(drawn, [0.025, 0.975]).tolist()
    area = {"auc": rank_auc(values, marked), "low": low, "high": high}
    return area | {"positives": len(inside), "negatives": len(outside)}


def bands_of(units: Sequence[tuple[float, bool]]) -> dict[str, Record]:
    """Return for each band of probabilities their mean, and how many words people marked."""
    bands = {}
    for low, high in pairwise(BANDS):
        band = [unit for unit in units if low <= unit[0] < high or unit[0] == high == BANDS[-1]]
        mean = sum(probability for probability, _ in band) / max(len(band), 1)
        bands[f"{low:g} to {high:g}"] = {"mean": mean, "marked": sum(label for _, label in band), "words": len(band)}
    return bands


def synced(judge: Judge, path: Path) -> Record:
    sources, translations, labels = zip(*csv.reader(read_lines(path), delimiter="\t"), strict=True)
    flagged = [
        bool(problems_in(*pair, {"judgement": judgement_record(judgement)}))
        for pair, judgement in zip(
            zip(sources, translations, strict=True),
            judge.score(sources, translations, src_lang="en", tgt_lang="de"),
            strict=True,
        )
    ]
    is_wrong = [label == "ERR" for label in labels]
    right, wrong = (
        [flag for flag, error in zip(flagged, is_wrong, strict=True) if error is of] for of in (False, True)
    )
    return {"pairs": len(labels), "mcc": correlation(sum(wrong), len(wrong), sum(right), len(right))} | {
        "flagged of wrong": {"flagged": sum(wrong), "pairs": len(wrong)},
        "flagged of right": {"flagged": sum(right), "pairs": len(right)},
    }


def correlation(hits: int, num_wrong: int, false_alarms: int, num_right: int) -> float:
    """Return Matthews's correlation of what is flagged with what is wrong."""
    misses, passes, num_flagged = num_wrong - hits, num_right - false_alarms, hits + false_alarms
    product = num_flagged * (misses + passes) * num_wrong * num_right
    return (hits * passes - false_alarms * misses) / product**0.5 if product else 0.0


def mqm(judge: Judge, path: Path) -> Record:
    texts: dict[tuple[str, str], tuple[str, str]] = {}
    raters: dict[tuple[str, str], dict[str, bool]] = defaultdict(lambda: defaultdict(bool))
    for row in csv.DictReader(read_lines(path), delimiter="\t", quoting=csv.QUOTE_NONE):
        if row["system"] != HUMAN and row["category"] not in NO_ERROR_OF_SYSTEM:
            key = row["system"], row["globalSegId"]
            texts[key] = re.sub("</?v>", "", row["source"]), re.sub("</?v>", "", row["target"])
            raters[key][row["rater"]] |= "Omission" in row["category"]
    counts = {key: sum(of_rater.values()) for key, of_rater in raters.items()}
    complete = sorted(key for key, count in counts.items() if count == 0)
    complete = random.Random(SEED).sample(complete, min(NUM_COMPLETE, len(complete)))
    lost = sorted(key for key, count in counts.items() if count >= 2)
    judgements = judge.score(*zip(*(texts[key] for key in [*lost, *complete]), strict=True))
    words = [judgement.source_words for judgement in judgements if judgement is not None]
    scores = [largest_window([word.probability for word in words_of_line]) for words_of_line in words]
    return {"pairs": len(scores), "auc": area_under_curve(scores, [True] * len(lost) + [False] * len(complete))}


SETS: Mapping[str, Callable[[Judge, Path], Record]] = {"halomi": halomi, "synced": synced, "mqm": mqm}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=HelpFormatter)
    parser.add_argument("set", choices=SETS, help="what the file is")
    parser.add_argument("file", type=Path, help="the file as it was published")
    parser.add_argument("--encoder", default=DEFAULT_ENCODER, help="the judge's encoder, or the folder of a copy")
    parser.add_argument("--output", type=Path, default=Path("outputs/published.json"), help="the result file")
    arguments = parser.parse_args()
    judge = Judge.from_pretrained(arguments.encoder, num_threads=1)
    started = time.process_time()
    record = {"kind": "judged by people", "set": arguments.set, **SETS[arguments.set](judge, arguments.file)}
    record["processor milliseconds a pair"] = 1000 * (time.process_time() - started) / record["pairs"]
    print(f"Result: {write_result(arguments.output, record)}\n{record}")


if __name__ == "__main__":
    run(main)
