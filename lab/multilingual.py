"""The engine on a model of NLLB-200's shape with random weights, beside CTranslate2, both in int8.

Each engine runs on one thread in a process of its own (`lab/multilingual_worker.py`), which counts its processor time
and its memory. They translate the same batches in turns: 32 source tokens, 40 forced target tokens. Random weights
take the time of trained ones, except in the preview of a greedy search: it is faster if the best token stands out.
"""

import argparse
import json
import random
import statistics
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from tqdm import tqdm
from transformers import M2M100Config, M2M100ForConditionalGeneration

from capsule_mt.conversions.to_int8 import write_int8
from capsule_mt.engine.library import VERSION, native_tier

SIZES = {
    "600M": {"vocab_size": 256206, "d_model": 1024, "layers": 12, "ffn_dim": 4096, "attention_heads": 16},
    "tiny": {"vocab_size": 1000, "d_model": 64, "layers": 2, "ffn_dim": 128, "attention_heads": 4},
}
SOURCE_TOKENS, TARGET_TOKENS = 32, 40
CTRANSLATE2 = "CTranslate2"
WORKER = Path(__file__).parent / "multilingual_worker.py"
END = 2


def write_model(folder: Path, size: str) -> None:
    """Write a checkpoint with random weights in float16, a tensor at a time."""
    sizes = SIZES[size]
    names = ("layers", "ffn_dim", "attention_heads")
    settings: dict[str, Any] = {f"{side}_{name}": sizes[name] for side in ("encoder", "decoder") for name in names}
    settings |= {"dtype": "float16", "decoder_start_token_id": END}
    config = M2M100Config(vocab_size=sizes["vocab_size"], d_model=sizes["d_model"], **settings)
    config.architectures = ["M2M100ForConditionalGeneration"]
    with torch.device("meta"):
        shapes = {name: weight.shape for name, weight in M2M100ForConditionalGeneration(config).named_parameters()}
    generator = torch.Generator().manual_seed(7)
    weights = {}
    for name, shape in shapes.items():
        numbers = torch.randn(shape, generator=generator)
        if len(shape) > 1:
            numbers *= shape[1] ** -0.5
        else:
            numbers = 0.02 * numbers + (1.0 if "norm" in name and name.endswith("weight") else 0.0)
        weights[name] = numbers.half()
    config.save_pretrained(folder)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


class Worker:
    """An engine in a process of its own; `loaded` and `answer` are what it said of its memory and time."""

    def __init__(self, python: str, kind: str, folder: Path) -> None:
        self.title = kind
        command = [python, str(WORKER), kind, str(folder)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.loaded = self._read()
        self.answer: dict[str, Any] = {"seconds": 0.0}

    def seconds(self, request: dict[str, Any]) -> float:
        """Return the processor time of a batch."""
        assert self.process.stdin is not None
        start_seconds = self.answer["seconds"]
        print(json.dumps(request), file=self.process.stdin, flush=True)
        self.answer = self._read()
        if set(self.answer["lengths"]) != {request["num_tokens"]}:
            raise RuntimeError(f"expected {request['num_tokens']} tokens, got {self.answer['lengths']}")
        return float(self.answer["seconds"] - start_seconds)

    @property
    def memory(self) -> dict[str, float]:
        """The MiB of the process after its last answer, and the most it has had."""
        return {name: self.answer[name] for name in ("mib", "peak_mib")}

    def _read(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.title} ended with exit code {self.process.wait()}: its message is above")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def close(self) -> None:
        self.process.communicate()


def measure_multilingual(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the seconds of every engine in every cell and turn, and what loading takes."""
    folder: Path = arguments.folder / arguments.size
    checkpoint, int8, converted = (folder / name for name in ("checkpoint", "int8", "ctranslate2"))
    python = arguments.ctranslate2 or (sys.executable if find_spec("ctranslate2") else None)
    if not (checkpoint / "config.json").exists():
        write_model(checkpoint, arguments.size)
    if not (int8 / "config.json").exists():
        write_int8(checkpoint, int8)
    workers = {"int8": Worker(sys.executable, "capsule_mt", int8)}
    if python is not None:
        if not converted.exists():
            subprocess.run([python, str(WORKER), "convert", str(checkpoint), str(converted)], check=True)
        workers[CTRANSLATE2] = Worker(python, "ctranslate2", converted)
    vocabulary = SIZES[arguments.size]["vocab_size"]
    engines: dict[str, tuple[Worker, int | None]] = {title: (worker, None) for title, worker in workers.items()}
    for share in arguments.shortlists:
        engines[f"int8, a shortlist of {share:.0%}"] = workers["int8"], round(share * vocabulary)
    cells = [(batch, beams) for batch in arguments.batch_sizes for beams in arguments.num_beams]
    seconds = _in_turns(engines, cells, arguments.repeats, vocabulary)
    for worker in workers.values():
        worker.close()
    return {
        "kind": "multilingual",
        "size": arguments.size,
        "repeats": arguments.repeats,
        "engine_version": VERSION,
        "tier": native_tier(),
        "ctranslate2_version": workers[CTRANSLATE2].loaded["version"] if CTRANSLATE2 in workers else None,
        "seconds": seconds,
        "loading": {title: worker.loaded for title, worker in workers.items()},
        "memory": {title: worker.memory for title, worker in workers.items()},
    }


def _in_turns(
    engines: dict[str, tuple[Worker, int | None]], cells: list[tuple[int, int]], repeats: int, vocabulary: int
) -> dict[str, dict[str, list[float]]]:
    """Return the seconds of each turn, by cell and engine; a first turn is not counted."""
    seconds: dict[str, dict[str, list[float]]] = {}
    generator = random.Random(5)
    with tqdm(total=(repeats + 1) * len(cells) * len(engines)) as bar:
        for turn in range(repeats + 1):
            for batch, beams in cells:
                sources = [[*generator.choices(range(4, vocabulary), k=SOURCE_TOKENS - 1), END] for _ in range(batch)]
                request = {"sources": sources, "target": vocabulary - 1, "num_beams": beams}
                request["num_tokens"] = TARGET_TOKENS
                for title, (worker, shortlist) in engines.items():
                    elapsed = worker.seconds(request | {"shortlist": shortlist})
                    if turn:
                        cell = seconds.setdefault(f"batch {batch}, beam {beams}", {})
                        cell.setdefault(title, []).append(elapsed)
                    bar.update()
    return seconds


def render_multilingual(result: dict[str, Any]) -> str:
    """Return a result as Markdown: seconds a batch, how many times as fast as CTranslate2, memory and loading."""
    from hf_capsule_mt.evaluation.results import markdown_table

    titles = list(next(iter(result["seconds"].values())))
    rows = []
    for title in titles:
        cells = []
        for turns in result["seconds"].values():
            text = f"{1000 * statistics.median(turns[title]):.0f}"
            if CTRANSLATE2 in turns and title != CTRANSLATE2:
                ratios = [theirs / ours for ours, theirs in zip(turns[title], turns[CTRANSLATE2], strict=True)]
                text += f" ({statistics.median(ratios):.1f})"
            cells.append(text)
        rows.append([title, *cells])
    loading = []
    for title, loaded in result["loading"].items():
        amounts = [loaded["peak_mib"], loaded["mib"], *(result["memory"][title][name] for name in ("peak_mib", "mib"))]
        loading.append([title, f"{loaded['seconds']:.2f}", *(f"{amount:.0f}" for amount in amounts)])
    judge = f", CTranslate2 {result['ctranslate2_version']}" if result["ctranslate2_version"] else ""
    about = (
        f"# A model of NLLB-200's shape, {result['size']}, with random weights\n\n`{result['command']}` on "
        f"{result['hardware']['cpu']} (tier {result['tier']}), one thread, {result['date'][:10]}, engine "
        f"{result['engine_version']}{judge}. Milliseconds of processor time for a batch with {SOURCE_TOKENS} source "
        f"and {TARGET_TOKENS} target tokens a sentence, medians of {result['repeats']} turns; in brackets, how many "
        "times as fast as CTranslate2: the median of the turns' ratios."
    )
    memory = ["MiB at the peak of loading", "MiB loaded", "MiB at the peak of translating", "MiB at the end"]
    tables = [
        markdown_table(["engine", *result["seconds"]], rows),
        markdown_table(["engine", "seconds to load", *memory], loading),
    ]
    return "\n\n".join([about, *tables]) + "\n"
