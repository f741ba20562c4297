"""Messages of ICU, such as "{n, plural, one {# file} other {# files}}": each branch is translated as a sentence.

Text around an argument goes into its branches, since a language may order it otherwise.
"""

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from capsule_mt.formats.plurals import PluralMessage, Rule, source_of_form
from capsule_mt.formats.units import BY_HAND, Translated

START = re.compile(r"\{\s*[\w.]+\s*,\s*(plural|select|selectordinal)\s*,\s*(?:offset:\d+\s*)?")
SELECTOR = re.compile(r"\s*(=\d+|[\w-]+)\s*\{")
BRANCHES_END = re.compile(r"\s*\}")
SIMPLE_ARGUMENT = re.compile(r"\{\{[^{}]*\}\}|\{[^{}]*\}")
TOKEN = re.compile(r"'|[{}#]")
# text that looks like syntax, as in "'{folder}'": copied, quotes included
QUOTED = re.compile(r"'[{}#][^'\s]{0,64}'")
SYNTAX_APOSTROPHE = re.compile(r"'(?=[{}#]|\Z)")  # at the end of a branch a brace follows
HASH = "{#}"  # the number of a plural, in a text to translate
MAX_TEXTS = 60
MAX_DEPTH = 5

Restore = Callable[[str, Translated], str | None]


class NotIcuError(ValueError):
    """The text does not have branches, or they are not written as we read them; the message says why."""


class Branches(NamedTuple):
    """An argument with branches by their selectors; `head` is what stands before the first one.

    A branch is a list of texts and arguments, as it stands in the message.
    """

    head: str
    kind: str
    by_selector: "dict[str, list[str | Branches]]"


class Tree(NamedTuple):
    """An argument whose branches hold the whole message: texts, or further arguments."""

    head: str
    kind: str
    by_selector: "dict[str, str | Tree]"


class IcuMessage:
    """A message with branches; `texts` are what is translated. A `NotIcuError` says that it is not one.

    message: with placeholders for what it quotes (`QUOTED`).
    rule: the plural forms of the target language; without it, a translation has those of the message.
    """

    def __init__(self, message: str, rule: Rule | None = None) -> None:
        parts, end = _parse(message, 0, in_plural=False, depth=0)
        if end != len(message) or all(isinstance(part, str) for part in parts):
            raise NotIcuError("it does not have branches")
        self.texts: list[str] = []
        self.numbers: dict[str, str] = {}  # of plurals, as in `PluralMessage`
        self._doubles_apostrophes = "''" in message
        self._rule = rule
        self._num_leaves = 0
        self._fill = self._planned(self._tree(parts))

    def filled(self, translations: Sequence[Translated], restore: Restore) -> str | None:
        """Return the translated message; `None` if a text is not translated.

        restore: returns what is written for a branch of the message and its translation.
        """
        return self._fill([result._replace(text=self._as_text(result.text)) for result in translations], restore)

    def _as_text(self, translation: str | None) -> str | None:
        """Return a translation whose apostrophes do not quote the syntax that follows, as in "l'{name}"."""
        if translation is None:
            return None
        if self._doubles_apostrophes:
            return translation.replace("'", "''")
        return SYNTAX_APOSTROPHE.sub("\u2019", translation)

    def _tree(self, parts: Sequence[str | Branches]) -> str | Tree:
        index = next((index for index, part in enumerate(parts) if not isinstance(part, str)), None)
        if index is None:
            self._num_leaves += 1
            if self._num_leaves > MAX_TEXTS:
                raise NotIcuError(f"it has more than {MAX_TEXTS} combinations of branches")
            return "".join(map(str, parts))
        argument, around = parts[index], [*parts[:index], *parts[index + 1 :]]
        assert isinstance(argument, Branches)
        if argument.kind != "select" and any("#" in part for part in around if isinstance(part, str)):
            # moved into the branches, it would be another number
            raise NotIcuError("a # stands outside of the plural's branches")
        return Tree(
            argument.head,
            argument.kind,
            {
                selector: self._tree([*parts[:index], *branch, *parts[index + 1 :]])
                for selector, branch in argument.by_selector.items()
            },
        )

    def _planned(self, tree: str | Tree) -> Callable[[Sequence[Translated], Restore], str | None]:
        """Add the texts of a tree to `texts`; return the function that builds the message from their translations."""
        if isinstance(tree, str):
            index = self._add(tree)
            return lambda translations, restore: restore(tree, translations[index])
        branches = dict(tree.by_selector)
        if tree.kind == "plural" and self._rule is not None:
            by_number = {selector: branches.pop(selector) for selector in list(branches) if selector[0] == "="}
            forms = self._rule.forms_for(branches)
            texts = {selector: branch for selector, branch in branches.items() if isinstance(branch, str)}
            if len(texts) == len(branches):
                explicit = {selector: self._planned(branch) for selector, branch in by_number.items()}
                number = HASH if HASH in texts["other"] else f"{{{tree.head[1:].partition(',')[0].strip()}}}"
                return self._planned_plural(tree.head, explicit, PluralMessage(texts, forms, number))
            branches = by_number | {name: source_of_form(name, forms[name], branches) for name in forms}
        planned = {selector: self._planned(branch) for selector, branch in branches.items()}
        return lambda translations, restore: _written(
            tree.head, {selector: fill(translations, restore) for selector, fill in planned.items()}
        )

    def _planned_plural(
        self,
        head: str,
        explicit: dict[str, Callable[[Sequence[Translated], Restore], str | None]],
        message: PluralMessage,
    ) -> Callable[[Sequence[Translated], Restore], str | None]:
        indices = [self._add(text) for text in message.texts]
        self.numbers |= message.numbers

        def fill(translations: Sequence[Translated], restore: Restore) -> str | None:
            branches = {selector: fill(translations, restore) for selector, fill in explicit.items()}
            forms = message.filled([translations[index] for index in indices])
            branches |= {name: restore(message.sources[name], form) for name, form in forms.items()}
            return _written(head, branches)

        return fill

    def _add(self, text: str) -> int:
        if text not in self.texts:
            self.texts.append(text)
        return self.texts.index(text)


def note_of(text: str, error: NotIcuError) -> str:
    """Return the note of a text with branches that are not read."""
    match = START.search(text)
    return f"{match[0].strip() if match else text[:40]} ...}} stays as it is: {error}; {BY_HAND}"


def has_branches(text: str) -> bool:
    """Whether a text has an argument with branches."""
    return START.search(text) is not None


def _written(head: str, branches: dict[str, str | None]) -> str | None:
    if None in branches.values():
        return None
    return (
        head + " ".join(f"{selector} {{{str(text).replace(HASH, '#')}}}" for selector, text in branches.items()) + "}"
    )


def _parse(message: str, offset: int, in_plural: bool, depth: int) -> tuple[list[str | Branches], int]:
    """Return the parts of a message up to a brace that closes its branch, or up to its end."""
    if depth > MAX_DEPTH:
        raise NotIcuError(f"its branches are more than {MAX_DEPTH} deep")
    parts: list[str | Branches] = []
    start = offset
    while token := TOKEN.search(message, offset):
        parts.append(message[start : token.start()])
        start = offset = token.end()
        if token[0] == "}":
            if depth == 0:
                raise NotIcuError("a } closes nothing")
            return parts, token.start()
        if token[0] == "'":
            if message.startswith("'", offset):  # an apostrophe
                start = offset = offset + 1
            elif message.startswith(("{", "}", "#"), offset):  # text, not syntax
                raise NotIcuError("an apostrophe quotes a long text, or to the end")
            parts.append("'")
        elif token[0] == "#":
            parts.append(HASH if in_plural else "#")
        elif START.match(message, token.start()):
            argument, start = _parse_argument(message, token.start(), in_plural, depth)
            parts.append(argument)
            offset = start
        else:
            simple = SIMPLE_ARGUMENT.match(message, token.start())
            if simple is None:
                raise NotIcuError("a { is not closed, or has braces inside")
            parts.append(simple[0])
            start = offset = simple.end()
    if depth > 0:
        raise NotIcuError("a branch is not closed")
    return [*parts, message[start:]], len(message)


def _parse_argument(message: str, offset: int, in_plural: bool, depth: int) -> tuple[Branches, int]:
    head = START.match(message, offset)
    assert head is not None
    branches: dict[str, list[str | Branches]] = {}
    offset = head.end()
    while selector := SELECTOR.match(message, offset):
        parts, end = _parse(message, selector.end(), in_plural or head[1] != "select", depth + 1)
        branches[selector[1]] = parts
        offset = end + 1
    end_match = BRANCHES_END.match(message, offset)
    if end_match is None or not branches:
        raise NotIcuError("its branches are not written as `name {text}`")
    if "other" not in branches and head[1] != "select":  # Angular writes a `select` without it
        raise NotIcuError("the branch `other` is missing")
    return Branches(head[0], head[1], branches), end_match.end()
