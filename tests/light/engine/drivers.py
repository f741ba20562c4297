"""Programs in C that run the engine outside of Python: natively, under sanitizers, or for another processor."""

import ctypes
import struct
import subprocess
import sys
import threading
from array import array
from pathlib import Path
from typing import Any

from capsule_mt.engine.build import SOURCES, compile_objects, this_platform, write_options
from capsule_mt.engine.library import LIBRARY, VERSION, Request, load_library

FOLDER = Path(__file__).parent / "c"
SIZES = (4, 2, 2, 1)  # bytes of a number of each type
ZIG = [sys.executable, "-m", "ziglang", "cc"]


def build_driver(source: str, folder: Path, command: list[str], *options: str) -> Path:
    """Compile a program of `tests/light/engine/c` with what `options` add to the command; return its path."""
    program = folder / Path(source).stem
    write_options(folder)
    flags = [
        "-std=gnu11",
        "-O1",
        "-g",
        "-I",
        str(SOURCES),
        "-I",
        str(folder),
        str(FOLDER / source),
        "-o",
        str(program),
    ]
    process = subprocess.run([*command, *flags, *options, "-lm"], capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr
    return program


def build_with_the_library(source: str, folder: Path) -> Path:
    """Compile a program that runs the library of this installation."""
    return build_driver(source, folder, ZIG, LIBRARY, f"-Wl,-rpath,{Path(LIBRARY).parent}")


def build_whole(source: str, folder: Path, target: str, command: list[str], sanitize: str = "") -> Path:
    """Compile a program with all of the engine in it."""
    objects = compile_objects(target, command, folder, sanitize)
    return build_driver(source, folder, command, *objects, *([f"-fsanitize={sanitize}"] if sanitize else []))


def build_failing(source: str, folder: Path) -> Path:
    """Compile a program with all of the engine in it, whose memory fails: see failing.c."""
    sanitize, command = "address,undefined", ["gcc", "-Dmalloc=plain_malloc"]
    objects = compile_objects(this_platform(), ["gcc"], folder, sanitize)
    wrapped = [f"-Wl,--wrap={name}" for name in ("malloc", "calloc", "realloc", "posix_memalign", "free")]
    return build_driver(
        source, folder, command, str(FOLDER / "failing.c"), *objects, *wrapped, f"-fsanitize={sanitize}"
    )


class EmulatedLibrary:
    """What `load_library` returns, for an engine that a program runs: `command` starts tests/light/engine/c/replay.c.

    A model is the calls that made it, which every translation carries out anew.
    """

    def __init__(self, command: list[str], folder: Path) -> None:
        self.command, self.folder = command, folder
        # what writing a program or a shortlist needs stays here
        library = load_library()
        self.engine_product, self.engine_narrow_tokens = library.engine_product, library.engine_narrow_tokens
        self.engine_list_candidates = library.engine_list_candidates
        self.engine_longest_list = library.engine_longest_list
        self.models: list[bytes] = []
        self.inputs: list[int] = []  # of each linear map of the last model
        self.outputs: list[int] = []
        self.widths: list[int] = []  # of its buffers
        self.encoded_width = 0

    def engine_version(self) -> int:
        return VERSION

    def engine_tier(self, name: bytes) -> bytes:
        return subprocess.run([*self.command, "--tier", name.decode()], capture_output=True, check=True).stdout

    def engine_new(self, tier: bytes, vocabulary: int, num_caches: int) -> int:
        self.inputs, self.outputs, self.widths = [], [], []
        self.models.append(_call("m", vocabulary, num_caches, 0, len(tier)) + tier)
        return len(self.models)

    def engine_free(self, model: int) -> None:
        self.models[model - 1] = b""

    def engine_error(self) -> bytes:
        return b"see what the program printed"

    def engine_widen(self, values: int, kind: int, target: int, count: int) -> None:
        halves = array("H", ctypes.string_at(values, 2 * count))
        if kind == 1:
            floats = array("f", struct.unpack(f"{count}e", halves.tobytes())).tobytes()
        else:
            floats = array("I", [half << 16 for half in halves]).tobytes()
        ctypes.memmove(target, floats, 4 * count)

    def engine_add_linear(self, model: int, outputs: int, inputs: int, kind: int) -> int:
        self.inputs.append(inputs)
        self.outputs.append(outputs)
        self._add(model, _call("l", outputs, inputs, kind))
        return len(self.inputs) - 1

    def engine_pack(
        self,
        model: int,
        linear: int,
        first: int,
        outputs: int,
        weight: int,
        kind: int,
        largest: int | None,
        bias: int | None,
        bias_kind: int,
    ) -> int:
        written = _call("w", linear, first, outputs) + _number(kind) + _number(bias_kind)
        written += _memory_at(weight, outputs * self.inputs[linear] * SIZES[kind]) + _memory_at(largest, 4 * outputs)
        return self._add(model, written + _memory_at(bias, outputs * SIZES[bias_kind]))

    def engine_add_vector(self, model: int, values: int, count: int, kind: int) -> int:
        written = _call("v", count, kind, 0) + _memory_at(values, SIZES[kind] * count)
        return self._add(model, written)

    def engine_add_table(self, model: int, values: int, rows: int, width: int, kind: int, largest: int | None) -> int:
        written = (
            _call("e", rows, width, kind)
            + _memory_at(values, SIZES[kind] * rows * width)
            + _memory_at(largest, 4 * rows)
        )
        return self._add(model, written)

    def engine_add_packed_table(self, model: int, linear: int, largest: int | None) -> int:
        return self._add(model, _call("k", linear, 0, 0) + _memory_at(largest, 4 * self.outputs[linear]))

    def engine_add_positions(self, model: int, count: int, width: int, span: int, start: int) -> int:
        return self._add(model, _call("s", count, width, span) + _number(start))

    def engine_add_buffer(self, model: int, space: int, width: int) -> int:
        self.widths.append(width)
        return self._add(model, _call("b", space, width, 0))

    def engine_set_programs(
        self, model: int, encoder: bytes, num_encoder: int, decoder: bytes, num_decoder: int, logits: int
    ) -> int:
        self.encoded_width = self.widths[logits]
        written = _call("p", num_encoder, num_decoder, logits) + _number(len(encoder)) + encoder
        return self._add(model, written + _number(len(decoder)) + decoder)

    def engine_translate(self, model: int, reference: Any, caller: Any) -> int:
        request: Request = reference._obj
        number, returned = request.num_sources, request.num_return_sequences
        lengths = (ctypes.c_int64 * number).from_address(request.lengths)
        inputs = {
            "words": 8 * sum(lengths),
            "lengths": 8 * number,
            "limits": 8 * number,
            "forced": 4 * number,
            "suppress_tokens": 4 * request.num_suppress_tokens,
            "candidates": 4 * request.num_candidates,
            "list_lengths": 8 * number,
            "candidate_indices": 4 * _sum(request.list_lengths, number),
            "prefixes": 8 * _sum(request.prefix_lengths, number),
            "prefix_lengths": 8 * number,
            "targets": 8 * _sum(request.target_lengths, number),
            "target_lengths": 8 * number,
            "scored_targets": _sum(request.target_lengths, number),
            "stop": 4,
        }
        searched = number * returned * request.longest
        num_tokens = searched if request.targets is None else _sum(request.target_lengths, number)
        vocabulary = int.from_bytes(self.models[model - 1][1:9], sys.byteorder)
        outputs = {
            "tokens": 8 * searched,
            "scores": 4 * number * returned,
            "first_logits": 4 * number * vocabulary,
            "attention": 4 * num_tokens * request.longest_source,
            "translation_lengths": 8 * number * returned,
            "target_log_probs": 4 * _sum(request.target_lengths, number),
            "log_probs": 4 * searched,
            "encoded": 4 * sum(lengths) * self.encoded_width,
        }
        pointers = {name for name, kind in Request._fields_ if kind is ctypes.c_void_p}
        assert pointers == inputs.keys() | outputs.keys(), "a pointer of which this does not know how far it reaches"
        present = [(name, size) for name, size in (inputs | outputs).items() if getattr(request, name) is not None]
        calls = self.models[model - 1] + _call("t", 0, 0, 0) + _number(ctypes.sizeof(request)) + bytes(request)
        calls += _number(len(present))
        for name, size in present:
            calls += _number(getattr(Request, name).offset) + _number(size) + _number(name in outputs)
            calls += ctypes.string_at(getattr(request, name), size)
        paths = [self.folder / f"{name}-{threading.get_ident()}" for name in ("calls", "results")]
        paths[0].write_bytes(calls)
        subprocess.run([*self.command, *map(str, paths)], check=True)
        results = paths[1].read_bytes()
        for name, size in present:
            if name in outputs:
                ctypes.memmove(getattr(request, name), results[:size], size)
                results = results[size:]
        assert not results
        return 0

    def _add(self, model: int, written: bytes) -> int:
        self.models[model - 1] += written
        return 0


def _sum(numbers: int | None, count: int) -> int:
    return 0 if numbers is None else sum((ctypes.c_int64 * count).from_address(numbers))


def _memory_at(address: int | None, size: int) -> bytes:
    """Return the size of a place in memory and its bytes; -1 if there is no address."""
    return _number(-1) if address is None else _number(size) + ctypes.string_at(address, size)


def _number(value: int) -> bytes:
    return int(value).to_bytes(8, sys.byteorder, signed=True)


def _call(name: str, *numbers: int) -> bytes:
    return name.encode() + b"".join(map(_number, numbers))
