"""docs/compatibility.md says what quantisation libraries do.

    python -m tests.system.test_compatibility      # prints the rows of the table

A cell of a library is what was seen: how many of the model's `nn.Linear` were converted, after which its logits stayed
close to its own and it translated; or the error.
"""

import copy
import importlib.util
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import nn

from tests.decoding.models import batch, build

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "compatibility.md"
FAMILIES = {
    "Capsule Marian, capsules off": "plain",
    "EM layers": "em",
    "EM heads": "heads",
    "guided": "guided",
    "RNMT": "rnmt",
    "RNMT guided": "rnmt_guided",
    "CapsNMT": "capsules",
}
# relative error of the logits, of random weights that are larger than trained ones
LARGEST_ERROR = 0.5


def linears(model: nn.Module) -> dict[str, nn.Module]:
    return {name: module for name, module in model.named_modules() if isinstance(module, nn.Linear)}


def torch_dynamic(model: nn.Module) -> tuple[nn.Module, int]:
    from torch.ao.nn.quantized.dynamic import Linear
    from torch.ao.quantization import quantize_dynamic

    converted = quantize_dynamic(model, {nn.Linear}, dtype=torch.qint8)
    return converted, sum(isinstance(module, Linear) for module in converted.modules())


def torchao(config: str) -> Callable[[nn.Module], tuple[nn.Module, int]]:
    def convert(model: nn.Module) -> tuple[nn.Module, int]:
        from torchao import quantization

        quantization.quantize_(model, getattr(quantization, config)())
        return model, sum(type(module.weight.data) is not torch.Tensor for module in linears(model).values())

    return convert


def quanto(model: nn.Module) -> tuple[nn.Module, int]:
    from optimum.quanto import QLinear, freeze, qint8, quantize

    quantize(model, weights=qint8)
    freeze(model)
    return model, sum(isinstance(module, QLinear) for module in model.modules())


def bitsandbytes(model: nn.Module) -> tuple[nn.Module, int]:
    import tempfile

    from bitsandbytes.nn import Linear8bitLt
    from transformers import AutoModelForSeq2SeqLM, BitsAndBytesConfig

    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        settings = BitsAndBytesConfig(load_in_8bit=True)
        loaded = AutoModelForSeq2SeqLM.from_pretrained(folder, quantization_config=settings, device_map="cpu")
    return loaded, sum(isinstance(module, Linear8bitLt) for module in loaded.modules())


class Library(NamedTuple):
    """A row of the page: its name, the module that it needs, and how it converts a model."""

    name: str
    module: str
    convert: Callable[[Any], tuple[Any, int]]


LIBRARIES = (
    Library("torch dynamic int8", "torch", torch_dynamic),
    Library("torchao int8 weights", "torchao", torchao("Int8WeightOnlyConfig")),
    Library("torchao int8 dynamic", "torchao", torchao("Int8DynamicActivationInt8WeightConfig")),
    Library("bitsandbytes 8 bit", "bitsandbytes", bitsandbytes),
    Library("optimum-quanto int8 weights", "optimum.quanto", quanto),
)


def installed(library: Library) -> bool:
    try:
        return importlib.util.find_spec(library.module) is not None
    except ModuleNotFoundError:
        return False


@torch.no_grad()
def cell(library: Library, name: str) -> str:
    """Convert a model and let it translate; return what was seen."""
    model, source = build(name), batch()
    tokens = torch.randint(1, 200, (4, 5), generator=torch.Generator().manual_seed(0))
    expected = model(**source, decoder_input_ids=tokens).logits
    total = len(linears(model))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            converted, number = library.convert(copy.deepcopy(model))
            logits = converted(**source, decoder_input_ids=tokens).logits
            converted.generate(**source, num_beams=2, max_new_tokens=5)
        except Exception as error:
            return f"no: {type(error).__name__}"
    off = (logits.float() - expected).norm() / expected.norm()
    return f"{number} of {total}" if off < LARGEST_ERROR else f"{number} of {total}, error {off:.1f}"


def row(library: Library) -> list[str]:
    return [library.name, *(cell(library, name) for name in FAMILIES.values())]


def tables() -> list[dict[str, list[str]]]:
    """The rows of each of the page's tables, by their first cell."""
    found: list[dict[str, list[str]]] = [{}]
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if line.startswith("| "):
            cells = [cell.strip() for cell in line.strip("|").split("|")]
            found[-1][cells[0]] = cells
        elif found[-1] and not line.startswith("|"):
            found.append({})
    return found


def table(first: str) -> dict[str, list[str]]:
    """The rows of the table whose head begins with a word."""
    (found,) = [rows for rows in tables() if first in rows]
    return found


def test_the_page_lists_every_library_and_family():
    libraries = table("library")
    assert libraries.pop("library") == ["library", *FAMILIES]
    assert set(libraries) == {library.name for library in LIBRARIES}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("library", LIBRARIES, ids=lambda library: library.name)
def test_the_page_says_what_a_library_does(library):
    if not installed(library):
        pytest.skip(f"{library.module} is not installed")
    assert table("library")[library.name] == row(library)


if __name__ == "__main__":
    for one in LIBRARIES:
        print(f"| {' | '.join(row(one))} |" if installed(one) else f"{one.name}: {one.module} is not installed")
