"""What is no sentence: it is copied, because a model that has to translate an emoji or a URL makes something up."""

import re

from capsule_mt.text.sentences import Span

URL = r"(?:https?://|www\.)[^\s<>\"']*[\w/]|(?<![\w.+-])[\w.+-]{1,64}@[\w-]+(?:\.[\w-]+)+"
TAG = r"<!--.*?-->|</?[A-Za-z][^<>]*>"
NO_WORDS = re.compile(rf"{URL}|{TAG}|`[^`\n]*`", re.DOTALL)
EMOJI = "[\U0001f000-\U0001faff\u2600-\u27bf\u2b00-\u2bff\ufe0f\u200d\u20e3\U000e0020-\U000e007f]"
# bullets, "3)" and "a)", boxes to tick; not "3.", which may be a date
LIST_MARK = re.compile(
    r"(?:[-\u2013\u2014*+\u2022\u2023\u25aa\u25e6\u00b7>#]+|\(?(?:\d{1,3}|[A-Za-z])\))\s+(?:\[[ xX]\]\s+)?"
)
EMOJI_BEFORE, EMOJI_AFTER = re.compile(rf"(?:{EMOJI}+\s*)+"), re.compile(rf"(?:\s*{EMOJI}+)+$")


def is_no_sentence(text: str) -> bool:
    """Whether a text has nothing to translate: no letters but those of URLs, e-mail addresses, tags and code."""
    return not any(map(str.isalpha, text)) or not any(map(str.isalpha, NO_WORDS.sub(" ", text)))


def without_copied_edges(text: str, sentence: Span) -> Span:
    """Return the part of a sentence that is translated, which is empty if it is none.

    Bullets before it, and emoji before and after it, are left out.
    """
    start, end = sentence
    if is_no_sentence(text[start:end]):
        return Span(start, start)
    for pattern in (LIST_MARK, EMOJI_BEFORE):
        found = pattern.match(text, start, end)
        start = found.end() if found else start
    if not text[end - 1].isalnum():
        found = EMOJI_AFTER.search(text, start, end)
        end = found.start() if found else end
    return Span(start, end)
