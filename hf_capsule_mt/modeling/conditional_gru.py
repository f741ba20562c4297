"""The conditional GRU (Sennrich et al. 2017): two GRUs with an additive attention between them, over target positions.

For each position t, of what the first GRU makes of the word before (x_t), and source states h with their keys k,

    s'_t = GRU_1(x_t, s_(t-1));  c_t = attention(s'_t, h, k);  s_t = GRU_2(c_t, s'_t)

Legend: B batch, S source positions, T target positions, d width of a state. In every mask `True` keeps.
"""

from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn.functional import linear

from hf_capsule_mt.modeling.additive_attention import AdditiveAttention
from hf_capsule_mt.modeling.gru import GRUCell, gru_update
from hf_capsule_mt.modeling.matrices import is_plain
from hf_capsule_mt.modeling.positions import StateAndOutputs, Tensors, over_positions
from hf_capsule_mt.routing.common import reads_are_free

# e^(2q) and e^(2k) of numbers up to this size, and their product, are good float32 numbers or so large or small that
# the tanh of the sum is one
LARGEST_SEPARABLE_SCORE = 40.0


class ConditionalGRUOutput(NamedTuple):
    """States s [B, T, d], contexts c [B, T, d] and attention weights [B, T, S]."""

    states: torch.Tensor
    contexts: torch.Tensor
    attentions: torch.Tensor


class ConditionalGRU(nn.Module):
    """Run the plain loop, or in training a loop with a backward pass of its own, over the same parameters."""

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
            state: [B, d], the one before the first of these words.
            source: h [B, S, d].
            keys: k [B, S, d], what the attention projects h to.
            mask: [B, S], True where there is a word of the source.
        """
        # what does not wait for a state is computed for all positions at once
        from_words = self.word_gru.project_input(words.transpose(0, 1))  # [T, B, 3d]
        plain = (
            not torch.is_grad_enabled()
            or torch.compiler.is_compiling()
            or torch.jit.is_tracing()
            or words.is_meta
            or torch.is_autocast_enabled(words.device.type)
            or words.dtype not in (torch.float32, torch.float64)
            or not (is_plain(self.attention.query_projection) and is_plain(self.attention.score))
        )
        if plain:
            return self.plain(from_words, state, source, keys, mask)
        outputs = _ConditionalGRUFunction.apply(
            from_words,
            state,
            source,
            keys,
            mask,
            self.word_gru.weight_hh,
            self.word_gru.bias_hh,
            self.attention.query_projection.weight,
            self.attention.score.weight,
            self.context_gru.weight_ih,
            self.context_gru.bias_ih,
            self.context_gru.weight_hh,
            self.context_gru.bias_hh,
        )
        return ConditionalGRUOutput(*(output.transpose(0, 1) for output in outputs))

    def plain(
        self,
        from_words: torch.Tensor,
        state: torch.Tensor,
        source: torch.Tensor,
        keys: torch.Tensor,
        mask: torch.Tensor | None,
    ) -> ConditionalGRUOutput:
        """Compute the equations as they stand, position by position."""
        word_gru, context_gru = self.word_gru, self.context_gru

        def step(states: Tensors, inputs: Tensors) -> StateAndOutputs:
            (state,) = states
            state = gru_update(inputs[0], word_gru.project_state(state), state)
            context, weights = self.attention(state[:, None], keys, source, mask)
            from_context = context_gru.project_input(context[:, 0])
            state = gru_update(from_context, context_gru.project_state(state), state)
            return (state,), (state, context[:, 0], weights[:, 0])

        return ConditionalGRUOutput(*over_positions(step, (state,), (from_words.transpose(0, 1),))[1])


class _GRUTrace:
    """One GRU over all T positions: keep what its backward pass needs, and compute that pass."""

    def __init__(self, length: int, state: torch.Tensor) -> None:
        batch_size, width = state.shape
        self.width = width
        self.gates = state.new_empty(length, batch_size, 2 * width)  # r and z
        self.new = state.new_empty(length, batch_size, width)  # n
        self.new_from_state = state.new_empty(length, batch_size, width)  # h_n

    def step(
        self, position: int, from_input: torch.Tensor, from_state: torch.Tensor, state: torch.Tensor
    ) -> torch.Tensor:
        """Compute `gru_update` and keep its parts."""
        width = self.width
        gates = torch.sigmoid_(
            torch.add(from_input[:, : 2 * width], from_state[:, : 2 * width], out=self.gates[position])
        )
        reset, update = gates.chunk(2, dim=-1)
        self.new_from_state[position] = from_state[:, 2 * width :]
        new = torch.addcmul(
            from_input[:, 2 * width :], reset, from_state[:, 2 * width :], out=self.new[position]
        ).tanh_()
        return torch.lerp(new, state, update)

    def begin_backward(self, old_states: torch.Tensor) -> None:
        """Compute, from the states [T, B, d] before each position, what does not depend on later positions."""
        reset, self.update = self.gates.chunk(2, dim=-1)
        self.reset = reset
        self.slope_new = (1 - self.update) * (1 - self.new.square())
        self.slope_update = (old_states - self.new) * self.update * (1 - self.update)
        self.slope_reset = self.new_from_state * reset * (1 - reset)
        self.grad_from_input = old_states.new_empty(*self.gates.shape[:2], 3 * self.width)
        self.grad_from_state = torch.empty_like(self.grad_from_input)

    def step_backward(self, position: int, grad: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """The gradient of a new state [B, d] -> those of both projections [B, 3d] and, directly, of the old state."""
        width = self.width
        from_input, from_state = self.grad_from_input[position], self.grad_from_state[position]
        new = torch.mul(grad, self.slope_new[position], out=from_input[:, 2 * width :])
        torch.mul(new, self.slope_reset[position], out=from_input[:, :width])
        torch.mul(grad, self.slope_update[position], out=from_input[:, width : 2 * width])
        from_state[:, : 2 * width] = from_input[:, : 2 * width]
        torch.mul(new, self.reset[position], out=from_state[:, 2 * width :])
        return from_input, from_state, grad * self.update[position]


class _AttentionGates:
    """r = sigmoid(-2 (q + k)) of a query and all keys: tanh(q + k) = 1 - 2 r, and its slope is 4 r (1 - r).

    On a CPU, where a tanh costs as much as forty multiplications, r = 1 / (1 + e^(2q) e^(2k)) of the exponentials of
    queries and keys, if none of them can leave the range of the number format.
    """

    def __init__(self, keys: torch.Tensor, query_weight: torch.Tensor, state: torch.Tensor) -> None:
        self.keys = keys
        self.of_keys: torch.Tensor | None = None
        if reads_are_free(keys):
            # a state lies between the first one, -1 and 1, which bounds the queries
            largest_query = query_weight.abs().sum(dim=1).amax() * state.abs().amax().clamp(min=1)
            if bool(torch.maximum(largest_query, keys.abs().amax()) < LARGEST_SEPARABLE_SCORE):
                self.of_keys = (2 * keys).exp_()
                self.one = keys.new_ones(())

    def __call__(self, query: torch.Tensor) -> torch.Tensor:
        """Query [B, d] -> r [B, S, d]."""
        if self.of_keys is not None:
            return torch.addcmul(self.one, self.of_keys, (2 * query).exp_()[:, None]).reciprocal_()
        return (self.keys + query[:, None]).mul_(-2).sigmoid_()


class _ConditionalGRUFunction(torch.autograd.Function):
    """The loop with a backward pass of its own: the gradients of the weights are one product for all positions, and
    the [B, T, S, d] numbers inside the attention are computed again, a position at a time, and never kept.
    """

    @staticmethod
    def forward(
        ctx: Any,
        from_words: torch.Tensor,
        state: torch.Tensor,
        source: torch.Tensor,
        keys: torch.Tensor,
        mask: torch.Tensor | None,
        word_weight: torch.Tensor,
        word_bias: torch.Tensor,
        query_weight: torch.Tensor,
        score_weight: torch.Tensor,
        context_weight: torch.Tensor,
        context_bias: torch.Tensor,
        state_weight: torch.Tensor,
        state_bias: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """What a GRU makes of words [T, B, 3d], and so on -> states, contexts and attention weights [T, B, ...]."""
        length, batch_size = from_words.shape[:2]
        word_trace, context_trace = _GRUTrace(length, state), _GRUTrace(length, state)
        states = state.new_empty(length + 1, *state.shape)
        between = state.new_empty(length, *state.shape)  # s'
        contexts = source.new_empty(length, batch_size, source.shape[-1])
        attentions = source.new_empty(length, batch_size, source.shape[1])
        states[0] = state
        gates_of = _AttentionGates(keys, query_weight, state)
        for position in range(length):
            from_state = linear(states[position], word_weight, word_bias)
            between[position] = word_trace.step(position, from_words[position], from_state, states[position])
            query = linear(between[position], query_weight)
            # w . tanh but for the sum of w, to which the softmax is blind
            scores = torch.matmul(gates_of(query), -2 * score_weight[0])  # [B, S]
            if mask is not None:
                scores.masked_fill_(~mask, torch.finfo(scores.dtype).min)
            torch.softmax(scores, dim=-1, out=attentions[position])
            contexts[position] = torch.bmm(attentions[position, :, None], source)[:, 0]
            from_context = linear(contexts[position], context_weight, context_bias)
            from_state = linear(between[position], state_weight, state_bias)
            states[position + 1] = context_trace.step(position, from_context, from_state, between[position])
        ctx.traces, ctx.gates_of = (word_trace, context_trace), gates_of
        ctx.save_for_backward(
            source, keys, word_weight, query_weight, score_weight, context_weight, state_weight, states, between,
            contexts, attentions,
        )  # fmt: skip
        return states[1:], contexts, attentions

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(
        ctx: Any, grad_states: torch.Tensor, grad_contexts: torch.Tensor, grad_attentions: torch.Tensor
    ) -> tuple[torch.Tensor | None, ...]:
        (
            source, keys, word_weight, query_weight, score_weight, context_weight, state_weight, states, between,
            contexts, attentions,
        ) = ctx.saved_tensors  # fmt: skip
        word_trace, context_trace = ctx.traces
        word_trace.begin_backward(states[:-1])
        context_trace.begin_backward(between)
        word_columns, context_columns, state_columns, query_columns = (
            weight.t().contiguous() for weight in (word_weight, context_weight, state_weight, query_weight)
        )
        queries = linear(between, query_weight)
        grad_queries = torch.empty_like(between)
        all_grad_contexts = grad_contexts.clone()
        grad_keys, grad_score = torch.zeros_like(keys), torch.zeros_like(score_weight[0])
        grad = torch.zeros_like(states[0])
        for position in reversed(range(len(between))):
            from_context, from_state, grad = context_trace.step_backward(position, grad + grad_states[position])
            grad = grad + linear(from_state, state_columns)
            grad_context = all_grad_contexts[position].add_(linear(from_context, context_columns))
            weights = attentions[position]  # [B, S]
            grad_weights = torch.bmm(source, grad_context[..., None])[..., 0] + grad_attentions[position]
            grad_scores = weights * (grad_weights - (weights * grad_weights).sum(dim=-1, keepdim=True))
            gates = ctx.gates_of(queries[position])
            grad_score += torch.mv(gates.view(-1, gates.shape[-1]).t(), grad_scores.view(-1))
            slopes = torch.ops.aten.sigmoid_backward(grad_scores[..., None], gates)  # g r (1 - r) [B, S, d]
            grad_keys += slopes
            grad_query = torch.mul(slopes.sum(dim=1), 4 * score_weight[0], out=grad_queries[position])
            grad = grad + linear(grad_query, query_columns)
            _, from_state, grad = word_trace.step_backward(position, grad)
            grad = grad + linear(from_state, word_columns)
        return (
            word_trace.grad_from_input,
            grad,
            torch.bmm(attentions.permute(1, 2, 0), all_grad_contexts.transpose(0, 1)),
            grad_keys * (4 * score_weight[0]),
            None,
            _weight_gradient(word_trace.grad_from_state, states[:-1]),
            word_trace.grad_from_state.sum(dim=(0, 1)),
            _weight_gradient(grad_queries, between),
            -2 * grad_score[None],
            _weight_gradient(context_trace.grad_from_input, contexts),
            context_trace.grad_from_input.sum(dim=(0, 1)),
            _weight_gradient(context_trace.grad_from_state, between),
            context_trace.grad_from_state.sum(dim=(0, 1)),
        )


def _weight_gradient(grad_outputs: torch.Tensor, inputs: torch.Tensor) -> torch.Tensor:
    """The gradient of a weight [out, in], from that of its outputs [T, B, out] and from its inputs [T, B, in]."""
    return linear(grad_outputs.flatten(0, 1).t(), inputs.flatten(0, 1).t().contiguous())
