"""Engines on a model of NLLB-200's shape take turns, CTranslate2 in a process of its own."""

import argparse
import sys

import pytest

from lab.multilingual import CTRANSLATE2, Worker, measure_multilingual, render_multilingual

# what the worker needs of the library: translates in 40 tokens, the longer the more there are to translate
LIBRARY = """
from types import SimpleNamespace
class Translator:
    def __init__(self, folder, compute_type, inter_threads, intra_threads):
        assert (compute_type, inter_threads, intra_threads) == ("int8", 1, 1)
    def translate_batch(self, sources, target_prefix, beam_size, max_decoding_length, min_decoding_length):
        assert target_prefix == [["t999"]] * len(sources)
        assert all(len(source) == 32 and source[-1] == "</s>" for source in sources)
        for _ in range(2_000_000 * len(sources)):
            pass
        return [SimpleNamespace(hypotheses=[["t5"] * max_decoding_length]) for _ in sources]
"""


def test_engines_take_turns(tmp_path, monkeypatch):
    (tmp_path / "ctranslate2.py").write_text(LIBRARY)
    (tmp_path / "ctranslate2-4.8.5.dist-info").mkdir()
    (tmp_path / "ctranslate2-4.8.5.dist-info" / "METADATA").write_text("Name: ctranslate2\nVersion: 4.8.5\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
    (tmp_path / "tiny" / "ctranslate2").mkdir(parents=True)  # as if it was converted
    settings = {"size": "tiny", "folder": tmp_path, "ctranslate2": sys.executable, "shortlists": [0.5], "repeats": 2}
    result = measure_multilingual(argparse.Namespace(batch_sizes=[1, 2], num_beams=[1, 3], **settings))
    assert list(result["seconds"]) == [f"batch {batch}, beam {beams}" for batch in (1, 2) for beams in (1, 3)]
    for turns in result["seconds"].values():
        assert list(turns) == ["int8", CTRANSLATE2, "int8, a shortlist of 50%"]
        assert all(len(seconds) == 2 and min(seconds) > 0 for seconds in turns.values())
    judge = [result["seconds"][f"batch {batch}, beam 1"][CTRANSLATE2] for batch in (1, 2)]
    assert max(judge[0]) < min(judge[1])
    assert result["ctranslate2_version"] == "4.8.5"
    assert 0 < result["loading"]["int8"]["mib"] <= result["memory"]["int8"]["peak_mib"]
    shown = render_multilingual(result | {"command": "c", "hardware": {"cpu": "a processor"}, "date": "2026-11-27"})
    assert "| CTranslate2 |" in shown
    assert "CTranslate2 4.8.5" in shown


def test_a_worker_that_cannot_start_is_an_error(tmp_path):
    with pytest.raises(RuntimeError, match="capsule_mt ended with exit code 1"):
        Worker(sys.executable, "capsule_mt", tmp_path)
