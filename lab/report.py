"""Write the tables of lab/REPORT.md, and the picture of the methods' gains, from all results in lab/results.

    python -m lab.report                                       # lab/REPORT.md, docs/does-it-help.svg
    python -m lab.report --keep outputs/halomi-de-en.json       # first add a result file to lab/results

What stands in the report between `<!-- NAME -->` and `<!-- end of NAME -->` is the section NAME, written anew each
time; write the texts around it there. The same results give the same report.
"""

import argparse
import functools
import re
from collections.abc import Callable
from pathlib import Path

import hf_capsule_mt  # noqa: F401  its models
from capsule_mt.commands.console import HelpFormatter, run
from capsule_mt.files.outputs import write_output
from hf_capsule_mt.evaluation import read_result
from lab import analyses, replication, studies
from lab.effects import Columns, draw_effects, effects_table
from lab.paper_tables import shared_with_equal_models
from lab.records import SPEEDS, Records
from lab.tables import SETTINGS, render_setting

LAB = Path(__file__).resolve().parent
DOCS = LAB.parent / "docs"
# a section that has never been written has no end
SECTION = re.compile(r"^<!-- ([a-z0-9_]+) -->$(?:.*?^<!-- end of \1 -->$)?", re.MULTILINE | re.DOTALL)


def tables(records: Records) -> str:
    """Return all tables of all settings that have runs."""
    parts = []
    for setting in SETTINGS:
        if records.runs(setting):
            speeds = records.named(setting).get(SPEEDS, {}).get("models", {})
            parts.append(render_setting(records, setting, shared_with_equal_models(speeds)))
    return "\n\n".join(parts)


def effects(records: Records) -> Columns:
    """Return the gains of all methods over seeds, by how their models were trained.

    A row of a plan is there once all its seeds are trained.
    """
    columns: dict[str, dict] = {}
    for name, plan in replication.PLANS.items():
        if plan.column is not None:
            gains = replication.gains(records, name)
            columns.setdefault(plan.column, {}).update({title: gain for title, gain in gains.items() if gain.complete})
    return {column: methods for column, methods in columns.items() if methods}


def plans(records: Records, depth: bool = False) -> str:
    """Return what the planned experiments show, or those of depth; each plan was written before its trainings."""
    names = [name for name in replication.PLANS if name.startswith("depth") == depth]
    return "\n\n".join(filter(None, (replication.table(records, name) for name in names)))


SECTIONS: dict[str, Callable[[Records], str]] = {
    "plans": plans,
    "tables": tables,
    "depth": functools.partial(plans, depth=True),
    "analyses": analyses.table,
    "by_length": analyses.by_length,
    "effects": lambda records: effects_table(effects(records)),
    **studies.SECTIONS,
}


def fill(page: Path, records: Records) -> str:
    """Return a page with its sections written anew."""

    def section(match: re.Match[str]) -> str:
        name = match[1]
        return f"<!-- {name} -->\n\n{SECTIONS[name](records).strip()}\n\n<!-- end of {name} -->"

    text = page.read_text(encoding="utf-8")
    unknown = set(SECTION.findall(text)) - SECTIONS.keys()
    if unknown:
        raise ValueError(f"{page}: no such section: {', '.join(sorted(unknown))}; there are {', '.join(SECTIONS)}")
    return SECTION.sub(section, text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=HelpFormatter)
    parser.add_argument("--results", type=Path, default=LAB / "results", help="the folder of results")
    parser.add_argument("--report", type=Path, default=LAB / "REPORT.md", help="the report to write")
    parser.add_argument("--picture", type=Path, default=DOCS / "does-it-help.svg", help="the picture to write")
    parser.add_argument(
        "--keep", type=Path, nargs="+", default=[], metavar="FILE", help="first add these results to the studies"
    )
    arguments = parser.parse_args()
    if not arguments.results.is_dir():
        raise SystemExit(f"lab.report --results: no such folder: {arguments.results}")
    records = Records(arguments.results)
    for path in arguments.keep:
        records.keep("studies", {"name": path.stem, **read_result(path)})
    written = {arguments.picture: draw_effects(effects(records)), arguments.report: fill(LAB / "REPORT.md", records)}
    for path, text in written.items():
        write_output(path, text)
        print(f"Written to {path}")


if __name__ == "__main__":
    run(main)
