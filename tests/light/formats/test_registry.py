"""The registry of formats: its index and its page are made from the rows beside the readers."""

import subprocess
import sys
from collections import Counter
from pathlib import Path

from capsule_mt.files.binary import REFUSED_SUFFIXES
from capsule_mt.formats.__main__ import INDEX_FILE, index, main, page, rows
from capsule_mt.formats.apart import SMALL, parse_apart
from capsule_mt.formats.registry import INDEX, LINE_SUFFIXES, UNREADABLE_SUFFIXES, format_named
from capsule_mt.formats.units import Translated

ROOT = Path(__file__).resolve().parents[3]


def test_the_index_is_made_from_the_rows():
    assert INDEX_FILE.read_text(encoding="utf-8") == index()  # else: python -m capsule_mt.formats --index
    assert all(format_named(name) is row for name, row in ((row.name, row) for _, row in rows()))


def test_the_page_is_made_from_the_rows():
    assert (ROOT / "docs/formats.md").read_text(encoding="utf-8") == page()


def test_the_command_prints_the_page_or_writes_the_index(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr("sys.argv", ["__main__.py"])
    main()
    assert capsys.readouterr().out == page()
    monkeypatch.setattr("capsule_mt.formats.__main__.INDEX_FILE", tmp_path / "index.py")
    monkeypatch.setattr("sys.argv", ["__main__.py", "--index"])
    main()
    assert (tmp_path / "index.py").read_text(encoding="utf-8") == index()


def test_a_suffix_says_one_thing():
    suffixes = Counter(suffix for entry in INDEX.values() for suffix in entry.suffixes)
    suffixes.update([*LINE_SUFFIXES, *UNREADABLE_SUFFIXES, *REFUSED_SUFFIXES])
    assert [suffix for suffix, count in suffixes.items() if count > 1] == []


def test_the_command_imports_no_reader_at_its_start():
    code = "import sys, capsule_mt.commands.translate; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    modules = {f"capsule_mt.formats.{entry.module}" for entry in INDEX.values()} | {"capsule_mt.formats.format"}
    assert modules & set(run.stdout.split()) == set()


def test_a_large_page_states_its_language_as_a_small_one_does():
    for text in ("a", "a" * SMALL):
        file = parse_apart(f'<html lang="en"><p>{text}'.encode(), "html", name="a.html", language="por_Latn")
        assert file.write([Translated(text)]).startswith(b'<html lang="pt">')
