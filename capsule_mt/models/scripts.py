"""Shortlists by script: of a model of many languages, the tokens that the target language can be written with.

A translation into German has no use for most tokens with letters of other scripts.
"""

import re
import unicodedata
from array import array
from collections.abc import Mapping, Sequence
from functools import cache

from capsule_mt.models.languages import language_and_region


def _table(text: str) -> dict[str, tuple[str, ...]]:
    """Return what a text like "key:value+value key:value" lists."""
    return {key: tuple(values.split("+")) for key, _, values in (entry.partition(":") for entry in text.split())}


# scripts by ISO 15924, as the names of their characters in Unicode begin
SCRIPT_NAMES = _table("""
    arab:ARABIC armn:ARMENIAN beng:BENGALI cyrl:CYRILLIC deva:DEVANAGARI ethi:ETHIOPIC geor:GEORGIAN grek:GREEK
    gujr:GUJARATI guru:GURMUKHI hang:HANGUL hans:CJK hant:CJK hebr:HEBREW jpan:CJK+HIRAGANA+KATAKANA+KATAKANA-HIRAGANA
    khmr:KHMER knda:KANNADA laoo:LAO latn:LATIN mlym:MALAYALAM mymr:MYANMAR olck:OL orya:ORIYA sinh:SINHALA taml:TAMIL
    telu:TELUGU tfng:TIFINAGH thai:THAI tibt:TIBETAN
""")
# of languages whose codes may not tell it; all others of M2M100 and mBART-50 are in Latin
USUAL_SCRIPTS = _table("""
    am:ethi ar:arab az:latn+cyrl ba:cyrl be:cyrl bg:cyrl bn:beng el:grek fa:arab gu:gujr he:hebr hi:deva hy:armn
    ja:jpan ka:geor kk:cyrl km:khmr kn:knda ko:hang lo:laoo mk:cyrl ml:mlym mn:cyrl mr:deva my:mymr ne:deva or:orya
    pa:guru ps:arab ru:cyrl sd:arab si:sinh sr:cyrl+latn ta:taml te:telu th:thai uk:cyrl ur:arab uz:latn+cyrl yi:hebr
    zh:hans
""")
KNOWN_NAMES = frozenset(name for names in SCRIPT_NAMES.values() for name in names)
SYMBOL = re.compile(r"<\w+>")  # a byte such as <0x41>, or <unk>
MAX_LISTS = 1000  # that are cached: users may force any prefix


def names_of(language: str) -> frozenset[str]:
    """Return the names of the scripts of a language code, such as "deu_Latn", "ru" or "de_DE"."""
    first, script = language_and_region(language)
    scripts = (script,) if script in SCRIPT_NAMES else USUAL_SCRIPTS.get(first, ("latn",))
    return frozenset(name for script in scripts for name in SCRIPT_NAMES[script])


def is_written_in(text: str, scripts: frozenset[str]) -> bool:
    """Return whether a token is one character or a `SYMBOL`, or lacks letters of other scripts in `SCRIPT_NAMES`."""
    return _names_in(text) <= scripts


def _names_in(text: str) -> frozenset[str]:
    """Return the scripts of a token's letters; none of a single character or a symbol."""
    is_single = len(text.strip("▁")) <= 1 or SYMBOL.fullmatch(text) is not None
    return frozenset() if is_single else frozenset(map(_script_name, text)) & KNOWN_NAMES


class ScriptShortlist:
    """The tokens of each target language's script: see `capsule_mt.options.table.Candidates`.

    They are the tokens without letters of another script in `SCRIPT_NAMES`, and bytes and single characters of any
    script, so that names can still be spelled. The token of the target language is among the `extra_tokens`,
    or the decoder starts with it.

    Args:
        tokens: the text of each token that is not special.
        language_codes: the token id of each language.
        start: the token that the decoder starts with.
    """

    def __init__(self, tokens: Mapping[int, str], language_codes: Mapping[str, int], start: int) -> None:
        self._start = start
        self._code_of = {index: code for code, index in language_codes.items()}
        self._tokens_of: dict[frozenset[str], array[int]] = {}  # lists would take ten times as much memory
        self._lists: dict[tuple[int, ...], array[int]] = {}
        for index, text in tokens.items():
            self._tokens_of.setdefault(_names_in(text), array("i")).append(index)

    def of_source(self, source: Sequence[int], *extra_tokens: int) -> Sequence[int]:
        """Return the tokens, ascending; they depend on the extra tokens alone."""
        listed = self._lists.get(extra_tokens)
        if listed is None:
            first_tokens = (*extra_tokens, self._start)
            language = next((self._code_of[token] for token in first_tokens if token in self._code_of), None)
            if language is None:
                raise ValueError("a `shortlist` by script needs a translation that begins with its language's token")
            written = names_of(language)
            groups = [tokens for names, tokens in self._tokens_of.items() if names <= written]
            if len(self._lists) >= MAX_LISTS:
                self._lists.clear()
            try:
                listed = array("i", sorted(set(extra_tokens).union(*groups)))
            except OverflowError:
                outlier = max(extra_tokens, key=abs)
                raise ValueError(f"the shortlist: token {outlier} is outside the vocabulary") from None
            self._lists[extra_tokens] = listed
        return listed  # not read again: another thread may have cleared the lists


@cache
def _script_name(character: str) -> str:
    """Return the first word of a letter's name in Unicode, such as "LATIN"; nothing for other characters."""
    return unicodedata.name(character, "").partition(" ")[0] if character.isalpha() else ""
