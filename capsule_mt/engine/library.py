"""The engine in C, through ctypes: this is the only module that calls it."""

import ctypes
import functools
import os
import sys
from array import array
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from threading import current_thread, main_thread
from typing import Any

from capsule_mt.engine.program import DTYPES, Codes, Tensor
from capsule_mt.engine.request import REQUEST_FIELDS, JointCandidates, empty
from capsule_mt.engine.search import Ids
from capsule_mt.engine.stopping import StoppedError
from capsule_mt.options.table import request_layout

VERSION = 25 * 65536 + request_layout()  # as ENGINE_VERSION of native/engine.h
TIER = "HF_CAPSULE_MT_TIER"  # environment variable: the tier of kernels to run, such as "avx2" or "portable"
SUFFIX = {"win32": "dll", "darwin": "dylib"}.get(sys.platform, "so")
LIBRARY = os.path.join(os.path.dirname(__file__), "native", f"engine.{SUFFIX}")
TYPES = {"F32": 0, "F16": 1, "BF16": 2, "I8": 3}
BY_ROW = "I8 by row"  # CODES_BY_ROW of native/engine.h
WIDENED_NUMBERS = 1 << 22  # that `rounded` holds at a time
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


ANY_THREAD = Caller("PyEval_SaveThread", "PyEval_RestoreThread")
MAIN_THREAD = Caller("PyEval_SaveThread", "PyEval_RestoreThread", "PyErr_CheckSignals")


Observer = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.POINTER(ctypes.c_float), ctypes.c_int64)  # `observer_t`


class NativeUnavailableError(RuntimeError):
    """The engine is missing, does not load or is of another version, or the requested tier does not run here."""


@functools.cache
def load_library() -> ctypes.CDLL:
    """Load the engine, or raise an error that says why that fails."""
    if not os.path.exists(LIBRARY):
        raise NativeUnavailableError(
            f"the native engine was not built ({os.path.basename(LIBRARY)} is missing): build it with "
            "`python -m capsule_mt.engine.build`"
        )
    try:
        library = ctypes.CDLL(LIBRARY)
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
        "engine_expand": (small, [pointer, number, pointer, number, pointer, small, pointer, number, number]),
        "engine_compress": (number, [pointer, number, number, pointer, number, pointer, number]),
        "engine_read_pieces": (number, [pointer, number, *[pointer] * 5]),
        "engine_index_pieces": (small, [pointer]),
        "engine_find_piece": (number, [pointer, text, number]),
        "engine_segment": (number, [pointer, text, number, pointer, pointer]),
        "engine_count_invalid": (number, [pointer, small, number]),
        "engine_count_negative": (number, [pointer, number]),
        "engine_checksum": (ctypes.c_uint64, [pointer, number]),
        "engine_new": (pointer, [text, number, number]),
        "engine_free": (None, [pointer]),
        "engine_add_linear": (small, [pointer, number, number, small]),
        "engine_pack": (small, [pointer, small, number, number, pointer, small, pointer, pointer, small]),
        "engine_add_vector": (small, [pointer, pointer, number, small]),
        "engine_add_table": (small, [pointer, pointer, number, number, small, pointer]),
        "engine_add_packed_table": (small, [pointer, small, pointer]),
        "engine_add_positions": (small, [pointer, number, number, number, number]),
        "engine_add_buffer": (small, [pointer, small, number]),
        "engine_set_programs": (small, [pointer, text, number, text, number, small]),
        "engine_observe": (None, [pointer, Observer]),
        "engine_translate": (small, [pointer, pointer, pointer]),
        "engine_longest_list": (number, [pointer, number]),
        "engine_narrow_tokens": (number, [pointer, number, number, pointer]),
        "engine_list_candidates": (number, [pointer, pointer, pointer, pointer, pointer, number]),
    }
    # it releases Python's lock itself, and raises what a signal's handler raises
    vars(library)["engine_translate"] = getattr(ctypes.PyDLL(LIBRARY), "engine_translate", None)
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
        from capsule_mt.engine.build import TIERS  # late: this is an error

        available = ", ".join(name for name in TIERS if load_library().engine_tier(name.encode()))
        raise NativeUnavailableError(
            f"{TIER} must be a tier that this processor runs ({available}), or unset, got {requested!r}"
        )
    return tier


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

    Rounding these again gives the same codes and largest magnitudes, bit for bit, of rows with a code of 127 or -127
    and a magnitude of at least 1e-30.
    """
    if isinstance(tensor, Codes):
        codes, magnitudes = tensor
        wide = Tensor(bytearray(4 * codes.size), "F32", codes.shape)
        addresses = address_of(codes), address_of(magnitudes), address_of(wide)
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
    rows, width = tensor.shape
    codes = Tensor(bytearray(rows * width), "I8", (rows, width))
    magnitudes = Tensor(bytearray(4 * rows), "F32", (rows,))
    content, row_bytes = memoryview(tensor.buffer).cast("B"), width * DTYPES[tensor.dtype]
    block = max(1, WIDENED_NUMBERS // width)
    for first in range(0, rows, block):  # so that few numbers at a time take four bytes
        count = min(block, rows - first)
        buffer = content[first * row_bytes : (first + count) * row_bytes]
        numbers = widened(Tensor(buffer, tensor.dtype, (count, width)))
        targets = address_of(codes) + first * width, address_of(magnitudes) + 4 * first
        load_library().engine_round_codes(address_of(numbers), *targets, count, width)
    return Codes(codes, magnitudes)


def count_invalid(tensor: Tensor) -> int:
    """Return how many numbers of a tensor are infinite or NaN; of codes, how many are -128."""
    return int(load_library().engine_count_invalid(address_of(tensor), TYPES[tensor.dtype], tensor.size))


def count_negative(tensor: Tensor) -> int:
    """Return how many numbers of a tensor of floats are below zero."""
    floats = widened(tensor)
    return int(load_library().engine_count_negative(address_of(floats), floats.size))


def checksum(content: "bytes | bytearray | memoryview | array[Any]") -> int:
    """Return a checksum of bytes: faster than SHA-256, but without protection against forgery."""
    size = memoryview(content).nbytes
    return int(load_library().engine_checksum(address_of(Tensor(content, "I8", (size,))), size))


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


def compressed(codes: Tensor, frequencies: bytes) -> bytes:
    """Return a matrix of codes as a stream of native/entropy.c.

    frequencies: of the codes -n to n, in 16 bits each, little-endian.
    """
    max_size = 2 * codes.size + 64  # a code takes 14 bits at most
    stream = bytearray(max_size)
    addresses = address_of(codes), _address_of_bytes(frequencies), _address_of_bytes(stream)
    max_code = len(frequencies) // 4
    size = load_library().engine_compress(addresses[0], *codes.shape, addresses[1], max_code, addresses[2], max_size)
    return bytes(stream[: _checked(size)])


def expand(
    stream: "bytes | memoryview", frequencies: "bytes | memoryview", codes: Tensor, rows_of: "tuple[bytes, int] | None"
) -> None:
    """Decode a stream, as `compressed` wrote it, into rows of a matrix; raise a `ValueError` if it is damaged.

    rows_of: the classes of all rows, in four bits each, and the class of the stream; `None` for all rows.
    """
    classes, class_index = rows_of or (b"", 0)
    addresses = [_address_of_bytes(content) for content in (stream, frequencies, classes)]
    addresses[2] = addresses[2] if rows_of else 0
    max_code, shape = len(frequencies) // 4, codes.shape
    _checked(
        load_library().engine_expand(
            addresses[0], len(stream), addresses[1], max_code, addresses[2], class_index, address_of(codes), *shape
        )
    )


MIN_PIECE_BYTES = 9  # its tag and size, those of its text, and the tag and the number of its score


def read_pieces(content: bytes) -> "tuple[bytearray, array[int], array[float], bytearray, int]":
    """Read the leading pieces of a SentencePiece model: those of the usual layout, and whose texts have no zero.

    Return their texts, each with a zero at its end; where each begins and the last one ends; their scores and kinds;
    and the offset of the first other field.
    """
    max_pieces = len(content) // MIN_PIECE_BYTES
    starts = array("i", bytes(4 * max_pieces + 4))
    texts, scores, kinds = (bytearray(size) for size in (len(content), 4 * max_pieces, max_pieces))
    count = array("q", [0])
    addresses = [_address_of_bytes(values) for values in (content, texts, scores, kinds)]
    offset = load_library().engine_read_pieces(
        addresses[0], len(content), addresses[1], starts.buffer_info()[0], *addresses[2:], count.buffer_info()[0]
    )
    numbers = array("f", scores[: 4 * count[0]])
    if sys.byteorder == "big":
        numbers.byteswap()
    del starts[count[0] + 1 :]
    return texts[: starts[-1]], starts, numbers, kinds[: count[0]], offset


class PieceTable(ctypes.Structure):
    """A `pieces_t` of native/engine.h, which finds pieces by their texts. It keeps its arrays.

    texts, starts, kinds: as `read_pieces` returns them.
    scores: of the pieces, in single precision.
    wide_scores: the scores to use instead, in double precision, if the user's symbols have scores of their own.
    unknown_penalty: a character without a piece scores this much less than any normal piece.
    """

    _fields_ = [
        ("count", ctypes.c_int64),
        *((name, ctypes.c_void_p) for name in ("texts", "starts", "kinds", "scores", "wide_scores")),
        ("unknown_penalty", ctypes.c_double),
        ("num_slots", ctypes.c_int64),
        ("slots", ctypes.c_void_p),
        ("longest", ctypes.c_int64),
        ("has_inner_spaces", ctypes.c_int64),
        ("min_score", ctypes.c_double),
        ("num_distinct", ctypes.c_int64),
    ]

    def __init__(
        self,
        texts: bytearray,
        starts: "array[int]",
        kinds: bytearray,
        scores: "array[float]",
        wide_scores: "array[float] | None",
        unknown_penalty: float,
    ) -> None:
        num_slots = 1 << (2 * len(kinds)).bit_length()
        slots = array("i", bytes(4 * num_slots))
        self._arrays = texts, starts, kinds, scores, wide_scores, slots
        addresses = [
            None if values is None else _address_of_bytes(memoryview(values).cast("B")) for values in self._arrays
        ]
        super().__init__(len(kinds), *addresses[:5], unknown_penalty, num_slots, addresses[5])
        self._library = load_library()
        self._address = ctypes.addressof(self)
        _checked(self._library.engine_index_pieces(self._address))

    def find(self, text: str) -> int | None:
        """Return the index of the piece with this text; `None` if there is none."""
        content = text.encode("utf-8", "surrogatepass")
        index = int(self._library.engine_find_piece(self._address, content, len(content)))
        return None if index < 0 else index

    def segment(self, text: str) -> "tuple[array[int], array[int]]":
        """Cut a text into the pieces with the largest sum of scores.

        Return the length of each in characters, and its index, -1 if it is unknown.
        """
        content = text.encode("utf-8", "surrogatepass")
        lengths, indices = (array("i", bytes(4 * len(text))) for _ in range(2))
        addresses = lengths.buffer_info()[0], indices.buffer_info()[0]
        count = _checked(self._library.engine_segment(self._address, content, len(content), *addresses))
        return lengths[:count], indices[:count]


def _address_of_bytes(content: "bytes | bytearray | memoryview") -> int:
    return address_of(Tensor(content, "I8", (len(content),)))


class NativeModel:
    """A `model_t` of native/engine.h. Its methods call the functions there, and raise an error if these refuse."""

    def __init__(self, tier: str, vocabulary: int, num_caches: int) -> None:
        self._library = load_library()
        self._model = self._library.engine_new(tier.encode(), vocabulary, num_caches)
        if not self._model:
            raise MemoryError("no memory for the native engine")

    def __del__(self) -> None:
        if getattr(self, "_model", None):
            self._library.engine_free(self._model)

    def add_linear(self, outputs: int, inputs: int, dtype: str) -> int:
        """Add a linear map that is stored as "F32", "F16", "I8" or `BY_ROW`; return its number."""
        kind = len(TYPES) if dtype == BY_ROW else TYPES[dtype]
        return _checked(self._library.engine_add_linear(self._model, outputs, inputs, kind))

    def pack(
        self, number: int, first_row: int, shape: tuple[int, int], weight: Tensor | Codes, bias: Tensor | None
    ) -> None:
        """Pack the rows of a linear map from `first_row` on."""
        weight, magnitudes = _with_magnitudes(weight)
        if tuple(weight.shape) != shape or (bias is not None and bias.size != shape[0]):
            shapes = list(weight.shape), None if bias is None else list(bias.shape)
            raise ValueError(f"a linear map {list(shape)} was read with a weight {shapes[0]} and a bias {shapes[1]}")
        addresses = [None if tensor is None else address_of(tensor) for tensor in (weight, magnitudes, bias)]
        types = TYPES[weight.dtype], TYPES["F32" if bias is None else bias.dtype]
        _checked(
            self._library.engine_pack(
                self._model, number, first_row, shape[0], addresses[0], types[0], addresses[1], addresses[2], types[1]
            )
        )

    def add_vector(self, values: Tensor) -> None:
        address, kind = address_of(values), TYPES[values.dtype]
        _checked(self._library.engine_add_vector(self._model, address, values.size, kind))

    def add_table(self, values: Tensor | Codes, rows: int, width: int) -> None:
        """Add the rows that an EMBED operation looks up."""
        values, magnitudes = _with_magnitudes(values)
        magnitudes_address = None if magnitudes is None else address_of(magnitudes)
        kind = TYPES[values.dtype]
        _checked(
            self._library.engine_add_table(self._model, address_of(values), rows, width, kind, magnitudes_address)
        )

    def add_packed_table(self, number: int, magnitudes: Tensor | None) -> None:
        """Add the rows of a linear map as a table; `magnitudes` as for the codes that were packed."""
        address = None if magnitudes is None else address_of(magnitudes)
        _checked(self._library.engine_add_packed_table(self._model, number, address))

    def add_positions(self, count: int, width: int, span: int, start: int) -> None:
        _checked(self._library.engine_add_positions(self._model, count, width, span, start))

    def add_buffer(self, space: int, width: int) -> None:
        _checked(self._library.engine_add_buffer(self._model, space, width))

    def set_programs(self, encoder: bytes, num_encoder: int, decoder: bytes, num_decoder: int, logits: int) -> None:
        _checked(self._library.engine_set_programs(self._model, encoder, num_encoder, decoder, num_decoder, logits))

    def observe(self, observer: Callable[[int, Any, int], None] | None) -> None:
        """Call `observer` with the inputs of each LINEAR operation: its map, a pointer to floats, their rows."""
        self._observer = Observer(0 if observer is None else observer)  # kept alive: C has its address
        self._library.engine_observe(self._model, self._observer)

    def translate(self, numbers: Mapping[str, int | float], arrays: "Mapping[str, array[Any]]") -> None:
        """Search, score translations, or encode. The fields are those of `request_t`; arrays receive the results."""
        addresses = {name: values.buffer_info()[0] for name, values in arrays.items()}
        request = Request(**numbers, **addresses)
        caller = MAIN_THREAD if current_thread() is main_thread() else ANY_THREAD
        _checked(self._library.engine_translate(self._model, ctypes.byref(request), ctypes.byref(caller)))


def _checked(number: int) -> int:
    """Return the engine's result, or raise the error that a negative one stands for."""
    if number == -1:
        raise MemoryError("no memory for the native engine")
    if number == -3:
        raise StoppedError
    if number < 0:
        raise ValueError(f"the native engine refused: {load_library().engine_error().decode()}")
    return number


MAX_NARROW_VOCABULARY = 1 << 16


def narrowed(content: "bytes | memoryview | array[int]", vocabulary: int) -> "array[int]":
    """Return tokens in as many bytes as their vocabulary needs, "H" or "i"; refuse those outside of it.

    content: the tokens in int32.
    """
    count = memoryview(content).nbytes // 4
    narrow = array("H", [0]) * count if vocabulary <= MAX_NARROW_VOCABULARY else None
    target = None if narrow is None else narrow.buffer_info()[0]
    address = address_of(Tensor(content, "I8", (4 * count,)))
    num_outside = load_library().engine_narrow_tokens(address, count, vocabulary, target)
    if num_outside:
        raise ValueError(f"{num_outside} of {count} tokens are outside the vocabulary of {vocabulary}")
    return array("i", bytes(content)) if narrow is None else narrow


def longest_list(starts: "array[int]") -> int:
    """Return the length of the longest list, from the offsets in int32 where each begins, and where the last ends."""
    length = int(load_library().engine_longest_list(starts.buffer_info()[0], len(starts) - 1))
    if length < 0:
        raise ValueError("offsets that do not ascend")
    return length


class _Sources(ctypes.Structure):
    """`sources_t` of native/engine.h."""

    _fields_ = [
        ("count", ctypes.c_int64),
        *((name, ctypes.c_void_p) for name in ("words", "lengths", "extra_tokens", "extra_lengths")),
    ]


class Lexicon(ctypes.Structure):
    """A `lexicon_t` of native/engine.h. It keeps its arrays: offsets "i", tokens "H" or "i", frequent tokens "i".

    max_translations: the most tokens of a source token.
    """

    _fields_ = [
        ("source_vocabulary", ctypes.c_int64),
        ("vocabulary", ctypes.c_int64),
        *((name, ctypes.c_void_p) for name in ("starts", "small_tokens", "tokens")),
        ("num_frequent", ctypes.c_int64),
        ("frequent", ctypes.c_void_p),
        ("multiple", ctypes.c_int64),
    ]

    def __init__(
        self,
        starts: "array[int]",
        tokens: "array[int]",
        frequent: "array[int]",
        vocabulary: int,
        multiple: int,
        max_translations: int,
    ) -> None:
        self._arrays = starts, tokens, frequent
        addresses = [values.buffer_info()[0] for values in self._arrays]
        halves, wide = (addresses[1], None) if tokens.typecode == "H" else (None, addresses[1])
        counts = len(starts) - 1, vocabulary
        super().__init__(*counts, addresses[0], halves, wide, len(frequent), addresses[2], multiple)
        self._max_translations = max_translations

    def candidates_of(self, sources: Sequence[Ids], extra_tokens: Sequence[Ids]) -> JointCandidates:
        """Return the candidates of all sources, with the extra tokens of each."""
        words, lengths = array("q", chain.from_iterable(sources)), array("q", map(len, sources))
        extras, extra_lengths = array("q", chain.from_iterable(extra_tokens)), array("q", map(len, extra_tokens))
        max_indices = self._max_translations * len(words) + len(extras)
        max_indices += (self.num_frequent + self.multiple) * len(sources)
        candidates, list_lengths = empty("i", min(self.vocabulary, max_indices)), empty("q", len(sources))
        indices = empty("i", max_indices)
        inputs, results = (words, lengths, extras, extra_lengths), (candidates, list_lengths, indices)
        request = _Sources(len(sources), *(values.buffer_info()[0] for values in inputs))
        addresses = [values.buffer_info()[0] for values in results]
        function = load_library().engine_list_candidates
        count = _checked(function(ctypes.byref(self), ctypes.byref(request), *addresses, max_indices))
        del candidates[count:]
        return JointCandidates(candidates, list_lengths, indices)


def _with_magnitudes(values: Tensor | Codes) -> tuple[Tensor, Tensor | None]:
    return values if isinstance(values, Codes) else (values, None)
