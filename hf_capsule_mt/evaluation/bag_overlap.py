"""How well PAST and FUTURE hold the words that they should: the top-5 overlap rate of Zheng et al. 2019, section 4.3.

Legend: T target words of a sentence, V vocabulary.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch

TIMES = 5


class OverlapRate(NamedTuple):
    """r_OL of PAST and of FUTURE: 1 if every word of every bag is among the most probable, 0 if none is.

    The paper reports 0.72 and 0.70. `None` where a sentence of one word has no FUTURE.
    """

    past: float | None
    future: float | None


def overlap_rate(
    past_scores: torch.Tensor, future_scores: torch.Tensor, words: Sequence[int], excluded: Iterable[int] = ()
) -> OverlapRate:
    """r_OL of one sentence: the mean over its steps t of |Top(p_t) and bag_t| / |bag_t|, with bags as sets of words.

    PAST: the bag is y_1..y_t, the top are the 5 t most probable words; FUTURE: y_t+1..y_T and 5 (T - t), without the
    last step, whose bag is empty.

    Args:
        past_scores, future_scores: [T, V], the logits or probabilities of the bags at each step.
        words: y_1..y_T.
        excluded: words that count in no bag and take no place among the top, such as padding.
    """
    if not past_scores.shape == future_scores.shape == (len(words), past_scores.shape[-1]):
        raise ValueError(
            f"scores of {len(words)} words must be [{len(words)}, V], got {list(past_scores.shape)} and "
            f"{list(future_scores.shape)}"
        )
    left_out = set(excluded)
    past: list[float] = []
    future: list[float] = []
    for step in range(1, len(words) + 1):
        for rates, scores, bag, count in (
            (past, past_scores[step - 1], words[:step], step),
            (future, future_scores[step - 1], words[step:], len(words) - step),
        ):
            types = set(bag) - left_out
            if types:
                allowed = scores.clone()
                allowed[list(left_out)] = -torch.inf
                top = set(allowed.topk(min(TIMES * count, len(allowed) - len(left_out))).indices.tolist())
                rates.append(len(top & types) / len(types))
    return OverlapRate(_mean(past), _mean(future))


def mean_overlap_rate(rates: Sequence[OverlapRate]) -> OverlapRate:
    """The mean over sentences, of those that have a rate."""
    return OverlapRate(
        _mean([rate.past for rate in rates if rate.past is not None]),
        _mean([rate.future for rate in rates if rate.future is not None]),
    )


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
