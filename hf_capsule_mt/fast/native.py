"""The native engine: programs run in C, through ctypes."""

import ctypes
import functools
import os
import platform
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch

from hf_capsule_mt.fast.programs import Operation, Program
from hf_capsule_mt.fast.requests import Answer, Reading, Request

VERSION = 6
UNKNOWN_OPERATION = -2  # of `engine_set_programs`
TIER = "HF_CAPSULE_MT_TIER"  # in the environment: the tier of kernels to run, such as "avx2" or "portable"
FOLDER = Path(__file__).parent / "native"
SUFFIX = {"Windows": "dll", "Darwin": "dylib"}.get(platform.system(), "so")
LIBRARY = FOLDER / f"engine.{SUFFIX}"


class _Operation(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_int32) for name in ("kind", "out", "a", "b", "c", "d")),
        ("w", ctypes.c_int32 * 3),
        ("n", ctypes.c_int32 * 6),
        ("f", ctypes.c_float * 2),
    ]


class _Request(ctypes.Structure):
    _fields_ = [
        ("num_sources", ctypes.c_int64),
        *((name, ctypes.c_void_p) for name in ("words", "lengths", "limits", "forced", "suppressed")),
        *(
            (name, ctypes.c_int64)
            for name in (
                *("num_suppressed", "num_beams", "num_returned", "least_tokens", "no_repeat_ngram"),
                *("start_token", "end_token", "pad_token"),
            )
        ),
        ("length_penalty", ctypes.c_float),
        ("early_stopping", ctypes.c_int32),
        ("longest", ctypes.c_int64),
        *((name, ctypes.c_void_p) for name in ("tokens", "scores", "first_logits")),
        ("longest_source", ctypes.c_int64),
        *((name, ctypes.c_void_p) for name in ("coverage", "log_probs", "candidates")),
        ("num_candidates", ctypes.c_int64),
        *((name, ctypes.c_void_p) for name in ("list_lengths", "list_places")),
        *((name, ctypes.c_int64) for name in ("layer", "head", "num_threads")),
    ]


class NativeUnavailableError(RuntimeError):
    """The engine was not built for this machine, or its kernels do not run on this processor."""


@functools.cache
def load_library() -> ctypes.CDLL:
    """Load the engine, or say why it is not there."""
    if not LIBRARY.exists():
        raise NativeUnavailableError(
            f'the native engine was not built ({LIBRARY.name} is missing); `backend="torch"` needs none'
        )
    try:
        library = ctypes.CDLL(str(LIBRARY))
    except OSError as error:
        raise NativeUnavailableError(f"the native engine cannot be loaded: {error}") from None
    pointer, number = ctypes.c_void_p, ctypes.c_int64
    signatures: dict[str, tuple[object, list[object]]] = {
        "engine_version": (ctypes.c_int, []),
        "engine_tier": (ctypes.c_char_p, [ctypes.c_char_p]),
        "engine_new": (pointer, [ctypes.c_char_p, number, number]),
        "engine_free": (None, [pointer]),
        "engine_add_linear": (ctypes.c_int, [pointer, number, number, pointer, pointer, ctypes.c_int]),
        "engine_add_vector": (ctypes.c_int, [pointer, pointer, number]),
        "engine_add_buffer": (ctypes.c_int, [pointer, ctypes.c_int, number]),
        "engine_set_programs": (ctypes.c_int, [pointer, pointer, number, pointer, number, ctypes.c_int]),
        "engine_translate": (ctypes.c_int, [pointer, pointer]),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    if library.engine_version() != VERSION:
        raise NativeUnavailableError(
            f"the native engine has version {library.engine_version()}, not {VERSION}: build it again with "
            "`python -m hf_capsule_mt.fast.build`"
        )
    return library


def native_tier(name: str | None = None) -> str:
    """Return the tier of kernels that runs: `name`, what HF_CAPSULE_MT_TIER says, or the best of this processor."""
    wanted = name or os.environ.get(TIER, "")
    tier = str(load_library().engine_tier(wanted.encode()).decode())
    if not tier:
        raise NativeUnavailableError(f"this processor does not run the kernels {wanted!r}: leave {TIER} unset")
    return tier


class NativeModel:
    """A program with its weights packed for the kernels. Threads may share it."""

    name = "native"

    def __init__(self, program: Program, *, int8: bool, tier: str | None = None) -> None:
        self._library = load_library()
        self.tier = native_tier(tier)
        self.vocabulary, self.has_coverage = program.vocabulary, program.has_coverage
        self._model = self._library.engine_new(self.tier.encode(), program.vocabulary, program.num_caches)
        if not self._model:
            raise MemoryError("no memory for the native engine")
        for linear in program.linears:
            outputs, inputs = linear.weight.shape
            bias = None if linear.bias is None else linear.bias.data_ptr()
            self._check(
                self._library.engine_add_linear(
                    self._model, outputs, inputs, linear.weight.data_ptr(), bias, int(int8)
                )
            )
        for vector in program.vectors:
            self._check(self._library.engine_add_vector(self._model, vector.data_ptr(), vector.numel()))
        for space, width in program.buffers:
            self._check(self._library.engine_add_buffer(self._model, int(space), width))
        done = self._library.engine_set_programs(
            self._model,
            _operations(program.encoder),
            len(program.encoder),
            _operations(program.decoder),
            len(program.decoder),
            program.logits,
        )
        if done == UNKNOWN_OPERATION:
            raise NativeUnavailableError(
                "the native engine does not know an operation of this model: build it again with "
                "`python -m hf_capsule_mt.fast.build`"
            )
        self._check(done)

    def __del__(self) -> None:
        if getattr(self, "_model", None):
            self._library.engine_free(self._model)

    def translate(self, request: Request, *, return_first_logits: bool = False) -> Answer:
        """Translate on as many threads as PyTorch uses.

        Each takes some of the sources; where these are fewer, several threads share the products of one.
        """
        answer = self._empty(request, return_first_logits)
        threads = torch.get_num_threads()
        parts = min(threads, len(request))
        if parts == 1:
            self._run(request, answer, threads)
            return answer
        by_length = sorted(range(len(request)), key=lambda row: -len(request.sources[row]))

        def run(number: int) -> None:
            rows = by_length[number::parts]
            part = request.part(rows)
            found = self._empty(part, return_first_logits)
            self._run(part, found, len(range(number, threads, parts)))
            for whole, some in zip(_tensors(answer), _tensors(found), strict=True):
                whole[rows, ..., : some.shape[-1]] = some

        with ThreadPoolExecutor(parts) as pool:
            list(pool.map(run, range(parts)))
        return answer

    def _empty(self, request: Request, return_first_logits: bool) -> Answer:
        """Memory for an answer; what a part of the sources does not fill is padding."""
        number, returned = len(request), request.num_returned
        values = torch.zeros(number, returned, 4, request.longest_source) if request.coverage else None
        return Answer(
            torch.full((number, returned, request.longest), request.pad_token),
            torch.empty(number, returned),
            torch.empty(number, self.vocabulary) if return_first_logits else None,
            None if values is None else Reading(values, torch.empty(number, returned)),
        )

    def _run(self, request: Request, answer: Answer, threads: int) -> None:
        """Translate on this thread and `threads` - 1 others, into an empty answer."""
        words = torch.tensor([token for source in request.sources for token in source], dtype=torch.long)
        lengths = torch.tensor([len(source) for source in request.sources])
        limits = torch.tensor(request.limits)
        forced = torch.tensor(request.forced, dtype=torch.int32)
        suppressed = torch.tensor(list(request.suppressed), dtype=torch.int32)
        candidates = list_lengths = places = torch.empty(0)
        if request.shortlists is not None:
            candidates = request.candidates
            list_lengths = torch.tensor([len(tokens) for tokens in request.shortlists])
            places = torch.searchsorted(candidates, torch.cat(list(request.shortlists)), out_int32=True)
        packed = _Request(
            len(request),
            words.data_ptr(),
            lengths.data_ptr(),
            limits.data_ptr(),
            forced.data_ptr(),
            suppressed.data_ptr(),
            len(suppressed),
            request.num_beams,
            request.num_returned,
            request.least_tokens,
            request.no_repeat_ngram,
            request.start_token,
            request.end_token,
            request.pad_token,
            request.length_penalty,
            request.early_stopping,
            request.longest,
            answer.tokens.data_ptr(),
            answer.scores.data_ptr() if request.num_beams > 1 or request.scored else None,
            None if answer.first_logits is None else answer.first_logits.data_ptr(),
            request.longest_source,
            None if answer.reading is None else answer.reading.values.data_ptr(),
            None if answer.reading is None else answer.reading.log_probs.data_ptr(),
            candidates.data_ptr() or None,
            len(candidates),
            list_lengths.data_ptr() or None,
            places.data_ptr() or None,
            *(request.head or (-1, -1)),
            threads,
        )
        if self._library.engine_translate(self._model, ctypes.byref(packed)):
            raise MemoryError(f"no memory to translate {len(request)} sources with {request.num_beams} beams")

    @staticmethod
    def _check(number: int) -> None:
        if number < 0:
            raise MemoryError("no memory for the native engine")


def _tensors(answer: Answer) -> list[torch.Tensor]:
    found = [answer.tokens, answer.scores, answer.first_logits, *(answer.reading or ())]
    return [tensor for tensor in found if tensor is not None]


def _operations(operations: list[Operation]) -> ctypes.Array[_Operation]:
    packed = (_Operation * max(len(operations), 1))()
    for to, operation in zip(packed, operations, strict=False):
        to.kind = int(operation.kind)
        to.out, to.a, to.b, to.c, to.d = operation.out, operation.a, operation.b, operation.c, operation.d
        to.w[:] = [*operation.w, *[-1] * (3 - len(operation.w))]
        to.n[:] = [*operation.n, *[0] * (6 - len(operation.n))]
        to.f[:] = [*operation.f, *[0.0] * (2 - len(operation.f))]
    return packed
