"""What a golden checkpoint is held to: its translations, scores, coverage, losses and routing weights."""

import copy
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, pipeline

import hf_capsule_mt  # noqa: F401  (registers the families and the task)

# in the file; the test allows 1e-4
DECIMALS = 5


def rounded(values: Any) -> Any:
    """Convert a tensor or a number into (lists of) numbers that fit in a file."""
    if isinstance(values, torch.Tensor):
        return rounded(values.tolist())
    return [rounded(value) for value in values] if isinstance(values, list) else round(float(values), DECIMALS)


def measure(folder: Path, pairs: list[dict[str, str]], unseen: list[dict[str, str]]) -> dict[str, Any]:
    """Return the translations and coverage of pairs that a checkpoint knows, and the losses of pairs that it does not.

    Decisions are clear where it knows the answer; numbers tell more where it does not.
    """
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
    return {
        "translations": [
            measure_translations(folder, [pair["source"] for pair in pairs], num_beams) for num_beams in (1, 4)
        ],
        "coverage": measure_coverage(model, tokenizer, pairs) if getattr(model, "has_coverage", False) else None,
        **measure_forward(model, tokenizer, unseen),
    }


def measure_translations(folder: Path, sources: list[str], num_beams: int) -> dict[str, Any]:
    """Translate by the pipeline, in one batch."""
    translator = pipeline("translation", model=str(folder))
    records = translator(sources, num_beams=num_beams, batch_size=len(sources), return_scores=True)
    return {
        "num_beams": num_beams,
        "texts": [record["translation_text"] for record in records],
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
        kept = [" ".join(words if name == "whole" else words[: len(words) // 2]) for words in targets]
        batch = encode(tokenizer, [pair["source"] for pair in pairs], kept)
        coverage = model.score_coverage(batch["input_ids"], batch["attention_mask"], labels=batch["labels"])
        measured[name] = {
            key: rounded(getattr(coverage, key))
            for key in ("score", "balance", "log_prob", "past", "future", "covered")
        }
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
            place: [rounded(weights.amax(dim=-1).mean()) for weights in iterations]
            for place, iterations in first.routing_weights.items()
        },
    }


def token_losses(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Return the cross entropy of each sentence, summed over its tokens."""
    return torch.nn.functional.cross_entropy(logits.transpose(1, 2), labels, reduction="none").sum(dim=-1)
