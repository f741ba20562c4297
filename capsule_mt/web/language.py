"""The rules of `text`, `checks` and `coverage` for JavaScript: constants, and patterns in its syntax.

The build writes them into interface.js, so that JavaScript does not have a second copy. Rules that depend on a model's
languages go into the model file. The cases in tests/vectors check Python and JavaScript alike.
"""

import re
from collections.abc import Sequence
from html import unescape
from html.entities import html5
from typing import Any

from capsule_mt.checks import (
    certain,
    items,
    named_values,
    names,
    number_forms,
    punctuation,
    repeated_words,
    repetition,
    texts,
    word_lists,
)
from capsule_mt.checks import numbers as number_rules
from capsule_mt.coverage import curves, piece_coverage, supported
from capsule_mt.text import (
    alignment,
    capitals,
    casing,
    copying,
    edges,
    entities,
    keeping,
    normal,
    numerals,
    restoring,
    segments,
    sentences,
    typography,
    words,
)
from capsule_mt.translate import rounds

WORD_CHARACTERS, DIGITS, SPACES = r"\p{L}\p{N}_", r"\p{Nd}", r"\s\x1c-\x1f\x85"  # as Python's \w, \d and \s
# Python's character classes, as they are written inside brackets
CLASSES = {"w": WORD_CHARACTERS, "d": DIGITS, "s": SPACES}
BOUNDARY = rf"(?:(?<=[{WORD_CHARACTERS}])(?![{WORD_CHARACTERS}])|(?<![{WORD_CHARACTERS}])(?=[{WORD_CHARACTERS}]))"
# JavaScript cannot negate a class inside brackets: write these sets out
NEGATED = {r"[^\W_]": r"[\p{L}\p{N}]", r"[^\W\d_]": r"[\p{L}\p{Nl}\p{No}]"}
# with the flag "u", only these characters may be escaped
SYNTAX = frozenset(r"^$\.*+?()[]{}|/")
TOKENS = re.compile(r"\(\?i:[^()]*\)|\(\?P=\w+\)|\(\?[a-z]:|\(\?P<|\[\^?\]?(?:\\.|[^\]\\])*\]|\\.|.", re.DOTALL)
LONG_ESCAPE = r"(?<!\\)\\(?:u(?!00[0-7]|d[89a-f])([\da-f]{4})|x([89a-f][\da-f]))"  # of a character beyond ASCII

CASING = (
    *("CAPITALS", "LOWERCASE", "LOWERCASE_START", "FINAL_MARKS"),
    *("MIN_LINE_WORDS", "MIN_START_WORDS", "MAX_SHORT_WORD"),
    *("MIN_CAPITAL_SHARE", "MIN_KNOWN_SHARE", "MIN_KNOWN_IN_TITLE", "MIN_KNOWN_IN_HEADLINE"),
    *("NAME_MARGIN", "NEIGHBOUR_SHARE", "MAX_FROM_NEIGHBOUR", "ABBREVIATION_MARGIN", "MAX_MARGIN_OF_WORDS"),
)
# The HTML entities that JavaScript knows: all numbers, letters with these accents, and these names. All 2,028 names of
# Python would take 10 kB of a page
ACCENTS = {
    "acute": "\u0301",
    "grave": "\u0300",
    "circ": "\u0302",
    "tilde": "\u0303",
    "uml": "\u0308",
    "ring": "\u030a",
    "caron": "\u030c",
    "macr": "\u0304",
    "ogon": "\u0328",
    "dblac": "\u030b",
}
ENTITY_NAMES = """
    amp quot apos nbsp iexcl cent pound curren yen brvbar sect uml copy ordf laquo not shy reg macr deg plusmn sup2
    sup3 acute micro para middot cedil sup1 ordm raquo frac14 frac12 frac34 iquest AElig Ccedil ETH times Oslash THORN
    szlig aelig ccedil eth divide oslash thorn Abreve abreve Dstrok dstrok Lstrok lstrok OElig oelig Scedil scedil
    Tcedil tcedil Zdot zdot ensp emsp thinsp zwnj zwj lrm rlm ndash mdash lsquo rsquo sbquo ldquo rdquo bdquo dagger
    Dagger bull hellip permil prime Prime lsaquo rsaquo euro trade larr uarr rarr darr harr minus
"""


def javascript_pattern(pattern: str) -> str:
    """Return a regular expression of Python in JavaScript's syntax, for the flag "u"."""
    written = ""
    dot_forms = [r"[^\n]"]  # what `.` stands for in each open group: the last entry is for the innermost one
    for token in TOKENS.findall(pattern):
        if token.startswith("(?i:"):
            inner = re.sub(r"(?<!\\)[a-z]", lambda letter: f"[{letter[0]}{letter[0].upper()}]", token[4:-1])
            written += f"(?:{javascript_pattern(inner)})"
        elif token == "(?s:":
            written += "(?:"
            dot_forms.append("[^]")
        elif token.startswith("(?P="):
            written += rf"\k<{token[4:-1]}>"
        elif token == "(?P<":
            written += "(?<"
            dot_forms.append(dot_forms[-1])
        elif token[0] == "[":
            written += NEGATED.get(token) or re.sub(r"\\(U[\da-f]{8}|.)", _escape_in_brackets, token, flags=re.DOTALL)
        elif token[0] == "\\" and len(token) == 2:
            written += _escape(token[1])
        else:
            if token == "(":
                dot_forms.append(dot_forms[-1])
            elif token == ")":
                dot_forms.pop()
            written += dot_forms[-1] if token == "." else token
    return written


def _short_pattern(pattern: str) -> str:
    """Return `javascript_pattern` with characters instead of their escapes, which take more bytes."""
    characters = re.sub(LONG_ESCAPE, lambda match: chr(int(match[1] or match[2], 16)), pattern)
    return javascript_pattern(characters).replace(f"[{DIGITS}]", DIGITS)


def _escape(letter: str) -> str:
    if letter in CLASSES:
        return f"[{CLASSES[letter]}]"
    if letter.lower() in CLASSES:
        return f"[^{CLASSES[letter.lower()]}]"
    if letter.isalnum():
        return {"b": BOUNDARY, "A": "^", "Z": "$"}.get(letter) or _shared_escape(letter)
    return f"\\{letter}" if letter in SYNTAX else letter


def _escape_in_brackets(match: re.Match[str]) -> str:
    letter = match[1]
    if letter[0] == "U":
        return rf"\u{{{letter[1:].lstrip('0')}}}"
    if letter in CLASSES:
        return CLASSES[letter]
    if letter.isalnum():
        return _shared_escape(letter)
    return match[0] if letter in SYNTAX or letter == "-" else letter


def _shared_escape(letter: str) -> str:
    """Return a letter's escape if it means the same in Python and in JavaScript; refuse others."""
    if letter not in "nrtvfxu":
        raise ValueError(
            f"\\{letter} in a pattern: JavaScript may read it otherwise; avoid it, or convert it in `_escape`"
        )
    return rf"\{letter}"


def patterns() -> dict[str, str]:
    """Return the regular expressions of `text` and `checks` as Python writes them, by their names in JavaScript."""
    return {
        "WORDS": words.WORDS.pattern,
        "SPLIT_WORDS": r"\S+",  # what `str.split` returns
        "UNSPACED_SCRIPTS": words.UNSPACED_SCRIPTS,
        "CJK": words.CJK,
        "ONE_GROUP": numerals.ONE_GROUP,
        "ENTITY": entities.ENTITY.pattern,
        "NO_BREAK_AFTER_NUMBER": entities.NO_BREAK_AFTER_NUMBER,
        "COMPATIBLE": normal.COMPATIBLE,
        "SEQUENCES": normal.SEQUENCES,
        "FURTHER_SEQUENCES": normal.FURTHER_SEQUENCES,
        "REPEATED": normal.REPEATED,
        "ROMAN_WORD": normal.ROMAN_WORD,
        "BEFORE_CODE_COMMA": normal.BEFORE_CODE_COMMA,
        "WORD": normal.WORD.pattern,
        "PLAIN_READ_WORD": normal.PLAIN_READ_WORD,
        "WORD_BEGINS": normal.SENTENCE_START,
        "CAPITAL_BEGINS": capitals.SENTENCE_START,
        "LINE": casing.LINE,
        "CASED_WORD": casing.CASED_WORD,
        "LANGUAGE_TOKEN": casing.LANGUAGE_TOKEN.pattern,
        "VARIABLE": casing.VARIABLE,
        "MAY_START": casing.MAY_START,
        "QUOTED_START": casing.QUOTED_START,
        "APOSTROPHE": edges.APOSTROPHE,
        "FINAL_MARK": edges.FINAL_MARK,
        "MARKS_AT_END": edges.MARKS_AT_END,
        "LABEL": edges.LABEL,
        "LABEL_COLON": typography.LABEL_COLON,
        "OPENING_QUOTE": typography.OPENING_QUOTE.pattern,
        "CLOSING_QUOTE": typography.CLOSING_QUOTE.pattern,
        "LABEL_END": edges.LABEL_END,
        "FIRST_LETTER": edges.FIRST_LETTER,
        "BARE_PLACEHOLDERS": copying.BARE_PLACEHOLDERS,
        "NUMBER_PLACEHOLDER": copying.NUMBER_PLACEHOLDER,
        "NUMBER": number_forms.NUMBER.pattern,
        "OTHER_DIGIT": number_forms.OTHER_DIGIT,
        "TIME_OR_DATE": number_rules.TIME_OR_DATE.pattern,
        "YEAR": number_rules.YEAR.pattern,
        "PARTS_OF_DATE": number_rules.PARTS_OF_DATE.pattern,
        "ROMAN_NUMERAL_IN_TEXT": number_forms.ROMAN_NUMERAL.pattern,
        "AFTERNOON": word_lists.check_words().afternoon,
        "TIME": number_forms.TIME.pattern,
        "BRANCHES": items.BRANCHES.pattern,
        "LAST_MARK": punctuation.END.pattern,
        "NUMBERS_AND_BRACKETS": certain.NUMBERS_AND_BRACKETS.pattern,
        "MAY_QUOTE": certain.MAY_QUOTE,
        "EMOJI": copying.EMOJI,
        "EMOJI_BEFORE": copying.EMOJI_BEFORE,
        "LIST_MARK": copying.LIST_MARK,
        "FURTHER_LIST_MARK": copying.FURTHER_LIST_MARK,
        "NUMBERED": copying.NUMBERED,
        "LEADER": copying.LEADER,
        "SIGNS_AT_END": copying.SIGNS_AT_END,
        "LONG_WORD": segments.LONG_WORD,
        "NON_WORD_SIGNS": copying.NON_WORD_SIGNS,
        "BLOCK_TAG": keeping.BLOCK_TAG.removeprefix("(?i)"),
        "TAG_NAME": keeping.TAG_NAME,
        "BEFORE_SIGN": keeping.BEFORE_SIGN,
        "AFTER_SIGN": keeping.AFTER_SIGN,
        "LEFT_SIDE": keeping.LEFT_SIDE,
        "RIGHT_SIDE": keeping.RIGHT_SIDE,
        "SENTENCE_ENDS": sentences.ENDS,
        "UNSPACED_END": sentences.UNSPACED_END,
        "QUOTED": sentences.QUOTED,
        "FIRST_ITEM": sentences.FIRST_ITEM,
        "GOES_ON": sentences.GOES_ON,
        "SPACED_DOTS": sentences.SPACED_DOTS,
        "INITIALS": sentences.INITIALS,
        "ROMAN_NUMERAL": sentences.ROMAN_NUMERAL,
        "BREAKS": sentences.BREAKS.pattern,
        "CLAUSE_ENDS": sentences.CLAUSE_ENDS,
    }


def constants() -> dict[str, Any]:
    """Return the constants and patterns of `text`, `checks` and `coverage` by their names in JavaScript."""
    return {
        "PATTERNS": {name: _short_pattern(pattern) for name, pattern in patterns().items()},
        "KEPT_PATTERNS": {kind: _short_pattern(keeping.PATTERNS[kind]) for kind in keeping.COPIED_KINDS},
        "ACCENTS": ACCENTS,
        "ENTITIES": _names_and_characters(ENTITY_NAMES.split()),
        "WINDOWS_1252": "".join(unescape(f"&#{code};") for code in range(0x80, 0xA0)),
        "MIN_CAPITALS": capitals.MIN_LETTERS,
        "CJK_NEIGHBOURS": words.CJK_NEIGHBOURS,
        "MAX_DRIFT": words.MAX_DRIFT,
        "PLAIN": normal.PLAIN,
        "INVISIBLE": normal.ranges_of(normal.INVISIBLE),
        "BETWEEN_LETTERS": normal.BETWEEN_LETTERS,
        "LAST_WITHOUT_JOINERS": normal.LAST_WITHOUT_JOINERS,
        "UNSPACED_STOPS": sentences.UNSPACED_STOPS,
        "SPACED_CLOSING": sentences.SPACED_CLOSING,
        "CLOSING": sentences.CLOSING,
        "OPENING": sentences.OPENING,
        "BULLETS": sentences.BULLETS,
        "MASKED_DOT": sentences.MASKED_DOT,
        "MIN_LAST_WORD": sentences.MIN_LAST_WORD,
        "BEFORE_NUMBERS": sorted(sentences.BEFORE_NUMBERS),
        "SENTENCE_REACH": sentences.REACH,
        "LONGEST_CHARACTER": sentences.LONGEST_CHARACTER,
        "WORD_REACH": normal.REACH,
        "MAX_CODE": normal.MAX_CODE,
        "MARGIN_OF_DIVIDED": normal.MARGIN_OF_DIVIDED,
        "MAX_RANK_OF_REPEATED": normal.MAX_RANK_OF_REPEATED,
        "STAND_INS": {kind: keeping.STAND_INS[kind] for kind in ("name", "amount", "count")},  # it does not keep years
        "ARROWS": "".join(sorted(keeping.ARROWS)),
        "SIGN_PAIRS": copying.SIGN_PAIRS,
        "ARROW_STAND_IN": keeping.ARROW_STAND_IN,
        "AROUND_ITEMS": keeping.AROUND_ITEMS,
        "BLOCK_BREAK": keeping.BLOCK_BREAK,
        "MAX_NUMBER": keeping.MAX_NUMBER,
        "MARK_MARGIN": restoring.MARK_MARGIN,
        "MIN_SHARE": alignment.MIN_SHARE,
        "MIN_SHARE_OF_BEST": alignment.MIN_SHARE_OF_BEST,
        "MAX_ROUNDS": keeping.MAX_ROUNDS,
        "MAX_WORD": segments.MAX_WORD,
        "FIRST_RANK": normal.FIRST_RANK,
        "LOG_RANK_OF_TOKEN": normal.LOG_RANK_OF_TOKEN,
        "LOG_RANK_OF_UNKNOWN": normal.LOG_RANK_OF_UNKNOWN,
        **{name: getattr(casing, name) for name in CASING},
        "ABBREVIATION_LENGTHS": list(casing.ABBREVIATION_LENGTHS),
        "ENCLOSING": edges.ENCLOSING,
        "MAX_LABEL": edges.MAX_LABEL,
        "MAX_BESIDE_LABEL": edges.MAX_BESIDE_LABEL,
        "MIN_WORDS": edges.MIN_WORDS,
        "KEPT_KINDS": texts.KEPT_KINDS,
        "HALF": word_lists.check_words().half_hours,
        "MAX_SMALL_NUMBER": named_values.MAX_SMALL_NUMBER,
        "MAX_INTEGER": number_forms.MAX_INTEGER,
        "ROMAN_VALUES": number_forms.ROMAN_VALUES,
        "UNITS": [_short_pattern(pattern) for pattern in word_lists.check_words().units],
        **{name: getattr(names, name) for name in ("MIN_NAME", "MAX_NAME", "STEM", "MIN_SIMILAR", "BEFORE_NAME")},
        "MIN_UNTRANSLATED": repeated_words.MIN_UNTRANSLATED,
        "MIN_DOUBLED": repeated_words.MIN_DOUBLED,
        "CODE_MARKS": "".join(sorted(repeated_words.CODE_MARKS)),
        "MAX_SWAP_TEXT": number_rules.MAX_SWAP_TEXT,
        "MAX_SWAP_PHRASE": number_rules.MAX_SWAP_PHRASE,
        "VERBS": word_lists.check_words().month_verbs,
        "BRACKET_PAIRS": punctuation.BRACKETS,
        "BRACKET_MARKS": "".join(sorted(words.BRACKET_MARKS)),
        "QUOTE_MARKS": certain.QUOTE_MARKS,
        **{name: getattr(rounds, name) for name in ("RETRY_BEAMS", "MAX_RETRIES")},
        "LARGEST_EVIDENCE": curves.LARGEST_EVIDENCE,
        "LONGEST_REPEATED_PHRASE": repetition.LONGEST_REPEATED_PHRASE,
        "MIN_COPIED_LETTERS": piece_coverage.MIN_COPIED_LETTERS,
        "DOUBT_THRESHOLD": supported.DOUBT_THRESHOLDS["likely"],
        **{name: getattr(supported, name) for name in ("LOG_PROB_WEIGHT", "MIN_LOG_PROB", "NEIGHBOUR_WEIGHT")},
        "BRACKET_FORMS": {chr(mark): chr(form) for mark, form in punctuation.BRACKET_FORMS.items()},
    }


def _names_and_characters(names: Sequence[str]) -> str:
    """Return names of entities, each before its character, or before a space for the successor of the last one."""
    codes = [ord(html5[f"{name};"]) for name in names]
    return "".join(
        name + (" " if code == previous + 1 else chr(code))
        for name, code, previous in zip(names, codes, [0, *codes], strict=False)
    )


def typography_of(language: str | None) -> dict[str, Any]:
    """Return how a target language writes quotes, colons, spaces and the capital of i: see typography.js."""
    has_spaces = typography.has_french_spaces(language)
    return {
        "quotes": typography.quotes_of(language),
        "colon": typography.colon_of_label(":", language) if language else None,
        "spaces": javascript_pattern(typography.FRENCH_SPACES) if has_spaces else None,
        "dotless_i": capitals.has_dotless_i(language),
    }


def numbers_of(source: str | None, target: str | None) -> dict[str, Any] | None:
    """Return how two languages write numbers: see segments.js."""
    forms = numerals.number_forms(source, target)
    return forms and {**forms._asdict(), "pattern": javascript_pattern(forms.pattern)}


def sentence_rules(language: str | None) -> dict[str, Any]:
    """Return how a source language's sentences are split, and whether it has the letter \u0131."""
    rules = sentences.rules_of(language)._asdict()
    values = {name: sorted(value) if isinstance(value, frozenset) else value for name, value in rules.items()}
    return {**values, "dotless_i": capitals.has_dotless_i(language)}


def words_of_checks(source: str | None, target: str | None) -> dict[str, Any]:
    """Return the words of two languages for `checks`; each list has the source's entry, then the target's."""
    codes = [sentences.language_code(language) for language in (source, target)]
    vocabularies = [word_lists.words_in(code) for code in codes]
    negations = [vocabulary.negation for vocabulary in vocabularies]
    return {
        "numbers": [vocabulary.numbers for vocabulary in vocabularies],
        "names": {kind: [getattr(vocabulary, kind) for vocabulary in vocabularies] for kind in ("months", "weekdays")},
        "translated_names": [
            vocabulary.translated_names and javascript_pattern(vocabulary.translated_names)
            for vocabulary in vocabularies
        ],
        "articles": [sorted(vocabulary.articles) for vocabulary in vocabularies],
        "large_number": javascript_pattern(word_lists.check_words().large_number),
        "sign_names": word_lists.check_words().sign_names,
        "question_marks": [punctuation.question_marks(code) for code in codes],
        "negations": None
        if None in negations
        else [[javascript_pattern(pattern) for pattern in patterns] for patterns in negations if patterns],
    }
