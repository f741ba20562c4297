"""What the page shows of one translation: words, their shares of PAST and FUTURE as it grows, pictures of routings."""

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from hf_capsule_mt.analysis.past_future import forced_curves
from hf_capsule_mt.analysis.pictures import draw_heat_maps, draw_layer_routing
from hf_capsule_mt.pipelines.coverage import token_offsets, words_of
from hf_capsule_mt.pipelines.sentences import Span


@dataclass
class SourceWord:
    """A word of the source, and its shares [number of target words + 1] after so many target words."""

    text: str
    start: int
    end: int
    past: list[float] = field(default_factory=list)
    future: list[float] = field(default_factory=list)
    untranslated: bool = False


@dataclass
class Explanation:
    """A translation and what is known of it. `score` is `None` for a model without PAST and FUTURE."""

    source: str
    translation: str
    source_words: list[SourceWord]
    target_words: list[str]
    score: float | None = None
    repetitions: list[str] = field(default_factory=list)
    pictures: list[tuple[str, str]] = field(default_factory=list)  # the file of each and what it shows


@torch.no_grad()
def explain(translator: Any, text: str, folder: str | os.PathLike[str]) -> Explanation:
    """Translates one text as one sentence, and looks inside. Pictures go into `folder`."""
    model, tokenizer = translator.model, translator.tokenizer
    has_coverage = getattr(model, "has_coverage", False)
    settings = {"split_sentences": False, "return_tensors": True, "return_coverage": has_coverage or None}
    (record,) = translator(text, **settings)
    ids = record["translation_token_ids"]
    stripped = text.strip()
    start = text.find(stripped)
    token_ids = tokenizer(stripped)["input_ids"]
    offsets = token_offsets(tokenizer, stripped, token_ids, "")
    words = words_of(text, Span(start, start + len(stripped)), offsets)
    source_words = [SourceWord(text[span.start : span.end], *span) for span, _ in words]
    ends, target_words = target_steps(tokenizer, ids[1:].tolist())
    explanation = Explanation(text, tokenizer.decode(ids, skip_special_tokens=True), source_words, target_words)
    batch = {"input_ids": torch.tensor([token_ids]), "attention_mask": torch.ones(1, len(token_ids), dtype=torch.long)}
    batch = {name: value.to(model.device) for name, value in batch.items()}
    labels = ids[None, 1:].to(model.device)
    if has_coverage:
        _add_coverage(explanation, record["coverage"], words)
        if model.config.guided_routing == "guided":
            _add_curves(explanation, forced_curves(model, **batch, labels=labels), words, ends)
    explanation.pictures = _pictures(model, batch, labels, explanation, words, ends, Path(folder))
    return explanation


def target_steps(tokenizer: Any, token_ids: list[int]) -> tuple[list[int], list[str]]:
    """How many tokens have been read after 0, 1, ... target words, and these words."""
    lengths = [
        len(tokenizer.decode(token_ids[:number], skip_special_tokens=True).split())
        for number in range(len(token_ids) + 1)
    ]
    words = tokenizer.decode(token_ids, skip_special_tokens=True).split()
    ends = [max((n for n, length in enumerate(lengths) if length <= count), default=0) for count in range(len(words))]
    last_word = next((n for n, length in enumerate(lengths) if length == len(words)), 0)
    special = set(tokenizer.all_special_ids)
    while last_word < len(token_ids) and token_ids[last_word] not in special:
        last_word += 1
    return [*ends, last_word], words


def _add_coverage(explanation: Explanation, coverage: dict[str, Any], words: list[Any]) -> None:
    explanation.score = coverage["score"]
    explanation.repetitions = coverage["repetitions"]
    untranslated = {(word["start"], word["end"]) for word in coverage["words"] if word["untranslated"]}
    for word in explanation.source_words:
        word.untranslated = (word.start, word.end) in untranslated


def _add_curves(explanation: Explanation, curves: Any, words: list[Any], ends: list[int]) -> None:
    for word, (_, tokens) in zip(explanation.source_words, words, strict=True):
        for name in ("past", "future"):
            curve = getattr(curves, name)[0, tokens].float().mean(dim=0)  # [T]
            setattr(word, name, [float(curve[min(end, len(curve) - 1)]) for end in ends])


def _pictures(
    model: Any,
    batch: dict[str, torch.Tensor],
    labels: torch.Tensor,
    explanation: Explanation,
    words: list[Any],
    ends: list[int],
    folder: Path,
) -> list[tuple[str, str]]:
    """A heat map for each routing of the model that has one."""
    if not explanation.source_words or not hasattr(model.config, "layer_aggregation"):
        return []
    weights = model(**batch, labels=labels, output_routing_weights=True).routing_weights or {}
    source = [word.text for word in explanation.source_words]
    pictures = []
    for name, iterations in weights.items():
        if name.endswith("layer_aggregation") and iterations:
            title = f"Which layers of the {name.split('.')[0]} its output capsules take from, at each iteration"
            pictures.append((str(draw_layer_routing(iterations, folder / f"{name}.png")), title))
    if "decoder.guidance" in weights:
        last = weights["decoder.guidance"][-1][0, min(ends[-1], labels.shape[1] - 1)]  # [S, M]
        by_word = torch.stack([last[tokens].float().mean(dim=0) for _, tokens in words])
        capsules = capsule_names(model.capsules_per_group, by_word.shape[1])
        path = draw_heat_maps({"after the last word": by_word}, source, capsules, folder / "capsules.png")
        pictures.append((str(path), "Which capsule each source word belongs to, once all is translated"))
    if explanation.source_words[0].past:
        rows = ["(nothing)", *explanation.target_words]
        maps = {
            title: torch.tensor([getattr(word, name) for word in explanation.source_words]).T
            for title, name in (("PAST", "past"), ("FUTURE", "future"))
        }
        path = draw_heat_maps(maps, rows, source, folder / "past_future.png")
        pictures.append((str(path), "How PAST grows and FUTURE shrinks with each target word (rows)"))
    return pictures


def capsule_names(each: int, number: int) -> list[str]:
    """Names of `number` capsules, `each` of PAST and of FUTURE before the others."""
    names = [f"{kind} {n}" for kind in ("PAST", "FUTURE") for n in range(1, each + 1)]
    return [*names, *(f"other {n}" for n in range(1, number - len(names) + 1))]
