"""Warnings through the logger "capsule_mt", whose module the first one imports, and values as messages show them."""

MAX_SHOWN = 200  # characters of a value in a message

_messages_logged: set[str] = set()


def warn(message: str) -> None:
    import logging

    logging.getLogger("capsule_mt").warning(message)


def warn_once(message: str) -> None:
    if message not in _messages_logged:
        _messages_logged.add(message)
        warn(message)


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
