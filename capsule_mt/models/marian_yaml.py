"""The YAML that Marian writes: one level of names, with scalars or lists of scalars. Nothing else is read."""

import json
import re
from collections.abc import Iterator
from typing import Any

from capsule_mt.models.weights import CheckpointError

NAMED = re.compile(r"([A-Za-z0-9_.-]+):(?:\s+(.*))?")
ITEM = re.compile(r"\s*-\s+(.*)")
# what begins something that is not read: lists in lists, mappings, anchors, references, tags, texts of several lines
UNREAD = tuple("[{&*!|>%@`?\"'")


def read_yaml(text: str, place: str) -> dict[str, Any]:
    """Return what a text of Marian's says, such as {"beam-size": 6, "models": ["model.npz"]}.

    Args:
        place: the file, for errors.
    """
    found: dict[str, Any] = {}
    last = ""
    for number, line in _lines(text):
        where = f"{place}:{number}"
        if (item := ITEM.fullmatch(line)) and last:
            found[last] = [] if found[last] is None else found[last]
            if not isinstance(found[last], list):
                raise CheckpointError(f"{where}: `{last}` has a value and a list")
            found[last].append(_scalar(item[1], where))
        elif named := NAMED.fullmatch(line):
            last, value = named[1], (named[2] or "").strip()
            if last in found:
                raise CheckpointError(f"{where}: `{last}` comes twice")
            is_list = value.startswith("[") and value.endswith("]")
            found[last] = _flow(value[1:-1], where) if is_list else _scalar(value, where)
        else:
            raise CheckpointError(f"{where}: {line.strip()!r} is neither `name: value` nor an item of a list")
    return found


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield the numbers and the lines that say something, without comments."""
    for number, line in enumerate(text.splitlines(), start=1):
        line = re.sub(r"(^|\s)#.*", "", line).rstrip()
        if line and line not in ("---", "..."):
            yield number, line


def _flow(inside: str, where: str) -> list[Any]:
    return [_scalar(part.strip(), where) for part in inside.split(",")] if inside.strip() else []


def _scalar(text: str, where: str) -> Any:
    if text in ("", "~"):
        return None
    if text[0] == text[-1] == "'" and len(text) > 1:
        return text[1:-1].replace("''", "'")
    try:
        value = json.loads(text, parse_constant=str)  # numbers, truth and quoted texts are as in JSON
    except ValueError:
        value = text
    if isinstance(value, (dict, list)) or (value is text and text.startswith(UNREAD)):
        raise CheckpointError(f"{where}: {text[:40]!r} is not read, only scalars and lists of them")
    return value
