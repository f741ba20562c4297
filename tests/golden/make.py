"""Train the golden checkpoints anew, measure them and write what they are held to.

    python -m tests.golden.make                   # all; some minutes on one core
    python -m tests.golden.make capsnmt           # one of them
    python -m tests.golden.make --measure-only    # keep the weights, write the numbers of today's code

Weights are stored in half precision and run in single: every processor computes with the same numbers.
"""

import argparse
import copy
import itertools
import json
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForSeq2SeqLM, AutoTokenizer, pipeline, set_seed

from capsule_mt.engine.search import Hypothesis, Readings
from hf_capsule_mt.data import sentence_pairs, train_tokenizer
from hf_capsule_mt.decoding.generate import GenerateDecoder
from tests.fixtures.titles_and_cells import TITLES_AND_CELLS
from tests.fixtures.word_for_word import TEXTS, count_marks
from tests.golden.train_word_for_word import train_word_for_word

FOLDER = Path(__file__).parent
TOKENIZER = FOLDER / "capsule_marian"  # which has that of all families
EXPECTED = "expected.json"
UNSEEN: list[dict[str, str]] = json.loads((FOLDER / "unseen.json").read_text(encoding="utf-8"))
# the models learn some short sentences by heart, so that their decisions are clear
LONGEST, NUM_LEARNT = 9, 400
VOCAB_SIZE = 700
# how many of these sentences a checkpoint is held to, and by how much every decision must be clear, in logits
NUM_PAIRS, SMALLEST_MARGIN = 10, 3.0
# of numbers in the file; the test allows 1e-4
DECIMALS = 5


def corpus() -> list[dict[str, str]]:
    """Return the short sentences that the families learn from."""
    pairs = ({"source": english, "target": german} for english, german in sentence_pairs())
    short = (pair for pair in pairs if len(pair["source"].split()) <= LONGEST and pair not in UNSEEN)
    return list(itertools.islice(short, NUM_LEARNT))


SIZES: dict[str, Any] = {
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64,
    "max_position_embeddings": 64,
    "scale_embedding": True,
    "init_std": 0.18,
    "dropout": 0.0,
    "forced_eos_token_id": None,
}


GUIDED: dict[str, Any] = {
    "guided_routing": "guided",
    "guided_num_redundant_capsules": 2,
    "guided_capsule_dim": 16,
    "guided_ffn_dim": 32,
}
FAMILIES: dict[str, dict[str, Any]] = {
    # EM routing of layers and heads, and PAST and FUTURE: all three seams at once
    "capsule_marian": SIZES
    | GUIDED
    | {
        "model_type": "capsule_marian",
        "layer_aggregation": "em_routing",
        "layer_aggregation_placement": "adds",
        "head_aggregation": "em_routing",
        "head_aggregation_sites": ["encoder_self", "cross"],
        "head_aggregation_layers": [0],
    },
    # a student of Marian's: an SSRU in each of two decoder layers
    "ssru": SIZES
    | {
        "model_type": "capsule_marian",
        "activation_function": "relu",
        "decoder_self": "ssru",
        "marian_positions": True,
    },
    "capsule_rnmt": GUIDED
    | {
        "model_type": "capsule_rnmt",
        "hidden_size": 48,
        "encoder_layers": 1,
        "decoder_layers": 2,
        "init_std": 0.14,
        "dropout": 0.0,
    },
    "capsnmt": {
        "model_type": "capsnmt",
        "hidden_size": 48,
        "encoder_layers": 1,
        "decoder_layers": 1,
        "num_capsules": 4,
        "dropout": 0.0,
    },
}
WITH_HEADS = ("capsule_marian",)  # whose attention marks what was left out


class Schedule(NamedTuple):
    sentences: int
    batch_size: int
    steps: int


SCHEDULES = {
    "capsule_marian": Schedule(sentences=NUM_LEARNT, batch_size=32, steps=1500),
    "ssru": Schedule(sentences=NUM_LEARNT, batch_size=32, steps=1500),
    "capsule_rnmt": Schedule(sentences=NUM_LEARNT, batch_size=32, steps=1000),
    # a source in a few vectors is harder to learn than attention to it
    "capsnmt": Schedule(sentences=40, batch_size=20, steps=2000),
}


def batches(pairs: list[dict[str, str]], size: int) -> Iterator[list[dict[str, str]]]:
    """Yield batches of the shuffled pairs, for ever."""
    generator = random.Random(0)
    while True:
        shuffled = generator.sample(pairs, len(pairs))
        yield from (shuffled[start : start + size] for start in range(0, len(shuffled), size))


def train_family(name: str, pairs: list[dict[str, str]]) -> tuple[Any, Any]:
    """Return the trained model and its tokenizer."""
    set_seed(0)
    tokenizer = train_tokenizer((text for pair in pairs for text in pair.values()), vocab_size=VOCAB_SIZE)
    config = AutoConfig.for_model(
        **FAMILIES[name],
        vocab_size=len(tokenizer),
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        decoder_start_token_id=tokenizer.pad_token_id,
    )
    model = AutoModelForSeq2SeqLM.from_config(config)
    schedule, peak = SCHEDULES[name], 5e-3
    optimizer = torch.optim.Adam(model.parameters(), lr=peak, betas=(0.9, 0.98))
    for step, chosen in zip(
        range(schedule.steps), batches(pairs[: schedule.sentences], schedule.batch_size), strict=False
    ):
        batch = encode(tokenizer, [pair["source"] for pair in chosen], [pair["target"] for pair in chosen])
        for group in optimizer.param_groups:
            group["lr"] = peak * min(1.0, (step + 1) / 100, 1.5 * (1 - step / schedule.steps))
        optimizer.zero_grad()
        loss = model(**batch).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 100 == 0:
            print(f"{name} {step}: loss {loss.item():.3f}", flush=True)
    model.generation_config.max_new_tokens = 40
    model.generation_config.max_length = None
    return model.eval(), tokenizer


def save(model: Any, tokenizer: Any, folder: Path, tokenizer_folder: Path) -> None:
    """Write a checkpoint whose weights are stored in half precision and load in single."""
    shutil.rmtree(folder, ignore_errors=True)
    model.save_pretrained(folder)
    weights = load_file(folder / "model.safetensors")
    halves = {name: value.half() if value.is_floating_point() else value for name, value in weights.items()}
    save_file(halves, folder / "model.safetensors", metadata={"format": "pt"})
    tokenizer.save_pretrained(tokenizer_folder)
    content = json.loads((tokenizer_folder / "tokenizer.json").read_text(encoding="utf-8"))
    if "merges" in content["model"]:
        content["model"]["merges"] = [" ".join(pair) for pair in content["model"]["merges"]]
    compact = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
    (tokenizer_folder / "tokenizer.json").write_text(compact, encoding="utf-8")


@torch.no_grad()
def margins(folder: Path, pairs: list[dict[str, str]]) -> list[float]:
    """Return, for each pair, by how many logits the reference is ahead at its closest decision."""
    tokenizer, model = AutoTokenizer.from_pretrained(TOKENIZER), AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
    batch = encode(tokenizer, [pair["source"] for pair in pairs], [pair["target"] for pair in pairs])
    logits, labels = model(**batch).logits, batch["labels"]
    real = labels != -100
    right = labels.masked_fill(~real, 0).unsqueeze(-1)
    ahead = logits.gather(-1, right).squeeze(-1) - logits.scatter(-1, right, -torch.inf).amax(dim=-1)
    return ahead.masked_fill(~real, torch.inf).amin(dim=-1).tolist()


def clearest(folder: Path, pairs: list[dict[str, str]]) -> list[dict[str, str]]:
    """Return sentences of different lengths that the model is sure of."""
    sure = [pair for pair, margin in zip(pairs, margins(folder, pairs), strict=True) if margin >= SMALLEST_MARGIN]
    if len(sure) < NUM_PAIRS:
        raise SystemExit(f"{folder.name} is sure of {len(sure)} sentences only: train it longer")
    print(f"{folder.name}: sure of {len(sure)} of {len(pairs)} sentences")
    sure.sort(key=lambda pair: (len(pair["source"].split()), pair["source"]))
    return [sure[number * (len(sure) - 1) // (NUM_PAIRS - 1)] for number in range(NUM_PAIRS)]


# ---- measuring
def rounded(values: Any) -> Any:
    """Convert a tensor or a number into (lists of) numbers that fit in a file."""
    if isinstance(values, torch.Tensor):
        return rounded(values.tolist())
    return [rounded(value) for value in values] if isinstance(values, list) else round(float(values), DECIMALS)


def measure(folder: Path, pairs: list[dict[str, str]]) -> dict[str, Any]:
    """Return the translations and coverage of pairs that a checkpoint knows, and the losses of pairs that it does not.

    Decisions are clear where it knows the answer; numbers tell more where it does not.
    """
    tokenizer = AutoTokenizer.from_pretrained(TOKENIZER)
    model = AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
    return {
        "translations": [measure_translations(folder, pairs, num_beams) for num_beams in (1, 4)],
        "coverage": measure_coverage(model, tokenizer, pairs) if getattr(model, "has_coverage", False) else None,
        "titles and cells": measure_titles_and_cells(model, tokenizer) if folder.name in WITH_HEADS else None,
        **measure_forward(model, tokenizer, UNSEEN),
    }


def measure_translations(folder: Path, pairs: list[dict[str, str]], num_beams: int) -> dict[str, Any]:
    """Translate by the pipeline, in one batch; return the scores, and what differs from the references."""
    translator = pipeline("translation", model=str(folder), tokenizer=str(TOKENIZER))
    sources = [pair["source"] for pair in pairs]
    records = translator(sources, num_beams=num_beams, batch_size=len(sources), return_scores=True)
    texts = [record["translation_text"] for record in records]
    return {
        "num_beams": num_beams,
        "wrong": [text for text, pair in zip(texts, pairs, strict=True) if text != pair["target"]],
        "scores": [rounded(record["score"]) for record in records],
    }


def encode(tokenizer: Any, sources: list[str], targets: list[str]) -> dict[str, torch.Tensor]:
    """Return the padded batch, with -100 in the place of padded labels."""
    batch = tokenizer(sources, text_target=targets, padding=True, return_tensors="pt")
    batch["labels"].masked_fill_(batch["labels"] == tokenizer.pad_token_id, -100)
    return batch


def measure_coverage(model: Any, tokenizer: Any, pairs: list[dict[str, str]]) -> dict[str, Any]:
    """Score the references, and what is left of them without their second half, by forced decoding."""
    measured: dict[str, Any] = {}
    for name in ("whole", "half"):
        targets = [pair["target"].split() for pair in pairs]
        translations = [" ".join(words if name == "whole" else words[: len(words) // 2]) for words in targets]
        batch = encode(tokenizer, [pair["source"] for pair in pairs], translations)
        coverage = model.score_coverage(batch["input_ids"], batch["attention_mask"], labels=batch["labels"])
        mask = batch["attention_mask"].bool()
        measured[name] = {key: rounded(getattr(coverage, key)) for key in ("score", "balance", "log_prob")}
        for key in ("past", "future", "covered"):
            word_values = getattr(coverage, key)
            assert not word_values[~mask].any(), f"{key} of padding"
            measured[name][key] = [rounded(row[is_word]) for row, is_word in zip(word_values, mask, strict=True)]
    return measured


def measure_marks(folder: Path) -> dict[str, int]:
    """Count what PAST and FUTURE mark in the model's own translations of `TEXTS`."""
    model, tokenizer = AutoModelForSeq2SeqLM.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)
    sources = tokenizer(TEXTS, padding=True, return_tensors="pt", return_token_type_ids=False)
    labels = model.generate(**sources)[:, 1:]
    coverage = model.score_coverage(sources["input_ids"], sources["attention_mask"], labels=labels)
    rows = zip(coverage.untranslated.tolist(), coverage.words.tolist(), strict=True)
    marks = [[mark for mark, counts in zip(*row, strict=True) if counts] for row in rows]
    return count_marks(tokenizer.batch_decode(labels, skip_special_tokens=True), marks)


def measure_titles_and_cells(model: Any, tokenizer: Any) -> list[list[float]]:
    """Return what their tokens receive of the last layer's last head, whose reading includes the end token's step."""
    german, english = zip(*TITLES_AND_CELLS, strict=True)
    sources, targets = tokenizer(list(english)).input_ids, tokenizer(text_target=list(german)).input_ids
    readings = Readings(head=(model.config.decoder_layers - 1, model.config.decoder_attention_heads - 1))
    measured = []
    for target, forced in zip(targets, GenerateDecoder(model).force(sources, targets, readings), strict=True):
        hypothesis = Hypothesis(target, [], was_cut=False)
        hypothesis.rescore(forced, tokenizer.eos_token_id)
        measured.append(rounded(hypothesis.received))
    return measured


def measure_forward(model: Any, tokenizer: Any, pairs: list[dict[str, str]]) -> dict[str, Any]:
    """Return log-probabilities, losses, the gradient's norm in float64 and how sharp the first pair's routings are."""
    sources, targets = ([pair[side] for pair in pairs] for side in ("source", "target"))
    batch = encode(tokenizer, sources, targets)
    # float32 rounding alone moves the gradient through several routings by more than the tolerance
    exact = copy.deepcopy(model).double()
    exact(**batch).loss.backward()
    squares = [parameter.grad.square().sum() for parameter in exact.parameters() if parameter.grad is not None]
    losses = ("loss", "nll_loss", "bow_loss", "bca_loss")
    with torch.no_grad():
        output = model(**batch)
        first = model(**encode(tokenizer, sources[:1], targets[:1]), output_routing_weights=True)
    return {
        "log_probs": rounded(-token_losses(output.logits, batch["labels"])),
        "losses": {name: rounded(output[name]) for name in losses if output.get(name) is not None},
        "gradient_norm": rounded(torch.stack(squares).sum().sqrt()),
        # the mean, over positions and inputs, of the largest assignment probability, at every iteration
        "routing": {
            routing: [rounded(weights.amax(dim=-1).mean()) for weights in iterations]
            for routing, iterations in first.routing_weights.items()
        },
    }


def token_losses(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Return the cross entropy of each sentence, summed over its tokens."""
    return torch.nn.functional.cross_entropy(logits.transpose(1, 2), labels, reduction="none").sum(dim=-1)


# ---- writing
def write_expected(folder: Path, expected: dict[str, Any]) -> None:
    """Write a line for each key of the two upper levels."""
    (folder / EXPECTED).write_text(_in_lines(expected, levels=2) + "\n", encoding="utf-8")


def _in_lines(value: object, levels: int) -> str:
    if levels and isinstance(value, dict):
        rows = [f"{json.dumps(key)}:{_in_lines(inner, levels - 1)}" for key, inner in value.items()]
        return "{\n" + ",\n".join(rows) + "\n}"
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def make(name: str, measure_only: bool) -> None:
    folder = FOLDER / name
    if name == "word_for_word":
        if not measure_only:
            save(*train_word_for_word(), folder, folder)
        write_expected(folder, {"marks": measure_marks(folder)})
        return
    pairs = corpus()
    if not measure_only:
        save(*train_family(name, pairs), folder, TOKENIZER)
    pairs = clearest(folder, pairs[: SCHEDULES[name].sentences])
    write_expected(folder, {"pairs": pairs, "measured": measure(folder, pairs)})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [*FAMILIES, "word_for_word"]
    parser.add_argument("names", nargs="*", default=names, help=f"of {', '.join(names)}; all by default")
    parser.add_argument("--measure-only", action="store_true", help="keep the weights")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    for name in arguments.names:
        make(name, arguments.measure_only)


if __name__ == "__main__":
    main()
