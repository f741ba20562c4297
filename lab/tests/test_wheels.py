"""The wheels of other platforms: what the header of a library says, and a library of the wrong kind."""

import pytest

from hf_capsule_mt.fast.build import TARGETS, this_platform
from hf_capsule_mt.fast.native import LIBRARY
from lab.wheels import build_wheel, check_library, check_wheel, declared_functions, read_library

pytest.importorskip("ziglang", reason="ziglang compiles for other platforms")


def test_what_a_header_declares():
    assert {"engine_version", "engine_new", "engine_translate"} < declared_functions()


@pytest.mark.skipif(not LIBRARY.exists(), reason="the native engine was not built here")
def test_the_library_of_this_platform():
    library = read_library(LIBRARY.read_bytes())
    check_library(library, this_platform())
    for other in TARGETS.keys() - {this_platform()}:
        with pytest.raises(ValueError, match=f"the library is none for {other}: it is "):
            check_library(library, other)


def test_no_library():
    with pytest.raises(ValueError, match="no ELF, Mach-O or PE library"):
        read_library(b"#!/bin/sh")


@pytest.mark.skipif(not LIBRARY.exists(), reason="the native engine was not built here")
def test_a_library_that_exports_something_else(monkeypatch):
    monkeypatch.setattr("lab.wheels.declared_functions", lambda: frozenset({"engine_version"}))
    with pytest.raises(ValueError, match="it exports"):
        check_library(read_library(LIBRARY.read_bytes()), this_platform())


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
def test_wheels_of_all_platforms(target, tmp_path):
    pytest.importorskip("hatchling", reason="hatchling builds the wheel")
    check_wheel(build_wheel(target, tmp_path), target)
