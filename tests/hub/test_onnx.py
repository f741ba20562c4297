"""ONNX files of every family and seam: onnxruntime computes what PyTorch does, at any batch size and any lengths."""

import copy
import json

import pytest
import torch

from tests.decoding.models import NAMES, SOURCES, batch, build
from tests.fixtures.tiny import tiny_tokenizer

WHY = "the extra `onnx` is not installed"
onnxruntime = pytest.importorskip("onnxruntime", reason=WHY)
export_onnx = pytest.importorskip("hf_capsule_mt.hub.onnx_export", reason=WHY, exc_type=ImportError).export_onnx
pytestmark = pytest.mark.timeout(1800)  # torch's exporter takes minutes where others work
ALL = [name for name in NAMES if name != "stock"]


class Exported:
    """The files of a folder in onnxruntime: greedy decoding as transformers.js does it."""

    def __init__(self, folder, suffix=""):
        self.encoder, self.decoder = (
            onnxruntime.InferenceSession(folder / "onnx" / f"{name}{suffix}.onnx")
            for name in ("encoder_model", "decoder_model_merged")
        )
        self.shapes = {value.name: value.shape for value in self.decoder.get_inputs()}
        self.outputs = [value.name for value in self.decoder.get_outputs()]

    def encode(self, source):
        return self.encoder.run(None, {name: tensor.numpy() for name, tensor in source.items()})[0]

    def step(self, source, states, tokens, past):
        """Tokens [B, T] and the cache, empty at first -> logits [B, T, V] and the cache."""
        numbers = {"batch_size": len(tokens)}
        empty = {
            name: torch.zeros([numbers.get(size, 0) if isinstance(size, str) else size for size in shape]).numpy()
            for name, shape in self.shapes.items()
            if name.startswith("past_key_values.")
        }
        given = {
            "encoder_attention_mask": source["attention_mask"].numpy(),
            "input_ids": tokens.numpy(),
            "encoder_hidden_states": states,
            "use_cache_branch": torch.tensor([bool(past)]).numpy(),
        }
        outputs = dict(zip(self.outputs, self.decoder.run(None, given | empty | past), strict=True))
        logits = torch.from_numpy(outputs.pop("logits"))
        return logits, {name.replace("present", "past_key_values"): value for name, value in outputs.items()}


def check(model, exported, sources):
    """Compare with float64, as closely as four times the error of PyTorch's own float32."""
    source, exact = batch(sources), copy.deepcopy(model).double()
    keep = source["attention_mask"].bool()
    tokens = torch.randint(1, 200, (len(sources), 5))
    with torch.no_grad():
        own, expected = (one(**source, decoder_input_ids=tokens, use_cache=False).logits for one in (model, exact))
        encoded = exact.get_encoder()(**source).last_hidden_state
    tolerance = {"atol": max(5e-4, 4 * float((own - expected).abs().max())), "rtol": 1e-3, "check_dtype": False}
    states = exported.encode(source)
    torch.testing.assert_close(torch.from_numpy(states)[keep], encoded[keep], **tolerance)
    past = {}
    for start, end in ((0, 2), (2, 3), (3, 4), (4, 5)):
        logits, past = exported.step(source, states, tokens[:, start:end], past)
        torch.testing.assert_close(logits, expected[:, start:end], **tolerance)


@pytest.mark.slow
@pytest.mark.parametrize("name", ALL)
def test_onnxruntime_equals_pytorch(name, tmp_path):
    model = build(name)
    exported = Exported(export_onnx(model, tiny_tokenizer(), tmp_path))
    for sources in (SOURCES, [[9, 5, 6, 7, 0]], [[8, 0], [7, 6, 5, 4, 3, 2, 0]]):
        check(model, exported, sources)
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["model_type"] == "marian"
    assert config["capsule_model_type"] == model.config.model_type
    layers = {int(name.split(".")[1]) for name in exported.shapes if name.startswith("past_key_values.")}
    assert layers == set(range(config["decoder_layers"]))
    for file in tmp_path.rglob("*.onnx"):
        assert b"site-packages" not in file.read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["guided", "rnmt_guided", "capsules"])
def test_int8_is_close(name, tmp_path):
    model, source, tokens = build(name), batch(), torch.randint(1, 200, (4, 5))
    exported = Exported(export_onnx(model, tiny_tokenizer(), tmp_path, int8=True), "_quantized")
    logits, _ = exported.step(source, exported.encode(source), tokens, {})
    with torch.no_grad():
        expected = model(**source, decoder_input_ids=tokens).logits
    assert (logits - expected).norm() < 0.5 * expected.norm()  # random weights are larger than trained ones
