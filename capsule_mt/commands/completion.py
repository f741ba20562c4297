"""Complete commands, options and names of models in a shell, by its Tab key.

    eval "$(capsule-mt completion bash)"                  # in ~/.bashrc
    eval "$(capsule-mt completion zsh)"                   # in ~/.zshrc, after compinit
    capsule-mt completion fish | source                   # in ~/.config/fish/config.fish

The shell then calls `capsule-mt completion candidates WORD ...`, which prints what the last word may become, one
candidate a line. If it does not print any, as for files, the shell completes as usual.
"""

import argparse
import sys
from collections.abc import Iterator
from typing import NoReturn

from capsule_mt.commands import COMMANDS, console, further_commands
from capsule_mt.commands.console import CommandParser

BASH = """\
_capsule_mt() {
    local IFS=$'\\n'
    COMPREPLY=($(capsule-mt completion candidates "${COMP_WORDS[@]:1:$COMP_CWORD}" 2>/dev/null))
}
complete -o default -F _capsule_mt capsule-mt
"""
SCRIPTS = {
    "bash": BASH,
    "zsh": f"autoload -U +X bashcompinit && bashcompinit\n{BASH}",
    "fish": "complete -c capsule-mt -a "
    "'(capsule-mt completion candidates (commandline -opc)[2..-1] (commandline -ct) 2>/dev/null)'\n",
}
CANDIDATES = "candidates"
MODELS = ("model", "checkpoints", "names", "reverse")  # arguments that name a model


class _ParserError(Exception):
    """Carries a command's parser out of the command, instead of printing its help."""

    def __init__(self, parser: argparse.ArgumentParser) -> None:
        self.parser = parser


def main() -> None:
    if sys.argv[1:2] == [CANDIDATES]:
        print(*candidates(sys.argv[2:]), sep="\n")
        return
    parser = CommandParser(description=__doc__)
    names = "{" + ",".join(SCRIPTS) + "}"  # the error of a missing argument has its metavar
    parser.add_argument("shell", choices=tuple(SCRIPTS), metavar=names, help="the shell whose script is printed")
    print(SCRIPTS[parser.parse_args().shell], end="")


def candidates(words: list[str]) -> list[str]:
    """Return what the last word may become."""
    *earlier, prefix = words or [""]
    # bash cuts `--option=value` into three words
    earlier, prefix = [word for word in earlier if word != "="], prefix.removeprefix("=")
    names = {**COMMANDS, **{name: "" for _, names in further_commands().values() for name in names}}
    if not earlier or earlier == ["help"]:
        completions = [*names, *(() if earlier else ("help", "--help", "--version"))]
    else:
        parser = _parser_of(earlier[0]) if earlier[0] in names else None
        completions = [] if parser is None else list(_candidates_of(parser, earlier[1:], prefix))
    return [name for name in completions if name.startswith(prefix)]


def _parser_of(command: str) -> argparse.ArgumentParser | None:
    """Return the parser of a command, which raises it instead of printing `--help`: nothing else of it runs."""
    import importlib

    modules = {name: module for module, names in further_commands().values() for name in names}
    sys.argv = [f"capsule-mt {command}", "--help"]
    console.print_help = _raise_parser
    try:
        importlib.import_module(f"{modules.get(command, 'capsule_mt.commands')}.{command}").main()
    except _ParserError as error:
        return error.parser
    except (ImportError, SystemExit):  # torch is not installed; another kind of parser
        return None
    return None


def _raise_parser(parser: argparse.ArgumentParser) -> NoReturn:
    raise _ParserError(parser)


def _candidates_of(parser: argparse.ArgumentParser, earlier: list[str], prefix: str) -> Iterator[str]:
    """Yield what may follow the earlier words of a command."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            chosen = next((word for word in earlier if word in action.choices), None)
            if chosen is not None:
                yield from _candidates_of(action.choices[chosen], earlier[earlier.index(chosen) + 1 :], prefix)
                return
    previous = parser._option_string_actions.get(earlier[-1]) if earlier else None
    if previous is not None and previous.nargs != 0:
        yield from _values_of(previous)
    elif prefix.startswith("-"):
        yield from (name for action in parser._actions for name in action.option_strings)
    else:
        for action in parser._actions:
            if not action.option_strings:
                yield from _values_of(action)


def _values_of(action: argparse.Action) -> Iterator[str]:
    if action.choices is not None:
        yield from map(str, action.choices)
    elif action.dest in MODELS:
        from capsule_mt.catalog.store import downloaded_models

        yield from (model.name for model in downloaded_models())
