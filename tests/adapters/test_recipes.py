"""A recipe with an adapter: trained beside a base that stays as it is, loaded, translated with, analysed."""

import json
import shutil
from pathlib import Path

import pytest
import torch
import yaml
from safetensors.torch import load_file, save_file
from transformers import AutoModelForSeq2SeqLM, M2M100Config, MBartTokenizer, NllbTokenizer

from capsule_mt.commands import main
from capsule_mt.models.weights import CheckpointError
from hf_capsule_mt import aggregate
from hf_capsule_mt.loading import load_checkpoint, load_model
from hf_capsule_mt.training import load_recipe, run_recipe
from hf_capsule_mt.training.languages import first_token, set_languages
from tests.fixtures.tiny import save_tiny_checkpoint, save_tiny_marian, sizes_for, tiny_tokenizer
from tests.modeling.model_checks import randomize

peft = pytest.importorskip("peft", reason="peft is not installed")

# peft calls it by its old name
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*gradient_checkpointing.* is deprecated:FutureWarning"),
    pytest.mark.usefixtures("own_cache_of_datasets"),
]

RECIPE = {
    "languages": {"source": "en", "target": "de"},
    "data": {"train": {"embedded": 80}, "validation": {"embedded": 6}, "test": {"embedded": 5}},
    "training": {
        "max_steps": 4,
        "max_tokens_per_batch": 300,
        "gradient_accumulation_steps": 2,
        "learning_rate": 3e-2,
        "save_steps": 2,
        "use_cpu": True,
        "disable_tqdm": True,
        "report_to": "none",
    },
    "generation": {"num_beams": 2, "max_new_tokens": 8},
}


def save_tiny_m2m(folder):
    tokenizer = tiny_tokenizer()
    model = randomize(AutoModelForSeq2SeqLM.from_config(M2M100Config(**sizes_for(tokenizer), bos_token_id=0)))
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def save_student(folder):
    measured = {"coverage_calibration": {"attention": {"head": [0, 1], "threshold": 0.3}}}
    return save_tiny_checkpoint(folder, decoder_self="ssru", marian_positions=True, dropout=0.0, **measured)


BASES = {
    "m2m_100": (save_tiny_m2m, "M2M100ForConditionalGeneration"),
    "student": (save_student, "CapsuleMarianMTModel"),
    "marian": (save_tiny_marian, "CapsuleMarianMTModel"),
}
REST = [name for name in BASES if name != "m2m_100"]


def recipe(folder, checkpoint, overrides=None, **values):
    file = folder / "recipe.yaml"
    named = {"init_from": str(checkpoint), "output_dir": str(folder / "run")}
    file.write_text(yaml.safe_dump({**RECIPE, **named, **values}), encoding="utf-8")
    return load_recipe(file, overrides)


def trained(folder, base, **adapter):
    save, _ = BASES[base]
    return run_recipe(recipe(folder, save(folder / "base"), adapter=adapter)), folder / "run"


@torch.no_grad()
def logits(model):
    source = torch.tensor([[5, 6, 7, 8, 2], [9, 4, 5, 6, 2]])
    return model(input_ids=source, labels=source).logits


@pytest.mark.slow
@pytest.mark.parametrize("base", BASES)
def test_from_text_to_an_adapter_and_its_translations(base, tmp_path, monkeypatch, capsys):
    result, output = trained(tmp_path, base, method="em", side="both", num_capsules=4)
    assert {"validation_bleu", "test_loss"} <= result["scores"].keys()
    assert (output / "checkpoint-4" / "adapter_model.safetensors").exists()
    assert not list(output.rglob("model.safetensors"))
    assert json.loads((output / "adapter_config.json").read_text())["method"] == "em_routing"
    model, _ = load_checkpoint(output)
    assert type(model).__name__ == BASES[base][1]
    assert "threshold" not in str(getattr(model.config, "coverage_calibration", None))
    assert model.generation_config.num_beams == 2
    beside = peft.PeftModel.from_pretrained(load_model(tmp_path / "base"), output).eval()
    torch.testing.assert_close(logits(model), logits(beside))
    assert not torch.equal(logits(model), logits(load_model(tmp_path / "base")))
    (tmp_path / "source.txt").write_text("The man sleeps.\nNo.\n")
    words = f"translate {output} --input {tmp_path}/source.txt --output {tmp_path}/out.txt"
    monkeypatch.setattr("sys.argv", ["capsule-mt", *words.split()])
    assert main() == 0
    assert len((tmp_path / "out.txt").read_text().splitlines()) == 2
    assert run_recipe(load_recipe(tmp_path / "recipe.yaml"))["scores"] == result["scores"]
    capsys.readouterr()


@pytest.mark.slow
@pytest.mark.parametrize(("method", "drawn"), [("em", "encoder.adapter"), ("grn", "encoder.layer_weights")])
def test_analyze_draws_the_weights_of_an_adapter(method, drawn, tmp_path, monkeypatch, capsys):
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    base = save_tiny_m2m(tmp_path / "base")
    adapter = aggregate(load_model(base), method=method, side="both")
    adapter.save_pretrained(tmp_path / "adapter")
    tiny_tokenizer().save_pretrained(tmp_path / "adapter")
    monkeypatch.chdir(tmp_path)
    Path("en").write_text("The man sleeps.\nNo.\n")
    Path("de").write_text("Der Mann schläft.\nNein.\n")
    options = ["--sources", "en", "--targets", "de", "--output"]
    monkeypatch.setattr("sys.argv", ["capsule-mt", "analyze", "adapter", *options, "out/a"])
    assert main() == 0
    result = json.loads(Path("out/a.json").read_text())
    weights = result["routings"]["decoder.adapter"] if method == "em" else result["layer_weights"]["decoder.adapter.0"]
    assert len(weights) >= 3
    assert Path(f"out/a-{drawn}.png").exists()
    assert "encoder.adapter" in capsys.readouterr().out
    monkeypatch.setattr("sys.argv", ["capsule-mt", "analyze", "base", *options, "out/b"])
    with pytest.raises(SystemExit, match="M2M100ForConditionalGeneration with this configuration has nothing to anal"):
        main()


@pytest.mark.parametrize("options", ["", "--output calibrated"])
def test_an_adapter_has_no_place_for_a_calibration(options, text_folder, tmp_path, monkeypatch):
    """Nobody would read its coverage.json: the configuration is that of the model beside it."""
    adapter = aggregate(load_model(save_tiny_marian(tmp_path / "base")), method="em")
    adapter.save_pretrained(tmp_path / "adapter")
    tiny_tokenizer().save_pretrained(tmp_path / "adapter")
    words = f"capsule-mt calibrate adapter train.en train.de --method deletion {options}"
    monkeypatch.setattr("sys.argv", words.split())
    with pytest.raises(SystemExit, match=r"adapter: is an adapter, not a model: .* `capsule-mt export adapter OUT`"):
        main()
    assert not [*tmp_path.rglob("coverage.json"), *tmp_path.glob("calibrated")]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"adapter": {"methd": "em"}}, r"`adapter` has no key `methd`; did you mean `method`\?"),
        ({"adapter": {"inference_mode": True}}, "`adapter` has no key `inference_mode`"),
        ({"adapter": {"method": "no"}}, "`adapter`: .*no"),
        ({"adapter": {"side": "top"}}, r"yaml: `adapter\.side` must be one of .*'both', .*, got 'top'"),
        ({"adapter": {"num_iterations": 0}}, "`adapter`: `num_iterations` must be at least 1, got 0"),
        ({"adapter": {"where": "every"}}, '`adapter`: `where` "every" needs `method` "dense"'),
        ({"adapter": [1]}, r"`adapter` must be a mapping of keys to values, got \[1\]"),
        ({"adapter": {}, "init_from": None, "tokenizer": {"vocab_size": 500}}, "`adapter` needs `init_from`"),
        ({"adapter": {}, "freeze": "old"}, "`freeze` must be left out beside `adapter`, got 'old'"),
        ({"adapter": {}, "model": {"d_model": 16}}, "`model` must be left out beside `adapter`"),
        ({"adapter": {}, "training": {"average_last": 2}}, r"`training\.average_last` must be left out beside `adap"),
        ({"adapter": {}, "training": {"fsdp": True}}, r"`training\.fsdp` must be left out beside `adapter`"),
    ],
)
def test_refuses_recipes(values, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        recipe(tmp_path, "base", **values)


def test_recipes_inherit_and_are_overridden(tmp_path):
    """The model of a base is not inherited: it is that of `init_from`."""
    values = recipe(tmp_path, "base", {"adapter.side": "both"}, base="embedded/plain", adapter={"method": "grn"})
    assert (values.model, values.adapter) == ({}, {"method": "grn", "side": "both"})
    overridden = recipe(tmp_path, "base", {"method": "mudd", "num_capsules": 4}, adapter={})
    assert overridden.adapter == {"method": "mudd", "num_capsules": 4}
    with pytest.raises(ValueError, match="no key `metod`; did you mean `method`"):
        recipe(tmp_path, "base", {"adapter.metod": "mudd"}, adapter={})


@pytest.mark.parametrize("base", ["m2m_100", *(pytest.param(name, marks=pytest.mark.slow) for name in REST)])
def test_a_folder_that_does_not_fit_is_refused(base, tmp_path):
    save, _ = BASES[base]
    adapter = aggregate(load_model(save(tmp_path / "base")), method="em", side="encoder")
    adapter.save_pretrained(tmp_path / "adapter")
    load_model(tmp_path / "adapter")
    file = tmp_path / "adapter" / "adapter_model.safetensors"
    weights = load_file(file)
    name = min(weights)
    save_file({other: weight for other, weight in weights.items() if other != name}, file)
    with pytest.raises(CheckpointError, match=rf"adapter_model\.safetensors: lacks `{name}`"):
        load_model(tmp_path / "adapter")
    save_file({**weights, "more": torch.ones(1)}, file)
    with pytest.raises(CheckpointError, match=r"adapter_model\.safetensors: has no place for `more`"):
        load_model(tmp_path / "adapter")
    save_file(weights, file)
    shutil.rmtree(tmp_path / "base")
    with pytest.raises(CheckpointError, match=r"adapter_config\.json: `base_model_name_or_path`: .*no such folder"):
        load_model(tmp_path / "adapter")


def test_languages_of_a_tokenizer_of_many():
    tokenizer = NllbTokenizer()
    set_languages(tokenizer, "deu_Latn", "fra_Latn")
    assert (tokenizer.src_lang, tokenizer.tgt_lang) == ("deu_Latn", "fra_Latn")
    assert first_token(tokenizer) == {"forced_bos_token_id": tokenizer.convert_tokens_to_ids("fra_Latn")}
    with pytest.raises(ValueError, match=r"`languages\.target` must be a code of NllbTokenizer, .* got 'fr': name"):
        set_languages(tokenizer, "deu_Latn", "fr")
    with pytest.raises(ValueError, match="MBartTokenizer does not begin translations with their language"):
        set_languages(MBartTokenizer(), "de_DE", "fr_XX")
    assert first_token(tiny_tokenizer()) == {}
