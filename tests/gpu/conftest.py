"""A GPU for the tests of this folder, or with `--tiny` a CPU that takes an accelerator's way through the models."""

import pytest
import torch

from hf_capsule_mt.routing import common


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if torch.cuda.is_available() or config.getoption("--tiny"):
        return
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason="needs a GPU; `--tiny` runs what it can on the CPU"))


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> torch.device:
    if torch.cuda.is_available():
        torch.backends.cuda.matmul.allow_tf32 = False
        torch.backends.cudnn.allow_tf32 = False  # recurrent layers would round to ten bits
        return torch.device("cuda")
    monkeypatch.setattr(common, "HOST", "another device")
    return torch.device("cpu")


@pytest.fixture
def gpu(device: torch.device) -> torch.device:
    """The same, for what a CPU cannot play."""
    if device.type == "cpu":
        pytest.skip("a CPU cannot do this")
    return device
