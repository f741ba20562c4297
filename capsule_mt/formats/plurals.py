"""Plural forms by language: the expressions of gettext's headers, and the categories of CLDR, which app catalogs name.

A language with more forms than the source gets one translation for each: for Russian, "%d files" is translated as
"2 files" and as "5 files", and the number becomes the placeholder again. The singular "%d file" is mostly translated
as "1 file": the translator reads placeholders of numbers as large numbers.
"""

import gettext
import re
from collections.abc import Container, Mapping, Sequence
from typing import NamedTuple, TypeVar

from capsule_mt.formats.units import Translated, parts_around
from capsule_mt.text.keeping import placeholders_of
from capsule_mt.text.languages import language_of
from capsule_mt.text.rules import NUMBER_PLACEHOLDER

SourceType = TypeVar("SourceType")
MAX_NUMBER = 200  # every integer form of our languages has a number below
CATEGORIES = ("zero", "one", "two", "few", "many", "other")
NUMBER = re.compile(r"%(?:\(\w+\)|\d+\$)?l?[diu]|%n|%\{count\}|\{\{-?\s*count\s*\}\}|\{(?:n|num|count|number)\}")


class Rule(NamedTuple):
    """The plural forms of a language.

    expression: the number of the form for `n`, in C.
    categories: the form's names.
    rare: categories of fractions and millions, which gettext does not have.
    """

    expression: str
    categories: tuple[str, ...]
    rare: tuple[str, ...] = ()

    @property
    def header(self) -> str:
        """The value of gettext's `Plural-Forms`."""
        return f"nplurals={len(self.categories)}; plural=({self.expression});"

    @property
    def numbers(self) -> dict[str, list[int]]:
        """The numbers of each category, in the order of CLDR; a rare one has none here."""
        by_form = numbers_of_forms(self.expression, len(self.categories))
        by_name = dict(zip(self.categories, by_form, strict=True)) | {category: [] for category in self.rare}
        return {category: by_name[category] for category in CATEGORIES if category in by_name}

    def forms_for(self, sources: Container[str]) -> dict[str, list[int]]:
        """Return `numbers`, with the form "zero" if the source has it.

        Programs such as i18next, Rails, Flutter and iOS take it for 0 in languages that do not have this category.
        """
        return ({"zero": [0]} if "zero" in sources else {}) | self.numbers


_SINGLE_FORM = Rule("0", ("other",))
_SINGULAR_FOR_ONE = Rule("n != 1", ("one", "other"))
_SINGULAR_TO_ONE = Rule("n > 1", ("one", "other"))
_LAST_DIGIT_ONE = Rule("n%10!=1 || n%100==11", ("one", "other"))
_MILLIONS = ("many",)
_SLAVIC = "n%10==1 && n%100!=11 ? 0 : n%10>=2 && n%10<=4 && (n%100<10 || n%100>=20) ? 1 : 2"
RULES = {
    **dict.fromkeys(("id", "ja", "ko", "ms", "th", "vi", "zh"), _SINGLE_FORM),
    **dict.fromkeys(("af", "az", "bg", "da", "de", "el", "en", "et", "eu", "fi", "gl"), _SINGULAR_FOR_ONE),
    **dict.fromkeys(("hu", "ka", "kk", "ml", "mr", "nb", "nl", "nn", "no", "sq", "sv"), _SINGULAR_FOR_ONE),
    **dict.fromkeys(("sw", "ta", "te", "tr", "ur"), _SINGULAR_FOR_ONE),
    **dict.fromkeys(("bn", "fa", "gu", "hi", "hy", "kn"), _SINGULAR_TO_ONE),
    **dict.fromkeys(("is", "mk"), _LAST_DIGIT_ONE),
    **dict.fromkeys(("ca", "es", "it", "pt_pt"), _SINGULAR_FOR_ONE._replace(rare=_MILLIONS)),
    **dict.fromkeys(("fr", "pt"), _SINGULAR_TO_ONE._replace(rare=_MILLIONS)),
    **dict.fromkeys(("be", "ru", "uk"), Rule(_SLAVIC, ("one", "few", "many"), ("other",))),
    **dict.fromkeys(("bs", "hr", "sr"), Rule(_SLAVIC, ("one", "few", "other"))),
    **dict.fromkeys(("cs", "sk"), Rule("n==1 ? 0 : n>=2 && n<=4 ? 1 : 2", ("one", "few", "other"), ("many",))),
    "pl": Rule("n==1 ? 0 : n%10>=2 && n%10<=4 && (n%100<10 || n%100>=20) ? 1 : 2", ("one", "few", "many"), ("other",)),
    "ro": Rule("n==1 ? 0 : n==0 || n%100>=1 && n%100<=19 ? 1 : 2", ("one", "few", "other")),
    "lt": Rule(
        "n%10==1 && (n%100<11 || n%100>19) ? 0 : n%10>=2 && (n%100<11 || n%100>19) ? 1 : 2",
        ("one", "few", "other"),
        ("many",),
    ),
    "lv": Rule("n%10==0 || n%100>=11 && n%100<=19 ? 0 : n%10==1 ? 1 : 2", ("zero", "one", "other")),
    "sl": Rule("n%100==1 ? 0 : n%100==2 ? 1 : n%100==3 || n%100==4 ? 2 : 3", ("one", "two", "few", "other")),
    "he": Rule("n==1 ? 0 : n==2 ? 1 : 2", ("one", "two", "other")),
    "ga": Rule("n==1 ? 0 : n==2 ? 1 : n>2 && n<7 ? 2 : n>6 && n<11 ? 3 : 4", ("one", "two", "few", "many", "other")),
    "mt": Rule(
        "n==1 ? 0 : n==2 ? 1 : n==0 || n%100>=3 && n%100<=10 ? 2 : n%100>=11 && n%100<=19 ? 3 : 4",
        ("one", "two", "few", "many", "other"),
    ),
    "ar": Rule("n==0 ? 0 : n==1 ? 1 : n==2 ? 2 : n%100>=3 && n%100<=10 ? 3 : n%100>=11 ? 4 : 5", CATEGORIES),
}


def rule_of(code: str | None) -> Rule | None:
    """Return the plural forms of a language by its code, `None` if they are not in our table."""
    with_region = "_".join(re.split("[-_]", (code or "").lower())[:2])
    return RULES.get(with_region, RULES.get(language_of(code)))


def numbers_of_forms(expression: str, count: int) -> list[list[int]]:
    """Return which numbers below `MAX_NUMBER` have each form; raise a `ValueError` for an unusable expression."""
    form_of = gettext.c2py(expression)  # a C parser that the standard library has for these headers
    numbers: list[list[int]] = [[] for _ in range(count)]
    for number in range(MAX_NUMBER):
        try:
            form = form_of(number)
        except ArithmeticError as error:
            raise ValueError(f"{error} for n={number}") from None
        if not 0 <= form < count:
            raise ValueError(f"form {form} for n={number}")
        numbers[form].append(number)
    return numbers


class Form(NamedTuple):
    """A plural form of a message.

    text_index: index of its text in `PluralMessage.texts`.
    source: the source text, with its placeholder.
    sample: the number that replaces the placeholder in the text to translate; "" if none does.
    placeholder: what replaces `sample` in the translation.
    """

    text_index: int
    source: str
    sample: str = ""
    placeholder: str = ""


class PluralMessage:
    """A message in the source's plural forms; `texts` are what to translate for the target language's forms.

    Args:
        sources: texts by their categories; "other" has one.
        forms: the numbers of each form of the target language, by any name.
        placeholder: the number in the texts, if it is known.
    """

    def __init__(
        self, sources: Mapping[str, str], forms: Mapping[str, Sequence[int]], placeholder: str | None = None
    ) -> None:
        self.texts: list[str] = []
        self._forms: dict[str, Form] = {}
        # the source has one plural text: only a number in it can tell several plural forms apart
        needs_samples = sum(bool(numbers) and 1 not in numbers for numbers in forms.values()) > 1
        for name, numbers in forms.items():
            source = text = source_of_form(name, numbers, sources, placeholder)
            sample, shown = "", ""
            if 1 in numbers and source == sources.get("one") != sources["other"]:
                sample, shown = "1", number_placeholder(source, placeholder)
                shown = shown if re.fullmatch(NUMBER_PLACEHOLDER, shown) else ""
            elif needs_samples and numbers and 1 not in numbers:
                sample = str(min((number for number in numbers if number > 1), default=0))
                shown = number_placeholder(source, placeholder)
            if shown and sample in re.findall(r"\d+", source):
                shown = ""
            text = source.replace(shown, sample) if shown else source
            if text not in self.texts:
                self.texts.append(text)
            self._forms[name] = Form(self.texts.index(text), source, sample if shown else "", shown)

    @property
    def numbers(self) -> dict[str, str]:
        """The number in each text that stands for the placeholder, by the text."""
        return {self.texts[form.text_index]: form.sample for form in self._forms.values() if form.sample}

    @property
    def sources(self) -> dict[str, str]:
        """The text of each form in the source language, with its placeholder."""
        return {name: form.source for name, form in self._forms.items()}

    def filled(self, translations: Sequence[Translated]) -> dict[str, Translated]:
        """Return the translation of each form; one that lost its number gets another form's, if any, for review."""
        results = {name: _with_placeholder(translations[form.text_index], form) for name, form in self._forms.items()}
        complete = [result.text for result in results.values() if result.text is not None]
        for name, form in self._forms.items():
            if results[name].text is None and complete and translations[form.text_index].text is not None:
                results[name] = Translated(complete[-1], needs_review=True)
        return results


def source_of_form(
    name: str, numbers: Sequence[int], sources: Mapping[str, SourceType], placeholder: str | None = None
) -> SourceType:
    """Return the source's text for a target form that covers these numbers."""
    if 1 not in numbers or 2 in numbers:
        return sources.get(name, sources["other"])
    singular = sources.get("one", sources["other"])
    # "a file" would be wrong for 21: a form of many numbers shows the number
    if max(numbers) > 1 and isinstance(singular, str):
        has_number = placeholders_of(singular) if placeholder is None else placeholder in singular
        return singular if has_number else sources["other"]
    return singular


def number_placeholder(text: str, placeholder: str | None = None) -> str:
    """Return the placeholder of a message's number; "" if none can be told, or if it is glued to a word."""
    if placeholder is None:
        placeholders = placeholders_of(text)
        matches = list(placeholders) if placeholders.total() == 1 else NUMBER.findall(text)
        placeholder = matches[0] if len(matches) == 1 else ""
    is_alone = placeholder and re.search(rf"(?<!\w){re.escape(placeholder)}(?!\w)", text)
    return placeholder if is_alone and text.count(placeholder) == 1 else ""


def _with_placeholder(translated: Translated, form: Form) -> Translated:
    if translated.text is None or not form.sample:
        return translated
    parts = parts_around(form.sample, translated.text)
    return translated._replace(text=form.placeholder.join(parts) if len(parts) == 2 else None)
