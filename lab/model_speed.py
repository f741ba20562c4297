"""Speed of the models beside transformers' MarianMTModel, as in the papers' columns of speeds, and by length."""

import argparse
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from tqdm import tqdm
from transformers import MarianConfig, MarianMTModel, PreTrainedModel

from hf_capsule_mt import CapsNMTConfig, CapsNMTForConditionalGeneration, CapsuleMarianConfig, CapsuleMarianMTModel
from hf_capsule_mt.commands.arguments import keep_freed_memory
from hf_capsule_mt.decoding.fast import FastTranslator
from hf_capsule_mt.evaluation.results import markdown_table
from lab.timing import Timing, steady_clock, time_in_turns

# width, width of the feed-forward layers, heads, layers of each side, vocabulary
SIZES = {"base": (512, 2048, 8, 6, 32000), "big": (1024, 4096, 16, 6, 32000), "tiny": (32, 64, 4, 2, 100)}
# system -> settings, and the speeds relative to the baseline that its paper prints (training, decoding)
SYSTEMS: dict[str, tuple[dict[str, Any], float | None, float | None]] = {
    "off": ({}, None, None),
    "linear": ({"layer_aggregation": "linear"}, 0.88, 0.95),
    "dynamic_combination": ({"layer_aggregation": "dynamic_combination"}, 0.84, 0.91),
    "dynamic_routing": ({"layer_aggregation": "dynamic_routing"}, 0.77, 0.87),
    "em_routing": ({"layer_aggregation": "em_routing"}, 0.61, 0.80),
    "heads_simple_6": ({"head_aggregation": "simple_routing"}, 0.64, 0.99),
    "heads_em_6": ({"head_aggregation": "em_routing"}, 0.63, 0.99),
    "heads_em_2": ({"head_aggregation": "em_routing", "head_aggregation_layers": [0, 1]}, 0.87, None),
    "guided": ({"guided_routing": "guided", "guided_bow_weight": 0, "guided_bca_weight": 0}, 0.77, 0.94),
    "guided_bow_bca": ({"guided_routing": "guided"}, 0.67, 0.94),
}
BEAMS = {"greedy": 1, "beam 5": 5}
SENTENCE_LENGTH = 32
FIXED_LENGTH = 50  # words of the side whose length does not vary


def build(name: str, size: str, device: str) -> PreTrainedModel:
    """Return a model with random weights: "stock", "capsnmt" or one of `SYSTEMS`."""
    torch.manual_seed(0)
    width, ffn, heads, layers, vocab_size = SIZES[size]
    model: Any
    if name == "capsnmt":
        config = CapsNMTConfig(hidden_size=width, vocab_size=vocab_size)
        return CapsNMTForConditionalGeneration(config).to(device)
    sizes: dict[str, Any] = {"d_model": width, "vocab_size": vocab_size, "max_position_embeddings": 512}
    for side in ("encoder", "decoder"):
        sizes |= {f"{side}_layers": layers, f"{side}_attention_heads": heads, f"{side}_ffn_dim": ffn}
    sizes |= {"pad_token_id": 0, "eos_token_id": 1, "decoder_start_token_id": 0, "forced_eos_token_id": None}
    sizes["activation_function"] = "relu"
    if name == "stock":
        model = MarianMTModel(MarianConfig(**sizes))
    else:
        model = CapsuleMarianMTModel(CapsuleMarianConfig(**sizes, **SYSTEMS[name][0]))
    return model.to(device)


def generation(
    model: PreTrainedModel | FastTranslator, source: torch.Tensor, num_words: int, num_beams: int
) -> Callable[[], Any]:
    """Return a run that generates a number of words."""
    return lambda: model.generate(  # type: ignore[operator]
        source, max_new_tokens=num_words, min_new_tokens=num_words, num_beams=num_beams
    )


def training_step(model: PreTrainedModel, tokens: int) -> Callable[[], None]:
    """Return a step of Adam on `tokens` source and `tokens` target tokens, in sentences of the same length."""
    model.train()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-5)
    shape = (max(1, tokens // SENTENCE_LENGTH), SENTENCE_LENGTH)
    source, labels = (torch.randint(2, model.config.vocab_size, shape, device=model.device) for _ in range(2))

    def step() -> None:
        optimizer.zero_grad()
        model(input_ids=source, labels=labels).loss.backward()
        optimizer.step()

    return step


def measure_models(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the seconds of a training step and of decoding, of each system beside the stock model."""
    size, device = arguments.size, arguments.device
    tokens, new_tokens = (1024, 40) if size != "tiny" else (64, 5)

    def in_turns(title: str, runs: dict[str, Callable[[], Any]]) -> dict[str, Timing]:
        synchronize = torch.cuda.synchronize if device != "cpu" else None
        print(title, flush=True)
        return time_in_turns(runs, arguments.repeats, synchronize=synchronize, clock=steady_clock(device))

    models = {name: build(name, size, device).eval() for name in ("stock", *arguments.systems)}
    source = torch.randint(2, SIZES[size][-1], (1, SENTENCE_LENGTH), device=device)
    decode: dict[str, Any] = {name: {"published": SYSTEMS[name][2]} for name in arguments.systems}
    for title, num_beams in BEAMS.items():
        runs = {name: generation(model, source, new_tokens, num_beams) for name, model in models.items()}
        timings = in_turns(f"Decoding, {title}", runs)
        for name, row in decode.items():
            row[title] = {
                "milliseconds_per_token": 1000 * timings[name].median / new_tokens,
                "speed_vs_stock": timings["stock"].median / timings[name].median,
            }
    keep_freed_memory()  # as `capsule-mt train` does; routing frees and allocates most
    stock, train = training_step(models["stock"], tokens), {}
    for name in arguments.systems:
        timings = in_turns(f"Training, {name}", {"stock": stock, name: training_step(models[name], tokens)})
        train[name] = {
            "seconds": {run: timing.as_dict() for run, timing in timings.items()},
            "speed_vs_stock": timings["stock"].median / timings[name].median,
            "published": SYSTEMS[name][1],
        }
    return {"size": size, "repeats": arguments.repeats, "tokens": tokens, "train": train, "decode": decode}


def render_models(result: Mapping[str, Any]) -> str:
    """Return a result of `measure_models` as Markdown; older ones have only training or only decoding."""
    train, decode = result.get("train", {}), result.get("decode", {})
    rows = []
    for name in {**train, **decode}:
        cells: list[float | None] = []
        if train:
            step = train[name]
            cells += [1000 * step["seconds"][name]["median"], step["speed_vs_stock"], step["published"]]
        if decode:
            row = decode[name]
            cells += [row[title][key] for title in BEAMS for key in ("milliseconds_per_token", "speed_vs_stock")]
            cells.append(row["published"])
        rows.append([f"`{name}`", *("" if cell is None else f"{cell:.{0 if cell > 100 else 2}f}" for cell in cells)])
    header = ["system"]
    header += ["training step, ms", "beside stock", "paper"] if train else []
    columns = [f"{title}, {unit}" for title in BEAMS for unit in ("ms a token", "beside stock")]
    return markdown_table([*header, *([*columns, "paper"] if decode else [])], rows)


def measure_by_length(arguments: argparse.Namespace) -> dict[str, Any]:
    """Translate random sentences of every length on either side, with all models in turns, through `generate()`.

    Returns:
        For "source" and "target", the side whose length varies: `rows`, with the seconds of encoding (a translation of
        one word), of the whole translation, and the milliseconds of each further word, by model; and `slopes`, by how
        many milliseconds a word gets slower with each word that the sentence is longer.
    """
    models: dict[str, Any] = {
        title: build(system, arguments.size, arguments.device).eval()
        for title, system in {"Marian": "stock", "CapsNMT": "capsnmt"}.items()
    }
    if arguments.native:
        native = {title: FastTranslator(model, int8=True, strict=True) for title, model in models.items()}
        models |= {f"{title}, native int8": engine for title, engine in native.items()}
    synchronize = torch.cuda.synchronize if arguments.device != "cpu" else None
    clock = time.process_time if arguments.processor_time else time.perf_counter
    sweeps: dict[str, Any] = {}
    for side in ("source", "target"):
        rows: list[dict[str, Any]] = []
        for length in tqdm(arguments.lengths, desc=side):
            source_length, target_length = (length, FIXED_LENGTH) if side == "source" else (FIXED_LENGTH, length)
            source = torch.randint(2, SIZES[arguments.size][-1], (1, source_length), device=arguments.device)
            runs = {
                f"{name} {part}": generation(model, source, num_words, arguments.num_beams)
                for name, model in models.items()
                for part, num_words in (("encode", 1), ("translate", target_length))
            }
            timings = time_in_turns(runs, arguments.repeats, synchronize=synchronize, clock=clock)
            rows.append({
                "source_length": source_length,
                "target_length": target_length,
                "seconds": {name: timing.as_dict() for name, timing in timings.items()},
                "milliseconds_per_word": {
                    name: 1000
                    * (timings[f"{name} translate"].median - timings[f"{name} encode"].median)
                    / (target_length - 1)
                    for name in models
                },
            })  # fmt: skip
        slopes = {
            name: slope([row["milliseconds_per_word"][name] for row in rows], arguments.lengths) for name in models
        }
        sweeps[side] = {"rows": rows, "slopes": slopes}
    clock_name = "processor time" if arguments.processor_time else "time"
    settings = {"size": arguments.size, "repeats": arguments.repeats, "num_beams": arguments.num_beams}
    return {**settings, "clock": clock_name, "sweeps": sweeps}


def slope(values: Sequence[float], lengths: Sequence[int]) -> dict[str, float]:
    """Fit a line by least squares: return its slope per word, the standard error of it, and the mean value."""
    fit = statistics.linear_regression(lengths, values)
    residuals = [v - fit.slope * length - fit.intercept for v, length in zip(values, lengths, strict=True)]
    spread = sum((length - statistics.fmean(lengths)) ** 2 for length in lengths)
    variance = sum(residual**2 for residual in residuals) / max(1, len(values) - 2)
    return {"per_word": fit.slope, "standard_error": (variance / spread) ** 0.5, "mean": statistics.fmean(values)}


def render_lengths(result: Mapping[str, Any]) -> str:
    """Return a result of `measure_by_length` as Markdown: a table for each side, with the slopes in its last row."""
    parts = []
    for side, sweep in result["sweeps"].items():
        names = list(sweep["slopes"])
        header = [f"{side} words (the other side {FIXED_LENGTH})"]
        header += [f"{name}: {unit}" for name in names for unit in ("total, ms", "ms a word")]
        rows = []
        for row in sweep["rows"]:
            cells = [str(row[f"{side}_length"])]
            for name in names:
                cells += [f"{1000 * row['seconds'][f'{name} translate']['median']:.1f}"]
                cells += [f"{row['milliseconds_per_word'][name]:.2f}"]
            rows.append(cells)
        last = ["microseconds more a word for each further word (standard error)"]
        for fit in sweep["slopes"].values():
            last += ["", f"{1000 * fit['per_word']:+.2f} ({1000 * fit['standard_error']:.2f})"]
        parts.append(markdown_table(header, [*rows, last]))
    return "\n\n".join(parts)
