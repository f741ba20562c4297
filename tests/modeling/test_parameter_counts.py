"""The number of parameters of every system in the papers' tables, to the integer: property 24.

Models are built on the meta device: nothing is allocated.
"""

import pytest
import torch

from hf_capsule_mt import (
    CapsuleMarianConfig,
    CapsuleMarianMTModel,
    CapsuleRNMTConfig,
    CapsuleRNMTForConditionalGeneration,
)

BASE = {
    "vocab_size": 1000,
    "d_model": 512,
    "encoder_layers": 6,
    "decoder_layers": 6,
    "encoder_attention_heads": 8,
    "decoder_attention_heads": 8,
    "encoder_ffn_dim": 2048,
    "decoder_ffn_dim": 2048,
    "pad_token_id": 0,
    "eos_token_id": 1,
    "decoder_start_token_id": 0,
    "forced_eos_token_id": None,
}
BIG = BASE | {
    "d_model": 1024,
    "encoder_attention_heads": 16,
    "decoder_attention_heads": 16,
    "encoder_ffn_dim": 4096,
    "decoder_ffn_dim": 4096,
}


BODIES = {512: 44_138_496, 1024: 176_357_376}  # without embeddings
GDR = {"guided_routing": "guided"}


def count(sizes, **settings):
    with torch.device("meta"):
        model = CapsuleMarianMTModel(CapsuleMarianConfig(**sizes, **settings))
    return sum(p.numel() for name, p in model.named_parameters() if "embed_positions" not in name)


def added(sizes, **settings):
    return count(sizes, **settings) - BODIES[sizes["d_model"]] - 1000 * sizes["d_model"]


def heads(sites, layers=None, method="em_routing"):
    return {"head_aggregation": method, "head_aggregation_sites": sites, "head_aggregation_layers": layers}


def layers(method, **settings):
    return {"layer_aggregation": method} | {f"layer_aggregation_{key}": value for key, value in settings.items()}


@pytest.mark.parametrize("sizes", [BASE, BIG], ids=["base", "big"])
def test_the_plain_body_has_the_parameters_of_the_table(sizes):
    assert added(sizes) == 0


@pytest.mark.parametrize(
    ("sizes", "settings", "expected"),
    [
        # Dou et al., table 1: +14.7M, +25.2M, +37.8M, +56.8M
        (BASE, layers("linear"), 14_687_232),
        (BASE, layers("dynamic_combination"), 25_178_112),
        (BASE, layers("dynamic_routing"), 37_756_928),
        (BASE, layers("em_routing"), 56_639_488),
        # table 2: 264M -> 490M
        (BIG, layers("em_routing"), 226_525_184),
        # table 3, and their equation 7 taken literally
        (BASE, layers("em_routing", capsule_input="own"), 40_910_848),
        (BASE, layers("dynamic_routing", vote_input="own"), 22_028_288),
        (BASE, layers("em_routing", vote_input="own"), 25_182_208),
        # two matrices and a bias in the place of four matrices and four biases, in six layers
        (BASE, {"decoder_self": "ssru", "marian_positions": True}, 6 * (2 * 512**2 + 512 - 4 * (512**2 + 512))),
        # a residual costs nothing
        (BASE, layers("em_routing", residual=True), 56_639_488),
        # of a capsule only its activations and betas cost anything: 6 x (3072 + 1) + 2 on each side
        (BASE, layers("em_routing", num_capsules=64), 56_639_488 - 2 * (6 * 3073 + 2) * (512 - 64)),
        (BASE, layers("dynamic_routing", num_capsules=64), 37_756_928),
        # without input activations EM routing costs two betas per capsule more than dynamic routing
        (BASE, layers("em_routing") | {"em_input_activation": "none"}, 37_756_928 + 2 * 2 * 512),
        # on each side 7 sources: a number each; a query and a gain; a network of 7 units and its offsets; a number for
        # each unit of each source, and a direction
        (BASE, layers("dense"), 2 * 7),
        (BASE, layers("depth_attention"), 2 * 2 * 512),
        (BASE, layers("mudd"), 2 * (7 * 512 + 7 * 7 + 7)),
        (BASE, layers("grn"), 2 * (7 * 512 + 512)),
        # before the layers 2 to 6, and after the last: 2 to 7 sources
        (BASE, layers("dense") | {"depth_connections": True}, 2 * (2 + 3 + 4 + 5 + 6 + 7)),
        (BASE, layers("depth_attention") | {"depth_connections": True}, 6 * 2 * 2 * 512),
        (BASE, layers("depth_attention", residual=True), 2 * (2 * 512 + 2 * 512)),
        # Li et al., tables 2 and 3: +12.6M, +25.2M, +37.8M; 3, 2 and 1 layers
        (BASE, heads(["encoder_self"], method="simple_routing"), 6 * 2_097_152),
        (BASE, heads(["encoder_self"]), 6 * 2_098_176),
        (BASE, heads(["cross"]), 6 * 2_098_176),
        (BASE, heads(["decoder_self"]), 6 * 2_098_176),
        (BASE, heads(["encoder_self", "cross"]), 12 * 2_098_176),
        (BASE, heads(["encoder_self", "cross", "decoder_self"]), 18 * 2_098_176),
        (BASE, heads(["encoder_self"], [3, 4, 5]), 3 * 2_098_176),
        (BASE, heads(["encoder_self"], [0, 1]), 2 * 2_098_176),
        (BASE, heads(["encoder_self"], [0]), 2_098_176),
        # and their equation 6 taken literally: votes of 64 inputs each instead of 512
        (BASE, heads(["encoder_self"]) | {"head_aggregation_vote_input": "own"}, 6 * (2_098_176 - 7 * 8 * 64 * 512)),
        # table 4: 264M -> 297M
        (BIG, heads(["encoder_self"], [0, 1]), 33_558_528),
        # Zheng et al., table 1: 66.1M + 2.9M, and the rows below it
        (BASE, GDR | {"guided_bow_weight": 0, "guided_bca_weight": 0}, 2_884_864),
        (BASE, GDR | {"guided_bca_weight": 0}, 2_884_864 + 262_144),
        (BASE, GDR | {"guided_bow_weight": 0}, 2_884_864 + 524_288),
        (BASE, GDR, 3_671_296),
        (BASE, GDR | {"guided_num_redundant_capsules": 0}, 3_671_296 - 1_048_576),
        # one iteration has no scores: without W_b and w
        (BASE, GDR | {"guided_num_iterations": 1}, 3_671_296 - 262_144 - 256),
        # the baselines of figure 6, by their parts: values, keys, queries, scores, FF and losses
        (BASE, GDR | {"guided_routing": "classifier"}, 524_288 + 2 * 131_072 + 3 * 256 + 1_049_600 + 786_432),
        (BASE, GDR | {"guided_routing": "attention"}, 524_288 + 4 * 131_072 + 2 * 256 + 1_049_600 + 786_432),
        (BASE, layers("em_routing") | GDR, 56_639_488 + 3_671_296),
        # any mix is the sum of its parts
        (BASE, layers("em_routing") | heads(["cross"], [5]), 56_639_488 + 2_098_176),
    ],
)
def test_added_parameters(sizes, settings, expected):
    assert added(sizes, **settings) == expected


@pytest.mark.parametrize("side", ["encoder", "decoder"])
@pytest.mark.parametrize("method", ["linear", "dynamic_combination", "dynamic_routing", "em_routing", "mudd"])
def test_one_side_has_half(side, method):  # Dou et al., table 4
    both_sides = added(BASE, **layers(method))
    assert 2 * added(BASE, **layers(method, side=side)) == both_sides


def rnmt(**settings):
    with torch.device("meta"):
        model = CapsuleRNMTForConditionalGeneration(CapsuleRNMTConfig(vocab_size=1000, **settings))
    return sum(p.numel() for p in model.parameters())


def test_guidance_adds_to_rnmt_what_it_adds_to_the_transformer():  # Zheng et al., table 1: 50.2M -> 53.9M
    assert rnmt(guided_routing="guided") - rnmt() == 3_671_296
