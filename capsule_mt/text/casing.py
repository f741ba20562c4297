"""Lines in CAPITALS or lowercase: the model reads sentence case; translations get CAPITALS or lowercase starts back.

Lines in Title Case, and short ones, stay as they are: they are mostly strings of programs and headings, whose words
are often names, and abbreviations.

The vocabulary tells which words are names: a name's capitalised form has a lower id than its lowercase form, since
ids grow as frequencies fall. The rules see a `Form`, where an item is one character; each letter replaces a letter.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

from capsule_mt.text.rules import BREAK, CASED_WORD, ITEM
from capsule_mt.text.sentences import Span, language_code, split_sentences
from capsule_mt.text.vocabulary import Vocabulary

CAPITALS, LOWERCASE = "capitals", "lowercase"
DOTLESS_I_LANGUAGES = frozenset({"tr", "az"})  # whose pairs are I and \u0131, \u0130 and i
MIN_LETTERS = 7  # of a line in capitals; fewer may be abbreviations
LINE = rf"[^\n{BREAK}]+"
NO_WORDS = re.compile(r">>[^<>\s]+<<|&\w+;")  # tokens of languages, and entities such as "&lt;"
# up to a letter that may begin a sentence; without the bound, dots without a letter after them take quadratic time
SENTENCE_START = rf"(?:^|[.!?\u2026]\s)[^\w{ITEM}]{{0,50}}\w"
MAY_START = rf"(?:\A|[.!?\u2026])[^\w\n{ITEM}]{{0,50}}[^\W\d_]"
MIN_LINE_WORDS = 8  # of a line in lowercase
MIN_START_WORDS = 4  # of a sentence that begins in lowercase
FINAL_MARKS = ".!?\u2026"
VARIABLE = "[a-hj-z]"  # "p implies q": a vocabulary has more capitals of these, but not of "i"
# differences of log ranks: by BLEU on 346 lines of FLORES and 700 of Tatoeba, Portuguese and English
NAME_MARGIN = 1.6
ABBREVIATION_MARGIN, ABBREVIATION_LENGTHS = 1.0, range(2, 5)

Lines = list[tuple[Span, str]]


def in_sentence_case(text: str, vocabulary: Vocabulary, language: str | None = None) -> tuple[str, Lines]:
    """Return a text with its lines in CAPITALS or lowercase in sentence case, and the spans and cases of these."""
    casing = Casing(vocabulary, language)
    written: list[str] = []
    lines: Lines = []
    end = 0
    for match in re.finditer(LINE, text):
        line, case, length = casing.in_sentence_case(match[0])
        written += [text[end : match.start()], line]
        end = match.end()
        if case is not None:
            lines.append((Span(match.start(), match.start() + length), case))
    return "".join([*written, text[end:]]), lines


def restored_case(translation: str, case: str | None, vocabulary: Vocabulary, language: str | None = None) -> str:
    """Return a translation, whose items are `ITEM`s, in CAPITALS or with a lowercase start, as its source."""
    if case == CAPITALS:
        dotless_i = has_dotless_i(language)
        return "".join(capital(letter, dotless_i) for letter in translation)
    return Casing(vocabulary, language).with_lowercase_start(translation) if case == LOWERCASE else translation


class Casing(NamedTuple):
    """The case of lines in a language, by the words that its vocabulary has."""

    vocabulary: Vocabulary
    language: str | None

    def in_sentence_case(self, line: str) -> tuple[str, str | None, int]:
        """Return a line in sentence case, the case that it had, if another, and how many characters had it."""
        if (lowercase := self.without_capitals(line)) is not None:
            return lowercase, CAPITALS, len(line)
        if not (line.islower() or line[:1].islower() or line[:1] in ".\u2026"):
            return line, None, 0  # most lines
        words = _words(line)
        is_lowercase = bool(words) and _is_lowercase(words)
        if not (is_lowercase or (words and _begins_in_lowercase(words))):
            return line, None, 0
        if not self.vocabulary.covers(self._capitalised(words[0][0][0])):
            return line, None, 0  # some models read lowercase only
        first, letters = words[0].start(), list(line)
        for offset in self._sentence_starts(words[0].string) if is_lowercase else [first]:
            letters[offset] = self._capitalised(letters[offset])
        cased = "".join(letters)
        return (self._with_names(cased), LOWERCASE, len(line)) if is_lowercase else (cased, LOWERCASE, first + 1)

    def without_capitals(self, text: str) -> str | None:
        """Return a text in capitals in sentence case; `None` for a short one, and for any other text."""
        if not text.isupper() or sum(map(len, re.findall(CASED_WORD, text))) < MIN_LETTERS:
            return None
        # in other languages, "\u0130" becomes two characters in lowercase, and offsets must stay valid
        lowercase = self._lowered(text if has_dotless_i(self.language) else text.replace("\u0130", "I"))
        starts = {match.end() - 1 for match in re.finditer(SENTENCE_START, text)}
        cased = (text[offset] if offset in starts else letter for offset, letter in enumerate(lowercase))
        return self._with_names("".join(cased))

    def with_lowercase_start(self, translation: str) -> str:
        """Return a translation without the capital of its first word, unless a name by its vocabulary, or "McX"."""
        word = next(iter(_words(translation)), None)
        if word is None or not word[0][0].isupper() or word[0][1:] != word[0][1:].lower():
            return translation
        lowercase, log_rank = self._lowered(word[0]), self.vocabulary.for_target.log_rank
        if log_rank(lowercase) - log_rank(word[0]) > NAME_MARGIN or len(lowercase) != len(word[0]):
            return translation
        return translation[: word.start()] + lowercase[0] + translation[word.start() + 1 :]

    def _sentence_starts(self, line: str) -> Iterator[int]:
        """Yield the offset of the first character of each sentence of a line in lowercase."""
        candidate = re.sub(MAY_START, lambda match: match[0][:-1] + self._capitalised(match[0][-1]), line)
        for start, end in split_sentences(candidate, self.language):
            characters = (offset for offset in range(start, end) if line[offset] == ITEM or line[offset].isalnum())
            yield next(characters, start)

    def _with_names(self, line: str) -> str:
        """Return a line with capitals for names; words with a capital, such as the first one, stay as they are."""
        letters = list(line)
        for word in _words(line):
            text = word[0]
            if not text.islower() or not self.vocabulary.reads(text) or re.fullmatch(VARIABLE, text):
                continue  # what the vocabulary lacks is copied
            form = self._capitalised(text) if self._name_margin(text) > NAME_MARGIN else text
            if len(text) in ABBREVIATION_LENGTHS and self._abbreviation_margin(text) > ABBREVIATION_MARGIN:
                form = self._raised(text)
            if form != text and len(form) == len(text) and _is_known(form, self.vocabulary):
                letters[word.start() : word.end()] = form
        return "".join(letters)

    def _name_margin(self, word: str) -> float:
        """Return the log rank of a word's lowercase form minus that of its capitalised form; high for names."""
        lowercase, log_rank = self._lowered(word), self.vocabulary.log_rank
        return log_rank(lowercase) - log_rank(self._capitalised(lowercase))

    def _abbreviation_margin(self, word: str) -> float:
        """Return the log rank of a lowercase word, or of its capitalised form, minus that of the word in capitals."""
        capitals, log_rank = self._raised(word), self.vocabulary.log_rank
        return min(log_rank(word), log_rank(self._capitalised(word))) - log_rank(capitals)

    def _lowered(self, text: str) -> str:
        has_pairs = has_dotless_i(self.language)
        return text.replace("I", "\u0131").replace("\u0130", "i").lower() if has_pairs else text.lower()

    def _raised(self, text: str) -> str:
        return text.replace("i", "\u0130").upper() if has_dotless_i(self.language) else text.upper()

    def _capitalised(self, word: str) -> str:
        return capital(word[0], has_dotless_i(self.language)) + word[1:]


def _words(line: str) -> list[re.Match[str]]:
    """Return the words of a line outside `NO_WORDS`; the offsets of the matches are those of the line."""
    if ">>" in line or "&" in line:
        line = NO_WORDS.sub(lambda match: " " * len(match[0]), line)
    return list(re.finditer(CASED_WORD, line))


def _is_lowercase(words: list[re.Match[str]]) -> bool:
    """Whether a line is in lowercase; one that begins with a number or an item may be in sentence case."""
    prefix = words[0].string[: words[0].start()]
    if len(words) < MIN_LINE_WORDS or ITEM in prefix or any(map(str.isalnum, prefix)):
        return False
    return all(word[0] == word[0].lower() for word in words) and words[0][0].islower()


def _begins_in_lowercase(words: list[re.Match[str]]) -> bool:
    """Whether a line is a sentence with a final mark that begins with a word in lowercase.

    One with a colon may begin with a prefix of T5, such as "translate English to German:".
    """
    if len(words) < MIN_START_WORDS or not words[0][0].islower():
        return False
    line, (start, end) = words[0].string, words[0].span()
    if line[:start].strip() not in ("", "...", "\u2026"):
        return False
    is_list_mark = line[end] not in " ,"  # "a. One"
    return not is_list_mark and ":" not in line and line.rstrip()[-1] in FINAL_MARKS


def _is_known(word: str, vocabulary: Vocabulary) -> bool:
    """Whether the vocabulary has a word, up to an apostrophe or a hyphen, as one piece; it has no form of "tmrw"."""
    return vocabulary.has_piece(re.split("['\u2019-]", word, maxsplit=1)[0])


def has_dotless_i(language: str | None) -> bool:
    """Return whether a language has the letter \u0131, the small form of I, as Turkish does."""
    return language_code(language) in DOTLESS_I_LANGUAGES


def capital(letter: str, dotless_i: bool = False) -> str:
    """Return the capital of a letter, \u1e9e of \xdf; the letter itself if its capital is several letters."""
    if letter == "\xdf":
        return "\u1e9e"
    if letter == "i" and dotless_i:
        return "\u0130"
    return letter.upper() if len(letter.upper()) == 1 else letter
