"""The translation pipeline of transformers, as an adapter of `Translator`."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

import torch
from torch.utils.data import Dataset
from transformers import Pipeline, PreTrainedModel

from capsule_mt.text.segments import TranslationIterator
from hf_capsule_mt.pipelines.results import Coverage, CoverageMethod, CoverageOptions, Translation, TranslationOptions
from hf_capsule_mt.pipelines.translator import Translator, languages_of_task

Records = list[dict[str, object]]


class TextsOf(Dataset[str]):
    """A sized iterable, as what transformers' base class reads lazily."""

    def __init__(self, texts: Iterable[str]) -> None:
        self.texts = texts

    def __len__(self) -> int:
        return len(cast(Sized, self.texts))

    def __iter__(self) -> Iterator[str]:
        return iter(self.texts)


class TranslationPipeline(Pipeline):
    """Translates strings, with the interface that transformers' own pipeline had until version 5.

        >>> translator = pipeline("translation", model=path)
        >>> translator("Hello!")
        [{'translation_text': 'Hallo!'}]

    A string gives a list of one dictionary, a list of strings a list of dictionaries; any other iterable of strings (a
    generator, a `KeyDataset`) is translated as it is read. With `num_return_sequences` above one, each string has a
    list of its own. Results come in the order of the texts.

    `Translator` explains how texts are translated, and these parameters, which may be given at construction or at a
    call: `batch_size`, `batch_tokens`, `src_lang`, `tgt_lang`, `split_sentences`, `max_source_tokens`, `truncation`,
    `keep`, `clean_up_tokenization_spaces`, and all of `generate()`. The pipeline has further:

    - `return_tensors`: token ids (`translation_token_ids`) in place of text, those of all sentences in a row;
    - `return_scores`: add `score`, the mean log-probability of a token of the translation;
    - `return_coverage`: add `coverage`, a dictionary of the `score` of the text, its
      `sentences` and its `words`, each with `start` and `end` in the text, and the `repetitions`. A word has its
      shares of `past` and `future` at the end, how much of it is `covered`, and whether it counts as `untranslated`; a
      repetition is what is said twice in a row; `coverage_method` is the `method` of `CoverageOptions`;
    - `coverage_threshold`: warn of sentences whose score is less, and mark them; with `coverage_retry`, a number of
      beams, translate them again with so many and take what `coverage_weight` finds best, if it leaves less in FUTURE;
    - `coverage_weight`: rank the hypotheses of beam search by their score less `coverage_weight` times the share
      of the source that is still in FUTURE.

    `ensemble`, `int8`, `backend` and `shortlist` of `Translator` are for construction alone.
    """

    _load_processor: Any = False
    _load_image_processor: Any = False
    _load_feature_extractor: Any = False
    _load_tokenizer: Any = True

    def __init__(
        self,
        model: PreTrainedModel,
        *args: Any,
        ensemble: Iterable[PreTrainedModel | str | os.PathLike[str]] = (),
        int8: bool = False,
        backend: str = "auto",
        shortlist: bool | str | Path = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(model, *args, **kwargs)
        if self.tokenizer is None:
            raise ValueError("the translation pipeline needs a `tokenizer`, got None")
        self.translator = Translator(
            self.model,
            self.tokenizer,
            ensemble=ensemble,
            int8=int8,
            backend=backend,
            shortlist=shortlist,
            task=self.task or "translation",
        )

    @property
    def members(self) -> list[PreTrainedModel]:
        """The other models of the ensemble."""
        return self.translator.members

    def _sanitize_parameters(
        self,
        return_tensors: bool | None = None,
        return_text: bool | None = None,
        return_scores: bool | None = None,
        batch_tokens: int | None = None,
        return_coverage: bool | None = None,
        coverage_threshold: float | None = None,
        coverage_retry: int | None = None,
        coverage_weight: float | None = None,
        coverage_method: CoverageMethod | None = None,
        clean_up_tokenization_spaces: bool | None = None,
        truncation: bool | str | None = None,
        split_sentences: bool | None = None,
        max_source_tokens: int | None = None,
        src_lang: str | None = None,
        tgt_lang: str | None = None,
        keep: Sequence[str] | None = None,
        **generate_kwargs: object,
    ) -> tuple[dict[str, object], dict[str, object], dict[str, object]]:
        """Sort the parameters: of the source, of decoding, of the records."""
        given = getattr(self, "_preprocess_params", {})  # when the pipeline was made
        if src_lang is None and tgt_lang is None and not given.keys() & {"src_lang", "tgt_lang"}:
            src_lang, tgt_lang = languages_of_task(self.task or "")
        if return_tensors is not None and return_text is not None and return_tensors == return_text:
            raise ValueError(f"`return_tensors` and `return_text` exclude each other, got {return_tensors} for both")
        if coverage_retry is not None and coverage_retry < 2:
            raise ValueError(f"`coverage_retry` must be at least 2, got {coverage_retry}")
        preprocess = {
            "truncation": truncation,
            "split_sentences": split_sentences,
            "max_source_tokens": max_source_tokens,
            "src_lang": src_lang,
            "tgt_lang": tgt_lang,
            "keep": keep,
        }
        decoding = {
            "return_scores": return_scores,
            "batch_tokens": batch_tokens,
            "return_coverage": return_coverage or coverage_threshold is not None or None,
            "coverage_threshold": coverage_threshold,
            "coverage_retry": coverage_retry,
            "coverage_weight": coverage_weight,
            "coverage_method": coverage_method,
            "clean_up_tokenization_spaces": clean_up_tokenization_spaces,
        }
        postprocess = {
            "return_tensors": return_tensors if return_text is None else not return_text,
            "return_scores": return_scores,
            "return_coverage": return_coverage,
            "coverage_threshold": coverage_threshold,
        }
        return _given(preprocess), {**generate_kwargs, **_given(decoding)}, _given(postprocess)

    def __call__(self, inputs: object, *args: object, **kwargs: object) -> Any:
        """Translate a string or a list of strings into a list of dictionaries, and any other iterable lazily."""
        if isinstance(inputs, tuple):
            inputs = list(inputs)
        if isinstance(inputs, list) and not inputs:
            return []
        if isinstance(inputs, Iterable) and not isinstance(inputs, (str, bytes, dict, list, Dataset)):
            inputs = TextsOf(inputs) if isinstance(inputs, Sized) else (text for text in inputs)
        results = super().__call__(inputs, *args, **kwargs)
        if isinstance(inputs, list) and all(len(result) == 1 for result in results):
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
        settings = dict(forward_params)
        threshold, retry_beams, weight = (
            settings.pop(name, None) for name in ("coverage_threshold", "coverage_retry", "coverage_weight")
        )
        if retry_beams and threshold is None:
            raise ValueError("`coverage_retry` needs a `coverage_threshold`, below which it translates again")
        method = settings.pop("coverage_method", "auto")
        covers = settings.pop("return_coverage", False) or weight
        options = TranslationOptions(
            batch_size=batch_size,
            batch_tokens=settings.pop("batch_tokens", None),
            coverage=CoverageOptions(threshold, retry_beams, weight, method) if covers else None,
            scores=settings.pop("return_scores", False),
            clean_up_tokenization_spaces=settings.pop("clean_up_tokenization_spaces", None),
            **preprocess_params,
            generate_kwargs=settings,
        )

        def translate(texts: list[str]) -> list[Records]:
            found = self.forward([self.preprocess(text) for text in texts], options=options)
            return [self.postprocess(translations, **postprocess_params) for translations in found]

        return TranslationIterator(inputs, translate, options.window)

    def preprocess(self, input_: str) -> str:  # type: ignore[override]
        """Check that a text is one."""
        if not isinstance(input_, str):
            raise ValueError(f"the pipeline translates strings and lists of strings, got a {type(input_).__name__}")
        return input_

    def _forward(  # type: ignore[override]
        self, input_tensors: list[str], options: TranslationOptions
    ) -> list[list[Translation]]:
        """Translate a window of texts."""
        return self.translator.translate(input_tensors, options)

    def postprocess(  # type: ignore[override]
        self,
        model_outputs: list[Translation],
        return_tensors: bool = False,
        return_scores: bool = False,
        return_coverage: bool = False,
        coverage_threshold: float | None = None,
    ) -> Records:
        """Return the records of the translations of one text."""
        records: Records = []
        for translation in model_outputs:
            record: dict[str, object] = {"translation_text": translation.text}
            if return_tensors:
                record = {"translation_token_ids": torch.tensor(translation.token_ids, dtype=torch.long)}
            if return_scores and translation.score is not None:
                record["score"] = translation.score
            if return_coverage or coverage_threshold is not None:
                record["coverage"] = coverage_record(translation.coverage, coverage_threshold)
            records.append(record)
        return records


def coverage_record(coverage: Coverage | None, threshold: float | None = None) -> dict[str, object]:
    """Return the dictionary of a coverage, as the pipeline returns it."""
    if coverage is None:
        raise RuntimeError("the text was translated without coverage")
    sentences = [asdict(sentence) for sentence in coverage.sentences]
    if threshold is not None:
        sentences = [{**sentence, "below_threshold": sentence["score"] < threshold} for sentence in sentences]
    words = [{"word": word.text, **asdict(word)} for word in coverage.words]
    for word in words:
        del word["text"]
    repetitions = list(coverage.repetitions)
    return {"score": coverage.score, "sentences": sentences, "words": words, "repetitions": repetitions}


def _given(parameters: Mapping[str, object]) -> dict[str, object]:
    """Keep the parameters that somebody set."""
    return {name: value for name, value in parameters.items() if value is not None}
