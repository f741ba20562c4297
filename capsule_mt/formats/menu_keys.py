"""The keys of menu entries: the letter after a mark, such as the underscore of "_File"."""

import re

from capsule_mt.text.rules import PLACEHOLDER, TAG, URL

# "_File" in GTK, "&File", "E&xit" and "Match #&1" in Qt: the mark of a menu entry's key; not "R&D", "&amp;", "2>&1" or
# "a=1&b=2"; "C_onnect", but not "user_id"
KEY = re.compile(
    r"(?<!\w)([_&])(?=[^\W\d_])(?!\w+[;=])|(?<![\w>])(&)(?=\d)|(?<=\w)(&)(?=[a-z])(?!\w+[;=])"
    r"|(?:(?<=^[A-Z])|(?<=^[A-Z][a-z])|(?<=^[A-Z][a-z]{2}))(_)(?=[a-z]{2,}(?![\w(]))(?!.*_)"
)
COPIED = rf"{URL}|{TAG}|{PLACEHOLDER}"


def without_key(text: str) -> str:
    """Return a menu entry without the mark before its key, if it has exactly one."""
    return KEY.sub("", text) if len(KEY.findall(text)) == 1 else text


def with_key(source: str, text: str) -> str:
    """Mark the key of a translated menu entry: the letter or digit of its source, or else the first letter.

    Letters of placeholders, tags and the like are never marked.
    """
    if without_key(source) == source:
        return text
    # a mark in what is copied, such as {count}, would break it
    without_copied = re.sub(COPIED, lambda match: " " * len(match[0]), text)
    letters = [i for i, character in enumerate(without_copied) if character.isalnum()]
    if not letters:
        return text
    match = KEY.search(source)
    assert match is not None
    key = source[match.end()].casefold()
    word_starts = [i for i in letters if not text[i - 1 : i].isalnum()]
    offset = next((i for i in (*word_starts, *letters) if text[i].casefold() == key), letters[0])
    return text[:offset] + match[0] + text[offset:]
