"""Warnings through the logger "capsule_mt", whose module the first one imports, and values as messages show them."""

import contextlib
from collections.abc import Iterator

MAX_SHOWN = 200  # characters of a value in a message
ITEMS_OF_WARNING = 2048  # that one warning of a share is about, while a command adds them up

_messages_logged: set[str] = set()
_shares: dict[str, tuple[int, int]] | None = None


def warn(message: str) -> None:
    import logging

    logging.getLogger("capsule_mt").warning(message)


def warn_once(message: str) -> None:
    if message not in _messages_logged:
        _messages_logged.add(message)
        warn(message)


def warn_of_share(template: str, count: int, total: int) -> None:
    """Warn that something is true of `count` of `total` items, such as "{} of {} texts are long"."""
    if _shares is None:
        shares = {template: (count, total)}
    else:
        earlier_count, earlier_total = _shares.pop(template, (0, 0))
        shares = {template: (count + earlier_count, total + earlier_total)}
        if shares[template][1] < ITEMS_OF_WARNING:
            _shares.update(shares)
            return
    _warn_of(shares)


@contextlib.contextmanager
def adding_up_shares() -> Iterator[None]:
    """Add up the warnings of shares in the block: one for `ITEMS_OF_WARNING` items, and one at its end."""
    global _shares
    _shares = {}
    try:
        yield
    finally:
        shares, _shares = _shares, None
        _warn_of(shares)


def _warn_of(shares: dict[str, tuple[int, int]]) -> None:
    for template, (count, total) in shares.items():
        if count:
            warn(template.format(count, total))


def silence() -> None:
    """Print no more warnings of this process."""
    import logging

    logging.getLogger("capsule_mt").setLevel(logging.ERROR)


def shown(value: object) -> str:
    """Return at most 200 characters of a value for a message: a file may hold megabytes in one field."""
    try:
        text = repr(value[: MAX_SHOWN + 1] if isinstance(value, str) else value)
    except RecursionError:
        return f"a {type(value).__name__} that is nested too deeply"
    return text if len(text) <= MAX_SHOWN else f"{text[: MAX_SHOWN - 3]}..."
