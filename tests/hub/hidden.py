"""Run what an export computes in a process in which neither package can be imported."""

import os
import subprocess
import sys

import torch
from transformers import AutoModelForSeq2SeqLM

from tests.hub import computed


def check_without_the_packages(folders, modules_cache):
    """Compare each part of what folders compute there and here; translations are the same, token for token."""
    process = subprocess.run(
        [sys.executable, "-I", computed.__file__, *map(str, folders)],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"HF_MODULES_CACHE": str(modules_cache), "HF_HUB_OFFLINE": "1"},
    )
    assert process.returncode == 0, process.stderr
    for folder in folders:
        expected = computed.computed(AutoModelForSeq2SeqLM.from_pretrained(folder))
        results = torch.load(folder / "computed.pt")
        assert results.keys() == expected.keys(), folder
        assert torch.equal(results["beams"], expected["beams"]), folder
        for part, tensor in expected.items():
            assert torch.allclose(results[part], tensor, atol=1e-5, rtol=1e-5), (folder, part)
