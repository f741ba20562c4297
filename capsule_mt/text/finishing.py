"""Writes the translation of a piece: with what it has of its source, and as the target language writes that.

After items and tags, each step once, in this order: signs of copied numbers, a label's form, the ending, quotes, the
typography of the target language, case, entities. They see each item as one `ITEM` and each tag as one `TAG_MARK`.
"""

import re
from collections.abc import Callable, Sequence

from capsule_mt.text.casing import capital, has_dotless_i, restored_case
from capsule_mt.text.entities import with_entities, without_entities
from capsule_mt.text.reading import Piece
from capsule_mt.text.rewriting import Form, keep_edits, with_target_signs
from capsule_mt.text.rules import COPIED_KINDS, ITEM, PLAIN, QUOTES_OF_LANGUAGE, TAG_MARK, rows_of
from capsule_mt.text.sentences import language_code, rules_of
from capsule_mt.text.tokenizer_protocol import Tokenizer
from capsule_mt.text.vocabulary import vocabulary_of

_CLOSING = "\"'\u201d\u2019\xbb)\\]"
LABEL_END = rf"(?<=[^\W_])\s?[.:\u3002\uff1a](?=[{TAG_MARK}\s]*\Z)"
LABEL_COLON = "[ \xa0\u202f]?:"
FULL_STOPS = ".\u3002\uff0e\u0964\u0589\u06d4"
# a final mark, but not one of "..." or "?!"; tags, closing quotes and brackets may follow
FINAL_MARK = rf"(?<![{FULL_STOPS}!?])[{FULL_STOPS}!?](?=[{TAG_MARK}\s{_CLOSING}]*\Z)"
TYPOGRAPHIC_QUOTES = frozenset(PLAIN['"'])
OPENING_QUOTE = re.compile(r'(?<!\w)"(?=[^\s"])')
CLOSING_QUOTE = re.compile(r'(?<=[^\s"])"(?!\w)')
(FRENCH,) = (row for row in rows_of("back") if row.when == "fr")


def written(
    piece: Piece,
    ids: Sequence[int],
    tokenizer: Tokenizer,
    align: Callable[[], Sequence[Sequence[float]]],
    languages: tuple[str | None, str | None],
    follows_source: bool,
) -> str:
    """Return the translation of a piece, with what it has of its source, as the target language writes that.

    ids: the tokens of the translation.
    align: how much each of them attends to each token of the source [T][S]; called only if there are tags.
    follows_source: otherwise, only items and the case are those of the source.
    """
    if not piece.keeps:
        text = tokenizer.decode(ids)
    else:
        from capsule_mt.text.restoring import restored  # late: few texts have protected items

        text = restored(piece, ids, tokenizer.decode, align)
    (src_lang, tgt_lang), case, vocabulary = languages, piece.case, vocabulary_of(tokenizer)
    if not (follows_source or case):
        return text  # as the model wrote it
    quotes = typographic_quotes_of(piece)
    is_changed = piece.is_label or piece.mark is not None or case is not None or quotes or has_french_spaces(tgt_lang)
    if follows_source and not (is_changed or piece.form.edits or re.search(r"\d\D\d", text)):
        return text  # most sentences
    text, items = with_marks(text)
    if not follows_source:
        return without_marks(restored_case(text, case, vocabulary, tgt_lang), items)
    if "numbers" not in piece.form.kinds:
        text = with_copied_numbers(text, piece.text, src_lang, tgt_lang)
    if piece.is_label:
        text = as_label(text, piece.user_text, has_dotless_i(tgt_lang))
    elif piece.has_lowercased_first:
        text = capital(text[:1], has_dotless_i(tgt_lang)) + text[1:] if text else text
    if (ending := piece.ending) is not None:
        text = with_ending(text, ending)
    if quotes:
        text = with_quotes(text, quotes, quotes_of(tgt_lang))
    if has_french_spaces(tgt_lang):
        text = with_french_spaces(text)
    text = restored_case(text, case, vocabulary, tgt_lang)
    return with_entities(without_marks(text, items), piece.user_text)


def with_marks(text: str) -> tuple[str, list[str]]:
    """Return a translation with `ITEM` or `TAG_MARK` for each item, and the items."""
    edits = keep_edits(text, COPIED_KINDS)
    marked = Form(text, [edit._replace(model=TAG_MARK) if edit.is_tag else edit for edit in edits])
    return marked.text, [text[slice(*edit.span)] for edit in edits]


def without_marks(text: str, items: Sequence[str]) -> str:
    """Return a text with the items instead of their marks."""
    pending = iter(items)
    return re.sub(f"[{ITEM}{TAG_MARK}]", lambda match: next(pending), text) if items else text


# ---- numbers
def with_copied_numbers(text: str, source: str, src_lang: str | None, tgt_lang: str | None) -> str:
    """Return a translation with the target language's sign in numbers of one group that it copies from its source."""
    groupings = rules_of(src_lang).grouping, rules_of(tgt_lang).grouping
    if (
        groupings[0] not in text
        or groupings[0] == groupings[1]
        or not all(groupings)
        or not re.search(r"\d\D\d", text)
    ):
        return text
    return with_target_signs(
        text, groupings, lambda number: re.sub(r"\d", "", number) == groupings[0] and number in source
    )


# ---- labels and endings
def as_label(translation: str, source: str = "", dotless_i: bool = False) -> str:
    """Return the translation of a label without a colon or a full stop, and with a capital if its source has one.

    dotless_i: the language of the translation has the letter \u0131.
    """
    label = re.sub(LABEL_END, "", translation)
    if not source[:1].isupper():
        return label
    return re.sub(r"[^\W_]", lambda match: capital(match[0], dotless_i), label, count=1)


def mark_of(ending: str) -> str:
    """Return the mark that a model reads instead of the marks at a sentence's end, or instead of none."""
    return next((mark for mark in "?!" if mark in ending), ".")


def with_ending(translation: str, ending: str) -> str:
    """Return a translation with this ending instead of its final mark, or at its end after a letter or digit.

    It stays as it is if its final mark is another than `mark_of(ending)`.
    """
    body = translation.rstrip()
    match = re.search(FINAL_MARK, body)
    if match is None:
        return body + ending if ending and body[-1:].isalnum() else translation
    if mark_of(match[0]) != mark_of(ending):
        return translation
    return body[: match.start()] + ending + body[match.end() :]


def colon_of_label(separator: str, language: str | None) -> str:
    """Return the text after a label, with its colon, if any, as `language` writes it; as it is without a language."""
    code, match = language_code(language), re.match(LABEL_COLON, separator)
    if code is None or match is None:
        return separator
    return ("\xa0:" if code == "fr" else ":") + separator[match.end() :]


# ---- quotes
def quotes_of(language: str | None) -> tuple[str, str] | None:
    """Return the opening and closing quotation marks of a language, such as "deu_Latn", if it uses only one pair."""
    return QUOTES_OF_LANGUAGE.get(language_code(language) or "")


def typographic_quotes_of(piece: Piece) -> list[str]:
    """Return a source's quotes, which the model reads as straight ones, if all are typographic; `[]` otherwise."""
    if '"' not in piece.text or not piece.form.edits:
        return []
    texts = ((part, match) for part in piece.parts if part.is_text for match in re.finditer('"', part.text))
    spans = (piece.form.user_span(part.start + match.start(), part.start + match.end()) for part, match in texts)
    quotes = [without_entities(piece.form.source[start:end]) for start, end in spans]
    return quotes if TYPOGRAPHIC_QUOTES.issuperset(quotes) else []


def with_quotes(translation: str, source_quotes: Sequence[str], language_quotes: tuple[str, str] | None) -> str:
    """Return a translation with typographic quotes instead of its straight ones, if it has as many as its source.

    Args:
        source_quotes: the replacements in order, unless `language_quotes` are known and the quotes form pairs.
        language_quotes: the opening and closing quotation marks of the target language.
    """
    offsets = [match.start() for match in re.finditer('"', translation)]
    if not offsets or len(offsets) != len(source_quotes):
        return translation
    sides = (CLOSING_QUOTE, OPENING_QUOTE)
    are_pairs = len(offsets) % 2 == 0 and all(
        sides[index % 2 == 0].match(translation, offset) for index, offset in enumerate(offsets)
    )
    quotes = iter(language_quotes * (len(offsets) // 2) if language_quotes and are_pairs else source_quotes)
    return re.sub('"', lambda match: next(quotes), translation)


def separator_with_quotes(separator: str, language_quotes: tuple[str, str], is_first: bool, is_last: bool) -> str:
    """Return the text between two sentences, with a language's quotes where quotes touch a sentence.

    Args:
        is_first, is_last: there is no sentence before the separator, or none after it.
    """
    if not is_first and separator[:1] in TYPOGRAPHIC_QUOTES:
        return language_quotes[1] + separator_with_quotes(separator[1:], language_quotes, True, is_last)
    if not is_last and separator[-1:] in TYPOGRAPHIC_QUOTES:
        return separator[:-1] + language_quotes[0]
    return separator


# ---- French
def has_french_spaces(language: str | None) -> bool:
    """Return whether a language has spaces before marks: French does, but not in Canada."""
    return language_code(language) == "fr" and not str(language).upper().endswith("CA")


def with_french_spaces(translation: str) -> str:
    """Return a translation with the no-break spaces of French: before ? ! ; : and inside of guillemets.

    Times and emoticons stay as they are.
    """
    if re.search(FRENCH.needs, translation) is None:
        return translation

    def spaced(match: re.Match[str]) -> str:
        space = "\u202f" if match["high"] else "\xa0"
        mark = match[0].strip(" \xa0\u2009\u202f")
        return mark + space if match["opening"] else space + mark

    return re.sub(FRENCH.match, spaced, translation)
