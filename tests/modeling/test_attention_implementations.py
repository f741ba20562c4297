"""Capsule Marian with attention that transformers registers: anybody's function, flash's path, and flex.

flash-attn needs a GPU. Its kernels are replaced by plain torch here, so that masks and padding are transformers' own.
"""

import pytest
import torch
from transformers import AttentionInterface, AttentionMaskInterface, MarianConfig, MarianMTModel
from transformers import modeling_flash_attention_utils as flash_utils
from transformers.integrations.flash_attention import flash_attention_forward
from transformers.masking_utils import eager_mask, flash_attention_mask

from tests.modeling import test_capsule_marian as marian  # its class is not to be collected here, too
from tests.modeling.model_checks import TOLERANCE, randomize

PLAIN_ATTENTION = "plain_attention"
PLAIN_FLASH = "plain_fa"  # transformers would look for the kernels of a name with "flash" in it
CALLS = []
CHECKS = marian.TestCapsuleMarian()


def plain_attention(module, query, key, value, attention_mask, dropout=0.0, scaling=None, **kwargs):
    """[B, H, T, d / H] -> [B, T, H, d / H], as transformers' own functions."""
    CALLS.append(module)
    output = torch.nn.functional.scaled_dot_product_attention(
        query, key, value, attn_mask=attention_mask, dropout_p=dropout, scale=scaling
    )
    return output.transpose(1, 2), None


def dense_kernel(query, key, value, softmax_scale=None, causal=False):
    """[B, T, H, d / H] -> the same, as `flash_attn_func`."""
    scores = torch.einsum("bqhd,bkhd->bhqk", query, key) * softmax_scale
    if causal:
        queries, keys = scores.shape[-2:]
        future = torch.ones(queries, keys, dtype=torch.bool).tril(keys - queries).logical_not()
        scores = scores.masked_fill(future, -1e30)
    return torch.einsum("bhqk,bkhd->bqhd", scores.softmax(dim=-1), value)


def packed_kernel(query, key, value, cu_seqlens_q, cu_seqlens_k, **settings):
    """[tokens, H, d / H] of sentences one after another, as `flash_attn_varlen_func`."""
    sentences = [
        dense_kernel(query[None, start:end], key[None, first:last], value[None, first:last], **settings)[0]
        for start, end, first, last in zip(
            cu_seqlens_q[:-1], cu_seqlens_q[1:], cu_seqlens_k[:-1], cu_seqlens_k[1:], strict=True
        )
    ]
    return torch.cat(sentences)


def kernel_settings(query_length=None, key_length=None, is_causal=False, softmax_scale=None, cu_seq_lens_q=None, **_):
    return {"softmax_scale": softmax_scale, "causal": is_causal and query_length != 1}


class KernelSettings(tuple):
    """One function for each of two kernels; to transformers before they were two, one function."""

    def __call__(self, *args, **kwargs):
        return kernel_settings(*args, **kwargs)


def register_plain_kernels(monkeypatch):
    """Register attention in plain torch, and flash's path with its kernels in plain torch."""
    AttentionInterface.register(PLAIN_ATTENTION, plain_attention)
    AttentionMaskInterface.register(PLAIN_ATTENTION, eager_mask)
    kernels = (dense_kernel, packed_kernel, None, flash_utils._pad_input, flash_utils._unpad_input)
    monkeypatch.setattr(
        flash_utils,
        "lazy_import_flash_attention",
        lambda *_, **__: (kernels, KernelSettings([kernel_settings, kernel_settings])),
    )
    AttentionInterface.register(PLAIN_FLASH, flash_attention_forward)
    AttentionMaskInterface.register(PLAIN_FLASH, flash_attention_mask)


@pytest.fixture
def implementations(monkeypatch):
    register_plain_kernels(monkeypatch)
    CALLS.clear()


def flash_cases():
    """A padded and an unpadded source, with one and with several target tokens."""
    source = torch.randint(4, 31, (3, 7))
    whole = torch.ones_like(source)
    padded = whole.clone()
    padded[1, 4:] = padded[2, 2:] = 0
    for mask in (whole, padded):
        for length in (1, 5, 7, 9):
            target = torch.randint(4, 31, (3, length))
            yield {"input_ids": source, "attention_mask": mask, "decoder_input_ids": target, "use_cache": False}


@pytest.mark.parametrize("implementation", [PLAIN_ATTENTION, PLAIN_FLASH])
@pytest.mark.parametrize("mix", marian.TestCapsuleMarian.parameters())
def test_another_implementation_computes_the_same(implementations, mix, implementation):
    model, batch, labels = CHECKS.model(mix), CHECKS.batch(), CHECKS.labels()
    expected = model(**batch, labels=labels)
    expected.loss.backward()
    gradients = {name: parameter.grad for name, parameter in model.named_parameters()}
    words = model.generate(**CHECKS.source(batch), max_new_tokens=5, num_beams=2)
    attentions = model(**batch, output_attentions=True).cross_attentions
    model.set_attn_implementation(implementation)
    model.zero_grad()
    actual = model(**batch, labels=labels)
    torch.testing.assert_close(actual.logits, expected.logits, **TOLERANCE)
    actual.loss.backward()
    for name, parameter in model.named_parameters():
        if gradients[name] is None:
            assert parameter.grad is None, name
        else:
            torch.testing.assert_close(parameter.grad, gradients[name], **TOLERANCE, msg=name)
    assert torch.equal(model.generate(**CHECKS.source(batch), max_new_tokens=5, num_beams=2), words)
    assert bool(CALLS) == (implementation == PLAIN_ATTENTION)
    torch.testing.assert_close(model(**batch, output_attentions=True).cross_attentions, attentions)


@pytest.mark.parametrize("mix", marian.TestCapsuleMarian.parameters())
def test_static_cache_with_another_implementation(implementations, mix):
    model, source = CHECKS.model(mix), CHECKS.source(CHECKS.batch())
    words = model.generate(**source, max_new_tokens=5)
    model.set_attn_implementation(PLAIN_ATTENTION)
    assert torch.equal(model.generate(**source, max_new_tokens=5, cache_implementation="static"), words)


def test_flash_sees_the_padding_of_a_source(implementations):
    """Queries are words of the target: the source's mask says nothing about them."""
    model = CHECKS.model({})
    for case in flash_cases():
        model.set_attn_implementation("sdpa")
        expected = model(**case).logits
        model.set_attn_implementation(PLAIN_FLASH)
        torch.testing.assert_close(model(**case).logits, expected, **TOLERANCE)


@pytest.mark.xfail(
    reason="huggingface/transformers#35032: the source's mask is applied to the queries",
    strict=True,
    raises=AssertionError,
)
def test_stock_marian_sees_it_too(implementations):
    settings = {**marian.SIZES, **CHECKS.family.special_tokens, "vocab_size": CHECKS.family.vocab_size}
    model = randomize(MarianMTModel(MarianConfig(**settings))).eval()
    for case in flash_cases():
        model.set_attn_implementation("sdpa")
        expected = model(**case).logits
        model.set_attn_implementation(PLAIN_FLASH)
        torch.testing.assert_close(model(**case).logits, expected, **TOLERANCE)


@pytest.mark.slow
@pytest.mark.parametrize("mix", marian.TestCapsuleMarian.parameters())
def test_flex_computes_the_same(mix):
    model, batch = CHECKS.model(mix), CHECKS.batch()
    model.requires_grad_(False)  # on a CPU, flex has no gradient
    expected = model(**batch).logits
    model.set_attn_implementation("flex_attention")
    torch.testing.assert_close(model(**batch).logits, expected, **TOLERANCE)


@pytest.mark.slow
def test_the_table_of_the_documentation_is_what_each_cell_gives():
    """After a change: python -m tests.modeling.attention_table."""
    from tests.modeling.attention_table import PAGE, SECTION, table  # it imports this module

    assert SECTION.search(PAGE.read_text(encoding="utf-8")).group() == table()
