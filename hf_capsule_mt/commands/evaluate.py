"""Score translations, each metric with its signature; --output writes a result file.

    capsule-mt evaluate --hypotheses test.hyp --references test.de
    capsule-mt evaluate --hypotheses test.hyp --references test.de test.de2 --sources test.en \\
        --metrics bleu chrf ter --align-with train.en train.de --output em.json

With --sources, the command also prints BLEU by source length. With --align-with, from which it learns word alignment,
it also measures how much of the source is covered (the coverage difference ratio of Kong et al. 2019). Files may end
in .gz.
"""

import argparse
from dataclasses import asdict
from pathlib import Path
from typing import Any

from capsule_mt.commands.console import CommandParser
from capsule_mt.files.outputs import check_outputs
from capsule_mt.files.reading import read_parallel
from capsule_mt.messages import with_unit
from hf_capsule_mt.evaluation.choices import DEFAULT_METRICS, METRICS


def parse_arguments() -> argparse.Namespace:
    parser = CommandParser(description=__doc__)
    parser.add_argument("--hypotheses", type=Path, required=True, help="the translations, one a line")
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
        "--align-with", type=Path, nargs=2, metavar=("SOURCE", "TARGET"), help="parallel text for the word aligner"
    )
    parser.add_argument("--system", help="name of the system (default: the file's name)")
    parser.add_argument("--output", type=Path, help="the result file to write")
    arguments = parser.parse_args()
    if arguments.align_with and not arguments.sources:
        parser.error("--align-with needs --sources")
    return arguments


def adequacy(
    arguments: argparse.Namespace, sources: list[str], hypotheses: list[str], references: list[list[str]]
) -> dict[str, Any]:
    """Return the coverage difference ratio, and the means of the measures that need no reference."""
    from capsule_mt.coverage.calibration.word_alignment import fit_aligner
    from capsule_mt.coverage.calibration.words import word_pairs
    from hf_capsule_mt.evaluation.adequacy import adequacy_measures, coverage_difference_ratio

    source_lines, target_lines = read_parallel(arguments.align_with)
    aligner = fit_aligner(source_lines, target_lines, progress=lambda step: print(f"Aligner: {step}"))
    links = [aligner.align(word_pairs(sources, lines)) for lines in (hypotheses, *references)]
    measures = adequacy_measures(sources, hypotheses, aligner)
    return {"coverage_difference_ratio": coverage_difference_ratio(links[0], links[1:])} | {
        name: sum(values) / len(values) for name, values in measures.items()
    }


def main() -> None:
    arguments = parse_arguments()
    from hf_capsule_mt.evaluation import write_result
    from hf_capsule_mt.evaluation.length_buckets import score_by_length
    from hf_capsule_mt.evaluation.metrics import sacrebleu_metric, score_corpus
    from hf_capsule_mt.evaluation.significance import confidence_interval

    check_outputs([arguments.output], [arguments.hypotheses, *arguments.references, arguments.sources])
    files = [arguments.hypotheses, *arguments.references, *([arguments.sources] if arguments.sources else [])]
    hypotheses, *references = read_parallel(files)
    sources = references.pop() if arguments.sources else []
    scores = score_corpus(hypotheses, references, arguments.metrics, arguments.tokenize)
    for score in scores.values():
        print(f"{score.name}: {score.text}\n    {score.signature}")
    bleu = sacrebleu_metric("bleu", arguments.tokenize)
    mean, width = confidence_interval(hypotheses, references, bleu)
    print(f"BLEU, 95 % interval: {mean:.2f} ± {width:.2f}")
    result: dict[str, Any] = {
        "kind": "evaluation",
        "system": arguments.system or arguments.hypotheses.name,
        "sentences": len(hypotheses),
        "scores": {name: asdict(score) for name, score in scores.items()},
        "bleu_confidence": {"mean": mean, "half_width_95": width},
    }
    if arguments.sources:
        buckets = score_by_length(sources, hypotheses, references, tokenize=arguments.tokenize)
        result["by_length"] = [bucket.as_dict() for bucket in buckets]
        for bucket in buckets:
            if bucket.score is not None:
                print(
                    f"{bucket.label:>6} words: BLEU {bucket.score:6.2f}  ({with_unit(bucket.sentences, 'sentences')})"
                )
        if arguments.align_with:
            result["adequacy"] = adequacy(arguments, sources, hypotheses, references)
            for name, value in result["adequacy"].items():
                print(f"{name}: {'none' if value is None else f'{value:.4f}'}")
    if arguments.output:
        print(f"Result: {write_result(arguments.output, result)}")
