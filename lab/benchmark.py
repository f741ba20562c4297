"""How fast the models train and decode, next to transformers' MarianMTModel of the same size.

    python scripts/benchmark.py                                   # everything, base size, about half an hour
    python scripts/benchmark.py --sections core                   # the routing core alone
    python scripts/benchmark.py --sections train --systems em_routing heads_em_2
    python scripts/benchmark.py --sections train decode memory --systems guided guided_bow_bca --tokens 512
    python scripts/benchmark.py --sections memory --systems guided --tokens 1024 --length 64
    python scripts/benchmark.py --sections decode --systems off em_routing guided --threads 1 --int8
    python scripts/benchmark.py --lengths                         # CapsNMT and Marian by sentence length, five minutes
    python scripts/benchmark.py --lengths 25 100 --threads 1 --int8
    python scripts/benchmark.py --size tiny --repeats 1           # does it run?

What is compared runs in turns in one process, and every ratio is one of medians of the same run. "floor" is the same
training step with the routing replaced by the mean of its votes: what the matrix products around it cost. Writes a
JSON result and a table in Markdown beside it.
"""

import argparse
import contextlib
import math
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm
from transformers import MarianConfig, MarianMTModel

from hf_capsule_mt import (
    CapsNMTConfig,
    CapsNMTForConditionalGeneration,
    CapsuleMarianConfig,
    CapsuleMarianMTModel,
)
from hf_capsule_mt.commands.command_line import HelpFormatter, run
from hf_capsule_mt.evaluation import read_result, write_result
from hf_capsule_mt.evaluation.markdown import markdown_table
from hf_capsule_mt.fast import use_fast_linears
from hf_capsule_mt.routing import dynamic_routing, em_lambda_schedule, em_routing, squash, use_routing_form
from lab.length_pictures import draw_lengths
from lab.lengths import measure_lengths, render_lengths
from lab.timing import Timing, peak_memory, routing_replaced_by_mean, time_in_turns

SIZES = {
    "base": {"d_model": 512, "ffn": 2048, "heads": 8, "layers": 6, "vocab_size": 32000},
    "big": {"d_model": 1024, "ffn": 4096, "heads": 16, "layers": 6, "vocab_size": 32000},
    "tiny": {"d_model": 32, "ffn": 64, "heads": 4, "layers": 2, "vocab_size": 100},
}

# system -> settings, and the speeds relative to the baseline that its paper prints (training, decoding)
SYSTEMS: dict[str, tuple[dict[str, Any], float | None, float | None]] = {
    "off": ({}, None, None),
    "linear": ({"layer_aggregation": "linear"}, 0.88, 0.95),
    "dynamic_combination": ({"layer_aggregation": "dynamic_combination"}, 0.84, 0.91),
    "dynamic_routing": ({"layer_aggregation": "dynamic_routing"}, 0.77, 0.87),
    "em_routing": ({"layer_aggregation": "em_routing"}, 0.61, 0.80),
    "em_routing_no_activation": ({"layer_aggregation": "em_routing", "em_input_activation": "none"}, None, None),
    "em_routing_decoder": ({"layer_aggregation": "em_routing", "layer_aggregation_side": "decoder"}, None, None),
    "heads_simple_6": ({"head_aggregation": "simple_routing"}, 0.64, 0.99),
    "heads_em_6": ({"head_aggregation": "em_routing"}, 0.63, 0.99),
    "heads_em_2": ({"head_aggregation": "em_routing", "head_aggregation_layers": [0, 1]}, 0.87, None),
    "guided": ({"guided_routing": "guided", "guided_bow_weight": 0, "guided_bca_weight": 0}, 0.77, 0.94),
    "guided_bow": ({"guided_routing": "guided", "guided_bca_weight": 0}, 0.70, 0.94),
    "guided_bca": ({"guided_routing": "guided", "guided_bow_weight": 0}, 0.75, 0.94),
    "guided_bow_bca": ({"guided_routing": "guided"}, 0.67, 0.94),
    "guided_no_redundant": ({"guided_routing": "guided", "guided_num_redundant_capsules": 0}, 0.69, 0.94),
}
SECTIONS = ("core", "train", "decode", "memory")
DECODING = {"greedy": {"num_beams": 1}, "beam 5": {"num_beams": 5}}


def textbook_dynamic_routing(votes: torch.Tensor, num_iterations: int) -> torch.Tensor:
    """Algorithm 1 of Li et al., line by line."""
    logits = torch.zeros(votes.shape[:-1], device=votes.device)
    for _ in range(num_iterations):
        weights = torch.softmax(logits, dim=-1)
        total = (weights.unsqueeze(-1) * votes).sum(dim=-3) / weights.sum(dim=-2).unsqueeze(-1)
        capsules = squash(total)
        logits = logits + (capsules.unsqueeze(-3) * votes).sum(dim=-1)
    return capsules


def textbook_em_routing(
    votes: torch.Tensor, beta_a: torch.Tensor, beta_u: torch.Tensor, num_iterations: int
) -> torch.Tensor:
    """Algorithm 2 of Dou et al., line by line (with the density divided by sigma)."""
    weights = torch.full(votes.shape[:-1], 1 / votes.shape[-2], device=votes.device)
    for inverse_temperature in em_lambda_schedule(num_iterations):
        mass = weights.sum(dim=-2)
        mean = (weights.unsqueeze(-1) * votes).sum(dim=-3) / mass.unsqueeze(-1)
        squared = (votes - mean.unsqueeze(-3)) ** 2
        variance = (weights.unsqueeze(-1) * squared).sum(dim=-3) / mass.unsqueeze(-1) + 5e-4
        cost = ((torch.log(torch.sqrt(variance)) + (1 + math.log(2 * math.pi)) / 2) * mass.unsqueeze(-1)).sum(dim=-1)
        activation = torch.sigmoid(inverse_temperature * (beta_a - beta_u * mass - cost))
        density = torch.exp(-squared / (2 * variance.unsqueeze(-3))) / torch.sqrt(2 * math.pi * variance.unsqueeze(-3))
        joint = activation.unsqueeze(-2) * density.prod(dim=-1)
        weights = joint / joint.sum(dim=-1, keepdim=True)
    return activation.unsqueeze(-1) * mean


def core_runs(
    size: dict[str, int], device: str, compile_too: bool
) -> tuple[dict[str, Callable[[], None]], Callable[[], None], int]:
    """Forward and backward of each form of both routings, what forgets their gradients, and the bytes of the votes."""
    positions, inputs, outputs = 4096, size["layers"], size["d_model"]
    votes = torch.randn(positions, inputs, outputs, 1, device=device, requires_grad=True)
    betas = torch.zeros(2, outputs, device=device, requires_grad=True)
    grad = torch.randn(positions, outputs, 1, device=device)

    def em(return_weights: bool) -> Callable[[], torch.Tensor]:
        return lambda: (
            em_routing(
                votes, num_iterations=3, beta_a=betas[0], beta_u=betas[1], return_weights=return_weights
            ).capsules
        )

    def dynamic(return_weights: bool) -> Callable[[], torch.Tensor]:
        return lambda: (
            dynamic_routing(
                votes, num_iterations=3, normalize_total_input=True, return_weights=return_weights
            ).capsules
        )

    forms = {
        "em textbook": lambda: textbook_em_routing(votes, betas[0], betas[1], 3),
        "em plain": em(return_weights=True),
        "em chunked": em(return_weights=False),
        "dynamic textbook": lambda: textbook_dynamic_routing(votes, 3),
        "dynamic plain": dynamic(return_weights=True),
        "dynamic chunked": dynamic(return_weights=False),
    }
    if compile_too:
        forms["em compiled"] = em(return_weights=False)
        forms["dynamic compiled"] = dynamic(return_weights=False)

    def clear() -> None:
        votes.grad = betas.grad = None

    def run(name: str) -> Callable[[], None]:
        def forward_and_backward() -> None:
            clear()
            with routing_form("compiled" if name.endswith("compiled") else "chunked"):
                forms[name]().backward(grad)

        return forward_and_backward

    return {name: run(name) for name in forms}, clear, votes.numel() * votes.element_size()


@contextlib.contextmanager
def routing_form(form: str) -> Iterator[None]:
    previous = use_routing_form(form)
    try:
        yield
    finally:
        use_routing_form(previous)


def model_sizes(size: dict[str, int]) -> dict[str, Any]:
    return {
        "vocab_size": size["vocab_size"],
        "d_model": size["d_model"],
        "encoder_layers": size["layers"],
        "decoder_layers": size["layers"],
        "encoder_attention_heads": size["heads"],
        "decoder_attention_heads": size["heads"],
        "encoder_ffn_dim": size["ffn"],
        "decoder_ffn_dim": size["ffn"],
        "max_position_embeddings": 512,
        "pad_token_id": 0,
        "eos_token_id": 1,
        "decoder_start_token_id": 0,
        "forced_eos_token_id": None,
        "activation_function": "relu",
    }


def build(name: str, size: dict[str, int], device: str) -> torch.nn.Module:
    torch.manual_seed(0)
    if name == "stock":
        return MarianMTModel(MarianConfig(**model_sizes(size))).to(device)
    if name == "capsnmt":
        config = CapsNMTConfig(hidden_size=size["d_model"], vocab_size=size["vocab_size"])
        return CapsNMTForConditionalGeneration(config).to(device)
    return CapsuleMarianMTModel(CapsuleMarianConfig(**model_sizes(size), **SYSTEMS[name][0])).to(device)


def decoding_models(systems: dict[str, str], arguments: argparse.Namespace) -> dict[str, torch.nn.Module]:
    """{title: model} of {title: system}, and those in int8 if they are asked for."""

    def models() -> dict[str, torch.nn.Module]:
        size, device = SIZES[arguments.size], arguments.device
        return {title: build(system, size, device).eval() for title, system in systems.items()}

    if not arguments.int8:
        return models()
    return models() | {f"{title} in int8": use_fast_linears(model, int8=True) for title, model in models().items()}


class TrainingStep:
    """One step of Adam on `tokens` source and `tokens` target tokens, in sentences of the same length."""

    def __init__(self, model: torch.nn.Module, tokens: int, length: int) -> None:
        self.model = model.train()
        self.optimizer = torch.optim.Adam(model.parameters(), lr=1e-5)
        shape = (max(1, tokens // length), length)
        device = next(model.parameters()).device
        self.batch = {
            "input_ids": torch.randint(2, model.config.vocab_size, shape, device=device),
            "labels": torch.randint(2, model.config.vocab_size, shape, device=device),
        }

    def __call__(self) -> None:
        self.optimizer.zero_grad()
        self.model(**self.batch).loss.backward()
        self.optimizer.step()

    def on_floor(self) -> None:
        with routing_replaced_by_mean():
            self()

    def compiled(self) -> None:
        with routing_form("compiled"):
            self()


def speed(timings: dict[str, Timing], reference: str, name: str) -> float | None:
    """How fast `name` is relative to the reference, if both were measured."""
    return timings[reference].median / timings[name].median if {reference, name} <= timings.keys() else None


def routes(name: str) -> bool:
    """Whether the system has a routing, and so a floor."""
    return SYSTEMS[name][0].get("layer_aggregation", "").endswith("routing") or "head_aggregation" in SYSTEMS[name][0]


class Benchmark:
    def __init__(self, arguments: argparse.Namespace) -> None:
        self.arguments = arguments
        self.size = SIZES[arguments.size]
        self.device = arguments.device
        self.synchronize = torch.cuda.synchronize if self.device != "cpu" else None
        self.tokens = arguments.tokens if arguments.size != "tiny" else 64

    def in_turns(self, title: str, runs: dict[str, Callable[[], Any]]) -> dict[str, Timing]:
        repeats = self.arguments.repeats
        with tqdm(total=(repeats + 1) * len(runs), desc=title, leave=False) as bar:
            return time_in_turns(runs, repeats, synchronize=self.synchronize, progress=lambda: bar.update() and None)

    def training_step(self, name: str) -> TrainingStep:
        return TrainingStep(build(name, self.size, self.device), self.tokens, self.arguments.length)

    def core(self) -> dict[str, Any]:
        runs, clear, votes_bytes = core_runs(self.size, self.device, self.arguments.compile)
        timings = self.in_turns("routing core", runs)
        rows = {}
        for name, timing in timings.items():
            clear()
            rows[name] = {
                **timing.as_dict(),
                "speed_vs_textbook": timings[f"{name.split()[0]} textbook"].median / timing.median,
                "memory_in_votes": peak_memory(runs[name], self.device) / votes_bytes,
            }
        return rows

    def train(self, names: list[str]) -> dict[str, Any]:
        stock = self.training_step("stock")
        rows = {}
        for name in names:
            step = self.training_step(name)
            runs: dict[str, Callable[[], None]] = {"stock": stock, name: step}
            if routes(name):
                runs["floor"] = step.on_floor
                if self.arguments.compile:
                    runs["compiled"] = step.compiled
            timings = self.in_turns(f"training step, {name}", runs)
            rows[name] = {
                "seconds": {run: timing.as_dict() for run, timing in timings.items()},
                "speed_vs_stock": timings["stock"].median / timings[name].median,
                "speed_vs_floor": speed(timings, "floor", name),
                "compiled_vs_floor": speed(timings, "floor", "compiled"),
                "published": SYSTEMS[name][1],
            }
        return rows

    def em_against_dynamic(self) -> dict[str, Any]:
        """The two routings at equal parameters: layer aggregation without input activations, and six layers' heads."""
        rows = {}
        for em, dynamic in (("em_routing_no_activation", "dynamic_routing"), ("heads_em_6", "heads_simple_6")):
            if not {em, dynamic} <= set(self.arguments.systems):
                continue
            steps = {name: self.training_step(name) for name in (em, dynamic)}
            timings = self.in_turns(f"{em} against {dynamic}", dict(steps))
            rows[f"{em} / {dynamic}"] = {
                "seconds": {run: timing.as_dict() for run, timing in timings.items()},
                "speed": timings[dynamic].median / timings[em].median,
            }
        return rows

    def decode(self, names: list[str]) -> dict[str, Any]:
        new_tokens = 40 if self.arguments.size != "tiny" else 5
        source = torch.randint(2, self.size["vocab_size"], (1, 32), device=self.device)
        models = decoding_models({name: name for name in ("stock", *names)}, self.arguments)
        rows: dict[str, Any] = {
            name: {"published": SYSTEMS[name][2] if name in SYSTEMS else None} for name in models if name != "stock"
        }
        for title, settings in DECODING.items():
            runs = {
                name: lambda model=model, settings=settings: model.generate(
                    source, max_new_tokens=new_tokens, min_new_tokens=new_tokens, **settings
                )
                for name, model in models.items()
            }
            timings = self.in_turns(f"decoding, {title}", runs)
            for name, row in rows.items():
                row[title] = {
                    "milliseconds_per_token": 1000 * timings[name].median / new_tokens,
                    "seconds": {run: timings[run].as_dict() for run in ("stock", name)},
                    "speed_vs_stock": timings["stock"].median / timings[name].median,
                }
        return rows

    def memory(self, names: list[str]) -> dict[str, Any]:
        rows: dict[str, Any] = {}
        for name in ("stock", *names):
            step = self.training_step(name)
            step()  # parameters and Adam's state are there from now on and not counted
            step.optimizer.zero_grad()
            rows[name] = {
                "peak_bytes": peak_memory(step, self.device),
                "parameters": sum(p.numel() for p in step.model.parameters()),
            }
        for row in rows.values():
            row["extra"] = row["peak_bytes"] / rows["stock"]["peak_bytes"] - 1
        return rows


def table(header: list[str], rows: list[list[Any]]) -> str:
    def text(cell: Any) -> str:
        return "" if cell is None else f"{cell:.2f}" if isinstance(cell, float) else str(cell)

    return markdown_table(header, [[text(cell) for cell in row] for row in rows])


def spread(timing: dict[str, float], scale: float = 1000) -> str:
    return f"{timing['median'] * scale:.1f} ({timing['minimum'] * scale:.1f}-{timing['maximum'] * scale:.1f})"


def render(result: dict[str, Any]) -> str:
    """The result as Markdown."""
    hardware, software = result["hardware"], result["software"]
    parts = [
        f"# Benchmark, {result['size']} size\n",
        f"`{result['command']}` on {hardware.get('gpu') or hardware['cpu']} ({hardware['threads']} threads), torch "
        f"{software['torch']}, transformers {software['transformers']}, {result['date'][:10]}. Times are medians "
        f"(minimum-maximum) of {result['repeats']} runs in turns; speeds are ratios of medians, higher is faster.\n",
    ]
    if core := result.get("core"):
        parts += [
            "## The routing core, forward and backward, 4,096 positions\n",
            table(
                ["form", "ms", "speed vs textbook", "peak memory in votes"],
                [[name, spread(row), row["speed_vs_textbook"], row["memory_in_votes"]] for name, row in core.items()],
            ),
        ]
    if train := result.get("train"):
        parts += [
            f"\n## Training step, {result['tokens']} source and {result['tokens']} target tokens in "
            f"sentences of {result['length']}\n",
            table(
                ["system", "ms", "vs stock", "published", "vs its own floor", "routing compiled, vs floor"],
                [
                    [
                        name,
                        spread(row["seconds"][name]),
                        row["speed_vs_stock"],
                        row["published"],
                        row["speed_vs_floor"],
                        row["compiled_vs_floor"],
                    ]
                    for name, row in train.items()
                ],
            ),
        ]
    if equal := result.get("em_against_dynamic"):
        parts += [
            "\n## EM against dynamic routing at equal parameters, training step\n",
            table(["pair", "speed of EM"], [[name, row["speed"]] for name, row in equal.items()]),
        ]
    if decode := result.get("decode"):
        header = ["system", *(f"{title}: {column}" for title in DECODING for column in ("ms/token", "vs stock"))]
        parts += [
            "\n## Decoding inside `generate()`, one sentence of 32 tokens\n",
            table(
                [*header, "published"],
                [
                    [
                        name,
                        *(
                            row[title][key]
                            for title in DECODING
                            for key in ("milliseconds_per_token", "speed_vs_stock")
                        ),
                        row["published"],
                    ]
                    for name, row in decode.items()
                ],
            ),
        ]
    if memory := result.get("memory"):
        parts += [
            f"\n## Peak memory of a training step beyond parameters and optimiser, {result['tokens']} tokens in "
            f"sentences of {result['length']}\n",
            table(
                ["system", "parameters (M)", "peak (MB)", "more than stock (%)"],
                [
                    [
                        name,
                        row["parameters"] / 1e6,
                        f"{row['peak_bytes'] / 2**20:.0f}",
                        f"{100 * row['extra']:.1f}",
                    ]
                    for name, row in memory.items()
                ],
            ),
        ]
    return "\n".join(parts) + "\n"


def by_length(arguments: argparse.Namespace) -> None:
    """CapsNMT next to Marian of the same width, by the lengths of source and target: a result, tables, a picture."""
    models = decoding_models({"Marian": "stock", "CapsNMT": "capsnmt"}, arguments)
    synchronize = torch.cuda.synchronize if arguments.device != "cpu" else None
    result: dict[str, Any] = {"size": arguments.size, "repeats": arguments.repeats, "num_beams": arguments.num_beams}
    result["clock"] = "processor time" if arguments.processor_time else "time"
    with tqdm(total=2 * 2 * len(models) * len(arguments.lengths) * (arguments.repeats + 1)) as bar:
        result["sweeps"] = measure_lengths(
            models,
            arguments.lengths,
            num_beams=arguments.num_beams,
            repeats=arguments.repeats,
            synchronize=synchronize,
            progress=lambda: bar.update() and None,
            clock=time.process_time if arguments.processor_time else time.perf_counter,
        )
    path = write_result(arguments.output, result)
    result = read_result(path)
    report = render_lengths(result, path.with_suffix(".png").name)
    path.with_suffix(".md").write_text(report, encoding="utf-8")
    draw_lengths(result["sweeps"], path.with_suffix(".png"))
    print(report)
    print(f"Written to {path}, {path.with_suffix('.md')} and {path.with_suffix('.png')}.")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=HelpFormatter)
    parser.add_argument("--sections", nargs="+", choices=SECTIONS, default=list(SECTIONS), help="what to measure")
    parser.add_argument("--systems", nargs="+", choices=list(SYSTEMS), default=list(SYSTEMS), help="of which systems")
    parser.add_argument("--size", choices=list(SIZES), default="base", help="how large the models are")
    parser.add_argument("--tokens", type=int, default=1024, help="tokens of a training step on each side")
    parser.add_argument("--length", type=int, default=32, help="length of the sentences of a training step")
    parser.add_argument("--repeats", type=int, default=5, help="counted runs of everything")
    parser.add_argument("--threads", type=int, help="processor threads to use (default: all)")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu", help="cpu or cuda")
    parser.add_argument("--compile", action="store_true", help="measure the compiled routing, too")
    parser.add_argument("--int8", action="store_true", help="decode with int8 products, too, on a CPU")
    parser.add_argument("--output", type=Path, default=Path("outputs/benchmark.json"), help="the result file")
    parser.add_argument(
        "--lengths",
        nargs="*",
        type=int,
        help="instead of the sections, measure CapsNMT by sentence length (default: 10 25 50 100 200 400)",
    )
    parser.add_argument(
        "--processor-time",
        action="store_true",
        help="by length, count processor time, which neighbours on a shared machine disturb less; with --threads 1",
    )
    parser.add_argument("--num-beams", type=int, default=1, help="beams of the measurement by length")
    return parser.parse_args()


def main() -> None:
    arguments = parse_arguments()
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    if arguments.lengths is not None:
        arguments.lengths = arguments.lengths or [10, 25, 50, 100, 200, 400]
        by_length(arguments)
        return
    benchmark = Benchmark(arguments)
    result: dict[str, Any] = {
        "size": arguments.size,
        "repeats": arguments.repeats,
        "tokens": benchmark.tokens,
        "length": arguments.length,
    }
    trained = [name for name in arguments.systems if name != "em_routing_decoder"]
    if "core" in arguments.sections:
        result["core"] = benchmark.core()
    if "train" in arguments.sections:
        result["train"] = benchmark.train(trained)
        result["em_against_dynamic"] = benchmark.em_against_dynamic()
    if "decode" in arguments.sections:
        result["decode"] = benchmark.decode([n for n in arguments.systems if n != "em_routing_no_activation"])
    if "memory" in arguments.sections:
        result["memory"] = benchmark.memory(trained)
    path = write_result(arguments.output, result)
    report = render(read_result(path))
    path.with_suffix(".md").write_text(report, encoding="utf-8")
    print(report)
    print(f"Written to {path} and {path.with_suffix('.md')}.")


if __name__ == "__main__":
    run(main)
