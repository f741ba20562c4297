"""What PAST and FUTURE hold: curves of source words, overlap with bags of words (Zheng et al. 2019, section 4.3)."""

from collections.abc import Iterable
from typing import Any

import torch

from hf_capsule_mt.analysis.routing_statistics import IGNORE_INDEX

PLACE = "decoder.guidance"


def word_curves(weights: torch.Tensor, num_capsules: int) -> tuple[torch.Tensor, torch.Tensor]:
    """How much of each source word is PAST and FUTURE at each step: [..., T, S, M] -> two of [..., T, S].

    The first `num_capsules` output capsules are PAST, the next ones FUTURE; the rest is neither.
    """
    if weights.shape[-1] < 2 * num_capsules:
        raise ValueError(
            f"`weights` must have at least 2 * {num_capsules} output capsules, got shape {list(weights.shape)}"
        )
    past, future = (weights[..., start : start + num_capsules].sum(dim=-1) for start in (0, num_capsules))
    return past, future


def overlap_rate(scores: torch.Tensor, words: torch.Tensor, group: str, ignored: tuple[int, ...] = ()) -> float | None:
    """r_OL of one sentence: the part of the words of a bag that are among the best predictions of a step.

        PAST:    mean over t < T of |Top_5t(p_t) and {y_1..y_t}| / |{y_1..y_t}|
        FUTURE:  mean over t < T of |Top_5(T-t)(p_t) and {y_t+1..y_T}| / |{y_t+1..y_T}|

    Bags are sets of words: a word that comes twice counts once. The last step has no FUTURE and is left out of both.

    Args:
        scores: of every word at each step [T, V], in any order-preserving unit.
        words: the target [T].
        group: "past" or "future".
        ignored: words that are in no bag, such as the end of the sentence.

    Returns:
        The rate, or None where no step has a bag.
    """
    if group not in ("past", "future"):
        raise ValueError(f"`group` must be 'past' or 'future', got {group!r}")
    length, vocabulary = scores.shape
    rates = []
    for step in range(1, length):  # t, counted from 1
        bag = words[:step] if group == "past" else words[step:]
        bag_words = set(bag.tolist()) - set(ignored)
        if not bag_words:
            continue
        size = 5 * (step if group == "past" else length - step)
        best = scores[step - 1].topk(min(size, vocabulary)).indices
        rates.append(len(bag_words & set(best.tolist())) / len(bag_words))
    return sum(rates) / len(rates) if rates else None


@torch.no_grad()
def overlap_rates(model: Any, batches: Iterable[dict[str, torch.Tensor]]) -> dict[str, float]:
    """The mean r_OL of PAST and FUTURE over sentences, of a model that has learnt to predict bags of words."""
    losses = getattr(model, "guided_losses", None)
    if losses is None or losses.bow_weight == 0:
        raise ValueError(f"{type(model).__name__} with this configuration does not predict bags of words")
    ignored = (model.config.pad_token_id, model.config.eos_token_id)
    given: list[tuple[Any, ...]] = []  # what the losses are computed from, in any family: capsules, ..., embeddings
    handle = losses.register_forward_pre_hook(lambda module, arguments: given.append(arguments))
    rates: dict[str, list[float]] = {"past": [], "future": []}
    try:
        for batch in batches:
            model.eval()(**batch)
            capsules, _, labels, embeddings, *_ = given.pop()
            for group, states in zip(rates, losses.word_states(capsules), strict=True):
                for state, words in zip(states, labels, strict=True):
                    keep = words != IGNORE_INDEX
                    rate = overlap_rate(state[keep] @ embeddings.t(), words[keep], group, ignored)
                    if rate is not None:
                        rates[group].append(rate)
    finally:
        handle.remove()
    return {group: sum(values) / max(len(values), 1) for group, values in rates.items()}
