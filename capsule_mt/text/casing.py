"""Lines in CAPITALS, Title Case or lowercase: the model reads sentence case.

Translations get CAPITALS and lowercase back, but not Title Case, which few languages have. Short lines in lowercase or
Title Case stay as they are: they are mostly strings of programs and headings, whose words are often names.

Models have seen few such lines. The vocabulary tells which words are names: a name's capitalised form has a lower id
than its lowercase form, since ids grow as frequencies fall. Each letter replaces a letter, so that the user's offsets
stay valid.
"""

import re
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from functools import partial
from typing import NamedTuple

from capsule_mt.text.capitals import capital, has_dotless_i, lowered, raised, with_capitals, without_capitals
from capsule_mt.text.copying import may_have_non_words
from capsule_mt.text.entities import ENTITY
from capsule_mt.text.keeping import COPIED_KINDS, Item, parts_of
from capsule_mt.text.normal import INVISIBLE, LOG_RANK_OF_UNKNOWN, Vocabulary, ranges_of
from capsule_mt.text.sentences import Span, split_sentences

CAPITALS, LOWERCASE = "capitals", "lowercase"
LOWERCASE_START = "lowercase start"  # "the man is in London."
# letters; combining marks, and invisible characters between letters, belong to the word
_LETTERS = rf"[^\W\d_](?:[\u0300-\u036f{ranges_of(INVISIBLE)}]*[^\W\d_])*[\u0300-\u036f]*"
CASED_WORD = rf"{_LETTERS}(?:['\u2019-]{_LETTERS})*"  # compiled at its first use
# a line; if a divided word ends it, with the next line
LINE = r"(?:[^\n]+|(?<=[a-z\xdf-\xff][-\xad])\n(?=[a-z\xdf-\xff]))+"
LANGUAGE_TOKEN = re.compile(r">>[^<>\s]+<<")
ENTITY_CHARACTER = "\ue001"  # stands for each character of an entity, such as "&nbsp;"
# up to a letter that may begin a sentence; without the bound, dots without a letter after them take quadratic time
MAY_START = r"(?:\A|[.!?\u2026])[^\w\n]{0,50}[^\W\d_]"
QUOTED_START = r"[:,]\s[\"\u201c\u201e\xab]\s?[^\W\d_]"
MIN_LINE_WORDS = 8  # of a line in lowercase or Title Case
MIN_START_WORDS = 4  # of a sentence that begins in lowercase
FINAL_MARKS = ".!?\u2026"
VARIABLE = "[a-hj-z]"  # "p implies q": a vocabulary has more capitals of these, but not of "i"
MAX_SHORT_WORD = 4  # letters of a word that may be lowercase in a headline
MIN_CAPITAL_SHARE = 0.5  # of a headline's words
# capitalised words that are more frequent in lowercase, so that names alone do not make a headline:
MIN_KNOWN_SHARE = 0.25  # of the capitalised words
MIN_KNOWN_IN_TITLE, MIN_KNOWN_IN_HEADLINE = 2, 3  # "Does Tom play Animal Crossing?", not a headline, has two
# differences of log ranks: by BLEU on 346 lines of FLORES and 700 of Tatoeba, Portuguese and English
NAME_MARGIN = 1.6
NEIGHBOUR_SHARE, MAX_FROM_NEIGHBOUR = 0.5, 1.0  # names stand beside names, but also alone among other words
ABBREVIATION_MARGIN, ABBREVIATION_LENGTHS = 1.0, range(2, 5)
# the sum of a short text's margins: of words of two to six letters in FLORES and Tatoeba, half of them held out, it
# takes 92 % for words, and 10 % of the abbreviations
MAX_MARGIN_OF_WORDS = -5.0
LONG_LOWERCASE_WORD = re.compile(rf" [a-z]{{{MAX_SHORT_WORD + 1},}}[ ,.]")  # a fast check for most of them


class CasedText(NamedTuple):
    """A text in sentence case, letter for letter, and the lines of the user's text that have another case."""

    text: str
    lines: tuple[tuple[Span, str], ...] = ()

    def case_at(self, offset: int) -> str | None:
        """Return the case of the user's line at an offset, such as CAPITALS; `None` for sentence case."""
        if not self.lines:
            return None
        span, case = self.lines[max(bisect_left(self.lines, ((offset + 1,),)) - 1, 0)]  # the last that may begin there
        return case if span.start <= offset < span.end else None


def in_sentence_case(text: str, vocabulary: Vocabulary, language: str | None = None) -> CasedText:
    """Return a text with each line in sentence case.

    Items that a translation copies, such as URLs and placeholders, stay as they are.
    """
    if "\n" not in text and not _may_have_other_case(text):
        return CasedText(text)
    dotless_i = has_dotless_i(language)
    if (lowercase := without_capitals(text, partial(_are_words, vocabulary, dotless_i), dotless_i)) is not None:
        with_starts = _with_quoted_starts(lowercase, vocabulary, dotless_i)
        return CasedText(_with_names(with_starts, vocabulary, dotless_i), ((Span(0, len(text)), CAPITALS),))
    written: list[str] = []
    lines: list[tuple[Span, str]] = []
    end = 0
    for match in re.finditer(LINE, text):
        line, case = _line_in_sentence_case(match[0], vocabulary, language)
        written += [text[end : match.start()], line]
        end = match.end()
        if case == LOWERCASE_START:  # of the first sentence alone
            start = next(offset for offset in range(*match.span()) if text[offset].isalpha())
            lines.append((Span(match.start(), start + 1), LOWERCASE))
        elif case is not None:
            lines.append((Span(*match.span()), case))
    return CasedText("".join([*written, text[end:]]), tuple(lines))


def restored_case(translation: str, case: str | None, vocabulary: Vocabulary, language: str | None = None) -> str:
    """Return a translation into a language in the case of its source, letter for letter."""
    if case == CAPITALS:
        return with_capitals(translation, has_dotless_i(language))
    if case == LOWERCASE:
        return _with_lowercase_start(translation, vocabulary, has_dotless_i(language))
    return translation


def _may_have_other_case(line: str) -> bool:
    """Whether a line may have another case than a sentence: a fast answer for most lines."""
    if line.islower() or line.isupper() or line[:1].islower() or line[:1] in ".\u2026" or may_have_non_words(line):
        return True
    if line[:-1].isalpha() or LONG_LOWERCASE_WORD.search(line) is not None:  # one word, such as "Hello.", or others
        return False
    if line[:1].isalpha() and line[:1].isupper() and sum(map(str.isupper, line[1:])) < MIN_KNOWN_IN_TITLE:
        return False
    return not any(len(word) > MAX_SHORT_WORD and word[0].isalpha() and word.islower() for word in line.split())


def _line_in_sentence_case(line: str, vocabulary: Vocabulary, language: str | None) -> tuple[str, str | None]:
    """Return a line in sentence case, and its case if it had another one."""
    if not _may_have_other_case(line):
        return line, None
    dotless_i = has_dotless_i(language)
    if (lowercase := without_capitals(line, partial(_are_words, vocabulary, dotless_i), dotless_i)) is not None:
        return _with_names(_with_quoted_starts(lowercase, vocabulary, dotless_i), vocabulary, dotless_i), CAPITALS
    words = _words_outside_items(line)
    if _is_lowercase(words) and vocabulary.covers(capital(words[0][0][0])):  # some models read lowercase only
        with_starts = _with_quoted_starts(
            _with_sentence_starts(line, words, vocabulary, language), vocabulary, dotless_i
        )
        return _with_names(with_starts, vocabulary, dotless_i), LOWERCASE
    if _begins_in_lowercase(words) and vocabulary.covers(capital(words[0][0][0])):
        return _with_capitals_at([words[0].start()], line, words, vocabulary, dotless_i), LOWERCASE_START
    if _is_title(words, vocabulary, dotless_i):
        return _without_title(line, words, vocabulary, dotless_i), None
    return line, None


def _words_outside_items(line: str) -> list[re.Match[str]]:
    """Return the words outside copied items and language tokens; the offsets of the matches are those of the line."""
    shadow = ENTITY.sub(lambda match: ENTITY_CHARACTER * len(match[0]), line) if "&" in line else line
    if may_have_non_words(shadow):
        parts = parts_of(shadow, COPIED_KINDS)
        # a digit for each character of an item, as if it were a word without letters
        shadow = "".join("0" * len(part) if isinstance(part, Item) else part for part in parts)
        shadow = LANGUAGE_TOKEN.sub(lambda match: " " * len(match[0]), shadow)
    words = re.finditer(CASED_WORD, shadow)
    if ENTITY_CHARACTER not in shadow:
        return list(words)
    # in "&aacute;gua", "gua" is not a word
    return [word for word in words if ENTITY_CHARACTER not in shadow[max(word.start() - 1, 0) : word.end() + 1]]


def _is_lowercase(words: list[re.Match[str]]) -> bool:
    """Whether a line is in lowercase; one that begins with a number or an item may be in sentence case."""
    if len(words) < MIN_LINE_WORDS or any(map(str.isalnum, words[0].string[: words[0].start()])):
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


def _is_title(words: list[re.Match[str]], vocabulary: Vocabulary, dotless_i: bool) -> bool:
    """Whether at least half of a line's words are capitalised, and enough of these are usually lowercase."""
    if len(words) < MIN_LINE_WORDS:
        return False
    starts = {match.end() - 1 for match in re.finditer(MAY_START, words[0].string)}
    later_words = [word for word in words if len(word[0]) > 1 and word.start() not in starts]
    texts = [word[0] for word in later_words]
    if any(_is_long_lowercase_word(word) for word in later_words):
        return False
    capitalised = [text for text in texts if text[0].isupper() and not text[1:].isupper()]
    if len(capitalised) < MIN_CAPITAL_SHARE * len(texts):
        return False
    num_known = sum(
        vocabulary.has_piece(lowered(text, dotless_i)) and _name_margin(text, vocabulary, dotless_i) < 0.0
        for text in capitalised
    )
    min_known = MIN_KNOWN_IN_HEADLINE if any(map(str.islower, texts)) else MIN_KNOWN_IN_TITLE
    return num_known >= max(min_known, MIN_KNOWN_SHARE * len(capitalised))


def _is_long_lowercase_word(word: re.Match[str]) -> bool:
    """Whether a word is too long to be lowercase in a headline; after a bracket or a slash, any word may be."""
    return len(word[0]) > MAX_SHORT_WORD and word[0].islower() and word.string[word.start() - 1] == " "


def _with_sentence_starts(line: str, words: list[re.Match[str]], vocabulary: Vocabulary, language: str | None) -> str:
    """Return a line in lowercase with a capital at the beginning of each sentence."""
    outside_items = words[0].string
    dotless_i = has_dotless_i(language)
    candidate = re.sub(MAY_START, lambda match: match[0][:-1] + capital(match[0][-1], dotless_i), outside_items)
    firsts = (
        next((offset for offset in range(start, end) if outside_items[offset].isalnum()), end)
        for start, end in split_sentences(candidate.replace("\n", "-"), language)  # inside a divided word
    )
    return _with_capitals_at(firsts, line, words, vocabulary, dotless_i)


def _with_quoted_starts(line: str, vocabulary: Vocabulary, dotless_i: bool) -> str:
    starts = [match.end() - 1 for match in re.finditer(QUOTED_START, line)]
    return _with_capitals_at(starts, line, _words_outside_items(line), vocabulary, dotless_i) if starts else line


def _with_capitals_at(
    offsets: Iterable[int], line: str, words: list[re.Match[str]], vocabulary: Vocabulary, dotless_i: bool
) -> str:
    """Return a line with capitals for the words that begin at some offsets.

    Unknown words whose capital would come back as that of a name, such as "brb", stay as they are.
    """
    texts = {word.start(): word[0] for word in words}
    letters = list(line)
    for offset in texts.keys() & set(offsets):
        text = texts[offset]
        form = capital(text[0], dotless_i) + text[1:]
        if _is_known(form, vocabulary) or _name_margin(text, vocabulary, dotless_i) <= NAME_MARGIN:
            letters[offset] = form[0]
    return "".join(letters)


def _with_names(line: str, vocabulary: Vocabulary, dotless_i: bool) -> str:
    """Return a line with capitals for names; words with a capital, such as the first one, stay as they are."""
    words = _words_outside_items(line)
    letters = list(line)
    for word, margin in zip(words, _margins(line, words, vocabulary, dotless_i), strict=True):
        text = word[0]
        if not text.islower() or not vocabulary.reads(text) or re.fullmatch(VARIABLE, text):  # what it lacks is copied
            continue
        form = text
        if margin > NAME_MARGIN:
            form = capital(text[0], dotless_i) + text[1:]
        if len(text) in ABBREVIATION_LENGTHS and _is_abbreviation(text, vocabulary, dotless_i):
            form = raised(text, dotless_i)
        if form != text and len(form) == len(text) and _is_known(form, vocabulary):
            letters[word.start() : word.end()] = form
    return "".join(letters)


def _is_known(word: str, vocabulary: Vocabulary) -> bool:
    """Whether the vocabulary has a word, up to an apostrophe or a hyphen, as one piece; it has no form of "tmrw"."""
    stem = re.split("['\u2019-]", word, maxsplit=1)[0]
    return vocabulary.has_piece(vocabulary.normal_form(stem).text)


def _without_title(line: str, words: list[re.Match[str]], vocabulary: Vocabulary, dotless_i: bool) -> str:
    """Return a headline with all words in lowercase but names and the first one of each sentence."""
    outside_items = words[0].string
    starts = {match.end() - 1 for match in (*re.finditer(MAY_START, outside_items), *re.finditer(QUOTED_START, line))}
    letters = list(line)
    for word, margin in zip(words, _margins(line, words, vocabulary, dotless_i), strict=True):
        text = word[0]
        lowercase = lowered(text, dotless_i)
        is_changed = text[1:] != lowercase[1:] or len(lowercase) != len(text)
        if word.start() in starts or is_changed or margin > NAME_MARGIN:
            continue
        letters[word.start() : word.end()] = lowercase
    return "".join(letters)


def _margins(line: str, words: list[re.Match[str]], vocabulary: Vocabulary, dotless_i: bool) -> list[float]:
    """Return for each word the log rank of its lowercase form minus that of its capitalised form.

    A neighbour with a positive margin adds a share of it, unless one of the two words has one letter, as "I" and
    "l'Europe" have before an apostrophe: such a word is not a part of a name. A margin above `NAME_MARGIN` makes the
    word a name.
    """
    alone = [_name_margin(word[0], vocabulary, dotless_i) for word in words]
    margins = list(alone)
    for index, word in enumerate(words):
        for neighbour in (index - 1, index + 1):
            if not 0 <= neighbour < len(words) or _begins_with_one_letter(word, words[neighbour]):
                continue
            left, right = sorted((word.span(), words[neighbour].span()))
            is_first = neighbour == 0 and line[: words[0].start()].strip() == ""  # its capital says nothing
            if line[left[1] : right[0]] == " " and not is_first:
                margins[index] += max(0.0, min(MAX_FROM_NEIGHBOUR, NEIGHBOUR_SHARE * alone[neighbour]))
    return margins


def _begins_with_one_letter(*words: re.Match[str]) -> bool:
    return any(word[0][1:2] in ("", "'", "\u2019") for word in words)


def _name_margin(word: str, vocabulary: Vocabulary, dotless_i: bool) -> float:
    lowercase = lowered(word, dotless_i)
    return vocabulary.log_rank(lowercase) - vocabulary.log_rank(capital(lowercase[0], dotless_i) + lowercase[1:])


def _is_abbreviation(word: str, vocabulary: Vocabulary, dotless_i: bool) -> bool:
    return _abbreviation_margin(word, vocabulary, dotless_i) > ABBREVIATION_MARGIN


def _are_words(vocabulary: Vocabulary, dotless_i: bool, words: Sequence[str]) -> bool:
    """Whether words in capitals are more frequent in lowercase, or with one capital, than as abbreviations."""
    margins = (_abbreviation_margin(lowered(word, dotless_i), vocabulary, dotless_i) for word in words)
    return sum(margins) < MAX_MARGIN_OF_WORDS


def _abbreviation_margin(word: str, vocabulary: Vocabulary, dotless_i: bool) -> float:
    """Return the log rank of a lowercase word, or of its capitalised form, minus that of the word in capitals."""
    capitals = raised(word, dotless_i)
    if not vocabulary.covers(capitals):
        return -LOG_RANK_OF_UNKNOWN  # of "N\xc3O" the vocabulary may know only the lowercase form
    other_forms = min(vocabulary.log_rank(word), vocabulary.log_rank(capital(word[0], dotless_i) + word[1:]))
    return other_forms - vocabulary.log_rank(capitals)


def _with_lowercase_start(translation: str, vocabulary: Vocabulary, dotless_i: bool) -> str:
    """Return a translation without the capital of its first word, unless the word is a name, or "I"."""
    word = next(iter(_words_outside_items(translation)), None)
    if word is None or not word[0][0].isupper() or word[0][1:] != word[0][1:].lower():
        return translation
    lowercase = lowered(word[0], dotless_i)
    margin = vocabulary.target_log_rank(lowercase) - vocabulary.target_log_rank(word[0])
    if margin > NAME_MARGIN or len(lowercase) != len(word[0]):
        return translation
    return translation[: word.start()] + lowercase[0] + translation[word.start() + 1 :]
