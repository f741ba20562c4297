"""The YAML that Marian writes: one level of names, with scalars or lists of scalars. Nothing else is read.

A vocabulary in YAML has a line `token: number` for each token.
"""

import json
import os
import re
from collections.abc import Iterator
from typing import Any

from capsule_mt.messages import cut, shown
from capsule_mt.models.opening import read_text
from capsule_mt.models.weights import CheckpointError

MAX_CHARACTERS = 1 << 20  # of a configuration, which has 5,000; a vocabulary may have more
NAMED = re.compile(r"([A-Za-z0-9_.-]+):(?:\s+(.*))?")
ITEM = re.compile(r"\s*-\s+(.*)")
FLOW_BELOW = re.compile(r"\s+\[(.*)\]")  # yaml-cpp writes an empty list on the next line
# beginnings of what is not read: nested lists, mappings, anchors, references, tags, texts of several lines
UNREAD = tuple("[{&*!|>%@`?\"'")
NUMBERED = re.compile(r"(\"(?:[^\"\\]|\\.)*\"|'(?:[^']|'')*'|[^\"' ].*?): +([0-9]{1,9}) *\r?", re.DOTALL)
ESCAPE = re.compile(r"\\(?:x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|(.))", re.DOTALL)
CONTROLS = dict(zip("0abtnvfreN_LP", "\0\a\b\t\n\v\f\r\x1b\x85\xa0\u2028\u2029", strict=True))


def read_yaml(text: str, origin: str) -> dict[str, Any]:
    """Return the names and values of a text of Marian's, such as {"beam-size": 6, "models": ["model.npz"]}.

    Args:
        origin: the file, for errors.
    """
    if len(text) > MAX_CHARACTERS:
        raise CheckpointError(f"{origin}: has {len(text)} characters; at most {MAX_CHARACTERS} are read")
    values: dict[str, Any] = {}
    key = ""
    for line_number, line in _lines(text):
        origin_line = f"{origin}:{line_number}"
        if (item := ITEM.fullmatch(line)) and key:
            values[key] = [] if values[key] is None else values[key]
            if not isinstance(values[key], list):
                raise CheckpointError(f"{origin_line}: `{cut(key)}` has a value and a list")
            values[key].append(_scalar(item[1], origin_line))
        elif key and values[key] is None and (flow := FLOW_BELOW.fullmatch(line)):
            values[key] = _flow(flow[1], origin_line)
        elif named := NAMED.fullmatch(line):
            key, value = named[1], (named[2] or "").strip()
            if key in values:
                raise CheckpointError(f"{origin_line}: `{cut(key)}` comes twice")
            is_list = value.startswith("[") and value.endswith("]")
            values[key] = _flow(value[1:-1], origin_line) if is_list else _scalar(value, origin_line)
        else:
            raise CheckpointError(
                f"{origin_line}: {shown(line.strip())} is neither `name: value` nor an item of a list"
            )
    return values


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield the number and the text of each line that has content, without comments."""
    for line_number, line in enumerate(text.splitlines(), start=1):
        line = re.sub(r"(^|\s)#.*", "", line).rstrip()
        if line and line not in ("---", "..."):
            yield line_number, line


def _flow(inside: str, origin_line: str) -> list[Any]:
    return [_scalar(part.strip(), origin_line) for part in inside.split(",")] if inside.strip() else []


def _scalar(text: str, origin_line: str) -> Any:
    if text in ("", "~"):
        return None
    if text[0] == text[-1] == "'" and len(text) > 1:
        return text[1:-1].replace("''", "'")
    try:
        value = json.loads(text, parse_constant=str)  # numbers, booleans and double-quoted texts are as in JSON
    except (ValueError, RecursionError):
        value = text
    if isinstance(value, (dict, list)) or (value is text and text.startswith(UNREAD)):
        raise CheckpointError(f"{origin_line}: {text[:40]!r} is not read, only scalars and lists of them")
    return value


def read_vocabulary(file: str) -> dict[str, int]:
    """Return the tokens of a vocabulary with their ids, which count from 0.

    A line of a `.yml` or `.yaml` has a token and its id, the object of a `.json` has all of them. Any other file has a
    token a line, in the order of their ids.
    """
    lines = read_text(file).split("\n")  # a token may be another line separator, such as U+0085
    extension = os.path.splitext(file)[1]
    if extension == ".json":
        tokens = _json_tokens("\n".join(lines), file)
    else:
        tokens = (_yaml_tokens if extension in (".yml", ".yaml") else _listed_tokens)(lines, file)
    if sorted(tokens.values()) != list(range(len(tokens))):
        raise CheckpointError(
            f"{file}: its {len(tokens)} tokens must have the numbers 0 to {len(tokens) - 1}, each once"
        )
    return tokens


def _json_tokens(text: str, file: str) -> dict[str, int]:
    try:
        tokens = json.loads(text)
    except (ValueError, RecursionError):
        raise CheckpointError(f"{file}: is not JSON") from None
    if not isinstance(tokens, dict) or not all(type(number) is int for number in tokens.values()):
        raise CheckpointError(f"{file}: must be an object of tokens and their numbers")
    return tokens


def _listed_tokens(lines: list[str], file: str) -> dict[str, int]:
    tokens: dict[str, int] = {}
    for line_number, line in enumerate(lines[: -1 if not lines[-1] else None], start=1):
        token = line.removesuffix("\r")
        if not token or token in tokens:
            problem = "comes twice" if token else "is empty, but needs a token"
            raise CheckpointError(f"{file}:{line_number}: {shown(token)} {problem}")
        tokens[token] = len(tokens)
    return tokens


def _yaml_tokens(lines: list[str], file: str) -> dict[str, int]:
    tokens: dict[str, int] = {}
    for line_number, line in enumerate(lines, start=1):
        if not line.strip() or line.strip() in ("---", "..."):
            continue
        entry = NUMBERED.fullmatch(line)
        if entry is None:
            raise CheckpointError(f"{file}:{line_number}: {line[:40]!r} is not a line `token: number`")
        token = _token(entry[1], f"{file}:{line_number}")
        if token in tokens:
            raise CheckpointError(f"{file}:{line_number}: {shown(token)} comes twice")
        tokens[token] = int(entry[2])
    return tokens


def _token(text: str, origin_line: str) -> str:
    """Return a token of a vocabulary, without its quotes and escapes."""
    if text[0] == "'":
        return text[1:-1].replace("''", "'")
    if text[0] != '"':
        return text

    def character(escape: re.Match[str]) -> str:
        code = escape[1] or escape[2] or escape[3]
        return chr(int(code, 16)) if code else CONTROLS.get(escape[4], escape[4])

    try:  # a character beyond U+FFFF may be two escapes, as in JSON
        return ESCAPE.sub(character, text[1:-1]).encode("utf-16", "surrogatepass").decode("utf-16")
    except (OverflowError, ValueError):
        raise CheckpointError(f"{origin_line}: {text[:40]!r} is not a token in YAML") from None
