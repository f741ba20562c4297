"""Print docs/formats.md, the list of formats for readers, or rewrite the index of formats."""

import argparse
import pkgutil
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

import capsule_mt.formats
from capsule_mt.files.binary import REFUSED_SUFFIXES
from capsule_mt.formats.format import Format
from capsule_mt.formats.reading import MAX_UNPACKED
from capsule_mt.formats.registry import INDEX, LINE_SUFFIXES, UNREADABLE_SUFFIXES, IndexEntry, rows_of
from capsule_mt.formats.xml import MAX_BYTES, MAX_DEPTH

INDEX_FILE = Path(__file__).with_name("index.py")
INDEX_HEAD = '''\
"""What commands ask about the formats before they import a reader.

`python -m capsule_mt.formats --index` writes this file from the rows beside the readers.
"""

# name, module, suffixes, and the facts that hold
ROWS: tuple[tuple[str, str, tuple[str, ...], dict[str, bool]], ...] = (
'''
HEAD = """\
# Formats

These are the files that `capsule-mt translate` and `translate_file` read and write. The suffix of a file's name says
its format; `--format` says it for another suffix or a pipe. As input, each may be gzipped (`page.html.gz`). The server
takes them and `.txt`, but no tables and nothing gzipped. [Files](files.md) shows how to translate one.
"""
RULES = """
## Rules of several formats

| files | rule |
|---|---|
"""
RULE_OF_FACT = {
    "has_flags": "flag each translation to check, and with `--flag-all` every translation, but see XLIFF",
    "needs_column": "need `--column`; the server does not take them",
    "needs_line_feeds": "are refused if all their lines end with CR alone",
    "is_binary": "are not printed on a terminal: name an `--output`",
    "has_language_tags": "state a language as `pt-BR`, never as `pt_BR`",
}
LIMITS = """
A file in XML has at most `{xml} MiB`, and so have all parts of an office document or a book together; a gzipped file
of these formats unpacks to at most `{unpacked} MiB`. Elements of XML are nested at most `{depth}` deep.
"""
OTHER_FILES = """
## Lines of text

Files that end in {lines}
or a language's code (`.de`, `.pt_BR`, `.deu_Latn`), or do not have a suffix, are translated line by line.
`--format lines` reads any other file of text in this way.

## Refused files

| files | what they are | what to do |
|---|---|---|
"""


def rows() -> list[tuple[str, Format]]:
    """Return each format with the name of its module: in the order of the index, then those that it lacks."""
    modules = [module.name for module in pkgutil.iter_modules(capsule_mt.formats.__path__)]
    rows = [
        (module, row)
        for module in modules
        if module != "__main__"
        for row in rows_of(import_module(f"capsule_mt.formats.{module}"))
        if row.suffixes
    ]
    order = list(INDEX)
    return sorted(rows, key=lambda row: order.index(row[1].name) if row[1].name in INDEX else len(order))


def index() -> str:
    """Return the source of index.py."""
    lines = []
    for module, row in rows():
        facts = {name: True for name in IndexEntry._field_defaults if getattr(row, name)}
        lines.append(f"    {(row.name, module, row.suffixes, facts)},\n".replace("'", '"'))
    return f"{INDEX_HEAD}{''.join(lines)})\n"


def page() -> str:
    """Return docs/formats.md."""
    formats = [row for _, row in rows()]
    rules = []
    for fact, rule in RULE_OF_FACT.items():
        suffixes = [suffix for row in formats if getattr(row, fact) for suffix in row.suffixes]
        rules.append((_shown(suffixes), rule))
    limits = LIMITS.format(xml=MAX_BYTES >> 20, unpacked=MAX_UNPACKED >> 20, depth=MAX_DEPTH)
    return HEAD + "".join(map(_section, formats)) + RULES + _table(rules) + limits + _other_files()


def _section(row: Format) -> str:
    details = {
        "Translated": row.translated,
        "Unchanged": row.unchanged,
        "Limits": row.limits,
        "Read in tests by": row.judges,
    }
    items = "".join(f"- {name}: {text}\n" for name, text in details.items() if text)
    return f"\n## {row.title}\n\n{_shown(row.suffixes)} (`--format {row.name}`)\n\n{items}"


def _other_files() -> str:
    """Return the sections about files that do not have a format."""
    suffixes: dict[tuple[str, str], list[str]] = {}
    text_kinds = {
        suffix: ("text of another kind", advice or "save it in a format of this page")
        for suffix, advice in UNREADABLE_SUFFIXES.items()
    }
    for suffix, reason in {**REFUSED_SUFFIXES, **text_kinds}.items():
        suffixes.setdefault(reason, []).append(suffix)
    refusals = [(_shown(group), kind, advice) for (kind, advice), group in suffixes.items()]
    return OTHER_FILES.format(lines=_shown(LINE_SUFFIXES)) + _table(refusals)


def _shown(suffixes: Sequence[str]) -> str:
    return ", ".join(f"`{suffix}`" for suffix in suffixes)


def _table(table: Sequence[Sequence[str]]) -> str:
    return "".join(f"| {' | '.join(cells)} |\n" for cells in table)


def main() -> None:
    program = "python -m capsule_mt.formats"  # argparse's would be __main__.py
    parser = argparse.ArgumentParser(prog=program, description=__doc__)
    parser.add_argument("--index", action="store_true", help=f"rewrite {INDEX_FILE.name} from the rows of the formats")
    if parser.parse_args().index:
        INDEX_FILE.write_text(index(), encoding="utf-8")
    else:
        print(page(), end="")


if __name__ == "__main__":
    main()
