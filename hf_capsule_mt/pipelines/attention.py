"""Coverage by attention: the most that one head of the decoder attends to a word of the source.

In many trained decoders one head aligns words: each target word attends to the source word that it translates. A
source word to which this head never attends has no translation. `capsule-mt calibrate` finds the head.

Legend: B sources, R translations of each, S source tokens, T target tokens.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from threading import get_ident

import torch
from torch import nn
from transformers import PreTrainedModel

from hf_capsule_mt.pipelines.limits import end_token_ids
from hf_capsule_mt.pipelines.source_batch import SourceBatch, sequence_log_probs

PROJECTIONS = ("q_proj", "k_proj")  # of queries and keys


def cross_attentions(model: PreTrainedModel) -> list[nn.Module]:
    """Return the attention of each decoder layer to the encoder; none if it is not built like Marian's."""
    layers = getattr(model.get_decoder(), "layers", ())
    found = [getattr(layer, "encoder_attn", None) for layer in layers]
    return [module for module in found if isinstance(module, nn.Module) and hasattr(module, "q_proj")]


def all_heads(model: PreTrainedModel) -> list[tuple[int, int]]:
    """Return every layer and head of the attention to the encoder."""
    return [
        (layer, head)
        for layer in range(len(cross_attentions(model)))
        for head in range(model.config.decoder_attention_heads)
    ]


@torch.no_grad()
def received_attention(
    model: PreTrainedModel, batch: SourceBatch, sequences: torch.Tensor, lengths: torch.Tensor, place: Sequence[int]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the mean log-probability of a token [B * R] of translations, and what source tokens receive: [B * R, S].

        received_s = max over t of softmax_s(q_t . k_s / sqrt(d_h))

    where t are the steps that write a target token, the end token included: a head that aligns words often attends to
    the word that the decoder has just read, and only the last step reads the last word. It is 0 if nothing was said.

    Args:
        batch: B sources.
        sequences: [B * R, T], each after its start token; those of a source stand together.
        lengths: how many tokens after the start token count [B * R].
        place: the layer and the head.
    """
    layer, head = place
    with _queries_and_keys(cross_attentions(model)[layer]) as found:
        log_probs = sequence_log_probs(model, batch, sequences, lengths)
    width = found["q_proj"].shape[-1] // model.config.decoder_attention_heads
    own = slice(head * width, (head + 1) * width)
    queries, keys = (found[name][..., own].float() for name in PROJECTIONS)
    scores = queries @ keys.transpose(1, 2) * width**-0.5  # [B * R, T, S]
    keep = batch.attention_mask.bool().repeat_interleave(len(sequences) // len(batch.input_ids), dim=0)
    attention = scores.masked_fill(~keep[:, None], -torch.inf).softmax(dim=-1)
    given = torch.arange(scores.shape[1], device=scores.device) < lengths.to(scores.device)[:, None]
    ends = torch.tensor(end_token_ids(model, {}), device=sequences.device, dtype=sequences.dtype)
    given &= ~torch.isin(sequences[:, 1:2], ends)
    received = attention.masked_fill(~given[..., None], 0.0).amax(dim=1)
    return log_probs / lengths.clamp(min=1).to(log_probs.device), received


@contextmanager
def _queries_and_keys(attention: nn.Module) -> Iterator[dict[str, torch.Tensor]]:
    """Collect the queries [N, T, d] and keys [N, S, d] of a module, under the names of their projections.

    Calls of the model by other threads are not looked at.
    """
    found: dict[str, torch.Tensor] = {}
    thread = get_ident()

    def keep(name: str, module: nn.Module, inputs: object, output: torch.Tensor) -> None:
        if get_ident() == thread:
            found[name] = output

    handles = [attention.get_submodule(name).register_forward_hook(partial(keep, name)) for name in PROJECTIONS]
    try:
        yield found
    finally:
        for handle in handles:
            handle.remove()
