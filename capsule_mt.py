"""The program `capsule-mt`: list the commands, or run one of them.

This file stands beside the package, because importing anything in the package imports torch, which takes seconds.
"""

import difflib
import sys
from importlib.metadata import version

COMMANDS = {
    "Start here": {
        "quickstart": "translate with a released model, then train two small ones in minutes",
        "doctor": "print versions, processor features and what each missing extra is for",
    },
    "Train": {
        "train": "train a model by a recipe, or resume a run that was killed",
        "recipes": "list the recipes, or print one with everything that it inherits",
        "distill": "translate a training set by a teacher (sequence-level distillation)",
        "average": "average the weights of several checkpoints",
    },
    "Translate": {
        "translate": "translate files and pipes of any size",
        "shortlist": "find out what each source word may become, to decode faster",
        "serve": "answer HTTP requests for translations, as LibreTranslate does",
        "demo": "serve a page that shows what was translated and what was left out",
    },
    "Evaluate": {
        "evaluate": "score translations: BLEU, chrF, TER, by length, adequacy",
        "compare": "compare systems: scores, significance tests, sentences that differ",
        "score": "score given translations by a model: log-probabilities and coverage",
        "calibrate": "make the coverage of a checkpoint a probability, by text with words dropped",
        "analyze": "show what the routings of a checkpoint do, in numbers and pictures",
    },
    "Publish": {
        "export": "write a checkpoint that loads without this package",
        "convert": "write ONNX, Marian or CTranslate2, or start capsules from Marian",
        "push": "publish a checkpoint and its model card on the hub",
    },
}
NAMES = [name for group in COMMANDS.values() for name in group]


def overview() -> str:
    """Return the help of the program: all commands in groups, one line each."""
    lines = ["usage: capsule-mt COMMAND [arguments]", "", "Translation models with capsule routing."]
    for title, group in COMMANDS.items():
        lines += ["", f"{title}:", *(f"  {name:<11} {summary}" for name, summary in group.items())]
    lines += [
        "",
        "`capsule-mt COMMAND --help` explains a command with an example. To begin: capsule-mt quickstart",
        "`capsule-mt --version` prints the version.",
    ]
    return "\n".join(lines)


def main() -> int:
    """Run the command that the command line names."""
    name = sys.argv[1] if len(sys.argv) > 1 else "--help"
    if name in ("-h", "--help", "help"):
        print(overview())
        return 0
    if name == "--version":
        print(f"capsule-mt {version('hf-capsule-mt')}")
        return 0
    if name not in NAMES:
        near = difflib.get_close_matches(name, NAMES, n=1)
        hint = f"did you mean `capsule-mt {near[0]}`?" if near else "`capsule-mt --help` lists them"
        print(f"capsule-mt: no command is called {name!r}; {hint}", file=sys.stderr)
        return 2
    try:
        from hf_capsule_mt.commands import start
    except KeyboardInterrupt:  # the import takes seconds
        print("capsule-mt: interrupted", file=sys.stderr)
        return 130

    sys.argv = [f"capsule-mt {name}", *sys.argv[2:]]
    start(name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
