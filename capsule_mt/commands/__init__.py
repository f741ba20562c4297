"""The program `capsule-mt`: list the commands, or run one of them.

Importing this module imports nothing else of the package: `--help` takes no time. Other distributions add commands by
entry points of the group "capsule_mt.commands": see `further_commands`.
"""

import os
import sys

GROUP = "capsule_mt.commands"
COMMANDS = {
    "translate": "translate files and pipes of any size",
    "score": "score given translations by a model: log-probabilities and coverage",
    "serve": "answer HTTP requests for translations, as LibreTranslate does, and a page",
    "models": "find, download and remove models by name",
    "calibrate": "make coverage a probability, by text with words dropped: marks for any model",
    "convert": "between Marian's files, such as Firefox', and others'; capsules on Marian",
    "doctor": "print versions and processor features, and what runs here",
}
USAGE = "usage: capsule-mt COMMAND [arguments]"
FOOTER = "`capsule-mt COMMAND --help` explains a command with an example."
is_program = False  # whether `main` runs: then other distributions import late what takes long


def further_commands() -> "dict[str, tuple[str, dict[str, str]]]":
    """Return the commands of other distributions by their title: the module that starts them, and a line for each.

    An entry point names a dictionary `{title: {command: summary}}`. Beside it in its module are the functions `start`,
    which runs a command, and `report`, which returns lines for `doctor`.
    """
    from importlib.metadata import entry_points

    found = {}
    for point in entry_points(group=GROUP):
        for title, commands in point.load().items():
            found[title] = (point.module, commands)
    return found


def overview() -> str:
    """Return the help of the program: all commands in groups, one line each."""
    lines = [USAGE, "", "Translate on a CPU, and see what was left out.", "", "Translate:"]
    lines += [f"  {name:<11} {summary}" for name, summary in COMMANDS.items()]
    for title, (_, commands) in further_commands().items():
        lines += ["", f"{title}:", *(f"  {name:<11} {summary}" for name, summary in commands.items())]
    return "\n".join([*lines, "", FOOTER])


def start(name: str) -> None:
    """Run one of the commands here with the arguments of the process."""
    import gc

    gc.set_threshold(100_000)  # what imports make is not garbage: looking through it takes a tenth of the start
    from capsule_mt.commands.console import run

    def main() -> "int | None":
        import importlib

        code: int | None = importlib.import_module(f"{__name__}.{name}").main()
        return code

    run(main, _explain)


def _explain(error: ImportError) -> "str | None":
    name = (error.name or "").partition(".")[0]
    extra = {"fastapi": "serve", "uvicorn": "serve", "numpy": "calibrate"}.get(name)
    return extra and f'{name} is not installed: pip install "./capsule_mt[{extra}]" in a clone'


def program() -> int:
    """Run `main`, and end the process without freeing its memory, which takes a twentieth of a short run."""
    code = main()
    if sys.argv[0].partition(" ")[2] not in COMMANDS:  # others may have more to do
        return code
    import atexit

    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    os._exit(code)


def main() -> int:
    """Run the command that the command line names; Ctrl-C while it is looked for and imported is one line, too."""
    try:
        return _run_named()
    except KeyboardInterrupt:
        from capsule_mt.commands.console import TRACEBACK

        if os.environ.get(TRACEBACK):
            raise
        print(f"{os.path.basename(sys.argv[0])}: interrupted", file=sys.stderr)
        return 130


def _run_named() -> int:
    global is_program
    is_program = True
    name = sys.argv[1] if len(sys.argv) > 1 else "--help"
    if name in ("-h", "--help", "help"):
        print(overview())
        return 0
    if name == "--version":
        from capsule_mt import __version__

        print(f"capsule-mt {__version__}")
        return 0
    sys.argv = [f"capsule-mt {name}", *sys.argv[2:]]
    if name in COMMANDS:
        start(name)
        return 0
    known = dict(COMMANDS)
    for module, commands in further_commands().values():
        if name in commands:
            import importlib

            importlib.import_module(module).start(name)
            return 0
        known |= commands
    import difflib

    near = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean `capsule-mt {near[0]}`?" if near else "`capsule-mt --help` lists them"
    print(f"capsule-mt: no command is called {name!r}; {hint}", file=sys.stderr)
    return 2
