"""The items of a text that a translation keeps, by the keep rows of the table: for files, checks and translations."""

import re
from collections import Counter
from collections.abc import Collection

from capsule_mt.text.rewriting import keep_edits
from capsule_mt.text.rules import BARE_PLACEHOLDERS, NON_WORDS


class Item(str):
    """A part of a text that is kept, and its `kind`."""

    kind: str

    def __new__(cls, text: str, kind: str) -> "Item":
        item = super().__new__(cls, text)
        item.kind = kind
        return item


def parts_of(text: str, kinds: Collection[str]) -> list[str]:
    """Cut a text into strings and `Item`s of these kinds; joined they are the text."""
    parts: list[str] = []
    end = 0
    for edit in keep_edits(text, kinds):
        parts += (text[end : edit.start], Item(text[edit.start : edit.end], edit.kind))
        end = edit.end
    return [part for part in [*parts, text[end:]] if part]


def placeholders_of(text: str) -> Counter[str]:
    """Count the placeholders of a text, without what is glued to them, which may be translated: "{}th" and "{}."."""
    items = (part for part in parts_of(text, ("tags", "urls", "placeholders")) if isinstance(part, Item))
    return Counter(bare(item) for item in items if item.kind == "placeholders")


def bare(item: Item) -> Item:
    """Return a placeholder without what is glued to it, and any other item as it is."""
    match = re.search(BARE_PLACEHOLDERS, item) if item.kind == "placeholders" else None
    return Item(match[0], item.kind) if match else item


def lacks_words(text: str) -> bool:
    """Whether a text has nothing to translate: no letters outside the items of `NON_WORDS`, such as URLs and code."""
    return not any(map(str.isalpha, text)) or not any(map(str.isalpha, without_items(text, " ", NON_WORDS)))


def without_items(text: str, character: str, kinds: Collection[str]) -> str:
    """Return a text of the same length whose items consist of `character` alone."""
    return "".join(character * len(part) if isinstance(part, Item) else part for part in parts_of(text, kinds))
