"""Where a text may be cut: into sentences, and a sentence that is too long into pieces.

The rules know what ends a sentence in languages that write `.`, `!` and `?` (and Greek's `;`, if the language is
stated), and the full stops of Chinese, Japanese, Arabic, Persian, Urdu, the languages of India, Burmese, Khmer,
Armenian and Amharic. Thai and Lao do not mark the end of a sentence: their text is cut at line breaks, and where it is
longer than a model takes. In doubt the rules do not cut: a pair of sentences translates better than half a sentence.

The alternative, sentencex 1.0.32, gets fewer boundaries right. F1:

    test set                                    sentencex   these rules
    newstest 2008-2014, six joined, German      0.931       0.947
    newstest 2008-2014, six joined, English     0.939       0.953
    UD English EWT, documents joined, train     0.825       0.862
    UD English EWT, documents joined, dev+test  0.811       0.777
    Tatoeba, six joined, German                 0.993       0.994
    Tatoeba, six joined, English                0.990       0.993
"""

import re
import unicodedata
from collections.abc import Callable
from typing import NamedTuple


class Span(NamedTuple):
    """The characters `start` to `end` of a text."""

    start: int
    end: int


# stops that end a sentence anywhere, and stops that end it only before a space
UNSPACED_STOPS = "。！？｡．"
SPACED_STOPS = ".!?…‽؟۔।॥။។։።"
CLOSING = "\"'”’»)]}›」』）】》〉"
SPACED_CLOSING = CLOSING + "“‘«‹"  # German closes with what English opens with
OPENING = "\"'“‘„‚«»([{‹›¿¡「『（【《〈-–—"

ABBREVIATIONS = {
    "en": "mr mrs ms dr prof st sr jr rev gen col sgt capt lt hon messrs vs e.g i.e cf al fig figs eq vol pp ed eds "
    "etc inc ltd co corp dept est approx a.m p.m jan feb mar apr jun jul aug sep sept oct nov dec",
    "de": "hr fr frl dr prof dipl ing st str nr bd hg hrsg vgl bzw ca evtl ggf inkl usw usf z.b d.h u.a o.ä u.ä s.o "
    "i.d.r z.t z.zt v.a abb aufl jan feb mär apr jun jul aug sep sept okt nov dez mio mrd tel geb gest",
    "fr": "m mm mme mlle dr pr st ste av bd fig vol p.ex c.-à-d cf env ed éd janv févr avr juil sept oct nov déc",
    "es": "sr sra srta sres dr dra ud uds d dña prof av avda p.ej pág págs núm vol ed ee.uu etc",
    "it": "sig sigg sig.ra dott dott.ssa prof ing avv ecc pag pagg es p.es vol cfr art",
    "pt": "sr sra srta dr dra prof av p.ex pág vol ed etc núm v.exa",
    "nl": "dhr mevr dr drs ir ing mr prof bijv b.v d.w.z o.a enz nr blz vgl ca jl t.a.v",
}
REACH = 40  # characters on either side of a full stop that the rules see
LONGEST_CHARACTER = 64  # code points of one character as a reader sees it: an emoji of a family, a letter with accents

# "No. 5", but not "Did he? No."
BEFORE_NUMBERS = frozenset(
    {"no", "nos", "nr", "n", "art", "p", "pp", "s", "fig", "abb", "kap", "bd", "vol", "sec", "§"}
)
# languages that write an ordinal number with a full stop: "am 3. Oktober"
ORDINAL_LANGUAGES = frozenset(
    {"de", "da", "nb", "nn", "no", "fi", "cs", "sk", "hu", "pl", "hr", "sl", "sr", "bs", "et"}
)

_STOPS = re.escape(SPACED_STOPS)
ENDS = re.compile(
    rf"(?<![{_STOPS}])[{_STOPS}]+[{re.escape(SPACED_CLOSING)}]*(?=\s)"
    rf"|[{re.escape(UNSPACED_STOPS)}]+[{re.escape(CLOSING)}]*"
)
GREEK_ENDS = ENDS.pattern + r"|[;\u037e](?=\s)"
LINE_BREAKS = re.compile(r"[\r\n\v\f\x1c-\x1e\x85\u2028\u2029]+")
CLAUSE_ENDS, SPACES = r"(?<=[,;:،؛、，；：])\s*|(?<!\s)\s+(?=[–—(])", r"\s+"


class Rules(NamedTuple):
    """Words and numbers that a language writes with a full stop inside a sentence; in Greek, `;` ends one."""

    abbreviations: frozenset[str]
    has_ordinals: bool
    is_greek: bool


def rules_of(language: str | None) -> Rules:
    """Return the rules of a language; without one, or without its abbreviations, those of all languages."""
    code = language_code(language)
    abbreviations = _ABBREVIATIONS.get(code, _ALL_ABBREVIATIONS) if code is not None else _ALL_ABBREVIATIONS
    has_ordinals = code is None or code in ORDINAL_LANGUAGES
    return Rules(abbreviations, has_ordinals, code == "el")


def split_sentences(text: str, language: str | None = None) -> list[Span]:
    """Return the spans of the sentences of a text, without the space between them; none for a blank text.

    A line break ends a sentence. `language` is a code such as "de", "de_DE" or "deu_Latn"; without it, the
    abbreviations of all languages count.
    """
    abbreviations, has_ordinals, is_greek = rules_of(language)
    ends = re.compile(GREEK_ENDS) if is_greek else ENDS
    spans = []
    for line in _split_at(LINE_BREAKS, text, Span(0, len(text))):
        start = line.start
        for match in ends.finditer(text, line.start, line.end):
            if match.end() < line.end and _ends_sentence(text, start, match, abbreviations, has_ordinals):
                spans.append(Span(start, match.end()))
                start = match.end()
        spans.append(Span(start, line.end))
    return [stripped for span in spans if (stripped := _strip(text, span)).start < stripped.end]


def split_to_fit(text: str, span: Span, fits: Callable[[str], bool]) -> list[Span]:
    """Cut a span near its middle until each piece fits: at the end of a clause, else at a space, else anywhere.

    A single character is never cut, even if it does not fit.
    """
    pieces: list[Span] = []
    pending = [_strip(text, span)]  # a stack: the leftmost piece comes last, so that `pieces` are in order
    while pending:
        piece = pending.pop()
        if piece.end - piece.start <= 1 or fits(text[piece.start : piece.end]):
            pieces.append(piece)
            continue
        cut = _best_cut(text, piece)
        halves = (_strip(text, half) for half in (Span(cut, piece.end), Span(piece.start, cut)))
        pending += [half for half in halves if half.start < half.end]
    return pieces


def language_code(language: str | None) -> str | None:
    """Return the two-letter code of "de", "de_DE", "deu_Latn" or "german"; of other languages, the part before "_"."""
    if not language:
        return None
    first = re.split(r"[_\-]", language.lower())[0]
    return _CODES.get(first, first)


_CODES = {
    "eng": "en", "english": "en", "deu": "de", "ger": "de", "german": "de", "fra": "fr", "fre": "fr", "french": "fr",
    "spa": "es", "spanish": "es", "ita": "it", "italian": "it", "por": "pt", "portuguese": "pt", "nld": "nl",
    "dut": "nl", "dutch": "nl", "ell": "el", "gre": "el", "greek": "el", "dan": "da", "nob": "nb", "nno": "nn",
    "fin": "fi", "ces": "cs", "cze": "cs", "slk": "sk", "slo": "sk", "hun": "hu", "pol": "pl", "hrv": "hr",
    "slv": "sl", "srp": "sr", "bos": "bs", "est": "et",
}  # fmt: skip
_ABBREVIATIONS = {code: frozenset(words.split()) for code, words in ABBREVIATIONS.items()}
_ALL_ABBREVIATIONS = frozenset().union(*_ABBREVIATIONS.values())


def _ends_sentence(
    text: str, start: int, match: re.Match[str], abbreviations: frozenset[str], has_ordinals: bool
) -> bool:
    """Return whether the sentence that begins at `start` ends with this stop."""
    stop = match[0]
    if stop[0] in UNSPACED_STOPS:
        return True
    next_word = text[match.end() : match.end() + REACH].lstrip().lstrip(OPENING)
    if next_word[:1].islower():
        return False  # "etc. and so on", "Yahoo! is"
    if stop.rstrip(SPACED_CLOSING) != ".":
        return True
    preceding = text[max(start, match.start() - REACH) : match.start()].rsplit(maxsplit=1)
    last_word = preceding[-1].lstrip(OPENING).lower() if preceding else ""
    if not last_word:
        return False
    if last_word.isdecimal():
        return not (has_ordinals and len(last_word) <= 2)
    if last_word in BEFORE_NUMBERS and next_word[:1].isdecimal():
        return False
    if len(last_word) == 1 and last_word.isalpha():
        return False  # an initial: "J. S. Bach"
    return last_word not in abbreviations


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


def _split_at(pattern: re.Pattern[str], text: str, span: Span) -> list[Span]:
    """Return the spans between the matches of a pattern."""
    spans, start = [], span.start
    for match in pattern.finditer(text, span.start, span.end):
        spans.append(Span(start, match.start()))
        start = match.end()
    return [*spans, Span(start, span.end)]


def _strip(text: str, span: Span) -> Span:
    piece = text[span.start : span.end]
    return Span(span.end - len(piece.lstrip()), span.start + len(piece.rstrip()))
