"""What rules ask about a tokenizer's vocabulary: which characters and words it has, and how rare a word is."""

import math
import re
import string
import unicodedata
from collections.abc import Callable
from functools import cached_property, wraps
from typing import Any, TypeVar
from weakref import WeakKeyDictionary, proxy

from capsule_mt.text.rules import BREAK, COMPATIBLE, INVISIBLE, ITEM, PLAIN_FORMS
from capsule_mt.text.tokenizer_protocol import Tokenizer, unknown_tokens

MAX_ANSWERS, MAX_CACHED_LENGTH = 20_000, 64  # answers in a cache, and characters of their texts
Answer = TypeVar("Answer")
FIRST_RANK = 10  # the first ids are special tokens and marks
LOG_RANK_OF_TOKEN = 2.4  # the logarithm of the sum of 1 / rank: a word of two tokens is rarer than either
LOG_RANK_OF_UNKNOWN = 20.0  # more than that of any token
# every vocabulary of a language in Latin letters has these; of others, their tokens tell
NEVER_LACKED = frozenset((ITEM, BREAK, *" \n.,!?'\"-", *string.ascii_letters, *string.digits))
NON_ASCII = re.compile(r"[^\x00-\x7f]")


def _remembered(compute: Callable[["Vocabulary", str], Answer]) -> Callable[["Vocabulary", str], Answer]:
    """Remember what a vocabulary answers about short texts."""
    name = compute.__name__

    @wraps(compute)
    def answer_of(vocabulary: "Vocabulary", text: str) -> Answer:
        answers: dict[str, Answer] = vocabulary.answers.setdefault(name, {})
        answer = answers.get(text)
        if answer is None:
            answer = compute(vocabulary, text)
            if len(answers) >= MAX_ANSWERS:
                answers.clear()
            if len(text) <= MAX_CACHED_LENGTH:
                answers[text] = answer
        return answer

    return answer_of


class Vocabulary:
    """The vocabulary of a tokenizer, with a cache.

    of_target: of translations; by default, of sources.
    """

    def __init__(self, tokenizer: Tokenizer, *, of_target: bool = False) -> None:
        self._tokenizer, self._of_target = tokenizer, of_target
        self.answers: dict[str, dict[str, Any]] = {}  # of each method, by the text
        self._covered = {*NEVER_LACKED}  # characters

    @cached_property
    def for_target(self) -> "Vocabulary":
        """The vocabulary of translations."""
        return Vocabulary(self._tokenizer, of_target=True)

    @_remembered
    def covers(self, text: str) -> bool:
        """Return whether the vocabulary has the characters of a text, inside a word."""
        probe = f"a{text}a"
        if self._of_target:
            ids = self._tokenizer.encode_target(probe)
            # a byte of a character is no text alone
            is_broken = any("\ufffd" in self._tokenizer.decode([token]) for token in ids)
            lacked_ids = {self._tokenizer.unknown_id, *self._tokenizer.target_byte_ids}
            return lacked_ids.isdisjoint(ids) and not is_broken
        return not unknown_tokens(self._tokenizer, probe, self._tokenizer.encode(probe))

    @_remembered
    def has_piece(self, word: str) -> bool:
        """Return whether a word is one piece of the vocabulary."""
        ids = self._ids(word)
        return len(ids) == 1 and ids[0] != self._tokenizer.unknown_id

    @_remembered
    def log_rank(self, word: str) -> float:
        """Return how rare a word is: about its negative log-probability.

        Vocabularies are sorted by frequency, and the frequency of a token falls as 1 / rank (Zipf's law).
        """
        unknown_id = self._tokenizer.unknown_id
        return sum(
            LOG_RANK_OF_UNKNOWN if token == unknown_id else math.log(token + FIRST_RANK) + LOG_RANK_OF_TOKEN
            for token in self._ids("".join(map(self.form, word)))
        )

    def _ids(self, text: str) -> list[int]:
        """Return the tokens of a text, without special ones."""
        ids = self._tokenizer.encode_target(text) if self._of_target else self._tokenizer.encode(text).ids
        return [token for token in ids if token not in self._tokenizer.special_ids]

    def reads(self, text: str) -> bool:
        """Return whether the vocabulary has a text, each character in its form."""
        return self.covers("".join(map(self.form, text)))

    @_remembered
    def form(self, cluster: str) -> str:
        """Return the first form of a character with its accents that the vocabulary has, or else its own."""
        if cluster.isascii():
            return cluster
        shown = visible(cluster)
        composed = unicodedata.normalize("NFC", shown)
        alike = "".join(map(_compatible, composed))
        plain = "".join(PLAIN_FORMS.get(character, character) for character in alike)
        candidates = (shown, composed) if len(shown) == 1 else (composed, shown)
        return next((form for form in (*candidates, alike, plain) if self.covers(form)), candidates[0])

    def lacked(self, text: str) -> set[str]:
        """Return the characters of a text that the vocabulary lacks, without spaces and marks that combine."""
        candidates = set(text) - self._covered
        lacked = {character for character in candidates if not self.covers(character)}
        if len(self._covered) < MAX_ANSWERS:
            self._covered |= candidates - lacked
        return {character for character in lacked if not (character.isspace() or combines(character))}

    def changes_none_of(self, text: str) -> bool:
        """Whether the form of each character of a text is itself: a fast answer for most texts."""
        unchanged = (self.form(character) == character for character in {*NON_ASCII.findall(text)})
        return unicodedata.is_normalized("NFC", text) and all(unchanged)


_vocabularies: "WeakKeyDictionary[Tokenizer, Vocabulary]" = WeakKeyDictionary()


def vocabulary_of(tokenizer: Tokenizer) -> Vocabulary:
    """Return the vocabulary of a tokenizer, the same object at each call, to use while the tokenizer exists."""
    vocabulary = _vocabularies.get(tokenizer)
    if vocabulary is None:
        # a reference to the tokenizer would keep this entry, and with it both, forever
        vocabulary = _vocabularies[tokenizer] = Vocabulary(proxy(tokenizer))
    return vocabulary


def _compatible(character: str) -> str:
    return unicodedata.normalize("NFKC", character) if re.match(COMPATIBLE, character) else character


def visible(text: str) -> str:
    """Return a text without invisible characters."""
    return "".join(character for character in text if character not in INVISIBLE)


def combines(character: str) -> bool:
    """Return whether a character may be composed with the preceding one: marks, and vowels and finals of Hangul."""
    return character > "\u02ff" and (unicodedata.category(character)[0] == "M" or "\u1160" <= character <= "\u11ff")


def folded(text: str) -> str:
    """Return a text in lowercase with plain quotes, dashes and spaces, character for character."""
    return "".join(map(_folded_character, text))


def _folded_character(character: str) -> str:
    lowered = PLAIN_FORMS.get(character, character).lower()
    return lowered if len(lowered) == 1 else character
