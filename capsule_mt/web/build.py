"""Build the npm package: compile the engine to WebAssembly with clang from PyPI (`ziglang`).

    python -m capsule_mt.web.build

It writes two modules, interface.js and LICENSE beside the JavaScript; `npm pack capsule_mt/web` makes the package.
"""

import json
import shutil
import sys
import tempfile
from pathlib import Path

from capsule_mt.engine.build import SOURCES, run_side_by_side
from capsule_mt.engine.library import EARLY_STOPPING, MOST_SLOTS, REQUEST_FIELDS, TYPES, VERSION
from capsule_mt.engine.program import operations

FOLDER = Path(__file__).parent
# A page loads one: the second where its product of bytes is exact (engine.js); floats are rounded as in the first
MODULES: dict[str, tuple[str, ...]] = {
    "engine.wasm": (),
    "engine.relaxed.wasm": ("-mrelaxed-simd", "-ffp-contract=off"),
}
INTERFACE = "interface.js"
TARGET = ("-target", "wasm32-wasi")
FLAGS = (
    *("-Os", "-DNDEBUG", "-std=gnu11", "-fno-math-errno", "-fvisibility=hidden", "-msimd128"),
    *(f"-I{SOURCES}", "-include", str(FOLDER / "native" / "library.h")),
)
# what JavaScript calls
EXPORTS = (
    *("malloc", "free", "engine_version", "engine_error", "engine_new", "engine_add_linear", "engine_pack"),
    *("engine_add_vector", "engine_add_table", "engine_add_packed_table", "engine_add_positions", "engine_add_buffer"),
    *("engine_set_programs", "engine_translate"),
)
STACK = 1 << 20


def build(output: Path) -> None:
    """Compile the engine into a folder: its modules, and what JavaScript has to know of their interface."""
    compiler = [sys.executable, "-m", "ziglang", "cc", *TARGET]
    sources = {path.stem: path for folder in (SOURCES, FOLDER / "native") for path in sorted(folder.glob("*.c"))}
    kernels = sources.pop("kernels")
    tier = ("-O3", "-DTIER=simd128", "-DTIER_SIMD128")  # of the products; other code is small, and quick to load
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        jobs: list[tuple[str, Path, tuple[str, ...]]] = [(stem, source, ()) for stem, source in sources.items()]
        jobs += [(module, kernels, (*tier, *options)) for module, options in MODULES.items()]
        compiled = {stem: str(folder / f"{stem}.o") for stem, _, _ in jobs}
        run_side_by_side(
            [[*compiler, *FLAGS, *flags, "-c", str(source), "-o", compiled[stem]] for stem, source, flags in jobs],
            folder,
        )
        link = [*compiler, "-mexec-model=reactor", "-s", f"-Wl,-z,stack-size={STACK}", "-lm"]
        link += [*(f"-Wl,--export={name}" for name in EXPORTS), *(compiled[stem] for stem in sources)]
        run_side_by_side([[*link, compiled[module], "-o", str(folder / module)] for module in MODULES], folder)
        output.mkdir(parents=True, exist_ok=True)
        for module in MODULES:
            shutil.copyfile(folder / module, output / module)
    (output / INTERFACE).write_text(interface(), encoding="utf-8")


def interface() -> str:
    """Return a JavaScript module with the engine's version, its operations, and the fields of its request.

    Of an operation, the kinds of its slots: "r" for a number with a fraction, "i" for a whole one.
    """
    slots = {
        name: "".join("r" if slot.kind == "REAL" else "i" for slot in kind.slots)
        for name, kind in operations().items()
    }
    constants = {
        "VERSION": VERSION,
        "OPERATIONS": slots,
        "MOST_SLOTS": MOST_SLOTS,
        "FIELDS": REQUEST_FIELDS,
        "TYPES": TYPES,
        "EARLY_STOPPING": {
            str(value).lower(): number for value, number in EARLY_STOPPING.items() if value is not None
        },
    }
    lines = [f"export const {name} = {json.dumps(value)};\n" for name, value in constants.items()]
    return "// Written by `python -m capsule_mt.web.build`.\n" + "".join(lines)


def main() -> None:
    build(FOLDER)
    print(*(FOLDER / module for module in MODULES))
    if (license_of_all := FOLDER.parent / "LICENSE").exists():  # an installed package has it elsewhere
        shutil.copyfile(license_of_all, FOLDER / "LICENSE")


if __name__ == "__main__":
    main()
