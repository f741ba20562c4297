"""A model's own opinion of how much of the source a translation says."""

import os
from collections.abc import Sequence

import torch
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer


def coverage_scores(
    checkpoint: str | os.PathLike[str],
    sources: Sequence[str],
    hypotheses: Sequence[str],
    batch_size: int = 32,
    device: str = "cpu",
) -> list[float]:
    """The coverage score of given translations, the higher the more is covered, by a model with `score_coverage`.

    That method takes `input_ids`, `attention_mask` and `labels`; the `score` of what it returns is one number for each
    sentence [B].
    """
    tokenizer = AutoTokenizer.from_pretrained(checkpoint)
    model = AutoModelForSeq2SeqLM.from_pretrained(checkpoint).to(device).eval()
    if not hasattr(model, "score_coverage"):
        raise ValueError(f"the model of {checkpoint}, {type(model).__name__}, has no `score_coverage`")
    scores: list[float] = []
    for start in range(0, len(sources), batch_size):
        batch = tokenizer(
            list(sources[start : start + batch_size]),
            text_target=list(hypotheses[start : start + batch_size]),
            return_tensors="pt",
            padding=True,
            truncation=True,
        ).to(device)
        batch["labels"] = batch["labels"].masked_fill(batch["labels"] == tokenizer.pad_token_id, -100)
        with torch.no_grad():
            scores += (
                model.score_coverage(batch["input_ids"], batch["attention_mask"], labels=batch["labels"])
                .score.float()
                .cpu()
                .tolist()
            )
    return scores
