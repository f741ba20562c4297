"""The table of a reliability campaign."""

from collections.abc import Mapping
from typing import Any

from hf_capsule_mt.evaluation.results import markdown_table


def render_campaign(result: Mapping[str, Any]) -> str:
    """Return what each section tried, the memory, and how to repeat each failure, as Markdown."""
    rows, failures = [], []
    for section in result["sections"].values():
        counts = (f"{section['tries']:,}", f"{section['disturbances']:,} {section['counted']}")
        rows.append([section["title"], *counts, f"{len(section['failures']):,}"])
        failures += [
            f"- `{failure['repeat']}`: {' '.join(failure['what'].split())}" for failure in section["failures"]
        ]
    parts = [markdown_table(["what was tried", "tries", "disturbances", "failures"], rows)]
    memory = result.get("memory")
    if memory:
        lines = list(next(iter(memory.values())))
        peaks = [[f"`{backend}`", *map(str, of_backend.values())] for backend, of_backend in memory.items()]
        header = ["backend", *(f"{number} lines" for number in lines)]
        parts.append(f"Peak memory of `translate`, in MiB:\n\n{markdown_table(header, peaks)}")
    if failures:
        parts.append("\n".join(failures))
    return "\n\n".join(parts)
