"""Result files (numbers with the command, hardware, software and commit that produced them) and Markdown tables."""

import json
import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from capsule_mt.files.lock import write_alone

SOFTWARE = ("torch", "transformers", "tokenizers", "datasets", "accelerate", "sacrebleu")


def describe_environment() -> dict[str, Any]:
    """Return hardware, software and the commit of the working tree, as far as they are known."""
    import torch  # to read a result needs none

    hardware: dict[str, Any] = {
        "cpu": _cpu_name(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "memory_gib": _memory_gib(),
    }
    if torch.cuda.is_available():
        hardware["gpu"] = torch.cuda.get_device_name()
    software = {"python": platform.python_version(), "platform": f"{platform.system()} {platform.machine()}"}
    for package in SOFTWARE:
        try:
            software[package] = version(package)
        except PackageNotFoundError:
            continue
    return {"hardware": hardware, "software": software, "commit": _commit()}


def stamped(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return a result with the command that made it, the time and the environment, unless it has them."""
    return {
        "command": shlex.join([*_program(), *sys.argv[1:]]),
        "date": datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        **describe_environment(),
        **result,
    }


def write_result(path: str | os.PathLike[str], result: dict[str, Any]) -> Path:
    """Write a result as JSON, with the command, the time and the environment; remove what killed processes left."""
    write_alone(path, json.dumps(stamped(result), indent=2) + "\n")
    return Path(path)


def read_result(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the content of a result file; raise `ValueError` for a file that is not an object of JSON."""
    try:
        result = json.loads(Path(path).read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path}: no JSON ({error})") from None
    if not isinstance(result, dict):
        raise ValueError(f"{path}: a result file is an object of names and values, got {type(result).__name__}")
    return result


def _program() -> list[str]:
    """Return the program: a command of `capsule-mt`, or Python with a file, or with `-m` and a module."""
    if sys.argv[0].startswith("capsule-mt "):
        return sys.argv[0].split()
    module = getattr(sys.modules["__main__"], "__spec__", None)
    return ["python", *([os.path.relpath(sys.argv[0])] if module is None else ["-m", module.name])]


def _cpu_name() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _memory_gib() -> float | None:
    try:
        return round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30, 1)
    except (AttributeError, OSError, ValueError):
        return None


def _commit() -> str | None:
    """Return the commit that is checked out, with "+" if tracked files differ from it."""
    folder = Path(__file__).resolve().parent
    try:
        commit = subprocess.run(
            ["git", "rev-parse", "HEAD"], cwd=folder, capture_output=True, text=True, check=True
        ).stdout.strip()
        changed = subprocess.run(["git", "diff", "--quiet", "HEAD"], cwd=folder, check=False).returncode
    except (OSError, subprocess.CalledProcessError):
        return None
    return commit + ("+" if changed else "")


def markdown_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table of cells that are Markdown already, without a final line feed: two lines need no `tabulate`."""
    lines = ["| " + " | ".join(cells) + " |" for cells in (header, *rows)]
    return "\n".join([lines[0], "|---" * len(header) + "|", *lines[1:]])
