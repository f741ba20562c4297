"""HTML entities in a text, such as "&nbsp;": the model reads their characters, and the translation gets them back.

"&lt;" and "&gt;" stay as they are: as characters, they would be tags.
"""

import re
from functools import lru_cache

ENTITY = re.compile(r"&(?:#\d{1,7}|#[xX][\da-fA-F]{1,6}|[A-Za-z]\w{1,31});")
NO_BREAK_AFTER_NUMBER = r"(?<![\d.,])(\d[\d.,]*)(&nbsp;|&#160;|&#xA0;)"


@lru_cache(maxsize=1024)
def character_of(entity: str) -> str | None:
    """Return the character of an entity; `None` for "&lt;", "&gt;" and what HTML does not know."""
    from html import unescape  # late: few texts have entities

    character = unescape(entity)
    return character if len(character) == 1 and character not in "<>\ufffd" else None


def has_entities(text: str) -> bool:
    """Whether a text has an entity that `character_of` knows: a fast answer for most texts."""
    return "&" in text and any(map(character_of, ENTITY.findall(text)))


def without_entities(text: str) -> str:
    """Return a text with the characters of its entities."""
    return ENTITY.sub(lambda match: character_of(match[0]) or match[0], text) if has_entities(text) else text


def with_entities(translation: str, source: str) -> str:
    """Return a translation with entities for the characters that its source writes only as entities.

    A no-break space comes back between a number and the next word.
    """
    if not has_entities(source):
        return translation
    plain = ENTITY.sub(" ", source)
    entities = dict.fromkeys(ENTITY.findall(source))
    entity_of = {character: entity for entity in entities if (character := character_of(entity)) not in (None, " ")}
    missing = "".join(re.escape(str(character)) for character in entity_of if character not in plain)
    if missing:
        written = re.compile(rf"{ENTITY.pattern}|[{missing}]")
        translation = written.sub(lambda match: entity_of.get(match[0], match[0]), translation)
    for number, space in re.findall(NO_BREAK_AFTER_NUMBER, source):
        translation = re.sub(rf"(?<![\d.,]){re.escape(number)} (?=\w)", number + space, translation, count=1)
    return translation
