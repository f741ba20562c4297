"""The rules about signs, brackets and the mark at the end."""

import re
from collections.abc import Iterator, Sequence

from capsule_mt.checks.results import Check
from capsule_mt.checks.texts import CheckedText
from capsule_mt.checks.word_lists import check_words
from capsule_mt.text.words import BRACKET_MARKS

QUESTION_MARKS = "?？؟\u037e"
LAST_MARKS = re.compile(r"(?<![?？؟;\u037e!！.。…:：])([?？؟;\u037e!！.。…:：]+)[\"'”’»“)\]」』\s]*\Z")
BRACKETS = ("()", "{}")
BRACKET_FORMS = str.maketrans("（）［］｛｝【】[]", "()(){}()()")


def sign_checks(source: CheckedText, translation: CheckedText) -> Iterator[Check]:
    """Yield signs, such as those of currencies, that one text lacks both as a sign and as a word.

    How often a sign stands does not count: "20-30%" becomes "20% a 30%".
    """
    sign_names = check_words().sign_names
    if sign_names.keys().isdisjoint(source.prose) and sign_names.keys().isdisjoint(translation.prose):
        return
    for sign, names in sign_names.items():
        is_in_source, is_in_target = sign in source.prose, sign in translation.prose
        if is_in_source and not is_in_target and not _has_name(translation.prose, names):
            yield Check("signs", sign, "")
        elif is_in_target and not is_in_source and not _has_name(source.prose, names):
            yield Check("signs", "", sign)


def _has_name(text: str, names: Sequence[str]) -> bool:
    return any(name in text.casefold() for name in names)


def end_checks(source: CheckedText, translation: CheckedText) -> Iterator[Check]:
    """Yield the final marks if both texts have some, and only one has a question mark there, as "?" and "?!" have."""
    marks, are_questions = [], []
    for text in (source, translation):
        match = LAST_MARKS.search(text.prose.rstrip())
        ending = match[1] if match else ""
        question = next((mark for mark in ending if mark in question_marks(text.language)), "")
        marks.append(question or ending[-1:])
        are_questions.append(bool(question))
    if all(marks) and are_questions[0] != are_questions[1]:
        yield Check("end", *marks)


def question_marks(language: str | None) -> str:
    """Return the marks that may end a question in a language."""
    return QUESTION_MARKS + (";" if language == "el" else "")


def bracket_checks(source: CheckedText, translation: CheckedText) -> Iterator[Check]:
    """Yield brackets that the texts have in different numbers; square ones count as round.

    Brackets that do not balance in the source, as in "a)", and those of "[...]" and "[w]hile" are not checked.
    """
    source_counts, target_counts = ([*_bracket_counts(text.prose)] for text in (source, translation))
    for pair, source_count, target_count in zip(BRACKETS, source_counts, target_counts, strict=True):
        if source_count[0] != source_count[1] or source_count == target_count:
            continue
        if sum(target_count) == sum(source_count):  # one mark instead of the other
            marks = pair if target_count[0] < source_count[0] else pair[::-1]
            yield Check("brackets", marks[0], marks[1])
        else:
            is_missing = sum(target_count) < sum(source_count)
            yield Check("brackets", pair if is_missing else "", "" if is_missing else pair)


def _bracket_counts(text: str) -> Iterator[tuple[int, int]]:
    if BRACKET_MARKS.isdisjoint(text):
        return iter(((0, 0),) * len(BRACKETS))
    text = re.sub(r"\[(\w)\]|\[\.\.\.\]|\[\u2026\]", r"\1", text).translate(BRACKET_FORMS)  # "[w]hile", "[...]"
    return ((text.count(opening), text.count(closing)) for opening, closing in map(tuple, BRACKETS))
