"""The pages are as short as they should be, and those that code writes are what it writes."""

import re
from pathlib import Path

from tools import reasons, rules
from tools.recipes import page

ROOT = Path(__file__).resolve().parents[2]
NAMES = ("options", "api", "errors", "formats", "endpoints", "recipes", "evidence", "rules")
GENERATED = {f"{name}.md" for name in NAMES}


GENERATED_SECTION = re.compile(r"<!-- ([a-z0-9_]+) -->.*?<!-- end of \1 -->", re.DOTALL)


def words(path: Path) -> int:
    return len(GENERATED_SECTION.sub("", path.read_text(encoding="utf-8")).split())


def test_the_pages_keep_their_budget():
    documents = [path for path in (ROOT / "docs").glob("*.md") if path.name not in GENERATED]
    lengths = {path.name: words(path) for path in (*documents, ROOT / "CONTRIBUTING.md")}
    assert {name: length for name, length in lengths.items() if length > 1500} == {}
    assert sum(lengths.values()) <= 16_500, lengths
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 110


def test_the_page_of_recipes_lists_them_all():
    """After a change: python -m tools.recipes > docs/recipes.md."""
    assert (ROOT / "docs/recipes.md").read_text(encoding="utf-8") == page()


def test_the_page_of_rules_has_all_rows_and_what_they_earn():
    """After a change: python -m tools.rules > docs/rules.md."""
    assert (ROOT / "docs/rules.md").read_text(encoding="utf-8") == rules.page()


def test_the_reasons_are_those_of_the_table():
    """After a change: python -m tools.reasons."""
    assert reasons.SCRIPT.read_text(encoding="utf-8") == reasons.script()
    assert reasons.table() in reasons.PAGE.read_text(encoding="utf-8")
