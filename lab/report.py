"""Write the tables of lab/REPORT.md and of pages of docs, and a picture, from all results in lab/results.

    python -m lab.report                                       # lab/REPORT.md, and pages and a picture of docs
    python -m lab.report --keep outputs/adequacy-de-en.json     # first add a result file to lab/results

What stands on a page between `<!-- NAME -->` and `<!-- end of NAME -->` is the section NAME, written anew each time;
write the texts around it there. The same results give the same pages.
"""

import argparse
import re
from collections.abc import Callable
from pathlib import Path

import hf_capsule_mt  # noqa: F401  its models
from capsule_mt.commands.console import HelpFormatter, run
from capsule_mt.files.outputs import write_output
from hf_capsule_mt.evaluation import read_result
from lab import analyses, capsnmt_loops, depth, probe, strong_student, strong_teacher, studies
from lab.effects import Columns, draw_effects, effects_table, embedded_gains
from lab.paper_tables import TABLES, shared_with_equal_models
from lab.records import SPEEDS, Records
from lab.replication import PLANS
from lab.replication import gains as planned_gains
from lab.replication import table as plan_table
from lab.tables import SETTINGS, left_out, render_table, worth_showing

LAB = Path(__file__).resolve().parent
DOCS = LAB.parent / "docs"
PAGES = (DOCS / "speed.md", DOCS / "depth.md", DOCS / "analyses.md")
# a section that has never been written has no end
SECTION = re.compile(r"^<!-- ([a-z0-9_]+) -->$(?:.*?^<!-- end of \1 -->$)?", re.MULTILINE | re.DOTALL)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=HelpFormatter)
    parser.add_argument("--results", type=Path, default=LAB / "results", help="the folder of results")
    parser.add_argument("--report", type=Path, default=LAB / "REPORT.md", help="the report to write")
    parser.add_argument(
        "--picture",
        type=Path,
        default=DOCS / "does-it-help.svg",
        help="the picture to write; the pages go beside it",
    )
    parser.add_argument(
        "--keep", type=Path, nargs="+", default=[], metavar="FILE", help="first add these results to the studies"
    )
    return parser.parse_args()


def tables(records: Records) -> str:
    """Return all tables of all settings that have runs."""
    parts = []
    for setting, title in SETTINGS.items():
        if not (runs := records.runs(setting)):
            continue
        named = records.named(setting)
        speeds = shared_with_equal_models(named[SPEEDS]["models"]) if SPEEDS in named else {}
        signature = next(iter(next(iter(runs.values())).values()))["scores"]["bleu"]["signature"]
        parts += [f"## {title}", f"BLEU: `{signature}`"]
        shown = worth_showing(runs)
        for key in shown:
            table = TABLES[key]
            parts += [f"### {table.title}", render_table(table, runs, speeds).rstrip()]
            parts += [table.note] if table.note else []
        if TABLES.keys() - {"headline", *shown}:
            parts.append(left_out(setting))
    return "\n\n".join(parts)


def effects(records: Records) -> Columns:
    """Return the gains of all methods over seeds, by how their models were trained.

    A row of a plan is there once all its seeds are trained. A plan of one seed chooses and shows no effect.
    """
    columns = {"embedded corpus": embedded_gains(records)}
    for name, plan in PLANS.items():
        if len(plan.seeds) == 1:
            continue
        gains = planned_gains(records, name)
        columns.setdefault(plan.column, {}).update({title: gain for title, gain in gains.items() if gain.complete})
    return {column: methods for column, methods in columns.items() if methods}


def plans(records: Records) -> str:
    """Return what the planned experiments show; each plan was written before its models were trained."""
    return "\n\n".join(filter(None, (plan_table(records, name) for name in PLANS))) or "No run has ended yet."


SECTIONS: dict[str, Callable[[Records], str]] = {
    "plans": plans,
    "strong_student": strong_student.table,
    "strong_teacher": strong_teacher.table,
    "tables": tables,
    "depth": depth.tables,
    "analyses": analyses.table,
    "by_length": analyses.by_length,
    "probes": probe.table,
    "capsnmt_loops": capsnmt_loops.table,
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
    arguments = parse_arguments()
    if not arguments.results.is_dir():
        raise SystemExit(f"lab.report --results: no such folder: {arguments.results}")
    records = Records(arguments.results)
    for path in arguments.keep:
        records.keep("studies", {"name": path.stem, **read_result(path)})
    written = {arguments.picture: draw_effects(effects(records)), arguments.report: fill(LAB / "REPORT.md", records)}
    written |= {arguments.picture.with_name(page.name): fill(page, records) for page in PAGES}
    for path, text in written.items():
        write_output(path, text)
        print(f"Written to {path}")


if __name__ == "__main__":
    run(main)
