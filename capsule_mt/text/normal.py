"""The normal form of a text: what the model should see, and the way back to the characters of the user's text.

A character that the vocabulary lacks is replaced by its plain equivalent (a curly quote by a straight one, a ligature
by its letters), accents are composed with their letters, and invisible characters are dropped. A capitalised word that
the vocabulary lacks, such as "Às", is lowercased where the result is a piece of the vocabulary.
"""

import math
import re
import unicodedata
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import groupby, pairwise
from typing import TypeVar
from weakref import WeakKeyDictionary, proxy

from capsule_mt.text.entities import ENTITY, character_of, has_entities
from capsule_mt.text.sentences import Span
from capsule_mt.text.tokenizer_protocol import Tokenizer, unknown_tokens

# soft hyphen, zero-width spaces, marks of direction, lines through letters and under them: a model reads them as the
# ends of words
INVISIBLE = frozenset(
    "\u00ad\u0332\u0335\u0336\u034f\u061c\u180e\u200b\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2060\u2061\u2062\u2063\u2064"
    "\u2066\u2067\u2068\u2069\ufe0f\ufeff"
)
# zero-width joiners carry meaning in Persian, Indic scripts and emoji, but not between letters up to the next constant
JOINERS = "\u200c\u200d"
LAST_WITHOUT_JOINERS = "\u052f"  # Latin, Greek and Cyrillic end here
EM_DASH, BACKTICK = "\u2014", "`"
# forms between two such letters: "don`t"; a plain hyphen would make one word of the words beside a dash
BETWEEN_LETTERS = {**dict.fromkeys(JOINERS, ""), BACKTICK: "'", EM_DASH: " - "}
PLAIN = {
    "'": "\u2018\u2019\u201a\u201b\u2032\u2035\u2039\u203a\u02bb\u02bc\u02b9\u00b4\uff07\u05f3",
    '"': "\u201c\u201d\u201e\u201f\u2033\u2036\u00ab\u00bb\u301d\u301e\u301f\u05f4",
    "-": "\u2010\u2011\u2012\u2013\u2014\u2015\u2212\u2043\u2e3a\u2e3b",
    "...": "\u2026\u22ef",
    " ": "\u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u2800\u3000",
    "/": "\u2044\u2215",
    "!!": "\u203c",
    "!?": "\u2049",
    "?!": "\u2048",
}
PLAIN_FORMS = {character: plain for plain, characters in PLAIN.items() for character in characters}
# Characters that NFKC replaces without a change of meaning (it would change m² and ½): digraphs, signs of letters,
# Roman numerals, ligatures, Arabic forms, full and half width, letters of mathematics
COMPATIBLE = (
    "[\u0132\u0133\u01c4-\u01cc\u01f1-\u01f3\u2103\u2109\u2113\u2116\u2160-\u217f\ufb00-\ufb4f"
    "\ufb50-\ufdcf\ufdf0-\ufdfc\ufe70-\ufefc\uff01-\uffee\U0001d400-\U0001d7ff]"
)
# words with characters that tokenizers read as plain ones: "1\xaa", "H\u2082O", "30 \u2103", "5 \u338f", "\u2163";
# signs whose plain form is read: "5 \u2212 3", "15\u2032", "3\u20444", "\u2039 Back"
_PLAIN_READ = "\xaa\xb4\xba\u2032\u2039\u203a\u2044\u2080-\u209c\u2100-\u218b\u2212\u3300-\u33ff"
_IN_WORD = rf"[\w{_PLAIN_READ}]"
PLAIN_READ = f"[{_PLAIN_READ}]"
PLAIN_READ_WORD = rf"(?<!{_IN_WORD}){_IN_WORD}*[{_PLAIN_READ}]{_IN_WORD}*"  # compiled at its first use
WORD, NON_ASCII = re.compile(r"[^\W\d_]+"), re.compile(r"[^\x00-\x7f]")
MAY_CHANGE = re.compile(r"[^\x00-\x5f\x61-\x7f]")  # not ASCII, or a `BACKTICK`
# a comma first, so that a search is fast; Chinese has no space after one
GLUED_COMMA = r",(?<=[A-Za-z\xc0-\u052f]{2},)(?=[A-Za-z\xc0-\u052f])"
SWAPPED_COMMA = r" ,(?=[A-Za-z\xc0-\u052f])"  # "one ,two"
# not in code: "--sort=size,time", "max(width,height)", "a_b,c", "main.py,test.py"; in so many characters before it
BEFORE_CODE_COMMA, MAX_CODE = r"(?:[=_:/\\@<>{}]|\w\(|\.[a-z]{2})\S*\Z", 64
# TeX's and doubled quotes; a space before a comma or a full stop, or inside guillemets; two hyphens for a dash; a
# guillemet that is an arrow, as in "Home \xbb Products" and "Next \u203a"; the backslash of "it\'s"
SEQUENCES = (  # compiled at its first use, as most texts have none
    r"(?P<quote>(?<![\w'`])(?:''|``)(?=[^\s'`])|(?<=[^\s'`\d])''(?![\w']))"
    r"|(?:(?<=[\w)\]\"'\u201d\u2019\xbb%]) (?=[,.](?:\s|\Z)))"
    r"|(?P<inner>(?<=\xab)[ \xa0\u202f](?=\S)|(?<=\S)[ \xa0\u202f](?=\xbb))"
    r"|(?P<dash>(?<=\s)--(?=\s)|(?<=[^\W\d_])--(?=[^\W\d_]))"
    r"|(?P<guillemet>[\xab\xbb\u2039\u203a])"
    rf"|(?P<escaped>\\[\"'])|(?P<comma>{GLUED_COMMA}|{SWAPPED_COMMA})"
)
GUILLEMETS = "\xab\xbb\u2039\u203a"
# Guillemets as "<<word>>"; a bracket glued to a word, as in "word(more words)", unlike "word(s)",
# "max(width, height)"; spaces inside brackets; words divided at the end of a line, "docu-\nment", or where one ended,
# "docu- ment"; a space after a ligature, as PDF files give it; "sooo"
_SMALL = "a-z\xdf-\u00ff\u0430-\u045f"
REPEATED = r"(?P<letter>[a-zA-Z])(?P=letter){2,}"
GLUED_BRACKET = rf"\((?<=[{_SMALL}]{{3}}\()(?=[^\W\d_][\w'\u2019-]* [^();=]*\))"
FURTHER_SEQUENCES = (
    r"(?P<opening>(?<![\w<])<<(?=[^\s<>][^<>]*>>)|(?<=\s\() (?=\w[^()]* \)))"
    r"|(?P<closing>(?<=[^\s<>])>>(?![\w>])|(?<=[\w.,!?\"]) (?=\)))"
    rf"|(?P<bracket>{GLUED_BRACKET})"
    rf"|(?<=[{_SMALL}]{{2}})(?:[-\xad]\r?\n|\xac\s?)(?=[{_SMALL}]{{2}})|(?<=[\ufb01-\ufb04]) (?=[{_SMALL}])"
    rf"|(?P<divided>(?<=[{_SMALL}]{{2}})- (?=[{_SMALL}]{{2}}))|{REPEATED}"
)
FURTHER_CHARACTERS = re.compile("[\xac\ufb01-\ufb04]|\xad\\r?\\n")
MARGIN_OF_DIVIDED = 2.0  # by which a word is more frequent whole than divided
ROMAN_WORD = r"(?:[ivxlcdm]+|[IVXLCDM]+)\Z"  # also the size "XXXL"
# How rare a word may be that loses a letter which stands three times inside it: German compounds such as "Missstand"
# are rarer. Chosen on 29 of them and 50 typed words; of others, 29 of 29 compounds stay, and 52 of 55 words change.
MAX_RANK_OF_REPEATED = 16.5
# `SEQUENCES` matches only around these, or at a `GLUED_COMMA`
IN_SEQUENCES = ("''", "``", " ,", " .", *GUILLEMETS, "--", "\\")
SENTENCE_START = r"(?:^|[.!?\u2026]\s)\W*\Z"  # in the text before the first word of a sentence
MAX_ANSWERS, MAX_CACHED_LENGTH = 20_000, 64  # answers in a cache, and characters of their texts
Answer = TypeVar("Answer")
FIRST_RANK = 10  # the first ids are special tokens and marks
LOG_RANK_OF_TOKEN = 2.4  # the logarithm of the sum of 1 / rank: a word of two tokens is rarer than either
LOG_RANK_OF_UNKNOWN = 20.0  # more than that of any token
REACH = 16  # characters before a word that decide whether it begins a sentence


class NormalForm:
    """A text as the model should see it.

    Args:
        source: the user's text.
        text: its normal form.
        spans: for each character of the form, the characters of the user's text that it stands for; `None` if both
            texts are the same.
    """

    def __init__(self, source: str, text: str | None = None, spans: Sequence[Span] | None = None) -> None:
        self.source, self.text, self._spans = source, source if text is None else text, spans

    @property
    def is_unchanged(self) -> bool:
        """Whether each character of the form stands for itself."""
        return self._spans is None

    def source_span(self, span: Span) -> Span:
        """Return the span of the user's text behind a span of the form."""
        if self._spans is None:
            return span
        if span.start >= span.end:
            at = self._spans[span.start].start if span.start < len(self._spans) else len(self.source)
            return Span(at, at)
        return Span(self._spans[span.start].start, self._spans[span.end - 1].end)

    def offset(self, source_offset: int) -> int:
        """Map an offset in the user's text to one in the form; that of a dropped character, to the next character."""
        return source_offset if self._spans is None else bisect_left(self._spans, (source_offset,))

    def source_text(self, span: Span) -> str:
        """Return what the user wrote there, without invisible characters."""
        start, end = self.source_span(span)
        return "".join(character for character in self.source[start:end] if character not in INVISIBLE)


class Vocabulary:
    """What a normal form needs to know about a tokenizer: which characters and words it has; with a cache.

    of_target: of translations; by default, of sources.
    """

    def __init__(self, tokenizer: Tokenizer, *, of_target: bool = False) -> None:
        self._tokenizer, self._of_target = tokenizer, of_target
        self._covers: dict[str, bool] = {}
        self._is_piece: dict[str, bool] = {}
        self._forms: dict[str, str] = {}  # by character with its accents
        self._log_ranks: dict[str, float] = {}
        self._unchanged = set(map(chr, range(128))) - {BACKTICK}  # characters whose form is themselves

    def covers(self, text: str) -> bool:
        """Return whether the vocabulary has the characters of a text, inside a word."""
        answer = self._covers.get(text)
        if answer is None:
            probe = f"a{text}a"
            if self._of_target:
                ids, unknown_id = self._tokenizer.encode_target(probe), self._tokenizer.unknown_id
                # a byte of a character is no text alone
                answer = unknown_id not in ids and not any(
                    "\ufffd" in self._tokenizer.decode([token]) for token in ids
                )
            else:
                answer = not unknown_tokens(self._tokenizer, probe, self._tokenizer.encode(probe))
            _cache(self._covers, text, answer)
        return answer

    @cached_property
    def for_target(self) -> "Vocabulary":
        """The vocabulary of translations."""
        return Vocabulary(self._tokenizer, of_target=True)

    def known_form(self, text: str) -> str:
        """Return a text, in its normal form if the vocabulary lacks any of its characters."""
        return text if all(map(self.covers, set(text))) else self.normal_form(text).text

    def has_piece(self, word: str) -> bool:
        """Return whether a word is one piece of the vocabulary."""
        answer = self._is_piece.get(word)
        if answer is None:
            encoded = self._tokenizer.encode_target(word) if self._of_target else self._tokenizer.encode(word).ids
            ids = [token for token in encoded if token not in self._tokenizer.special_ids]
            answer = len(ids) == 1 and ids[0] != self._tokenizer.unknown_id
            _cache(self._is_piece, word, answer)
        return answer

    def reads(self, word: str) -> bool:
        """Return whether the vocabulary has a word in its normal form."""
        return self.covers(self.normal_form(word).text)

    def log_rank(self, word: str) -> float:
        """Return how rare a word is: about its negative log-probability, less a constant for each of its tokens.

        Vocabularies are sorted by frequency, and the frequency of a token falls as 1 / rank (Zipf's law).
        """
        answer = self._log_ranks.get(word)
        if answer is None:
            ids = self._tokenizer.encode(self.normal_form(word).text).ids
            answer = self._log_rank_of(token for token in ids if token not in self._tokenizer.special_ids)
            _cache(self._log_ranks, word, answer)
        return answer

    def target_log_rank(self, word: str) -> float:
        """Return how rare a word of the target language is."""
        return self._log_rank_of(self._tokenizer.encode_target(word)[:-1])

    def _log_rank_of(self, ids: Iterable[int]) -> float:
        unknown_id = self._tokenizer.unknown_id
        return sum(
            LOG_RANK_OF_UNKNOWN if token == unknown_id else math.log(token + FIRST_RANK) + LOG_RANK_OF_TOKEN
            for token in ids
        )

    def normal_form(self, source: str, protected: Iterable[Span] = ()) -> NormalForm:
        """Return the normal form of a text; protected spans, in order, stay as they are."""
        is_ascii = source.isascii()
        is_composed = is_ascii or unicodedata.is_normalized("NFC", source)
        has_sequences = (
            any(map(source.__contains__, IN_SEQUENCES))
            or (source.count(",") > source.count(", ") and re.search(GLUED_COMMA, source) is not None)
            or _may_have_further_sequences(source)
        )
        if (
            is_composed
            and not has_sequences
            and not has_entities(source)
            and BACKTICK not in source
            and (is_ascii or self._unchanged.issuperset(NON_ASCII.findall(source)))
        ):
            return NormalForm(source)
        sequences = self._sequences(source) if has_sequences else {}
        sequence_spans = sorted(sequences)
        parts: list[str] = []
        spans: list[Span] = []
        end = 0
        for protected_span in (*protected, Span(len(source), len(source))):
            for span in _clusters(source, Span(end, protected_span.start), is_composed, sequence_spans):
                form = sequences.get(span)
                form = self._form_of(source, span) if form is None else form
                parts += [source[end : span.start], form]
                spans += [*_character_spans(end, span.start), *[span] * len(form)]
                end = span.end
            parts.append(source[end : protected_span.end])
            spans += _character_spans(end, protected_span.end)
            end = protected_span.end
        text = "".join(parts)
        if not self._unchanged.issuperset(text):
            text = WORD.sub(self._lowercased, text)
        return NormalForm(source) if text == source else NormalForm(source, text, spans)

    def _sequences(self, source: str) -> dict[Span, str]:
        """Return the forms of sequences of characters by their spans."""
        forms: dict[Span, str] = {}
        has_spaces_inside = re.match("[^\xbb]*\xab", source) is not None  # unlike German \xbbquotes\xab
        arrows = _arrows(source)
        for match in re.finditer(SEQUENCES, source):
            # the model knows guillemets
            if match.lastgroup == "inner" and (not has_spaces_inside or self.covers("\xab")):
                continue
            if match.lastgroup == "guillemet" and match.start() not in arrows:
                continue
            if match.lastgroup == "comma":
                context = source[max(match.start() - MAX_CODE, 0) : match.start()]
                if re.search(BEFORE_CODE_COMMA, context) is not None:
                    continue
            is_in_word = source[match.start() - 1 : match.start()].isalpha()
            dash = " - " if is_in_word else "-"
            by_group = {"quote": '"', "escaped": match[0][-1], "dash": dash, "guillemet": match[0], "comma": ", "}
            forms[Span(*match.span())] = by_group.get(str(match.lastgroup), "")
        return forms | self._further_sequences(source)

    def _further_sequences(self, source: str) -> dict[Span, str]:
        """Return the forms of `FURTHER_SEQUENCES` by their spans."""
        forms: dict[Span, str] = {}
        closing = ""  # the mark that closes the one that is open
        for match in re.finditer(FURTHER_SEQUENCES, source):
            kind, form = match.lastgroup, ""
            if kind == "opening" or (kind == "closing" and match[0] == closing):
                form = "" if match[0] == " " else '"'
                closing = match[0].replace("<<", ">>") if kind == "opening" else ""
            elif kind == "closing":
                form = match[0]
            elif kind == "bracket":
                form = " ("
            elif kind == "divided":
                form = "" if self._is_divided(source, match) else match[0]
            elif kind == "letter":
                form = self._without_repeats(source, match)
            forms[Span(*match.span())] = form
        return forms

    def _is_divided(self, source: str, match: re.Match[str]) -> bool:
        """Whether a hyphen and a space divide a word, as in "docu- ment", but not in "pre- and post-war"."""
        left, right = _word_around(source, match)
        return self.log_rank(left + right) < self.log_rank(left) + self.log_rank(right) - MARGIN_OF_DIVIDED

    def _without_repeats(self, source: str, match: re.Match[str]) -> str:
        """Return a letter once or twice instead of more often, whichever makes the more frequent word."""
        left, right = _word_around(source, match)
        letters = match[0]
        is_code = source.endswith("#", 0, match.start() - len(left))  # as in "&#xfffe;"
        is_alone = not (left + right).isalpha()
        is_acronym = len(letters) == 3 and letters.isupper()  # as in "IEEE"
        if is_code or is_alone or is_acronym or re.match(ROMAN_WORD, left + letters + right) is not None:
            return letters
        before, after = (re.sub(REPEATED, r"\g<letter>", part) for part in (left, right))
        ranks = {form: self.log_rank(f"{before}{form}{after}".lower()) for form in (letters[0], letters[:2])}
        form = min(ranks, key=ranks.__getitem__)
        may_be_compound = len(letters) == 3 and left and right  # of German: "Missstand"
        return letters if may_be_compound and ranks[form] > MAX_RANK_OF_REPEATED else form

    def _form_of(self, source: str, span: Span) -> str:
        """Return the form of a character with its accents."""
        cluster = source[span.start : span.end]
        if cluster[0] == "&":
            cluster = character_of(cluster) or cluster
        if cluster.isascii() and cluster != BACKTICK:
            return cluster
        between_letters = BETWEEN_LETTERS.get(cluster)
        if between_letters is not None and not (cluster == EM_DASH and self.covers(cluster)):
            neighbours = source[max(span.start - 1, 0) : span.start] + source[span.end : span.end + 1]
            if len(neighbours) == 2 and neighbours.isalpha() and max(neighbours) <= LAST_WITHOUT_JOINERS:
                return between_letters
            if cluster != EM_DASH:
                return cluster
        form = self._forms.get(cluster)
        if form is None:
            form = self._plain(cluster)
            _cache(self._forms, cluster, form)
            if form == cluster and len(cluster) == 1 and self.covers(cluster):
                self._unchanged.add(cluster)
        return form

    def _plain(self, cluster: str) -> str:
        visible = "".join(character for character in cluster if character not in INVISIBLE)
        composed = unicodedata.normalize("NFC", visible)
        alike = "".join(map(_compatible, composed))
        plain = "".join(PLAIN_FORMS.get(character, character) for character in alike)
        candidates = (visible, composed) if len(visible) == 1 else (composed, visible)
        return next((form for form in (*candidates, alike, plain) if self.covers(form)), candidates[0])

    def _lowercased(self, match: re.Match[str]) -> str:
        """Return a capitalised word that the vocabulary lacks as it knows it: in lowercase or without accents."""
        word = match[0]
        if self._unchanged.issuperset(word) or self.covers(word) or not word[0].isupper():
            return word
        context = match.string[max(match.start() - REACH, 0) : match.start()]
        begins_sentence = re.search(SENTENCE_START, context) is not None
        lowered = word[0].lower() + word[1:]
        unaccented = "".join(
            letter if self.covers(letter) else unicodedata.normalize("NFD", letter)[0] for letter in word
        )
        for form in (lowered, word.lower(), unaccented if len(word) > 1 else word):  # A would not stand for "\xc5"
            # inside a sentence a capitalised word is a name, which is copied rather than changed
            is_known = self.has_piece(form) or (begins_sentence and form == lowered and self.covers(form))
            if len(form) == len(word) and is_known:
                return form
        return word


_vocabularies: "WeakKeyDictionary[Tokenizer, Vocabulary]" = WeakKeyDictionary()


def vocabulary_of(tokenizer: Tokenizer) -> Vocabulary:
    """Return the vocabulary of a tokenizer, the same object at each call, to use while the tokenizer exists."""
    vocabulary = _vocabularies.get(tokenizer)
    if vocabulary is None:
        # a reference to the tokenizer would keep this entry, and with it both, forever
        vocabulary = _vocabularies[tokenizer] = Vocabulary(proxy(tokenizer))
    return vocabulary


def _cache(answers: dict[str, Answer], text: str, answer: Answer) -> None:
    if len(text) > MAX_CACHED_LENGTH:
        return
    if len(answers) >= MAX_ANSWERS:
        answers.clear()
    answers[text] = answer


def with_source_characters(translation: str, source: str) -> str:
    """Return a translation with words such as "CO\u2082" as its source has them, if it copies their plain form, "CO2".

    Letters such as "in", of "\u33cc", may be a word of the translation: unless they end with a capital, as "IV" does,
    they must stand beside a number.
    """
    if source.isascii() or re.search(PLAIN_READ, source) is None:
        return translation
    words = re.findall(PLAIN_READ_WORD, source)
    plain_source = _plain_read(source)
    for word in dict.fromkeys(words):
        plain = _plain_read(word)
        parts = translation.split(plain)
        counts = {plain_source.count(plain), len(parts) - 1, source.count(word)}
        are_words = not any(left[-1:].isalnum() or right[:1].isalnum() for left, right in pairwise(parts))
        may_be_word = plain.isalpha() and not plain[1:][-1:].isupper()
        if len(counts) == 1 and are_words and (not may_be_word or any(map(_is_beside_number, parts, parts[1:]))):
            translation = word.join(parts)
    return translation


def _plain_read(text: str) -> str:
    """Return a text as a tokenizer reads it whose vocabulary lacks its signs."""
    return unicodedata.normalize("NFKC", "".join(PLAIN_FORMS.get(character, character) for character in text))


def _arrows(source: str) -> set[int]:
    """Return the offsets of guillemets that are arrows: of lines with only one of a pair, between spaces or outwards.

    One that points outwards is the only one of its line, and stands at the line's edge: "\xabBack", "Next\xbb".
    """
    if not any(map(source.__contains__, GUILLEMETS)):
        return set()
    arrows: set[int] = set()
    for line in re.finditer(".+", source):
        for sign, partner in zip(GUILLEMETS, "\xbb\xab\u203a\u2039", strict=True):
            if sign in line[0] and partner not in line[0]:
                outwards = f"^{sign}" if sign in "\xab\u2039" else rf"{sign}\s*$"
                between_spaces = rf"(?<!\S){sign}(?!\S)"
                form = f"{between_spaces}|{outwards}" if line[0].count(sign) == 1 else between_spaces
                pattern = f"(?<![.,!?])(?:{form})(?![.,!?])"  # beside a mark, it is a quote's: "he left.\xbb"
                arrows |= {line.start() + match.start() for match in re.finditer(pattern, line[0])}
    return arrows


def _word_around(source: str, match: re.Match[str]) -> tuple[str, str]:
    """Return the parts of a word before and after a match inside it, up to `MAX_CACHED_LENGTH` characters of each."""
    before = source[max(match.start() - MAX_CACHED_LENGTH, 0) : match.start()]
    after = source[match.end() : match.end() + MAX_CACHED_LENGTH]
    return _first_word(before[::-1])[::-1], _first_word(after)


def _first_word(text: str) -> str:
    """Return the letters, digits and underscores at the start of a text."""
    return re.sub(r"(?s)\W.*", "", text)


def _may_have_further_sequences(source: str) -> bool:
    """Whether `FURTHER_SEQUENCES` may match in a text: a fast answer for most texts."""
    return (
        "<<" in source
        or "- " in source
        or "-\n" in source
        or "-\r" in source
        or "( " in source
        or ("(" in source and re.search(GLUED_BRACKET, source) is not None)
        or re.search(REPEATED, source) is not None
        or (not source.isascii() and FURTHER_CHARACTERS.search(source) is not None)
    )


def _is_beside_number(left: str, right: str) -> bool:
    return re.search(r"[0-9]\s?\Z", left) is not None or re.match(r"\s?[0-9]", right) is not None


def ranges_of(characters: Iterable[str]) -> str:
    """Return characters as they stand between the brackets of a pattern, in ranges such as "a-c"."""
    codes = sorted(map(ord, characters))
    runs = [[code for _, code in run] for _, run in groupby(enumerate(codes), lambda entry: entry[1] - entry[0])]
    return "".join(chr(run[0]) + (f"-{chr(run[-1])}" if len(run) > 1 else "") for run in runs)


def folded(text: str) -> str:
    """Return a text in lowercase with plain quotes, character for character."""
    return "".join(map(_folded_character, text))


def _folded_character(character: str) -> str:
    lowered = PLAIN_FORMS.get(character, character).lower()
    return lowered if len(lowered) == 1 else character


def _compatible(character: str) -> str:
    return unicodedata.normalize("NFKC", character) if re.match(COMPATIBLE, character) else character


def _character_spans(start: int, end: int) -> Iterable[Span]:
    """Return the span of each character."""
    return map(Span, range(start, end), range(start + 1, end + 1))


def _clusters(text: str, span: Span, is_composed: bool, sequences: Sequence[Span]) -> list[Span]:
    """Return the spans of entities, `sequences`, and characters that may change, each with the marks that follow it.

    sequences: sorted. A composed text has no such marks; in others, all characters may change.
    """
    clusters: list[Span] = []
    ends = {match.start(): match.end() for match in ENTITY.finditer(text, *span)} if "&" in text else {}
    ends = {start: end for start, end in ends.items() if character_of(text[start:end])}
    first, stop = (bisect_left(sequences, (offset,)) for offset in span)
    ends |= {start: end for start, end in sequences[first:stop] if end <= span.end}
    offsets: Iterable[int] = range(*span)
    if is_composed:
        may_change = (match.start() for match in MAY_CHANGE.finditer(text, *span))
        offsets = sorted({*may_change, *ends})
    end = span.start
    for offset in offsets:
        if offset < end:
            continue
        if not is_composed and clusters and combines(text[offset]):
            clusters[-1] = Span(clusters[-1].start, offset + 1)
        else:
            end = ends.get(offset, offset + 1)
            clusters.append(Span(offset, end))
    return clusters


def combines(character: str) -> bool:
    """Return whether a character may be composed with the preceding one: marks, and vowels and finals of Hangul."""
    return character > "\u02ff" and (unicodedata.category(character)[0] == "M" or "\u1160" <= character <= "\u11ff")
