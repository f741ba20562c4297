"""Warnings of the package, through the logger "capsule_mt", whose module is imported by the first one."""

_messages_logged: set[str] = set()


def warn(message: str) -> None:
    import logging

    logging.getLogger("capsule_mt").warning(message)


def warn_once(message: str) -> None:
    if message not in _messages_logged:
        _messages_logged.add(message)
        warn(message)
