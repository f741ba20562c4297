"""HTML entities in a text, such as "&eacute;": the model reads their characters, and the translation gets them back.

"&nbsp;" mostly does not: it is read as a plain space. "&lt;" and "&gt;" stay: as characters, they would be tags.
"""

import re
from functools import lru_cache

ENTITY = re.compile(r"&(?:#\d{1,7}|#[xX][\da-fA-F]{1,6}|[A-Za-z]\w{1,31});")


@lru_cache(maxsize=1024)
def character_of(entity: str) -> str | None:
    """Return the character of an entity; `None` for "&lt;", "&gt;", two characters, and what HTML does not know."""
    from html import unescape  # late: few texts have entities

    character = unescape(entity)
    return character if len(character) == 1 and character not in "<>\ufffd" else None


def without_entities(text: str) -> str:
    """Return a text with the characters of its entities, as far as `character_of` has them."""
    return ENTITY.sub(lambda match: character_of(match[0]) or match[0], text)


def with_entities(translation: str, source: str) -> str:
    """Return a translation with entities for the characters that its source writes only as entities."""
    entities = ENTITY.findall(source)
    plain = ENTITY.sub(" ", source)  # a space is never written as an entity
    entity_of = {character: entity for entity in entities if (character := character_of(entity) or " ") not in plain}
    if not entity_of:
        return translation
    written = re.compile(rf"{ENTITY.pattern}|[{''.join(map(re.escape, entity_of))}]")
    return written.sub(lambda match: entity_of.get(match[0], match[0]), translation)
