"""`Translator`: text in, `Translation`s out.

text -> Segmenter -> pieces: token ids -> Decoder.translate -> hypotheses -> Decoder.force (only if a reading needs it)
-> words -> Translation
"""

import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import count
from typing import TYPE_CHECKING, Any, cast

from capsule_mt.engine.search import Hypothesis, Ids, Readings
from capsule_mt.files.line_failures import describe
from capsule_mt.messages import warn, warn_once
from capsule_mt.text.segments import (
    MAX_UNKNOWN_SHARE,
    Document,
    Piece,
    batches_of,
    join_translations,
)
from capsule_mt.translate.options import TranslationOptions, search_options, setting
from capsule_mt.translate.results import Translation
from capsule_mt.translate.scoring import Scorer
from capsule_mt.translate.text_translator import TextTranslator

if TYPE_CHECKING:  # and where it is used, late: who asks for no coverage starts sooner
    from capsule_mt.coverage.names import CoveredBy
    from capsule_mt.text.glossary import Glossary, Term
    from capsule_mt.text.tokenizer import Tokenizer

# of what is left out against the mean log-probability of a token, where nobody sets another
DEFAULT_COVERAGE_WEIGHT = 5.0
Found = list[Hypothesis]  # of a piece, the best first


class Translator(Scorer, TextTranslator):
    """Translates texts on a CPU.

        >>> translator = Translator.from_pretrained("checkpoints/capsule-marian-de-en")
        >>> translation = translator("Der alte Mann kauft einen roten Hut.", coverage=CoverageOptions())
        >>> translation.text, translation.score, [word.text for word in translation.coverage.untranslated]

    `hf_capsule_mt.Translator` is the same with any model of transformers.
    Given translations are scored by the methods of `Scorer`, which also has the arguments.
    """

    _loads_with: Mapping[str, Any] = {}  # how `from_pretrained` was called, and loads the reverse

    @classmethod
    def from_pretrained(
        cls,
        folder: str | os.PathLike[str],
        *,
        int8: bool = False,
        shortlist: bool | str | os.PathLike[str] = False,
        reverse: "Scorer | str | os.PathLike[str] | None" = None,
        glossary: "Glossary | Mapping[str, str] | str | os.PathLike[str] | None" = None,
    ) -> "Translator":
        """Load the checkpoint in a folder, or the model of a name, which is downloaded first if it is not there.

        A name is a pair such as "en-pt" of Mozilla's registry, or one of the Hugging Face hub. A pair without a model
        of its own goes through English and gives a `PivotTranslator`: `capsule_mt.load` does the same and says so.

        Args:
            int8: multiply in int8, which is several times as fast.
            shortlist: score only the tokens that the words of a source are likely to become, which `capsule-mt
                shortlist` finds out: its file, or True for the one beside the checkpoint.
            reverse: what translates in the other direction: see `Scorer`.
            glossary: terms and what they become: a dictionary, or a file with `term<tab>translation` on each line.
        """
        from capsule_mt.models.loading import load_model

        if not os.path.exists(folder):
            from capsule_mt.catalog.store import legs_of, resolve  # late: a folder needs no catalog

            legs = legs_of(folder)
            if len(legs) > 1:
                from capsule_mt.translate.pivot import PivotTranslator

                if glossary is not None:
                    raise ValueError(f"`glossary` needs one model, and {folder} goes through English by two")
                models = [cls.from_pretrained(resolve(leg), int8=int8, shortlist=shortlist) for leg in legs]
                return cast("Translator", PivotTranslator(*models))
            folder = resolve(legs[0])
        translator = cls(load_model(folder, int8=int8, shortlist=shortlist), glossary, reverse=reverse)
        translator._loads_with = {"int8": int8}
        return translator

    def _load(self, folder: str) -> "Translator":
        return type(self).from_pretrained(folder, **self._loads_with)

    # ---- the steps of `translate`
    def documents(self, texts: Sequence[str], options: TranslationOptions) -> list[Document]:
        """Cut texts into pieces that fit the model."""
        segmenter = self._segmenter(options)
        documents = [segmenter.document(text) for text in texts]
        if self.glossary is not None:
            self._find_terms(self.glossary, documents)
        num_unknown = sum(document.unknown > MAX_UNKNOWN_SHARE for document in documents)
        if num_unknown:
            warn(
                f"{num_unknown} of {len(documents)} texts have more than {MAX_UNKNOWN_SHARE:.0%} tokens that the "
                "vocabulary lacks: are they of the source language?"
            )
        return documents

    def translate_pieces(self, pieces: Sequence[Piece], options: TranslationOptions) -> list[Found]:
        """Translate pieces in batches of about the same length; those that leave much out, once more."""
        asked, settings = options.coverage, dict(options.generate_kwargs)
        method, threshold = self._method(options), self._threshold(options)
        weight, retry_beams = (None, None) if asked is None else (asked.weight, asked.retry_beams)
        found: list[Found] = [[]] * len(pieces)
        for places in batches_of([len(piece.ids) for piece in pieces], options.batch_size, options.batch_tokens):
            batch = [pieces[place] for place in places]
            for place, one in zip(places, self._search(batch, settings, method, weight, options), strict=True):
                found[place] = one
            short = [place for place in places if _is_short(found[place], threshold)]
            if short and retry_beams:
                again = {**settings, "num_beams": max(retry_beams, self._returned(options))}
                batch = [pieces[place] for place in short]
                retried = self._search(batch, again, method, weight or DEFAULT_COVERAGE_WEIGHT, options)
                for place, one in zip(short, retried, strict=True):
                    if _left(one) < _left(found[place]):
                        found[place] = one
        return found

    def put_together(
        self, documents: Sequence[Document], found: list[Found], options: TranslationOptions
    ) -> list[list[Translation]]:
        """Return the best translations of each text, from what was found for its pieces."""
        if any(piece.masked is not None for document in documents for piece in document.pieces):
            self._with_stand_ins(documents, found, options)
        if self.glossary is not None:
            self._with_terms([piece for document in documents for piece in document.pieces], found, options)
        threshold = self._threshold(options)
        self._warn_of(found, threshold)  # of the last pass
        of_piece, results = iter(found), []
        decode, ranks = self._tokenizer(options).decode, range(self._returned(options))
        for document in documents:
            own = [next(of_piece) for _ in document.pieces]
            results.append([self._translation(document, own, rank, options, decode, threshold) for rank in ranks])
        return results

    def _returned(self, options: TranslationOptions) -> int:
        """Return how many translations of each text are asked for."""
        return int(setting(self.loaded, options.generate_kwargs, "num_return_sequences") or 1)

    def _warn_of(self, found: Sequence[Found], threshold: float | None) -> None:
        """Warn of translations that were cut, and of those that seem to leave something out."""
        num_cut = sum(any(hypothesis.was_cut for hypothesis in hypotheses) for hypotheses in found)
        if num_cut:
            warn(
                f"{num_cut} of {len(found)} translations reached a limit and may be incomplete. "
                "`max_new_tokens` and `max_time` set a higher one."
            )
        num_short = sum(_is_short(hypotheses, threshold) for hypotheses in found)
        if num_short:
            warn(
                f"The coverage of {num_short} of {len(found)} translations is below {threshold:g}: they have "
                "probably left something out."
            )

    def _search(
        self,
        pieces: Sequence[Piece],
        settings: Mapping[str, Any],
        method: "CoveredBy | None",
        weight: float | None,
        asked: TranslationOptions,
    ) -> list[Found]:
        """Translate a batch; with a `weight`, rank the hypotheses of beam search by what they leave out."""
        returned = self._returned(asked)
        if weight:
            beams = int(setting(self.loaded, settings, "num_beams") or 1)
            if beams < 2:
                raise ValueError(f"the `weight` of coverage needs at least 2 beams: `num_beams` is {beams}")
            settings = {**settings, "num_return_sequences": beams}
        sources, loaded, readings = [piece.ids for piece in pieces], self.loaded, self._readings(method)
        aligns = asked.alignment or any(piece.terms or piece.masked is not None for piece in pieces)
        if aligns and self.calibration.head is not None:
            readings = (readings or Readings())._replace(head=self.calibration.head)
        options = search_options(
            loaded,
            [len(source) for source in sources],
            settings,
            prefixes=[piece.prefix for piece in pieces],
            scores=asked.scores or method is not None,
            readings=readings,
        )
        found = loaded.decoder.translate(sources, options)
        hypotheses = [hypothesis for own in found for hypothesis in own]
        # the engine finds nothing among such logits
        if not all(found) or any(one.score != one.score for one in hypotheses):
            raise ValueError("the model's logits are not finite: its weights are damaged, or overflow in this dtype")
        if method is None:
            return found
        of_each = [piece for piece, own in zip(pieces, found, strict=True) for _ in own]
        try:
            covered = self._cover(of_each, hypotheses, method, asked)
        except Exception as error:  # it is an addition to the translation, which is there
            warn(f"The coverage of {len(pieces)} translations was not found: {describe(error)}.")
            return [own[:returned] for own in found]
        for hypothesis, one in zip(hypotheses, covered, strict=True):
            hypothesis.covered = one
        return [_ranked(own, weight, options.length_penalty)[:returned] for own in found] if weight else found

    def _with_stand_ins(self, documents: Sequence[Document], found: list[Found], options: TranslationOptions) -> None:
        """Translate pieces whose translation has not kept what it should in other ways, until all have.

        `found` then has the hypotheses of the pieces that the documents have now. A stand-in is never printed: further
        hypotheses that hold one give way to the best.
        """
        segmenter = self._segmenter(options)
        while True:
            again: dict[int, list[Piece]] = {}
            for number, piece in enumerate(piece for document in documents for piece in document.pieces):
                if piece.masked is None:
                    continue
                texts = [segmenter.tokenizer.decode(hypothesis.ids) for hypothesis in found[number]]
                if pieces := segmenter.again(piece, texts[0]):
                    again[number] = pieces
                else:
                    found[number] = [
                        found[number][0] if piece.masked.lost(text) else hypothesis
                        for hypothesis, text in zip(found[number], texts, strict=True)
                    ]
            if not again:
                return
            translated = iter(self.translate_pieces([piece for pieces in again.values() for piece in pieces], options))
            hypotheses, numbers = iter([*found]), count()
            found.clear()
            for document in documents:
                changed: list[Piece] = []
                for piece, number in zip(document.pieces, numbers, strict=False):
                    before = next(hypotheses)
                    changed += again.get(number, [piece])
                    found += [next(translated) for _ in again[number]] if number in again else [before]
                document.pieces = changed

    def _find_terms(self, glossary: "Glossary", documents: Sequence[Document]) -> None:
        """Give each piece its terms of the glossary, but for those in what is kept."""
        for document in documents:
            for piece in document.pieces:
                found = glossary.find(document.text, piece.span)
                piece.terms = [term for term in found if not (piece.masked and piece.masked.has_kept(term.span))]

    def _with_terms(self, pieces: Sequence[Piece], found: list[Found], options: TranslationOptions) -> None:
        """Translate the pieces that lack terms of the glossary again: up to the place of a term, the term, then on.

        A translation is decoded with a prefix: what it has before the word that attends most to the term, and the
        term. A piece takes a pass for each term that it lacks, and one more if it goes on in the term's word: the next
        word is then a part of the prefix. Half the beams find as good a rest, and leave room for twice the pieces.
        """
        from copy import copy  # late: few have a glossary

        from capsule_mt.text.glossary import lacking, prefixes_with_term

        tokenizer = self._tokenizer(options)
        decode, encode = tokenizer.decode, tokenizer.encode_target
        beams = int(setting(self.loaded, options.generate_kwargs, "num_beams") or 1)
        fewer = min(beams, max(2, beams // 2, self._returned(options)))
        once_more = options._replace(
            batch_size=options.batch_size * beams // fewer,
            batch_tokens=options.batch_tokens and options.batch_tokens * beams // fewer,
            generate_kwargs={**options.generate_kwargs, "num_beams": fewer},
        )
        forced = {n: decode(piece.prefix) for n, piece in enumerate(pieces) if piece.terms}
        longer: dict[int, str] = {}  # prefixes that have the next word, too
        waiting: Iterable[int] = forced
        for _ in range(2 * max((len(piece.terms) for piece in pieces), default=0)):
            prefixes: dict[int, str] = {}
            missing: dict[int, list[Term]] = {}
            for n in waiting:
                text = decode(found[n][0].ids)
                with_next = longer.pop(n, "")
                if with_next and text[len(forced[n]) :][:1].isalnum():
                    prefixes[n] = with_next
                elif own := [one for one in lacking(pieces[n].terms, text) if self._can_write(one, tokenizer)]:
                    missing[n] = own
            aligned = self._aligned_rows([(pieces[n].ids, found[n][0]) for n in missing])
            for (n, own), rows in zip(missing.items(), aligned, strict=True):
                places = [(pieces[n].tokens_of(term.span), term) for term in own]
                ids = found[n][0].ids
                prefixes[n], longer[n] = prefixes_with_term(places, ids, decode, rows, len(forced[n]))
            again = [copy(pieces[n]) for n in prefixes]
            for piece, prefix in zip(again, prefixes.values(), strict=True):
                piece.prefix = encode(prefix)[:-1]
            for n, one in zip(prefixes, self.translate_pieces(again, once_more), strict=True):
                found[n] = one
            forced |= prefixes
            waiting = prefixes

    @staticmethod
    def _can_write(term: "Term", tokenizer: "Tokenizer") -> bool:
        """Return whether the vocabulary has a term's target; warn where it has not."""
        if tokenizer.unknown_id not in tokenizer.encode_target(term.target):
            return True
        warn_once(f"the vocabulary cannot write {term.target!r} of the glossary: it is left out")
        return False

    def _alignment(
        self,
        document: Document,
        pairs: Sequence[tuple[Piece, Hypothesis]],
        texts: Sequence[str],
        translation: str,
        decode: Callable[[Ids], str],
    ) -> tuple[tuple[int, int], ...]:
        from capsule_mt.text.alignment import links_of, numbered_links, restored_links  # late: few ask for it

        links = []
        aligned = self._aligned_rows([(piece.ids, hypothesis) for piece, hypothesis in pairs])
        for (piece, hypothesis), text, rows in zip(pairs, texts, aligned, strict=True):
            own = links_of(piece.words, hypothesis.ids, decode, rows)
            if piece.masked is not None:
                own = restored_links(piece.masked, own, decode(hypothesis.ids), text)
            links.append(own)
        return numbered_links(document, translation, texts, links)

    def _text(self, piece: Piece, hypothesis: Hypothesis, decode: Callable[[Ids], str]) -> str:
        if piece.masked is None:
            text = decode(hypothesis.ids)
        else:
            from capsule_mt.text.restoring import restored  # late: few texts keep anything

            pair = (piece.ids, hypothesis)
            text = restored(piece.masked, hypothesis.ids, decode, lambda: self._aligned_rows([pair])[0])
        return text[:1].upper() + text[1:] if piece.source is not None and piece.source.has_small_first else text

    def _translation(
        self,
        document: Document,
        found: Sequence[Found],
        rank: int,
        options: TranslationOptions,
        decode: Callable[[Ids], str],
        threshold: float | None,
    ) -> Translation:
        """Put the translation of a text together from those of its pieces."""
        hypotheses = [own[rank] for own in found]
        pairs = list(zip(document.pieces, hypotheses, strict=True))
        texts = [self._text(piece, hypothesis, decode) for piece, hypothesis in pairs]
        text, starts = join_translations(document, texts)
        coverage = None
        covered = [hypothesis.covered for hypothesis in hypotheses]
        if options.coverage is not None and None not in covered:
            written = [decode(hypothesis.ids) for hypothesis in hypotheses]
            parts = list(zip(texts, starts, strict=True))
            from capsule_mt.coverage.documents import coverage_of

            coverage = coverage_of(document, covered, parts, written, threshold)
        tokens = sum(len(hypothesis.ids) for hypothesis in hypotheses)
        score = None
        if tokens and options.scores:
            score = sum(hypothesis.score * len(hypothesis.ids) for hypothesis in hypotheses) / tokens
        segments = tuple(self._segment(piece, hypothesis) for piece, hypothesis in pairs)
        alignment = self._alignment(document, pairs, texts, text, decode) if options.alignment else None
        return Translation(text, score, coverage, segments, document.unknown, alignment)


def _is_short(found: Found, threshold: float | None) -> bool:
    """Return whether the best translation of a piece has a coverage below a threshold."""
    covered = found[0].covered
    return threshold is not None and covered is not None and covered.score < threshold


def _left(found: Found) -> float:
    """Return what the best translation of a piece leaves out; more than any other if its coverage was not found."""
    covered = found[0].covered
    return math.inf if covered is None else covered.omitted_share


def _ranked(found: Found, weight: float, length_penalty: float) -> Found:
    """Sort hypotheses by beam search's score, which divides by a power of the length, less what is left."""

    def value(one: Hypothesis) -> float:
        return one.score * max(len(one.ids), 1) ** (1 - length_penalty) - weight * one.covered.omitted_share

    return sorted(found, key=value, reverse=True)
