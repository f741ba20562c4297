"""Writes the model card of every recipe that has results.

    python scripts/write_model_cards.py                      # docs/results -> model_cards
    python scripts/write_model_cards.py --results outputs --output outputs/cards

A result file of `scripts/train.py` holds the recipe of its run; results of several seeds of one recipe are put
together (`em_routing-seed1.json`, `em_routing-seed2.json`). Result files of `scripts/evaluate.py` and
`scripts/translate.py` that name a recipe are added to its card.
"""

import argparse
from pathlib import Path

from transformers import AutoConfig

import hf_capsule_mt  # noqa: F401  registers the models
from hf_capsule_mt.command_line import HelpFormatter, folder, run
from hf_capsule_mt.hub import collect_runs, model_card

ROOT = Path(__file__).resolve().parents[1]


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=HelpFormatter)
    parser.add_argument("--results", type=folder, default=ROOT / "docs" / "results", help="the folder of result files")
    parser.add_argument("--output", type=Path, default=ROOT / "model_cards", help="the folder of the cards")
    return parser.parse_args()


def write_cards(results: Path, output: Path) -> list[Path]:
    """One card for each recipe; the paths that were written."""
    output.mkdir(parents=True, exist_ok=True)
    written = []
    for entry in collect_runs(results):
        config = AutoConfig.for_model(**entry.recipe["model"]).to_dict()
        card = model_card(
            entry.name,
            config,
            recipe=entry.recipe,
            training=entry.training,
            evaluations=entry.evaluations,
            speeds=entry.speeds,
        )
        path = output / f"{entry.name}.md"
        path.write_text(str(card), encoding="utf-8")
        written.append(path)
    return written


def main() -> None:
    arguments = parse_arguments()
    for path in write_cards(arguments.results, arguments.output):
        print(path)


if __name__ == "__main__":
    run(main)
