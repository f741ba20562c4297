"""Build the native engine with clang from PyPI (`ziglang`), for this platform or for another.

    python -m hf_capsule_mt.fast.build
    python -m hf_capsule_mt.fast.build --target aarch64-linux --output dist/aarch64
    CC=gcc python -m hf_capsule_mt.fast.build      # with another compiler, for this platform

`pip install` does this by itself: see hatch_build.py.
"""

import argparse
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

SOURCES = Path(__file__).parent / "native"
# flags of each tier of kernels; the macro names the int8 instructions
X86_TIERS = {
    "avx512": "-DTIER_AVX512 -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512vnni -mfma",
    "avx2": "-DTIER_AVX2 -mavx2 -mfma",
    "portable": "",
}
ARM_TIERS = {"dotprod": "-DTIER_DOTPROD -mcpu=generic+dotprod", "portable": ""}


@dataclass(frozen=True)
class Target:
    """A platform: the name that zig gives it, the name of its library, and its tiers."""

    zig: str
    library: str
    tiers: dict[str, str]


TARGETS = {
    "x86_64-linux": Target("x86_64-linux-gnu.2.17", "engine.so", X86_TIERS),
    "aarch64-linux": Target("aarch64-linux-gnu.2.17", "engine.so", ARM_TIERS),
    "arm64-macos": Target("aarch64-macos.11.0", "engine.dylib", ARM_TIERS),
    "x86_64-macos": Target("x86_64-macos.11.0", "engine.dylib", X86_TIERS),
    "x86_64-windows": Target("x86_64-windows-gnu", "engine.dll", X86_TIERS),
}


def this_platform() -> str:
    """Return the name of this machine's target."""
    systems = {"Linux": "linux", "Darwin": "macos", "Windows": "windows"}
    system = systems.get(platform.system(), platform.system().lower())
    machine = {"amd64": "x86_64", "arm64": "aarch64"}.get(platform.machine().lower(), platform.machine().lower())
    return "arm64-macos" if (system, machine) == ("macos", "aarch64") else f"{machine}-{system}"


def compiler(target: Target) -> list[str]:
    """Return the command of the compiler: `CC`, or zig."""
    if os.environ.get("CC"):
        return shlex.split(os.environ["CC"])
    return [sys.executable, "-m", "ziglang", "cc", "-target", target.zig]


def build(name: str, output: Path, sanitize: str = "") -> Path:
    """Compile the engine for a target into a folder; return the path of the library.

    Args:
        sanitize: what `-fsanitize` gets, for tests, such as "address,undefined".
    """
    if name not in TARGETS:
        raise ValueError(f"`target` {name!r} is not known, choose among {', '.join(TARGETS)}")
    target = TARGETS[name]
    flags = ["-std=gnu11", "-O3", "-fno-math-errno", "-fno-stack-protector", "-fvisibility=hidden"]
    if "windows" not in name:
        flags.append("-fPIC")
    flags += ["-g", f"-fsanitize={sanitize}", "-fno-sanitize-recover"] if sanitize else ["-DNDEBUG"]
    with tempfile.TemporaryDirectory() as folder:
        jobs = [(path.name, path.stem, "") for path in sorted(SOURCES.glob("*.c")) if path.stem != "kernels"]
        jobs += [("kernels.c", tier, f"-DTIER={tier} {options}") for tier, options in target.tiers.items()]
        environment = os.environ | {"ZIG_LOCAL_CACHE_DIR": os.path.join(folder, "cache")}
        running = [
            (
                subprocess.Popen(
                    [*compiler(target), *flags, *shlex.split(options), "-c", str(SOURCES / source), "-o", out],
                    env=environment,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                ),
                out,
            )
            for source, stem, options in jobs
            for out in [os.path.join(folder, f"{stem}.o")]
        ]
        for process, _ in running:
            said, _ = process.communicate()
            if process.returncode:
                raise RuntimeError(f"the compiler failed: {said.decode(errors='replace')}")
        library = os.path.join(folder, target.library)
        link = [*compiler(target), "-shared", *(out for _, out in running), "-o", library]
        link += [f"-fsanitize={sanitize}"] if sanitize else ["-s"]
        link += [] if "windows" in name else ["-lm"]
        done = subprocess.run(link, env=environment, capture_output=True, check=False)
        if done.returncode:
            raise RuntimeError(f"the linker failed: {done.stderr.decode(errors='replace')}")
        output.mkdir(parents=True, exist_ok=True)
        path = output / target.library
        # a new file, and not the old one written over: a process may have it loaded
        shutil.copyfile(library, f"{path}.new")
        os.replace(f"{path}.new", path)
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", choices=list(TARGETS), default=this_platform(), help="the platform to build for")
    parser.add_argument("--output", type=Path, default=SOURCES, help="the folder of the library")
    parser.add_argument("--sanitize", default="", metavar="NAMES", help="for tests: address,undefined")
    arguments = parser.parse_args()
    print(build(arguments.target, arguments.output, arguments.sanitize))


if __name__ == "__main__":
    main()
