"""A model's own opinion of how much of the source a translation says."""

import os
from collections.abc import Sequence

from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

from hf_capsule_mt.analysis.routing_statistics import encoded_batches


def coverage_scores(
    checkpoint: str | os.PathLike[str],
    sources: Sequence[str],
    hypotheses: Sequence[str],
    batch_size: int = 32,
    device: str = "cpu",
) -> list[float]:
    """The coverage score of given translations, the higher the more is covered, by a model with `score_coverage`.

    That method takes `input_ids`, `attention_mask` and `labels`; the `score` of what it returns is one number for each
    sentence [B]. What is longer than the model can read, such as a translation that repeats itself without end, is cut.
    """
    tokenizer = AutoTokenizer.from_pretrained(checkpoint)
    model = AutoModelForSeq2SeqLM.from_pretrained(checkpoint).to(device).eval()
    if not hasattr(model, "score_coverage"):
        raise ValueError(f"the model of {checkpoint}, {type(model).__name__}, has no `score_coverage`")
    longest = getattr(model.config, "max_position_embeddings", None)
    scores: list[float] = []
    for batch in encoded_batches(tokenizer, list(sources), list(hypotheses), batch_size, device, longest):
        scores += model.score_coverage(**batch).score.tolist()
    return scores
