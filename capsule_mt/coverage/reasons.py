"""The reasons to check a translation: one table for reports, the server's answers, the page and the documentation.

`python -m tools.reasons` writes what is derived from it: serve/page/reasons.js and the table of docs/checking.md.
"""

from collections.abc import Mapping
from typing import Literal, NamedTuple

# From the most certain to the least. Each "fault" flags about 0.2 % of people's translations or fewer, each "probable"
# reason at most 2 %, on text of two kinds; a "hint" flags more, or is right less often than not.
Level = Literal["fault", "probable", "hint"]
LEVELS: tuple[Level, ...] = ("fault", "probable", "hint")
MIN_PRECISION = 0.5  # of a model's marks, for them to be probable, and a default
# Words of a translation that stand in a row are probably made up if the geometric mean of their support is below it.
# Chosen with both Firefox students on people's translations, of which 1 of 506 (lines 1, 5, ... of FLORES) and 3 of
# 4,000 (of Tatoeba) have such a row, and 701 of 720 of those with one of nine clauses put at their end.
ROW_LENGTH, MIN_SUPPORT = 4, 0.03


class Reason(NamedTuple):
    """Why a translation is to be checked.

    message: for a person, with fields such as {missing}.
    about: when it is given, for the documentation.
    added: the message if only the translation has something.
    """

    level: Level
    message: str
    about: str
    added: str = ""


def _of_item(level: Level, noun: str, about: str) -> Reason:
    return Reason(
        level,
        f"The {noun} {{missing}} is missing in the translation.",
        about,
        f"The {noun} {{added}} is only in the translation.",
    )


REASONS: Mapping[str, Reason] = {
    "empty": Reason("fault", "The translation is empty.", "a translation without text"),
    "unreadable": Reason("fault", "The model cannot read {part} of the text.", "over a fifth of the tokens unknown"),
    "items": Reason("fault", "The placeholders are others, or in another order.", "placeholders of a file's format"),
    "plural": Reason(
        "fault",
        "Not in the file: a plural form must have its number {number} once.",
        "a plural form that lost its number",
    ),
    "placeholders": _of_item("fault", "placeholder", "one more often on one side"),
    "tags": _of_item("fault", "tag", "one more often on one side"),
    "urls": _of_item("fault", "address", "one more often on one side"),
    "numbers": _of_item("fault", "number", "another number; not 1,234.56 for 1.234,56 or *zwölf* for 12"),
    "swapped_numbers": Reason(
        "fault", "Two numbers change places: “{missing}”, “{added}”.", "two adjacent numbers, exchanged"
    ),
    "months": _of_item("fault", "month", "another month"),
    "weekdays": _of_item("fault", "weekday", "another weekday"),
    "signs": _of_item("fault", "sign", "a currency sign, %, ° or the like on one side only"),
    "end": Reason(
        "fault",
        "The text ends with “{missing}”, the translation with “{added}”.",
        "a question mark on one side, another mark on the other",
    ),
    "doubled": Reason("fault", "Said twice in a row: {added}", "a phrase twice in a row, if its source is not"),
    "untranslated": Reason(
        "fault", "Not translated: {missing}", "four or more copied words in lower case, or a copied phrase or plural"
    ),
    "copy": Reason(
        "fault", "The translation is a copy of the text.", "a copied text of three words or more, with a judge"
    ),
    "brackets": _of_item("fault", "bracket", "a bracket that faces the other way"),
    "names": Reason("probable", "The name “{missing}” became “{added}”.", "exactly one name became another one"),
    "lone_numbers": _of_item("probable", "number", "a number on one side only"),
    "sentences": Reason(
        "probable",
        "The text has {missing}, the translation {added}, and is much {comparison}.",
        "one side has more sentences, and is much longer",
    ),
    "language": Reason(
        "probable",
        "The text seems to be in another language: {language}",
        "a text that is not in the source language, with the extra `auto`",
    ),
    "incomplete": Reason("probable", "Probably incomplete: {words}", "a sentence that raises the alarm"),
    "made_up": Reason("probable", "Probably made up: {words}", "words in a row with less support than people's have"),
    "left_out": Reason(
        "probable",
        "Probably left out: {words}",
        "verified marks in an alarmed sentence, or those of a model or judge that are mostly right",
    ),
    "unrelated": Reason(
        "probable", "Probably a translation of another text.", "hardly a word has a counterpart, with a judge"
    ),
    "foreign": Reason(
        "probable",
        "The translation seems to be in another language.",
        "not the language of translations, with a judge and the extra `auto`",
    ),
    "order": Reason("probable", "Probably in another order.", "sentences that change places, with a judge"),
    # of people's translations of news, one in forty: "not unlike", "fails to"
    "negation": _of_item("hint", "negation", "a *not* more than on the other side"),
    "perhaps_left_out": Reason("hint", "Perhaps left out{unverified}: {words}", "other marked words"),
    "perhaps_made_up": Reason("hint", "Perhaps made up: {words}", "words that the source seems not to support"),
}
