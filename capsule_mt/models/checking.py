"""Check the generation settings and the coverage calibration of a checkpoint, whose files may come from anywhere."""

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, TypeGuard

from capsule_mt.messages import MAX_SHOWN, shown
from capsule_mt.models.schema import FieldRule, Schema
from capsule_mt.models.weights import CheckpointError
from capsule_mt.options.table import BY_NAME, NEUTRAL, SEARCH_OPTIONS

MAX_POINTS, MAX_WORDS = 10_000, 100_000
MAX_VALUES = 100_000  # of an option that the engine lacks, with those inside of lists and the characters of texts
MARK_NAMES = ("sure", "likely", "all")


def check_generation(values: Mapping[str, Any], vocabulary: int, origin: str) -> None:
    """Refuse search settings of a wrong type, outside of their range, or so long that each call would take long."""
    check_search_options(values, origin)
    for name in values.keys() - BY_NAME.keys():
        if _num_values(values[name]) > MAX_VALUES:
            raise CheckpointError(f"{origin}: `{name[:MAX_SHOWN]}` has more than {MAX_VALUES} values")
    for name in (option.name for option in SEARCH_OPTIONS if option.kind in ("tokens", "phrases")):
        parts = values.get(name) or ()
        tokens = [token for part in parts for token in (part if _is_list(part) else [part])]
        if max(len(parts), len(tokens)) > vocabulary:
            raise CheckpointError(
                f"{origin}: `{name}` must have at most {vocabulary} tokens, as many as the vocabulary, got "
                f"{max(len(parts), len(tokens))}"
            )
        if any(token >= vocabulary for token in tokens):
            raise CheckpointError(
                f"{origin}: `{name}` must be lists of tokens from 0 to {vocabulary - 1}, got {shown(values[name])}"
            )


def _num_values(value: Any) -> int:
    """Return how many values and characters a value of a JSON file has, including those of its lists and objects."""
    total, waiting = 0, [value]
    while waiting:
        value = waiting.pop()
        parts = [*value, *value.values()] if isinstance(value, dict) else value if _is_list(value) else ()
        total += len(value) if isinstance(value, str) else 1
        waiting.extend(parts)
    return total


def check_search_options(values: Mapping[str, Any], origin: str) -> None:
    """Refuse options of the search of a wrong type or out of range, and those in `NEUTRAL` of a wrong type."""
    for option in SEARCH_OPTIONS:
        value = values.get(option.name)
        if value is not None and not option.accepts(value):
            raise CheckpointError(f"{origin}: `{option.name}` must be {option.expected}, got {shown(value)}")
    check_neutral_types(values, origin)


def check_neutral_types(values: Mapping[str, Any], origin: str) -> None:
    """Refuse options in `NEUTRAL`, which the engine lacks, that are of a wrong type."""
    expected = {bool: "True or False", int: "a whole number", float: "a number"}
    for name, neutral in NEUTRAL.items():
        value, kind = values.get(name), type(neutral)
        if value is not None and type(value) is not kind and (kind is not float or type(value) is not int):
            raise CheckpointError(f"{origin}: `{name}` must be {expected[kind]}, got {shown(value)}")


def check_calibration(values: object, head_shape: tuple[int, int], origin: str) -> None:
    """Refuse a calibration of coverage that does not fit `_calibration_schema`, or a head that the model lacks."""
    _calibration_schema(*head_shape).check(values, "coverage_calibration", origin)


def _calibration_schema(layers: int, heads: int) -> Schema:
    def is_head(head: Any) -> bool:
        is_pair = _is_list(head) and len(head) == 2 and all(type(index) is int for index in head)
        return is_pair and 0 <= head[0] < layers and 0 <= head[1] < heads

    head = {"head": FieldRule(is_head, f"a layer and a head of {layers} and {heads}")}
    methods = {"deletion": FITTED, "attention": METHOD.extended(head, required=("head",))}
    return Schema({**WORD_LISTS, **methods, "verified": VERIFIED, "support": Schema(WORD_LISTS), "length": LENGTH})


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
    return all(left < right for left, right in pairwise(xs)) and _rises(ys) and ys[0] >= 0 and ys[-1] <= 1


def _are_words_by_length(value: object) -> bool:
    return isinstance(value, dict) and all(
        len(number) < 8 and number.removeprefix("-").isdecimal() and isinstance(words, str)
        for number, words in value.items()
    )


def _are_right_of_read(value: object) -> bool:
    return _is_list(value) and len(value) == 2 and all(map(_is_count, value)) and value[0] <= value[1] > 0


def _is_count(value: object) -> bool:
    return type(value) is int and 0 <= value < 2**53


def _rises(values: Sequence[float]) -> bool:
    return all(previous <= following for previous, following in pairwise(values))


def _is_number(value: object, minimum: float = -1e30, maximum: float = 1e30) -> bool:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    return math.isfinite(value) and minimum <= value <= maximum


# ---- the schema of `coverage_calibration`
WORDS = FieldRule(_are_words, f"a list of at most {MAX_WORDS} words")
WORD_LISTS = {"optional_words": WORDS, "function_words": WORDS}
CURVE = FieldRule(
    _is_curve, f"at most {MAX_POINTS} points [x, y] of finite numbers, x rising, y never falling, y from 0 to 1"
)
SHARE = FieldRule(lambda value: _is_number(value, 0.0, 1.0), "from 0 to 1")
LENGTH_NUMBER = FieldRule(lambda value: _is_number(value, -1e6, 1e6), "a number from -1e6 to 1e6")
LENGTH = Schema(
    {
        "start": LENGTH_NUMBER,
        "slope": LENGTH_NUMBER,
        "more": FieldRule(_are_words_by_length, "words in one text by their whole number of characters"),
    },
    required=("start", "slope", "more"),
)
ALARM = Schema(
    {"score": SHARE, "flagged": SHARE, "caught": Schema({}, every=SHARE)}, required=("score", "flagged", "caught")
)
METHOD = Schema(
    {**WORD_LISTS, "words": CURVE, "sentences": CURVE, "threshold": SHARE, "alarm": ALARM},
    together=(("words", "sentences"),),
)
FITTED = METHOD.extended({}, required=("words", "sentences"))
RIGHT_OF_READ = FieldRule(_are_right_of_read, "how many marks were right, and how many were read")
VERIFIED = METHOD.extended(
    {
        "human_alarm": ALARM,  # of given translations
        "reverse": FieldRule(lambda value: isinstance(value, str), "the name of a model"),
        "shortness": FieldRule(lambda value: _is_number(value, 0.0, 100.0), "from 0 to 100"),
        "right_marks": Schema(dict.fromkeys(MARK_NAMES, RIGHT_OF_READ)),
        "retries_marks": FieldRule(lambda value: isinstance(value, bool), "true or false"),
    }
)
