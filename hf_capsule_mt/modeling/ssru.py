"""SSRU (Kim et al. 2019): a recurrent state in place of the decoder's self-attention.

Legend: B batch, T target positions, H heads, d model width. In every mask `True` keeps.
"""

from typing import Any

import torch
from torch import nn
from torch.nn.functional import pad
from transformers.cache_utils import EncoderDecoderCache

from hf_capsule_mt.configuration.configuration_capsule_marian import CapsuleMarianConfig
from hf_capsule_mt.modeling.outputs import IterationWeights
from hf_capsule_mt.modeling.padding import padding_mask_or_none
from hf_capsule_mt.routing.common import iteration_dtype


def linear_recurrence(forget: torch.Tensor, update: torch.Tensor, max_length: int = 0) -> torch.Tensor:
    """Compute a linear recurrence of first order by a parallel scan.

    With c_0 = 0, for each position t,

        c_t = f_t * c_(t-1) + u_t

    Two neighbouring steps combine into one, with f = f_2 f_1 and u = f_2 u_1 + u_2. After k rounds, each position
    holds the combined step of the last 2^k positions. So log2 T rounds suffice, each over all positions at once.

    Args:
        forget: f [B, T, d].
        update: u [B, T, d].
        max_length: the limit of T in a graph that is traced for any T; otherwise ignored.

    Returns:
        c [B, T, d], the states after all positions.

    Relations: with f = 0, c is u; with f = 1, the running sum of u; with a constant f, an exponentially decaying sum.
    There are no divisions: gates of 0 and underflow do no harm, nor do their gradients.
    """
    length, reach = update.shape[1], 1
    while reach < (length if isinstance(length, int) else max_length):
        update = update + forget * pad(update, (0, 0, reach, 0))[:, :length]  # from `reach` positions earlier
        forget = forget * pad(forget, (0, 0, reach, 0))[:, :length]
        reach *= 2
    return update


def mask_of_new_tokens(padding_mask: torch.Tensor | None, length: int) -> torch.Tensor | None:
    """Return the last T columns of a mask [B, past + T]; `None` without one, or if known to hide nothing."""
    if padding_mask is None:
        return None
    if padding_mask.dim() != 2:
        raise ValueError(
            '`decoder_attention_mask` must be [B, T] with `decoder_self` "ssru", where all target positions share one '
            f"state; got shape {list(padding_mask.shape)}"
        )
    return padding_mask_or_none(padding_mask[:, -length:])


class SSRU(nn.Module):
    """Marian's simpler simple recurrent unit (`dec-cell: ssru`), which the students of Firefox Translations have.

    For the input x_t [d] of the layer, with c_0 = 0,

        f_t = sigmoid(W_f x_t + b_f)
        c_t = f_t * c_(t-1) + (1 - f_t) * W x_t
        h_t = relu(c_t)

    W has no bias. The state is d numbers for any T. `linear_recurrence` computes the states of a whole sentence.

    Relations: with f = 0, h_t is relu(W x_t), for each position alone; with f = 1, it is zero. There are no
    attention weights, and no heads to aggregate.

    A masked token leaves the state unchanged (f = 1), as attention ignores a masked key.

    Deviation: the cache holds the state after each token, although the last one would be enough. So `crop`,
    and with it assisted decoding, works as for self-attention. States, in float32 or wider, are stored as keys, and
    the values are empty. In float32, this takes half the memory of self-attention's cache.
    """

    def __init__(self, config: CapsuleMarianConfig, layer: int) -> None:
        super().__init__()
        self.config = config
        self.layer = layer
        self.num_heads = config.decoder_attention_heads
        self.forget_gate = nn.Linear(config.d_model, config.d_model)
        self.input_map = nn.Linear(config.d_model, config.d_model, bias=False)

    def forward(
        self,
        hidden: torch.Tensor,
        mask: torch.Tensor | None = None,
        encoder_hidden: torch.Tensor | None = None,
        cache: EncoderDecoderCache | None = None,
        output_attentions: bool = False,
        output_routing_weights: bool = False,
    ) -> tuple[torch.Tensor, None, IterationWeights | None]:
        """Inputs [B, T, d] and their mask [B, T] -> h [B, T, d]; `None` for the attention and routing weights."""
        mapped = self.input_map(hidden)
        dtype = iteration_dtype(mapped)
        forget = self.forget_gate(hidden).to(dtype).sigmoid()
        update = (1 - forget) * mapped.to(dtype)
        if mask is not None:
            forget, update = (
                torch.where(mask[..., None], tensor, at_padding) for tensor, at_padding in ((forget, 1), (update, 0))
            )
        if cache is not None:
            previous = self.last_state(cache, update)
            update = torch.cat([update[:, :1] + forget[:, :1] * previous, update[:, 1:]], dim=1)
        states = linear_recurrence(forget, update, self.config.max_position_embeddings)
        if cache is not None:
            states_as_keys = states.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)  # [B, H, T, d / H]
            cache.self_attention_cache.update(states_as_keys, states_as_keys[..., :0], self.layer)
        return states.relu().to(mapped.dtype), None, None

    def last_state(self, cache: EncoderDecoderCache, like: torch.Tensor) -> torch.Tensor:
        """Return the state [B, 1, d] after the tokens in the cache; `like` is [B, T, d]."""
        self_cache: Any = cache.self_attention_cache
        length = self_cache.get_seq_length(self.layer)
        if isinstance(length, int):  # 0 also for a preallocated cache without tokens
            if length == 0:
                return torch.zeros_like(like[:, :1])
            last_state = self_cache.layers[self.layer].keys[:, :, length - 1 : length]
        else:
            last_index = (length - 1).clamp(min=0).view(1)
            last_state = self_cache.layers[self.layer].keys.index_select(2, last_index) * (length > 0)
        return last_state.transpose(1, 2).flatten(-2)
