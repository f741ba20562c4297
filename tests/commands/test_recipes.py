"""`capsule-mt recipes` lists the recipes, and prints one that is the same when it is read again."""

import dataclasses

import pytest

from hf_capsule_mt.commands import recipes
from hf_capsule_mt.training import load_recipe, recipe_names


@pytest.fixture
def printed(monkeypatch, capsys):
    def run(*words):
        monkeypatch.setattr("sys.argv", ["capsule-mt recipes", *words])
        recipes.main()
        return capsys.readouterr().out

    return run


def test_a_line_for_each(printed):
    lines = printed().splitlines()
    assert [line.split()[0] for line in lines] == recipe_names()
    assert all(line.endswith(".") for line in lines)
    group = printed("capsnmt").splitlines()
    assert group == printed("capsnmt/").splitlines()
    assert {line.partition("/")[0] for line in group} == {"capsnmt"}


@pytest.mark.parametrize("name", ["embedded/em_routing", "capsnmt/base_kd_wmt14_en_fr", "baseline/base_nist_zh_en"])
def test_a_printed_recipe_is_the_recipe(printed, tmp_path, name):
    file = tmp_path / "copy.yaml"
    file.write_text(printed(name), encoding="utf-8")
    assert dataclasses.asdict(load_recipe(file)) == dataclasses.asdict(load_recipe(name))
    assert printed(str(file)) == printed(name)


def test_an_unknown_name(printed):
    with pytest.raises(ValueError, match="did you mean `embedded/em_routing`"):
        printed("embedded/em_routin")
