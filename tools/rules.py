"""Print docs/rules.md, the table of rules: `python -m tools.rules > docs/rules.md`."""

from capsule_mt.text.rules import ITEM, ROWS, Row

ABOUT = """\
<!-- `python -m tools.rules` writes this page. -->

# Rules of reading

A model has mostly read sentences in plain typography. So other text is changed before a model reads it, and what was
changed comes back in the translation. Each rule is a row of one table, which Python and JavaScript read;
`Translation.edits`, and `capsule-mt translate --explain`, name the rows that changed a text.

`keep` rows are copied into the translation: the model reads the item itself, a stand-in that it copies more often, or
nothing. `form` rows are read in another form. Then lines in CAPITALS or lowercase are read in sentence case. `late`
rows are about what the vocabulary lacks, `before`, `after` and `ending` about the edges of a sentence, and `back`
about the translation. `copy=False` turns all of them off; `keep=["numbers"]` adds the row `number`.

An example is read by a model from English to Portuguese whose vocabulary has the characters of ASCII, \u20ac and \xe0.
"""
TABLE = """
| rule | stage | kind | example | is read as | only if |
|---|---|---|---|---|---|
"""


def page() -> str:
    """Return docs/rules.md."""
    return "".join([ABOUT, TABLE, *map(row, ROWS)])


def row(rule: Row) -> str:
    cells = [rule.id, rule.stage, rule.kind, cell(rule.example), cell(rule.read), rule.when or ""]
    return f"| {' | '.join(cells)} |\n"


def cell(text: str) -> str:
    """Return a text as code in a table of Markdown."""
    text = text.replace("|", "\\|").replace("\n", "\\n").replace(ITEM, "U+E000").replace("\u200d", "U+200D")
    return f"`` {text} ``" if "`" in text else f"`{text}`"


if __name__ == "__main__":
    print(page(), end="")
