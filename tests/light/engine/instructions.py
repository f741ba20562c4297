"""Count the instructions that the engine takes for a token, which no other work on a machine changes.

python -m tests.light.engine.instructions        # write instructions.json anew, after a change that is meant
"""

import json
import re
import shutil
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

from capsule_mt.engine.build import TARGETS, this_platform
from capsule_mt.engine.search import SearchOptions
from capsule_mt.models.loading import load_model
from tests.light.engine.drivers import ZIG, EmulatedLibrary, build_whole

TABLE = Path(__file__).with_suffix(".json")
MODEL = Path(__file__).parents[3] / "checkpoints/capsule-marian-de-en"
PLATFORM = "x86_64-linux"
LENGTHS = 4, 12  # of translations: what is before the first token is in both counts
SOURCE = list(range(100, 110))


class Cell(NamedTuple):
    """What is counted; valgrind runs no tier above avx2."""

    tier: str
    int8: bool
    batch: int
    beams: int


CELLS = {
    "avx2, int8, batch 1, greedy": Cell("avx2", True, 1, 1),
    "avx2, int8, batch 1, beam 4": Cell("avx2", True, 1, 4),
    "avx2, int8, batch 16, greedy": Cell("avx2", True, 16, 1),
    "avx2, float32, batch 1, greedy": Cell("avx2", False, 1, 1),
    "portable, int8, batch 1, greedy": Cell("portable", True, 1, 1),
}


class CountedLibrary(EmulatedLibrary):
    """An engine under valgrind."""

    def __init__(self, program: Path, folder: Path) -> None:
        self.log = folder / "log"
        valgrind = ["valgrind", "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null"]
        super().__init__([*valgrind, f"--log-file={self.log}", str(program)], folder)

    def engine_count_invalid(self, *_: int) -> int:
        return 0

    @property
    def instructions(self) -> int:
        """Those of the last call."""
        return int(re.findall(r"I +refs: +([\d,]+)", self.log.read_text())[0].replace(",", ""))


def build_program(folder: Path) -> Path:
    """Compile the engine as `capsule_mt.engine.build` does, with the program that replays calls."""
    return build_whole("replay.c", folder, PLATFORM, [*ZIG, "-target", TARGETS[PLATFORM].zig])


def missing() -> str | None:
    """Return what keeps this machine from counting as the one of the table, if anything does."""
    pinned = read_table()["ziglang"]
    if this_platform() != PLATFORM:
        return f"counted on {PLATFORM}"
    if shutil.which("valgrind") is None:
        return "valgrind counts: apt install valgrind"
    return None if version("ziglang") == pinned else f"ziglang {pinned} compiled what the table counted"


def read_table() -> dict[str, dict[str, int]]:
    return json.loads(TABLE.read_text())


def instructions_per_token(cell: Cell, program: Path, folder: Path) -> int:
    library = CountedLibrary(program, folder)
    counts = []
    with (
        patch("capsule_mt.engine.library.load_library", lambda: library),
        patch.dict("os.environ", {"HF_CAPSULE_MT_TIER": cell.tier, "OMP_NUM_THREADS": "1"}),
    ):
        model = load_model(MODEL, int8=cell.int8)
        for length in LENGTHS:
            options = SearchOptions([length] * cell.batch, num_beams=cell.beams, suppress_tokens=[model.end])
            results = model.decoder.translate([SOURCE] * cell.batch, options)
            assert all(len(best.ids) == length for (best,) in results)
            counts.append(library.instructions)
    return (counts[1] - counts[0]) // (cell.batch * (LENGTHS[1] - LENGTHS[0]))


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        program = build_program(folder)
        counted = {title: instructions_per_token(cell, program, folder) for title, cell in CELLS.items()}
    TABLE.write_text(json.dumps({"ziglang": version("ziglang"), "instructions_per_token": counted}, indent=2) + "\n")
    print(TABLE.read_text())


if __name__ == "__main__":
    main()
