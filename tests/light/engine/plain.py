"""What a program computes, in plain loops: one source, one target, Python's numbers."""

import math
from collections.abc import Iterable
from itertools import chain
from typing import Any

from capsule_mt.engine.program import ACTIVATIONS, Operation, Positions, Program, Space
from capsule_mt.models.tensors import floats
from tests.routing.reference import dynamic_routing, em_routing, softmax, squash

Row = list[float]


def positions_of(count: int, width: int, span: int, start: int = 0) -> list[Row]:
    """Return the sinusoids of Marian: sines, then cosines."""
    half = (width + 1) // 2
    rows = [[0.0] * width for _ in range(count)]
    for position, row in enumerate(rows, start):
        for i in range(width):
            angle = position / 10000 ** (2 * (i // 2) / span)
            row[half + i // 2 if i % 2 else i // 2] = math.cos(angle) if i % 2 else math.sin(angle)
    return rows


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def activated(x: float, activation: int) -> float:
    name = next(name for name, number in ACTIVATIONS.items() if number == activation)
    functions = {
        "none": lambda x: x,
        "relu": lambda x: max(x, 0.0),
        "silu": lambda x: x * sigmoid(x),
        "gelu": lambda x: 0.5 * x * (1 + math.erf(x / 2**0.5)),
        "tanh": math.tanh,
        "sigmoid": sigmoid,
    }
    return functions[name](x)


def dot(a: Row, b: Row) -> float:
    return math.fsum(x * y for x, y in zip(a, b, strict=True))


def joined(rows: Iterable[Row]) -> Row:
    return list(chain.from_iterable(rows))


def split(row: Row, width: int) -> list[Row]:
    return [row[start : start + width] for start in range(0, len(row), width)]


def mix(shares: Row, rows: list[Row]) -> Row:
    return [
        math.fsum(share * value for share, value in zip(shares, column, strict=True))
        for column in zip(*rows, strict=True)
    ]


class Plain:
    """One source and one hypothesis of a program."""

    def __init__(self, program: Program, source: list[int], start: int) -> None:
        self.program, self.source, self.token, self.step = program, source, start, 0
        self.attended: dict[tuple[int, int], list[Row]] = {}
        self.caches: list[list[Row]] = [[] for _ in range(program.num_caches)]
        sizes = [len(source) if space == 0 else 1 for space, _ in program.buffers]
        self.values = [
            [[0.0] * width for _ in range(size)] for size, (_, width) in zip(sizes, program.buffers, strict=True)
        ]
        self.maps = []
        for parts in program.linears:
            weight, bias = [], []
            for part in parts:
                numbers, added = part.read()
                weight += split(list(floats(numbers)), part.inputs)
                bias += [0.0] * part.outputs if added is None else list(floats(added))
            self.maps.append((weight, bias))
        self.vectors = []
        for vector in program.vectors:
            if isinstance(vector, Positions):
                sizes = vector.count // vector.width, vector.width, vector.span, vector.start
                self.vectors.append(joined(positions_of(*sizes)))
            else:
                self.vectors.append(list(floats(vector.read())))
        for operation in program.encoder:
            self.execute(operation)

    def read(self, token: int) -> Row:
        """Read a token; return the logits of the next one."""
        self.token = token
        for operation in self.program.decoder:
            self.execute(operation)
        self.step += 1
        return self.values[self.program.logits][0]

    def apply(self, number: int, row: Row) -> Row:
        weight, bias = self.maps[number]
        return [dot(line, row) + added for line, added in zip(weight, bias, strict=True)]

    def execute(self, operation: Operation) -> None:
        out = int(operation.slots[0])
        self.space = self.program.buffers[out][0]
        slots = {slot.name: value for slot, value in zip(operation.kind.slots, operation.slots, strict=True)}
        getattr(self, operation.kind.name.lower())(self.values[out], **{k: v for k, v in slots.items() if k != "out"})

    def embed(self, out: list[Row], table: int, positions: int, scale: float) -> None:
        width = len(out[0])
        per_word = self.space == Space.WORDS
        for row_number, row in enumerate(out):
            token = self.source[row_number] if per_word else self.token
            at = (row_number if per_word else self.step) * width
            row[:] = [scale * value for value in self.vectors[table][token * width : (token + 1) * width]]
            if positions >= 0:
                row[:] = [a + b for a, b in zip(row, self.vectors[positions][at : at + width], strict=True)]

    def linear(self, out: list[Row], source: int, map: int, activation: int, fold: int, twice: int) -> None:
        for target, row in zip(out, self.values[source], strict=True):
            parts = [self.apply(map, part) for part in split(row, len(row) // fold)]
            target[:] = [activated(value, activation) for part in parts for value in part]

    def norm(self, out: list[Row], residual: int, gain: int, bias: int, epsilon: float) -> None:
        for row_number, row in enumerate(out):
            values = (
                row if residual < 0 else [a + b for a, b in zip(row, self.values[residual][row_number], strict=True)]
            )
            mean = math.fsum(values) / len(values)
            variance = math.fsum((value - mean) ** 2 for value in values) / len(values)
            scaled = [(value - mean) / math.sqrt(variance + epsilon) for value in values]
            row[:] = [v * g + b for v, g, b in zip(scaled, self.vectors[gain], self.vectors[bias], strict=True)]

    def add(self, out: list[Row], addend: int) -> None:
        for row, addend_row in zip(out, self.values[addend], strict=True):
            row[:] = [a + b for a, b in zip(row, addend_row, strict=True)]

    def copy(self, out: list[Row], source: int, column: int, once: int, start: int, count: int) -> None:
        if once and self.step:
            return
        rows = self.values[source] if len(self.values[source]) == len(out) else self.values[source] * len(out)
        for target, row in zip(out, rows, strict=True):
            part = row[start : start + (count or len(row))]
            target[column : column + len(part)] = part

    def attend(self, query: Row, keys: list[Row], values: list[Row], heads: int) -> tuple[Row, list[Row]]:
        width, out, shares = len(query) // heads, [], []
        for head in range(heads):
            part = slice(head * width, (head + 1) * width)
            shares.append(softmax([dot(query[part], key[part]) / math.sqrt(width) for key in keys]))
            out += mix(shares[-1], [value[part] for value in values])
        return out, shares

    def attend_words(self, out: list[Row], joined: int, heads: int) -> None:
        queries, keys, values = zip(*(split(row, len(out[0])) for row in self.values[joined]), strict=True)
        for target, query in zip(out, queries, strict=True):
            target[:] = self.attend(query, keys, values, heads)[0]

    def attend_past(self, out: list[Row], joined: int, heads: int, cache: int) -> None:
        self.caches[cache].append(list(self.values[joined][0]))
        _, keys, values = zip(*(split(row, len(out[0])) for row in self.caches[cache]), strict=True)
        out[0][:] = self.attend(self.values[joined][0][: len(out[0])], keys, values, heads)[0]

    def attend_source(
        self, out: list[Row], query: int, memory: int, heads: int, keys: int, values: int, layer: int
    ) -> None:
        width, rows = len(out[0]), self.values[memory]
        pairs = [row[keys : keys + width] for row in rows], [row[keys + values :][:width] for row in rows]
        out[0][:], shares = self.attend(self.values[query][0], *pairs, heads)
        for head, share in enumerate(shares):
            self.attended.setdefault((layer, head), []).append(share)

    def em_routing(
        self, out: list[Row], votes: int, beta_a: int, beta_u: int, lambdas: int, inputs: int, capsules: int,
        width: int, iterations: int, activations: int, min_variance: float,
    ) -> None:  # fmt: skip
        betas, schedule = (self.vectors[beta_a], self.vectors[beta_u]), self.vectors[lambdas][:iterations]
        for target, row in zip(out, self.values[votes], strict=True):
            cast = [split(part, width) for part in split(row[: inputs * capsules * width], capsules * width)]
            active = [[1.0] * capsules] * inputs
            if activations >= 0:
                active = split(row[activations : activations + inputs * capsules], capsules)
            target[:] = joined(em_routing(cast, iterations, schedule, *betas, active, min_variance)[0])

    def dynamic_routing(
        self, out: list[Row], votes: int, inputs: int, capsules: int, width: int, iterations: int, normalize: int
    ) -> None:
        for target, row in zip(out, self.values[votes], strict=True):
            cast = [split(part, width) for part in split(row[: inputs * capsules * width], capsules * width)]
            target[:] = joined(dynamic_routing(cast, iterations, bool(normalize))[0])

    def guided_start(self, out: list[Row], votes: int, capsules: int, width: int) -> None:
        summed = [math.fsum(column) / capsules for column in zip(*self.values[votes], strict=True)]
        out[0][:] = joined(squash(capsule) for capsule in split(summed, width))

    def exp_twice(self, out: list[Row]) -> None:
        for row in out:
            row[:] = [math.exp(2 * value) for value in row]

    def guided_routing(
        self, out: list[Row], query: int, votes: int, projected: int, start: int, map: int, score: int, capsules: int,
        width: int, iterations: int, kept: int,
    ) -> None:  # fmt: skip
        guide = split(self.values[start][0], width)
        logits = [[0.0] * capsules for _ in self.source]
        for _ in range(1, iterations):
            for word, row in enumerate(self.values[projected]):
                for c, part in enumerate(split(row, width)):
                    sums = [
                        g + q + math.log(p) / 2 for g, q, p in zip(guide[c], self.values[query][0], part, strict=True)
                    ]
                    logits[word][c] += dot(self.vectors[score], [math.tanh(value) for value in sums])
            shares = [softmax(row) for row in logits]
            routed = [
                squash(mix([share[c] for share in shares], [split(row, width)[c] for row in self.values[votes]]))
                for c in range(capsules)
            ]
            guide = [self.apply(map, capsule) for capsule in routed]
        out[0][:] = joined(routed[:kept])

    def lstm(self, gates: Row, cell: Row) -> tuple[Row, Row]:
        enter, forget, new, leave = split(gates, len(cell))
        cell = [
            sigmoid(f) * c + sigmoid(i) * math.tanh(g) for f, c, i, g in zip(forget, cell, enter, new, strict=True)
        ]
        return [sigmoid(o) * math.tanh(c) for o, c in zip(leave, cell, strict=True)], cell

    def gru(self, from_input: Row, from_state: Row, state: Row) -> Row:
        width, states = len(state), []
        for i in range(width):
            reset = sigmoid(from_input[i] + from_state[i])
            update = sigmoid(from_input[width + i] + from_state[width + i])
            fresh = math.tanh(from_input[2 * width + i] + reset * from_state[2 * width + i])
            states.append((1 - update) * fresh + update * state[i])
        return states

    def ssru(self, out: list[Row], gates: int, state: int) -> None:
        for target, previous, row in zip(out, self.values[state], self.values[gates], strict=True):
            forget, new = split(row, len(target))
            previous[:] = [
                sigmoid(f) * c + (1 - sigmoid(f)) * x for f, c, x in zip(forget, previous, new, strict=True)
            ]
            target[:] = [max(value, 0.0) for value in previous]

    def mean_past(self, out: list[Row], source: int, state: int) -> None:
        for target, total, row in zip(out, self.values[state], self.values[source], strict=True):
            total[:] = [a + b for a, b in zip(total, row, strict=True)]
            target[:] = [value / (self.step + 1) for value in total]

    def words_backwards(self, backwards: int) -> list[int]:
        positions = list(range(len(self.source)))
        return positions[::-1] if backwards else positions

    def lstm_words(self, out: list[Row], gates: int, map: int, backwards: int, column: int) -> None:
        width = len(self.values[gates][0]) // 4
        state, cell = [0.0] * width, [0.0] * width
        for position in self.words_backwards(backwards):
            summed = [a + b for a, b in zip(self.values[gates][position], self.apply(map, state), strict=True)]
            state, cell = self.lstm(summed, cell)
            out[position][column : column + width] = state

    def gru_words(self, out: list[Row], gates: int, map: int, backwards: int, column: int) -> None:
        width = len(self.values[gates][0]) // 3
        state = [0.0] * width
        for position in self.words_backwards(backwards):
            state = self.gru(self.values[gates][position], self.apply(map, state), state)
            out[position][column : column + width] = state

    def lstm_step(self, out: list[Row], cell: int, gates: int) -> None:
        out[0][:], self.values[cell][0][:] = self.lstm(self.values[gates][0], self.values[cell][0])

    def gru_step(self, out: list[Row], from_input: int, from_state: int, state: int) -> None:
        out[0][:] = self.gru(self.values[from_input][0], self.values[from_state][0], self.values[state][0])

    def additive(self, out: list[Row], query: int, keys: int, values: int, score: int) -> None:
        logits = []
        for row in self.values[keys]:
            sums = [(math.log(q) + math.log(k)) / 2 for q, k in zip(self.values[query][0], row, strict=True)]
            logits.append(dot(self.vectors[score], [math.tanh(value) for value in sums]))
        out[0][:] = mix(softmax(logits), self.values[values])

    def mean_words(self, out: list[Row], words: int) -> None:
        out[0][:] = [math.fsum(column) / len(column) for column in zip(*self.values[words], strict=True)]

    def pool_words(self, out: list[Row], words: int) -> None:
        rows = self.values[words]
        means = [math.fsum(column) / len(column) for column in zip(*rows, strict=True)]
        out[0][:] = [*map(max, zip(*rows, strict=True)), *means, *rows[0], *rows[-1]]

    def separable_routing(
        self, out: list[Row], votes: int, scores: int, positions: int, inner: int, outer: int, capsules: int,
        iterations: int, sets: int,
    ) -> None:  # fmt: skip
        width = len(out[0]) // capsules
        logits = [[0.0] * capsules for _ in self.source]
        for t in range(iterations):
            number = t if sets > 1 else 0
            cast = [split(row, width)[number * capsules : (number + 1) * capsules] for row in self.values[votes]]
            shares = [softmax(row) for row in logits]
            routed = [squash(mix([share[c] for share in shares], [vote[c] for vote in cast])) for c in range(capsules)]
            if t == iterations - 1:
                break
            for c, capsule in enumerate(routed):
                compared: Any = capsule
                if positions >= 0:
                    position = self.vectors[positions][c * width : (c + 1) * width]
                    compared = [a + b for a, b in zip(compared, position, strict=True)]
                if scores >= 0:
                    compared = self.apply(outer, [max(value, 0.0) for value in self.apply(inner, compared)])
                for word in range(len(self.source)):
                    logits[word][c] += dot(self.values[scores][word] if scores >= 0 else cast[word][c], compared)
        out[0][:] = joined(routed)

    def add_positions(self, out: list[Row], positions: int) -> None:
        for row, position in zip(out, split(self.vectors[positions], len(out[0])), strict=False):
            row[:] = [a + b for a, b in zip(row, position, strict=True)]

    def activate(self, out: list[Row], column: int, activation: int) -> None:
        for row in out:
            row[column:] = [activated(value, activation) for value in row[column:]]

    def weighted_sum(self, out: list[Row], weights: int, parts: int, count: int, offsets: int) -> None:
        width = len(out[0])
        for row, target in enumerate(out):
            factors = [0.0] * count * width
            for values in (
                self.values[weights][row] if weights >= 0 else [],
                self.vectors[offsets] if offsets >= 0 else [],
            ):
                spread = [value for value in values for _ in range(count * width // len(values))]
                factors = [a + b for a, b in zip(factors, spread, strict=True)] if values else factors
            products = split([a * b for a, b in zip(factors, self.values[parts][row], strict=True)], width)
            target[:] = [math.fsum(column) for column in zip(*products, strict=True)]

    def rms_norm(self, out: list[Row], gain: int, parts: int, epsilon: float) -> None:
        for row in out:
            width = len(row) // parts
            gains = self.vectors[gain] if gain >= 0 else [1.0] * width
            scaled = []
            for part in split(row, width):
                root = math.sqrt(dot(part, part) / width + epsilon)
                scaled += [factor * value / root for factor, value in zip(gains, part, strict=True)]
            row[:] = scaled

    def softmax(self, out: list[Row]) -> None:
        for row in out:
            row[:] = softmax(row)


def log_probs_of(logits: Row) -> Row:
    top = max(logits)
    total = top + math.log(math.fsum(math.exp(value - top) for value in logits))
    return [value - total for value in logits]
