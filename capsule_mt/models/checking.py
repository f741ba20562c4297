"""What a checkpoint says of generating and of coverage, checked when it is loaded: its files may be from anywhere."""

import math
import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, TypeGuard

from capsule_mt.models.weights import CheckpointError

MOST_BEAMS, MOST_TOKENS = 256, 2**24
MOST_POINTS, MOST_WORDS = 10_000, 100_000
# the whole numbers of generation_config.json, and the least and the most of each
COUNTS = {
    "num_beams": (1, MOST_BEAMS),
    "num_return_sequences": (1, MOST_BEAMS),
    "max_length": (1, MOST_TOKENS),
    "max_new_tokens": (1, MOST_TOKENS),
    "min_length": (0, MOST_TOKENS),
    "min_new_tokens": (0, MOST_TOKENS),
    "no_repeat_ngram_size": (0, MOST_TOKENS),
}
CURVES, WORDS = ("words", "sentences"), ("optional_words", "function_words")
OBJECTS = ("attention", "verified", "guided", "deletion", "support", "length")
LENGTH = re.compile(r"-?\d{1,6}")


def check_generation(values: Mapping[str, Any], vocabulary: int, place: str) -> None:
    """Refuse settings of a search that are no numbers, or that no search could be."""

    def refuse(name: str, wanted: str) -> CheckpointError:
        return CheckpointError(f"{place}: `{name}` must be {wanted}, got {_shown(values[name])}")

    for name, (least, most) in COUNTS.items():
        value = values.get(name)
        if value is not None and (type(value) is not int or not least <= value <= most):
            raise refuse(name, f"a whole number from {least} to {most}")
    if not _is_number(values.get("length_penalty") or 0.0, -100.0, 100.0):
        raise refuse("length_penalty", "a number from -100 to 100")
    stops = values.get("early_stopping")
    if not isinstance(stops, bool) and stops not in ("never", None):
        raise refuse("early_stopping", 'true, false or "never"')
    for name in ("suppress_tokens", "bad_words_ids"):
        tokens = values.get(name) or []
        words = tokens if _is_list(tokens) else [None]
        flat = [one for some in words for one in (some if _is_list(some) else [some])]
        if not all(type(one) is int and 0 <= one < vocabulary for one in flat):
            raise refuse(name, f"lists of tokens from 0 to {vocabulary - 1}")


def check_calibration(values: object, head_shape: tuple[int, int], place: str) -> None:
    """Refuse a calibration of coverage whose curves are not finite or fall, or whose head is none of the model's."""
    name = "coverage_calibration"
    if not isinstance(values, dict):
        raise CheckpointError(f"{place}: `{name}` must be an object, got {_shown(values)}")
    for key, value in values.items():
        field = f"`{name}.{key}`"
        if key in WORDS:
            _check_words(value, field, place)
        if not isinstance(value, dict):
            if key in OBJECTS:
                raise CheckpointError(f"{place}: {field} must be an object, got {_shown(value)}")
            continue
        if key == "length" and not _is_length(value):
            raise CheckpointError(
                f"{place}: {field} must have numbers as `start` and `slope`, and words by their number of characters "
                f"as `more`, got {_shown(value)}"
            )
        for curve in CURVES:
            if curve in value and not _is_curve(value[curve]):
                raise CheckpointError(
                    f"{place}: {field} has `{curve}`, which must be at most {MOST_POINTS} points [x, y] of finite "
                    f"numbers that do not fall, y from 0 to 1, got {_shown(value[curve])}"
                )
        if not _is_number(value.get("shortness", 0.0), 0.0, 100.0):
            raise CheckpointError(
                f"{place}: {field} has `shortness`, which must be from 0 to 100, got {_shown(value['shortness'])}"
            )
        if not _is_number(value.get("threshold", 0.0), 0.0, 1.0):
            raise CheckpointError(
                f"{place}: {field} has `threshold`, which must be from 0 to 1, got {_shown(value['threshold'])}"
            )
        head = value.get("head", [0, 0])
        is_head = _is_list(head) and len(head) == 2 and all(type(one) is int and one >= 0 for one in head)
        if not is_head or ("head" in value and not (head[0] < head_shape[0] and head[1] < head_shape[1])):
            layers, heads = head_shape
            raise CheckpointError(
                f"{place}: {field} has `head`, which must be a layer and a head of {layers} and {heads}, "
                f"got {_shown(value.get('head'))}"
            )
        for inner in WORDS:
            if inner in value:
                _check_words(value[inner], f"`{name}.{key}.{inner}`", place)


def _check_words(value: object, field: str, place: str) -> None:
    if not _is_list(value) or len(value) > MOST_WORDS or not all(isinstance(word, str) for word in value):
        raise CheckpointError(f"{place}: {field} must be a list of at most {MOST_WORDS} words, got {_shown(value)}")


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
    return all(LENGTH.fullmatch(number) and isinstance(words, str) for number, words in more.items())


def _rises(values: Sequence[float]) -> bool:
    return all(before <= after for before, after in pairwise(values))


def _is_number(value: object, least: float = -1e30, most: float = 1e30) -> bool:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    return math.isfinite(value) and least <= value <= most


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
