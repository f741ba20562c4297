"""Warnings of the package, through the logger "capsule_mt", whose module is imported at the first of them."""

_messages_given: set[str] = set()


def warn(message: str) -> None:
    import logging

    logging.getLogger("capsule_mt").warning(message)


def warn_once(message: str) -> None:
    if message not in _messages_given:
        _messages_given.add(message)
        warn(message)
