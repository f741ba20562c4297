"""The code of an export has what its configuration uses, and computes the same where the packages are hidden."""

import ast
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

import hf_capsule_mt
from hf_capsule_mt import CapsuleMarianConfig
from hf_capsule_mt.hub import export
from hf_capsule_mt.hub.bundle import bundle
from hf_capsule_mt.hub.exporting import CODE_MODULE, code_of
from hf_capsule_mt.hub.seams import PACKAGE_ONLY, SEAMS, unused_definitions
from tests.fixtures.tiny import tiny_tokenizer
from tests.hub.code_sizes import tiny_model_of
from tests.hub.hidden import check_without_the_packages
from tests.mixes import FAMILIES

QUICK = ["ssru", "em_own", "guided", "pooling"]
REST = [name for name in FAMILIES if name not in QUICK]
# of the code: what a reviewer reads. With every seam and check, it was 248,049 bytes for Capsule Marian
MOST_BYTES = {
    "plain": 56_500,
    "ssru": 60_000,  # a student of Firefox Translations
    "em": 90_000,
    "guided": 118_000,
    "guided_without_losses": 105_000,
    "rnmt": 74_000,
    "rnmt_guided": 130_500,
    "capsules": 89_000,
}


@pytest.mark.parametrize(
    "names",
    [
        pytest.param(QUICK, id="quick"),
        *(pytest.param(REST[part::4], id=f"rest {part}", marks=pytest.mark.slow) for part in range(4)),
    ],
)
def test_an_export_computes_the_same_without_the_packages(names, tmp_path):
    tokenizer = tiny_tokenizer()
    for number, name in enumerate(names):
        torch.manual_seed(number)
        export(tiny_model_of(name), tokenizer, tmp_path / name)
    check_without_the_packages([tmp_path / name for name in names], tmp_path / "modules")


def executed(code):
    module = {"__name__": "exported"}
    exec(compile(code, "exported", "exec"), module)
    return module


def files(room):
    return sorted((Path(hf_capsule_mt.__file__).parent / room).glob("*.py"))


@pytest.mark.slow
def test_sizes():
    for name, limit in MOST_BYTES.items():
        model = tiny_model_of(name.removesuffix("_without_losses"))
        if name.endswith("_without_losses"):
            model.drop_guided_losses()
        assert len(code_of(model).encode()) <= limit, name


def test_every_definition_of_the_table_is_one_of_the_package():
    code = "\n".join(file.read_text() for room in ("configuration", "modeling", "routing") for file in files(room))
    defined = set(re.findall(r"^(?:class|def) (\w+)", code, re.MULTILINE))
    members = set(re.findall(r"^    (?:def )?(\w+)(?:\(|:| =)", code, re.MULTILINE))
    named = {name for values in SEAMS.values() for needed in values.values() for name in needed} | PACKAGE_ONLY
    for name in named:
        owner, _, member = name.partition(".")
        assert owner in defined, name
        assert not member or member in members, name
    config = CapsuleMarianConfig(layer_aggregation="mudd", decoder_self="ssru")
    assert unused_definitions(config).isdisjoint({"MultiwayDenseSum", "SSRU"})
    assert {"em_routing", "DenseSum", "PastFutureGuidance", "SourceCapsules"} <= unused_definitions(config)


def test_other_settings_than_those_of_the_export_are_refused(tmp_path):
    folder = export(tiny_model_of("plain"), tiny_tokenizer(), tmp_path)
    code = (folder / f"{CODE_MODULE}.py").read_text()
    assert "em_routing" not in code
    config_class = executed(code)["CapsuleMarianConfig"]
    config_class(d_model=16)
    with pytest.raises(Exception, match=r"layer_aggregation.*none.*mudd"):
        config_class(d_model=16, layer_aggregation="mudd")


@pytest.mark.parametrize("name", ["plain", "em", "everything", "guided", "capsules", "pooling", "rnmt_attention"])
def test_no_other_value_of_a_switch_is_ignored(name):
    model = tiny_model_of(name)
    code = code_of(model)
    config_class = executed(code)[type(model.config).__name__]
    others = {
        "layer_aggregation": ("grn", "none"),
        "head_aggregation": ("simple_routing", "concat"),
        "guided_routing": ("classifier", "none"),
        "decoder_self": ("ssru", "attention"),
        "aggregation": ("pooling", "capsules"),
        "source_attention": (True, False),
        "separable_scoring": (False, True),
        "position_aware": (False, True),
        "depth_connections": (True, False),
    }
    if getattr(model.config, "layer_aggregation", "none") != "none":
        others["layer_aggregation_placement"] = ("adds", "replaces")
        others["layer_aggregation_side"] = ("encoder", "both")
        others["em_input_activation"] = ("scalar", "vector")
    for field, values in others.items():
        value = getattr(model.config, field, None)
        for other in (other for other in values if value is not None and other != value):
            with pytest.raises(Exception, match=field):
                config_class(**{field: other})


def test_a_call_without_target_or_labels_says_what_is_missing(monkeypatch):
    model = tiny_model_of("plain")
    module = ModuleType("exported")
    monkeypatch.setitem(sys.modules, "exported", module)
    exec(compile(code_of(model), "exported", "exec"), vars(module))
    exported = module.CapsuleMarianMTModel(module.CapsuleMarianConfig(**model.config.to_diff_dict()))
    with pytest.raises(
        ValueError, match=r"CapsuleMarianDecoder needs exactly one of .* `labels` can take their place"
    ):
        exported(input_ids=torch.tensor([[5, 2]]))


@pytest.mark.parametrize("name", [*QUICK, *(pytest.param(name, marks=pytest.mark.slow) for name in REST)])
def test_no_import_is_unused_and_no_test_is_constant(name):
    tree = ast.parse(code_of(tiny_model_of(name)))
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    imports = [node for node in tree.body if isinstance(node, (ast.Import, ast.ImportFrom))]
    assert {(alias.asname or alias.name).partition(".")[0] for node in imports for alias in node.names} <= names
    tests = [node.test for node in ast.walk(tree) if isinstance(node, (ast.If, ast.IfExp, ast.While))]
    assert not [test for test in tests if isinstance(test, ast.Constant)]


def test_what_is_left_out_can_only_be_named(tmp_path, monkeypatch):
    (tmp_path / "a_module.py").write_text('"""A module."""\n\n\nclass Part: ...\n\n\nPARTS = {"part": Part}\n')
    monkeypatch.syspath_prepend(tmp_path)
    module = {"__name__": "exported"}
    exec(bundle(["a_module"], "A header", {"Part"}), module)
    with pytest.raises(NotImplementedError, match="Part: this checkpoint's code has only what its configuration uses"):
        module["PARTS"]["part"]()


def test_a_statement_that_defines_nothing_is_refused(tmp_path, monkeypatch):
    (tmp_path / "a_module.py").write_text('"""A module."""\n\nprint("loaded")\n')
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ValueError, match="line 3 of a bundled module: Expr defines no name"):
        bundle(["a_module"], "A header")
