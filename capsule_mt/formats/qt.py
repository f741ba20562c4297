"""Catalogs of Qt (.ts): messages without a translation get one, with as many plural forms as Qt's rules have.

What a person wrote stays, also if it is unfinished. A translation that fails a check stays `unfinished`.
"""

import re

from capsule_mt.formats.catalog import Message, Plural
from capsule_mt.formats.format import XML_DECLARATION, Format
from capsule_mt.formats.plurals import Rule, rule_of
from capsule_mt.formats.units import FormatError
from capsule_mt.formats.xml import Element, Text, escaped
from capsule_mt.formats.xml_catalog import XmlCatalog
from capsule_mt.text.languages import is_other_language, language_of

OBSOLETE = ("vanished", "obsolete")
SINGULAR, PLURAL = re.compile(r"\((?:s|es)\)"), re.compile(r"\((s|es)\)")  # "file(s)"
# where the numerus forms of Qt are not those of CLDR
QT_RULES = {
    **dict.fromkeys(("fa", "hu", "tr"), Rule("0", ("other",))),
    "ga": Rule("n==1 ? 0 : n==2 ? 1 : 2", ("one", "two", "other")),
    "he": Rule("n != 1", ("one", "other")),
    "lv": Rule("n%10==1 && n%100!=11 ? 0 : n != 0 ? 1 : 2", ("one", "other", "zero")),
    "mk": Rule("n%100==1 ? 0 : n%100==2 ? 1 : 2", ("one", "two", "other")),
    "mt": Rule(
        "n==1 ? 0 : n==0 || n%100>=1 && n%100<=10 ? 1 : n%100>=11 && n%100<=19 ? 2 : 3",
        ("one", "few", "many", "other"),
    ),
}

FORMAT = Format(
    name="qt",
    suffixes=(".ts",),
    title="Catalogs of Qt",
    reader=lambda file: QtFile(file.text, file.name, file.language),
    has_flags=True,
    declaration=XML_DECLARATION,
    translated="messages without a translation, with the plural forms of Qt",
    unchanged="texts that a person left unfinished, vanished messages",
    limits="a file for another target language, and a `DOCTYPE` with entities, are refused; a message to check stays "
    "`unfinished`",
    judges="`lrelease`, `lconvert`",
)


class QtFile(XmlCatalog):
    """A catalog of Qt."""

    def __init__(self, text: str, name: str, language: str | None) -> None:
        super().__init__(text, name, allows_doctype=True)
        root = next((element for element in self._top.elements if element.name == "TS"), None)
        if root is None:
            raise FormatError(f"{name}: the root of a .ts must be <TS>")
        stated = root.attributes.get("language")
        if is_other_language(stated, language):
            raise FormatError(
                f"{name}, line {root.line}: the catalog is for {str(stated)[:40]}, but the model translates into "
                f"{language}: use another model, or correct `language` in the file"
            )
        self._root, self._language = root, stated or language
        self._rule = qt_rule(self._language)
        for element in root.walk():
            if element.name == "message":
                self._add_message(element)

    def _add_message(self, element: Element) -> None:
        source, translation = element.find("source"), element.find("translation")
        if source is None or source.elements or translation is None:
            return
        if translation.attributes.get("type") in OBSOLETE:
            return
        if "".join(part.text for part in translation.walk()).strip():
            return
        if element.attributes.get("numerus") == "yes":
            self._add_plural(source.text, source.line, translation)
            return

        def write(text: str, needs_review: bool) -> None:
            translation.fill(text)
            translation.set_attribute("type", "unfinished" if needs_review else None)

        self._add(Message(source.text, escape=escaped, has_key=True), f"line {source.line}", write)

    def _add_plural(self, text: str, line: int, translation: Element) -> None:
        if self._rule is None:
            language = (self._language or "the language")[:40]
            raise FormatError(
                f"{self._name}, line {line}: the plural forms of {language} are not known: "
                'name it in the file, as <TS language="pt">'
            )
        # "%n file(s)" is a message's only form in a catalog of Qt
        texts = {"one": SINGULAR.sub("", text), "other": PLURAL.sub(r"\1", text)}
        sources = {name: Message(form, escape=escaped) for name, form in texts.items()}
        numbers = {name: self._rule.numbers[name] for name in self._rule.categories}

        def write(forms: dict[str, str], needs_review: bool) -> None:
            inner = [part.raw.decode() for part in translation.children if isinstance(part, Text)]
            prefix, suffix = (inner[0], inner[-1]) if inner else ("", "")
            written = prefix.join(f"<numerusform>{form}</numerusform>" for form in forms.values())
            translation.fill(f"{prefix}{written}{suffix}")
            translation.set_attribute("type", "unfinished" if needs_review else None)

        self._add(Plural(sources, numbers), f"line {line}", write)

    def _state_language(self) -> None:
        if self._language and "language" not in self._root.attributes:
            self._root.set_attribute("language", self._language)


def qt_rule(language: str | None) -> Rule | None:
    """Return the plural forms that Qt has for a language."""
    rule = QT_RULES.get(language_of(language), rule_of(language))
    return None if rule is None else rule._replace(rare=())
