"""Timing in turns, by engine and by sentence length: what is timed, and its tables."""

import argparse
import copy
import json
import time

import pytest
import torch
from transformers import AutoModelForSeq2SeqLM

from hf_capsule_mt import CapsNMTConfig, CapsNMTForConditionalGeneration, CapsuleMarianMTModel
from hf_capsule_mt.evaluation import read_result, write_result
from hf_capsule_mt.modeling.router import Router
from lab import engine_speed, lengths, student_engines, trained_engines
from lab.benchmark_tables import render_lengths
from lab.engine_speed import CELLS, CTRANSLATE2, measure_engines, render_engines
from lab.student_engines import measure_students, render_students
from lab.throughput import SYSTEMS, measure
from lab.timing import (
    Timing,
    peak_memory,
    routing_replaced_by_mean,
    time_in_turns,
)
from lab.trained_engines import measure_trained, render_trained
from tests.fixtures.students import write_student
from tests.fixtures.tiny import save_tiny_marian
from tests.golden.make import EXPECTED, FOLDER
from tests.modeling import test_capsule_marian  # the class itself, imported, would be collected here once more


def test_runs_take_turns():
    order = []
    timings = time_in_turns(
        {"a": lambda: order.append("a"), "b": lambda: (order.append("b"), time.sleep(0.02))}, repeats=3, warmup=1
    )
    assert order == ["a", "b"] * 4
    assert timings["b"].runs == 3
    assert timings["b"].minimum >= 0.02
    assert timings["a"].median < timings["b"].median


def test_peak_memory():
    def run():
        first = torch.ones(1000, 1000)
        second = first + 1
        del first
        third = second + 1
        return third.sum()

    assert 8e6 <= peak_memory(run, "cpu") < 8.1e6


@pytest.mark.parametrize("mix", ["dynamic routing", "everything"])
def test_the_floor_keeps_every_gradient(mix):
    checks = test_capsule_marian.TestCapsuleMarian()
    model: CapsuleMarianMTModel = checks.model(test_capsule_marian.MIXES[mix], tie_word_embeddings=True)
    route = Router.route
    batch, labels = checks.source(checks.batch()), checks.labels()
    with routing_replaced_by_mean():
        assert Router.route is not route
        model(**batch, labels=labels).loss.backward()
    assert Router.route is route
    for name, parameter in model.named_parameters():
        if parameter.requires_grad and not name.endswith(("beta_a", "beta_u")):
            assert parameter.grad is not None, name


@pytest.mark.slow
def test_throughput_is_measured_for_all():
    result = measure(rounds=1, steps=4, sentences=60, batch_size=4, width=16, layers=1)
    assert set(result) == set(SYSTEMS)
    assert all(speed["median"] > 0 for speed in result.values())


def test_every_engine_is_measured(monkeypatch):
    monkeypatch.setattr(engine_speed, "ENGINES", {"native, plain": ("stock", False)})
    result = measure_engines(argparse.Namespace(size="tiny", repeats=1))
    assert result["milliseconds"].keys() == CELLS.keys()
    for taken in result["milliseconds"].values():
        assert taken.keys() == {engine_speed.STOCK, "native, plain"}
        assert min(taken.values()) > 0


def test_ratios():
    milliseconds = {"one": {engine_speed.STOCK: 100.0, "ours": 20.0, CTRANSLATE2: 50.0}}
    lines = render_engines({"milliseconds": milliseconds}).splitlines()
    assert lines[2:] == [f"| {engine_speed.STOCK} | 1.0 |", "| ours | 5.0 (2.50) |", f"| {CTRANSLATE2} | 2.0 |"]


def test_slope():
    fit = lengths.slope([5.0, 7.0, 9.0], [10, 20, 30])
    assert fit == pytest.approx({"per_word": 0.2, "standard_error": 0.0, "mean": 7.0})
    noisy = lengths.slope([5.0, 8.0, 9.0], [10, 20, 30])
    assert noisy["standard_error"] > 0


def test_measures_what_it_says(monkeypatch, tmp_path):
    """A clock that says how long sentences are: a word then takes as long whatever the other words are."""
    config = CapsNMTConfig(vocab_size=20, hidden_size=8, encoder_layers=1, decoder_layers=1, num_capsules=2)
    models = {name: CapsNMTForConditionalGeneration(config).eval() for name in ("slow", "fast")}
    sources = []

    def clocked(runs, repeats, **_):
        assert repeats == 2
        timings = {}
        for name, run in runs.items():
            words = run().shape[1] - 1
            source_length = sources.pop()
            seconds = (0.002 if name.startswith("slow") else 0.001) * words + source_length
            timings[name] = Timing(seconds, seconds, seconds, repeats)
        return timings

    for model in models.values():
        model.get_encoder().register_forward_pre_hook(
            lambda module, args, kwargs: sources.append((kwargs.get("input_ids") if not args else args[0]).shape[1]),
            with_kwargs=True,
        )
    monkeypatch.setattr(lengths, "time_in_turns", clocked)
    sweeps = lengths.measure_lengths(models, [3, 6, 9], repeats=2)
    for side in ("source", "target"):
        rows = sweeps[side]["rows"]
        assert [row[f"{side}_length"] for row in rows] == [3, 6, 9]
        for row in rows:
            assert row["milliseconds_per_word"] == pytest.approx({"slow": 2.0, "fast": 1.0})
            assert row["seconds"]["fast translate"]["median"] == pytest.approx(
                row["source_length"] + 0.001 * row["target_length"]
            )
        assert sweeps[side]["slopes"]["slow"]["per_word"] == pytest.approx(0, abs=1e-9)
    file = write_result(
        tmp_path / "lengths.json", {"size": "tiny", "repeats": 2, "num_beams": 1, "clock": "time", "sweeps": sweeps}
    )
    report = render_lengths(read_result(file))
    assert "| 6 | 6002.0 | 6100.0 | 2.00 | 6001.0 | 6050.0 | 1.00 | 1.01 |" in report
    assert report.count("microseconds more for each word") == 4


def arguments_of(folder):
    return argparse.Namespace(
        checkpoints=[str(FOLDER / "capsule_marian")],
        input=folder / "input",
        references=folder / "references",
        sentences=4,
        batch_sizes=[1, 3],
        num_beams=[1, 2],
        threads=[1],
        forced=6,
        shortlist=None,
        repeats=1,
    )


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained")
    pairs = json.loads((FOLDER / "capsule_marian" / EXPECTED).read_text(encoding="utf-8"))["pairs"][:5]
    for key, name in (("source", "input"), ("target", "references")):
        (folder / name).write_text("".join(f"{pair[key]}\n" for pair in pairs), encoding="utf-8")
    path = write_result(folder / "result.json", measure_trained(arguments_of(folder)))
    return read_result(path), folder


@pytest.mark.slow
def test_cells_and_scores(result):
    ((_, cells),) = result[0]["checkpoints"].items()
    assert result[0]["sentences"] == 4
    assert [(cell["ends"], cell["batch"], cell["beams"]) for cell in cells[:4]] == [
        ("real ends", 1, 1),
        ("real ends", 1, 2),
        ("real ends", 3, 1),
        ("real ends", 3, 2),
    ]
    for cell in cells:
        stock = cell["engines"][trained_engines.STOCK]
        exact = cell["engines"]["native float32"]
        assert stock["tokens"] == exact["tokens"]
        assert stock["same"] == exact["same"] == 4
        if cell["ends"] == "real ends":
            assert stock["bleu"] == exact["bleu"]
            assert 0 <= stock["chrf"] <= 100
        else:
            assert stock["tokens"] == 4 * 6
            assert "bleu" not in stock
        assert all(timing["minimum"] > 0 for timing in stock["seconds"].values())


def test_float32_engines_that_differ_are_an_error(result, monkeypatch):
    engines_of = trained_engines.engines_of

    def other_last_token(*arguments):
        engines = engines_of(*arguments)
        exact = engines["native float32"]
        return engines | {"native float32": lambda *given: [[*row[:-1], row[-1] - 1] for row in exact(*given)]}

    monkeypatch.setattr(trained_engines, "engines_of", other_last_token)
    arguments = argparse.Namespace(**vars(arguments_of(result[1])) | {"batch_sizes": [3], "num_beams": [1]})
    with pytest.raises(ValueError, match="only 0 of 4 translations by native float32 are those of generate"):
        measure_trained(arguments)


def test_ctranslate2_leaves_the_model_as_it_is(tmp_path):
    pytest.importorskip("ctranslate2", reason="ctranslate2 is not installed")
    model = AutoModelForSeq2SeqLM.from_pretrained(save_tiny_marian(tmp_path)).eval()
    before, config = copy.deepcopy(model.state_dict()), model.config.to_dict()
    trained_engines.engines_of(model, 1)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert model.config.to_dict() == config


@pytest.mark.slow
def test_tables_of_engines(result):
    measured, _ = result
    text = render_trained(measured)
    assert "## capsule_marian, real ends, 1 thread" in text
    assert "## capsule_marian, forced to 6 tokens, 1 thread" in text
    assert text.count(f"| {trained_engines.STOCK} |") == 4


def test_students(tmp_path, monkeypatch):
    """Every engine that is installed, in every cell that it has."""
    (tmp_path / "text.en").write_text("the old man buys a red hat.\na hat\n\nthe man\n")
    student = write_student(tmp_path / "student")
    monkeypatch.setattr(student_engines, "OTHERS", ())
    settings = {"students": [student], "input": tmp_path / "text.en", "sentences": 3, "repeats": 1}
    measured = measure_students(argparse.Namespace(**settings, batch_sizes=[1, 2], num_beams=[1, 3]))
    engines = measured["students"]["student"]
    assert list(engines) == ["int8, shortlist", "int8, all tokens", "float32, shortlist"], "without a calibration"
    for engine in engines.values():
        assert list(engine["sentences_per_second"]) == ["1, 1", "2, 1", "1, 3", "2, 3"]
        assert min(engine["sentences_per_second"].values()) > 0
        assert 0 < engine["mib"] < 100
    assert engines["int8, shortlist"]["same"] == 3
    written = write_result(tmp_path / "result.json", measured)
    assert render_students(read_result(written)).count("| int8, all tokens |") == 1
