"""A model and a tokenizer of transformers as `capsule_mt.translate` knows models."""

import copy
from collections.abc import Mapping
from functools import cached_property
from typing import Any, cast

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from capsule_mt.models.checking import check_calibration
from capsule_mt.models.model import LoadedModel
from capsule_mt.text.segments import Segmenter
from capsule_mt.text.tokenizer_protocol import Tokenizer
from capsule_mt.translate.options import TranslationOptions
from capsule_mt.translate.translator_model import TranslatorModel
from hf_capsule_mt.decoding.attention import cross_attentions
from hf_capsule_mt.decoding.fast import settings_differ
from hf_capsule_mt.decoding.generate import GenerateDecoder
from hf_capsule_mt.decoding.transformers_tokenizer import TransformersTokenizer, max_source_tokens


class TransformersModel(TranslatorModel):
    """A model and its tokenizer, whose configurations may change between two calls."""

    _read: tuple[dict[str, Any], Mapping[str, Any]] | None = None  # a generation config, and what it sets

    def __init__(
        self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, decoder: GenerateDecoder, task: str
    ) -> None:
        self.model: Any = model
        self.tokenizer, self.decoder, self.task = tokenizer, decoder, task

    @property
    def folder(self) -> str:
        return str(self.model.name_or_path)

    def downloaded_folder(self, name: str) -> str | None:
        """Return `None`: only the engine loads models by their names."""
        return None

    @property
    def loaded(self) -> LoadedModel:
        """The model as it is now."""
        model, decoder = self.model, self.decoder
        positions = getattr(model.config, "max_position_embeddings", None)
        layers = len(cross_attentions(model))
        return LoadedModel(
            decoder=decoder,
            tokenizer=TransformersTokenizer(self.tokenizer),
            name=f"a {type(model).__name__}",
            start=decoder.start,
            end=decoder.ends[0] if decoder.ends else -1,
            pad=decoder.pad,
            generation=self._generation,
            calibration=getattr(model.config, "coverage_calibration", None) or {},
            longest_source=max_source_tokens(model, self.tokenizer),
            longest_target=positions,
            head_shape=(layers, model.config.decoder_attention_heads) if layers else (0, 0),
            shortlist=None if decoder.fast is None else decoder.fast.shortlist,
        )

    @loaded.setter
    def loaded(self, model: LoadedModel) -> None:
        raise AttributeError("`loaded` must come with `model` and `tokenizer`")

    @property
    def _generation(self) -> Mapping[str, Any]:
        """What the generation config sets; read again only if it has changed, for that takes a millisecond."""
        now = vars(self.model.generation_config)
        if self._read is None or settings_differ([now], [self._read[0]]):
            changed = self.model.generation_config.to_diff_dict()
            self._read = copy.deepcopy(now), {name: value for name, value in changed.items() if value is not None}
        return self._read[1]

    def set_calibration(self, values: Mapping[str, Any]) -> None:
        check_calibration(values, self.loaded.head_shape, "`set_calibration`")
        self.model.config.coverage_calibration = dict(values) or None

    @property
    def is_multilingual(self) -> bool:
        return TransformersTokenizer(self.tokenizer).is_multilingual

    @cached_property
    def _stored_languages(self) -> tuple[str | None, str | None]:
        """The codes with which the tokenizer was loaded: each call changes its `src_lang`."""
        if not hasattr(self.tokenizer, "_build_translation_inputs"):
            return None, None
        settings = self.tokenizer.init_kwargs
        return settings.get("src_lang"), settings.get("tgt_lang")

    def tokenizer_of(self, options: TranslationOptions) -> TransformersTokenizer:
        clean_up = cast("bool | None", options.generate_kwargs.get("clean_up_tokenization_spaces"))
        return TransformersTokenizer(self.tokenizer, *self.languages_of(options), clean_up)

    def labels(self, translation: str, tokenizer: Tokenizer) -> list[int]:
        labels, start = cast(TransformersTokenizer, tokenizer).labels(translation), self.decoder.start
        if not hasattr(self.tokenizer, "tgt_lang") or start in self.decoder.ends:
            return labels
        # a decoder that starts with the language does not predict it; mBART's labels have it after the end token
        return labels[labels[:1] == [start] : len(labels) - (labels[-1:] == [start])]

    def segmenter_of(self, options: TranslationOptions) -> Segmenter:
        prefix = self.task_settings(options).get("prefix") or getattr(self.model.config, "prefix", None) or ""
        return super().segmenter_of(options)._replace(prefix=str(prefix))

    def task_settings(self, options: TranslationOptions) -> Mapping[str, Any]:
        """What a T5 checkpoint says of the task "translation_en_to_de": a prefix and settings of `generate()`."""
        source, target = self.languages_of(options)
        task = f"translation_{source.strip('_')}_to_{target.strip('_')}" if source and target else self.task
        settings_by_task = getattr(self.model.config, "task_specific_params", None) or {}
        return settings_by_task.get(task) or {}
