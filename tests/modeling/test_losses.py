"""The losses: cross entropy, against PyTorch's own; the guided losses, properties 43, 44 and 45, against loops."""

import pytest
import torch
from torch import nn

from hf_capsule_mt import CapsuleMarianConfig
from hf_capsule_mt.modeling import summed_losses
from hf_capsule_mt.modeling.guided_losses import GuidedLosses, running_averages
from hf_capsule_mt.modeling.losses import cross_entropy
from hf_capsule_mt.modeling.summed_losses import IGNORE_INDEX
from tests.fixtures.tiny import tiny_model, tiny_tokenizer

SMOOTHING = (0.0, 0.1, 1.0)


def targets(vocabulary: int = 11, dtype: torch.dtype = torch.float64) -> tuple[torch.Tensor, torch.Tensor]:
    """Return logits [3, 5, V] and labels [3, 5]; some labels are ignored, and all of the last sentence."""
    torch.manual_seed(0)
    logits = (3 * torch.randn(3, 5, vocabulary, dtype=dtype)).requires_grad_()
    labels = torch.randint(0, vocabulary, (3, 5))
    labels[0, 3:] = labels[2] = IGNORE_INDEX
    return logits, labels


def reference(logits: torch.Tensor, labels: torch.Tensor, label_smoothing: float) -> torch.Tensor:
    """Return PyTorch's loss in double precision."""
    return nn.functional.cross_entropy(
        logits.double().flatten(0, 1), labels.flatten(), ignore_index=IGNORE_INDEX, label_smoothing=label_smoothing
    )


@pytest.fixture(params=[22, 55, 10_000])  # 2 and 5 of 15 rows at once, or all
def in_chunks(request, monkeypatch):
    monkeypatch.setattr(summed_losses, "LOGITS_ON_CPU", request.param)


@pytest.mark.usefixtures("in_chunks")
@pytest.mark.parametrize("label_smoothing", SMOOTHING)
def test_loss_and_gradient_are_those_of_pytorch(label_smoothing):
    logits, labels = targets()
    loss, nll_loss = cross_entropy(logits, labels, label_smoothing=label_smoothing)
    expected = reference(logits, labels, label_smoothing)
    torch.testing.assert_close(loss, expected)
    plain = reference(logits, labels, 0.0)
    torch.testing.assert_close(nll_loss, plain)
    for combined, reference_loss in ((nll_loss, plain), (2 * loss + 3 * nll_loss, 2 * expected + 3 * plain)):
        torch.testing.assert_close(
            torch.autograd.grad(combined, logits, retain_graph=True)[0],
            torch.autograd.grad(reference_loss, logits, retain_graph=True)[0],
        )
    torch.testing.assert_close(
        torch.autograd.grad(5 * loss, logits, retain_graph=True)[0], torch.autograd.grad(5 * expected, logits)[0]
    )
    second_gradient = torch.autograd.grad(5 * loss, logits)[0]  # a second backward pass through the same graph
    assert torch.equal(
        second_gradient,
        torch.autograd.grad(5 * cross_entropy(logits, labels, label_smoothing=label_smoothing).loss, logits)[0],
    )


@pytest.mark.parametrize(
    ("dtype", "relative"), [(torch.float32, 1e-6), (torch.bfloat16, 2**-7), (torch.float16, 2**-10)]
)
def test_low_precision(dtype, relative):
    """The loss is a float32 number of the rounded logits; the gradient comes in their dtype, and is rounded to it."""
    logits, labels = targets(vocabulary=500, dtype=dtype)
    loss = cross_entropy(logits, labels, label_smoothing=0.1).loss
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
    (gradient,) = torch.autograd.grad(scale * cross_entropy(logits, labels).loss, logits)
    (exact,) = torch.autograd.grad(scale * reference(logits, labels, 0.0), logits)
    small = (exact != 0) & (exact.abs() < scale * 2**-25)  # without the scale they would be rounded to 0
    assert small.sum() > 100
    torch.testing.assert_close(gradient[small], exact[small], rtol=2e-2, atol=1e-6)
    assert gradient[small].all()


def test_ignored_rows_may_hold_anything():
    logits, labels = targets()
    with torch.no_grad():
        logits[2] = float("nan")
    loss = cross_entropy(logits, labels, label_smoothing=0.1).loss
    (gradient,) = torch.autograd.grad(loss, logits)
    assert loss.isfinite()
    assert not gradient[2].any()
    assert gradient[0, :3].all()


def test_a_model_takes_a_loss_function_as_all_of_transformers_do():
    model, ids = tiny_model(tiny_tokenizer(), dropout=0.0), torch.tensor([[5, 6, 7, 2]])
    expected = model(input_ids=ids, labels=ids)

    def halved(logits, labels, vocab_size, num_items_in_batch=None, **kwargs):
        assert (logits.shape, vocab_size, num_items_in_batch) == ((1, 4, vocab_size), logits.shape[-1], 8)
        return reference(logits, labels, 0.0) / 2

    model.loss_function = halved
    outputs = model(input_ids=ids, labels=ids, num_items_in_batch=8)
    torch.testing.assert_close(outputs.loss, expected.nll_loss.double() / 2)
    torch.testing.assert_close(outputs.nll_loss, expected.nll_loss / 2)  # four targets of eight


def test_batch_without_a_target_has_no_loss():
    logits, labels = targets()
    loss = cross_entropy(logits, labels.fill_(IGNORE_INDEX)).loss
    assert loss == 0
    assert not torch.autograd.grad(loss, logits)[0].any()


def test_nothing_of_the_size_of_the_logits_is_kept_but_the_gradient():
    logits, labels = targets(vocabulary=2000, dtype=torch.bfloat16)
    saved = []
    with torch.autograd.graph.saved_tensors_hooks(
        lambda tensor: saved.append(tensor) or tensor, lambda tensor: tensor
    ):
        cross_entropy(logits, labels, label_smoothing=0.1)
    large = [tensor for tensor in saved if tensor.numel() >= logits.numel()]
    assert [(tensor.dtype, tensor.numel()) for tensor in large] == [(torch.bfloat16, logits.numel())]


WIDTH, CAPSULES, CAPSULE_WIDTH, WORDS = 5, 2, 3, 11


def make(**settings):
    config = CapsuleMarianConfig(
        d_model=16, guided_routing="guided", guided_num_capsules=CAPSULES, guided_capsule_dim=CAPSULE_WIDTH, **settings
    )
    return GuidedLosses(config, WIDTH).double()


def inputs(lengths=(4, 2, 1)):
    batch, length = len(lengths), max(lengths) + 1
    labels = torch.randint(WORDS, (batch, length))
    labels[torch.arange(length) >= torch.tensor(lengths)[:, None]] = -100
    return {
        "capsules": torch.randn(batch, length, 2 * CAPSULES, CAPSULE_WIDTH, dtype=torch.float64),
        "state": torch.randn(batch, length, WIDTH, dtype=torch.float64),
        "labels": labels,
        "embeddings": torch.randn(WORDS, WIDTH, dtype=torch.float64),
    }


def loops(losses, capsules, state, labels, embeddings):
    """Return both losses without their weights.

    Each is averaged over the steps of a sentence, summed over sentences, and divided by the number of tokens.
    """
    bow = bca = 0.0
    for sentence, row in enumerate(labels.tolist()):
        words = [word for word in row if word != -100]
        sentence_bow = sentence_bca = 0.0
        for step in range(len(words)):
            past, future = capsules[sentence, step, :CAPSULES], capsules[sentence, step, CAPSULES:]
            exclusive = losses.bow_bags == "exclusive"
            bags = (words[: step + (not exclusive)], words[step + exclusive :])
            for group, matrix, bag in zip((past, future), (losses.past_words, losses.future_words), bags, strict=True):
                logits = embeddings @ (matrix.weight @ group.sum(dim=0))
                nll = -sum(logits.log_softmax(dim=-1)[word] for word in bag)
                sentence_bow += nll / max(1, len(bag))
            averages = (state[sentence, : step + 1].mean(dim=0), state[sentence, step : len(words)].mean(dim=0))
            for group, matrix, average in zip(
                (past, future), (losses.past_content, losses.future_content), averages, strict=True
            ):
                squares = (group.flatten() - matrix.weight @ average).square()
                sentence_bca += squares.mean()
        bow, bca = bow + sentence_bow / len(words), bca + sentence_bca / len(words)
    count = (labels != -100).sum()
    return bow / count, bca / count


@pytest.mark.parametrize("bags", ["inclusive", "exclusive"])
def test_equals_the_loops(bags):  # properties 43 and 44
    losses = make(
        guided_bow_bags=bags,
        guided_bow_weight=0.5,
        guided_bca_weight=3,
    )
    batch = inputs()
    for name in ("capsules", "state", "embeddings"):
        batch[name].requires_grad_()
    actual, expected = losses(**batch), loops(losses, **batch)
    tensors = [batch["capsules"], batch["state"], batch["embeddings"], *losses.parameters()]
    for part, weight, loss in zip(actual, (0.5, 3), expected, strict=True):
        torch.testing.assert_close(part, weight * loss)
        grads = [torch.autograd.grad(value, tensors, allow_unused=True, retain_graph=True) for value in (part, loss)]
        for ours, theirs in zip(*grads, strict=True):
            assert (ours is None) == (theirs is None)
            if ours is not None:
                torch.testing.assert_close(ours, weight * theirs)


def test_averages():  # property 44
    state = torch.tensor([1.0, 3.0, 5.0, 100.0]).view(1, 4, 1)
    past, future = running_averages(state, torch.tensor([[True, True, True, False]]))
    assert past.flatten()[:3].tolist() == [1, 2, 3]
    assert future.flatten()[:3].tolist() == [3, 4, 5]
