"""Make a released checkpoint of a training run: mean weights in half precision, tokenizer, card, kept translations.

    python -m tools.release outputs/capsule_marian_de_en checkpoints/capsule-marian-de-en --last 5 --corpus tatoeba \\
        --sources test.de --hours 4.5 --results outputs/test.json outputs/word-omissions.json

The folder loads by the Auto classes and by `pipeline` after `import hf_capsule_mt`; `capsule-mt push` and `export` add
code of its own, with which it needs no package. `translations.json` keeps translations of some sources, to which
tests/system/test_checkpoints.py holds the folder. Afterwards, `capsule-mt calibrate checkpoints/NAME ...` adds the
calibration of its coverage. A release is at most 25 MB.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForSeq2SeqLM

import hf_capsule_mt  # noqa: F401  registers the models
from capsule_mt.commands.console import HelpFormatter, folder, positive, run
from capsule_mt.files.outputs import check_output_folder, write_output
from capsule_mt.files.reading import read_lines
from hf_capsule_mt.decoding.translator import Translator
from hf_capsule_mt.evaluation.results import read_result
from hf_capsule_mt.hub import model_card
from hf_capsule_mt.hub.card_sources import CORPORA
from hf_capsule_mt.loading import limit_tokenizer, load_tokenizer, share_weights
from hf_capsule_mt.training.checkpoints import average_weights, last_checkpoints, load_weights

TRANSLATIONS_FILE = "translations.json"
TRAINING_RESULT = "train_result.json"
LARGEST_FOLDER = 25_000_000


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=HelpFormatter)
    parser.add_argument("run", type=folder, help="the output folder of a training run")
    parser.add_argument("output", type=Path, help="checkpoints/NAME")
    parser.add_argument("--last", type=positive, default=5, help="how many of its last checkpoints to average")
    parser.add_argument("--sources", type=Path, required=True, help="text whose lines to translate and keep")
    parser.add_argument("--sentences", type=positive, default=50, help="how many of its lines, spread over it")
    parser.add_argument("--num-beams", type=positive, default=4, help="of the kept translations")
    parser.add_argument(
        "--corpus", choices=list(CORPORA), help="what it was trained on, where file names do not say it"
    )
    parser.add_argument(
        "--hours", type=float, help="that training took, the model it started from included; for the card"
    )
    parser.add_argument("--results", type=Path, nargs="*", default=[], help="more result files for the card")
    parser.add_argument("--license", help="of the weights, by its name on the hub (default: by the training data)")
    return parser.parse_args()


def results_of(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """Return the result files for the card, the training's first, with what the arguments add to it."""
    results = [read_result(path) for path in arguments.results]
    path = arguments.run / TRAINING_RESULT
    if path.is_file():
        training = read_result(path)
        if arguments.corpus:
            training["recipe"]["data"] = {**training["recipe"]["data"], "train": {"text": [arguments.corpus]}}
        if arguments.hours:
            training["seconds"] = 3600 * arguments.hours
        results.insert(0, training)
    return results


def keep_translations(path: Path, sources: list[str], num_beams: int) -> None:
    """Translate by the saved folder, in float32, and keep the texts beside it."""
    translator = Translator.from_pretrained(path, dtype="float32", device="cpu", backend="transformers")
    translations = translator(sources, num_beams=num_beams, batch_size=len(sources), scores=False)
    record = {
        "num_beams": num_beams,
        "sources": sources,
        "translations": [translation.text for translation in translations],
    }
    write_output(path / TRANSLATIONS_FILE, json.dumps(record, indent=1, ensure_ascii=False) + "\n")


def main() -> None:
    arguments = parse_arguments()
    check_output_folder(arguments.output)
    checkpoints = last_checkpoints(arguments.run, arguments.last)
    model = AutoModelForSeq2SeqLM.from_pretrained(checkpoints[-1])
    load_weights(model, average_weights(checkpoints))
    if hasattr(model, "drop_guided_losses"):
        model.drop_guided_losses()
    model.half().save_pretrained(arguments.output)
    share_weights(arguments.output)
    model.config.dtype = torch.float32  # what it loads in: half weights do not survive fine-tuning
    model.config.save_pretrained(arguments.output)
    limit_tokenizer(load_tokenizer(checkpoints[-1]), model.config).save_pretrained(arguments.output)
    lines = [line for line in read_lines(arguments.sources) if line.strip()]
    sources = lines[:: max(1, len(lines) // arguments.sentences)][: arguments.sentences]
    keep_translations(arguments.output, sources, arguments.num_beams)
    name = arguments.output.name
    card = model_card(name, model.config.to_dict(), results_of(arguments), license=arguments.license, with_code=False)
    write_output(arguments.output / "README.md", str(card))
    size = sum(file.stat().st_size for file in arguments.output.rglob("*") if file.is_file())
    if size > LARGEST_FOLDER:
        raise ValueError(f"{arguments.output} has {size:,} bytes, more than the {LARGEST_FOLDER:,} of a release")
    print(f"{arguments.output}: the mean of {len(checkpoints)} checkpoints, {size / 1e6:.1f} MB")


if __name__ == "__main__":
    run(main)
