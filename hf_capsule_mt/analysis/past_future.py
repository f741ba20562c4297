"""What PAST and FUTURE hold while a given translation is produced (Zheng et al. 2019, section 4.3)."""

from typing import Any

import torch

from hf_capsule_mt.evaluation.bag_overlap import OverlapRate, overlap_rate
from hf_capsule_mt.modeling.coverage import PastFutureCurves, past_future_curves
from hf_capsule_mt.modeling.losses import IGNORE_INDEX


@torch.no_grad()
def overlap_rates(
    model: Any, input_ids: torch.Tensor, attention_mask: torch.Tensor, labels: torch.Tensor
) -> list[OverlapRate]:
    """r_OL of each sentence of a batch: sources [B, S], their mask [B, S] and translations [B, T] padded with -100.

    The model has `guided_routing`, and its bag-of-words loss has not been dropped.
    """
    if getattr(model, "guided_losses", None) is None:
        raise ValueError("the overlap rate needs a model with `guided_routing` and a `guided_bow_weight` above 0")
    output = model.model(
        input_ids,
        attention_mask=attention_mask,
        decoder_input_ids=model.prepare_decoder_input_ids_from_labels(labels),
        output_guided_capsules=True,
        use_cache=False,
    )
    embeddings = model.get_output_embeddings().weight
    past, future = (states @ embeddings.t() for states in model.guided_losses.word_states(output.guided_capsules))
    special = {model.config.pad_token_id, model.config.bos_token_id, model.config.decoder_start_token_id} - {None}
    rates = []
    for sentence, row in enumerate(labels.tolist()):
        words = [word for word in row if word != IGNORE_INDEX]
        rates.append(overlap_rate(past[sentence, : len(words)], future[sentence, : len(words)], words, special))
    return rates


@torch.no_grad()
def forced_curves(
    model: Any, input_ids: torch.Tensor, attention_mask: torch.Tensor, labels: torch.Tensor
) -> PastFutureCurves:
    """The shares [B, S, T] of each source word while the translations [B, T], padded with -100, are produced."""
    weights = model(
        input_ids,
        attention_mask=attention_mask,
        decoder_input_ids=model.prepare_decoder_input_ids_from_labels(labels),
        output_routing_weights=True,
        use_cache=False,
    ).routing_weights["decoder.guidance"][-1]
    return past_future_curves(weights, model.capsules_per_group)
