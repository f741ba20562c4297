"""The translation pipeline: text in, text out, for any sequence-to-sequence checkpoint."""

import re
from collections.abc import Iterable, Sized
from dataclasses import replace
from typing import Any, cast

import torch
from torch.utils.data import Dataset
from transformers import LogitsProcessorList, Pipeline
from transformers.utils import logging

from hf_capsule_mt.fast import use_fast_linears
from hf_capsule_mt.pipelines.coverage import WORDWISE_COVERAGE, coverage_record, coverage_scores
from hf_capsule_mt.pipelines.ensemble import EnsembleLogits, load_members
from hf_capsule_mt.pipelines.limits import (
    LIMIT_NAMES,
    SourceLengthLimit,
    end_token_ids,
    generated_lengths,
    given_limit,
    limit_of_checkpoint,
    limits_by_source,
    max_source_tokens,
)
from hf_capsule_mt.pipelines.pieces import (
    Document,
    Piece,
    TextsOf,
    TranslationIterator,
    batches_of,
    join_translations,
)
from hf_capsule_mt.pipelines.scores import score_sequences
from hf_capsule_mt.pipelines.sentences import Span, split_sentences, split_to_fit

pipeline_logger = logging.get_logger("hf_capsule_mt.pipelines")

TASK_WITH_LANGUAGES = re.compile(r"translation_(?P<source>[^_]+(?:_[^_]+)*?)_to_(?P<target>.+)")
LONE_SURROGATES = re.compile("[\ud800-\udfff]")
# of FUTURE against the average log-probability of a token, where nobody sets another
DEFAULT_COVERAGE_WEIGHT = 5.0
# how many batches of texts are read ahead, to make batches of sentences of about the same length
BATCHES_READ_AHEAD = 32
# the same for batches by tokens
TEXTS_READ_AHEAD = 2048


class TranslationPipeline(Pipeline):
    """Translates strings, with the interface that transformers' own pipeline had until version 5.

        >>> translator = pipeline("translation", model=path)
        >>> translator("Hello!")
        [{'translation_text': 'Hallo!'}]

    A string gives a list of one dictionary, a list of strings a list of dictionaries; any other iterable of strings (a
    generator, a `KeyDataset`) is translated as it is read. With `num_return_sequences` above one, each string has a
    list of its own. Whatever the order of the work inside, results come in the order of the texts.

    A text of several sentences is translated sentence by sentence (`sentences.py` says for which languages), and the
    space between them is kept; a blank text stays blank. A sentence that is longer than the model takes is translated
    in pieces. A translation that reaches its limit is reported by a warning. Lone surrogates, which are no characters,
    are read as U+FFFD.

    Parameters, at the making of the pipeline or at a call:

    - all of `generate()`: `num_beams`, `max_new_tokens`, `num_return_sequences`, ... Without a limit among them, a
      translation has at most three times the tokens of its source and thirty more, and what the checkpoint allows;
    - `batch_size`: how many sentences go through the model at once; or `batch_tokens`: how many of their tokens,
      padding included, which takes the more sentences the shorter they are;
    - `src_lang`, `tgt_lang`: for tokenizers that have languages, and for the rules about sentences;
    - `split_sentences=False`: translate each text as if it were one sentence, and refuse one that is too long;
    - `max_source_tokens`: translate in pieces of at most so many tokens, fewer than the model takes;
    - `truncation=True`: cut a source to what the model takes, with a warning;
    - `return_tensors`: token ids (`translation_token_ids`) in the place of text, those of all sentences in a row;
    - `return_scores`: add `score`, the average log-probability of a token of the translation;
    - `clean_up_tokenization_spaces`;
    - `return_coverage`, for models with guided routing: add `coverage`, a dictionary of the `score` of the text, its
      `sentences` and its `words`, each with `start` and `end` in the text, and the `repetitions`. A word has its
      shares of `past` and `future` at the end, how much of it is `covered`, and whether it counts as `untranslated`; a
      repetition is what is said twice in a row;
    - `coverage_threshold`: warn of sentences whose score is less, and mark them; with `coverage_retry`, a number of
      beams, translate them again with so many and take what `coverage_weight` finds best, if it leaves less in FUTURE;
    - `coverage_weight`: rescore the hypotheses of beam search by their score less `coverage_weight` times the share
      of the source that is still in FUTURE.

    At the making alone:

    - `ensemble`: further models (or paths) of the same vocabulary, with which probabilities are averaged;
    - `int8=True`: on a CPU, multiply by int8 copies of the large matrices, which is faster (`use_fast_linears`).
    """

    _load_processor: Any = False
    _load_image_processor: Any = False
    _load_feature_extractor: Any = False
    _load_tokenizer: Any = True

    def __init__(
        self, model: Any, *args: Any, ensemble: Iterable[Any] = (), int8: bool = False, **kwargs: Any
    ) -> None:
        super().__init__(model, *args, **kwargs)
        self.members = load_members(self.model, ensemble, self.device)
        if int8:
            for member in (self.model, *self.members):
                use_fast_linears(member, int8=True)

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
        clean_up_tokenization_spaces: bool | None = None,
        truncation: bool | str | None = None,
        split_sentences: bool | None = None,
        max_source_tokens: int | None = None,
        src_lang: str | None = None,
        tgt_lang: str | None = None,
        **generate_kwargs: Any,
    ) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
        if src_lang is None and tgt_lang is None:
            languages = TASK_WITH_LANGUAGES.fullmatch(getattr(self, "task", None) or "")
            if languages is not None:
                src_lang, tgt_lang = languages["source"], languages["target"]
        if max_source_tokens is not None and max_source_tokens < 2:
            raise ValueError(f"`max_source_tokens` must be at least 2, got {max_source_tokens}")
        preprocess = {
            "truncation": truncation,
            "split": split_sentences,
            "max_tokens": max_source_tokens,
            "src_lang": src_lang,
            "tgt_lang": tgt_lang,
        }
        if return_tensors is not None and return_text is not None and return_tensors == return_text:
            raise ValueError(f"`return_tensors` and `return_text` exclude each other, got {return_tensors} for both")
        postprocess: dict[str, Any] = {"clean_up_tokenization_spaces": clean_up_tokenization_spaces}
        if return_tensors is not None or return_text is not None:
            postprocess["return_tensors"] = bool(return_tensors) if return_text is None else not return_text
        if batch_tokens is not None and batch_tokens < 1:
            raise ValueError(f"`batch_tokens` must be at least 1, got {batch_tokens}")
        for name, number in (("num_beams", generate_kwargs.get("num_beams")), ("coverage_retry", coverage_retry)):
            if number is not None and number < 1:
                raise ValueError(f"`{name}` must be at least 1, got {number}")
        generate_kwargs |= _given(
            {
                "return_scores": return_scores,
                "batch_tokens": batch_tokens,
                "return_coverage": return_coverage or coverage_threshold is not None or None,
                "coverage_threshold": coverage_threshold,
                "coverage_retry": coverage_retry,
                "coverage_weight": coverage_weight,
            }
        )
        postprocess |= {"return_coverage": return_coverage, "coverage_threshold": coverage_threshold}
        return _given(preprocess), generate_kwargs, _given(postprocess)

    # ------------------------------------------------------------------------------------------ the order of the work
    def __call__(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        """Translates a string or a list of strings into a list of dictionaries, and any other iterable lazily."""
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

    def run_single(self, inputs: Any, *parameters: dict[str, Any]) -> Any:
        """One text: its list of records."""
        return next(iter(self.get_iterator([inputs], 0, 1, *parameters)))

    def get_iterator(
        self,
        inputs: Any,
        num_workers: int,
        batch_size: int,
        preprocess_params: dict[str, Any],
        forward_params: dict[str, Any],
        postprocess_params: dict[str, Any],
    ) -> "TranslationIterator":
        """The texts' lists of records, lazily, in order; texts are read ahead to sort them by length."""

        def translate(texts: list[Any]) -> list[Any]:
            documents = [self.preprocess(text, **preprocess_params) for text in texts]
            pieces = [piece for document in documents for piece in document.pieces]
            self._translate_pieces(batches_of(pieces, batch_size, batch_tokens), settings)
            returned = self._num_returned(settings)
            return [self.postprocess(document, returned, **postprocess_params) for document in documents]

        settings = dict(forward_params)
        if settings.get("coverage_retry") and settings.get("coverage_threshold") is None:
            raise ValueError("`coverage_retry` needs a `coverage_threshold`, below which it translates again")
        batch_tokens = settings.pop("batch_tokens", None)
        window = 1 if batch_size == 1 else batch_size * BATCHES_READ_AHEAD
        if batch_tokens is not None:
            window = TEXTS_READ_AHEAD
        return TranslationIterator(inputs, translate, window)

    def _num_returned(self, generate_kwargs: dict[str, Any]) -> int:
        """How many translations each text has."""
        settings = {**self.task_settings, **generate_kwargs}
        config = settings.get("generation_config") or self.model.generation_config
        return int(settings.get("num_return_sequences") or config.num_return_sequences or 1)

    def _translate_pieces(self, batches: Iterable[list[Piece]], forward_params: dict[str, Any]) -> None:
        """Translates the pieces of these batches, and enters the results in them."""
        settings = dict(forward_params)
        threshold, retry_beams = (settings.pop(name, None) for name in ("coverage_threshold", "coverage_retry"))
        num_pieces, num_cut, short = 0, 0, []
        for batch in batches:
            self._translate_batch(batch, settings)
            if threshold is not None:
                too_short = [piece for piece in batch if self._falls_short(piece, threshold)]
                if retry_beams and too_short:
                    self._retry(too_short, retry_beams, settings)
                short += [piece for piece in too_short if self._falls_short(piece, threshold)]
            num_pieces += len(batch)
            num_cut += sum(piece.was_cut for piece in batch)
        if num_cut:
            pipeline_logger.warning(
                f"{num_cut} of {num_pieces} translations reached the limit of their length and may be incomplete. "
                "`max_new_tokens` sets a higher one."
            )
        if short:
            pipeline_logger.warning(
                f"The coverage of {len(short)} of {num_pieces} translations is below {threshold}: they may leave "
                "something out."
            )

    def _translate_batch(self, batch: list[Piece], settings: dict[str, Any]) -> None:
        inputs = self._collate(batch)
        outputs = self.forward(inputs, **settings)
        for row, piece in enumerate(batch):
            piece.output_ids = outputs["output_ids"][row]
            piece.was_cut = bool(outputs["was_cut"][row])
            piece.scores = outputs["scores"][row] if "scores" in outputs else None
            if "coverage" in outputs:
                tokens = inputs["attention_mask"][row].bool()
                piece.coverage = {
                    "coverage": outputs["coverage"][row],
                    "left": outputs["left"][row],
                    **{name: outputs[name][row][..., tokens] for name in WORDWISE_COVERAGE},
                }

    @staticmethod
    def _falls_short(piece: Piece, threshold: float) -> bool:
        return piece.coverage is not None and float(piece.coverage["coverage"][0]) < threshold

    def _retry(self, pieces: list[Piece], beams: int, settings: dict[str, Any]) -> None:
        """Translates again with more beams, rescored by coverage, and keeps what leaves less in FUTURE."""
        again = [replace(piece) for piece in pieces]
        weight = settings.get("coverage_weight") or DEFAULT_COVERAGE_WEIGHT
        self._translate_batch(again, {**settings, "num_beams": beams, "coverage_weight": weight})
        for piece, other in zip(pieces, again, strict=True):
            if float(other.coverage["left"][0]) < float(piece.coverage["left"][0]):  # type: ignore[index]
                vars(piece).update(vars(other))

    def _collate(self, batch: list[Piece]) -> dict[str, Any]:
        """A batch of token ids [B, S] and their mask [B, S]."""
        tokenizer: Any = self.tokenizer
        longest = max(len(piece.token_ids) for piece in batch)
        input_ids = torch.full((len(batch), longest), tokenizer.pad_token_id or 0)
        mask = torch.zeros_like(input_ids)
        on_the_left = tokenizer.padding_side == "left"
        for row, piece in enumerate(batch):
            length = len(piece.token_ids)
            place = slice(longest - length, longest) if on_the_left else slice(0, length)
            input_ids[row, place] = torch.tensor(piece.token_ids)
            mask[row, place] = 1
        return {**batch[0].settings, "input_ids": input_ids, "attention_mask": mask}

    # ------------------------------------------------------------------------------------------------ the three steps
    def preprocess(  # type: ignore[override]
        self,
        input_: str,
        truncation: bool | str = False,
        split: bool = True,
        max_tokens: int | None = None,
        src_lang: str | None = None,
        tgt_lang: str | None = None,
    ) -> Document:
        """A text as the pieces that it is translated in."""
        if not isinstance(input_, str):
            raise ValueError(f"the pipeline translates strings and lists of strings, got a {type(input_).__name__}")
        document = Document(LONE_SURROGATES.sub("\ufffd", input_))
        text = document.text
        known = max_source_tokens(self.model, self.tokenizer)
        limit = min((number for number in (known, max_tokens) if number is not None), default=None)

        def encode(part: str, **options: Any) -> tuple[list[int], dict[str, Any]]:
            return self._encode(part, src_lang=src_lang, tgt_lang=tgt_lang, **options)

        def fits(part: str) -> bool:
            return limit is None or len(encode(part)[0]) <= limit

        if split:
            spans = split_sentences(text, src_lang)
        else:
            start = len(text) - len(text.lstrip())
            spans = [Span(start, max(start, len(text.rstrip())))] if text.strip() else []
        for span in spans:
            parts = [span]
            token_ids, settings = encode(text[span.start : span.end])
            if limit is not None and len(token_ids) > limit:
                if truncation:
                    pipeline_logger.warning(f"A source of {len(token_ids)} tokens was cut to {limit} (`truncation`).")
                    token_ids, settings = encode(text[span.start : span.end], truncation=truncation, max_length=limit)
                elif split:
                    parts = split_to_fit(text, span, fits)
                else:
                    raise ValueError(
                        f"a source of {len(token_ids)} tokens is longer than the {limit} that the model takes: "
                        f"{text[span.start : span.start + 40]!r}... Leave `split_sentences` on, or set "
                        "`truncation=True` to cut it."
                    )
            for part in parts:
                if parts != [span]:
                    token_ids, settings = encode(text[part.start : part.end])
                    if not fits(text[part.start : part.end]):
                        raise ValueError(
                            f"the character {text[part.start : part.end]!r} alone is {len(token_ids)} tokens, more "
                            f"than the {limit} that a source may have (`max_source_tokens`)"
                        )
                if set(token_ids) - set(self.tokenizer.all_special_ids):  # type: ignore[union-attr]
                    document.pieces.append(Piece(part, token_ids, settings))
        return document

    def _encode(
        self, text: str, src_lang: str | None, tgt_lang: str | None, **options: Any
    ) -> tuple[list[int], dict[str, Any]]:
        """The token ids of a text, and what else the tokenizer gives for `generate()`."""
        tokenizer: Any = self.tokenizer
        text = self.source_prefix + text
        if hasattr(tokenizer, "_build_translation_inputs"):  # tokenizers of many languages
            encoded = tokenizer._build_translation_inputs(
                text, return_tensors=None, src_lang=src_lang, tgt_lang=tgt_lang, **options
            )
        else:
            encoded = tokenizer(text, verbose=False, **options)
        taken = ("input_ids", "attention_mask", "token_type_ids")
        return encoded["input_ids"], {key: value for key, value in encoded.items() if key not in taken}

    @property
    def task_settings(self) -> dict[str, Any]:
        """What a T5 checkpoint says of the task "translation_en_to_de": a prefix and settings of `generate()`."""
        of_tasks = getattr(self.model.config, "task_specific_params", None) or {}
        return dict(of_tasks.get(self.task) or {})

    @property
    def source_prefix(self) -> str:
        return str(self.task_settings.get("prefix") or getattr(self.model.config, "prefix", None) or "")

    def _forward(  # type: ignore[override]
        self,
        input_tensors: dict[str, Any],
        return_scores: bool = False,
        return_coverage: bool = False,
        coverage_weight: float | None = None,
        **generate_kwargs: Any,
    ) -> dict[str, torch.Tensor]:
        """A batch of sources -> `output_ids` [B, returned, T], `was_cut` [B], and what else was asked for.

        That is `scores` [B, returned], and the tensors of `coverage_scores`.
        """
        settings = {**self.task_settings, **generate_kwargs}
        settings.pop("prefix", None)
        settings = self._with_limits(input_tensors, settings)
        source, mask = input_tensors["input_ids"], input_tensors["attention_mask"]
        if self.members:
            ensemble = EnsembleLogits(self.members, source, mask)
            settings["logits_processor"] = LogitsProcessorList([ensemble, *settings.get("logits_processor", ())])
        limits = settings.pop("limits", None)
        returned = self._num_returned(settings)
        if coverage_weight:
            settings["num_return_sequences"] = self._num_beams(settings)
        model: Any = self.model
        output = model.generate(**input_tensors, **settings)
        sequences = output if isinstance(output, torch.Tensor) else output["sequences"]
        lengths = generated_lengths(sequences, end_token_ids(model, settings))
        if limits is None:
            limit = given_limit(model, settings)
            limits = torch.full((len(source),), torch.iinfo(torch.long).max if limit is None else limit)
        results = {
            "output_ids": sequences,
            "cut": lengths >= limits.to(lengths.device).repeat_interleave(len(sequences) // len(source)),
        }
        covers = return_coverage or bool(coverage_weight)
        if return_scores and not covers:
            results["scores"] = score_sequences(model, source, mask, sequences, lengths)
        results = {name: value.unflatten(0, (len(source), -1)) for name, value in results.items()}
        if covers:  # which gives the scores, too
            results |= coverage_scores(model, source, mask, sequences)
        if coverage_weight:
            # beam search's own score, which divides by a power of the length
            powers = lengths.clamp(min=1).reshape_as(results["scores"]) ** (1 - self._length_penalty(settings))
            rescored = results["scores"] * powers - coverage_weight * results["left"]
            best = rescored.topk(returned, dim=1).indices  # [B, returned]
            for name in results.keys() - {"words"}:
                index = best.reshape(*best.shape, *[1] * (results[name].dim() - 2))
                results[name] = results[name].take_along_dim(index, dim=1)
        if not return_scores:
            results.pop("scores", None)
        results["was_cut"] = results.pop("cut").any(dim=1)
        return results

    def _num_beams(self, generate_kwargs: dict[str, Any]) -> int:
        config = generate_kwargs.get("generation_config") or self.model.generation_config
        beams = int(generate_kwargs.get("num_beams") or config.num_beams or 1)
        if beams < 2:
            raise ValueError(f"`coverage_weight` rescores the hypotheses of beam search: `num_beams` is {beams}")
        return beams

    def _length_penalty(self, generate_kwargs: dict[str, Any]) -> float:
        config = generate_kwargs.get("generation_config") or self.model.generation_config
        given = (generate_kwargs.get("length_penalty"), config.length_penalty, 1.0)
        return float(next(penalty for penalty in given if penalty is not None))

    def _with_limits(self, inputs: dict[str, Any], generate_kwargs: dict[str, Any]) -> dict[str, Any]:
        """A limit for each source by its own length, where nobody asked for another."""
        if any(generate_kwargs.get(name) is not None for name in LIMIT_NAMES):
            return generate_kwargs
        by_source = limits_by_source(inputs["attention_mask"].sum(dim=1))
        of_checkpoint = limit_of_checkpoint(self.model)
        limits = by_source if of_checkpoint is None else by_source.clamp(max=of_checkpoint)
        settings = {**generate_kwargs, "limits": limits}
        if self.model.generation_config.max_length is None:
            settings["max_new_tokens"] = int(limits.max())
        else:  # both of them would give a warning
            settings["max_length"] = int(limits.max()) + 1
        ends = end_token_ids(self.model, generate_kwargs)
        if ends and (of_checkpoint is None or bool((by_source < of_checkpoint).any())):
            processors = generate_kwargs.get("logits_processor", ())
            settings["logits_processor"] = LogitsProcessorList(
                [*processors, SourceLengthLimit(by_source, of_checkpoint, ends[0])]
            )
        return settings

    def postprocess(  # type: ignore[override]
        self,
        model_outputs: Document,
        num_returned: int = 1,
        return_tensors: bool = False,
        clean_up_tokenization_spaces: bool | None = None,
        return_coverage: bool = False,
        coverage_threshold: float | None = None,
    ) -> list[dict[str, Any]]:
        """The records of a text: one for each returned sequence, put together from those of its pieces."""
        document, tokenizer, pieces = model_outputs, cast(Any, self.tokenizer), cast(Any, model_outputs.pieces)
        ends = end_token_ids(self.model, {})
        records: list[dict[str, Any]] = []
        for rank in range(num_returned):
            chosen = [piece.output_ids[rank] for piece in pieces]
            chosen = [ids[: 1 + int(generated_lengths(ids[None], ends))] for ids in chosen]
            if return_tensors:
                ids = torch.cat(chosen) if chosen else torch.empty(0, dtype=torch.long)
                record: dict[str, Any] = {"translation_token_ids": ids}
            else:
                texts = [
                    tokenizer.decode(
                        ids, skip_special_tokens=True, clean_up_tokenization_spaces=clean_up_tokenization_spaces
                    )
                    for ids in chosen
                ]
                record = {"translation_text": join_translations(document, texts)}
            if pieces and pieces[0].scores is not None:
                lengths = [len(ids) - 1 for ids in chosen]
                total = sum(float(piece.scores[rank]) * length for piece, length in zip(pieces, lengths, strict=True))
                record["score"] = total / sum(lengths)
            if return_coverage or coverage_threshold is not None:
                record["coverage"] = coverage_record(
                    document, rank, chosen, tokenizer, self.source_prefix, coverage_threshold
                )
            records.append(record)
        return records


def _given(parameters: dict[str, Any]) -> dict[str, Any]:
    """The parameters that somebody set."""
    return {name: value for name, value in parameters.items() if value is not None}
