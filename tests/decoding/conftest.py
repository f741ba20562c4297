"""The native engine, with each tier of kernels that this processor has."""

from tests.light.engine.conftest import tier

__all__ = ["tier"]
