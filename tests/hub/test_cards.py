"""Model cards: what they say comes from the recipe, the result files and the configuration."""

from pathlib import Path

import pytest
from huggingface_hub import ModelCard

from hf_capsule_mt import CapsuleMarianConfig
from hf_capsule_mt.evaluation import write_result
from hf_capsule_mt.hub import collect_runs, model_card
from hf_capsule_mt.hub.cards import check_card, corpora_of

RECIPE = {
    "about": "EM routing of the layers.",
    "paper": "",
    "seed": 1,
    "output_dir": "outputs/em_routing",
    "languages": {"source": "en", "target": "de"},
    "data": {"train": {"embedded": 20000}, "test": {"embedded": 300}},
    "model": {"model_type": "capsule_marian", "layer_aggregation": "em_routing"},
    "training": {"learning_rate": 2e-3},
    "generation": {"num_beams": 4},
    "init_from": None,
}
SIGNATURE = "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0"
IN_CELL = SIGNATURE.replace("|", r"\|")  # a bar would begin a new cell


def training_result(seed=1, bleu=90.0, **recipe):
    return {
        "recipe": {**RECIPE, "seed": seed, "output_dir": f"outputs/{seed}", **recipe},
        "scores": {"test_bleu": bleu, "test_loss": 0.5},
        "signature": SIGNATURE,
        "parameters": 1_234_567,
        "steps": 500,
    }


EVALUATION = {
    "kind": "evaluation",
    "system": "em_routing on newstest2014",
    "recipe": "recipes/embedded/em_routing.yaml",
    "sentences": 300,
    "scores": {
        "bleu": {"name": "bleu", "score": 24.13, "signature": SIGNATURE, "text": ""},
        "chrf": {"name": "chrf", "score": 55.5, "signature": "chrF2|version:2.6.0", "text": ""},
    },
    "bleu_confidence": {"mean": 24.1, "half_width_95": 0.71, "samples": 1000},
}
SPEED = {
    "kind": "speed",
    "recipe": "recipes/embedded/em_routing.yaml",
    "sentences_per_second": 31.25,
    "sentences": 2000,
    "batch_tokens": 2048,
    "num_beams": 4,
}


@pytest.fixture
def runs(tmp_path):
    write_result(tmp_path / "embedded" / "em_routing-seed1.json", training_result(1, 90.0))
    write_result(tmp_path / "embedded" / "em_routing-seed2.json", training_result(2, 92.0))
    write_result(
        tmp_path / "embedded" / "plain.json", training_result(1, 80.0, model={"model_type": "capsule_marian"})
    )
    write_result(tmp_path / "newstest.json", EVALUATION)
    write_result(tmp_path / "speed.json", SPEED)
    write_result(tmp_path / "benchmark.json", {"core": {}})
    return {entry.name: entry for entry in collect_runs(tmp_path)}


def card_of(entry, **settings):
    config = CapsuleMarianConfig(**{key: value for key, value in entry.recipe["model"].items() if key != "model_type"})
    return model_card(
        "tester/model",
        config.to_dict(),
        recipe=entry.recipe,
        training=entry.training,
        evaluations=entry.evaluations,
        speeds=entry.speeds,
        **settings,
    )


def test_results_are_gathered_by_recipe(runs):
    assert sorted(runs) == ["embedded-em_routing", "embedded-plain"]
    routing = runs["embedded-em_routing"]
    assert [result["recipe"]["seed"] for result in routing.training] == [1, 2]
    assert [result["system"] for result in routing.evaluations] == ["em_routing on newstest2014"]
    assert len(routing.speeds) == 1
    assert not runs["embedded-plain"].evaluations


def test_seeds_that_are_worlds_apart_are_named(tmp_path):
    for seed, score in ((1, 24.13), (2, 0.8)):
        write_result(tmp_path / "embedded" / f"em_routing-seed{seed}.json", training_result(seed, score))
    (entry,) = collect_runs(tmp_path)
    card = str(model_card("tester/model", entry.recipe["model"], recipe=entry.recipe, training=entry.training))
    assert "| test | BLEU | 12.46 ± 16.50 (deviation over 2 seeds: 24.13 / 0.80) |" in card


def test_a_row_of_the_papers_tables(tmp_path):
    row = training_result(1, model={"model_type": "capsnmt"}) | {
        "kind": "reproduction",
        "scores": EVALUATION["scores"],
    }
    del row["signature"]
    write_result(tmp_path / "embedded" / "capsnmt-seed1.json", row)
    models = {name: {"parameters": 9, "milliseconds": {"sentence": 25.91}} for name in ("capsnmt", "plain")}
    write_result(tmp_path / "embedded" / "speeds.json", {"kind": "speeds", "models": models})
    (entry,) = collect_runs(tmp_path)
    results = {"training": entry.training, "speeds": entry.speeds}
    card = str(model_card("tester/model", entry.recipe["model"], recipe=entry.recipe, **results))
    assert f"| test | BLEU | 24.13 | `{IN_CELL}` |" in card
    assert "(`aggregation-capsules`)" in card
    assert card.count("25.9 ms per sentence, one at a time with beam 8") == 1
    pooling = {"model_type": "capsnmt", "aggregation": "pooling"}
    assert "(no capsules: a baseline)" in str(model_card("tester/model", pooling))


def test_seeds_of_a_run_that_starts_from_another_are_one_recipe(tmp_path):
    for seed in (1, 2):
        folders = {
            "init_from": f"outputs/plain-seed{seed}",
            "data": {"train": {"jsonl": f"by-plain-seed{seed}/*.jsonl"}},
        }
        write_result(tmp_path / f"warm-seed{seed}.json", training_result(seed, **folders))
    assert [(runs.name, len(runs.training)) for runs in collect_runs(tmp_path)] == [("warm", 2)]


def test_one_name_for_two_recipes_is_an_error(tmp_path):
    write_result(tmp_path / "model-seed1.json", training_result(1))
    write_result(tmp_path / "model-seed2.json", training_result(2, training={"learning_rate": 1.0}))
    with pytest.raises(ValueError, match=r"model-seed2\.json: its recipe is another"):
        collect_runs(tmp_path)


def test_what_a_card_says(runs):
    text = str(card_of(runs["embedded-em_routing"]))
    hardware = runs["embedded-em_routing"].training[0]["hardware"]
    for said in (
        "Translates en to de.",
        "layer_aggregation-em_routing",
        "EM routing of the layers.",
        "the embedded corpus, sentence pairs that a grammar of this package makes (Apache-2.0)",
        "no other text",
        "1,234,567 parameters, 500 steps",
        "Seeds: 1, 2",
        f"| test | BLEU | 91.00 ± 1.41 (deviation over 2 seeds) | `{IN_CELL}` |",
        f"| em_routing on newstest2014 | BLEU | 24.13 ± 0.71 (95 % interval) | `{IN_CELL}` |",
        "| em_routing on newstest2014 | chrF | 55.50 |",
        "31.2 sentences per second (2,000 sentences, batches of 2048 tokens, beam 4) on",
        hardware["cpu"],
        "cannot say which source words it left out",
        "dou2019dynamic",
        "junczys2018marian",
        "transformers 5.",
        "commit ",
    ):
        assert said in text, said
    assert "zheng2019dynamic" not in text


def test_metadata(runs):
    card = card_of(runs["embedded-em_routing"])
    check_card(card)
    data = ModelCard(str(card)).data
    assert data.language == ["en", "de"]
    assert data.license == "apache-2.0"
    assert data.pipeline_tag == "translation"
    assert data.library_name == "transformers"
    assert [(result.metric_type, result.metric_value) for result in data.eval_results] == [
        ("bleu", 91.0),
        ("bleu", 24.13),
    ]


def test_what_is_not_known_is_said():
    text = str(model_card("tester/model", CapsuleMarianConfig().to_dict()))
    for said in ("Data: not recorded.", "Not measured.", "no capsules: a baseline", "license: other", "Not recorded."):
        assert said in text, said


def test_coverage_is_mentioned_where_there_is_some():
    text = str(model_card("tester/model", {"model_type": "capsule_rnmt", "guided_routing": "guided"}))
    assert "return_coverage=True" in text
    assert "zheng2019dynamic" in text
    assert "bahdanau2015neural" in text


@pytest.mark.parametrize(
    ("source", "title", "open_data"),
    [
        ({"embedded": 5}, "the embedded corpus", True),
        ({"text": ["/data/tatoeba/train.de.gz", "/data/tatoeba/train.en.gz"]}, "sentence pairs of tatoeba.org", True),
        ({"hub": "wmt/wmt14", "config": "de-en"}, "training data of the WMT", False),
        ({"text": ["data/newstest-en-de/newstest2012.de.gz", "newstest2012.en.gz"]}, "test sets of the WMT", False),
        ({"tsv": "/home/me/mine.tsv"}, "`mine.tsv`", False),
    ],
)
def test_training_data(source, title, open_data):
    (corpus,) = corpora_of({"data": {"train": [source, source]}})
    assert corpus.title.startswith(title)
    assert corpus.allows_any_use is open_data
    assert corpus.hub_name == source.get("hub")
    assert "/home" not in corpus.title


def test_metadata_that_the_hub_would_refuse():
    card = model_card("tester/model", CapsuleMarianConfig().to_dict())
    for key, value, message in (
        ("license_name", None, "needs a `license_name`"),
        ("language", ["english"], "codes such as 'en'"),
        ("pipeline_tag", None, "lack `pipeline_tag`"),
    ):
        other = ModelCard(str(card))
        other.data[key] = value
        with pytest.raises(ValueError, match=message):
            check_card(other)


def test_the_cards_in_the_repository_are_those_of_its_results(tmp_path):
    from scripts.write_model_cards import write_cards

    root = Path(__file__).resolve().parents[2]
    written = write_cards(root / "docs" / "results", tmp_path)
    kept = {path.name: path.read_text(encoding="utf-8") for path in (root / "model_cards").glob("*.md")}
    kept.pop("README.md", None)
    assert {path.name: path.read_text(encoding="utf-8") for path in written} == kept
