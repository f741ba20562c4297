"""`Translator`: text in, `Translation`s out, for any sequence-to-sequence checkpoint."""

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast, overload

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from hf_capsule_mt.modeling.loading import CheckedSeq2SeqLM, check_tokenizer, check_weights, load_tokenizer
from hf_capsule_mt.modeling.vocabulary import decode_target
from hf_capsule_mt.pipelines.backends import choose_backend
from hf_capsule_mt.pipelines.coverage import coverage_of
from hf_capsule_mt.pipelines.decoding import BatchDecoder, Hypotheses
from hf_capsule_mt.pipelines.deletion import deletion_effects
from hf_capsule_mt.pipelines.ensemble import load_members
from hf_capsule_mt.pipelines.keeping import Keeper
from hf_capsule_mt.pipelines.limits import (
    end_token_ids,
    generated_lengths,
    max_source_tokens,
)
from hf_capsule_mt.pipelines.results import Coverage, CoverageOptions, Segment, Translation, TranslationOptions
from hf_capsule_mt.pipelines.segments import (
    LONE_SURROGATES,
    Document,
    Piece,
    PrefixedText,
    Segmenter,
    TranslationIterator,
    batches_of,
    join_translations,
    pipeline_logger,
)
from hf_capsule_mt.pipelines.sentences import Span
from hf_capsule_mt.pipelines.source_batch import SourceBatch, WordTokens, sequence_log_probs
from hf_capsule_mt.pipelines.word_coverage import coverage_method, word_lists_of
from hf_capsule_mt.pipelines.words import target_ends, token_offsets, words_of

TASK_WITH_LANGUAGES = re.compile(r"translation_(?P<source>[^_]+(?:_[^_]+)*?)_to_(?P<target>.+)")
# of what is left out against the mean log-probability of a token, where nobody sets another
DEFAULT_COVERAGE_WEIGHT = 5.0


class Translator:
    """Translates texts with a sequence-to-sequence model of transformers, ours or any other.

        >>> translator = Translator.from_pretrained("checkpoints/capsule-marian-de-en")
        >>> translation = translator("Der alte Mann kauft einen roten Hut.", coverage=CoverageOptions())
        >>> translation.text, translation.score, [word.text for word in translation.coverage.untranslated]

    Args:
        model: the model, which is put into evaluation mode.
        tokenizer: its tokenizer.
        ensemble: further models (or paths) of the same vocabulary, whose probabilities are averaged with the model's.
        int8: multiply by int8 copies of the matrices, which is faster on a CPU.
        backend: what decodes. "native" and "torch" are those of `to_fast`, which copies the weights; "transformers" is
            `generate()`; "auto" takes the fastest that there is for a float32 model on a CPU. Models that `to_fast`
            does not take, and ensembles, get faster linear maps in place, which train and save as before.
        shortlist: score only the tokens that the words of a source are likely to become, which `capsule-mt shortlist`
            finds out: its file, or True for the one beside the checkpoint.
        task: "translation", or with languages, as "translation_en_to_de", which T5 checkpoints have settings for.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        *,
        ensemble: Iterable[PreTrainedModel | str | os.PathLike[str]] = (),
        int8: bool = False,
        backend: str = "auto",
        shortlist: bool | str | Path = False,
        task: str = "translation",
    ) -> None:
        self.model = model.eval()
        check_weights(model)
        check_tokenizer(model, tokenizer)
        self.tokenizer = tokenizer
        self.task = task
        self.members = load_members(model, tokenizer, ensemble)
        self.fast = choose_backend(model, self.members, int8, backend, shortlist)

    @classmethod
    def from_pretrained(
        cls,
        name_or_path: str | os.PathLike[str],
        *,
        device: str | torch.device | None = None,
        dtype: str | torch.dtype = "auto",
        ensemble: Iterable[PreTrainedModel | str | os.PathLike[str]] = (),
        int8: bool = False,
        backend: str = "auto",
        shortlist: bool | str | Path = False,
        task: str = "translation",
    ) -> "Translator":
        """Load a checkpoint and its tokenizer, onto the first accelerator if there is one and `device` names none.

        Weights that are missing, superfluous or not finite, and a tokenizer that does not fit, are errors. On a CPU,
        `dtype="auto"` computes in float32 with weights that are stored in half precision.
        """
        model = CheckedSeq2SeqLM.from_pretrained(name_or_path, dtype=dtype)
        tokenizer = load_tokenizer(name_or_path)
        device = torch.device(device or torch.accelerator.current_accelerator(check_available=True) or "cpu")
        if dtype == "auto" and device.type == "cpu" and model.dtype in (torch.float16, torch.bfloat16):
            model = model.float()
        return cls(
            model.to(device), tokenizer, ensemble=ensemble, int8=int8, backend=backend, shortlist=shortlist, task=task
        )

    @overload
    def __call__(self, texts: str, *, num_return_sequences: int, **options: Any) -> list[Translation]: ...
    @overload
    def __call__(self, texts: str, *, coverage: CoverageOptions | None = None, **options: Any) -> Translation: ...
    @overload
    def __call__(
        self, texts: list[str] | tuple[str, ...], *, coverage: CoverageOptions | None = None, **options: Any
    ) -> list[Translation]: ...
    @overload
    def __call__(
        self, texts: Iterable[str], *, coverage: CoverageOptions | None = None, **options: Any
    ) -> Iterable[Translation]: ...
    def __call__(
        self,
        texts: str | Iterable[str],
        *,
        coverage: CoverageOptions | None = None,
        scores: bool = True,
        batch_size: int = 1,
        batch_tokens: int | None = None,
        split_sentences: bool = True,
        max_source_tokens: int | None = None,
        truncation: bool | str = False,
        src_lang: str | None = None,
        tgt_lang: str | None = None,
        clean_up_tokenization_spaces: bool | None = None,
        keep: Sequence[str] = (),
        **generate_kwargs: object,
    ) -> Translation | list[Translation] | Iterable[Translation | list[Translation]]:
        """Translate one string, a list of strings, or lazily any other iterable of strings.

        A text of several sentences is translated sentence by sentence, and the space between them is kept; a blank
        text stays blank. A sentence that is longer than the model takes is translated in pieces. A translation that
        reaches its limit is reported by a warning. Lone surrogates, which are no characters, are read as U+FFFD.

        Args:
            texts: what to translate. A `PrefixedText` also has what its translation begins with.
            coverage: find what was left out, and how.
            scores: compute `Translation.score`. Where `generate()` decodes, it takes one more pass of the decoder.
            batch_size: how many sentences go through the model at once.
            batch_tokens: how many of their tokens, padding included, instead of how many sentences.
            split_sentences: False translates each text as if it were one sentence, and refuses one that is too long.
            max_source_tokens: translate in pieces of at most so many tokens, fewer than the model takes.
            truncation: cut a source to what the model takes, with a warning.
            src_lang, tgt_lang: for tokenizers that have languages, and for the rules about sentences.
            clean_up_tokenization_spaces: for the tokenizer.
            keep: of "tags", "urls", "placeholders" and "numbers": those that a translation has as its source does.
            generate_kwargs: for `generate()`: `num_beams`, `max_new_tokens`, ... Without a limit among them, a
                translation has at most three times the tokens of its source and thirty more, and what the checkpoint
                allows.

        Returns:
            A `Translation` for a string, a list of them for a list or a tuple, an iterable for any other iterable,
            in the order of the texts. With `num_return_sequences` above one, each text has a list of its own.
        """
        options = TranslationOptions(
            batch_size=batch_size,
            batch_tokens=batch_tokens,
            coverage=coverage,
            scores=scores,
            split_sentences=split_sentences,
            max_source_tokens=max_source_tokens,
            truncation=truncation,
            src_lang=src_lang,
            tgt_lang=tgt_lang,
            clean_up_tokenization_spaces=clean_up_tokenization_spaces,
            keep=keep,
            generate_kwargs=generate_kwargs,
        )
        if isinstance(texts, (bytes, dict)) or not (hasattr(texts, "__iter__") or hasattr(texts, "__getitem__")):
            raise TypeError(f"`texts` must be a string or an iterable of strings, got a {type(texts).__name__}")

        def translate(window: list[str]) -> list[Translation | list[Translation]]:
            return [found[0] if len(found) == 1 else found for found in self.translate(window, options)]

        if isinstance(texts, str):
            return translate([texts])[0]
        found = TranslationIterator(texts, translate, options.window)
        return list(iter(found)) if isinstance(texts, (list, tuple)) else found

    def translate(self, texts: list[str], options: TranslationOptions) -> list[list[Translation]]:
        """Translate these texts, sorted by length into batches, and return the best translations of each."""
        if options.keep:
            return [[translation] for translation in self._keeping(texts, options)]
        segmenter = self._segmenter(options)
        documents = [segmenter.document(text) for text in texts]
        pieces = [piece for document in documents for piece in document.pieces]
        self._translate_pieces(batches_of(pieces, options.batch_size, options.batch_tokens), options)
        num_returned = self._decoder.num_returned(self._generate_kwargs(options))
        return [[self._translation(document, rank, options) for rank in range(num_returned)] for document in documents]

    def _keeping(self, texts: list[str], options: TranslationOptions) -> list[Translation]:
        """Translate texts, and keep what `options.keep` names."""
        returned = self._decoder.num_returned(self._generate_kwargs(options))
        if returned > 1:
            raise ValueError(
                f"`keep` goes with one translation of each text, got `num_return_sequences` of {returned}"
            )
        for text in texts:
            if not isinstance(text, str):
                raise TypeError(f"a text must be a string, got a {type(text).__name__}")
            if isinstance(text, PrefixedText):
                raise TypeError("`keep` does not go with a `PrefixedText`: leave one of them out")
        plain = replace(options, keep=())
        segmenter, clean_up = self._segmenter(options), options.clean_up_tokenization_spaces
        for text in texts:
            if token := segmenter.language_token(text)[1]:
                raise ValueError(f"`keep` does not go with {token} in a text: give `tgt_lang={token.strip('<>')!r}`")
        keeper = Keeper(
            options.keep,
            lambda sentences: [found for (found,) in self.translate(sentences, plain)],
            self._effects,
            lambda segment: target_ends(self.tokenizer, segment.target_ids, clean_up),
            split=options.split_sentences,
            language=segmenter.src_lang,
        )
        return keeper(LONE_SURROGATES.sub("\ufffd", text) for text in texts)

    def _effects(self, source: str, segment: Segment, spans: list[Span]) -> torch.Tensor:
        """Return how many nats each token of a translation loses without each span of its source: [N, T]."""
        ids, device = list(segment.source_ids), self.model.device
        offsets = token_offsets(self.tokenizer, source[segment.start : segment.end], ids, self.source_prefix)
        middles = [None if place is None else segment.start + sum(place) / 2 for place in offsets]
        deleted = [[at is not None and start <= at < end for at in middles] for start, end in spans]
        input_ids = torch.tensor([ids], device=device)
        batch = SourceBatch(input_ids, torch.ones_like(input_ids), {})
        sequence = torch.tensor([segment.target_ids], device=device)
        return deletion_effects(self.model, batch, sequence, torch.tensor(deleted, device=device)).cpu()

    def cover(
        self,
        texts: Sequence[str],
        translations: Sequence[str],
        *,
        coverage: CoverageOptions | None = None,
        batch_size: int = 16,
    ) -> list[Coverage]:
        """Return what given translations cover: the `coverage` of what `score` returns."""
        coverage = coverage or CoverageOptions()
        found = self.score(texts, translations, coverage=coverage, batch_size=batch_size)
        return [translation.coverage for translation in found if translation.coverage is not None]

    @torch.no_grad()
    def score(
        self,
        texts: Sequence[str],
        translations: Sequence[str],
        *,
        coverage: CoverageOptions | None = None,
        batch_size: int = 16,
        batch_tokens: int | None = None,
    ) -> list[Translation]:
        """Return given translations, such as another system's, with their scores and what they cover.

        Each text is taken as one sentence. A source or a translation that is longer than the model takes is cut, with
        a warning, and `was_cut` says so. A blank text has no score.

        Args:
            texts: the sources.
            translations: a translation of each.
            coverage: find what was left out, and how.
            batch_size: how many pairs go through the model at once.
            batch_tokens: how many of their tokens, padding included, of the longer side; instead of how many pairs.
        """
        for name, given in (("texts", texts), ("translations", translations)):
            if isinstance(given, str):
                raise TypeError(f"`{name}` must be a list of strings, got the string {given[:40]!r}")
        if len(texts) != len(translations):
            raise ValueError(f"`texts` are {len(texts)}, but `translations` {len(translations)}")
        options = TranslationOptions(batch_size, batch_tokens, coverage, split_sentences=False, truncation=True)
        segmenter, decoder = self._segmenter(options), self._decoder
        if segmenter.tgt_lang is not None and hasattr(self.tokenizer, "tgt_lang"):
            self.tokenizer.tgt_lang = segmenter.tgt_lang  # of the translations
        method = None if coverage is None else coverage_method(self.model, coverage.method)
        documents = [segmenter.document(text) for text in texts]
        # a text that is not cut into sentences is one piece, or none if it is blank
        target_of = {
            id(piece): self._target_ids(translation)
            for document, translation in zip(documents, translations, strict=True)
            for piece in document.pieces
        }
        start = self.model.generation_config.decoder_start_token_id
        start = self.model.config.decoder_start_token_id if start is None else start
        pieces = [piece for document in documents for piece in document.pieces]

        def length(piece: Piece) -> int:
            return max(len(piece.source.token_ids), len(target_of[id(piece)][0]))

        for batch_pieces in batches_of(pieces, batch_size, batch_tokens, length):
            targets, was_cut = zip(*(target_of[id(piece)] for piece in batch_pieces), strict=True)
            lengths = torch.tensor([len(ids) for ids in targets])
            sequences = torch.full((len(targets), 1 + int(lengths.max())), self.tokenizer.pad_token_id or 0)
            for row, ids in enumerate(targets):
                sequences[row, : 1 + len(ids)] = torch.tensor([start, *ids])
            batch, device = self._collate(batch_pieces), self.model.device
            if method is None:
                found = None
                log_probs = sequence_log_probs(self.model, batch, sequences.to(device), lengths.to(device))
                log_probs = log_probs / lengths.clamp(min=1).to(device)
            else:
                log_probs, found = decoder.cover(batch, sequences.to(device), lengths.to(device), method)
            _enter(
                batch_pieces, Hypotheses(sequences[:, None], torch.tensor(was_cut)[:, None], log_probs[:, None], found)
            )
        results = []
        for document, translation in zip(documents, translations, strict=True):
            segments, log_prob = [], None
            for piece in document.pieces:
                target_ids, is_cut = target_of[id(piece)]
                is_cut = is_cut or piece.source.was_cut
                segments.append(Segment(*piece.span, tuple(piece.source.token_ids), (start, *target_ids), is_cut))
                log_prob = float(cast(torch.Tensor, piece.translations.log_probs)[0])
            covered = coverage_of(document, 0, [translation] * len(segments)) if coverage is not None else None
            results.append(Translation(translation, log_prob, covered, tuple(segments)))
        return results

    def _target_ids(self, translation: str) -> tuple[list[int], bool]:
        """Return the token ids of a given translation, and whether it was cut."""
        ids = list(self.tokenizer(text_target=translation, verbose=False)["input_ids"])
        limit = max_source_tokens(self.model, self.tokenizer)
        if limit is None or len(ids) <= limit:
            return ids, False
        pipeline_logger.warning(f"A given translation of {len(ids)} tokens was cut to {limit}.")
        return list(self.tokenizer(text_target=translation, truncation=True, max_length=limit)["input_ids"]), True

    def source_words(self, text: str, segment: Segment) -> list[tuple[Span, list[int]]]:
        """Return the words of a segment of `text`, and which of its `source_ids` each is made of."""
        span = Span(segment.start, segment.end)
        source = LONE_SURROGATES.sub("\ufffd", text[span.start : span.end])
        offsets = token_offsets(self.tokenizer, source, list(segment.source_ids), self.source_prefix)
        return words_of(text, span, offsets)

    @property
    def source_prefix(self) -> str:
        """What a T5 checkpoint reads before each source."""
        return str(self._task_settings.get("prefix") or getattr(self.model.config, "prefix", None) or "")

    @property
    def _task_settings(self) -> dict[str, object]:
        """What a T5 checkpoint says of the task "translation_en_to_de": a prefix and settings of `generate()`."""
        of_tasks = getattr(self.model.config, "task_specific_params", None) or {}
        return dict(of_tasks.get(self.task) or {})

    @property
    def _decoder(self) -> BatchDecoder:
        return BatchDecoder(self.model, self.members, self.fast)

    def _generate_kwargs(self, options: TranslationOptions) -> dict[str, object]:
        settings = {**self._task_settings, **options.generate_kwargs}
        settings.pop("prefix", None)
        return settings

    def _segmenter(self, options: TranslationOptions) -> Segmenter:
        src_lang, tgt_lang = options.src_lang, options.tgt_lang
        if src_lang is None and tgt_lang is None:
            src_lang, tgt_lang = languages_of_task(self.task)
        known = (max_source_tokens(self.model, self.tokenizer), options.max_source_tokens)
        return Segmenter(
            self.tokenizer,
            limit=min((number for number in known if number is not None), default=None),
            prefix=self.source_prefix,
            split_sentences=options.split_sentences,
            truncation=options.truncation,
            src_lang=src_lang,
            tgt_lang=tgt_lang,
            with_words=options.coverage is not None,
            lists=word_lists_of(self.model.config),
        )

    def _translate_pieces(self, batches: Iterator[list[Piece]], options: TranslationOptions) -> None:
        """Translate the pieces of these batches, and enter the results in them."""
        coverage, settings = options.coverage or CoverageOptions(), self._generate_kwargs(options)
        num_pieces, num_cut, num_short = 0, 0, 0
        for pieces in batches:
            batch = self._collate(pieces)
            found = self._decoder(batch, settings, scores=options.scores, coverage=options.coverage)
            _enter(pieces, found)
            short = _short_of(pieces, coverage.threshold)
            if short and coverage.retry_beams:
                weighted = replace(coverage, weight=coverage.weight or DEFAULT_COVERAGE_WEIGHT)
                beams = max(coverage.retry_beams, self._decoder.num_returned(settings))
                again = {**settings, "num_beams": beams}
                found = self._decoder(batch.rows(short), again, coverage=weighted)
                _enter([pieces[row] for row in short], found)
                short = _short_of(pieces, coverage.threshold)
            num_pieces += len(pieces)
            num_short += len(short)
            num_cut += sum(bool(piece.translations.was_cut.any()) for piece in pieces)
        if num_cut:
            pipeline_logger.warning(
                f"{num_cut} of {num_pieces} translations reached the limit of their length and may be incomplete. "
                "`max_new_tokens` sets a higher one."
            )
        if num_short:
            pipeline_logger.warning(
                f"The coverage of {num_short} of {num_pieces} translations is below {coverage.threshold}: they may "
                "leave something out."
            )

    def _collate(self, pieces: list[Piece]) -> SourceBatch:
        """Pad the pieces on the side that the tokenizer pads on."""
        lengths = [len(piece.source.token_ids) for piece in pieces]
        input_ids = torch.full((len(pieces), max(lengths)), self.tokenizer.pad_token_id or 0)
        mask = torch.zeros_like(input_ids)
        on_the_left = self.tokenizer.padding_side == "left"
        for row, (piece, length) in enumerate(zip(pieces, lengths, strict=True)):
            place = slice(max(lengths) - length, max(lengths)) if on_the_left else slice(0, length)
            input_ids[row, place] = torch.tensor(piece.source.token_ids)
            mask[row, place] = 1
        device = self.model.device
        words = WordTokens.of([piece.words for piece in pieces], mask.to(device))
        prefixes = [piece.target_prefix for piece in pieces]
        return SourceBatch(
            input_ids.to(device),
            mask.to(device),
            pieces[0].source.settings,
            words=words,
            prefixes=prefixes if any(prefixes) else [],
        )

    def _translation(self, document: Document, rank: int, options: TranslationOptions) -> Translation:
        """Put the translation of a text together from those of its pieces."""
        segments, texts, total, num_tokens = [], [], 0.0, 0
        ends = end_token_ids(self.model, {})
        for piece in document.pieces:
            found = piece.translations
            ids = found.sequences[rank]
            ids = ids[: 1 + int(generated_lengths(ids[None], ends))]
            target_ids = tuple(ids.tolist())
            source_ids = tuple(piece.source.token_ids)
            segments.append(Segment(*piece.span, source_ids, target_ids, was_cut=bool(found.was_cut[rank])))
            clean_up = options.clean_up_tokenization_spaces
            texts.append(decode_target(self.tokenizer, ids.tolist(), clean_up_tokenization_spaces=clean_up))
            if found.log_probs is not None:
                total += float(found.log_probs[rank]) * (len(ids) - 1)
                num_tokens += len(ids) - 1
        coverage = None
        if options.coverage is not None:
            coverage = coverage_of(document, rank, texts)
        score = total / num_tokens if num_tokens else None
        return Translation(join_translations(document, texts), score, coverage, tuple(segments))


def languages_of_task(task: str) -> tuple[str | None, str | None]:
    """Return the languages of a task such as "translation_en_to_de", if it names any."""
    languages = TASK_WITH_LANGUAGES.fullmatch(task)
    return (None, None) if languages is None else (languages["source"], languages["target"])


def _enter(pieces: list[Piece], found: Hypotheses) -> None:
    """Give each piece its hypotheses, unless those that it has leave less out."""
    for row, piece in enumerate(pieces):
        own = found.of_source(row)
        before = None if piece.hypotheses is None else piece.hypotheses.coverage
        if before is None or own.coverage is None or float(own.coverage.left[0]) < float(before.left[0]):
            piece.hypotheses = own


def _short_of(pieces: list[Piece], threshold: float | None) -> list[int]:
    """Return which of the pieces have a coverage below a threshold."""
    coverages = [piece.translations.coverage for piece in pieces]
    if threshold is None:
        return []
    return [row for row, found in enumerate(coverages) if found is not None and float(found.score[0]) < threshold]
