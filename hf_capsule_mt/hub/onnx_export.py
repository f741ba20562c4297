"""Write a translation model as ONNX, in the files and under the names that transformers.js and onnxruntime users know.

    folder/config.json, generation_config.json, tokenizer.json, ...
    folder/onnx/encoder_model.onnx           input_ids, attention_mask -> last_hidden_state
    folder/onnx/decoder_model_merged.onnx    the first step and the following ones, chosen by `use_cache_branch`

With int8 weights, `_quantized` is added to the names of the last two.
"""

import contextlib
import copy
import io
import json
import logging
import os
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import torch
from onnxscript import ir
from torch import nn
from torch.export import Dim
from tqdm.auto import tqdm
from transformers import PreTrainedTokenizerBase

from hf_capsule_mt.hub.exporting import TranslationModel
from hf_capsule_mt.hub.onnx_graphs import EncoderGraph, FirstStepGraph, NextStepGraph, cache_entries, num_cache_layers
from hf_capsule_mt.modeling import CapsuleMarianMTModel

ONNX_FOLDER, QUANTIZED = "onnx", "_quantized"
PAST, PRESENT = "past_key_values.", "present."
# the longest sequences that the graphs of recurrent models are checked for; they have no limit
LONGEST = 2**20


def export_onnx(
    model: TranslationModel, tokenizer: PreTrainedTokenizerBase, folder: str | os.PathLike[str], *, int8: bool = False
) -> Path:
    """Write a model of any family and its tokenizer as ONNX; batch and lengths may be any.

    The config calls the model a "marian", which transformers.js runs, and `decoder_layers` counts the layers of the
    cache. `capsule_model_type` and `capsule_decoder_layers` keep the model's own values.

    Args:
        int8: store the matrices in int8 and multiply in int8: a quarter of the size.
    """
    path = Path(folder)
    (path / ONNX_FOLDER).mkdir(parents=True, exist_ok=True)
    model = copy.deepcopy(model).float().eval()
    graphs = {}
    for name in tqdm(("encoder", "first step", "next step"), desc="ONNX graphs"):
        graphs[name] = _export_graph(model, name)
    if int8:
        graphs = {name: _quantized(graph) for name, graph in graphs.items()}
    suffix = QUANTIZED * int8
    ir.save(graphs["encoder"], path / ONNX_FOLDER / f"encoder_model{suffix}.onnx")
    merged = merge_steps(graphs["first step"], graphs["next step"])
    ir.save(merged, path / ONNX_FOLDER / f"decoder_model_merged{suffix}.onnx")
    tokenizer.save_pretrained(path)
    model.generation_config.save_pretrained(path)
    (path / "config.json").write_text(json.dumps(_config(model), indent=2) + "\n", encoding="utf-8")
    return path


def _config(model: TranslationModel) -> dict[str, Any]:
    own = model.config.to_dict()
    width = own.get("d_model", own.get("hidden_size"))
    heads = {f"{side}_attention_heads": own.get(f"{side}_attention_heads", 1) for side in ("encoder", "decoder")}
    return own | {
        "model_type": "marian",
        "architectures": ["MarianMTModel"],
        "d_model": width,
        **heads,
        "decoder_layers": num_cache_layers(model),
        "capsule_model_type": own["model_type"],
        "capsule_decoder_layers": own["decoder_layers"],
    }


def _export_graph(model: TranslationModel, name: str) -> ir.Model:
    """Export one of the three graphs, with dimensions that may change."""
    longest = model.config.max_position_embeddings if isinstance(model, CapsuleMarianMTModel) else LONGEST
    batch, source = Dim("batch_size"), Dim("encoder_sequence_length", max=longest)
    target, past = Dim("decoder_sequence_length", max=longest), Dim("past_decoder_sequence_length", max=longest - 1)
    ids, mask = torch.zeros(2, 3, dtype=torch.long), torch.ones(2, 3, dtype=torch.long)
    states = EncoderGraph(model)(ids, mask).detach()
    rows, mask_shape = {0: batch}, {0: batch, 1: source}
    if name == "encoder":
        shapes: dict[str, Any] = {"input_ids": mask_shape, "attention_mask": mask_shape}
        inputs: dict[str, Any] = {"input_ids": ids, "attention_mask": mask}
        return _to_onnx(EncoderGraph(model), inputs, shapes, list(inputs), ["last_hidden_state"])
    inputs = {"encoder_attention_mask": mask, "input_ids": ids[:, :2]}
    shapes = {"encoder_attention_mask": mask_shape, "input_ids": {0: batch, 1: target}}
    with torch.no_grad():
        first = model(input_ids=ids, attention_mask=mask, decoder_input_ids=inputs["input_ids"], use_cache=True)
    entries = cache_entries(model, first.cache, states)
    if name == "first step":
        inputs["encoder_hidden_states"], shapes["encoder_hidden_states"] = states, mask_shape
        outputs = [f"{PRESENT}{entry}" for entry in entries]
        return _to_onnx(FirstStepGraph(model), inputs, shapes, list(inputs), ["logits", *outputs])
    inputs["input_ids"], shapes["input_ids"] = ids[:, :1], rows
    inputs["past"] = {entry: tensor.detach() for entry, tensor in entries.items()}
    # of keys and values [B, H, P or S, d], of other tensors the dimension that has the 3 positions of the source
    shapes["past"] = {}
    for entry, tensor in inputs["past"].items():
        if ".decoder." in entry:
            shapes["past"][entry] = {0: batch, 2: past} if tensor.dim() == 4 else rows
        else:
            shapes["past"][entry] = {0: batch, tensor.dim() - 2: source} if tensor.dim() > 2 else rows
    names = ["encoder_attention_mask", "input_ids", *(f"{PAST}{entry}" for entry in inputs["past"])]
    changing = [f"{PRESENT}{entry}" for entry in entries if ".decoder." in entry]
    return _to_onnx(NextStepGraph(model), inputs, shapes, names, ["logits", *changing])


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    """Keep the exporter's progress and its notes about torchvision from the user."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        yield
    logger.setLevel(level)


def _to_onnx(
    graph: nn.Module, inputs: dict[str, Any], shapes: dict[str, Any], input_names: list[str], output_names: list[str]
) -> ir.Model:
    with torch.no_grad(), _silence():
        program = torch.onnx.export(
            graph,
            kwargs=inputs,
            dynamic_shapes=shapes,
            input_names=input_names,
            output_names=output_names,
            dynamo=True,
            verbose=False,
        )
    model: ir.Model = cast(Any, program).model
    for node in list(model.graph.all_nodes()):  # where in the source it comes from, with this machine's paths
        node.metadata_props.clear()
        if node.op_type == "Sigmoid":
            _spell_out_sigmoid(node)
    _use_float32(model)
    return model


def _use_float32(model: ir.Model) -> None:
    """Compute positions in float32: a browser's onnxruntime has no kernels of float64."""
    double, single = ir.DataType.DOUBLE, ir.DataType.FLOAT
    for value in model.graph.initializers.values():
        if value.dtype == double and value.const_value is not None:
            value.const_value = ir.tensor(value.const_value.numpy().astype("float32"), name=value.name)
            value.dtype = single
    for node in model.graph.all_nodes():
        if node.op_type == "Cast" and node.attributes["to"].as_int() == double:
            node.attributes["to"] = ir.AttrInt64("to", single.value)
        for value in node.outputs:
            if value.dtype == double:
                value.dtype = single


def _spell_out_sigmoid(node: ir.Node) -> None:
    """Replace a sigmoid by 1 / (1 + exp(-x)): onnxruntime's own rounds small values to multiples of 6e-8.

    EM routing takes their logarithms.
    """
    one = ir.node("Constant", [], attributes={"value": ir.tensor([1.0])})
    negative = ir.node("Neg", [node.inputs[0]])
    power = ir.node("Exp", negative.outputs)
    below = ir.node("Add", [power.outputs[0], one.outputs[0]])
    result = ir.node("Reciprocal", below.outputs)
    new = [one, negative, power, below, result]
    for number, inner in enumerate(new):  # a body of a loop shares its names with the graph around it
        inner.outputs[0].name = f"{node.outputs[0].name}/{number}"
    ir.convenience.replace_nodes_and_values(
        cast(ir.Graph, node.graph), node, [node], new, node.outputs, result.outputs
    )


def _quantized(model: ir.Model) -> ir.Model:
    """Return the graph with its constant matrices in int8."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    with tempfile.TemporaryDirectory() as folder:
        ir.save(model, Path(folder) / "float.onnx")
        with _silence():
            quantize_dynamic(
                Path(folder) / "float.onnx",
                Path(folder) / "int8.onnx",
                weight_type=QuantType.QInt8,
                extra_options={"EnableSubgraph": True},
            )
        return ir.from_proto(ir.to_proto(ir.load(Path(folder) / "int8.onnx")))


def merge_steps(first: ir.Model, following: ir.Model) -> ir.Model:
    """Join the two graphs of a decoder as the branches of one `If`; both use the same weights.

    The tensors that only the first step makes come out of the other branch as they went in.
    """
    condition = ir.Value(name="use_cache_branch", type=ir.TensorType(ir.DataType.BOOL), shape=ir.Shape([1]))
    given = {str(value.name): value for model in (following, first) for value in model.graph.inputs}
    inputs = {name: ir.Value(name=name, type=value.type, shape=value.shape) for name, value in given.items()}
    weights: dict[Any, ir.Value] = {}
    names = [str(value.name) for value in first.graph.outputs]
    then_branch = _branch(following, "following", inputs, weights, names)
    else_branch = _branch(first, "first", inputs, weights, names)
    attributes = {"then_branch": then_branch, "else_branch": else_branch}
    choice = ir.node("If", [condition], attributes=attributes, num_outputs=len(names))
    for value, name, result in zip(choice.outputs, names, else_branch.outputs, strict=True):
        value.name, value.type, value.shape = name, result.type, result.shape
    graph = ir.Graph(
        [*inputs.values(), condition],
        choice.outputs,
        nodes=[choice],
        initializers=list(weights.values()),
        opset_imports={**following.graph.opset_imports, **first.graph.opset_imports},
        name="decoder_model_merged",
    )
    return ir.Model(graph, ir_version=first.ir_version, producer_name="hf_capsule_mt")


def _branch(
    model: ir.Model, prefix: str, inputs: dict[str, ir.Value], weights: dict[Any, ir.Value], output_names: list[str]
) -> ir.Graph:
    """Return a graph as a branch that reads the inputs and weights around it, with names of its own inside."""
    graph = model.graph
    for value in graph.inputs:
        ir.convenience.replace_all_uses_with(value, inputs[str(value.name)])
    for value in graph.initializers.values():
        ir.convenience.replace_all_uses_with(value, _shared_weight(value, weights, prefix))
    outputs = {str(value.name): value for value in graph.outputs}
    nodes = list(graph)
    graph.outputs.clear()
    graph.remove(nodes)
    for name in output_names:
        if name not in outputs:
            nodes.append(ir.node("Identity", [inputs[name.replace(PRESENT, PAST, 1)]]))
            outputs[name] = nodes[-1].outputs[0]
    branch = ir.Graph((), [outputs[name] for name in output_names], nodes=nodes, name=prefix)
    for number, node in enumerate(branch.all_nodes()):
        node.name = f"{prefix}/{number}"
        inner = [
            value for a in node.attributes.values() if a.type == ir.AttributeType.GRAPH for value in a.value.inputs
        ]
        for place, value in enumerate([*node.outputs, *inner]):
            value.name = f"{prefix}/{number}/{place}"
    return branch


def _shared_weight(value: ir.Value, weights: dict[Any, ir.Value], prefix: str) -> ir.Value:
    """Return the weight of the merged graph with the same numbers."""
    tensor = value.const_value
    if tensor is None:
        raise ValueError(f"the weight {value.name} has no value")
    key = (tensor.dtype, tuple(tensor.shape), tensor.tobytes())
    if key not in weights:
        name = f"{prefix}/{value.name}"
        weights[key] = ir.Value(name=name, type=value.type, shape=value.shape, const_value=tensor)
    return weights[key]
