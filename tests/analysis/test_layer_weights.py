"""Weights of layers: against plain loops over one sentence at a time, and their picture."""

import itertools
import math

import pytest
import torch

from hf_capsule_mt.analysis.layer_weights import layer_weight_statistics
from hf_capsule_mt.analysis.pictures import draw_layer_weights
from hf_capsule_mt.analysis.routing_statistics import encoded_batches, routings_of
from hf_capsule_mt.data import sentence_pairs
from tests.fixtures.tiny import tiny_model, tiny_tokenizer
from tests.routing import reference


def dense(module, sources):
    return module.weights.tolist()


def attention(module, sources):
    return reference.depth_attention(sources, module.query[0].tolist(), module.gain.tolist(), module.epsilon)[1]


def mudd(module, sources):
    matrices = (parameter.tolist() for parameter in (module.inner, module.outer, module.offsets))
    return reference.multiway_dense(sources, *matrices, module.epsilon)[1]


def grn(module, sources):
    return reference.generalized_residual(
        sources, module.direction[0].tolist(), module.offsets.tolist(), module.epsilon
    )[1]


def dynamic(module, sources):
    joined = [value for source in sources for value in source]
    hidden = [max(value, 0.0) for value in affine(module.fc1, joined)]
    gates = affine(module.fc2, hidden)
    return [gates[start : start + module.width] for start in range(0, len(gates), module.width)]


def affine(layer, vector):
    rows = zip(layer.weight.tolist(), layer.bias.tolist(), strict=True)
    return [sum(w * x for w, x in zip(row, vector, strict=True)) + bias for row, bias in rows]


LOOPS = {"dynamic_combination": dynamic, "dense": dense, "depth_attention": attention, "mudd": mudd, "grn": grn}


def corpus(count):
    pairs = list(itertools.islice(sentence_pairs(), count))
    return [english for english, _ in pairs], [german for _, german in pairs]


@torch.no_grad()
def states_of(model, batch):
    """The embedding and the outputs of all layers [tokens, L, d] of each stack, for one sentence."""
    tops = {}
    for name, stack in (("encoder", model.model.encoder), ("decoder", model.model.decoder)):
        stack.layers[-1].register_forward_hook(
            lambda module, inputs, output, name=name: tops.update({name: output[0]})
        )
    output = model.eval()(**batch, output_hidden_states=True)
    hidden_states = {"encoder": output.encoder_hidden_states, "decoder": output.decoder_hidden_states}
    return {name: torch.stack([*states[:-1], tops[name]], dim=-2)[0] for name, states in hidden_states.items()}


@pytest.mark.parametrize(
    ("method", "connects"), [*((method, False) for method in LOOPS), ("dense", True), ("depth_attention", True)]
)
def test_equals_the_loops(method, connects):
    tokenizer = tiny_tokenizer()
    model = tiny_model(tokenizer, layer_aggregation=method, depth_connections=connects)
    sources, targets = corpus(3)
    statistics = layer_weight_statistics(model, encoded_batches(tokenizer, sources, targets))
    sums = ["depth_connections.1", "layer_aggregation"] if connects else ["layer_aggregation"]
    assert list(statistics) == [f"{stack}.{name}" for stack in ("encoder", "decoder") for name in sums]
    tokens = {name: [] for name in statistics}  # of each sum, a list for each token of the weights of its sources
    for batch in encoded_batches(tokenizer, sources, targets, batch_size=1):
        for stack, states in states_of(model, batch).items():
            for name in (name for name in statistics if name.startswith(stack)):
                module = model.get_submodule(f"model.{name}")
                start = 0 if module.reads_embedding else 1
                sources_of_tokens = states[:, start : start + module.num_sources].tolist()
                tokens[name] += [LOOPS[method](module, token_sources) for token_sources in sources_of_tokens]
    for name, entry in statistics.items():
        assert entry.positions == len(tokens[name])
        assert not entry.mean.requires_grad  # weights of "dense" are parameters, and pictures are drawn in place
        names = ["embedding", "layer 1", "layer 2"]
        assert entry.sources == (names[:2] if "connections" in name else names[method == "dynamic_combination" :])
        for source, (mean, deviation) in enumerate(zip(entry.mean.tolist(), entry.deviation.tolist(), strict=True)):
            weights = [token[source] for token in tokens[name]]
            values = [value for weight in weights for value in (weight if isinstance(weight, list) else [weight])]
            expected = sum(values) / len(values)
            assert mean == pytest.approx(expected, abs=1e-5)
            variance = sum((value - expected) ** 2 for value in values) / len(values)
            assert deviation == pytest.approx(math.sqrt(variance), abs=1e-5)
        if method == "depth_attention":
            entropies = [-sum(weight * math.log(weight) for weight in token) for token in tokens[name]]
            assert entry.entropy == pytest.approx(sum(entropies) / len(entropies), abs=1e-5)
        else:
            assert entry.entropy is None


def test_heads_and_layers_are_both_shown():
    tokenizer = tiny_tokenizer()
    model = tiny_model(tokenizer, layer_aggregation="dense", head_aggregation="simple_routing")
    batches = list(encoded_batches(tokenizer, ["a b"], ["c d"]))
    assert "encoder.layers.0.self_attn" in routings_of(model, batches[0])
    assert set(layer_weight_statistics(model, batches)) == {"encoder.layer_aggregation", "decoder.layer_aggregation"}


def test_a_model_without_weights_of_layers_has_no_statistics():
    assert layer_weight_statistics(tiny_model(tiny_tokenizer(), layer_aggregation="em_routing"), []) == {}
    with pytest.raises(ValueError, match="`batches` must have at least one batch"):
        layer_weight_statistics(tiny_model(tiny_tokenizer(), layer_aggregation="dense"), [])


def test_the_picture_has_a_row_for_each_sum(pictures, tmp_path):
    rows = {"connection": torch.tensor([0.3, 0.7]), "result": torch.tensor([0.1, -0.2, 1.1])}
    picture = draw_layer_weights(rows, ["embedding", "layer 1", "layer 2"], tmp_path / "weights.svg").read_text()
    for text in (*rows, "embedding", "layer 2", "mean weight"):
        assert f"<!-- {text} -->" in picture
