"""The pipeline that an exported checkpoint contains: `generate()`, without the text tools of the package."""

from typing import Any

import torch
from transformers import Pipeline
from transformers.utils import ModelOutput

from hf_capsule_mt.modeling.target_text import decode_target

POSTPROCESSING = ("return_tensors", "return_text", "clean_up_tokenization_spaces")


class TranslationPipeline(Pipeline):
    """Translates strings, each as one sentence, by `generate()`.

        >>> translator = pipeline("translation", model=folder, trust_remote_code=True)
        >>> translator("Hello!")
        [{'translation_text': 'Hallo!'}]

    A string, or a list of strings, gives a list of dictionaries. With `num_return_sequences` above one, each string
    has a list of its own. `truncation` cuts a source to what the model takes; other parameters are `generate()`'s.
    With `return_tensors`, token ids (`translation_token_ids`) take the place of text; `return_text` is ignored, as by
    transformers 4. With hf_capsule_mt installed, its `Translator` splits texts into sentences, decodes faster and says
    what was left out.
    """

    _load_processor: Any = False
    _load_image_processor: Any = False
    _load_feature_extractor: Any = False
    _load_tokenizer: Any = True

    def _sanitize_parameters(self, **parameters: Any) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
        settings = {name: value for name, value in parameters.items() if value is not None}
        source = {"truncation": settings.pop("truncation")} if "truncation" in settings else {}
        return source, settings, {name: settings.pop(name) for name in POSTPROCESSING if name in settings}

    def __call__(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        """Translate a string or a list of strings into a list of dictionaries, and any other iterable lazily."""
        texts = list(inputs) if isinstance(inputs, tuple) else inputs
        results = [] if texts == [] else super().__call__(texts, *args, **kwargs)
        if isinstance(texts, list) and all(len(result) == 1 for result in results):
            return [result[0] for result in results]
        return results

    def preprocess(self, input_: str, truncation: bool = False) -> Any:  # type: ignore[override]
        if not isinstance(input_, str):
            raise ValueError(f"the pipeline translates strings and lists of strings, got a {type(input_).__name__}")
        tokenizer: Any = self.tokenizer
        encoded = tokenizer(input_, return_tensors="pt", truncation=truncation, max_length=self._longest(truncation))
        encoded.pop("token_type_ids", None)
        return encoded

    def _longest(self, truncation: bool) -> int | None:
        return getattr(self.model.config, "max_position_embeddings", None) if truncation else None

    def _forward(self, input_tensors: Any, **generate_kwargs: Any) -> Any:
        model: Any = self.model
        if generate_kwargs.get("stop_strings") or model.generation_config.stop_strings:
            generate_kwargs.setdefault("tokenizer", self.tokenizer)  # `generate()` finds the strings with it
        output_ids = model.generate(**input_tensors, **generate_kwargs)
        sequences = output_ids["sequences"] if isinstance(output_ids, ModelOutput) else output_ids
        return {"sequences": sequences.unflatten(0, (len(input_tensors["input_ids"]), -1))}

    def postprocess(  # type: ignore[override]
        self,
        model_outputs: dict[str, torch.Tensor],
        return_tensors: bool = False,
        return_text: bool | None = None,
        clean_up_tokenization_spaces: bool | None = None,
    ) -> list[dict[str, Any]]:
        records: list[dict[str, Any]] = []
        for sequence in model_outputs["sequences"].flatten(0, 1):
            if return_tensors:
                records.append({"translation_token_ids": sequence})
            else:
                text = decode_target(self.tokenizer, sequence.tolist(), clean_up_tokenization_spaces)
                records.append({"translation_text": text})
        return records
