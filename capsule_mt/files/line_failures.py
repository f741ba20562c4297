"""Translate lines together, and keep an error on one of them from costing the others."""

from collections.abc import Callable
from typing import NamedTuple, TypeVar, cast

Line = TypeVar("Line")
Result = TypeVar("Result")
# translated after an error: if it fails too, the error is not of the line
PROBE = "a"
LONGEST_REASON = 500
CODE_OF_FAILED_LINES = 3  # what a command exits with when it has done everything but some lines


class Failure(NamedTuple):
    """What stands in the place of a line's translation: why there is none."""

    reason: str


def translate_lines(
    translate: Callable[[list[Line]], list[Result]], lines: list[Line], probe: Line | None = None
) -> list[Result | Failure]:
    """Return the translations, with a `Failure` for each line that alone raises an error.

    A failed batch is halved until the lines are found. An error that every line raises, such as a wrong setting, is
    raised: `probe` is a line without fault, by default a text.
    """
    try:
        return list(translate(lines))
    except BaseException as error:
        if not is_of_line(error):
            raise
        failure = Failure(describe(error))
    # outside of the handler, which would keep the tensors of the failed batch in memory
    if len(lines) > 1:
        middle = len(lines) // 2
        halves = (lines[:middle], lines[middle:])
        return [result for half in halves for result in translate_lines(translate, half, probe)]
    translate([cast(Line, PROBE) if probe is None else probe])
    return [failure]


def describe(error: BaseException) -> str:
    """Return the kind and the message of an error on one line."""
    message = " ".join(str(error).split())
    return (f"{type(error).__name__}: {message}" if message else type(error).__name__)[:LONGEST_REASON]


def is_of_line(error: BaseException) -> bool:
    """Return whether the error may be of a line; a panic of the tokenizers is no `Exception`."""
    return isinstance(error, Exception) or type(error).__name__ == "PanicException"
