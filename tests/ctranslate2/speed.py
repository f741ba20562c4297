"""CTranslate2 and our engine on the same int8 folder of CTranslate2's: time, memory, and what becomes of a long line.

    python -m tests.ctranslate2.speed --rounds 5

The model has Marian's layers in Transformer-base's sizes, with random weights: all translations have the same number
of tokens. Each program has one thread of a process of its own, and reads and writes text. They take turns, and are
compared by processor time within a turn. CT2_USE_MKL of the environment reaches CTranslate2.
"""

import argparse
import json
import logging
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

SIZES: dict[str, Any] = {"width": 512, "inner": 2048, "heads": 8, "depths": (6, 6), "num_positions": 512}
VOCABULARY = 32000
NUM_TOKENS = 20  # of a translation
WORKLOADS = {  # sentences, how many of them at once, beams
    "single, greedy": (16, 1, 1),
    "batch, greedy": (32, 32, 1),
    "single, beam 4": (8, 1, 4),
    "batch, beam 4": (32, 32, 4),
}
LONG_LINES = (150, 300, 600)  # words without a full stop
OURS = "ours"
THEIRS = "theirs"
Translate = Callable[[list[str], int, dict[str, int]], list[int]]  # texts, beams, options -> lengths of translations


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="counted turns, after one that is not")
    parser.add_argument("--work", nargs=2, metavar=("PROGRAM", "FOLDER"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.work:
        work(*arguments.work)
        return
    from tests.ctranslate2.judge import LINES, VERSION, Judge, pieces
    from tests.ctranslate2.variants import MARIAN

    with tempfile.TemporaryDirectory() as temporary:
        judge = Judge(Path(tempfile.gettempdir()))
        tokens = pieces()
        tokens += [f"\u2581word{index}" for index in range(VOCABULARY - len(tokens) - 4)]
        folder = judge.build(Path(temporary, "model"), tokens, **MARIAN, **SIZES, quantization="int8")
        programs = {name: Program(name, folder, judge.site) for name in (OURS, THEIRS)}
        result = {"ctranslate2": VERSION, **measure(programs, LINES, arguments.rounds)}
    print(json.dumps(result, indent=1))


class Program:
    """A process that translates with one of the programs."""

    def __init__(self, name: str, folder: Path, site: Path) -> None:
        self.megabytes = 0.0
        paths = {} if name == OURS else {"PYTHONPATH": str(site)}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.ctranslate2.speed", "--work", name, str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1", **paths},
        )

    def ask(self, texts: list[str], at_once: int, beams: int, **options: int) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([texts, at_once, beams, options]) + "\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        self.megabytes = answer["megabytes"]
        return answer


def measure(programs: dict[str, Program], lines: list[str], rounds: int) -> dict[str, Any]:
    result: dict[str, Any] = {}
    seconds: dict[tuple[str, str, str], list[float]] = {}
    for turn in range(rounds + 1):
        for workload, (count, at_once, beams) in WORKLOADS.items():
            for name, program in programs.items():
                answer = program.ask(
                    lines[:count], at_once, beams, max_new_tokens=NUM_TOKENS, min_new_tokens=NUM_TOKENS
                )
                assert answer["lengths"] == [NUM_TOKENS] * count, answer
                for clock in ("processor", "wall") if turn else ():
                    seconds.setdefault((workload, name, clock), []).append(answer[clock])
    for workload in WORKLOADS:
        times = zip(*(seconds[workload, name, "processor"] for name in (THEIRS, OURS)), strict=True)
        ratios = [their_time / our_time for their_time, our_time in times]
        result[workload] = {
            "ratio": [round(value, 2) for value in (statistics.median(ratios), min(ratios), max(ratios))],
            **{
                f"{name}, {clock}": [round(value, 2) for value in values]
                for (timed, name, clock), values in seconds.items()
                if timed == workload
            },
        }
    result["megabytes"] = {name: round(program.megabytes) for name, program in programs.items()}
    words = [word for line in lines for word in line.split() if word.isalpha()]
    result["tokens of long lines"] = {
        name: {num_words: program.ask([" ".join(words[:num_words])], 1, 1)["lengths"] for num_words in LONG_LINES}
        for name, program in programs.items()
    }
    return result


# ---- the process of a program
def work(program: str, folder: str) -> None:
    """Answer each line of JSON with the seconds, the memory, and the tokens of the translations or an error."""
    translate = (ours if program == OURS else theirs)(folder)
    for line in sys.stdin:
        texts, at_once, beams, options = json.loads(line)
        wall, processor = time.perf_counter(), time.process_time()
        lengths: list[Any] = []
        try:
            for index in range(0, len(texts), at_once):
                lengths += translate(texts[index : index + at_once], beams, options)
        except RuntimeError as error:
            lengths = [str(error)]
        wall, processor = time.perf_counter() - wall, time.process_time() - processor
        megabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        answer = {"lengths": lengths, "wall": wall, "processor": processor, "megabytes": megabytes}
        print(json.dumps(answer), flush=True)


def ours(folder: str) -> Translate:
    from capsule_mt import Translator

    translator = Translator.from_pretrained(folder, int8=True)
    logging.disable()  # the limit of tokens is meant

    def translate(texts: list[str], beams: int, options: dict[str, int]) -> list[int]:
        translations = translator(
            texts, num_beams=beams, scores=False, split_sentences=not options, batch_size=32, **options
        )
        segments = [translation.segments for translation in translations]
        return [sum(len(part.target_ids) - 1 - (not part.was_cut) for part in parts) for parts in segments]

    return translate


def theirs(folder: str) -> Translate:
    import ctranslate2
    import sentencepiece

    pieces = sentencepiece.SentencePieceProcessor(model_file=f"{folder}/sentencepiece.model")
    translator = ctranslate2.Translator(folder, compute_type="int8", inter_threads=1, intra_threads=1)

    def translate(texts: list[str], beams: int, options: dict[str, int]) -> list[int]:
        limits = {name.replace("new_tokens", "decoding_length"): value for name, value in options.items()}
        results = translator.translate_batch(
            pieces.encode(texts, out_type=str), beam_size=beams, max_batch_size=32, **limits
        )
        return [len(result.hypotheses[0]) for result in results if pieces.decode(result.hypotheses[0])]

    return translate


if __name__ == "__main__":
    main()
