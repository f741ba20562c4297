"""Exported checkpoints: they load, and compute the same, where the package is not installed."""

import itertools
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from huggingface_hub import ModelCard
from transformers import AutoConfig, AutoModelForSeq2SeqLM, AutoTokenizer, MarianMTModel, pipeline

from hf_capsule_mt import CapsuleMarianMTModel, Translator, to_fast
from hf_capsule_mt.data import sentence_pairs, separate_tokenizer, train_separate_tokenizers
from hf_capsule_mt.hub import LoadTestError, export, pushing, write_folder
from hf_capsule_mt.hub import load_test as load_test_program
from hf_capsule_mt.hub.cards import WITH_CODE
from hf_capsule_mt.hub.exporting import check_export
from hf_capsule_mt.loading import load_checkpoint, stored_dtype
from hf_capsule_mt.training.checkpoints import average_checkpoints
from tests.fixtures.tiny import save_tiny_marian, tiny_model, tiny_tokenizer

ROOT = Path(__file__).resolve().parents[2]
TEXT = "The child sleeps. Who laughs?"

# runs where the package cannot be imported
PROGRAM = f"""
import json, sys
sys.path.insert(0, {str(Path(load_test_program.__file__).parent)!r})
from load_test import Absent
sys.meta_path.insert(0, Absent("hf_capsule_mt"))
import torch
from huggingface_hub import ModelCard
from transformers import AutoConfig, AutoModel, AutoModelForSeq2SeqLM, AutoTokenizer, pipeline
folder = sys.argv[1]
"""


def run_without_the_package(program, *arguments, **environment):
    process = subprocess.run(
        [sys.executable, "-I", "-c", PROGRAM + program, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
        env={**os.environ, **environment},
    )
    assert process.returncode == 0, process.stderr
    assert "deprecated" not in process.stderr, process.stderr
    return json.loads(process.stdout.strip().splitlines()[-1])


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    torch.manual_seed(0)
    tokenizer = tiny_tokenizer()
    model = tiny_model(
        tokenizer, layer_aggregation="em_routing", head_aggregation="simple_routing", decoder_self="ssru"
    )
    return export(model.eval(), tokenizer, tmp_path_factory.mktemp("export"))


@pytest.mark.slow
def test_without_the_package(exported, tmp_path):
    texts = run_without_the_package(
        """
model = AutoModelForSeq2SeqLM.from_pretrained(folder, trust_remote_code=True).eval()
try:
    AutoModelForSeq2SeqLM.from_pretrained(folder, trust_remote_code=False)
except ValueError as error:
    refusal = str(error)
tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=True)
batch = tokenizer("The child sleeps.", text_target="Das Kind schläft.", return_tensors="pt")
with torch.no_grad():
    output = model(**batch, output_routing_weights=True)
translator = pipeline("translation", model=folder, trust_remote_code=True)
inferred = pipeline(model=folder, trust_remote_code=True)
base = AutoModel.from_pretrained(folder, trust_remote_code=True)
text = "The child sleeps. Who laughs?"
# saved again, it still loads
model.save_pretrained(sys.argv[2]); tokenizer.save_pretrained(sys.argv[2])
again = pipeline("translation", model=sys.argv[2], trust_remote_code=True)
print(json.dumps({
    "refusal": refusal,
    "logits": output.logits.tolist(),
    "loss": output.loss.item(),
    "routings": sorted(output.routing_weights),
    "texts": [translator(text), inferred(text), again(text)],
    "classes": [type(model).__name__, type(base).__name__, type(translator).__name__],
    "package": any(name.startswith("hf_capsule_mt") for name in sys.modules),
}))
""",
        exported,
        tmp_path / "again",
        HF_MODULES_CACHE=str(tmp_path / "modules"),
    )
    model = AutoModelForSeq2SeqLM.from_pretrained(exported)
    assert isinstance(model, CapsuleMarianMTModel)
    tokenizer = AutoTokenizer.from_pretrained(exported)
    batch = tokenizer("The child sleeps.", text_target="Das Kind schläft.", return_tensors="pt")
    with torch.no_grad():
        output = model(**batch, output_routing_weights=True)
    torch.testing.assert_close(torch.tensor(texts["logits"]), output.logits, atol=1e-5, rtol=1e-5)
    assert texts["loss"] == pytest.approx(output.loss.item(), abs=1e-5)
    assert texts["routings"] == sorted(output.routing_weights)
    # the model's own text: alone, the export has no second search for the doubled words of a random model
    expected = pipeline("translation", model=str(exported))(TEXT, split_sentences=False, copy=False)
    assert texts["texts"] == [expected] * 3
    assert texts["classes"] == ["CapsuleMarianMTModel", "CapsuleMarianModel", "TranslationPipeline"]
    assert not texts["package"]
    assert "trust_remote_code=True" in texts["refusal"]


def test_with_the_package_no_trust_is_needed(exported, tmp_path):
    config = AutoConfig.from_pretrained(exported)
    assert not hasattr(config, "custom_pipelines")
    assert not hasattr(config, "auto_map")
    translator = pipeline("translation", model=str(exported))
    assert type(translator).__module__ == "hf_capsule_mt.decoding.pipeline"
    trusted = pipeline("translation", model=str(exported), trust_remote_code=True)
    assert type(trusted.model).__module__ == "hf_capsule_mt.modeling.modeling_capsule_marian"
    translator.model.save_pretrained(tmp_path)
    names = ["config.json", "generation_config.json", "model.safetensors"]
    assert sorted(path.name for path in tmp_path.iterdir()) == names
    assert not {"custom_pipelines", "auto_map"} & json.loads((tmp_path / "config.json").read_text()).keys()


def test_weights_stored_in_half_load_in_float32(exported, tmp_path, monkeypatch):
    monkeypatch.setattr(pushing, "check_export", lambda folder: None)
    model, tokenizer = load_checkpoint(exported, dtype=torch.float16)
    first = export(model, tokenizer, tmp_path / "first")
    write_folder(first, tmp_path / "second", "second")
    for folder in (first, tmp_path / "second"):
        assert stored_dtype(folder) == torch.float16
        assert AutoModelForSeq2SeqLM.from_pretrained(folder).dtype == torch.float32


RELEASED = sorted(path.parent for path in (ROOT / "checkpoints").glob("*/config.json"))


@pytest.mark.parametrize("checkpoint", RELEASED, ids=lambda folder: folder.name)
def test_a_released_checkpoint_keeps_its_card(checkpoint, tmp_path, monkeypatch):
    monkeypatch.setattr(pushing, "check_export", lambda folder: None)
    write_folder(checkpoint, tmp_path / "out", "tester/exported")
    old, new = (ModelCard((folder / "README.md").read_text()) for folder in (checkpoint, tmp_path / "out"))
    named = {"model-index": None}
    assert new.data.to_dict() | named == old.data.to_dict() | named
    assert new.data.license == "apache-2.0"
    assert len(new.data.language) == 2
    assert new.data.eval_results == old.data.eval_results
    assert new.data.eval_results
    assert new.data.model_name == "tester/exported"
    parts = [card.text[card.text.index("## Intended use") :] for card in (old, new)]
    assert parts[0] == parts[1]
    assert new.text.count('"tester/exported", trust_remote_code=True)') == 3
    assert checkpoint.name not in new.text[: new.text.index("## Intended use")]
    assert WITH_CODE in new.text
    assert "adds code" not in new.text
    write_folder(tmp_path / "out", tmp_path / "again", "tester/exported", license="mit")
    again = ModelCard((tmp_path / "again" / "README.md").read_text())
    assert (again.text, again.data.license) == (new.text, "mit")


def test_a_card_that_cannot_be_kept(exported, tmp_path, monkeypatch):
    monkeypatch.setattr(pushing, "check_export", lambda folder: None)
    folder = shutil.copytree(exported, tmp_path / "checkpoint")
    card = folder / "README.md"
    evaluation = {"kind": "evaluation", "system": "test", "scores": {}}
    card.write_text("Notes of mine.")
    write_folder(folder, tmp_path / "one", "one", [evaluation])
    assert "license: other" in (tmp_path / "one" / "README.md").read_text()
    card.write_text("---\nlicense: mit\n---\n")
    with pytest.raises(ValueError, match=r"checkpoint/README.md is the card .* result files cannot be added"):
        write_folder(folder, tmp_path / "two", "two", [evaluation])
    for content in (b"---\nlicense: [\n---\n", b"---\nlicense: \xff\n---\n"):
        card.write_bytes(content)
        with pytest.raises(ValueError, match=r"checkpoint/README.md is not a model card that can be read"):
            write_folder(folder, tmp_path / "two", "two")
    assert not (tmp_path / "two").exists()


def test_the_tokenizer_knows_how_much_the_model_takes(exported):
    tokenizer = AutoTokenizer.from_pretrained(exported)
    assert tokenizer.model_max_length == AutoConfig.from_pretrained(exported).max_position_embeddings == 200
    assert len(tokenizer(300 * "The child sleeps. ", truncation=True)["input_ids"]) == 200


@pytest.mark.skipif(os.name != "posix", reason="Windows has no modes")
def test_all_files_of_a_saved_model_have_the_same_permissions(exported, tmp_path):
    """safetensors 0.8 lets only their owner read weights."""
    model, tokenizer = load_checkpoint(exported)
    folders = [exported, tmp_path / "averaged", tmp_path / "fast", tmp_path / "translator"]
    average_checkpoints([exported], folders[1])
    to_fast(model).save(folders[2])
    Translator(model, tokenizer).save_pretrained(folders[3])
    for folder in folders:
        modes = {oct(file.stat().st_mode) for file in folder.iterdir() if file.is_file()}
        assert len(list(folder.glob("*.safetensors"))) == len(modes) == 1, folder


@pytest.mark.slow
def test_the_load_test_finds_other_logits(exported, tmp_path):
    check_export(exported)
    broken = shutil.copytree(exported, tmp_path / "broken")
    code = (broken / "modeling_hf_capsule_mt.py").read_text()
    addition = "+ self.final_logits_bias\n"
    assert addition in code
    (broken / "modeling_hf_capsule_mt.py").write_text(code.replace(addition, "+ 1e-3 + self.final_logits_bias\n"))
    with pytest.raises(LoadTestError, match=r"the logits differ by 0\.001"):
        check_export(broken)


def test_a_tokenizer_of_ours_keeps_its_code(exported, tmp_path):
    pairs = zip(*itertools.islice(sentence_pairs(), 50), strict=True)
    tokenizer = train_separate_tokenizers(*pairs, 400)
    path = export(AutoModelForSeq2SeqLM.from_pretrained(exported), tokenizer, tmp_path)
    settings = json.loads((path / "tokenizer_config.json").read_text())
    assert settings["auto_map"] == {"AutoTokenizer": ["separate_tokenizer.SeparateVocabulariesTokenizer", None]}
    assert (path / "separate_tokenizer.py").read_text() == Path(separate_tokenizer.__file__).read_text()


def test_only_models_of_the_package_are_exported(tmp_path):
    save_tiny_marian(tmp_path)
    tokenizer = tiny_tokenizer()
    with pytest.raises(TypeError, match=r"takes a translation model of hf_capsule_mt, got a transformers\..*MarianMT"):
        export(MarianMTModel.from_pretrained(tmp_path), tokenizer, tmp_path / "export")
    with pytest.raises(TypeError, match=r"got a hf_capsule_mt\..*\.CapsuleMarianModel"):
        export(tiny_model(tokenizer).model, tokenizer, tmp_path / "export")
