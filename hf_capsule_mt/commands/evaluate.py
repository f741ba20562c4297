"""Score translations, each number with its signature, and write a result file.

    capsule-mt evaluate --hypotheses test.hyp --references test.de
    capsule-mt evaluate --hypotheses test.hyp --references test.de test.de2 --sources test.en \\
        --metrics bleu chrf ter --align-with train.en train.de --output em.json

With --sources it also scores by source length; with --align-with, parallel text to learn word alignment from, it
measures how much of the source is covered (the coverage difference ratio of Zheng et al. 2019). Files may end in .gz.
"""

import argparse
import sys
from pathlib import Path
from typing import Any

from capsule_mt.commands.console import CommandParser, at_least
from capsule_mt.text.outputs import check_outputs
from capsule_mt.text.reading import read_parallel
from hf_capsule_mt.evaluation.choices import DEFAULT_METRICS, LENGTH_EDGES, METRICS


def samples(text: str) -> int:
    """An `argparse` type: how many samples a bootstrap has, or 0 for none."""
    return 0 if text == "0" else at_least(2)(text)


def parse_arguments() -> argparse.Namespace:
    parser = CommandParser(description=__doc__)
    parser.add_argument("--hypotheses", type=Path, required=True, help="the translations, one on a line")
    parser.add_argument(
        "--references",
        type=Path,
        nargs="+",
        action="extend",
        required=True,
        help="one file or several, line by line",
    )
    parser.add_argument("--sources", type=Path, help="the source sentences: scores by length, lengths, adequacy")
    parser.add_argument("--metrics", nargs="+", choices=METRICS, default=list(DEFAULT_METRICS), help="which metrics")
    parser.add_argument(
        "--tokenize",
        default="13a",
        help="sacreBLEU's tokenizer for BLEU, such as zh or ja-mecab; none for tokenised text",
    )
    parser.add_argument(
        "--bootstrap", type=samples, default=1000, help="samples for the 95 %% interval of BLEU; 0: no interval"
    )
    parser.add_argument(
        "--length-edges",
        type=int,
        nargs="+",
        default=list(LENGTH_EDGES),
        metavar="WORDS",
        help="upper edges of the source-length groups",
    )
    parser.add_argument(
        "--align-with", type=Path, nargs=2, metavar=("SOURCE", "TARGET"), help="parallel text for the word aligner"
    )
    parser.add_argument("--system", help="name of the system (default: the file's name)")
    parser.add_argument("--seed", type=int, help="training seed of the system, for the result file")
    parser.add_argument("--recipe", help="recipe of the system, for the result file")
    parser.add_argument("--output", type=Path, help="the result file to write")
    arguments = parser.parse_args()
    if arguments.align_with and not arguments.sources:
        parser.error("--align-with needs --sources")
    return arguments


def adequacy(
    arguments: argparse.Namespace, sources: list[str], hypotheses: list[str], references: list[list[str]]
) -> dict[str, Any]:
    """Return the coverage difference ratio, and the means of the measures that need no reference."""
    from tqdm import tqdm

    from capsule_mt.calibration.word_alignment import fit_aligner
    from capsule_mt.calibration.words import word_pairs
    from hf_capsule_mt.evaluation.adequacy import adequacy_measures, coverage_difference_ratio

    sets = [hypotheses, *references]
    pairs = [word_pairs(sources, lines) for lines in sets]
    source_lines, target_lines = read_parallel(arguments.align_with)
    aligner = fit_aligner(source_lines, target_lines, progress=lambda step: print(f"Aligner: {step}"))
    links = [aligner.align(part) for part in tqdm(pairs, desc="Align", file=sys.stderr, leave=False)]
    measures = adequacy_measures(sources, hypotheses, aligner)
    return {"coverage_difference_ratio": coverage_difference_ratio(links[0], links[1:])} | {
        name: sum(values) / len(values) for name, values in measures.items()
    }


def main() -> None:
    arguments = parse_arguments()
    from tqdm import tqdm

    from hf_capsule_mt.evaluation import write_result
    from hf_capsule_mt.evaluation.length_buckets import score_by_length
    from hf_capsule_mt.evaluation.metrics import Score, sacrebleu_metric, score_corpus
    from hf_capsule_mt.evaluation.significance import confidence_interval

    check_outputs([arguments.output], [arguments.hypotheses, *arguments.references, arguments.sources])
    files = [arguments.hypotheses, *arguments.references, *([arguments.sources] if arguments.sources else [])]
    hypotheses, *references = read_parallel(files)
    sources = references.pop() if arguments.sources else []
    scores: dict[str, Score] = {}
    interval = None
    with tqdm(total=len(arguments.metrics) + bool(arguments.bootstrap), file=sys.stderr, leave=False) as progress:
        for name in arguments.metrics:
            progress.set_description(name)
            scores |= score_corpus(hypotheses, references, [name], arguments.tokenize)
            progress.update()
        if arguments.bootstrap:
            progress.set_description("95 % interval of BLEU")
            bleu = sacrebleu_metric("bleu", arguments.tokenize)
            interval = confidence_interval(hypotheses, references, bleu, samples=arguments.bootstrap)
    for score in scores.values():
        print(f"{score.name}: {score.text}\n    {score.signature}")
    result: dict[str, Any] = {
        "kind": "evaluation",
        "system": arguments.system or arguments.hypotheses.name,
        "seed": arguments.seed,
        "recipe": arguments.recipe,
        "sentences": len(hypotheses),
        "scores": {name: score.as_dict() for name, score in scores.items()},
    }
    if interval is not None:
        mean, width = interval
        result["bleu_confidence"] = {"mean": mean, "half_width_95": width, "samples": arguments.bootstrap}
        print(f"BLEU, 95 % interval: {mean:.2f} ± {width:.2f}")
    if arguments.sources:
        buckets = score_by_length(
            sources, hypotheses, references, edges=arguments.length_edges, tokenize=arguments.tokenize
        )
        result["by_length"] = [bucket.as_dict() for bucket in buckets]
        for bucket in buckets:
            if bucket.score is not None:
                print(f"{bucket.label:>6} words: BLEU {bucket.score:6.2f}  ({bucket.sentences} sentences)")
        if arguments.align_with:
            result["adequacy"] = adequacy(arguments, sources, hypotheses, references)
            for name, value in result["adequacy"].items():
                print(f"{name}: {'none' if value is None else f'{value:.4f}'}")
    if arguments.output:
        print(f"Result: {write_result(arguments.output, result)}")
