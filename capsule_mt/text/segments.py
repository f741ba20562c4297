"""Texts, the pieces they are translated in, and the order of the work."""

import re
from collections.abc import Callable, Collection, Iterator, Sequence, Sized
from itertools import islice
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar, cast

from capsule_mt.messages import warn, warn_once
from capsule_mt.text.capitals import with_capitals, without_capitals
from capsule_mt.text.copying import without_copied_edges
from capsule_mt.text.keeping import BLOCK_BREAK, SIGN, UNKNOWN, Masked, masked, overlaps, with_numbers
from capsule_mt.text.normal import QUOTES, combines, vocabulary_of
from capsule_mt.text.sentences import UNSPACED_STOPS, Span, split_sentences, split_to_fit
from capsule_mt.text.tokenizer import Encoded, Tokenizer, unknown_tokens
from capsule_mt.text.words import (
    NO_LISTS,
    Offsets,
    SourceWord,
    WordLists,
    is_mark,
    moved_offsets,
    runs_on,
    source_words,
    with_space,
    words_of,
)

if TYPE_CHECKING:
    from capsule_mt.text.glossary import Term

LONE_SURROGATES = "[\ud800-\udfff]"
LANGUAGE_TOKEN = re.compile(r"\s*(>>[^<\s]+<<)\s*")  # a multilingual OPUS-MT source begins with its target language
LONGEST_WORD = 10_000  # characters
LONG_WORD = rf"(?<![^\s{UNSPACED_STOPS}])[^\s{UNSPACED_STOPS}]{{{LONGEST_WORD + 1},}}"
MOST_UNKNOWN = 0.2  # of the tokens of a text of the source language
Result = TypeVar("Result")


class Piece:
    """What goes through the model at once: a sentence of a text, or a part of one that is too long.

    span: its characters of the text.
    ids: its tokens, special ones included.
    words: its words, where coverage is asked for.
    text: what the model reads.
    offsets: the characters that each token stands for.
    prefix: the tokens that its translation begins with.
    was_cut: whether the source was longer (`truncation`).
    source: what the model reads, and the way back to the user's text.
    terms: those of the glossary that it has.
    is_glued: whether nothing is between it and the piece before, but what either of them keeps.
    """

    terms: "Sequence[Term]" = ()
    is_glued = False

    def __init__(
        self,
        span: Span,
        ids: list[int],
        words: Sequence[SourceWord] = (),
        prefix: Sequence[int] = (),
        was_cut: bool = False,
        source: Masked | None = None,
        text: str = "",
        offsets: Offsets = (),
    ) -> None:
        self.span, self.ids, self.words, self.prefix, self.was_cut = span, ids, words, prefix, was_cut
        self.source, self.text, self.offsets = source, text, offsets

    @property
    def masked(self) -> Masked | None:
        """What the model reads, where something in it is kept."""
        return self.source if self.source is not None and self.source.kinds else None

    @property
    def source_offsets(self) -> Offsets:
        """The characters of the user's text that each token stands for."""
        if self.source is None:
            return moved_offsets(self.offsets, -self.span.start)
        return [offset and self.source.place(Span(*offset)) for offset in self.offsets]

    def tokens_of(self, span: Span) -> list[int]:
        """Return which tokens stand for some characters of the user's text."""
        return [token for token, place in enumerate(self.source_offsets) if place and overlaps(Span(*place), [span])]


class Document:
    """One of the texts that the user gave, and the pieces it is translated in.

    What is between two pieces is in the translation as it is; what is before and after all of them, if it `copies`.
    What is `foreign` is copied, too: sentences that have words, but none that the vocabulary knows, and words of more
    than `LONGEST_WORD` characters. A text `in_capitals` is read in small letters. `num_unknown` of its `num_tokens`
    tokens stand for what the vocabulary lacks.
    """

    def __init__(
        self, text: str, copies: bool = False, pieces: Sequence[Piece] = (), foreign: Sequence[Span] = ()
    ) -> None:
        self.text, self.copies, self.pieces, self.foreign = text, copies, list(pieces), list(foreign)
        self.in_capitals = False
        self.num_unknown = self.num_tokens = 0

    @property
    def unknown(self) -> float:
        """The share of the tokens that stand for what the vocabulary lacks."""
        return self.num_unknown / self.num_tokens if self.num_tokens else 0.0


class Segmenter(NamedTuple):
    """Turns texts into documents: cuts them, tokenises each piece once.

    limit: the most tokens of a source.
    prefix: what a T5 checkpoint reads before each source.
    copies: leave out what is no sentence, such as a URL or an emoji, which then is in the translation as it is.
    keep: the kinds of `KEPT` that a translation keeps.
    with_words, lists: find the words of each piece, and what coverage knows of them.
    """

    tokenizer: Tokenizer
    limit: int | None
    prefix: str = ""
    split_sentences: bool = True
    truncation: bool | str = False
    src_lang: str | None = None
    tgt_lang: str | None = None
    copies: bool = True
    keep: Sequence[str] = ()
    with_words: bool = False
    lists: WordLists = NO_LISTS

    def document(self, text: str) -> Document:
        """Cut a text into pieces that fit, and leave out those without a token, and unknown marks."""
        if not isinstance(text, str):
            raise TypeError(f"a text must be a string, got a {type(text).__name__}")
        plain = text if text.isascii() else re.sub(LONE_SURROGATES, "\ufffd", text)
        document = Document(plain, self.copies or bool(self.keep))
        read = self._without_long_words(document)
        small = without_capitals(read) if self.copies else None
        document.in_capitals = small is not None
        source = masked(small or read, self.keep, self.copies, vocabulary_of(self.tokenizer))
        of_text = self._language_of(source.text)
        cuts = _glued_cuts(source) if self.copies else ()
        for start, end in _cut_at(cuts, self._sentences(source)):
            begins, token = self.language_token(source.text[start:end])
            sentence = Span(start + begins, end)
            if self.copies:
                sentence = _without_quotes(document.text, source, without_copied_edges(source.text, sentence))
            if sentence.start == sentence.end:
                continue
            token = token or of_text
            prefix = f"{self.prefix}{token} " if token else self.prefix
            no_text = self._no_text(token)
            for span, encoded, was_cut in self._fitting(source.text, sentence, prefix):
                is_unknown = self.tokenizer.unknown_id in encoded.ids and not is_mark(
                    source.text[span.start : span.end]
                )
                part = source.part(span, prefix)
                unknown = unknown_tokens(self.tokenizer, source.text[span.start : span.end], encoded)
                document.num_unknown += len(unknown)
                document.num_tokens += len(encoded.ids)
                if unknown and self.copies:
                    part, encoded = self._without_unknown(part, encoded, unknown)
                if part.has_words and (is_unknown or not no_text.issuperset(encoded.ids)):
                    document.pieces.append(self._piece(part, encoded, was_cut))
                    document.pieces[-1].is_glued = span.start in cuts
                elif unknown:
                    document.foreign.append(part.span)
        return document

    def _without_long_words(self, document: Document) -> str:
        """Return the text with lines of their own, which are blank, in the place of words that are too long."""
        text = document.text
        if len(text) <= LONGEST_WORD or not self.split_sentences:
            return text
        document.foreign += [Span(*match.span()) for match in re.finditer(LONG_WORD, text)]
        if not document.foreign:
            return text
        document.copies = True
        warn(f"{len(document.foreign)} words of a text have more than {LONGEST_WORD} characters: they are copied.")
        return re.sub(LONG_WORD, lambda match: "\n" * len(match[0]), text)

    def _piece(self, source: Masked, encoded: Encoded, was_cut: bool = False) -> Piece:
        source.offsets = encoded.offsets
        words: list[SourceWord] = []
        if self.with_words:
            unknown_id = self.tokenizer.unknown_id
            words = source_words(source.text, encoded.offsets, encoded.ids, unknown_id, self.lists)
        for n, word in enumerate(words):
            is_copied = source.is_copied(word.model_span)
            is_unknown = word.is_unknown and not is_copied
            words[n] = word._replace(span=source.place(word.model_span), is_copied=is_copied, is_unknown=is_unknown)
        return Piece(source.span, encoded.ids, words, [], was_cut, source, source.text, encoded.offsets)

    def _without_unknown(self, source: Masked, encoded: Encoded, unknown: set[int]) -> tuple[Masked, Encoded]:
        """Protect words and signs with unknown tokens, which no model can translate, if what the model reads fits."""
        spans: dict[Span, str] = {}
        last: Span | None = None  # of the words
        for word, tokens in words_of(source.text, encoded.offsets):
            if unknown.isdisjoint(tokens) or source.is_copied(word):
                continue
            if last is not None and word.start == last.end and combines(source.text[word.start]):
                del spans[last]
                last = Span(last.start, word.end)
                spans[last] = UNKNOWN
            elif is_mark(source.text[word.start : word.end]):
                if self._lacks(source.text[word.start : word.end]):
                    spans[word] = SIGN
            elif last is not None and is_mark(source.text[last.end : word.start]):  # nothing else is between them
                del spans[last]
                spans = {span: kind for span, kind in spans.items() if span.start < last.start}
                last = Span(last.start, word.end)
                spans[last] = UNKNOWN
            else:
                spans[word], last = UNKNOWN, word
        spans = with_numbers(source.text, spans)
        if not spans:
            return source, encoded
        changed = source.with_unknown(spans)
        again = self._encode(changed.text, changed.prefix)
        return (source, encoded) if self.limit is not None and len(again.ids) > self.limit else (changed, again)

    def _lacks(self, sign: str) -> bool:
        return not vocabulary_of(self.tokenizer).covers(sign) and not combines(sign)

    def again(self, piece: Piece, translation: str) -> list[Piece]:
        """Return what is to be translated instead of a piece whose translation has not kept what it should.

        That is the piece with stand-ins, which are words that models copy more often; or after a few of them the parts
        between what it keeps. Empty if the translation has kept everything.
        """
        lost = piece.masked.lost(translation) if piece.masked is not None else ()
        if piece.masked is None or not lost:
            return []
        source = piece.masked.with_stand_ins(lost)
        encoded = None if source is None else self._encode(source.text, source.prefix)
        if source is None or encoded is None or (self.limit is not None and len(encoded.ids) > self.limit):
            return self._around_items(piece, piece.masked)
        again = self._piece(source, encoded)
        again.prefix, again.terms, again.is_glued = piece.prefix, piece.terms, piece.is_glued
        return [again]

    def _around_items(self, piece: Piece, source: Masked) -> list[Piece]:
        pieces = [self._piece(part, self._encode(part.text, part.prefix)) for _, part in source.around_items()]
        for part in pieces:
            part.terms = [term for term in piece.terms if overlaps(term.span, [part.span])]
        for part in pieces[:1]:
            part.is_glued = piece.is_glued and part.span.start == piece.span.start
        return pieces

    def language_token(self, text: str) -> tuple[int, str]:
        """Return the token of a target language that a text begins with, or "", and where the rest begins."""
        given = LANGUAGE_TOKEN.match(text)
        is_one = given is not None and given[1] in self.tokenizer.language_tokens
        return (given.end(), given[1]) if given is not None and is_one else (0, "")

    def _language_of(self, text: str) -> str:
        """Return the token of the target language for the sentences of a text that have none of their own."""
        own = self.language_token(text)[1]
        if own or self.tgt_lang is None:
            return own
        tokens, token = self.tokenizer.language_tokens, f">>{self.tgt_lang}<<"
        if token in tokens:
            return token
        if tokens:
            shown = ", ".join(known.strip("<>") for known in tokens[:8])
            warn_once(f"`tgt_lang` {self.tgt_lang!r} is none of the tokenizer's: {shown}")
        return ""

    def _no_text(self, token: str) -> set[int]:
        """Return the tokens that stand for no text that a model could translate."""
        found = (
            {*self.tokenizer.special_ids, *self.tokenizer.encode(token).ids} if token else self.tokenizer.special_ids
        )
        return {*found, cast(int, self.tokenizer.unknown_id)}

    def _sentences(self, source: Masked) -> list[Span]:
        if self.split_sentences:
            return split_sentences(source.shadow, self.src_lang)
        blocks = re.finditer(f"[^{BLOCK_BREAK}]+" if source.kinds else r"(?s).+", source.text)
        stripped = ((match, len(match[0]) - len(match[0].lstrip())) for match in blocks if match[0].strip())
        return [Span(match.start() + space, match.start() + len(match[0].rstrip())) for match, space in stripped]

    def _fitting(self, text: str, sentence: Span, prefix: str) -> list[tuple[Span, Encoded, bool]]:
        """Encode a sentence; if it is too long, cut it (`truncation`) or split it into parts that fit."""
        encoded = {text[sentence.start : sentence.end]: self._encode(text[sentence.start : sentence.end], prefix)}
        source = encoded[text[sentence.start : sentence.end]]
        length = len(source.ids)
        if self.limit is None or length <= self.limit:
            return [(sentence, source, False)]
        if self.truncation:
            warn(f"A source of {length} tokens was cut to {self.limit} (`truncation`).")
            return [(sentence, self._truncated(source, self.limit), True)]
        if not self.split_sentences:
            raise ValueError(
                f"a source of {length} tokens is longer than the {self.limit} that the model takes: "
                f"{text[sentence.start : sentence.start + 40]!r}... Leave `split_sentences` on, or set "
                "`truncation=True` to cut it."
            )

        def fits(part: str) -> bool:
            if part not in encoded:
                encoded[part] = self._encode(part, prefix)
            return len(encoded[part].ids) <= cast(int, self.limit)

        parts = [(span, text[span.start : span.end]) for span in split_to_fit(text, sentence, fits)]
        return [(span, encoded.get(part) or self._encode(part, prefix), False) for span, part in parts]

    def _encode(self, text: str, prefix: str) -> Encoded:
        """Tokenise a text after a prefix, whose characters do not count."""
        encoded = self.tokenizer.encode(prefix + text)
        return Encoded(encoded.ids, list(moved_offsets(encoded.offsets, len(prefix)))) if prefix else encoded

    def _truncated(self, source: Encoded, limit: int) -> Encoded:
        """Leave out tokens before the special ones at the end."""
        end = len(source.ids)
        while end > 0 and source.ids[end - 1] in self.tokenizer.special_ids:
            end -= 1
        kept = max(0, limit - len(source.ids) + end)
        return Encoded(source.ids[:kept] + source.ids[end:], source.offsets[:kept] + source.offsets[end:])


def _without_quotes(text: str, source: Masked, sentence: Span) -> Span:
    """Return a sentence without quotes around all of it, if the model reads them only as plain ones."""
    if sentence.end - sentence.start < 3 or source.text[sentence.start] not in "'\"":
        return sentence
    inner = Span(sentence.start + 1, sentence.end - 1)
    first, last = source.place(Span(sentence.start, inner.start)), source.place(Span(inner.end, sentence.end))
    left, right = text[slice(*first)], text[slice(*last)]
    is_around = right != "" and right in QUOTES.get(left, "")
    return inner if is_around and not {left, right} & set(text[first.end : last.start]) else sentence


def _glued_cuts(source: Masked) -> set[int]:
    """Return where a placeholder ends, or begins, beside a letter: a word of another sentence, as in "{0}Welcome"."""
    cuts = set()
    for number in source.items:
        part = source.parts[number][0]
        start, end = source.begins[number], source.begins[number + 1]
        if getattr(part, "kind", "") == "placeholders":
            cuts |= {start} if source.text[max(start - 1, 0) : start].isalpha() else set()
            cuts |= {end} if source.text[end : end + 1].isalpha() else set()
    return cuts


def _cut_at(cuts: Collection[int], spans: Sequence[Span]) -> list[Span]:
    found: list[Span] = []
    for span in spans:
        edges = [span.start, *sorted(cut for cut in cuts if span.start < cut < span.end), span.end]
        found += map(Span, edges, edges[1:])
    return found


def batches_of(lengths: Sequence[int], batch_size: int, batch_tokens: int | None = None) -> Iterator[list[int]]:
    """Yield batches of pieces of similar length, longest first, of so many pieces or padded tokens.

    A piece is its place among the `lengths` of all.
    """
    in_order = sorted(range(len(lengths)), key=lambda place: -lengths[place])
    first = 0
    while first < len(in_order):
        size = batch_size if batch_tokens is None else max(1, batch_tokens // lengths[in_order[first]])
        yield in_order[first : first + size]
        first += size


def join_translations(document: Document, translations: Sequence[str]) -> tuple[str, list[int]]:
    """Join the translations of the pieces with what is between them in the text, mostly a space; return where each is.

    Between sentences of Chinese and Japanese there is no space, whatever the text has, and of others there is one.
    """
    joined, place, starts = "", 0, list[int]()
    for number, (piece, translation) in enumerate(zip(document.pieces, translations, strict=True)):
        between = document.text[place : piece.span.start] if number or document.copies else ""
        if number and not between.strip(" ") and not (piece.is_glued and not between):
            between = "" if runs_on(joined, translation) else between or " "
        joined = with_space(with_space(joined, between), translation)
        starts.append(len(joined) - len(translation))
        place = piece.span.end
    joined = with_space(joined, document.text[place:]) if document.copies else joined
    return with_capitals(joined) if document.in_capitals else joined, starts


class TranslationIterator(Generic[Result]):
    """Reads texts in windows, translates each window at once, and gives its results one by one."""

    def __init__(self, texts: object, translate: Callable[[list[str]], list[Result]], window: int) -> None:
        """`texts`: an iterable, or what only has `[]`, such as a `KeyDataset`."""
        self.texts = texts
        self.translate = translate
        self.window = window

    def __len__(self) -> int:
        return len(cast(Sized, self.texts))  # a generator has no length, and says so

    def __iter__(self) -> Iterator[Result]:
        texts: Iterator[str] = iter(cast(Any, self.texts))
        while window := list(islice(texts, self.window)):
            yield from self.translate(window)
