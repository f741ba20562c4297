"""Speed, memory and long texts beside CTranslate2, as its users ask for them in its issues; prints JSON.

    CAPSULE_MT_CTRANSLATE2=FOLDER python -m tests.ctranslate2.speed --rounds 3

The model has random weights in int8: 6 + 6 layers of 512, 32,000 tokens. Both translate 64 sentences one at a time,
and in batches of 32, with 4 beams to exactly 24 tokens, so that both do the same work, in turns, each in a process of
its own on one thread. Seconds are those of the processor, which other work on the machine changes little.
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
BIG = {"quantization": "int8", "depths": (6, 6), "heads": 8, "width": 512, "inner": 2048, "num_positions": 600}
NUM_TOKENS, NUM_SENTENCES, BATCH, LENGTH = 32_000, 64, 32, 24
LENGTHS, NUM_MIXED = (5, 10, 20, 40, 80), 60  # in words: a text of each request in a server's life
NUM_LONG = 20
MAX_INPUT = 1024  # tokens that CTranslate2 reads of a text, unless told otherwise
Translate = Callable[[Sequence[str], int], object]


def ours(folder: str) -> Translate:
    from capsule_mt import Translator

    translator = Translator.from_pretrained(folder, int8=True)

    def translate(texts: Sequence[str], length: int) -> object:
        limits = {"min_new_tokens": length, "max_new_tokens": length}
        search = {"num_beams": 4, "length_penalty": 0.2, "copy": False, "split_sentences": False}
        return translator(list(texts), batch_size=BATCH, **limits, **search)

    return translate


def theirs(folder: str) -> Translate:
    import ctranslate2

    from tests.ctranslate2.judge import cut

    translator = ctranslate2.Translator(folder, compute_type="int8", intra_threads=1, inter_threads=1)

    def translate(texts: Sequence[str], length: int) -> object:
        limits = {"min_decoding_length": length, "max_decoding_length": length}
        search = {"beam_size": 4, "length_penalty": 0.2, "return_scores": True}
        return translator.translate_batch(cut(texts), max_batch_size=BATCH, **limits, **search)

    return translate


def megabytes() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return round(pages * os.sysconf("SC_PAGE_SIZE") / 1e6, 1)


def measure(program: str, folder: str) -> dict[str, float]:
    """Return seconds of the processor and megabytes of this process."""
    from tests.ctranslate2.judge import LINES

    translate = {"ours": ours, "theirs": theirs}[program](folder)
    lines, result = LINES[:NUM_SENTENCES], {"megabytes_loaded": megabytes()}
    translate(lines[:1], LENGTH)
    start = time.process_time()
    for line in lines:
        translate([line], LENGTH)
    result["single"] = time.process_time() - start
    start = time.process_time()
    translate(lines, LENGTH)
    result["batch"] = time.process_time() - start
    generator, words = random.Random(1), " ".join(lines).translate(str.maketrans("", "", ".!?")).split()
    for index in range(NUM_MIXED):
        length = generator.choice(LENGTHS)
        start_word = generator.randrange(len(words) - length)
        translate([" ".join(words[start_word : start_word + length])], min(length, 40))
        if index == NUM_MIXED // 2 - 1:
            result["megabytes_half"] = megabytes()
    return {**result, "megabytes_end": megabytes()}


def long_texts(folder: str) -> dict[str, int]:
    """Count the long texts that CTranslate2 reads to their end, and those whose every token is in a part of ours."""
    import ctranslate2

    from capsule_mt import Translator
    from capsule_mt.translate.options import TranslationOptions
    from tests.ctranslate2.judge import LINES, cut

    texts = [
        ", ".join(LINES[40 * index : 40 * index + 100]).translate(str.maketrans("", "", ".!?"))
        for index in range(NUM_LONG)
    ]
    sources = cut(texts)
    assert min(map(len, sources)) > MAX_INPUT
    translator = ctranslate2.Translator(folder, intra_threads=1)
    of_whole, of_beginning = (
        [result.hypotheses[0] for result in translator.translate_batch(batch, beam_size=1, max_decoding_length=8)]
        for batch in (sources, [source[:MAX_INPUT] for source in sources])
    )
    own = Translator.from_pretrained(folder)
    documents = own.documents(texts, own.plan(TranslationOptions()))
    parts = ["".join(piece.text for piece in document.pieces).replace(" ", "") for document in documents]
    return {
        "texts": len(texts),
        "theirs_read": sum(whole != beginning for whole, beginning in zip(of_whole, of_beginning, strict=True)),
        "ours_read": sum(part == text.replace(" ", "") for part, text in zip(parts, texts, strict=True)),
        "tokens": min(map(len, sources)),
    }


def in_process(site: Path, *arguments: str) -> Any:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(site), str(ROOT)]), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "tests.ctranslate2.speed", "--run", *arguments]
    ended = subprocess.run(
        command, env=environment, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True
    )
    return json.loads(ended.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--run", nargs=2, metavar=("PROGRAM", "FOLDER"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.run is not None:
        program, folder = arguments.run
        print(json.dumps(long_texts(folder) if program == "long" else measure(program, folder)))
        return
    from tests.ctranslate2.judge import Judge, pieces

    with tempfile.TemporaryDirectory() as temporary:
        judge = Judge(Path(temporary))
        tokens = pieces()
        tokens += [f"x{index}" for index in range(NUM_TOKENS - 4 - len(tokens))]
        big = str(judge.build(Path(temporary, "big"), tokens, **BIG))
        long = str(judge.build(Path(temporary, "long"), num_positions=5000, spec={"pre_norm": False}))
        runs = [
            (program, in_process(judge.site, program, big))
            for _ in range(arguments.rounds)
            for program in ("theirs", "ours")
        ]
        results = {
            program: {name: [round(run[name], 2) for who, run in runs if who == program] for name in runs[0][1]}
            for program in ("ours", "theirs")
        }
        ratios = {
            name: round(statistics.median(results["theirs"][name]) / statistics.median(results["ours"][name]), 2)
            for name in ("single", "batch")
        }
        print(json.dumps({**results, "times_as_fast": ratios, "long": in_process(judge.site, "long", long)}))


if __name__ == "__main__":
    main()
