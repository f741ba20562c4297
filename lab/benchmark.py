"""Measure speed and memory: of the models, by sentence length, of the engine, and of training.

    python -m lab.benchmark models                                      # everything, base size, about half an hour
    python -m lab.benchmark models --sections train --systems em_routing heads_em_2
    python -m lab.benchmark models --sections decode --systems off em_routing guided --threads 1
    python -m lab.benchmark models --size tiny --repeats 1              # does it run?
    python -m lab.benchmark lengths 10 50 100 200 400 --threads 1       # CapsNMT beside Marian, five minutes
    python -m lab.benchmark throughput --rounds 4                       # a bare Trainer beside this package's
    python -m lab.benchmark engines                                     # to_fast beside generate() and CTranslate2
    python -m lab.benchmark trained outputs/demo --input test.en --references test.de    # the same, with BLEU and chrF
    python -m lab.benchmark students FOLDER --input test.en             # students of Firefox beside other engines
    python -m lab.benchmark multilingual --ctranslate2 PYTHON           # NLLB-200's shape, 2.5 GB beside CTranslate2
    python -m lab.benchmark lengths 10 100 400 --threads 1 --native     # the engine by sentence length

All runs take turns in one process. A ratio compares two medians; in `throughput`, it is the median of the rounds'
ratios. Prints a table, and writes a JSON result, to which `python -m lab.report --keep` gives a place in the report.
"""

import argparse
import time
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from capsule_mt.commands.console import HelpFormatter, folder, positive, run
from hf_capsule_mt.commands.arguments import checkpoint
from hf_capsule_mt.decoding.fast import FastTranslator
from hf_capsule_mt.evaluation import read_result, write_result
from lab.benchmark_tables import render_benchmark, render_lengths, render_throughput
from lab.engine_speed import measure_engines, render_engines
from lab.lengths import measure_lengths
from lab.model_speed import SENTENCE_LENGTH, SIZES, SYSTEMS, ModelSpeed, decoding_models
from lab.multilingual import SIZES as MULTILINGUAL_SIZES
from lab.multilingual import measure_multilingual, render_multilingual
from lab.student_engines import measure_students, render_students
from lab.throughput import measure
from lab.trained_engines import measure_trained, render_trained

MODEL_SECTIONS = ("core", "train", "decode", "memory")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=HelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)

    def command(name: str, help: str) -> argparse.ArgumentParser:
        return commands.add_parser(name, help=help, formatter_class=HelpFormatter)

    models = command("models", "training, decoding and memory of the models, and the routing core alone")
    models.add_argument("--sections", nargs="+", choices=MODEL_SECTIONS, default=list(MODEL_SECTIONS), help="parts")
    models.add_argument("--systems", nargs="+", choices=list(SYSTEMS), default=list(SYSTEMS), help="models to measure")
    models.add_argument("--tokens", type=int, default=1024, help="tokens of a training step on each side")
    lengths = command("lengths", "CapsNMT beside Marian by sentence length")
    lengths.add_argument("lengths", nargs="*", type=int, default=[10, 25, 50, 100, 200, 400], help="in words")
    lengths.add_argument("--processor-time", action="store_true", help="the clock for a shared machine, on one thread")
    lengths.add_argument("--num-beams", type=int, default=1, help="hypotheses of beam search")
    for parser_of_models in (models, lengths):
        parser_of_models.add_argument("--size", choices=list(SIZES), default="base", help="how large the models are")
        parser_of_models.add_argument("--repeats", type=int, default=5, help="counted runs of everything")
        parser_of_models.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu", help="where")
    throughput = command("throughput", "tokens per second of training: a bare Trainer beside this package's")
    throughput.add_argument("--rounds", type=int, default=4, help="how often each is measured, in turn")
    throughput.add_argument("--width", type=int, default=128, help="of the model")
    throughput.add_argument("--layers", type=int, default=3, help="of the encoder and of the decoder")
    engines = command("engines", "to_fast beside generate() and, where it is installed, CTranslate2; one thread")
    engines.add_argument("--size", choices=list(SIZES), default="base", help="how large the models are")
    engines.add_argument("--repeats", type=positive, default=3, help="counted runs of everything")
    lengths.add_argument("--native", action="store_true", help="measure the native engine in int8, too, on a CPU")
    trained = command("trained", "engines on trained checkpoints: speed beside BLEU and chrF")
    trained.add_argument("checkpoints", nargs="+", type=checkpoint, help="folders, or names on the hub")
    trained.add_argument("--input", type=Path, required=True, help="a sentence on a line")
    trained.add_argument("--references", type=Path, help="their translations, for BLEU and chrF")
    trained.add_argument("--sentences", type=positive, default=100, help="how many of them, from the first")
    trained.add_argument("--batch-sizes", nargs="+", type=positive, default=[1, 16, 64], help="sentences of a batch")
    trained.add_argument("--num-beams", nargs="+", type=positive, default=[1, 5], help="hypotheses of beam search")
    trained.add_argument("--shortlist", type=Path, help="a file of `capsule-mt shortlist`, for a row with it")
    trained.add_argument("--repeats", type=positive, default=3, help="counted runs of everything")
    trained.add_argument("--threads", nargs="+", type=positive, help="numbers of threads (default: one, and all)")
    students = command("students", "engines on students of Firefox Translations; one thread, processor time")
    students.add_argument("students", nargs="+", type=folder, help="folders of Mozilla's files")
    students.add_argument("--input", type=Path, required=True, help="a sentence on a line")
    students.add_argument("--sentences", type=positive, default=100, help="how many of them, from the first")
    students.add_argument("--batch-sizes", nargs="+", type=positive, default=[1, 16, 64], help="sentences of a batch")
    students.add_argument("--num-beams", nargs="+", type=positive, default=[1, 4], help="hypotheses of beam search")
    students.add_argument(
        "--bergamot", help="a Python 3.10 with the wheel `bergamot`, to measure the native engine, too"
    )
    students.add_argument("--repeats", type=positive, default=3, help="counted runs of everything")
    multilingual = command("multilingual", "random weights of NLLB-200's shape; one thread, processor time, memory")
    multilingual.add_argument(
        "--size", choices=list(MULTILINGUAL_SIZES), default="600M", help="how large the model is"
    )
    multilingual.add_argument(
        "--folder", type=Path, default=Path("outputs/multilingual"), help="where the models are, or are written"
    )
    multilingual.add_argument(
        "--ctranslate2", metavar="PYTHON", help="a Python with ctranslate2, torch and transformers (default: this one)"
    )
    multilingual.add_argument("--batch-sizes", nargs="+", type=positive, default=[1, 16], help="sentences of a batch")
    multilingual.add_argument(
        "--num-beams", nargs="+", type=positive, default=[1, 4], help="hypotheses of beam search"
    )
    multilingual.add_argument(
        "--shortlists", nargs="*", type=float, default=[0.5, 0.25], help="shares of the tokens, for rows with them"
    )
    multilingual.add_argument("--repeats", type=positive, default=3, help="counted runs of everything")
    for name, subcommand in commands.choices.items():
        if name not in ("trained", "students", "multilingual"):
            subcommand.add_argument("--threads", type=int, help="processor threads to use (default: all)")
        subcommand.add_argument(
            "--output", type=Path, default=Path(f"outputs/benchmark-{name}.json"), help="the result file"
        )
    return parser.parse_args()


def measure_models(arguments: argparse.Namespace) -> dict[str, Any]:
    speed = ModelSpeed(arguments)
    trained = [name for name in arguments.systems if name != "em_routing_decoder"]
    result: dict[str, Any] = {
        "size": arguments.size,
        "repeats": arguments.repeats,
        "tokens": speed.tokens,
        "length": SENTENCE_LENGTH,
    }
    if "core" in arguments.sections:
        result["core"] = speed.core()
    if "decode" in arguments.sections:
        result["decode"] = speed.decode([name for name in arguments.systems if name != "em_routing_no_activation"])
    if "memory" in arguments.sections:
        result["memory"] = speed.memory(trained)
    if "train" in arguments.sections:  # last: it changes how this process allocates memory
        result["train"] = speed.train(trained)
    return result


def measure_by_length(arguments: argparse.Namespace) -> dict[str, Any]:
    models: dict[str, Any] = dict(decoding_models({"Marian": "stock", "CapsNMT": "capsnmt"}, arguments))
    if arguments.native:
        models |= {
            f"{title}, native int8": FastTranslator(model, int8=True, strict=True) for title, model in models.items()
        }
    with tqdm(total=2 * 2 * len(models) * len(arguments.lengths) * (arguments.repeats + 1)) as bar:
        sweeps = measure_lengths(
            models,
            arguments.lengths,
            num_beams=arguments.num_beams,
            repeats=arguments.repeats,
            synchronize=torch.cuda.synchronize if arguments.device != "cpu" else None,
            progress=lambda: bar.update() and None,
            clock=time.process_time if arguments.processor_time else time.perf_counter,
        )
    return {
        "size": arguments.size,
        "repeats": arguments.repeats,
        "num_beams": arguments.num_beams,
        "clock": "processor time" if arguments.processor_time else "time",
        "sweeps": sweeps,
    }


def measure_throughput(arguments: argparse.Namespace) -> dict[str, Any]:
    settings = {name: getattr(arguments, name) for name in ("rounds", "width", "layers")}
    return {"tokens_per_second": measure(**settings), "settings": settings}


SECTIONS = {
    "models": (measure_models, render_benchmark),
    "lengths": (measure_by_length, render_lengths),
    "throughput": (measure_throughput, render_throughput),
    "engines": (measure_engines, render_engines),
    "trained": (measure_trained, render_trained),
    "students": (measure_students, render_students),
    "multilingual": (measure_multilingual, render_multilingual),
}


def main() -> None:
    arguments = parse_arguments()
    if isinstance(getattr(arguments, "threads", None), int):
        torch.set_num_threads(arguments.threads)
    measure_section, render = SECTIONS[arguments.command]
    path = write_result(arguments.output, measure_section(arguments))
    print(render(read_result(path)))
    print(f"Result: {path}")


if __name__ == "__main__":
    run(main)
