"""Measure everything that wants a GPU, in one command and a given time: tests, kernels, waits, training, decoding.

    python -m lab.gpu --minutes 25 --output outputs/gpu                         # one GPU
    python -m lab.gpu --tiny --output outputs/gpu-tiny                          # on a CPU: does every line run?
    python -m lab.gpu --sections train decode --minutes 10 --output outputs/gpu

Writes gpu.json after every measurement, so that a run that is cut off keeps what it has, and table.md, the table of
docs/training.md. Each section has a share of the minutes, begins with what matters most, and is named in "skipped" if
its share was too short for all of it.
"""

import argparse
import contextlib
import copy
import re
import signal
import subprocess
import sys
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile
from transformers import PreTrainedModel

from capsule_mt.commands.console import HelpFormatter, run
from hf_capsule_mt.evaluation import write_result
from hf_capsule_mt.routing import additive_scores, chunks, dynamic_routing, em_routing
from lab.core_speed import routing_form
from lab.gpu_table import SYSTEMS, render_table
from lab.model_speed import SIZES, TrainingStep, build
from lab.timing import peak_memory, time_in_turns

FORMS = ("plain", "chunked")
CHUNK_POWERS = (18, 20, 21, 22, 23, 25, 27)
TEST_FILES = ("tests/gpu/test_routing.py", "tests/gpu/test_models.py")  # kernels first
OWN_FILES = r"(hf_capsule_mt|transformers)/[a-z_/]+\.py$"
SECONDS_IN_RESERVE = 20.0  # without which no measurement begins
COMPILING_TESTS = "compiled or static"  # these take minutes, and come last
# what is compiled for each model, first
STATIC_SYSTEMS = sorted(SYSTEMS, key=lambda system: system not in ("stock", "em_routing", "guided", "capsnmt"))
# the sections, and their shares of the time
SECTIONS = {
    "tests": 4, "kernels": 3, "waits": 1, "train": 6, "decode": 5, "static": 3, "compiling_tests": 3,
}  # fmt: skip


class OutOfTimeError(Exception):
    """The given minutes are over."""


class Measurements:
    """The sections, with the sizes and the clock that they share."""

    def __init__(self, tiny: bool, minutes: float, folder: Path) -> None:
        self.tiny, self.folder = tiny, folder
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        self.deadline = self.end = time.monotonic() + 60 * minutes
        self.models: dict[str, PreTrainedModel] = {}
        self.size = SIZES["tiny" if tiny else "base"]
        self.result: dict[str, Any] = {
            "device": torch.cuda.get_device_name() if self.device == "cuda" else "cpu",
            "tiny": tiny,
            "skipped": [],
            "errors": {},
        }

    def write(self) -> None:
        write_result(self.folder / "gpu.json", self.result)
        (self.folder / "table.md").write_text(render_table(self.result) + "\n", encoding="utf-8")

    def keep(self, section: str, name: str, measure: Callable[..., Any], *arguments: Any) -> None:
        """Measure one thing, and write the result or the error."""
        if time.monotonic() + (0 if self.tiny else SECONDS_IN_RESERVE) > self.deadline:
            raise OutOfTimeError
        try:
            self.result.setdefault(section, {})[name] = measure(*arguments)
        except Exception as error:
            self.result["errors"][f"{section} {name}"] = f"{error!r}\n{traceback.format_exc()[-800:]}"
        finally:
            if self.device == "cuda":
                torch.cuda.empty_cache()
        self.write()
        print(f"{section} {name}", flush=True)

    def seconds(self, function: Callable[[], Any], repeats: int = 5, warmup: int = 2) -> float:
        synchronize = torch.cuda.synchronize if self.device == "cuda" else None
        repeats, warmup = (1, 1) if self.tiny else (repeats, warmup)
        return time_in_turns({"": function}, repeats, warmup=warmup, synchronize=synchronize)[""].median

    # ---- sections
    def tests(self) -> None:
        """Run tests/gpu in a process of its own, without what compiles."""
        self.keep("tests", "tests/gpu", self.run_tests, f"not ({COMPILING_TESTS})")

    def compiling_tests(self) -> None:
        """Run the rest of tests/gpu."""
        self.keep("tests", "compiling tests/gpu", self.run_tests, "static" if self.tiny else COMPILING_TESTS)

    def run_tests(self, which: str) -> dict[str, Any]:
        command = [sys.executable, "-m", "pytest", "-q", "--tb=short", "-p", "no:cacheprovider", *TEST_FILES]
        command += ["-k", which] + ([] if self.device == "cuda" else ["--tiny"])
        with (self.folder / "tests.txt").open("w+", encoding="utf-8") as output:
            process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
            try:
                process.wait(max(60.0, self.deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGINT)  # pytest then reports what it has
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(SECONDS_IN_RESERVE)
            finally:
                process.kill()  # a compilation may not hear the signal
                process.wait()
            output.seek(0)
            said = output.read()
        counts = {word: int(number) for number, word in re.findall(r"(\d+) (passed|failed|skipped|error)", said)}
        return counts | {"output": said[-6000:]}

    def kernels(self) -> None:
        """Forward and backward of each routing form, as a share of the bandwidth of a copy; chunk sizes swept."""
        self.keep("kernels", "copy", self.copy_bandwidth)
        cases = [(dtype, routing) for dtype in (torch.bfloat16, torch.float32) for routing in ("em", "dynamic")]
        for form in reversed(FORMS):
            for dtype, routing in cases:
                self.keep_kernel(routing, dtype, form, None)
        self.keep("kernels", "scores float32 chunked", self.scores_kernel)
        for dtype, routing in cases:
            for power in CHUNK_POWERS[:1] if self.tiny else CHUNK_POWERS:
                self.keep_kernel(routing, dtype, "chunked", power)

    def keep_kernel(self, routing: str, dtype: torch.dtype, form: str, power: int | None) -> None:
        name = f"{routing} {dtype_name(dtype)} {form}" + ("" if power is None else f" 2^{power}")
        self.keep("kernels", name, self.routing_kernel, routing, dtype, form, power)

    def copy_bandwidth(self) -> dict[str, float]:
        source = torch.empty(2**16 if self.tiny else 2**28, device=self.device)
        target = torch.empty_like(source)
        moved = 2 * source.numel() * source.element_size()
        return {"bytes_per_second": moved / self.seconds(lambda: target.copy_(source))}

    def routing_kernel(self, routing: str, dtype: torch.dtype, form: str, power: int | None) -> dict[str, float]:
        """Measure a form, with chunks of 2^power numbers or of the size that it chooses."""
        positions, layers, width = (64, 2, 32) if self.tiny else (32768, 6, 512)
        votes = torch.randn(positions, layers, width, 1, device=self.device).to(dtype).requires_grad_()
        betas = torch.zeros(2, width, device=self.device, requires_grad=True)
        grad = torch.randn(positions, width, 1, device=self.device).to(dtype)
        settings: dict[str, Any] = {"num_iterations": 3, "return_weights": False}

        def both() -> None:
            votes.grad = betas.grad = None
            if routing == "em":
                routed = em_routing(votes, beta_a=betas[0], beta_u=betas[1], **settings)
            else:
                routed = dynamic_routing(votes, normalize_total_input=True, **settings)
            routed.capsules.backward(grad)

        # votes are read twice and their gradient is written; capsules are written and their gradient is read
        least = (3 * votes.numel() + 2 * grad.numel()) * votes.element_size()
        with routing_form(form), contextlib.nullcontext() if power is None else chunks_of(2**power):
            return self.kernel(both, least)

    def scores_kernel(self) -> dict[str, float]:
        rows, words, width = (2, 5, 8) if self.tiny else (128 * 12, 32, 256)
        query, keys = (torch.randn(rows, words, width, device=self.device, requires_grad=True) for _ in range(2))
        weight = torch.randn(width, device=self.device, requires_grad=True)

        def both() -> None:
            query.grad = keys.grad = weight.grad = None
            additive_scores(query, keys, weight).sum().backward()

        with routing_form("chunked"):
            return self.kernel(both, 6 * query.numel() * query.element_size())

    def kernel(self, function: Callable[[], Any], least: int) -> dict[str, float]:
        seconds = self.seconds(function)
        copied = self.result["kernels"]["copy"]["bytes_per_second"]
        return {"seconds": seconds, "share_of_copy": least / seconds / copied, **self.launches(function)}

    def launches(self, function: Callable[[], Any]) -> dict[str, float]:
        """Count the kernels of a call and their seconds."""
        if self.device == "cpu":
            return {}
        with profile(activities=[ProfilerActivity.CUDA]) as recorded:
            function()
            torch.cuda.synchronize()
        kernels = [event for event in recorded.events() if event.device_type != torch.autograd.DeviceType.CPU]
        return {"launches": len(kernels), "kernel_seconds": sum(e.time_range.elapsed_us() for e in kernels) / 1e6}

    def waits(self) -> None:
        """Where a training step and a decoding step wait for the device, by file and line; how much they launch."""
        for system in SYSTEMS:
            self.keep("waits", system, self.waits_of, system)

    def waits_of(self, system: str) -> dict[str, Any]:
        step = self.training_step(system, 64 if self.tiny else 4096)
        source = step.batch["input_ids"][:4]
        mask = torch.ones_like(source)
        mask[0, -2:] = 0
        found: dict[str, Any] = {"training": self.count_waits(step), "training_launches": self.launches(step)}
        model = step.model.eval()
        few, many = (self.count_waits(generation(model, source, words, 4, attention_mask=mask)) for words in (4, 14))
        return found | {"decoding_step": {place: (number - few[place]) / 10 for place, number in many.items()}}

    def count_waits(self, function: Callable[[], Any]) -> Counter[str]:
        function()  # what is set up once may wait
        found: Counter[str] = Counter()
        if self.device == "cuda":
            torch.cuda.set_sync_debug_mode("warn")
            try:
                with counted_warnings(found):
                    function()
            finally:
                torch.cuda.set_sync_debug_mode("default")
        return found

    def training_step(self, system: str, tokens: int) -> TrainingStep:
        return TrainingStep(self.build(system), tokens, 8 if self.tiny else 32)

    def build(self, system: str) -> Any:
        """Copy a model to the device; random weights are drawn once."""
        if system not in self.models:
            self.models[system] = build(system, self.size, "cpu")
        return copy.deepcopy(self.models[system]).to(self.device)  # type: ignore[arg-type]

    def train(self) -> None:
        """Target tokens a second, and the peak of memory, of a training step."""
        sizes = [(64, dtype) for dtype in (torch.bfloat16, torch.float32)]
        if not self.tiny:
            sizes = [(tokens, dtype) for tokens in (32768, 8192) for dtype in (torch.bfloat16, torch.float32)]
        for tokens, dtype in sizes:
            for system in SYSTEMS:
                name = f"{system} {tokens} {dtype_name(dtype)}"
                self.keep("train", name, self.training_speed, system, tokens, dtype)

    def training_speed(self, system: str, tokens: int, dtype: torch.dtype) -> dict[str, float]:
        step = self.training_step(system, tokens)

        def once() -> None:
            with torch.autocast(self.device, dtype, enabled=dtype != torch.float32):
                step()

        seconds = self.seconds(once, 3)
        return {"tokens_per_second": tokens / seconds, "peak_bytes": peak_memory(once, self.device)}

    def decode(self) -> None:
        """Sentences a second of `generate()`, 32 words to 40 words."""
        for dtype in (torch.bfloat16, torch.float32) if self.device == "cuda" else (torch.float32,):
            some, others = ((2, 1), ()) if self.tiny else ((128, 1), (16, 512))  # the table has some, greedy
            for rows, beams in [(rows, beams) for part in (some, others) for beams in (1, 5) for rows in part]:
                for system in SYSTEMS:
                    name = f"{system} {dtype_name(dtype)} {rows} rows {beams} beams"
                    self.keep("decode", name, self.decoding_speed, system, dtype, rows, beams)

    def decoding_speed(
        self, system: str, dtype: torch.dtype, rows: int, beams: int, **settings: Any
    ) -> dict[str, float]:
        return self.sentences_per_second(self.build(system).to(dtype).eval(), rows, beams, **settings)

    def sentences_per_second(self, model: Any, rows: int, beams: int, **settings: Any) -> dict[str, float]:
        source = torch.randint(2, self.size["vocab_size"], (rows, 32), device=self.device)
        decoding = generation(model, source, 4 if self.tiny else 40, beams, **settings)
        start = time.perf_counter()
        decoding()
        first = time.perf_counter() - start
        return {"first_seconds": first, "sentences_per_second": rows / self.seconds(decoding, 2, 1)}

    def static(self) -> None:
        """The same at batch 1 with a static cache, whose step transformers compiles to a CUDA graph."""
        for system in STATIC_SYSTEMS:
            self.keep("static", system, self.static_speed, system)

    def static_speed(self, system: str) -> dict[str, float]:
        settings = {"cache_implementation": "static", "disable_compile": self.device == "cpu"}
        return self.decoding_speed(system, torch.float32, 1, 1, **settings)


def generation(
    model: PreTrainedModel, source: torch.Tensor, num_words: int, num_beams: int, **settings: Any
) -> Callable[[], Any]:
    """Return a call of `generate()` that ends after `num_words` words."""
    generate: Any = model.generate
    return lambda: generate(
        source, num_beams=num_beams, min_new_tokens=num_words, max_new_tokens=num_words, **settings
    )


@contextlib.contextmanager
def chunks_of(numbers: int) -> Iterator[None]:
    """Let chunks hold so many numbers."""
    before, chunks.chunk_numbers = chunks.chunk_numbers, lambda tensor, total=None: numbers
    try:
        yield
    finally:
        chunks.chunk_numbers = before


@contextlib.contextmanager
def counted_warnings(found: Counter[str]) -> Iterator[None]:
    """Count warnings by the innermost line of this package or of transformers that they come from."""

    def note(*_: Any, **__: Any) -> None:
        frames = [(re.search(OWN_FILES, frame.filename), frame.lineno) for frame in traceback.extract_stack()]
        places = [f"{match[0]}:{line}" for match, line in frames if match]
        found[places[-1] if places else "elsewhere"] += 1

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = note
        yield


def dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=HelpFormatter)
    parser.add_argument("--minutes", type=float, default=25, help="when to stop")
    parser.add_argument("--output", type=Path, required=True, help="the folder of gpu.json and table.md")
    parser.add_argument("--sections", nargs="+", choices=SECTIONS, default=list(SECTIONS), help="parts, in this order")
    parser.add_argument("--tiny", action="store_true", help="tiny models, on a CPU too: does every line run?")
    arguments = parser.parse_args()
    if not torch.cuda.is_available() and not arguments.tiny:
        parser.error("there is no GPU; `--tiny` runs every line that a CPU can")
    arguments.output.mkdir(parents=True, exist_ok=True)
    measurements = Measurements(arguments.tiny, arguments.minutes, arguments.output)
    for number, section in enumerate(arguments.sections):
        shares = [SECTIONS[one] for one in arguments.sections[number:]]
        now = time.monotonic()
        measurements.deadline = now + (measurements.end - now) * shares[0] / sum(shares)
        try:
            getattr(measurements, section)()
        except OutOfTimeError:
            measurements.result["skipped"].append(section)
            measurements.write()
    print(render_table(measurements.result))
    for name, error in measurements.result["errors"].items():
        print(f"{name}: {error.splitlines()[0]}", file=sys.stderr)


if __name__ == "__main__":
    run(main)
