"""Run transformers' common tests, of the installed version, on one mix of settings.

    HF_HUB_OFFLINE=1 python -m tests.upstream.common_tests everything outputs/common-tests      # prints what failed

`stock` is transformers' Marian. The tests are not in transformers' wheel. Its source distribution, which pip downloads
to the folder, has `ModelTesterMixin`. `GenerationTesterMixin` and `ExportTesterMixin` are only in the repository:
`TRANSFORMERS_TESTS` names the folder `tests` of a checkout. This is a program, because pytest refuses their markers.
"""

import contextlib
import importlib
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import unittest
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
import transformers
from transformers import MarianConfig, MarianModel, MarianMTModel

from tests.mixes import FAMILIES, MIXES
from tests.modeling.model_checks import Family, ModelChecks
from tests.modeling.test_capsnmt import TestCapsNMT
from tests.modeling.test_capsule_marian import TestCapsuleMarian
from tests.modeling.test_capsule_rnmt import TestCapsuleRNMT

VARIABLE = "TRANSFORMERS_TESTS"
PACKAGE = "transformers_tests"
ONLY_IN_THE_REPOSITORY = {
    "generation.test_utils": "GenerationTesterMixin",
    "exporters.test_export": "ExportTesterMixin",
}


def _pip(*arguments: str) -> None:
    subprocess.run([sys.executable, "-m", "pip", "-q", *arguments], check=True)


def _made_once(folder: Path, make: Callable[[Path], Path]) -> Path:
    """Return a folder, which `make` makes in a temporary one if it is not there: two processes may ask for it."""
    if not folder.exists():
        with tempfile.TemporaryDirectory(dir=folder.parent) as temporary:
            folder_made = make(Path(temporary))
            with contextlib.suppress(OSError):  # another process was first
                folder_made.rename(folder)
    return folder


def _download_tests(temporary: Path) -> Path:
    source = f"transformers-{transformers.__version__}"
    requirement = f"transformers=={transformers.__version__}"
    _pip("download", "--no-deps", "--no-binary", ":all:", "--dest", str(temporary), requirement)
    with tarfile.open(temporary / f"{source}.tar.gz") as archive:
        members = [member for member in archive if member.name.startswith(f"{source}/tests/")]
        archive.extractall(temporary, members=members, filter="data")
    return temporary / source / "tests"


def _install_parameterized(temporary: Path) -> Path:
    _pip("install", "--no-deps", "--target", str(temporary / "parameterized"), "parameterized")
    return temporary / "parameterized"


def _stand_in(module_name: str, mixin: str) -> None:
    """Let transformers' tests import a mixin that is not there: an empty class."""
    parent = ModuleType(f"{PACKAGE}.{module_name.split('.')[0]}")
    parent.__path__ = []
    module = ModuleType(f"{PACKAGE}.{module_name}")
    setattr(module, mixin, type(mixin, (), {}))
    sys.modules |= {parent.__name__: parent, module.__name__: module}


def load_common_tests(cache: Path) -> ModuleType:
    """Return transformers' own test module of all models, imported."""
    cache.mkdir(parents=True, exist_ok=True)
    checkout = os.environ.get(VARIABLE)
    folder = Path(checkout) if checkout else _made_once(cache / f"tests-{transformers.__version__}", _download_tests)
    sys.path.append(str(_made_once(cache / "parameterized", _install_parameterized)))  # nothing else needs it
    package = ModuleType(PACKAGE)
    package.__path__ = [str(folder)]
    sys.modules[PACKAGE] = package
    for module_name, mixin in ONLY_IN_THE_REPOSITORY.items():
        if not folder.joinpath(*module_name.split(".")).with_suffix(".py").exists():
            _stand_in(module_name, mixin)
    return importlib.import_module(f"{PACKAGE}.test_modeling_common")


def _adapt(common: ModuleType, families: list[Family]) -> None:
    """Tell transformers' tests the kind of each of our classes, and do not set a field that looks misspelt."""
    for names, kind in (
        ("MODEL_MAPPING_NAMES", "model_class"),
        ("MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES", "generation_class"),
    ):
        ours = {family.config_class.model_type: getattr(family, kind).__name__ for family in families}
        setattr(common, names, {**getattr(common, names), **ours})
    set_epsilons: Callable[[Any], None] = common.set_config_for_less_flaky_test

    def set_known_epsilons(config: Any) -> None:
        """Set the epsilon of every spelling but one, which our configurations take for a misspelt field."""
        set_epsilons(config)
        vars(config).pop("layer_norm_epsilon", None)

    common.set_config_for_less_flaky_test = set_known_epsilons


class ModelTester:
    """What transformers' tests ask of a tiny model: its configuration, a batch, and its sizes."""

    batch_size = 3
    seq_length = encoder_seq_length = decoder_seq_length = 7
    is_training = True
    hidden_size = 16

    def __init__(self, checks: ModelChecks, settings: dict[str, Any]) -> None:
        self.checks, self.settings = checks, settings
        sizes = checks.family.sizes
        self.vocab_size = checks.family.vocab_size
        self.num_attention_heads = sizes.get("encoder_attention_heads", 1)
        self.decoder_attention_heads = sizes.get("decoder_attention_heads", 1)
        self.num_hidden_layers = self.encoder_layers = self.get_config().encoder_layers
        self.decoder_layers = self.get_config().decoder_layers

    def get_config(self) -> Any:
        return self.checks.config(self.settings)

    def prepare_config_and_inputs_for_common(self) -> tuple[Any, dict[str, torch.Tensor]]:
        batch = self.checks.batch((7, 4, 5), self.decoder_seq_length)
        return self.get_config(), {**batch, "decoder_attention_mask": torch.ones_like(batch["decoder_input_ids"])}


CHECKS = {"capsule_marian": TestCapsuleMarian, "capsnmt": TestCapsNMT, "capsule_rnmt": TestCapsuleRNMT}
STOCK = "stock"


def checks_of(mix: str) -> tuple[ModelChecks, dict[str, Any]]:
    """Return the checks of the mix's family, with the classes and the sizes of a tiny model, and the settings."""
    if mix == STOCK:
        checks: ModelChecks = TestCapsuleMarian()
        checks.family = Family(MarianConfig, MarianModel, MarianMTModel, {**TestCapsuleMarian.family.sizes})
        settings: dict[str, Any] = {}
    else:
        checks = CHECKS[FAMILIES[mix]]()
        settings = MIXES[FAMILIES[mix]][mix]
    # what transformers' tests expect of every model that they know
    expected = {"encoder_layers": 2, "decoder_layers": 2}
    if "encoder_attention_heads" in checks.family.sizes:
        # both sides have as many heads; stock Marian does not scale embeddings that it is given, either
        expected |= {"decoder_attention_heads": checks.family.sizes["encoder_attention_heads"]}
        expected |= {"scale_embedding": False}
    if FAMILIES.get(mix) == "capsule_rnmt":  # the first hidden state is the embedding
        expected |= {"embedding_size": checks.family.sizes["hidden_size"]}
    return checks, {**settings, **expected}


def test_case(common: ModuleType, mix: str) -> type[unittest.TestCase]:
    """Return transformers' common tests of a mix."""
    checks, settings = checks_of(mix)
    family = checks.family

    class CommonTests(common.ModelTesterMixin, common.GenerationTesterMixin, unittest.TestCase):  # type: ignore
        all_model_classes = (family.model_class, family.generation_class)
        is_encoder_decoder = True
        has_attentions = family.has_attentions

        def setUp(self) -> None:
            torch.manual_seed(0)
            self.model_tester = ModelTester(checks, settings)

    return CommonTests


def run(mix: str, cache: Path, tests: list[str]) -> dict[str, Any]:
    """Return how many tests ran and were skipped, and what failed: the last line of each error, by test."""
    common = load_common_tests(cache)
    _adapt(common, [checks.family for checks in CHECKS.values()])
    case = test_case(common, mix)
    names = tests or unittest.TestLoader().getTestCaseNames(case)
    result = unittest.TestResult()
    unittest.TestSuite(map(case, names)).run(result)
    failed: dict[str, str] = {}
    for test, trace in [*result.failures, *result.errors]:
        method = getattr(test, "test_case", test)._testMethodName  # a subtest knows its test
        failed.setdefault(method, " ".join(trace.split())[-400:])
    return {"ran": result.testsRun, "skipped": len(result.skipped), "failed": failed}


if __name__ == "__main__":
    mix, cache, *tests = sys.argv[1:]
    print(json.dumps(run(mix, Path(cache), tests)))
