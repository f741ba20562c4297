"""bfloat16 on a processor that cannot multiply in it: by float32 kernels, and the same up to the order of sums."""

import contextlib

import pytest
import torch
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from capsule_mt.commands.doctor import processor
from hf_capsule_mt.training import bfloat16
from hf_capsule_mt.training.bfloat16 import Float32Products, bfloat16_products, multiplies_bfloat16
from tests.modeling.test_waits import CASES, case_name, labelled
from tests.training.small import make_trainer

KERNELS = {"mm", "bmm", "addmm", "baddbmm", "mv", "addmv", "dot", "_scaled_dot_product_flash_attention_for_cpu"}
PRODUCTS = {
    "linear": (F.linear, (3, 5, 8), (6, 8), (6,)),
    "linear without a bias": (F.linear, (3, 5, 8), (6, 8)),
    "matmul": (torch.matmul, (2, 5, 8), (2, 8, 6)),
    "an operator": (lambda one, other: one @ other, (5, 8), (8, 6)),
    "method": (lambda one, other: one.matmul(other), (5, 8), (8, 6)),
    "mm": (torch.mm, (5, 8), (8, 6)),
    "bmm": (torch.bmm, (2, 5, 8), (2, 8, 6)),
    "addmm": (torch.addmm, (6,), (5, 8), (8, 6)),
    "baddbmm": (torch.baddbmm, (2, 5, 6), (2, 5, 8), (2, 8, 6)),
    "einsum": (lambda one, other: torch.einsum("...li,loi->...lo", one, other), (3, 2, 8), (2, 6, 8)),
}


class KernelsOfBfloat16(TorchDispatchMode):
    """Counts the products that a kernel of bfloat16 has to compute."""

    count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.overloadpacket.__name__ in KERNELS:
            tensors = [argument for argument in args if isinstance(argument, torch.Tensor)]
            self.count += any(tensor.dtype == torch.bfloat16 for tensor in tensors)
        return func(*args, **(kwargs or {}))


@pytest.fixture
def slow(monkeypatch):
    """A processor that cannot multiply in bfloat16."""
    monkeypatch.setattr(bfloat16, "multiplies_bfloat16", lambda: False)


@pytest.mark.parametrize("autocast", [True, False])
@pytest.mark.parametrize("name", PRODUCTS)
def test_product_and_gradients_are_those_of_the_kernel(name, autocast):
    function, *shapes = PRODUCTS[name]
    torch.manual_seed(0)
    given = [torch.randn(shape, dtype=torch.float32 if autocast else torch.bfloat16) for shape in shapes]

    def compute(products):
        inputs = [tensor.clone().requires_grad_() for tensor in given]
        with KernelsOfBfloat16() as seen, products:
            with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
                result = function(*inputs)
            result.backward(torch.linspace(-1, 1, result.numel()).reshape(result.shape).bfloat16())
        return [result.detach(), *(tensor.grad for tensor in inputs)], seen.count

    ours, none = compute(Float32Products())
    theirs, some = compute(contextlib.nullcontext())
    assert none == 0 < some
    for one, other in zip(ours, theirs, strict=True):
        assert one.dtype == other.dtype
        torch.testing.assert_close(one, other, rtol=2**-7, atol=2**-7)


def test_other_products_are_left_alone():
    matrix = torch.randn(4, 4)
    with Float32Products():
        assert torch.equal(matrix @ matrix, torch.mm(matrix, matrix))
        assert (matrix @ matrix).dtype == torch.float32
        with torch.autocast("cpu", torch.float16):
            assert (matrix @ matrix).dtype == torch.float16
        with torch.autocast("cpu", torch.bfloat16):
            assert (matrix.double() @ matrix.double()).dtype == torch.float64


@pytest.mark.parametrize("case", CASES, ids=case_name)
def test_no_kernel_of_bfloat16_multiplies_in_any_model(case):
    family, name = case
    checks = family()
    model, batch = checks.model(family.mixes[name]).float(), labelled(checks.batch())
    model.set_attn_implementation("eager")  # as the trainer does

    def multiplied(products):
        with KernelsOfBfloat16() as seen, products:
            with torch.autocast("cpu", torch.bfloat16):
                loss = model(**batch).loss
            loss.backward()
        assert loss.isfinite()
        return seen.count

    assert multiplied(Float32Products()) == 0 < multiplied(contextlib.nullcontext())


@pytest.mark.usefixtures("slow")
def test_the_trainer_trains_and_evaluates_without_them(tmp_path):
    trainer = make_trainer(tmp_path, max_steps=3, bf16=True)
    with KernelsOfBfloat16() as seen:
        trainer.train()
        evaluated = trainer.evaluate()
    assert seen.count == 0
    assert evaluated["eval_loss"] > 0
    in_float32 = make_trainer(tmp_path, max_steps=3)
    in_float32.train()
    losses, exact = (
        [entry["loss"] for entry in one.state.log_history if "loss" in entry] for one in (trainer, in_float32)
    )
    assert losses != exact
    assert losses == pytest.approx(exact, rel=1e-2)


@pytest.mark.parametrize("multiplies", [True, False])
def test_they_are_used_where_there_are_no_kernels(monkeypatch, multiplies):
    monkeypatch.setattr(bfloat16, "multiplies_bfloat16", lambda: multiplies)
    assert isinstance(bfloat16_products(), Float32Products) != multiplies


def test_the_processor_is_known():
    _, flags = processor()
    if flags != "unknown":  # PyTorch asks for more than the first flag says
        assert "avx512f" in flags or "bf16" in flags or not multiplies_bfloat16()
        assert multiplies_bfloat16() or "avx512_bf16" not in flags
