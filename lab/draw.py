"""Draw result files: scores by source length, sweeps over a setting, areas under ROC curves, probing accuracies.

    python -m lab.draw lengths outputs/plain.json outputs/em.json --output outputs/lengths
    python -m lab.draw sweep outputs/*/result.json --field layer_aggregation_num_iterations --output outputs/figure3
    python -m lab.draw auc outputs/adequacy-de-en.json --output outputs/adequacy-de-en
    python -m lab.draw probing outputs/probing.json --output outputs/probing

The pictures of the results in lab/results are drawn by `python -m lab.report`.
"""

import argparse
from pathlib import Path
from typing import Any

import hf_capsule_mt  # noqa: F401  its models
from hf_capsule_mt.analysis.pictures import draw_by_length
from hf_capsule_mt.command_line import HelpFormatter, run
from hf_capsule_mt.evaluation import read_result, write_result
from lab.paper_tables import PROBING
from lab.result_pictures import draw_auc, draw_probing, draw_sweep, sweep_points


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=HelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    lengths = commands.add_parser("lengths", help="score and length by source length, from results of evaluation")
    lengths.add_argument("results", type=Path, nargs="+", help="result files")
    sweep = commands.add_parser("sweep", help="score against a setting, from results with a recipe")
    sweep.add_argument("results", type=Path, nargs="+", help="result files")
    sweep.add_argument("--field", required=True, help="the field of the model's configuration that was swept")
    sweep.add_argument("--line", help="a field that tells the lines of the picture apart")
    auc = commands.add_parser("auc", help="areas under curves, from results of lab.adequacy")
    auc.add_argument("results", type=Path, help="a result file")
    probing = commands.add_parser("probing", help="accuracies and differences of encoders, from results of lab.probe")
    probing.add_argument("results", type=Path, help="a result file")
    for command in (lengths, sweep, auc, probing):
        command.add_argument("--output", type=Path, required=True, help="prefix of the files to write")
    return parser.parse_args()


def needed(path: Path, *names: str) -> dict[str, Any]:
    """Read a result file, and raise a `ValueError` unless it has these fields."""
    result = read_result(path)
    missing = [name for name in names if name not in result]
    if missing:
        raise ValueError(f"{path}: a result without {', '.join(missing)}; `--help` says which results are read")
    return result


def main() -> None:
    arguments = parse_arguments()
    path = arguments.output.with_name(f"{arguments.output.name}.png")
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
    print(f"Numbers: {write_result(path.with_name(f'{arguments.output.name}.json'), kept)}\nPicture: {path}")


if __name__ == "__main__":
    run(main)
