"""Decoding speed of `to_fast` beside stock `generate()` and, where it is installed, CTranslate2.

The same random weights, sources and number of tokens for all: 32 source tokens, 40 forced target tokens, the end token
suppressed. Everything takes turns in one process; the clock is processor time, so one thread is what it measures.
"""

import argparse
import importlib.util
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from tqdm import tqdm

from capsule_mt.models.shortlist import Shortlist
from hf_capsule_mt.decoding.fast import FastTranslator
from hf_capsule_mt.evaluation.results import markdown_table
from lab.model_speed import SIZES, build
from lab.timing import time_in_turns
from lab.trained_engines import ctranslate2_engine

SOURCE_LENGTH, NEW_TOKENS = 32, 40
CELLS = {
    "batch 1, greedy": (1, 1),
    "batch 1, beam 5": (1, 5),
    "batch 16, greedy": (16, 1),
    "batch 16, beam 5": (16, 5),
}
STOCK, CTRANSLATE2 = "stock generate()", "CTranslate2 int8, plain"
# title -> system, whether in int8
ENGINES: dict[str, tuple[str, bool]] = {
    "native int8, plain": ("stock", True),
    "native int8, EM routing of layers": ("em_routing", True),
    "native int8, PAST and FUTURE": ("guided", True),
    "native int8, plain, with a shortlist": ("stock", True),
    "native int8, CapsNMT": ("capsnmt", True),
    "native float32, plain": ("stock", False),
}
Runner = Callable[[torch.Tensor, int], object]


def measure_engines(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the milliseconds of every engine in every cell: the median of the turns."""
    torch.set_num_threads(1)
    size = SIZES[arguments.size]
    runners = _runners(size)
    milliseconds: dict[str, dict[str, float]] = {}
    with tqdm(total=len(CELLS) * len(runners) * (arguments.repeats + 1)) as bar:
        for cell, (batch, beams) in CELLS.items():
            ids = torch.randint(
                2, size["vocab_size"], (batch, SOURCE_LENGTH), generator=torch.Generator().manual_seed(batch)
            )
            timings = time_in_turns(
                {name: partial(run, ids, beams) for name, run in runners.items()},
                arguments.repeats,
                progress=lambda: bar.update() and None,
                clock=time.process_time,
            )
            milliseconds[cell] = {name: 1000 * timing.median for name, timing in timings.items()}
    return {"kind": "engines", "size": arguments.size, "repeats": arguments.repeats, "milliseconds": milliseconds}


def _runners(size: dict[str, int]) -> dict[str, Runner]:
    models = {system: build(system, size, "cpu").eval() for system, _ in ENGINES.values()}
    for model in models.values():
        model.generation_config.forced_eos_token_id = None
        model.generation_config.max_length = None

    def generating(generate: Callable[..., object]) -> Runner:
        def run(ids: torch.Tensor, beams: int) -> object:
            return generate(ids, num_beams=beams, max_new_tokens=NEW_TOKENS, min_new_tokens=NEW_TOKENS)

        return run

    stock: Any = models["stock"]
    runners = {STOCK: generating(stock.generate)}
    for title, (system, int8) in ENGINES.items():
        shortlist = _shortlist(size["vocab_size"]) if "with a shortlist" in title else False
        fast = FastTranslator(models[system], int8=int8, shortlist=shortlist, strict=True)
        runners[title] = generating(fast.generate)
    if importlib.util.find_spec("ctranslate2"):
        engine = ctranslate2_engine(stock, 1, int8=True)
        runners[CTRANSLATE2] = lambda ids, beams: engine(ids.tolist(), beams, NEW_TOKENS, NEW_TOKENS)
    return runners


def _shortlist(vocabulary: int) -> Shortlist:
    """50 translations of each token, at random, and 100 frequent tokens: real ones overlap more."""
    draws = torch.randint(2, vocabulary, (vocabulary, 50), generator=torch.Generator().manual_seed(0))
    return Shortlist.of_translations(
        dict(enumerate(draws.tolist())), range(min(100, vocabulary)), (vocabulary, vocabulary)
    )


def render_engines(result: Mapping[str, Any]) -> str:
    """Return how many times as fast as stock `generate()` each engine is, and as CTranslate2, as Markdown."""
    milliseconds = result["milliseconds"]
    names = list(next(iter(milliseconds.values())))
    rows = []
    for name in names:
        cells = []
        for timings in milliseconds.values():
            text = f"{timings[STOCK] / timings[name]:.1f}"
            if CTRANSLATE2 in timings and name not in (STOCK, CTRANSLATE2):
                text += f" ({timings[CTRANSLATE2] / timings[name]:.2f})"
            cells.append(text)
        rows.append([name, *cells])
    return markdown_table(["speed relative to stock (to CTranslate2)", *milliseconds], rows) + "\n"
