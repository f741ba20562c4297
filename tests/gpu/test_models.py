"""Every family on a GPU: as on the CPU, without waits, in half precision and compiled."""

import pytest
import torch

from hf_capsule_mt.routing import common
from tests.modeling import test_capsnmt, test_capsule_marian, test_capsule_rnmt

pytestmark = pytest.mark.gpu

CASES = [
    (test_capsule_marian.TestCapsuleMarian, "plain"),
    (test_capsule_marian.TestCapsuleMarian, "everything"),
    (test_capsule_marian.TestCapsuleMarian, "guided"),
    (test_capsule_rnmt.TestCapsuleRNMT, "rnmt_guided"),
    (test_capsnmt.TestCapsNMT, "capsules"),
    (test_capsnmt.TestCapsNMT, "hybrid"),
]
# a compilation takes up to a minute on a GPU
COMPILED_CASES = [CASES[1], CASES[3], CASES[4]]
FLOAT32 = {"atol": 1e-4, "rtol": 1e-4}


def case_name(case):
    return f"{case[0].__name__[4:]}, {case[1]}"


def labelled(batch):
    labels = batch["decoder_input_ids"].clone()
    labels[0, -2:] = -100
    return {"input_ids": batch["input_ids"], "attention_mask": batch["attention_mask"], "labels": labels}


@pytest.fixture(params=CASES, ids=case_name)
def case(request):
    """A model and a batch with labels, both on the CPU."""
    family, name = request.param
    checks = family()
    dropouts = {name: 0.0 for name in vars(checks.config({})) if "dropout" in name}
    return checks.model(family.mixes[name], **dropouts), labelled(checks.batch())


def moved(batch, device):
    return {name: tensor.to(device) for name, tensor in batch.items()}


def loss_and_gradients(model, batch):
    model.zero_grad()
    loss = model.train()(**batch).loss  # cuDNN's recurrent layers have no backward pass in evaluation
    loss.backward()
    # copies, as moving a model moves its gradients
    gradients = {
        name: weight.grad.cpu().clone() for name, weight in model.named_parameters() if weight.grad is not None
    }
    return loss.detach().cpu(), gradients


@pytest.fixture
def on_cpu(case, device, monkeypatch):
    """What the CPU computes in its own way: the loss and the gradients."""
    model, batch = case
    with monkeypatch.context() as patch:
        patch.setattr(common, "HOST", "cpu")
        return loss_and_gradients(model, batch)


def test_a_training_step_equals_the_cpu(case, device, on_cpu):
    model, batch = case
    actual = loss_and_gradients(model.to(device), moved(batch, device))
    torch.testing.assert_close(actual, on_cpu, **FLOAT32)


def test_no_step_waits(case, gpu):
    model, batch = case
    model, batch = model.to(gpu).train(), moved(batch, gpu)
    model(**batch).loss.backward()  # what is set up once may wait
    torch.cuda.set_sync_debug_mode("error")
    try:
        model(**batch).loss.backward()
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_finite_and_close(case, device, on_cpu, dtype):
    model, batch = case
    model, batch = model.to(device).train(), moved(batch, device)
    with torch.autocast(device.type, dtype):
        loss = model(**batch).loss
    (loss * 16).backward()
    assert all(weight.grad.isfinite().all() for weight in model.parameters() if weight.grad is not None)
    torch.testing.assert_close(loss.detach().float().cpu(), on_cpu[0], atol=0, rtol=0.03)


@torch.no_grad()
@pytest.mark.parametrize("num_beams", [1, 3])
def test_generate_equals_the_cpu(case, device, monkeypatch, num_beams):
    model, batch = case
    source = {name: batch[name] for name in ("input_ids", "attention_mask")}
    settings = {"num_beams": num_beams, "max_new_tokens": 12}
    with monkeypatch.context() as patch:
        patch.setattr(common, "HOST", "cpu")
        expected = model.generate(**source, **settings)
    assert torch.equal(model.to(device).generate(**moved(source, device), **settings).cpu(), expected)


@torch.no_grad()
@pytest.mark.parametrize("case", COMPILED_CASES, ids=case_name, indirect=True)
def test_compiled(case, device, on_cpu):
    model, batch = case
    torch._dynamo.reset()
    compiled = torch.compile(model.to(device), backend="eager" if device.type == "cpu" else "inductor")
    torch.testing.assert_close(compiled(**moved(batch, device)).loss.detach().cpu(), on_cpu[0], **FLOAT32)
