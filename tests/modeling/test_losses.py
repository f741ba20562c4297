"""The cross entropy, against PyTorch's own."""

import pytest
import torch
from torch import nn

from hf_capsule_mt.modeling import losses
from hf_capsule_mt.modeling.losses import IGNORE_INDEX, cross_entropy

SMOOTHING = (0.0, 0.1, 1.0)


def targets(vocabulary: int = 11, dtype: torch.dtype = torch.float64) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits [3, 5, V] and labels [3, 5], of which some are ignored, in the last sentence all."""
    torch.manual_seed(0)
    logits = (3 * torch.randn(3, 5, vocabulary, dtype=dtype)).requires_grad_()
    labels = torch.randint(0, vocabulary, (3, 5))
    labels[0, 3:] = labels[2] = IGNORE_INDEX
    return logits, labels


def reference(logits: torch.Tensor, labels: torch.Tensor, label_smoothing: float) -> torch.Tensor:
    """In double precision."""
    return nn.functional.cross_entropy(
        logits.double().flatten(0, 1), labels.flatten(), ignore_index=IGNORE_INDEX, label_smoothing=label_smoothing
    )


@pytest.fixture(params=[22, 55, 10_000])  # 2 and 5 of 15 rows at once, or all
def in_chunks(request, monkeypatch):
    monkeypatch.setattr(losses, "chunk_numbers", lambda tensor: request.param)


@pytest.mark.usefixtures("in_chunks")
@pytest.mark.parametrize("label_smoothing", SMOOTHING)
def test_loss_and_gradient_are_those_of_pytorch(label_smoothing):
    logits, labels = targets()
    loss = cross_entropy(logits, labels, label_smoothing=label_smoothing)
    expected = reference(logits, labels, label_smoothing)
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(
        torch.autograd.grad(5 * loss, logits, retain_graph=True)[0], torch.autograd.grad(5 * expected, logits)[0]
    )
    again = torch.autograd.grad(5 * loss, logits)[0]  # a second time, from what has been kept
    assert torch.equal(
        again, torch.autograd.grad(5 * cross_entropy(logits, labels, label_smoothing=label_smoothing), logits)[0]
    )


@pytest.mark.usefixtures("in_chunks")
@pytest.mark.parametrize("label_smoothing", SMOOTHING)
def test_gradient_is_that_of_finite_differences(label_smoothing):
    logits, labels = targets(vocabulary=4)
    assert torch.autograd.gradcheck(
        lambda given: cross_entropy(given, labels, label_smoothing=label_smoothing), logits
    )


@pytest.mark.parametrize(
    ("dtype", "relative"), [(torch.float32, 1e-6), (torch.bfloat16, 2**-7), (torch.float16, 2**-10)]
)
def test_low_precision(dtype, relative):
    """The loss is a float32 number of the rounded logits; the gradient comes in their dtype, and is rounded to it."""
    logits, labels = targets(vocabulary=500, dtype=dtype)
    loss = cross_entropy(logits, labels, label_smoothing=0.1)
    assert loss.dtype == torch.float32
    expected = reference(logits, labels, 0.1)
    torch.testing.assert_close(loss.double(), expected, rtol=1e-5, atol=0)
    (gradient,) = torch.autograd.grad(loss, logits)
    (exact,) = torch.autograd.grad(expected, logits)
    assert gradient.dtype == dtype
    torch.testing.assert_close(gradient.double(), exact.double(), rtol=relative, atol=1e-7)


def test_float16_keeps_gradients_that_only_a_scaled_loss_can_show():
    logits, labels = targets(vocabulary=500, dtype=torch.float16)
    with torch.no_grad():
        logits[..., 250:] -= 12  # improbable words
    scale = 2.0**16  # as of a gradient scaler
    (gradient,) = torch.autograd.grad(scale * cross_entropy(logits, labels), logits)
    (exact,) = torch.autograd.grad(scale * reference(logits, labels, 0.0), logits)
    small = (exact != 0) & (exact.abs() < scale * 2**-25)  # without the scale they would be rounded to 0
    assert small.sum() > 100
    torch.testing.assert_close(gradient[small], exact[small], rtol=2e-2, atol=1e-6)
    assert gradient[small].all()


def test_ignored_rows_may_hold_anything():
    logits, labels = targets()
    with torch.no_grad():
        logits[2] = float("nan")
    loss = cross_entropy(logits, labels, label_smoothing=0.1)
    (gradient,) = torch.autograd.grad(loss, logits)
    assert loss.isfinite()
    assert not gradient[2].any()
    assert gradient[0, :3].all()


def test_batch_without_a_target_has_no_loss():
    logits, labels = targets()
    loss = cross_entropy(logits, labels.fill_(IGNORE_INDEX))
    assert loss == 0
    assert not torch.autograd.grad(loss, logits)[0].any()


def test_divides_by_the_number_given():
    logits, labels = targets()
    total = 8 * cross_entropy(logits, labels)  # 3 and 5 targets
    torch.testing.assert_close(cross_entropy(logits, labels, num_items_in_batch=20), total / 20)
    torch.testing.assert_close(cross_entropy(logits, labels, num_items_in_batch=torch.tensor(20)), total / 20)


@pytest.mark.parametrize("wrong", [11, -1])
def test_label_that_is_no_word_is_an_error(wrong):
    logits, labels = targets()
    labels[1, 1] = wrong
    with pytest.raises(RuntimeError, match="out of bounds"):
        cross_entropy(logits, labels)


def test_what_a_compiler_is_given_is_the_same(monkeypatch):
    logits, labels = targets()
    expected = cross_entropy(logits, labels, label_smoothing=0.1)
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    compiled = cross_entropy(logits, labels, label_smoothing=0.1)
    torch.testing.assert_close(compiled, expected)
    torch.testing.assert_close(torch.autograd.grad(compiled, logits), torch.autograd.grad(expected, logits))


def test_nothing_of_the_size_of_the_logits_is_kept_but_the_gradient():
    logits, labels = targets(vocabulary=2000, dtype=torch.bfloat16)
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: kept.append(tensor) or tensor, lambda tensor: tensor):
        cross_entropy(logits, labels, label_smoothing=0.1)
    large = [tensor for tensor in kept if tensor.numel() >= logits.numel()]
    assert [(tensor.dtype, tensor.numel()) for tensor in large] == [(torch.bfloat16, logits.numel())]
