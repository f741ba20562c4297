"""Build the npm package: compile the engine to WebAssembly with clang from PyPI (`ziglang`).

    python -m capsule_mt.web.build

It writes engine.wasm, interface.js and LICENSE beside the JavaScript; `npm pack capsule_mt/web` makes the package.
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
MODULE, INTERFACE = "engine.wasm", "interface.js"
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


def build(output: Path) -> Path:
    """Compile the engine into a folder, with what JavaScript has to know of its interface; return the module."""
    compiler = [sys.executable, "-m", "ziglang", "cc", *TARGET]
    sources = {path.name: path for folder in (SOURCES, FOLDER / "native") for path in sorted(folder.glob("*.c"))}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        objects = [folder / f"{name}.o" for name in sources]
        tier = ["-O3", "-DTIER=simd128", "-DTIER_SIMD128"]  # of the products; other code is small, and quick to load
        run_side_by_side(
            [
                [*compiler, *FLAGS, *(tier if name == "kernels.c" else []), "-c", str(source), "-o", str(compiled)]
                for (name, source), compiled in zip(sources.items(), objects, strict=True)
            ],
            folder,
        )
        exported = [f"-Wl,--export={name}" for name in EXPORTS]
        link = [*compiler, "-mexec-model=reactor", "-s", *map(str, objects), "-o", str(folder / MODULE), "-lm"]
        run_side_by_side([[*link, f"-Wl,-z,stack-size={STACK}", *exported]], folder)
        output.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(folder / MODULE, output / MODULE)
    (output / INTERFACE).write_text(interface(), encoding="utf-8")
    return output / MODULE


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
    print(build(FOLDER))
    if (license_of_all := FOLDER.parent / "LICENSE").exists():  # an installed package has it elsewhere
        shutil.copyfile(license_of_all, FOLDER / "LICENSE")


if __name__ == "__main__":
    main()
