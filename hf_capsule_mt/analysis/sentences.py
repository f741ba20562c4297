"""Draw what the routings of a model do: on average over a text, and in one sentence pair."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from transformers import PreTrainedTokenizerBase

from hf_capsule_mt.analysis.past_future import forced_curves
from hf_capsule_mt.analysis.pictures import draw_layer_routing, draw_past_future, draw_word_map
from hf_capsule_mt.analysis.routing_statistics import IterationStatistics, encoded_batches, routings_of
from hf_capsule_mt.modeling.target_text import target_vocabulary


def draw_averages(statistics: Mapping[str, Sequence[IterationStatistics]], output: Path) -> list[Path]:
    """Draw the average assignments of each routing of layers or heads to `output`-ROUTING.png."""
    pictures = []
    for routing, entries in statistics.items():
        layers = [entry.average.unsqueeze(0) for entry in entries if entry.average is not None]
        if layers:
            pictures.append(draw_layer_routing(layers, output.with_name(f"{output.name}-{routing}.png")))
    return pictures


def draw_sentence(
    model: Any, tokenizer: PreTrainedTokenizerBase, source: str, target: str, output: Path
) -> list[Path]:
    """Draw PAST and FUTURE to `output`-past-future.png, and the words of capsules to `output`-ROUTING-words.png.

    Return [] for a model that has other routings or sums of layers; one without any is refused.
    """
    (batch,) = encoded_batches(tokenizer, [source], [target])
    words = tokenizer.convert_ids_to_tokens(batch["input_ids"][0].tolist())
    target_tokens = {number: token for token, number in target_vocabulary(tokenizer).items()}
    target_words = [target_tokens.get(number, tokenizer.unk_token) for number in batch["labels"][0].tolist()]
    weights = {routing: iterations[-1][0].cpu() for routing, iterations in routings_of(model, batch).items()}
    pictures = []
    if "decoder.guidance" in weights:
        curves = forced_curves(model, **batch)
        path = output.with_name(f"{output.name}-past-future.png")
        pictures.append(draw_past_future(curves.past[0].cpu(), curves.future[0].cpu(), words, target_words, path))
    for routing, assignments in weights.items():
        if assignments.dim() == 2:  # a sentence into capsules [S, M]
            pictures.append(draw_word_map(assignments, words, output.with_name(f"{output.name}-{routing}-words.png")))
    return pictures
