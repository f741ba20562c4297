"""Translate lines together, so that an error on one line does not cost the others."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar, cast

from capsule_mt.messages import LineError

Line = TypeVar("Line")
Result = TypeVar("Result")
PROBE = "a"
MAX_REASON = 500  # characters
FAILED_LINES_STATUS = 3  # exit status of a command that has finished, but could not translate every line


class Failure(NamedTuple):
    """The result of a line that could not be translated.

    record: what is known about it nevertheless, such as the model's score of a pair that a judge refuses.
    """

    reason: str
    record: Mapping[str, Any] = {}


def translate_lines(
    translate: Callable[[list[Line]], list[Result]], lines: list[Line], probe: Line | None = None
) -> list[Result | Failure]:
    """Return the translations, with a `Failure` for each line that raises an error.

    A failed batch is halved until the failing lines are isolated. For each of these the `probe` is translated, too,
    except after a `LineError`: if it fails, the fault is not in the line but in a setting, say, and the probe's error
    is raised.

    probe: a line that is certain to be translatable; by default the text `PROBE`.
    """
    try:
        return list(translate(lines))
    except BaseException as error:
        if not may_be_line_error(error):
            raise
        failure, is_of_line = Failure(describe(error)), isinstance(error, LineError)
    # outside the handler, which would keep the failed batch's tensors in memory
    if len(lines) > 1:
        middle = len(lines) // 2
        halves = (lines[:middle], lines[middle:])
        return [result for half in halves for result in translate_lines(translate, half, probe)]
    if not is_of_line:
        translate([cast(Line, PROBE) if probe is None else probe])
    return [failure]


def describe(error: BaseException) -> str:
    """Return the kind and the message of an error on one line."""
    message = " ".join(str(error).split())
    return (f"{type(error).__name__}: {message}" if message else type(error).__name__)[:MAX_REASON]


def may_be_line_error(error: BaseException) -> bool:
    """Return whether a line may have caused the error; a panic of the tokenizers is not an `Exception`."""
    return isinstance(error, Exception) or type(error).__name__ == "PanicException"
