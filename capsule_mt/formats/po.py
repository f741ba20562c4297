"""Catalogs of gettext (.po, .pot): fills in missing translations, and leaves existing ones as they are.

If a translation fails a check, its entry gets the flag `fuzzy`: gettext ignores it until a person removes the flag.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from capsule_mt.formats.entities import Entities
from capsule_mt.formats.format import Format
from capsule_mt.formats.menu_keys import with_key, without_key
from capsule_mt.formats.plurals import PluralMessage, numbers_of_forms, rule_of
from capsule_mt.formats.units import FormatError, Translated, Unit, note_of_branches
from capsule_mt.text.keeping import lacks_words
from capsule_mt.text.languages import is_other_language

FIELD = re.compile(r"(msgctxt|msgid_plural|msgid|msgstr(?:\[\d\])?)\s+(\"(?:[^\"\\]|\\.)*\")\s*")
CONTINUATION = re.compile(r"\s*(\"(?:[^\"\\]|\\.)*\")\s*")
ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}
NUMBER_OF_PLURALS = re.compile(r"nplurals\s*=\s*(\d+)")
PLURAL = re.compile(r"plural\s*=([^;]*)")
LANGUAGE = re.compile(r"^Language:[ \t]*(\w.*)$", re.M)
BOUNDARY = "\0"  # between the singular and the plural of a message: a catalog does not hold it
MAX_PLURALS = 10  # Arabic has 6; msgstr[9] is the last

FORMAT = Format(
    name="po",
    suffixes=(".po", ".pot"),
    title="Catalogs of gettext",
    reader=lambda file: PoFile(file.text, file.name, file.language),
    has_flags=True,
    needs_line_feeds=True,
    keeps_mark=False,  # gettext refuses one
    declaration=rb"charset=([\w.:-]+)",
    translated="empty entries, each plural form of the target language, menu keys (`_File`, `&File`)",
    unchanged="translated and fuzzy entries, comments, obsolete entries",
    limits="a catalog with translations into another language is refused; an entry to check becomes `fuzzy`",
    judges="`msgfmt -c`, polib",
)


@dataclass
class Entry:
    """A message: its lines in the file, and the values of its fields."""

    line: int
    lines: list[str] = field(default_factory=list)
    fields: dict[str, str] = field(default_factory=dict)

    @property
    def is_fuzzy(self) -> bool:
        return any(line.startswith("#,") and "fuzzy" in _flags(line) for line in self.lines)

    @property
    def msgstrs(self) -> list[str]:
        return [name for name in self.fields if name.startswith("msgstr")]

    @property
    def has_text(self) -> bool:
        return any(self.fields[name] for name in self.msgstrs)


class PoFile:
    """A catalog. Translated and fuzzy texts, comments and obsolete entries stay as they are."""

    keep = ("placeholders", "tags", "urls")

    def __init__(self, text: str, name: str = "the catalog", language: str | None = None) -> None:
        self._ending = "\r\n" if "\r\n" in text else "\n"
        self._entries = _entries(text.replace("\r\n", "\n"), name)
        self._name = name
        headers = (entry for entry in self._entries if entry.fields.get("msgid") == "" and "msgstr" in entry.fields)
        self._header = next(headers, None)
        self._header_value = self._header.fields["msgstr"] if self._header else ""
        self._header_line = self._header.line if self._header else 1
        self._language, self._is_of_other_language = self._check_language(language)
        self._plural_forms: str | None = None  # to be added to the header; `None`: it has them, or needs none
        self._forms: dict[str, list[int]] = {}
        self.units: list[Unit] = []
        # entries to translate; without `Entities`, one whose text stays, to be named by its unit
        self._pending: list[tuple[Entry, PluralMessage | None, Entities | None]] = []
        for entry in self._entries:
            if not entry.fields.get("msgid") or not entry.msgstrs or (entry.is_fuzzy and entry.has_text):
                continue
            if all(entry.fields[name] for name in entry.msgstrs):
                continue
            sources = [entry.fields[name] for name in ("msgid", "msgid_plural") if name in entry.fields]
            if all(map(lacks_words, map(without_key, sources))):
                if note_of_branches(sources[0]):
                    self._pending.append((entry, None, None))
                    self.units.append(Unit(sources[0], f"line {entry.line}"))
                continue
            entities = Entities(BOUNDARY.join(map(without_key, sources)))
            texts, message, numbers = entities.text.split(BOUNDARY), None, dict[str, str]()
            if len(sources) == 2:
                self._forms = self._forms or self._read_forms()
                message = PluralMessage({"one": texts[0], "other": texts[1]}, self._forms)
                texts, numbers = message.texts, message.numbers
            self._pending.append((entry, message, entities))
            self.units += [Unit(text, f"line {entry.line}", number=numbers.get(text, "")) for text in texts]
        if self._is_of_other_language and self.units:
            old = LANGUAGE.search(self._header_value)
            note = f"the header's `{old[0].strip()[:50] if old else ''}` becomes `Language: {self._language}`"
            notes = note, note_of_branches(self.units[0].text)
            self.units[0] = self.units[0]._replace(note="; ".join(filter(None, notes)))

    def write(self, translations: Sequence[Translated]) -> bytes:
        remaining, is_changed = iter(translations), False
        for entry, message, entities in self._pending:
            if entities is None:
                next(remaining)
                continue
            if message is None:
                results = {"msgstr": next(remaining)}
            else:
                results = message.filled([next(remaining) for _ in message.texts])
            values = {name: entry.fields.get(name, "") for name in results}
            needs_review = False
            for name, result in results.items():
                if result.text is not None and not values[name]:
                    is_plural = "msgid_plural" in entry.fields and name != "msgstr[0]"
                    values[name] = _adapted_to(
                        entry.fields["msgid_plural" if is_plural else "msgid"], entities.encoded(result.text)
                    )
                    needs_review |= result.needs_review
            if all(values.values()):
                _rewrite(entry, values, needs_review)
                is_changed = True
        if is_changed:
            self._complete_header()
        written = "\n".join(line for entry in self._entries for line in entry.lines)
        return written.replace("\n", self._ending).encode("utf-8")

    def _check_language(self, target: str | None) -> tuple[str | None, bool]:
        """Return the language of the translations, and whether the header states another one.

        A catalog with translations into another language is refused. One without any, such as the `en.po` of a
        program in English, is a template.
        """
        match = LANGUAGE.search(self._header_value)
        if match is None:
            return target, False
        header_language = match[1].strip()
        if not is_other_language(header_language, target):
            return header_language, False
        if any(entry.has_text for entry in self._entries if entry.fields.get("msgid")):
            raise FormatError(
                f"{self._name}, line {self._header_line}: the catalog is for `Language: {header_language[:40]}`, "
                f"but the model translates into {target}: use a catalog for {target}, or the template (.pot)"
            )
        return target, True

    def _read_forms(self) -> dict[str, list[int]]:
        """Return the numbers n of each plural form, from the header or from the language's rule."""
        rule = rule_of(self._language)
        count = NUMBER_OF_PLURALS.search(self._header_value)
        if count is None or (self._is_of_other_language and rule is not None):
            if rule is None:
                language = (self._language or "its language")[:40]
                raise FormatError(
                    f"{self._name}, line {self._header_line}: the plural forms of {language} "
                    "are not known: write them into the header as `Plural-Forms: nplurals=2; plural=(n != 1);`"
                )
            self._plural_forms = rule.header
            return _named_forms(numbers_of_forms(rule.expression, len(rule.categories)))
        digits, expression = count[1], PLURAL.search(self._header_value)
        if len(digits) > 4 or not 1 <= int(digits) <= MAX_PLURALS:
            raise FormatError(
                f"{self._name}, line {self._header_line}: `nplurals` must be 1 to {MAX_PLURALS}, got {digits[:40]}"
            )
        try:
            return _named_forms(numbers_of_forms(expression[1].strip() if expression else "", int(digits)))
        except (ValueError, RecursionError) as error:
            raise FormatError(
                f"{self._name}, line {self._header_line}: `plural` must be an expression of C with a value below "
                f"nplurals={digits} for every n ({str(error)[:80]})"
            ) from None

    def _complete_header(self) -> None:
        """Set the encoding to UTF-8, and add the language and its plural forms if the header lacks them."""
        if self._header is None:  # gettext reads a catalog without a header as ASCII
            self._header = Entry(1, ['msgid ""', 'msgstr ""', ""], {"msgid": "", "msgstr": ""})
            self._header_value = "Content-Type: text/plain; charset=UTF-8\nContent-Transfer-Encoding: 8bit\n"
            self._entries.insert(0, self._header)
        lines = re.sub(r"(charset=)[\w.:-]+", r"\g<1>UTF-8", self._header_value).split("\n")
        can_replace = {"Plural-Forms": True, "Language": self._is_of_other_language}
        for name, value in (("Language", self._language), ("Plural-Forms", self._plural_forms)):
            index = next((index for index, line in enumerate(lines) if line.startswith(f"{name}:")), None)
            if value and index is None:
                lines.insert(len(lines) - 1, f"{name}: {value}")
            elif value and index is not None and (can_replace[name] or lines[index].strip() == f"{name}:"):
                lines[index] = f"{name}: {value}"
        is_template = self._header.is_fuzzy and self._language is not None
        if "\n".join(lines) != self._header.fields["msgstr"] or is_template:
            _rewrite(self._header, {"msgstr": "\n".join(lines)}, self._header.is_fuzzy and not is_template)


def _named_forms(numbers: list[list[int]]) -> dict[str, list[int]]:
    return {f"msgstr[{form}]": numbers_of_form for form, numbers_of_form in enumerate(numbers)}


def _entries(text: str, name: str) -> list[Entry]:
    """Cut a catalog at blank lines, and before a `msgid` or comment that follows a `msgstr`."""
    entries = [Entry(1)]
    last_field = ""
    for line_number, line in enumerate(text.split("\n"), start=1):
        begins_entry = line.startswith(("#", "msgctxt", "msgid ", 'msgid"')) and entries[-1].msgstrs
        if begins_entry or not line.strip():
            entries.append(Entry(line_number))
            last_field = ""
        entry = entries[-1]
        if not entry.fields:
            entry.line = line_number
        entry.lines.append(line)
        if not line.strip() or line.startswith("#"):
            continue
        start, continuation = FIELD.fullmatch(line), CONTINUATION.fullmatch(line)
        if start is not None:
            last_field = start[1]
            entry.fields[last_field] = _unquoted(start[2])
        elif continuation is not None and last_field:
            entry.fields[last_field] += _unquoted(continuation[1])
        else:
            raise FormatError(
                f'{name}, line {line_number}: a catalog has `msgid "..."` and `msgstr "..."`, got {line[:80]!r}'
            )
    return entries


def _rewrite(entry: Entry, values: dict[str, str], is_fuzzy: bool) -> None:
    """Replace the `msgstr`s of an entry, and set or clear its flag `fuzzy`."""
    start = next(index for index, line in enumerate(entry.lines) if line.startswith("msgstr"))
    end = max(index for index, line in enumerate(entry.lines) if line.startswith(("msgstr", '"'))) + 1
    lines_before = [line for line in entry.lines[:start] if is_fuzzy or not line.startswith("#|")]
    index = next(index for index, line in enumerate(lines_before) if line.startswith(("#,", "#|", "#~", "msg")))
    flags = [flag for line in lines_before if line.startswith("#,") for flag in _flags(line) if flag != "fuzzy"]
    lines_before = [line for line in lines_before if not line.startswith("#,")]
    if is_fuzzy or flags:
        lines_before.insert(index, f"#, {', '.join(['fuzzy'] * is_fuzzy + flags)}")
    msgstr_lines = [line for name, text in values.items() for line in _quoted(name, text)]
    entry.lines = [*lines_before, *msgstr_lines, *entry.lines[end:]]


def _flags(line: str) -> list[str]:
    return [flag.strip() for flag in line[2:].split(",") if flag.strip()]


def _adapted_to(source: str, text: str) -> str:
    """Return a translation with its source's menu key and outer line breaks: gettext compares the latter."""
    text = with_key(source, text.strip("\n"))
    return "\n" * source.startswith("\n") + text + "\n" * source.endswith("\n")


def _unquoted(text: str) -> str:
    return re.sub(r"\\(.)", lambda match: ESCAPES.get(match[1], match[1]), text[1:-1])


def _quoted(name: str, text: str) -> list[str]:
    """Return the lines of a field. A value of several lines starts on the line after the name."""
    names = {character: name for name, character in ESCAPES.items()}
    lines = [
        '"' + re.sub(r'[\\"\n\t\r\a\b\f\v]', lambda match: "\\" + names.get(match[0], match[0]), line) + '"'
        for line in text.splitlines(keepends=True)
    ]
    if len(lines) <= 1:
        return [f"{name} {(lines or [chr(34) * 2])[0]}"]
    return [f'{name} ""', *lines]
