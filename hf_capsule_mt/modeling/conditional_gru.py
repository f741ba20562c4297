"""The conditional GRU (Sennrich et al. 2017): two GRUs with an additive attention between them, over target positions.

For each position t, with the word x_t before it, and source states h with their keys k,

    s'_t = GRU_1(x_t, s_(t-1));  c_t = attention(s'_t, h, k);  s_t = GRU_2(c_t, s'_t)

Legend: B batch, S source positions, T target positions, d width of a state. In every mask `True` keeps.
"""

from typing import NamedTuple

import torch
from torch import nn

from hf_capsule_mt.modeling.additive_attention import AdditiveAttention
from hf_capsule_mt.modeling.recurrent import GRUCell, StateAndOutputs, Tensors, gru_update, over_positions


class ConditionalGRUOutput(NamedTuple):
    """States s [B, T, d], contexts c [B, T, d] and attention weights [B, T, S]."""

    states: torch.Tensor
    contexts: torch.Tensor
    attentions: torch.Tensor


class ConditionalGRU(nn.Module):
    """Compute the equations as they stand, position by position."""

    def __init__(self, input_size: int, width: int) -> None:
        super().__init__()
        self.word_gru = GRUCell(input_size, width)
        self.attention = AdditiveAttention(width, width, width)
        self.context_gru = GRUCell(width, width)

    def forward(
        self,
        words: torch.Tensor,
        state: torch.Tensor,
        source: torch.Tensor,
        keys: torch.Tensor,
        mask: torch.Tensor | None,
    ) -> ConditionalGRUOutput:
        """Words [B, T, in] -> `ConditionalGRUOutput`.

        Args:
            state: [B, d], before the first of these words.
            source: h [B, S, d].
            keys: k [B, S, d], what the attention projects h to.
            mask: [B, S], True where there is a word of the source.
        """
        word_gru, context_gru = self.word_gru, self.context_gru

        def step(states: Tensors, inputs: Tensors) -> StateAndOutputs:
            (state,) = states
            state = gru_update(inputs[0], word_gru.project_state(state), state)
            context, weights = self.attention(state[:, None], keys, source, mask)
            from_context = context_gru.project_input(context[:, 0])
            state = gru_update(from_context, context_gru.project_state(state), state)
            return (state,), (state, context[:, 0], weights[:, 0])

        # projections of words do not depend on a state: compute them for all positions at once
        from_words = word_gru.project_input(words)  # [B, T, 3d]
        return ConditionalGRUOutput(*over_positions(step, (state,), (from_words,))[1])
