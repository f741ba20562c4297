"""Tables and written lines."""

from pathlib import Path

import pytest

from hf_capsule_mt.files.text import read_lines
from lab.text_files import read_table, write_lines


@pytest.mark.parametrize("name", ["some.hyp", "some.hyp.gz"])
def test_what_is_written_is_read(tmp_path: Path, name: str) -> None:
    lines = ["äö", "", "b\u2028c "]
    write_lines(tmp_path / "new" / name, lines)
    assert read_lines(tmp_path / "new" / name) == lines
    before = (tmp_path / "new" / name).read_bytes()
    write_lines(tmp_path / "new" / name, iter(lines))
    assert (tmp_path / "new" / name).read_bytes() == before
    assert (before[:2] == b"\x1f\x8b") == name.endswith(".gz")


def test_a_table_says_where_it_is_broken(tmp_path: Path) -> None:
    (tmp_path / "table").write_text('src\tmt\nein "Wort\tone\n')
    assert read_table(tmp_path / "table") == {"src": ['ein "Wort'], "mt": ["one"]}
    (tmp_path / "table").write_text("src\tmt\nein\n")
    with pytest.raises(ValueError, match="table:2: has 1 columns, but the header has 2"):
        read_table(tmp_path / "table")
