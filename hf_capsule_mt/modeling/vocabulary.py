"""Embeddings and output projections of one vocabulary, or of one for each side: what Marian and RNMT share."""

from collections.abc import Iterable
from itertools import takewhile
from typing import Any, cast

from torch import nn
from transformers import PreTrainedConfig

from hf_capsule_mt.configuration.configuration_capsule_marian import CapsuleMarianConfig
from hf_capsule_mt.configuration.configuration_capsule_rnmt import CapsuleRNMTConfig
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


def _vocabularies(config: PreTrainedConfig) -> CapsuleMarianConfig | CapsuleRNMTConfig:
    """Narrow the type of a config to those that know of separate vocabularies."""
    return cast(CapsuleMarianConfig | CapsuleRNMTConfig, config)


def decode_target(tokenizer: Any, sequence: Iterable[int], clean_up_tokenization_spaces: bool | None = None) -> str:
    """Return the text of a generated sequence, from the decoder's start token on, without its special tokens.

    `MarianTokenizer` has the ids of special tokens in the source vocabulary alone. In another target vocabulary they
    may be words, which it would leave out.
    """
    clean_up = clean_up_tokenization_spaces
    if not getattr(tokenizer, "separate_vocabs", False):
        return str(tokenizer.decode(sequence, skip_special_tokens=True, clean_up_tokenization_spaces=clean_up))
    special = set(tokenizer.all_special_tokens)
    words = [tokenizer.decoder.get(int(token), tokenizer.unk_token) for token in sequence][1:]
    words = [word for word in takewhile(lambda word: word != tokenizer.eos_token, words) if word not in special]
    tokenizer._decode_use_source_tokenizer = False
    text = str(tokenizer.convert_tokens_to_string(words))
    return str(tokenizer.clean_up_tokenization(text)) if clean_up else text


def target_vocabulary(tokenizer: Any) -> dict[str, int]:
    """Return the ids of a tokenizer's target tokens, which may have a vocabulary of their own."""
    backend = getattr(tokenizer, "_target_backend", None)  # of a SeparateVocabulariesTokenizer
    own = backend.get_vocab() if backend is not None else getattr(tokenizer, "target_encoder", None)
    return tokenizer.get_vocab() if own is None else own


def vocabularies_of(tokenizer: Any) -> list[dict[str, int]]:
    """Return what the tokens of a tokenizer mean, of the source and of the target."""
    return [tokenizer.get_vocab(), target_vocabulary(tokenizer)]


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
