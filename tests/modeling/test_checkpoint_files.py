"""`from_pretrained` of our classes refuses what is damaged, and names the file."""

import json
import re

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModel, AutoModelForSeq2SeqLM

from hf_capsule_mt.modeling.checkpoint_files import saved_tensors, unusable_tensor
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


@pytest.mark.parametrize("unused", ["model.bin", "model.enpt.intgemm.alphas.bin", "pytorch_model.bin"])
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"layer_aggregation": "linaer"}, "layer_aggregation"),
        ({"layer_agregation": "linear"}, "did you mean|unexpected"),
        ({"attn_implementation": "flash_attention_2"}, "[Ff]lash"),
        ({"variant": "fp16"}, "no file named"),
    ],
)
def test_an_unused_file_does_not_hide_the_reason(unused, settings, message, tmp_path):
    model = build("plain")
    model.save_pretrained(tmp_path)
    (tmp_path / unused).write_bytes(b"not of torch")
    with pytest.raises(Exception, match=message) as refusal:
        type(model).from_pretrained(tmp_path, **settings)
    assert "damaged" not in str(refusal.value)


def test_a_folder_of_marian_files_lacks_weights(tmp_path):
    (tmp_path / "model.enpt.intgemm.alphas.bin").write_bytes(b"of Marian")
    with pytest.raises(OSError, match=r"no file named model\.safetensors"):
        type(build("plain")).from_pretrained(tmp_path)


def test_weights_without_a_configuration_must_be_complete(tmp_path):
    model = build("plain")
    model.save_pretrained(tmp_path)
    (tmp_path / "config.json").unlink()
    type(model).from_pretrained(tmp_path, config=model.config)
    deeper = type(model.config)(**{**model.config.to_dict(), "decoder_layers": 3})
    with pytest.raises(OSError, match=r"model\.safetensors: lacks `model\.decoder\.layers\.2\."):
        type(model).from_pretrained(tmp_path, config=deeper)


@pytest.mark.parametrize("settings", [{"variant": "fp16"}, {"use_safetensors": False}])
def test_the_damaged_file_is_the_one_that_was_asked_for(settings, tmp_path):
    model = build("plain")
    model.save_pretrained(tmp_path)
    name = "model.fp16.safetensors" if "variant" in settings else "pytorch_model.bin"
    (tmp_path / name).write_bytes(b"cut off")
    with pytest.raises(OSError, match=rf"{name}: damaged, or cut off: "):
        type(model).from_pretrained(tmp_path, **settings)


@FAMILIES
@pytest.mark.parametrize("field", ["dropout", "label_smoothing"])
def test_missing_tensors_of_the_saved_configuration_when_training_goes_on(saved, field):
    model, folder = saved
    weight = next(name for name in load_file(folder / "model.safetensors") if "decoder.layer" in name)
    change_weights(folder, lambda state: state.pop(weight))
    for loader in loaders(model):
        with pytest.raises(OSError, match=rf"model\.safetensors: lacks `{weight}`, which"):
            loader.from_pretrained(folder, **{field: 0.3})


def test_missing_tensors_of_an_extended_model_and_of_another_class(tmp_path):
    model = build("plain")
    model.save_pretrained(tmp_path)
    weight = "model.decoder.layers.1.fc1.weight"
    change_weights(tmp_path, lambda state: state.pop(weight))
    with pytest.raises(OSError, match=rf"lacks `{weight}`, which the configuration requires$"):
        type(model).from_pretrained(tmp_path, layer_aggregation="linear")
    with pytest.raises(OSError, match=r"lacks `decoder\.layers\.1\.fc1\.weight`, which the configuration requires$"):
        AutoModel.from_pretrained(tmp_path)
    AutoModel.from_pretrained(tmp_path, decoder_layers=1)


def test_a_base_model_must_be_complete(tmp_path):
    model = build("guided")
    model.model.save_pretrained(tmp_path)
    change_weights(tmp_path, lambda state: state.pop("decoder.layers.1.fc1.weight"))
    with pytest.raises(OSError, match=r"lacks `model\.decoder\.layers\.1\.fc1\.weight`, which"):
        type(model).from_pretrained(tmp_path)


def test_what_may_be_missing_is_found_without_numbers_and_chance(tmp_path):
    """An untied output matrix, which the saved model shared; the random state stays."""
    model = build("plain")
    model.save_pretrained(tmp_path)
    untied = type(model).from_pretrained(tmp_path, tie_word_embeddings=False)
    assert untied.lm_head.weight is not untied.model.encoder.embed_tokens.weight
    before = torch.get_rng_state()
    saved_tensors(model, tmp_path, {})
    assert torch.equal(torch.get_rng_state(), before)


def test_the_file_is_named_beside_one_in_another_format(tmp_path):
    model = build("plain")
    model.save_pretrained(tmp_path)
    torch.save(model.state_dict(), tmp_path / "pytorch_model.bin")
    weight = "model.decoder.layers.1.fc1.weight"
    change_weights(tmp_path, lambda state: state[weight][0].fill_(torch.nan))
    with pytest.raises(OSError, match=rf"model\.safetensors: `{weight}` has"):
        type(model).from_pretrained(tmp_path)


@pytest.mark.parametrize("form", ["file", "parts"])
@pytest.mark.parametrize("settings", [{}, {"variant": "fp16"}, {"subfolder": "inner"}])
def test_the_file_of_a_model_on_the_hub_is_named(form, settings, tmp_path):
    commit = "0" * 40
    cache = tmp_path / "models--owner--name"
    (cache / "refs").mkdir(parents=True)
    (cache / "refs" / "main").write_text(commit)
    folder = cache / "snapshots" / commit / settings.get("subfolder", "")
    size = {"max_shard_size": "20KB"} if form == "parts" else {}
    model = build("plain")
    model.save_pretrained(folder, variant=settings.get("variant"), **size)
    weight = "model.decoder.layers.1.fc1.weight"
    for path in folder.glob("model*.safetensors"):
        state = load_file(path)
        if weight in state:
            state[weight][0].fill_(torch.nan)
            save_file(state, path, metadata={"format": "pt"})
            with_nan = path
    with pytest.raises(OSError, match=rf"^{re.escape(str(with_nan))}: `{weight}` has"):
        type(model).from_pretrained("owner/name", cache_dir=tmp_path, local_files_only=True, **settings)
    with_nan.write_bytes(with_nan.read_bytes()[:100])
    with pytest.raises(OSError, match=rf"^{re.escape(str(with_nan))}: damaged, or cut off: "):
        type(model).from_pretrained("owner/name", cache_dir=tmp_path, local_files_only=True, **settings)


def test_tensors_whose_numbers_are_not_read():
    """Of types that lack `sum()`, codes in a subclass, and those without data."""

    class CodesTensor(torch.Tensor):
        pass

    model = build("plain")
    for dtype in (torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e8m0fnu):
        model.register_buffer(f"buffer_{dtype}".replace(".", "_"), torch.ones(3).to(dtype))
    model.register_buffer("codes", torch.full((3,), torch.nan).as_subclass(CodesTensor))
    model.register_buffer("no_data", torch.ones(3, device="meta"))
    assert unusable_tensor(model) is None
    model.register_buffer("numbers", torch.full((3,), torch.nan, dtype=torch.float64))
    assert unusable_tensor(model) == ("numbers", "3 of 3 numbers that are not finite")
