"""The configuration of RNMT: typed, validated, never silent about a mistake."""

import pytest

from hf_capsule_mt import CapsuleRNMTConfig

CHANGED = {
    "vocab_size": 100,
    "hidden_size": 64,
    "embedding_size": 48,
    "encoder_layers": 3,
    "decoder_layers": 1,
    "dropout": 0.3,
    "label_smoothing": 0.1,
    "share_encoder_decoder_embeddings": False,
    "decoder_vocab_size": 90,
}


def test_defaults_follow_each_other():
    config = CapsuleRNMTConfig(hidden_size=64, vocab_size=100)
    assert config.embedding_size == 64
    assert config.target_vocab_size == config.decoder_vocab_size == 100
    assert CapsuleRNMTConfig(**CHANGED).target_vocab_size == 90
    # what a shared vocabulary says twice counts once
    assert CapsuleRNMTConfig(vocab_size=100, decoder_vocab_size=90).target_vocab_size == 100


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"hidden_size": 15}, r"`hidden_size` must be even and at least 2.* got 15"),
        ({"embedding_size": 0}, r"`embedding_size` must be at least 1, got 0"),
        ({"decoder_vocab_size": 2**40}, r"`decoder_vocab_size` must be at most 134217728"),
    ],
)
def test_mistakes_are_errors_that_say_what_is_wrong(settings, message):
    with pytest.raises(ValueError, match=message):
        CapsuleRNMTConfig(**settings)
