"""The translation pipeline of transformers, as an adapter of `Translator`, for the task that version 5 removed."""

from collections.abc import Iterable, Mapping
from typing import Any

import torch
import transformers.pipelines
from torch.utils.data import Dataset
from transformers import Pipeline, PreTrainedModel
from transformers.pipelines import PIPELINE_REGISTRY

from capsule_mt.coverage.options import CoverageOptions
from capsule_mt.files.lines import coverage_record
from capsule_mt.translate.options import TranslationOptions, refuse_unknown
from capsule_mt.translate.results import Translation
from capsule_mt.translate.texts import TranslationIterator, check_text
from hf_capsule_mt.decoding.translator import TASK_WITH_LANGUAGES, Translator, check_model, options_of_model
from hf_capsule_mt.loading import CheckedSeq2SeqLM

TASK = "translation"
# parameters that make the `Translator`, that say what a record has, and that a call of the `Translator` takes by name
CONSTRUCTION = ("ensemble", "int8", "backend", "shortlist", "reverse")
OF_RECORDS = ("return_tensors", "return_text", "return_scores", "return_coverage")
OF_CALL = {*TranslationOptions._fields} - {"batch_size", "scores", "generate_kwargs"}
# parameters that transformers' own pipeline had in version 4, and what does the same
REPLACED = {
    "stop_sequence": "`stop_strings`, a list of strings at which a translation ends",
    "return_type": "`return_tensors`",
}
Records = list[dict[str, object]]


class TranslationPipeline(Pipeline):
    """Translates strings, with the interface that transformers' own pipeline had until version 5.

        >>> translator = pipeline("translation", model=path)
        >>> translator("Hello!")
        [{'translation_text': 'Hallo!'}]

    A string gives a list of one dictionary, a list of strings a list of dictionaries; any other iterable of strings (a
    generator, a `KeyDataset`) is translated as it is read. With `num_return_sequences` above one, each string has a
    list of its own. Results come in the order of the texts.

    Takes `ensemble`, `int8`, `backend`, `shortlist` and `reverse` of `Translator` at construction, the parameters of
    its call there or at a call, and further:

    - `return_tensors`: token ids (`translation_token_ids`) in place of text, those of all sentences in a row;
    - `return_text`: ignored, as by transformers 4, where `return_tensors` alone decides;
    - `return_scores`: add `score`, the mean log-probability of a token of the translation;
    - `return_coverage`: add `coverage`, a dictionary (see `capsule_mt.files.lines.coverage_record`), as
      `coverage=CoverageOptions()` does.
    """

    _load_processor: Any = False
    _load_image_processor: Any = False
    _load_feature_extractor: Any = False
    _load_tokenizer: Any = True

    def __init__(self, model: PreTrainedModel, *args: Any, **kwargs: Any) -> None:
        check_model(model)
        settings = {name: kwargs.pop(name) for name in CONSTRUCTION if name in kwargs}
        super().__init__(model, *args, **kwargs)
        if self.tokenizer is None:
            raise ValueError("the translation pipeline needs a `tokenizer`, got None")
        self.translator = Translator(self.model, self.tokenizer, task=self.task or TASK, **settings)

    def _sanitize_parameters(self, **parameters: Any) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
        for name in REPLACED.keys() & parameters:
            raise ValueError(f"`{name}` is not an option of this pipeline: use {REPLACED[name]}")
        refuse_unknown(parameters, {*options_of_model(self.model), *TranslationOptions._fields[:-1], *OF_RECORDS})
        settings = {name: value for name, value in parameters.items() if value is not None}
        records = {name: settings.pop(name) for name in OF_RECORDS if name in settings}
        return {}, settings, records

    def __call__(self, inputs: object, *args: object, **kwargs: object) -> Any:
        """Translate a string or a list of strings into a list of dictionaries, and any other iterable lazily."""
        texts = list(inputs) if isinstance(inputs, (list, tuple)) else inputs
        if isinstance(texts, list) and not texts:
            return []
        if isinstance(texts, Iterable) and not isinstance(texts, (str, bytes, dict, list, Dataset)):
            texts = (text for text in texts)
        results = super().__call__(texts, *args, **kwargs)
        if isinstance(texts, list) and all(len(result) == 1 for result in results):
            return [result[0] for result in results]
        return results

    def run_single(self, inputs: object, *parameters: dict[str, Any]) -> Records:
        """Return the records of one text."""
        return next(iter(self.get_iterator([inputs], 0, 1, *parameters)))

    def get_iterator(
        self,
        inputs: object,
        num_workers: int,
        batch_size: int,
        preprocess_params: dict[str, Any],
        forward_params: dict[str, Any],
        postprocess_params: dict[str, Any],
    ) -> TranslationIterator[Records]:
        """Return the records of each text, lazily, in order."""
        options = _options(batch_size, forward_params, postprocess_params)

        def translate(texts: list[str]) -> list[Records]:
            outputs = self.forward([self.preprocess(text) for text in texts], options=options)
            return [self.postprocess(output, **postprocess_params) for output in outputs]

        return TranslationIterator(inputs, translate, options.window, _check_input)

    def preprocess(self, input_: str) -> str:  # type: ignore[override]
        """Check that an input is a string."""
        _check_input(input_, "texts")
        return input_

    def _forward(  # type: ignore[override]
        self, input_tensors: list[str], options: TranslationOptions
    ) -> list[list[Translation]]:
        """Translate a window of texts."""
        return self.translator.translate(input_tensors, options)

    def postprocess(  # type: ignore[override]
        self, model_outputs: list[Translation], **requested: Any
    ) -> Records:
        """Return the records of the translations of one text."""
        records: Records = []
        for translation in model_outputs:
            record: dict[str, object] = {"translation_text": translation.text}
            if requested.get("return_tensors"):
                record = {"translation_token_ids": torch.tensor(translation.token_ids, dtype=torch.long)}
            if requested.get("return_scores") and translation.score is not None:
                record["score"] = translation.score
            if translation.coverage is not None:
                record["coverage"] = coverage_record(translation.coverage)
            records.append(record)
        return records


def _check_input(text: object, name: str) -> None:
    """Refuse what is not a string with the kind of error that transformers' own pipeline raised."""
    try:
        check_text(text, name)
    except TypeError as error:
        raise ValueError(f"the pipeline translates strings and lists of strings: {error}") from None


def _options(batch_size: int, settings: Mapping[str, Any], requested: Mapping[str, Any]) -> TranslationOptions:
    """Return the options of a `Translator` that the parameters of a pipeline stand for."""
    values: dict[str, Any] = {"coverage": CoverageOptions()} if requested.get("return_coverage") else {}
    values |= {name: value for name, value in settings.items() if name in OF_CALL}
    generate_options = {name: value for name, value in settings.items() if name not in OF_CALL}
    scores = bool(requested.get("return_scores"))
    return TranslationOptions(batch_size, scores=scores, generate_kwargs=generate_options, **values).checked()


class _AliasesWithLanguages(dict[str, str]):
    """The registry's aliases, in which `translation_en_to_de` and its like stand for `translation`."""

    def __contains__(self, task: object) -> bool:
        return super().__contains__(task) or (
            isinstance(task, str) and TASK_WITH_LANGUAGES.fullmatch(task) is not None
        )

    def __missing__(self, task: str) -> str:
        if TASK_WITH_LANGUAGES.fullmatch(task) is None:
            raise KeyError(task)
        return TASK


class _WithoutDefaultModel(dict[str, Any]):
    """The registry's entry of a task without a default model, so that `pipeline` needs a `model`."""

    def __missing__(self, key: str) -> Any:
        if key == "default":
            raise ValueError(
                'pipeline("translation") needs a `model`, a folder or a name on the hub, such as '
                'pipeline("translation", model="Helsinki-NLP/opus-mt-de-en"), as there is no default for all languages'
            )
        raise KeyError(key)


def restore_translation_task() -> None:
    """Register `pipeline("translation")` where transformers has removed it, and touch nothing where it is there."""
    registry: Any = PIPELINE_REGISTRY
    if TASK in registry.supported_tasks:
        return
    registry.register_pipeline(TASK, pipeline_class=TranslationPipeline, pt_model=(CheckedSeq2SeqLM,), type="text")
    registry.supported_tasks[TASK] = _WithoutDefaultModel(registry.supported_tasks[TASK])
    # otherwise saving a pipeline would copy our file beside the model and demand `trust_remote_code` to load it
    delattr(TranslationPipeline, "_registered_impl")
    getattr(transformers.pipelines, "REMOVED_TASKS", {}).pop(TASK, None)
    registry.task_aliases = _AliasesWithLanguages(registry.task_aliases)
