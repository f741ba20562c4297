"""The engine in C, through ctypes: this is the only module that calls it."""

import ctypes
import functools
import os
import struct
import sys
from array import array
from collections.abc import Callable, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from capsule_mt.engine.program import DTYPES, Address, Codes, Operation, Positions, Program, Tensor, Vector
from capsule_mt.engine.search import Ids, Readings, SearchOptions

VERSION = 9
MOST_SLOTS = 12
TIER = "HF_CAPSULE_MT_TIER"  # in the environment: the tier of kernels to run, such as "avx2" or "portable"
FOLDER = Path(__file__).parent / "native"
SUFFIX = {"win32": "dll", "darwin": "dylib"}.get(sys.platform, "so")
LIBRARY = FOLDER / f"engine.{SUFFIX}"
TYPES = {"F32": 0, "F16": 1, "BF16": 2, "I8": 3}
MOST_ROWS = 320  # of a forced pass: more are no faster, and take memory
EARLY_STOPPING: dict[Any, int] = {False: 0, None: 0, True: 1, "never": 2}

_FIELDS = """
    num_sources: i; words, lengths, limits, forced, suppressed: p; num_suppressed, num_beams, num_returned: i;
    least_tokens, no_repeat_ngram, start_token, end_token, pad_token: i; length_penalty: f; early_stopping: h;
    longest, longest_source, layer, head, num_threads: i; candidates: p; num_candidates: i;
    list_lengths, list_places, prefixes, prefix_lengths, targets, target_lengths, target_log_probs: p;
    tokens, found_lengths, scores, log_probs, first_logits, received, guided: p
"""
_FIELD_TYPES: dict[str, Any] = {
    "i": ctypes.c_int64,
    "p": ctypes.c_void_p,
    "f": ctypes.c_float,
    "h": ctypes.c_int32,
}


class Request(ctypes.Structure):
    """`request_t` of native/engine.h."""

    _fields_ = [
        (name.strip(), _FIELD_TYPES[kind.strip()])
        for names, kind in (part.split(":") for part in _FIELDS.split(";"))
        for name in names.split(",")
    ]


class NativeUnavailableError(RuntimeError):
    """The engine was not built for this machine, or its kernels do not run on this processor."""


@functools.cache
def load_library() -> ctypes.CDLL:
    """Load the engine, or say why it is not there."""
    if not LIBRARY.exists():
        raise NativeUnavailableError(
            f"the native engine was not built ({LIBRARY.name} is missing): build it with "
            "`python -m capsule_mt.engine.build`"
        )
    try:
        library = ctypes.CDLL(str(LIBRARY))
    except OSError as error:
        raise NativeUnavailableError(f"the native engine cannot be loaded: {error}") from None
    pointer, number, small, text = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int, ctypes.c_char_p
    signatures: dict[str, tuple[Any, list[Any]]] = {
        "engine_version": (small, []),
        "engine_error": (text, []),
        "engine_tier": (text, [text]),
        "engine_product": (None, [pointer, pointer, pointer, number, number, number]),
        "engine_widen": (None, [pointer, small, pointer, number]),
        "engine_widen_codes": (None, [pointer, pointer, pointer, number, number]),
        "engine_count_infinite": (number, [pointer, small, number]),
        "engine_new": (pointer, [text, number, number]),
        "engine_free": (None, [pointer]),
        "engine_add_linear": (small, [pointer, number, number, small]),
        "engine_pack": (small, [pointer, small, number, number, pointer, small, pointer, pointer, small]),
        "engine_add_vector": (small, [pointer, pointer, number, small]),
        "engine_add_table": (small, [pointer, pointer, number, number, small, pointer]),
        "engine_add_positions": (small, [pointer, number, number, number]),
        "engine_add_buffer": (small, [pointer, small, number]),
        "engine_set_programs": (small, [pointer, text, number, text, number, small]),
        "engine_translate": (small, [pointer, pointer]),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(library, name, None)
        if function is not None:  # an older library is found out below
            function.restype, function.argtypes = result, arguments
    if library.engine_version() != VERSION:
        raise NativeUnavailableError(
            f"the native engine has version {library.engine_version()}, not {VERSION}: build it again with "
            "`python -m capsule_mt.engine.build`"
        )
    return library


def native_tier(name: str | None = None) -> str:
    """Return the tier of kernels that runs: `name`, what HF_CAPSULE_MT_TIER says, or the best of this processor."""
    wanted = name or os.environ.get(TIER, "")
    tier = str(load_library().engine_tier(wanted.encode()).decode())
    if not tier:
        raise NativeUnavailableError(f"this processor does not run the kernels {wanted!r}: leave {TIER} unset")
    return tier


def default_threads() -> int:
    """Return how many threads translate: OMP_NUM_THREADS, or as many as this process has processors."""
    wanted = os.environ.get("OMP_NUM_THREADS", "").split(",")[0]
    if wanted.isdigit() and int(wanted):
        return int(wanted)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class _Buffer(ctypes.Structure):
    """`Py_buffer`, of which ctypes has no other way to the address of what must not be written."""

    _fields_ = [
        ("buf", ctypes.c_void_p),
        ("obj", ctypes.py_object),
        *((name, ctypes.c_ssize_t) for name in ("len", "itemsize")),
        *((name, ctypes.c_int) for name in ("readonly", "ndim")),
        *((name, ctypes.c_void_p) for name in ("format", "shape", "strides", "suboffsets", "internal")),
    ]


def address_of(tensor: Tensor) -> int:
    """Return where the numbers of a tensor are, for as long as its buffer lives."""
    if isinstance(tensor.buffer, Address):
        return tensor.buffer.address
    found = _Buffer()
    ctypes.pythonapi.PyObject_GetBuffer(ctypes.py_object(tensor.buffer), ctypes.byref(found), 0)
    address, size = found.buf or 0, found.len
    ctypes.pythonapi.PyBuffer_Release(ctypes.byref(found))
    wanted = tensor.size * DTYPES[tensor.dtype]
    if size != wanted:
        raise ValueError(f"a tensor {list(tensor.shape)} of {tensor.dtype} takes {wanted} bytes, got {size}")
    return address


def widened(tensor: Tensor | Codes) -> Tensor:
    """Return a tensor in F32; of codes, the numbers that they stand for.

    Rounding these again gives the same codes and largest magnitudes, bit for bit, of rows with a code of 127 or -127.
    """
    if isinstance(tensor, Codes):
        codes, largest = tensor
        found = Tensor(bytearray(4 * codes.size), "F32", codes.shape)
        places = address_of(codes), address_of(largest), address_of(found)
        load_library().engine_widen_codes(*places, codes.shape[0], codes.size // codes.shape[0])
        return found
    if tensor.dtype == "F32":
        return tensor
    found = Tensor(bytearray(4 * tensor.size), "F32", tensor.shape)
    load_library().engine_widen(address_of(tensor), TYPES[tensor.dtype], address_of(found), tensor.size)
    return found


def count_infinite(tensor: Tensor) -> int:
    """Return how many numbers of a tensor of floats are infinite, or no numbers."""
    return int(load_library().engine_count_infinite(address_of(tensor), TYPES[tensor.dtype], tensor.size))


def product(first: Tensor, then: Tensor) -> Tensor:
    """Return the weight of the map `then` after the map `first`, [out, middle] and [middle, in] -> [out, in].

    The sums are in double precision, the result is in F32.
    """
    rows, inner = then.shape
    columns = first.shape[1] if len(first.shape) > 1 else 1
    shape = (rows, columns) if len(first.shape) > 1 else (rows,)
    if first.shape[0] != inner:
        raise ValueError(f"a map of {inner} inputs does not follow one of {first.shape[0]} outputs")
    then, first = widened(then), widened(first)
    found = Tensor(bytearray(4 * rows * columns), "F32", shape)
    places = (address_of(then), address_of(first), address_of(found))
    load_library().engine_product(*places, rows, inner, columns)
    return found


class Found(NamedTuple):
    """What `Engine.search` found for a source: one entry for each translation, best first.

    tokens: after the start token. scores: the log-probability over the length to the power of the length penalty, as
    `generate()` computes it, without a forced end. log_probs: the mean log-probability of a token, forced ends
    included. received: [S]. guided: PAST, FUTURE, their fall and how much of it was agreed to [4][S].
    """

    tokens: list[list[int]]
    scores: list[float]
    log_probs: list[float]
    received: list[list[float]] | None
    guided: list[list[list[float]]] | None
    first_logits: "array[float] | None"


class Scored(NamedTuple):
    """What `Engine.force` found for a target: log-probabilities [T], attention [T][S], and `guided` as in `Found`."""

    log_probs: list[float]
    received: list[list[float]] | None
    guided: list[list[float]] | None


class Engine:
    """A program with its weights packed for the kernels. Threads may share it.

    num_threads: how many threads share a call; `None` for `default_threads()`.
    """

    def __init__(
        self, program: Program, *, int8: bool, tier: str | None = None, num_threads: int | None = None
    ) -> None:
        self._library = load_library()
        self.tier = native_tier(tier)
        self.num_threads = num_threads or default_threads()
        self.vocabulary, self.head_shape = program.vocabulary, program.head_shape
        self.follows_past_and_future = program.follows_past_and_future
        self.longest_source, self.longest_target = program.longest_source, program.longest_target
        self._model = self._library.engine_new(self.tier.encode(), program.vocabulary, program.num_caches)
        if not self._model:
            raise MemoryError("no memory for the native engine")
        for parts in program.linears:
            outputs = sum(part.outputs for part in parts)
            number = self._check(self._library.engine_add_linear(self._model, outputs, parts[0].inputs, int(int8)))
            first = 0
            for part in parts:
                self._pack(number, first, (part.outputs, part.inputs), *part.read())
                first += part.outputs
        widths = {
            operation.value(slot.name): program.width(int(operation.slots[0]))
            for operation in (*program.encoder, *program.decoder)
            for slot in operation.kind.slots
            if slot.kind == "TABLE"
        }
        for number, vector in enumerate(program.vectors):
            self._add_vector(vector, widths.get(number))
        for space, width in program.buffers:
            self._check(self._library.engine_add_buffer(self._model, int(space), width))
        sides = [_packed(side) for side in (program.encoder, program.decoder)]
        counts = len(program.encoder), len(program.decoder)
        self._check(
            self._library.engine_set_programs(self._model, sides[0], counts[0], sides[1], counts[1], program.logits)
        )

    def __del__(self) -> None:
        if getattr(self, "_model", None):
            self._library.engine_free(self._model)

    def _add_vector(self, vector: Vector | Positions, width: int | None) -> None:
        """Add a vector, or a table with rows of this width."""
        if isinstance(vector, Positions):
            count = vector.count // vector.width
            self._check(self._library.engine_add_positions(self._model, count, vector.width, vector.span))
            return
        values, largest = _with_largest(vector.read())
        if values.size != vector.count:
            raise ValueError(f"a vector of {vector.count} numbers was read as {values.size}")
        place, kind = address_of(values), TYPES[values.dtype]
        if width is None:
            self._check(self._library.engine_add_vector(self._model, place, vector.count, kind))
            return
        scales = None if largest is None else address_of(largest)
        rows = vector.count // width
        self._check(self._library.engine_add_table(self._model, place, rows, width, kind, scales))

    def _pack(
        self, number: int, first: int, shape: tuple[int, int], weight: Tensor | Codes, bias: Tensor | None
    ) -> None:
        """Pack the rows of a linear map from `first` on."""
        weight, largest = _with_largest(weight)
        if tuple(weight.shape) != shape or (bias is not None and bias.size != shape[0]):
            found = list(weight.shape), None if bias is None else list(bias.shape)
            raise ValueError(f"a linear map {list(shape)} was read with a weight {found[0]} and a bias {found[1]}")
        places = [None if one is None else address_of(one) for one in (weight, largest, bias)]
        types = TYPES[weight.dtype], TYPES["F32" if bias is None else bias.dtype]
        self._check(
            self._library.engine_pack(
                self._model, number, first, shape[0], places[0], types[0], places[1], places[2], types[1]
            )
        )

    def search(
        self,
        sources: Sequence[Ids],
        options: SearchOptions,
        *,
        start: int,
        end: int,
        pad: int,
        first_logits: bool = False,
    ) -> list[Found]:
        """Search for translations; `end` is -1 where there is no end token. `first_logits`: return those, too."""
        if not sources:
            return []
        for name, values in (
            ("limits", options.limits),
            ("forces_end", options.forces_end),
            ("prefixes", options.prefixes),
        ):
            if len(values) != len(sources) and (values or name == "limits"):
                raise ValueError(f"`{name}` must be one for each of the {len(sources)} sources, got {len(values)}")
        if options.early_stopping not in EARLY_STOPPING:
            raise ValueError(f'`early_stopping` must be True, False or "never", got {options.early_stopping!r}')
        special = {"start_token": start, "end_token": end, "pad_token": pad}
        parts = min(self.num_threads, len(sources))
        by_length = sorted(range(len(sources)), key=lambda row: -len(sources[row]))

        def search(rows: list[int], threads: int) -> list[Found]:
            return self._search([sources[row] for row in rows], rows, options, special, first_logits, threads)

        return self._in_parts([by_length[number::parts] for number in range(parts)], search)

    def force(
        self, sources: Sequence[Ids], targets: Sequence[Ids], readings: Readings, *, start: int, end: int, pad: int
    ) -> list[Scored]:
        """Score given targets, one for each source."""
        if len(sources) != len(targets):
            raise ValueError(f"`targets` must be as many as the {len(sources)} sources, got {len(targets)}")
        for row, target in enumerate(targets):
            if not len(target):
                raise ValueError(f"target {row} has no token")
        special = {"start_token": start, "end_token": end, "pad_token": pad}
        parts: list[list[int]] = []
        size = MOST_ROWS
        for row in sorted(range(len(sources)), key=lambda row: -len(targets[row])):
            longer = max(len(sources[row]), len(targets[row]))
            if size + longer > MOST_ROWS:
                parts.append([])
                size = 0
            parts[-1].append(row)
            size += longer

        def force(rows: list[int], threads: int) -> list[Scored]:
            pairs = [sources[row] for row in rows], [targets[row] for row in rows]
            return self._force(*pairs, readings, special, threads)

        return self._in_parts(parts, force)

    def _in_parts(self, parts: list[list[int]], run: Callable[[list[int], int], list[Any]]) -> list[Any]:
        """Run parts, which are rows of a batch, on all threads; return what they give for each row, in order.

        Where there are fewer parts than threads, several share the products of one.
        """
        found: list[Any] = [None] * sum(map(len, parts))
        workers = min(self.num_threads, len(parts))

        def work(number: int) -> None:
            threads = len(range(number, self.num_threads, workers))
            for rows in parts[number::workers]:
                for row, one in zip(rows, run(rows, threads), strict=True):
                    found[row] = one

        if workers == 1:
            work(0)
        elif workers > 1:
            from concurrent.futures import ThreadPoolExecutor

            with ThreadPoolExecutor(workers) as pool:
                list(pool.map(work, range(workers)))
        return found

    def _force(
        self,
        sources: Sequence[Ids],
        targets: Sequence[Ids],
        readings: Readings,
        special: dict[str, int],
        threads: int,
    ) -> list[Scored]:
        """Score these targets in one call."""
        number, head = len(sources), readings.head or (-1, -1)
        lengths, target_lengths = array("q", map(len, sources)), array("q", map(len, targets))
        words, tokens = array("q", chain.from_iterable(sources)), array("q", chain.from_iterable(targets))
        longest_source = max(lengths)
        log_probs = _empty("f", len(tokens))
        received = None if readings.head is None else _empty("f", len(tokens) * longest_source)
        guided = _empty("f", number * 4 * longest_source) if readings.guided else None
        request = Request(
            num_sources=number,
            words=_at(words),
            lengths=_at(lengths),
            limits=_at(target_lengths),
            num_beams=1,
            num_returned=1,
            longest=max(target_lengths),
            longest_source=longest_source,
            layer=head[0],
            head=head[1],
            num_threads=threads,
            targets=_at(tokens),
            target_lengths=_at(target_lengths),
            target_log_probs=_at(log_probs),
            received=_at(received),
            guided=_at(guided),
            **special,
        )
        self._check(self._library.engine_translate(self._model, ctypes.byref(request)))
        found, first = [], 0
        for source, (length, steps) in enumerate(zip(lengths, target_lengths, strict=True)):
            rows = range(first, first + steps)
            found.append(
                Scored(
                    list(log_probs[first : first + steps]),
                    None if received is None else [_row(received, row, longest_source, length) for row in rows],
                    None
                    if guided is None
                    else [_row(guided, 4 * source + part, longest_source, length) for part in range(4)],
                )
            )
            first += steps
        return found

    def _search(
        self,
        sources: Sequence[Ids],
        rows: Sequence[int],
        options: SearchOptions,
        special: dict[str, int],
        first_logits: bool,
        threads: int,
    ) -> list[Found]:
        """Search for these sources, which are these rows of those of the options, in one call."""
        number, returned, readings = len(sources), options.num_return_sequences, options.readings
        lengths = array("q", map(len, sources))
        limits = array("q", [options.limits[row] for row in rows])
        longest, longest_source = max(limits), max(lengths)
        words = array("q", chain.from_iterable(sources))
        forced = array("i", [options.forces_end[row] for row in rows] if options.forces_end else [0] * number)
        suppressed = array("i", options.suppress_tokens)
        tokens, found_lengths = _empty("q", number * returned * longest), _empty("q", number * returned)
        scores, log_probs = _empty("f", number * returned), _empty("f", number * returned)
        head = None if readings is None else readings.head
        received = None if head is None else _empty("f", number * returned * longest_source)
        guided = None
        if readings is not None and readings.guided:
            guided = _empty("f", number * returned * 4 * longest_source)
        logits = _empty("f", number * self.vocabulary) if first_logits else None
        prefixes = prefix_lengths = None
        if options.prefixes:
            prefixes = array("q", chain.from_iterable(options.prefixes[row] for row in rows))
            prefix_lengths = array("q", [len(options.prefixes[row]) for row in rows])
        candidates = list_lengths = places = None
        if options.shortlist is not None:
            further = [special["end_token"]] if special["end_token"] >= 0 else []
            own = [options.prefixes[row] if options.prefixes else () for row in rows]
            pairs = zip(sources, own, strict=True)
            lists = [options.shortlist.of_source(source, *further, *prefix) for source, prefix in pairs]
            candidates = array("i", sorted(set(chain.from_iterable(lists))))
            place = {token: place for place, token in enumerate(candidates)}
            list_lengths = array("q", map(len, lists))
            places = array("i", [place[token] for tokens in lists for token in tokens])
        request = Request(
            num_sources=number,
            words=_at(words),
            lengths=_at(lengths),
            limits=_at(limits),
            forced=_at(forced),
            suppressed=_at(suppressed),
            num_suppressed=len(suppressed),
            num_beams=options.num_beams,
            num_returned=returned,
            least_tokens=options.min_new_tokens,
            no_repeat_ngram=options.no_repeat_ngram_size,
            length_penalty=options.length_penalty,
            early_stopping=EARLY_STOPPING[options.early_stopping],
            longest=longest,
            longest_source=longest_source,
            layer=-1 if head is None else head[0],
            head=-1 if head is None else head[1],
            num_threads=threads,
            candidates=_at(candidates),
            num_candidates=0 if candidates is None else len(candidates),
            list_lengths=_at(list_lengths),
            list_places=_at(places),
            prefixes=_at(prefixes),
            prefix_lengths=_at(prefix_lengths),
            tokens=_at(tokens),
            found_lengths=_at(found_lengths),
            scores=_at(scores),
            log_probs=_at(log_probs),
            first_logits=_at(logits),
            received=_at(received),
            guided=_at(guided),
            **special,
        )
        self._check(self._library.engine_translate(self._model, ctypes.byref(request)))
        found = []
        for source in range(number):
            entries = [
                place for place in range(source * returned, (source + 1) * returned) if found_lengths[place] > 0
            ]
            length = lengths[source]
            found.append(
                Found(
                    [list(tokens[place * longest : place * longest + found_lengths[place]]) for place in entries],
                    [scores[place] for place in entries],
                    [log_probs[place] for place in entries],
                    None if received is None else [_row(received, place, longest_source, length) for place in entries],
                    None
                    if guided is None
                    else [[_row(guided, 4 * p + part, longest_source, length) for part in range(4)] for p in entries],
                    None if logits is None else logits[source * self.vocabulary : (source + 1) * self.vocabulary],
                )
            )
        return found

    def _check(self, number: int) -> int:
        """Return a number that the engine gave, or raise what it means."""
        if number == -1:
            raise MemoryError("no memory for the native engine")
        if number < 0:
            raise ValueError(f"the native engine refused: {self._library.engine_error().decode()}")
        return number


def _with_largest(values: Tensor | Codes) -> tuple[Tensor, Tensor | None]:
    return values if isinstance(values, Codes) else (values, None)


def _packed(operations: list[Operation]) -> bytes:
    return b"".join(operation.packed(MOST_SLOTS) for operation in operations)


def _empty(kind: str, count: int) -> "array[Any]":
    return array(kind, bytes(count * struct.calcsize(kind)))


def _at(values: "array[Any] | None") -> int | None:
    return None if values is None else values.buffer_info()[0]


def _row(values: "array[float]", row: int, width: int, count: int) -> list[float]:
    return list(values[row * width : row * width + count])
