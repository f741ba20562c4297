"""Every mix on a GPU that computes nothing: no wait for it, no tensor beside it, routing in float32, one graph."""

import os
import subprocess
import sys

import pytest

from tests.mixes import FAMILIES


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_every_mix_runs_on_a_gpu_that_computes_nothing():
    # a process of its own: PyTorch takes the device for an accelerator from then on
    process = subprocess.run(
        [sys.executable, "-m", "tests.modeling.fake_gpu", *FAMILIES],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONWARNINGS": "ignore"},
    )
    assert process.returncode == 0, process.stderr[-4000:]
    assert [line.split()[0] for line in process.stdout.splitlines()] == list(FAMILIES)
