"""The rules about placeholders, tags and URLs."""

import re
from collections import Counter
from collections.abc import Iterator

from capsule_mt.checks.results import Check
from capsule_mt.checks.texts import KEPT_KINDS, CheckedText

# placeholders with words of the source language, which are copied like other placeholders
BRANCHES = re.compile(r"\{\s*\w+\s*,\s*(?:plural|select|choice)")


def item_checks(source: CheckedText, translation: CheckedText) -> Iterator[Check]:
    """Yield the items that one text lacks, and copied placeholders that contain words of the source language."""
    for kind in KEPT_KINDS:
        source_counts, target_counts = (
            Counter(str(item) for item in text.items if item.kind == kind) for text in (source, translation)
        )
        for item in (source_counts - target_counts).elements():
            yield Check(kind, item, "")
        for item in (target_counts - source_counts).elements():
            yield Check(kind, "", item)
        for item in (source_counts & target_counts).elements():
            if BRANCHES.match(item):
                yield Check("untranslated", item, "")
