"""Files of any size: windows, parts, and `scripts/translate.py`, killed and started again, in one process and two."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from transformers import pipeline

from capsule_mt.text.lines import one_line
from tests.fixtures.tiny import save_tiny_checkpoint
from tests.fixtures.word_for_word import sentences

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts" / "translate.py"


# ---- the script
@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    torch.manual_seed(0)
    return save_tiny_checkpoint(tmp_path_factory.mktemp("files"), layer_aggregation="em_routing")


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    generator = random.Random(0)
    words = ["the", "old", "man", "buys", "a", "red", "hat.", "Who", "laughs?", "é", "🙂", "No."]
    lines = [" ".join(generator.choices(words, k=generator.randrange(14))) for _ in range(150)]
    path = tmp_path_factory.mktemp("text") / "text.en"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def expected_lines(checkpoint, text, **settings):
    lines = text.read_text(encoding="utf-8").removesuffix("\n").split("\n")
    results = pipeline("translation", model=str(checkpoint))(lines, batch_size=8, **settings)
    return [one_line(record["translation_text"]) for record in results]


def command(*arguments, launcher=()):
    return [sys.executable, *launcher, str(SCRIPT), *map(str, arguments)]


def run(*arguments, launcher=(), **settings):
    return subprocess.run(
        command(*arguments, launcher=launcher),
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        check=False,
        **settings,
    )


def test_a_pipe(checkpoint, text):
    done = run(checkpoint, "--window", 40, "--batch-tokens", 256, "--cpu", input=text.read_bytes())
    assert done.returncode == 0, done.stderr.decode()
    assert done.stdout.decode().removesuffix("\n").split("\n") == expected_lines(checkpoint, text)
    assert b"150 lines" in done.stderr


def test_killed_and_started_again_in_two_processes(checkpoint, text, tmp_path):
    output = tmp_path / "text.de"
    arguments = (checkpoint, "--input", text, "--output", output, "--window", 10, "--cpu", "--num-beams", 2)
    arguments += ("--no-repeat-ngram-size", 1)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    first = subprocess.Popen(
        command(*arguments), cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    parts = tmp_path / "text.de.parts"
    deadline = time.monotonic() + 120
    while not list(parts.glob("00000002-*.part")) and first.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    first.send_signal(signal.SIGKILL)
    first.wait()
    assert not output.exists()
    kept = {path: path.stat().st_mtime_ns for path in parts.glob("*.part")}
    assert 3 <= len(kept) < 15
    done = run(*arguments, launcher=("-m", "torch.distributed.run", "--nproc-per-node", "2"))
    assert done.returncode == 0, done.stderr.decode()[-3000:]
    assert output.read_text(encoding="utf-8").removesuffix("\n").split("\n") == expected_lines(
        checkpoint, text, num_beams=2, no_repeat_ngram_size=1
    )
    assert not parts.exists()


@pytest.mark.slow
def test_n_best_of_an_ensemble_and_the_speed(checkpoint, text, tmp_path):
    output, speed = tmp_path / "text.de", tmp_path / "speed.json"
    done = run(
        *(checkpoint, checkpoint, "--input", text, "--output", output, "--num-beams", 3, "--n-best", 2),
        *("--speed-result", speed, "--recipe", "recipes/tiny.yaml", "--cpu"),
    )
    assert done.returncode == 0, done.stderr.decode()
    lines = [line.split(" ||| ") for line in output.read_text(encoding="utf-8").removesuffix("\n").split("\n")]
    assert [int(number) for number, _, _ in lines] == [number for number in range(150) for _ in range(2)]
    best = [text for _, text, _ in lines[::2]]
    assert best == expected_lines(checkpoint, text, num_beams=3)
    assert all(float(score) <= 0 for _, _, score in lines)
    result = json.loads(speed.read_text())
    assert result["kind"] == "speed"
    assert result["sentences"] == 150
    assert result["sentences_per_second"] > 0


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the peak of memory is read from Linux' /proc")
def test_memory_does_not_grow_with_the_file(checkpoint, tmp_path):
    def peak(lines):
        text = tmp_path / f"{lines}.en"
        text.write_text("No.\n" * lines, encoding="utf-8")
        program = (
            "import runpy, sys; sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0], run_name='__main__'); "
            "print(open('/proc/self/status').read().split('VmHWM:')[1].split()[0])"  # getrusage has the parent's, too
        )
        arguments = (SCRIPT, checkpoint, "--input", text, "--output", tmp_path / "out", "--window", 500, "--cpu")
        done = subprocess.run(
            [sys.executable, "-c", program, *map(str, arguments), "--max-new-tokens", "1"],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            check=True,
        )
        return int(done.stdout.strip().splitlines()[-1])

    assert peak(20_000) < 1.05 * peak(1_000)


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["tsv", "jsonl"])
def test_coverage_beside_the_text(word_for_word, tmp_path, ending):
    lines = ["", *sentences(6, seed=5)]
    (tmp_path / "text").write_text("\n".join(lines) + "\n")
    coverage = tmp_path / f"coverage.{ending}"
    done = run(word_for_word, "--coverage", coverage, "--cpu", input=(tmp_path / "text").read_bytes())
    assert done.returncode == 0, done.stderr.decode()
    translations = done.stdout.decode().removesuffix("\n").split("\n")
    expected = pipeline("translation", model=str(word_for_word))(lines, return_coverage=True)
    assert translations == [record["translation_text"] for record in expected]
    rows = coverage.read_text().removesuffix("\n").split("\n")
    assert len(rows) == len(lines)
    for number, (row, record) in enumerate(zip(rows, expected, strict=True)):
        wanted = record["coverage"]
        if ending == "jsonl":
            found = json.loads(row)
            assert found["line"] == number
            assert found["score"] == pytest.approx(wanted["score"], abs=1e-5)
            assert [word["word"] for word in found["words"]] == [word["word"] for word in wanted["words"]]
        else:
            line, score, untranslated, _ = row.split("\t")
            assert int(line) == number
            assert float(score) == pytest.approx(wanted["score"], abs=1e-4)
            assert untranslated.split() == [word["word"] for word in wanted["words"] if word["untranslated"]]


@pytest.mark.slow
def test_errors(checkpoint, tmp_path):
    bad = tmp_path / "bad.en"
    bad.write_bytes(b"fine\n\xff\n")
    done = run(checkpoint, "--input", bad, "--output", tmp_path / "out", "--cpu")
    assert done.returncode != 0
    assert b"bad.en, line 2: not UTF-8" in done.stderr


@pytest.mark.slow
def test_ray_translates_the_files_that_are_missing(word_for_word, tmp_path):
    pytest.importorskip("ray", reason="ray is not installed")
    texts = {f"{number:05d}": sentences(30, seed=number) for number in range(4)}
    (tmp_path / "in").mkdir()
    for name, lines in texts.items():
        (tmp_path / "in" / name).write_text("".join(f"{line}\n" for line in lines))
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "00001").write_text("is there\n")
    (tmp_path / "out" / ".00002.7").write_text("half")
    done = subprocess.run(
        [sys.executable, ROOT / "examples/ray_translate.py", word_for_word, "in", "out", "--actors", "2"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "RAY_USAGE_STATS_ENABLED": "0"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "1 of 4 files are translated already" in done.stdout
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == list(texts)
    assert (tmp_path / "out" / "00001").read_text() == "is there\n"
    translator = pipeline("translation", model=str(word_for_word), int8=True)
    for name in ("00000", "00002", "00003"):
        expected = [record["translation_text"] for record in translator(texts[name])]
        assert (tmp_path / "out" / name).read_text().splitlines() == expected
