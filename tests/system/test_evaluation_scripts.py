"""The scripts that evaluate, run as a person runs them, on a few sentences."""

import argparse
import itertools
import json
import random
import runpy
import shutil
from pathlib import Path

import pytest
import yaml
from transformers import CONFIG_MAPPING

from hf_capsule_mt.data import sentence_pairs
from hf_capsule_mt.evaluation.text_files import read_lines
from hf_capsule_mt.training import load_recipe
from lab.paper_tables import RUNS
from tests.fixtures.tiny import save_tiny_checkpoint

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"


@pytest.fixture
def pictures():
    """For scripts that draw."""
    pytest.importorskip("matplotlib", reason="pictures need matplotlib").use("agg")


@pytest.fixture
def script(monkeypatch, tmp_path, capsys):
    """Runs a script in a folder with text: train.en/de, test.en/de, and two systems' translations of the latter."""
    pairs = list(itertools.islice(sentence_pairs(), 340))
    for name, part in (("train", pairs[:300]), ("test", pairs[300:])):
        for side, language in enumerate(("en", "de")):
            (tmp_path / f"{name}.{language}").write_text("".join(f"{pair[side]}\n" for pair in part))
    targets = [german for _, german in pairs[300:]]
    worse = [" ".join(line.split()[: -(n % 3) or None]) for n, line in enumerate(targets)]
    (tmp_path / "good.hyp").write_text("".join(f"{line}\n" for line in targets))
    (tmp_path / "worse.hyp").write_text("".join(f"{line}\n" for line in worse))
    monkeypatch.chdir(tmp_path)

    def run(name: str, arguments: str) -> str:
        monkeypatch.setattr("sys.argv", [f"scripts/{name}.py", *arguments.split()])
        runpy.run_path(str(SCRIPTS / f"{name}.py"), run_name="__main__")
        return capsys.readouterr().out

    return run


def test_evaluate(pictures, script):
    printed = script(
        "evaluate",
        "--hypotheses worse.hyp --references test.de test.de --sources test.en --metrics bleu multi_bleu chrf ter "
        "--length-edges 5 8 --align-with train.en train.de --seed 3 --recipe plain.yaml --bootstrap 50 "
        "--output out/result.json --plot out/lengths.png",
    )
    result = json.loads(Path("out/result.json").read_text())
    assert (result["seed"], result["recipe"], result["sentences"]) == (3, "plain.yaml", 40)
    assert result["command"].startswith("python ")
    assert "nrefs:2" in result["scores"]["bleu"]["signature"]
    assert 60 < result["scores"]["bleu"]["score"] < 100
    assert result["scores"]["bleu"]["text"] in printed
    assert sum(bucket["sentences"] for bucket in result["by_length"]) == 40
    assert 0.5 < result["adequacy"]["coverage_difference_ratio"] < 1
    assert Path("out/lengths.png").stat().st_size > 5000


def test_compare(script):
    printed = script(
        "compare",
        "good=good.hyp worse=worse.hyp --references test.de --sources test.en --bootstrap 50 --trials 50 "
        "--sentences 2 --markdown report.md --html report.html --output report.json",
    )
    report = json.loads(Path("report.json").read_text())
    row = report["comparisons"]["worse"]["bleu"]
    assert row["difference"] < 0
    assert row["sign_test"]["losses"] > row["sign_test"]["wins"] == 0
    assert "Sentences that differ most: worse and good" in printed
    assert Path("report.md").read_text().startswith("| system | metric |")
    assert Path("report.html").read_text().startswith("<!doctype html>")
    with pytest.raises(SystemExit, match="two systems or more"):
        script("compare", "good.hyp --references test.de")


def test_adequacy_and_its_picture(pictures, script):
    sources, lines = (Path(name).read_text().splitlines() for name in ("test.en", "worse.hyp"))
    rows = zip(sources, lines, Path("test.de").read_text().splitlines(), strict=True)
    table = [f"{src}\t{mt}\t{ref}\t{int(n % 3 > 0)}\t0" for n, (src, mt, ref) in enumerate(rows)]
    Path("labelled.tsv").write_text("\n".join(["src\tmt\tref\tomission\tother", *table]) + "\n")
    Path("model.txt").write_text("".join(f"{-(n % 3)}\n" for n in range(40)))
    script(
        "adequacy",
        "--labelled labelled.tsv --any-of anything omission --align-with train.en train.de --scores own=model.txt "
        "--bootstrap 20 --output auc.json",
    )
    areas = json.loads(Path("auc.json").read_text())["auc"]
    assert areas["own"]["omission"]["auc"] == 1.0
    assert areas["own"]["anything"] == areas["own"]["omission"]
    assert areas["uncovered source"]["omission"]["auc"] > 0.6
    assert "other" not in areas["own"]  # nothing has this label
    assert "| own | **1.000**" in Path("auc.md").read_text()
    script("analyze", "auc auc.json --output areas")
    assert Path("areas.png").stat().st_size > 5000


def test_align(script):
    Path("gold.text").write_text("the man sleeps . ||| der Mann schläft .\n")
    Path("gold.links").write_text("1-1 2-2 3-3 4p4\n")
    printed = script("align", "--train train.en train.de --gold-text gold.text --gold gold.links --result result.json")
    assert "Alignment error rate: 0.0" in printed
    assert json.loads(Path("result.json").read_text())["trained_on"] == {
        "files": ["train.en", "train.de"],
        "pairs": 300,
    }
    script("align", "--train train.en train.de --text test.en test.de --output test.links")
    links = Path("test.links").read_text().splitlines()
    assert len(links) == 40
    assert all("-" in line for line in links)


def test_analyze_routing_and_lengths(pictures, script, tmp_path):
    save_tiny_checkpoint(tmp_path / "model", layer_aggregation="em_routing", head_aggregation="simple_routing",
                         head_aggregation_num_capsules=4)  # fmt: skip
    script("analyze", "routing model --sources test.en --targets test.de --sentences 10 --output out/model")
    result = json.loads(Path("out/model.json").read_text())
    assert len(result["routings"]["encoder.layer_aggregation"]) == 3
    pictures = {path.name for path in Path("out").glob("*.png")}
    assert {"model-iterations.png", "model-decoder.layer_aggregation.png", "model-encoder.layers.0.self_attn.png"} <= (
        pictures
    )
    save_tiny_checkpoint(tmp_path / "guided", guided_routing="guided", guided_capsule_dim=8, guided_ffn_dim=16)
    script("analyze", "routing guided --sources test.en --targets test.de --sentences 10 --output out/guided")
    assert set(json.loads(Path("out/guided.json").read_text())["overlap_rates"]) == {"past", "future"}
    assert {path.name for path in Path("out").glob("guided*.png")} == {
        "guided-iterations.png", "guided-curves.png", "guided-past-future.png",
    }  # fmt: skip
    for name in ("good", "worse"):
        script("evaluate", f"--hypotheses {name}.hyp --references test.de --sources test.en --bootstrap 0 "
                           f"--length-edges 5 8 --system {name} --output {name}.json")  # fmt: skip
    script("analyze", "lengths good.json worse.json --output out/lengths")
    assert set(json.loads(Path("out/lengths.json").read_text())["systems"]) == {"good", "worse"}


def test_sweep_and_lengths_of_reproductions(pictures, script):
    model = {"model_type": "capsule_marian", "d_model": 32, "layer_aggregation": "em_routing"}
    bucket = {"label": "0+", "sentences": 9, "score": 20.0, "hypothesis_words": 5.0, "reference_words": 6.0}
    for number, settings in enumerate([{}, {"layer_aggregation_num_iterations": 2}]):
        result = {
            "run": "em", "seed": number, "recipe": {"model": model | settings}, "by_length": [bucket],
            "scores": {"bleu": {"score": 20.0 + number}},
        }  # fmt: skip
        Path(f"{number}.json").write_text(json.dumps(result))
    script("analyze", "sweep 0.json 1.json --field layer_aggregation_num_iterations --output sweep")
    points = json.loads(Path("sweep.json").read_text())["points"]
    assert [(point["value"], point["score"]) for point in points] == [(3, 20.0), (2, 21.0)]
    script("analyze", "sweep 0.json --field layer_aggregation_num_capsules --output capsules")
    assert json.loads(Path("capsules.json").read_text())["points"][0]["value"] == 32
    script("analyze", "lengths 0.json 1.json --output lengths")
    assert set(json.loads(Path("lengths.json").read_text())["systems"]) == {"em, seed 0", "em, seed 1"}


def test_probe_keeps_what_is_done(script):
    chance = random.Random(0)
    for part, size in (("train", 60), ("dev", 10), ("test", 10)):
        lines = []
        for _ in range(size):
            words = [("the", "DET"), *[(f"word{chance.randrange(9)}", "NOUN")] * chance.randrange(4, 12)]
            for number, (form, part_of_speech) in enumerate(words, start=1):
                head, relation = (0, "root") if number == 2 else (2, "dep")
                lines.append(f"{number}\t{form}\t_\t{part_of_speech}\t_\t_\t{head}\t{relation}\t_\t_")
            lines.append("")
        Path(f"{part}.conllu").write_text("\n".join(lines) + "\n")
    command = "--treebank . --tasks SentLen --seeds 1 --d-model 16 --epochs 1 --output probing.json --aggregations"
    script("probe", f"{command} concat")
    first = json.loads(Path("probing.json").read_text())["results"]
    printed = script("probe", f"{command} concat em_routing")
    results = json.loads(Path("probing.json").read_text())["results"]
    assert results[:1] == first
    assert [entry["encoder"] for entry in results] == ["concat", "em_routing"]
    assert "| paper: em_routing | 96.26 |" in printed
    assert "| test sentences | 10 |" in printed
    script("analyze", "probing probing.json --output probing")
    assert Path("probing.png").stat().st_size > 1000
    with pytest.raises(SystemExit, match="made with other settings"):
        script("probe", f"{command} concat --num-capsules 8")


@pytest.mark.parametrize("setting", ["embedded", "multi30k", "tatoeba"])
@pytest.mark.parametrize("data_dir", [None, "data/somewhere"])
def test_every_run_is_a_recipe_of_every_setting(setting, data_dir):
    module = runpy.run_path(str(SCRIPTS / "reproduce.py"), run_name="reproduce")
    arguments = argparse.Namespace(
        setting=setting, data_dir=data_dir, work=Path("outputs/reproduce"), results=Path("docs/results"),
        changes=[("training.max_steps", "7")], budget=1,
    )  # fmt: skip
    reproduction = module["Reproduction"](arguments)
    for name, run in RUNS.items():
        path = SCRIPTS / "recipes" / setting / f"{run.recipe}.yaml"
        if yaml.safe_load(path.read_text()).get("model", {}).get("model_type", "capsule_marian") not in CONFIG_MAPPING:
            continue  # a family that this version has not
        if run.recipe == "rnmt_gdr" and "capsule_rnmt" not in CONFIG_MAPPING:
            continue
        if run.recipe == "capsnmt_pooling" and "capsnmt" not in CONFIG_MAPPING:
            continue
        recipe = load_recipe(path, reproduction.overrides(run, 1))
        assert recipe.training["max_steps"] == 7
        for field, value in run.model.items():
            assert recipe.model[field] == value, name
        if run.scale:
            plain = load_recipe(path)
            assert all(recipe.model[field] == factor * plain.model[field] for field, factor in run.scale.items())
        if run.init_from:
            assert recipe.init_from == f"outputs/reproduce/{setting}/{run.init_from}-seed1"
        if run.distilled:
            folder = f"./outputs/reproduce/{setting}/distilled-by-{run.distilled}-seed1"  # whatever the data_dir is
            assert recipe.data["train"] == {"jsonl": f"{folder}/part-*.jsonl"}


@pytest.mark.slow
def test_reproduce_trains_resumes_and_renders(script, capsys):
    tiny = " ".join(
        f"--set {name} {value}"
        for name, value in {
            "training.max_steps": 4, "training.eval_steps": 100, "training.save_steps": 2, "model.d_model": 32,
            "model.encoder_ffn_dim": 32, "model.decoder_ffn_dim": 32, "data.train": '{"embedded":200}',
            "data.test": '{"embedded":10}', "data.validation": '{"embedded":4}', "generation.max_new_tokens": 8,
        }.items()
    )  # fmt: skip
    tiny += " --turns 1"
    script("reproduce", f"dou1 --runs plain em_routing --budget 10 {tiny} --document results.md")
    file = Path("docs/results/embedded/em_routing-seed1.json")
    result = json.loads(file.read_text())
    assert result["recipe"]["model"]["layer_aggregation"] == "em_routing"
    assert result["changes"]["training.max_steps"] == "4"
    assert set(result["comparisons"]) == {"plain"}
    # what is scored is not in what was trained on: the embedded corpus is disjoint if all sizes are the same
    trained = yaml.safe_load(Path("outputs/reproduce/embedded/em_routing-seed1/recipe.yaml").read_text())
    assert trained["data"] == {"train": {"embedded": 200}, "validation": {"embedded": 4}, "test": {"embedded": 10}}
    speeds = Path("docs/results/embedded/speeds.json")
    measured = speeds.read_bytes()
    assert set(json.loads(measured)["models"]) == {"plain", "em_routing"}
    assert len(read_lines("docs/results/embedded/em_routing-seed1.hyp.gz")) == result["sentences"] == 10
    before = file.read_bytes()
    script("reproduce", f"dou1 --runs plain em_routing --budget 10 {tiny} --document results.md")
    assert file.read_bytes() == before
    assert speeds.read_bytes() == measured
    document = Path("results.md").read_text()
    assert "| EM routing | 0." in document
    assert "Table 1: layer aggregation, WMT14 English-German (`dou1`)" in document  # two of its rows, the headline's
    script("reproduce", "--render --document again.md")
    assert Path("again.md").read_text() == document
    # without the checkpoints, the translations are enough for the scores
    compared = result["comparisons"].pop("plain")
    file.write_text(json.dumps(result))
    shutil.rmtree("outputs")
    script("reproduce", f"dou1 --runs plain em_routing --budget 10 {tiny} --document results.md")
    again = json.loads(file.read_text())["comparisons"]["plain"]
    assert again == compared
    # a comparison is not kept with what a baseline was before it was trained again, nor what seeds say with it
    over_seeds = {"seeds": [1, 2], "difference": 99.0, "p_bootstrap": 0.5}
    result["comparisons"]["plain"] = {**compared, "baseline_score": compared["baseline_score"] + 1}
    file.write_text(json.dumps(result))
    for name in ("plain", "em_routing"):  # a second seed that says the same
        for ending in (".json", ".hyp.gz"):
            shutil.copy(f"docs/results/embedded/{name}-seed1{ending}", f"docs/results/embedded/{name}-seed2{ending}")
    second = Path("docs/results/embedded/em_routing-seed2.json")
    second.write_text(
        json.dumps(result | {"seed": 2, "comparisons": {"plain": {**compared, "over_seeds": over_seeds}}})
    )
    script("reproduce", f"dou1 --runs plain em_routing --seeds 1 2 --budget 10 {tiny} --document results.md")
    assert json.loads(file.read_text())["comparisons"]["plain"] == compared
    together = json.loads(second.read_text())["comparisons"]["plain"]["over_seeds"]
    assert together["seeds"] == [1, 2]
    assert together["difference"] == pytest.approx(compared["difference"])
    # any rows that are there can be compared, without training or a document
    shown = script("reproduce", f"dou1 --runs plain linear em_routing --against plain {tiny}")
    assert shown.splitlines()[2:] == [line for line in shown.splitlines() if line.startswith("| em_routing | 1 / 2 |")]
    assert f"| {together['difference']:+.2f} | {together['p_bootstrap']:.3f} | " in shown
    with pytest.raises(SystemExit, match="--against linear: no row of dou1 has a seed in common with it"):
        script("reproduce", f"dou1 --against linear {tiny}")
    # a run that starts from another trains that once more
    script("reproduce", f"tried --runs em_routing_warm --budget 10 {tiny} --document results.md")
    warm = json.loads(Path("docs/results/embedded/em_routing_warm-seed1.json").read_text())
    assert Path(warm["recipe"]["init_from"], "train_result.json").exists()
    assert warm["recipe"]["data"]["test"] == {"embedded": 10}
    # the speeds of a row need no training, and are kept beside those that were there; equal models share theirs
    script("reproduce", f"dou1 --runs linear --speeds {tiny} --document results.md")
    assert list(json.loads(speeds.read_text())["models"]) == ["plain", "linear", "em_routing"]
    # a training that diverges is named, and the others go on
    with pytest.raises(SystemExit) as stopped:
        script(
            "reproduce", f"dou1 --runs linear dynamic_combination --budget 10 {tiny} --set training.learning_rate 1e30"
        )
    assert stopped.value.code == 1
    said = capsys.readouterr().err
    for name in ("linear", "dynamic_combination"):
        assert f"{name}, seed 1: train.py failed with code 1" in said
        assert "the training has diverged" in Path(f"outputs/reproduce/embedded/{name}-seed1.log").read_text()
    # one that others need is tried for the first of them alone
    shutil.rmtree("outputs")
    runs = "plain_warm dynamic_routing_warm"
    with pytest.raises(SystemExit):
        script("reproduce", f"tried --runs {runs} --budget 10 {tiny} --set training.learning_rate 1e30")
    said = capsys.readouterr().err
    for name in runs.split():
        assert f"{name}, seed 1: train.py failed with code 1: see outputs/reproduce/embedded/plain-seed1.log" in said
    assert Path("outputs/reproduce/embedded/plain-seed1.log").read_text().count("the training has diverged") == 1
