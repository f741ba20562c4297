"""Base classes for catalogs of apps: messages with placeholders, and the plural forms of the target language.

Programs load these files, so a translation whose placeholders differ from its source's is not written.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn, Protocol

from capsule_mt.formats.entities import REFERENCE, Entities
from capsule_mt.formats.icu import QUOTED, IcuMessage, NotIcuError, has_branches, note_of
from capsule_mt.formats.markup import MARKUP, Markup
from capsule_mt.formats.menu_keys import with_key, without_key
from capsule_mt.formats.plurals import PluralMessage, Rule, rule_of
from capsule_mt.formats.units import FormatError, Translated, Unit, has_other_placeholders, note_of_branches
from capsule_mt.text.keeping import Item, parts_of, placeholders_of
from capsule_mt.text.languages import LANGUAGES, REGION, language_of

# a link of Markdown: its label, and its address with the brackets
LINK = re.compile(r"(?<!!)\[([^\[\]\n]{1,200})(\]\((?:https?:|mailto:|[/#.{%$])[^\s()]*\))")
SYNTAX_REFERENCE = re.compile(r"&(?:apos|#0*39|#[xX]0*27);")  # of an apostrophe, which would quote in ICU


class Message:
    """A message of a catalog. `texts` are its parts to translate, none for one without words and branches.

    `note` says which part is not translated, and why.

    Args:
        fixed: matches what is copied, in addition to the placeholders of `keep`.
        is_icu: whether the message may have ICU branches; they get the plural forms of `rule`.
        markup: the parsed text if it has markup; `escape` is applied to everything outside markup.
        has_key: whether a mark may precede the key of a menu entry, as in "&File".
    """

    def __init__(
        self,
        text: str,
        fixed: "re.Pattern[str] | None" = None,
        is_icu: bool = False,
        rule: Rule | None = None,
        markup: Markup | None = None,
        escape: Callable[[str], str] = str,
        has_key: bool = False,
    ) -> None:
        self._markup, self._escape = markup or Markup(), escape
        self._source = text.strip() if has_key else ""
        if markup is None:
            entities = Entities(without_key(text) if has_key else text, SYNTAX_REFERENCE if is_icu else None)
            self._escape = lambda written: escape(entities.encoded(written))
            patterns = [*([fixed] if fixed else []), *([QUOTED] if is_icu else []), REFERENCE]
            self._add_text(entities.text, patterns)
        self.text = self._markup.text.strip()  # with marks in place of fixed parts
        self._edges = self._markup.text.partition(self.text)[::2] if self.text else ("", "")
        self._is_icu = is_icu
        self._icu: IcuMessage | None = None
        is_copied = not self._markup.has_words and note_of_branches(self.text) != ""
        self.texts = [self.text] if self._markup.has_words or is_copied else []
        self.note = ""
        self._stays = is_copied  # its units only name it
        if is_icu and has_branches(self.text):
            try:
                self._icu = IcuMessage(self.text, rule)
            except NotIcuError as error:
                self.texts, self.note = [self.text], note_of(self.text, error)
                self._stays = not any(map(has_branches, placeholders_of(self.text)))  # else its text is translated
                return
            self.texts, self._stays = self._icu.texts, False

    def _add_text(self, text: str, fixed: "Sequence[re.Pattern[str]]") -> None:
        """Add a text; the label of a Markdown link is translated, its brackets and its address are markup."""
        offset = 0
        for match in LINK.finditer(text):
            self._markup.add_text(text[offset : match.start()], fixed)
            self._markup.open(self._escape("["))
            self._markup.add_text(match[1], fixed)
            self._markup.close(self._escape(match[2]))
            offset = match.end()
        self._markup.add_text(text[offset:], fixed)

    @property
    def numbers(self) -> Mapping[str, str]:
        return {} if self._icu is None else self._icu.numbers

    def filled(self, results: Sequence[Translated]) -> str | None:
        """Return the translated message, `None` if it stays as it is."""
        if self._stays:
            return None
        translation = (
            self._restore(self.text, results[0]) if self._icu is None else self._icu.filled(results, self._restore)
        )
        return None if translation is None else translation.join(map(self._escape, self._edges))

    def _restore(self, text: str, result: Translated) -> str | None:
        if result.text is None or has_other_placeholders(text, result.text) or _tags(text) != _tags(result.text):
            return None
        translation = with_key(self._source, result.text.strip())
        if self._is_icu and self._icu is None and "'{" not in text:
            translation = translation.replace("'{", "\u2019{")  # "'{" would quote the argument
        return self._markup.filled(translation, self._escape, text)


def _tags(text: str) -> list[str]:
    return sorted(part for part in parts_of(text, ("tags",)) if isinstance(part, Item)) if "<" in text else []


# a space may begin a match only after something else: a long run of spaces takes linear time
BAR = re.compile(r"(?:(?<!\s)\s+)?(?<!\\)\|\s*")
SPACED_BAR = re.compile(r"(?<!\s)\s+\|\s+")
IN_BRACES = r"\{[^{}]*\}"


class Choices:
    """A message of several texts with bars between them, such as vue-i18n's "no apples | one apple | {n} apples".

    vue-i18n takes a text by its position, so each is translated by itself, and as many are written.

    Args:
        bar: matches what separates two texts; a bar in braces does not.
        message_of: returns the message of a text.
    """

    def __init__(self, text: str, bar: "re.Pattern[str]", message_of: Callable[[str], Message]) -> None:
        self._parts: list[str | Message] = []  # messages, separators, and texts without words
        offset = 0
        for match in re.finditer(f"{IN_BRACES}|({bar.pattern})", text):
            if match[1] is not None:
                self._add(text[offset : match.start()], message_of)
                self._parts.append(match[1])
                offset = match.end()
        self._add(text[offset:], message_of)

    def _add(self, text: str, message_of: Callable[[str], Message]) -> None:
        message = message_of(text)
        self._parts.append(message if message.texts else text)

    @property
    def _messages(self) -> list[Message]:
        return [part for part in self._parts if isinstance(part, Message)]

    @property
    def texts(self) -> list[str]:
        return [text for message in self._messages for text in message.texts]

    @property
    def note(self) -> str:
        return next((message.note for message in self._messages if message.note), "")

    def filled(self, results: Sequence[Translated]) -> str | None:
        """Return the translated message, `None` if one of its texts stays as it is."""
        remaining = iter(results)
        written: list[str] = []
        for part in self._parts:
            if isinstance(part, Message):
                translation = part.filled([next(remaining) for _ in part.texts])
                if translation is None or translation.count("|") != part.text.count("|"):
                    return None
                part = translation
            written.append(part)
        return "".join(written)


class Plural:
    """A message in several plural forms. `texts` are translated for the plural forms of the target language.

    Args:
        sources: its messages by plural category.
        forms: the numbers n of each form of the target language.
    """

    def __init__(self, sources: Mapping[str, Message], forms: Mapping[str, Sequence[int]]) -> None:
        self._messages = {message.text: message for message in sources.values()}
        self.note = ""
        self._message = PluralMessage({category: message.text for category, message in sources.items()}, forms)
        self.texts, self.numbers = self._message.texts, self._message.numbers

    def filled(self, results: Sequence[Translated]) -> dict[str, str] | None:
        """Return the text of each form, `None` if the message stays as it is."""
        forms = {}
        for name, result in self._message.filled(results).items():
            text = self._messages[self._message.sources[name]].filled([result])
            if text is None:
                return None
            forms[name] = text
        return forms


def is_language_code(text: str) -> bool:
    """Return whether a text is the code of a language, such as "de", "pt-BR" or "zh-Hant-TW", but not "no_results"."""
    match = re.fullmatch(rf"[a-z]{{2,3}}(?:[-_](?:{REGION}|[A-Z][a-z]{{3}})|-[a-z]{{2}})*", text)
    return match is not None and language_of(text) in LANGUAGES


class Edit(NamedTuple):
    """A span of a file, and what replaces it."""

    start: int
    end: int
    text: str


def edited(text: str, edits: Sequence[Edit]) -> str:
    """Return a text with spans replaced."""
    parts, offset = [], 0
    for edit in sorted(edits):
        parts += [text[offset : edit.start], edit.text]
        offset = edit.end
    return "".join([*parts, text[offset:]])


class Translatable(Protocol):
    """A message, or several that stand for one."""

    @property
    def note(self) -> str: ...

    @property
    def texts(self) -> list[str]: ...

    def filled(self, results: Sequence[Translated]) -> Any: ...


class Catalog:
    """A file of messages. Subclasses add messages, each with a function that writes its translation."""

    keep: Sequence[str] = (*MARKUP, "urls")

    def __init__(self) -> None:
        self.units: list[Unit] = []
        self._messages: list[tuple[Translatable, Callable[[Any, bool], None]]] = []

    def write(self, translations: Sequence[Translated]) -> bytes:
        remaining, is_changed = iter(translations), False
        for message, write in self._messages:
            results = [next(remaining) for _ in message.texts]
            translation = message.filled(results)
            if translation is not None:
                write(translation, any(result.needs_review for result in results))
                is_changed = True
        if is_changed:
            self._state_language()
        return self._content()

    def _add(self, message: Translatable, location: str, write: Callable[[Any, bool], None]) -> None:
        """Add a message; `write` takes its translation, a text or one for each form, and whether it needs a review."""
        if message.texts:
            self._messages.append((message, write))
            numbers = getattr(message, "numbers", {})  # of messages with plural forms
            self.units += [Unit(text, location, message.note, numbers.get(text, "")) for text in message.texts]

    def _state_language(self) -> None:
        """Update the language that the file states, if any."""

    def _content(self) -> bytes:
        """Return the bytes of the file with the translations that have been written."""
        raise NotImplementedError


class TextCatalog(Catalog):
    """A catalog whose translations replace spans of the file's text."""

    def __init__(self, text: str, name: str, language: str | None) -> None:
        super().__init__()
        self._text, self._name, self._language = text, name, language
        self._rule = rule_of(language)
        self._edits: list[Edit] = []
        self._last_line = 0, 1  # an offset and its line number

    def _replace(self, start: int, end: int) -> Callable[[str, bool], None]:
        """Return a function that escapes a translation and puts it in place of a span."""
        return lambda text, _: self._edits.append(Edit(start, end, self._escaped(text)))

    def _escaped(self, text: str) -> str:
        """Return a text escaped as the file requires."""
        raise NotImplementedError

    def _content(self) -> bytes:
        return edited(self._text, self._edits).encode("utf-8")

    def _line(self, offset: int) -> int:
        """Return the line number of an offset. Ascending offsets take linear time in total."""
        start, line = self._last_line if offset >= self._last_line[0] else (0, 1)
        self._last_line = offset, line + self._text.count("\n", start, offset)
        return self._last_line[1]

    def _joined(self, text: str, offset: int) -> str:
        """Return a text with each surrogate pair joined into its character; refuse an unpaired surrogate."""
        if text.isascii():
            return text
        try:
            return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
        except UnicodeError:
            self._refuse(offset, "an unpaired surrogate (`\\uD800` to `\\uDFFF`) is not a character")

    def _refuse(self, offset: int, reason: str) -> NoReturn:
        raise FormatError(f"{self._name}, line {self._line(offset)}: {reason}")
