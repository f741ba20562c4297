"""Notice a model that writes one sentence whatever the source is, which neither its loss nor a BLEU of 0.4 says."""

from collections import Counter

import numpy as np
from transformers.utils import logging

repeats_logger = logging.get_logger("hf_capsule_mt.training")

MIN_REFERENCES = 10
# share of the distinct references that got the most frequent translation
MIN_SHARE = 0.5


Arrays = np.ndarray | list["Arrays"] | tuple["Arrays", ...]


def token_rows(tokens: "Arrays", pad_token_id: int | None) -> list[tuple[int, ...]]:
    """Return the tokens of each row [B, T], of one array or of several, without padding."""
    if isinstance(tokens, (list, tuple)):
        return [row for batch in tokens for row in token_rows(batch, pad_token_id)]
    return [tuple(row[(row >= 0) & (row != pad_token_id)].tolist()) for row in np.asarray(tokens)]


def warn_of_repeats(name: str, translations: "Arrays", labels: "Arrays", pad_token_id: int | None) -> None:
    """Warn if most of an evaluation's translations [B, T] are the same, though their references [B, S] are not.

    Several translations of each source are not compared.
    """
    rows, references = token_rows(translations, pad_token_id), token_rows(labels, pad_token_id)
    if len(rows) != len(references):
        return
    num_references = len(set(references))
    if num_references < MIN_REFERENCES:
        return
    (sentence, count), *_ = Counter(rows).most_common(1)
    answered = {reference for row, reference in zip(rows, references, strict=True) if row == sentence}
    if len(answered) > MIN_SHARE * num_references:
        repeats_logger.warning(
            f"{name}: {count} of {len(rows)} translations are the same: the model does not use its source (yet). If "
            "this does not change, check that the lines of the two languages are pairs, or train longer."
        )
