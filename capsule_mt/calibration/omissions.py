"""Translations with known omissions: references from which the words that a word aligner links were dropped."""

import os
import random
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from capsule_mt.calibration.words import Links, word_spans
from capsule_mt.files.reading import read_parallel

# the most frequent words of a text are its function words, which often have no translation of their own
FUNCTION_WORDS, SHARE_OF_VOCABULARY = 50, 0.01
# how many content words to drop: so many, or this share of them
AMOUNTS: tuple[int | float, ...] = (0, 1, 2, 0.5)
FEWEST_WORDS = 8  # of a translation that something is cut out of
_SPACE_BEFORE_MARK = re.compile(r"\s+(?=[,.;:!?])")


class WithOmissions(NamedTuple):
    """A source, what is left of its reference, and for the characters of each content word whether it was dropped."""

    source: str
    translation: str
    is_omitted: dict[tuple[int, int], bool]
    amount: int | float

    @property
    def translated_share(self) -> float:
        """The share of the content words that is still translated."""
        return 1 - sum(self.is_omitted.values()) / len(self.is_omitted)

    def labelled(self, words: Sequence[Any]) -> list[tuple[Any, bool]]:
        """Return the words, found by `start` and `end`, that are content words, each with whether it is kept."""
        return [
            (word, not is_omitted)
            for (start, end), is_omitted in self.is_omitted.items()
            for word in words
            if word.start < end and start < word.end
        ]


def function_words(sources: Sequence[str], more: Sequence[str | os.PathLike[str]] | None = None) -> set[str]:
    """Return the most frequent words of a text, in lower case; `more` are two files, whose first is counted, too."""
    texts = [sources] if more is None else [sources, read_parallel(more)[0]]
    counts = Counter(
        word.lower() for text in texts for source in text for word, _ in word_spans(source) if word.isalnum()
    )
    number = min(FUNCTION_WORDS, int(SHARE_OF_VOCABULARY * len(counts)))
    return {word for word, _ in counts.most_common(number)}


def content_words(source: str, links: Links, frequent: set[str]) -> list[int]:
    """Return the places of the words with a link that are no function words."""
    words = word_spans(source)
    places = sorted({place for place, _ in links})
    return [place for place in places if words[place][0].isalnum() and words[place][0].lower() not in frequent]


def omissions_of(
    sources: Sequence[str],
    translations: Sequence[str],
    reference_links: Sequence[Links],
    translation_links: Sequence[Links],
    frequent: set[str],
) -> list[WithOmissions]:
    """Label translations: a content word is omitted if the reference links it and the translation does not.

    A sentence without content words is left out. `frequent` words do not count.
    """
    found = []
    for source, translation, wanted, given in zip(
        sources, translations, reference_links, translation_links, strict=True
    ):
        linked, words = {place for place, _ in given}, word_spans(source)
        omitted = {words[place][1]: place not in linked for place in content_words(source, wanted, frequent)}
        if omitted:
            found.append(WithOmissions(source, translation, omitted, sum(omitted.values())))
    return found


def drop_words(
    sources: Sequence[str], references: Sequence[str], links: Sequence[Links], frequent: set[str]
) -> list[WithOmissions]:
    """Drop 0, 1, 2 and half of the content words of each source from its reference.

    Content words are those with a link that are not among the `frequent` words. A word is dropped together with every
    word that is linked to it; so are other source words whose links all go with it. Sentences with fewer than three
    content words are left out.

    Args:
        links: between `split_words` of each source and of its reference.
    """
    chance, found = random.Random(1), []
    for source, reference, pair_links in zip(sources, references, links, strict=True):
        words, targets = word_spans(source), word_spans(reference)
        linked = {place: {t for s, t in pair_links if s == place} for place, _ in pair_links}
        content = content_words(source, pair_links, frequent)
        if len(content) < 3:
            continue
        for amount in AMOUNTS:
            number = amount if isinstance(amount, int) else int(amount * len(content) + 0.5)
            gone = set().union(*(linked[place] for place in chance.sample(content, number)))
            found.append(
                WithOmissions(
                    source,
                    _without(reference, [targets[place][1] for place in sorted(gone)]),
                    {words[place][1]: linked[place] <= gone for place in content},
                    amount,
                )
            )
    return found


def _without(text: str, spans: Sequence[tuple[int, int]]) -> str:
    for start, end in reversed(spans):
        text = text[:start] + " " + text[end:]
    return _SPACE_BEFORE_MARK.sub("", " ".join(text.split()))


def cut_out(translation: str, amount: int | float, chance: random.Random) -> str | None:
    """Return a translation without so many words in a row, or this share of them; `None` for less than 8 words."""
    spans = [span for word, span in word_spans(translation) if word[0].isalnum()]
    if len(spans) < FEWEST_WORDS:
        return None
    number = amount if isinstance(amount, int) else max(1, round(amount * len(spans)))
    first = chance.randrange(len(spans) - number + 1)
    return _without(translation, [(spans[first][0], spans[first + number - 1][1])])
