"""Catalogs in JSON: of i18next, vue-i18n, go-i18n and the like, of Chrome (messages.json), and of Flutter (.arb).

Layout and everything but texts and the keys of plurals stay as they are: also numbers, `true` and `null`. A file
with more numbers and the like than texts is not a catalog, and is refused.
"""

import json
import re
from collections.abc import Callable, Sequence
from json.decoder import JSONDecodeError, scanstring  # type: ignore[attr-defined]  # what `json` itself reads strings with
from typing import Any, NamedTuple

from capsule_mt.formats.catalog import BAR, SPACED_BAR, Choices, Edit, Message, Plural, TextCatalog, is_language_code
from capsule_mt.formats.format import Format
from capsule_mt.formats.icu import has_branches
from capsule_mt.formats.plurals import CATEGORIES, NUMBER
from capsule_mt.formats.units import BY_HAND, Translated
from capsule_mt.text.keeping import placeholders_of

MAX_DEPTH = 50
SPACE = re.compile(r"(?:[ \t\r\n]+|//[^\n]*|/\*(?s:.*?)\*/)*")  # browsers read comments in messages.json
OTHER_VALUE = re.compile(r"(?:-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null)(?![\w.+-])")
SUFFIX = re.compile(rf"(.+)(?<!_ordinal)_({'|'.join(CATEGORIES)})")  # of i18next's plurals
I18N = re.compile(r"\$t\([^()]*\)|\$\d+")  # another message of i18next, an argument of MediaWiki
# what only vue-i18n has: a link to another message, and a sign in quotes and braces
VUE = re.compile(r"(?<![\w:/])@(?:\.\w+)?:[\w(]|\{'[^']*'\}")
# a choice of words in MediaWiki: its start, its forms
WIKI_CHOICE = re.compile(r"(\{\{(?:plural|gender|grammar):[^{}|]*\|)([^{}]*)\}\}", re.I)
MAX_WIKI_CHOICES = 3  # in one message
CHROME = re.compile(r"\$\w+\$|\$\d|\$\$")  # the placeholders of messages.json
GO_METADATA = ("id", "hash", "description", "leftDelim", "rightDelim")  # beside the plural forms of a go-i18n message

JSON = Format(
    name="json",
    suffixes=(".json",),
    title="Catalogs in JSON: of i18next, vue-i18n, go-i18n, MediaWiki and Chrome",
    reader=lambda file: JsonCatalog(file.text, file.name, file.language),
    translated="texts, also nested ones and lists; plurals (`_one`, `_other`; objects with `one` and `other`; "
    "branches of ICU) in the plural forms of the target language; the parts between bars (` | `), each by itself; the "
    "`locale` of the file",
    unchanged="other keys, layout, comments, metadata, `$t(...)`, `$USER$`, numbers, `true`, `null`",
    limits="a file with more numbers and switches than texts is refused; a message of MediaWiki with more than three "
    "choices stays as it is",
    judges="json, translate-toolkit",
)
ARB = Format(
    name="arb",
    suffixes=(".arb",),
    title="Catalogs of Flutter",
    reader=lambda file: JsonCatalog(file.text, file.name, file.language, is_arb=True),
    translated="texts; branches of ICU in the plural forms of the target language; `@@locale`",
    unchanged="keys, layout, metadata (`@key`)",
    limits="a branch that cannot be read stays in the source language",
    judges="json, pyicumessageformat",
)


class Member(NamedTuple):
    """A value with its span, which starts at its key if it has one."""

    key: str
    start: int
    value_start: int
    end: int
    value: "str | list[Member] | dict[str, Member] | None"


Neighbours = tuple[Member | None, Member | None]  # the members before and after one in its object


class Group(NamedTuple):
    """A message in plural forms: its members by category, the forms of the target language, and their keys."""

    members: dict[str, Member]
    forms: dict[str, list[int]]
    keys: dict[str, str]

    @property
    def first(self) -> Member:
        """The member that stands first in the file."""
        return min(self.members.values(), key=lambda member: member.start)


class WikiChoice:
    """A message of MediaWiki that chooses words, such as "There {{PLURAL:$1|is one hat|are $1 hats}}".

    The whole sentence is translated once for each form, since words outside a choice depend on it, too. A message with
    too many choices stays as it is.
    """

    def __init__(self, text: str, message_of: Callable[[str], Message]) -> None:
        self._parts: list[str | Message | WikiChoice] = []
        self.note, self._copied = "", list[str]()
        match = WIKI_CHOICE.search(text)
        if match is None:
            self._parts.append(text)
            return
        if len(WIKI_CHOICE.findall(text)) > MAX_WIKI_CHOICES:
            self.note = f"a message with more than {MAX_WIKI_CHOICES} choices stays as it is; {BY_HAND}"
            self._copied = [text]  # its unit only names it
            return
        for index, form in enumerate(match[2].split("|")):
            number = re.match(r"\s*\d+=", form)  # a form for exactly this number
            self._parts.append(("|" if index else match[1]) + (number[0] if number else ""))
            variant = text[: match.start()] + form[number.end() if number else 0 :] + text[match.end() :]
            part = WikiChoice(variant, message_of) if WIKI_CHOICE.search(variant) else message_of(variant)
            self._parts.append(part if part.texts else variant)
        self._parts.append("}}")

    @property
    def texts(self) -> list[str]:
        return self._copied or [text for part in self._parts if not isinstance(part, str) for text in part.texts]

    def filled(self, results: Sequence[Translated]) -> str | None:
        """Return the translated message, `None` if one of its sentences stays as it is."""
        if self._copied:
            return None
        remaining = iter(results)
        written: list[str] = []
        for part in self._parts:
            if isinstance(part, str):
                written.append(part)
                continue
            translation = part.filled([next(remaining) for _ in part.texts])
            if translation is None or (isinstance(part, Message) and "|" in translation):
                return None
            written.append(translation)
        return "".join(written)


class Superseded:
    """A member whose key occurs again in its object: it stays as it is, and its unit only names it."""

    def __init__(self, key: str) -> None:
        self.texts = [key]
        self.note = (
            f"the key {key[:40]!r} occurs again below; programs read its last value, so this one stays as it is"
        )

    def filled(self, results: Sequence[Translated]) -> None:
        return None


class JsonCatalog(TextCatalog):
    """A catalog in JSON; `is_arb` if it is of Flutter."""

    def __init__(self, text: str, name: str, language: str | None = None, is_arb: bool = False) -> None:
        super().__init__(text, name, language)
        self._num_texts = self._num_other_values = 0
        self._is_arb, self._superseded = is_arb, list[Member]()
        self._is_vue = VUE.search(text) is not None
        start = self._skip(0)
        root, end = self._read("", start, start, 0)
        if not isinstance(root.value, dict):
            self._refuse(start, "a catalog is one object, `{...}`")
        if self._skip(end) != len(text):
            self._refuse(self._skip(end), "the file goes on after its object")
        if self._num_other_values > self._num_texts:
            self._refuse(
                start,
                f"a catalog holds mostly texts, this file has {self._num_texts} of them and {self._num_other_values} "
                "numbers and the like: copy its texts into a .txt",
            )
        for member in sorted(self._superseded, key=lambda member: member.start):
            line = f"line {self._line(member.start)}"
            self._add(Superseded(member.key), line, self._replace(member.start, member.end))
        self._locale = root.value.get("@@locale" if is_arb else "locale")  # the latter as in Angular's
        if self._locale is not None and not is_language_code(str(self._locale.value)):
            self._locale = None
        if is_arb:
            for key, member in root.value.items():
                if not key.startswith("@"):
                    self._add_value(member, None)
        elif root.value and all(map(_is_chrome, root.value.values())):
            messages = [member.value["message"] for member in root.value.values() if isinstance(member.value, dict)]
            # Chrome does not have branches: a catalog with some, such as Lighthouse's, is in ICU syntax
            is_icu = any(has_branches(str(message.value)) for message in messages)
            for message in messages:
                self._add_value(message, I18N if is_icu else CHROME)
        else:
            self._add_value(root, I18N)

    def _add_value(self, member: Member, fixed: "re.Pattern[str] | None") -> None:
        """Add the texts of a value; an object may have plurals."""
        if isinstance(member.value, str):
            message: Message | Choices | WikiChoice = self._message_of(member.value, fixed)
            # vue-i18n and Docusaurus ("One post|{count} posts") need no spaces; elsewhere "a|b" may be code
            bar = BAR if self._is_vue or NUMBER.search(member.value) else SPACED_BAR
            if fixed is I18N and WIKI_CHOICE.search(member.value):
                message = WikiChoice(member.value, lambda text: self._message_of(text, fixed))
            elif fixed is I18N and bar.search(member.value) and not has_branches(member.value):
                message = Choices(member.value, bar, lambda text: self._message_of(text, fixed))
            self._add(message, f"line {self._line(member.start)}", self._replace(member.value_start, member.end))
        elif isinstance(member.value, list):
            for item in member.value:
                self._add_value(item, fixed)
        elif isinstance(member.value, dict):
            groups = self._groups(member.value) if fixed is I18N else []
            group_of = {member.key: group for group in groups for member in group.members.values()}
            ordered = [None, *member.value.values(), None]
            neighbours = {
                child.key: (ordered[index], ordered[index + 2]) for index, child in enumerate(member.value.values())
            }
            for child in member.value.values():
                if child is self._locale or child.key.startswith("@"):  # metadata, as in MediaWiki
                    continue
                group = group_of.get(child.key)
                if group is None and child.key in GO_METADATA and fixed is I18N and _is_plural(member.value):
                    continue
                if group is None:
                    self._add_value(child, fixed)
                elif child is group.first:
                    self._add_group(neighbours, group)

    def _message_of(self, text: str, fixed: "re.Pattern[str] | None") -> Message:
        is_chrome = fixed is CHROME
        return Message(text, fixed, is_icu=not is_chrome, rule=self._rule, has_key=is_chrome)

    def _groups(self, members: dict[str, Member]) -> "list[Group]":
        """Return the plurals of an object.

        The object itself may be one: its keys are the categories. Else the plurals are those of i18next: "key_one" and
        "key_other", or before version 21 "key" and "key_plural".
        """
        if self._rule is None:
            return []
        if _is_plural(members):
            texts = {name: member for name, member in members.items() if name in CATEGORIES}
            if len(texts) == 1:  # a go-i18n message that does not depend on a number
                return []
            forms = self._rule.forms_for(texts)
            return [Group(texts, forms, {name: name for name in forms})]
        by_stem: dict[str, dict[str, Member]] = {}
        for key, member in members.items():
            match = SUFFIX.fullmatch(key)
            if match is not None:
                by_stem.setdefault(match[1], {})[match[2]] = member
        groups = []
        for stem, texts in by_stem.items():
            if not all(isinstance(member.value, str) for member in texts.values()):
                continue
            if "other" in texts and (len(texts) > 1 or "count" in str(texts["other"].value)):
                forms = self._rule.forms_for(texts)
                groups.append(Group(texts, forms, {name: f"{stem}_{name}" for name in forms}))
        for key, plural in members.items():
            stem = key.removesuffix("_plural")
            singular = members.get(stem)
            if (
                key != stem
                and singular is not None
                and isinstance(singular.value, str)
                and isinstance(plural.value, str)
            ):
                forms = {name: self._rule.numbers[name] for name in self._rule.categories}
                keys = {name: f"{stem}_{index}" for index, name in enumerate(forms)}
                if tuple(forms) == ("one", "other"):
                    keys = {"one": stem, "other": key}
                groups.append(Group({"one": singular, "other": plural}, forms, keys))
        return groups

    def _add_group(self, neighbours: dict[str, Neighbours], group: "Group") -> None:
        sources = {category: Message(str(member.value), I18N) for category, member in group.members.items()}
        first = group.first

        def write(texts: dict[str, str], _: bool) -> None:
            key_end = self._string(first.start)[1]
            colon = self._text[key_end : first.value_start]
            written = [f"{_quoted(group.keys[name])}{colon}{_quoted(text)}" for name, text in texts.items()]
            previous, following = neighbours[first.key]
            separator = ", "
            if following is not None:
                separator = self._text[first.end : following.start]
            elif previous is not None:
                separator = self._text[previous.end : first.start]
            self._edits.append(Edit(first.start, first.end, separator.join(written)))
            for member in group.members.values():
                neighbour = neighbours[member.key][0]
                if member is not first and neighbour is not None:  # with the comma before it
                    self._edits.append(Edit(neighbour.end, member.end, ""))

        self._add(Plural(sources, group.forms), f"line {self._line(first.start)}", write)

    def _state_language(self) -> None:
        locale = self._locale
        if locale is not None and self._language:
            language = self._language if locale.key == "@@locale" else self._language.replace("_", "-")
            self._edits.append(Edit(locale.value_start, locale.end, _quoted(language)))

    def _escaped(self, text: str) -> str:
        return _quoted(text)

    def _read(self, key: str, start: int, offset: int, depth: int) -> tuple[Member, int]:
        """Return the value at an offset, and the offset after it."""
        text = self._text
        sign = text[offset : offset + 1]
        if depth > MAX_DEPTH:
            self._refuse(offset, f"nested more than {MAX_DEPTH} deep")
        value: Any = None
        if sign == '"':
            value, end = self._string(offset)
            self._num_texts += 1
        elif sign == "{":
            value, end = self._read_object(offset, depth)
        elif sign == "[":
            value, end = self._read_list(offset, depth)
        elif (other := OTHER_VALUE.match(text, offset)) is not None:
            end = other.end()
            self._num_other_values += other[0] != "null"
        else:
            shown = re.sub(r"[\s,\]}].*", "", text[offset : offset + 20], flags=re.S)
            self._refuse(
                offset,
                f"a value is expected, such as a text in double quotes, got {shown!r}",
            )
        return Member(key, start, offset, end, value), end

    def _read_object(self, offset: int, depth: int) -> tuple[dict[str, Member], int]:
        members: dict[str, Member] = {}
        offset = self._skip(offset + 1)
        while not self._text.startswith("}", offset):
            if members:
                offset = self._skip(self._expect(",", offset))
            if not self._text.startswith('"', offset):
                self._refuse(offset, "a key in double quotes is expected")
            key, end = self._string(offset)
            value_start = self._skip(self._expect(":", self._skip(end)))
            if key in members:
                if not self._is_arb:  # whose plurals need the members before and after them
                    self._refuse(offset, f"the key {key[:40]!r} occurs twice")
                self._superseded.append(members.pop(key))
            members[key], offset = self._read(key, offset, value_start, depth + 1)
            offset = self._skip(offset)
        return members, offset + 1

    def _read_list(self, offset: int, depth: int) -> tuple[list[Member], int]:
        items: list[Member] = []
        offset = self._skip(offset + 1)
        while not self._text.startswith("]", offset):
            if items:
                offset = self._skip(self._expect(",", offset))
            item, offset = self._read("", offset, offset, depth + 1)
            items.append(item)
            offset = self._skip(offset)
        return items, offset + 1

    def _string(self, offset: int) -> tuple[str, int]:
        try:
            string, end = scanstring(self._text, offset + 1, True)
        except JSONDecodeError as error:
            self._refuse(error.pos, error.msg)
        return self._joined(string, offset), end

    def _skip(self, offset: int) -> int:
        match = SPACE.match(self._text, offset)
        assert match is not None
        return match.end()

    def _expect(self, sign: str, offset: int) -> int:
        if not self._text.startswith(sign, offset):
            self._refuse(offset, f"`{sign}` is expected, got {self._text[offset : offset + 10]!r}")
        return offset + 1


def _is_plural(members: dict[str, Member]) -> bool:
    """Return whether an object is a message in plural forms: of go-i18n, or with a placeholder in its general form."""
    general = members.get("other")
    if general is None or not all(isinstance(member.value, str) for member in members.values()):
        return False
    if not members.keys() <= {*CATEGORIES, *GO_METADATA}:
        return False
    return not members.keys() <= {*CATEGORIES} or (len(members) > 1 and bool(placeholders_of(str(general.value))))


def _is_chrome(member: Member) -> bool:
    message = member.value.get("message") if isinstance(member.value, dict) else None
    return message is not None and isinstance(message.value, str)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
