"""Lines: one reader for every command; one line that fails costs no other line."""

import gzip
import io

import pytest

from capsule_mt.files.line_failures import PROBE, Failure, translate_lines
from capsule_mt.files.reading import decode_lines, read_bytes, read_lines, read_parallel


def written(file, content):
    file.write_bytes(gzip.compress(content) if file.suffix == ".gz" else content)
    return file


@pytest.mark.parametrize("name", ["text", "text.gz"])
def test_lines_plain_and_gzipped(name, tmp_path):
    file = tmp_path / name
    # only line feeds end a line, and a byte order mark is one at the start of the file alone
    assert read_lines(written(file, "\ufeffäö\n\n\ufeffb\u2028c \r\n".encode())) == ["äö", "", "\ufeffb\u2028c "]
    assert list(decode_lines(io.BytesIO("\ufeffä".encode("utf-16-le")), "text", "utf-16-le")) == ["ä"]
    assert read_lines(written(file, b"a\nb")) == ["a", "b"]
    assert read_lines(written(file, b"")) == []
    with pytest.raises(ValueError, match=rf"{name}, line 2: not UTF-8 \(invalid start byte at byte 1\)"):
        read_lines(written(file, b"good\nb\xffd\n"))


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ValueError, match="missing: no such file"):
        read_lines(tmp_path / "missing")
    with pytest.raises(ValueError, match=f"{tmp_path} is a folder"):
        read_lines(tmp_path)


def test_a_file_cut_off_is_an_error_and_not_a_shorter_file(tmp_path):
    compressed = gzip.compress("".join(f"line {number}\n" for number in range(1000)).encode())
    for damaged in (
        b"",
        compressed[: len(compressed) // 2],
        compressed[:-4],
        compressed[:-8] + b"\0" * 8,
        b"no gzip",
        compressed[:20] + b"\xff" * 99,
    ):
        (tmp_path / "text.gz").write_bytes(damaged)
        with pytest.raises(ValueError, match=r"text\.gz, after line \d+: the gzip file is damaged \(.+\)"):
            read_lines(tmp_path / "text.gz")
        if damaged:
            with (
                gzip.open(tmp_path / "text.gz") as stream,
                pytest.raises(ValueError, match=r"the gzip file is damaged"),
            ):
                list(decode_lines(stream, "text.gz", "cp1252"))
        with pytest.raises(ValueError, match=r"text\.gz.*: the gzip file is damaged \(.+\)"):
            read_bytes(tmp_path / "text.gz")


def test_parallel_files_must_be_as_long_as_each_other(tmp_path):
    (tmp_path / "a").write_text("1\n2\n")
    (tmp_path / "b").write_text("1\n")
    assert read_parallel([tmp_path / "a", tmp_path / "a"]) == [["1", "2"], ["1", "2"]]
    with pytest.raises(ValueError, match=r"b: has 1 line, but .*a has 2"):
        read_parallel([tmp_path / "a", tmp_path / "b"])


class Panic(BaseException):
    """What the tokenizers raise when they panic."""


Panic.__name__ = "PanicException"


def translator(bad=(), error=ValueError, probe_fails=False):
    calls = []

    def translate(lines):
        calls.append(lines)
        if (bad and set(bad) & set(lines)) or (probe_fails and lines == [PROBE]):
            raise error("no\n  way")
        return [line.upper() for line in lines]

    return translate, calls


@pytest.mark.parametrize("error", [ValueError, RecursionError, MemoryError, RuntimeError, Panic])
def test_the_lines_that_fail_are_found(error):
    lines = [f"line {number}" for number in range(100)]
    translate, calls = translator({"line 0", "line 41", "line 42", "line 99"}, error)
    results = translate_lines(translate, lines)
    reason = f"{error.__name__}: no way"
    assert [number for number, result in enumerate(results) if result == Failure(reason)] == [0, 41, 42, 99]
    assert [result for result in results if isinstance(result, str)] == [
        line.upper() for number, line in enumerate(lines) if number not in (0, 41, 42, 99)
    ]
    assert len(calls) < 60


def test_an_error_of_every_line_is_raised_soon():
    translate, calls = translator({"0"}, probe_fails=True)
    with pytest.raises(ValueError, match="no"):
        translate_lines(translate, [str(number) for number in range(1024)])
    assert len(calls) == 12


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_who_stops_the_program_stops_it(error):
    translate, calls = translator({"a"}, error)
    with pytest.raises(error):
        translate_lines(translate, ["a", "b"])
    assert len(calls) == 1
