"""Translate through English where no model connects two languages: two models, one after the other.

What either of them leaves out is left out: a word of the source is marked if the first model marks it, or if the
second one marks the word that the first has made of it. The head of the first model that aligns words says which that
is, or deletion, where it has none; it is only asked about sentences of which the second model marks something.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from capsule_mt.coverage.results import Coverage, CoverageOptions, SentenceCoverage
from capsule_mt.options import TranslationOptions
from capsule_mt.text.restoring import Alignment
from capsule_mt.text.segments import PrefixedText
from capsule_mt.text.sentences import Span
from capsule_mt.text.words import WORDS, target_ends
from capsule_mt.translator import Segment, Translation, Translator

PIVOT = "en"


class PivotTranslator(Translator):
    """A `Translator` of two: the first translates into English, the second from it.

    `score` is the mean log-probability of a token of both translations, and `segments` are those of the source, with
    the tokens of the English. A sentence's coverage is the product of both.
    """

    def __init__(self, first: Translator, second: Translator) -> None:
        super().__init__(second.loaded)
        self.first, self.second = first, second

    @property
    def has_reverse(self) -> bool:
        """Each of the two may have one of its own, but the pair has none."""
        return False

    def translate(self, texts: Sequence[str], options: TranslationOptions) -> list[list[Translation]]:
        single = {name: value for name, value in options.generate_kwargs.items() if name != "num_return_sequences"}
        to_pivot = replace(options, tgt_lang=PIVOT, generate_kwargs={**single, "num_return_sequences": 1})
        plain = [str(text) if isinstance(text, PrefixedText) else text for text in texts]
        middles = [found[0] for found in self.first.translate(plain, to_pivot)]
        prefixes = [text.target_prefix if isinstance(text, PrefixedText) else None for text in texts]
        between = [
            one.text if prefix is None else PrefixedText(one.text, prefix)
            for one, prefix in zip(middles, prefixes, strict=True)
        ]
        ends = self.second.translate(between, replace(options, src_lang=PIVOT))
        return [
            [self._joined(text, middle, end) for end in found]
            for text, middle, found in zip(texts, middles, ends, strict=True)
        ]

    def score(
        self,
        texts: Sequence[str],
        translations: Sequence[str],
        *,
        coverage: CoverageOptions | None = None,
        batch_size: int = 16,
        batch_tokens: int | None = None,
        src_lang: str | None = None,
        tgt_lang: str | None = None,
    ) -> list[Translation]:
        """Return given translations with the scores that they have after the English of the first model."""
        asked: dict[str, Any] = {"batch_size": batch_size, "batch_tokens": batch_tokens}
        options = TranslationOptions(
            **asked, coverage=coverage, src_lang=src_lang, tgt_lang=PIVOT, split_sentences=False
        )
        middles = [found[0] for found in self.first.translate(texts, options)]
        ends = self.second.score(
            [one.text for one in middles], translations, coverage=coverage, src_lang=PIVOT, tgt_lang=tgt_lang, **asked
        )
        return [self._joined(text, middle, end) for text, middle, end in zip(texts, middles, ends, strict=True)]

    def _joined(self, text: str, middle: Translation, end: Translation) -> Translation:
        scored = [(one.score, len(one.token_ids)) for one in (middle, end) if one.score is not None]
        score = (
            sum(value * tokens for value, tokens in scored) / sum(tokens for _, tokens in scored) if scored else None
        )
        coverage = None
        if middle.coverage is not None and end.coverage is not None:
            coverage = self._joined_coverage(text, middle, middle.coverage, end.coverage)
        segments = tuple(replace(one, was_cut=one.was_cut or end.was_cut) for one in middle.segments)
        return Translation(end.text, score, coverage, segments)

    def _joined_coverage(self, text: str, middle: Translation, first: Coverage, second: Coverage) -> Coverage:
        lost: dict[Span, float] = {}
        sentences, place = [], 0
        decode = self.first.loaded.tokenizer.decode
        for segment, sentence in zip(middle.segments, first.sentences, strict=True):
            english = decode(segment.target_ids[1:])
            start = max(middle.text.find(english, place), place)
            place = start + len(english)
            of_english = [one for one in second.sentences if one.start < place and start < one.end]
            worst = min((one.score for one in of_english), default=1.0)
            sentences.append(SentenceCoverage(sentence.start, sentence.end, sentence.score * worst))
            marked = {Span(word.start - start, word.end - start): word.covered for word in second.untranslated}
            marked = {
                span: covered for span, covered in marked.items() if span.start >= 0 and span.end <= len(english)
            }
            own = [Span(word.start, word.end) for word in first.words if segment.start <= word.start < segment.end]
            for span, source in self._became(text, segment, english, marked, own) if marked and own else ():
                lost[source] = min(marked[span], lost.get(source, 1.0))
        words = tuple(
            replace(word, covered=min(word.covered, lost[span]), marked=True)
            if (span := Span(word.start, word.end)) in lost
            else word
            for word in first.words
        )
        repetitions = (*first.repetitions, *second.repetitions)
        thresholds = [one.threshold for one in (first, second) if one.threshold is not None]
        return replace(
            second,
            score=first.score * second.score,
            words=words,
            sentences=tuple(sentences),
            repetitions=repetitions,
            threshold=min(thresholds) if len(thresholds) == 2 else None,
        )

    def _became(
        self, text: str, segment: Segment, english: str, wanted: Iterable[Span], own: Sequence[Span]
    ) -> Iterator[tuple[Span, Span]]:
        """Yield some words of the English of a segment with the word of the source that each was made of.

        That is the one with the largest product of two shares: of the English word's, and of the source word's.
        """
        loaded, ids = self.first.loaded, segment.target_ids[1:]
        encoded = loaded.tokenizer.encode(text[segment.start : segment.end])
        offsets = [place and (place[0] + segment.start, place[1] + segment.start) for place in encoded.offsets]
        rows = self.first._align(encoded.ids, ids)
        alignment = Alignment(offsets, target_ends(loaded.tokenizer.decode, ids), rows)
        words = dict.fromkeys([*wanted, *(Span(*match.span()) for match in WORDS.finditer(english))])
        shares = {word: [max(alignment.share(word, source), 0.0) for source in own] for word in words}
        totals = [sum(column) for column in zip(*shares.values(), strict=True)]
        for word in wanted:
            values = [
                share * share / total if total else 0.0 for share, total in zip(shares[word], totals, strict=True)
            ]
            yield word, own[values.index(max(values))]
