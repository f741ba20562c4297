"""Engines on a student of Firefox Translations: sentences a second and memory, beside native Bergamot.

Everything takes turns on one thread, by processor time: text in, text out. Bergamot is greedy, takes the shortlist,
runs in a process of its own (`lab/bergamot_worker.py`) and makes its own batches. Memory is measured in a process for
each engine, on Linux.
"""

import argparse
import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from capsule_mt import CoverageOptions, Translator
from capsule_mt.engine.library import VERSION
from capsule_mt.files.reading import read_lines
from lab.bergamot_worker import peak_mib
from lab.timing import time_in_turns

# title -> how the engine here is loaded, and whether marks of left-out words are asked for
OUR_ENGINES: dict[str, tuple[dict[str, Any], bool]] = {
    "int8, shortlist": ({"int8": True, "shortlist": True}, False),
    "int8, shortlist, with marks": ({"int8": True, "shortlist": True}, True),
    "int8, all tokens": ({"int8": True}, False),
    "float32, shortlist": ({"shortlist": True}, False),
}
Texts = Sequence[str]
# texts, how many go through the model at once, and beams -> translations
Engine = Callable[[Texts, int, int], list[str]]


def our_engine(folder: Path, settings: dict[str, Any], with_marks: bool) -> Engine:
    """Return the engine here on the student in a folder."""
    translator = Translator.from_pretrained(folder, **settings)
    translator.loaded.decoder.engine.num_threads = 1  # type: ignore[attr-defined]
    if with_marks and translator.calibration.head is None:
        raise ValueError(f"{folder} has no head that aligns words: `capsule-mt calibrate --output` copies one with it")
    coverage = CoverageOptions(method="attention") if with_marks else None

    def translate(texts: Texts, batch_size: int, num_beams: int) -> list[str]:
        translations = translator(
            list(texts), batch_size=batch_size, num_beams=num_beams, coverage=coverage, scores=False
        )
        return [translation.text for translation in translations]

    return translate


class BergamotProcess:
    """Native Bergamot on the student in a folder, under another Python, until it is closed.

    `seconds` of processor time, `mib` and `version` are what its last answer said.
    """

    def __init__(self, python: str, folder: Path) -> None:
        self.seconds = self.mib = 0.0
        self.version = ""
        command = [python, str(Path(__file__).parent / "bergamot_worker.py"), str(folder)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __call__(self, texts: Texts, batch_size: int, num_beams: int) -> list[str]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(json.dumps({"texts": list(texts), "batch_size": batch_size}), file=self.process.stdin, flush=True)
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"native Bergamot ended with exit code {self.process.wait()}: its message is above")
        answer = json.loads(line)
        self.seconds, self.mib, self.version = answer["seconds"], answer["mib"], answer["version"]
        return [str(text) for text in answer["texts"]]

    def clock(self) -> float:
        """Return the processor time of both processes; only one of them works at a time."""
        return time.process_time() + self.seconds

    def close(self) -> None:
        """End the process, which stops at the end of its input."""
        self.process.communicate()


def memory_of(folder: Path, title: str, text: str) -> float:
    """Return the MiB by which a process grows that translates a text with an engine."""
    code = "from lab.student_engines import *; print(grown(Path(sys.argv[1]), *sys.argv[2:]))"
    command = [sys.executable, "-c", code, str(folder), title, text]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def grown(folder: Path, title: str, text: str) -> float:
    """Return the MiB by which this process grows: see `memory_of`."""
    start_mib = peak_mib()
    our_engine(folder, *OUR_ENGINES[title])([text], 1, 1)
    return peak_mib() - start_mib


def cells_of(arguments: argparse.Namespace, title: str) -> Iterator[tuple[int, int]]:
    """Yield the sizes of batches and beams that an engine has."""
    for num_beams in arguments.num_beams if title in OUR_ENGINES else [1]:
        yield from ((batch_size, num_beams) for batch_size in arguments.batch_sizes)


def measure_students(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return sentences a second, how many texts equal the first engine's, and MiB of each engine and student."""
    os.environ["OMP_NUM_THREADS"] = "1"
    texts = [line for line in read_lines(arguments.input) if line.strip()][: arguments.sentences]
    students = {folder.name: _measure_student(folder, texts, arguments) for folder in arguments.students}
    about = {"kind": "student_engines", "sentences": len(texts), "repeats": arguments.repeats}
    return {**about, "engine_version": VERSION, "students": students}


def _measure_student(folder: Path, texts: Texts, arguments: argparse.Namespace) -> dict[str, Any]:
    has_marks = Translator.from_pretrained(folder, int8=True).calibration.head is not None
    titles = [title for title, (_, with_marks) in OUR_ENGINES.items() if has_marks or not with_marks]
    memory = {title: memory_of(folder, title, texts[0]) for title in titles}
    engines = {title: our_engine(folder, *OUR_ENGINES[title]) for title in titles}
    outputs: dict[tuple[str, int, int], list[str]] = {}

    def run_of(cell: tuple[str, int, int]) -> Callable[[], None]:
        def run() -> None:
            outputs[cell] = engines[cell[0]](texts, *cell[1:])

        return run

    with contextlib.ExitStack() as stack:
        clock: Callable[[], float] = time.process_time
        if arguments.bergamot:
            bergamot = BergamotProcess(arguments.bergamot, folder)
            stack.callback(bergamot.close)
            bergamot(texts[:1], 1, 1)
            title = f"bergamot {bergamot.version}"
            titles, memory[title], engines[title], clock = [title, *titles], bergamot.mib, bergamot, bergamot.clock
        cells = [(title, *cell) for title in titles for cell in cells_of(arguments, title)]
        runs = {str(cell): run_of(cell) for cell in cells}
        timings = time_in_turns(runs, arguments.repeats, folder.name, clock)
    expected = [" ".join(text.split()) for text in outputs[titles[0], 1, 1]]
    return {
        title: {
            "mib": memory[title],
            "same": sum(
                " ".join(text.split()) == expected_text
                for text, expected_text in zip(outputs[title, 1, 1], expected, strict=True)
            ),
            "sentences_per_second": {
                f"{batch_size}, {num_beams}": len(texts) / timings[str((title, batch_size, num_beams))]
                for batch_size, num_beams in cells_of(arguments, title)
            },
        }
        for title in titles
    }


def render_students(result: dict[str, Any]) -> str:
    """Return a result as Markdown: sentences a second, and how many times as many as the first engine's."""
    from hf_capsule_mt.evaluation.results import markdown_table

    parts = [
        f"# Engines on students of Firefox Translations\n\n`{result['command']}` on {result['hardware']['cpu']}, one "
        f"thread, {result['date'][:10]}, engine {result['engine_version']}: "
        f"{result['sentences']} sentences, medians of {result['repeats']} turns by processor time. Sentences a "
        "second, and how many times as many as the first engine's."
    ]
    for name, engines in result["students"].items():
        first = next(iter(next(iter(engines.values()))["sentences_per_second"].values()))
        cells = list(dict.fromkeys(cell for engine in engines.values() for cell in engine["sentences_per_second"]))
        header = ["engine", *(f"batch {batch}, beam {beam}" for batch, beam in (cell.split(", ") for cell in cells))]
        rows = []
        for title, engine in engines.items():
            speeds = engine["sentences_per_second"]
            shown = [f"{speeds[cell]:.0f} ({speeds[cell] / first:.1f})" if cell in speeds else "-" for cell in cells]
            rows.append([title, *shown, str(engine["same"]), f"{engine['mib']:.0f}"])
        parts.append(f"## {name}\n\n" + markdown_table([*header, "same texts", "MiB"], rows))
    return "\n\n".join(parts) + "\n"
