"""What a checkpoint says of generating and of coverage, checked when it is loaded: its files may be from anywhere."""

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any, TypeGuard, cast

from capsule_mt.models.weights import CheckpointError
from capsule_mt.options.table import SEARCH_OPTIONS

MOST_POINTS, MOST_WORDS = 10_000, 100_000
OBJECTS = ("attention", "verified", "guided", "deletion", "support", "length")


def check_generation(values: Mapping[str, Any], vocabulary: int, place: str) -> None:
    """Refuse settings that no search could be made by."""
    for option in SEARCH_OPTIONS:
        value = values.get(option.name)
        if value is not None and not option.accepts(value):
            raise CheckpointError(f"{place}: `{option.name}` must be {option.expected}, got {_shown(value)}")
    for name in ("suppress_tokens", "bad_words_ids"):
        tokens = [token for part in values.get(name) or () for token in (part if _is_list(part) else [part])]
        if any(token >= vocabulary for token in tokens):
            raise CheckpointError(
                f"{place}: `{name}` must be lists of tokens from 0 to {vocabulary - 1}, got {_shown(values[name])}"
            )


def check_calibration(values: object, head_shape: tuple[int, int], place: str) -> None:
    """Refuse a calibration of coverage whose curves are not finite or fall, or whose head is none of the model's."""
    layers, heads = head_shape

    def check(name: str, value: object, fits: bool, wanted: str) -> None:
        if not fits:
            raise CheckpointError(f"{place}: `coverage_calibration{name}` must be {wanted}, got {_shown(value)}")

    def is_head(head: Any) -> bool:
        is_pair = _is_list(head) and len(head) == 2 and all(type(one) is int for one in head)
        return is_pair and 0 <= head[0] < layers and 0 <= head[1] < heads

    check("", values, isinstance(values, dict), "an object")
    fields = FIELDS | {"head": (is_head, f"a layer and a head of {layers} and {heads}")}
    for key, value in cast(dict[str, Any], values).items():
        if key in WORDS:
            check(f".{key}", value, _are_words(value), WORDS_WANTED)
        if key in OBJECTS:
            check(f".{key}", value, isinstance(value, dict), "an object")
        if key == "length":
            check(f".{key}", value, _is_length(value), LENGTH_WANTED)
        for field, (fits, wanted) in fields.items() if isinstance(value, dict) else ():
            if field in value:
                check(f".{key}.{field}", value[field], fits(value[field]), wanted)


def _are_words(value: object) -> bool:
    return _is_list(value) and len(value) <= MOST_WORDS and all(isinstance(word, str) for word in value)


def _is_list(value: object) -> TypeGuard[list[Any]]:
    return isinstance(value, list)


def _is_curve(points: Any) -> bool:
    if not _is_list(points) or not 0 < len(points) <= MOST_POINTS:
        return False
    if not all(_is_list(point) and len(point) == 2 and all(map(_is_number, point)) for point in points):
        return False
    xs, ys = zip(*points, strict=True)
    return _rises(xs) and _rises(ys) and ys[0] >= 0 and ys[-1] <= 1


def _is_length(value: Mapping[str, Any]) -> bool:
    more = value.get("more")
    if not all(_is_number(value.get(name), -1e6, 1e6) for name in ("start", "slope")) or not isinstance(more, dict):
        return False
    are_numbers = all(len(number) < 8 and number.removeprefix("-").isdecimal() for number in more)
    return are_numbers and all(isinstance(words, str) for words in more.values())


def _rises(values: Sequence[float]) -> bool:
    return all(before <= after for before, after in pairwise(values))


def _is_number(value: object, least: float = -1e30, most: float = 1e30) -> bool:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    return math.isfinite(value) and least <= value <= most


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


WORDS, WORDS_WANTED = ("optional_words", "function_words"), f"a list of at most {MOST_WORDS} words"
LENGTH_WANTED = "numbers as `start` and `slope`, and as `more` words by their number of characters"
CURVE_WANTED = f"at most {MOST_POINTS} points [x, y] of finite numbers that do not fall, y from 0 to 1"
# of an object of a calibration: what each must be
FIELDS: dict[str, tuple[Callable[[Any], bool], str]] = {
    **dict.fromkeys(("words", "sentences"), (_is_curve, CURVE_WANTED)),
    **dict.fromkeys(WORDS, (_are_words, WORDS_WANTED)),
    "reverse": (lambda value: isinstance(value, str), "the name of a model"),
    "shortness": (lambda value: _is_number(value, 0.0, 100.0), "from 0 to 100"),
    "threshold": (lambda value: _is_number(value, 0.0, 1.0), "from 0 to 1"),
}
