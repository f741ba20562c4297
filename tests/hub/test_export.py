"""Exported checkpoints: they load, and compute the same, where the package is not installed."""

import argparse
import itertools
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from transformers import AutoConfig, AutoModelForSeq2SeqLM, AutoTokenizer, MarianMTModel, pipeline

from hf_capsule_mt import CapsuleMarianMTModel
from hf_capsule_mt.commands.push import write_folder
from hf_capsule_mt.data import sentence_pairs, separate_tokenizer, train_separate_tokenizers
from hf_capsule_mt.hub import LoadTestError, check_export, export, exporting
from hf_capsule_mt.hub import load_test as load_test_program
from hf_capsule_mt.hub.exporting import tokenless_environment
from hf_capsule_mt.modeling.loading import load_checkpoint, stored_dtype
from tests.fixtures.tiny import save_tiny_marian, tiny_model, tiny_tokenizer

TEXT = "The child sleeps. Who laughs?"

# runs where the package cannot be imported
PROGRAM = f"""
import json, sys
sys.path.insert(0, {str(Path(load_test_program.__file__).parent)!r})
from load_test import Absent
sys.meta_path.insert(0, Absent("hf_capsule_mt"))
import torch
from transformers import AutoConfig, AutoModel, AutoModelForSeq2SeqLM, AutoTokenizer, pipeline
folder = sys.argv[1]
"""


def run_without_the_package(program, *arguments, **environment):
    done = subprocess.run(
        [sys.executable, "-I", "-c", PROGRAM + program, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
        env={**os.environ, **environment},
    )
    assert done.returncode == 0, done.stderr
    assert "deprecated" not in done.stderr, done.stderr
    return json.loads(done.stdout.strip().splitlines()[-1])


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    torch.manual_seed(0)
    tokenizer = tiny_tokenizer()
    model = tiny_model(
        tokenizer, layer_aggregation="em_routing", head_aggregation="simple_routing", decoder_self="ssru"
    )
    return export(model.eval(), tokenizer, tmp_path_factory.mktemp("export"))


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
    assert texts["texts"] == [pipeline("translation", model=str(exported))(TEXT, split_sentences=False)] * 3
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
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "modeling_hf_capsule_mt.py",
    ]
    saved = json.loads((tmp_path / "config.json").read_text())
    assert "custom_pipelines" not in saved  # the loader has no pipeline
    loader = (tmp_path / "modeling_hf_capsule_mt.py").read_text()
    for reference in saved["auto_map"].values():
        assert reference.removeprefix("modeling_hf_capsule_mt.") in loader


def test_weights_stored_in_half_load_in_float32(exported, tmp_path):
    model, tokenizer = load_checkpoint(exported, dtype=torch.float16)
    first = export(model, tokenizer, tmp_path / "first")
    write_folder(argparse.Namespace(checkpoint=first, results=[], license=None), tmp_path / "second", "second")
    for folder in (first, tmp_path / "second"):
        assert stored_dtype(folder) == torch.float16
        assert AutoModelForSeq2SeqLM.from_pretrained(folder).dtype == torch.float32


@pytest.fixture
def broken(exported, tmp_path):
    """A copy of the exported folder, to be broken."""
    for file in exported.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    return tmp_path


@pytest.fixture
def any_code(monkeypatch):
    """The load test alone, without the comparison of the code that comes before it."""
    monkeypatch.setattr(exporting, "_check_code", lambda path: None)


@pytest.mark.slow
@pytest.mark.usefixtures("any_code")
def test_the_load_test_finds_other_logits(broken):
    code = (broken / "modeling_hf_capsule_mt.py").read_text()
    place = "+ self.final_logits_bias\n"
    assert place in code
    (broken / "modeling_hf_capsule_mt.py").write_text(code.replace(place, "+ 1e-3 + self.final_logits_bias\n"))
    with pytest.raises(LoadTestError, match=r"the logits differ by 0\.001"):
        check_export(broken)


def test_other_code_is_refused_before_it_runs(broken, monkeypatch):
    monkeypatch.setattr(subprocess, "run", lambda *arguments, **settings: pytest.fail("the code ran"))
    file = broken / "modeling_hf_capsule_mt.py"
    file.write_text(file.read_text() + "\nprint('anything')\n")
    with pytest.raises(LoadTestError, match=r"not what .* exports: modeling_hf_capsule_mt\.py; export it again"):
        check_export(broken)
    file.unlink()
    with pytest.raises(LoadTestError, match=r"no exported checkpoint .*modeling_hf_capsule_mt\.py"):
        check_export(broken)


@pytest.mark.parametrize(
    ("name", "entry", "value"),
    [
        ("config.json", "auto_map", {"AutoConfig": "someone/else--code.Config"}),
        ("config.json", "dtype", "float16"),
        ("tokenizer_config.json", "auto_map", {"AutoTokenizer": ["separate_tokenizer.Other", None]}),
    ],
)
def test_references_to_other_code_and_half_dtypes_are_refused(broken, monkeypatch, name, entry, value):
    monkeypatch.setattr(subprocess, "run", lambda *arguments, **settings: pytest.fail("the code ran"))
    (broken / "separate_tokenizer.py").write_text(Path(separate_tokenizer.__file__).read_text())
    settings = json.loads((broken / name).read_text()) | {entry: value}
    (broken / name).write_text(json.dumps(settings))
    with pytest.raises(LoadTestError, match=rf"not what .* exports: {name} \(.*`{entry}`"):
        check_export(broken)


def test_a_tokenizer_of_ours_keeps_its_code(exported, tmp_path):
    pairs = zip(*itertools.islice(sentence_pairs(), 50), strict=True)
    tokenizer = train_separate_tokenizers(*pairs, 400)
    path = export(AutoModelForSeq2SeqLM.from_pretrained(exported), tokenizer, tmp_path)
    settings = json.loads((path / "tokenizer_config.json").read_text())
    assert settings["auto_map"] == {"AutoTokenizer": ["separate_tokenizer.SeparateVocabulariesTokenizer", None]}
    exporting._check_code(path)
    (path / "separate_tokenizer.py").write_text("print('anything')")
    with pytest.raises(LoadTestError, match=r"exports: separate_tokenizer\.py"):
        exporting._check_code(path)


def test_the_load_test_has_no_access_token(tmp_path, monkeypatch):
    home = tmp_path / "home"
    home.mkdir()
    (home / "token").write_text("hf_from_file")
    monkeypatch.setenv("HF_HOME", str(home))
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "AWS_SECRET_ACCESS_KEY", "github_token"):
        monkeypatch.setenv(name, "secret-value")
    environment = tokenless_environment(tmp_path / "temporary")
    assert "secret-value" not in environment.values()
    assert environment["PATH"] == os.environ["PATH"]
    program = "import huggingface_hub; print(huggingface_hub.get_token())"
    found = [
        subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, check=True).stdout
        for env in (environment, dict(os.environ))
    ]
    assert [line.strip() for line in found] == ["None", "secret-value"]


def test_only_models_of_the_package(tmp_path):
    save_tiny_marian(tmp_path)
    tokenizer = tiny_tokenizer()
    with pytest.raises(TypeError, match=r"takes a translation model of hf_capsule_mt, got a transformers\..*MarianMT"):
        export(MarianMTModel.from_pretrained(tmp_path), tokenizer, tmp_path / "export")
    with pytest.raises(TypeError, match=r"got a hf_capsule_mt\..*\.CapsuleMarianModel"):
        export(tiny_model(tokenizer).model, tokenizer, tmp_path / "export")
