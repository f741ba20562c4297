"""Speed and memory of the models beside transformers' MarianMTModel of the same size, and of the routing core alone.

"floor" is the training step with each routing replaced by the mean of its votes: the cost of the products around it.
"""

import argparse
from collections.abc import Callable
from typing import Any

import torch
from tqdm import tqdm
from transformers import MarianConfig, MarianMTModel, PreTrainedModel

from hf_capsule_mt import (
    CapsNMTConfig,
    CapsNMTForConditionalGeneration,
    CapsuleMarianConfig,
    CapsuleMarianMTModel,
)
from hf_capsule_mt.commands.arguments import keep_freed_memory
from lab.benchmark_tables import DECODING
from lab.core_speed import core_runs
from lab.lengths import generation
from lab.timing import Timing, peak_memory, routing_replaced_by_mean, steady_clock, time_in_turns

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
    "guided_bow_bca": ({"guided_routing": "guided"}, 0.67, 0.94),
}
BEAMS = dict(zip(DECODING, (1, 5), strict=True))
SENTENCE_LENGTH = 32


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


def build(name: str, size: dict[str, int], device: str) -> PreTrainedModel:
    torch.manual_seed(0)
    model: Any
    if name == "stock":
        model = MarianMTModel(MarianConfig(**model_sizes(size)))
    elif name == "capsnmt":
        config = CapsNMTConfig(hidden_size=size["d_model"], vocab_size=size["vocab_size"])
        model = CapsNMTForConditionalGeneration(config)
    else:
        model = CapsuleMarianMTModel(CapsuleMarianConfig(**model_sizes(size), **SYSTEMS[name][0]))
    return model.to(device)


def decoding_models(systems: dict[str, str], arguments: argparse.Namespace) -> dict[str, PreTrainedModel]:
    """Return {title: model} of {title: system}."""
    size, device = SIZES[arguments.size], arguments.device
    return {title: build(system, size, device).eval() for title, system in systems.items()}


class TrainingStep:
    """One step of Adam on `tokens` source and `tokens` target tokens, in sentences of the same length."""

    def __init__(self, model: PreTrainedModel, tokens: int, length: int) -> None:
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


def speed(timings: dict[str, Timing], reference: str, name: str) -> float | None:
    """Return the speed of `name` relative to the reference, if both were measured."""
    return timings[reference].median / timings[name].median if {reference, name} <= timings.keys() else None


def routes(name: str) -> bool:
    """Return whether the system has a routing, and so a floor."""
    return SYSTEMS[name][0].get("layer_aggregation", "").endswith("routing") or "head_aggregation" in SYSTEMS[name][0]


class ModelSpeed:
    """The sections core, train, decode and memory, with the options of `lab.benchmark models`."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.arguments = arguments
        self.size = SIZES[arguments.size]
        self.device = arguments.device
        self.synchronize = torch.cuda.synchronize if self.device != "cpu" else None
        self.tokens = arguments.tokens if arguments.size != "tiny" else 64

    def in_turns(self, title: str, runs: dict[str, Callable[[], Any]]) -> dict[str, Timing]:
        repeats = self.arguments.repeats
        with tqdm(total=(repeats + 1) * len(runs), desc=title, leave=False) as bar:
            return time_in_turns(
                runs,
                repeats,
                synchronize=self.synchronize,
                progress=lambda: bar.update() and None,
                clock=steady_clock(self.device),
            )

    def training_step(self, name: str) -> TrainingStep:
        return TrainingStep(build(name, self.size, self.device), self.tokens, SENTENCE_LENGTH)

    def core(self) -> dict[str, Any]:
        runs, clear, votes_bytes = core_runs(self.size, self.device)
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
        keep_freed_memory()  # as `capsule-mt train` does; routing frees and allocates most
        stock = self.training_step("stock")
        rows = {}
        for name in names:
            step = self.training_step(name)
            runs: dict[str, Callable[[], None]] = {"stock": stock, name: step}
            if routes(name):
                runs["floor"] = step.on_floor
            timings = self.in_turns(f"training step, {name}", runs)
            rows[name] = {
                "seconds": {run: timing.as_dict() for run, timing in timings.items()},
                "speed_vs_stock": timings["stock"].median / timings[name].median,
                "speed_vs_floor": speed(timings, "floor", name),
                "published": SYSTEMS[name][1],
            }
        return rows

    def decode(self, names: list[str]) -> dict[str, Any]:
        new_tokens = 40 if self.arguments.size != "tiny" else 5
        source = torch.randint(2, self.size["vocab_size"], (1, SENTENCE_LENGTH), device=self.device)
        models = decoding_models({name: name for name in ("stock", *names)}, self.arguments)
        rows: dict[str, Any] = {
            name: {"published": SYSTEMS[name][2] if name in SYSTEMS else None} for name in models if name != "stock"
        }
        for title, num_beams in BEAMS.items():
            runs = {name: generation(model, source, new_tokens, num_beams) for name, model in models.items()}
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
