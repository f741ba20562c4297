"""Files of models that are built to be hostile, of tests/hostile: a file of one builder in a sound folder."""

import random
import tempfile
from pathlib import Path
from typing import Any

from capsule_mt.engine.program import UnsupportedModelError
from capsule_mt.models.loading import load_model
from capsule_mt.models.weights import CheckpointError
from tests.hostile.builders import FILES, write_hostile

Case = dict[str, Any]
SIZES = (0, 1, 2, 5, 17, 65, 300, 5000, 70_000)


def make_stranger(generator: random.Random) -> Case:
    kind = generator.choice(sorted(FILES))
    return {"kind": kind, "builder": generator.choice(sorted(FILES[kind][2])), "size": generator.choice(SIZES)}


def check_stranger(case: Case) -> None:
    """The model loads, or one sentence names its folder."""
    with tempfile.TemporaryDirectory() as parent:
        folder = Path(parent) / "model"
        write_hostile(case["kind"], case["builder"], case["size"], folder)
        try:
            load_model(folder, shortlist=case["kind"] in ("shortlist", "candidates"))
        except (CheckpointError, UnsupportedModelError) as error:
            message = str(error)
        else:
            return
    assert str(folder) in message or "is not supported by the engine" in message, message
    assert len(message) < 800, message
