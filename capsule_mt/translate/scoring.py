"""`Scorer`: what a model says of given translations, such as another system's: scores, coverage, adequacy."""

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from capsule_mt.engine.search import Hypothesis, Ids, Readings
from capsule_mt.messages import warn, warn_once
from capsule_mt.models.model import LoadedModel
from capsule_mt.text.segments import Document, Piece, Segmenter, batches_of
from capsule_mt.text.tokenizer import Tokenizer
from capsule_mt.text.words import NO_LISTS, SourceWord, target_ends
from capsule_mt.translate.options import TranslationOptions
from capsule_mt.translate.results import Segment, Translation

if TYPE_CHECKING:  # and where it is used, late: who asks for no coverage starts sooner
    from capsule_mt.coverage.methods import Calibration, PieceCoverage
    from capsule_mt.coverage.names import CoveredBy
    from capsule_mt.coverage.options import CoverageOptions
    from capsule_mt.coverage.results import Adequacy, Coverage
    from capsule_mt.coverage.verified import Read
    from capsule_mt.text.glossary import Glossary
    from capsule_mt.text.restoring import Alignment

# of texts with given translations
_GIVEN = TranslationOptions(split_sentences=False, truncation=True, copy=False)
ALIGNED_TOKENS = 2048  # at once
Found = TypeVar("Found")


class Scorer:
    """A model, its calibration and what translates in the other direction; what they say of given translations.

    Args:
        model: what scores, and translates.
        glossary: terms and what they become: see `from_pretrained`.
        reverse: what translates in the other direction, a `Translator` or its folder: it verifies what coverage marks.
            By default the model that the calibration names, if that is a folder beside this one's or is downloaded: it
            is looked for once.
    """

    glossary: "Glossary | None" = None
    languages: tuple[str | None, str | None] = (None, None)  # of calls that name none
    _looked_for: tuple[str | None, str | None] = (None, None)  # the reverse that a calibration names, and its folder

    def __init__(
        self,
        model: LoadedModel,
        glossary: "Glossary | Mapping[str, str] | str | os.PathLike[str] | None" = None,
        *,
        reverse: "Scorer | str | os.PathLike[str] | None" = None,
    ) -> None:
        if isinstance(model, (str, os.PathLike)):
            raise TypeError(f"`model` must be a loaded model, got {model!r}: `from_pretrained` takes a folder")
        self.loaded = model
        if glossary is not None:
            from capsule_mt.text.glossary import glossary_of  # late: few have one

            self.glossary = glossary_of(glossary)
        self._reverse = reverse

    @property
    def calibration(self) -> "Calibration":
        """The curves and lists of words by which coverage is found."""
        from capsule_mt.coverage.methods import Calibration

        values, found = getattr(self, "_calibration", (None, None))
        if found is None or values is not self.loaded.calibration:
            values = self.loaded.calibration
            found = Calibration.of_config(values)
            self._calibration = (values, found)
        return found

    def set_calibration(self, values: Mapping[str, Any]) -> None:
        """Use other curves and lists of words: a `coverage_calibration` of config.json."""
        self.loaded = self.loaded._replace(calibration=values)

    @property
    def backend(self) -> str:
        """What decodes."""
        return "native"

    @property
    def reverse(self) -> "Scorer | None":
        """What translates in the other direction, loaded when it is first needed."""
        if not isinstance(self._reverse, Scorer) and (folder := self._reverse_folder()) is not None:
            self._reverse = self._load(folder)
        return self._reverse if isinstance(self._reverse, Scorer) else None

    @reverse.setter
    def reverse(self, translator: "Scorer | None") -> None:
        self._reverse = translator

    @property
    def has_reverse(self) -> bool:
        """Whether there is a model of the other direction; it need not be loaded."""
        return isinstance(self._reverse, Scorer) or self._reverse_folder() is not None

    @property
    def precision(self) -> dict[str, float] | None:
        """The share of marks that a reader found right, by `marks` of `CoverageOptions`; None if nobody read them.

        A calibration of before 0.3.1 may have shares by a word aligner. They are not reported: on two students they
        say 0.75 and 0.95 at "likely", where a reader found 14 of 40 and 26 of 47 marks right.
        """
        verified = self.calibration.methods.get("verified", {})
        is_read = self.has_reverse and verified.get("labels") == "by hand"
        points = verified.get("marks", {}) if is_read else {}
        return {point: float(counts["precision"]) for point, counts in points.items()} or None

    def _load(self, folder: str) -> "Scorer":
        """Load a model as this one was loaded."""
        raise NotImplementedError

    def _reverse_folder(self) -> str | None:
        """Return the folder that was given, or that of the model that the calibration names: beside, or downloaded."""
        if isinstance(self._reverse, (str, os.PathLike)):
            return os.fspath(self._reverse)
        named = self.calibration.reverse
        if named is None:
            return None
        if self._looked_for[0] != named:  # once: a translator does not change what verifies its marks
            beside = os.path.join(os.path.dirname(os.path.abspath(self._folder)), named)
            self._looked_for = named, beside if os.path.isdir(beside) else self._downloaded(named)
        return self._looked_for[1]

    def _downloaded(self, name: str) -> str | None:
        """Return the folder of a model by name, if it is downloaded."""
        from capsule_mt.catalog.store import downloaded_folder  # late: most calibrations name none

        return downloaded_folder(name)

    @property
    def _folder(self) -> str:
        """The folder of the checkpoint, beside which its reverse is looked for."""
        return self.loaded.name

    def cover(
        self,
        texts: Sequence[str],
        translations: Sequence[str],
        *,
        coverage: "CoverageOptions | None" = None,
        batch_size: int = 16,
    ) -> "list[Coverage]":
        """Return what given translations cover: the `coverage` of what `score` returns."""
        from capsule_mt.coverage.options import CoverageOptions

        found = self.score(texts, translations, coverage=coverage or CoverageOptions(), batch_size=batch_size)
        return [translation.coverage for translation in found if translation.coverage is not None]

    def score(
        self,
        texts: Sequence[str],
        translations: Sequence[str],
        *,
        coverage: "CoverageOptions | None" = None,
        batch_size: int = 16,
        batch_tokens: int | None = None,
        src_lang: str | None = None,
        tgt_lang: str | None = None,
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
            src_lang, tgt_lang: for tokenizers that have languages.
        """
        for name, given in (("texts", texts), ("translations", translations)):
            if isinstance(given, str):
                raise TypeError(f"`{name}` must be a list of strings, got the string {given[:40]!r}")
        if len(texts) != len(translations):
            raise ValueError(f"`texts` are {len(texts)}, but `translations` {len(translations)}")
        options = _GIVEN._replace(
            batch_size=batch_size, batch_tokens=batch_tokens, coverage=coverage, src_lang=src_lang, tgt_lang=tgt_lang
        ).checked()
        method = self._method(options)
        documents, pairs = self._given(texts, translations, options)
        lengths = [max(len(piece.ids), len(found.ids)) for piece, found in pairs]
        readings, loaded = self._readings(method) or Readings(), self.loaded
        for places in batches_of(lengths, batch_size, batch_tokens):
            pieces, hypotheses = zip(*(pairs[place] for place in places), strict=True)
            forced = loaded.decoder.force([one.ids for one in pieces], [one.ids for one in hypotheses], readings)
            for hypothesis, read in zip(hypotheses, forced, strict=True):
                hypothesis.read(read, loaded.end)
            if method is not None:
                for hypothesis, covered in zip(
                    hypotheses, self._cover(pieces, hypotheses, method, options), strict=True
                ):
                    hypothesis.covered = covered
        threshold, decode, results = self._threshold(options), self._tokenizer(options).decode, []
        for document, pair, translation in zip(documents, _by_text(documents, pairs), translations, strict=True):
            own = [] if pair is None else [pair[1]]
            whole = None
            if coverage is not None:
                from capsule_mt.coverage.documents import coverage_of

                parts, written = [(translation, 0)] * len(own), [decode(one.ids) for one in own]
                whole = coverage_of(document, [one.covered for one in own], parts, written, threshold)
            segments = () if pair is None else (self._segment(*pair),)
            results.append(Translation(translation, own[0].score if own else None, whole, segments))
        return results

    def adequacy(
        self, texts: Sequence[str], translations: Sequence[str], *, batch_size: int = 16
    ) -> "list[Adequacy | None]":
        """Return how inadequate given translations are, such as another system's; `None` for a blank text.

        It takes a model of the other direction and four forced passes. The length to expect is the calibration's, or
        without one that of the text.
        """
        from capsule_mt.coverage.results import Adequacy
        from capsule_mt.text.lengths import OMISSION_WEIGHT, ExpectedLength

        if self.reverse is None:
            raise ValueError(f"`adequacy` needs a model of the other direction: give {self.loaded.name} a `reverse`")
        covered = self.cover(texts, translations, batch_size=batch_size)
        length = self.calibration.length or ExpectedLength()
        shares = zip(self.information(texts, translations), self.reverse.information(translations, texts), strict=True)
        found: list[Adequacy | None] = []
        for coverage, text, given, (there, back) in zip(covered, texts, translations, shares, strict=True):
            if there is None:
                found.append(None)
                continue
            words = [word.covered for word in coverage.words if any(map(str.isalnum, word.text))]
            missing, short = 1 - sum(words) / max(len(words), 1), length.shortness(text, given)
            omission = (missing + OMISSION_WEIGHT * short) / (1 + OMISSION_WEIGHT)
            found.append(Adequacy(omission, 1 - (there + (back or 0.0)) / 2))
        return found

    def information(self, texts: Sequence[str], translations: Sequence[str]) -> list[float | None]:
        """Return the share of what each translation says that its text makes probable; `None` for a blank text.

        It is 1 - log p(translation | text) / log p(translation | no text), at least 0.
        """
        documents, pairs = self._given(texts, translations, _GIVEN)
        sources = [[self.loaded.end]] * len(pairs) + [piece.ids for piece, _ in pairs]
        targets = [found.ids for _, found in pairs] * 2
        forced = self.loaded.decoder.force(sources, targets, Readings()) if pairs else []
        totals = [sum(one.log_probs) for one in forced]
        both = zip(totals[: len(pairs)], totals[len(pairs) :], strict=True)
        return _by_text(documents, [max(0.0, 1 - by_text / min(without, -1.0)) for without, by_text in both])

    def read(
        self, texts: Sequence[str], translations: Sequence[str], *, with_head: bool = False
    ) -> "list[Read | None]":
        """Return a forced pass over each given translation, with the characters that its tokens stand for.

        A blank text has none. Words beyond what the model takes have no tokens. `with_head`: also read the attention
        of the head that aligns words.
        """
        from capsule_mt.coverage.verified import Read, offsets_of

        documents, pairs = self._given(texts, translations, _GIVEN)
        if with_head and self.calibration.head is None:
            raise ValueError(f"{self.loaded.name} has no head that aligns words: `capsule-mt calibrate` chooses one")
        readings = Readings(head=self.calibration.head if with_head else None)
        sources, targets = [piece.ids for piece, _ in pairs], [found.ids for _, found in pairs]
        forced = self.loaded.decoder.force(sources, targets, readings) if pairs else []
        written = [one for document, one in zip(documents, translations, strict=True) if document.pieces]
        decode, reads = self._tokenizer(_GIVEN).decode, []
        for (piece, target), read, translation in zip(pairs, forced, written, strict=True):
            source = list(piece.source_offsets)
            reads.append(Read(source, offsets_of(translation, target.ids, decode), read))
        return _by_text(documents, reads)

    def _given(
        self, texts: Sequence[str], translations: Sequence[str], options: TranslationOptions
    ) -> tuple[list[Document], list[tuple[Piece, Hypothesis]]]:
        """Tokenise texts and their translations: the pairs of those that are not blank."""
        segmenter = self._segmenter(options)
        documents = [segmenter.document(text) for text in texts]
        # a text that is not cut into sentences is one piece, or none if it is blank
        pairs = [
            (document.pieces[0], self._target(translation, segmenter.tokenizer))
            for document, translation in zip(documents, translations, strict=True)
            if document.pieces
        ]
        for document, translation in zip(documents, translations, strict=True):
            for piece in document.pieces:
                piece.words = [
                    _copied_into(translation, word, document.text[slice(*word.span)]) for word in piece.words
                ]
        return documents, pairs

    def _tokenizer(self, options: TranslationOptions) -> Tokenizer:
        return self.loaded.tokenizer

    def _languages(self, options: TranslationOptions) -> tuple[str | None, str | None]:
        named = (options.src_lang, options.tgt_lang)
        return self.languages if named == (None, None) else named

    def _segmenter(self, options: TranslationOptions) -> Segmenter:
        src_lang, tgt_lang = self._languages(options)
        with_words = options.coverage is not None or options.alignment
        return Segmenter(
            self._tokenizer(options),
            limit=self.loaded.longest_source,
            split_sentences=options.split_sentences,
            truncation=options.truncation,
            src_lang=src_lang,
            tgt_lang=tgt_lang,
            copies=options.copy,
            keep=options.keep,
            with_words=with_words,
            lists=self.calibration.lists if with_words else NO_LISTS,
        )

    def _method(self, options: TranslationOptions) -> "CoveredBy | None":
        if options.coverage is None:
            return None
        from capsule_mt.coverage.methods import choose_method

        if options.coverage.support and not self.has_reverse:
            raise ValueError(f"`support` needs a model of the other direction: give {self.loaded.name} a `reverse`")
        layers, heads = self.loaded.head_shape
        method = choose_method(
            options.coverage.method,
            self.calibration,
            is_guided=self.loaded.follows_past_and_future,
            num_heads=layers * heads,
            name=self.loaded.name,
            has_reverse=self.has_reverse,
        )
        # an error of the reverse is one of the options: it costs every coverage
        reverse = self.reverse if method == "verified" or options.coverage.support else None
        if reverse is not None and options.coverage.support and reverse.calibration.head is None:
            raise ValueError(
                f"`support` needs a `reverse` with a head that aligns words, which `capsule-mt calibrate` chooses; "
                f"{reverse.loaded.name} has none"
            )
        marks = options.coverage.marks
        if marks is not None and method != "verified" and not options.coverage.support:
            warn_once(
                f'`marks="{marks}"` chooses among marks that a model of the other direction has verified. Those of '
                f'{self.loaded.name} are unverified, by `method="{method}"`: {self._way_to_verify()}.'
            )
        return method

    def _way_to_verify(self) -> str:
        """Return what gives this model verified marks."""
        if not self.has_reverse:
            return "name the other direction's model by `reverse` (`--reverse`)"
        if self.calibration.head is None:
            return "`capsule-mt calibrate` finds the head that they need"
        return 'use `method="verified"`'

    @property
    def verifies_marks(self) -> bool:
        """Whether a model of the other direction verifies marks by default."""
        return self.has_reverse and self.calibration.head is not None

    def _readings(self, method: "CoveredBy | None") -> Readings | None:
        """Return what a search has to read."""
        if method is None:
            return None
        from capsule_mt.coverage.methods import readings_of

        return readings_of(method, self.calibration)

    def _threshold(self, options: TranslationOptions) -> float | None:
        """Return the coverage below which a sentence is an alarm."""
        asked, method = options.coverage, self._method(options)
        if asked is None or method is None:
            return None
        threshold = self.calibration.alarm(method) if asked.threshold is None else asked.threshold
        if asked.retry_beams is not None and threshold is None:
            raise ValueError(
                f"`retry_beams` ({asked.retry_beams}) needs a `threshold`: the calibration of {self.loaded.name} has "
                f'no alarm for `method="{method}"`'
            )
        return threshold

    def _cover(
        self,
        pieces: Sequence[Piece],
        hypotheses: Sequence[Hypothesis],
        method: "CoveredBy",
        options: TranslationOptions,
    ) -> "list[PieceCoverage]":
        from capsule_mt.coverage.methods import Verifier, cover
        from capsule_mt.coverage.names import DEFAULT_MARKS

        asked, loaded, verifier = options.coverage, self.loaded, None
        reverse = self.reverse if asked is not None and (method == "verified" or asked.support) else None
        decode = self._tokenizer(options).decode
        if asked is not None and reverse is not None:
            marks, by_shortlist = asked.marks or DEFAULT_MARKS, loaded.shortlist is not None
            verifier = Verifier(reverse, decode, marks, asked.support, by_shortlist)
        return cover(pieces, hypotheses, method, loaded.decoder, self.calibration, loaded.end, verifier, decode)

    def _aligned_rows(self, pairs: Sequence[tuple[Ids, Hypothesis]]) -> list[list[list[float]]]:
        """Return how much each token of translations is of each token of their sources [T][S].

        By the head that coverage reads, which attends to the word that the decoder has just read, in a forced pass if
        the search has not; where there is none, by how much less probable a token becomes without the source token.
        """
        if self.calibration.head is None:
            from capsule_mt.coverage.methods import deletion_gains_by_token

            return [deletion_gains_by_token(source, found.ids, self.loaded.decoder) for source, found in pairs]
        unread = [(source, found) for source, found in pairs if found.attention is None]
        lengths = [max(len(source), len(found.ids)) for source, found in unread]
        for places in batches_of(lengths, 1, ALIGNED_TOKENS):
            sources, some = zip(*(unread[place] for place in places), strict=True)
            targets, readings = [found.ids for found in some], Readings(head=self.calibration.head)
            for found, forced in zip(some, self.loaded.decoder.force(sources, targets, readings), strict=True):
                found.attention = forced.received
        return [[*rows[1:], *rows[-1:]] for rows in (found.attention or [] for _, found in pairs)]

    def aligned(self, text: str, translation: str) -> "Alignment":
        """Return which characters of a text that is not blank those of a given translation are of."""
        from capsule_mt.text.restoring import Alignment  # late: few ask for it

        _, ((piece, found),) = self._given([text], [translation], _GIVEN)
        offsets, decode = piece.source_offsets, self._tokenizer(_GIVEN).decode
        (rows,) = self._aligned_rows([(piece.ids, found)])
        return Alignment(offsets, target_ends(decode, found.ids), rows)

    def _segment(self, piece: Piece, hypothesis: Hypothesis) -> Segment:
        target_ids = (self.loaded.start, *hypothesis.ids)
        return Segment(*piece.span, tuple(piece.ids), target_ids, hypothesis.was_cut or piece.was_cut)

    def _labels(self, translation: str, tokenizer: Tokenizer) -> list[int]:
        return tokenizer.encode_target(translation)

    def _target(self, translation: str, tokenizer: Tokenizer) -> Hypothesis:
        """Return the tokens of a given translation, which is cut to what the model takes."""
        ids = self._labels(translation, tokenizer)
        limit = self.loaded.longest_target
        if limit is None or len(ids) <= limit:
            return Hypothesis(ids, [], was_cut=False)
        warn(f"A given translation of {len(ids)} tokens was cut to {limit}.")
        return Hypothesis([*ids[: limit - 1], ids[-1]], [], was_cut=True)


def _copied_into(translation: str, word: SourceWord, text: str) -> SourceWord:
    """Return a word, as a copied one if the vocabulary lacks it and a given translation has it as it is."""
    return word._replace(is_unknown=False, is_copied=True) if word.is_unknown and text in translation else word


def _by_text(documents: Sequence[Document], found: Sequence[Found]) -> list[Found | None]:
    """Return what was found for the texts that are not blank, with `None` for those that are."""
    waiting = iter(found)
    return [next(waiting) if document.pieces else None for document in documents]
