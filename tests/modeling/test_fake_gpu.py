"""Every mix on a GPU that computes nothing: no wait for it, no tensor beside it, routing in float32, one graph.

Each test is a process of its own: PyTorch takes the device for an accelerator from then on.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.mixes import FAMILIES

ROOT = Path(__file__).resolve().parents[2]


def output_of(*command):
    process = subprocess.run(
        [sys.executable, "-m", *command],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONWARNINGS": "ignore"},
    )
    assert process.returncode == 0, process.stderr[-4000:]
    return process.stdout


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_every_mix_runs_on_a_gpu_that_computes_nothing():
    assert output_of("tests.modeling.fake_gpu", *FAMILIES).splitlines() == list(FAMILIES)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_the_table_of_memory_is_what_each_method_takes():
    """After a change: python -m tests.modeling.memory_table --write."""
    page = (ROOT / "docs/capsules.md").read_text(encoding="utf-8")
    assert output_of("tests.modeling.memory_table").strip() in page
