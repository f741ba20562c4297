"""Measure PAST and FUTURE during forced decoding (Zheng et al. 2019, section 4.3).

Legend: B sentences, S source words, T target words, V vocabulary.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch

from hf_capsule_mt.modeling import CapsuleMarianMTModel, CapsuleRNMTForConditionalGeneration
from hf_capsule_mt.modeling.coverage import PastFutureCurves, past_future_curves
from hf_capsule_mt.modeling.summed_losses import IGNORE_INDEX

GuidedModel = CapsuleMarianMTModel | CapsuleRNMTForConditionalGeneration
TOP_WORDS_PER_WORD = 5  # Top holds 5 words for each word of the bag


class OverlapRate(NamedTuple):
    """r_OL of PAST and FUTURE: 1 if every word of every bag is among the most probable words, 0 if none is.

    The paper reports 0.72 and 0.70. `None` where no step has a bag, as the FUTURE of a sentence of one word.
    """

    past: float | None
    future: float | None


def overlap_rate(
    past_scores: torch.Tensor, future_scores: torch.Tensor, words: Sequence[int], excluded: Iterable[int] = ()
) -> OverlapRate:
    """Return r_OL of one sentence: the mean over steps t of |Top(p_t) and bag_t| / |bag_t|, bags as sets of words.

    | | bag | Top |
    |---|---|---|
    | PAST | y_1..y_t | the 5 t most probable words |
    | FUTURE | y_t+1..y_T, skipping the last step, where it is empty | the 5 (T - t) most probable words |

    Args:
        past_scores, future_scores: [T, V], the logits or probabilities of the bags at each step.
        words: y_1..y_T.
        excluded: words that count neither in a bag nor in Top, such as padding.
    """
    if not past_scores.shape == future_scores.shape == (len(words), past_scores.shape[-1]):
        raise ValueError(
            f"scores of {len(words)} words must be [{len(words)}, V], got {list(past_scores.shape)} and "
            f"{list(future_scores.shape)}"
        )
    ignored = set(excluded)
    past: list[float] = []
    future: list[float] = []
    for step in range(1, len(words) + 1):
        for rates, scores, bag, count in (
            (past, past_scores[step - 1], words[:step], step),
            (future, future_scores[step - 1], words[step:], len(words) - step),
        ):
            types = set(bag) - ignored
            if types:
                allowed = scores.clone()
                allowed[list(ignored)] = -torch.inf
                top = set(allowed.topk(min(TOP_WORDS_PER_WORD * count, len(allowed) - len(ignored))).indices.tolist())
                rates.append(len(top & types) / len(types))
    return OverlapRate(_mean(past), _mean(future))


def mean_overlap_rate(rates: Sequence[OverlapRate]) -> OverlapRate:
    """Average over the sentences that have a rate."""
    return OverlapRate(
        _mean([rate.past for rate in rates if rate.past is not None]),
        _mean([rate.future for rate in rates if rate.future is not None]),
    )


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


@torch.no_grad()
def overlap_rates(
    model: GuidedModel, input_ids: torch.Tensor, attention_mask: torch.Tensor, labels: torch.Tensor
) -> list[OverlapRate]:
    """Return r_OL of each sentence: sources [B, S], their mask [B, S], translations [B, T] padded with -100.

    The model must have `guided_routing` and its bag-of-words loss.
    """
    losses = getattr(model, "guided_losses", None)
    if losses is None:
        raise ValueError("the overlap rate needs a model with `guided_routing` and a `guided_bow_weight` above 0")
    output = model.model(
        input_ids,
        attention_mask=attention_mask,
        decoder_input_ids=model.prepare_decoder_input_ids_from_labels(labels),
        output_guided_capsules=True,
        use_cache=False,
    )
    embeddings = model.get_output_embeddings().weight
    past, future = (states @ embeddings.t() for states in losses.word_states(output.guided_capsules))
    config = model.config
    ids = (config.pad_token_id, config.bos_token_id, config.decoder_start_token_id)
    special = {token for token in ids if token is not None}
    rates = []
    for sentence, row in enumerate(labels.tolist()):
        words = [word for word in row if word != IGNORE_INDEX]
        rates.append(overlap_rate(past[sentence, : len(words)], future[sentence, : len(words)], words, special))
    return rates


class StepShares(NamedTuple):
    """Mean PAST and FUTURE of source words, `offset` steps after the step that predicts their translation.

    At offset 0 the translation has not been read, at offset 1 it has. words: how many links the means are of.
    """

    offset: int
    past: float
    future: float
    words: int


def shares_around_step(
    curves: Sequence[tuple[torch.Tensor, torch.Tensor]], links: Sequence[Iterable[tuple[int, int]]], reach: int = 3
) -> list[StepShares]:
    """Return how the mass of a word moves from FUTURE to PAST around the step that says it (Zheng et al., Figure 1).

    Args:
        curves: PAST and FUTURE [S, T] of each sentence.
        links: the pairs (source word, target word) of each sentence.
        reach: steps before and after.
    """
    shares = []
    for offset in range(-reach, reach + 1):
        values = [
            (float(past[source, target + offset]), float(future[source, target + offset]))
            for (past, future), pairs in zip(curves, links, strict=True)
            for source, target in pairs
            if 0 <= target + offset < past.shape[1]
        ]
        if values:
            past_mean, future_mean = (sum(column) / len(values) for column in zip(*values, strict=True))
            shares.append(StepShares(offset, past_mean, future_mean, len(values)))
    return shares


@torch.no_grad()
def forced_curves(
    model: GuidedModel, input_ids: torch.Tensor, attention_mask: torch.Tensor, labels: torch.Tensor
) -> PastFutureCurves:
    """Return each source word's shares [B, S, T] during forced decoding of translations [B, T] padded with -100."""
    weights = model(
        input_ids,
        attention_mask=attention_mask,
        decoder_input_ids=model.prepare_decoder_input_ids_from_labels(labels),
        output_routing_weights=True,
        use_cache=False,
    ).routing_weights["decoder.guidance"][-1]
    return past_future_curves(weights, model.capsules_per_group)
