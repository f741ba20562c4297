"""Build the native engine with clang from PyPI (`ziglang`), for this platform or for another.

    python -m capsule_mt.engine.build
    python -m capsule_mt.engine.build --target aarch64-linux --output dist/aarch64
    CC=gcc python -m capsule_mt.engine.build      # with another compiler, for this platform

`pip install` does this by itself where it can: see hatch_build.py. `python -m tools.wheels` builds the wheels of all
platforms.
"""

import argparse
import importlib.util
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SOURCES = Path(__file__).parent / "native"
OPTIONS = Path(__file__).parents[1] / "options" / "table.py"
C_TYPES = {"i": "int64_t ", "f": "float ", "p": "const int32_t *"}
# flags of each tier of kernels; the macro names the int8 instructions
X86_ONLY = {
    "avx512": "-DTIER_AVX512 -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512vnni -mfma",
    "avxvnni": "-DTIER_AVX2 -DTIER_AVXVNNI -mavx2 -mfma -mf16c -mavxvnni",
    "avx2": "-DTIER_AVX2 -mavx2 -mfma -mf16c",
}
ARM_ONLY = {"dotprod": "-DTIER_DOTPROD -mcpu=generic+dotprod"}
PORTABLE = {"portable": ""}
X86_TIERS, ARM_TIERS = X86_ONLY | PORTABLE, ARM_ONLY | PORTABLE
# the fastest first; "amx" is compiled with "avx512", of which it replaces one product
TIERS = ("amx", *X86_ONLY, *ARM_ONLY, *PORTABLE)


@dataclass(frozen=True)
class Target:
    """A platform: how zig and pip name it, the name of its library, and its tiers."""

    zig: str
    tag: str
    library: str
    tiers: dict[str, str]


TARGETS = {
    "x86_64-linux": Target(
        "x86_64-linux-gnu.2.17", "manylinux_2_17_x86_64.manylinux2014_x86_64", "engine.so", X86_TIERS
    ),
    "aarch64-linux": Target(
        "aarch64-linux-gnu.2.17", "manylinux_2_17_aarch64.manylinux2014_aarch64", "engine.so", ARM_TIERS
    ),
    "arm64-macos": Target("aarch64-macos.11.0", "macosx_11_0_arm64", "engine.dylib", ARM_TIERS),
    "x86_64-macos": Target("x86_64-macos.11.0", "macosx_11_0_x86_64", "engine.dylib", X86_TIERS),
    "x86_64-windows": Target("x86_64-windows-gnu", "win_amd64", "engine.dll", X86_TIERS),
}


def this_platform() -> str:
    """Return the name of this machine's target; it is in `TARGETS` if the engine can be built here."""
    systems = {"Linux": "linux", "Darwin": "macos", "Windows": "windows"}
    system = systems.get(platform.system(), platform.system().lower())
    machine = {"amd64": "x86_64", "arm64": "aarch64"}.get(platform.machine().lower(), platform.machine().lower())
    if system == "linux" and platform.libc_ver()[0] != "glibc":
        return f"{machine}-linux-musl"  # pip refuses a wheel for another C library
    return "arm64-macos" if (system, machine) == ("macos", "aarch64") else f"{machine}-{system}"


def compiler(name: str) -> list[str]:
    """Return the command of the compiler for a target: zig, or `CC` for this platform."""
    if os.environ.get("CC") and name == this_platform():
        return shlex.split(os.environ["CC"])
    return [sys.executable, "-m", "ziglang", "cc", "-target", TARGETS[name].zig]


def build(name: str, output: Path, sanitize: str = "") -> Path:
    """Compile the engine for a target into a folder; return the path of the library.

    Args:
        sanitize: what `-fsanitize` gets, for tests, such as "address,undefined".
    """
    if name not in TARGETS:
        raise ValueError(f"`target` {name!r} is unknown, choose one of {', '.join(TARGETS)}")
    target = TARGETS[name]
    with tempfile.TemporaryDirectory() as folder:
        objects = compile_objects(name, compiler(name), Path(folder), sanitize)
        library = Path(folder, target.library)
        options = [f"-fsanitize={sanitize}"] if sanitize else ["-s"]
        options += [] if "windows" in name else ["-lm", "-lpthread"]
        run_side_by_side([[*compiler(name), "-shared", *objects, "-o", str(library), *options]], Path(folder))
        output.mkdir(parents=True, exist_ok=True)
        path = output / target.library
        # a new file, and not the old one written over: a process may have it loaded
        shutil.copyfile(library, f"{path}.new")
        if sanitize:
            os.utime(f"{path}.new", (0, 0))  # so that `current_library` never takes it
        os.replace(f"{path}.new", path)
    return path


def current_library(name: str, output: Path) -> Path:
    """Return the library of a target in a folder; it is compiled unless it is newer than everything it is made of."""
    library = output / TARGETS[name].library if name in TARGETS else output
    parts = [*SOURCES.rglob("*.[ch]"), SOURCES.with_name("operations.def"), OPTIONS, Path(__file__)]
    if library.is_file() and library.stat().st_mtime > max(part.stat().st_mtime for part in parts):
        return library
    return build(name, output)


def write_options(folder: Path) -> None:
    """Write options.h, which is the table of options for C: fields, and what forbids a preview of the logits."""
    # by its path: where a wheel is built, the package is not installed
    specification = importlib.util.spec_from_file_location("options_table", OPTIONS)
    assert specification is not None
    assert specification.loader is not None
    table: Any = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(table)
    fields = [f"{C_TYPES[kind]}{name};" for name, kind in table.request_fields().items()]
    forbids = [f"(request)->{row.name} != {row.default}" for row in table.SEARCH_OPTIONS if row.forbids_preview]
    forbids += [f"(request)->{name}" for name in table.NEED_LOGITS]
    lines = [
        f"#define OPTIONS_LAYOUT {table.request_layout()}",
        f"#define OPTION_FIELDS {' '.join(fields)}",
        f"#define FORBIDS_PREVIEW(request) ({' || '.join(forbids)})",
    ]
    (folder / "options.h").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def compile_objects(name: str, command: list[str], folder: Path, sanitize: str = "") -> list[str]:
    """Compile the engine and each tier of a target's kernels with a compiler; return the object files."""
    write_options(folder)
    flags = ["-std=gnu11", "-fno-math-errno", "-fno-stack-protector", "-fvisibility=hidden", f"-I{folder}"]
    flags.append("-Werror=switch")  # refuses an operation that a switch has forgotten
    if "windows" not in name:
        flags.append("-fPIC")
    flags += ["-O1", "-g", f"-fsanitize={sanitize}", "-fno-sanitize-recover"] if sanitize else ["-O3", "-DNDEBUG"]
    jobs = [(path.name, path.stem, "") for path in sorted(SOURCES.glob("*.c")) if path.stem != "kernels"]
    jobs += [("kernels.c", tier, f"-DTIER={tier} {options}") for tier, options in TARGETS[name].tiers.items()]
    objects = [str(folder / f"{stem}.o") for _, stem, _ in jobs]
    run_side_by_side(
        [
            [*command, *flags, *shlex.split(options), "-c", str(SOURCES / source), "-o", out]
            for (source, _, options), out in zip(jobs, objects, strict=True)
        ],
        folder,
    )
    return objects


def run_side_by_side(commands: list[list[str]], folder: Path) -> list[str]:
    """Run compilers side by side; return what each printed."""
    environment = os.environ | {"ZIG_LOCAL_CACHE_DIR": str(folder / "cache")}
    running = [
        subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        for command in commands
    ]
    outputs = [process.communicate()[0].decode(errors="replace") for process in running]
    for process, output in zip(running, outputs, strict=True):
        if process.returncode:
            raise RuntimeError(f"the compiler failed: {output}")
    return outputs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", choices=list(TARGETS), default=this_platform(), help="the platform to build for")
    parser.add_argument("--output", type=Path, default=SOURCES, help="the folder of the library")
    parser.add_argument("--sanitize", default="", metavar="NAMES", help="for tests: address,undefined")
    parser.add_argument("--if-changed", action="store_true", help="only where a source is newer than the library")
    arguments = parser.parse_args()
    if arguments.if_changed:
        if arguments.target in TARGETS:  # elsewhere, the package is installed without the engine
            current_library(arguments.target, arguments.output)
        return
    print(build(arguments.target, arguments.output, arguments.sanitize))


if __name__ == "__main__":
    main()
