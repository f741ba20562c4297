"""`capsule-mt translate` and `capsule-mt score`: files and pipes, lines that fail, runs that resume. No torch."""

import gzip
import io
import itertools
import json
import logging
import lzma
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import zipfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from capsule_mt import (
    CoverageOptions,
    Judge,
    JudgedWord,
    Judgement,
    Reason,
    Segment,
    Translator,
    commands,
    translate_file,
)
from capsule_mt.commands import score, translate
from capsule_mt.commands.loading import load_translator
from capsule_mt.files import reading
from capsule_mt.files.lines import coverage_record
from capsule_mt.files.reading import LiveLines
from capsule_mt.files.windows import WindowedOutput
from capsule_mt.models.shortlist import Shortlist
from capsule_mt.translate.scorer import Scorer
from tests.conftest import device_like
from tests.fixtures.word_for_word import sentences

RELEASED = Path(__file__).parents[2] / "checkpoints"
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
# the program, which is killed when it begins the fourth window
KILLED_IN_WINDOW_3 = """
import os, signal, sys
from capsule_mt.commands import program
from capsule_mt.files.windows import WindowedOutput

begin, windows = WindowedOutput.begin, []

def begin_or_be_killed(output, window):
    windows.append(window)
    if len(windows) == 4:
        os.kill(os.getpid(), signal.SIGKILL)
    begin(output, window)

WindowedOutput.begin = begin_or_be_killed
program()
"""
LINES = sentences(7, seed=5)
SOURCES = [*LINES[:5], ""]
TOO_LONG = " ".join(sentences(20, seed=6))  # for the 32 positions of the model, where it is not split
REASON = "ValueError: a source of"
FORBIDDEN = ("torch", "transformers", "numpy", "huggingface_hub", "safetensors", "tqdm", "hf_capsule_mt")
ALONE = f"""
import runpy, sys

class Forbids:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {FORBIDDEN}:
            raise AssertionError(f"{{name}} was imported")

sys.meta_path.insert(0, Forbids())
sys.argv[0] = "capsule-mt"
runpy.run_module("capsule_mt", run_name="__main__")
"""


def python(code, *arguments, text=""):
    """Run a program; return the lines that it printed, and its complaints."""
    command = [sys.executable, "-c", code, *map(str, arguments)]
    process = subprocess.run(command, input=text, capture_output=True, text=True, check=False, env=ENVIRONMENT)
    assert process.returncode == 0, process.stderr
    return process.stdout.splitlines(), process.stderr


def alone(*arguments, text=""):
    """Run `python -m capsule_mt`, which may import nothing but itself, the standard library and tokenizers."""
    return python(ALONE, *arguments, text=text)


def test_the_program_ends_at_once_but_not_before_others_are_done():
    code = (
        "import atexit, sys; from capsule_mt.commands import program; sys.argv[1:] = ['doctor']; "
        "atexit.register(print, 'others'); program(); print('never')"
    )
    first, *_, last = python(code)[0]
    assert first.startswith("capsule-mt ")
    assert last == "others"


def test_plain_text_imports_nothing_that_others_ask_for(word_for_word):
    """What a start imports is most of its time."""
    code = "import sys; from capsule_mt.commands.translate import main; main(); print(*sys.modules)"
    translation, modules = python(code, word_for_word, text=f"{LINES[0]}\n")[0]
    assert translation == Translator.from_pretrained(word_for_word)(LINES[0]).text
    names = [name.removeprefix("capsule_mt.") for name in modules.split()]
    # every translation is compared with its source: a certain fault starts a second search
    compared = ["checks.certain", "checks.repetition", "coverage.names"]
    assert sorted(name for name in names if name.startswith(("checks.", "coverage."))) == compared
    late = {"catalog.store", "models.shortlist", "text.encodings", "text.glossary", "text.restoring"}
    late |= {"binascii", "copy", "dataclasses", "gzip", "hashlib", "heapq", "inspect", "logging", "pathlib", "shutil"}
    assert not late & {*names}


def test_it_needs_no_other_package(word_for_word, tmp_path):
    model = Translator.from_pretrained(word_for_word)
    expected = model(LINES, coverage=CoverageOptions())
    text = "".join(f"{line}\n" for line in LINES)
    printed, progress = alone("translate", word_for_word, "--coverage", tmp_path / "covered.jsonl", text=text)
    assert printed == [translation.text for translation in expected]
    assert progress == ""
    records = [json.loads(line) for line in (tmp_path / "covered.jsonl").read_text().splitlines()]
    for number, (record, one) in enumerate(zip(records, expected, strict=True), start=1):
        texts = {"line": number, "source": LINES[number - 1], "translation": one.text}
        assert record == {**texts, "problems": record["problems"], **coverage_record(one.coverage)}
        left_out = [problem["message"] for problem in record["problems"] if "left out" in problem["message"]]
        assert bool(left_out) == bool(one.coverage.untranslated)
    pairs = "".join(f"{line}\t{one.text}\n" for line, one in zip(LINES, expected, strict=True))
    printed, _ = alone("score", word_for_word, "--coverage", "deletion", "--batch-tokens", 1, text=pairs)
    for line, one in zip(printed, expected, strict=True):
        _, mean, tokens, covered, messages, *texts = line.split("\t")
        assert float(mean) == pytest.approx(one.score, abs=1e-3)
        assert int(tokens) == len(one.segments[0].target_ids) - 1
        assert float(covered) == pytest.approx(one.coverage.score, abs=1e-3)
        assert all(word.text in messages for word in one.coverage.untranslated)
        assert texts[1] == one.text
    assert alone("--version")[0][0].startswith("capsule-mt ")


# ---- translate
@pytest.fixture
def run(word_for_word, monkeypatch, call, capfdbinary, tmp_path):
    """Translate; return the exit code, what was printed and the complaints."""

    def stop(*arguments, **options):
        raise KeyboardInterrupt

    def translated(*arguments, lines=(), model=word_for_word, killed_in=None):
        words, text = (translate, model, "--no-split", *arguments), "".join(f"{line}\n" for line in lines)
        if killed_in is not None:
            with monkeypatch.context() as patched:
                patched.setattr(WindowedOutput, killed_in, stop)
                with pytest.raises(KeyboardInterrupt):
                    call(*words, text=text)
            capfdbinary.readouterr()
            return None
        code, printed, complaints = call(*words, text=text)
        return code, printed.split("\n")[:-1], complaints

    monkeypatch.chdir(tmp_path)
    level = logging.getLogger("capsule_mt").level
    yield translated
    logging.getLogger("capsule_mt").setLevel(level)  # --quiet raises it for the rest of a process


@pytest.fixture
def expected(run):
    return run(lines=LINES)[1]


def lines_of(path):
    return path.read_text(encoding="utf-8").split("\n")[:-1]


def test_a_line_that_fails_costs_no_other(run, expected, tmp_path):
    lines = [*LINES[:2], TOO_LONG, *LINES[2:], "", TOO_LONG]
    output = [*expected[:2], "", *expected[2:], "", ""]
    code, printed, complaints = run("--coverage", "c.jsonl", "--window", 4, lines=lines)
    assert (code, printed) == (3, output)
    for number in (3, 10):
        assert complaints.count(f"stdin, line {number}: {REASON}") == 1
    assert "2 lines could not be translated" in complaints
    rows = [json.loads(row) for row in lines_of(tmp_path / "c.jsonl")]
    assert [row["line"] for row in rows] == list(range(1, 11))
    assert [row["line"] for row in rows if row.get("error", "").startswith(REASON)] == [3, 10]
    assert sum("score" in row for row in rows) == 8
    (tmp_path / "in").write_text("".join(f"{line}\n" for line in lines))
    code, _, complaints = run("--input", "in", "--output", "out", "--coverage", "c.tsv", "--window", 4)
    assert (code, lines_of(tmp_path / "out")) == (3, output)
    assert complaints.count(f"in, line 3: {REASON}") == complaints.count(f"in, line 10: {REASON}") == 1
    facts, names, *rows = lines_of(tmp_path / "c.tsv")
    assert re.fullmatch(r"# capsule-mt [\d.]+, in, model .+: 10 lines, \d to check, 2 failed", facts)
    assert names.split("\t") == ["line", "score", "what to check", "source", "translation"]
    number, score, message, source, translation = rows[2].split("\t")
    assert (number, score, source, translation) == ("3", "", TOO_LONG, "")
    assert message.startswith(f"Not translated: {REASON}")
    with pytest.raises(ValueError, match=f"in, line 3: {REASON}"):
        run("--input", "in", "--output", "strict", "--strict")
    assert not (tmp_path / "strict").exists()


def test_n_best(run, word_for_word):
    code, printed, _ = run("--num-beams", 2, "--n-best", 2, lines=[LINES[0], TOO_LONG])
    assert code == 3
    translations = Translator.from_pretrained(word_for_word)(LINES[0], num_beams=2, num_return_sequences=2)
    assert printed[:2] == [f"0 ||| {translation.text} ||| {translation.score:.4f}" for translation in translations]
    assert printed[2:] == ["1 |||  ||| -inf"] * 2


def test_a_killed_process_is_taken_up_again(run, word_for_word, expected, tmp_path):
    (tmp_path / "in").write_text("".join(f"{line}\n" for line in LINES * 100))
    arguments = ("--no-split", "--input", "in", "--output", "out", "--window", 7)
    first = subprocess.run(
        [sys.executable, "-c", KILLED_IN_WINDOW_3, "translate", word_for_word, *map(str, arguments)],
        env=ENVIRONMENT,
        stderr=subprocess.DEVNULL,
    )
    parts = tmp_path / "out.parts"
    assert first.returncode == -signal.SIGKILL
    assert not (tmp_path / "out").exists()
    assert len(list(parts.glob("*.part"))) == 3
    assert run(*arguments)[0] == 0
    assert lines_of(tmp_path / "out") == expected * 100
    assert not parts.exists()


def test_another_run_is_refused_and_named(run, word_for_word, tmp_path):
    (tmp_path / "in").write_text("\n".join(LINES))
    model = shutil.copytree(word_for_word, tmp_path / "model")
    Shortlist.of_translations({}, range(43), (43, 43)).save(tmp_path / "list")
    arguments = ("--input", "in", "--output", "out", "--coverage")
    run(*arguments, "c.tsv", model=model, killed_in="finish")
    for options, named in (
        (("c.jsonl",), r"coverage: 'tsv' then, 'jsonl' now"),
        (("c.tsv", "--num-beams", 2), "num_beams: None then, 2 now"),
        (("c.tsv", "--coverage-retry", 2, "--coverage-threshold", 0.5), "coverage_options: .* then, .* now"),
        (("c.tsv", "--shortlist", "list"), "shortlist: None then, .* now"),
        (("c.tsv", "--reverse", model), "reverse: None then, .* now"),
    ):
        with pytest.raises(ValueError, match=rf"\({named}\); `--restart` discards it"):
            run(*arguments, *options, model=model)
    for name, changed in (
        ("tokenizer.json", lambda content: content.replace(b'"WhitespaceSplit"', b'"Whitespace"')),
        ("model.safetensors", lambda content: content[:-1] + bytes([content[-1] ^ 0x80])),  # the sign of a number
    ):
        content = (model / name).read_bytes()
        (model / name).write_bytes(changed(content))
        with pytest.raises(ValueError, match=rf"with other settings \(models: .*{name}.* now\); `--restart`"):
            run(*arguments, "c.tsv", model=model)
        (model / name).write_bytes(content)
    assert run(*arguments, "c.tsv", "--restart", model=model)[0] == 0


def test_a_run_does_not_resume_with_another_reverse_that_the_calibration_names(run, word_for_word, tmp_path):
    (tmp_path / "in").write_text("\n".join(LINES))
    model, reverse = (shutil.copytree(word_for_word, tmp_path / name) for name in ("model", "back"))
    config = json.loads((model / "config.json").read_text())
    calibration = {"attention": {"head": [0, 0]}, "verified": {"reverse": "back"}}
    (model / "config.json").write_text(json.dumps({**config, "coverage_calibration": calibration}))
    arguments = ("--input", "in", "--output", "out", "--coverage", "c.tsv")
    run(*arguments, model=model, killed_in="finish")
    content = (reverse / "model.safetensors").read_bytes()
    (reverse / "model.safetensors").write_bytes(content[:-1] + bytes([content[-1] ^ 0x80]))
    with pytest.raises(ValueError, match=r"with other settings \(reverse: .*model.safetensors.* now\); `--restart`"):
        run(*arguments, model=model)
    (reverse / "model.safetensors").write_bytes(content)
    assert run(*arguments, model=model)[0] == 0


def test_a_run_that_failed_before_its_first_line_is_not_resumed(run, word_for_word, tmp_path):
    (tmp_path / "in").write_text(LINES[0])
    arguments = ("--input", "in", "--output", "out")
    with pytest.raises(ValueError, match=r"needs a reverse model: give .* a `reverse` \(`--reverse MODEL`\)$"):
        run(*arguments, "--coverage", "c.tsv", "--coverage-method", "verified")
    assert (tmp_path / "out.parts").exists()
    assert run(*arguments)[0] == 0
    assert not (tmp_path / "out.parts").exists()


def test_several_processes_share_a_file_in_any_order(run, expected, monkeypatch, tmp_path):
    lines = [LINES[0], TOO_LONG, *LINES[1:], TOO_LONG]
    output = [expected[0], "", *expected[1:], ""]
    (tmp_path / "in").write_text("\n".join(lines))
    arguments = ("--input", "in", "--output", "out", "--coverage", "c.tsv", "--window", 2)
    monkeypatch.setenv("WORLD_SIZE", "3")
    for order in ("021", "210"):
        for rank, message in zip(
            order, ("", "[1-4] of 5 windows are there, the last process joins them"), strict=False
        ):
            monkeypatch.setenv("RANK", rank)
            run(*arguments, killed_in="count_done" if rank == "2" else "begin")
            code, _, complaints = run(*arguments)
            assert code == 0
            assert re.search(f"out, process {rank} of 3: .*{message}", complaints)
            assert not (tmp_path / "out").exists()
        monkeypatch.setenv("RANK", order[2])
        code, _, complaints = run(*arguments)
        assert (code, lines_of(tmp_path / "out")) == (3, output)
        for number in (2, 9):
            assert complaints.count(f"in, line {number}: {REASON}") == 1
        facts, _, *rows = lines_of(tmp_path / "c.tsv")
        assert len(rows) == len(lines)
        assert re.search(rf": {len(lines)} lines, [1-9] to check, 2 failed$", facts)
        assert sorted(path.name for path in tmp_path.iterdir()) == ["c.tsv", "in", "out"]
        (tmp_path / "out").unlink()


def test_links_devices_and_pipes(run, expected, tmp_path):
    (tmp_path / "in.gz").write_bytes(gzip.compress("\n".join(LINES).encode()))
    (tmp_path / "link").symlink_to("target")  # which is made, and then replaced
    read = []
    os.mkfifo("fifo")
    reader = threading.Thread(target=lambda: read.extend(lines_of(tmp_path / "fifo")))
    reader.start()
    null, full = (device_like(name, tmp_path) for name in ("null", "full"))
    for output in ("link", "link", "fifo", null):
        assert run("--input", "in.gz", "--output", output)[:2] == (0, [])
    reader.join()
    assert read == lines_of(tmp_path / "target") == expected
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
    (tmp_path / "bad").write_bytes(b"fine\n\xff\n")
    with pytest.raises(ValueError, match=r"config\.json: is not JSON"):
        run("--input", "bad", "--output", "out", model=tmp_path)


def zip_archive():
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as opened:
        opened.writestr("content.xml", "<a/>")
    return archive.getvalue()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            b"%PDF-1.7\n1 0 obj\n",
            "is a PDF, not text: convert it by `pdftotext FILE.pdf FILE.txt`, or save it as .docx",
        ),
        (zip_archive(), "is a zip archive, such as .xlsx, not text: save a document as .docx"),
        (gzip.compress(b"a\n", mtime=0), "is a gzip file, not text: let its name end in .gz"),
        (lzma.compress(b"a\n"), "is an xz file, not text: unpack it first"),
        (b"{\\rtf1\\ansi a}\n", "is an RTF document, not text: save it as .docx"),
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "is an image, not text"),
        (b"RIFF\x24\0\0\0WAVEfmt ", "is audio or video, not text"),
        (Path(sys.executable).resolve().read_bytes()[:5000], "not text"),
        ("Er schläft.\n".encode("utf-16-le"), "NUL bytes; it looks like utf-16-le: `--encoding utf-16-le` reads it"),
        (b"\x12\x34\0\0a\n", "has NUL bytes; if it is text, save it as UTF-8 or name its encoding by `--encoding`"),
    ],
)
def test_a_file_that_is_not_text_is_refused_by_what_it_is(run, tmp_path, content, message):
    (tmp_path / "in").write_bytes(content)
    (tmp_path / "config.json").write_text("{bad")  # no model is loaded for it
    with pytest.raises(ValueError, match=re.escape(message)) as refused:
        run("--input", "in", model=tmp_path)
    assert str(refused.value).startswith("in: is ")


def test_a_text_that_begins_like_a_binary_file_is_translated(run, tmp_path):
    for text in ("RIFF and GIF8", "ID3 tags"):
        (tmp_path / "in").write_text(text)
        assert run("--input", "in")[0] == 0


class FindsFrench:
    """A detector that calls every text with a "7" French."""

    def knows(self, language):
        return language == "xa"

    def other_language(self, text, language):
        return "fr" if "7" in text else None


def test_texts_in_another_language_are_warned_of_and_recorded(run, monkeypatch, caplog, tmp_path):
    monkeypatch.setattr("capsule_mt.text.detecting.Detector", FindsFrench)
    lines = [LINES[0], f"{LINES[1]} 7"]
    files = ("--output", "out.txt", "--coverage", "out.jsonl", "--src-lang", "xa")
    assert run(*files, lines=lines)[0] == 0
    assert caplog.messages == [
        "Probably not in the source language: 1 of 2 texts. The report of --coverage names the language."
    ]
    records = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [record.get("language") for record in records] == [None, "fr"]
    run("--output", "out.txt", "--coverage", "out.tsv", "--src-lang", "xa", lines=lines)
    assert ["in another language: fr" in row for row in lines_of(tmp_path / "out.tsv")[2:]] == [False, True]
    caplog.clear()
    for options in (("--src-lang", "xa"), (*files[:2], "--restart")):
        run(*options, lines=lines)  # a pipe; a language that nobody knows
    assert caplog.messages == []


def test_alignments_are_a_file_of_pairs(run, word_for_word, expected, tmp_path):
    code, printed, _ = run("--alignments", "a.txt", "--coverage", "c.tsv", lines=[*LINES, "", TOO_LONG])
    assert (code, printed) == (3, [*expected, "", ""])
    rows = lines_of(tmp_path / "a.txt")
    assert rows[-2:] == ["", ""]
    translations = Translator.from_pretrained(word_for_word)(LINES, alignment=True, split_sentences=False)
    assert rows[:-2] == [
        " ".join(f"{source}-{target}" for source, target in translation.alignment) for translation in translations
    ]
    assert all(rows[:-2])


# ---- files of formats
def subtitles(lines):
    times = (f"00:00:{2 * n:02},000 --> 00:00:{2 * n + 1:02},500" for n in range(len(lines)))
    return "".join(f"{n}\n{time}\n{line}.\n\n" for n, (time, line) in enumerate(zip(times, lines, strict=True), 1))


def test_a_film_is_translated_resumed_and_tells_where_to_look(run, word_for_word, expected, monkeypatch, tmp_path):
    (tmp_path / "film.srt").write_text(subtitles(LINES))
    report = run("film.srt")[1]
    arguments = ("film.srt", "--output", "out.srt", "--coverage", "c.tsv", "--window", 3)
    run(*arguments, killed_in="finish")
    with monkeypatch.context() as patched:
        patched.delattr(WindowedOutput, "write")  # everything is there
        code, _, complaints = run(*arguments)
    assert (code, lines_of(tmp_path / "out.srt")) == (0, report)
    assert [line.upper() for line in report[1::4]] == [line.upper() for line in subtitles(LINES).split("\n")[1::4]]
    facts, _, *rows = [row.split("\t") for row in lines_of(tmp_path / "c.tsv")]
    assert [row[0] for row in rows] == [f"cue {n}" for n in range(1, len(LINES) + 1)]
    to_check = [row for row in rows if row[2]]
    assert facts[0].endswith(f", film.srt, model {word_for_word}: 7 passages, {len(to_check)} to check, 0 failed")
    assert f"{len(to_check)} of {len(LINES)} passages to check: see c.tsv\n" in complaints
    for location, _, messages, source, _ in to_check[:5]:
        assert f"\n  {location}: {messages.partition('; ')[0]}: {source}\n" in complaints
    assert "The model cannot read" in {row[0]: row[2] for row in rows}["cue 2"]
    records = run("film.srt", "--output", "out.srt", "--coverage", "c.jsonl")
    assert records[0] == 0
    assert [json.loads(row)["place"] for row in lines_of(tmp_path / "c.jsonl")] == [row[0] for row in rows]


def test_a_report_is_named_also_if_there_is_nothing_to_check(run, tmp_path):
    (tmp_path / "film.srt").write_text(subtitles(LINES[:1]))
    film = ("film.srt", "--output", "out.srt", "--coverage")
    assert run(*film, "c.tsv")[::2] == (0, "0 of 1 passage to check: see c.tsv\n")
    assert "0 of 1 passage to check" in run("film.srt", "--coverage", "c.html")[2]
    assert run(*film, "c.tsv", "--quiet")[2] == run(*film[:-1])[2] == ""


@pytest.mark.parametrize("report", ["c.tsv", "c.jsonl"])
def test_the_report_of_lines_is_named_with_its_count(run, tmp_path, report):
    (tmp_path / "in").write_text("".join(f"{line}\n" for line in LINES))
    arguments = ("--input", "in", "--output", "out", "--coverage", report, "--window", 3)
    _, _, complaints = run(*arguments)
    rows = lines_of(tmp_path / report)
    if report == "c.jsonl":
        flagged = sum(bool(json.loads(row)["problems"]) for row in rows)
    else:
        flagged = sum(bool(row.split("\t")[2]) for row in rows[2:])
    assert 0 < flagged < len(LINES)
    count = f"{flagged} of {len(LINES)} lines to check: see {report}"
    assert count in complaints.splitlines()
    assert run("--coverage", report, lines=LINES)[2] == ""  # a pipe stays quiet
    assert count not in run(*arguments, "--quiet")[2]
    assert "to check" not in run("--input", "in", "--output", "out")[2]


def test_branches_that_stay_are_named(run, tmp_path):
    (tmp_path / "en.json").write_text('{"a": "sam ran home", "b": "{n, plural, one {a file}}"}')
    _, _, complaints = run("en.json", "--output", "out.json")
    reason = "line 1: {n, plural, ...} stays as it is: the branch `other` is missing; translate it by hand"
    assert reason in complaints.splitlines()
    assert reason not in run("en.json", "--output", "out.json", "--quiet")[2]
    (tmp_path / "en.properties").write_text("a=sam ran home\nb=sam ate {0,choice,0#no apples|1#one apple}\n")
    _, printed, complaints = run("en.properties")
    assert printed[1].count("{0,choice,0#no apples|1#one apple}") == 1
    reason = "line 2: {0,choice, ...} stays as it is: this format's reader does not translate the texts in it"
    assert f"{reason}; translate it by hand" in complaints.splitlines()


def test_a_replaced_language_of_a_catalog_is_named(run, tmp_path):
    header = 'msgid ""\nmsgstr "Content-Type: text/plain; charset=UTF-8\\nLanguage: fr\\n"\n'
    (tmp_path / "a.po").write_text(f'{header}\nmsgid "{LINES[0]}"\nmsgstr ""\n')
    complaints = run("a.po", "--tgt-lang", "xb", "--output", "b.po")[2]
    assert "line 4: the header's `Language: fr` becomes `Language: xb`" in complaints.splitlines()


def test_a_text_that_fails_stays_as_it_is(run, tmp_path):
    (tmp_path / "page.html").write_text(f"<p>{LINES[0]}</p><p>{TOO_LONG}</p>")
    code, printed, complaints = run("page.html", "--output", "out.html")
    assert (code, printed) == (3, [])
    page = (tmp_path / "out.html").read_text()
    assert page.endswith(f"<p>{TOO_LONG}</p>")
    assert not page.startswith(f"<p>{LINES[0]}")
    assert f"page.html, line 1: {REASON}" in complaints
    assert "1 text could not be translated: the output has the text of the source for each" in complaints


def test_a_dash_is_stdin(run, expected):
    assert run("-", lines=LINES)[1] == expected
    assert run("--input", "-", lines=LINES)[1] == expected


def test_a_pipe_has_the_format_that_is_named(run, expected):
    _, printed, complaints = run("--format", "html", lines=[f"<p>{line}</p>" for line in LINES[:2]])
    assert printed == [f"<p>{line}</p>" for line in expected[:2]]
    assert complaints == ""


def test_a_column_and_an_encoding(run, expected, tmp_path):
    rows = "".join(f"schön\t{line}\n" for line in LINES)
    (tmp_path / "t.tsv").write_bytes(rows.encode("cp1252"))
    with pytest.raises(
        ValueError, match=r"t\.tsv, line 1: not UTF-8 .*; it looks like cp1252: `--encoding cp1252` reads it, or save"
    ):
        run("t.tsv", "--column", 2)
    assert run("t.tsv", "--column", 2, "--encoding", "cp1252")[1] == [f"schön\t{line}" for line in expected]
    (tmp_path / "in").write_text("".join(f"{line}\r\n" for line in LINES), encoding="utf-16")
    assert run("--input", "in", "--encoding", "utf-16")[1] == expected


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("a.srt", "b.srt"),
            "one file is translated at a time, got a.srt, b.srt; to write b.srt, name it by `--output",
        ),
        (("b.srt", "a.srt"), "one file is translated at a time, got b.srt, a.srt\n"),
        (("a.srt", "--column", 2), "`column` is for tables (tsv, csv), this is srt"),
        (
            ("a.txt", "--keep", "colours"),
            "argument --keep: takes some of tags,urls,placeholders,numbers, separated by commas",
        ),
        (("a.txt", "--column", 2), "--column is for .tsv and .csv (or with --format tsv), got a.txt"),
        (
            ("a.srt", "--encoding", "latin-99"),
            "must be a text encoding such as utf-8, utf-16 or cp1252 (not utf-7 or escapes), got",
        ),
        (("nothing.srt",), "nothing.srt: no such file"),
        (("bad.html",), "bad.html: not html that can be read and written (AssertionError: unknown status"),
        (("a.srt", "text.de"), "one file is translated at a time, got a.srt, text.de"),
        (("a.srt", "Hello world"), "one file is translated at a time, got a.srt, 'Hello world'"),
        (("--input", "a.srt", "Hello world"), "one file is translated at a time, got 'Hello world', a.srt"),
        (
            ("Hello world", "--format", "srt"),
            "--format and --encoding apply to files, but the input is the text 'Hello wo",
        ),
        (("Hello world", "--encoding", "cp1252"), "--format and --encoding apply to files, but the input is the text"),
        (("Hello world", "--column", "2"), "--column is for .tsv and .csv (or with --format tsv), got the text"),
        (
            ("missing.xyz",),
            "missing.xyz: no such file or model. To translate a text that looks like a file name, pipe",
        ),
        (("missing.odt",), "missing.odt: no such file"),
        (("folder/missing",), "folder/missing: no such file"),
        (("folder",), "folder: is a folder, but neither a file to translate nor a checkpoint that decodes"),
        (("texts.zip",), "texts.zip: is an archive, not text: unpack it, and translate each of its files"),
        (("missing.json", "--format", "lines"), "missing.json: no such file"),
        (("my missing.pdf",), "my missing.pdf: no such file"),
        (("t.csv",), "t.csv: name the column to translate, as a number or a name: --column 2; --format lines"),
        (("--coverage-threshold", "80"), "--coverage-threshold takes a score from 0 to 1, got 80"),
        (("--coverage-threshold", "nan"), "--coverage-threshold takes a score from 0 to 1, got nan"),
        (("--reverse", "other"), "--reverse verifies the marks of --coverage: name a file with --coverage"),
        (("--marks", "sure"), "--marks chooses among the marks of --coverage: name a file with --coverage"),
        (
            ("--coverage-method", "deletion"),
            "--coverage-method marks words in the file of --coverage: name a file with --coverage",
        ),
    ],
)
def test_what_does_not_fit_a_file_is_named(run, capfdbinary, tmp_path, arguments, message):
    (tmp_path / "a.srt").write_text(subtitles(LINES))
    (tmp_path / "text.de").touch()
    (tmp_path / "t.csv").touch()
    (tmp_path / "texts.zip").touch()
    (tmp_path / "folder").mkdir()
    (tmp_path / "bad.html").write_text("<p>a<![x]>b")
    with pytest.raises((SystemExit, ValueError)) as stopped:
        run(*arguments)
    assert message in str(stopped.value) + capfdbinary.readouterr().err.decode()


def test_a_text_among_the_arguments_is_translated(run, expected):
    assert run(LINES[0])[1] == expected[:1]
    assert run(*LINES[:2], "--num-beams", 1)[1] == expected[:2]
    assert run("\n".join(LINES))[1] == expected
    code, printed, complaints = run(LINES[0], f"{LINES[1]} " + "balu " * 40)
    assert (code, printed) == (3, [*expected[:1], ""])
    assert "the text, line 2: ValueError" in complaints


def test_words_after_the_model_are_one_text(run, expected):
    assert run(*LINES[0].split())[1] == expected[:1]
    word = LINES[0].split()[0]
    assert run(word)[1] == run(lines=[word])[1]


def test_a_slow_writer_sees_each_translation_before_the_next_line(word_for_word, expected):
    command = [sys.executable, "-m", "capsule_mt", "translate", str(word_for_word)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, env=ENVIRONMENT, text=True, bufsize=1, **pipes) as process:
        translations = []
        for line in LINES[:3]:
            process.stdin.write(f"{line}\n")
            translations.append(process.stdout.readline().rstrip("\n"))  # waits for ever if nothing comes
        process.stdin.write(LINES[3])  # without an end of its line
        process.stdin.close()
        translations.append(process.stdout.readline().rstrip("\n"))
        assert process.wait() == 0
    assert translations == expected[:4]


def test_live_lines_are_those_of_the_stream_however_long():
    content = b"a" * 300_000 + b"\n\n\nb\n" + b"c" * 70_000  # longer than a pipe, and without an end
    reader, writer = os.pipe()

    def write():
        with os.fdopen(writer, "wb") as stream:
            stream.write(content)

    thread = threading.Thread(target=write)
    thread.start()
    assert list(LiveLines(reader)) == content.splitlines(keepends=True)
    thread.join()
    os.close(reader)


def test_a_line_that_is_being_written_is_not_awaited(monkeypatch):
    ticks = itertools.count(0.0, 0.03)
    monkeypatch.setattr(reading, "BYTES_AT_ONCE", 1)
    monkeypatch.setattr(reading, "time", SimpleNamespace(monotonic=ticks.__next__))
    reader, writer = os.pipe()
    os.write(writer, b"a\nlong line\n")
    lines = LiveLines(reader)
    assert lines.has_line()
    assert next(iter(lines)) == b"a\n"
    assert not lines.has_line()  # its first letters came within a tenth of a second
    os.close(writer)
    assert list(lines) == [b"long line\n"]
    os.close(reader)


def test_quiet_prints_errors_alone(run, tmp_path):
    (tmp_path / "text.de").write_text("".join(f"{line}\n" for line in [*LINES, TOO_LONG]))
    complaints = run("--input", "text.de", "--output", "text.en", "--no-split", "--quiet")[2]
    assert [line.partition(":")[0] for line in complaints.splitlines()] == [
        f"text.de, line {len(LINES) + 1}",
        "1 line could not be translated",
    ]


def test_a_model_stands_before_a_text(call, capfdbinary):
    for arguments in (["Hello world"], ["missing.srt"]):
        with pytest.raises(SystemExit):
            call(translate, *arguments)
        assert "name a model before the" in capfdbinary.readouterr().err.decode()


@pytest.mark.parametrize(
    "content",
    [
        b"\xef\xbb\xbf<?xml version='1.0'?>\n<martif/>\n",
        b"<!DOCTYPE html>\n<p>Hut\n",
        b'<!ENTITY hat "Hut">\n',
        b'\n<Dictionary\n  xmlns="http://example.org/xaml">\n',
        b'<html lang="de">\n<p>Hut</p>\n</html>\n',
        b"<!-- a page -->\n<html>\n<p>Hut</p>\n</html>\n",
    ],
)
def test_markup_with_another_name_is_not_translated_as_lines(run, capfdbinary, tmp_path, content):
    (tmp_path / "a.strange").write_bytes(content)
    with pytest.raises(SystemExit):
        run("a.strange")
    assert b"a.strange: begins as XML or HTML, and its name does not tell which kind" in capfdbinary.readouterr().err
    assert run("a.strange", "--format", "lines")[0] == 0


KNOWN_WITHOUT_READER = [".toml", ".sbv", ".svg", ".ini", ".tmx", ".rst", ".tex", ".jsonl", ".TMX.gz", ".ftl"]
UNKNOWN = [".sami", ".lrc", ".desktop", ".conf", ".sh", ".py", ".PY.gz", ".css", ".js", ".log", ".env", ".xyz"]


@pytest.mark.parametrize("suffix", [*KNOWN_WITHOUT_READER, *UNKNOWN])
def test_a_file_without_a_reader_is_translated_as_lines_only_on_request(run, expected, capfdbinary, tmp_path, suffix):
    content = "".join(f"{line}\n" for line in LINES).encode()
    (tmp_path / f"a{suffix}").write_bytes(gzip.compress(content) if suffix.endswith(".gz") else content)
    for arguments in ([f"a{suffix}"], ["--input", f"a{suffix}"]):
        with pytest.raises(SystemExit):
            run(*arguments)
        name = suffix.removesuffix(".gz").lower()
        printed = capfdbinary.readouterr().err.decode()
        assert f"a{suffix}: there is no reader for {name}, but for .html, .srt" in printed
        assert "lines of text end in .txt, .text, " in printed
        assert "or a language's code (.de, .pt_BR, .deu_Latn), or do not have an extension" in printed
        assert "--format lines translates each line as text" in printed
        assert ("`fluent2po` of the Translate Toolkit makes a .po of it; " in printed) == (suffix == ".ftl")
        assert run(*arguments, "--format", "lines")[1] == expected


@pytest.mark.parametrize(
    "name",
    [
        *("a", "a.txt", "a.TXT.gz", "a.text", "a.b.src", "a.hyp", "a.gz", "v1.2/a"),
        *("a.de", "a.pl", "a.pt_BR", "a.zh-Hant-TW", "a.eng", "a.deu_Latn", "a.yue_Hant", "a.ast"),
    ],
)
def test_lines_of_text_are_told_by_the_name(run, expected, tmp_path, name):
    content = "".join(f"{line}\n" for line in LINES).encode()
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    assert run(name)[1] == run("--input", name)[1] == expected


@pytest.mark.parametrize("name", ["run", "run.pl", "run.txt"])
def test_a_program_is_not_lines_of_text(run, capfdbinary, tmp_path, name):
    (tmp_path / name).write_text("#!/usr/bin/env perl\nprint 'Hut';\n")
    with pytest.raises(SystemExit):
        run(name)
    printed = capfdbinary.readouterr().err.decode()
    assert f"{name}: begins as a program (#!); --format lines translates each line as text, including" in printed
    assert run(name, "--format", "lines")[0] == 0


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("a.mo", "is a compiled catalog, not text: translate its .po, or one that `msgunfmt` makes of it"),
        ("a.mqxlz", "is a package of a translation tool, not text: unpack it, and translate the XLIFF in it"),
        ("a.PDF", "is a PDF, not text: convert it by `pdftotext FILE.pdf FILE.txt`, or save it as .docx"),
        ("a.doc", "is another program's document, not text: save it as .docx"),
        ("a.rtf", "is an RTF document, not text: save it as .docx"),
        ("a.xlsx", "is a spreadsheet, not text: save each sheet as .csv"),
        ("a.jpeg", "is an image, not text: a program for text recognition reads its text"),
        ("a.mp4", "is audio or video, not text: translate its subtitles, an .srt or a .vtt"),
        ("a.mobi", "is another kind of book, not text: convert it to .epub"),
    ],
)
def test_a_file_that_is_not_text_is_refused_by_its_name(run, expected, capfdbinary, tmp_path, name, message):
    (tmp_path / name).write_text("".join(f"{line}\n" for line in LINES))
    with pytest.raises(SystemExit):
        run(name)
    complaint = capfdbinary.readouterr().err.decode()
    assert f"{name}: {message}; --format lines reads it if it is text all the same" in complaint.replace("\n", " ")
    assert run(name, "--format", "lines")[1] == expected


@pytest.mark.parametrize(
    ("arguments", "output", "kind", "expected_suffix"),
    [
        (["a.srt"], "a.pt.vtt", "a.srt is srt", ".srt"),
        (["a.srt"], "b.vtt.gz", "a.srt is srt", ".srt"),
        (["a.srt.gz"], "b.ass", "a.srt.gz is srt", ".srt"),
        (["a.srt"], "b.pdf", "a.srt is srt", ".srt"),
        (["report.docx"], "b.odt", "report.docx is docx", ".docx"),
        (["a.htm"], "b.md", "a.htm is html", ".htm"),
        (["--format", "html"], "b.srt", "stdin is html", ".html"),
        (["a.txt"], "b.srt", "a.txt is lines of text", ".txt"),
    ],
)
def test_an_output_named_as_another_kind_is_refused(run, capfdbinary, arguments, output, kind, expected_suffix):
    with pytest.raises(SystemExit):
        run(*arguments, "--output", output)
    suffix = Path(output.removesuffix(".gz")).suffix
    message = f"--output {output}: is named as {suffix}, but the output has the kind of the input, and {kind}"
    assert f"error: {message}: end its name in {expected_suffix}\n" in capfdbinary.readouterr().err.decode()


@pytest.mark.parametrize(
    ("arguments", "output"),
    [
        (["a.srt"], "b.SRT"),
        (["a.srt"], "b.txt"),
        (["a.srt"], "b"),
        (["a.srt"], "b.portuguese"),
        (["a.htm"], "b.xhtml"),
        (["page.php", "--format", "html"], "b.php"),
        (["a.md", "--format", "lines"], "b.md"),
        (["a.md", "--format", "lines"], "b.srt"),
        (["a.en"], "b.ts"),
        ([], "b.tsv"),
    ],
)
def test_an_output_of_the_same_or_an_unknown_kind_is_written(run, tmp_path, arguments, output):
    (tmp_path / "a.srt").write_text(subtitles(LINES))
    for name in ("a.htm", "page.php"):
        (tmp_path / name).write_text(f"<p>{LINES[0]}</p>")
    for name in ("a.md", "a.en"):
        (tmp_path / name).write_text(LINES[0])
    code, printed, _ = run(*arguments, "--output", output, lines=[] if arguments else LINES)
    assert (code, printed) == (0, [])
    assert (tmp_path / output).stat().st_size > 0


def test_another_language_than_the_models_is_refused_before_the_work(run, word_for_word, tmp_path):
    pair = shutil.copytree(word_for_word, tmp_path / "en-pt")
    (tmp_path / "film.srt").write_text(subtitles(LINES))
    for arguments in (["film.srt"], ["film.srt", "--output", "film.de.srt"], ["Good", "morning."]):
        with pytest.raises(
            ValueError, match=r"`tgt_lang` must be pt or left out, got 'de': .*en-pt translates en-pt; for"
        ):
            run(*arguments, "--tgt-lang", "de", model=pair)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["en-pt", "film.srt"]
    assert run("film.srt", "--tgt-lang", "pt-BR", model=pair)[0] == 0


def test_a_packed_file_has_the_format_of_its_name(run, tmp_path):
    (tmp_path / "film.srt").write_text(subtitles(LINES))
    (tmp_path / "film.srt.gz").write_bytes(gzip.compress(subtitles(LINES).encode()))
    assert run("film.srt.gz")[1] == run("film.srt")[1]


def test_a_reverse_that_does_not_load_is_an_error_before_any_line(run, word_for_word):
    with pytest.raises(ValueError, match="nowhere: no such folder"):
        run("--coverage", "out.tsv", "--support", "--reverse", "nowhere", lines=LINES)
    with pytest.raises(ValueError, match="`support` needs a `reverse` with a head that aligns words"):
        run("--coverage", "out.tsv", "--support", "--reverse", word_for_word, lines=LINES)


def test_a_reverse_of_the_same_direction_is_refused(run):
    german, english = (RELEASED / f"capsule-marian-{pair}" for pair in ("de-en", "en-de"))
    message = r"`reverse` must translate en-de, since .*de-en translates de-en; got .*de-en, which translates de-en$"
    with pytest.raises(ValueError, match=message):
        run("--coverage", "out.tsv", "--reverse", german, lines=LINES, model=german)
    assert run("--coverage", "out.tsv", "--reverse", english, lines=LINES, model=german)[0] == 0


@pytest.fixture
def listed(word_for_word, tmp_path):
    """A model with a shortlist beside it that has only the first ten tokens."""
    model = shutil.copytree(word_for_word, tmp_path / "listed")
    Shortlist.of_translations({}, range(10), (43, 43)).save(model / "shortlist.safetensors")
    return model


def test_a_shortlist_does_not_take_the_input_for_its_file(run, listed, expected, capfdbinary, tmp_path):
    model = listed
    Shortlist.of_translations({}, range(43), (43, 43)).save(tmp_path / "all.safetensors")
    (tmp_path / "in.txt").write_text("".join(f"{line}\n" for line in LINES))
    short = run("in.txt", "--shortlist", model=model)[1]
    assert short != expected
    for arguments in (
        ("--shortlist", "in.txt"),
        ("--shortlist", "--input", "in.txt"),
        ("--input=in.txt", "--shortlist"),
    ):
        assert run(*arguments, model=model)[1] == short
    assert (
        run("--shortlist", model, "in.txt", model="--int8")[1]
        == run("in.txt", "--shortlist", "--int8", model=model)[1]
    )
    for arguments in (("--shortlist", "all.safetensors"), ("--shortlist=all.safetensors",)):
        assert run(*arguments, "in.txt", model=model)[1] == expected
    for arguments, complaint in (
        (("--shortlist=in.txt",), "argument --shortlist: in.txt is not a shortlist"),
        (("--short", "in.txt"), "unrecognized arguments: --short in.txt; did you mean `--shortlist`?"),
    ):
        with pytest.raises(SystemExit):
            run(*arguments, model=model)
        assert complaint in capfdbinary.readouterr().err.decode()
    with pytest.raises(
        FileNotFoundError, match=r"there is no shortlist nothing: `capsule-mt shortlist CHECKPOINT.* of hf-c"
    ):
        run("--shortlist=nothing", "in.txt", model=model)


@pytest.mark.parametrize("name", commands.COMMANDS)
def test_help_names_the_package_of_another_distributions_command(name, monkeypatch, capfdbinary):
    """Whoever has capsule-mt alone is told that the command is of hf-capsule-mt."""
    monkeypatch.setattr("sys.argv", ["capsule-mt", name, "--help"])
    with pytest.raises(SystemExit):
        commands.program()
    help = " ".join(capfdbinary.readouterr().out.decode().split()).replace("- ", "-")  # lines break at hyphens
    for mention in re.finditer(r"`?capsule-mt (\w+)`?(.{0,120})", help):
        assert mention[1] not in commands.HF_COMMANDS or "hf-capsule-mt" in mention[2], mention[0]


def test_marks_without_a_reverse_are_said_to_be_unverified(run, monkeypatch, caplog):
    monkeypatch.setattr("capsule_mt.messages._messages_logged", set())
    run("--coverage", "out.tsv", "--marks", "sure", lines=LINES)
    assert [message for message in caplog.messages if message.startswith('`marks="sure"`')] == caplog.messages[:1]
    assert "are unverified" in caplog.messages[0]


def test_what_needs_transformers_is_named_where_the_engine_is_asked(run, word_for_word, tmp_path):
    empty_folder = tmp_path / "empty"
    empty_folder.mkdir()
    with pytest.raises(ValueError, match="--backend native does not support --dtype bfloat16"):
        run("--backend", "native", "--dtype", "bfloat16")
    with pytest.raises(ValueError, match=r"empty: not a checkpoint .*, which an ensemble of 2 models needs"):
        run(word_for_word, model=empty_folder)
    (empty_folder / "note").touch()
    with pytest.raises(ValueError, match=r"note: is a file, not a folder$"):
        load_translator(str(empty_folder / "note"), {})
    with pytest.raises(ValueError, match="Helsinki/opus: no such folder, and not a downloaded model; CAPSULE_MT"):
        run("--backend", "native", model="Helsinki/opus")


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the peak of memory is read from Linux' /proc")
def test_memory_does_not_grow_with_the_file(word_for_word, tmp_path):
    program = (
        "import sys; from capsule_mt.commands.translate import main; main(); "
        "print(open('/proc/self/status').read().split('VmHWM:')[1].split()[0])"  # getrusage has the parent's, too
    )

    def peak(lines):
        text = tmp_path / f"{lines}.en"
        text.write_text("balu bamo\n" * lines)
        arguments = (word_for_word, "--input", text, "--output", tmp_path / "out", "--window", 500)
        return int(python(program, *arguments)[0][0])

    assert peak(40_000) < 1.05 * peak(2_000)


# ---- score
FILES = ("--sources", "source", "--translations", "target")


@pytest.fixture
def run_score(word_for_word, monkeypatch, call, tmp_path):
    """Score the translations of the model itself; return the exit code, what was printed and the complaints."""
    translations = [translation.text for translation in Translator.from_pretrained(word_for_word)(SOURCES)]
    pairs = list(zip(SOURCES, translations, strict=True))
    for name, lines in zip(("source", "target"), zip(*pairs, strict=True), strict=True):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines))

    def scored(*arguments, text=None):
        if text is None:
            text = "".join(f"{source}\t{target}\n" for source, target in pairs)
        code, printed, complaints = call(score, word_for_word, *arguments, text=text)
        return code, [line.split("\t") for line in printed.split("\n")[:-1]], complaints

    monkeypatch.chdir(tmp_path)
    return scored


def test_scores_from_files_and_pipes(run_score, word_for_word, tmp_path):
    code, rows, _ = run_score()
    scores = [translation.score for translation in Translator.from_pretrained(word_for_word)(SOURCES)]
    assert code == 0
    assert [row[0] for row in rows] == [str(number) for number in range(1, 7)]
    assert [float(row[1]) for row in rows[:-1]] == pytest.approx(scores[:-1], abs=1e-4)
    assert rows[-1] == ["6", "", "0"]
    assert run_score(*FILES)[1] == rows
    assert run_score(*FILES, "--window", 2, "--batch-tokens", 1)[1] == rows
    _, covered, _ = run_score(*FILES, "--coverage")
    assert [row[:3] for row in covered] == rows
    assert {len(row) for row in covered} == {7}
    assert [row[5] for row in covered] == SOURCES
    assert {row[4] for row in covered} == {""}  # single words are listed only if a method is named
    _, covered, _ = run_score(*FILES, "--coverage", "deletion")
    with pytest.raises(SystemExit):
        run_score("--output", "scores.html")
    run_score(*FILES, "--coverage", "deletion", "--output", "scores.html")
    assert (tmp_path / "scores.html").read_text().count("<tr data-rank=") == sum(row[4] != "" for row in covered) > 0
    flagged = sum(row[4] != "" for row in covered)
    assert (
        f", target, model {word_for_word}: 6 pairs, {flagged} to check, 0 failed</p>"
        in (tmp_path / "scores.html").read_text()
    )
    _, _, complaints = run_score(*FILES, "--coverage", "deletion", "--output", "scores.tsv")
    assert complaints == f"6 pairs, {flagged} to check: see scores.tsv\n"
    assert run_score(*FILES, "--output", "plain.tsv")[2] == "6 pairs: see plain.tsv\n"
    assert lines_of(tmp_path / "scores.tsv")[1].split("\t")[:5] == [
        "pair",
        "score",
        "tokens",
        "coverage",
        "what to check",
    ]
    run_score(*FILES, "--coverage", "deletion", "--output", "scores.jsonl")
    records = [json.loads(line) for line in lines_of(tmp_path / "scores.jsonl")]
    assert [f"{record['coverage']['score']:.4f}" for record in records] == [row[3] for row in covered]
    assert [record["tokens"] for record in records] == [int(row[2]) for row in rows]
    assert records[-1]["score"] is None


def test_empty_translations_are_listed(run_score, tmp_path):
    (tmp_path / "target").write_text("\n" * len(SOURCES))
    num_empty = sum(bool(source.strip()) for source in SOURCES)
    run_score(*FILES, "--coverage", "--output", "scores.tsv")
    subject, names, *rows = lines_of(tmp_path / "scores.tsv")
    column = names.split("\t").index("what to check")
    is_listed = [row.split("\t")[column].startswith("The translation is empty") for row in rows]
    assert is_listed == [bool(source.strip()) for source in SOURCES]
    assert f": {len(SOURCES)} pairs, {num_empty} to check, 0 failed" in subject


def test_files_of_a_format_are_no_pairs_of_lines(refusal_of, word_for_word):
    message = refusal_of(score, word_for_word, "--sources", "app.en", "--translations", "app.po.gz")
    assert "app.po.gz: has the format po, but pairs are lines of text; `capsule-mt translate" in message


def test_what_needs_a_reverse_model_names_the_option_of_the_command(run_score):
    message = r'^`method="verified"` needs a reverse model: give .* a `reverse` \(`--reverse MODEL`\)$'
    with pytest.raises(ValueError, match=message):
        run_score("--coverage", "verified")


class RaisesAlarm:
    """A judge that finds the first word of each source left out, and nothing else."""

    def score(self, sources, translations, *, src_lang=None, tgt_lang=None):
        self.languages = src_lang, tgt_lang
        return [self.judgement(source) if source.strip() else None for source in sources]

    def judgement(self, source):
        first = source.split()[0]
        word = JudgedWord(first, source.index(first), source.index(first) + len(first), 0.9, True)
        return Judgement((word,), (), 0.5, (Reason("left out", False, first),))


def test_a_judge_with_and_without_a_model(run_score, call, refusal_of, monkeypatch, tmp_path):
    judge = RaisesAlarm()
    monkeypatch.setattr(Judge, "from_pretrained", lambda name: judge)
    _, rows, _ = run_score(*FILES)
    code, judged, _ = run_score(*FILES, "--judge", "NAME", "--coverage")
    assert code == 0
    assert [row[:3] for row in judged] == rows
    assert [row[4] for row in judged][:2] == [f"Probably left out: {source.split()[0]}" for source in SOURCES[:2]]
    languages = ("--src-lang", "en", "--tgt-lang", "de")
    call(score, *FILES, "--judge", *languages, "--output", "alone.tsv")
    subject, names, *lines = lines_of(tmp_path / "alone.tsv")
    assert "judge intfloat/multilingual-e5-small: 6 pairs, 5 to check, 0 failed" in subject
    assert names.split("\t") == ["pair", "what to check", "source", "translation"]
    assert [line.split("\t")[1] for line in lines] == [row[4] for row in judged]
    assert judge.languages == ("en", "de")
    call(score, *FILES, "--judge", "--output", "alone.jsonl")
    record = json.loads(lines_of(tmp_path / "alone.jsonl")[0])
    assert record["judgement"]["left_out"] == [
        {"word": SOURCES[0].split()[0], "start": 0, "end": 4, "probability": 0.9}
    ]
    assert "score" not in record
    assert "name a MODEL, or add --judge" in refusal_of(score, *FILES)
    assert "--coverage needs a MODEL" in refusal_of(score, *FILES, "--judge", "--coverage")
    assert "--adequacy; it was removed: `--judge` finds" in refusal_of(score, *FILES, "--judge", "--adequacy")


def test_a_pair_that_only_the_judge_refuses_keeps_its_score(run_score, monkeypatch, tmp_path):
    class Refuses(RaisesAlarm):
        def judgement(self, source):
            if source == SOURCES[1]:
                raise ValueError("too long: cut it")
            return super().judgement(source)

    monkeypatch.setattr(Judge, "from_pretrained", lambda name: Refuses())
    _, rows, _ = run_score(*FILES)
    code, judged, complaints = run_score(*FILES, "--judge", "NAME", "--coverage")
    assert (code, [row[:3] for row in judged]) == (3, rows)
    assert {len(row) for row in judged} == {7}
    assert [row[4] for row in judged[:2]] == [
        f"Probably left out: {SOURCES[0].split()[0]}",
        "Not checked: ValueError: too long: cut it",
    ]
    assert complaints.count("pair 2: ValueError: too long: cut it") == 1
    assert "1 pair could not be scored or judged" in complaints
    run_score(*FILES, "--judge", "NAME", "--output", "scores.jsonl")
    records = [json.loads(line) for line in lines_of(tmp_path / "scores.jsonl")]
    assert [("judgement" in record, "error" in record) for record in records[:2]] == [(True, False), (False, True)]
    assert f"{records[1]['score']:.4f}" == rows[1][1]


def test_no_pairs_are_an_error(run_score, tmp_path):
    with pytest.raises(ValueError, match=r"^stdin: no pairs to score"):
        run_score("--output", "scores.tsv", text="")
    assert not (tmp_path / "scores.tsv").exists()


def test_a_pair_that_fails_costs_no_other(run_score, monkeypatch, tmp_path):
    rows, good = run_score()[1], Translator.score

    def bad(self, sources, *arguments, **settings):
        if SOURCES[2] in sources:
            raise ValueError("no")
        return good(self, sources, *arguments, **settings)

    monkeypatch.setattr(Translator, "score", bad)
    code, scores, complaints = run_score("--window", 4)
    assert (code, scores) == (3, [*rows[:2], ["3", "", ""], *rows[3:]])
    assert complaints.count("pair 3: ValueError: no") == 1
    run_score(*FILES, "--output", "scores.jsonl")
    expected = {"line": 3, "source": SOURCES[2], "translation": lines_of(tmp_path / "target")[2]}
    assert json.loads(lines_of(tmp_path / "scores.jsonl")[2]) == {**expected, "error": "ValueError: no"}
    with pytest.raises(ValueError, match="pair 3: ValueError: no"):
        run_score(*FILES, "--output", "strict.tsv", "--strict")


def test_an_interrupted_scoring_resumes(run_score, word_for_word, monkeypatch, tmp_path):
    def stop(self, **options):
        raise KeyboardInterrupt

    rows = run_score()[1]
    Shortlist.of_translations({}, range(43), (43, 43)).save(tmp_path / "list")
    arguments = (*FILES, "--output", "scores.tsv", "--window", 2)
    with monkeypatch.context() as patched:
        patched.setattr(WindowedOutput, "finish", stop)
        with pytest.raises(KeyboardInterrupt):
            run_score(*arguments)
    for options, named in (
        (("--coverage",), "coverage: None then, 'auto' now"),
        (("--shortlist", "list"), "shortlist: None then, .* now"),
        (("--reverse", word_for_word), "reverse: None then, .* now"),
    ):
        with pytest.raises(ValueError, match=rf"\({named}\); `--restart` discards it"):
            run_score(*arguments, *options)
    with monkeypatch.context() as patched:
        patched.delattr(Scorer, "score")  # everything is there
        run_score(*arguments)
    assert [line.split("\t") for line in lines_of(tmp_path / "scores.tsv")] == rows


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["models/model.npz", "Guten Tag"], "models/model.npz: is a file of a model; name its folder, models"),
        (["vocab.spm", "--input", "text.en"], "vocab.spm: is a file of a model; name its folder, ."),
        (["missing.zip", "Guten Tag"], "missing.zip: no such file"),
    ],
)
def test_a_file_of_a_model_is_refused_by_name(arguments, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("models").mkdir()
    for path in ("models/model.npz", "vocab.spm"):
        Path(path).touch()
    monkeypatch.setattr("sys.argv", ["translate", *arguments])
    with pytest.raises(SystemExit, match=r"^2$"):
        translate.parse_arguments()
    assert f"error: {message}\n" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["a.docx", "a.pptx", "a.odt", "a.epub"])
def test_a_packed_file_is_not_written_to_a_terminal(name, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["translate", "en-pt", name])
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    with pytest.raises(SystemExit, match=r"^2$"):
        translate.parse_arguments()
    assert f"a terminal cannot show {name[2:]}: name a file with --output" in capsys.readouterr().err


def test_public_names_are_imported_at_their_first_use():
    modules = "sorted(name for name in sys.modules if name.startswith('capsule_mt'))"
    names = "[getattr(capsule_mt, name) for name in capsule_mt.__all__]"
    printed, _ = python(f"import capsule_mt, sys; print({modules}); {names}; from capsule_mt import *; print(Segment)")
    assert printed == ["['capsule_mt']", "<class 'capsule_mt.translate.results.Segment'>"]


def test_a_file_is_translated_by_a_public_name(word_for_word):
    translator = Translator.from_pretrained(word_for_word)
    (translation,) = translator([LINES[0]])
    assert all(isinstance(segment, Segment) for segment in translation.segments)
    written = translate_file(f"<p>{LINES[0]}</p>".encode(), "html", translator)
    assert written.decode() == f"<p>{translation.text}</p>"
