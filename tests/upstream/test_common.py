"""transformers' common tests on every family, beside stock Marian, which shows what they ask of an encoder-decoder.

A mix takes a minute or two. One of each family runs, and all where `TRANSFORMERS_TESTS` is set, as in the weekly job.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.mixes import FAMILIES
from tests.upstream.common_tests import STOCK, VARIABLE

ROOT = Path(__file__).resolve().parents[2]
ONE_OF_EACH_FAMILY = ("everything", "capsules", "rnmt_guided")
MIXES = [STOCK, *(FAMILIES if os.environ.get(VARIABLE) else ONE_OF_EACH_FAMILY)]
MIN_TESTS = 60  # of 160; a family without attention weights skips 96, stock Marian 63
# These ask for the attention weights of the decoder to itself, in whose place an SSRU stands
SSRU = {"test_attention_outputs", "test_retain_grad_hidden_states_attentions"}
EXPECTED_TO_FAIL = {"ssru": SSRU, "ssru_combined": SSRU}


@pytest.mark.slow
@pytest.mark.parametrize("mix", MIXES)
def test_common(mix, request):
    cache = request.config.cache.mkdir("transformers")
    command = [sys.executable, "-m", "tests.upstream.common_tests", mix, str(cache)]
    # what a test asks of the hub is skipped then, not tried again and again
    environment = os.environ | {"HF_HUB_OFFLINE": "1"}
    ran = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    result = json.loads(ran.stdout.splitlines()[-1])
    assert result["failed"].keys() == EXPECTED_TO_FAIL.get(mix, set()), result["failed"]
    assert result["ran"] - result["skipped"] >= MIN_TESTS
