"""Hostile JSON: what a field may hold that nobody expects there, and a value with one field changed."""

import copy
import math
from typing import Any

Case = dict[str, Any]
VALUES: list[Any] = [
    *(None, True, False, 0, 1, -1, 2, 7, 255, 2**31, 2**40, 2**63, -(2**63), 0.5, -0.0, 1e308, math.nan, math.inf),
    *("", "a", "1", "../x", "\0", "\ud800", "x" * 5000, [], [1], [-1], [[]], [[0, 0]], {}, {"a": 1}, [None] * 50),
]


def paths_in(value: Any, path: tuple[Any, ...] = (), max_items: int = 3, depth: int = 5) -> list[tuple[Any, ...]]:
    """Return where there is something in a JSON value; of long lists, the beginning and the end."""
    if len(path) == depth or not isinstance(value, (dict, list)):
        return [path]
    keys = list(value) if isinstance(value, dict) else [*range(len(value))]
    keys = keys if len(keys) <= 40 else [*keys[:max_items], *keys[-max_items:]]
    return [path, *(inner for key in keys for inner in paths_in(value[key], (*path, key), max_items, depth))]


def changed_value(value: Any, case: Case) -> Any:
    """Return a JSON value without what is at the path `delete`, or with `value` at the path `at`."""
    changed = {"": copy.deepcopy(value)}
    *path, last = ["", *case.get("delete", case.get("at", ()))]
    inner: Any = changed
    for key in path:
        inner = inner[key]
    if "delete" in case:
        del inner[last]
    else:
        inner[last] = case["value"]
    return changed.get("")
