"""Looks at what the routings of a model do, and at result files: numbers as JSON, and pictures.

    python scripts/analyze.py routing outputs/em --sources test.en --targets test.de --output docs/results/em
    python scripts/analyze.py lengths results/plain.json results/em.json --output docs/results/lengths
    python scripts/analyze.py sweep runs/*/result.json --field layer_aggregation_num_iterations --output docs/figure3
    python scripts/analyze.py auc docs/results/adequacy-de-en.json --output docs/results/adequacy-de-en
    python scripts/analyze.py probing docs/results/probing.json --output docs/results/probing

`routing` writes entropy and diversity of every routing at every iteration, and average assignments; of the sentence
pair that --show names, curves of PAST and FUTURE for each source word, or the words that each capsule is made of, if
the model has such things; and the overlap rates of a model that predicts bags of words.
"""

import argparse
from pathlib import Path
from typing import Any

from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

import hf_capsule_mt  # noqa: F401  its models
from hf_capsule_mt.analysis.past_future import forced_curves, mean_overlap_rate, overlap_rates
from hf_capsule_mt.analysis.pictures import (
    draw_agreement,
    draw_iteration_statistics,
    draw_layer_routing,
    draw_past_future,
    draw_word_curves,
    draw_word_map,
)
from hf_capsule_mt.analysis.routing_statistics import encoded_batches, routing_statistics, routings_of
from hf_capsule_mt.command_line import HelpFormatter, checkpoint_folder, positive, run
from hf_capsule_mt.evaluation import read_result, write_result
from hf_capsule_mt.evaluation.text_files import read_parallel
from lab.paper_tables import PROBING
from lab.result_pictures import draw_auc, draw_by_length, draw_probing, draw_sweep, sweep_points

FEW = 16  # so many output capsules have a number each in a picture


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=HelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    routing = commands.add_parser("routing", help="the routings of a checkpoint")
    routing.add_argument("checkpoint", type=checkpoint_folder, help="a folder with a model and its tokenizer")
    routing.add_argument("--sources", type=Path, required=True, help="source sentences")
    routing.add_argument("--targets", type=Path, required=True, help="their translations, by people or by the model")
    routing.add_argument("--sentences", type=positive, default=200, help="how many of them to look at")
    routing.add_argument("--show", type=positive, default=1, help="the number of the sentence that is drawn, from 1")
    routing.add_argument("--device", default="cpu", help="cpu or cuda")
    lengths = commands.add_parser("lengths", help="score and length by source length, from results of evaluate.py")
    lengths.add_argument("results", type=Path, nargs="+", help="result files")
    sweep = commands.add_parser("sweep", help="score against a setting, from results of reproduce.py")
    sweep.add_argument("results", type=Path, nargs="+", help="result files")
    sweep.add_argument("--field", required=True, help="the field of the model's configuration that was swept")
    sweep.add_argument("--line", help="a field that tells the lines of the picture apart")
    auc = commands.add_parser("auc", help="areas under curves, from results of adequacy.py")
    auc.add_argument("results", type=Path, help="a result file")
    probing = commands.add_parser("probing", help="accuracies and differences of encoders, from results of probe.py")
    probing.add_argument("results", type=Path, help="a result file")
    for command in (routing, lengths, sweep, auc, probing):
        command.add_argument(
            "--output", type=Path, required=True, help="the beginning of the names of what is written"
        )
    return parser.parse_args()


def named(output: Path, ending: str) -> Path:
    return output.with_name(f"{output.name}{ending}")


def needed(path: Path, *names: str) -> dict[str, Any]:
    """A result file that has what a picture is made of."""
    result = read_result(path)
    missing = [name for name in names if name not in result]
    if missing:
        raise ValueError(f"{path}: a result without {', '.join(missing)}; `--help` says which results are read")
    return result


def analyze_routing(arguments: argparse.Namespace) -> None:
    tokenizer = AutoTokenizer.from_pretrained(arguments.checkpoint)
    model = AutoModelForSeq2SeqLM.from_pretrained(arguments.checkpoint).to(arguments.device)
    sources, targets = (
        lines[: arguments.sentences] for lines in read_parallel([arguments.sources, arguments.targets])
    )
    if arguments.show > len(sources):
        raise ValueError(f"--show {arguments.show}: there are {len(sources)} sentences")
    batches = list(encoded_batches(tokenizer, sources, targets, device=arguments.device))
    statistics = routing_statistics(model, batches)
    result: dict[str, Any] = {
        "kind": "routing statistics",
        "checkpoint": arguments.checkpoint.name,
        "sentences": len(sources),
        "routings": {place: [entry.as_dict() for entry in entries] for place, entries in statistics.items()},
    }
    losses = getattr(model, "guided_losses", None)
    if losses is not None and losses.bow_weight > 0:
        rates = mean_overlap_rate([rate for batch in batches for rate in overlap_rates(model, **batch)])
        result["overlap_rates"] = rates._asdict()
    print(f"Numbers: {write_result(named(arguments.output, '.json'), result)}")
    pictures = [draw_iteration_statistics(result["routings"], named(arguments.output, "-iterations.png"))]
    for place, entries in statistics.items():
        averages = [entry.average for entry in entries if entry.average is not None]
        if averages:
            path = named(arguments.output, f"-{place}.png")
            if averages[0].shape[1] <= FEW:
                pictures.append(draw_agreement(averages, path))
            else:
                pictures.append(draw_layer_routing([average.unsqueeze(0) for average in averages], path))
    chosen = slice(arguments.show - 1, arguments.show)
    (batch,) = encoded_batches(tokenizer, sources[chosen], targets[chosen], device=arguments.device)
    source, target = (tokenizer.convert_ids_to_tokens(batch[name][0]) for name in ("input_ids", "labels"))
    weights = {place: iterations[-1][0].cpu() for place, iterations in routings_of(model, batch).items()}
    if "decoder.guidance" in weights:
        curves = forced_curves(model, **batch)
        past, future = curves.past[0].cpu(), curves.future[0].cpu()
        for draw, ending in ((draw_word_curves, "-curves.png"), (draw_past_future, "-past-future.png")):
            pictures.append(draw(past, future, source, target, named(arguments.output, ending)))
    for place, assignments in weights.items():
        if assignments.dim() == 2:  # a sentence into capsules [S, M]
            pictures.append(draw_word_map(assignments, source, named(arguments.output, f"-{place}-words.png")))
    print("Pictures: " + ", ".join(map(str, pictures)))


def analyze_results(arguments: argparse.Namespace) -> None:
    path = named(arguments.output, ".png")
    if arguments.command == "auc":
        print(f"Picture: {draw_auc(needed(arguments.results, 'auc')['auc'], path)}")
        return
    if arguments.command == "probing":
        print(f"Picture: {draw_probing(needed(arguments.results, 'results')['results'], PROBING, path)}")
        return
    names = ("by_length",) if arguments.command == "lengths" else ("recipe", "scores")
    results = [needed(file, *names) for file in arguments.results]
    if arguments.command == "lengths":
        systems = {
            result.get("system") or f"{result.get('run')}, seed {result.get('seed')}": result["by_length"]
            for result in results
        }
        kept: dict[str, Any] = {"kind": "scores by length", "systems": systems}
        draw_by_length(systems, path)
    else:
        points = sweep_points(results, arguments.field, arguments.line)
        kept = {"kind": "sweep", "field": arguments.field, "points": [vars(point) for point in points]}
        draw_sweep(points, path, arguments.field)
    print(f"Numbers: {write_result(named(arguments.output, '.json'), kept)}\nPicture: {path}")


def main() -> None:
    arguments = parse_arguments()
    if arguments.command == "routing":
        analyze_routing(arguments)
    else:
        analyze_results(arguments)


if __name__ == "__main__":
    run(main)
