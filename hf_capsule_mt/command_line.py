"""What the scripts share: a help with the defaults, errors of whoever typed the command on one line, memory."""

import argparse
import ctypes
import os
import re
import select
import sys
from collections.abc import Callable
from pathlib import Path

TRACEBACK = "HF_CAPSULE_MT_TRACEBACK"
CODE_OF_SIGPIPE = 141  # with which a shell reports a command that a closed pipe has ended
KEEP_EVERYTHING = {-3: 2**30, -1: 2**31 - 1}  # M_MMAP_THRESHOLD and M_TRIM_THRESHOLD of malloc.h, in bytes


class HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """Keeps the lines of the description, and ends each option that has a default with it."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        text, default = action.help or "", action.default
        nothing = default is None or default is False or default in ([], "", argparse.SUPPRESS)
        if nothing or not action.option_strings or "default:" in text:
            return text
        shown = " ".join(map(str, default)) if isinstance(default, (list, tuple)) else str(default)
        return f"{text} (default: {shown.replace('%', '%%')})"


def run(main: Callable[[], int | None]) -> None:
    """Calls a script's `main` and exits with its code. What is wrong with the input is said without a traceback."""
    try:
        code = main()
        sys.stdout.flush()
    except BrokenPipeError:
        if not _reader_is_gone():
            raise
        raise SystemExit(CODE_OF_SIGPIPE) from None
    except (ArithmeticError, ImportError, OSError, TypeError, ValueError) as error:
        if os.environ.get(TRACEBACK):
            raise
        name = Path(sys.argv[0]).name
        message = " ".join(str(error).split()) or type(error).__name__
        raise SystemExit(f"{name}: error: {message}\n{TRACEBACK}=1 in the environment shows where.") from None
    if code:
        raise SystemExit(code)


def _reader_is_gone() -> bool:
    """Whether stdout is a pipe that nobody reads any more, as after `| head`; then nothing is written to it again."""
    try:
        stdout, poll = sys.stdout.fileno(), select.poll()
    except (AttributeError, OSError):  # Windows, a notebook
        return False
    poll.register(stdout, select.POLLOUT)
    gone = any(event & select.POLLERR for _, event in poll.poll(0))
    if gone:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stdout)
    return gone


def keep_freed_memory() -> bool:
    """Lets the C library keep what is freed for the tensors to come, where it is glibc; returns whether it does.

    Every step of a training frees what the next one asks for. glibc gives large blocks back to the system, and takes a
    page fault for each page of what it asks for anew: docs/training.md has what that costs.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # macOS, musl; Windows
        return False
    return all(mallopt(option, value) for option, value in KEEP_EVERYTHING.items())


def folder(text: str) -> Path:
    """An `argparse` type: a folder that exists."""
    if not Path(text).is_dir():
        raise argparse.ArgumentTypeError(f"{text}: no such folder")
    return Path(text)


def checkpoint_folder(text: str) -> Path:
    """An `argparse` type: a folder that a model has been saved to."""
    if not (folder(text) / "config.json").is_file():
        raise argparse.ArgumentTypeError(f"{text}: no checkpoint, which is a folder with a config.json")
    return Path(text)


def checkpoint(text: str) -> str:
    """An `argparse` type: a folder that a model has been saved to, or a name on the hub."""
    if Path(text).exists():
        return str(checkpoint_folder(text))
    if re.fullmatch(r"[\w-][\w.-]*(/[\w-][\w.-]*)?", text) is None:
        raise argparse.ArgumentTypeError(f"{text}: no such folder, and no name on the hub, which is owner/name")
    print(f"{text}: no such folder here, so it is looked for on the hub", file=sys.stderr)
    return text


def positive(text: str) -> int:
    """An `argparse` type: a whole number of at least 1."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number of at least 1, got {text}")
    return int(text)
