"""Every tier of kernels against plain loops: on this processor, under sanitizers, and on arm64 under emulation."""

import os
import shutil
import subprocess
import sys

import pytest

from capsule_mt.engine.build import SOURCES, this_platform
from capsule_mt.engine.library import NativeUnavailableError, native_tier
from capsule_mt.engine.search import SearchOptions
from tests.light.engine import test_encoding, test_program, test_search
from tests.light.engine.conftest import TIERS, needs_engine
from tests.light.engine.drivers import (
    ZIG,
    EmulatedLibrary,
    build_driver,
    build_failing,
    build_whole,
    build_with_the_library,
)
from tests.light.engine.programs import PROGRAMS, SMALL_SET

pytest.importorskip("ziglang", reason="ziglang compiles the programs")
QEMU = shutil.which("qemu-aarch64-static") or shutil.which("qemu-aarch64")
needs_emulator = pytest.mark.skipif(
    QEMU is None, reason="qemu-aarch64-static runs arm64: apt install qemu-user-static"
)
needs_gcc = pytest.mark.skipif(not shutil.which("gcc"), reason="gcc has the sanitizers")
links = pytest.mark.skipif("windows" in this_platform(), reason="the library is linked as on Linux and macOS")
# Linux refuses tiles where a stack for signals has no room for them
SMALL_STACK = """
import ctypes

class Stack(ctypes.Structure):
    _fields_ = [("memory", ctypes.c_void_p), ("flags", ctypes.c_int), ("size", ctypes.c_size_t)]

memory = ctypes.create_string_buffer(8192)
stack = Stack(ctypes.addressof(memory), 0, len(memory))
assert ctypes.CDLL(None).sigaltstack(ctypes.byref(stack), None) == 0
from capsule_mt.engine.library import native_tier
print(native_tier())
"""
MOST_FAILURES = 40  # of the allocations of a program
# a processor with the dot product, and one without it
PROCESSORS = {"dotprod": "max", "portable": "cortex-a72"}


def checks_of(*command) -> dict[str, int]:
    """Run the driver of the kernels; return how many checks it made of each tier."""
    result = subprocess.run([*map(str, command)], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout[-3000:] + result.stderr[-3000:]
    lines = [line.partition(": ") for line in result.stdout.splitlines()]
    return {tier: int(count.removesuffix(" checks")) for tier, _, count in lines}


def replaying(command: list[str], folder, monkeypatch) -> None:
    """Let `Engine` run in a program of its own."""
    library = EmulatedLibrary(command, folder)
    monkeypatch.setattr("capsule_mt.engine.library.load_library", lambda: library)


def check_programs(num_threads: int = 1) -> None:
    """Every program, searched and forced, with the numbers of plain loops."""
    for name in SMALL_SET:
        test_search.check_plain(name)
        decoder = test_search.decoder_of(PROGRAMS[name], num_threads=num_threads)
        test_search.all_results(decoder, limit=4)
        test_search.test_translations_begin_with_their_prefixes(name)
        test_search.test_only_listed_tokens_are_written(name)
        test_search.test_requested_positions_alone_are_scored_bit_for_bit(name, int8=False)
    test_encoding.check_encoding(num_threads=num_threads)


@needs_engine
@links
def test_every_tier_computes_what_plain_loops_do(tmp_path):
    checks = checks_of(build_with_the_library("kernels.c", tmp_path))
    assert set(checks) == set(TIERS)
    assert all(count > 2000 for count in checks.values())


@needs_engine
@links
def test_small_loops_are_shared_where_that_is_faster(tmp_path):
    program = build_driver("team.c", tmp_path, ZIG, str(SOURCES / "team.c"), "-lpthread")
    counted = subprocess.run([program], capture_output=True, text=True, check=True).stdout.split()
    near, far, near_again, short_calls, large = map(int, counted)
    assert 950 < near < 1000  # the others measure it without sharing
    assert 20 < far < 150
    assert 800 < near_again < 980
    assert short_calls > 950  # too short to measure: shared, as before
    assert large == 4000


@needs_engine
def test_a_tier_that_does_not_exist_is_refused(monkeypatch):
    monkeypatch.setenv("HF_CAPSULE_MT_TIER", "avx1024")
    message = rf"HF_CAPSULE_MT_TIER must be a tier .* runs \({', '.join(TIERS)}\), or unset, got 'avx1024'"
    with pytest.raises(NativeUnavailableError, match=message):
        native_tier()


@pytest.mark.skipif("amx" not in TIERS, reason="the processor, or the system, has no tiles")
def test_without_permission_there_are_no_tiles():
    ran = subprocess.run([sys.executable, "-c", SMALL_STACK], capture_output=True, text=True, check=False)
    assert ran.stdout == "avx512\n", ran.stderr


@pytest.mark.slow
@needs_gcc
def test_the_kernels_under_sanitizers(tmp_path):
    program = build_whole("kernels.c", tmp_path, this_platform(), ["gcc"], "address,undefined")
    assert set(checks_of(program)) == set(TIERS)


@pytest.mark.slow
@needs_gcc
@pytest.mark.parametrize("sanitize", ["thread", "address,undefined"])
def test_threads_under_sanitizers(sanitize, tmp_path, monkeypatch):
    """Two threads for each source of a batch share even the smallest loop of each program."""
    program = build_whole("replay.c", tmp_path, this_platform(), ["gcc", "-DMIN_PART_COST=1"], sanitize)
    replaying([str(program)], tmp_path, monkeypatch)
    monkeypatch.setenv("ASAN_OPTIONS", "detect_leaks=0")  # the program keeps all that it reads
    check_programs(num_threads=8)
    for dtype in ("F16", "BF16"):
        test_program.test_half_precision_gives_the_numbers_of_its_floats(dtype, True, None)
    test_program.test_codes_are_packed_as_the_numbers_that_they_stand_for(True)
    test_program.test_a_table_that_is_the_weight_of_a_map(True, True, None)
    test_program.test_a_table_that_is_the_weight_of_a_map(False, True, None)
    test_program.test_a_head_by_row_gives_the_numbers_of_a_packed_one(True, None)


@pytest.fixture(scope="module", params=PROCESSORS)
def arm64(request, tmp_path_factory):
    """A function that builds a program for arm64, and the command that runs it."""
    folder = tmp_path_factory.mktemp("arm64")
    command = [*ZIG, "-target", "aarch64-linux-musl", "-static"]

    def build_command(source: str) -> list[str]:
        program = build_whole(source, folder, "aarch64-linux", command)
        return [str(QEMU), "-cpu", PROCESSORS[request.param], str(program)]

    return request.param, build_command, folder


@pytest.mark.slow
@needs_gcc
def test_each_allocation_may_fail(tmp_path, monkeypatch):
    """The call reports it or does without the memory; it reads nothing that is missing, and frees everything."""
    program = build_failing("replay.c", tmp_path)
    monkeypatch.setenv("ASAN_OPTIONS", "detect_leaks=0")  # the program keeps all that it reads

    def run(fails_at):
        command, environment = [program, calls, tmp_path / "out"], {**os.environ, "FAIL_AT": str(fails_at)}
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    for name in SMALL_SET:
        folder = tmp_path / name
        folder.mkdir()
        replaying([str(program)], folder, monkeypatch)
        decoder = test_search.decoder_of(PROGRAMS[name], num_threads=2)
        decoder.translate([[5, 6, 7], [8, 9]], SearchOptions([4, 3], num_beams=2, num_return_sequences=2))
        calls = next(folder.glob("calls-*"))
        count = int(run(0).stdout.split()[0])
        ended = [run(number) for number in range(1, count + 1, max(1, count // MOST_FAILURES))]
        for outcome in ended:
            assert outcome.returncode in (0, 1, 3), (name, outcome.args, outcome.stdout[-500:], outcome.stderr[-3000:])
        assert sum(one.returncode != 0 for one in ended) > MOST_FAILURES // 2


@pytest.mark.slow
@needs_emulator
def test_the_kernels_of_arm64(arm64):
    tier, build_command, _ = arm64
    checks = checks_of(*build_command("kernels.c"))
    assert set(checks) == {tier, "portable"}  # the best one of this processor, and the one that every processor has


@pytest.mark.slow
@needs_emulator
def test_the_engine_on_arm64_has_the_numbers_of_plain_loops(arm64, monkeypatch):
    tier, build_command, folder = arm64
    replaying(build_command("replay.c"), folder, monkeypatch)
    assert test_search.decoder_of(PROGRAMS["plain"]).engine.tier == tier
    check_programs()
    test_program.test_half_precision_gives_the_numbers_of_its_floats("F16", True, None)
    test_program.test_a_head_by_row_gives_the_numbers_of_a_packed_one(True, None)
