"""Files that the command line reads in a process of its own: the same result, and an end of those that crawl."""

import gc
import os

import pytest

from capsule_mt.commands import translate
from capsule_mt.files.sandbox import worker
from capsule_mt.formats import apart
from capsule_mt.formats.apart import PACKAGE, SMALL, ParsedApart, parse_apart
from capsule_mt.formats.reading import Source, parse
from capsule_mt.formats.registry import FLAGGING, format_of
from capsule_mt.formats.units import FormatError, Translated
from capsule_mt.formats.worker import Worker
from tests.light.formats.files import FILES, content_of

CRAWLING = b"<a " * 300_000  # `html.parser` takes hours


@pytest.fixture
def no_worker(monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("a process was started")

    monkeypatch.setattr(apart, "Worker", refuse)


@pytest.mark.parametrize("name", FILES)
def test_it_reads_and_writes_as_this_process_does(name, monkeypatch):
    monkeypatch.setattr(apart, "SMALL", 0)
    format = format_of(name)
    options = {"name": name, "encoding": None, "language": "de", "flag_all": format in FLAGGING}
    options["column"] = "2" if name.startswith("table.") else None
    file, apart_file = (read(content_of(name), format, **options) for read in (parse, parse_apart))
    assert isinstance(apart_file, ParsedApart)
    assert (list(apart_file.units), tuple(apart_file.keep)) == (list(file.units), tuple(file.keep))
    translations = [Translated(unit.text.upper()) for unit in file.units]
    process = apart_file._worker._process
    assert apart_file.write(translations) == file.write(translations)
    assert process.returncode is not None


def test_a_file_that_is_not_written_leaves_no_process():
    file = parse_apart(b"a" * SMALL, "markdown", name="a.md")
    process = file._worker._process
    del file
    gc.collect()
    assert process.returncode is not None


def test_a_small_file_starts_no_process(no_worker):
    content = b"a" * (SMALL - 1)
    assert [unit.text for unit in parse_apart(content, "markdown", name="a.md").units] == [content.decode()]


@pytest.mark.parametrize("content", [b"a" * SMALL, PACKAGE])
def test_a_large_file_and_a_package_start_one(content, no_worker):
    with pytest.raises(AssertionError, match="a process was started"):
        parse_apart(content, "markdown", name="a.md")


def test_an_option_of_another_format_is_refused_without_a_process(no_worker):
    with pytest.raises(ValueError, match=r"^a\.md: `column` is for tables"):
        parse_apart(b"a" * SMALL, "markdown", name="a.md", column="2")


def test_a_file_that_crawls_is_an_error_of_the_command(call, word_for_word, monkeypatch, tmp_path):
    monkeypatch.setattr(apart, "SECONDS", 0.5)
    monkeypatch.setattr(apart, "SECONDS_PER_MIB", 0.0)
    (tmp_path / "a.html").write_bytes(CRAWLING)
    with pytest.raises(FormatError, match=r"a\.html: takes longer than 0\.5 s to read or write$"):
        call(translate, word_for_word, tmp_path / "a.html")


def test_ctrl_c_ends_the_process(monkeypatch):
    processes = []

    def interrupt(*_):
        processes.append(worker_of_test._process)
        raise KeyboardInterrupt

    monkeypatch.setattr(worker, "receive", interrupt)
    with Worker() as worker_of_test, pytest.raises(KeyboardInterrupt):
        worker_of_test.read(Source(CRAWLING, "html", "a.html"), 1)
    (process,) = processes
    with pytest.raises(ProcessLookupError):
        os.kill(process.pid, 0)
