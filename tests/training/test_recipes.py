"""Recipes: every one loads and its model's configuration builds; errors name the key or value that is wrong."""

import re

import pytest
import yaml

from hf_capsule_mt.training import (
    TranslationTrainingArguments,
    build_config,
    load_recipe,
    parse_overrides,
    recipe_names,
)
from hf_capsule_mt.training.run import _training_settings
from hf_capsule_mt.training.run_identity import check_same_recipe

SMALL = ("embedded", "multi30k", "tatoeba", "tatoeba_news")


@pytest.fixture(scope="module")
def recipes():
    return {name: load_recipe(name) for name in recipe_names()}


@pytest.mark.parametrize("name", recipe_names())
def test_every_recipe(name, recipes, tmp_path):
    recipe = recipes[name]
    assert recipe.about.endswith(".")
    separate = {"decoder_vocab_size": 700, "share_encoder_decoder_embeddings": False}
    tokenizer = {"vocab_size": 600, "pad_token_id": 0, "eos_token_id": 1, "decoder_start_token_id": 0}
    config = build_config(recipe.model, tokenizer | (separate if recipe.tokenizer.get("separate") else {}))
    assert config.model_type == recipe.model["model_type"]
    settings = _training_settings(recipe) | {"bf16": False, "use_cpu": True}
    TranslationTrainingArguments(output_dir=str(tmp_path), **settings)
    if recipe.init_from is not None:
        assert any(recipe.init_from == base.output_dir for base in recipes.values())
    if not name.startswith(SMALL):
        assert recipe.paper


def test_layer_aggregation_as_printed_replaces_the_top_layer_of_a_trained_model(recipes):
    rows = [name for name in recipes if name.startswith("layer_aggregation/") or name.endswith("_as_printed")]
    assert len(rows) > len(SMALL) * 4
    for name in rows:
        recipe = recipes[name]
        assert recipe.model["layer_aggregation_placement"] == "replaces", name
        (plain,) = (base for base in recipes.values() if base.output_dir == recipe.init_from)
        assert "layer_aggregation" not in plain.model
        assert plain.data == recipe.data, name


def test_an_unknown_name():
    with pytest.raises(
        ValueError, match=r"no recipe is called 'embedded/em_ruting'; did you mean `embedded/em_routing`"
    ):
        load_recipe("embedded/em_ruting")
    for name, hint in (
        ("embedded", ", but a group of recipes, which `capsule-mt recipes embedded` lists"),
        ("em_routing", "; a name begins with its corpus or paper: `embedded/em_routing`, `multi30k/em_routing`, "),
        ("em_ruting", "; did you mean `em_routing`?"),
        ("embeded", "; did you mean `embedded`?"),
    ):
        with pytest.raises(ValueError, match=re.escape(f"no recipe is called {name!r}{hint}")):
            load_recipe(name)


# ---- errors
BASE = {
    "languages": {"source": "en", "target": "de"},
    "data": {"train": {"embedded": 10}},
    "tokenizer": {"vocab_size": 500},
    "model": {"model_type": "capsule_marian", "d_model": 16, "dropout": 0.1},
    "training": {"max_steps": 3, "learning_rate": 1e-3},
}


def write(folder, name="a.yaml", **values):
    (folder / name).write_text(yaml.safe_dump({**BASE, **values}), encoding="utf-8")
    return folder / name


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            {"training": {"predict_with_generate": False}},
            r"`training`: `predict_with_generate` must be true: a run",
        ),
        ({"data": {"train": {"tsv": 5}}}, r"`data\.train\.tsv` must be str \| PathLike \| list, got 5"),
        (
            {"data": {"train": {"tsv": "a", "columns": [0]}}},
            r"`data\.train\.columns` must have two entries, one for each language, got \[0\]",
        ),
        (
            {"model": {"model_type": "capsul_marian"}},
            "no model family `capsul_marian` is registered; did you mean `caps",
        ),
        ({"data": {}}, "`data`: `train` is missing"),
        ({"tokenizer": {}}, "`tokenizer` is missing, and there is no `init_from`"),
        ({"tokenizer": {"load": "a", "vocab_size": 3}}, "needs either `load` or `vocab_size`"),
        ({"freeze": "new"}, "`freeze` must be one of 'old', got 'new'"),
        ({"freeze": "old"}, "`freeze: old` needs `init_from`"),
        ({"training": {"max_steps": "abc"}}, r"`training\.max_steps` must be int, got 'abc'"),
        ({"training": {"learning_rate": -1}}, r"`training\.learning_rate` must be at least 0, got -1"),
        ({"training": {"metric_for_best_model": "blue"}}, r"must be one of 'bleu', .*; did you mean `bleu`\?"),
        ({"seed": -1}, r"`seed` must be in \[0, 4294967295\], got -1"),
        ({"data": {"train": {"jsonll": "x"}}}, r"must have one of the keys .*; did you mean `jsonl`\?"),
        ({"data": {"train": {"jsonl": "x", "split": "y"}}}, r"`data\.train` has no key `split`"),
        ({"data": {"train": ["x"]}}, r"`data\.train` must be a source, such as .*, got 'x'"),
        ({"model": {"model_type": "capsule_marian", "d_model": 100}}, r"`encoder_attention_heads` \(16\) must divide"),
    ],
)
def test_what_is_wrong(tmp_path, values, message):
    with pytest.raises(ValueError, match=message):
        load_recipe(write(tmp_path, **values))


def test_yaml_errors(tmp_path):
    (tmp_path / "a.yaml").write_text("about: 1\ntraining:\n  seed: 1\n  about: 1\n  seed: 2\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"a\.yaml, line 5: the key `seed` occurs twice"):
        load_recipe(tmp_path / "a.yaml")
    (tmp_path / "a.yaml").write_text("seed: [1\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"a\.yaml: not YAML"):
        load_recipe(tmp_path / "a.yaml")
    (tmp_path / "b.yaml").write_text("base: c.yaml\n", encoding="utf-8")
    (tmp_path / "c.yaml").write_text("modle: {}\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"c\.yaml has no key `modle`; did you mean `model`"):
        load_recipe(tmp_path / "b.yaml")
    (tmp_path / "a.yaml").write_text("base: a.yaml\n", encoding="utf-8")
    with pytest.raises(ValueError, match="cannot be based on itself"):
        load_recipe(tmp_path / "a.yaml")


def test_inheritance(tmp_path):
    write(tmp_path, about="The base.", paper="somewhere", output_dir="outputs/base")
    (tmp_path / "b.yaml").write_text(
        "base: a.yaml\nmodel: {dropout: 0.3}\ntraining: {learning_rate: 7e-4}\ndata: {train: {tsv: x.tsv}}\n"
    )
    recipe = load_recipe(tmp_path / "b.yaml")
    assert recipe.model == {"model_type": "capsule_marian", "d_model": 16, "dropout": 0.3}
    assert recipe.training == {"max_steps": 3, "learning_rate": 7e-4}
    assert recipe.data == {"train": {"tsv": "x.tsv"}}
    assert (recipe.about, recipe.paper, recipe.output_dir) == ("", "", f"outputs/{tmp_path.name}_b")
    (tmp_path / "c.yaml").write_text("base: a.yaml\nmodel: {model_type: marian, d_model: 8}\n")
    assert load_recipe(tmp_path / "c.yaml").model == {"model_type": "marian", "d_model": 8}
    (tmp_path / "d.yaml").write_text("base: embedded/em_routing\nmodel: {dropout: 0.3}\n")
    named = load_recipe("embedded/em_routing")
    assert load_recipe(str(tmp_path / "d.yaml")).model == {**named.model, "dropout": 0.3}


def test_a_setting_under_its_old_name(tmp_path):
    (tmp_path / "old.yaml").write_text("base: embedded/em_routing\nmodel: {layer_aggregation_residual: false}\n")
    recipe = load_recipe(tmp_path / "old.yaml")
    assert recipe.model == {**load_recipe("embedded/em_routing").model, "layer_aggregation_placement": "replaces"}
    check_same_recipe(recipe, tmp_path, write=True)
    recorded = (tmp_path / "recipe.yaml").read_text()
    old = recorded.replace("layer_aggregation_placement: replaces", "layer_aggregation_residual: false")
    assert old != recorded
    (tmp_path / "recipe.yaml").write_text(old)
    check_same_recipe(recipe, tmp_path, write=False)
    for name in ("layer_aggregation_residual", "model.layer_aggregation_residual"):
        assert load_recipe("embedded/em_routing", {name: False}).model == recipe.model


def test_overrides(tmp_path):
    words = ["--max_steps", "7", "--model.dropout=0.2", "--seed", "9", "--learning_rate", "2e-3"]
    words += ["--data.train", "{embedded: 5}", "--guided_routing", "none", "--eval_strategy", "no", "--bf16", "true"]
    recipe = load_recipe(write(tmp_path), parse_overrides(words))
    assert (recipe.training["max_steps"], recipe.seed, recipe.training["learning_rate"]) == (7, 9, 2e-3)
    assert (recipe.model["dropout"], recipe.data["train"]) == (0.2, {"embedded": 5})
    assert recipe.model["guided_routing"] == "none"
    assert (recipe.training["eval_strategy"], recipe.training["bf16"]) == ("no", True)
    for words, message in (
        (["--max_stepz", "3"], r"has no key `max_stepz`; did you mean `max_steps`"),
        (["--vocab_size", "3"], r"--vocab_size may be --tokenizer\.vocab_size or --model\.vocab_size"),
        (["--seed"], "--seed needs a value"),
        (["seed", "3"], "expected --field value, got 'seed'"),
    ):
        with pytest.raises(ValueError, match=message):
            load_recipe(write(tmp_path), parse_overrides(words))


def test_the_tokenizer_decides_the_vocabulary():
    with pytest.raises(ValueError, match=r"`model` sets \['vocab_size'\], which the tokenizer decides"):
        build_config({"model_type": "capsule_marian", "vocab_size": 3}, {"vocab_size": 4})


def test_rules_between_fields_wait_for_the_checkpoint_that_fills_in_the_others(tmp_path):
    model = {"model_type": "capsule_marian", "encoder_attention_heads": 3}  # does not divide the default width
    assert load_recipe(write(tmp_path, model=model, init_from="outputs/other")).model == model
    with pytest.raises(ValueError, match="must divide"):
        load_recipe(write(tmp_path, model=model))


def test_a_recipe_that_is_neither_a_name_nor_a_file():
    with pytest.raises(TypeError, match="a recipe must be a name or a YAML file, got None"):
        load_recipe(None)


def test_a_loss_is_not_maximised(tmp_path):
    recipe = load_recipe("tatoeba/gdr", {"metric_for_best_model": "nll_loss"})  # the base is for BLEU
    chosen = {key: recipe.training[key] for key in ("metric_for_best_model", "greater_is_better")}
    with pytest.raises(ValueError, match=r"`greater_is_better` must be false for .* 'nll_loss'"):
        TranslationTrainingArguments(output_dir=str(tmp_path), use_cpu=True, **chosen)


def test_a_missing_recipe_is_one_sentence(tmp_path):
    for recipe in (tmp_path / "missing.yaml", write(tmp_path, base="missing.yaml")):
        with pytest.raises(ValueError, match=r"missing\.yaml: no such file; `capsule-mt recipes` lists"):
            load_recipe(recipe)


@pytest.mark.parametrize("text", ["", "training:\n", "- a\n"])
def test_a_blank_recipe_is_one_sentence(tmp_path, text):
    (tmp_path / "blank.yaml").write_text(text)
    with pytest.raises(ValueError, match=r"(a recipe is|must be) a mapping of keys to values"):
        load_recipe(tmp_path / "blank.yaml")
