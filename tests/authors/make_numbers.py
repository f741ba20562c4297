"""Run other people's code for our operators, and write what it computes to `tests/authors/*.json`.

    python -m tests.authors.make_numbers CHECKOUTS

CHECKOUTS is a folder with what `SOURCES` names: a checkout of each repository at its commit, in a folder with the
repository's name, and the unpacked wheel of attn_res. Their code needs einops, einx and rotary-embedding-torch.

A file holds numbers, and where they come from: inputs drawn here, rounded to three decimals; outputs; and gradients
of sum(outputs * cotangent), for inputs drawn in the same way as the outputs' cotangent. All in float64. None of the
code is copied here; where a step of it is replaced, the file's `settings` say so.
"""

import argparse
import contextlib
import importlib
import json
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn

FOLDER = Path(__file__).parent
Tensors = dict[str, torch.Tensor]
# repository: commit, licence, folder to import from
SOURCES = {
    "zhengzx-nlp/dynamic-nmt": ("65b321898c5020942d76b85701123fd272e3ae9e", "MIT", "dynamic-nmt"),
    "epfml/DenseFormer": ("c99a623bdb5f6611bf0d37e964c67ecbf15c3c19", "Apache-2.0", "DenseFormer"),
    "Caiyun-AI/MUDDFormer": ("fc067b274a5f14894b2ee299fdcb3c581a092896", "MIT", "MUDDFormer/pytorch"),
    "lucidrains/deep-cross-attention": (
        "35a0046a916d807b3b4a3ed178c24052238b8abc",
        "MIT",
        "deep-cross-attention",
    ),
    "lucidrains/hyper-connections": ("47751035f6e92f73121f1da56603f0d410115799", "MIT", "hyper-connections"),
    "glassroom/heinsen_routing": ("ac07d8878c1404156c780f3abc3ec65c820d6650", "MIT", "heinsen_routing"),
    "kyegomez/attn_res": (
        "PyPI 0.1.0, sha256 58cbc59ad1de4ec9b7de57add8a29cb8c68dd04e6ea2edd7d5077dea2c83343f",
        "MIT",
        "attn_res",
    ),
}


def random(*shape: int, scale: float = 1.0) -> torch.Tensor:
    """Return numbers with three decimals, whose representation is short."""
    return (torch.randn(shape) * scale * 1000).round() / 1000


class Theirs:
    """Imports modules from the checkouts."""

    def __init__(self, checkouts: Path) -> None:
        self.checkouts = checkouts

    def load(self, repository: str, module: str) -> Any:
        folder = self.checkouts / SOURCES[repository][2]
        if not folder.is_dir():
            raise FileNotFoundError(f"{folder}: expected a checkout of {repository} at {SOURCES[repository][0]}")
        sys.path.insert(0, str(folder))
        try:
            return importlib.import_module(module)
        finally:
            sys.path.remove(str(folder))


def write(
    name: str,
    run: Callable[..., torch.Tensor],
    inputs: Tensors,
    *,
    repository: str,
    function: str,
    settings: str,
    constants: Tensors | None = None,
) -> None:
    """Write inputs, outputs and gradients of `run(**inputs, **constants)`."""
    leaves = {key: value.clone().requires_grad_() for key, value in inputs.items()}
    output = run(**leaves, **(constants or {}))
    if output.dtype != torch.float64 or not output.isfinite().all():
        raise ValueError(f"{name}: expected finite outputs in float64, got {output}")
    cotangent = random(*output.shape)
    gradients = torch.autograd.grad(output, list(leaves.values()), cotangent)
    commit, licence, _ = SOURCES[repository]
    record = {
        "repository": repository,
        "commit": commit,
        "licence": licence,
        "function": function,
        "settings": settings,
        "inputs": {key: value.tolist() for key, value in inputs.items()},
        "constants": {key: value.tolist() for key, value in (constants or {}).items()},
        "output": output.tolist(),
        "cotangent": cotangent.tolist(),
        "gradients": {key: grad.tolist() for key, grad in zip(leaves, gradients, strict=True)},
    }
    lines = [f"  {json.dumps(key)}: {json.dumps(value, separators=(',', ':'))}" for key, value in record.items()]
    (FOLDER / f"{name}.json").write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def set_parameters(module: nn.Module, tensors: Tensors) -> None:
    """Put tensors in the place of parameters, by their dotted names, so that gradients reach them."""
    for name, tensor in tensors.items():
        owner, _, attribute = name.rpartition(".")
        parent = module.get_submodule(owner)
        parameter = getattr(parent, attribute)
        if parameter.shape != tensor.shape:
            raise ValueError(f"{name}: expected {list(parameter.shape)}, got {list(tensor.shape)}")
        del parent._parameters[attribute]
        setattr(parent, attribute, tensor)


GDR = "zhengzx-nlp/dynamic-nmt"


def guided_routing(theirs: Theirs) -> None:
    capsule = theirs.load(GDR, "src.modules.capsule")
    width, outputs, state = 4, 3, 5
    inputs = {
        "votes": random(2, 4, outputs, width),
        "query": random(2, 2, state),
        "query_weight": random(width, state, scale=0.5),
        "vote_weight": random(width, width, scale=0.5),
        "capsule_weight": random(width, width),
        "score_weight": random(width, scale=2),
    }
    # the last word of the second sentence is padding. Its votes are zero, since the released loop lets it take part
    constants = {"mask": torch.tensor([[1.0, 1, 1, 1], [1, 1, 1, 0]])}

    def run(mask: torch.Tensor, printed: bool, **tensors: torch.Tensor) -> torch.Tensor:
        layer = capsule.ContextualCapsuleLayer(outputs, 1, 1, width, state, num_iterations=3)
        no_bias = torch.zeros(width)
        parameters = {
            "linear_c.weight": tensors["query_weight"],
            "linear_u_hat.weight": tensors["vote_weight"],
            "linear_v.weight": tensors["capsule_weight"],
            "linear_delta.weight": tensors["score_weight"].unsqueeze(0),
            "linear_u_hat.bias": no_bias,
            "linear_v.bias": no_bias,
        }
        set_parameters(layer, parameters)
        context = contextlib.nullcontext()
        if printed:
            layer.dim_out_caps = 1  # they divide by its root, and read it for nothing else
            context = without_outer_tanh(capsule)
        votes = tensors["votes"] * mask[..., None, None]
        with context:
            return layer.forward_sequence(torch.empty(2, 4, 1), mask == 0, tensors["query"], cache=votes)[0]

    shared = {"repository": GDR, "function": "src/modules/capsule.py, ContextualCapsuleLayer.forward_sequence"}
    biases = "biases 0; votes of padding 0; 3 iterations"
    write("gdr_released", lambda **x: run(printed=False, **x), inputs, settings=biases, constants=constants, **shared)
    write(
        "gdr_printed",
        lambda **x: run(printed=True, **x),
        inputs,
        settings=f"{biases}; the outer tanh, and the division by sqrt(D), replaced by the identity",
        constants=constants,
        **shared,
    )


@contextlib.contextmanager
def without_outer_tanh(module: Any) -> Iterator[None]:
    """Make the `F.tanh` of a module the identity on scores [B, T, N, M], and leave it on vectors [B, T, N, M, D]."""
    functional = module.F
    tanh = lambda values: values if values.dim() == 4 else torch.tanh(values)  # noqa: E731
    module.F = types.SimpleNamespace(tanh=tanh, softmax=functional.softmax)
    try:
        yield
    finally:
        module.F = functional


def dynamic_routing(theirs: Theirs) -> None:
    capsule = theirs.load(GDR, "src.modules.capsule")
    inputs = {"capsules": random(2, 4, 3), "weight": random(4, 3, 3, 2)}

    def run(capsules: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        layer = capsule.CapsuleLayer(3, 4, 3, 2, num_iterations=3)
        set_parameters(layer, {"route_weights": weight})
        return layer(capsules, None)

    def run_normalized(capsules: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        """Give every vote one more number, which is 1, so that a weighted sum also holds the sum of its weights."""
        capsules = torch.cat([capsules, torch.ones_like(capsules[..., :1])], dim=-1)
        weight = nn.functional.pad(weight, (0, 1, 0, 1))
        weight = weight + nn.functional.pad(torch.ones_like(weight[..., :1, :1]), (2, 0, 3, 0))
        layer = capsule.CapsuleLayer(3, 4, 4, 3, num_iterations=3)
        set_parameters(layer, {"route_weights": weight})
        layer.squash = lambda total: nn.functional.pad(
            capsule.CapsuleLayer.squash(total[..., :-1] / total[..., -1:]), (0, 1)
        )
        return layer(capsules, None)[..., :-1]

    shared = {"repository": GDR, "function": "src/modules/capsule.py, CapsuleLayer.forward"}
    write("gdr_dynamic", run, inputs, settings="3 iterations", **shared)
    write(
        "gdr_simple",
        run_normalized,
        inputs,
        settings="3 iterations; before squash, a division by the sum of the weights (Li et al., equation 7)",
        **shared,
    )


def em_routing(theirs: Theirs) -> None:
    capsule = theirs.load(GDR, "src.modules.capsule")
    inputs = {"votes": random(1, 2, 5, 3, 2), "beta_a": random(3), "beta_u": random(3)}

    def run(**tensors: torch.Tensor) -> torch.Tensor:
        activation = torch.full((1, 5), 0.7)
        return capsule.EM_routing_by_agreement(
            activation, tensors["votes"], None, tensors["beta_u"], tensors["beta_a"], 0.5, 3
        )[0]

    write(
        "gdr_em",
        run,
        inputs,
        repository=GDR,
        function="src/modules/capsule.py, EM_routing_by_agreement",
        settings="3 iterations, lambda 0.5",
    )


HEINSEN = "glassroom/heinsen_routing"


def heinsen_2019(theirs: Theirs) -> None:
    module = theirs.load(HEINSEN, "heinsen_routing.heinsen_routing")
    inputs = {
        "activation": random(2, 4),
        "capsules": random(2, 4, 2, 3),
        "weight": random(4, 3, 3, 2),
        "offset": random(4, 3, 2, 2),
    }

    def run(**tensors: torch.Tensor) -> torch.Tensor:
        layer = module.GenerativeMatrixRouting(4, 3, d_cov=2, d_inp=3, d_out=2, n_iters=3, eps=1e-9)
        set_parameters(layer, {"W": tensors["weight"], "B": tensors["offset"]})
        return layer(tensors["activation"], tensors["capsules"])[1]

    write(
        "heinsen_2019",
        run,
        inputs,
        repository=HEINSEN,
        function="heinsen_routing/heinsen_routing.py, GenerativeMatrixRouting.forward",
        settings="3 iterations, eps 1e-9, beta_use and beta_ign 0 (their start), so all outputs are equally active",
    )


class Votes(nn.Module):
    """Heinsen's F: the votes as they are, whatever the inputs."""

    def __init__(self, votes: torch.Tensor) -> None:
        super().__init__()
        self.votes = votes

    def forward(self, _: torch.Tensor) -> torch.Tensor:
        return self.votes


class Agreement(Votes):
    """Heinsen's S: the scalar product of a vote and the output it votes for."""

    def forward(self, _: torch.Tensor, outputs: torch.Tensor) -> torch.Tensor:
        return (self.votes * outputs.unsqueeze(-3)).sum(dim=-1)


class AlwaysActive(nn.Module):
    """Heinsen's A: 40, whose sigmoid is 1 in float64."""

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return torch.full_like(inputs[..., :1], 40)


class Squash(nn.Module):
    """Heinsen's G: equation 5 of Dou et al."""

    def forward(self, outputs: torch.Tensor) -> torch.Tensor:
        length = outputs.norm(dim=-1, keepdim=True)
        return length / (1 + length**2) * outputs


def heinsen_2022(theirs: Theirs) -> None:
    module = theirs.load(HEINSEN, "heinsen_routing.heinsen_routing")
    inputs = {"votes": random(2, 4, 3, 2)}

    def run(votes: torch.Tensor) -> torch.Tensor:
        layer = module.DefinableVectorRouting(
            AlwaysActive(), Votes(votes), Squash(), Agreement(votes), 4, 3, n_iters=2
        )
        set_parameters(layer, {"beta_use": torch.ones(4, 3), "beta_ign": torch.zeros(4, 3)})
        return layer(torch.zeros(2, 4, 1))

    write(
        "heinsen_2022",
        run,
        inputs,
        repository=HEINSEN,
        function="heinsen_routing/heinsen_routing.py, DefinableVectorRouting.forward",
        settings="2 iterations, beta_use 1, beta_ign 0, all inputs active, G: squash, S: V . G(output)",
    )


def dense(theirs: Theirs) -> None:
    module = theirs.load("epfml/DenseFormer", "denseformer.denseformer")
    inputs = {"sources": random(2, 2, 4, 3), "weights": random(4)}

    def run(sources: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        sums = module.DWAModules(3)
        set_parameters(sums, {"alphas.2.weight": weights.unsqueeze(0)})
        layers = sources.unbind(dim=-2)
        sums.init_accumulators(layers[0])
        for index, layer in enumerate(layers[1:]):
            output = sums(layer, index)
        return output

    write(
        "denseformer",
        run,
        inputs,
        repository="epfml/DenseFormer",
        function="denseformer/denseformer.py, DWAModules.forward",
        settings="3 blocks, dilation 1, period 1; the sum after the last block",
    )


def depth_attention(theirs: Theirs) -> None:
    module = theirs.load("kyegomez/attn_res", "attn_res.main")
    inputs = {"sources": random(2, 2, 4, 3), "query": random(3)}

    def run(sources: torch.Tensor, query: torch.Tensor) -> torch.Tensor:
        operator = module.AttnResOperator(3, eps=1e-6)
        set_parameters(operator, {"pseudo_query": query})
        to_float = torch.Tensor.float
        torch.Tensor.float = torch.Tensor.double  # their norm computes in float32
        try:
            return operator(sources.movedim(-2, 0))
        finally:
            torch.Tensor.float = to_float

    write(
        "attention_residuals",
        run,
        inputs,
        repository="kyegomez/attn_res",
        function="attn_res/main.py, AttnResOperator.forward",
        settings="eps 1e-6; in float64, where the code converts to float32",
    )


def multiway_dense(theirs: Theirs) -> None:
    module = theirs.load("Caiyun-AI/MUDDFormer", "muddformer.modeling_muddformer")
    streams, layers, width = 4, 3, 4
    inputs = {
        "sources": random(1, 2, layers, width),
        "inner": random(streams * layers, width),
        "outer": random(streams * layers, streams * layers, scale=0.5),
        "offsets": random(streams, layers),
    }

    def run(**tensors: torch.Tensor) -> torch.Tensor:
        config = types.SimpleNamespace(norm_eps=1e-6, dense_type="qkvr", expand_last=False, round64=False, dim=width)
        block = module.MultiwayDynamicDenseBlock(config, layers - 2)
        set_parameters(block, {"w1.weight": tensors["inner"], "w2.weight": tensors["outer"]})
        hidden = tensors["sources"].unbind(dim=-2)
        weights = block(hidden[-1]) + tensors["offsets"][:, None, None, :]
        return torch.stack(block.layer_mix(hidden, weights))

    write(
        "muddformer",
        run,
        inputs,
        repository="Caiyun-AI/MUDDFormer",
        function="pytorch/muddformer/modeling_muddformer.py, MultiwayDynamicDenseBlock.forward and layer_mix",
        settings="4 streams (query, key, value, residual), eps 1e-6",
    )


def generalized_residual(theirs: Theirs) -> None:
    module = theirs.load("lucidrains/deep-cross-attention", "deep_cross_attention.dca_gpt")
    streams, layers, width = 3, 3, 4
    inputs = {
        "sources": random(1, 2, layers, width),
        "gain": random(width),
        "direction": random(streams, width),
        "offsets": random(streams, layers, width),
    }

    def run(**tensors: torch.Tensor) -> torch.Tensor:
        network = module.GRN(width, layers, num_outputs=streams)
        set_parameters(
            network,
            {
                "to_aggregate.0.weight": tensors["gain"],
                "to_aggregate.1.weight": tensors["direction"],
                "bias": tensors["offsets"],
            },
        )
        return network(tensors["sources"].movedim(-2, 0))

    write(
        "deep_cross_attention",
        run,
        inputs,
        repository="lucidrains/deep-cross-attention",
        function="deep_cross_attention/dca_gpt.py, GRN.forward",
        settings="3 outputs (query, key, value); eps of RMSNorm: torch's, 2^-52 in float64",
    )


def hyper_connections(theirs: Theirs) -> None:
    module = theirs.load("lucidrains/hyper-connections", "hyper_connections.hyper_connections")
    streams, width = 3, 4
    inputs = {"sources": random(2, 2, streams, width), "weights": random(streams, 1 + streams)}

    def run(sources: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        connection = module.HyperConnections(streams, dim=width, layer_index=0)
        set_parameters(connection, {"static_alpha": weights})
        residuals = sources.movedim(-2, 1).flatten(0, 1)  # [B * streams, T, d]
        branch, mixed, _ = connection.width_connection(residuals)
        return torch.stack([branch, *mixed.unflatten(0, (-1, streams)).unbind(dim=1)])

    write(
        "hyper_connections",
        run,
        inputs,
        repository="lucidrains/hyper-connections",
        function="hyper_connections/hyper_connections.py, HyperConnections.width_connection",
        settings="3 streams, dynamic weights 0 (their start): the branch's input and the mixed streams",
    )


CASES = (
    guided_routing,
    dynamic_routing,
    em_routing,
    heinsen_2019,
    heinsen_2022,
    dense,
    depth_attention,
    multiway_dense,
    generalized_residual,
    hyper_connections,
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkouts", type=Path)
    theirs = Theirs(parser.parse_args().checkouts)
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    for case in CASES:
        torch.manual_seed(0)
        case(theirs)


if __name__ == "__main__":
    main()
