"""The rules of `text` that JavaScript needs: constants, and regular expressions in JavaScript's syntax.

They are written into interface.js, so that each stands once. tests/vectors hold for both languages.
"""

import re
from typing import Any

from capsule_mt.text import capitals, copying, keeping, normal, restoring, segments, sentences, words

WORD_CHARACTERS, DIGITS, SPACES = r"\p{L}\p{N}_", r"\p{Nd}", r"\s\x1c-\x1f\x85"  # as Python's \w, \d and \s
# of Python's classes, inside of brackets and outside of them
CLASSES = {"w": WORD_CHARACTERS, "d": DIGITS, "s": SPACES}
BOUNDARY = rf"(?:(?<=[{WORD_CHARACTERS}])(?![{WORD_CHARACTERS}])|(?<![{WORD_CHARACTERS}])(?=[{WORD_CHARACTERS}]))"
# a \W inside of brackets, where it is negated
NEGATED = {r"[^\W_]": r"[\p{L}\p{N}]", r"[^\W\d_]": r"[\p{L}\p{Nl}\p{No}]"}
# "u" takes no escape of any other character
SYNTAX = frozenset(r"^$\.*+?()[]{}|/")
TOKENS = re.compile(r"\(\?i:[^()]*\)|\(\?[a-z]:|\(\?P<|\[\^?\]?(?:\\.|[^\]\\])*\]|\\.|.", re.DOTALL)


def javascript_pattern(pattern: str) -> str:
    """Return a regular expression of Python as JavaScript reads it with the flag "u"."""
    written = ""
    dots = [r"[^\n]"]  # what `.` is in each of the groups around
    for token in TOKENS.findall(pattern):
        if token.startswith("(?i:"):
            inner = re.sub(r"(?<!\\)[a-z]", lambda letter: f"[{letter[0]}{letter[0].upper()}]", token[4:-1])
            written += f"(?:{javascript_pattern(inner)})"
        elif token == "(?s:":
            written += "(?:"
            dots.append("[^]")
        elif token == "(?P<":
            written += "(?<"
            dots.append(dots[-1])
        elif token[0] == "[":
            written += NEGATED.get(token) or re.sub(r"\\(U[\da-f]{8}|.)", _escape_in_brackets, token, flags=re.DOTALL)
        elif token[0] == "\\" and len(token) == 2:
            written += _escape(token[1])
        else:
            if token == "(":
                dots.append(dots[-1])
            elif token == ")":
                dots.pop()
            written += dots[-1] if token == "." else token
    return written


def _escape(letter: str) -> str:
    if letter in CLASSES:
        return f"[{CLASSES[letter]}]"
    if letter.lower() in CLASSES:
        return f"[^{CLASSES[letter.lower()]}]"
    if letter.isalnum():
        return {"b": BOUNDARY, "Z": "$", "n": r"\n", "r": r"\r", "v": r"\v", "f": r"\f"}[letter]
    return f"\\{letter}" if letter in SYNTAX else letter


def _escape_in_brackets(match: re.Match[str]) -> str:
    letter = match[1]
    if letter[0] == "U":
        return rf"\u{{{letter[1:].lstrip('0')}}}"
    if letter in CLASSES:
        return CLASSES[letter]
    if letter.isalnum():
        if letter not in "nrvfxu":
            raise ValueError(f"a pattern has \\{letter} inside of brackets: write it otherwise, or translate it here")
        return match[0]
    return match[0] if letter in SYNTAX or letter == "-" else letter


def constants() -> dict[str, Any]:
    """Return what JavaScript reads of the rules of `text`, by its names there."""
    patterns = {
        "WORDS": words.WORDS.pattern,
        "UNSPACED_SCRIPTS": words.UNSPACED_SCRIPTS,
        "CJK": words.CJK,
        "COMPATIBLE": normal.COMPATIBLE.pattern,
        "WORD": normal.WORD.pattern,
        "WORD_BEGINS": normal.SENTENCE_START.pattern,
        "CAPITAL_BEGINS": capitals.SENTENCE_START,
        "EMOJI": copying.EMOJI,
        "EMOJI_BEFORE": copying.EMOJI_BEFORE,
        "LIST_MARK": copying.LIST_MARK,
        "LONG_WORD": segments.LONG_WORD,
        "BLOCK_TAG": keeping.BLOCK_TAG,
        "TAG_NAME": keeping.TAG_NAME,
        "BEFORE_SIGN": keeping.BEFORE_SIGN.pattern,
        "AFTER_SIGN": keeping.AFTER_SIGN.pattern,
        "LEFT_SIDE": keeping.LEFT_SIDE.pattern,
        "RIGHT_SIDE": keeping.RIGHT_SIDE.pattern,
        "SENTENCE_ENDS": sentences.ENDS,
        "UNSPACED_END": sentences.UNSPACED_END,
        "QUOTED": sentences.QUOTED,
        "FIRST_ITEM": sentences.FIRST_ITEM,
        "GOES_ON": sentences.GOES_ON,
        "SPACED_DOTS": sentences.SPACED_DOTS,
        "INITIALS": sentences.INITIALS,
        "ROMAN_NUMERAL": sentences.ROMAN_NUMERAL,
        "LINE_BREAKS": sentences.LINE_BREAKS.pattern,
        "CLAUSE_ENDS": sentences.CLAUSE_ENDS,
    }
    return {
        "PATTERNS": {name: javascript_pattern(pattern) for name, pattern in patterns.items()},
        "KEPT_PATTERNS": {
            kind: javascript_pattern(keeping.PATTERNS[kind]) for kind in keeping.COPIED_KINDS if kind != "emphasis"
        },
        "MAYBE_NO_WORDS": copying.MAYBE_NO_WORDS,
        "MIN_CAPITALS": capitals.MIN_LETTERS,
        "CJK_NEIGHBOURS": words.CJK_NEIGHBOURS,
        "PLAIN": normal.PLAIN,
        "INVISIBLE": "".join(sorted(normal.INVISIBLE)),
        "JOINERS": normal.JOINERS,
        "LAST_WITHOUT_JOINERS": normal.LAST_WITHOUT_JOINERS,
        "QUOTES": normal.QUOTES,
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
        "STAND_INS": keeping.STAND_INS,
        "AROUND_ITEMS": keeping.AROUND_ITEMS,
        "BLOCK_BREAK": keeping.BLOCK_BREAK,
        "MAX_NUMBER": keeping.MAX_NUMBER,
        "MARK_MARGIN": restoring.MARK_MARGIN,
        "MAX_ROUNDS": keeping.MAX_ROUNDS,
        "MAX_WORD": segments.MAX_WORD,
    }
