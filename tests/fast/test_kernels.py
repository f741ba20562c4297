"""Every tier of kernels against plain loops: on this processor, under sanitizers, and on arm64 under emulation."""

import shutil
import subprocess

import pytest
import torch

from hf_capsule_mt.fast import to_fast
from hf_capsule_mt.fast.build import this_platform
from tests.fast import test_coverage, test_shortlist
from tests.fast.conftest import TIERS
from tests.fast.drivers import ZIG, EmulatedLibrary, build_whole, build_with_the_library
from tests.fast.models import NAMES, SOURCES, batch, build
from tests.fast.test_translator import SEARCHES

pytest.importorskip("ziglang", reason="ziglang compiles the programs")
QEMU = shutil.which("qemu-aarch64-static") or shutil.which("qemu-aarch64")
needs_emulator = pytest.mark.skipif(
    QEMU is None, reason="qemu-aarch64-static runs arm64: apt install qemu-user-static"
)
# a processor with the dot product, and one without it
PROCESSORS = {"dotprod": "max", "portable": "cortex-a72"}


def check_coverage_and_shortlists() -> None:
    test_coverage.test_it_equals_a_second_pass("guided", "native")
    test_coverage.test_it_equals_a_second_pass("rnmt_guided", "native")
    test_coverage.test_the_attention_of_a_head("guided", "native")
    for int8 in (False, True):
        test_shortlist.test_only_listed_tokens_are_written("native", int8)


def checks_of(*command) -> dict[str, int]:
    """Run the driver of the kernels; return how many checks it made of each tier."""
    result = subprocess.run([*map(str, command)], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout[-3000:] + result.stderr[-3000:]
    lines = [line.partition(": ") for line in result.stdout.splitlines()]
    return {tier: int(count.removesuffix(" checks")) for tier, _, count in lines}


@pytest.mark.skipif(not TIERS, reason="the native engine was not built here")
@pytest.mark.skipif("windows" in this_platform(), reason="the library is linked as on Linux and macOS")
def test_every_tier_computes_what_plain_loops_do(tmp_path):
    checks = checks_of(build_with_the_library("kernels.c", tmp_path))
    assert set(checks) == set(TIERS)
    assert all(count > 2000 for count in checks.values())


@pytest.mark.skipif(not TIERS, reason="the native engine was not built here")
@pytest.mark.skipif("windows" in this_platform(), reason="the library is linked as on Linux and macOS")
def test_a_replayed_engine_equals_generate(tmp_path, monkeypatch):
    """What arm64 is tested with below, on this processor."""
    library = EmulatedLibrary([str(build_with_the_library("replay.c", tmp_path))], tmp_path)
    monkeypatch.setattr("hf_capsule_mt.fast.native.load_library", lambda: library)
    model = build("guided")
    fast = to_fast(model, int8=False, backend="native")
    assert torch.equal(fast.generate(**batch(), num_beams=3), model.generate(**batch(), num_beams=3))


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("gcc"), reason="gcc has the sanitizers")
def test_the_kernels_under_sanitizers(tmp_path):
    program = build_whole("kernels.c", tmp_path, this_platform(), ["gcc"], "address,undefined")
    assert set(checks_of(program)) == set(TIERS)


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("gcc"), reason="gcc has the sanitizers")
@pytest.mark.parametrize("sanitize", ["thread", "address,undefined"])
def test_threads_under_sanitizers(sanitize, tmp_path, monkeypatch):
    """Three threads share even the smallest loop of each family."""
    program = build_whole("replay.c", tmp_path, this_platform(), ["gcc", "-DLEAST_PART=1"], sanitize)
    library = EmulatedLibrary([str(program)], tmp_path)
    monkeypatch.setattr("hf_capsule_mt.fast.native.load_library", lambda: library)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    monkeypatch.setenv("ASAN_OPTIONS", "detect_leaks=0")  # the program keeps all that it reads
    for name in ("stock", "em", "guided", "capsules", "rnmt_guided"):
        model = build(name)
        fast = to_fast(model, int8=False, backend="native")
        for search in SEARCHES.values():
            inputs = batch([SOURCES[2]])
            assert torch.equal(fast.generate(**inputs, **search), model.generate(**inputs, **search)), (name, search)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 8)  # two for each source of a batch
    check_coverage_and_shortlists()


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
@needs_emulator
def test_the_kernels_of_arm64(arm64):
    tier, build_command, _ = arm64
    checks = checks_of(*build_command("kernels.c"))
    assert set(checks) == {tier, "portable"}  # the best one of this processor, and the one that every processor has


@pytest.mark.slow
@needs_emulator
def test_the_engine_on_arm64_equals_generate(arm64, monkeypatch):
    tier, build_command, folder = arm64
    library = EmulatedLibrary(build_command("replay.c"), folder)
    monkeypatch.setattr("hf_capsule_mt.fast.native.load_library", lambda: library)
    for name in NAMES if tier == "dotprod" else ("stock", "em", "guided", "capsules", "rnmt_guided"):
        model = build(name)
        fast = to_fast(model, int8=False, backend="native")
        assert fast._backend.tier == tier
        for search in SEARCHES.values():
            assert torch.equal(fast.generate(**batch(), **search), model.generate(**batch(), **search)), (name, search)
    check_coverage_and_shortlists()
