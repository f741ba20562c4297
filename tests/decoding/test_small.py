"""Small checkpoints beside PyTorch: what the matrices multiply, and what transformers loads."""

import pytest
import torch

from capsule_mt.conversions.to_huggingface import write_huggingface
from capsule_mt.coverage.calibration.rounding import input_moments, write_small
from capsule_mt.engine.program import Codes
from capsule_mt.engine.search import SearchOptions
from capsule_mt.models.loading import load_model as load_light
from capsule_mt.models.small_weights import SmallFile
from hf_capsule_mt import CapsuleMarianMTModel
from hf_capsule_mt.loading import load_model
from tests.fixtures.students import write_student
from tests.light.models.test_marian_checkpoint import SOURCES


@pytest.fixture
def folder(tmp_path):
    write_huggingface(write_student(tmp_path / "student"), tmp_path / "hub")
    return tmp_path / "hub"


@pytest.mark.parametrize(
    "name",
    [
        "model.encoder.layers.1.fc2",
        "model.decoder.layers.0.encoder_attn.k_proj",
        "model.decoder.layers.1.fc1",
        "lm_head",
    ],
)
def test_moments_are_those_of_the_inputs_in_pytorch(name, folder):
    """The engine observes its greedy search; PyTorch reads the same translations as given targets."""
    light, model = load_light(folder), CapsuleMarianMTModel.from_pretrained(folder).eval()
    rows = []
    module = dict(model.named_modules())[name]
    module.register_forward_pre_hook(lambda _, inputs: rows.append(inputs[0].reshape(-1, inputs[0].shape[-1])))
    limit, never = 9, light.generation["suppress_tokens"]
    for text in SOURCES:
        ids = light.tokenizer.encode(text).ids
        ((best, *_),) = light.decoder.translate([ids], SearchOptions(limits=[limit], suppress_tokens=never))
        previous = [light.start, *best.ids[:-1]]
        with torch.no_grad():
            model(input_ids=torch.tensor([ids]), decoder_input_ids=torch.tensor([previous]), use_cache=False)
    inputs = torch.cat(rows).double()
    table = "model.shared.weight"
    moments = input_moments(folder, SOURCES, max_new_tokens=limit)[table if name == "lm_head" else f"{name}.weight"]
    assert torch.allclose(torch.tensor(moments.mean), inputs.mean(0), atol=1e-4)
    assert torch.allclose(torch.tensor(moments.covariance), inputs.T.cov(correction=0), atol=1e-3)


def test_transformers_loads_the_numbers_that_the_codes_stand_for(folder, tmp_path):
    write_small(folder, tmp_path / "small", SOURCES)
    model = load_model(tmp_path / "small")
    state, stored = model.state_dict(), SmallFile(tmp_path / "small")
    for name in stored:
        values = stored.read(name)
        if isinstance(values, Codes):
            codes = torch.frombuffer(bytearray(values.codes.buffer), dtype=torch.int8).view(values.codes.shape)
            steps = torch.frombuffer(bytearray(values.magnitudes.buffer), dtype=torch.float32)[:, None] / 127
            assert torch.allclose(state[name], codes * steps, rtol=1e-6)
