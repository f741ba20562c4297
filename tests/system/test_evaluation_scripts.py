"""The commands that evaluate, run as a person runs them, on a few sentences: as scripts and by `capsule-mt`."""

import json
import re
import runpy
from pathlib import Path

import pytest

from capsule_mt.commands import main
from tests.fixtures.tiny import save_tiny_checkpoint

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"


@pytest.fixture
def script(monkeypatch, text_folder, capsys):
    """Run a script in a folder with text; return what it prints, on stderr too."""

    def run(name: str, arguments: str) -> str:
        monkeypatch.setattr("sys.argv", [f"scripts/{name}.py", *arguments.split()])
        runpy.run_path(str(SCRIPTS / f"{name}.py"), run_name="__main__")
        return "".join(capsys.readouterr())

    return run


@pytest.fixture
def command(script, monkeypatch, capsys):
    """Run a command of `capsule-mt` in the folder of `script`."""

    def run(words: str) -> str:
        monkeypatch.setattr("sys.argv", ["capsule-mt", *words.split()])
        assert main() == 0
        return capsys.readouterr().out

    return run


def test_evaluate(script):
    printed = script(
        "evaluate",
        "--hypotheses worse.hyp --references test.de test.de --sources test.en --metrics bleu chrf ter "
        "--align-with train.en train.de --output out/result.json",
    )
    result = json.loads(Path("out/result.json").read_text())
    assert result["sentences"] == 40
    assert result["command"].startswith("python ")
    assert "nrefs:2" in result["scores"]["bleu"]["signature"]
    assert 60 < result["scores"]["bleu"]["score"] < 100
    for expected_text in (result["scores"]["bleu"]["text"], "BLEU, 95 % interval: ", "Aligner: "):
        assert expected_text in printed
    assert sum(bucket["sentences"] for bucket in result["by_length"]) == 40
    assert 0.5 < result["adequacy"]["coverage_difference_ratio"] < 1


def test_compare(script):
    printed = script(
        "compare",
        "good=good.hyp worse=worse.hyp --references test.de --sources test.en --output report.json",
    )
    report = json.loads(Path("report.json").read_text())
    row = report["comparisons"]["worse"]["bleu"]
    assert row["difference"] < 0
    assert row["sign_test"]["losses"] > row["sign_test"]["wins"] == 0
    assert "Sentences that differ most: worse and good" in printed
    with pytest.raises(SystemExit, match="at least two systems"):
        script("compare", "good.hyp --references test.de")


def test_analyze(pictures, command, tmp_path):
    save_tiny_checkpoint(tmp_path / "model", layer_aggregation="em_routing", head_aggregation="simple_routing",
                         head_aggregation_num_capsules=4)  # fmt: skip
    printed = command("analyze model --sources test.en --targets test.de --sentences 10 --output out/model")
    assert "Analysing the first 10 of 40 sentences: --sentences sets their number\n" in printed
    result = json.loads(Path("out/model.json").read_text())
    assert len(result["routings"]["encoder.layer_aggregation"]) == 3
    pictures = {path.name for path in Path("out").glob("*.png")}
    assert {"model-decoder.layer_aggregation.png", "model-encoder.layers.0.self_attn.png"} <= (pictures)
    save_tiny_checkpoint(tmp_path / "guided", guided_routing="guided", guided_capsule_dim=8, guided_ffn_dim=16)
    printed = command("analyze guided --sources test.en --targets test.de --show 40 --joined 2 3 --output out/guided")
    assert re.search(
        r"sentence 2 of 3 lost, 6 times: named by PAST and FUTURE \d, by head \d of layer \d \d, ", printed
    )
    assert "Analysing the first" not in printed
    numbers = json.loads(Path("out/guided.json").read_text())
    assert set(numbers["overlap_rates"]) == {"past", "future"}
    assert list(numbers["lost_sentences"]) == ["1 of 2", "2 of 2", "1 of 3", "2 of 3", "3 of 3"]
    assert {entry["offset"] for entry in numbers["around_the_step"]} <= set(range(-3, 4))
    drawn = {path.name for path in Path("out").glob("guided*.png")}
    assert drawn == {"guided-past-future.png"}
    with pytest.raises(SystemExit, match=r"--show 41: test\.en has 40 sentences"):
        command("analyze guided --sources test.en --targets test.de --show 41 --output out/guided")


def test_analyze_shows_weights_of_layers(pictures, command, tmp_path):
    save_tiny_checkpoint(tmp_path / "dense", layer_aggregation="depth_attention", depth_connections=True)
    printed = command("analyze dense --sources test.en --targets test.de --sentences 4 --output out/dense")
    assert re.search(
        r"encoder\.depth_connections\.1: embedding 0\.\d\d ± .*; entropy 0\.\d\d of at most 0\.69\n", printed
    )
    result = json.loads(Path("out/dense.json").read_text())
    assert result["routings"] == {}
    assert result["layer_weights"]["decoder.layer_aggregation"]["sources"] == ["embedding", "layer 1", "layer 2"]
    drawn = {path.name for path in Path("out").glob("*.png")}
    assert drawn == {"dense-encoder.layer_weights.png", "dense-decoder.layer_weights.png"}
    save_tiny_checkpoint(tmp_path / "plain")
    with pytest.raises(SystemExit, match="CapsuleMarianMTModel with this configuration has nothing to analyse: no ro"):
        command("analyze plain --sources test.en --targets test.de --output out/plain")
