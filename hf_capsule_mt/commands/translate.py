"""Translate files and pipes of any size, a line at a time, in constant memory.

    cat text.en | capsule-mt translate outputs/demo > text.de
    capsule-mt translate outputs/demo --input text.en --output text.de --num-beams 4
    capsule-mt translate outputs/demo --input text.en --output text.de --n-best 5          # number ||| text ||| score
    capsule-mt translate outputs/gdr --input text.en --output text.de --coverage text.coverage.tsv
    capsule-mt translate outputs/a outputs/b --input text.en --output text.de              # an ensemble
    accelerate launch scripts/translate.py outputs/demo --input text.en --output text.de   # on all GPUs
    torchrun --nproc-per-node 2 scripts/translate.py outputs/demo --cpu --input text.en --output text.de
    RANK=5 WORLD_SIZE=40 capsule-mt translate outputs/demo --input text.en --output text.de   # the sixth of 40 jobs

With --output, the same command again resumes an interrupted run; Ctrl-C exits with 130. Each line is a text: its
sentences are translated one by one, an empty line stays empty. A line that cannot be translated is empty in the
output, its reason is on stderr and in a .jsonl of coverage, and the exit code is 3. Progress goes to stderr.

Several processes, on any machines, share the folder of the output and nothing else: process RANK of WORLD_SIZE, as
torchrun and accelerate set them, translates every WORLD_SIZE-th window. The last one to end joins the output.
"""

import argparse
import contextlib
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, get_args

import torch
from tqdm import tqdm
from transformers import pipeline

import hf_capsule_mt  # noqa: F401  registers the models and the task
from hf_capsule_mt.command_line import HelpFormatter, at_least, check_streams, checkpoint, positive, resumable
from hf_capsule_mt.evaluation import write_result
from hf_capsule_mt.fast.shortlist import FILE_NAME as SHORTLIST
from hf_capsule_mt.files.digests import file_digest, model_digests, tokenizer_digest
from hf_capsule_mt.files.line_failures import CODE_OF_FAILED_LINES
from hf_capsule_mt.files.lock import lock_output
from hf_capsule_mt.files.outputs import check_outputs, is_stream, open_output
from hf_capsule_mt.files.text import decode_lines, open_text
from hf_capsule_mt.modeling.loading import CheckedSeq2SeqLM, load_tokenizer
from hf_capsule_mt.pipelines.ensemble import check_same_vocabulary
from hf_capsule_mt.pipelines.files import Window, WindowedOutput, windows_of
from hf_capsule_mt.pipelines.lines import LineFormat, WindowLines
from hf_capsule_mt.pipelines.results import KEPT, CoverageMethod
from hf_capsule_mt.pipelines.segments import PrefixedText

WINDOW = 2048
TASK: Any = "translation"  # the types of transformers 5 do not have it


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=HelpFormatter)
    parser.add_argument(
        "model", nargs="+", type=checkpoint, help="a checkpoint, or several of one vocabulary that decode together"
    )
    parser.add_argument("--input", type=Path, help="UTF-8 text, a text on a line, also as .gz (default: stdin)")
    parser.add_argument("--output", type=Path, help="where the translations go (default: stdout)")
    parser.add_argument("--restart", action="store_true", help="discard what an interrupted run has left")
    parser.add_argument("--strict", action="store_true", help="stop at the first line that cannot be translated")
    parser.add_argument(
        "--batch-tokens", type=positive, default=2048, help="source tokens of a batch, padding included"
    )
    parser.add_argument("--window", type=positive, default=WINDOW, help="lines read at once and sorted by length")
    parser.add_argument("--num-beams", type=positive, help="beams (default: the checkpoint's)")
    parser.add_argument(
        "--max-new-tokens", type=positive, help="limit of a translation (default: by its source's length)"
    )
    parser.add_argument("--length-penalty", type=float, help="above 0 favours long translations in beam search")
    parser.add_argument(
        "--no-repeat-ngram-size", type=positive, metavar="N", help="repeat no N words in a translation: ends loops"
    )
    parser.add_argument(
        "--n-best", type=positive, default=1, metavar="N", help="the N best, as number ||| text ||| score"
    )
    parser.add_argument(
        "--coverage",
        type=Path,
        metavar="FILE",
        help="what was left out; .jsonl has every word, .tsv the line, its score, "
        "its untranslated words and what is repeated",
    )
    parser.add_argument(
        "--coverage-method",
        choices=get_args(CoverageMethod),
        default="auto",
        help="attention reads the head that `capsule-mt calibrate` has chosen; guided reads the routings of a guided "
        "model; deletion takes any model, a pass for each source word; auto is the first that the model has",
    )
    parser.add_argument("--coverage-threshold", type=float, help="warn of sentences whose coverage is lower")
    parser.add_argument(
        "--coverage-retry", type=at_least(2), metavar="BEAMS", help="translate those again with so many beams"
    )
    parser.add_argument("--coverage-weight", type=float, help="rescore hypotheses by what they leave out")
    parser.add_argument(
        "--target-prefix",
        action="store_true",
        help="a line is TEXT<tab>PREFIX, and its translation begins with the prefix (decodes by generate())",
    )
    parser.add_argument(
        "--keep",
        type=kinds_to_keep,
        metavar="KINDS",
        help="keep these as they are in the text: tags,urls,placeholders,numbers",
    )
    parser.add_argument("--src-lang", help="the language of the text, for the tokenizer and the rules about sentences")
    parser.add_argument("--tgt-lang", help="the language of the translation, for tokenizers that have several")
    parser.add_argument("--no-split", action="store_true", help="translate each line as if it were one sentence")
    parser.add_argument(
        "--dtype", choices=("float32", "bfloat16", "float16"), default="float32", help="dtype of the weights"
    )
    parser.add_argument("--int8", action="store_true", help="multiply in int8: faster, on a CPU")
    parser.add_argument(
        "--backend",
        choices=("auto", "native", "torch", "transformers"),
        default="auto",
        help="decoder: the C engine, the PyTorch engine or generate(); auto picks the fastest available",
    )
    parser.add_argument(
        "--shortlist",
        nargs="?",
        const=True,
        default=False,
        metavar="FILE",
        help="score only the likely targets of each source word: a file of capsule-mt shortlist (default: the one "
        "beside the checkpoint)",
    )
    parser.add_argument("--cpu", action="store_true", help="stay off a GPU")
    parser.add_argument("--speed-result", type=Path, metavar="FILE", help="write a result file with the speed")
    parser.add_argument("--recipe", help="the recipe of the model, for the speed's result file")
    arguments = parser.parse_args()
    if arguments.output is not None and arguments.output.suffix == ".gz":
        parser.error(f"--output writes plain text, got {arguments.output}: name it without .gz")
    if arguments.n_best > (arguments.num_beams or 1):
        parser.error(f"--n-best {arguments.n_best} needs --num-beams of at least as many")
    if arguments.coverage is not None and arguments.coverage.suffix not in (".jsonl", ".tsv"):
        parser.error(f"--coverage writes .jsonl or .tsv, got {arguments.coverage}")
    others = {
        "--coverage": arguments.coverage,
        "--target-prefix": arguments.target_prefix,
        "--n-best": arguments.n_best > 1,
    }
    for name in [name for name, given in others.items() if given and arguments.keep]:
        parser.error(f"--keep does not go with {name}")
    return arguments


def kinds_to_keep(text: str) -> list[str]:
    kinds = text.split(",")
    if not set(kinds) <= set(KEPT):
        raise argparse.ArgumentTypeError(f"takes {','.join(KEPT)} or some of them, got {text!r}")
    return kinds


class Share(NamedTuple):
    """Which of several processes this one is. They do not talk to each other."""

    rank: int
    of: int

    @classmethod
    def from_environment(cls) -> "Share":
        given = [os.environ.get(name, default) for name, default in (("RANK", "0"), ("WORLD_SIZE", "1"))]
        share = cls(*(int(text) if text.isdecimal() else -1 for text in given))
        if not 0 <= share.rank < share.of:
            raise ValueError(f"RANK must be in 0 ... WORLD_SIZE - 1, got RANK={given[0]} and WORLD_SIZE={given[1]}")
        return share


def device_of_process(cpu: bool) -> torch.device:
    """Return the accelerator of this process, by its LOCAL_RANK on the machine, or the CPU."""
    found = None if cpu else torch.accelerator.current_accelerator(check_available=True)
    return torch.device("cpu") if found is None else torch.device(found.type, int(os.environ.get("LOCAL_RANK", "0")))


def load_translator(arguments: argparse.Namespace) -> tuple[Any, dict[str, Any]]:
    """Return the pipeline, and digests of what its translations depend on."""
    device = device_of_process(arguments.cpu)
    tokenizer: Any = load_tokenizer(arguments.model[0])
    for path in arguments.model[1:]:
        check_same_vocabulary(tokenizer, path)
    models = [CheckedSeq2SeqLM.from_pretrained(path, dtype=arguments.dtype) for path in arguments.model]
    digests: dict[str, Any] = {}
    if arguments.output is not None:  # before the pipeline changes the layers
        digests = {"models": [model_digests(model) for model in models]}
    first, *others = [model.to(device) for model in models]
    translator = pipeline(
        TASK,
        model=first,
        tokenizer=tokenizer,
        ensemble=others,
        int8=arguments.int8,
        backend=arguments.backend,
        shortlist=arguments.shortlist,
        device=device,
    )
    if digests:
        digests["tokenizer"] = tokenizer_digest(translator.tokenizer)
        if arguments.shortlist:
            place = Path(arguments.model[0] if arguments.shortlist is True else arguments.shortlist)
            digests["shortlist"] = file_digest(place / SHORTLIST if place.is_dir() else place)
    return translator, digests


def generation_settings(arguments: argparse.Namespace) -> dict[str, Any]:
    settings = {
        "num_beams": arguments.num_beams,
        "max_new_tokens": arguments.max_new_tokens,
        "length_penalty": arguments.length_penalty,
        "no_repeat_ngram_size": arguments.no_repeat_ngram_size,
        "return_coverage": True if arguments.coverage else None,
        "coverage_method": arguments.coverage_method,
        "coverage_threshold": arguments.coverage_threshold,
        "coverage_retry": arguments.coverage_retry,
        "coverage_weight": arguments.coverage_weight,
        "keep": arguments.keep,
        "src_lang": arguments.src_lang,
        "tgt_lang": arguments.tgt_lang,
        "split_sentences": False if arguments.no_split else None,
    }
    if arguments.n_best > 1:
        settings |= {"num_return_sequences": arguments.n_best, "return_scores": True}
    return {name: value for name, value in settings.items() if value is not None}


def prefixed(line: str) -> str:
    """Take a line of --target-prefix apart; one without a tab has no prefix."""
    text, *prefixes = line.split("\t")
    if len(prefixes) > 1:
        raise ValueError(f"{1 + len(prefixes)} columns, but TEXT<tab>PREFIX has 2")
    return PrefixedText(text, prefixes[0]) if prefixes else text


def input_windows(arguments: argparse.Namespace) -> Iterator[Window]:
    stream = sys.stdin.buffer if arguments.input is None else open_text(arguments.input)
    with stream:
        yield from windows_of(decode_lines(stream, arguments.input or "stdin"), arguments.window)


def count_lines(path: Path | None) -> int | None:
    """Return the number of lines of a file for the progress bar; `None` if that takes long, or takes them away."""
    if path is None or is_stream(path) or path.suffix == ".gz":
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
        "backend": getattr(translator.translator.fast, "backend", "transformers"),
        "int8": arguments.int8,
        "num_beams": arguments.num_beams or translator.model.generation_config.num_beams or 1,
    }
    write_result(arguments.speed_result, speed)


def check_files(arguments: argparse.Namespace, share: Share) -> None:
    """Raise an error for files that cannot be read or written."""
    check_streams(arguments.input, arguments.output)
    check_outputs([arguments.output, arguments.coverage, arguments.speed_result], [arguments.input])
    if share.of > 1:
        for option, path in (("--input", arguments.input), ("--output", arguments.output)):
            if path is None or is_stream(path):
                raise ValueError(f"{share.of} processes need a regular file for {option}, got {path}")
        if arguments.restart:
            raise ValueError(
                f"--restart goes with one process, not with {share.of}: remove {arguments.output}.parts and start all "
                "of them without it"
            )
    if arguments.input is not None and not is_stream(arguments.input):
        open_text(arguments.input).close()


def join_parts(output: WindowedOutput, share: Share) -> dict[int, str]:
    """Join the parts if all are there; return why lines failed, by their number.

    Where other processes have something left to do, say so on stderr: the last one joins the parts.
    """
    with contextlib.ExitStack() as stack:
        total = len(output.stems)
        if share.of > 1 and output.count_done() == total:
            for path in output.outputs:
                if share.rank > 0 and not is_stream(path):  # process 0 holds the locks from the start
                    stack.enter_context(lock_output(path, wait=True))
        if share.of == 1 or output.count_done() == total:
            return output.finish()
    state = "joined by another process"
    if output.folder.exists():
        state = f"{output.count_done()} of {total} windows are there, the last process joins them"
    print(f"{output.outputs[0]}, process {share.rank} of {share.of}: {state}", file=sys.stderr)
    return {}


def main() -> int:
    arguments = parse_arguments()
    share = Share.from_environment()
    check_files(arguments, share)
    files = [path for path in (arguments.output, arguments.coverage) if path is not None]
    resumes = arguments.output is not None and not is_stream(arguments.output)
    with contextlib.ExitStack() as stack:
        if resumes:
            stack.enter_context(resumable())
        for path in files:
            if share.rank == 0 and not is_stream(path):
                stack.enter_context(lock_output(path))
        translator, digests = load_translator(arguments)
        settings = {**generation_settings(arguments), "batch_tokens": arguments.batch_tokens}
        form = LineFormat(arguments.n_best, arguments.coverage.suffix[1:] if arguments.coverage else None)
        lines = WindowLines(
            lambda texts: list(translator([*map(prefixed, texts)] if arguments.target_prefix else texts, **settings)),
            form.columns,
            f"{arguments.input or 'stdin'}, line",
            arguments.strict,
        )
        output = None
        if resumes:
            of_model = {"dtype": arguments.dtype, "int8": arguments.int8, "backend": arguments.backend}
            if arguments.target_prefix:
                of_model["target_prefix"] = True
            described = {**settings, **digests, **of_model, **form._asdict(), "window": arguments.window}
            output = WindowedOutput(files, described, arguments.restart, is_main=share.rank == 0)
        streams = [] if arguments.output else [sys.stdout.buffer]
        streams += [] if output else [stack.enter_context(open_output(path)) for path in files]
        bar = tqdm(total=count_lines(arguments.input), unit=" lines", disable=share.rank > 0)
        progress = stack.enter_context(bar)
        translated, started = 0, time.perf_counter()
        for window in input_windows(arguments):
            if output is None:
                for stream, column in zip(streams, lines(window.first_line, window.lines)[0], strict=True):
                    stream.write("".join(f"{line}\n" for line in column).encode())
                    stream.flush()
                translated += len(window.lines)
            else:
                output.begin(window)
                if window.number % share.of == share.rank and not output.is_done(arguments.strict):
                    output.write(*lines(window.first_line, window.lines))
                    translated += len(window.lines)
            progress.update(len(window.lines))
        seconds = time.perf_counter() - started
        progress.close()
        if output is not None:
            joined = join_parts(output, share)
            lines.report(joined)
            lines.failures = joined  # a process that does not join exits with 0: torchrun would end the others
        if arguments.speed_result is not None and share.rank == 0:
            write_speed(arguments, translator, translated, seconds)
    if lines.failures:
        print(f"{len(lines.failures)} lines could not be translated: they are empty in the output", file=sys.stderr)
    return CODE_OF_FAILED_LINES if lines.failures else 0
