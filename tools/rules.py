"""Print docs/rules.md, the table of rules with what each earns: `python -m tools.rules > docs/rules.md`."""

import json
from pathlib import Path
from typing import Any

from capsule_mt.text.rules import ITEM, ROWS, Row

RESULTS = Path(__file__).resolve().parents[1] / "lab" / "results" / "rules.jsonl"  # of lab/rules.py
ABOUT = """\
<!-- `python -m tools.rules` writes this page. -->

# Rules of reading

A model has mostly read sentences in plain typography. So other text is changed before a model reads it, and what is
kept comes back in the translation. Each rule is a row of one table, which Python and JavaScript read;
`Translation.edits`, and `capsule-mt translate --explain`, name the rows that changed a text, `before` and `after` ones
as `edge`.

`keep` rows but `language token` are copied into the translation, `numeral` mostly with the target's signs: the model
reads the item itself, a stand-in that it copies more often, or nothing. `form` rows are read in another form. Then
long enough lines in CAPITALS or lowercase are read in sentence case. `late` rows are about what the vocabulary lacks,
`before`, `after` and `ending` about the edges of a sentence, and `back` about the translation. `copy=False` turns off
all but `language token` and what `keep` names; `keep=["numbers"]` adds the row `number`.

An example is read by a model from English to Portuguese whose vocabulary has the characters of ASCII, \u20ac, \xe0 and
four words; that of `french` is a translation.
"""
TABLE = """
| rule | stage | kind | example | is read as | only if |
|---|---|---|---|---|---|
"""
EARNED = """
## What each rule earns

`python -m lab.rules` translates natural text by Firefox's en-pt and pt-en, with the table and without a row:
{judges}.

The text is strings of packages of Debian with their translations into Portuguese, the half of FLORES and the end of
Tatoeba that chose no rule, and lines of Reddit (RoCS-MT), whose reference is the translation of their normalised form.
`rate` is the share of {lines:,} lines that the row changes: these, other strings, and descriptions of Python packages.
`better` and `worse` count the translations that a row changes, by chrF, and `gain` is the BLEU that all lines lose
without it.

These rows never fire there, or lose, and stay for what they prevent:

{reasons}
Others fire and change no translation for the better there: without `numeral`, a model may write numbers such as
`1,234,567` with wrong signs; without `break`, `\\.nThen` for `.\\nThen`.

| rule | rate | better | worse | gain |
|---|---|---|---|---|
"""
# why a row stays that never fires there, or loses
REASONS = {
    "folder": "other documentation has such paths, whose words a model may translate.",
    "lacked sign": "without it, a model may drop signs that its vocabulary lacks.",
    "private character": "`U+E000` stands for an item, and `U+E003` for a tag; a text that has them would lose them.",
}
SURVIVAL = """
## What comes back as it was

These kinds of words must stand in a translation as they are; of numbers, the digits. They are found by patterns that
share nothing with the table (`lab/survivors.yaml`). A number may also change rightly, as `15th century` to
`s\u00e9culo XV`; in FLORES, people change more of them. Of {lines:,} lines, translations lack:

| text | lines | words | missing | share | which |
|---|---|---|---|---|---|
"""


def page() -> str:
    """Return docs/rules.md."""
    results = json.loads(RESULTS.read_text(encoding="utf-8"))
    judges = ", ".join(f"{name} (BLEU {bleu:.1f})" for name, bleu in results["bleu"].items())
    names = {rule.id for rule in ROWS}
    measured = [entry for entry in results["rows"] if entry["row"] in names]  # rows that lost may be gone
    unearned = [entry["row"] for entry in measured if entry["verdict"] != "stays"]
    reasons = "".join(f"- `{name}`: {REASONS[name]}\n" for name in unearned)
    earned = EARNED.format(judges=judges, lines=results["lines"], reasons=reasons)
    rows = [ABOUT, TABLE, *map(row, ROWS), earned, *(earned_row(entry, results["lines"]) for entry in measured)]
    survival = SURVIVAL.format(lines=sum(entry["lines"] for entry in results["survival"]))
    return "".join([*rows, survival, *map(survival_row, results["survival"])])


def row(rule: Row) -> str:
    cells = [rule.id, rule.stage, rule.kind, cell(rule.example), cell(rule.read), rule.when or ""]
    return f"| {' | '.join(cells)} |\n"


def earned_row(entry: dict[str, Any], num_lines: int) -> str:
    better, worse = (sum(judge[side] for judge in entry["judges"]) for side in ("better", "worse"))
    gains = ", ".join(f"{judge['judge']} {judge['gain']:+.2f}" for judge in entry["judges"] if round(judge["gain"], 2))
    return f"| {entry['row']} | {entry['lines'] / num_lines:.2%} | {better} | {worse} | {gains} |\n"


def survival_row(entry: dict[str, Any]) -> str:
    words, missing = (sum(counts[index] for counts in entry["words"].values()) for index in (0, 1))
    kinds = ", ".join(f"{counts[1]} of {counts[0]:,} {kind}" for kind, counts in entry["words"].items() if counts[1])
    return f"| {entry['judge']} | {entry['lines']:,} | {words:,} | {missing} | {missing / words:.2%} | {kinds} |\n"


def cell(text: str) -> str:
    """Return a text as code in a table of Markdown."""
    text = text.replace("|", "\\|").replace("\n", "\\n").replace(ITEM, "U+E000").replace("\u200d", "U+200D")
    return f"`` {text} ``" if "`" in text else f"`{text}`"


if __name__ == "__main__":
    print(page(), end="")
