"""Check what a user wrote against a strict dataclass, with errors that name the key and what is taken."""

import difflib
import enum
import types
import typing
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, Field, fields
from functools import reduce
from math import inf
from operator import or_
from typing import Any, Literal, TypeVar

from huggingface_hub.dataclasses import type_validator, validated_field
from huggingface_hub.errors import StrictDataclassClassValidationError, StrictDataclassFieldValidationError

Settings = TypeVar("Settings")


def limited(least: float = -inf, most: float = inf, *, above: float = -inf, default: Any = None) -> Any:
    """Return a dataclass field for a number from `least` to `most`, and greater than `above`."""

    def validate(value: Any) -> None:
        if not isinstance(value, int | float) or (least <= value <= most and value > above):
            return
        if above > -inf:
            raise ValueError(f"must be greater than {above:g}")
        raise ValueError(f"must be in [{least:g}, {most:.10g}]" if most < inf else f"must be at least {least:g}")

    return validated_field(validate, default=default)


def nearest(word: object, names: Iterable[str]) -> str:
    """Return "; did you mean `...`?", or nothing if no known word is near."""
    near = difflib.get_close_matches(str(word), list(names), n=1)
    return f"; did you mean `{near[0]}`?" if near else ""


def refuse_unknown(keys: Iterable[str], names: Iterable[str], section: str) -> None:
    """Raise for a key that is not known, and name the nearest one, or all."""
    names = list(names)
    for key in keys:
        if key not in names:
            raise ValueError(f"{section} has no key `{key}`{nearest(key, names) or f'; there are {sorted(names)}'}")


def without_nulls(kind: Any, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings without those keys whose null stands for the default."""
    defaults = {entry.name for entry in fields(kind) if entry.default is not MISSING and not _takes(None, entry.type)}
    return {key: value for key, value in settings.items() if value is not None or key not in defaults}


def check_settings(kind: type[Settings], settings: Mapping[str, Any], section: str) -> Settings:
    """Return the strict dataclass of some settings, or raise a `ValueError`.

    Args:
        section: where the settings stand, such as a section of a recipe.
    """
    try:
        return kind(**check_fields(kind, settings, section))
    except (StrictDataclassFieldValidationError, StrictDataclassClassValidationError) as error:
        raise ValueError(f"`{section}`: {error.__cause__ or error}") from None


def check_fields(kind: Any, settings: Mapping[str, Any], section: str) -> dict[str, Any]:
    """Return the settings of a strict dataclass, without nulls; of its rules check those of single fields."""
    entries = {entry.name: entry for entry in fields(kind) if entry.init}
    refuse_unknown(settings, {*entries, *getattr(kind, "attribute_map", ())}, f"`{section}`")
    values = without_nulls(kind, settings)
    for key, value in values.items():
        if key in entries:
            check_field(entries[key], value, f"{section}.{key}")
    return values


def check_field(entry: "Field[Any]", value: Any, section: str) -> None:
    """Raise unless a value is of the type and in the limits of a dataclass's field."""
    if not _takes(value, entry.type):
        choices = [choice for choice in _choices(entry.type) if isinstance(choice, str)]
        raise ValueError(f"`{section}` must be {_named(entry.type)}, got {value!r}{nearest(value, choices)}")
    try:
        for validate in entry.metadata.get("validator", ()):
            validate(value)
    except ValueError as error:
        raise ValueError(f"`{section}` {error}, got {value!r}") from None


def as_written(kind: Any) -> Any:
    """Return a type as YAML writes its values: the choices of an enumeration by value, and 1 for a float."""
    if _is_union(kind):
        kinds = typing.get_args(kind)
        has_choices = any(isinstance(item, type) and issubclass(item, enum.Enum) for item in kinds)
        return reduce(or_, (as_written(item) for item in kinds if not (has_choices and item is str)))
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return Literal[tuple(member.value for member in kind)]
    return float | int if kind is float else kind


def _takes(value: Any, kind: Any) -> bool:
    try:
        type_validator("", value, kind)
    except TypeError:
        return False
    return True


def _is_union(kind: Any) -> bool:
    return isinstance(kind, types.UnionType) or typing.get_origin(kind) is typing.Union


def _choices(kind: Any) -> list[Any]:
    """Return the choices of a type, if it has some."""
    if _is_union(kind):
        return [choice for argument in typing.get_args(kind) for choice in _choices(argument)]
    return list(typing.get_args(kind)) if typing.get_origin(kind) is Literal else []


def _named(kind: Any) -> str:
    """Return a type in words, without the null that every setting may be."""
    if _is_union(kind):
        return " | ".join(_named(argument) for argument in typing.get_args(kind) if argument is not type(None))
    if typing.get_origin(kind) is Literal:
        return f"one of {', '.join(map(repr, typing.get_args(kind)))}"
    return kind.__name__ if isinstance(kind, type) else str(kind)
