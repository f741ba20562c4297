"""The program `capsule-mt`: list the commands, or run one of them.

Importing this module imports no other room of the package, so `--help` is fast. Other distributions add commands by
entry points of the group "capsule_mt.commands": see `further_commands`.
"""

import os
import sys

GROUP = "capsule_mt.commands"
COMMANDS = {
    "translate": "translate texts, files and pipes",
    "score": "score existing translations with a model: log-probabilities and coverage",
    "serve": "run a translation server with LibreTranslate's API and a page",
    "models": "find, download and remove models by name",
    "calibrate": "calibrate coverage: marks for any model, and scores that are probabilities",
    "convert": "convert a model: files of Marian and transformers, fewer bits, the browser",
    "doctor": "print versions, processor features, and what runs here",
    "completion": "print the script that completes commands and options in a shell",
}
# what hf-capsule-mt adds: the program names it to a user who does not have it
HF_COMMANDS = (
    *("quickstart", "train", "recipes", "distill", "average"),
    *("evaluate", "compare", "analyze", "shortlist", "export", "push"),
)
HF_INSTALL = "in a clone, `pip install ./capsule_mt .` adds hf-capsule-mt"
USAGE = "usage: capsule-mt COMMAND [arguments]"
FOOTER = "`capsule-mt help COMMAND` explains a command with examples; `capsule-mt -V` prints the version."
is_program = False  # True once `main` runs: other distributions then postpone slow imports


def further_commands() -> "dict[str, tuple[str, dict[str, str]]]":
    """Return the commands of other distributions, by group title: a module, and a summary of each command.

    An entry point names a dictionary `{title: {command: summary}}`. Its module also has the functions `start`, which
    runs a command, and `report`, which returns lines for `doctor`.
    """
    from importlib.metadata import entry_points

    commands_by_title = {}
    for point in entry_points(group=GROUP):
        for title, commands in point.load().items():
            commands_by_title[title] = (point.module, commands)
    return commands_by_title


def overview() -> str:
    """Return the help of the program: one line for each command, in groups."""
    lines = [USAGE, "", "Translate on a CPU, and see what was left out.", "", "Translate:"]
    lines += [f"  {name:<11} {summary}" for name, summary in COMMANDS.items()]
    for title, (_, commands) in further_commands().items():
        lines += ["", f"{title}:", *(f"  {name:<11} {summary}" for name, summary in commands.items())]
    return "\n".join([*lines, "", FOOTER])


def start(name: str) -> None:
    """Run one of `COMMANDS` with the arguments of the process."""
    import gc

    gc.set_threshold(100_000)  # imports leave little garbage, and looking for it takes a tenth of the start
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
    """Run `main`; after one of `COMMANDS`, exit without freeing memory, which takes time."""
    code = main()
    if sys.argv[0].partition(" ")[2] not in COMMANDS:  # another distribution's command may need a normal exit
        return code
    import atexit

    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    os._exit(code)


def main() -> int:
    """Run the command that the command line names. Ctrl-C during its import prints one line, too."""
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
    if name == "help" and len(sys.argv) > 2:
        name, sys.argv[1:] = sys.argv[2], [sys.argv[2], "--help"]
    if name in ("-h", "--help", "help"):
        from capsule_mt.commands.console import run

        run(lambda: print(overview()))  # it may be piped into `head`
        return 0
    if name in ("-V", "--version"):
        from capsule_mt import __version__

        print(f"capsule-mt {__version__}")
        return 0
    sys.argv = [f"capsule-mt {name}", *sys.argv[2:]]
    if name in COMMANDS:
        start(name)
        return 0
    summaries = dict(COMMANDS)
    for module, commands in further_commands().values():
        if name in commands:
            import importlib

            importlib.import_module(module).start(name)
            return 0
        summaries |= commands
    if name in HF_COMMANDS:
        print(
            f"capsule-mt: {name!r} is a command of hf-capsule-mt, which is not installed; {HF_INSTALL}",
            file=sys.stderr,
        )
        return 2
    import difflib

    similar = difflib.get_close_matches(name, [*summaries, *HF_COMMANDS], n=1)
    hint = f"did you mean `capsule-mt {similar[0]}`?" if similar else "`capsule-mt --help` lists them"
    print(f"capsule-mt: no command is called {name!r}; {hint}", file=sys.stderr)
    return 2
