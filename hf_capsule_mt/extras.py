"""The extras of the package: what each is for, and the message if one is not installed."""

import importlib.util
from typing import NamedTuple


class Extra(NamedTuple):
    """An extra of pyproject.toml: what it is for, and the modules that it installs."""

    purpose: str
    modules: tuple[str, ...]


EXTRAS = {
    "train": Extra("recipes, training, distillation, averaging", ("datasets", "yaml", "sacrebleu")),
    "eval": Extra("BLEU, chrF, TER and significance tests", ("evaluate", "sacrebleu")),
    "analysis": Extra("pictures", ("matplotlib",)),
    "peft": Extra("LoRA, and layer aggregation on any model", ("peft",)),
}
# the extra that a command needs; commands that are not here need the core alone
EXTRA_OF = {
    "train": "train",
    "recipes": "train",
    "distill": "train",
    "average": "train",
    "quickstart": "train",
    "evaluate": "eval",
    "compare": "eval",
    "analyze": "analysis",
}


def install_line(extra: str) -> str:
    return f'pip install ./capsule_mt ".[{extra}]" in a clone'


def missing_modules(extra: str) -> list[str]:
    """Return the modules of an extra that are not installed."""
    return [module for module in EXTRAS[extra].modules if importlib.util.find_spec(module) is None]


def explain(error: ImportError, command: str | None = None) -> str | None:
    """Return a message that names the extra with a missing module, or None if no extra has it."""
    module = (error.name or "").partition(".")[0]
    preferred = EXTRA_OF.get(command or "")
    for extra in sorted(EXTRAS, key=lambda name: name != preferred):
        if module in EXTRAS[extra].modules:
            return f"{module} is not installed; it comes with the extra `{extra}`: {install_line(extra)}"
    return None
