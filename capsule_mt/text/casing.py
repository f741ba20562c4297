"""Lines in CAPITALS, Title Case or lowercase: the model reads sentence case.

Translations get CAPITALS and lowercase back, but not Title Case, which few languages have. Short lines in lowercase or
Title Case stay as they are: they are mostly strings of programs and headings, whose words are often names.

Models have seen few such lines. The vocabulary tells which words are names: a name's capitalised form has a lower id
than its lowercase form, since ids grow as frequencies fall. The rules see a `Form`, where an item is one character;
each letter replaces a letter.
"""

import re
from collections.abc import Iterable, Sequence

from capsule_mt.text.rules import BREAK, CASED_WORD, ITEM
from capsule_mt.text.sentences import Span, language_code, split_sentences
from capsule_mt.text.vocabulary import LOG_RANK_OF_UNKNOWN, Vocabulary

CAPITALS, LOWERCASE = "capitals", "lowercase"
LOWERCASE_START = "lowercase start"  # "the man is in London."
DOTLESS_I_LANGUAGES = frozenset({"tr", "az"})  # whose pairs are I and \u0131, \u0130 and i
MIN_LETTERS = 7  # of a text in capitals; fewer may be abbreviations
LINE = rf"[^\n{BREAK}]+"
NO_WORDS = re.compile(r">>[^<>\s]+<<|&\w+;")  # tokens of languages, and entities such as "&lt;"
# up to a letter that may begin a sentence; without the bound, dots without a letter after them take quadratic time
SENTENCE_START = rf"(?:^|[.!?\u2026]\s)[^\w{ITEM}]{{0,50}}\w"
MAY_START = rf"(?:\A|[.!?\u2026])[^\w\n{ITEM}]{{0,50}}[^\W\d_]"
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
ABBREVIATION_MARGIN, ABBREVIATION_LENGTHS = 1.0, range(2, 5)
# the sum of a short text's margins: of words of two to six letters in FLORES and Tatoeba, half of them held out, it
# takes 92 % for words, and 10 % of the abbreviations
MAX_MARGIN_OF_WORDS = -5.0
LONG_LOWERCASE_WORD = re.compile(rf" [a-z]{{{MAX_SHORT_WORD + 1},}}[ ,.]")  # most lines have one

Lines = list[tuple[Span, str]]


def in_sentence_case(text: str, vocabulary: Vocabulary, language: str | None = None) -> tuple[str, Lines]:
    """Return a text with each line in sentence case, and the lines that have another one."""
    lowercase = _without_capitals(text, vocabulary, has_dotless_i(language)) if text.isupper() else None
    if lowercase is not None:
        return lowercase, [(Span(0, len(text)), CAPITALS)]
    written: list[str] = []
    lines: Lines = []
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
    return "".join([*written, text[end:]]), lines


def restored_case(translation: str, case: str | None, vocabulary: Vocabulary, language: str | None = None) -> str:
    """Return a translation, whose items are `ITEM`s, in the case of its source, letter for letter."""
    dotless_i = has_dotless_i(language)
    if case == CAPITALS:
        return "".join(capital(letter, dotless_i) for letter in translation)
    if case == LOWERCASE:
        return _with_lowercase_start(translation, vocabulary, dotless_i)
    return translation


def has_dotless_i(language: str | None) -> bool:
    """Return whether a language has the letter \u0131, the small form of I, as Turkish does."""
    return language_code(language) in DOTLESS_I_LANGUAGES


def _line_in_sentence_case(line: str, vocabulary: Vocabulary, language: str | None) -> tuple[str, str | None]:
    """Return a line in sentence case, and its case if it had another one."""
    if not (line[:1].islower() or line[:1] in ".\u2026") and LONG_LOWERCASE_WORD.search(line) and not line.islower():
        return line, None  # most lines
    dotless_i = has_dotless_i(language)
    if (lowercase := _without_capitals(line, vocabulary, dotless_i)) is not None:
        return lowercase, CAPITALS
    words = _words(line)
    if not words:
        return line, None
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


def _words(line: str) -> list[re.Match[str]]:
    """Return the words of a line outside `NO_WORDS`; the offsets of the matches are those of the line."""
    if ">>" in line or "&" in line:
        line = NO_WORDS.sub(lambda match: " " * len(match[0]), line)
    return list(re.finditer(CASED_WORD, line))


def _without_capitals(text: str, vocabulary: Vocabulary, dotless_i: bool) -> str | None:
    """Return a text in capitals in sentence case; `None` for any other text."""
    if not text.isupper():
        return None
    words = re.findall(CASED_WORD, text)
    if not words or (sum(map(len, words)) < MIN_LETTERS and not _are_words(words, vocabulary, dotless_i)):
        return None
    # in other languages, "\u0130" becomes two characters in lowercase, and offsets must stay valid
    lowercase = lowered(text if dotless_i else text.replace("\u0130", "I"), dotless_i)
    starts = {match.end() - 1 for match in re.finditer(SENTENCE_START, text)}
    cased = "".join(text[offset] if offset in starts else letter for offset, letter in enumerate(lowercase))
    return _with_names(_with_quoted_starts(cased, vocabulary, dotless_i), vocabulary, dotless_i)


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
    outside_tokens = words[0].string
    dotless_i = has_dotless_i(language)
    candidate = re.sub(MAY_START, lambda match: match[0][:-1] + capital(match[0][-1], dotless_i), outside_tokens)
    firsts = (
        next((offset for offset in range(start, end) if _may_begin(outside_tokens[offset])), end)
        for start, end in split_sentences(candidate, language)
    )
    return _with_capitals_at(firsts, line, words, vocabulary, dotless_i)


def _may_begin(character: str) -> bool:
    return character == ITEM or character.isalnum()


def _with_quoted_starts(line: str, vocabulary: Vocabulary, dotless_i: bool) -> str:
    starts = [match.end() - 1 for match in re.finditer(QUOTED_START, line)]
    return _with_capitals_at(starts, line, _words(line), vocabulary, dotless_i) if starts else line


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
    letters = list(line)
    for word in _words(line):
        text = word[0]
        if not text.islower() or not vocabulary.reads(text) or re.fullmatch(VARIABLE, text):  # what it lacks is copied
            continue
        form = text
        if _name_margin(text, vocabulary, dotless_i) > NAME_MARGIN:
            form = capital(text[0], dotless_i) + text[1:]
        if (
            len(text) in ABBREVIATION_LENGTHS
            and _abbreviation_margin(text, vocabulary, dotless_i) > ABBREVIATION_MARGIN
        ):
            form = raised(text, dotless_i)
        if form != text and len(form) == len(text) and _is_known(form, vocabulary):
            letters[word.start() : word.end()] = form
    return "".join(letters)


def _is_known(word: str, vocabulary: Vocabulary) -> bool:
    """Whether the vocabulary has a word, up to an apostrophe or a hyphen, as one piece; it has no form of "tmrw"."""
    return vocabulary.has_piece(re.split("['\u2019-]", word, maxsplit=1)[0])


def _without_title(line: str, words: list[re.Match[str]], vocabulary: Vocabulary, dotless_i: bool) -> str:
    """Return a headline with all words in lowercase but names and the first one of each sentence."""
    outside_tokens = words[0].string
    starts = {match.end() - 1 for match in (*re.finditer(MAY_START, outside_tokens), *re.finditer(QUOTED_START, line))}
    letters = list(line)
    for word in words:
        text = word[0]
        lowercase = lowered(text, dotless_i)
        is_changed = text[1:] != lowercase[1:] or len(lowercase) != len(text)
        if word.start() in starts or is_changed or _name_margin(text, vocabulary, dotless_i) > NAME_MARGIN:
            continue
        letters[word.start() : word.end()] = lowercase
    return "".join(letters)


def _name_margin(word: str, vocabulary: Vocabulary, dotless_i: bool) -> float:
    """Return the log rank of a word's lowercase form minus that of its capitalised form; high for names."""
    lowercase = lowered(word, dotless_i)
    return vocabulary.log_rank(lowercase) - vocabulary.log_rank(capital(lowercase[0], dotless_i) + lowercase[1:])


def _are_words(words: Sequence[str], vocabulary: Vocabulary, dotless_i: bool) -> bool:
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
    word = next(iter(_words(translation)), None)
    if word is None or not word[0][0].isupper() or word[0][1:] != word[0][1:].lower():
        return translation
    lowercase = lowered(word[0], dotless_i)
    margin = vocabulary.target_log_rank(lowercase) - vocabulary.target_log_rank(word[0])
    if margin > NAME_MARGIN or len(lowercase) != len(word[0]):
        return translation
    return translation[: word.start()] + lowercase[0] + translation[word.start() + 1 :]


def lowered(text: str, dotless_i: bool) -> str:
    """Return a text in lowercase."""
    return text.replace("I", "\u0131").replace("\u0130", "i").lower() if dotless_i else text.lower()


def raised(text: str, dotless_i: bool) -> str:
    """Return a text in capitals."""
    return text.replace("i", "\u0130").upper() if dotless_i else text.upper()


def capital(letter: str, dotless_i: bool = False) -> str:
    """Return the capital of a letter; the letter itself if its capital is two letters."""
    if letter == "\xdf":
        return "\u1e9e"
    if letter == "i" and dotless_i:
        return "\u0130"
    return letter.upper() if len(letter.upper()) == 1 else letter
