"""The laboratory's commands, run as a person runs them, on a few sentences."""

import json
import random
from pathlib import Path

import pytest

from hf_capsule_mt.evaluation.length_buckets import score_by_length


def test_adequacy_and_its_picture(pictures, command):
    sources, lines = (Path(name).read_text().splitlines() for name in ("test.en", "worse.hyp"))
    rows = zip(sources, lines, Path("test.de").read_text().splitlines(), strict=True)
    table = [f"{src}\t{mt}\t{ref}\t{int(n % 3 > 0)}\t0" for n, (src, mt, ref) in enumerate(rows)]
    Path("labelled.tsv").write_text("\n".join(["src\tmt\tref\tomission\tother", *table]) + "\n")
    Path("model.txt").write_text("".join(f"{-(n % 3)}\n" for n in range(40)))
    command(
        "adequacy",
        "--labelled labelled.tsv --any-of anything omission --align-with train.en train.de --scores own=model.txt "
        "--bootstrap 20 --cross-validate omission --output auc.json",
    )
    areas = json.loads(Path("auc.json").read_text())["auc"]
    assert "| shorter than its words | 4 |" in Path("auc.md").read_text()
    assert areas["own"]["omission"]["auc"] == 1.0
    assert areas["own"]["anything"] == areas["own"]["omission"]
    assert areas["uncovered source"]["omission"]["auc"] > 0.6
    assert "other" not in areas["own"]  # nothing has this label
    assert "| own | **1.000**" in Path("auc.md").read_text()
    command("draw", "auc auc.json --output areas")
    assert Path("areas.png").stat().st_size > 5000


def test_align(command):
    Path("gold.text").write_text("the man sleeps . ||| der Mann schläft .\n")
    Path("gold.links").write_text("1-1 2-2 3-3 4p4\n")
    printed = command(
        "align", "--train train.en train.de --gold-text gold.text --gold gold.links --result result.json"
    )
    assert "Alignment error rate: 0.0" in printed
    assert json.loads(Path("result.json").read_text())["trained_on"] == {
        "files": ["train.en", "train.de"],
        "pairs": 300,
    }
    command("align", "--train train.en train.de --text test.en test.de --output test.links")
    links = Path("test.links").read_text().splitlines()
    assert len(links) == 40
    assert all("-" in line for line in links)


def test_lengths_of_evaluations(pictures, command):
    sources, references = (Path(name).read_text().splitlines() for name in ("test.en", "test.de"))
    for name in ("good", "worse"):
        hypotheses = Path(f"{name}.hyp").read_text().splitlines()
        buckets = score_by_length(sources, hypotheses, [references], edges=[5, 8])
        Path(f"{name}.json").write_text(
            json.dumps({"system": name, "by_length": [bucket.as_dict() for bucket in buckets]})
        )
    command("draw", "lengths good.json worse.json --output out/lengths")
    assert set(json.loads(Path("out/lengths.json").read_text())["systems"]) == {"good", "worse"}


def test_sweep_and_lengths_of_reproductions(pictures, command):
    model = {"model_type": "capsule_marian", "d_model": 32, "layer_aggregation": "em_routing"}
    bucket = {"label": "0+", "sentences": 9, "score": 20.0, "hypothesis_words": 5.0, "reference_words": 6.0}
    for number, settings in enumerate([{}, {"layer_aggregation_num_iterations": 2}]):
        result = {
            "run": "em", "seed": number, "recipe": {"model": model | settings}, "by_length": [bucket],
            "scores": {"bleu": {"score": 20.0 + number}},
        }  # fmt: skip
        Path(f"{number}.json").write_text(json.dumps(result))
    command("draw", "sweep 0.json 1.json --field layer_aggregation_num_iterations --output sweep")
    points = json.loads(Path("sweep.json").read_text())["points"]
    assert [(point["value"], point["score"]) for point in points] == [(3, 20.0), (2, 21.0)]
    command("draw", "sweep 0.json --field layer_aggregation_num_capsules --output capsules")
    assert json.loads(Path("capsules.json").read_text())["points"][0]["value"] == 32
    command("draw", "lengths 0.json 1.json --output lengths")
    assert set(json.loads(Path("lengths.json").read_text())["systems"]) == {"em, seed 0", "em, seed 1"}


def test_probe_keeps_what_is_done(command):
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
    options = "--treebank . --tasks SentLen --seeds 1 --d-model 16 --epochs 1 --output probing.json --aggregations"
    command("probe", f"{options} concat")
    first = json.loads(Path("probing.json").read_text())["results"]
    printed = command("probe", f"{options} concat em_routing")
    results = json.loads(Path("probing.json").read_text())["results"]
    assert results[:1] == first
    assert [entry["encoder"] for entry in results] == ["concat", "em_routing"]
    assert "| paper: em_routing | 96.26 |" in printed
    assert "| test sentences | 10 |" in printed
    command("draw", "probing probing.json --output probing")
    assert Path("probing.png").stat().st_size > 1000
    with pytest.raises(SystemExit, match="made with other settings"):
        command("probe", f"{options} concat --num-capsules 8")


WRONG = {
    "align --text nofile test.en": "nofile: no such file",
    "draw lengths bad.json --output out": "bad.json: no JSON",
    "draw lengths list.json --output out": "list.json: a result file is an object of names and values",
    "draw lengths other.json --output out": "other.json: a result without by_length",
    "draw sweep other.json --field dropout --output out": "other.json: a result without recipe, scores",
    "draw auc other.json --output out": "other.json: a result without auc",
    "probe --treebank .": ".: no train*.conllu",
}


@pytest.mark.parametrize("line", WRONG)
def test_wrong_input(line, command, capsys):
    for name, text in (("bad.json", "{bad"), ("list.json", "[]"), ("other.json", '{"a": 1}')):
        Path(name).write_text(text)
    name, _, arguments = line.partition(" ")
    with pytest.raises(SystemExit) as stopped:
        command(name, arguments)
    code, said = stopped.value.code, capsys.readouterr().err
    if isinstance(code, str):  # the interpreter prints it, and exits with 1
        said, code = said + code, 1
    assert code in (1, 2)
    assert WRONG[line] in said
    assert "Traceback" not in said
