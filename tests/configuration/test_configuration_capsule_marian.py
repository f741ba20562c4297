"""The configuration of Capsule Marian: typed, validated, never silent about a mistake."""

import json
import logging

import pytest
import torch
from transformers import AutoConfig, MarianConfig, MarianMTModel, T5Config

from hf_capsule_mt import (
    CapsNMTConfig,
    CapsNMTModel,
    CapsuleMarianConfig,
    CapsuleMarianMTModel,
    CapsuleRNMTConfig,
    CapsuleRNMTForConditionalGeneration,
)
from tests.fixtures.tiny import save_tiny_checkpoint
from tests.light.models.files import edit_json

SPECIAL_TOKENS = ("pad_token_id", "eos_token_id", "forced_eos_token_id", "decoder_start_token_id")
SWITCHED_ON = {
    "layer_aggregation": "em_routing",
    "layer_aggregation_side": "decoder",
    "layer_aggregation_num_capsules": 256,
    "layer_aggregation_num_iterations": 2,
    "layer_aggregation_init_std": 0.05,
    "head_aggregation": "simple_routing",
    "head_aggregation_sites": ["cross"],
    "head_aggregation_layers": [0, 3],
    "head_aggregation_init_std": 0.02,
    "em_lambda_final": 0.5,
    "label_smoothing": 0.1,
    "guided_routing": "guided",
    "guided_num_capsules": 3,
    "guided_num_redundant_capsules": 0,
    "guided_capsule_dim": 64,
    "guided_num_iterations": 2,
    "guided_score": "released",
    "guided_ffn_dim": 128,
    "guided_bow_weight": 0.5,
    "guided_bca_weight": 2.0,
    "guided_bow_bags": "exclusive",
    "decoder_self": "ssru",
    "marian_positions": True,
}


def test_defaults_are_marians():
    ours, marians = CapsuleMarianConfig(), MarianConfig()
    for name, value in marians.to_dict().items():
        if name not in ("model_type", "transformers_version"):
            assert getattr(ours, name) == value, name


def test_round_trip(tmp_path):
    config = CapsuleMarianConfig(**SWITCHED_ON)
    config.save_pretrained(tmp_path)
    for loaded in (CapsuleMarianConfig.from_pretrained(tmp_path), AutoConfig.from_pretrained(tmp_path)):
        assert type(loaded) is CapsuleMarianConfig
        assert loaded == config
    saved = json.loads((tmp_path / "config.json").read_text())
    for name, value in SWITCHED_ON.items():
        assert saved[name] == value


def test_another_family_is_refused_by_name(tmp_path):
    save_tiny_checkpoint(tmp_path)
    message = (
        "its config.json has the `model_type` 'capsule_marian', so it cannot be loaded as '{}'; use {} or AutoModel"
    )
    for kind in (CapsNMTConfig, CapsuleRNMTConfig, CapsNMTModel, CapsuleRNMTForConditionalGeneration):
        model_type = getattr(kind, "config_class", kind).model_type
        with pytest.raises(ValueError, match=message.format(model_type, "CapsuleMarianMTModel")):
            kind.from_pretrained(tmp_path)
    edit_json(tmp_path / "config.json", architectures=None)
    with pytest.raises(ValueError, match=message.format("capsnmt", "its own class")):
        CapsNMTConfig.from_pretrained(tmp_path)
    T5Config().save_pretrained(tmp_path)
    with pytest.raises(
        ValueError, match="'t5', so it cannot be loaded as 'capsule_marian'; use its own class or Auto"
    ):
        CapsuleMarianMTModel.from_pretrained(tmp_path)


def test_marian_can_be_loaded(tmp_path):
    torch.manual_seed(1)
    sizes = {
        f"{side}_{name}": 2 for side in ("encoder", "decoder") for name in ("layers", "attention_heads", "ffn_dim")
    }
    marian = MarianMTModel(MarianConfig(vocab_size=11, d_model=8, **dict.fromkeys(SPECIAL_TOKENS, 10), **sizes)).eval()
    marian.save_pretrained(tmp_path)
    model = CapsuleMarianMTModel.from_pretrained(tmp_path)
    ids = torch.tensor([[1, 2, 3]])
    assert torch.equal(model(ids, decoder_input_ids=ids).logits, marian(ids, decoder_input_ids=ids).logits)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"layer_aggregation": "grn", "layer_aggregation_start": "top"},
            "`layer_aggregation_start` 'top' needs `layer_aggregation` linear or .* or em_routing, got 'grn'",
        ),
        (
            {"layer_aggregation_update_scale": 0.1},
            "`layer_aggregation_update_scale` 0.1 needs `layer_aggregation` linear or .*, got 'none'",
        ),
        ({"layer_aggregation_update_scale": 0}, "`layer_aggregation_update_scale` must be positive and finite, got 0"),
        (
            {
                "layer_aggregation": "em_routing",
                "layer_aggregation_start": "top",
                "layer_aggregation_capsule_input": "own",
            },
            '`layer_aggregation_start` "top" needs `layer_aggregation_capsule_input` "all"',
        ),
        ({"layer_aggregation_placement": "beside"}, r"'layer_aggregation_placement' expected one of .*adds"),
        ({"head_aggregation_placement": "beside"}, r"'head_aggregation_placement' expected one of .*adds"),
        ({"layer_aggregation": "em"}, r"'layer_aggregation' expected one of .*'em_routing'.* got em"),
        ({"layer_aggregation_num_capsules": 7}, r"`layer_aggregation_num_capsules` \(7\) .* `d_model` \(1024\)"),
        ({"d_model": 100}, r"`encoder_attention_heads` \(16\) must divide `d_model` \(100\)"),
        ({"dropout": 1.5}, r"`dropout` must be a probability in \[0, 1\), got 1.5"),
        ({"em_lambda_final": 0.0}, r"`em_lambda_final` must be positive and finite, got 0.0"),
        ({"em_min_variance": 0}, r"`em_min_variance` must be positive and finite, got 0"),
        (
            {"layer_aggregation_init_std": -0.1},
            r"`layer_aggregation_init_std` must be a finite number of at least 0, got -0.1",
        ),
        (
            {"layer_aggregation": "mudd", "depth_connections": True},
            r"`depth_connections` True needs `layer_aggregation` dense or depth_attention, got 'mudd'",
        ),
        ({"layer_aggregation": "linear", "decoder_layers": 0}, r'"linear" .* "both" .* `decoder_layers` is 0'),
        (
            {"head_aggregation": "em_routing", "head_aggregation_layers": [12]},
            r'has 12, but "encoder_self" has the layers 0 to 11 \(`encoder_layers` is 12\)',
        ),
        ({"head_aggregation": "em_routing", "head_aggregation_layers": []}, "without a layer"),
        ({"head_aggregation": "em_routing", "head_aggregation_sites": []}, "at least one of `head_aggregation_sites`"),
        (
            {"head_aggregation": "em_routing", "head_aggregation_sites": ["encoder"]},
            "has 'encoder', choose one of encoder_self, decoder_self, cross",
        ),
        (
            {"head_aggregation": "em_routing", "head_aggregation_sites": ["cross"], "decoder_layers": 0},
            r'has "cross", but `decoder_layers` is 0',
        ),
        ({"guided_num_redundant_capsules": -1}, "`guided_num_redundant_capsules` must be at least 0, got -1"),
        ({"guided_bca_weight": float("inf")}, "`guided_bca_weight` must be a finite number of at least 0, got inf"),
        ({"encoder_layers": 10**9}, "`encoder_layers` must be at most 1000, got 1000000000"),
        ({"pad_token_id": 58101}, r"`pad_token_id` \(58101\) must be a token of the vocabulary, 0 to 58100"),
        ({"eos_token_id": [0, -1]}, r"`eos_token_id` \(-1\) must be a token of the vocabulary, 0 to 58100"),
        ({"vocab_size": 100, "pad_token_id": 0}, r"`decoder_start_token_id` \(58100\) must be a token .*, 0 to 99"),
        (
            {"decoder_self": "ssru", "head_aggregation": "em_routing", "head_aggregation_sites": ["decoder_self"]},
            r"`head_aggregation_sites` \['decoder_self'\] has \"decoder_self\", where `decoder_self` \"ssru\" has no",
        ),
        (
            {"marian_positions": True, "d_model": 15, "encoder_attention_heads": 1, "decoder_attention_heads": 1},
            "`marian_positions` needs an even `d_model` of at least 4, got 15",
        ),
        ({"layer_norm_eps": 0.0}, "`layer_norm_eps` must be positive and finite, got 0"),
        ({"activation_function": "nonsense"}, "`activation_function` is 'nonsense', choose one of .*gelu.*relu"),
    ],
)
def test_mistakes_are_value_errors(settings, message):
    with pytest.raises(ValueError, match=message):
        CapsuleMarianConfig(**settings)


def test_the_old_name_of_the_placement_is_read(tmp_path):
    for residual, placement in ((False, "replaces"), (True, "adds")):
        config = CapsuleMarianConfig(layer_aggregation="em_routing", layer_aggregation_residual=residual)
        assert (config.layer_aggregation_placement, config.layer_aggregation_residual) == (placement, residual)
        saved = config.to_dict()
        assert saved["layer_aggregation_placement"] == placement
        assert "layer_aggregation_residual" not in saved
        values = {key: value for key, value in saved.items() if key != "layer_aggregation_placement"}
        (tmp_path / "config.json").write_text(json.dumps(values | {"layer_aggregation_residual": residual}))
        for loaded in (CapsuleMarianConfig.from_pretrained(tmp_path), AutoConfig.from_pretrained(tmp_path)):
            assert loaded == config
        for override in ({"layer_aggregation_placement": "adds"}, {"layer_aggregation_residual": True}):
            loaded = CapsuleMarianConfig.from_pretrained(tmp_path, **override)
            assert loaded.layer_aggregation_placement == "adds"
    with pytest.raises(AttributeError, match="layer_aggregation_residual"):
        config.layer_aggregation_residual = False


@pytest.mark.parametrize("residual", [False, True])
def test_the_old_name_of_the_placement_may_not_contradict_the_new_one(residual):
    placements = ("replaces", "adds")
    both = {"layer_aggregation_residual": residual, "layer_aggregation_placement": placements[residual]}
    assert CapsuleMarianConfig(**both).layer_aggregation_placement == placements[residual]
    message = f"`layer_aggregation_residual` {residual}, .* `layer_aggregation_placement` '{placements[not residual]}'"
    with pytest.raises(ValueError, match=message):
        CapsuleMarianConfig(**both | {"layer_aggregation_placement": placements[not residual]})
    with pytest.raises(ValueError, match="`layer_aggregation_residual` must be True or False, got 'adds'"):
        CapsuleMarianConfig(layer_aggregation_residual="adds")


def test_a_small_vocabulary_pads_with_its_last_token():
    assert CapsuleMarianConfig().pad_token_id == 58100
    assert CapsuleMarianConfig(vocab_size=60000, decoder_start_token_id=0).pad_token_id == 58100
    config = CapsuleMarianConfig(vocab_size=99, decoder_start_token_id=0)
    assert config.pad_token_id == 98
    assert CapsuleMarianConfig.from_dict(config.to_diff_dict()).pad_token_id == 98
    assert CapsuleMarianConfig(vocab_size=99, decoder_start_token_id=0, pad_token_id=None).pad_token_id is None
    with pytest.raises(ValueError, match=r"`pad_token_id` \(58100\) must be a token of the vocabulary, 0 to 98"):
        CapsuleMarianConfig(vocab_size=99, decoder_start_token_id=0, pad_token_id=58100)


def test_misspelt_keywords_are_refused(tmp_path):
    misspelt = "layer_agregation"
    with pytest.raises(ValueError, match=f"no field `{misspelt}`; did you mean `layer_aggregation`"):
        CapsuleMarianConfig(**{misspelt: "linear"})
    CapsuleMarianConfig().save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=f"no field `{misspelt}`; did you mean"):
        CapsuleMarianConfig.from_pretrained(tmp_path, **{misspelt: "linear"})


def test_unknown_keywords_log_a_warning(caplog):
    with caplog.at_level(logging.WARNING):
        config = CapsuleMarianConfig(capsules_everywhere=True)
    assert "no field `capsules_everywhere`" in caplog.text
    assert config.capsules_everywhere
    caplog.clear()
    CapsuleMarianConfig(num_beams=4, name_or_path="x", output_attentions=False)
    assert not caplog.text


def test_assignments_are_checked_too(tmp_path):
    config = CapsuleMarianConfig()
    with pytest.raises(ValueError, match="'layer_aggregation' expected one of"):
        config.layer_aggregation = "em"
    CapsuleMarianConfig().save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="must divide"):
        CapsuleMarianConfig.from_pretrained(tmp_path, layer_aggregation_num_capsules=7)
