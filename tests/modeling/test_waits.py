"""Training and decoding on an accelerator never wait for the value of a tensor, in every family and mix.

A CPU plays the accelerator: the models are told that no tensor is on the host, and a dispatch mode refuses every
operation that reads one.
"""

import subprocess
import sys
from collections import Counter

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from hf_capsule_mt.routing import common
from tests.modeling import test_capsnmt, test_capsule_marian, test_capsule_rnmt
from tests.modeling.model_checks import QUICK_MIXES, TOLERANCE

FAMILIES = (test_capsule_marian.TestCapsuleMarian, test_capsule_rnmt.TestCapsuleRNMT, test_capsnmt.TestCapsNMT)
FEW_CASES = [(checks, name) for checks in FAMILIES for name in checks.mixes if name in QUICK_MIXES]
OTHER_CASES = [(checks, name) for checks in FAMILIES for name in checks.mixes if name not in QUICK_MIXES]
CASES = [*FEW_CASES, *(pytest.param(case, marks=pytest.mark.slow) for case in OTHER_CASES)]
aten = torch.ops.aten
READS = {
    aten._local_scalar_dense, aten.item, aten.is_nonzero, aten.equal, aten.nonzero, aten.masked_select, aten._unique2,
    aten.unique_dim, aten.unique_consecutive, aten.bincount,
}  # fmt: skip


class ReadsOfValues(TorchDispatchMode):
    """Count the operations for which a host has to wait, by the file of the caller; refuse them if so asked."""

    def __init__(self, refuse: bool = True) -> None:
        super().__init__()
        self.refuse = refuse
        self.callers: Counter[str] = Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        packet = func.overloadpacket
        reads = packet in READS
        if packet in (aten.index, aten.index_put, aten.index_put_, aten._index_put_impl_):
            reads = any(index is not None and index.dtype == torch.bool for index in args[1])
        elif packet is aten.repeat_interleave:
            reads = kwargs.get("output_size") is None
        if reads:
            assert not self.refuse, f"{func} waits for the device"
            frame = sys._getframe()
            while "/torch/" in frame.f_code.co_filename or frame.f_code.co_filename == __file__:
                frame = frame.f_back
            self.callers[frame.f_code.co_filename] += 1
        return func(*args, **kwargs)


def case_name(case):
    return f"{case[0].__name__[4:]}, {case[1]}"


@pytest.fixture(params=CASES, ids=case_name)
def case(request):
    """A model, and a batch whose padding is on the right."""
    family, name = request.param
    checks = family()
    return checks.model(family.mixes[name]), checks.batch()


@pytest.fixture
def accelerator(monkeypatch):
    """Call it to take from then on every tensor for one of an accelerator."""
    return lambda: monkeypatch.setattr(common, "HOST", "another device")


def labelled(batch):
    labels = batch["decoder_input_ids"].clone()
    labels[0, -2:] = -100
    return {"input_ids": batch["input_ids"], "attention_mask": batch["attention_mask"], "labels": labels}


def loss_and_gradients(model, batch):
    model.zero_grad()
    loss = model(**batch).loss
    loss.backward()
    return loss.detach(), {name: weight.grad for name, weight in model.named_parameters() if weight.grad is not None}


def test_a_training_step_never_waits(case, accelerator):
    model, batch = case
    expected = loss_and_gradients(model, labelled(batch))
    accelerator()
    with ReadsOfValues():
        actual = loss_and_gradients(model, labelled(batch))
        loss_and_gradients(model.train(), labelled(batch))
    torch.testing.assert_close(actual, expected, **TOLERANCE)


def decode(model, batch):
    """Three steps, with rows that change places between them, as beams do."""
    encoded = model.get_encoder()(batch["input_ids"], attention_mask=batch["attention_mask"])
    cache, logits = None, []
    for word in batch["decoder_input_ids"][:, :3].split(1, dim=1):
        output = model(
            attention_mask=batch["attention_mask"],
            encoder_outputs=encoded,
            decoder_input_ids=word,
            cache=cache,
            use_cache=True,
        )
        cache = output.cache
        cache.reorder_cache(torch.tensor([0, 1, 2]))
        logits.append(output.logits)
    return torch.cat(logits, dim=1)


@torch.no_grad()
def test_a_decoding_step_never_waits(case, accelerator):
    model, batch = case
    expected = decode(model, batch)
    accelerator()
    with ReadsOfValues():
        actual = decode(model, batch)
    torch.testing.assert_close(actual, expected, **TOLERANCE)


@torch.no_grad()
@pytest.mark.parametrize("case", FEW_CASES, ids=case_name, indirect=True)
@pytest.mark.parametrize(
    ("rows", "settings"),
    [
        (3, {"num_beams": 2}),
        (1, {"num_beams": 2}),  # without padding
        (3, {"num_beams": 1, "cache_implementation": "static", "disable_compile": True}),
        (3, {"num_beams": 2, "cache_implementation": "static", "disable_compile": True}),
    ],
    ids=["beams", "one sentence", "static", "static, beams"],
)
def test_generate_asks_once_a_sentence(case, accelerator, rows, settings):
    model, batch = case
    source = {name: batch[name][:rows] for name in ("input_ids", "attention_mask")}
    accelerator()
    asked = []
    for length in (3, 7):
        with ReadsOfValues(refuse=False) as reads:
            model.generate(**source, **settings, min_new_tokens=length, max_new_tokens=length)
        asked.append(sum(number for file, number in reads.callers.items() if "/hf_capsule_mt/" in file))
    assert asked == [1, 1]


@pytest.mark.parametrize("case", FEW_CASES, ids=case_name, indirect=True)
def test_a_step_on_a_device_without_values(case):
    """The meta device has no values at all, so that copying one to the host fails too."""
    model, batch = case
    model = model.to("meta")
    batch = {name: tensor.to("meta") for name, tensor in batch.items()}
    loss_and_gradients(model.train(), labelled(batch))
    with torch.no_grad():
        model.eval()(**batch)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_every_tensor_is_on_the_device():
    """In a process of its own, for it registers a device."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.modeling.fake_gpu", "--all"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    assert len(done.stdout.splitlines()) == len(CASES)
