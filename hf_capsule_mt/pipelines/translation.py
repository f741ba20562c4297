"""The translation pipeline: text in, text out, for any sequence-to-sequence checkpoint."""

import re
from typing import Any

import torch
from transformers import Pipeline
from transformers.pipelines.base import GenericTensor

DEFAULT_MAX_NEW_TOKENS = 256
TASK_WITH_LANGUAGES = re.compile(r"translation_(?P<source>[^_]+(?:_[^_]+)*?)_to_(?P<target>.+)")


class TranslationPipeline(Pipeline):
    """Translates strings, with the interface that transformers' own pipeline had until version 5.

        >>> translator = pipeline("translation", model=path)
        >>> translator("Hello!")
        [{'translation_text': 'Hallo!'}]

    Parameters, at the making of the pipeline or at a call: `batch_size`, all of `generate()` (`num_beams`,
    `max_new_tokens`, `num_return_sequences`, ...), `src_lang` and `tgt_lang` for tokenizers that have languages,
    `return_tensors` for token ids (`translation_token_ids`) in the place of text, `truncation` for sources longer than
    the model takes, and `clean_up_tokenization_spaces`.
    """

    _load_processor: Any = False
    _load_image_processor: Any = False
    _load_feature_extractor: Any = False
    _load_tokenizer: Any = True

    def _sanitize_parameters(
        self,
        return_tensors: bool | None = None,
        return_text: bool | None = None,
        clean_up_tokenization_spaces: bool | None = None,
        truncation: bool | str | None = None,
        src_lang: str | None = None,
        tgt_lang: str | None = None,
        **generate_kwargs: Any,
    ) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
        preprocess: dict[str, Any] = {}
        if truncation is not None:
            preprocess["truncation"] = truncation
        if src_lang is None and tgt_lang is None:
            languages = TASK_WITH_LANGUAGES.fullmatch(getattr(self, "task", None) or "")
            if languages is not None:
                src_lang, tgt_lang = languages["source"], languages["target"]
        if src_lang is not None:
            preprocess["src_lang"] = src_lang
        if tgt_lang is not None:
            preprocess["tgt_lang"] = tgt_lang
        postprocess: dict[str, Any] = {}
        if return_tensors is not None and return_text is not None and return_tensors == return_text:
            raise ValueError(f"`return_tensors` and `return_text` exclude each other, got {return_tensors} for both")
        if return_tensors is not None or return_text is not None:
            postprocess["return_tensors"] = bool(return_tensors) if return_text is None else not return_text
        if clean_up_tokenization_spaces is not None:
            postprocess["clean_up_tokenization_spaces"] = clean_up_tokenization_spaces
        return preprocess, generate_kwargs, postprocess

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Translates a string or a list of strings into a list of dictionaries, and any other iterable lazily.

        With `num_return_sequences` above one, each string of a list gets a list.
        """
        results = super().__call__(*args, **kwargs)
        inputs = args[0] if args else None
        is_list = isinstance(inputs, list) and all(isinstance(text, str) for text in inputs)
        if is_list and all(len(result) == 1 for result in results):
            return [result[0] for result in results]
        return results

    def preprocess(  # type: ignore[override]
        self,
        input_: str,
        truncation: bool | str = False,
        src_lang: str | None = None,
        tgt_lang: str | None = None,
    ) -> dict[str, GenericTensor]:
        if not isinstance(input_, str):
            raise ValueError(f"the pipeline translates strings and lists of strings, got a {type(input_).__name__}")
        tokenizer: Any = self.tokenizer
        if hasattr(tokenizer, "_build_translation_inputs"):  # tokenizers of many languages
            return tokenizer._build_translation_inputs(
                input_, return_tensors="pt", truncation=truncation, src_lang=src_lang, tgt_lang=tgt_lang
            )
        encoded = tokenizer(input_, return_tensors="pt", truncation=truncation)
        encoded.pop("token_type_ids", None)
        return encoded

    def _forward(self, input_tensors: dict[str, Any], **generate_kwargs: Any) -> Any:
        inputs = {key: value for key, value in input_tensors.items() if value is not None}
        model: Any = self.model
        output = model.generate(**inputs, **self._with_default_length(inputs, generate_kwargs))
        sequences = output if isinstance(output, torch.Tensor) else output["sequences"]
        batch_size = inputs["input_ids"].shape[0]
        return {"output_ids": sequences.reshape(batch_size, -1, sequences.shape[-1])}  # [B, returned, T]

    def _with_default_length(self, inputs: dict[str, Any], generate_kwargs: dict[str, Any]) -> dict[str, Any]:
        """A limit of 256 tokens, or what the model has positions for, where nobody set another."""
        limits = ("max_length", "max_new_tokens", "generation_config")
        if any(generate_kwargs.get(name) is not None for name in limits):
            return generate_kwargs
        saved = self.model.generation_config
        if saved.max_new_tokens is not None or (saved.max_length is not None and saved.max_length != 20):
            return generate_kwargs  # 20 is what transformers puts there by itself
        positions = getattr(self.model.config, "max_position_embeddings", None) or DEFAULT_MAX_NEW_TOKENS + 1
        return {**generate_kwargs, "max_new_tokens": min(DEFAULT_MAX_NEW_TOKENS, positions - 1)}

    def postprocess(  # type: ignore[override]
        self,
        model_outputs: dict[str, torch.Tensor],
        return_tensors: bool = False,
        clean_up_tokenization_spaces: bool | None = None,
    ) -> list[dict[str, Any]]:
        tokenizer: Any = self.tokenizer
        records: list[dict[str, Any]] = []
        for token_ids in model_outputs["output_ids"][0]:
            if return_tensors:
                records.append({"translation_token_ids": token_ids})
            else:
                text = tokenizer.decode(
                    token_ids,
                    skip_special_tokens=True,
                    clean_up_tokenization_spaces=clean_up_tokenization_spaces,
                )
                records.append({"translation_text": text})
        return records
