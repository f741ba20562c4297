"""The result of a rule: a fault."""

from dataclasses import dataclass
from typing import Literal

CheckKind = Literal[
    "numbers",
    "months",
    "weekdays",
    "names",
    "signs",
    "placeholders",
    "tags",
    "urls",
    "end",
    "doubled",
    "untranslated",
    "brackets",
    "negation",
    "sentences",
]


@dataclass(frozen=True)
class Check:
    """A fault that a rule finds: the translation lacks `missing`, or has `added`, which the source lacks.

    If the `kind` is "end", `missing` and `added` are the final marks of source and translation. If it is
    "untranslated", `missing` is the text that stayed in the source language. If it is "sentences", they are the
    numbers of sentences of source and translation, of which the longer text has more. If it is "names", the name
    `missing` became `added`. If it is "numbers" and both are given, two numbers change places, and they are the
    phrases from one to the other.
    """

    kind: CheckKind
    missing: str
    added: str
