"""Our operators beside other people's code: what of ours equals what of theirs, and by how much the numbers differ.

`*.json` beside this file hold the numbers that `make_numbers.py` computed with their code.
"""

import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch

from hf_capsule_mt.routing import (
    depth_attention,
    dynamic_routing,
    em_routing,
    generalized_residual,
    guided_routing,
    multiway_dense,
    weighted_sum,
)

FOLDER = Path(__file__).parent
PAGE = FOLDER.parents[1] / "docs/papers.md"
SECTION = re.compile(r"(?<=<!-- authors -->\n\n).*?(?=\n\n<!-- end of authors -->)", re.DOTALL)
Tensors = dict[str, torch.Tensor]


class Comparison(NamedTuple):
    """One of our operators and one piece of code by others.

    numbers: the name of the file with its inputs, outputs and gradients.
    operator: our function, and how it is called to be the same.
    printed: how the paper's equation differs from what both compute.
    by_authors: whether the authors of the operator's paper wrote the code.
    relation: "same", "step replaced" (the file's settings say which), or "contains": theirs is another operator, of
        which ours is a special case.
    compute: ours, of the file's inputs and constants.
    """

    numbers: str
    operator: str
    printed: str
    by_authors: bool
    relation: str
    compute: Callable[[Tensors, Tensors], torch.Tensor]


class Operator(NamedTuple):
    """One of our operators, the code that it is held to, and the paper whose authors' code we did not find."""

    name: str
    comparisons: tuple[Comparison, ...]
    no_code: str = ""


def votes_of(inputs: Tensors) -> torch.Tensor:
    """Capsules [B, N, d] and W [N, M, d, D] -> votes [B, N, M, D]."""
    return torch.einsum("bni,nmio->bnmo", inputs["capsules"], inputs["weight"])


def dynamic(inputs: Tensors, _: Tensors) -> torch.Tensor:
    return dynamic_routing(votes_of(inputs), num_iterations=3).capsules


def simple(inputs: Tensors, _: Tensors) -> torch.Tensor:
    return dynamic_routing(votes_of(inputs), num_iterations=3, normalize_total_input=True).capsules


def dynamic_by_heinsen(inputs: Tensors, _: Tensors) -> torch.Tensor:
    """Return the total inputs of the second iteration, before squash."""
    weights = dynamic_routing(inputs["votes"], num_iterations=2).weights
    assert weights is not None
    return (weights[-1].unsqueeze(-1) * inputs["votes"]).sum(dim=-3)


def em_by_zheng(inputs: Tensors, _: Tensors) -> torch.Tensor:
    """Return the means: with lambda 0 in the last iteration, every output's activation is 1/2.

    Their cost lacks our (1 + log 2 pi) / 2 for each unit, and pays beta_u for each unit, whatever the mass is. Their
    input activations (0.7 in the file) cancel: they divide A C by its sum over the outputs.
    """
    width = inputs["votes"].shape[-1]
    betas = torch.full_like(inputs["beta_u"], -0.5 * width * (1 + math.log(2 * math.pi)))
    routed = em_routing(
        inputs["votes"],
        num_iterations=3,
        beta_a=inputs["beta_a"] - width * inputs["beta_u"],
        beta_u=betas,
        lambda_schedule=(0.5, 0.5, 0.0),
        min_variance=1e-8,
    )
    return 2 * routed.capsules


def em_by_heinsen(inputs: Tensors, _: Tensors) -> torch.Tensor:
    """Return the means: with lambda 0, every output's activation is 1/2."""
    votes = torch.einsum("bncd,nmdh->bnmch", inputs["capsules"], inputs["weight"]) + inputs["offset"]
    zeros = torch.zeros(votes.shape[2], dtype=votes.dtype)
    routed = em_routing(
        votes.flatten(-2),
        num_iterations=3,
        input_activation=inputs["activation"].sigmoid(),
        beta_a=zeros,
        beta_u=zeros,
        lambda_final=0.0,
        min_variance=1e-9,
    )
    return 2 * routed.capsules.unflatten(-1, votes.shape[-2:])


def guided(score: str) -> Callable[[Tensors, Tensors], torch.Tensor]:
    def compute(inputs: Tensors, constants: Tensors) -> torch.Tensor:
        arguments: dict[str, Any] = {**inputs, "score": score, "mask": constants["mask"].bool()}
        return guided_routing(**arguments, num_iterations=3).capsules

    return compute


def dense(inputs: Tensors, _: Tensors) -> torch.Tensor:
    return weighted_sum(inputs["sources"], inputs["weights"].unsqueeze(-1))


def hyper(inputs: Tensors, _: Tensors) -> torch.Tensor:
    sums = [weighted_sum(inputs["sources"], weights.unsqueeze(-1)) for weights in inputs["weights"].unbind(dim=1)]
    return torch.stack(sums)


def attention(inputs: Tensors, _: Tensors) -> torch.Tensor:
    return depth_attention(inputs["sources"], inputs["query"], torch.ones_like(inputs["query"]), epsilon=1e-6)[0]


def multiway(inputs: Tensors, _: Tensors) -> torch.Tensor:
    outers = inputs["outer"].unflatten(0, inputs["offsets"].shape)
    streams = zip(outers, inputs["offsets"], strict=True)
    sums = [multiway_dense(inputs["sources"], inputs["inner"], *stream, epsilon=1e-6)[0] for stream in streams]
    return torch.stack(sums)


def generalized(inputs: Tensors, _: Tensors) -> torch.Tensor:
    streams = zip(inputs["gain"] * inputs["direction"], inputs["offsets"], strict=True)
    return torch.stack([generalized_residual(inputs["sources"], *stream, epsilon=2.0**-52)[0] for stream in streams])


OPERATORS = (
    Operator(
        "dynamic routing",
        (
            Comparison("gdr_dynamic", "`dynamic_routing`", "the same (Dou, algorithm 1)", False, "same", dynamic),
            Comparison(
                "heinsen_2022",
                "`dynamic_routing`, 2 iterations, before squash",
                "another operator: it predicts its inputs, and does not add up scores",
                False,
                "contains",
                dynamic_by_heinsen,
            ),
        ),
        "Dou et al.: no public code found",
    ),
    Operator(
        "simple routing",
        (
            Comparison(
                "gdr_simple",
                "`dynamic_routing(normalize_total_input=True)`",
                "the same (Li, algorithm 1 and equation 7), plus 1e-30",
                False,
                "step replaced",
                simple,
            ),
        ),
        # their repository extends THUMT, in TensorFlow
        "Li et al.: no copy of their code found; `tests/routing/reference.py` has their loop as printed",
    ),
    Operator(
        "EM routing",
        (
            Comparison(
                "gdr_em",
                "`em_routing`, lambda (0.5, 0.5, 0), betas that give their cost",
                "divides the density by sigma^2; both divide by sigma",
                False,
                "same",
                em_by_zheng,
            ),
            Comparison(
                "heinsen_2019",
                "`em_routing(lambda_final=0)`",
                "as above; his activation of an output is a net benefit, ours is Hinton's cost",
                False,
                "same",
                em_by_heinsen,
            ),
        ),
    ),
    Operator(
        "guided routing, printed",
        (
            Comparison(
                "gdr_printed",
                '`guided_routing(score="printed")`',
                "the same (Zheng, equation 7)",
                True,
                "step replaced",
                guided("printed"),
            ),
        ),
    ),
    Operator(
        "guided routing, released",
        (
            Comparison(
                "gdr_released",
                '`guided_routing(score="released")`',
                "without the outer tanh and 1 / sqrt(D)",
                True,
                "same",
                guided("released"),
            ),
        ),
    ),
    Operator("separable routing", (), "Wang et al.: no public code found"),
    Operator(
        "weighted sum",
        (
            Comparison("denseformer", "`weighted_sum`", "the same", True, "same", dense),
            Comparison(
                "hyper_connections",
                "`weighted_sum`, once for each stream",
                "another operator: weights that depend on the streams, and a branch that is added to all",
                False,
                "contains",
                hyper,
            ),
        ),
    ),
    Operator(
        "depth attention",
        (
            Comparison(
                "attention_residuals", "`depth_attention`, gain 1", "the same, with a gain", False, "same", attention
            ),
        ),
    ),
    Operator(
        "multiway dense",
        (Comparison("muddformer", "`multiway_dense`, once for each stream", "the same", True, "same", multiway),),
    ),
    Operator(
        "generalized residual",
        (
            Comparison(
                "deep_cross_attention",
                "`generalized_residual`, once for each stream",
                "not compared; the gain of their RMSNorm is part of our w",
                False,
                "same",
                generalized,
            ),
        ),
    ),
)


LIMIT = 1e-6  # for outputs and gradients


def load(name: str) -> dict[str, Any]:
    """Return the numbers of one file, and where they come from."""
    record: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    return record


def tensors(lists: dict[str, Any]) -> Tensors:
    return {name: torch.tensor(values, dtype=torch.float64) for name, values in lists.items()}


def differences(comparison: Comparison) -> tuple[float, float]:
    """Return the largest absolute difference of the outputs, and of the gradients, between ours and theirs."""
    record = load(comparison.numbers)
    inputs = {name: values.requires_grad_() for name, values in tensors(record["inputs"]).items()}
    output = comparison.compute(inputs, tensors(record["constants"]))
    theirs = tensors({"output": record["output"], "cotangent": record["cotangent"]})
    gradients = torch.autograd.grad(output, list(inputs.values()), theirs["cotangent"])
    by_name = dict(zip(inputs, gradients, strict=True))
    return (
        largest_difference(output.detach(), theirs["output"]),
        max(largest_difference(by_name[name], grad) for name, grad in tensors(record["gradients"]).items()),
    )


def largest_difference(ours: torch.Tensor, theirs: torch.Tensor) -> float:
    if ours.shape != theirs.shape:
        raise ValueError(f"ours has shape {list(ours.shape)}, theirs {list(theirs.shape)}")
    return float((ours - theirs).abs().max())


def held(operator: Operator) -> bool:
    """Return whether other people's code computes the operator itself."""
    return any(comparison.relation in ("same", "step replaced") for comparison in operator.comparisons)


def power_of_ten(difference: float) -> str:
    """Return the next higher power of ten, at least 1e-14: processors differ below it."""
    return f"1e{max(-14, math.ceil(math.log10(difference))) if difference else -14}"


def table() -> str:
    """Return the comparisons as a Markdown table, and the count of operators that are held to other people's code."""
    rows = [
        "operator | ours | code by others | printed equation | difference: output, gradient",
        " | ".join(["---"] * 5),
    ]
    for operator in OPERATORS:
        if operator.no_code:
            rows.append(f"{operator.name} | | {operator.no_code} | |")
        for comparison in operator.comparisons:
            record = load(comparison.numbers)
            output, gradient = map(power_of_ten, differences(comparison))
            cells = [operator.name, comparison.operator, code_of(comparison, record), comparison.printed]
            rows.append(" | ".join([*cells, f"{output}, {gradient}"]))
    relations = [{comparison.relation for comparison in operator.comparisons} for operator in OPERATORS]
    replaced = sum("step replaced" in names and "same" not in names for names in relations)
    count = (
        f"{sum(map(held, OPERATORS))} of {len(OPERATORS)} operators held to code by others, {replaced} of them with "
        "a step of that code replaced."
    )
    return "\n".join([*(f"| {row} |" for row in rows), "", count])


def page_with_table() -> str:
    """Return the page of the papers with today's table."""
    return SECTION.sub(lambda _: table(), PAGE.read_text(encoding="utf-8"))


def code_of(comparison: Comparison, record: dict[str, Any]) -> str:
    repository, commit = record["repository"], record["commit"]
    writer = "the paper's authors" if comparison.by_authors else "others"
    version = commit.split(",")[0] if commit.startswith("PyPI") else f"`{commit[:8]}`"
    function = record["function"].partition(", ")[2]
    text = f"[{repository}](https://github.com/{repository}) {version}, `{function}` ({writer})"
    notes = {"same": "", "step replaced": f"; {record['settings']}", "contains": "; contains ours"}
    return text + notes[comparison.relation]
