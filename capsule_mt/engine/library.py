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
from threading import current_thread, main_thread
from typing import Any, NamedTuple

from capsule_mt.engine.program import DTYPES, Address, Codes, Linear, Operation, Positions, Program, Tensor, Vector
from capsule_mt.engine.search import Ids, Readings, SearchOptions
from capsule_mt.engine.stopping import StoppedError, finished_after, run_all, stoppable
from capsule_mt.options.table import offered, request_fields, request_layout

VERSION = 16 * 65536 + request_layout()  # as ENGINE_VERSION of native/engine.h
MOST_SLOTS = 12
TIER = "HF_CAPSULE_MT_TIER"  # environment variable: the tier of kernels to run, such as "avx2" or "portable"
FOLDER = Path(__file__).parent / "native"
SUFFIX = {"win32": "dll", "darwin": "dylib"}.get(sys.platform, "so")
LIBRARY = FOLDER / f"engine.{SUFFIX}"
TYPES = {"F32": 0, "F16": 1, "BF16": 2, "I8": 3}
MAX_TARGET_TOKENS = 2**31 - 1  # tokens, where a model has no limit
MAX_ROWS = 320  # of a forced pass: more take memory without being faster

_FIELDS = """
    num_sources: i; words, lengths, limits, forced: p; unscored, start_token, end_token, pad_token: i;
    longest, longest_source, layer, head, num_threads: i; candidates: p; num_candidates: i;
    list_lengths, list_places, prefixes, prefix_lengths, targets, target_lengths, target_log_probs: p;
    tokens, found_lengths, scores, log_probs, first_logits, received, stop: p
"""
# the fields of `request_t` of native/engine.h, in order: numbers of 64 bits, pointers, floats; options come first
REQUEST_FIELDS = request_fields() | {
    name.strip(): kind.strip()
    for names, kind in (part.split(":") for part in _FIELDS.split(";"))
    for name in names.split(",")
}
_FIELD_TYPES: dict[str, Any] = {
    "i": ctypes.c_int64,
    "p": ctypes.c_void_p,
    "f": ctypes.c_float,
}


class Request(ctypes.Structure):
    """`request_t` of native/engine.h."""

    _fields_ = [(name, _FIELD_TYPES[kind]) for name, kind in REQUEST_FIELDS.items()]


class Caller(ctypes.Structure):
    """`caller_t` of native/engine.h: Python's lock, and how to look for signals, which only the main thread does."""

    _fields_ = [(name, ctypes.c_void_p) for name in ("release", "regain", "look")]

    def __init__(self, *functions: str) -> None:
        super().__init__(*(ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p) for name in functions))


_OPTIONS = offered("engine")
# the options' values in a forced pass, which searches nothing
_NO_SEARCH = {option.name: option.default for option in _OPTIONS if option.kind in ("integer", "number")}
ANY_THREAD = Caller("PyEval_SaveThread", "PyEval_RestoreThread")
MAIN_THREAD = Caller("PyEval_SaveThread", "PyEval_RestoreThread", "PyErr_CheckSignals")


class NativeUnavailableError(RuntimeError):
    """The engine was not built for this machine, or its kernels do not run on this processor."""


@functools.cache
def load_library() -> ctypes.CDLL:
    """Load the engine, or raise an error that says why it is missing."""
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
        "engine_round_codes": (None, [pointer, pointer, pointer, number, number]),
        "engine_count_infinite": (number, [pointer, small, number]),
        "engine_new": (pointer, [text, number, number]),
        "engine_free": (None, [pointer]),
        "engine_add_linear": (small, [pointer, number, number, small]),
        "engine_pack": (small, [pointer, small, number, number, pointer, small, pointer, pointer, small]),
        "engine_add_vector": (small, [pointer, pointer, number, small]),
        "engine_add_table": (small, [pointer, pointer, number, number, small, pointer]),
        "engine_add_packed_table": (small, [pointer, small, pointer]),
        "engine_add_positions": (small, [pointer, number, number, number]),
        "engine_add_buffer": (small, [pointer, small, number]),
        "engine_set_programs": (small, [pointer, text, number, text, number, small]),
        "engine_translate": (small, [pointer, pointer, pointer]),
    }
    # it releases Python's lock itself, and raises what a signal's handler raises
    vars(library)["engine_translate"] = getattr(ctypes.PyDLL(str(LIBRARY)), "engine_translate", None)
    for name, (result, arguments) in signatures.items():
        function = getattr(library, name, None)
        if function is not None:  # the version check below refuses an older library
            function.restype, function.argtypes = result, arguments
    if library.engine_version() != VERSION:
        raise NativeUnavailableError(
            f"the native engine has version {library.engine_version()}, not {VERSION}: build it again with "
            "`python -m capsule_mt.engine.build`"
        )
    return library


def native_tier(name: str | None = None) -> str:
    """Return the tier of kernels that runs: `name`, what HF_CAPSULE_MT_TIER says, or the best of this processor."""
    requested = name or os.environ.get(TIER, "")
    tier = str(load_library().engine_tier(requested.encode()).decode())
    if not tier:
        raise NativeUnavailableError(f"this processor does not run the kernels {requested!r}: leave {TIER} unset")
    return tier


def default_threads() -> int:
    """Return the number of threads that translate: OMP_NUM_THREADS, or the processors of this process."""
    setting = os.environ.get("OMP_NUM_THREADS", "").split(",")[0]
    if setting.isdigit() and int(setting):
        return int(setting)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class _Buffer(ctypes.Structure):
    """`Py_buffer`: ctypes has no other way to the address of a read-only buffer."""

    _fields_ = [
        ("buf", ctypes.c_void_p),
        ("obj", ctypes.py_object),
        *((name, ctypes.c_ssize_t) for name in ("len", "itemsize")),
        *((name, ctypes.c_int) for name in ("readonly", "ndim")),
        *((name, ctypes.c_void_p) for name in ("format", "shape", "strides", "suboffsets", "internal")),
    ]


def address_of(tensor: Tensor) -> int:
    """Return the address of a tensor's numbers, valid while its buffer lives."""
    if isinstance(tensor.buffer, Address):
        return tensor.buffer.address
    view = _Buffer()
    ctypes.pythonapi.PyObject_GetBuffer(ctypes.py_object(tensor.buffer), ctypes.byref(view), 0)
    address, size = view.buf or 0, view.len
    ctypes.pythonapi.PyBuffer_Release(ctypes.byref(view))
    expected_size = tensor.size * DTYPES[tensor.dtype]
    if size != expected_size:
        raise ValueError(f"a tensor {list(tensor.shape)} of {tensor.dtype} takes {expected_size} bytes, got {size}")
    return address


def widened(tensor: Tensor | Codes) -> Tensor:
    """Return a tensor in F32; of codes, the numbers that they stand for.

    Rounding these again gives the same codes and largest magnitudes, bit for bit, of rows with a code of 127 or -127.
    """
    if isinstance(tensor, Codes):
        codes, largest = tensor
        wide = Tensor(bytearray(4 * codes.size), "F32", codes.shape)
        addresses = address_of(codes), address_of(largest), address_of(wide)
        load_library().engine_widen_codes(*addresses, codes.shape[0], codes.size // codes.shape[0])
        return wide
    if tensor.dtype == "F32":
        return tensor
    wide = Tensor(bytearray(4 * tensor.size), "F32", tensor.shape)
    load_library().engine_widen(address_of(tensor), TYPES[tensor.dtype], address_of(wide), tensor.size)
    return wide


def rounded(tensor: Tensor | Codes) -> Codes:
    """Return the codes of a matrix [outputs, inputs], as the engine rounds it in int8."""
    if isinstance(tensor, Codes):
        return tensor
    numbers, (rows, width) = widened(tensor), tensor.shape
    codes = Tensor(bytearray(rows * width), "I8", (rows, width))
    largest = Tensor(bytearray(4 * rows), "F32", (rows,))
    load_library().engine_round_codes(address_of(numbers), address_of(codes), address_of(largest), rows, width)
    return Codes(codes, largest)


def count_infinite(tensor: Tensor) -> int:
    """Return how many numbers of a tensor of floats are infinite or NaN."""
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
    weight = Tensor(bytearray(4 * rows * columns), "F32", shape)
    addresses = (address_of(then), address_of(first), address_of(weight))
    load_library().engine_product(*addresses, rows, inner, columns)
    return weight


class SearchResult(NamedTuple):
    """What `Engine.search` returns for a source: an entry for each translation, best first.

    tokens: after the start token. scores: the log-probability over the length to the power of the length penalty, as
    `generate()` computes it, without a forced end. log_probs: of each token, forced ends included. received: by
    each token [T][S].
    """

    tokens: list[list[int]]
    scores: list[float]
    log_probs: list[list[float]]
    received: list[list[list[float]]] | None
    first_logits: "array[float] | None"


class Scored(NamedTuple):
    """What `Engine.force` returns for a target: log-probabilities [T], attention [T][S]."""

    log_probs: list[float]
    received: list[list[float]] | None


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
        self.vocabulary, self.embeddings = program.vocabulary, program.embeddings
        self.head_shape = program.head_shape
        self.longest_source, self.longest_target = program.longest_source, program.longest_target
        self._model = self._library.engine_new(self.tier.encode(), program.vocabulary, program.num_caches)
        if not self._model:
            raise MemoryError("no memory for the native engine")
        # maps packed unchanged, which a table may share: their numbers, and the magnitudes of codes
        exact: dict[Linear, tuple[int, Tensor | None]] = {}
        for parts in program.linears:
            weights = [part.read() for part in parts]
            in_half = all(isinstance(weight, Tensor) and weight.dtype == "F16" for weight, _ in weights)
            dtype = TYPES["I8" if int8 else "F16" if in_half else "F32"]
            outputs = sum(part.outputs for part in parts)
            number = self._check(self._library.engine_add_linear(self._model, outputs, parts[0].inputs, dtype))
            first_row = 0
            for part, (weight, bias) in zip(parts, weights, strict=True):
                self._pack(number, first_row, (part.outputs, part.inputs), weight, bias)
                first_row += part.outputs
                if len(parts) == 1 and (not int8 or isinstance(weight, Codes)):
                    exact[part] = number, weight.largest if int8 and isinstance(weight, Codes) else None
        widths = program.table_widths
        for number, vector in enumerate(program.vectors):
            packed = exact.get(vector.packed) if isinstance(vector, Vector) and vector.packed else None
            if packed is None:
                self._add_vector(vector, widths.get(number))
                continue
            largest = None if packed[1] is None else address_of(packed[1])
            self._check(self._library.engine_add_packed_table(self._model, packed[0], largest))
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
        address, kind = address_of(values), TYPES[values.dtype]
        if width is None:
            self._check(self._library.engine_add_vector(self._model, address, vector.count, kind))
            return
        scales = None if largest is None else address_of(largest)
        rows = vector.count // width
        self._check(self._library.engine_add_table(self._model, address, rows, width, kind, scales))

    def _pack(
        self, number: int, first_row: int, shape: tuple[int, int], weight: Tensor | Codes, bias: Tensor | None
    ) -> None:
        """Pack the rows of a linear map from `first_row` on."""
        weight, largest = _with_largest(weight)
        if tuple(weight.shape) != shape or (bias is not None and bias.size != shape[0]):
            shapes = list(weight.shape), None if bias is None else list(bias.shape)
            raise ValueError(f"a linear map {list(shape)} was read with a weight {shapes[0]} and a bias {shapes[1]}")
        addresses = [None if tensor is None else address_of(tensor) for tensor in (weight, largest, bias)]
        types = TYPES[weight.dtype], TYPES["F32" if bias is None else bias.dtype]
        self._check(
            self._library.engine_pack(
                self._model, number, first_row, shape[0], addresses[0], types[0], addresses[1], addresses[2], types[1]
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
    ) -> list[SearchResult]:
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
        max_tokens = MAX_TARGET_TOKENS if self.longest_target is None else self.longest_target
        for name, values, maximum in (
            ("limits", options.limits, max_tokens),
            ("num_beams", [options.num_beams], self.vocabulary),
            ("num_return_sequences", [options.num_return_sequences], options.num_beams),
        ):
            for value in values:  # the engine allocates by these numbers
                if type(value) is not int or not 1 <= value <= maximum:
                    raise ValueError(f"`{name}` must be a whole number from 1 to {maximum}, got {value!r}")
        for option in _OPTIONS:
            if (value := getattr(options, option.name)) is not option.default:
                option.check(value)
        special = {"start_token": start, "end_token": end, "pad_token": pad}
        parts = min(self.num_threads, len(sources))
        by_length = sorted(range(len(sources)), key=lambda row: -len(sources[row]))

        def search(rows: list[int], shared: dict[str, Any]) -> list[SearchResult]:
            return self._search([sources[row] for row in rows], rows, options, special, first_logits, shared)

        return self._in_parts([by_length[number::parts] for number in range(parts)], search, options.max_time)

    def force(
        self, sources: Sequence[Ids], targets: Sequence[Ids], readings: Readings, *, start: int, end: int, pad: int
    ) -> list[Scored]:
        """Score these targets, one for each source."""
        if len(sources) != len(targets):
            raise ValueError(f"`targets` must be as many as the {len(sources)} sources, got {len(targets)}")
        for row, target in enumerate(targets):
            if not len(target):
                raise ValueError(f"target {row} has no token")
        special = {"start_token": start, "end_token": end, "pad_token": pad}
        parts: list[list[int]] = []
        size = MAX_ROWS
        for row in sorted(range(len(sources)), key=lambda row: -len(targets[row])):
            longer = max(len(sources[row]), len(targets[row]))
            if size + longer > MAX_ROWS:
                parts.append([])
                size = 0
            parts[-1].append(row)
            size += longer

        def force(rows: list[int], shared: dict[str, Any]) -> list[Scored]:
            pairs = [sources[row] for row in rows], [targets[row] for row in rows]
            return self._force(*pairs, readings, special, shared)

        return self._in_parts(parts, force)

    def _in_parts(
        self,
        parts: list[list[int]],
        run: Callable[[list[int], dict[str, Any]], list[Any]],
        seconds: float | None = None,
    ) -> list[Any]:
        """Run parts, which are rows of a batch, on all threads; return the result of each row, in order.

        If there are fewer parts than threads, several threads share a part's products. After `seconds` all finish.
        """
        results: list[Any] = [None] * sum(map(len, parts))
        workers = min(self.num_threads, len(parts))

        with stoppable() as flag, finished_after(seconds, flag):

            def work(number: int) -> None:
                shared = {"num_threads": len(range(number, self.num_threads, workers)), "stop": flag.buffer_info()[0]}
                for rows in parts[number::workers]:
                    for row, result in zip(rows, run(rows, shared), strict=True):
                        results[row] = result

            run_all(work, workers, flag)
        return results

    def _force(
        self,
        sources: Sequence[Ids],
        targets: Sequence[Ids],
        readings: Readings,
        special: dict[str, int],
        shared: dict[str, Any],
    ) -> list[Scored]:
        """Score these targets in one call."""
        lengths, tokens = array("q", map(len, targets)), self._token_array("q", "the targets", targets)
        log_probs = _empty("f", len(tokens))
        arrays: dict[str, array[Any] | None] = {
            "limits": lengths,
            "targets": tokens,
            "target_lengths": lengths,
            "target_log_probs": log_probs,
        }
        numbers = {**_NO_SEARCH, **special, "longest": max(lengths), **shared}
        received = self._call(sources, arrays, numbers, readings, len(tokens))
        results, first, width = [], 0, max(map(len, sources))
        for source, length in enumerate(lengths):
            end = first + length
            results.append(
                Scored(
                    list(log_probs[first:end]),
                    None if received is None else _rows(received, first, length, width, len(sources[source])),
                )
            )
            first = end
        return results

    def _search(
        self,
        sources: Sequence[Ids],
        rows: Sequence[int],
        options: SearchOptions,
        special: dict[str, int],
        first_logits: bool,
        shared: dict[str, Any],
    ) -> list[SearchResult]:
        """Search for these sources in one call; `rows` are their indices in the options."""
        num_sources, returned = len(sources), options.num_return_sequences
        limits = array("q", [options.limits[row] for row in rows])
        longest = max(limits)
        tokens, lengths = _empty("q", num_sources * returned * longest), _empty("q", num_sources * returned)
        scores, log_probs = _empty("f", num_sources * returned), _empty("f", len(tokens))
        logits = _empty("f", num_sources * self.vocabulary) if first_logits else None
        arrays: dict[str, array[Any] | None] = {
            "limits": limits,
            "forced": array(
                "i", [options.forces_end[row] for row in rows] if options.forces_end else [0] * num_sources
            ),
            "tokens": tokens,
            "found_lengths": lengths,
            "scores": scores,
            "log_probs": log_probs,
            "first_logits": logits,
        }
        if options.prefixes:
            arrays["prefixes"] = self._token_array("q", "`prefixes`", [options.prefixes[row] for row in rows])
            arrays["prefix_lengths"] = array("q", [len(options.prefixes[row]) for row in rows])
        candidates: Sequence[int] = ()
        if options.shortlist is not None:
            further = [special["end_token"]] if special["end_token"] >= 0 else []
            prefixes = [options.prefixes[row] if options.prefixes else () for row in rows]
            pairs = zip(sources, prefixes, strict=True)
            lists = [options.shortlist.of_source(source, *further, *prefix) for source, prefix in pairs]
            candidates = sorted(set(chain.from_iterable(lists)))
            index_of = {token: index for index, token in enumerate(candidates)}
            arrays["candidates"] = self._token_array("i", "the shortlist", [candidates])
            arrays["list_lengths"] = array("q", map(len, lists))
            arrays["list_places"] = array("i", [index_of[token] for tokens in lists for token in tokens])
        numbers: dict[str, Any] = {
            **special,
            "unscored": int(not options.scores),
            "longest": longest,
            **shared,
            "num_candidates": len(candidates),
        }
        for option in _OPTIONS:
            name, value = option.name, getattr(options, option.name)
            if option.kind == "tokens":
                arrays[name], numbers[f"num_{name}"] = self._token_array("i", f"`{name}`", [value]), len(value)
            else:
                numbers[name] = option.choices[value] if option.choices else value
        received = self._call(sources, arrays, numbers, options.readings, len(tokens))
        results, width, size = [], max(map(len, sources)), self.vocabulary
        for source in range(num_sources):
            source_logits = None if logits is None else logits[source * size : (source + 1) * size]
            attended: list[list[list[float]]] = []
            result = SearchResult([], [], [], None if received is None else attended, source_logits)
            for row in range(source * returned, (source + 1) * returned):
                first, end = row * longest, row * longest + lengths[row]
                if first == end:
                    continue
                result.tokens.append(tokens[first:end].tolist())
                result.scores.append(scores[row])
                result.log_probs.append(log_probs[first:end].tolist())
                if received is not None:
                    attended.append(_rows(received, first, lengths[row], width, len(sources[source])))
            results.append(result)
        return results

    def _call(
        self,
        sources: Sequence[Ids],
        arrays: "dict[str, array[Any] | None]",
        numbers: dict[str, Any],
        readings: Readings | None,
        num_received: int,
    ) -> "array[float] | None":
        """Translate or score; return the attention of `num_received` tokens.

        The arrays and numbers are fields of the request; the engine writes its results into the arrays.
        """
        lengths, words = array("q", map(len, sources)), self._token_array("q", "the sources", sources)
        width, layer, head = max(lengths), -1, -1
        received = None
        if readings is not None and readings.head is not None:
            layer, head = readings.head
            received = _empty("f", num_received * width)
        arrays |= {"words": words, "lengths": lengths, "received": received}
        request = Request(num_sources=len(sources), longest_source=width, layer=layer, head=head, **numbers)
        for name, values in arrays.items():
            if values is not None:
                setattr(request, name, values.buffer_info()[0])
        caller = MAIN_THREAD if current_thread() is main_thread() else ANY_THREAD
        self._check(self._library.engine_translate(self._model, ctypes.byref(request), ctypes.byref(caller)))
        return received

    def _token_array(self, kind: str, name: str, lists: Sequence[Ids]) -> "array[int]":
        """Return the tokens of all lists; the engine refuses those outside its vocabulary."""
        try:
            return array(kind, chain.from_iterable(lists))
        except OverflowError:
            outlier = max(chain.from_iterable(lists), key=abs)
            raise ValueError(f"{name}: token {outlier} is outside of the vocabulary of {self.vocabulary}") from None

    def _check(self, number: int) -> int:
        """Return the engine's result, or raise the error that a negative one stands for."""
        if number == -1:
            raise MemoryError("no memory for the native engine")
        if number == -3:
            raise StoppedError
        if number < 0:
            raise ValueError(f"the native engine refused: {self._library.engine_error().decode()}")
        return number


def _with_largest(values: Tensor | Codes) -> tuple[Tensor, Tensor | None]:
    return values if isinstance(values, Codes) else (values, None)


def _packed(operations: list[Operation]) -> bytes:
    return b"".join(operation.packed(MOST_SLOTS) for operation in operations)


def _empty(kind: str, count: int) -> "array[Any]":
    return array(kind, bytes(count * struct.calcsize(kind)))


def _row(values: "array[Any]", row: int, width: int, count: int) -> list[Any]:
    return values[row * width : row * width + count].tolist()


def _rows(values: "array[Any]", first: int, rows: int, width: int, count: int) -> list[list[Any]]:
    return [_row(values, row, width, count) for row in range(first, first + rows)]
