"""The rule about negations."""

import re
from collections.abc import Iterator

from capsule_mt.checks.results import Check
from capsule_mt.checks.texts import CheckedText


def negation_checks(source: CheckedText, translation: CheckedText) -> Iterator[Check]:
    """Yield a negation that only one text has, if the word lists have negations of both languages.

    A weak word, such as "undone", may translate the negation only if the other text does not have as many weak words.
    """
    for text, other_text in ((source, translation), (translation, source)):
        patterns, other_patterns = text.vocabulary.negation, other_text.vocabulary.negation
        if patterns is None or other_patterns is None:
            return
        match = re.search(patterns.sure, text.prose, re.IGNORECASE)
        if match is None or re.search(other_patterns.firm, other_text.prose, re.IGNORECASE):
            continue
        weak, other_weak = (
            len(re.findall(pattern, side.prose, re.IGNORECASE))
            for pattern, side in ((patterns.weak, text), (other_patterns.weak, other_text))
        )
        if other_weak <= weak:
            yield Check("negation", match[0], "") if text is source else Check("negation", "", match[0])
