"""The models of CTranslate2 that are built here: layers of OpenNMT-py and -tf, Marian and fairseq, and file types.

Each is the arguments of `build` in process.py. `REFUSED` has what the error names.
"""

from typing import Any

RELU, GELU_TANH, SWISH, GELU, GELU_SIGMOID, TANH, SIGMOID = range(7)
POST = {"pre_norm": False}
MARIAN = {  # as the converters of Marian and of transformers write it
    "spec": {**POST, "activation": SWISH},
    "settings": {"decoder/start_from_zero_embedding": True},
    "config": {"add_source_eos": True, "decoder_start_token": "</s>"},
}
SEPARATE = {"shared": False, "tied": True, "source_size": 300}

VARIANTS: dict[str, dict[str, Any]] = {
    "default": {},
    "gelu": {"spec": {"activation": GELU}},
    "swish": {"spec": {"activation": SWISH}},
    "gelu-sigmoid": {"spec": {"activation": GELU_SIGMOID}},
    "sigmoid": {"spec": {"activation": SIGMOID}},
    "post": {"spec": POST},
    "post-gelu": {"spec": {**POST, "activation": GELU}},
    "no-top": {"spec": {"no_final_norm": True}},
    "embeddings-norm": {"spec": {"layernorm_embedding": True}},
    "post-embeddings-norm": {"spec": {**POST, "layernorm_embedding": True}},
    "sinusoids": {"positions": False},
    "no-biases": {"biases": False},
    "separate": SEPARATE,
    "separate-post": {**SEPARATE, "spec": POST},
    "untied": {"tied": False},
    "separate-untied": {**SEPARATE, "tied": False},
    "not-scaled": {"settings": {"encoder/scale_embeddings": False, "decoder/scale_embeddings": False}},
    "scaled-by-number": {"settings": {"encoder/scale_embeddings": 32**0.5, "decoder/scale_embeddings": 32**0.5}},
    "epsilon": {"config": {"layer_norm_epsilon": 1e-3}},
    "source-ends": {"config": {"add_source_bos": True, "add_source_eos": True}},
    "end-starts": {"config": {"decoder_start_token": "</s>"}},
    "marian": MARIAN,
    "marian-separate": {**MARIAN, **SEPARATE},
    "marian-untied": {**MARIAN, "tied": False},
    **{quantization: {"quantization": quantization} for quantization in ("float16", "bfloat16", "int16")},
    **{name: {"quantization": name} for name in ("int8", "int8_float32", "int8_float16", "int8_bfloat16")},
    "marian-int8": {**MARIAN, "quantization": "int8"},
    "marian-int16": {**MARIAN, "quantization": "int16"},
    "separate-int8": {**SEPARATE, "quantization": "int8"},
}
BUILT_REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "relative-positions": ({"spec": {"with_relative_position": True}, "positions": False}, "relative_position_keys"),
    "t5-positions": ({"spec": {"relative_attention_bias": True}, "positions": False}, "relative_attention_bias"),
    "alibi": ({"spec": {"alibi": True}}, "alibi"),
    "rotary": ({"spec": {"rotary_dim": 8}}, "rotary_"),
    "gated": ({"spec": {"ffn_glu": True}}, "linear_0_noact"),
    "rms": ({"spec": {"rms_norm": True}}, "root mean square"),
    "multi-query": ({"spec": {"multi_query_attention": True}}, "multi_query"),
    "gelu-tanh": ({"spec": {"activation": GELU_TANH}}, "GELU by the hyperbolic tangent"),
    "tanh": ({"spec": {"activation": TANH}}, "the hyperbolic tangent"),
    "factors": ({"spec": {"num_source_embeddings": 2}, "shared": False}, "factors"),
    "scaled-by-three": ({"settings": {"encoder/scale_embeddings": 3.0}}, "scale_embeddings"),
    "queries-scale": ({"settings": {"encoder/layer_0/self_attention/queries_scale": 0.25}}, "queries_scale"),
    "no-start": ({"config": {"decoder_start_token": None}}, "decoder_start_token"),
}
