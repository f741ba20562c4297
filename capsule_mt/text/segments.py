"""Cut texts into pieces for the model, and join the translations of the pieces."""

import re
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import NamedTuple, cast

from capsule_mt.messages import warn, with_unit
from capsule_mt.text.edges import edges_of, ending_of, label_in
from capsule_mt.text.finishing import colon_of_label, quotes_of, separator_with_quotes
from capsule_mt.text.reading import Piece, overlapping, parts_in
from capsule_mt.text.rewriting import Edit, Form, Rewriter
from capsule_mt.text.rules import BREAK, COPIED_KINDS, rows_of
from capsule_mt.text.sentences import UNSPACED_STOPS, Span, rules_of, split_sentences, split_to_fit, stripped
from capsule_mt.text.target_tokens import LANGUAGE_CODE, refuse_missing_target, refuse_unknown_target
from capsule_mt.text.tokenizer_protocol import Encoded, Tokenizer, unknown_tokens
from capsule_mt.text.vocabulary import vocabulary_of
from capsule_mt.text.words import (
    NO_LISTS,
    SourceWord,
    WordLists,
    is_mark,
    moved_offsets,
    runs_on,
    source_words,
    with_space,
    words_of,
)

LONE_SURROGATES = re.compile("[\ud800-\udfff]")
# a multilingual OPUS-MT source begins with its target language
LEADING_TOKEN = re.compile(r"\s*(>>[^<>\s]+<<)\s*")
MAX_WORD = 10_000  # characters
LONG_WORD = rf"(?<![^\s{UNSPACED_STOPS}])[^\s{UNSPACED_STOPS}]{{{MAX_WORD + 1},}}"
LATE_NAMES = frozenset(row.id for row in rows_of("late"))
MAX_UNKNOWN_SHARE = 0.2  # of a text's tokens; with more, it is hardly in the source language


class Document:
    """One of the user's texts, and its pieces.

    form: the text as rules see it.
    copies: the translation also copies the text before and after all pieces; the text between two it always copies.
    foreign: spans that are copied because the model cannot translate them: sentences whose words are all unknown to
        the vocabulary, words of more than `MAX_WORD` characters, and lines in another language.
    tgt_lang: the language of the token that the text begins with; `None` if it has none.
    language_spans: the tokens of target languages in the text, such as ">>deu<<", which are never copied.
    num_tokens, num_unknown: the number of tokens, and of those for something that the vocabulary lacks. Tokens that
        begin in other kept items, such as placeholders, do not count: they are copied anyway.
    """

    def __init__(
        self, text: str, copies: bool = False, pieces: Sequence[Piece] = (), foreign: Sequence[Span] = ()
    ) -> None:
        self.form: Form | None = None
        self.tgt_lang: str | None = None
        self.text, self.copies, self.pieces, self.foreign = text, copies, list(pieces), list(foreign)
        self.language_spans: list[Span] = []
        self.num_unknown = self.num_tokens = 0

    def without_languages(self, part: Span) -> str:
        """Return a part of the text without the tokens of languages."""
        return _filled(self.text, overlapping(part, self.language_spans), "", part)

    @property
    def with_blank_languages(self) -> str:
        """The text with spaces for the tokens of languages; offsets stay valid."""
        return _filled(self.text, self.language_spans, " ")

    @property
    def unknown(self) -> float:
        """The share of the tokens that stand for what the vocabulary lacks."""
        return self.num_unknown / self.num_tokens if self.num_tokens else 0.0


class Segmenter(NamedTuple):
    """Turns texts into documents: cuts them, and tokenises the pieces.

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
        form = document.form = self._rewriter.read(readable)
        lone_token = ""  # a token on a line of its own is that of the next sentence
        for start, end in self._sentences(form):
            token_span, token = self.language_token(form.text[start:end])
            sentence = Span(start + token_span.end, end)
            if token:
                document.language_spans.append(form.user_span(start + token_span.start, sentence.start))
            label = None
            if self.copies:
                sentence = edges_of(form.text, sentence, rules_of(self.src_lang).has_ordinals)
                label = label_in(form.text, sentence)
                self._record_unknown(document, form, start, end, is_read=sentence.start < sentence.end)
            sentence = label or sentence
            if sentence.start == sentence.end:
                lone_token = token or lone_token
                continue
            token, lone_token = token or lone_token or text_language, ""
            if not token and len(self.tokenizer.language_tokens) > 1:
                refuse_missing_target(self.tokenizer.language_tokens)
            textless_ids = self._textless_ids(token)
            for piece in self._fitting(form, sentence, f"{self.prefix}{token} " if token else self.prefix):
                if self.copies and piece.parts[-1].end == sentence.end and not piece.was_cut:
                    piece = self._with_final_mark(piece, sentence.end)
                unknown, copied_tokens = unknown_tokens(self.tokenizer, piece.text, piece.encoded), piece.copied_tokens
                document.num_unknown += self._count_foreign(piece.ids, unknown - copied_tokens)
                document.num_tokens += len(piece.ids) - len(copied_tokens)
                if unknown - copied_tokens and self.copies:
                    piece = self._without_unknown_words(piece, unknown)
                is_unread_mark = self.normalises and is_mark(piece.text)
                has_unknown_word = self.tokenizer.unknown_id in piece.ids and not is_unread_mark
                if piece.has_words and (has_unknown_word or not textless_ids.issuperset(piece.ids)):
                    piece.case = form.case_at(piece.span.start)
                    piece.is_label = label is not None and not piece.items
                    document.pieces.append(piece)
                elif unknown:
                    document.foreign.append(piece.span)
        return document

    @property
    def _rewriter(self) -> Rewriter:
        languages = ("languages",) if self.tokenizer.language_tokens else ()
        kinds = tuple(dict.fromkeys((*languages, *(COPIED_KINDS if self.copies else ()), *self.keep)))
        vocabulary = vocabulary_of(self.tokenizer)
        languages_and_cut = (self.src_lang, self.tgt_lang, self.split_sentences)
        return Rewriter(vocabulary, kinds, self.copies, self.normalises, *languages_and_cut)

    def _record_unknown(self, document: Document, form: Form, start: int, end: int, *, is_read: bool) -> None:
        """Count the tokens of what the vocabulary lacks in a sentence; if nothing else is in it, it is foreign."""
        lacked = [edit for _, edit in form.copies_in(start, end) if edit.row in LATE_NAMES]
        for edit in lacked:
            text = edit.back or ""
            encoded = self.tokenizer.encode(text)
            num_special = sum(token in self.tokenizer.special_ids for token in encoded.ids)
            document.num_unknown += self._count_foreign(encoded.ids, unknown_tokens(self.tokenizer, text, encoded))
            document.num_tokens += len(encoded.ids) - num_special
        if not is_read and any(edit.row == "unknown word" for edit in lacked):
            document.foreign.append(Span(lacked[0].start, lacked[-1].end))

    def _count_foreign(self, ids: Sequence[int], unknown: Iterable[int]) -> int:
        """Count the unknown tokens without those of ASCII signs, which texts of any language may have."""
        return sum(ids[index] not in self.tokenizer.byte_ids for index in unknown)

    def _without_long_words(self, document: Document, text: str) -> str:
        """Return a text with line breaks instead of words that are too long, so that no sentence has them."""
        if len(text) <= MAX_WORD or not self.split_sentences:
            return text
        document.foreign += [Span(*match.span()) for match in re.finditer(LONG_WORD, text)]
        if not document.foreign:
            return text
        document.copies = True
        warn(f"{with_unit(len(document.foreign), 'words')} of more than {MAX_WORD} characters in a text: copied.")
        return _filled(text, document.foreign, "\n")

    def _without_foreign_lines(self, document: Document, text: str) -> str:
        """Return a text with line breaks instead of lines in another language, so that no sentence has them."""
        if self.is_foreign is None:
            return text
        lines = [Span(*match.span()) for match in re.finditer(r".+" if self.split_sentences else r"(?s).+", text)]
        foreign_lines = [line for line in lines if self.is_foreign(text[line.start : line.end])]
        document.foreign += foreign_lines
        document.copies = document.copies or bool(foreign_lines)
        return _filled(text, foreign_lines, "\n")

    def _with_final_mark(self, piece: Piece, end: int) -> Piece:
        """Return a sentence with one final mark if the user's lacks it, or has several, such as "..." or "?!"."""
        form, start = piece.form, piece.parts[0].start
        mark = ending_of(form.text, Span(start, end))
        if mark is None:
            return piece
        changed = self._encoded(piece.with_parts(parts_in(form, start, end, mark)))
        changed.mark = mark
        is_unknown = self.tokenizer.unknown_id in {*changed.ids} - {*piece.ids}  # a vocabulary may lack the mark
        return piece if is_unknown or not self._fits(changed) else changed

    def _without_unknown_words(self, piece: Piece, unknown: set[int]) -> Piece:
        """Protect words that are unknown though the vocabulary has their characters, as one of whole words may be."""
        spans = [
            word
            for word, tokens in words_of(piece.text, piece.offsets)
            if not (unknown.isdisjoint(tokens) or is_mark(piece.text[slice(*word)]) or piece.is_copied(word))
        ]
        changed = self._encoded(piece.with_unknown_words(spans))
        return changed if spans and self._fits(changed) else piece

    def label_forms(self, label: Piece) -> list[Piece]:
        """Return other forms of a label that the vocabulary has: with a colon and, if capitalised, in lowercase."""
        forms = [label.with_colon()]
        if label.text[:1].isupper() and label.text[1:] == label.text[1:].lower():
            forms.append(forms[0].lowercased())
        forms = [self._encoded(form) for form in forms]
        return [form for form in forms if self._fits(form) and self.tokenizer.unknown_id not in form.ids]

    def retries(self, piece: Piece, translation: str) -> list[Piece]:
        """Return the pieces to translate instead, if a translation has lost an item; else nothing.

        First the piece with stand-ins, which are words that models copy more often; after a few rounds, its parts
        between the items.
        """
        lost = piece.lost(translation)
        if not lost:
            return []
        retry = piece.with_stand_ins(lost)
        if retry is not None and self._fits(self._encoded(retry)):
            return [retry]
        return [self._encoded(part) for part in piece.around_items()]

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

    def _sentences(self, form: Form) -> list[Span]:
        text = form.text
        if self.split_sentences:
            letters = list(text) if "numbers" in self.keep else []
            for offset, edit in form.copies_in(0, len(letters)):
                if (
                    edit.row == "number" and len(edit.back or "") <= 2
                ):  # an ordinal number's full stop ends no sentence
                    letters[offset] = "1"
            return split_sentences("".join(letters) or text, self.src_lang)
        cuts_blocks = form.kinds and not self.joins_blocks
        blocks = re.finditer(f"[^{BREAK}]+" if cuts_blocks else r"(?s).+", text)
        spans = (stripped(text, Span(*block.span())) for block in blocks)
        return [span for span in spans if span.start < span.end]

    def _fitting(self, form: Form, sentence: Span, prefix: str) -> list[Piece]:
        """Encode a sentence; if it is too long, cut it (`truncation`) or split it into parts that fit."""

        @cache
        def part(span: Span) -> Piece:
            piece = Piece(form, parts_in(form, *span))
            piece.source_prefix = prefix
            return self._encoded(piece)

        piece = part(sentence)
        if self._fits(piece):
            return [piece]
        length, limit = len(piece.ids), cast(int, self.limit)
        if self.truncation:
            warn(self.cut_warning.format(length, limit))
            return [self._with_tokens(piece, self._truncated(piece.encoded, limit), was_cut=True)]
        if not self.split_sentences:
            raise ValueError(
                f"a source of {length} tokens is longer than the {limit} that the model takes: "
                f"{piece.user_text[:40]!r}... Leave `split_sentences` on (without "
                "--no-split), or set `truncation=True` to cut it."
            )
        return [part(span) for span in split_to_fit(form.text, sentence, lambda span: self._fits(part(span)))]

    def _encoded(self, piece: Piece) -> Piece:
        """Tokenise what a model reads of a piece, after its prefix; offsets count from the text's beginning."""
        prefix = piece.source_prefix
        encoded = self.tokenizer.encode(prefix + piece.text.replace(BREAK, " "))
        if prefix:
            encoded = encoded._replace(offsets=moved_offsets(encoded.offsets, len(prefix)))
        return self._with_tokens(piece, encoded)

    def _with_tokens(self, piece: Piece, encoded: Encoded, *, was_cut: bool = False) -> Piece:
        piece.encoded, piece.was_cut = encoded, was_cut
        if self.with_words:
            piece.words = self._words_of(piece)
        return piece

    def _words_of(self, piece: Piece) -> list[SourceWord]:
        """Return the words of the user's text in a piece; one for several dots that stand for an ellipsis."""
        words: list[SourceWord] = []
        for word in source_words(piece.text, piece.offsets, piece.ids, self.tokenizer.unknown_id, self.lists):
            span, is_copied = piece.user_span(word.model_span), piece.is_copied(word.model_span)
            if piece.is_added(word.model_span):
                continue
            if words and words[-1].span == span:
                tokens = [*dict.fromkeys((*words[-1].tokens, *word.tokens))]
                model_span = Span(words[-1].model_span.start, word.model_span.end)
                words[-1] = words[-1]._replace(tokens=tokens, model_span=model_span)
            else:
                is_unknown = word.is_unknown and not is_copied
                words.append(word._replace(span=span, is_copied=is_copied, is_unknown=is_unknown))
        return words

    def _fits(self, piece: Piece) -> bool:
        return self.limit is None or len(piece.ids) <= self.limit

    def _truncated(self, source: Encoded, limit: int) -> Encoded:
        """Cut a source to the limit, but keep the special tokens at its end."""
        end = len(source.ids)
        while end > 0 and source.ids[end - 1] in self.tokenizer.special_ids:
            end -= 1
        cut = max(0, limit - len(source.ids) + end)
        ids, offsets = ([*values[:cut], *values[end:]] for values in (source.ids, source.offsets))
        return source._replace(ids=ids, offsets=offsets)


def _filled(text: str, spans: Iterable[Span], character: str, part: Span | None = None) -> str:
    """Return a text, or a part of it, with a character instead of each one in some spans, which are in order."""
    parts: list[str] = []
    start, stop = part or (0, len(text))
    for first, end in spans:
        parts += [text[start:first], character * (end - first)]
        start = end
    return "".join([*parts, text[start:stop]])


def join_translations(
    document: Document, translations: Sequence[str], language: str | None = None
) -> tuple[str, list[int]]:
    """Join the translations of the pieces with the text between them, mostly a space; return the offset of each, too.

    If only spaces are between them, sentences of Chinese and Japanese are joined without one, and others with one or
    more. Typographic quotes that touch a piece become those of the target `language`, if it has only one pair.
    """
    joined = ""
    starts: list[int] = []
    for index, translation in enumerate(translations):
        separator = _text_before(document, index, language) if index or document.copies else ""
        if index and not separator.strip(" "):
            separator = "" if runs_on(joined, translation) else separator or " "
        joined = with_space(with_space(joined, separator), translation)
        starts.append(len(joined) - len(translation))
    ending = _text_before(document, len(document.pieces), language) if document.copies else ""
    return with_space(joined, ending), starts


def edits_of(document: Document) -> tuple[Edit, ...]:
    """Return what was changed in a text before a model read it, in order; offsets are those of the text.

    An item has what the model read for it: itself, or a stand-in; `None` if no model read it. Text before, between and
    after sentences that is copied and has no other edit has the row "edge", a line in another case that of its case.
    """
    form = document.form
    if form is None:
        return ()
    edits: list[Edit] = []
    stand_ins: dict[int, str] = {}
    for piece in document.pieces:
        for part, text in zip(piece.parts, piece.part_texts, strict=True):
            if part.edit.is_item:
                stand_ins[part.edit.start] = text
                edits += [] if part.edit in form.edits else [part.edit._replace(model=text)]
        if piece.mark is not None:
            span = form.user_span(piece.mark.start, piece.mark.end)
            edits.append(Edit("marks", *span, piece.mark.text, piece.ending))
    edits += [edit._replace(model=stand_ins.get(edit.start)) if edit.is_item else edit for edit in form.edits]
    edits += form.lines
    ends = [0, *(piece.span.end for piece in document.pieces)]
    starts = [*(piece.span.start for piece in document.pieces), len(document.text)]
    for start, end in zip(ends, starts, strict=True) if document.pieces and document.copies else ():
        text = document.text[start:end]
        if text.strip() and not any(start <= edit.start < end for edit in form.edits):
            edits.append(Edit("edge", start, end, "", text))
    return tuple(sorted(edits, key=lambda edit: (edit.start, edit.end)))


def _text_before(document: Document, index: int, language: str | None) -> str:
    """Return the text between a piece and the preceding one, or after the last one, with a language's typography."""
    pieces = document.pieces
    start = pieces[index - 1].span.end if index else 0
    end = pieces[index].span.start if index < len(pieces) else len(document.text)
    text = document.without_languages(Span(start, end))
    if not text:
        return text
    if index and pieces[index - 1].is_label:
        text = colon_of_label(text, language)
    quotes = quotes_of(language)
    return text if quotes is None else separator_with_quotes(text, quotes, index == 0, index == len(pieces))
