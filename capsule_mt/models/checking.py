"""Check the generation settings and the coverage calibration of a checkpoint, whose files may come from anywhere."""

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any, TypeGuard, cast

from capsule_mt.models.weights import CheckpointError
from capsule_mt.options.table import SEARCH_OPTIONS

MAX_POINTS, MAX_WORDS = 10_000, 100_000
OBJECTS = ("attention", "verified", "guided", "deletion", "support", "length")


def check_generation(values: Mapping[str, Any], vocabulary: int, origin: str) -> None:
    """Refuse search settings of a wrong type or outside of their range."""
    for option in SEARCH_OPTIONS:
        value = values.get(option.name)
        if value is not None and not option.accepts(value):
            raise CheckpointError(f"{origin}: `{option.name}` must be {option.expected}, got {_shown(value)}")
    for name in ("suppress_tokens", "bad_words_ids"):
        tokens = [token for part in values.get(name) or () for token in (part if _is_list(part) else [part])]
        if any(token >= vocabulary for token in tokens):
            raise CheckpointError(
                f"{origin}: `{name}` must be lists of tokens from 0 to {vocabulary - 1}, got {_shown(values[name])}"
            )


def check_calibration(values: object, head_shape: tuple[int, int], origin: str) -> None:
    """Refuse a calibration of coverage with curves that fall or are not finite, or a head that the model lacks."""
    layers, heads = head_shape

    def check(name: str, value: object, fits: bool, accepted: str) -> None:
        if not fits:
            raise CheckpointError(f"{origin}: `coverage_calibration{name}` must be {accepted}, got {_shown(value)}")

    def is_head(head: Any) -> bool:
        is_pair = _is_list(head) and len(head) == 2 and all(type(index) is int for index in head)
        return is_pair and 0 <= head[0] < layers and 0 <= head[1] < heads

    check("", values, isinstance(values, dict), "an object")
    fields = FIELDS | {"head": (is_head, f"a layer and a head of {layers} and {heads}")}
    for key, value in cast(dict[str, Any], values).items():
        if key in WORDS:
            check(f".{key}", value, _are_words(value), WORDS_RULE)
        if key in OBJECTS:
            check(f".{key}", value, isinstance(value, dict), "an object")
        if key == "length":
            check(f".{key}", value, _is_length(value), LENGTH_RULE)
        for field, (fits, accepted) in fields.items() if isinstance(value, dict) else ():
            if field in value:
                check(f".{key}.{field}", value[field], fits(value[field]), accepted)


def _are_words(value: object) -> bool:
    return _is_list(value) and len(value) <= MAX_WORDS and all(isinstance(word, str) for word in value)


def _is_list(value: object) -> TypeGuard[list[Any]]:
    return isinstance(value, list)


def _is_curve(points: Any) -> bool:
    if not _is_list(points) or not 0 < len(points) <= MAX_POINTS:
        return False
    if not all(_is_list(point) and len(point) == 2 and all(map(_is_number, point)) for point in points):
        return False
    xs, ys = zip(*points, strict=True)
    return _rises(xs) and _rises(ys) and ys[0] >= 0 and ys[-1] <= 1


def _is_length(value: Mapping[str, Any]) -> bool:
    words_by_length = value.get("more")
    if not all(_is_number(value.get(name), -1e6, 1e6) for name in ("start", "slope")) or not isinstance(
        words_by_length, dict
    ):
        return False
    are_numbers = all(len(number) < 8 and number.removeprefix("-").isdecimal() for number in words_by_length)
    return are_numbers and all(isinstance(words, str) for words in words_by_length.values())


def _rises(values: Sequence[float]) -> bool:
    return all(previous <= following for previous, following in pairwise(values))


def _is_number(value: object, minimum: float = -1e30, maximum: float = 1e30) -> bool:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    return math.isfinite(value) and minimum <= value <= maximum


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


WORDS, WORDS_RULE = ("optional_words", "function_words"), f"a list of at most {MAX_WORDS} words"
LENGTH_RULE = "numbers as `start` and `slope`, and as `more` words by their number of characters"
CURVE_RULE = f"at most {MAX_POINTS} points [x, y] of finite numbers that do not fall, y from 0 to 1"
# the fields of a calibration's objects: a check of the value, and the values that it accepts
FIELDS: dict[str, tuple[Callable[[Any], bool], str]] = {
    **dict.fromkeys(("words", "sentences"), (_is_curve, CURVE_RULE)),
    **dict.fromkeys(WORDS, (_are_words, WORDS_RULE)),
    "reverse": (lambda value: isinstance(value, str), "the name of a model"),
    "shortness": (lambda value: _is_number(value, 0.0, 100.0), "from 0 to 100"),
    "threshold": (lambda value: _is_number(value, 0.0, 1.0), "from 0 to 1"),
}
