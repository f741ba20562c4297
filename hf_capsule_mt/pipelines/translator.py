"""`Translator`: text in, `Translation`s out, for any sequence-to-sequence checkpoint."""

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, cast, overload

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from capsule_mt.text.keeping import Masked
from capsule_mt.text.messages import warn
from capsule_mt.text.restoring import restored
from capsule_mt.text.segments import (
    LONE_SURROGATES,
    Document,
    Piece,
    Segmenter,
    TranslationIterator,
    batches_of,
    join_translations,
)
from capsule_mt.text.sentences import Span
from capsule_mt.text.words import words_of
from hf_capsule_mt.modeling.loading import CheckedSeq2SeqLM, check_tokenizer, check_weights, load_tokenizer
from hf_capsule_mt.pipelines.attention import attention_of_head, cross_attentions
from hf_capsule_mt.pipelines.backends import choose_backend
from hf_capsule_mt.pipelines.coverage import coverage_of
from hf_capsule_mt.pipelines.decoding import BatchDecoder, Hypotheses
from hf_capsule_mt.pipelines.deletion import deletion_effects
from hf_capsule_mt.pipelines.ensemble import load_members
from hf_capsule_mt.pipelines.limits import (
    end_token_ids,
    generated_lengths,
    max_source_tokens,
)
from hf_capsule_mt.pipelines.results import Coverage, CoverageOptions, Segment, Translation, TranslationOptions
from hf_capsule_mt.pipelines.source_batch import SourceBatch, WordTokens, sequence_log_probs
from hf_capsule_mt.pipelines.tokenizer import TransformersTokenizer, token_offsets
from hf_capsule_mt.pipelines.word_coverage import calibration_of, coverage_method, head_of, word_lists_of

TASK_WITH_LANGUAGES = re.compile(r"translation_(?P<source>[^_]+(?:_[^_]+)*?)_to_(?P<target>.+)")
# of FUTURE against the mean log-probability of a token, where nobody sets another
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
        backend: what decodes. "native" is the C engine of `to_fast`, which copies the weights; "transformers" is
            `generate()`; "auto" takes the engine for one float32 model on a CPU, where it takes it.
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
        segmenter = self._segmenter(options)
        documents = [segmenter.document(text) for text in texts]
        pieces = [piece for document in documents for piece in document.pieces]
        found = self._translate_pieces(pieces, segmenter, options)
        if options.keep:
            self._stand_in(pieces, found, segmenter, options)
        ranks = range(self._decoder.num_returned(self._generate_kwargs(options)))
        translated, results = iter(zip(pieces, found, strict=True)), []
        for document in documents:
            own = list(islice(translated, len(document.pieces)))
            document.pieces = [piece for piece, _ in own]
            hypotheses = [one for _, one in own]
            results.append([self._translation(document, hypotheses, rank, segmenter, options) for rank in ranks])
        return results

    def _stand_in(
        self, pieces: list[Piece], found: list[Hypotheses], segmenter: Segmenter, options: TranslationOptions
    ) -> None:
        """Translate pieces again, with stand-ins, whose best translation has not kept everything."""
        again: dict[int, Piece] = {}
        for place, (piece, own) in enumerate(zip(pieces, found, strict=True)):
            other = segmenter.with_stand_ins(piece, segmenter.tokenizer.decode(self._target_ids(own, 0)))
            if other is not None:
                again[place] = other
        for place, own in zip(again, self._translate_pieces(list(again.values()), segmenter, options), strict=True):
            pieces[place], found[place] = again[place], own

    def _align(self, piece: Piece, source_ids: Sequence[int], ids: Sequence[int]) -> list[list[float]]:
        """Return which source tokens each token of a translation is of: [T][S], by attention, else by deletion."""
        device = self.model.device
        input_ids = torch.tensor([source_ids], device=device)
        batch = SourceBatch(input_ids, torch.ones_like(input_ids))
        sequence = torch.tensor([[self._start_id, *ids]], device=device)
        if calibration_of(self.model.config, "attention") is not None and cross_attentions(self.model):
            lengths = torch.tensor([len(ids)])
            attention = attention_of_head(self.model, batch, sequence, lengths, head_of(self.model))[1]
            rows: list[list[float]] = attention[0].tolist()
            return [*rows[1:], rows[-1]]  # the head looks at the source of the token that it reads
        source = cast(Masked, piece.masked)
        groups = [tokens for _, tokens in words_of(source.text, source.offsets)]
        deleted = torch.zeros(len(groups), len(source_ids), dtype=torch.bool)
        for number, tokens in enumerate(groups):
            deleted[number, tokens] = True
        effects = deletion_effects(self.model, batch, sequence, deleted.to(device)).cpu().clamp(min=0.0)  # [N, T]
        shares = effects / effects.sum(dim=0).clamp(min=1.0) / deleted.sum(dim=1)[:, None]
        return cast(list[list[float]], (shares.T @ deleted.float()).tolist())

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
        pieces = [piece for document in documents for piece in document.pieces]
        pairs = zip(documents, translations, strict=True)
        targets = [self._given_ids(translation) for document, translation in pairs if document.pieces]
        lengths = [max(len(piece.ids), len(ids)) for piece, (ids, _) in zip(pieces, targets, strict=True)]
        found: list[Hypotheses | None] = [None] * len(pieces)
        for rows in batches_of(lengths, batch_size, batch_tokens):
            batch, device = self._collate([pieces[row] for row in rows], segmenter), self.model.device
            counts = torch.tensor([len(targets[row][0]) for row in rows])
            sequences = torch.full((len(rows), 1 + int(counts.max())), self.tokenizer.pad_token_id or 0)
            for place, row in enumerate(rows):
                sequences[place, : 1 + len(targets[row][0])] = torch.tensor([self._start_id, *targets[row][0]])
            if method is None:
                covered = None
                log_probs = sequence_log_probs(self.model, batch, sequences.to(device), counts.to(device))
                log_probs = log_probs / counts.clamp(min=1).to(device)
            else:
                log_probs, covered = decoder.cover(batch, sequences.to(device), counts.to(device), method)
            was_cut = torch.tensor([[targets[row][1]] for row in rows])
            own = Hypotheses(sequences[:, None], was_cut, log_probs[:, None], covered)
            for place, row in enumerate(rows):
                found[row] = own.of_source(place)
        scored, results = iter(zip(targets, cast(list[Hypotheses], found), strict=True)), []
        for document, translation in zip(documents, translations, strict=True):
            segments, log_prob, hypotheses = [], None, []
            for piece in document.pieces:
                (target_ids, is_cut), own = next(scored)
                ids, is_cut = (self._start_id, *target_ids), is_cut or piece.was_cut
                segments.append(Segment(*piece.span, tuple(piece.ids), ids, is_cut))
                log_prob = float(cast(torch.Tensor, own.log_probs)[0])
                hypotheses.append(own)
            whole = [translation] * len(segments)
            coverage_found = coverage_of(document, hypotheses, 0, whole) if coverage is not None else None
            results.append(Translation(translation, log_prob, coverage_found, tuple(segments)))
        return results

    @property
    def _start_id(self) -> int:
        start = self.model.generation_config.decoder_start_token_id
        return cast(int, self.model.config.decoder_start_token_id if start is None else start)

    def _given_ids(self, translation: str) -> tuple[list[int], bool]:
        """Return the token ids of a given translation, and whether it was cut."""
        ids = list(self.tokenizer(text_target=translation, verbose=False)["input_ids"])
        limit = max_source_tokens(self.model, self.tokenizer)
        if limit is None or len(ids) <= limit:
            return ids, False
        warn(f"A given translation of {len(ids)} tokens was cut to {limit}.")
        return list(self.tokenizer(text_target=translation, truncation=True, max_length=limit)["input_ids"]), True

    def source_words(self, text: str, segment: Segment) -> list[tuple[Span, list[int]]]:
        """Return the words of a segment of `text`, and which of its `source_ids` each is made of."""
        source = LONE_SURROGATES.sub("\ufffd", text[segment.start : segment.end])
        offsets = token_offsets(self.tokenizer, source, list(segment.source_ids), self.source_prefix)
        start = segment.start
        return [(Span(start + word.start, start + word.end), tokens) for word, tokens in words_of(source, offsets)]

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
            TransformersTokenizer(self.tokenizer, src_lang, tgt_lang, options.clean_up_tokenization_spaces),
            limit=min((number for number in known if number is not None), default=None),
            prefix=self.source_prefix,
            split_sentences=options.split_sentences,
            truncation=options.truncation,
            src_lang=src_lang,
            tgt_lang=tgt_lang,
            copies=False,
            keep=options.keep,
            with_words=options.coverage is not None,
            lists=word_lists_of(self.model.config),
        )

    def _translate_pieces(
        self, pieces: list[Piece], segmenter: Segmenter, options: TranslationOptions
    ) -> list[Hypotheses]:
        """Translate pieces, similar ones together; return the hypotheses of each."""
        coverage, settings = options.coverage or CoverageOptions(), self._generate_kwargs(options)
        found: dict[int, Hypotheses] = {}
        num_pieces, num_cut, num_short = len(pieces), 0, 0
        for rows in batches_of([len(piece.ids) for piece in pieces], options.batch_size, options.batch_tokens):
            batch = self._collate([pieces[row] for row in rows], segmenter)
            _enter(found, rows, self._decoder(batch, settings, scores=options.scores, coverage=options.coverage))
            short = _short_of([found[row] for row in rows], coverage.threshold)
            if short and coverage.retry_beams:
                weighted = replace(coverage, weight=coverage.weight or DEFAULT_COVERAGE_WEIGHT)
                beams = max(coverage.retry_beams, self._decoder.num_returned(settings))
                again = self._decoder(batch.rows(short), {**settings, "num_beams": beams}, coverage=weighted)
                _enter(found, [rows[place] for place in short], again)
                short = _short_of([found[row] for row in rows], coverage.threshold)
            num_short += len(short)
            num_cut += sum(bool(found[row].was_cut.any()) for row in rows)
        if num_cut:
            warn(
                f"{num_cut} of {num_pieces} translations reached the limit of their length and may be incomplete. "
                "`max_new_tokens` sets a higher one."
            )
        if num_short:
            warn(
                f"The coverage of {num_short} of {num_pieces} translations is below {coverage.threshold}: they may "
                "leave something out."
            )
        return [found[row] for row in range(len(pieces))]

    def _collate(self, pieces: list[Piece], segmenter: Segmenter) -> SourceBatch:
        """Pad the pieces on the side that the tokenizer pads on."""
        lengths = [len(piece.ids) for piece in pieces]
        input_ids = torch.full((len(pieces), max(lengths)), self.tokenizer.pad_token_id or 0)
        mask = torch.zeros_like(input_ids)
        on_the_left = self.tokenizer.padding_side == "left"
        for row, (piece, length) in enumerate(zip(pieces, lengths, strict=True)):
            place = slice(max(lengths) - length, max(lengths)) if on_the_left else slice(0, length)
            input_ids[row, place] = torch.tensor(piece.ids)
            mask[row, place] = 1
        device = self.model.device
        words = WordTokens.of([piece.words for piece in pieces], mask.to(device))
        prefixes = [piece.prefix for piece in pieces]
        return SourceBatch(
            input_ids.to(device),
            mask.to(device),
            cast(TransformersTokenizer, segmenter.tokenizer).settings,
            words=words,
            prefixes=prefixes if any(prefixes) else [],
        )

    def _translation(
        self, document: Document, found: list[Hypotheses], rank: int, segmenter: Segmenter, options: TranslationOptions
    ) -> Translation:
        """Put the translation of a text together from those of its pieces."""
        segments, texts, total, num_tokens = [], [], 0.0, 0
        for piece, own in zip(document.pieces, found, strict=True):
            ids = self._target_ids(own, rank)
            source_ids, target_ids = tuple(piece.ids), (int(own.sequences[rank, 0]), *ids)
            segments.append(Segment(*piece.span, source_ids, target_ids, was_cut=bool(own.was_cut[rank])))
            decode = segmenter.tokenizer.decode
            if piece.masked is None:
                texts.append(decode(ids))
            else:
                texts.append(restored(piece.masked, piece.ids, ids, decode, partial(self._align, piece)))
            if own.log_probs is not None:
                total += float(own.log_probs[rank]) * len(ids)
                num_tokens += len(ids)
        coverage = coverage_of(document, found, rank, texts) if options.coverage is not None else None
        score = total / num_tokens if num_tokens else None
        return Translation(join_translations(document, texts), score, coverage, tuple(segments))

    def _target_ids(self, found: Hypotheses, rank: int) -> list[int]:
        """Return the tokens of a translation after the start token, to its end token."""
        ids = found.sequences[rank]
        return cast(list[int], ids[1 : 1 + int(generated_lengths(ids[None], end_token_ids(self.model, {})))].tolist())


def languages_of_task(task: str) -> tuple[str | None, str | None]:
    """Return the languages of a task such as "translation_en_to_de", if it names any."""
    languages = TASK_WITH_LANGUAGES.fullmatch(task)
    return (None, None) if languages is None else (languages["source"], languages["target"])


def _enter(found: dict[int, Hypotheses], rows: list[int], new: Hypotheses) -> None:
    """Give each piece its hypotheses, unless those that it has leave less in FUTURE."""
    for place, row in enumerate(rows):
        own, before = new.of_source(place), found[row].coverage if row in found else None
        if before is None or own.coverage is None or float(own.coverage.left[0]) < float(before.left[0]):
            found[row] = own


def _short_of(found: list[Hypotheses], threshold: float | None) -> list[int]:
    """Return which of the pieces have a coverage below a threshold."""
    if threshold is None:
        return []
    coverages = [own.coverage for own in found]
    return [place for place, one in enumerate(coverages) if one is not None and float(one.score[0]) < threshold]
