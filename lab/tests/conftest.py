"""Run every test offline, seeded and on one thread, as tests/conftest.py does."""

from tests.conftest import _seeded

__all__ = ["_seeded"]
