"""The fields of a configuration, checked as they are read: config.json may come from anywhere."""

from collections.abc import Iterable, Mapping
from typing import Any

from capsule_mt.engine.program import UnsupportedModelError
from capsule_mt.messages import shown
from capsule_mt.models.weights import CheckpointError

FEED_FORWARD_ACTIVATIONS = ("relu", "silu", "swish", "gelu", "sigmoid")
MAX_ITERATIONS = 1000
MAX_NUMBER = 2**27
# other names of fields in config.json, which transformers takes for the same
ALIASES = {
    "num_attention_heads": "encoder_attention_heads",
    "num_hidden_layers": "encoder_layers",
    "hidden_size": "d_model",
}


class ModelSettings:
    """A configuration as transformers writes it.

    origin: the file of the configuration, with which a `CheckpointError` begins.
    """

    def __init__(self, fields: Mapping[str, Any], origin: str = "the configuration") -> None:
        self.fields, self.origin = _without_aliases(fields, origin), origin

    def __getitem__(self, name: str) -> Any:
        return self.fields.get(name)

    def _value(self, name: str, default: Any) -> Any:
        value = self[name]
        if value is None and default is None:
            raise CheckpointError(f"{self.origin}: lacks `{name}`")
        return default if value is None else value

    def number(self, name: str, default: int | None = None, *, minimum: int = 1, maximum: int = MAX_NUMBER) -> int:
        """Return a whole number.

        This and the methods below with a `default` return it if the field is missing or null, and refuse the
        configuration if it is `None`: families have different defaults.
        """
        value = self._value(name, default)
        if type(value) is not int or not minimum <= value <= maximum:
            raise CheckpointError(
                f"{self.origin}: `{name}` must be a number from {minimum} to {maximum}, got {shown(value)}"
            )
        return value

    def real(self, name: str, default: float) -> float:
        value = self._value(name, default)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1e30:
            raise CheckpointError(f"{self.origin}: `{name}` must be a number that is not negative, got {shown(value)}")
        return float(value)

    def flag(self, name: str, default: bool | None = None) -> bool:
        value = self._value(name, default)
        if not isinstance(value, bool):
            raise CheckpointError(f"{self.origin}: `{name}` must be true or false, got {shown(value)}")
        return value

    def choice(self, name: str, default: str | None, choices: Iterable[str]) -> str:
        """Return the name of a method; refuse one that the engine does not have."""
        value = self._value(name, default)
        if value not in list(choices):
            supported = ", ".join(choices)
            raise UnsupportedModelError(f"`{name}` {shown(value)} is not supported by the engine, only {supported}")
        return str(value)

    def heads(self, side: str, width: int, default: int | None = None) -> int:
        """Return the number of heads of a side, "encoder" or "decoder"; it must divide the model's width."""
        heads = self.number(f"{side}_attention_heads", default)
        if width % heads:
            raise UnsupportedModelError(
                f"`{side}_attention_heads` {heads} is not supported by the engine: it must divide {width}"
            )
        return heads

    def divisor(self, name: str, total_field: str, total: int) -> int:
        """Return a number that must divide `total`, the value of the field `total_field`; it is `total` by default."""
        value = self.number(name, total)
        if total % value:
            raise CheckpointError(f"{self.origin}: `{name}` ({value}) must divide `{total_field}` ({total})")
        return value


def _without_aliases(fields: Mapping[str, Any], origin: str) -> Mapping[str, Any]:
    """Return a configuration with a value for each name of an alias; refuse two values of one field."""
    aliases = {name: fields[alias] for alias, name in ALIASES.items() if fields.get(alias) is not None}
    for alias, name in ALIASES.items():
        if name in aliases and fields.get(name) is not None and fields[name] != aliases[name]:
            raise CheckpointError(
                f"{origin}: `{alias}` {shown(aliases[name])} and `{name}` {shown(fields[name])} are the same field "
                "for transformers: remove the wrong one"
            )
    return {**fields, **aliases}
