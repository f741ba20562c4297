"""The commands of `capsule-mt`, one file each. They are imported when they are called."""

import importlib
import os

from capsule_mt.commands.console import run


def start(name: str) -> None:
    """Run one command with the arguments of the process; `capsule-mt` and the files in `scripts/` call this."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    run(lambda: importlib.import_module(f"{__name__}.{name}").main(), name)
