"""The native engine, with each tier of kernels that this processor has."""

import pytest
from hf_capsule_mt.fast.native import NativeUnavailableError, load_library, native_tier


def available_tiers() -> list[str]:
    try:
        load_library()
    except NativeUnavailableError:
        return []
    tiers = []
    for tier in ("avx512", "avxvnni", "avx2", "dotprod", "portable"):
        try:
            tiers.append(native_tier(tier))
        except NativeUnavailableError:
            continue
    return tiers


TIERS = available_tiers()


@pytest.fixture(params=TIERS)
def backend(request, monkeypatch):
    monkeypatch.setenv("HF_CAPSULE_MT_TIER", request.param)
    return "native"
