"""Numbers whose grouping sign is not the source language's, such as "1\u2019400" in English.

The model reads the sign of its source language, and writes that of its target language. A sign replaces a sign: the
user's offsets stay valid. Longer numbers, such as "1\u2019400.50", are kept as they are: see `keeping`.
"""

import re

from capsule_mt.text.keeping import COPIED_KINDS, Item, parts_of
from capsule_mt.text.normal import Vocabulary

_SIGNS = "'\u2019\xa0\u2007\u2009\u202f"
# one group; a space that follows another number, as in a telephone number, may not be a grouping sign
ONE_GROUP = rf"(?<![\w.,+'\u2019])(?<!\d[ {_SIGNS}])(\d{{1,3}})[{_SIGNS}](?=\d{{3}}(?![\d{_SIGNS} .,]?\d))"


def with_grouping(text: str, sign: str, vocabulary: Vocabulary) -> str:
    """Return a text with another grouping sign in numbers of one group; unchanged if the sign is "".

    Copied items, such as code, stay as they are. So do numbers beside a sign that the vocabulary lacks, such as a
    currency: they are copied with it.
    """
    if not sign or re.search(ONE_GROUP, text) is None:
        return text

    def regrouped(match: re.Match[str]) -> str:
        start, end = match.start(), match.end() + 3
        neighbours = match.string[max(start - 2, 0) : start] + match.string[end : end + 2]
        return match[1] + sign if all(map(vocabulary.reads, neighbours)) else match[0]

    parts = parts_of(text, COPIED_KINDS)
    return "".join(part if isinstance(part, Item) else re.sub(ONE_GROUP, regrouped, part) for part in parts)
