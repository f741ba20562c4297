"""Programs run in PyTorch: the backend that needs no compiler, and the reference of the native one.

Rows are padded: a buffer is [B, S, width] for words, [B, width] for sources and [B, K, width] for hypotheses. Keys and
values of the target stay in the slot where they were put; a mask of ancestors is reordered in their place. Slots that
are nobody's ancestors any more are given up every few steps.

Legend: B sources, S words of the longest source, K hypotheses of a source, H heads.
"""

from collections.abc import Callable, Sequence

import torch
from torch import nn
from torch.nn import functional as F

from hf_capsule_mt.fast.device_search import DeviceSearch
from hf_capsule_mt.fast.int8 import int8_copy, int8_product, largest_exact_weight
from hf_capsule_mt.fast.linear import PackedWeight
from hf_capsule_mt.fast.programs import ACTIVATIONS, Kind, Linear, Operation, Program, Space
from hf_capsule_mt.fast.requests import Answer, Reading, Request
from hf_capsule_mt.fast.search import Search
from hf_capsule_mt.routing import dynamic_routing, em_routing, squash
from hf_capsule_mt.routing.common import reads_are_free

NAMES = {number: name for name, number in ACTIVATIONS.items()}  # of two names, the last
FUNCTIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "none": lambda values: values,
    "relu": torch.relu,
    "swish": F.silu,
    "gelu": F.gelu,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
}


# a smaller matrix stays float32: it is read in less time than it takes to round a row
SMALLEST_INT8_WEIGHT = 2**18
STEPS_BETWEEN_CLEARINGS = 8
Product = Callable[[torch.Tensor], torch.Tensor]


def _product(linear: Linear, largest: int, smallest: int = SMALLEST_INT8_WEIGHT) -> Product:
    """The product with a linear map: in int8 with weights up to `largest`, or in float32 if that is 0."""
    weight, bias = linear.weight, linear.bias
    if largest and weight.numel() >= smallest:
        copy = int8_copy(weight, largest)
        return lambda values: int8_product(values, copy, bias)
    packed = PackedWeight()
    return lambda values: packed(values, weight, bias)


class TorchModel:
    """A program with its weights packed for oneDNN, or on an accelerator as they are."""

    name = "torch"

    def __init__(self, program: Program, *, int8: bool) -> None:
        self.program = program
        self.has_coverage = program.has_coverage
        self.device = program.linears[0].weight.device
        self.largest = largest_exact_weight() if int8 else 0
        # read once: a read at every step would wait for an accelerator
        self.schedules = {
            operation.w[2]: program.vectors[operation.w[2]].tolist()
            for operation in program.encoder + program.decoder
            if operation.kind is Kind.EM_ROUTING
        }
        self.products = [_product(linear, self.largest) for linear in program.linears]

    def product_with_some(self, number: int, rows: torch.Tensor) -> Product:
        """Return the product with some rows of a linear map, in int8 if the product with all is."""
        linear = self.program.linears[number]
        rows = rows.to(self.device)
        some = Linear(linear.weight[rows], None if linear.bias is None else linear.bias[rows])
        is_float = linear.weight.numel() < SMALLEST_INT8_WEIGHT
        return _product(some, 0 if is_float else self.largest, smallest=0)

    def translate(self, request: Request, *, return_first_logits: bool = False) -> Answer:
        with torch.inference_mode():
            on_host = reads_are_free(self.program.linears[0].weight)
            search = Search(request) if on_host else DeviceSearch(request, self.device)
            first_logits = self._decode(_Run(self, request), search)
            tokens, scores = search.results()
            reading = search.reading()
        # cloned out of inference mode, so that callers may change them
        return Answer(
            tokens.clone(),
            scores.clone(),
            first_logits.clone() if return_first_logits else None,
            None if reading is None else Reading(*(values.clone() for values in reading)),
        )

    def _decode(self, run: "_Run", search: Search | DeviceSearch) -> torch.Tensor:
        """Search; return the logits [B, V] of the first position."""
        run.execute(self.program.encoder)
        first_logits = torch.empty(0)
        while search.active:
            run.step, run.tokens = search.step, search.last_tokens
            run.execute(self.program.decoder)
            logits = run.buffers.pop(self.program.logits).float()  # [B, K, V]
            if not search.step:
                first_logits = logits[:, 0].clone()
            run.reorder(search.advance(logits, run.followed))
            del logits  # so that the next ones take their memory
        return first_logits


class _Run:
    """The buffers of one translation."""

    def __init__(self, model: TorchModel, request: Request) -> None:
        self.program, self.products, self.product_with_some = model.program, model.products, model.product_with_some
        self.device, self.schedules = model.device, model.schedules
        words = nn.utils.rnn.pad_sequence([torch.tensor(source) for source in request.sources], batch_first=True)
        lengths = torch.tensor([len(source) for source in request.sources])
        self.words, self.lengths = words.to(self.device), lengths.to(self.device)
        self.mask = torch.arange(words.shape[1], device=self.device) < self.lengths[:, None]  # [B, S]
        is_padded = any(len(source) < request.longest_source for source in request.sources)
        self.attention_mask = self.mask[:, None, None] if is_padded else None  # [B, 1, 1, S]
        self.buffers: dict[int, torch.Tensor] = {}
        self.tokens = torch.empty(0)
        self.step = 0
        self.shortlists = request.shortlists
        self.candidates = torch.empty(0) if request.shortlists is None else request.candidates.to(self.device)
        self.num_beams, self.most_steps = request.num_beams, request.longest + int(request.coverage)
        self.followed_head = request.head
        self.followed = torch.empty(0)  # in this step, the shares of the words [B, K, 2, S] or the head's attention
        self.caches: dict[int, torch.Tensor] = {}  # keys and values [2, B, H, slots, d / H]
        # keys and values of the sources, split into heads once
        self.source_heads: dict[tuple[int, int], tuple[torch.Tensor, torch.Tensor]] = {}
        self.num_slots = 0  # in use before this step
        self.ancestors = torch.empty(0)  # [B, 1, K, slots], 0 for those of a hypothesis, else -inf
        if model.program.num_caches:
            self.ancestors = torch.zeros(len(lengths), 1, 1, 0, device=self.device)

    def execute(self, operations: list[Operation]) -> None:
        for operation in operations:
            getattr(self, operation.kind.name.lower())(operation)

    def reorder(self, parents: torch.Tensor) -> None:
        """Follow the hypotheses: `parents` [B, K] are their rows before."""
        for number, (space, _) in enumerate(self.program.buffers):
            if space is Space.STATES and number in self.buffers:
                self.buffers[number] = self.buffers[number].take_along_dim(parents[..., None], dim=1)
        if self.program.num_caches:
            self.ancestors = self.ancestors.take_along_dim(parents[:, None, :, None], dim=2)
            is_due = (self.step + 1) % STEPS_BETWEEN_CLEARINGS == 0
            if is_due and self.num_beams > 1 and reads_are_free(self.ancestors):
                self._clear_slots()
            self.num_slots = self.ancestors.shape[-1]

    def _clear_slots(self) -> None:
        """Keep the slots with an ancestor of some hypothesis, in their order."""
        used = self.ancestors[:, 0].eq(0).any(dim=1)  # [B, slots]
        num_kept = int(used.sum(dim=1).max())
        kept = used.long().argsort(dim=1, descending=True, stable=True)[:, :num_kept]
        self.ancestors = self.ancestors.take_along_dim(kept[:, None, None], dim=-1)
        for cache in self.caches.values():
            for number, slots in enumerate(kept):
                cache[:, number, :, :num_kept] = cache[:, number].index_select(2, slots)

    def space(self, buffer: int) -> Space:
        return self.program.buffers[buffer][0]

    def matrix(self, number: int, values: torch.Tensor) -> torch.Tensor:
        return self.products[number](values)

    def state(self, buffer: int) -> torch.Tensor:
        """A state [B, K, width]; zero before the first step."""
        if buffer not in self.buffers:
            self.buffers[buffer] = torch.zeros(*self.tokens.shape, self.program.width(buffer), device=self.device)
        return self.buffers[buffer]

    # ---- operations
    def embed(self, op: Operation) -> None:
        of_words = self.space(op.out) is Space.WORDS
        width = self.program.width(op.out)
        tokens = self.words if of_words else self.tokens
        hidden = op.f[0] * F.embedding(tokens, self.program.vectors[op.w[0]].view(-1, width))
        if op.w[1] >= 0:
            positions = self.program.vectors[op.w[1]].view(-1, width)
            hidden = hidden + (positions[: tokens.shape[1]] if of_words else positions[self.step])
        self.buffers[op.out] = hidden

    def linear(self, op: Operation) -> None:
        if self.shortlists is not None and op.out == self.program.logits:
            self.buffers[op.out] = self._logits_of_shortlists(op, self.shortlists)
            return
        activation, fold = op.n
        values = self.state(op.a) if self.space(op.a) is Space.STATES else self.buffers[op.a]
        if fold > 1:
            values = values.unflatten(-1, (fold, -1))
        result = FUNCTIONS[NAMES[activation]](self.matrix(op.w[0], values))
        self.buffers[op.out] = result.flatten(-2) if fold > 1 else result

    def _logits_of_shortlists(self, op: Operation, shortlists: Sequence[torch.Tensor]) -> torch.Tensor:
        """Logits [B, K, V], -inf for the tokens that a source may not write."""
        if not self.step:
            self.head = self.product_with_some(op.w[0], self.candidates)
            unlisted = torch.ones(len(shortlists), 1, self.program.vocabulary, dtype=torch.bool)
            for row, tokens in enumerate(shortlists):
                unlisted[row, 0, tokens.long()] = False
            self.unlisted = unlisted.to(self.device)
        found = self.head(self.buffers[op.a])  # [B, K, candidates]
        logits = found.new_full((*found.shape[:-1], self.program.vocabulary), -torch.inf)
        return logits.index_copy_(-1, self.candidates.long(), found).masked_fill_(self.unlisted, -torch.inf)

    def norm(self, op: Operation) -> None:
        hidden = self.buffers[op.out]
        if op.a >= 0:
            hidden = hidden + self.buffers[op.a]
        gain, bias = (self.program.vectors[number] for number in op.w)
        self.buffers[op.out] = F.layer_norm(hidden, gain.shape, gain, bias, op.f[0])

    def add(self, op: Operation) -> None:
        self.buffers[op.out] = self.buffers[op.out] + self.buffers[op.a]

    def copy(self, op: Operation) -> None:
        start, only_first, from_column, count = (*op.n, 0, 0, 0, 0)[:4]
        if only_first and self.step:
            return
        values = self.buffers[op.a]
        if self.space(op.a) is Space.SOURCES and self.space(op.out) is not Space.SOURCES:
            values = values[:, None].expand(-1, self.tokens.shape[1] if self.tokens.numel() else 1, -1)
        if count:
            values = values[..., from_column : from_column + count]
        width = self.program.width(op.out)
        if values.shape[-1] == width:
            self.buffers[op.out] = values
            return
        whole = self.buffers.get(op.out)
        if whole is None or whole.shape[:-1] != values.shape[:-1]:
            whole = values.new_empty(*values.shape[:-1], width)
        whole[..., start : start + values.shape[-1]] = values
        self.buffers[op.out] = whole

    def attend_words(self, op: Operation) -> None:
        query, keys, values = _parts(self.buffers[op.a], op.n[0])
        self.buffers[op.out] = _join(F.scaled_dot_product_attention(query, keys, values, self.attention_mask))

    def attend_source(self, op: Operation) -> None:
        heads, first, offset = op.n
        if (op.b, first) not in self.source_heads:
            width = self.program.width(op.a)
            memory = self.buffers[op.b]
            keys, values = (memory[..., start : start + width] for start in (first, first + offset))
            self.source_heads[op.b, first] = _heads(keys, heads).contiguous(), _heads(values, heads).contiguous()
        keys, values = self.source_heads[op.b, first]
        query = _heads(self.buffers[op.a], heads)
        layer, head = self.followed_head or (-1, -1)
        if first == layer * self.program.width(op.a):
            own, of_words = query[:, head], keys[:, head].transpose(1, 2)
            scores = own @ of_words * own.shape[-1] ** -0.5
            self.followed = scores.masked_fill(~self.mask[:, None], -torch.inf).softmax(dim=-1)
        self.buffers[op.out] = _join(F.scaled_dot_product_attention(query, keys, values, self.attention_mask))

    def attend_past(self, op: Operation) -> None:
        heads, cache = op.n
        parts = _parts(self.buffers[op.a], heads)  # [3, B, H, K, d / H]
        _, batch, _, beams, width = parts.shape
        if cache not in self.caches:
            slots = 1 + (self.most_steps - 1) * self.num_beams
            self.caches[cache] = parts.new_empty(2, batch, heads, slots, width)
        start, end = self.num_slots, self.num_slots + beams
        self.caches[cache][:, :, :, start:end] = parts[1:]
        if self.ancestors.shape[-1] < end:  # the first layer of this step
            own = torch.full((beams, beams), -torch.inf, device=self.device).fill_diagonal_(0)
            self.ancestors = torch.cat([self.ancestors, own.expand(batch, 1, -1, -1)], dim=-1)
        keys, values = self.caches[cache][:, :, :, :end]
        mask = None if self.num_beams == 1 else self.ancestors
        self.buffers[op.out] = _join(F.scaled_dot_product_attention(parts[0], keys, values, mask))

    def em_routing(self, op: Operation) -> None:
        shape, iterations, activations = op.n[:3], op.n[3], op.n[4]
        joined = self.buffers[op.a]
        num_votes = shape[0] * shape[1] * shape[2]
        activation = None if activations < 0 else joined[..., activations:].unflatten(-1, shape[:2])
        beta_a, beta_u = (self.program.vectors[number] for number in op.w[:2])
        routed = em_routing(
            joined[..., :num_votes].unflatten(-1, shape),
            num_iterations=iterations,
            input_activation=activation,
            beta_a=beta_a,
            beta_u=beta_u,
            lambda_schedule=self.schedules[op.w[2]],
            min_variance=op.f[0],
            return_weights=False,
        )
        self.buffers[op.out] = routed.capsules.flatten(-2)

    def dynamic_routing(self, op: Operation) -> None:
        votes = self.buffers[op.a].unflatten(-1, op.n[:3])
        routed = dynamic_routing(
            votes, num_iterations=op.n[3], normalize_total_input=bool(op.n[4]), return_weights=False
        )
        self.buffers[op.out] = routed.capsules.flatten(-2)

    def guided_start(self, op: Operation) -> None:
        votes = self.buffers[op.a] * self.mask[..., None]
        self.buffers[op.out] = squash((votes.sum(dim=1) / op.n[0]).unflatten(-1, op.n)).flatten(-2)

    def exp_twice(self, op: Operation) -> None:
        self.buffers[op.out] = (2 * self.buffers[op.out].clamp(-20, 20)).exp()

    def guided_routing(self, op: Operation) -> None:
        capsules, width, iterations, kept = op.n
        score = self.program.vectors[op.w[1]]
        votes = self.buffers[op.b].unflatten(-1, (capsules, width)).transpose(1, 2)  # [B, M, S, D]
        projected = self.buffers[op.c].unflatten(-1, (capsules, width)).transpose(1, 2)
        guide = self.buffers[op.d].unflatten(-1, (1, capsules, width))  # [B, 1, M, D]
        query = self.buffers[op.a][:, :, None]  # [B, K, 1, D]
        logits, one = guide.new_zeros(()), guide.new_ones(())
        routed = shares = guide
        for iteration in range(1, iterations):
            exponentials = (2 * (guide + query).clamp(-20, 20)).exp()  # [B, K, M, D]
            gates = torch.addcmul(one, exponentials[..., None, :], projected[:, None]).reciprocal_()
            logits = logits + (score.sum() - 2 * torch.matmul(gates, score))  # [B, K, M, S]
            shares = logits.softmax(dim=2) * self.mask[:, None, None]
            routed = squash(torch.matmul(shares.transpose(1, 2), votes)).transpose(1, 2)  # [B, K, M, D]
            if iteration < iterations - 1:
                guide = self.matrix(op.w[0], routed)
        if self.followed_head is None:
            self.followed = shares[:, :, :kept].unflatten(2, (2, -1)).sum(dim=3)
        self.buffers[op.out] = routed[:, :, :kept].flatten(-2)

    def lstm_words(self, op: Operation) -> None:
        self._recur_over_words(op, is_lstm=True)

    def gru_words(self, op: Operation) -> None:
        self._recur_over_words(op, is_lstm=False)

    def _recur_over_words(self, op: Operation, is_lstm: bool) -> None:
        reverse, column = op.n
        inputs = self.buffers[op.a]  # [B, S, gates]
        width = inputs.shape[-1] // (4 if is_lstm else 3)
        out = self.buffers.setdefault(op.out, inputs.new_zeros(*inputs.shape[:2], self.program.width(op.out)))
        state = cell = inputs.new_zeros(len(inputs), width)
        rows = torch.arange(len(inputs), device=self.device)
        for position in range(inputs.shape[1]):
            alive = (position < self.lengths)[:, None]
            place = (self.lengths - 1 - position).clamp(min=0) if reverse else torch.full_like(self.lengths, position)
            from_state = self.matrix(op.w[0], state)
            if is_lstm:
                state, cell = _lstm(inputs[rows, place] + from_state, cell)
            else:
                state = _gru(inputs[rows, place], from_state, state)
            kept = alive.expand(-1, width)
            out[rows, place, column : column + width] = torch.where(
                kept, state, out[rows, place, column : column + width]
            )

    def lstm_step(self, op: Operation) -> None:
        self.buffers[op.out], self.buffers[op.b] = _lstm(self.buffers[op.a], self.state(op.b))

    def gru_step(self, op: Operation) -> None:
        self.buffers[op.out] = _gru(self.buffers[op.a], self.buffers[op.b], self.buffers[op.c])

    def additive(self, op: Operation) -> None:
        score = self.program.vectors[op.w[1]]
        gates = (1 + self.buffers[op.a][:, :, None] * self.buffers[op.b][:, None]).reciprocal()  # [B, K, S, D]
        scores = -2 * torch.matmul(gates, score)  # but for a constant, to which the softmax is blind
        weights = scores.masked_fill(~self.mask[:, None], -torch.inf).softmax(dim=-1)
        self.buffers[op.out] = torch.matmul(weights, self.buffers[op.c] * self.mask[..., None])

    def mean_words(self, op: Operation) -> None:
        words = self.buffers[op.a] * self.mask[..., None]
        self.buffers[op.out] = words.sum(dim=1) / self.lengths[:, None]

    def pool_words(self, op: Operation) -> None:
        words, keep = self.buffers[op.a], self.mask[..., None]
        largest = words.masked_fill(~keep, -torch.inf).amax(dim=1)
        mean = (words * keep).sum(dim=1) / self.lengths[:, None]
        last = words[torch.arange(len(words), device=self.device), self.lengths - 1]
        self.buffers[op.out] = torch.cat([largest, mean, words[:, 0], last], dim=-1)

    def separable_routing(self, op: Operation) -> None:
        capsules, iterations, sets = op.n
        votes = self.buffers[op.b].unflatten(-1, (sets, capsules, -1))  # [B, S, sets, M, D]
        keep = self.mask[..., None]
        logits = torch.zeros(*self.mask.shape, capsules, device=self.device)
        for iteration in range(iterations):
            own = votes[:, :, iteration if sets > 1 else 0] * keep[..., None]  # [B, S, M, D]
            shares = logits.softmax(dim=-1) * keep
            routed = squash(torch.einsum("bsm,bsmd->bmd", shares, own))
            if iteration == iterations - 1:
                break
            placed = routed
            if op.w[0] >= 0:
                placed = placed + self.program.vectors[op.w[0]].view(capsules, -1)
            if op.c >= 0:
                compared = self.matrix(op.w[2], self.matrix(op.w[1], placed).relu())
                logits = logits + torch.matmul(self.buffers[op.c] * keep, compared.transpose(1, 2))
            else:
                logits = logits + torch.einsum("bsmd,bmd->bsm", own, placed)
        self.buffers[op.out] = routed.flatten(-2)

    def add_positions(self, op: Operation) -> None:
        hidden = self.buffers[op.out]
        positions = self.program.vectors[op.w[0]].view(-1, hidden.shape[-1])
        self.buffers[op.out] = hidden + positions[: hidden.shape[1]]

    def activate(self, op: Operation) -> None:
        start, activation = op.n
        values = self.buffers[op.out]
        self.buffers[op.out] = torch.cat(
            [values[..., :start], FUNCTIONS[NAMES[activation]](values[..., start:])], dim=-1
        )

    def weighted_sum(self, op: Operation) -> None:
        product = self.buffers[op.a] * self.buffers[op.b]
        self.buffers[op.out] = product.unflatten(-1, (op.n[0], -1)).sum(dim=-2)


def _heads(hidden: torch.Tensor, heads: int) -> torch.Tensor:
    """[B, T, d] -> [B, H, T, d / H]."""
    return hidden.unflatten(-1, (heads, -1)).transpose(1, 2)


def _parts(joined: torch.Tensor, heads: int) -> torch.Tensor:
    """Queries, keys and values: [B, T, 3 d] -> [3, B, H, T, d / H]."""
    return joined.unflatten(-1, (3, heads, -1)).permute(2, 0, 3, 1, 4)


def _join(hidden: torch.Tensor) -> torch.Tensor:
    """[B, H, T, d / H] -> [B, T, d]."""
    return hidden.transpose(1, 2).flatten(-2)


def _lstm(gates: torch.Tensor, cell: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    input_gate, forget_gate, new, output_gate = gates.chunk(4, dim=-1)
    cell = input_gate.sigmoid() * new.tanh() + forget_gate.sigmoid() * cell
    return output_gate.sigmoid() * cell.tanh(), cell


def _gru(from_input: torch.Tensor, from_state: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
    reset, update, new = from_input.chunk(3, dim=-1)
    state_reset, state_update, state_new = from_state.chunk(3, dim=-1)
    new = torch.tanh(new + (reset + state_reset).sigmoid() * state_new)
    return new + (update + state_update).sigmoid() * (state - new)
