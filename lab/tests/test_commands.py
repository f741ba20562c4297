"""The laboratory's commands, run as a person runs them, on a few sentences."""

import json
import random
from pathlib import Path

import pytest


def test_adequacy(command):
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
    with pytest.raises(SystemExit, match="made with other settings"):
        command("probe", f"{options} concat --num-capsules 8")


WRONG = {
    "align --text nofile test.en": "nofile: no such file",
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
