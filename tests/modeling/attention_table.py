"""Which attention which family takes, going forward, generating and training: each cell is run on a tiny model.

    python -m tests.modeling.attention_table      # writes the table into docs/publishing.md

flash-attn needs a GPU: its kernels are replaced by plain torch, with masks and padding of transformers.
"""

import re
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.modeling.model_checks import TOLERANCE, ModelChecks
from tests.modeling.test_attention_implementations import PLAIN_FLASH, register_plain_kernels
from tests.modeling.test_capsnmt import TestCapsNMT
from tests.modeling.test_capsule_marian import TestCapsuleMarian
from tests.modeling.test_capsule_rnmt import TestCapsuleRNMT

PAGE = Path(__file__).resolve().parents[2] / "docs/publishing.md"
SECTION = re.compile(r"(?<=<!-- attention -->\n\n).*?(?=\n\n<!-- end of attention -->)", re.DOTALL)
# their names to transformers, and what a class says of each
IMPLEMENTATIONS = {
    "eager": ("eager", ""),
    "sdpa": ("sdpa", "_supports_sdpa"),
    "flash": (PLAIN_FLASH, "_supports_flash_attn"),
    "flex": ("flex_attention", "_supports_flex_attn"),
}
FAMILIES: dict[str, ModelChecks] = {
    "Capsule Marian": TestCapsuleMarian(),
    "CapsNMT": TestCapsNMT(),
    "RNMT": TestCapsuleRNMT(),
}
Step = Callable[[ModelChecks, Any], dict[str, torch.Tensor]]


def forward(checks: ModelChecks, model: Any) -> dict[str, torch.Tensor]:
    with torch.no_grad():
        return {"logits": model(**checks.batch()).logits}


def generate(checks: ModelChecks, model: Any) -> dict[str, torch.Tensor]:
    source = checks.source(checks.batch())
    return {"tokens": model.generate(**source, max_new_tokens=5, num_beams=2)}


def train(checks: ModelChecks, model: Any) -> dict[str, torch.Tensor]:
    model.zero_grad()
    model(**checks.batch(), labels=checks.labels()).loss.backward()
    return {name: weight.grad for name, weight in model.named_parameters() if weight.grad is not None}


STEPS: dict[str, Step] = {"forward": forward, "generate": generate, "train": train}


def cell(checks: ModelChecks, column: str, step: Step) -> str:
    """Return whether a step gives the same as with the default attention, or is refused; "-": not of the family."""
    model = checks.model({}).eval()
    implementation, support = IMPLEMENTATIONS[column]
    if support and not getattr(model, support):
        return "-"
    torch.manual_seed(0)  # of the batch
    expected = step(checks, model)
    try:
        model.set_attn_implementation(implementation)
        model.requires_grad_(step is train)
        torch.manual_seed(0)
        actual = step(checks, model)
    except (ValueError, NotImplementedError) as error:
        return "not on a CPU" if "CPU" in str(error) else "refused"
    assert actual.keys() == expected.keys()
    for name, tensor in expected.items():
        torch.testing.assert_close(actual[name], tensor, **TOLERANCE, msg=name)
    return "same"


def rows() -> Iterator[str]:
    yield f"| family | step | {' | '.join(IMPLEMENTATIONS)} |"
    yield "|---|---|" + "---|" * len(IMPLEMENTATIONS)
    for family, checks in FAMILIES.items():
        for name, step in STEPS.items():
            cells = [cell(checks, column, step) for column in IMPLEMENTATIONS]
            yield f"| {family} | {name} | {' | '.join(cells)} |"


def table() -> str:
    # flex compiled for a CPU is the subject of a test; uncompiled, its masks are the same
    eagerly = torch.compiler.set_stance("force_eager")
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings(), eagerly:
        warnings.simplefilter("ignore")
        register_plain_kernels(patch)
        return "\n".join(rows())


if __name__ == "__main__":
    written = table()
    sys.stdout.write(written + "\n")
    PAGE.write_text(SECTION.sub(lambda _: written, PAGE.read_text(encoding="utf-8")), encoding="utf-8")
