"""Typography of the target language: quotation marks, which many vocabularies lack, and spaces before French marks.

A translation gets the quotes of its source back, as those of its own language if that uses only one pair.
"""

import re
from collections.abc import Sequence

from capsule_mt.text.copying import may_have_non_words
from capsule_mt.text.entities import without_entities
from capsule_mt.text.keeping import COPIED_KINDS, Item, Masked, parts_of
from capsule_mt.text.normal import PLAIN
from capsule_mt.text.sentences import Span, language_code

# quotation marks from CLDR 48, of languages that use only one pair
_LANGUAGES_OF_QUOTES = {
    ("\u201c", "\u201d"): "da en es ga gl id ko lv ms pt th tr vi zh",
    ("\u201e", "\u201c"): "bg cs de et hr is lt mk sk sl",
    ("\u201e", "\u201d"): "bs hu pl ro sr",
    ("\u201d", "\u201d"): "fi sv",
    ("\xab", "\xbb"): "be ca el it kk nb nn no ru uk",
    ("\xab\xa0", "\xa0\xbb"): "fr",
    ("\u300c", "\u300d"): "ja",
}
QUOTES_OF_LANGUAGE = {code: quotes for quotes, codes in _LANGUAGES_OF_QUOTES.items() for code in codes.split()}
LABEL_COLON = "[ \xa0\u202f]?:"
TYPOGRAPHIC_QUOTES = frozenset(PLAIN['"'])
FRENCH_MARKS, THIN_SPACE = frozenset("?!;:\xab\xbb"), "\u202f"
_SPACE = "[ \xa0\u2009\u202f]{0,2}"
# ? ! ; : after a word or a closing mark, where a sentence may end: not in "14:30", "a != b", ";)"; and guillemets
FRENCH_SPACES = (
    rf"(?<=[\w)\]\"'\u2019\u201d\xbb%\u2026.]){_SPACE}"
    rf"(?:(?P<high>[?!](?=[?!]*(?:[\s\"'\u201d\xbb)\]]|\Z))|;(?=\s|\Z))|(?P<colon>:)(?=\s|\Z))"
    rf"|(?<=[^\s\xab]){_SPACE}(?P<closing>\xbb)(?!\w)|(?P<opening>\xab){_SPACE}(?=[^\s\xbb])"
)
OPENING_QUOTE = re.compile(r'(?<!\w)"(?=[^\s"])')
CLOSING_QUOTE = re.compile(r'(?<=[^\s"])"(?!\w)')


def quotes_of(language: str | None) -> tuple[str, str] | None:
    """Return the opening and closing quotation marks of a language, such as "deu_Latn", if it uses only one pair."""
    return QUOTES_OF_LANGUAGE.get(language_code(language) or "")


def typographic_quotes_of(source: Masked) -> list[str]:
    """Return a source's quotes, which the model reads as straight ones, if all are typographic; `[]` otherwise."""
    if source.normal is None or source.normal.text == source.normal.source or '"' not in source.text:
        return []
    spans = (source.user_span(Span(*match.span())) for match in re.finditer('"', source.text))
    quotes = [without_entities(source.normal.source[start:end]) for start, end in spans]
    return quotes if TYPOGRAPHIC_QUOTES.issuperset(quotes) else []


def with_quotes(translation: str, source_quotes: Sequence[str], language_quotes: tuple[str, str] | None) -> str:
    """Return a translation with typographic quotes instead of its straight ones, if it has as many as its source.

    Args:
        source_quotes: the replacements in order, unless `language_quotes` are known and the quotes form pairs.
        language_quotes: the opening and closing quotation marks of the target language.
    """
    offsets = _offsets_of_quotes(translation) if source_quotes else []
    if not offsets or len(offsets) != len(source_quotes):
        return translation
    quotes = source_quotes
    sides = (CLOSING_QUOTE, OPENING_QUOTE)
    are_pairs = len(offsets) % 2 == 0 and all(
        sides[index % 2 == 0].match(translation, offset) for index, offset in enumerate(offsets)
    )
    if language_quotes is not None and are_pairs:
        quotes = language_quotes * (len(offsets) // 2)
    output, end = "", 0
    for offset, quote in zip(offsets, quotes, strict=True):
        output += translation[end:offset] + quote
        end = offset + 1
    return output + translation[end:]


def with_escaped_quotes(translation: str, source: str) -> str:
    """Return a translation with a backslash before straight quotes of a kind if all of its source's have one."""
    for quote in "'\"" if "\\" in source else "":
        if source.count(quote) == source.count(f"\\{quote}") > 0:
            translation = re.sub(rf"(?<!\\){quote}", rf"\\{quote}", translation)
    return translation


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


def _offsets_of_quotes(text: str) -> list[int]:
    """Return the offsets of straight quotes outside of copied items, such as tags."""
    return [match.start() for match in re.finditer('"', _without_items(text, " "))]


def _without_items(text: str, character: str) -> str:
    """Return a text of the same length, whose copied items consist of `character` alone."""
    parts = parts_of(text, COPIED_KINDS) if may_have_non_words(text) else [text]
    return "".join(character * len(part) if isinstance(part, Item) else part for part in parts)


def has_french_spaces(language: str | None) -> bool:
    """Return whether a language has spaces before marks: French does, but not in Canada."""
    return language_code(language) == "fr" and not str(language).upper().endswith("CA")


def with_french_spaces(translation: str) -> str:
    """Return a translation with the no-break spaces of French: before ? ! ; : and inside of guillemets.

    Times, emoticons and copied items stay as they are.
    """
    if FRENCH_MARKS.isdisjoint(translation):
        return translation
    output, end = "", 0
    for match in re.finditer(FRENCH_SPACES, _without_items(translation, "X")):
        space = THIN_SPACE if match["high"] else "\xa0"
        space_before, space_after = ("", space) if match["opening"] else (space, "")
        mark = next(filter(None, match.groups()))
        output += translation[end : match.start()] + space_before + mark + space_after
        end = match.end()
    return output + translation[end:]


def colon_of_label(separator: str, language: str | None) -> str:
    """Return the text after a label, with its colon, if any, as `language` writes it; as it is without a language."""
    code, match = language_code(language), re.match(LABEL_COLON, separator)
    if code is None or match is None:
        return separator
    return ("\xa0:" if code == "fr" else ":") + separator[match.end() :]
