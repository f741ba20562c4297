"""The families of folders, each with what draws, writes and reads one."""

import os
import random
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from tests.ctranslate2.judge import VARIABLE as CTRANSLATE2
from tests.fuzz.layouts import ctranslate2, hub, marian
from tests.fuzz.layouts.reading import Reading
from tests.marian.judge import VARIABLE as PYMARIAN

Case = dict[str, Any]


class Family(NamedTuple):
    """What draws a case, writes its folder, and reads it: by us and by the program that it is made for.

    rank: the score that the program's own search maximises, if it is not the same search as ours.
    """

    make: Callable[[random.Random], Case]
    write: Callable[[Case, Path], None]
    read_ours: Callable[[Case, Path], Reading]
    read_theirs: Callable[[Case, Path], Reading]
    rank: Callable[[Case, list[float]], float] | None = None


FAMILIES: dict[str, Family] = {
    name: Family(partial(hub.make, name), hub.write, hub.read_ours, hub.read_theirs) for name in hub.families()
}
VARIABLES = {"marian": PYMARIAN, "ctranslate2": CTRANSLATE2}  # of the environment: where the judges are
if PYMARIAN in os.environ:
    FAMILIES["marian"] = Family(marian.make, marian.write, marian.read_ours, marian.read_theirs, marian.rank)
if CTRANSLATE2 in os.environ:
    FAMILIES["ctranslate2"] = Family(
        ctranslate2.make, ctranslate2.write, ctranslate2.read_ours, ctranslate2.read_theirs
    )
