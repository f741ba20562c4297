"""Where a text may be cut: into sentences, and a sentence that is too long into pieces.

The rules know what ends a sentence in languages that write `.`, `!` and `?` (and Greek's `;`, if the language is
stated), and the full stops of Chinese, Japanese, Arabic, Persian, Urdu, the languages of India, Burmese, Khmer,
Armenian and Amharic. Thai and Lao do not mark the end of a sentence: their text is cut at line breaks, and where it is
longer than a model takes. In doubt the rules do not cut.
"""

import re
import unicodedata
from collections.abc import Callable, Mapping
from functools import cache, lru_cache
from typing import NamedTuple

from capsule_mt.text.abbreviations import ABBREVIATIONS, FINAL_ABBREVIATIONS, SENTENCE_STARTERS, WORDS_ELSEWHERE
from capsule_mt.text.languages import LANGUAGES, TWO_LETTER_CODES


class Span(NamedTuple):
    """The characters `start` to `end` of a text."""

    start: int
    end: int


# stops that end a sentence anywhere, and stops that end it only before a space
UNSPACED_STOPS = "。！？｡．።፧။"
SPACED_STOPS = ".!?…‽؟۔।॥։"
FURTHER_STOPS = {"ar": ":", "el": ";\u037e", "hy": ":"}  # before a space, by language
CLOSING = "\"'”’»)]}›」』）】》〉"
SPACED_CLOSING = CLOSING + "“‘«‹"  # German closes with what English opens with
ANY_CLOSING = f"[{re.escape(SPACED_CLOSING)}]"
OPENING = "\"'“‘„‚«»([{‹›¿¡「『（【《〈-–—"
REACH = 40  # characters on either side of a full stop that the rules see
LONGEST_CHARACTER = 64  # code points of one character as a reader sees it: an emoji of a family, a letter with accents

# "No. 5", but not "Did he? No."
_BEFORE_NUMBERS = (
    "no nos nr n n° nº № art p pp s fig abb kap bd vol sec § núm ud pkt poz ust č "
    "str стр рис ул кв tel тел mar set ott mag dom lun jue vie"
)
BEFORE_NUMBERS = frozenset(_BEFORE_NUMBERS.split())
# languages that write an ordinal number with a full stop: "am 3. Oktober", "XII. Pluku"
ORDINAL_LANGUAGES = frozenset(
    {"de", "da", "nb", "nn", "no", "fi", "cs", "sk", "hu", "pl", "hr", "sl", "sr", "bs", "et"}
)
ROMAN_NUMERAL = r"[IVX]{1,6}"
INITIALS = r"(?:[^\W\d_]{1,2}\.)+[^\W\d_]{1,2}"  # "U.S."
# languages whose texts often begin a sentence with a lowercase letter: a long word or a question may then end one
LOWERCASE_START_LANGUAGES = frozenset({"el", "kk"})
MIN_LAST_WORD = 4  # letters of that long word
# a full stop of Cyrillic texts that lack the space between sentences: "жағдайы.XVIII"
UNSPACED_END = r"(?<=[\u0430-\u045f\u0491-\u04ff]{3})\.(?=[\u0410-\u042fA-Z])"

_STOPS = re.escape(SPACED_STOPS)
_CLOSINGS = rf"[{re.escape(SPACED_CLOSING)}]*(?:\[\d{{1,3}}\])*"  # "[1]" refers to a footnote
_SPACED_END = rf"(?<![{_STOPS}])[{_STOPS}]+{_CLOSINGS}(?=\s)"
_UNSPACED_STOP = rf"(?<!\d(?=．\d))[{re.escape(UNSPACED_STOPS)}]+[{re.escape(CLOSING)}]*"  # not in "３．２"
ENDS = f"{_SPACED_END}|{_UNSPACED_STOP}"
_BREAKS = r"\t\r\n\v\f\x1c-\x1e\x85\u2028\u2029"  # a tab separates columns
LINES = f"[^{_BREAKS}]+"
CLAUSE_ENDS, SPACES = r"(?<=[,;:،؛、，；：])\s*|(?<!\s)\s+(?=[–—(])", r"\s+"
BULLETS = " \xa0\t\u2022\u2043\u2023*-\u2013"
# Text between quotes or brackets stays in one piece, if it is not longer than this.
MAX_QUOTE = 250
_PAIRS = ("()", "[]", "«»", "»«", "„“”", "“”", "「」", "『』", "《》", "（）", "【】")  # opening mark, closing marks
QUOTED = "|".join(
    f"{re.escape(pair[0])}[^{re.escape(pair)}]{{1,{MAX_QUOTE}}}[{re.escape(pair[1:])}]" for pair in _PAIRS
)
QUOTED += rf'|(?<![^\s(\[])"[^"]{{1,{MAX_QUOTE}}}"(?!\w)'
QUOTE_MARKS = frozenset("".join(pair[0] for pair in _PAIRS) + '"')
# a clause goes on after a quote in Japanese and Chinese: 「行こう。」と, 「走！」的
GOES_ON = r"[とっがはをのもに的、，,]"

# the sign between groups of three digits, from CLDR 48; of languages with several forms, the most frequent one
_LANGUAGES_OF_GROUPING = {
    ",": "cy en ga he ja ko ms mt sw th ur zh",
    ".": "az bs ca da de el es eu gl hr id is it mk nl pt ro sl sr tr vi",
    "\xa0": "af be bg cs et fi fr hu hy ka kk lt lv nb nn no pl ru sk sq sv uk",
}
GROUPING = {code: sign for sign, codes in _LANGUAGES_OF_GROUPING.items() for code in codes.split()}


class Rules(NamedTuple):
    """What a language adds to the rules.

    abbreviations: words with a full stop that are never the last of a sentence.
    final_abbreviations: those that end a sentence if a word of `starters` follows, as initials such as "U.S." do.
    starters: words that often begin a sentence.
    has_ordinals: a full stop follows ordinal numbers.
    stops: further stops.
    has_lowercase_starts: a sentence may begin with a lowercase letter.
    grouping: the sign between groups of three digits; "" if it is not known.
    """

    abbreviations: frozenset[str]
    final_abbreviations: frozenset[str]
    starters: frozenset[str]
    has_ordinals: bool
    stops: str
    has_lowercase_starts: bool
    grouping: str


@cache
def _ends(stops: str, has_lowercase_starts: bool) -> re.Pattern[str]:
    """Return the pattern of what may end a sentence."""
    further = rf"|[{re.escape(stops)}](?=\s)" if stops else ""
    return re.compile(ENDS + further + (f"|{UNSPACED_END}" if has_lowercase_starts else ""))


@cache
def _stops_and_breaks(stops: str) -> re.Pattern[str]:
    """Return the pattern of a character that may end a sentence."""
    return re.compile(f"[{re.escape(SPACED_STOPS + UNSPACED_STOPS + stops)}{_BREAKS}]")


@cache
def rules_of(language: str | None) -> Rules:
    """Return the rules of a language; without one, or without its abbreviations, with those of all languages.

    Of these, words of other languages (`WORDS_ELSEWHERE`) only count if `ABBREVIATIONS["en"]` has them.
    """
    code = language_code(language) or ""
    final_abbreviations = _words_of(FINAL_ABBREVIATIONS, code)
    abbreviations = _words_of(ABBREVIATIONS, code) - final_abbreviations
    if not abbreviations:
        tables = (ABBREVIATIONS, FINAL_ABBREVIATIONS)
        abbreviations = frozenset().union(*(_words_of(table, key) for table in tables for key in table))
        abbreviations -= WORDS_ELSEWHERE - _words_of(ABBREVIATIONS, "en")
    return Rules(
        abbreviations,
        final_abbreviations,
        _words_of(SENTENCE_STARTERS, code),
        has_ordinals=not code or code in ORDINAL_LANGUAGES,
        stops=FURTHER_STOPS.get(code, ""),
        has_lowercase_starts=code in LOWERCASE_START_LANGUAGES,
        grouping=GROUPING.get(code, ""),
    )


def _words_of(table: Mapping[str, str], code: str) -> frozenset[str]:
    return frozenset(table.get(code, "").split())


def split_sentences(text: str, language: str | None = None) -> list[Span]:
    """Return the spans of the sentences of a text, without the space between them; none for a blank text.

    A line break or a tab ends a sentence. `language` is a code such as "de", "de_DE" or "deu_Latn"; without it, the
    abbreviations of all languages count, except most that are words of another one, such as German "max.".
    """
    rules = rules_of(language)
    if text[:2].isalpha():
        first_end = _stops_and_breaks(rules.stops).search(text)
        if first_end is None or first_end.end() == len(text):  # a fast answer for most texts
            return [Span(0, len(text.rstrip()))]
    spans = []
    for line in (Span(*match.span()) for match in re.finditer(LINES, text)):
        start = line.start
        for end in _ends_of(text, line, rules):
            spans.append(Span(start, end))
            start = end
        spans.append(Span(start, line.end))
    return [sentence for span in spans if (sentence := stripped(text, span)).start < sentence.end]


def _ends_of(text: str, line: Span, rules: Rules) -> list[int]:
    """Return the offsets at which sentences of a line end, except the last one."""
    start, ends = line.start, list[int]()
    quotes: list[Span] | None = None
    quote_index = 0  # of the first that may end after the stop
    for match in _ends(rules.stops, rules.has_lowercase_starts).finditer(text, line.start, line.end):
        if match.end() == line.end or not _ends_sentence(text, start, match, rules):
            continue
        if quotes is None:
            quotes = _quotes_in(text[line.start : line.end])
        offset = match.end() - line.start
        while quote_index < len(quotes) and quotes[quote_index].end <= offset:
            quote_index += 1
        if not (quote_index < len(quotes) and quotes[quote_index].start < offset):
            start = match.end()
            ends.append(start)
    return ends


def _quotes_in(line: str) -> list[Span]:
    """Return the spans of the quotes and brackets of a line, in order; none contains another."""
    if QUOTE_MARKS.isdisjoint(line):
        return []
    return [Span(*quote.span()) for quote in re.finditer(QUOTED, line)]


def split_to_fit(text: str, span: Span, fits: Callable[[Span], bool]) -> list[Span]:
    """Cut a span near its middle until each piece fits: at the end of a clause, else at a space, else anywhere.

    A single code point is never cut, even if it does not fit.
    """
    pieces: list[Span] = []
    pending = [stripped(text, span)]  # a stack: the leftmost piece comes last, so that `pieces` are in order
    while pending:
        piece = pending.pop()
        if piece.end - piece.start <= 1 or fits(piece):
            pieces.append(piece)
            continue
        cut = _best_cut(text, piece)
        halves = (stripped(text, half) for half in (Span(cut, piece.end), Span(piece.start, cut)))
        pending += [half for half in halves if half.start < half.end]
    return pieces


@lru_cache(maxsize=256)
def language_code(language: str | None) -> str | None:
    """Return the two-letter code of "de", "de_DE", "deu_Latn" or "german"; of other languages, the part before "_"."""
    if not language:
        return None
    first = language.lower().replace("-", "_").partition("_")[0]
    return _CODES.get(first) or TWO_LETTER_CODES.get(first, first)


# of bibliographies (ISO 639-2/B), and English names
_CODES = {"ger": "de", "fre": "fr", "dut": "nl", "gre": "el", "cze": "cs", "slo": "sk"}
_CODES |= {name.lower(): code for code, name in LANGUAGES.items()}


def _ends_sentence(text: str, start: int, match: re.Match[str], rules: Rules) -> bool:
    """Return whether the sentence that begins at `start` ends with this stop."""
    stop = match[0]
    if stop[0] in UNSPACED_STOPS:
        return not (stop[-1] in CLOSING and re.compile(GOES_ON).match(text, match.end()))
    if stop in rules.stops:
        return True
    if text[match.start() - 1 : match.start()] in ("[", "("):
        return False  # "[...]"
    following = text[match.end() : match.end() + REACH]
    next_word = following.lstrip().lstrip(f"{OPENING} ")
    if next_word[:1] == ",":
        return False  # German ",,"
    mark = re.split(ANY_CLOSING, stop, maxsplit=1)[0]
    before = text[max(start, match.start() - REACH) : match.start()]
    preceding = before.rsplit(maxsplit=1)
    written = preceding[-1].lstrip(OPENING + BULLETS) if preceding else ""
    if next_word[:1].islower():  # "etc. and so on", "Yahoo! is", "- Come! - he said"
        has_dash = following.lstrip()[:1] in "-–—"
        is_long = len(written) >= MIN_LAST_WORD and "." not in written and mark != "…"
        return rules.has_lowercase_starts and not has_dash and (is_long or mark[0] in "!?")
    if mark != ".":
        return True
    last_word = written.lower()
    if not last_word:
        return bool(preceding) and preceding[-1][-1] in CLOSING  # French "« oui »."
    if last_word.isdecimal():
        is_first = before.strip(BULLETS) == written
        return not is_first and not (rules.has_ordinals and len(last_word) <= 2)
    if rules.has_ordinals and re.fullmatch(ROMAN_NUMERAL, written):
        return False
    if last_word in BEFORE_NUMBERS and next_word[:1].isdecimal():
        return False
    return not _is_abbreviation(last_word, next_word, rules)


def _is_abbreviation(word: str, next_word: str, rules: Rules) -> bool:
    """Return whether the full stop after a word belongs to it, and does not end a sentence, too."""
    words = {word, re.split(r"['’(]", word)[-1]}  # "l'Avv."
    if not words.isdisjoint(rules.abbreviations):
        return True
    is_initial = len(word) == 1 and word.isalpha()  # "J. S. Bach"
    if words.isdisjoint(rules.final_abbreviations) and (is_initial or not re.fullmatch(INITIALS, word)):
        return is_initial
    first_word = re.match(r"[^\W\d_]*", next_word)
    return first_word is None or first_word[0].lower() not in rules.starters


def _best_cut(text: str, span: Span) -> int:
    """Return the offset at which to cut a span in two: near its middle, preferably at the end of a clause."""
    middle, quarter = (span.start + span.end) // 2, (span.end - span.start) // 4
    for pattern, reach in ((CLAUSE_ENDS, quarter), (SPACES, quarter), (SPACES, 2 * quarter)):
        low, high = max(span.start + 1, middle - reach), min(span.end - 1, middle + reach)
        ends = (match.end() for match in re.compile(pattern).finditer(text, low, high))
        cuts = [end for end in ends if span.start < end < span.end]
        if cuts:
            return min(cuts, key=lambda cut: abs(cut - middle))
    middle = max(middle, span.start + 1)
    rightwards = range(middle, min(middle + LONGEST_CHARACTER, span.end))
    leftwards = range(middle - 1, max(middle - LONGEST_CHARACTER, span.start), -1)
    cuts = [offset for offset in (*rightwards, *leftwards) if not _continues_a_character(text, offset)]
    return cuts[0] if cuts else middle  # nobody reads a longer run of marks as a character


def _continues_a_character(text: str, offset: int) -> bool:
    """Return whether the code point at an offset belongs to the preceding one: accents, parts of an emoji."""
    code_point, previous = text[offset], text[offset - 1]
    return unicodedata.category(code_point) in ("Mn", "Mc", "Me") or "\u200d" in (code_point, previous)


def stripped(text: str, span: Span) -> Span:
    """Return a span without the spaces at its beginning and its end."""
    piece = text[span.start : span.end]
    return Span(span.end - len(piece.lstrip()), span.start + len(piece.rstrip()))
