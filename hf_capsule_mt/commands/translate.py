"""Translate files and pipes of any size, a line at a time, in constant memory.

    cat text.en | capsule-mt translate outputs/demo > text.de
    capsule-mt translate outputs/demo --input text.en --output text.de --num-beams 4
    capsule-mt translate outputs/demo --input text.en --output text.de --n-best 5          # number ||| text ||| score
    capsule-mt translate outputs/gdr --input text.en --output text.de --coverage text.coverage.tsv
    capsule-mt translate outputs/a outputs/b --input text.en --output text.de              # an ensemble
    accelerate launch scripts/translate.py outputs/demo --input text.en --output text.de   # on all GPUs
    torchrun --nproc-per-node 2 scripts/translate.py outputs/demo --cpu --input text.en --output text.de

With --output, the same command again resumes an interrupted run. Each line is a text: its sentences are translated one
by one, an empty line stays empty. Progress goes to stderr.
"""

import argparse
import contextlib
import sys
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, BinaryIO

from accelerate import PartialState
from tqdm import tqdm
from transformers import AutoModelForSeq2SeqLM, pipeline

import hf_capsule_mt  # noqa: F401  registers the models and the task
from hf_capsule_mt.command_line import HelpFormatter, checkpoint, positive
from hf_capsule_mt.evaluation import write_result
from hf_capsule_mt.output_files import check_outputs
from hf_capsule_mt.pipelines.files import (
    Window,
    WindowedOutput,
    coverage_json,
    coverage_tsv,
    one_line,
    windows_of,
)
from hf_capsule_mt.text_files import decode_lines

WINDOW = 2048
TASK: Any = "translation"  # the types of transformers 5 do not have it


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=HelpFormatter)
    parser.add_argument(
        "model", nargs="+", type=checkpoint, help="a checkpoint, or several of one vocabulary that decode together"
    )
    parser.add_argument("--input", type=Path, help="UTF-8 text, a text on a line (default: stdin)")
    parser.add_argument("--output", type=Path, help="where the translations go (default: stdout)")
    parser.add_argument("--restart", action="store_true", help="discard what an interrupted run has left")
    parser.add_argument(
        "--batch-tokens", type=positive, default=2048, help="source tokens of a batch, padding included"
    )
    parser.add_argument("--window", type=positive, default=WINDOW, help="lines read at once and sorted by length")
    parser.add_argument(
        "--num-beams", type=positive, help="hypotheses of beam search (default: as the checkpoint says)"
    )
    parser.add_argument(
        "--max-new-tokens", type=positive, help="limit of a translation (default: by its source's length)"
    )
    parser.add_argument("--length-penalty", type=float, help="above 0 favours long translations in beam search")
    parser.add_argument(
        "--no-repeat-ngram-size", type=positive, metavar="N", help="no N words twice in a translation: ends loops"
    )
    parser.add_argument(
        "--n-best", type=positive, default=1, metavar="N", help="the N best, as number ||| text ||| score"
    )
    parser.add_argument(
        "--coverage",
        type=Path,
        metavar="FILE",
        help="what was left out, for models with guided routing; .jsonl has every word, .tsv the line, its score, "
        "its untranslated words and what is repeated",
    )
    parser.add_argument("--coverage-threshold", type=float, help="warn of sentences whose coverage is less")
    parser.add_argument(
        "--coverage-retry", type=positive, metavar="BEAMS", help="translate those again with so many beams"
    )
    parser.add_argument("--coverage-weight", type=float, help="rescore hypotheses by what they leave in FUTURE")
    parser.add_argument("--src-lang", help="the language of the text, for the tokenizer and the rules about sentences")
    parser.add_argument("--tgt-lang", help="the language of the translation, for tokenizers that have several")
    parser.add_argument("--no-split", action="store_true", help="translate each line as if it were one sentence")
    parser.add_argument(
        "--dtype", choices=("float32", "bfloat16", "float16"), default="float32", help="numbers of the model"
    )
    parser.add_argument("--int8", action="store_true", help="multiply in int8: faster, on a CPU")
    parser.add_argument(
        "--backend",
        choices=("auto", "native", "torch", "transformers"),
        default="auto",
        help="what decodes: the engine in C, the one in PyTorch, or generate(); auto takes the fastest there is",
    )
    parser.add_argument("--cpu", action="store_true", help="stay off a GPU")
    parser.add_argument("--speed-result", type=Path, metavar="FILE", help="write a result file with the speed")
    parser.add_argument("--recipe", help="the recipe of the model, for the speed's result file")
    arguments = parser.parse_args()
    if arguments.n_best > (arguments.num_beams or 1):
        parser.error(f"--n-best {arguments.n_best} needs --num-beams of at least as many")
    if arguments.coverage is not None and arguments.coverage.suffix not in (".jsonl", ".tsv"):
        parser.error(f"--coverage writes .jsonl or .tsv, got {arguments.coverage}")
    return arguments


def load_translator(arguments: argparse.Namespace, state: PartialState) -> Any:
    models = [AutoModelForSeq2SeqLM.from_pretrained(path, dtype=arguments.dtype) for path in arguments.model]
    first, *others = [model.to(state.device).eval() for model in models]
    return pipeline(
        TASK,
        model=first,
        tokenizer=arguments.model[0],
        ensemble=others,
        int8=arguments.int8,
        backend=arguments.backend,
        device=state.device,
    )


def generation_settings(arguments: argparse.Namespace) -> dict[str, Any]:
    settings = {
        "num_beams": arguments.num_beams,
        "max_new_tokens": arguments.max_new_tokens,
        "length_penalty": arguments.length_penalty,
        "no_repeat_ngram_size": arguments.no_repeat_ngram_size,
        "return_coverage": True if arguments.coverage else None,
        "coverage_threshold": arguments.coverage_threshold,
        "coverage_retry": arguments.coverage_retry,
        "coverage_weight": arguments.coverage_weight,
        "src_lang": arguments.src_lang,
        "tgt_lang": arguments.tgt_lang,
        "split_sentences": False if arguments.no_split else None,
    }
    if arguments.n_best > 1:
        settings |= {"num_return_sequences": arguments.n_best, "return_scores": True}
    return {name: value for name, value in settings.items() if value is not None}


def translate_window(
    translator: Any, window: Window, arguments: argparse.Namespace, settings: dict[str, Any]
) -> list[list[str]]:
    """Return the lines of each output file for a window of the input."""
    results = translator(window.lines, **settings)
    numbered = list(enumerate(results, start=window.first_line))
    if arguments.n_best == 1:
        columns = [[one_line(record["translation_text"]) for record in results]]
        numbered = [(number, [record]) for number, record in numbered]
    else:
        columns = [
            [
                f"{number} ||| {one_line(record['translation_text'])} ||| {record.get('score', 0.0):.4f}"
                for number, records in numbered
                for record in records
            ]
        ]
    if arguments.coverage is not None:
        line_of = coverage_json if arguments.coverage.suffix == ".jsonl" else coverage_tsv
        columns.append([line_of(number, record["coverage"]) for number, records in numbered for record in records])
    return columns


def open_input(arguments: argparse.Namespace) -> tuple[BinaryIO, str]:
    if arguments.input is None:
        return sys.stdin.buffer, "stdin"
    return open(arguments.input, "rb"), str(arguments.input)


def input_windows(arguments: argparse.Namespace) -> Iterator[Window]:
    stream, name = open_input(arguments)
    with stream:
        yield from windows_of(decode_lines(stream, name), arguments.window)


def count_lines(path: Path | None) -> int | None:
    if path is None:
        return None
    with open(path, "rb") as stream:
        return sum(1 for _ in stream)


def write_speed(arguments: argparse.Namespace, translator: Any, sentences: int, seconds: float) -> None:
    """Write a result file that the model's card reads."""
    speed = {
        "kind": "speed",
        "recipe": arguments.recipe,
        "model": arguments.model,
        "sentences": sentences,
        "seconds": seconds,
        "sentences_per_second": sentences / seconds,
        "batch_tokens": arguments.batch_tokens,
        "num_beams": arguments.num_beams or translator.model.generation_config.num_beams or 1,
    }
    write_result(arguments.speed_result, speed)


def main() -> None:
    arguments = parse_arguments()
    check_outputs([arguments.output, arguments.coverage, arguments.speed_result], [arguments.input])
    state = PartialState(cpu=arguments.cpu, timeout=timedelta(days=7))
    if state.num_processes > 1 and (arguments.input is None or arguments.output is None):
        raise ValueError("several processes need --input and --output")
    translator = load_translator(arguments, state)
    settings = {**generation_settings(arguments), "batch_tokens": arguments.batch_tokens}
    files = [path for path in (arguments.output, arguments.coverage) if path is not None]
    output = None
    if arguments.output is not None:
        of_model = {"model": arguments.model, "dtype": arguments.dtype, "int8": arguments.int8}
        described = {**settings, **of_model, "window": arguments.window}
        with state.main_process_first():
            output = WindowedOutput(files, described, arguments.restart and state.is_main_process)
    progress = tqdm(total=count_lines(arguments.input), unit=" lines", disable=not state.is_main_process)
    translated, started = 0, time.perf_counter()
    with contextlib.ExitStack() as stack:
        streams = [] if output else [sys.stdout.buffer, *(stack.enter_context(open(path, "wb")) for path in files)]
        for window in input_windows(arguments):
            if output is None:
                for stream, lines in zip(
                    streams, translate_window(translator, window, arguments, settings), strict=True
                ):
                    stream.write("".join(f"{line}\n" for line in lines).encode())
                    stream.flush()
                translated += len(window.lines)
            elif not output.has(window) and window.number % state.num_processes == state.process_index:
                output.write(translate_window(translator, window, arguments, settings))
                translated += len(window.lines)
            progress.update(len(window.lines))
    seconds = time.perf_counter() - started
    progress.close()
    state.wait_for_everyone()
    if output is not None and state.is_main_process:
        output.finish()
    if arguments.speed_result is not None and state.is_main_process:
        write_speed(arguments, translator, translated, seconds)
    state.destroy_process_group()
