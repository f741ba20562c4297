"""Reading text: the same lines and the same errors from every reader."""

import gzip
import io

import pytest

from hf_capsule_mt.data import readers
from hf_capsule_mt.evaluation.metrics import score_corpus
from hf_capsule_mt.evaluation.text_files import decode_lines, read_lines, read_parallel

# data/ imports no other room and has a reader of its own, for files too large for the memory
READERS = [read_lines, lambda path: list(readers.read_lines(path))]


@pytest.fixture(params=READERS, ids=["evaluation", "data"])
def reader(request):
    return request.param


def test_lines_plain_and_gzipped(reader, tmp_path):
    content = "äö\n\nb\u2028c \r\n"  # only line feeds end a line
    (tmp_path / "plain").write_bytes(content.encode())
    (tmp_path / "packed.gz").write_bytes(gzip.compress(content.encode()))
    (tmp_path / "open").write_bytes(b"a\nb")
    (tmp_path / "empty").write_bytes(b"")
    assert reader(tmp_path / "plain") == ["äö", "", "b\u2028c "]
    assert reader(tmp_path / "packed.gz") == ["äö", "", "b\u2028c "]
    assert reader(tmp_path / "open") == ["a", "b"]
    assert reader(tmp_path / "empty") == []


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ValueError, match="no such file"):
        read_lines(tmp_path / "missing")


@pytest.mark.parametrize("name", ["text", "text.gz"])
def test_a_byte_order_mark_is_no_text(reader, tmp_path, name):
    content = "\ufeffäö\n\ufeffb\n".encode()
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    assert reader(tmp_path / name) == ["äö", "\ufeffb"]  # at the start of the file alone


def test_a_byte_order_mark_costs_no_bleu(tmp_path):
    line = "Der alte Mann kauft einen roten Hut .\n"
    (tmp_path / "hypotheses").write_text(line, encoding="utf-8-sig")
    (tmp_path / "references").write_text(line, encoding="utf-8")
    hypotheses, references = read_parallel([tmp_path / "hypotheses", tmp_path / "references"])
    assert score_corpus(hypotheses, [references], ["bleu"])["bleu"].score == pytest.approx(100)


@pytest.mark.parametrize("name", ["text", "text.gz"])
def test_text_that_is_not_utf8_is_named(reader, tmp_path, name):
    content = b"good\nb\xffd\n"
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    with pytest.raises(ValueError, match=rf"{name}, line 2: not UTF-8 \(invalid start byte at byte 1\)"):
        reader(tmp_path / name)


def test_a_file_cut_off_is_an_error_and_not_a_shorter_file(reader, tmp_path):
    whole = gzip.compress("".join(f"line {number}\n" for number in range(1000)).encode())
    for damaged in (
        whole[: len(whole) // 2],
        whole[:-4],
        whole[:-8] + b"\0" * 8,
        b"no gzip",
        whole[:20] + b"\xff" * 99,
    ):
        (tmp_path / "text.gz").write_bytes(damaged)
        with pytest.raises(ValueError, match=r"text\.gz, after line \d+: the gzip file is damaged \(.+\)"):
            reader(tmp_path / "text.gz")


def test_lines_end_at_line_feeds_alone():
    text = "a\u2028b\x0bc\r\n\n\x85d\re\nlast".encode()
    assert list(decode_lines(io.BytesIO(text), "text")) == ["a\u2028b\x0bc", "", "\x85d\re", "last"]
    with pytest.raises(ValueError, match=r"text\.en, line 2: not UTF-8 \(invalid start byte at byte 1\)"):
        list(decode_lines(io.BytesIO(b"good\nb\xffd\n"), "text.en"))


def test_parallel_files_must_be_as_long_as_each_other(tmp_path):
    (tmp_path / "a").write_text("1\n2\n")
    (tmp_path / "b").write_text("1\n")
    assert read_parallel([tmp_path / "a", tmp_path / "a"]) == [["1", "2"], ["1", "2"]]
    with pytest.raises(ValueError, match=r"b: has 1 lines, but .*a has 2"):
        read_parallel([tmp_path / "a", tmp_path / "b"])
