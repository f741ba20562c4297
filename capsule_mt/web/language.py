"""The rules of `text`, `checks` and `coverage` for JavaScript: constants, and patterns in its syntax.

The build writes them into interface.js, so that JavaScript does not have a second copy; web/patterns.js expands their
patterns, which are short there. Rules that depend on a model's languages go into the model file. The cases in
tests/vectors check Python and JavaScript alike.
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
    casing,
    edges,
    entities,
    finishing,
    reading,
    rewriting,
    segments,
    sentences,
    vocabulary,
    words,
)
from capsule_mt.text import rules as text_rules
from capsule_mt.translate import rounds

WORD_CHARACTERS, DIGITS, SPACES = r"\p{L}\p{N}_", r"\p{Nd}", r"\s\x1c-\x1f\x85"  # as Python's \w, \d and \s
# Python's character classes, as they are written inside brackets
CLASSES = {"w": WORD_CHARACTERS, "d": DIGITS, "s": SPACES}
BOUNDARY = rf"(?:(?<=[{WORD_CHARACTERS}])(?![{WORD_CHARACTERS}])|(?<![{WORD_CHARACTERS}])(?=[{WORD_CHARACTERS}]))"
# JavaScript cannot negate a class inside brackets: write these sets out
NEGATED = {r"[^\W_]": r"[\p{L}\p{N}]", r"[^\W\d_]": r"[\p{L}\p{Nl}\p{No}]"}
# with the flag "u", only these characters may be escaped
SYNTAX = frozenset(r"^$\.*+?()[]{}|/")
TOKENS = re.compile(r"\(\?P=\w+\)|\(\?[a-z]:|\(\?P<|\[\^?\]?(?:\\.|[^\]\\])*\]|\\.|.", re.DOTALL)
LONG_ESCAPE = r"(?<!\\)\\(?:u(?!00[0-7]|d[89a-f])([\da-f]{4})|x([89a-f][\da-f]))"  # of a character beyond ASCII

CASING = (
    *("CAPITALS", "LOWERCASE", "FINAL_MARKS"),
    *("MIN_LINE_WORDS", "MIN_START_WORDS"),
    *("NAME_MARGIN", "ABBREVIATION_MARGIN"),
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


def javascript_pattern(pattern: str, expands_case: bool = True) -> str:
    """Return a regular expression of Python in JavaScript's syntax, for the flag "u".

    expands_case: write the letters a to z in "(?i:...)", outside brackets, in both cases, as older browsers need it.
    """
    written = ""
    # of each open group, the innermost one last: what `.` stands for, and whether letters stand for both cases
    groups = [(r"[^\n]", False)]
    for token in TOKENS.findall(pattern):
        dot, both_cases = groups[-1]
        if token in ("(?i:", "(?s:"):
            written += "(?:" if expands_case or token == "(?s:" else token
            groups.append(("[^]" if token == "(?s:" else dot, both_cases or token == "(?i:"))
        elif token.startswith("(?P="):
            written += rf"\k<{token[4:-1]}>"
        elif token[0] == "(":
            written += token.replace("(?P<", "(?<")
            groups.append(groups[-1])
        elif token.startswith(r"[^\W") and token not in NEGATED:
            written += f"(?:(?!{javascript_pattern('[' + token[4:])})[{WORD_CHARACTERS}])"
        elif token[0] == "[":
            written += NEGATED.get(token) or re.sub(r"\\(U[\da-f]{8}|.)", _escape_in_brackets, token, flags=re.DOTALL)
        elif token[0] == "\\" and len(token) == 2:
            written += _escape(token[1])
        else:
            if token == ")":
                groups.pop()
            is_letter = expands_case and both_cases and token.isascii() and token.islower()
            written += f"[{token}{token.upper()}]" if is_letter else dot if token == "." else token
    return written


def short_pattern(pattern: str) -> str:
    """Return a short pattern, which web/patterns.js expands to one that matches as `javascript_pattern`'s does.

    It has characters beyond ASCII instead of their escapes, Python's character classes, and "(?i:...)".
    """
    characters = re.sub(LONG_ESCAPE, lambda match: chr(int(match[1] or match[2], 16)), pattern)
    written = javascript_pattern(characters, expands_case=False)
    for letter, characters in CLASSES.items():
        written = written.replace(characters, f"\\{letter}")
    return written.replace(r"[\d]", r"\d")


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
    """Return the regular expressions of `text` and `checks` as Python writes them, by names without "_PATTERN"."""
    return {
        "WORDS": words.WORDS.pattern,
        "SPLIT_WORDS": r"\S+",  # what `str.split` returns
        "UNSPACED_SCRIPTS": words.UNSPACED_SCRIPTS,
        "CJK": words.CJK,
        "ENTITY": entities.ENTITY.pattern,
        "ROMAN_WORD": rewriting.ROMAN_WORD,
        "BEFORE_CODE_COMMA": rewriting.BEFORE_CODE_COMMA,
        "WORD_BEGINS": rewriting.SENTENCE_START,
        "CAPITAL_BEGINS": casing.SENTENCE_START,
        "LINE": casing.LINE,
        "NO_WORDS": casing.NO_WORDS.pattern,
        "VARIABLE": casing.VARIABLE,
        "MAY_START": casing.MAY_START,
        "LABEL": edges.LABEL,
        "FINAL_MARK": finishing.FINAL_MARK,
        "LABEL_COLON": finishing.LABEL_COLON,
        "LABEL_END": finishing.LABEL_END,
        "OPENING_QUOTE": finishing.OPENING_QUOTE.pattern,
        "CLOSING_QUOTE": finishing.CLOSING_QUOTE.pattern,
        "TAG_NAME": reading.TAG_NAME,
        "NUMBER": number_forms.NUMBER.pattern,
        "OTHER_DIGIT": number_forms.OTHER_DIGIT,
        "TIME_OR_DATE": number_rules.TIME_OR_DATE.pattern,
        "YEAR": number_rules.YEAR.pattern,
        "PARTS_OF_DATE": number_rules.PARTS_OF_DATE.pattern,
        "CELL_END": names.CELL_END.pattern,
        "ROMAN_NUMERAL_IN_TEXT": number_forms.ROMAN_NUMERAL.pattern,
        "AFTERNOON": word_lists.check_words().afternoon,
        "TIME": number_forms.TIME.pattern,
        "BRANCHES": items.BRANCHES.pattern,
        "LAST_MARKS": punctuation.LAST_MARKS.pattern,
        "NUMBERS_AND_BRACKETS": certain.NUMBERS_AND_BRACKETS.pattern,
        "MAY_QUOTE": certain.MAY_QUOTE,
        "LONG_WORD": segments.LONG_WORD,
        "SENTENCE_ENDS": sentences.ENDS,
        "UNSPACED_END": sentences.UNSPACED_END,
        "QUOTED": sentences.QUOTED,
        "GOES_ON": sentences.GOES_ON,
        "INITIALS": sentences.INITIALS,
        "ROMAN_NUMERAL": sentences.ROMAN_NUMERAL,
        "LINES": sentences.LINES,
        "CLAUSE_ENDS": sentences.CLAUSE_ENDS,
        "BLOCK_TAG": text_rules.BLOCK_TAG,
        "BARE_PLACEHOLDERS": text_rules.BARE_PLACEHOLDERS,
        "NUMBER_PLACEHOLDER": text_rules.NUMBER_PLACEHOLDER,
        "SIGNED_NUMBER": text_rules.SIGNED_NUMBER,
        "CASED_WORD": text_rules.CASED_WORD,
        "COMPATIBLE": text_rules.COMPATIBLE,
    }


def rules() -> dict[str, Any]:
    """Return the rules that JavaScript has, and their constants, by their names there.

    Each row is a list without its example, and without `None` at the end: see web/rewriting.js.
    """
    columns = ("stage", "kind", "model", "id", "needs", "match", "back", "when")  # in an order that gzip packs well
    rows = []
    for row in text_rules.ROWS:
        if row.kind in ("", *text_rules.COPIED_KINDS):  # no others are offered
            short = row._replace(needs=short_pattern(row.needs), match=short_pattern(row.match))
            values = [getattr(short, column) for column in columns]
            while values[-1] is None:
                values.pop()
            rows.append(values)
    names = ("COPIED_KINDS", "ITEM", "TAG_MARK", "BREAK", "PLAIN", "ENCLOSING", "SIGN_PAIRS", "AROUND_ITEMS")
    return {
        "ROWS": rows,
        **{name: getattr(text_rules, name) for name in names},
        "LACKED": [text_rules.LACKED_LETTER, text_rules.LACKED_SIGN, text_rules.LACKED_FORMULA],
        "INVISIBLE": "".join(sorted(text_rules.INVISIBLE)),
        "STAND_INS": text_rules.STAND_INS,
    }


def constants() -> dict[str, Any]:
    """Return the constants and patterns of the rules by their names in JavaScript."""
    return {
        **{f"{name}_PATTERN": short_pattern(pattern) for name, pattern in patterns().items()},
        **rules(),
        "ACCENTS": ACCENTS,
        "ENTITIES": _names_and_characters(ENTITY_NAMES.split()),
        "WINDOWS_1252": "".join(unescape(f"&#{code};") for code in range(0x80, 0xA0)),
        "CJK_NEIGHBOURS": words.CJK_NEIGHBOURS,
        "MAX_DRIFT": words.MAX_DRIFT,
        "UNSPACED_STOPS": sentences.UNSPACED_STOPS,
        "SPACED_CLOSING": sentences.SPACED_CLOSING,
        "CLOSING": sentences.CLOSING,
        "OPENING": sentences.OPENING,
        "BULLETS": sentences.BULLETS,
        "MIN_LAST_WORD": sentences.MIN_LAST_WORD,
        "BEFORE_NUMBERS": " ".join(sorted(sentences.BEFORE_NUMBERS)),
        "SENTENCE_REACH": sentences.REACH,
        "LONGEST_CHARACTER": sentences.LONGEST_CHARACTER,
        "MIN_SHARE": alignment.MIN_SHARE,
        "MIN_SHARE_OF_BEST": alignment.MIN_SHARE_OF_BEST,
        "MAX_WORD": segments.MAX_WORD,
        **{name: getattr(casing, name) for name in CASING},
        "MIN_CAPITALS": casing.MIN_LETTERS,
        **{
            name: getattr(edges, name)
            for name in ("LAST_WITH_FULL_STOP", "MIN_WORDS", "MAX_LABEL", "MAX_BESIDE_LABEL")
        },
        **{name: getattr(vocabulary, name) for name in ("FIRST_RANK", "LOG_RANK_OF_TOKEN", "LOG_RANK_OF_UNKNOWN")},
        "MAX_RANK_OF_REPEATED": rewriting.MAX_RANK_OF_REPEATED,
        "MAX_ROUNDS": reading.MAX_ROUNDS,
        "ABBREVIATION_LENGTHS": list(casing.ABBREVIATION_LENGTHS),
        "KEPT_KINDS": texts.KEPT_KINDS,
        "HALF": word_lists.check_words().half_hours,
        "MAX_SMALL_NUMBER": named_values.MAX_SMALL_NUMBER,
        "MAX_INTEGER": number_forms.MAX_INTEGER,
        "ROMAN_VALUES": number_forms.ROMAN_VALUES,
        "UNITS": [short_pattern(pattern) for pattern in word_lists.check_words().units],
        **{
            name: getattr(names, name)
            for name in ("MIN_NAME", "MAX_NAME", "MAX_UNMATCHED", "STEM", "MIN_SIMILAR", "BEFORE_NAME")
        },
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
        **{name: getattr(repetition, name) for name in ("LONGEST_REPEATED_PHRASE", "REFLEXIVES")},
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
    """Return how a target language writes quotes, colons, spaces and the capital of i: see finishing.js."""
    return {
        "quotes": finishing.quotes_of(language),
        "colon": finishing.colon_of_label(":", language) if language else None,
        "spaces": finishing.has_french_spaces(language),
        "dotless_i": casing.has_dotless_i(language),
    }


def numbers_of(source: str | None, target: str | None) -> dict[str, list[str]] | None:
    """Return the signs between groups of three digits and before decimals of two languages, `None` if one has none."""
    signs = [
        [grouping, "." if grouping == "," else ","]
        for grouping in (sentences.rules_of(language).grouping for language in (source, target))
    ]
    return dict(zip(("signs", "target_signs"), signs, strict=True)) if all(group for group, _ in signs) else None


def sentence_rules(language: str | None) -> dict[str, Any]:
    """Return how a source language's sentences are split, and whether it has the letter \u0131."""
    rules = sentences.rules_of(language)._asdict()
    values = {name: sorted(value) if isinstance(value, frozenset) else value for name, value in rules.items()}
    return {**values, "dotless_i": casing.has_dotless_i(language)}


def words_of_checks(source: str | None, target: str | None) -> dict[str, Any]:
    """Return the words of two languages for `checks`; lists by language have the source's entry, then the target's."""
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
