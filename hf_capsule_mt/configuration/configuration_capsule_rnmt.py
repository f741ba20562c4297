"""Configuration of RNMT: an attentional GRU encoder-decoder, and the fields of guided dynamic routing."""

from typing import Any

from hf_capsule_mt.configuration.common import (
    MAX_LAYERS,
    MAX_UNITS,
    MAX_VOCABULARY_SIZE,
    TargetVocabulary,
    capsule_config,
    check_not_negative,
    check_probability,
    check_range,
)
from hf_capsule_mt.configuration.guided import GuidedConfig


@capsule_config
class CapsuleRNMTConfig(TargetVocabulary, GuidedConfig):
    r"""
    Configuration of [`CapsuleRNMTModel`] and [`CapsuleRNMTForConditionalGeneration`].

    Args:
        vocab_size (`int`, defaults to 32000):
            Number of tokens in the vocabulary; with `share_encoder_decoder_embeddings=False`, in the source's.
        decoder_vocab_size (`int`, *optional*):
            Number of tokens in a separate target vocabulary. `None` is `vocab_size`.
        hidden_size (`int`, defaults to 512):
            Width of the states of encoder and decoder, even: the encoder has one half for each direction.
        embedding_size (`int`, *optional*):
            Width of the embeddings. `None` is `hidden_size`.
        encoder_layers (`int`, defaults to 2):
            Number of bidirectional GRU layers of the encoder.
        decoder_layers (`int`, defaults to 2):
            Number of layers of the decoder: the lowest is the conditional GRU that attends to the source, those above
            it are GRUs.
        dropout (`float`, defaults to 0.1):
            Probability of dropout on the embeddings and on the output of each layer.
        init_std (`float`, defaults to 0.02):
            Standard deviation of the initial embeddings.
        label_smoothing (`float`, defaults to 0.0):
            Label smoothing of the loss in training mode, in place of the Trainer's `label_smoothing_factor`.
        share_encoder_decoder_embeddings (`bool`, defaults to `True`):
            One vocabulary for source and target.
        tie_word_embeddings (`bool`, defaults to `True`):
            One matrix for the embeddings of the target words and the output projection and, with one vocabulary, for
            the embeddings of the source words too.
        guided_routing (`str`, defaults to `"none"`):
            Guided dynamic routing of the source words to PAST and FUTURE (Zheng et al. 2019): `"guided"`, or its
            baselines `"classifier"` and `"attention"`. [`GuidedConfig`] describes this field and the others that
            begin with `guided_`.
    """

    model_type = "capsule_rnmt"
    lora_target_modules = ("query_projection", "key_projection", "score", "readout", "first_states")
    keys_to_ignore_at_inference = ["cache", "past_key_values", "nll_loss", "bow_loss", "bca_loss", "routing_weights"]
    attribute_map = {"num_hidden_layers": "encoder_layers", "d_model": "hidden_size"}

    vocab_size: int = 32000
    decoder_vocab_size: int | None = None
    hidden_size: int = 512
    embedding_size: int | None = None
    encoder_layers: int = 2
    decoder_layers: int = 2
    dropout: float | int = 0.1
    init_std: float = 0.02
    use_cache: bool = True
    is_encoder_decoder: bool = True
    pad_token_id: int | None = 0
    eos_token_id: int | list[int] | None = 1
    bos_token_id: int | None = None
    decoder_start_token_id: int = 0
    share_encoder_decoder_embeddings: bool = True
    tie_word_embeddings: bool = True

    def __post_init__(self, **kwargs: Any) -> None:
        if self.decoder_vocab_size is None:
            self.decoder_vocab_size = self.vocab_size
        if self.embedding_size is None:
            self.embedding_size = self.hidden_size
        super().__post_init__(**kwargs)

    @property
    def embedding_width(self) -> int:
        return self.hidden_size if self.embedding_size is None else self.embedding_size

    def validate_sizes(self) -> None:
        if self.hidden_size < 2 or self.hidden_size % 2:
            raise ValueError(
                f"`hidden_size` must be even and at least 2, one half for each direction of the encoder, got "
                f"{self.hidden_size}"
            )
        check_range(self, 1, MAX_VOCABULARY_SIZE, "vocab_size", "decoder_vocab_size")
        check_range(self, 1, MAX_LAYERS, "encoder_layers", "decoder_layers")
        check_range(self, 0, MAX_UNITS, "hidden_size")
        check_range(self, 1, MAX_UNITS, "embedding_size")
        check_probability(self, "dropout")
        check_not_negative(self, "init_std")
