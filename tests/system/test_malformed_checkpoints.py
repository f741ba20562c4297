"""Malformed checkpoints, through every command that loads one: one sentence that names the fault, nothing written."""

import importlib.util
import json

import pytest
import torch
from transformers import AutoModelForSeq2SeqLM, pipeline

import capsule_mt
from hf_capsule_mt import Translator
from hf_capsule_mt.modeling.loading import CheckpointError, load_checkpoint
from tests.fixtures.malformed import MALFORMED, damaged
from tests.fixtures.tiny import save_tiny_checkpoint, save_tiny_marian

WEIGHT_MISSING = "a tensor missing"
COMMANDS = {
    "translate": "translate checkpoint --input text.en --output text.out --cpu",
    "export": "export checkpoint out",
    "push": "push checkpoint owner/model",
    "average": "average --checkpoints checkpoint checkpoint --output out",
    "analyze": "analyze checkpoint --sources text.en --targets text.en --output out",
    "shortlist": "shortlist checkpoint text.en text.en --output out",
    "convert": "convert checkpoint out --to onnx",
    "calibrate": "calibrate checkpoint text.en text.en --output out",
    "serve": "serve en-de=checkpoint --port 0",
    "distill": "distill recipe.yaml out --teacher checkpoint --cpu",
}


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    settings = {"layer_aggregation": "em_routing", "layer_aggregation_num_capsules": 4, "guided_routing": "guided"}
    torch.manual_seed(0)
    return save_tiny_checkpoint(tmp_path_factory.mktemp("good") / "checkpoint", guided_capsule_dim=8, **settings)


@pytest.fixture(params=MALFORMED)
def malformed(request, good, tmp_path):
    """A folder with a damaged checkpoint and a text, and what the error must name."""
    damaged(good, request.param, tmp_path / "checkpoint")
    (tmp_path / "text.en").write_text("The old man buys a red hat.\n")
    recipe = {
        "data": {"train": {"embedded": 2}},
        "languages": {"source": "en", "target": "de"},
        "model": {"model_type": "capsnmt"},
        "tokenizer": {"vocab_size": 300},
    }
    (tmp_path / "recipe.yaml").write_text(json.dumps(recipe))
    return tmp_path, MALFORMED[request.param][1]


def test_a_good_one_loads(good):
    model, _ = load_checkpoint(good)
    assert not model.training


def test_every_command(malformed, monkeypatch, capsys):
    folder, named = malformed
    monkeypatch.chdir(folder)
    before = sorted(folder.rglob("*"))
    for name, command in COMMANDS.items():
        if name == "serve" and importlib.util.find_spec("uvicorn") is None:
            continue
        monkeypatch.setattr("sys.argv", ["capsule-mt", *command.split()])
        with pytest.raises(SystemExit) as ended:
            capsule_mt.main()
        said = f"{ended.value.code}\n{capsys.readouterr().err}"
        assert ended.value.code not in (0, None), command
        assert named in said, (command, said)
        assert "Traceback" not in said, command
        assert sorted(folder.rglob("*")) == before, command


def test_the_page_does_not_start(malformed, monkeypatch, capsys):
    gradio = pytest.importorskip("gradio")
    folder, named = malformed
    monkeypatch.setattr(gradio.Blocks, "launch", lambda *arguments, **settings: pytest.fail("the page was served"))
    monkeypatch.chdir(folder)
    monkeypatch.setattr("sys.argv", ["capsule-mt", "demo", "checkpoint"])
    with pytest.raises(SystemExit) as ended:
        capsule_mt.main()
    assert named in str(ended.value.code) + capsys.readouterr().err


@pytest.mark.parametrize("save", [save_tiny_checkpoint, save_tiny_marian])
def test_the_pipeline(save, tmp_path):
    """transformers tries Marian's own class after an error of the first one."""
    damaged(save(tmp_path / "good"), WEIGHT_MISSING, tmp_path / "checkpoint")
    for load in (Translator.from_pretrained, lambda path: pipeline("translation", model=path)):
        with pytest.raises(CheckpointError, match=r"checkpoint/model\.safetensors: lacks `model\.decoder\.layers\.0"):
            load(str(tmp_path / "checkpoint"))
        load(str(tmp_path / "good"))


def test_a_member_of_an_ensemble(good, tmp_path):
    damaged(good, WEIGHT_MISSING, tmp_path / "checkpoint")
    with pytest.raises(CheckpointError, match=r"lacks `model\.decoder\.layers\.0\.fc1"):
        Translator.from_pretrained(good, ensemble=[tmp_path / "checkpoint"])


def test_from_pretrained_stays_as_it_is(good, tmp_path):
    damaged(good, WEIGHT_MISSING, tmp_path / "checkpoint")
    AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "checkpoint")


def test_a_model_that_is_damaged_after_loading(good):
    model, tokenizer = load_checkpoint(good)
    with torch.no_grad():
        model.model.decoder.layers[0].fc1.weight[0, 0] = torch.nan
    with pytest.raises(CheckpointError, match=r"`model\.decoder\.layers\.0\.fc1\.weight` has 1 of 256 numbers"):
        Translator(model, tokenizer)


@pytest.mark.parametrize("backend", ["native", "torch", "transformers"])
@pytest.mark.parametrize("scores", [True, False])
def test_logits_that_are_not_finite_later_on(good, backend, scores):
    """Only the second position overflows, which the check at loading does not see."""
    model, tokenizer = load_checkpoint(good)
    with torch.no_grad():
        model.model.encoder.embed_positions.weight[1] = 3e38
    translator = Translator(model, tokenizer, backend=backend)
    with pytest.raises(ValueError, match="the model's logits are not finite"):
        translator("The child sleeps.", scores=scores)


def test_a_vocabulary_that_is_rounded_up(good):
    model, tokenizer = load_checkpoint(good)
    model.resize_token_embeddings(pad_to_multiple_of=64)
    assert Translator(model, tokenizer)("The child sleeps.", max_new_tokens=2)
