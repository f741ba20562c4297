"""Where a text may be cut: into sentences, and a sentence that is too long into pieces.

A small splitter of rules. What ends a sentence in English, German, French, Spanish, Italian, Portuguese, Dutch and the
other languages that write `.`, `!` and `?` (Greek's `;` too, if the language is given); the full stops of Chinese and
Japanese, of Arabic, Persian and Urdu, of the languages of India, of Burmese, Khmer, Armenian and Amharic. Thai and Lao
have no mark for it: their text is cut at line breaks, and where it is longer than a model takes. In doubt it does not
cut: a pair of sentences translates better than half a sentence.

sentencex would replace it, and finds fewer boundaries right. F1 of version 1.0.32 / of these rules: newstest 2008 to
2014, six sentences joined, German 0.931 / 0.947, English 0.939 / 0.953; UD English EWT, documents joined, train part
0.825 / 0.862, dev and test 0.811 / 0.777; Tatoeba, six joined, German 0.993 / 0.994, English 0.990 / 0.993. Of the 23
texts of tests/pipelines/test_sentences.py (abbreviations, ellipses, quotes, CJK), written for these rules, it cuts 20
as marked. No treebank of German was at hand.
"""

import re
import unicodedata
from collections.abc import Callable
from typing import NamedTuple


class Span(NamedTuple):
    """The characters `start` to `end` of a text."""

    start: int
    end: int


# ends of sentences that a space need not follow, and those that one must follow
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
REACH = 40  # how many characters on either side of a full stop are looked at
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
_ENDS = re.compile(
    rf"(?<![{_STOPS}])[{_STOPS}]+[{re.escape(SPACED_CLOSING)}]*(?=\s)"
    rf"|[{re.escape(UNSPACED_STOPS)}]+[{re.escape(CLOSING)}]*"
)
_GREEK_ENDS = _ENDS.pattern + r"|[;\u037e](?=\s)"
_LINE_BREAKS = re.compile(r"[\r\n\v\f\x1c-\x1e\x85\u2028\u2029]+")
_CLAUSE_ENDS, _SPACES = r"(?<=[,;:،؛、，；：])\s*|(?<!\s)\s+(?=[–—(])", r"\s+"


class Rules(NamedTuple):
    """What a language writes with a full stop that ends no sentence, and whether `;` ends one, as in Greek."""

    abbreviations: frozenset[str]
    has_ordinals: bool
    is_greek: bool


def rules_of(language: str | None) -> Rules:
    """Return the rules of a language, or those of all that are known."""
    code = language_code(language)
    known = _ABBREVIATIONS.get(code) if code is not None else None
    has_ordinals = code is None or code in ORDINAL_LANGUAGES
    return Rules(_ALL_ABBREVIATIONS if known is None else known, has_ordinals, code == "el")


def split_sentences(text: str, language: str | None = None) -> list[Span]:
    """Return the spans of the sentences of a text, without the space between them; none for a blank text.

    A line break ends a sentence. `language` is a code such as "de", "de_DE" or "deu_Latn"; without it, an abbreviation
    of any of the languages is one.
    """
    abbreviations, has_ordinals, is_greek = rules_of(language)
    ends = re.compile(_GREEK_ENDS) if is_greek else _ENDS
    spans = []
    for line in _between(_LINE_BREAKS, text, Span(0, len(text))):
        start = line.start
        for match in ends.finditer(text, line.start, line.end):
            if match.end() < line.end and _ends_sentence(text, start, match, abbreviations, has_ordinals):
                spans.append(Span(start, match.end()))
                start = match.end()
        spans.append(Span(start, line.end))
    return [stripped for span in spans if (stripped := _strip(text, span)).start < stripped.end]


def split_to_fit(text: str, span: Span, fits: Callable[[str], bool]) -> list[Span]:
    """Cut a span until each piece fits: after a comma or the like, else at a space, else anywhere, near the middle.

    A single character is a piece, whether it fits or not.
    """
    pieces: list[Span] = []
    waiting = [_strip(text, span)]  # the leftmost last
    while waiting:
        piece = waiting.pop()
        if piece.end - piece.start <= 1 or fits(text[piece.start : piece.end]):
            pieces.append(piece)
            continue
        cut = _best_cut(text, piece)
        halves = (_strip(text, half) for half in (Span(cut, piece.end), Span(piece.start, cut)))
        waiting += [half for half in halves if half.start < half.end]
    return pieces


def language_code(language: str | None) -> str | None:
    """Return the two letters of "de", "de_DE", "deu_Latn" or "german", or the part before "_" if it knows none."""
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
    before = text[max(start, match.start() - REACH) : match.start()].rsplit(maxsplit=1)
    last = before[-1].lstrip(OPENING).lower() if before else ""
    if not last:
        return False
    if last.isdecimal():
        return not (has_ordinals and len(last) <= 2)
    if last in BEFORE_NUMBERS and next_word[:1].isdecimal():
        return False
    if len(last) == 1 and last.isalpha():
        return False  # an initial: "J. S. Bach"
    return last not in abbreviations


def _best_cut(text: str, span: Span) -> int:
    """Return the best place to cut a span in two: the nearest to its middle of the best kind there is."""
    middle, quarter = (span.start + span.end) // 2, (span.end - span.start) // 4
    for pattern, reach in ((_CLAUSE_ENDS, quarter), (_SPACES, quarter), (_SPACES, 2 * quarter)):
        low, high = max(span.start + 1, middle - reach), min(span.end - 1, middle + reach)
        ends = (match.end() for match in re.compile(pattern).finditer(text, low, high))
        places = [end for end in ends if span.start < end < span.end]
        if places:
            return min(places, key=lambda place: abs(place - middle))
    middle = max(middle, span.start + 1)
    after = range(middle, min(middle + LONGEST_CHARACTER, span.end))
    before = range(middle - 1, max(middle - LONGEST_CHARACTER, span.start), -1)
    places = [place for place in (*after, *before) if not _continues_a_character(text, place)]
    return places[0] if places else middle  # a longer run of marks is no character that anybody reads


def _continues_a_character(text: str, place: int) -> bool:
    """Return whether the code point at `place` belongs to the one before: accents, parts of an emoji."""
    here, before = text[place], text[place - 1]
    return unicodedata.category(here) in ("Mn", "Mc", "Me") or "\u200d" in (here, before)


def _between(pattern: re.Pattern[str], text: str, span: Span) -> list[Span]:
    """Return the spans between the matches of a pattern."""
    spans, start = [], span.start
    for match in pattern.finditer(text, span.start, span.end):
        spans.append(Span(start, match.start()))
        start = match.end()
    return [*spans, Span(start, span.end)]


def _strip(text: str, span: Span) -> Span:
    piece = text[span.start : span.end]
    return Span(span.end - len(piece.lstrip()), span.start + len(piece.rstrip()))
