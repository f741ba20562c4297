"""A trained checkpoint goes the whole way: pipeline, coverage, export, hub, a process without the package, page."""

import pytest
from transformers import pipeline

from tests.fixtures.local_hub import LocalHub
from tests.fixtures.word_for_word import sentences
from tests.hub.test_push import run

PUSH = """
import json, runpy, sys
sys.argv = ["scripts/push_to_hub.py", *sys.argv[1:]]
sys.path.insert(0, "")
runpy.run_path(sys.argv[0], run_name="__main__")
print(json.dumps("done"))
"""
LOAD = """
import json, sys
from transformers import pipeline
translator = pipeline("translation", model="tester/chain", trust_remote_code=True)
print(json.dumps(translator(sys.argv[1], return_coverage=True)))
"""


@pytest.mark.slow
def test_from_training_to_the_page(word_for_word, tmp_path):
    text = sentences(1, seed=7)[0]
    translator = pipeline("translation", model=str(word_for_word))
    (here,) = translator(text, return_coverage=True)
    hub = LocalHub().start()
    try:
        assert run(hub, tmp_path / "home", PUSH, word_for_word, "tester/chain") == "done"
        (there,) = run(hub, tmp_path / "other home", LOAD, text, isolated=True)
    finally:
        hub.stop()
    assert there["translation_text"] == here["translation_text"]
    assert there["coverage"]["score"] == pytest.approx(here["coverage"]["score"], abs=1e-5)
    assert [word["word"] for word in there["coverage"]["words"]] == text.split()
    pytest.importorskip("gradio", reason="the page needs gradio")
    pytest.importorskip("matplotlib", reason="the page needs matplotlib")
    from hf_capsule_mt.demo.explanation import explain

    shown = explain(translator.translator, text, tmp_path)
    assert shown.translation == here["translation_text"]
    assert shown.score == pytest.approx(here["coverage"]["score"], abs=1e-5)
