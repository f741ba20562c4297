"""The code of an export has what its configuration uses, and computes the same where the packages are hidden."""

import os
import subprocess
import sys

import pytest
import torch
from transformers import AutoModelForSeq2SeqLM

from hf_capsule_mt import CapsuleMarianConfig
from hf_capsule_mt.hub import export
from hf_capsule_mt.hub.bundle import bundle
from hf_capsule_mt.hub.exporting import CODE_MODULE, code_of
from hf_capsule_mt.hub.seams import SEAMS, unused_definitions
from tests.fixtures.tiny import tiny_tokenizer
from tests.hub import computed
from tests.hub.code_sizes import tiny_model_of
from tests.mixes import FAMILIES

QUICK = ["ssru", "em_own", "guided", "pooling"]
# of the code: what a reviewer reads. With every seam, it was 248,049 bytes for Capsule Marian
MOST_BYTES = {
    "plain": 151_000,
    "ssru": 157_000,  # a student of Firefox Translations
    "em": 181_000,
    "guided": 187_500,
    "guided_without_losses": 177_500,
    "rnmt": 133_000,
    "rnmt_guided": 165_500,
    "capsules": 139_500,
}


@pytest.mark.parametrize(
    "names",
    [
        pytest.param(QUICK, id="quick"),
        pytest.param([name for name in FAMILIES if name not in QUICK], id="all", marks=pytest.mark.slow),
    ],
)
def test_an_export_computes_the_same_without_the_packages(names, tmp_path):
    tokenizer = tiny_tokenizer()
    for number, name in enumerate(names):
        torch.manual_seed(number)
        export(tiny_model_of(name), tokenizer, tmp_path / name)
    process = subprocess.run(
        [sys.executable, "-I", computed.__file__, *(str(tmp_path / name) for name in names)],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"HF_MODULES_CACHE": str(tmp_path / "modules"), "HF_HUB_OFFLINE": "1"},
    )
    assert process.returncode == 0, process.stderr
    for name in names:
        expected = computed.computed(AutoModelForSeq2SeqLM.from_pretrained(tmp_path / name))
        results = torch.load(tmp_path / name / "computed.pt")
        assert results.keys() == expected.keys(), name
        assert torch.equal(results["beams"], expected["beams"]), name
        for part, tensor in expected.items():
            assert torch.allclose(results[part], tensor, atol=1e-5, rtol=1e-5), (name, part)


def test_sizes():
    for name, limit in MOST_BYTES.items():
        model = tiny_model_of(name.removesuffix("_without_losses"))
        if name.endswith("_without_losses"):
            model.drop_guided_losses()
        assert len(code_of(model).encode()) <= limit, name


def test_every_definition_of_the_table_is_in_a_bundle():
    names = {definition for values in SEAMS.values() for needed in values.values() for definition in needed}
    code = "\n".join(code_of(tiny_model_of(name)) for name in ("everything", "guided", "capsules", "ssru"))
    unknown = {name for name in names if f"class {name}(" not in code and f"def {name}(" not in code}
    assert not unknown
    config = CapsuleMarianConfig(layer_aggregation="mudd", decoder_self="ssru")
    assert unused_definitions(config).isdisjoint({"MultiwayDenseSum", "SSRU", "SourceCapsules"})
    assert {"em_routing", "DenseSum", "PastFutureGuidance"} <= unused_definitions(config)


def test_what_is_left_out_says_so(tmp_path):
    folder = export(tiny_model_of("plain"), tiny_tokenizer(), tmp_path)
    code = (folder / f"{CODE_MODULE}.py").read_text()
    assert "def em_routing" not in code
    module = {"__name__": "exported"}
    exec(compile(code, "exported", "exec"), module)
    config = module["CapsuleMarianConfig"](
        d_model=16,
        vocab_size=31,
        encoder_layers=1,
        decoder_layers=1,
        decoder_start_token_id=0,
        layer_aggregation="mudd",
    )
    with pytest.raises(NotImplementedError, match="MultiwayDenseSum: this checkpoint's code has only what its conf"):
        module["CapsuleMarianMTModel"](config)


def test_a_statement_that_defines_nothing_is_refused(tmp_path, monkeypatch):
    (tmp_path / "a_module.py").write_text('"""A module."""\n\nprint("loaded")\n')
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ValueError, match="line 3 of a bundled module: Expr defines no name"):
        bundle(["a_module"], "A header")
