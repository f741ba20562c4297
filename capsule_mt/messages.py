"""Warnings through the logger "capsule_mt", and values for messages. `logging` is imported late."""

import contextlib
import os
from collections.abc import Iterator

MAX_SHOWN = 200  # characters of a value in a message
ITEMS_PER_WARNING = 2048  # inside `adding_up_shares`, a warning of a share waits for this many items

_messages_logged: set[str] = set()
_shares: dict[tuple[str, str], tuple[int, int]] | None = None


class LineError(ValueError):
    """A line cannot be handled, whatever the settings are."""


def warn(message: str) -> None:
    import logging

    logging.getLogger("capsule_mt").warning(message)


def warn_once(message: str) -> None:
    if message not in _messages_logged:
        _messages_logged.add(message)
        warn(message)


def out_of(count: int, total: int, units: str) -> str:
    """Return how many of all: "2 of 3 lines", "1 of 1 line"; `units` is the plural of what is counted."""
    return f"{count:,} of {with_unit(total, units)}"


def with_unit(count: int, units: str) -> str:
    """Return a count with its unit: "2 lines", "1 line"; `units` is the plural of what is counted."""
    return f"{count:,} {units.removesuffix('s') if count == 1 else units}"


def warn_of_share(template: str, count: int, total: int, units: str) -> None:
    """Warn that something applies to `count` of `total` units, by a template such as "{} may be incomplete"."""
    key = (template, units)
    if _shares is None:
        shares = {key: (count, total)}
    else:
        earlier_count, earlier_total = _shares.pop(key, (0, 0))
        shares = {key: (count + earlier_count, total + earlier_total)}
        if shares[key][1] < ITEMS_PER_WARNING:
            _shares.update(shares)
            return
    _log_shares(shares)


@contextlib.contextmanager
def adding_up_shares() -> Iterator[None]:
    """In the block, warn of shares once per `ITEMS_PER_WARNING` items, and at the end for those that remain."""
    global _shares
    _shares = {}
    try:
        yield
    finally:
        shares, _shares = _shares, None
        _log_shares(shares)


def _log_shares(shares: dict[tuple[str, str], tuple[int, int]]) -> None:
    for (template, units), (count, total) in shares.items():
        if count:
            warn(template.format(out_of(count, total, units)))


def silence() -> None:
    """Stop printing warnings in this process."""
    import logging

    logging.getLogger("capsule_mt").setLevel(logging.ERROR)


def shown(value: object) -> str:
    """Return a value as Python writes it, cut after `MAX_SHOWN` characters: a field of a file may hold megabytes."""
    try:
        text = repr(value[: MAX_SHOWN + 1] if isinstance(value, str) else value)
    except RecursionError:
        return f"a {type(value).__name__} that is nested too deeply"
    return text if len(text) <= MAX_SHOWN else f"{text[: MAX_SHOWN - 3]}..."


def cut(text: object) -> str:
    """Return the first `MAX_SHOWN` characters of a name or another error, without quotes."""
    return str(text)[:MAX_SHOWN]


def check_path(value: object, argument: str, accepted: str) -> None:
    """Refuse an argument that must be a name or a path, and is of another type or empty."""
    if not isinstance(value, (str, os.PathLike)):
        raise TypeError(f"`{argument}` must be {accepted}, got {shown(value)} ({type(value).__name__})")
    if not os.fspath(value):
        raise ValueError(f"`{argument}` must be {accepted}, got an empty string")
