"""Translations with known omissions: references without some of the words that a word aligner links."""

import os
import random
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from capsule_mt.coverage.calibration.words import Links, word_spans
from capsule_mt.files.reading import read_parallel

# the most frequent words of a text are its function words, which often have no translation of their own
FUNCTION_WORDS, SHARE_OF_VOCABULARY = 50, 0.01
# content words to drop: a number of them, or (as a float) a share
AMOUNTS: tuple[int | float, ...] = (0, 1, 2, 0.5)
MIN_WORDS = 8  # that a translation must have for `cut_out`
_SPACE_BEFORE_MARK = re.compile(r"(?<!\s)\s+(?=[,.;:!?])")


class WithOmissions(NamedTuple):
    """A source, the remainder of its reference, and for the span of each content word whether it was dropped.

    amount: the entry of `AMOUNTS`; 0 where nothing was dropped.
    """

    source: str
    translation: str
    is_omitted: dict[tuple[int, int], bool]
    amount: int | float

    @property
    def translated_share(self) -> float:
        """The share of content words that are still translated."""
        return 1 - sum(self.is_omitted.values()) / len(self.is_omitted)

    def labelled(self, words: Sequence[Any]) -> list[tuple[Any, bool]]:
        """Return the content words among `words`, matched by span, each with whether it is translated."""
        return [
            (word, not is_omitted)
            for (start, end), is_omitted in self.is_omitted.items()
            for word in words
            if word.start < end and start < word.end
        ]


def function_words(sources: Sequence[str], extra_files: Sequence[str | os.PathLike[str]] | None = None) -> set[str]:
    """Return the most frequent words of a text, in lower case; the first of two `extra_files` is counted, too."""
    texts = [sources] if extra_files is None else [sources, read_parallel(extra_files)[0]]
    counts = Counter(
        word.lower() for text in texts for source in text for word, _ in word_spans(source) if word.isalnum()
    )
    num_words = min(FUNCTION_WORDS, int(SHARE_OF_VOCABULARY * len(counts)))
    return {word for word, _ in counts.most_common(num_words)}


def _content_words(source: str, links: Links, frequent: set[str]) -> list[int]:
    """Return the positions of the words that have a link and are not function words."""
    words = word_spans(source)
    positions = sorted({position for position, _ in links})
    return [
        position
        for position in positions
        if words[position][0].isalnum() and words[position][0].lower() not in frequent
    ]


def drop_words(
    sources: Sequence[str], references: Sequence[str], links: Sequence[Links], frequent: set[str]
) -> list[WithOmissions]:
    """Drop 0, 1, 2 and half of the content words of each source from its reference.

    Content words have a link and are not among the `frequent` words. Dropping a source word removes every target word
    linked to it, and so drops other source words that have only those links. Sentences with fewer than three content
    words are left out.

    Args:
        links: between `split_words` of each source and of its reference.
    """
    chance, examples = random.Random(1), []
    for source, reference, pair_links in zip(sources, references, links, strict=True):
        words, targets = word_spans(source), word_spans(reference)
        linked = {position: {t for s, t in pair_links if s == position} for position, _ in pair_links}
        content = _content_words(source, pair_links, frequent)
        if len(content) < 3:
            continue
        for amount in AMOUNTS:
            num_dropped = amount if isinstance(amount, int) else int(amount * len(content) + 0.5)
            dropped_targets = set().union(*(linked[position] for position in chance.sample(content, num_dropped)))
            examples.append(
                WithOmissions(
                    source,
                    _without(reference, [targets[position][1] for position in sorted(dropped_targets)]),
                    {words[position][1]: linked[position] <= dropped_targets for position in content},
                    amount,
                )
            )
    return examples


def _without(text: str, spans: Sequence[tuple[int, int]]) -> str:
    for start, end in reversed(spans):
        text = text[:start] + " " + text[end:]
    return _SPACE_BEFORE_MARK.sub("", " ".join(text.split()))


def cut_out(translation: str, amount: int | float, chance: random.Random) -> str | None:
    """Cut `amount` consecutive words, a number or a share, out of a translation; return `None` for under 8 words."""
    spans = [span for word, span in word_spans(translation) if word[0].isalnum()]
    if len(spans) < MIN_WORDS:
        return None
    num_words = amount if isinstance(amount, int) else max(1, round(amount * len(spans)))
    first = chance.randrange(len(spans) - num_words + 1)
    return _without(translation, [(spans[first][0], spans[first + num_words - 1][1])])
