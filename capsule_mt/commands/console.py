"""Shared by all commands: help with defaults, short errors, types of arguments."""

import argparse
import contextlib
import functools
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NoReturn

from capsule_mt.options.table import Option, offered

if TYPE_CHECKING:
    from pathlib import Path

TRACEBACK = "HF_CAPSULE_MT_TRACEBACK"
CODE_OF_SIGPIPE = 141  # what a shell reports when a closed pipe ends a command
CODE_OF_SIGINT = 130
CODE_OF_USAGE = 2
print_help: "Callable[[argparse.ArgumentParser], None] | None" = None  # what `--help` does instead, for completion


class HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """Keep the lines of the description, and show the default of each option that has one."""

    def __init__(self, prog: str, **settings: Any) -> None:
        super().__init__(prog, **{"width": _columns() - 2, **settings})

    def _get_help_string(self, action: argparse.Action) -> str | None:
        text, default = action.help or "", action.default
        has_default = default is not None and default is not False and default not in ([], "", argparse.SUPPRESS)
        if not has_default or not action.option_strings or "default:" in text:
            return text
        shown = " ".join(map(str, default)) if isinstance(default, (list, tuple)) else str(default)
        return f"{text} (default: {shown.replace('%', '%%')})"


@functools.cache
def _columns() -> int:
    """Return the terminal's width as `shutil` does; importing that takes longer than building the parser."""
    try:
        return int(os.environ.get("COLUMNS", 0)) or os.get_terminal_size(sys.__stdout__.fileno()).columns  # type: ignore[union-attr]
    except (AttributeError, ValueError, OSError):
        return 80


class CommandParser(argparse.ArgumentParser):
    """A parser that shows defaults in its help, and errors without the usage of all options before them.

    value_tests: for each option with an optional value, whether the next argument is its value.
    advice: what to write instead of an option that another program has.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(formatter_class=HelpFormatter, allow_abbrev=False, **settings)
        self.value_tests: dict[str, Callable[[str], bool]] = {}
        self.advice: Mapping[str, str] = {}

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        arguments, unknown = self.parse_known_args(args, namespace)
        if unknown:
            self._refuse(unknown, arguments)
        return arguments

    def parse_intermixed_args(self, args: Any = None, namespace: Any = None) -> Any:
        arguments, unknown = self.parse_known_intermixed_args(args, namespace)
        if unknown:
            self._refuse(unknown, arguments)
        return arguments

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        return super().parse_known_args(self._without_values(args), namespace)

    def parse_known_intermixed_args(self, args: Any = None, namespace: Any = None) -> Any:
        return super().parse_known_intermixed_args(self._without_values(args), namespace)

    def _without_values(self, arguments: Iterable[str] | None) -> list[str]:
        """Write `--option=` where an option has no value, so that argparse does not take the next argument for it."""
        arguments = list(sys.argv[1:] if arguments is None else arguments)
        for index, (option, following) in enumerate(pairwise(arguments)):
            is_value = self.value_tests.get(option)
            if is_value is not None and not is_value(following):
                arguments[index] = f"{option}="
        return arguments

    def _refuse(self, unknown: list[str], arguments: argparse.Namespace) -> NoReturn:
        """Refuse unknown arguments, and suggest the options that they resemble."""
        import difflib  # late: this is an error

        options, similar = self._options_of(arguments), []
        for argument in unknown:
            name = argument.partition("=")[0]
            if name in self.advice:
                self.error(f"unrecognized arguments: {' '.join(unknown)}; {self.advice[name]}")
            similar += difflib.get_close_matches(name, options, n=1) if name.startswith("-") else []
        hint = f"; did you mean {', '.join(f'`{option}`' for option in similar)}?" if similar else ""
        if not any(argument.startswith("-") for argument in unknown):
            hint = self._example()
        self.error(f"unrecognized arguments: {' '.join(unknown)}{hint}")

    def _example(self, arguments: str = ".*? --.*?") -> str:
        """Return the command's first example of the help as a hint, if it has options: they say what arguments are.

        arguments: the pattern of what follows the command's name.
        """
        import re  # late: this is an error

        command = f"capsule-mt {self.prog.rpartition(' ')[2].removesuffix('.py')}"
        example = re.search(rf"(?m)^ +({command}{arguments})(?:  +#.*)?$", self.description or "")
        return f"; for example: `{example[1]}`" if example else ""

    def _options_of(self, arguments: argparse.Namespace) -> list[str]:
        """Return the options of this parser, and of the action that the arguments name, such as `models search`."""
        options = list(self._option_string_actions)
        for action in self._actions:
            if isinstance(action, argparse._SubParsersAction):
                chosen = action.choices.get(getattr(arguments, action.dest))
                options += [] if chosen is None else chosen._option_string_actions
        return options

    def print_help(self, file: Any = None) -> None:
        if print_help is None:
            super().print_help(file)
        else:
            print_help(self)

    def error(self, message: str) -> NoReturn:
        if message.startswith("the following arguments are required"):
            message += self._example() or self._example(" .+?")
        self.exit(CODE_OF_USAGE, f"{self.prog}: error: {message}\n`{self.prog} --help` lists the arguments.\n")


def run(main: Callable[[], int | None], explain: Callable[[ImportError], str | None] | None = None) -> None:
    """Call the `main` of a command; exit with its code unless it is 0. Expected errors and Ctrl-C are a line each.

    Args:
        explain: return a message for a missing module, or `None` to keep Python's.
    """
    hint: str | None = None
    try:
        code = main()
        if sys.stdout is not None:  # None if it was closed before the start
            sys.stdout.flush()
    except KeyboardInterrupt as interrupt:
        if os.environ.get(TRACEBACK):
            raise
        import signal  # late: a run without errors does not need it

        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second one would print a traceback
        code, hint = CODE_OF_SIGINT, str(interrupt)
    except BrokenPipeError:
        if not _has_lost_reader():
            raise
        raise SystemExit(CODE_OF_SIGPIPE) from None
    except Exception as error:
        if os.environ.get(TRACEBACK) or not _is_expected(error):
            raise
        _drop_unwritten_output()
        name = os.path.basename(sys.argv[0])
        install = explain(error) if explain is not None and isinstance(error, ImportError) else None
        if install is not None:
            raise SystemExit(f"{name}: {install}") from None
        message = " ".join(str(error).split()) or type(error).__name__
        if _is_out_of_memory(error):
            message = f"out of memory ({message})"
        raise SystemExit(f"{name}: error: {message}") from None
    if hint is not None:  # after the handler: the exception in it keeps progress bars open
        _drop_unwritten_output()
        if int(os.environ.get("LOCAL_RANK", 0)) == 0:
            print(f"{os.path.basename(sys.argv[0])}: interrupted{hint and f'; {hint}'}", file=sys.stderr)
    if code:
        raise SystemExit(code)


@contextlib.contextmanager
def resumable() -> Iterator[None]:
    """Make `run` print after Ctrl-C that the same command resumes. Also a decorator."""
    try:
        yield
    except KeyboardInterrupt as interrupt:
        raise KeyboardInterrupt("the same command resumes") from interrupt


def _has_lost_reader() -> bool:
    """Return whether stdout is a pipe without a reader, as after `| head`; if so, silence it."""
    import select

    try:
        stdout, poll = sys.stdout.fileno(), select.poll()
    except (AttributeError, OSError):  # Windows, a notebook
        return False
    poll.register(stdout, select.POLLOUT)
    has_lost_reader = any(event & select.POLLERR for _, event in poll.poll(0))
    if has_lost_reader:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stdout)
    return has_lost_reader


def _is_expected(error: Exception) -> bool:
    """Return whether an error comes from the input or the machine, so that its message is enough."""
    kinds = (ArithmeticError, EOFError, ImportError, OSError, TypeError, ValueError)
    return isinstance(error, kinds) or _is_out_of_memory(error)


def _is_out_of_memory(error: Exception) -> bool:
    """Return whether memory ran out in Python, numpy or PyTorch, which raises RuntimeError on a CPU."""
    if isinstance(error, RuntimeError):
        return any(phrase in str(error) for phrase in ("can't allocate memory", "not enough memory", "out of memory"))
    return isinstance(error, MemoryError)


def _drop_unwritten_output() -> None:
    """Drop output that stdout does not take, say on a full disk: the interpreter would raise at its end."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def add_languages(parser: "argparse._ActionsContainer") -> None:
    parser.add_argument("--src-lang", help="the language of the sources, for models of several languages")
    parser.add_argument("--tgt-lang", help="the language of the translations, for models of several languages")


def add_search(parser: "argparse._ActionsContainer") -> None:
    """Add the flags of the table of options; without one, the checkpoint's value holds."""
    for option in offered("flag"):
        parser.add_argument(option.flag, type=_option_type(option), metavar="N", help=option.help)


def _option_type(option: Option) -> Callable[[str], int | float]:
    """Return an `argparse` type: a value of this option."""

    def parse(text: str) -> int | float:
        try:
            return option.parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return parse


def file_path(text: str) -> "Path":
    """An `argparse` type: the path of a file."""
    from pathlib import Path  # late: importing it takes 4 ms, and many runs name no file

    return Path(text)


def check_folder(text: str) -> None:
    """Refuse what is not a folder, as an `argparse` type does."""
    if not os.path.isdir(text):
        from capsule_mt.catalog.entries import no_such_folder  # late: this is an error

        is_file = os.path.exists(text)
        raise argparse.ArgumentTypeError(f"{text}: is a file, not a folder" if is_file else no_such_folder(text))


def folder(text: str) -> "Path":
    """An `argparse` type: a folder that exists."""
    check_folder(text)
    return file_path(text)


def new_folder(text: str) -> "Path":
    """An `argparse` type: a folder to write, which is new or empty."""
    from capsule_mt.files.outputs import check_new_folder  # late: most commands write no folder

    try:
        check_new_folder(path := file_path(text))
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return path


def checkpoint_folder(text: str) -> "Path":
    """An `argparse` type: a folder with a saved model, or with an adapter and the name of its model."""
    if not (folder(text) / "config.json").is_file():
        from capsule_mt.models.loading import conversion_advice, is_adapter  # late: most folders have a model

        if not is_adapter(text):
            raise argparse.ArgumentTypeError(
                f"{text}: not a checkpoint (a folder with a config.json){conversion_advice(text)}"
            )
    return file_path(text)


def at_least(minimum: int) -> Callable[[str], int]:
    """Return an `argparse` type: a whole number from `minimum` on."""

    def parse(text: str) -> int:
        if not text.isdecimal() or int(text) < minimum:
            raise argparse.ArgumentTypeError(f"must be a whole number of at least {minimum}, got {text}")
        return int(text)

    return parse


positive = at_least(1)
