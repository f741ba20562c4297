"""Print what this machine has: versions, processor features, GPU, and what each missing extra is for.

    capsule-mt doctor

Paste the output into a bug report.
"""

import argparse
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch

import hf_capsule_mt
from capsule_mt.engine.library import NativeUnavailableError, native_tier
from capsule_mt.commands.console import HelpFormatter
from hf_capsule_mt.evaluation import describe_environment
from hf_capsule_mt.extras import EXTRAS, install_line, missing_modules

PACKAGES = ("torch", "transformers", "tokenizers", "huggingface_hub", "accelerate", "sentencepiece", "safetensors")
# flags of /proc/cpuinfo that decide how fast a product of matrices is
CPU_FLAGS = (
    "avx2",
    "avx512f",
    "avx512_vnni",
    "avx_vnni",
    "avx512_bf16",
    "amx_bf16",
    "amx_int8",
    "asimd",
    "bf16",
    "sve",
)


def package_version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


def cpu_flags() -> str:
    """Return those of `CPU_FLAGS` that the processor has, as far as Linux says."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return "unknown"
    found = {flag for line in text.splitlines() if line.startswith(("flags", "Features")) for flag in line.split()}
    return " ".join(flag for flag in CPU_FLAGS if flag in found) or "none of note"


def native_engine() -> str:
    """Return the tier of kernels that the native engine runs here, or why it does not run."""
    try:
        return native_tier()
    except NativeUnavailableError as error:
        return f"none: {error}"


def gpus() -> str:
    if torch.cuda.is_available():
        return ", ".join(torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count()))
    return "MPS" if torch.backends.mps.is_available() else "none"


def report() -> list[tuple[str, list[tuple[str, str]]]]:
    """Return titles, each with its lines of a name and a value."""
    environment = describe_environment()
    hardware, software = environment["hardware"], environment["software"]
    extras = []
    for name, extra in EXTRAS.items():
        missing = missing_modules(name)
        state = f"missing {', '.join(missing)}: {install_line(name)}" if missing else "installed"
        extras.append((name, f"{state}  ({extra.purpose})"))
    return [
        (
            "Versions",
            [
                ("hf-capsule-mt", hf_capsule_mt.__version__),
                ("python", f"{software['python']} on {software['platform']}"),
                *((name, package_version(name)) for name in PACKAGES),
            ],
        ),
        (
            "Machine",
            [
                ("processor", f"{hardware['cpu']}, {hardware['cores']} cores"),
                ("features", cpu_flags()),
                ("torch uses", f"{torch.backends.cpu.get_cpu_capability()}, {hardware['threads']} threads"),
                ("memory", f"{hardware['memory_gib']} GiB"),
                ("GPU", gpus()),
                ("native engine", native_engine()),
            ],
        ),
        ("Extras", extras),
    ]


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=HelpFormatter).parse_args()
    for title, lines in report():
        print(f"{title}:")
        for name, value in lines:
            print(f"  {name:<15} {value}")
