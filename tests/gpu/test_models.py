"""Every family on a GPU: as on the CPU, without waits, in half precision, compiled, distributed and resumed."""

import copy
import socket

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from transformers import MarianConfig, MarianMTModel

from hf_capsule_mt import CapsuleMarianConfig, CapsuleMarianMTModel
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
    return checks.model(family.mixes[name]), labelled(checks.batch())


def moved(batch, device):
    return {name: tensor.to(device) for name, tensor in batch.items()}


def loss_and_gradients(model, batch):
    model.zero_grad()
    loss = model(**batch).loss
    loss.backward()
    gradients = {name: weight.grad.cpu() for name, weight in model.named_parameters() if weight.grad is not None}
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
    model, batch = model.to(device), moved(batch, device)
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


@torch.no_grad()
@pytest.mark.parametrize(
    ("case", "num_beams"),
    [*((case, 1) for case in COMPILED_CASES), (CASES[1], 3)],
    ids=lambda value: case_name(value) if isinstance(value, tuple) else f"beam {value}",
    indirect=["case"],
)
def test_static_cache_with_cuda_graphs(case, device, num_beams):
    model, batch = case
    source = moved({name: batch[name] for name in ("input_ids", "attention_mask")}, device)
    model = model.to(device)
    settings = {"num_beams": num_beams, "max_new_tokens": 8}
    expected = model.generate(**source, **settings)
    torch._dynamo.reset()
    settings |= {"cache_implementation": "static", "disable_compile": device.type == "cpu"}
    for _ in range(3):  # warm-up, capture, replay
        assert torch.equal(model.generate(**source, **settings), expected)


@pytest.fixture
def process_group(device):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    backend = "nccl" if device.type == "cuda" else "gloo"
    dist.init_process_group(backend, init_method=f"tcp://127.0.0.1:{port}", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def test_ddp(case, device, on_cpu, process_group):
    model, batch = case
    model = DistributedDataParallel(model.to(device), find_unused_parameters=True)
    loss, gradients = loss_and_gradients(model, moved(batch, device))
    gradients = {name.removeprefix("module."): gradient for name, gradient in gradients.items()}
    torch.testing.assert_close((loss, gradients), on_cpu, **FLOAT32)


def test_fsdp2(case, device, on_cpu, process_group):
    model, batch = case
    model = model.to(device)
    model = fully_shard(model, mesh=init_device_mesh(device.type, (1,)))
    loss = model(**moved(batch, device)).loss
    loss.backward()
    gradients = {
        name: weight.grad.full_tensor().cpu() for name, weight in model.named_parameters() if weight.grad is not None
    }
    torch.testing.assert_close((loss.detach().cpu(), gradients), on_cpu, **FLOAT32)


def test_resumed_bit_for_bit(case, device, tmp_path):
    model, batch = case
    model, batch = model.to(device).train(), moved(batch, device)
    again = copy.deepcopy(model)

    def train(model, optimizer, steps):
        for _ in range(steps):
            model(**batch).loss.backward()
            optimizer.step()
            optimizer.zero_grad()

    def new_optimizer(model):
        return torch.optim.AdamW(model.parameters(), lr=1e-3)

    torch.use_deterministic_algorithms(True)
    try:
        torch.manual_seed(1)
        optimizer = new_optimizer(model)
        train(model, optimizer, 2)
        states = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "random": torch.get_rng_state()}
        if device.type == "cuda":
            states["cuda"] = torch.cuda.get_rng_state()
        torch.save(states, tmp_path / "checkpoint.pt")
        train(model, optimizer, 2)

        states = torch.load(tmp_path / "checkpoint.pt", weights_only=True)
        again.load_state_dict(states["model"])
        optimizer = new_optimizer(again)
        optimizer.load_state_dict(states["optimizer"])
        torch.set_rng_state(states["random"])
        if device.type == "cuda":
            torch.cuda.set_rng_state(states["cuda"])
        train(again, optimizer, 2)
    finally:
        torch.use_deterministic_algorithms(False)
    for (name, weight), other in zip(model.state_dict().items(), again.state_dict().values(), strict=True):
        assert torch.equal(weight, other), name


def test_memory_of_em_routing(gpu):
    """A training step needs at most a tenth more than Marian's, parameters and their gradients apart."""
    sizes = {
        "vocab_size": 8000, "d_model": 512, "encoder_attention_heads": 8, "decoder_attention_heads": 8,
        "encoder_layers": 6, "decoder_layers": 6, "encoder_ffn_dim": 2048, "decoder_ffn_dim": 2048,
        "pad_token_id": 0, "eos_token_id": 1, "decoder_start_token_id": 0, "activation_function": "relu",
    }  # fmt: skip
    words = torch.randint(2, 8000, (256, 32), device=gpu)
    peaks = []
    for model in (
        MarianMTModel(MarianConfig(**sizes)),
        CapsuleMarianMTModel(CapsuleMarianConfig(**sizes, layer_aggregation="em_routing")),
    ):
        model = model.to(gpu).train()
        for _ in range(2):
            model.zero_grad(set_to_none=False)
            held = torch.cuda.memory_allocated()
            torch.cuda.reset_peak_memory_stats()
            model(input_ids=words, labels=words).loss.backward()
        peaks.append(torch.cuda.max_memory_allocated() - held)
        del model
    assert peaks[1] <= 1.1 * peaks[0]
