"""Catalogs of gettext (.po, .pot): entries without a translation, or with a fuzzy one, are translated.

If coverage finds an omission, the entry is flagged `fuzzy`, which asks for a review; otherwise it loses that flag.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from capsule_mt.formats.units import FormatError, Translated, Unit
from capsule_mt.text.copying import PLACEHOLDER, is_no_sentence
from capsule_mt.text.languages import PLURAL_FORMS

FIELD = re.compile(r"(msgctxt|msgid_plural|msgid|msgstr(?:\[\d\])?)\s+(\"(?:[^\"\\]|\\.)*\")\s*")
CONTINUATION = re.compile(r"\s*(\"(?:[^\"\\]|\\.)*\")\s*")
# "_File" in GTK, "&File" and "E&xit" in Qt: the mark of a menu entry's key; not "R&D" or "&amp;"
KEY = re.compile(r"(?<!\w)([_&])(?=[^\W\d_])(?!\w+;)|(?<=\w)(&)(?=[a-z])(?!\w+;)")
ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}
MODULO_PLURAL = re.compile(r"plural\s*=[\s(]*n\s*%")  # the first form stands for 1, 21, 31, ...
NUMBER_OF_PLURALS = re.compile(r"nplurals\s*=\s*(\d+)")
MAX_PLURALS = 10  # Arabic has 6; msgstr[9] is the last


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


class PoFile:
    """A catalog. Translated entries, comments and obsolete entries stay as they are."""

    keep = ("placeholders", "tags", "urls")

    def __init__(self, text: str, name: str = "the catalog", language: str | None = None) -> None:
        self._ending = "\r\n" if "\r\n" in text else "\n"
        self._entries = _entries(text.replace("\r\n", "\n"), name)
        self._language = language
        headers = (entry for entry in self._entries if entry.fields.get("msgid") == "" and "msgstr" in entry.fields)
        self._header = next(headers, None)
        header_value = self._header.fields["msgstr"] if self._header else ""
        language_forms = PLURAL_FORMS.get((language or "").partition("_")[0].lower())
        self._plural_forms = None if NUMBER_OF_PLURALS.search(header_value) else language_forms
        forms = self._plural_forms or header_value
        count = next(iter(NUMBER_OF_PLURALS.findall(forms)), "2")
        self._plurals = int(count) if len(count) <= 4 else 0  # int() of thousands of digits is slow, or an error
        if not 1 <= self._plurals <= MAX_PLURALS:
            line = self._header.line if self._header else 1
            raise FormatError(f"{name}, line {line}: `nplurals` must be 1 to {MAX_PLURALS}, got {count[:40]}")
        self._first_has_many_numbers = MODULO_PLURAL.search(forms) is not None
        self.units: list[Unit] = []
        self._pending: list[tuple[Entry, list[str]]] = []  # each with the fields to translate
        for entry in self._entries:
            if not entry.fields.get("msgid") or not entry.msgstrs:
                continue
            if all(entry.fields[name] for name in entry.msgstrs) and not entry.is_fuzzy:
                continue
            sources: list[str] = [name for name in ("msgid", "msgid_plural") if name in entry.fields]
            if all(is_no_sentence(entry.fields[name]) for name in sources):
                continue
            self._pending.append((entry, sources))
            self.units += [Unit(_without_key(entry.fields[name]), f"line {entry.line}") for name in sources]

    def write(self, translations: Sequence[Translated]) -> bytes:
        remaining = iter(translations)
        for entry, sources in self._pending:
            results = [next(remaining) for _ in sources]
            texts = [result.text for result in results if result.text is not None]
            if len(texts) < len(results):
                continue
            texts = [_like(entry.fields[name], text) for name, text in zip(sources, texts, strict=True)]
            if len(sources) == 2:
                # "one file" would be wrong for 21: if the singular does not show the number, take the plural
                lacks_number = self._first_has_many_numbers and not re.search(PLACEHOLDER, entry.fields["msgid"])
                first = texts[1] if self._plurals == 1 or lacks_number else texts[0]
                forms = [first, *[texts[1]] * (self._plurals - 1)]
                values = {f"msgstr[{number}]": text for number, text in enumerate(forms)}
            else:
                values = {"msgstr": texts[0]}
            _rewrite(entry, values, any(result.needs_review for result in results))
        if self._header is not None and any(translated.text is not None for translated in translations):
            self._complete_header(self._header)
        written = "\n".join(line for entry in self._entries for line in entry.lines)
        return written.replace("\n", self._ending).encode("utf-8")

    def _complete_header(self, header: Entry) -> None:
        """Set the encoding to UTF-8, and add the language and its plural forms if the header lacks them."""
        lines = re.sub(r"(charset=)[\w.:-]+", r"\g<1>UTF-8", header.fields["msgstr"]).split("\n")
        for name, value in (("Language", self._language), ("Plural-Forms", self._plural_forms)):
            index = next((index for index, line in enumerate(lines) if line.startswith(f"{name}:")), None)
            if value and index is None:
                lines.insert(len(lines) - 1, f"{name}: {value}")
            elif value and index is not None and (name == "Plural-Forms" or lines[index].strip() == f"{name}:"):
                lines[index] = f"{name}: {value}"
        if "\n".join(lines) != header.fields["msgstr"]:
            _rewrite(header, {"msgstr": "\n".join(lines)}, header.is_fuzzy)


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
    begin = next(index for index, line in enumerate(entry.lines) if line.startswith("msgstr"))
    end = max(index for index, line in enumerate(entry.lines) if line.startswith(("msgstr", '"'))) + 1
    head = [line for line in entry.lines[:begin] if is_fuzzy or not line.startswith("#|")]
    index = next(index for index, line in enumerate(head) if line.startswith(("#,", "#|", "#~", "msg")))
    flags = [flag for line in head if line.startswith("#,") for flag in _flags(line) if flag != "fuzzy"]
    head = [line for line in head if not line.startswith("#,")]
    if is_fuzzy or flags:
        head.insert(index, f"#, {', '.join(['fuzzy'] * is_fuzzy + flags)}")
    written = [line for name, text in values.items() for line in _quoted(name, text)]
    entry.lines = [*head, *written, *entry.lines[end:]]


def _flags(line: str) -> list[str]:
    return [flag.strip() for flag in line[2:].split(",") if flag.strip()]


def _without_key(text: str) -> str:
    """Return a menu entry without the mark before its key, if it has exactly one."""
    return KEY.sub("", text) if len(KEY.findall(text)) == 1 else text


def _with_key(source: str, text: str) -> str:
    """Mark the key of a translated menu entry: the letter of its source, or else the first letter."""
    letters = [i for i, character in enumerate(text) if character.isalpha()]
    if _without_key(source) == source or not letters:
        return text
    match = KEY.search(source)
    assert match is not None
    key = source[match.end()].casefold()
    word_starts = [i for i in letters if not text[i - 1 : i].isalnum()]
    offset = next((i for i in (*word_starts, *letters) if text[i].casefold() == key), letters[0])
    return text[:offset] + match[0] + text[offset:]


def _like(source: str, text: str) -> str:
    """Return a translation with its source's key, and its line breaks at both ends, which gettext requires."""
    text = _with_key(source, text.strip("\n"))
    return "\n" * source.startswith("\n") + text + "\n" * source.endswith("\n")


def _unquoted(text: str) -> str:
    return re.sub(r"\\(.)", lambda match: ESCAPES.get(match[1], match[1]), text[1:-1])


def _quoted(name: str, text: str) -> list[str]:
    """Return the lines of a field; a value of several lines starts below its name."""
    names = {character: name for name, character in ESCAPES.items()}
    lines = [
        '"' + re.sub(r'[\\"\n\t\r\a\b\f\v]', lambda match: "\\" + names.get(match[0], match[0]), line) + '"'
        for line in text.splitlines(keepends=True)
    ]
    if len(lines) <= 1:
        return [f"{name} {(lines or [chr(34) * 2])[0]}"]
    return [f'{name} ""', *lines]
