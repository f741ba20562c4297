"""The measurement by sentence length: what it runs, its slopes, its tables and its picture."""

import pytest

from hf_capsule_mt import CapsNMTConfig, CapsNMTForConditionalGeneration
from hf_capsule_mt.evaluation import read_result, write_result
from lab import lengths
from lab.benchmark_tables import render_lengths
from lab.table_pictures import draw_lengths
from lab.timing import Timing


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
    assert draw_lengths(sweeps, tmp_path / "lengths.png").stat().st_size > 1000
