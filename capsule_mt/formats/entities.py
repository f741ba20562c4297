"""Character references of HTML in the messages of a catalog, such as "&nbsp;": the model reads the characters."""

import html
import re
from html.entities import html5

REFERENCE = re.compile(r"&(?:#\d{1,7}|#[xX][\da-fA-F]{1,6}|[A-Za-z][A-Za-z\d]{1,31});")


class Entities:
    """A text with characters in place of its references; `encoded` writes them back.

    A reference stays if its character also stands in the text as it is, since nothing would tell the two apart.

    Args:
        stays: matches references that stay in any case.
    """

    def __init__(self, text: str, stays: "re.Pattern[str] | None" = None) -> None:
        references = {match[0] for match in REFERENCE.finditer(text)} if "&" in text else set()
        other_characters = set(REFERENCE.sub("", text)) if references else set()
        self._written: dict[str, str] = {}  # the reference of each character
        for reference in sorted(references):
            is_valid = reference[1] == "#" or reference[1:] in html5
            character = html.unescape(reference)
            if (
                is_valid
                and len(character) == 1
                and character not in other_characters
                and not (stays and stays.fullmatch(reference))
            ):
                self._written.setdefault(character, reference)
        self._characters = {reference: character for character, reference in self._written.items()}
        self.text = REFERENCE.sub(lambda match: self._characters.get(match[0], match[0]), text)

    def encoded(self, text: str) -> str:
        """Return a text with the references in place of their characters."""
        return "".join(self._written.get(character, character) for character in text) if self._written else text
