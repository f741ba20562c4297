"""Show what a model writes at each evaluation: three translations, and how many of all are the same sentence."""

import json
from typing import Any

import numpy as np
from transformers import PreTrainedTokenizerBase
from transformers.utils import logging

from hf_capsule_mt.evaluation.repeats import Repeats, count_repeats
from hf_capsule_mt.modeling.target_text import decode_target

repeats_logger = logging.get_logger("hf_capsule_mt.training")

NUM_SHOWN = 3
MAX_CHARACTERS = 200  # of a line
Arrays = np.ndarray | list["Arrays"] | tuple["Arrays", ...]
Row = tuple[int, ...]


def token_rows(tokens: "Arrays", pad_token_id: int | None) -> list[Row]:
    """Return the tokens of each row [B, T], of one array or of several, without padding."""
    if isinstance(tokens, (list, tuple)):
        return [row for batch in tokens for row in token_rows(batch, pad_token_id)]
    return [tuple(row[(row >= 0) & (row != pad_token_id)].tolist()) for row in np.asarray(tokens)]


def repeats_of(name: str, translations: list[Row], references: list[Row]) -> Repeats | None:
    """Count the most frequent translation of an evaluation; warn if most of 10 or more distinct references got it.

    `None` for no translations, and for several of each source, which are not compared.
    """
    if not translations or len(translations) != len(references):
        return None
    repeats = count_repeats(translations, references)
    if repeats.has_collapsed:
        repeats_logger.warning(
            f"{name}: {repeats}: the model does not use its source (yet). If this does not change, check that the "
            "lines of the two languages are pairs, or train longer."
        )
    return repeats


def shown_translations(
    tokenizer: PreTrainedTokenizerBase, dataset: Any, translations: list[Row], references: list[Row]
) -> list[str]:
    """Return lines with sources, references and translations of up to three sentences, the same at each evaluation.

    Args:
        dataset: the examples of the references. A source is left out if its example has another reference: an
            evaluation may sort them.
    """
    number = min(NUM_SHOWN, len(references))
    lines = []
    for part in range(number):
        row = (2 * part + 1) * len(references) // (2 * number)  # amid each third: sorted data begin with the longest
        source = _source(tokenizer, dataset, row, references[row])
        texts = {
            "source": source,
            "reference": _text(tokenizer, references[row]),
            "translation": _text(tokenizer, translations[row]),
        }
        lines += [f"  {name:<11}  {_cut(text)}".rstrip() for name, text in texts.items() if text is not None]
    return lines


def quoted(tokenizer: PreTrainedTokenizerBase, row: Row) -> str:
    """Return the text of a row in quotation marks, cut if it is long."""
    return json.dumps(_cut(_text(tokenizer, row)), ensure_ascii=False)


def _text(tokenizer: PreTrainedTokenizerBase, row: Row) -> str:
    # the padding stands for the decoder's start token
    return decode_target(tokenizer, [int(tokenizer.pad_token_id or 0), *row])


def _source(tokenizer: PreTrainedTokenizerBase, dataset: Any, row: int, reference: Row) -> str | None:
    try:
        example = dataset[row]
        labels = tuple(int(token) for token in example["labels"] if token >= 0 and token != tokenizer.pad_token_id)
        if labels != reference:
            return None
        return str(tokenizer.decode(example["input_ids"], skip_special_tokens=True))
    except (TypeError, KeyError, IndexError):  # a stream, or other columns
        return None


def _cut(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= MAX_CHARACTERS else f"{text[: MAX_CHARACTERS - 1]}…"
