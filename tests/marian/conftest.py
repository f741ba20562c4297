"""Marian, installed once, and the registry and hub on this machine."""

from pathlib import Path

import pytest

from tests.light.catalog.conftest import Registry, hub
from tests.marian.judge import Judge

__all__ = ["hub"]


@pytest.fixture(scope="session")
def judge(request) -> Judge:
    return Judge(Path(request.config.cache.mkdir("marian")))


@pytest.fixture
def registry(hub) -> Registry:
    """An empty registry."""
    return Registry(hub, hub.url)
