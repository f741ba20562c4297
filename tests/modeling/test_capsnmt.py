"""CapsNMT: all that every model must do, in every mix of settings, and properties 35 to 38."""

import re

import pytest
import torch

from hf_capsule_mt import CapsNMTConfig, CapsNMTForConditionalGeneration, CapsNMTModel
from hf_capsule_mt.modeling.source_aggregation import SourceCapsules, SourcePooling
from tests.mixes import CAPSNMT
from tests.modeling.model_checks import EOS, PAD, START, Family, RecurrentChecks, randomize

SIZES = {
    "vocab_size": 31,
    "hidden_size": 16,
    "embedding_size": 12,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "num_capsules": 3,
    "num_iterations": 3,
}


class TestCapsNMT(RecurrentChecks):
    family = Family(
        CapsNMTConfig,
        CapsNMTModel,
        CapsNMTForConditionalGeneration,
        SIZES,
        has_attentions=False,
        has_keys_and_values=False,
        pads_left=True,
    )
    mixes = CAPSNMT

    def expected_routings(self, mix):
        return {"encoder.aggregation"} if self.config(mix).aggregation == "capsules" else set()

    def test_the_source_has_a_fixed_size_for_the_decoder(self, mix):  # property 37
        model = self.model(mix)
        sizes = {model.get_encoder()(torch.randint(4, 31, (2, length))).capsules.shape for length in (1, 7, 40)}
        assert sizes == {(2, model.config.num_source_vectors, 16)}

    def test_sizes_that_do_not_fit(self):
        model, batch = self.model({}), self.batch()
        with pytest.raises(ValueError, match=r"the source has 3 rows, but the target has 2"):
            model(**{**batch, "decoder_input_ids": batch["decoder_input_ids"][:2]})
        with pytest.raises(ValueError, match=r"`inputs_embeds` of CapsNMTEncoder must be .*, got \[3, 7, 5\]"):
            model(inputs_embeds=torch.zeros(3, 7, 5), decoder_input_ids=batch["decoder_input_ids"])
        with pytest.raises(ValueError, match=r"`capsules` must be \[B, "):
            model.get_decoder()(input_ids=batch["decoder_input_ids"], capsules=torch.zeros(3, 2, 16))
        with pytest.raises(ValueError, match="the decoder needs the source"):
            model.get_decoder()(input_ids=batch["decoder_input_ids"])
        with pytest.raises(ValueError, match='`cache_implementation` "quantized"'):
            model.generate(**self.source(batch), cache_implementation="quantized")


# ---- the fast step
@pytest.mark.parametrize(("source_attention", "lengths"), [(False, (5, 5)), (True, (7, 4, 5))])
def test_the_decoding_step_compiles(source_attention, lengths):
    """Large enough for the matrix products that only pay for large matrices."""
    config = CapsNMTConfig(
        vocab_size=1003,
        hidden_size=256,
        encoder_layers=1,
        decoder_layers=2,
        num_capsules=2,
        source_attention=source_attention,
        tie_word_embeddings=False,
        pad_token_id=PAD,
        eos_token_id=EOS,
        decoder_start_token_id=START,
    )
    model, checks = randomize(CapsNMTForConditionalGeneration(config), std=0.1).eval(), TestCapsNMT()
    source, settings = checks.source(checks.batch(lengths)), {"max_new_tokens": 6, "min_new_tokens": 6}
    assert torch.equal(checks.compiled_decoding(model, source, **settings), model.generate(**source, **settings))


# ---- the aggregation
@pytest.mark.parametrize("position_aware", [False, True])
def test_word_order(position_aware):  # property 35
    config = CapsNMTConfig(**SIZES, position_aware=position_aware)
    aggregation = randomize(SourceCapsules(config), std=0.5)
    states = torch.randn(2, 6, 16)
    capsules, _ = aggregation(states, None)
    permuted, _ = aggregation(states[:, [3, 1, 5, 0, 2, 4]], None)
    assert torch.allclose(capsules, permuted, atol=1e-6) != position_aware


def test_pooling():  # property 37
    states = torch.tensor([[[-3.0], [-1.0], [-2.0], [9.0]]])
    mask = torch.tensor([[True, True, True, False]])
    pooled, weights = SourcePooling()(states, mask)
    assert pooled.flatten().tolist() == [-1.0, -2.0, -3.0, -2.0]
    assert weights is None


def test_own_weights_of_each_iteration():  # property 36
    def count(**settings):
        with torch.device("meta"):
            return sum(p.numel() for p in SourceCapsules(CapsNMTConfig(**{**SIZES, **settings})).parameters())

    assert count() - count(share_iteration_weights=True) == (3 - 1) * 3 * 16**2
    assert count() - count(separable_scoring=False) == 2 * (16**2 + 16)
    assert count() == count(position_aware=False)
    aggregation = randomize(SourceCapsules(CapsNMTConfig(**SIZES)), std=0.3)
    aggregation(torch.randn(2, 6, 16), None)[0].square().sum().backward()
    grads_by_iteration = aggregation.votes.weight.grad.view(3, -1)
    assert (grads_by_iteration.abs().amax(dim=1) > 0).all()


# ---- parameter counts
@pytest.mark.parametrize(
    ("part", "expected"),
    [
        ("model.encoder.layers", 6_311_936),
        ("model.encoder.aggregation.votes", 4_718_592),
        ("model.encoder.aggregation.(inner|outer)_scoring", 525_312),
        ("model.decoder.source_projection", 1_572_864),
        ("model.decoder.layers", 6_306_816),
        ("", 19_435_520 + 50_000 * 512),
    ],
)
def test_parameter_counts(part, expected):  # 6.31M, 4.72M, .53M, 1.57M, 6.31M, and 25.6M embeddings
    with torch.device("meta"):
        model = CapsNMTForConditionalGeneration(CapsNMTConfig())
    assert sum(p.numel() for name, p in model.named_parameters() if re.match(part, name)) == expected


# ---- configuration
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"hidden_size": 15}, r"`hidden_size` must be even.*got 15"),
        ({"aggregation": "max"}, r"aggregation"),
        ({"num_capsule": 3}, r"did you mean `num_capsules`"),
    ],
)
def test_configuration_errors(settings, message):
    with pytest.raises(ValueError, match=message):
        CapsNMTConfig(**settings)
