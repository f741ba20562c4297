"""Configuration of CapsNMT (Wang et al., "Towards Linear Time Neural Machine Translation with Capsule Networks")."""

import math
from typing import Any, Literal

from hf_capsule_mt.configuration.common import (
    MAX_CAPSULES,
    MAX_ITERATIONS,
    MAX_LAYERS,
    MAX_UNITS,
    MAX_VOCABULARY_SIZE,
    CapsulePreTrainedConfig,
    capsule_config,
    check_not_negative,
    check_probability,
    check_range,
)

SourceAggregationMethod = Literal["capsules", "pooling"]
# the vectors of the simple baseline: maximum, mean, first and last state (equation 4 of the paper)
NUM_POOLED_VECTORS = 4


@capsule_config
class CapsNMTConfig(CapsulePreTrainedConfig):
    r"""
    Configuration of [`CapsNMTModel`] and [`CapsNMTForConditionalGeneration`]. The defaults are the paper's base model;
    its big model has `hidden_size=1024`.

    Args:
        vocab_size (`int`, defaults to 50000):
            Size of the vocabulary that source and target share.
        hidden_size (`int`, defaults to 512):
            Width of every state and of every capsule; even, as each direction of the encoder has half of it.
        embedding_size (`int`, *optional*):
            Width of the embeddings; `None` is `hidden_size`.
        encoder_layers (`int`, defaults to 4):
            Bidirectional LSTM layers.
        decoder_layers (`int`, defaults to 3):
            LSTM layers of the decoder.
        aggregation (`str`, defaults to `"capsules"`):
            How the states of the source become a fixed number of vectors: routed to `"capsules"`, or the simple
            baseline of the paper, `"pooling"`: their maximum, their mean, the first and the last.
        num_capsules (`int`, defaults to 6):
            Number of capsules that the source is routed to.
        num_iterations (`int`, defaults to 3):
            Routing iterations.
        share_iteration_weights (`bool`, defaults to `False`):
            Use the same transformation matrices in all iterations.
        position_aware (`bool`, defaults to `True`):
            Add positional encodings to the states, and to the capsules where they are compared with the states.
        separable_scoring (`bool`, defaults to `True`):
            Compare capsules and states by a network of their own rather than capsules and votes.
        score_scale (`float`, defaults to 1.0):
            Factor of the routing's scores. 1 is the paper; below it, assignments stay softer.
        compared_capsule_scale (`float`, defaults to 1.0):
            Factor of the capsules where they are compared with the states. 1 is the paper, where a capsule of length
            below 1 is added to a positional encoding of length sqrt(`hidden_size` / 2); sqrt(`hidden_size`) makes
            both about as long.
        normalize_capsules (`bool`, defaults to `False`):
            Give the decoder each capsule normalised (LayerNorm) instead of multiplied by sqrt(`hidden_size`).
        source_attention (`bool`, defaults to `False`):
            Let the decoder also attend to the states of the source. A step then depends on the length of the source.
        dropout (`float`, defaults to 0.1):
            Dropout of the embeddings and of the output of each layer before it is added to the layer's input.
        scale_embedding (`bool`, defaults to `True`):
            Multiply embeddings by the square root of their width.
        label_smoothing (`float`, defaults to 0.0):
            Label smoothing of the loss in training mode, in place of the Trainer's `label_smoothing_factor`.
        init_std (`float`, *optional*):
            Standard deviation of new embeddings; `None` is one over the square root of their width, which makes scaled
            embeddings as large as normalised states. Other matrices do not depend on it.
    """

    model_type = "capsnmt"
    lora_target_modules = ("votes", "source_projection", "inner_scoring", "outer_scoring")
    keys_to_ignore_at_inference = ["cache", "past_key_values", "nll_loss", "routing_weights"]
    attribute_map = {"num_hidden_layers": "encoder_layers"}

    vocab_size: int = 50000
    hidden_size: int = 512
    embedding_size: int | None = None
    encoder_layers: int = 4
    decoder_layers: int = 3
    aggregation: SourceAggregationMethod = "capsules"
    num_capsules: int = 6
    num_iterations: int = 3
    share_iteration_weights: bool = False
    position_aware: bool = True
    separable_scoring: bool = True
    score_scale: float | int = 1.0
    compared_capsule_scale: float | int = 1.0
    normalize_capsules: bool = False
    source_attention: bool = False
    dropout: float | int = 0.1
    scale_embedding: bool = True
    init_std: float | int | None = None
    use_cache: bool = True
    is_encoder_decoder: bool = True
    is_decoder: bool = False
    tie_word_embeddings: bool = True
    pad_token_id: int | None = 0
    eos_token_id: int | list[int] | None = 1
    bos_token_id: int | None = None
    decoder_start_token_id: int = 0

    def __post_init__(self, **kwargs: Any) -> None:
        self.embedding_size = self.embedding_size or self.hidden_size
        if self.init_std is None:
            self.init_std = abs(self.embedding_width) ** -0.5
        super().__post_init__(**kwargs)

    @property
    def embedding_width(self) -> int:
        return self.embedding_size or self.hidden_size

    @property
    def num_source_vectors(self) -> int:
        """Number of vectors that the decoder gets, whatever the length of the source."""
        return self.num_capsules if self.aggregation == "capsules" else NUM_POOLED_VECTORS

    def validate_sizes(self) -> None:
        check_range(self, 1, MAX_VOCABULARY_SIZE, "vocab_size")
        check_range(self, 1, MAX_LAYERS, "encoder_layers", "decoder_layers")
        check_range(self, 1, MAX_CAPSULES, "num_capsules")
        check_range(self, 1, MAX_ITERATIONS, "num_iterations")
        check_range(self, 2, MAX_UNITS, "hidden_size")
        check_range(self, 1, MAX_UNITS, "embedding_size")
        check_probability(self, "dropout")
        check_not_negative(self, "init_std")
        for name in ("score_scale", "compared_capsule_scale"):
            if not 0 < getattr(self, name) < math.inf:
                raise ValueError(f"`{name}` must be a positive number, got {getattr(self, name)}")
        if self.hidden_size % 2:
            raise ValueError(
                f"`hidden_size` must be even, half for each direction of the encoder, got {self.hidden_size}"
            )
