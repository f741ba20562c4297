"""Explain one translation: source words with their shares of PAST and FUTURE by step, charts of the routings."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from hf_capsule_mt.analysis.past_future import PastFutureCurves, forced_curves
from hf_capsule_mt.analysis.pictures import draw_layer_routing
from hf_capsule_mt.demo.charts import FUTURE_COLOUR, OTHER_COLOUR, PAST_COLOUR, chart
from hf_capsule_mt.pipelines import Coverage, CoverageOptions, Translator


@dataclass
class SourceWord:
    """A word of the source, and its shares [number of target words + 1] after 0, 1, ... target words.

    `covered` is how much of it was translated in the end, by whichever method the model has.
    """

    text: str
    start: int
    end: int
    covered: float = 1.0
    past: list[float] = field(default_factory=list)
    future: list[float] = field(default_factory=list)
    untranslated: bool = False


@dataclass
class Explanation:
    """A translation and its explanation. `score` is `None` for a blank text, and charts are HTML."""

    source: str
    translation: str
    source_words: list[SourceWord]
    target_words: list[str]
    score: float | None = None
    repetitions: list[str] = field(default_factory=list)
    charts: list[str] = field(default_factory=list)
    pictures: list[tuple[str, str]] = field(default_factory=list)  # (file, caption) of each


@torch.no_grad()
def explain(
    translator: Translator, text: str, folder: str | os.PathLike[str], given: str | None = None
) -> Explanation:
    """Explain a translation of one text, taken as one sentence; write pictures into `folder`.

    `given` is a translation from elsewhere; without it, the model translates.
    """
    model, tokenizer = translator.model, translator.tokenizer
    if given is None:
        translation = translator(text, split_sentences=False, scores=False, coverage=CoverageOptions())
    else:
        (translation,) = translator.score([text], [given], coverage=CoverageOptions())
    if not translation.segments:
        return Explanation(text, translation.text, [], translation.text.split())
    (segment,) = translation.segments
    words = translator.source_words(text, segment)
    source_words = [SourceWord(text[span.start : span.end], *span) for span, _ in words]
    groups = [tokens for _, tokens in words]
    ends, target_words = target_steps(tokenizer, segment.target_ids[1:])
    explanation = Explanation(text, translation.text, source_words, target_words)
    source, target = torch.tensor([segment.source_ids]), torch.tensor([segment.target_ids[1:]])
    batch = {"input_ids": source, "attention_mask": torch.ones_like(source), "labels": target}
    batch = {name: value.to(model.device) for name, value in batch.items()}
    if translation.coverage is not None:
        _add_coverage(explanation, translation.coverage)
        if getattr(model, "has_coverage", False) and model.config.guided_routing == "guided":
            _add_curves(explanation, forced_curves(model, **batch), groups, ends)
    if explanation.source_words and hasattr(model.config, "layer_aggregation"):
        weights = model(**batch, output_routing_weights=True).routing_weights or {}
        explanation.charts = _charts(model, weights, explanation, groups, ends)
        explanation.pictures = _pictures(weights, Path(folder))
    return explanation


def target_steps(tokenizer: PreTrainedTokenizerBase, token_ids: Sequence[int]) -> tuple[list[int], list[str]]:
    """Return how many tokens have been read after 0, 1, ... target words, and these words."""
    texts = [
        str(tokenizer.decode(list(token_ids[:number]), skip_special_tokens=True))
        for number in range(len(token_ids) + 1)
    ]
    lengths = [len(text.split()) for text in texts]
    words = texts[-1].split()
    ends = [max((n for n, length in enumerate(lengths) if length <= count), default=0) for count in range(len(words))]
    last_word = next((n for n, length in enumerate(lengths) if length == len(words)), 0)
    special = set(tokenizer.all_special_ids)
    while last_word < len(token_ids) and token_ids[last_word] not in special:
        last_word += 1
    return [*ends, last_word], words


def _add_coverage(explanation: Explanation, coverage: Coverage) -> None:
    explanation.score = coverage.score
    explanation.repetitions = list(coverage.repetitions)
    by_place = {(word.start, word.end): word for word in coverage.words}
    for word in explanation.source_words:
        found = by_place[word.start, word.end]
        word.covered, word.untranslated = found.covered, found.untranslated


def _add_curves(explanation: Explanation, curves: PastFutureCurves, groups: list[list[int]], ends: list[int]) -> None:
    for word, tokens in zip(explanation.source_words, groups, strict=True):
        for name in ("past", "future"):
            curve = getattr(curves, name)[0, tokens].float().mean(dim=0)  # [T]
            setattr(word, name, [float(curve[min(end, len(curve) - 1)]) for end in ends])


def _charts(
    model: PreTrainedModel,
    weights: Mapping[str, Sequence[torch.Tensor]],
    explanation: Explanation,
    groups: list[list[int]],
    ends: list[int],
) -> list[str]:
    """Chart PAST and FUTURE by target word, and the capsules of each source word in the end."""
    words, charts = explanation.source_words, []
    if words[0].past:
        source, rows = [word.text for word in words], ["(nothing)", *explanation.target_words]
        for name, colour in (("past", PAST_COLOUR), ("future", FUTURE_COLOUR)):
            shares = [[getattr(word, name)[step] for word in words] for step in range(len(rows))]
            title = f"{name.upper()} of each source word (columns) after each word of the translation (rows)"
            charts.append(chart(title, rows, source, shares, [colour] * len(source)))
    if "decoder.guidance" in weights:
        last = weights["decoder.guidance"][-1][0]
        last = last[min(ends[-1], len(last) - 1)]  # [S, M]
        shares = [last[tokens].float().mean(dim=0).tolist() for tokens in groups]
        each = cast(int, model.capsules_per_group)
        names = capsule_names(each, last.shape[-1])
        colours = [PAST_COLOUR] * each + [FUTURE_COLOUR] * each + [OTHER_COLOUR] * (len(names) - 2 * each)
        title = "Which capsule each source word belongs to, once all is translated"
        charts.append(chart(title, [word.text for word in words], names, shares, colours))
    return charts


def _pictures(weights: Mapping[str, Sequence[torch.Tensor]], folder: Path) -> list[tuple[str, str]]:
    """Draw a heat map for each routing of layers."""
    pictures = []
    for name, iterations in weights.items():
        if name.endswith("layer_aggregation") and iterations:
            title = f"Which layers of the {name.split('.')[0]} its output capsules take from, at each iteration"
            pictures.append((str(draw_layer_routing(iterations, folder / f"{name}.png")), title))
    return pictures


def capsule_names(each: int, number: int) -> list[str]:
    """Name `number` capsules, `each` of PAST and of FUTURE before the others."""
    names = [f"{kind} {n}" for kind in ("PAST", "FUTURE") for n in range(1, each + 1)]
    return [*names, *(f"other {n}" for n in range(1, number - len(names) + 1))]
