"""The table of a reliability campaign."""

from collections.abc import Mapping
from typing import Any

from hf_capsule_mt.evaluation.results import markdown_table


def render_campaign(result: Mapping[str, Any]) -> str:
    """Return tries, disturbances and failures of each section as Markdown, and how to repeat each failure."""
    rows, failures = [], []
    for section in result["sections"].values():
        counts = (f"{section['tries']:,}", f"{section['disturbances']:,} {section['counted']}")
        rows.append([section["title"], *counts, f"{len(section['failures']):,}"])
        failures += [
            f"- `{failure['repeat']}`: {' '.join(failure['what'].split())}" for failure in section["failures"]
        ]
    table = markdown_table(["what was tried", "tries", "disturbances", "failures"], rows)
    return "\n".join([table, *(["", *failures] if failures else [])])
