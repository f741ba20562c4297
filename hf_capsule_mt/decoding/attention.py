"""What one head of a decoder attends to in the source, for decoders built like Marian's.

Legend: N rows, S source tokens, T target tokens.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from threading import get_ident

import torch
from torch import nn
from transformers import PreTrainedModel

PROJECTIONS = ("q_proj", "k_proj")  # of queries and keys


def cross_attentions(model: PreTrainedModel) -> list[nn.Module]:
    """Return the attention of each decoder layer to the encoder; none if it is not built like Marian's."""
    layers = getattr(model.get_decoder(), "layers", ())
    modules = [getattr(layer, "encoder_attn", None) for layer in layers]
    return [module for module in modules if isinstance(module, nn.Module) and hasattr(module, "q_proj")]


@contextmanager
def read_head(
    model: PreTrainedModel, layer_and_head: tuple[int, int], mask: torch.Tensor
) -> Iterator[list[torch.Tensor]]:
    """Collect the attention of one head to the source, from the forward pass in the block: one tensor [N, T, S].

        attention_ts = softmax_s(q_t . k_s / sqrt(d_h))

    Calls of the model by other threads are ignored.

    Args:
        mask: [N, S], True keeps a source token.
    """
    layer, head = layer_and_head
    projections: dict[str, torch.Tensor] = {}
    thread = get_ident()

    def keep(name: str, module: nn.Module, inputs: object, output: torch.Tensor) -> None:
        if get_ident() == thread:
            projections[name] = output

    module = cross_attentions(model)[layer]
    handles = [module.get_submodule(name).register_forward_hook(partial(keep, name)) for name in PROJECTIONS]
    attention: list[torch.Tensor] = []
    try:
        yield attention
    finally:
        for handle in handles:
            handle.remove()
    width = projections["q_proj"].shape[-1] // model.config.decoder_attention_heads
    columns = slice(head * width, (head + 1) * width)
    queries, keys = (projections[name][..., columns].float() for name in PROJECTIONS)
    scores = queries @ keys.transpose(1, 2) * width**-0.5  # [N, T, S]
    attention.append(scores.masked_fill(~mask[:, None], -torch.inf).softmax(dim=-1))
