"""`Engine`: a program whose weights are packed for the processor. It searches, scores or encodes on threads."""

import os
from array import array
from collections.abc import Callable, Collection, Container, Sequence
from typing import Any

from capsule_mt.engine.library import BY_ROW, NativeModel, native_tier, rounded
from capsule_mt.engine.program import Codes, Linear, Operation, Positions, Program, Tensor, Vector
from capsule_mt.engine.request import (
    OPTIONS,
    EncodingCall,
    ForcedCall,
    Scored,
    SearchCall,
    SearchResult,
    SpecialTokens,
    values_of,
)
from capsule_mt.engine.search import Ids, Readings, Restriction, SearchOptions
from capsule_mt.engine.stopping import run_all, stoppable

MAX_TARGET_TOKENS = 2**31 - 1  # tokens, where a model has no limit
MAX_ROWS = 320  # of a pass over given tokens: more take memory without being faster


def default_threads() -> int:
    """Return the number of threads that translate: OMP_NUM_THREADS, or the processors of this process."""
    setting = os.environ.get("OMP_NUM_THREADS", "").split(",")[0]
    if setting.isdigit() and int(setting):
        return int(setting)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Engine:
    """A program with its weights packed for the kernels. Threads may share it.

    num_threads: how many threads share a call; `None` for `default_threads()`.
    shortlist: whether most calls have one. In int8, the head is then packed only once a call needs all of it.
    """

    def __init__(
        self,
        program: Program,
        *,
        int8: bool,
        tier: str | None = None,
        num_threads: int | None = None,
        shortlist: bool = False,
    ) -> None:
        if not isinstance(int8, bool):
            raise TypeError(f"`int8` must be True or False, got {int8!r}")
        self.tier, self.int8 = native_tier(tier), int8
        self._by_row = program.head if int8 and shortlist else None
        self.num_threads = num_threads or default_threads()
        self.vocabulary, self.embeddings = program.vocabulary, program.embeddings
        self.head_shape = program.head_shape
        self.longest_source, self.longest_target = program.longest_source, program.longest_target
        self.encoded_width = program.width(program.logits) if not program.decoder else 0
        self._model = NativeModel(self.tier, program.vocabulary, program.num_caches)
        exact = self._pack_linears(program, int8)
        widths = program.table_widths
        for number, vector in enumerate(program.vectors):
            packed = exact.get(vector.packed) if isinstance(vector, Vector) and vector.packed else None
            if packed is None:
                self._add_vector(vector, widths.get(number))
            else:
                self._model.add_packed_table(*packed)
        for space, width in program.buffers:
            self._model.add_buffer(int(space), width)
        encoder, decoder = (_packed(side) for side in (program.encoder, program.decoder))
        self._model.set_programs(encoder, len(program.encoder), decoder, len(program.decoder), program.logits)

    def _pack_linears(self, program: Program, int8: bool) -> dict[Linear, tuple[int, Tensor | None]]:
        """Pack the linear maps.

        Return those that are packed unchanged, so that a table may share them: their numbers, and the magnitudes of
        codes.
        """
        exact: dict[Linear, tuple[int, Tensor | None]] = {}
        tables = [vector for vector in program.vectors if isinstance(vector, Vector) and vector.rounds]
        rounded_with_table = {table.packed for table in tables if int8}
        sizes = [(sum(part.outputs for part in parts), parts[0].inputs) for parts in program.linears]
        if int8:
            for number, size in enumerate(sizes):
                self._model.add_linear(*size, BY_ROW if number == self._by_row else "I8")
        # In int8, the head first: its weights as they were read are freed before the others take their memory.
        # Those lie in the order in which the program reads them: a product prefetches the beginning of the next.
        for number in sorted(range(len(sizes)), key=lambda number: int8 and number != program.head):
            exact |= self._pack_linear(number, program.linears[number], rounded_with_table)
        return exact

    def _pack_linear(
        self, number: int, parts: tuple[Linear, ...], rounded_with_table: Container[Linear | None]
    ) -> dict[Linear, tuple[int, Tensor | None]]:
        """Read and pack a linear map; in float, also add it, now that its dtype is known.

        Return it as `_pack_linears` does.
        """
        weights = [part.read() for part in parts]
        if parts[0] in rounded_with_table:  # Python needs the magnitudes, which the table shares
            weights = [(rounded(weight), bias) for weight, bias in weights]
        if not self.int8:
            in_half = all(isinstance(weight, Tensor) and weight.dtype == "F16" for weight, _ in weights)
            outputs = sum(part.outputs for part in parts)
            self._model.add_linear(outputs, parts[0].inputs, "F16" if in_half else "F32")
        first_row = 0
        for part, (weight, bias) in zip(parts, weights, strict=True):
            self._model.pack(number, first_row, (part.outputs, part.inputs), weight, bias)
            first_row += part.outputs
        (weight, _), *other_weights = weights
        if other_weights or (self.int8 and not isinstance(weight, Codes)):
            return {}
        return {parts[0]: (number, weight.magnitudes if self.int8 and isinstance(weight, Codes) else None)}

    def _add_vector(self, vector: Vector | Positions, width: int | None) -> None:
        """Add a vector, or a table with rows of this width."""
        if isinstance(vector, Positions):
            self._model.add_positions(vector.count // vector.width, vector.width, vector.span, vector.start)
            return
        values = vector.read()
        if self.int8 and vector.rounds:
            values = rounded(values)
        size = (values.codes if isinstance(values, Codes) else values).size
        if size != vector.count:
            raise ValueError(f"a vector of {vector.count} numbers was read as {size}")
        if width is not None:
            if width < 1 or size % width or (isinstance(values, Codes) and values.magnitudes.size * width != size):
                raise ValueError(f"a table of {size} numbers cannot have rows of {width}")
            self._model.add_table(values, vector.count // width, width)
        elif isinstance(values, Tensor):
            self._model.add_vector(values)

    def observe(self, observer: Callable[[int, Any, int], None] | None) -> None:
        """Call `observer` with the inputs of each LINEAR operation, from now on; `None` for no more.

        It gets the map's number, a pointer to floats and the number of rows there, from several threads at a time.
        """
        self._model.observe(observer)

    def search(
        self,
        sources: Sequence[Ids],
        options: SearchOptions,
        *,
        start: int,
        end: int,
        pad: int,
        first_logits: bool = False,
    ) -> list[SearchResult]:
        """Search for translations; `end` is -1 where there is no end token.

        first_logits: return the logits of the first step, too; a shortlist must not be given then.
        """
        if not sources:
            return []
        for name, values in (
            ("limits", options.limits),
            ("forces_end", options.forces_end),
            ("prefixes", options.prefixes),
        ):
            if len(values) != len(sources) and (values or name == "limits"):
                raise ValueError(f"`{name}` must be one for each of the {len(sources)} sources, got {len(values)}")
        max_tokens = MAX_TARGET_TOKENS if self.longest_target is None else self.longest_target
        for name, values, maximum, limited_by in (
            ("`limits` (`max_new_tokens`, or `max_length` minus 1)", options.limits, max_tokens, ""),
            ("`num_beams`", [options.num_beams], self.vocabulary, ""),
            ("`num_return_sequences`", [options.num_return_sequences], options.num_beams, " (`num_beams`)"),
        ):
            for value in values:  # the engine allocates by these numbers
                if type(value) is not int or not 1 <= value <= maximum:
                    raise ValueError(f"{name} must be a whole number from 1 to {maximum}{limited_by}, got {value!r}")
        for option, value in zip(OPTIONS, values_of(options), strict=True):
            if value is not option.default:
                option.check(value)
        tokens = SpecialTokens(start, end, pad)
        parts = min(self.num_threads, len(sources))
        by_length = sorted(range(len(sources)), key=lambda row: -len(sources[row]))

        def call(rows: list[int]) -> SearchCall:
            part = [sources[row] for row in rows]
            return SearchCall(part, rows, options, tokens, self.vocabulary, first_logits=first_logits)

        return self._in_parts([by_length[number::parts] for number in range(parts)], call, options.max_time)

    def force(
        self,
        sources: Sequence[Ids],
        targets: Sequence[Ids],
        readings: Readings,
        positions: Sequence[Collection[int]] | None = None,
        restriction: Restriction | None = None,
        *,
        start: int,
        end: int,
        pad: int,
    ) -> list[Scored]:
        """Score these targets, one for each source; with `positions`, only these tokens of each."""
        restricted_by = restriction and restriction.sources
        arguments = {"targets": targets, "positions": positions, "restriction.sources": restricted_by}
        for name, lists in arguments.items():
            if lists is not None and len(sources) != len(lists):
                raise ValueError(f"`{name}` must be as many as the {len(sources)} sources, got {len(lists)}")
        for row, target in enumerate(targets):
            if not len(target):
                raise ValueError(f"target {row} has no token")
            for position in () if positions is None else positions[row]:
                if not 0 <= position < len(target):
                    raise ValueError(f"target {row} has {len(target)} tokens, and so no position {position}")
        tokens = SpecialTokens(start, end, pad)
        rows = sorted(range(len(sources)), key=lambda row: -len(targets[row]))
        parts = _parts(rows, [max(map(len, pair)) for pair in zip(sources, targets, strict=True)])

        def call(rows: list[int]) -> ForcedCall:
            pairs = [sources[row] for row in rows], [targets[row] for row in rows]
            scored = None if positions is None else [positions[row] for row in rows]
            part = restriction and restriction._replace(sources=[restriction.sources[row] for row in rows])
            return ForcedCall(*pairs, readings, tokens, self.vocabulary, scored, part)

        return self._in_parts(parts, call)

    def encode(self, sources: Sequence[Ids]) -> "list[array[float]]":
        """Return what a model without a decoder makes of each source: [tokens * `encoded_width`] numbers."""
        if not self.encoded_width:
            raise ValueError("the model has a decoder: it translates, and does not return what it encodes")
        if not sources:
            return []
        rows = sorted(range(len(sources)), key=lambda row: -len(sources[row]))

        def call(rows: list[int]) -> EncodingCall:
            return EncodingCall([sources[row] for row in rows], self.embeddings, self.encoded_width)

        return self._in_parts(_parts(rows, list(map(len, sources))), call)

    def _in_parts(
        self,
        parts: list[list[int]],
        call_of: Callable[[list[int]], SearchCall | ForcedCall | EncodingCall],
        seconds: float | None = None,
    ) -> list[Any]:
        """Run parts, which are rows of a batch, on all threads; return the result of each row, in order.

        If there are fewer parts than threads, several threads share a part's products. After `seconds` all finish.
        """
        results: list[Any] = [None] * sum(map(len, parts))
        workers = min(self.num_threads, len(parts))

        with stoppable(seconds) as flag:

            def work(number: int) -> None:
                num_threads = len(range(number, self.num_threads, workers))
                for rows in parts[number::workers]:
                    call = call_of(rows)
                    call.numbers["num_threads"] = num_threads
                    call.arrays["stop"] = flag
                    self._model.translate(call.numbers, call.arrays)
                    for row, result in zip(rows, call.results(), strict=True):
                        results[row] = result

            run_all(work, workers, flag)
        return results


def _parts(rows: Sequence[int], sizes: Sequence[int]) -> list[list[int]]:
    """Cut rows of a batch into parts of `MAX_ROWS` tokens at most, but of one row at least.

    sizes: the tokens of each row of the batch.
    """
    parts: list[list[int]] = []
    size = MAX_ROWS
    for row in rows:
        if size + sizes[row] > MAX_ROWS:
            parts.append([])
            size = 0
        parts[-1].append(row)
        size += sizes[row]
    return parts


def _packed(operations: list[Operation]) -> bytes:
    return b"".join(operation.packed() for operation in operations)
