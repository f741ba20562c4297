"""A text, or its translation, as rules read it."""

from functools import cached_property

from capsule_mt.checks.results import CheckKind
from capsule_mt.checks.word_lists import words_in
from capsule_mt.text.entities import without_entities
from capsule_mt.text.keeping import Item, bare, parts_of
from capsule_mt.text.sentences import language_code
from capsule_mt.text.words import WORDS

KEPT_KINDS: tuple[CheckKind, ...] = ("tags", "urls", "placeholders")


class CheckedText:
    """A text as rules read it.

    text: with characters instead of entities.
    items: its placeholders, tags and URLs, without letters glued to placeholders.
    prose: the text with a space for each item.
    language: its code without script or region, such as "de"; `None` if it is unknown.
    vocabulary: the words of its language that rules look for.
    """

    def __init__(self, text: str, language: str | None) -> None:
        self.text = without_entities(text)
        self.items, self.prose = _items_and_prose(self.text)
        self.language = language_code(language)
        self.vocabulary = words_in(self.language)

    @cached_property
    def words(self) -> list[str]:
        """The words and marks of the prose."""
        return WORDS.findall(self.prose)


def _items_and_prose(text: str) -> tuple[list[Item], str]:
    items, prose = list[Item](), list[str]()
    for part in parts_of(text, KEPT_KINDS):
        if isinstance(part, Item):
            items.append(bare(part))
            part = part.replace(items[-1], " ", 1)
        prose.append(part)
    return items, "".join(prose)
