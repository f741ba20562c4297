"""Additive attention (Bahdanau et al. 2015): a decoder state looks back at the source, over recurrent encoder states.

Legend: B batch, S source positions, T target positions. In every mask `True` keeps.
"""

import torch
from torch import nn


class AdditiveAttention(nn.Module):
    """Of query s_t and source states h_i: score_ti = w . tanh(W_s s_t + W_h h_i + b), context_t = sum_i softmax_i h_i.

    The projected keys W_h h_i + b are the same at every decoding step, so whoever decodes keeps them.
    """

    def __init__(self, query_size: int, key_size: int, attention_size: int) -> None:
        super().__init__()
        self.query_projection = nn.Linear(query_size, attention_size, bias=False)
        self.key_projection = nn.Linear(key_size, attention_size)
        self.score = nn.Linear(attention_size, 1, bias=False)

    def project_keys(self, states: torch.Tensor) -> torch.Tensor:
        """Source states [B, S, key_size] -> projected keys [B, S, attention_size]."""
        keys: torch.Tensor = self.key_projection(states)
        return keys

    def forward(
        self,
        query: torch.Tensor,
        keys: torch.Tensor,
        states: torch.Tensor,
        mask: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Queries [B, T, query_size] -> contexts [B, T, key_size], and attention weights [B, T, S].

        Args:
            keys: the projected keys of `states` [B, S, attention_size].
            states: the source states [B, S, key_size].
            mask: [B, S], True where a state is a word of the source.
        """
        hidden = torch.tanh(self.query_projection(query).unsqueeze(2) + keys.unsqueeze(1))  # [B, T, S, attention_size]
        scores = self.score(hidden).squeeze(-1)  # [B, T, S]
        scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
        if mask is not None:
            scores = scores.masked_fill(~mask.unsqueeze(1), torch.finfo(scores.dtype).min)
        weights = scores.softmax(dim=-1).to(states.dtype)  # [B, T, S]
        return torch.matmul(weights, states), weights
