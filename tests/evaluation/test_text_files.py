"""Reading text."""

import gzip

import pytest

from hf_capsule_mt.evaluation.text_files import read_lines, read_parallel, read_table, write_lines


def test_lines_plain_and_gzipped(tmp_path):
    content = "äö\n\nb\u2028c \r\n"  # only line feeds end a line
    (tmp_path / "plain").write_bytes(content.encode())
    (tmp_path / "packed.gz").write_bytes(gzip.compress(content.encode()))
    (tmp_path / "open").write_bytes(b"a\nb")
    (tmp_path / "empty").write_bytes(b"")
    assert read_lines(tmp_path / "plain") == ["äö", "", "b\u2028c "]
    assert read_lines(tmp_path / "packed.gz") == ["äö", "", "b\u2028c "]
    assert read_lines(tmp_path / "open") == ["a", "b"]
    assert read_lines(tmp_path / "empty") == []
    with pytest.raises(ValueError, match="no such file"):
        read_lines(tmp_path / "missing")


@pytest.mark.parametrize("name", ["some.hyp", "some.hyp.gz"])
def test_what_is_written_is_read(tmp_path, name):
    lines = ["äö", "", "b\u2028c "]
    write_lines(tmp_path / "new" / name, lines)
    assert read_lines(tmp_path / "new" / name) == lines
    before = (tmp_path / "new" / name).read_bytes()
    write_lines(tmp_path / "new" / name, iter(lines))
    assert (tmp_path / "new" / name).read_bytes() == before
    assert (before[:2] == b"\x1f\x8b") == name.endswith(".gz")


def test_parallel_files_must_be_as_long_as_each_other(tmp_path):
    (tmp_path / "a").write_text("1\n2\n")
    (tmp_path / "b").write_text("1\n")
    assert read_parallel([tmp_path / "a", tmp_path / "a"]) == [["1", "2"], ["1", "2"]]
    with pytest.raises(ValueError, match=r"b: has 1 lines, but .*a has 2"):
        read_parallel([tmp_path / "a", tmp_path / "b"])


def test_a_table_says_where_it_is_broken(tmp_path):
    (tmp_path / "table").write_text('src\tmt\nein "Wort\tone\n')
    assert read_table(tmp_path / "table") == {"src": ['ein "Wort'], "mt": ["one"]}
    (tmp_path / "table").write_text("src\tmt\nein\n")
    with pytest.raises(ValueError, match="table:2: has 1 columns, but the header has 2"):
        read_table(tmp_path / "table")
