"""Model cards: what they say comes from the recipe, the result files and the configuration."""

import re

import pytest
from huggingface_hub import ModelCard

from hf_capsule_mt import CapsuleMarianConfig
from hf_capsule_mt.evaluation import read_result, write_result
from hf_capsule_mt.hub import model_card
from hf_capsule_mt.hub.card_sources import corpora_of
from hf_capsule_mt.hub.cards import renamed_card, verified_marks

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
CONFIG = CapsuleMarianConfig(layer_aggregation="em_routing").to_dict()
SIGNATURE = "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0"


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


def stamped(tmp_path, result):
    """A result as it is read: with the command, the machine and the software."""
    return read_result(write_result(tmp_path / "result.json", result))


@pytest.fixture
def results(tmp_path):
    return [stamped(tmp_path, result) for result in (training_result(1, 90.0), EVALUATION, {"core": {}})]


def card_of(results, **settings):
    return model_card("tester/model", CONFIG, results, **settings)


def test_what_a_card_says(results):
    text = str(card_of(results))
    hardware = results[0]["hardware"]
    for sentence in (
        "Translates English to German. The model is a Transformer of Marian's architecture. Capsules: EM routing of "
        "the layers. It has 1.2 million parameters.",
        "- layer_aggregation-em_routing",
        "- Recipe: EM routing of the layers.",
        "the embedded corpus, sentence pairs of this package, made by a grammar (Apache-2.0)",
        "It knows only the words and patterns of a small grammar.",
        "1,234,567 parameters, 500 steps, seed 1.",
        "| set | BLEU | chrF |\n|---|---|---|\n| test | 90.00 |  |\n| em_routing on newstest2014 | 24.13 ± 0.71 |",
        f"BLEU: `{SIGNATURE}`.\nchrF: `chrF2|version:2.6.0`.",
        hardware["cpu"],
        "deletes each source word in turn",
        "1902.05770",
        "1804.00344",
        "transformers 5.",
        "commit ",
    ):
        assert sentence in text, sentence
    assert "1904.09646" not in text


def test_a_sum_over_depth_cites_its_own_paper(results):
    config = CapsuleMarianConfig(layer_aggregation="mudd", guided_routing="guided").to_dict()
    text = str(model_card("tester/model", config, results))
    assert "Capsules: a sum of the layers whose weights the top layer gives (MUDD)" in text
    assert "2502.12170" in text
    assert "1904.09646" in text
    assert "1902.05770" not in text


def test_metadata(results):
    card = card_of(results)
    assert ModelCard(str(card)).data.to_dict() == card.data.to_dict()
    data = ModelCard(str(card)).data
    assert data.language == ["en", "de"]
    assert data.license == "apache-2.0"
    assert data.pipeline_tag == "translation"
    assert data.library_name == "transformers"


def test_a_card_without_a_recipe_has_the_languages_of_the_tokenizer():
    card = model_card("tester/model", CONFIG, languages=("de", "en"))
    assert (card.data.language, card.data.metrics) == (["de", "en"], None)
    assert "Translates German to English." in card.text
    assert '"Der alte Mann kauft einen roten Hut."' in card.text


def test_a_recipe_without_scores_is_not_measured():
    card = card_of([training_result() | {"scores": {}}], languages=("fr", "en"))
    assert (card.data.language, card.data.metrics) == (["en", "de"], None)
    assert "Not measured." in card.text
    assert "the embedded corpus, sentence pairs of this package" in card.text


def test_the_scores_are_in_the_model_index(results):
    """In the form of the released cards: a task, a data set, a metric with its signature."""
    index = ModelCard(str(card_of(results))).data.to_dict()["model-index"]
    corpus = "the embedded corpus, sentence pairs of this package, made by a grammar"
    ((name, entries),) = [(entry["name"], entry["results"]) for entry in index]
    assert name == "tester/model"
    assert [entry["task"] for entry in entries] == [{"type": "translation", "name": "Translation en-de"}] * 2
    assert [entry["dataset"]["name"] for entry in entries] == [f"{corpus}, test", "em_routing on newstest2014"]
    assert entries[1]["dataset"]["type"] == "em-routing-on-newstest2014"
    assert [
        [(metric["type"], metric["value"], metric["name"]) for metric in entry["metrics"]] for entry in entries
    ] == [
        [("bleu", 90.0, f"BLEU ({SIGNATURE})")],
        [("bleu", 24.13, f"BLEU ({SIGNATURE})"), ("chrf", 55.5, "chrF (chrF2|version:2.6.0)")],
    ]
    assert "model-index" not in ModelCard(str(card_of([]))).data.to_dict()


def test_marks_are_in_a_card_where_a_reader_judged_them():
    alarm = {"score": 0.837, "flagged": 0.011, "caught": {"a quarter": 0.812}}
    counts = {"marks": 16, "precision": 0.75, "recall": 0.04}
    verified = {"reverse": "en-pt", "marks": {"likely": counts}, "labels": "by hand"}  # as 0.4 wrote it

    def shown(**fields):
        return verified_marks({"coverage_calibration": {"verified": verified | fields}})

    assert shown() == ""
    flagged = "a coverage below 0.837 flags 1.1% of the model's own translations"
    assert flagged in shown(alarm=alarm)
    assert "0.75" not in shown(alarm=alarm)
    shown_card = shown(alarm=alarm, right_marks={"all": [9, 20], "likely": [12, 16]})
    assert shown_card.index(flagged) < shown_card.index("| `likely` | 16 | 0.75 |\n| `all` | 20 | 0.45 |")
    assert "held-out text, in which two readers named what is left out" in shown_card


@pytest.mark.parametrize(
    ("source", "title", "open_data"),
    [
        ({"embedded": 5}, "the embedded corpus", True),
        ({"text": ["/data/tatoeba/train.de.gz", "/data/tatoeba/train.en.gz"]}, "sentence pairs of tatoeba.org", True),
        ({"hub": "wmt/wmt14", "config": "de-en"}, "training data of the WMT", False),
        ({"text": ["data/newstest-en-de/newstest2012.de.gz", "newstest2012.en.gz"]}, "test sets of the WMT", False),
        ({"tsv": "/home/me/mine.tsv"}, "`mine.tsv`", False),
        ({"tsv": "/home/embedded_systems/manuals.tsv"}, "`manuals.tsv`", False),
    ],
)
def test_training_data(source, title, open_data):
    (corpus,), is_all = corpora_of({"data": {"train": [source, source]}})
    assert is_all
    assert corpus.title.startswith(title)
    assert corpus.allows_any_use is open_data
    assert corpus.hub_name == source.get("hub")
    assert "/home" not in corpus.title


def test_a_model_without_capsules_does_not_have_their_tag(results):
    for config, has_tag in ((CONFIG, True), ({"model_type": "capsule_marian"}, False)):
        assert ("capsule-networks" in model_card("tester/model", config, results).data.tags) == has_tag


@pytest.mark.parametrize("config", [CONFIG, CONFIG | {"coverage_calibration": {"attention": {"head": [1, 2]}}}])
@pytest.mark.parametrize("name", ["tester/model", 'a "quoted" name\nof two lines \\'])
@pytest.mark.parametrize("with_code", [True, False])
def test_the_code_runs(config, name, with_code, results, monkeypatch):
    card = model_card(name, config, results, with_code=with_code)
    code, _ = re.findall(r"```python\n(.*?)```", str(card), re.DOTALL)
    calls = []

    def pipeline(task, model, trust_remote_code=False):
        calls.append((task, model, trust_remote_code))
        return lambda text, **options: calls.append((text, options))

    monkeypatch.setattr("transformers.pipeline", pipeline)
    exec(code, {})
    # transformers' own pipeline, which the code of an exported checkpoint gets, refuses the option
    options = {"return_coverage": True} if config["coverage_calibration"] and not with_code else {}
    assert calls == [("translation", " ".join(name.split()), with_code), ("The old man buys a red hat.", options)]


@pytest.mark.parametrize(
    ("init_from", "base_model", "sentence"),
    [
        ("Helsinki-NLP/opus-mt-en-de", "Helsinki-NLP/opus-mt-en-de", "Started from `Helsinki-NLP/opus-mt-en-de`."),
        ("/home/me/plain-seed1", None, "Started from `plain-seed1`."),
        ("/home/me/a `folder`", None, "Started from `a 'folder'`."),  # a backtick would end the code
    ],
)
def test_the_model_that_training_started_from(tmp_path, init_from, base_model, sentence):
    card = card_of([stamped(tmp_path, training_result(init_from=init_from))])
    assert card.data.base_model == base_model
    assert card.data.license == "other", "another's weights have a licence of their own"
    assert sentence in str(card)
    assert "/home" not in str(card)


@pytest.mark.parametrize(
    ("data", "card", "license"),
    [
        ({"embedded": 20000}, "---\nlicense: mpl-2.0\n---\n", "mpl-2.0"),
        ({"text": ["a", "b"]}, "---\nlicense: mpl-2.0\n---\n", "other"),
        ({"embedded": 20000}, "---\nlicense: [\n---\n", "other"),
        ({"embedded": 20000}, "A README of another kind.\n", "other"),
    ],
)
def test_a_tuned_model_has_the_licence_of_the_card_that_it_started_from(tmp_path, data, card, license):
    (tmp_path / "student").mkdir()
    (tmp_path / "student" / "README.md").write_text(card)
    result = training_result(init_from=str(tmp_path / "student"), data={"train": data})
    assert card_of([stamped(tmp_path, result)]).data.license == license


def test_commands_are_published_without_local_paths(tmp_path):
    training = training_result() | {
        "command": "python /home/me/scripts/train.py my.yaml --output_dir=/data/me/out --data_dir ~/corpora 'a b'"
    }
    text = str(card_of([stamped(tmp_path, training)]))
    assert "`python train.py my.yaml --output_dir=out --data_dir corpora 'a b'`" in text
    assert "/home" not in text
    assert "/data/me" not in text


@pytest.mark.parametrize("config", [CONFIG, CONFIG | {"coverage_calibration": {"attention": {"head": [1, 2]}}}])
@pytest.mark.parametrize("with_code", [True, False])
def test_a_renamed_card_is_the_one_made_by_that_name(config, with_code, results):
    old = model_card("tester/model", config, results, with_code=with_code)
    for name in ("tester/other", 'a "quoted" name'):
        expected = str(model_card(name, config, results))
        assert str(renamed_card(str(old), name)) == expected
        assert str(renamed_card(str(renamed_card(str(old), "between")), name)) == expected
    assert renamed_card(str(old), "other", license="mit").data.license == "mit"
    free_text = "---\nlicense: cc-by-4.0\n---\n\nA card without a heading.\n"
    assert str(renamed_card(free_text, "other")) == free_text
