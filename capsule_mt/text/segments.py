"""Cut texts into pieces for the model, batch the pieces, and join their translations."""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence, Sized
from itertools import islice
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar, cast

from capsule_mt.messages import shown, warn, with_unit
from capsule_mt.text.casing import LANGUAGE_TOKEN, LOWERCASE, CasedText, in_sentence_case
from capsule_mt.text.copying import has_signed_numbers, without_copied_edges
from capsule_mt.text.edges import label_in, lacks_full_stop, mark_of, marks_at_end, without_enclosing
from capsule_mt.text.keeping import (
    BLOCK_BREAK,
    SIGN,
    UNKNOWN,
    Item,
    Masked,
    masked,
    overlapping,
    overlaps,
    with_numbers,
)
from capsule_mt.text.normal import combines, vocabulary_of
from capsule_mt.text.numerals import number_forms, with_grouping, with_target_signs
from capsule_mt.text.sentences import UNSPACED_STOPS, Span, rules_of, split_sentences, split_to_fit
from capsule_mt.text.target_tokens import LANGUAGE_CODE, refuse_missing_target, refuse_unknown_target
from capsule_mt.text.tokenizer_protocol import Encoded, Tokenizer, unknown_tokens
from capsule_mt.text.typography import colon_of_label, quotes_of, separator_with_quotes
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

LONE_SURROGATES = re.compile("[\ud800-\udfff]")
# a multilingual OPUS-MT source begins with its target language
LEADING_TOKEN = re.compile(rf"\s*({LANGUAGE_TOKEN.pattern})\s*")
MAX_WORD = 10_000  # characters
LONG_WORD = rf"(?<![^\s{UNSPACED_STOPS}])[^\s{UNSPACED_STOPS}]{{{MAX_WORD + 1},}}"
MAX_UNKNOWN_SHARE = 0.2  # of a text's tokens; with more, it is hardly in the source language
Result = TypeVar("Result")


class Piece:
    """One source for the model: a sentence of a text, or a part of one that is too long.

    span: its characters of the user's text.
    ids: its tokens, special ones included.
    words: its words, if coverage is requested.
    text: what the model reads.
    offsets: the characters of `text` that each token stands for.
    prefix: the tokens that its translation begins with.
    was_cut: whether the source was longer (`truncation`).
    source: `text` with the way back to the user's text.
    terms: the glossary's terms in it.
    is_glued: whether only kept items separate it from the preceding piece, as in "{0}Welcome".
    ending: what the user's sentence has instead of the final mark that the model reads; `None` if it reads the same.
    case: of the user's line, if the model reads it in sentence case instead.
    is_label: whether it is the only word of the user's line, as in a menu.
    """

    terms: "Sequence[Term]" = ()
    is_glued = False
    ending: str | None = None
    case: str | None = None
    is_label = False

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
        """The source, if something in it is kept."""
        return self.source if self.source is not None and self.source.kinds else None

    @property
    def user_text(self) -> str:
        """The user's text, in sentence case."""
        normal = None if self.source is None else self.source.normal
        return self.text if normal is None else normal.source[self.span.start : self.span.end]

    @property
    def source_offsets(self) -> Offsets:
        """The characters of the user's text that each token stands for."""
        if self.source is None:
            return moved_offsets(self.offsets, -self.span.start)
        return [offset and self.source.user_span(Span(*offset)) for offset in self.offsets]

    def tokens_of(self, span: Span) -> list[int]:
        """Return the indices of the tokens in a span of the user's text."""
        offsets = enumerate(self.source_offsets)
        return [token for token, token_span in offsets if token_span and overlaps(Span(*token_span), [span])]


class Document:
    """One of the user's texts, and its pieces.

    copies: the translation also copies the text before and after all pieces; the text between two it always copies.
    foreign: spans that are copied because the model cannot translate them: sentences whose words are all unknown to
        the vocabulary, words of more than `MAX_WORD` characters, and lines in another language.
    tgt_lang: the language of the token that the text begins with; `None` if it has none.
    language_spans: the tokens of target languages in the text, such as ">>deu<<", which are never copied.
    num_tokens, num_unknown: the number of tokens, and of those for something that the vocabulary lacks. Tokens of kept
        items, such as placeholders, do not count: they are copied anyway.
    """

    def __init__(
        self, text: str, copies: bool = False, pieces: Sequence[Piece] = (), foreign: Sequence[Span] = ()
    ) -> None:
        self.tgt_lang: str | None = None
        self.text, self.copies, self.pieces, self.foreign = text, copies, list(pieces), list(foreign)
        self.language_spans: list[Span] = []
        self.num_unknown = self.num_tokens = 0

    def without_languages(self, start: int = 0, end: int | None = None) -> str:
        """Return a part of the text without the tokens of languages."""
        part = Span(start, len(self.text) if end is None else end)
        tokens = overlapping(part, self.language_spans)
        starts = [part.start, *(token.end for token in tokens)]
        ends = [*(token.start for token in tokens), part.end]
        return "".join(self.text[first:last] for first, last in zip(starts, ends, strict=True))

    @property
    def with_blank_languages(self) -> str:
        """The text with spaces for the tokens of languages; offsets stay valid."""
        return _filled(self.text, self.language_spans, " ")

    @property
    def unknown(self) -> float:
        """The share of the tokens that stand for what the vocabulary lacks."""
        return self.num_unknown / self.num_tokens if self.num_tokens else 0.0


class Segmenter(NamedTuple):
    """Turns texts into documents: cuts them, and tokenises each piece once.

    limit: the largest number of tokens in a source.
    prefix: what a T5 checkpoint reads before each source.
    copies: copy text without a sentence, such as a URL or an emoji, instead of translating it.
    normalises: the model reads the normal form of a text.
    keep: the kinds of `KEEP_KINDS` that a translation keeps.
    with_words: find the words of each piece, for coverage.
    lists: the words that coverage treats specially.
    is_foreign: tells whether a line is in another language, and copied.
    joins_blocks: read a space for tags that end a sentence, such as <p>, if sentences are not split.
    cut_warning: the warning of a source that was cut, with its tokens and those of them that remain.
    """

    tokenizer: Tokenizer
    limit: int | None
    prefix: str = ""
    split_sentences: bool = True
    truncation: bool = False
    src_lang: str | None = None
    tgt_lang: str | None = None
    copies: bool = True
    normalises: bool = True
    keep: Sequence[str] = ()
    with_words: bool = False
    lists: WordLists = NO_LISTS
    is_foreign: Callable[[str], bool] | None = None
    joins_blocks: bool = False
    cut_warning: str = "A source of {} tokens was cut to {} (`truncation`)."

    def document(self, text: str) -> Document:
        """Cut a text into pieces that fit; leave out pieces without a token of text, and unknown marks."""
        if not isinstance(text, str):
            raise TypeError(f"a text must be a string, got a {type(text).__name__}")
        plain = text if text.isascii() else LONE_SURROGATES.sub("\ufffd", text)
        document = Document(plain, self.copies or bool(self.keep))
        token_span, token = self.language_token(plain)
        if not token:
            return self._read(document, plain)
        document.tgt_lang = token[2:-2]
        document.language_spans.append(token_span)
        readable = " " * token_span.end + plain[token_span.end :]  # the rules about texts do not see the token
        return self._replace(tgt_lang=document.tgt_lang)._read(document, readable)

    def _read(self, document: Document, readable: str) -> Document:
        """Cut the text of a document, in which other text may be blank, into the document's pieces."""
        text_language = self._default_language
        readable = self._without_foreign_lines(document, self._without_long_words(document, readable))
        if self.normalises and not self.split_sentences:  # breaks that sentencepiece drops, which would join two words
            readable = readable.replace("\v", " ").replace("\x85", " ")
        vocabulary = vocabulary_of(self.tokenizer)
        rules = rules_of(self.src_lang)
        if self.copies and "numbers" not in self.keep and has_signed_numbers(readable):
            readable = with_grouping(readable, rules.grouping, vocabulary)
            if (forms := number_forms(self.src_lang, self.tgt_lang)) is not None:
                readable = with_target_signs(readable, forms, vocabulary)
        cased = in_sentence_case(readable, vocabulary, self.src_lang) if self.copies else CasedText(readable)
        source = masked(cased.text, self.keep, self.copies, vocabulary if self.normalises else None)
        cuts = _glued_cuts(source) if self.copies else ()
        lone_token = ""  # a token on a line of its own is that of the next sentence
        for start, end in _cut_at(cuts, self._sentences(source)):
            token_span, token = self.language_token(source.text[start:end])
            sentence = Span(start + token_span.end, end)
            if token:
                document.language_spans.append(source.user_span(Span(start + token_span.start, sentence.start)))
            if self.copies:
                inner = without_copied_edges(source.text, sentence, rules.has_ordinals)
                sentence = without_enclosing(source.text, inner)
            label = label_in(source.text, sentence) if self.copies else None
            sentence = label or sentence
            if sentence.start == sentence.end:
                lone_token = token or lone_token
                continue
            token, lone_token = token or lone_token or text_language, ""
            if not token and len(self.tokenizer.language_tokens) > 1:
                refuse_missing_target(self.tokenizer.language_tokens)
            prefix = f"{self.prefix}{token} " if token else self.prefix
            textless_ids = self._textless_ids(token)
            for span, encoded, was_cut in self._fitting(source.text, sentence, prefix):
                span_text = source.text[span.start : span.end]
                is_unread_mark = self.normalises and is_mark(span_text)
                has_unknown_word = self.tokenizer.unknown_id in encoded.ids and not is_unread_mark
                part, ending = source.part(span, prefix), None
                if self.joins_blocks and part.text.startswith(BLOCK_BREAK):  # a tag such as <p> begins the part
                    shift = part.text.index(span_text)
                    encoded = encoded._replace(offsets=moved_offsets(encoded.offsets, -shift))
                if self.copies and span.end == sentence.end and end not in cuts and not was_cut:
                    part, encoded, ending = self._with_final_mark(document.text, part, encoded)
                unknown = unknown_tokens(self.tokenizer, part.text, encoded)
                copied_tokens = _copied_tokens(part, encoded)
                document.num_unknown += len(unknown - copied_tokens)
                document.num_tokens += len(encoded.ids) - len(copied_tokens)
                if unknown and self.copies:
                    part, encoded = self._without_unknown(part, encoded, unknown)
                part, encoded = self._with_numbers_for_placeholders(part, encoded)
                if part.has_words and (has_unknown_word or not textless_ids.issuperset(encoded.ids)):
                    piece = self._piece(part, encoded, was_cut)
                    piece.is_glued, piece.ending = span.start in cuts, ending
                    piece.case = cased.case_at(piece.span.start)
                    piece.is_label = label is not None and not part.items
                    document.pieces.append(piece)
                elif unknown:
                    document.foreign.append(part.span)
        return document

    def _without_long_words(self, document: Document, text: str) -> str:
        """Return a text with line breaks instead of words that are too long, so that no sentence has them."""
        if len(text) <= MAX_WORD or not self.split_sentences:
            return text
        document.foreign += [Span(*match.span()) for match in re.finditer(LONG_WORD, text)]
        if not document.foreign:
            return text
        document.copies = True
        warn(f"{with_unit(len(document.foreign), 'words')} of more than {MAX_WORD} characters in a text: copied.")
        return re.sub(LONG_WORD, lambda match: "\n" * len(match[0]), text)

    def _without_foreign_lines(self, document: Document, text: str) -> str:
        """Return a text with line breaks instead of lines in another language, so that no sentence has them."""
        if self.is_foreign is None:
            return text
        lines = [Span(*match.span()) for match in re.finditer(r".+" if self.split_sentences else r"(?s).+", text)]
        foreign_lines = [line for line in lines if self.is_foreign(text[line.start : line.end])]
        document.foreign += foreign_lines
        document.copies = document.copies or bool(foreign_lines)
        return _filled(text, foreign_lines, "\n")

    def _piece(self, source: Masked, encoded: Encoded, was_cut: bool = False) -> Piece:
        source.offsets = encoded.offsets
        words: list[SourceWord] = []
        if self.with_words:
            unknown_id = self.tokenizer.unknown_id
            words = source_words(source.text, encoded.offsets, encoded.ids, unknown_id, self.lists)
            if source.shift is None:
                words = _merged([_of_user(word, source) for word in words if not source.is_added(word.model_span)])
            elif source.shift:
                words = [word._replace(span=source.user_span(word.span)) for word in words]
        return Piece(source.span, encoded.ids, words, [], was_cut, source, source.text, encoded.offsets)

    def _without_unknown(self, source: Masked, encoded: Encoded, unknown: set[int]) -> tuple[Masked, Encoded]:
        """Protect words and signs with unknown tokens, which no model can translate, if the result fits."""
        spans: dict[Span, str] = {}
        last: Span | None = None  # the last protected word, which a following one may extend
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
            elif last is not None and is_mark(source.text[last.end : word.start]):  # only marks are between them
                while spans and next(reversed(spans)).start >= last.start:
                    spans.popitem()
                last = Span(last.start, word.end)
                spans[last] = UNKNOWN
            else:
                spans[word], last = UNKNOWN, word
        spans = with_numbers(source.text, spans)
        if not spans:
            return source, encoded
        changed = source.with_unknown(spans)
        changed_encoded = self._encode(changed.text, changed.prefix)
        is_too_long = self.limit is not None and len(changed_encoded.ids) > self.limit
        return (source, encoded) if is_too_long else (changed, changed_encoded)

    def _with_numbers_for_placeholders(self, source: Masked, encoded: Encoded) -> tuple[Masked, Encoded]:
        """Return a sentence with numbers instead of placeholders of numbers, if the result fits."""
        changed = source.with_numbers_for_placeholders()
        if changed is source:
            return source, encoded
        changed_encoded = self._encode(changed.text, changed.prefix)
        is_too_long = self.limit is not None and len(changed_encoded.ids) > self.limit
        return (source, encoded) if is_too_long else (changed, changed_encoded)

    def _with_final_mark(self, text: str, part: Masked, encoded: Encoded) -> tuple[Masked, Encoded, str | None]:
        """Return a sentence with one final mark if the user's lacks it, or has several, such as "..." or "?!".

        The last result is what the user's sentence has instead, such as ""; `None` if nothing changed.
        """
        marks = marks_at_end(part.text)
        if lacks_full_stop(part.without_items):
            changed, ending = part.with_ending(Span(len(part.text), len(part.text)), "."), ""
        elif marks is not None and not isinstance(part.parts[-1][0], Item) and marks.start() >= part.starts[-2]:
            ending = text[slice(*part.user_span(Span(*marks.span())))]
            if mark_of(marks[0]) != mark_of(ending):  # the user's marks are full width, or ligatures
                ending = marks[0]
            changed = part.with_ending(Span(*marks.span()), mark_of(ending))
        else:
            return part, encoded, None
        changed_encoded = self._encode(changed.text, changed.prefix)
        is_too_long = self.limit is not None and len(changed_encoded.ids) > self.limit
        # a vocabulary may lack the mark
        is_unknown = self.tokenizer.unknown_id in {*changed_encoded.ids} - {*encoded.ids}
        if is_too_long or is_unknown:
            return part, encoded, None
        return changed, changed_encoded, ending

    def label_forms(self, label: Piece) -> list[Piece]:
        """Return other forms of a label that the vocabulary has: with a colon, and in lowercase with a colon."""
        source = cast(Masked, label.source)
        sources = [source.with_colon()]
        if source.text[:1].isupper() and source.text[1:] == source.text[1:].lower():
            sources.append(sources[0].lowercased())
        forms = []
        for form in sources:
            encoded = self._encode(form.text, form.prefix)
            is_too_long = self.limit is not None and len(encoded.ids) > self.limit
            if is_too_long or self.tokenizer.unknown_id in encoded.ids:
                continue
            piece = self._piece(form, encoded)
            piece.prefix, piece.terms, piece.is_glued = label.prefix, label.terms, label.is_glued
            piece.case, piece.is_label = label.case, True
            forms.append(piece)
        return forms

    def _lacks(self, sign: str) -> bool:
        return not vocabulary_of(self.tokenizer).covers(sign) and not combines(sign)

    def retries(self, piece: Piece, translation: str) -> list[Piece]:
        """Return the pieces to translate instead, if a translation has lost an item; else nothing.

        First the piece with stand-ins, which are words that models copy more often; after a few rounds, its parts
        between the items.
        """
        lost = piece.masked.lost(translation) if piece.masked is not None else ()
        if piece.masked is None or not lost:
            return []
        source = piece.masked.with_stand_ins(lost)
        encoded = None if source is None else self._encode(source.text, source.prefix)
        if source is None or encoded is None or (self.limit is not None and len(encoded.ids) > self.limit):
            return self._around_items(piece, piece.masked)
        retry = self._piece(source, encoded)
        retry.prefix, retry.terms, retry.is_glued = piece.prefix, piece.terms, piece.is_glued
        retry.case, retry.ending = piece.case, piece.ending
        return [retry]

    def _around_items(self, piece: Piece, source: Masked) -> list[Piece]:
        pieces = [self._piece(part, self._encode(part.text, part.prefix)) for _, part in source.around_items()]
        for part in pieces:
            # a model begins each part with a capital
            part.case = piece.case or (LOWERCASE if part.masked and part.masked.text[:1].islower() else None)
            has_ending = piece.ending is not None and part.text.endswith(mark_of(piece.ending))
            part.ending = piece.ending if has_ending and part.span.end == piece.span.end else None
            part.terms = [term for term in piece.terms if overlaps(term.span, [part.span])]
        for part in pieces[:1]:
            part.is_glued = piece.is_glued and part.span.start == piece.span.start
        return pieces

    def language_token(self, text: str) -> tuple[Span, str]:
        """Return the span and the text of the target language's token at a text's beginning; else (0, 0) and "".

        The span includes the space after the token. A token of a language that the model lacks is refused.
        """
        tokens = self.tokenizer.language_tokens
        match = LEADING_TOKEN.match(text) if tokens else None
        if match is not None and match[1] in tokens:
            return Span(match.start(1), match.end()), match[1]
        if match is not None and re.fullmatch(LANGUAGE_CODE, match[1][2:-2]):
            refuse_unknown_target(match[1], tokens)
        return Span(0, 0), ""

    @property
    def _default_language(self) -> str:
        """The target language's token for texts that do not begin with one; empty if `tgt_lang` names none."""
        tokens = self.tokenizer.language_tokens
        if self.tgt_lang is None or not tokens:
            return ""
        if (token := f">>{self.tgt_lang}<<") not in tokens:
            refuse_unknown_target(self.tgt_lang, tokens)
        return token

    def _textless_ids(self, token: str) -> set[int]:
        """Return the ids of tokens that a model cannot translate: special, unknown, and the language's token."""
        language_ids = self.tokenizer.encode(token).ids if token else ()
        return {*self.tokenizer.special_ids, *language_ids, cast(int, self.tokenizer.unknown_id)}

    def _sentences(self, source: Masked) -> list[Span]:
        if self.split_sentences:
            return split_sentences(source.shadow, self.src_lang)
        cuts_blocks = source.kinds and not self.joins_blocks
        blocks = re.finditer(f"[^{BLOCK_BREAK}]+" if cuts_blocks else r"(?s).+", source.text)
        indented = ((block, len(block[0]) - len(block[0].lstrip())) for block in blocks if block[0].strip())
        return [Span(block.start() + indent, block.start() + len(block[0].rstrip())) for block, indent in indented]

    def _fitting(self, text: str, sentence: Span, prefix: str) -> list[tuple[Span, Encoded, bool]]:
        """Encode a sentence; if it is too long, cut it (`truncation`) or split it into parts that fit."""
        sentence_text = text[sentence.start : sentence.end]
        source = self._encode(sentence_text, prefix)
        length = len(source.ids)
        if self.limit is None or length <= self.limit:
            return [(sentence, source, False)]
        if self.truncation:
            warn(self.cut_warning.format(length, self.limit))
            return [(sentence, self._truncated(source, self.limit), True)]
        if not self.split_sentences:
            raise ValueError(
                f"a source of {length} tokens is longer than the {self.limit} that the model takes: "
                f"{text[sentence.start : sentence.start + 40]!r}... Leave `split_sentences` on (without "
                "--no-split), or set `truncation=True` to cut it."
            )

        encoded = {sentence_text: source}

        def fits(part: str) -> bool:
            if part not in encoded:
                encoded[part] = self._encode(part, prefix)
            return len(encoded[part].ids) <= cast(int, self.limit)

        parts = [(span, text[span.start : span.end]) for span in split_to_fit(text, sentence, fits)]
        return [(span, encoded.get(part) or self._encode(part, prefix), False) for span, part in parts]

    def _encode(self, text: str, prefix: str) -> Encoded:
        """Tokenise a text after a prefix; offsets count from the text's beginning."""
        encoded = self.tokenizer.encode(prefix + text.replace(BLOCK_BREAK, " "))
        return encoded._replace(offsets=moved_offsets(encoded.offsets, len(prefix))) if prefix else encoded

    def _truncated(self, source: Encoded, limit: int) -> Encoded:
        """Cut a source to the limit, but keep the special tokens at its end."""
        end = len(source.ids)
        while end > 0 and source.ids[end - 1] in self.tokenizer.special_ids:
            end -= 1
        cut = max(0, limit - len(source.ids) + end)
        ids, offsets = ([*values[:cut], *values[end:]] for values in (source.ids, source.offsets))
        return source._replace(ids=ids, offsets=offsets)


def _filled(text: str, spans: Iterable[Span], character: str) -> str:
    """Return a text with a character instead of each one in some spans, which are in order."""
    parts: list[str] = []
    previous_end = 0
    for start, end in spans:
        parts += [text[previous_end:start], character * (end - start)]
        previous_end = end
    return "".join([*parts, text[previous_end:]])


def _copied_tokens(source: Masked, encoded: Encoded) -> set[int]:
    """Return the indices of tokens in kept items, such as placeholders."""
    offsets = enumerate(encoded.offsets) if source.items else ()
    return {index for index, span in offsets if span is not None and source.is_copied(Span(*span))}


def _of_user(word: SourceWord, source: Masked) -> SourceWord:
    """Return a word of what the model reads as one of the user's text."""
    span, is_copied = source.user_span(word.model_span), source.is_copied(word.model_span)
    return word._replace(span=span, is_copied=is_copied, is_unknown=word.is_unknown and not is_copied)


def _merged(words: Sequence[SourceWord]) -> list[SourceWord]:
    """Join neighbours that stand for the same characters of the user's text, as the dots of an ellipsis do."""
    merged: list[SourceWord] = []
    for word in words:
        if merged and merged[-1].span == word.span:
            merged[-1] = merged[-1]._replace(
                tokens=[*dict.fromkeys((*merged[-1].tokens, *word.tokens))],
                model_span=Span(merged[-1].model_span.start, word.model_span.end),
            )
        else:
            merged.append(word)
    return merged


def _glued_cuts(source: Masked) -> set[int]:
    """Return the offsets between a placeholder and a letter: a sentence ends or begins there, as in "{0}Welcome"."""
    cuts = set()
    for index in source.items:
        part = source.parts[index][0]
        start, end = source.starts[index], source.starts[index + 1]
        if getattr(part, "kind", "") == "placeholders":
            cuts |= {start} if source.text[max(start - 1, 0) : start].isalpha() else set()
            cuts |= {end} if source.text[end : end + 1].isalpha() else set()
    return cuts


def _cut_at(cuts: Collection[int], spans: Sequence[Span]) -> list[Span]:
    if not cuts:
        return list(spans)
    parts: list[Span] = []
    offsets = sorted(cuts)
    for span in spans:
        inside = offsets[bisect_right(offsets, span.start) : bisect_left(offsets, span.end)]
        edges = [span.start, *inside, span.end]
        parts += map(Span, edges, edges[1:])
    return parts


def batches_of(lengths: Sequence[int], batch_size: int, batch_tokens: int | None = None) -> Iterator[list[int]]:
    """Yield batches of similar lengths, longest first, as indices into `lengths`.

    A batch has `batch_size` pieces, or at most `batch_tokens` padded tokens.
    """
    longest_first = sorted(range(len(lengths)), key=lambda index: -lengths[index])
    start = 0
    while start < len(longest_first):
        size = batch_size if batch_tokens is None else max(1, batch_tokens // lengths[longest_first[start]])
        yield longest_first[start : start + size]
        start += size


def join_translations(
    document: Document, translations: Sequence[str], language: str | None = None
) -> tuple[str, list[int]]:
    """Join the translations of the pieces with the text between them, mostly a space; return the offset of each, too.

    Sentences of Chinese and Japanese are joined without a space, and others with one, whatever the text has. Quotes
    around a sentence are those of the target `language`, if that is known.
    """
    joined = ""
    starts: list[int] = []
    for index, (piece, translation) in enumerate(zip(document.pieces, translations, strict=True)):
        separator = _text_before(document, index, language) if index or document.copies else ""
        is_glued = piece.is_glued and not separator
        if index and not separator.strip(" ") and not is_glued:
            separator = "" if runs_on(joined, translation) else separator or " "
        joined = with_space(with_space(joined, separator), translation)
        starts.append(len(joined) - len(translation))
    ending = _text_before(document, len(document.pieces), language) if document.copies else ""
    return with_space(joined, ending), starts


def _text_before(document: Document, index: int, language: str | None) -> str:
    """Return the text between a piece and the preceding one, or after the last one, with a language's typography."""
    pieces = document.pieces
    start = pieces[index - 1].span.end if index else 0
    end = pieces[index].span.start if index < len(pieces) else len(document.text)
    text = document.without_languages(start, end)
    if not text:
        return text
    if index and pieces[index - 1].is_label:
        text = colon_of_label(text, language)
    quotes = quotes_of(language)
    return text if quotes is None else separator_with_quotes(text, quotes, index == 0, index == len(pieces))


def check_texts(texts: Iterable[object], name: str) -> None:
    """Refuse an argument with an element that is not a string, and name the element."""
    for index, text in enumerate(texts):
        check_text(text, f"{name}[{index}]")


def check_text(text: object, name: str) -> None:
    """Refuse what is not a string."""
    if not isinstance(text, str):
        raise TypeError(f"`{name}` must be a string, got {shown(text)} ({type(text).__name__})")


class TranslationIterator(Generic[Result]):
    """Reads texts in windows, translates each window at once, and yields its results in order."""

    def __init__(
        self,
        texts: object,
        translate: Callable[[list[str]], list[Result]],
        window: int,
        check: Callable[[object, str], None] = check_text,
    ) -> None:
        """`texts`: an iterable, or a sequence that has only `[]`, such as a `KeyDataset`."""
        self.texts = texts
        self.translate = translate
        self.window = window
        self.check = check

    def __len__(self) -> int:
        return len(cast(Sized, self.texts))  # a generator has no length, and says so

    def __iter__(self) -> Iterator[Result]:
        texts: Iterator[tuple[int, str]] = enumerate(iter(cast(Any, self.texts)))
        while window := list(islice(texts, self.window)):
            for index, text in window:
                self.check(text, f"texts[{index}]")
            yield from self.translate([text for _, text in window])
