"""The rule about negations."""

import re
from collections.abc import Iterator

from capsule_mt.checks.results import Check
from capsule_mt.checks.texts import CheckedText


def negation_checks(source: CheckedText, translation: CheckedText) -> Iterator[Check]:
    """Yield the negation of a text with more of them than the other has words that may translate one.

    Weak words, such as "undone", count only as far as they outnumber those of the text itself. A language without a
    list of negations is not checked.
    """
    for text, other_text in ((source, translation), (translation, source)):
        patterns, other_patterns = text.vocabulary.negation, other_text.vocabulary.negation
        if patterns is None or other_patterns is None:
            return
        sure, weak, firm, other_weak = (
            re.findall(pattern, side.prose, re.IGNORECASE)
            for pattern, side in (
                (patterns.sure, text),
                (patterns.weak, text),
                (other_patterns.firm, other_text),
                (other_patterns.weak, other_text),
            )
        )
        if len(sure) > len(firm) + max(0, len(other_weak) - len(weak)):
            yield Check("negation", sure[0], "") if text is source else Check("negation", "", sure[0])
