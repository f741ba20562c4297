"""The form "triton" of routing: kernels beside the plain form, on a GPU or in Triton's interpreter.

Triton has to know of its interpreter when it is imported, so without a GPU one test runs this file again.
"""

import os
import subprocess
import sys
from importlib.util import find_spec

import pytest
import torch

from hf_capsule_mt.fast import triton_routing
from hf_capsule_mt.routing import additive_scores, dynamic_routing, em_routing, forms, use_routing_form

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
INSTALLED = sys.platform == "linux" and find_spec("triton") is not None
needs_triton = pytest.mark.skipif(not INSTALLED, reason="needs Linux and Triton: pip install triton")
needs_kernels = pytest.mark.skipif(
    not INSTALLED or not (DEVICE == "cuda" or triton_routing.is_interpreted()),
    reason="needs Triton and a GPU, or Triton's interpreter",
)


@pytest.mark.slow
@needs_triton
@pytest.mark.skipif(DEVICE == "cuda" or triton_routing.is_interpreted(), reason="the kernels run in this process")
def test_in_the_interpreter():
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-m", "not slow", "-p", "no:cacheprovider", __file__]
    done = subprocess.run(command, env={**os.environ, "TRITON_INTERPRET": "1"}, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    assert "passed" in done.stdout


@pytest.fixture
def in_form(monkeypatch):
    """Run in a form, and go back to the one before."""

    def run(form, function, tensors):
        previous = use_routing_form(form)
        try:
            tensors = [tensor.detach().clone().requires_grad_() for tensor in tensors]
            result = function(*tensors)
            grad = torch.randn(result.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
            return [result.detach(), *torch.autograd.grad(result, tensors, grad.to(result))]
        finally:
            use_routing_form(previous)

    return run


def em(votes, beta_a, beta_u, activation=None, mask=None):
    routed = em_routing(
        votes, num_iterations=3, mask=mask, input_activation=activation, beta_a=beta_a, beta_u=beta_u,
        lambda_final=1.0, return_weights=False,
    )  # fmt: skip
    return routed.capsules


def dynamic(votes, mask=None, **settings):
    return dynamic_routing(votes, num_iterations=3, mask=mask, return_weights=False, **settings).capsules


def check_as_accurate_as_plain(in_form, function, tensors):
    """Compare values and gradients with those of the plain form in float64.

    Triton's interpreter truncates float32 to bfloat16, and does not round as a GPU does.
    """
    exact = in_form("plain", function, [tensor.double() for tensor in tensors])
    plain, kernel = (in_form(form, function, tensors) for form in ("plain", "triton"))
    for truth, expected, actual in zip(exact, plain, kernel, strict=True):
        assert actual.dtype == expected.dtype
        error = (actual.double() - truth).norm() / truth.norm()
        truncation = 2**-7 if DEVICE == "cpu" and actual.dtype == torch.bfloat16 else 0  # instead of rounding
        assert error <= 2 * (expected.double() - truth).norm() / truth.norm() + 2e-6 + truncation


SHAPES = [(2, 6, 512, 1), (3, 2, 8, 1), (2, 8, 1024, 1), (3, 7, 9, 5), (2, 12, 8, 64)]


@needs_kernels
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_activations_that_vanish(in_form, dtype):
    """The smallest activation stands for those below it, which get no gradient."""
    activation = torch.rand(4, 3, 5, device=DEVICE) + 0.1
    activation[:, 0, :2], activation[1, 1] = 0, 1e-25
    tensors = [torch.randn(4, 3, 5, 1, device=DEVICE), *torch.zeros(2, 5, device=DEVICE), activation.to(dtype)]
    plain, kernel = (in_form(form, em, tensors) for form in ("plain", "triton"))
    assert (kernel[-1] == 0).sum() == (activation < 1e-20).sum()
    for expected, actual in zip(plain, kernel, strict=True):
        assert actual.dtype == expected.dtype
        rounding = 2**-6 if actual.dtype == torch.bfloat16 else 1e-4  # the interpreter truncates
        torch.testing.assert_close(actual, expected, atol=1e-5, rtol=rounding)


@needs_kernels
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("masked", [False, True])
def test_em_routing(in_form, shape, masked):
    votes = torch.randn(shape, device=DEVICE)
    tensors = [votes, *torch.randn(2, shape[2], device=DEVICE)]
    mask = None
    if masked:
        tensors.append(torch.rand(shape[:3], device=DEVICE) + 0.1)
        mask = torch.rand(shape[:2], device=DEVICE) > 0.3
    check_as_accurate_as_plain(in_form, lambda *tensors: em(*tensors, mask=mask), tensors)


@needs_kernels
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("normalized", [False, True])
def test_dynamic_routing(in_form, shape, normalized):
    mask = torch.rand(shape[:2], device=DEVICE) > 0.3 if normalized else None
    check_as_accurate_as_plain(
        in_form,
        lambda votes: dynamic(votes, mask, normalize_total_input=normalized),
        [torch.randn(shape, device=DEVICE)],
    )


@needs_kernels
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision(in_form, dtype):
    votes, betas = torch.randn(3, 6, 16, 2, device=DEVICE).to(dtype), torch.randn(2, 16, device=DEVICE)
    check_as_accurate_as_plain(in_form, em, [votes, *betas])
    check_as_accurate_as_plain(in_form, dynamic, [votes])


@needs_kernels
@pytest.mark.parametrize("sizes", [(1, 1, 8), (19, 23, 40)], ids=str)
def test_additive_scores(in_form, sizes):
    num_queries, num_keys, width = sizes
    shapes = ((2, 3, num_queries, width), (2, 3, num_keys, width), (width,))
    check_as_accurate_as_plain(in_form, additive_scores, [torch.randn(shape, device=DEVICE) for shape in shapes])


@needs_kernels
@pytest.mark.parametrize("routing", [em, dynamic])
def test_large_votes_and_masks_that_keep_nothing(in_form, routing):
    votes = torch.randn(2, 4, 8, 2, device=DEVICE) * 1e3
    mask = torch.tensor([[False] * 4, [True, False, False, False]], device=DEVICE)
    tensors = [votes, *torch.zeros(2, 8, device=DEVICE)] if routing is em else [votes]
    values = in_form("triton", lambda *tensors: routing(*tensors, mask=mask), tensors)
    assert all(value.isfinite().all() for value in values)
    assert (values[0][0] == 0).all()
    assert (values[1][~mask] == 0).all()


@needs_kernels
def test_empty_batches(in_form):
    votes = torch.randn(0, 4, 8, 2, device=DEVICE)
    assert [value.shape for value in in_form("triton", dynamic, [votes])] == [(0, 8, 2), votes.shape]
    results = in_form("triton", em, [votes, *torch.zeros(2, 8, device=DEVICE)])
    assert [value.shape for value in results] == [(0, 8, 2), votes.shape, (8,), (8,)]


@needs_kernels
def test_which_votes_the_kernels_take(monkeypatch):
    monkeypatch.setattr(forms, "_preferred", forms.RoutingForm.TRITON)
    votes = torch.randn(2, 6, 512, 1, device=DEVICE)
    assert forms.kernels_for(votes, 3) is not None
    assert forms.kernels_for(votes.new_zeros(1, 16, 512, 1), 3) is not None
    assert forms.kernels_for(votes.new_zeros(1, 9, 1024, 1), 3) is None, "more than 2^13 numbers"
    assert forms.kernels_for(votes.double(), 3) is None
    assert forms.kernels_for(votes, 9) is None
    monkeypatch.setattr(forms, "_preferred", forms.RoutingForm.CHUNKED)
    assert forms.kernels_for(votes, 3) is None


def test_elsewhere_the_form_is_the_chunked_one(in_form, monkeypatch):
    monkeypatch.setenv("TRITON_INTERPRET", "0")
    votes = torch.randn(3, 6, 16, 2)
    for routing, tensors in ((em, [votes, *torch.randn(2, 16)]), (dynamic, [votes])):
        chunked, triton = (in_form(form, routing, tensors) for form in ("chunked", "triton"))
        assert all(torch.equal(one, other) for one, other in zip(chunked, triton, strict=True))


COMPILE = """
from triton import compile
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from hf_capsule_mt.fast import triton_kernels

kernel = getattr(triton_kernels, NAME)
constants = {
    "TEMPERATURES": (0.1, 0.2, 0.3), "ITERATIONS": 3, "HAS_MASK": True, "HAS_ACTIVATION": True, "NORMALIZE": True,
    "OF_KEYS": True, "BLOCK_N": 8, "BLOCK_M": 16, "BLOCK_D": 4, "BLOCK_T": 16,
}
types = {name: "i32" for name in "PNMDT"} | {"min_variance": "fp32", "constant": "fp32", "mask": "*u8"}
types |= {name: "*bf16" for name in ("votes", "capsules", "grad_votes", "grad_capsules")}
types |= {name: "constexpr" for name in constants}
signature = {name: types.get(name, "*fp32") for name in kernel.arg_names}
constants = {name: value for name, value in constants.items() if name in signature}
source = ASTSource(fn=kernel, signature=signature, constexprs=constants)
compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 1})
"""


@pytest.mark.slow
@needs_triton
@pytest.mark.parametrize(
    "kernel",
    ["em_forward", "em_backward", "dynamic_forward", "dynamic_backward", "scores_forward", "scores_backward"],
)
def test_kernels_compile_without_a_gpu(kernel, tmp_path):
    """The interpreter accepts more than the compiler does."""
    environment = {**os.environ, "TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-c", COMPILE.replace("NAME)", f"{kernel!r})")]
    subprocess.run(command, check=True, env=environment)


def test_the_kernels_are_registered():
    assert isinstance(forms._kernels[0], triton_routing.TritonRouting)
