"""The fields of a configuration, checked as they are read: config.json may come from anywhere."""

from collections.abc import Iterable, Mapping
from typing import Any

from capsule_mt.engine.program import UnsupportedModelError
from capsule_mt.models.weights import CheckpointError

MOST_ITERATIONS = 1000
MOST = 2**27


class Settings:
    """A configuration as transformers writes it; `place` says where it is from."""

    def __init__(self, fields: Mapping[str, Any], place: str = "the configuration") -> None:
        self.fields, self.place = fields, place

    def __getitem__(self, name: str) -> Any:
        return self.fields.get(name)

    def _given(self, name: str, default: Any) -> Any:
        value = self[name]
        return default if value is None else value

    def number(self, name: str, default: int, *, least: int = 1, most: int = MOST) -> int:
        """Return a whole number; here and below, `default` where the field is missing or null."""
        value = self._given(name, default)
        if type(value) is not int or not least <= value <= most:
            raise CheckpointError(f"{self.place}: `{name}` must be a number from {least} to {most}, got {value!r}")
        return value

    def real(self, name: str, default: float) -> float:
        value = self._given(name, default)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1e30:
            raise CheckpointError(f"{self.place}: `{name}` must be a number that is not negative, got {value!r}")
        return float(value)

    def flag(self, name: str, default: bool) -> bool:
        value = self._given(name, default)
        if not isinstance(value, bool):
            raise CheckpointError(f"{self.place}: `{name}` must be true or false, got {value!r}")
        return value

    def choice(self, name: str, default: str, known: Iterable[str]) -> str:
        """Return the name of a method; refuse one that no program can be written for."""
        value = self._given(name, default)
        if value not in list(known):
            raise UnsupportedModelError(f"`{name}` {value!r} has no fast form, only {', '.join(known)}")
        return str(value)

    def divisor(self, name: str, of: str, total: int) -> int:
        """Return a number that divides the value `total` of the field `of`, which is the default."""
        value = self.number(name, total)
        if total % value:
            raise CheckpointError(f"{self.place}: `{name}` ({value}) must divide `{of}` ({total})")
        return value
