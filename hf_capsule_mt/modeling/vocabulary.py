"""Embeddings and output projections of one vocabulary, or of one for each side: what Marian and RNMT share."""

from typing import Any, cast

from torch import nn
from transformers import PreTrainedConfig

from hf_capsule_mt.modeling.encoder_decoder import EncoderDecoderModel
from hf_capsule_mt.modeling.generation import TranslationModel

# Of one vocabulary, where the weights are those of `shared`: in a base model, and in a generation model around it
TIED_TO_SHARED = {
    "decoder.embed_tokens.weight": "shared.weight",
    "encoder.embed_tokens.weight": "shared.weight",
}
ALL_TIED_TO_SHARED = {
    "lm_head.weight": "model.shared.weight",
    "model.decoder.embed_tokens.weight": "model.shared.weight",
    "model.encoder.embed_tokens.weight": "model.shared.weight",
}


def _vocabularies(config: PreTrainedConfig) -> Any:
    """Return a config as what it is: one with `TargetVocabulary`."""
    return config


class VocabularyModel(EncoderDecoderModel):
    """Base of the base models with, of one vocabulary, `shared` embeddings."""

    shared: nn.Embedding

    def get_input_embeddings(self) -> nn.Embedding:
        return self.encoder.embed_tokens

    def set_input_embeddings(self, value: nn.Module) -> None:
        value = cast(nn.Embedding, value)
        self.encoder.embed_tokens = value
        if _vocabularies(self.config).share_encoder_decoder_embeddings:
            self.shared = value
            self.decoder.embed_tokens = value

    def get_decoder_input_embeddings(self) -> nn.Embedding:
        self._check_separate_vocabularies("get_decoder_input_embeddings", "get_input_embeddings")
        return self.decoder.embed_tokens

    def set_decoder_input_embeddings(self, value: nn.Embedding) -> None:
        self._check_separate_vocabularies("set_decoder_input_embeddings", "set_input_embeddings")
        self.decoder.embed_tokens = value

    def _resize_token_embeddings(
        self, new_num_tokens: int, pad_to_multiple_of: int | None = None, mean_resizing: bool = True
    ) -> nn.Embedding:
        def resize(embeddings: nn.Embedding) -> nn.Embedding:
            return self._get_resized_embeddings(embeddings, new_num_tokens, pad_to_multiple_of, mean_resizing)

        if not _vocabularies(self.config).share_encoder_decoder_embeddings:
            self.encoder.embed_tokens = resize(self.encoder.embed_tokens)
        elif self.config.tie_word_embeddings:
            self.set_input_embeddings(resize(self.encoder.embed_tokens))
        else:  # one vocabulary, but three matrices
            self.shared = resize(self.shared)
            for stack in (self.encoder, self.decoder):
                stack.embed_tokens = resize(stack.embed_tokens)
        if _vocabularies(self.config).share_encoder_decoder_embeddings:
            _vocabularies(self.config).decoder_vocab_size = self.encoder.embed_tokens.num_embeddings
        return self.encoder.embed_tokens

    def resize_decoder_token_embeddings(self, new_num_tokens: int) -> nn.Embedding:
        """Resize the embeddings of a separate target vocabulary."""
        self._check_separate_vocabularies("resize_decoder_token_embeddings", "resize_token_embeddings")
        self.decoder.embed_tokens = self._get_resized_embeddings(self.decoder.embed_tokens, new_num_tokens)
        _vocabularies(self.config).decoder_vocab_size = self.decoder.embed_tokens.num_embeddings
        return self.decoder.embed_tokens

    def _check_separate_vocabularies(self, method: str, instead: str) -> None:
        if _vocabularies(self.config).share_encoder_decoder_embeddings:
            raise ValueError(f"`{method}` needs `share_encoder_decoder_embeddings=False`, use `{instead}`")


class VocabularyTranslationModel(TranslationModel):
    """Base of the generation models around a `VocabularyModel`."""

    model: VocabularyModel

    def _resize_token_embeddings(
        self, new_num_tokens: int, pad_to_multiple_of: int | None = None, mean_resizing: bool = True
    ) -> nn.Embedding:
        embeddings = self.model._resize_token_embeddings(new_num_tokens, pad_to_multiple_of, mean_resizing)
        if _vocabularies(self.config).share_encoder_decoder_embeddings and not self.config.tie_word_embeddings:
            self.lm_head = self._get_resized_lm_head(self.lm_head, embeddings.num_embeddings)
        return embeddings

    def resize_decoder_token_embeddings(self, new_num_tokens: int) -> nn.Embedding:
        """Resize the embeddings, and the output projection, of a separate target vocabulary."""
        embeddings = self.model.resize_decoder_token_embeddings(new_num_tokens)
        if not self.config.tie_word_embeddings:
            self.lm_head = self._get_resized_lm_head(self.lm_head, new_num_tokens)
        self.tie_weights()
        self.lm_head.out_features = new_num_tokens
        return embeddings
