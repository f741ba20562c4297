"""The tiers of kernels that this processor has."""

import pytest

from capsule_mt.engine import build
from capsule_mt.engine.library import NativeUnavailableError, load_library, native_tier


def available_tiers() -> list[str]:
    try:
        load_library()
    except NativeUnavailableError:
        return []
    tiers = []
    for tier in build.TIERS:
        try:
            tiers.append(native_tier(tier))
        except NativeUnavailableError:
            continue
    return tiers


TIERS = available_tiers()
needs_engine = pytest.mark.skipif(not TIERS, reason="the native engine was not built here")


@pytest.fixture(params=TIERS)
def tier(request, monkeypatch):
    monkeypatch.setenv("HF_CAPSULE_MT_TIER", request.param)
    return request.param
