"""Build the npm package: compile the engine to WebAssembly with clang from PyPI (`ziglang`).

    python -m capsule_mt.web.build

It writes the modules, interface.js with its types, and in a clone LICENSE beside the JavaScript; there,
`npm pack ./web` makes the package.
"""

import argparse
import json
import shlex
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from capsule_mt.engine.build import SOURCES, run_side_by_side, write_options
from capsule_mt.engine.library import TYPES, VERSION
from capsule_mt.engine.program import MAX_SLOTS, operations
from capsule_mt.engine.request import REQUEST_FIELDS
from capsule_mt.options.table import Option, offered
from capsule_mt.web import language, model_file

_PACKAGED = Path(__file__).with_name("package")  # in a wheel: see hatch_build.py
FOLDER = _PACKAGED if _PACKAGED.is_dir() else Path(__file__).parents[2] / "web"
# engine.js loads one of the modules: relaxed if the browser's product of bytes is exact, and with threads if they are
# requested. Without contraction of products and sums, all modules compute the same numbers.
RELAXED = ("-mrelaxed-simd", "-ffp-contract=off")
SHARED = ("-matomics", "-mbulk-memory", "-pthread")
MODULES: dict[str, tuple[str, ...]] = {
    "engine.wasm": (),
    "engine.relaxed.wasm": RELAXED,
    "engine.threads.wasm": SHARED,
    "engine.threads.relaxed.wasm": (*SHARED, *RELAXED),
}
INTERFACE, TYPES_FILE = "interface.js", "interface.d.ts"
TARGET = ("-target", "wasm32-wasi")
FLAGS = (
    *("-Os", "-fno-inline-functions", "-DNDEBUG", "-std=gnu11", "-fno-math-errno", "-fvisibility=hidden", "-msimd128"),
    *(f"-I{SOURCES}", "-include", str(FOLDER / "native" / "library.h")),
)
# the functions that JavaScript calls
EXPORTS = (
    *("malloc", "free", "engine_version", "engine_error", "engine_new", "engine_add_linear", "engine_pack"),
    *("engine_add_vector", "engine_add_table", "engine_add_packed_table", "engine_add_positions", "engine_add_buffer"),
    *("engine_set_programs", "engine_translate", "engine_expand"),
)
# Of the source files: gzip packs a module best if similar code is close. Found by moving one file at a time at random
# while the module got smaller; alphabetical order takes 0.8 kB more
LINK_ORDER = (
    *("text", "memory", "dispatch", "engine", "routing", "team", "shortlist", "operations", "recurrent", "logits"),
    *("pieces", "programs", "model", "force", "attention", "search", "entropy", "kernels"),
)
LINKER = "wasm-ld"
STACK = 1 << 20
PAGE = 1 << 16
MEMORY = {"initial": 64, "maximum": 1 << 14}  # pages of 64 KiB that threads share: 1 GiB at most
SHARED_MEMORY = (
    *("-Wl,--import-memory,--export-memory,--shared-memory,--export=team_work,--export=__stack_pointer", *SHARED),
    f"-Wl,--initial-memory={MEMORY['initial'] * PAGE},--max-memory={MEMORY['maximum'] * PAGE}",
)


def build(output: Path) -> None:
    """Compile the engine into a folder, as its modules."""
    command = [sys.executable, "-m", "ziglang", "cc", *TARGET]
    paths = {path.stem: path for folder in (SOURCES, FOLDER / "native") for path in sorted(folder.glob("*.c"))}
    sources = {stem: paths[stem] for stem in [*LINK_ORDER, *sorted(paths.keys() - LINK_ORDER)]}
    # for kernels.c, whose products use vectors; all else is compiled small (-Os), to load quickly. Unrolled or inlined
    # loops bring 0 to 3 % of speed, and take 3.6 kB of 40
    tier = ("-O3", "-fno-vectorize", "-fno-unroll-loops", "-DTIER=simd128", "-DTIER_SIMD128")
    compiles, links = [], []
    with tempfile.TemporaryDirectory() as folder_name:
        folder = Path(folder_name)
        write_options(folder)
        for module, options in MODULES.items():
            objects = {stem: f"{folder / module}.{stem}.o" for stem in sources}
            for stem, source in sources.items():
                flags = [*FLAGS, f"-I{folder}", *options, *(tier if stem == "kernels" else ())]
                compiles.append([*command, *flags, "-c", str(source), "-o", objects[stem]])
            link = ["-v", "-mexec-model=reactor", "-s", f"-Wl,-z,stack-size={STACK}", "-lm"]
            link += [
                *(f"-Wl,--export={function}" for function in EXPORTS),
                *(SHARED_MEMORY if SHARED[0] in options else ()),
            ]
            links.append([*command, *link, *objects.values(), "-o", str(folder / module)])
        run_side_by_side(compiles, folder)
        run_side_by_side([_linker_command(log) for log in run_side_by_side(links, folder)], folder)
        output.mkdir(parents=True, exist_ok=True)
        for module in MODULES:
            shutil.copyfile(folder / module, output / module)


def _linker_command(log: str) -> list[str]:
    """Return the linker's command out of a compiler's log, with `--compress-relocations`.

    The compiler refuses this option, which writes addresses without padding: it saves 0.6 kB of a compressed module.
    """
    lines = [line.strip() for line in log.splitlines() if line.strip().startswith(f"{LINKER} ")]
    if len(lines) != 1:
        raise RuntimeError(f"the compiler does not print its call of {LINKER}: {log}")
    return [sys.executable, "-m", "ziglang", *shlex.split(lines[0]), "--compress-relocations"]


def is_current(folder: Path) -> bool:
    """Whether a folder has the modules, and an interface.js that this package would write."""
    file = folder / INTERFACE
    has_modules = all((folder / name).exists() for name in MODULES)
    return has_modules and file.exists() and file.read_text(encoding="utf-8") == interface()


def interface() -> str:
    """Return a JavaScript module: what it shares with the engine, the options, and the constants of rules.

    An operation is a string with a letter for each slot: "r" for a real number, "i" for an integer.
    """
    slots = {
        name: "".join("r" if slot.kind == "REAL" else "i" for slot in kind.slots)
        for name, kind in operations().items()
    }
    constants = {
        "VERSION": VERSION,
        "OPERATIONS": slots,
        "MAX_SLOTS": MAX_SLOTS,
        "FIELDS": REQUEST_FIELDS,
        "TYPES": TYPES,
        "MEMORY": MEMORY,
        "STACK": STACK,
        "OPTIONS": {option.name: _option_description(option) for option in offered("browser")},
        "MODEL_FORMAT": model_file.FORMAT,
        **language.constants(),
    }
    lines = [f"export const {name} = {json.dumps(value)};\n" for name, value in constants.items()]
    return "// Written by `python -m capsule_mt.web.build`.\n" + "".join(lines)


def _option_description(option: Option) -> dict[str, Any]:
    """Return an option's checks and codes for JavaScript."""
    description: dict[str, Any] = {"kind": option.kind, "expected": option.expected}
    if option.choices:
        description["choices"] = {str(choice).lower(): code for choice, code in option.choices.items()}
    if option.kind in ("integer", "number"):
        description["range"] = option.range
    return description


def types() -> str:
    """Return the options for TypeScript."""
    kinds = {"integer": "number", "number": "number", "switch": "boolean", "tokens": "number[]"}
    lines = ["// Written by `python -m capsule_mt.web.build`.\n", "export interface SearchOptions {\n"]
    for option in offered("browser"):
        choices = " | ".join(json.dumps(choice) for choice in option.choices)
        lines.append(f"  /** {option.help[0].upper()}{option.help[1:]}. */\n")
        lines.append(f"  {option.name}?: {choices or kinds[option.kind]};\n")
    return "".join(lines) + "}\n"


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    build(FOLDER)
    (FOLDER / INTERFACE).write_text(interface(), encoding="utf-8")
    (FOLDER / TYPES_FILE).write_text(types(), encoding="utf-8")
    print(*(FOLDER / module for module in MODULES))
    if (license_file := FOLDER.parent / "LICENSE").exists():  # an installed package has it elsewhere
        shutil.copyfile(license_file, FOLDER / "LICENSE")


if __name__ == "__main__":
    main()
