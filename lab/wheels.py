"""Build the light wheels of all platforms on this machine, and check the library in each.

    python -m lab.wheels --output dist
    python -m lab.wheels --targets x86_64-linux aarch64-linux

It needs `hatchling` and `ziglang` (the extra "test"). A wheel has one library, of the format and the processor of its
platform, which exports what native/engine.h declares and asks for nothing newer than the tag of the wheel promises.
"""

import argparse
import os
import re
import struct
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

from capsule_mt.commands.console import HelpFormatter, run
from capsule_mt.engine.build import SOURCES, TARGETS
from hf_capsule_mt.evaluation.results import markdown_table

ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Library:
    """What the header of a shared library says.

    needs: the libraries that it loads, and what it asks of the system: a version of glibc or of macOS.
    """

    format: str
    processor: str
    exports: frozenset[str]
    needs: frozenset[str]
    system: tuple[int, ...] = ()
    signed: bool = False


# what a library may load: parts of the system alone
SYSTEM_LIBRARIES = {
    "ELF": r"lib(c|m|dl|pthread)\.so\.\d+|ld-linux.*",
    "Mach-O": r"/usr/lib/libSystem\.B\.dylib",
    "PE": r"(?i)kernel32\.dll|ntdll\.dll|ucrtbase\.dll|msvcrt\.dll|api-ms-win-crt-.*\.dll",
}
FORMATS = {"linux": "ELF", "macos": "Mach-O", "windows": "PE"}


def declared_functions() -> frozenset[str]:
    """Return the names that native/engine.h exports."""
    header = (SOURCES / "engine.h").read_text(encoding="utf-8")
    return frozenset(re.findall(r"^EXPORTED [^(]*?(\w+)\(", header, flags=re.MULTILINE))


def read_library(data: bytes) -> Library:
    """Read the header of an ELF, Mach-O or PE library of 64 bits."""
    for magic, read in ((b"\x7fELF\x02\x01", _read_elf), (b"\xcf\xfa\xed\xfe", _read_macho), (b"MZ", _read_pe)):
        if data.startswith(magic):
            return read(data)
    raise ValueError(f"no ELF, Mach-O or PE library of 64 bits: it begins with {data[:6]!r}")


def _text(data: bytes, start: int) -> str:
    return data[start : data.index(b"\0", start)].decode()


def _read_elf(data: bytes) -> Library:
    (machine,) = struct.unpack_from("<H", data, 18)
    (table,) = struct.unpack_from("<Q", data, 40)
    size, count = struct.unpack_from("<HH", data, 58)
    sections = [struct.unpack_from("<IIQQQQIIQQ", data, table + size * number) for number in range(count)]
    exports, needs, versions = set(), set(), [(0, 0)]
    for _, kind, _, _, offset, length, link, entries, _, _ in sections:
        strings = sections[link][4] if link < count else 0
        if kind == 11:  # dynamic symbols: those that are defined here and visible
            for at in range(offset, offset + length, 24):
                name, info, other, section = struct.unpack_from("<IBBH", data, at)
                if section and info >> 4 in (1, 2) and other & 3 == 0:
                    exports.add(_text(data, strings + name))
        if kind == 6:  # dynamic: the libraries that it loads
            for at in range(offset, offset + length, 16):
                tag, value = struct.unpack_from("<QQ", data, at)
                if tag == 1:
                    needs.add(_text(data, strings + value))
        if kind == 0x6FFFFFFE:  # the versions of symbols of others
            at = offset
            for _ in range(entries):
                _, number, _, first, following = struct.unpack_from("<HHIII", data, at)
                inner = at + first
                for _ in range(number):
                    _, _, _, name, step = struct.unpack_from("<IHHII", data, inner)
                    if found := re.fullmatch(r"GLIBC_(\d+)\.(\d+)(\.\d+)?", _text(data, strings + name)):
                        versions.append((int(found[1]), int(found[2])))
                    inner += step
                at += following
    processor = {62: "x86_64", 183: "aarch64"}.get(machine, str(machine))
    return Library("ELF", processor, frozenset(exports), frozenset(needs), max(versions))


def _read_macho(data: bytes) -> Library:
    (processor,) = struct.unpack_from("<I", data, 4)
    (count,) = struct.unpack_from("<I", data, 16)
    exports, needs = set(), set()
    system: tuple[int, ...] = ()
    signed, at = False, 32
    for _ in range(count):
        command, size = struct.unpack_from("<II", data, at)
        if command == 0xC:  # a library that it loads
            needs.add(_text(data, at + struct.unpack_from("<I", data, at + 8)[0]))
        elif command == 0x32:  # what it was built for
            version = struct.unpack_from("<I", data, at + 12)[0]
            system = (version >> 16, version >> 8 & 0xFF)
        elif command == 0x1D:
            signed = True
        elif command in (0x80000022, 0x80000033):  # the exports, as a trie
            start, length = struct.unpack_from("<II", data, at + (40 if command == 0x80000022 else 8))
            if length:
                exports |= set(_trie(data[start : start + length])) - {"__dso_handle", "_mh_dylib_header"}
        at += size
    names = {0x01000007: "x86_64", 0x0100000C: "arm64"}
    return Library(
        "Mach-O", names.get(processor, hex(processor)), frozenset(exports), frozenset(needs), system, signed
    )


def _trie(data: bytes, at: int = 0, prefix: str = "") -> list[str]:
    """The names below a node of an export trie, without the underscore that C's names have there."""

    def number(at: int) -> tuple[int, int]:
        value = shift = 0
        while True:
            byte = data[at]
            value, shift, at = value | (byte & 0x7F) << shift, shift + 7, at + 1
            if byte < 0x80:
                return value, at

    size, at = number(at)
    names = [prefix[1:]] if size else []
    at += size
    children, at = data[at], at + 1
    for _ in range(children):
        label = _text(data, at)
        child, at = number(at + len(label) + 1)
        names += _trie(data, child, prefix + label)
    return names


def _read_pe(data: bytes) -> Library:
    (start,) = struct.unpack_from("<I", data, 60)
    machine, num_sections = struct.unpack_from("<HH", data, start + 4)
    (header_size,) = struct.unpack_from("<H", data, start + 20)
    sections = [
        struct.unpack_from("<IIII", data, start + 24 + header_size + 40 * number + 8) for number in range(num_sections)
    ]

    def offset(address: int) -> int:
        for size, first, stored, place in sections:
            if first <= address < first + max(size, stored):
                return address - first + place
        raise ValueError(f"no section has the address {address:#x}")

    exports, imports = struct.unpack_from("<I4xI", data, start + 24 + 112)
    directory = offset(exports)
    (count,) = struct.unpack_from("<I", data, directory + 24)
    (names,) = struct.unpack_from("<I", data, directory + 32)
    addresses = struct.unpack_from(f"<{count}I", data, offset(names))
    needs, at = set(), offset(imports)
    while name := struct.unpack_from("<I", data, at + 12)[0]:
        needs.add(_text(data, offset(name)))
        at += 20
    processor = {0x8664: "x86_64", 0xAA64: "aarch64"}.get(machine, hex(machine))
    return Library("PE", processor, frozenset(_text(data, offset(name)) for name in addresses), frozenset(needs))


def check_library(library: Library, target: str) -> None:
    """Raise a ValueError that says why a library is not one for a target."""
    processor, _, system = target.partition("-")
    wrong = []
    if (library.format, library.processor) != (FORMATS[system], processor):
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
        raise ValueError(f"the library is none for {target}: {'; '.join(wrong)}")


def build_wheel(target: str, output: Path) -> Path:
    """Build the wheel of a target into a folder; return its path."""
    before = set(output.glob("*.whl"))
    environment = {name: value for name, value in os.environ.items() if name != "CC"}
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(output.resolve())]
    done = subprocess.run(
        command,
        cwd=ROOT / "capsule_mt",
        env={**environment, "HF_CAPSULE_MT_TARGET": target},
        capture_output=True,
        text=True,
        check=False,
    )
    wheels = list(output.glob(f"*-py3-none-{TARGETS[target].tag}.whl"))
    if done.returncode or len(wheels) != 1:
        made = {path.name for path in set(output.glob("*.whl")) - before}
        raise RuntimeError(f"no wheel of {target}, but {sorted(made)}: {done.stdout}{done.stderr}")
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
