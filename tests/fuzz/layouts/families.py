"""The families of folders, each with what draws, writes and reads one."""

import os
import random
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from tests.fuzz.layouts import hub, marian
from tests.fuzz.layouts.reading import Reading
from tests.marian.judge import VARIABLE

Case = dict[str, Any]


class Family(NamedTuple):
    """What draws a case, writes its folder, and reads it: by us and by the program that it is made for."""

    make: Callable[[random.Random], Case]
    write: Callable[[Case, Path], None]
    read_ours: Callable[[Case, Path], Reading]
    read_theirs: Callable[[Case, Path], Reading]


FAMILIES: dict[str, Family] = {
    name: Family(partial(hub.make, name), hub.write, hub.read_ours, hub.read_theirs) for name in hub.families()
}
if VARIABLE in os.environ:  # the Python that has pymarian
    FAMILIES["marian"] = Family(marian.make, marian.write, marian.read_ours, marian.read_theirs)
