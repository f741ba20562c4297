"""A tokenizer of transformers as `capsule_mt.text` knows tokenizers."""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import cast

from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from capsule_mt.models.languages import code_of
from capsule_mt.text.tokenizer_protocol import Encoded, byte_ids_of
from capsule_mt.text.words import Offsets, locate_tokens
from hf_capsule_mt.modeling.target_text import decode_target

# a tokenizer's `model_max_length` above this means that it has no limit
NO_LIMIT = 1_000_000
MODEL_INPUTS = ("input_ids", "attention_mask", "token_type_ids", "offset_mapping")


class TransformersTokenizer:
    """Tokenises for a model of transformers, from one language to another if the tokenizer has several.

    `settings` is what the tokenizer gives for `generate()` beside tokens, such as the language of the translation.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        src_lang: str | None = None,
        tgt_lang: str | None = None,
        clean_up_tokenization_spaces: bool | None = None,
    ) -> None:
        self.tokenizer, self.src_lang, self.tgt_lang = tokenizer, src_lang, tgt_lang
        if hasattr(tokenizer, "_build_translation_inputs"):  # it has many languages
            self.src_lang = language_code(tokenizer, "src_lang", src_lang)
            self.tgt_lang = language_code(tokenizer, "tgt_lang", tgt_lang)
        self.clean_up = clean_up_tokenization_spaces
        self.unknown_id: int | None = tokenizer.unk_token_id
        self.special_ids = frozenset(tokenizer.all_special_ids) - {self.unknown_id}
        self.language_tokens = language_tokens(tokenizer)
        self.settings: dict[str, object] = {}

    @cached_property
    def byte_ids(self) -> frozenset[int]:
        return self._byte_ids()

    @cached_property
    def target_byte_ids(self) -> frozenset[int]:
        if not (getattr(self.tokenizer, "separate_vocabs", False) or hasattr(self.tokenizer, "target_vocab_size")):
            return self.byte_ids
        self.tokenizer._switch_to_target_mode()
        try:
            return self._byte_ids()
        finally:
            self.tokenizer._switch_to_input_mode()

    def _byte_ids(self) -> frozenset[int]:
        id_of = cast(Callable[[str], int | None], self.tokenizer.convert_tokens_to_ids)  # of one token
        return byte_ids_of(id_of, self.unknown_id)

    @property
    def is_multilingual(self) -> bool:
        return bool(self.language_tokens) or hasattr(self.tokenizer, "_build_translation_inputs")

    def encode(self, text: str) -> Encoded:
        options = {"return_offsets_mapping": True} if self.tokenizer.is_fast else {}
        build = getattr(self.tokenizer, "_build_translation_inputs", None)
        if build is not None:
            self._check_languages()
            encoded = build(text, return_tensors=None, src_lang=self.src_lang, tgt_lang=self.tgt_lang, **options)
        else:
            encoded = self.tokenizer(text, verbose=False, **options)
        self.settings = {key: value for key, value in encoded.items() if key not in MODEL_INPUTS}
        ids = list(encoded["input_ids"])
        offsets = encoded.get("offset_mapping")
        if offsets is None:
            return Encoded(ids, list(searched_offsets(self.tokenizer, text, ids)))
        return Encoded(ids, [None if start >= end else (start, end) for start, end in offsets])

    def _check_languages(self) -> None:
        """Raise a `ValueError` with examples if a language is missing."""
        for argument, language in (("src_lang", self.src_lang), ("tgt_lang", self.tgt_lang)):
            if language is None:
                code_of(argument, None, sorted(language_codes(self.tokenizer)))

    def encode_target(self, text: str) -> list[int]:
        """Encode a translation from the first token that the model chooses itself, with its end token."""
        ids = self.tokenizer(text_target=text, add_special_tokens=False, verbose=False)["input_ids"]
        return [*ids, self.tokenizer.eos_token_id]

    def labels(self, translation: str) -> list[int]:
        """Encode a translation as in training: with its language, if translations of this tokenizer have one."""
        if self.tgt_lang is not None and hasattr(self.tokenizer, "tgt_lang"):
            self.tokenizer.tgt_lang = self.tgt_lang
        return list(self.tokenizer(text_target=translation, verbose=False)["input_ids"])

    def decode(self, ids: Sequence[int]) -> str:
        separate = getattr(self.tokenizer, "separate_vocabs", False)
        return decode_target(self.tokenizer, [0, *ids] if separate else ids, self.clean_up)  # after a start token


def searched_offsets(tokenizer: PreTrainedTokenizerBase, text: str, token_ids: list[int]) -> Offsets:
    """Return the characters that each token stands for, where the tokenizer does not tell: look for its text."""
    tokens = tokenizer.convert_ids_to_tokens(token_ids)
    if getattr(tokenizer, "separate_vocabs", False):  # those were of the target
        of_source = {number: token for token, number in tokenizer.encoder.items()}
        tokens = [of_source.get(token_id, "") for token_id in token_ids]
    special, unknown_id = set(tokenizer.all_special_ids), getattr(tokenizer, "unk_token_id", None)
    pieces = [
        None if token_id == unknown_id else "" if token_id in special else token
        for token_id, token in zip(token_ids, tokens, strict=True)
    ]
    return locate_tokens(text, pieces)


def language_tokens(tokenizer: PreTrainedTokenizerBase) -> list[str]:
    """Return the tokens of target languages of a multilingual OPUS-MT model; none for any other."""
    return list(getattr(tokenizer, "supported_language_codes", None) or ())


def language_code(tokenizer: PreTrainedTokenizerBase, argument: str, language: str | None) -> str | None:
    """Return a multilingual tokenizer's code of a language, which may be given by another model's code.

    argument: the name for errors.
    """
    if language is None:
        return None
    codes = language_codes(tokenizer)
    added = tokenizer.get_added_vocab()
    language = language.strip("_")
    if not codes or language in added or f"__{language}__" in added:
        return language
    return code_of(argument, language, sorted(codes))


def language_codes(tokenizer: PreTrainedTokenizerBase) -> set[str]:
    """Return the codes of a multilingual tokenizer."""
    special = (*tokenizer.all_special_tokens, *(getattr(tokenizer, "lang_code_to_id", None) or ()))
    return {token.strip("_") for token in special if not token.startswith(("<", "["))}


def needs_more(config: PreTrainedConfig, tokenizer: PreTrainedTokenizerBase) -> bool:
    """Return whether a model reads a language or a prefix before each source."""
    settings_by_task = getattr(config, "task_specific_params", None) or {}
    return (
        hasattr(tokenizer, "_build_translation_inputs")
        or bool(language_tokens(tokenizer) or getattr(config, "prefix", None))
        or any(settings.get("prefix") for task, settings in settings_by_task.items() if task.startswith("translation"))
    )


def max_source_tokens(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> int | None:
    """Return the longest source in tokens that the model has positions for, or `None` if neither knows one."""
    lengths = (getattr(model.config, "max_position_embeddings", None), getattr(tokenizer, "model_max_length", None))
    limits = [limit for limit in lengths if limit is not None and 0 < limit < NO_LIMIT]
    return min(limits, default=None)
