"""The options that a model of Marian has, as the configuration of a Capsule Marian."""

from collections.abc import Mapping
from typing import Any

from capsule_mt.engine.program import UnsupportedModelError
from capsule_mt.messages import shown
from capsule_mt.models.marian_variant import OPTIONS_READ, variant_of

LAYER_NORM_EPSILON = 1e-6
POSITIONS = 1024  # Marian itself has no limit
# the values that these options may have
REQUIRED: dict[str, tuple[Any, ...]] = {
    "type": ("transformer",),
    "input-types": ([], ["sequence", "sequence"]),
    "transformer-attention-mask": ("default",),
}
# Options that may be on: those of other model types, those of training, and those that `config_of` reads. All other
# options must be off.
OTHER_TYPES = ("bert-", "dec-cell-", "enc-cell", "enc-type", "ulr-", "dim-rnn", "factors-combine")
ALLOWED = OPTIONS_READ | {
    *("output-omit-bias", "skip", "transformer-depth-scaling", "transformer-guided-alignment-layer", "version"),
    *("dec-depth", "dim-emb", "dim-vocabs", "enc-depth", "tied-embeddings", "tied-embeddings-all"),
    *("separator-symbol", "tied-embeddings-src", "transformer-heads"),
    *("transformer-decoder-dim-ffn", "transformer-dim-ffn"),
    # Marian's code for `type` "transformer" does not read these; a learned table of positions would be a weight
    *("transformer-no-affine", "transformer-no-bias", "transformer-train-position-embeddings"),
}


def refuse_unsupported(options: Mapping[str, Any], origin: str) -> None:
    """Refuse the options of a model that are not supported."""
    for name, value in options.items():
        if name in REQUIRED and value not in REQUIRED[name]:
            accepted = " or ".join(map(repr, REQUIRED[name]))
            raise UnsupportedModelError(f"{origin}: `{name}` {shown(value)} is not supported, only {accepted}")
        if value and name not in REQUIRED and name not in ALLOWED and not name.startswith(OTHER_TYPES):
            raise UnsupportedModelError(f"{origin}: `{name}` {shown(value)} is not supported")


def config_of(options: Mapping[str, Any], origin: str, vocabulary: int) -> dict[str, Any]:
    """Return the configuration of a model with these options."""
    variant = variant_of(options, origin)
    ties_all, ties_output, ties_source = (
        bool(options.get(f"tied-embeddings{suffix}")) for suffix in ("-all", "", "-src")
    )
    heads, width = options.get("transformer-heads"), options.get("transformer-dim-ffn")
    return {
        "architectures": ["CapsuleMarianMTModel"],
        "model_type": "capsule_marian",
        "decoder_self": variant.decoder_self,
        "marian_variant": variant,
        "marian_positions": True,
        "vocab_size": vocabulary,
        "layer_norm_eps": LAYER_NORM_EPSILON,
        "d_model": options.get("dim-emb"),
        "encoder_layers": options.get("enc-depth"),
        "decoder_layers": options.get("dec-depth"),
        "encoder_attention_heads": heads,
        "decoder_attention_heads": heads,
        "encoder_ffn_dim": width,
        "decoder_ffn_dim": options.get("transformer-decoder-dim-ffn") or width,
        "activation_function": options.get("transformer-ffn-activation", "swish"),
        "scale_embedding": True,
        "share_encoder_decoder_embeddings": ties_all or (ties_output and ties_source),
        "decoder_vocab_size": vocabulary,
        "tie_word_embeddings": ties_all or ties_output,
        "max_position_embeddings": POSITIONS,
    }
