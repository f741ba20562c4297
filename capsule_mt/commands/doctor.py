"""Print versions, processor features and the tier of the engine on this machine.

    capsule-mt doctor

Paste the output into a bug report.
"""

import importlib
import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from capsule_mt import __version__
from capsule_mt.commands import further_commands
from capsule_mt.commands.console import CommandParser

PACKAGES = (
    "tokenizers",
    "fastapi",
    "uvicorn",
    "numpy",
    "hf-capsule-mt",
    "torch",
    "transformers",
    "huggingface_hub",
    "accelerate",
    "sentencepiece",
)
# flags of /proc/cpuinfo on which the speed of matrix products depends
FLAGS = (
    *("avx2", "avx512f", "avx512_vnni", "avx_vnni", "avx512_bf16", "amx_bf16", "amx_int8"),
    *("asimd", "asimddp", "bf16", "sve"),
)


def package_version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


def processor() -> tuple[str, str]:
    """Return the name of the processor and those of `FLAGS` that it has; Linux only."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine(), "unknown"
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    flags = {flag for line in lines if line.startswith(("flags", "Features")) for flag in line.split()}
    features = " ".join(flag for flag in FLAGS if flag in flags)
    return (names or [platform.machine()])[0], features or "none of note"


def native_engine() -> str:
    from capsule_mt.engine.engine import default_threads
    from capsule_mt.engine.library import NativeUnavailableError, native_tier

    try:
        return f"{native_tier()}, {default_threads()} threads"
    except NativeUnavailableError as error:
        return f"none: {error}"


def models() -> str:
    from capsule_mt.catalog.entries import cache_folder
    from capsule_mt.catalog.store import downloaded_models

    return f"{len(downloaded_models())} in {cache_folder()}"


def main() -> None:
    CommandParser(description=__doc__).parse_args()
    name, flags = processor()
    lines = [
        ("capsule-mt", __version__),
        ("python", f"{platform.python_version()} on {platform.platform()}"),
        *((package, package_version(package)) for package in PACKAGES),
        ("processor", f"{name}, {os.cpu_count()} cores"),
        ("features", flags),
        ("native engine", native_engine()),
        ("models", models()),
    ]
    for module in dict.fromkeys(module for module, _ in further_commands().values()):
        lines += importlib.import_module(module).report()
    for title, value in lines:
        print(f"{title:<17} {value}")
