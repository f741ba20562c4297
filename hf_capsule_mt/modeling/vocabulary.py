"""Embeddings and output projections, of one vocabulary or of two: what all families of models share."""

from typing import Any

from torch import nn

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


class VocabularyOfModel:
    """Mixin before `PreTrainedModel`, for a base model of `encoder`, `decoder` and, of one vocabulary, `shared`."""

    config: Any
    encoder: Any
    decoder: Any
    shared: nn.Embedding

    def get_input_embeddings(self) -> nn.Embedding:
        return self.encoder.embed_tokens

    def set_input_embeddings(self, value: Any) -> None:
        self.encoder.embed_tokens = value
        if self.config.share_encoder_decoder_embeddings:
            self.shared = value
            self.decoder.embed_tokens = value

    def get_decoder_input_embeddings(self) -> nn.Embedding:
        self._refuse_shared_embeddings("get_decoder_input_embeddings", "get_input_embeddings")
        return self.decoder.embed_tokens

    def set_decoder_input_embeddings(self, value: nn.Embedding) -> None:
        self._refuse_shared_embeddings("set_decoder_input_embeddings", "set_input_embeddings")
        self.decoder.embed_tokens = value

    def _resize_token_embeddings(self, new_num_tokens: int, *args: Any, **kwargs: Any) -> nn.Embedding:
        if not self.config.share_encoder_decoder_embeddings:
            self.encoder.embed_tokens = self._resized(self.encoder.embed_tokens, new_num_tokens, *args, **kwargs)
        elif self.config.tie_word_embeddings:
            self.set_input_embeddings(self._resized(self.encoder.embed_tokens, new_num_tokens, *args, **kwargs))
        else:  # one vocabulary, but three matrices
            for owner, name in ((self, "shared"), (self.encoder, "embed_tokens"), (self.decoder, "embed_tokens")):
                setattr(owner, name, self._resized(getattr(owner, name), new_num_tokens, *args, **kwargs))
        if self.config.share_encoder_decoder_embeddings:
            self.config.decoder_vocab_size = self.encoder.embed_tokens.num_embeddings
        return self.encoder.embed_tokens

    def resize_decoder_token_embeddings(self, new_num_tokens: int) -> nn.Embedding:
        """For a separate target vocabulary."""
        self._refuse_shared_embeddings("resize_decoder_token_embeddings", "resize_token_embeddings")
        self.decoder.embed_tokens = self._resized(self.decoder.embed_tokens, new_num_tokens)
        self.config.decoder_vocab_size = self.decoder.embed_tokens.num_embeddings
        return self.decoder.embed_tokens

    def _resized(self, embeddings: nn.Embedding, new_num_tokens: int, *args: Any, **kwargs: Any) -> nn.Embedding:
        return self._get_resized_embeddings(embeddings, new_num_tokens, *args, **kwargs)  # type: ignore[attr-defined]

    def _refuse_shared_embeddings(self, method: str, instead: str) -> None:
        if self.config.share_encoder_decoder_embeddings:
            raise ValueError(f"`{method}` needs `share_encoder_decoder_embeddings=False`, use `{instead}`")


class VocabularyOfGeneration:
    """Mixin before `PreTrainedModel`, for a generation model of a base `model` and an output projection `lm_head`."""

    config: Any
    model: Any
    lm_head: nn.Linear

    def _resize_token_embeddings(self, new_num_tokens: int, *args: Any, **kwargs: Any) -> nn.Embedding:
        embeddings = self.model._resize_token_embeddings(new_num_tokens, *args, **kwargs)
        if self.config.share_encoder_decoder_embeddings and not self.config.tie_word_embeddings:
            self._resize_lm_head(embeddings.num_embeddings)
        return embeddings

    def resize_decoder_token_embeddings(self, new_num_tokens: int) -> nn.Embedding:
        """For a separate target vocabulary."""
        embeddings = self.model.resize_decoder_token_embeddings(new_num_tokens)
        if not self.config.tie_word_embeddings:
            self._resize_lm_head(new_num_tokens)
        self.tie_weights()  # type: ignore[attr-defined]
        self.lm_head.out_features = new_num_tokens
        return embeddings

    def _resize_lm_head(self, new_num_tokens: int) -> None:
        self.lm_head = self._get_resized_lm_head(self.lm_head, new_num_tokens)  # type: ignore[attr-defined]
