"""`from_pretrained` of our classes refuses what is damaged, and names the file."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModel, AutoModelForSeq2SeqLM

from tests.decoding.models import build

FAMILIES = pytest.mark.parametrize("name", ["guided", "rnmt_guided", "capsules"])


@pytest.fixture
def saved(name, tmp_path):
    """A model, and the folder that it is saved to."""
    model = build(name)
    model.save_pretrained(tmp_path)
    return model, tmp_path


def change_weights(folder, change):
    path = folder / "model.safetensors"
    state = load_file(path)
    change(state)
    save_file(state, path, metadata={"format": "pt"})


def loaders(model):
    return type(model), AutoModelForSeq2SeqLM


@FAMILIES
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_numbers_that_are_not_finite(saved, value):
    model, folder = saved
    weight = next(name for name in load_file(folder / "model.safetensors") if name.endswith("weight"))
    change_weights(folder, lambda state: state[weight].flatten()[:2].fill_(value))
    for loader in loaders(model):
        with pytest.raises(OSError, match=rf"model\.safetensors: `{weight}` has 2 of \d+ numbers that are not finite"):
            loader.from_pretrained(folder)


@FAMILIES
def test_missing_tensors(saved):
    model, folder = saved
    weight = next(
        name for name in load_file(folder / "model.safetensors") if "encoder.layer" in name or "votes" in name
    )
    change_weights(folder, lambda state: state.pop(weight))
    for loader in loaders(model):
        with pytest.raises(OSError, match=rf"model\.safetensors: lacks `{weight}`, which the configuration requires$"):
            loader.from_pretrained(folder)
    _, info = type(model).from_pretrained(folder, output_loading_info=True)
    assert set(info["missing_keys"]) == {weight}  # whoever asks what is missing decides


@FAMILIES
@pytest.mark.parametrize("form", ["safetensors", "bin", "parts"])
@pytest.mark.parametrize("size", [0, 1, 100, -1])
def test_truncated_files(saved, form, size):
    model, folder = saved
    path = folder / "model.safetensors"
    if form == "bin":
        path.unlink()
        path = folder / "pytorch_model.bin"
        torch.save(model.state_dict(), path)
    elif form == "parts":
        path.unlink()
        model.save_pretrained(folder, max_shard_size="20KB")
        path = sorted(folder.glob("model-*.safetensors"))[1]
    data = path.read_bytes()
    path.write_bytes(data[:size])
    for loader in loaders(model):
        with pytest.raises(OSError, match=rf"{path.name}: damaged, or cut off: "):
            loader.from_pretrained(folder)


def test_the_part_with_the_tensor_is_named(tmp_path):
    build("plain").save_pretrained(tmp_path, max_shard_size="20KB")
    parts = json.loads((tmp_path / "model.safetensors.index.json").read_text())["weight_map"]
    weight = "model.decoder.layers.1.fc1.weight"
    part = tmp_path / parts[weight]
    state = load_file(part)
    state[weight][0, 0] = float("nan")
    save_file(state, part, metadata={"format": "pt"})
    with pytest.raises(OSError, match=rf"{part.name}: `{weight}` has 1 of"):
        AutoModelForSeq2SeqLM.from_pretrained(tmp_path)


def test_what_may_start_a_training_still_loads(tmp_path):
    """Another configuration than the saved one, a base model, and buffers that forbid a token."""
    model = build("plain")
    model.final_logits_bias[0, 5] = -torch.inf
    model.save_pretrained(tmp_path / "plain")
    extended = type(model).from_pretrained(tmp_path / "plain", layer_aggregation="linear")
    assert extended.config.layer_aggregation == "linear"
    assert AutoModel.from_pretrained(tmp_path / "plain").config.architectures == ["CapsuleMarianMTModel"]
    build("guided").model.save_pretrained(tmp_path / "base")
    assert type(model).from_pretrained(tmp_path / "base").guided_losses is not None
