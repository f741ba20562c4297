"""Build the light wheels of all platforms on this machine, and check the library in each.

    python -m tools.wheels --output dist
    python -m tools.wheels --targets x86_64-linux aarch64-linux

It needs `hatchling`, `ziglang` and `lief` (the groups test and dev). A wheel has one library, of the format and the
processor of its platform, which exports what native/engine.h declares and asks for nothing newer than the tag of the
wheel promises.
"""

import argparse
import io
import os
import re
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lief

from capsule_mt.commands.console import HelpFormatter, run
from capsule_mt.engine.build import SOURCES, TARGETS
from hf_capsule_mt.evaluation.results import markdown_table

ROOT = Path(__file__).resolve().parents[1]
lief.logging.disable()  # it warns of headers that it does not know


@dataclass(frozen=True)
class Library:
    """What the header of a shared library says.

    needs: the libraries that it loads, and what it asks of the system: a version of glibc or of macOS.
    """

    format: str
    processor: str
    exports: set[str]
    needs: set[str]
    system: tuple[int, ...] = ()
    signed: bool = False


# what a library may load: parts of the system alone
SYSTEM_LIBRARIES = {
    "ELF": r"lib(c|m|dl|pthread)\.so\.\d+|ld-linux.*",
    "Mach-O": r"/usr/lib/libSystem\.B\.dylib",
    "PE": r"(?i)kernel32\.dll|ntdll\.dll|ucrtbase\.dll|msvcrt\.dll|api-ms-win-crt-.*\.dll",
}
FORMATS = {"linux": "ELF", "macos": "Mach-O", "windows": "PE"}
# lief's names for the processors of our targets
PROCESSORS = {"x86_64": {"X86_64", "AMD64"}, "aarch64": {"AARCH64"}, "arm64": {"ARM64"}}


def declared_functions() -> set[str]:
    """Return the names that native/engine.h exports."""
    header = (SOURCES / "engine.h").read_text(encoding="utf-8")
    return set(re.findall(r"^EXPORTED [^(]*?(\w+)\(", header, flags=re.MULTILINE))


def read_library(data: bytes) -> Library:
    """Read the headers of an ELF, Mach-O or PE library."""
    parsed: Any = lief.parse(io.BytesIO(data))
    if parsed is None:
        raise ValueError(f"no ELF, Mach-O or PE library: it begins with {data[:6]!r}")
    exports = {function.name for function in parsed.exported_functions}
    if parsed.format == lief.Binary.FORMATS.MACHO:
        exports = {name.removeprefix("_") for name in exports} - {"__dso_handle", "_mh_dylib_header"}
        load = lief.MachO.LoadCommand.TYPE.LOAD_DYLIB
        needs = {library.name for library in parsed.libraries if library.command == load}
        system = tuple(parsed.build_version.minos[:2])
        return Library("Mach-O", parsed.header.cpu_type.name, exports, needs, system, parsed.has_code_signature)
    if parsed.format == lief.Binary.FORMATS.PE:
        return Library("PE", parsed.header.machine.name, exports, {library.name for library in parsed.imports})
    symbols = [
        symbol.name
        for requirement in parsed.symbols_version_requirement
        for symbol in requirement.get_auxiliary_symbols()
    ]
    versions = re.findall(r"GLIBC_(\d+)\.(\d+)", " ".join(symbols))
    system = max((tuple(map(int, version)) for version in versions), default=())
    return Library("ELF", parsed.header.machine_type.name, exports, set(parsed.libraries), system)


def check_library(library: Library, target: str) -> None:
    """Raise a ValueError that says why a library is not for a target, if it is not."""
    processor, _, system = target.partition("-")
    wrong = []
    if library.format != FORMATS[system] or library.processor not in PROCESSORS[processor]:
        wrong.append(f"it is {library.format} for {library.processor}")
    if library.exports != declared_functions():
        wrong.append(f"it exports {sorted(library.exports)}, not {sorted(declared_functions())}")
    foreign = [name for name in library.needs if not re.fullmatch(SYSTEM_LIBRARIES[library.format], name)]
    if foreign:
        wrong.append(f"it loads {', '.join(sorted(foreign))}")
    promised = re.search(r"_(\d+)_(\d+)_", TARGETS[target].tag)  # of manylinux_2_17_x86_64 or macosx_11_0_arm64
    if promised and library.system > tuple(map(int, promised.groups())):
        wrong.append(f"it needs version {'.'.join(map(str, library.system))} of {system}")
    if target == "arm64-macos" and not library.signed:
        wrong.append("it is not signed, and macOS refuses it")
    if wrong:
        raise ValueError(f"the library is not for {target}: {'; '.join(wrong)}")


def build_wheel(target: str, output: Path) -> Path:
    """Build the wheel of a target into a folder; return its path."""
    old_wheels = set(output.glob("*.whl"))
    environment = {name: value for name, value in os.environ.items() if name != "CC"}
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(output.resolve())]
    process = subprocess.run(
        command,
        cwd=ROOT / "capsule_mt",
        env={**environment, "HF_CAPSULE_MT_TARGET": target},
        capture_output=True,
        text=True,
        check=False,
    )
    wheels = list(output.glob(f"*-py3-none-{TARGETS[target].tag}.whl"))
    if process.returncode or len(wheels) != 1:
        new_wheels = {path.name for path in set(output.glob("*.whl")) - old_wheels}
        raise RuntimeError(f"no wheel of {target}, but {sorted(new_wheels)}: {process.stdout}{process.stderr}")
    return wheels[0]


def check_wheel(wheel: Path, target: str) -> Library:
    """Return the one library of a wheel, checked."""
    with zipfile.ZipFile(wheel) as archive:
        libraries = [name for name in archive.namelist() if Path(name).suffix in (".so", ".dylib", ".dll")]
        if libraries != [f"capsule_mt/engine/native/{TARGETS[target].library}"]:
            raise ValueError(f"{wheel.name} has the libraries {libraries}")
        (information,) = (name for name in archive.namelist() if name.endswith(".dist-info/WHEEL"))
        tags = re.findall(r"^Tag: py3-none-(.*)$", archive.read(information).decode(), flags=re.MULTILINE)
        if set(tags) != set(TARGETS[target].tag.split(".")):
            raise ValueError(f"{wheel.name} says that it is for {tags}")
        library = read_library(archive.read(libraries[0]))
    check_library(library, target)
    return library


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=HelpFormatter)
    parser.add_argument("--targets", nargs="+", choices=list(TARGETS), default=list(TARGETS), help="platforms")
    parser.add_argument("--output", type=Path, default=Path("dist"), help="the folder of the wheels")
    arguments = parser.parse_args()
    arguments.output.mkdir(parents=True, exist_ok=True)
    rows = []
    for number, target in enumerate(arguments.targets, 1):
        print(f"{number}/{len(arguments.targets)} {target}", file=sys.stderr)
        wheel = build_wheel(target, arguments.output)
        library = check_wheel(wheel, target)
        needs = ".".join(map(str, library.system)) or "-"
        rows.append([target, library.format, needs, str(len(library.exports)), f"{wheel.stat().st_size // 1024}"])
    print(markdown_table(["platform", "library", "oldest glibc or macOS", "functions", "wheel (KiB)"], rows))


if __name__ == "__main__":
    run(main)
