"""The commands of `capsule-mt` that this distribution adds, one file each. They are imported when they are called.

A command imports late what takes seconds: its help comes at once.
"""

import importlib
import os
import sys

COMMANDS = {
    "Train": {
        "quickstart": "train a plain and a capsule model in minutes, and translate with both",
        "train": "train a model by a recipe, or resume a run that was killed",
        "recipes": "list the recipes, or print one with everything that it inherits",
        "distill": "translate a training set with a teacher (sequence-level distillation)",
        "average": "average the weights of several checkpoints",
    },
    "Evaluate": {
        "evaluate": "score translations: BLEU, chrF, TER, by length, adequacy",
        "compare": "compare systems: scores, significance tests, sentences that differ",
        "analyze": "show the routings or the weights of layers of a checkpoint, in numbers and pictures",
        "shortlist": "list likely translations of each source word, to decode faster",
    },
    "Publish": {
        "export": "write a checkpoint that loads without this package",
        "push": "publish a checkpoint and its model card on the hub",
    },
}


def report() -> list[tuple[str, str]]:
    """Return a line for each extra, for `capsule-mt doctor`."""
    from hf_capsule_mt.extras import EXTRAS, install_line, missing_modules

    missing = {extra: ", ".join(missing_modules(extra)) for extra in EXTRAS}
    return [
        (
            f"extra {name}",
            f"{purpose}: {f'no {missing[name]}; {install_line(name)}' if missing[name] else 'installed'}",
        )
        for name, (purpose, _) in EXTRAS.items()
    ]


def start(name: str) -> None:
    """Run one command with the arguments of the process; `capsule-mt` and files in `scripts/` call this."""
    from capsule_mt.commands.console import run
    from hf_capsule_mt.extras import explain

    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    if sys.stderr is None or not sys.stderr.isatty():
        os.environ.setdefault("TQDM_DISABLE", "1")  # bars are for a terminal
    run(lambda: importlib.import_module(f"{__name__}.{name}").main(), lambda error: explain(error, name))
