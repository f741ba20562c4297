"""The decoder's own past as one state: the SSRU of Kim et al. 2019, in the place of self-attention.

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


def linear_recurrence(forget: torch.Tensor, update: torch.Tensor, longest: int = 0) -> torch.Tensor:
    """Compute a linear recurrence of first order by a parallel scan.

    With c_0 = 0 it is, position by position,

        c_t = f_t * c_(t-1) + u_t

    Two neighbouring steps combine into one, with f = f_2 f_1 and u = f_2 u_1 + u_2. So after k rounds each position
    holds the combined step of the last 2^k positions, and log2 T rounds, each over all positions at once, cover all.

    Args:
        forget: f [B, T, d].
        update: u [B, T, d].
        longest: the largest T, for a graph that is traced for any T.

    Returns:
        c [B, T, d], the states after all positions.

    Relations: with f = 0 it is u, with f = 1 the sum of u so far, with a constant f a sum that fades exponentially.
    Nothing is divided: gates of 0 and products that underflow are exact, and so are their gradients.
    """
    length, reach = update.shape[1], 1
    while reach < (length if isinstance(length, int) else longest):
        update = update + forget * pad(update, (0, 0, reach, 0))[:, :length]  # of the positions `reach` earlier
        forget = forget * pad(forget, (0, 0, reach, 0))[:, :length]
        reach *= 2
    return update


def mask_of_new_tokens(padding_mask: torch.Tensor | None, length: int) -> torch.Tensor | None:
    """Return the mask [B, T] of the last T tokens of a padding mask; `None` if nothing is known to be padding."""
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

    W has no bias. Its state is d numbers, whatever T is. Over a whole sentence `linear_recurrence` computes it.

    Relations: with f = 0 it is relu(W x_t), of each position alone; with f = 1 it is zero. There are no attention
    weights, and no heads to aggregate.

    A masked token leaves the state as it is (f = 1), as a masked key has no part in attention.

    Deviation: the states after all tokens, in float32 at least, lie where self-attention has its keys, and no values
    are kept. The last state alone would be enough. All are kept so that `crop`, and therefore assisted decoding, works
    on every cache of transformers. They take half the memory of self-attention's cache.
    """

    def __init__(self, config: CapsuleMarianConfig, layer: int) -> None:
        super().__init__()
        self.layer = layer
        self.num_heads = config.decoder_attention_heads
        self.longest = config.max_position_embeddings
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
        """Inputs [B, T, d] and their mask [B, T] -> h [B, T, d]; without attention and routing weights."""
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
        states = linear_recurrence(forget, update, self.longest)
        if cache is not None:
            states_as_keys = states.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)  # [B, H, T, d / H]
            cache.self_attention_cache.update(states_as_keys, states_as_keys[..., :0], self.layer)
        return states.relu().to(mapped.dtype), None, None

    def last_state(self, cache: EncoderDecoderCache, like: torch.Tensor) -> torch.Tensor:
        """Return the state [B, 1, d] after the tokens in the cache; `like` is [B, T, d]."""
        self_cache: Any = cache.self_attention_cache
        length = self_cache.get_seq_length(self.layer)
        if isinstance(length, int):  # also of a preallocated cache without a token
            if length == 0:
                return torch.zeros_like(like[:, :1])
            last_state = self_cache.layers[self.layer].keys[:, :, length - 1 : length]
        else:
            last = (length - 1).clamp(min=0).view(1)
            last_state = self_cache.layers[self.layer].keys.index_select(2, last) * (length > 0)
        return last_state.transpose(1, 2).flatten(-2)
