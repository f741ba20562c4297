"""`capsule-mt translate`: lines that fail, runs that are taken up again, and where the output goes."""

import gzip
import io
import json
import os
import re
import shutil
import threading
from types import SimpleNamespace

import pytest
from transformers import AutoModelForSeq2SeqLM

from capsule_mt.text.line_failures import Failure
from capsule_mt.text.lines import LineFormat, WindowLines
from capsule_mt.text.lock import lock_output
from capsule_mt.text.windows import WindowedOutput
from hf_capsule_mt.commands import translate
from tests.conftest import device_like
from tests.fixtures.word_for_word import sentences

LINES = sentences(7, seed=5)
TOO_LONG = " ".join(sentences(20, seed=6))  # for the 32 positions of the model, where it is not split
REASON = "ValueError: a source of"


@pytest.fixture
def run(word_for_word, monkeypatch, capfdbinary, tmp_path):
    """Translate; return the exit code, what was printed and the complaints."""

    def stop(*arguments):
        raise KeyboardInterrupt

    def translated(*arguments, lines=(), model=word_for_word, killed_in=None):
        text = "".join(f"{line}\n" for line in lines).encode()
        monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(text)))
        words = ["capsule-mt", model, "--cpu", "--no-split", *arguments]
        monkeypatch.setattr("sys.argv", [str(word) for word in words])
        if killed_in is not None:
            with monkeypatch.context() as patched:
                patched.setattr(WindowedOutput, killed_in, stop)
                with pytest.raises(KeyboardInterrupt):
                    translate.main()
            capfdbinary.readouterr()
            return None
        code = translate.main()
        printed, complaints = capfdbinary.readouterr()
        return code, printed.decode().split("\n")[:-1], complaints.decode()

    monkeypatch.chdir(tmp_path)
    return translated


@pytest.fixture
def expected(run):
    return run(lines=LINES)[1]


def test_a_line_that_fails_costs_no_other(run, expected, tmp_path):
    lines = [*LINES[:2], TOO_LONG, *LINES[2:], "", TOO_LONG]
    wanted = [*expected[:2], "", *expected[2:], "", ""]
    code, printed, complaints = run("--coverage", "c.jsonl", "--window", 4, lines=lines)
    assert (code, printed) == (3, wanted)
    for number in (3, 10):
        assert complaints.count(f"stdin, line {number}: {REASON}") == 1
    assert "2 lines could not be translated" in complaints
    rows = [json.loads(row) for row in (tmp_path / "c.jsonl").read_text().splitlines()]
    assert [row["line"] for row in rows] == list(range(10))
    assert [row["line"] for row in rows if row.get("error", "").startswith(REASON)] == [2, 9]
    assert sum("score" in row for row in rows) == 8
    (tmp_path / "in").write_text("".join(f"{line}\n" for line in lines))
    code, _, complaints = run("--input", "in", "--output", "out", "--coverage", "c.tsv", "--window", 4)
    assert (code, (tmp_path / "out").read_text().split("\n")[:-1]) == (3, wanted)
    assert complaints.count(f"in, line 3: {REASON}") == complaints.count(f"in, line 10: {REASON}") == 1
    assert (tmp_path / "c.tsv").read_text().split("\n")[2] == "2\t\t\t"


def test_n_best_of_a_line_that_fails(run):
    code, printed, _ = run("--num-beams", 2, "--n-best", 2, lines=[LINES[0], TOO_LONG])
    assert code == 3
    assert [line.split(" ||| ")[0] for line in printed] == ["0", "0", "1", "1"]
    assert printed[2:] == ["1 |||  ||| -inf"] * 2


def test_target_prefixes_by_line(run, expected):
    prefix = expected[1].split()[0]
    lines = [f"{LINES[0]}\t{prefix}", f"{LINES[1]}\t", LINES[2], f"{LINES[3]}\ta\tb"]
    code, printed, complaints = run("--target-prefix", lines=lines)
    assert code == 3
    assert printed[0].startswith(f"{prefix} ")
    assert printed[1:] == [*expected[1:3], ""]
    assert "stdin, line 4: ValueError: 3 columns, but TEXT<tab>PREFIX has 2" in complaints


def test_strict_stops_at_the_first(run, tmp_path):
    (tmp_path / "in").write_text("\n".join([*LINES, TOO_LONG, LINES[0]]))
    with pytest.raises(ValueError, match="in, line 8: ValueError: a source of"):
        run("--input", "in", "--output", "out", "--strict")
    assert not (tmp_path / "out").exists()


def test_an_interrupted_run_resumes_and_tells_of_lines_that_failed_before(run, expected, monkeypatch, tmp_path):
    (tmp_path / "in").write_text("\n".join([*LINES, TOO_LONG]))
    arguments = ("--input", "in", "--output", "out", "--window", 3)
    run(*arguments, killed_in="finish")
    with monkeypatch.context() as patched:
        patched.delattr(WindowedOutput, "write")  # everything is there
        code, _, complaints = run(*arguments)
    assert (code, (tmp_path / "out").read_text().split("\n")[:-1]) == (3, [*expected, ""])
    assert complaints.count(f"in, line 8: {REASON}") == 1
    assert sorted(path.name for path in tmp_path.iterdir() if path.name != "golden") == ["in", "out"]


def test_another_run_is_refused_and_named(run, word_for_word, tmp_path):
    (tmp_path / "in").write_text("\n".join(LINES))
    model = shutil.copytree(word_for_word, tmp_path / "model")
    arguments = ("--input", "in", "--output", "out", "--coverage")
    run(*arguments, "c.tsv", model=model, killed_in="finish")
    with pytest.raises(ValueError, match=r"\(coverage: 'tsv' then, 'jsonl' now\); `--restart` discards it"):
        run(*arguments, "c.jsonl", model=model)
    with pytest.raises(ValueError, match=r"\(num_beams: None then, 2 now\); `--restart`"):
        run(*arguments, "c.tsv", "--num-beams", 2, model=model)
    tokenizer = (model / "tokenizer.json").read_text()
    (model / "tokenizer.json").write_text(tokenizer.replace('"WhitespaceSplit"', '"Whitespace"'))
    with pytest.raises(ValueError, match=r"\(tokenizer: '.*' then, '.*' now\); `--restart`"):
        run(*arguments, "c.tsv", model=model)
    (model / "tokenizer.json").write_text(tokenizer)
    changed = AutoModelForSeq2SeqLM.from_pretrained(model)
    changed.lm_head.weight.data.neg_()
    changed.save_pretrained(model)
    with pytest.raises(ValueError, match=r"with other settings \(models: .*weights.* now\); `--restart`"):
        run(*arguments, "c.tsv", model=model)
    assert run(*arguments, "c.tsv", "--restart", model=model)[0] == 0


def test_an_output_has_one_writer(run, tmp_path):
    (tmp_path / "in").write_text("\n".join(LINES))
    with lock_output(tmp_path / "out"), pytest.raises(BlockingIOError, match=f"out is being .* process {os.getpid()}"):
        run("--input", "in", "--output", "out")
    assert run("--input", "in", "--output", "out")[0] == 0


def test_machines_share_the_folder_of_the_output_alone(run, expected, monkeypatch, tmp_path):
    """Whichever process ends last joins the parts; one that was killed is started again alone."""
    lines = [LINES[0], TOO_LONG, *LINES[1:], TOO_LONG]
    wanted = [expected[0], "", *expected[1:], ""]
    (tmp_path / "in").write_text("".join(f"{line}\n" for line in lines))
    arguments = ("--input", "in", "--output", "out", "--coverage", "c.tsv", "--window", 2)
    monkeypatch.setenv("WORLD_SIZE", "3")
    for order in ("021", "210"):
        for rank, done in zip(order, ("", "[1-4] of 5 windows are there, the last process joins them"), strict=False):
            monkeypatch.setenv("RANK", rank)
            run(*arguments, killed_in="count_done" if rank == "2" else "begin")
            code, _, complaints = run(*arguments)
            assert code == 0
            assert re.search(f"out, process {rank} of 3: .*{done}", complaints)
            assert not (tmp_path / "out").exists()
        monkeypatch.setenv("RANK", order[2])
        code, _, complaints = run(*arguments)
        assert (code, (tmp_path / "out").read_text().split("\n")[:-1]) == (3, wanted)
        for number in (2, 9):
            assert complaints.count(f"in, line {number}: {REASON}") == 1
        assert len((tmp_path / "c.tsv").read_text().splitlines()) == len(lines)
        assert sorted(path.name for path in tmp_path.iterdir() if path.name != "golden") == ["c.tsv", "in", "out"]
        (tmp_path / "out").unlink()


def test_two_that_end_together_join_once(run, expected, monkeypatch, tmp_path):
    (tmp_path / "in").write_text("\n".join(LINES))
    arguments = ("--input", "in", "--output", "out", "--window", 2)
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")
    run(*arguments)
    monkeypatch.setenv("RANK", "0")
    run(*arguments, killed_in="finish")
    monkeypatch.setenv("RANK", "1")
    finish = WindowedOutput.finish
    count_done, counted = WindowedOutput.count_done, []

    def count_and_let_the_other_join(output):
        counted.append(count_done(output))
        if len(counted) == 1:
            finish(output)
        return counted[-1]

    monkeypatch.setattr(WindowedOutput, "count_done", count_and_let_the_other_join)
    code, _, complaints = run(*arguments)
    assert (code, counted) == (0, [4, 0])
    assert "out, process 1 of 2: joined by another process" in complaints
    assert (tmp_path / "out").read_text().split("\n")[:-1] == expected


def test_a_share_that_is_none_is_refused(run, monkeypatch, tmp_path):
    (tmp_path / "in").write_text("\n".join(LINES))
    arguments = ("--input", "in", "--output", "out")
    for rank, size in (("2", "2"), ("-1", "2"), ("x", "2"), ("0", "0")):
        monkeypatch.setenv("RANK", rank)
        monkeypatch.setenv("WORLD_SIZE", size)
        with pytest.raises(ValueError, match=f"RANK must be in .*, got RANK={rank} and WORLD_SIZE={size}"):
            run(*arguments)
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ValueError, match=r"--restart goes with one process.*remove out\.parts"):
        run(*arguments, "--restart")
    with pytest.raises(ValueError, match="2 processes need a regular file for --output, got None"):
        run("--input", "in")


def test_links_devices_and_pipes(run, expected, tmp_path):
    (tmp_path / "in.gz").write_bytes(gzip.compress("\n".join(LINES).encode()))
    (tmp_path / "link").symlink_to("target")
    read = []
    os.mkfifo("fifo")
    reader = threading.Thread(target=lambda: read.extend((tmp_path / "fifo").read_text().split("\n")[:-1]))
    reader.start()
    null, full = (device_like(name, tmp_path) for name in ("null", "full"))
    for output in ("link", "fifo", null):
        assert run("--input", "in.gz", "--output", output)[:2] == (0, [])
    reader.join()
    assert read == (tmp_path / "target").read_text().split("\n")[:-1] == expected
    assert (tmp_path / "link").is_symlink()
    assert run("--input", "in.gz", "--output", "/dev/stdout")[1] == expected
    assert not os.path.isfile(null)
    with pytest.raises(OSError, match=f"No space left on device: '{full}'"):
        run("--input", "in.gz", "--output", full)


def test_a_damaged_input_is_named_before_the_model_is_loaded(run, tmp_path):
    (tmp_path / "in.gz").write_bytes(b"")
    (tmp_path / "config.json").write_text("{bad")
    with pytest.raises(ValueError, match=r"in\.gz, after line 0: the gzip file is damaged"):
        run("--input", "in.gz", "--output", "out", model=tmp_path)
    with pytest.raises(ValueError, match=r"nothing: no such file"):
        run("--input", "nothing", "--output", "out", model=tmp_path)


def test_numbers_that_are_none_are_no_output():
    nan = float("nan")
    coverage = {"score": nan, "words": [], "repetitions": []}
    record = {"translation_text": "", "score": nan, "coverage": coverage}
    for format_, result in (
        (LineFormat(2), [record]),
        (LineFormat(coverage="jsonl"), record),
        (LineFormat(coverage="tsv"), record),
    ):
        with pytest.raises(ValueError, match=r"[Nn]ot a number|not JSON compliant"):
            format_.columns(0, result)


def test_a_line_whose_numbers_are_none_has_failed(capfd):
    def columns(number, result):
        if result == "NAN":
            raise ValueError("no number")
        return [[f"{number} {result}"], ["a", "b"]]

    def upper(lines):
        return [line.upper() for line in lines]

    lines = WindowLines(upper, columns, "file, line")
    failure = f"8 {Failure('ValueError: no number')}"
    for _ in range(2):  # told once
        assert lines(7, ["a", "nan", "b"]) == (
            [["7 A", failure, "9 B"], ["a", "b"] * 3],
            {8: "ValueError: no number"},
        )
    assert capfd.readouterr().err.count("file, line 9: ValueError: no number\n") == 1
    with pytest.raises(ValueError, match="file, line 1: ValueError: no number"):
        WindowLines(upper, columns, "file, line", strict=True)(0, ["nan"])
