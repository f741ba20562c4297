"""Declared schemas of JSON objects: the values that each field accepts, and the fields that must be there."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Union

from capsule_mt.messages import shown
from capsule_mt.models.opening import CheckpointError


class FieldRule(NamedTuple):
    """A check of a value, and the values that it accepts, for errors."""

    accepts: Callable[[Any], bool]
    expected: str

    def check(self, value: object, path: str, origin: str) -> None:
        if not self.accepts(value):
            raise CheckpointError(f"{origin}: `{path}` must be {self.expected}, got {shown(value)}")


class Schema(NamedTuple):
    """The fields of an object. Without `every`, others than the declared are ignored: older versions read newer files.

    required: the fields that must be there.
    together: groups of fields; a group must be complete or missing.
    every: the rule of each field that is not declared.
    """

    fields: Mapping[str, Union[FieldRule, "Schema"]]
    required: tuple[str, ...] = ()
    together: tuple[tuple[str, ...], ...] = ()
    every: Union[FieldRule, "Schema", None] = None

    def extended(
        self,
        fields: Mapping[str, Union[FieldRule, "Schema"]],
        required: tuple[str, ...] = (),
        together: tuple[tuple[str, ...], ...] = (),
    ) -> "Schema":
        """Return a schema with more fields."""
        return Schema({**self.fields, **fields}, (*self.required, *required), (*self.together, *together), self.every)

    def check(self, value: object, path: str, origin: str) -> None:
        """Raise `CheckpointError` if a value breaks the schema, with the file `origin` and the key's path."""
        if not isinstance(value, dict):
            raise CheckpointError(f"{origin}: `{path}` must be an object, got {shown(value)}")
        for name, item in value.items():
            rule = self.fields.get(name, self.every)
            if rule is not None:
                rule.check(item, f"{path}.{shown(name)[1:-1]}", origin)
        groups = [group for group in self.together if any(name in value for name in group)]
        for name in (*self.required, *(name for group in groups for name in group)):
            if name not in value:
                raise CheckpointError(f"{origin}: `{path}` lacks `{name}`, which `capsule-mt calibrate` writes")
