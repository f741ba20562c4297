"""Which words of a translation are of which words of its source, read from an attention head."""

import difflib
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from capsule_mt.text.capitals import with_capitals
from capsule_mt.text.keeping import Masked, is_item
from capsule_mt.text.segments import Document
from capsule_mt.text.sentences import Span
from capsule_mt.text.words import WORDS, SourceWord, is_mark, target_words

# The best of 20 pairs of values, by the links of a word aligner on 400 sentences of Tatoeba
LEAST_SHARE = 0.3  # of the attention of a word that a link needs
LEAST_OF_BEST = 0.8  # of the share of the best source word that a further link needs


class Link(NamedTuple):
    """The characters of a source word, and of a word of its translation."""

    source: Span
    target: Span


def links_of(
    words: Sequence[SourceWord],
    ids: Sequence[int],
    decode: Callable[[Sequence[int]], str],
    rows: Sequence[Sequence[float]],
) -> list[Link]:
    """Return the links of a piece; characters of the target count in the decoded translation.

    Args:
        words: the words of the source, with their tokens.
        ids: the tokens of the translation.
        rows: how much each token of the translation is of each of the source [T][S].
    """
    found, text = [], decode(ids)
    sums = [sum(share for share in row if share > 0.0) or 1.0 for row in rows]
    for target, tokens in target_words(decode, ids):
        alike = [word for word in words if word.is_mark == is_mark(text[target.start : target.end])]
        shares = [
            sum(rows[t][s] / sums[t] for t in tokens for s in word.tokens) / max(len(tokens), 1) for word in alike
        ]
        least = max(LEAST_SHARE, LEAST_OF_BEST * max(shares, default=0.0))
        found += [Link(word.span, target) for word, share in zip(alike, shares, strict=True) if share >= least]
    return found


def restored_links(source: Masked, links: Iterable[Link], decoded: str, text: str) -> list[Link]:
    """Return the links of a translation in which something was put back, and of what it keeps."""
    before, after = (list(WORDS.finditer(one)) for one in (decoded, text))
    matcher = difflib.SequenceMatcher(None, [one[0] for one in before], [one[0] for one in after], autojunk=False)
    moved = {
        before[block.a + n].span(): Span(*after[block.b + n].span())
        for block in matcher.get_matching_blocks()
        for n in range(block.size)
    }
    found = [Link(link.source, moved[link.target]) for link in links if link.target in moved]
    for part, span in source.parts:
        place = text.find(part) if is_item(part) else -1
        if place >= 0:
            found.append(Link(source.source_span(span), Span(place, place + len(part))))
    return found


def numbered_links(
    document: Document, translation: str, texts: Sequence[str], links: Sequence[Sequence[Link]]
) -> tuple[tuple[int, int], ...]:
    """Return the links between the words of a text and of its translation, as `str.split` counts them.

    What is between two pieces is linked to its copy.

    Args:
        texts: the translations of the pieces.
        links: of each piece.
    """
    found: list[Link] = []
    place, end = 0, 0
    for number, (piece, text, own) in enumerate(zip(document.pieces, texts, links, strict=True)):
        at = translation.find(with_capitals(text) if document.in_capitals else text, end)
        if number or document.copies:
            found += _copied(document.text, Span(place, piece.span.start), at)
        found += [Link(source, Span(at + target.start, at + target.end)) for source, target in own]
        place, end = piece.span.end, at + len(text)
    if document.copies:
        found += _copied(document.text, Span(place, len(document.text)), len(translation))
    sources, targets = _word_numbers(document.text), _word_numbers(translation)
    words, others = document.text.split(), translation.split()
    pairs = set()
    for source, target in found:
        pair = sources[source.start], targets[target.start]
        # a mark at the end of a word says nothing of the word
        if not is_mark(document.text[source.start : source.end]) or is_mark(words[pair[0]] + others[pair[1]]):
            pairs.add(pair)
    return tuple(sorted(pairs))


def _copied(text: str, span: Span, end: int) -> list[Link]:
    """Return the links of a part of a text to its copy, which ends at some character of the translation."""
    shift = end - span.end
    words = (Span(*match.span()) for match in WORDS.finditer(text, span.start, span.end))
    return [Link(word, Span(word.start + shift, word.end + shift)) for word in words]


def _word_numbers(text: str) -> list[int]:
    """Return for each character of a text which of its words it is in, as `str.split` counts them; -1 for a space."""
    numbers, number, inside = [], -1, False
    for character in text:
        number += not character.isspace() and not inside
        inside = not character.isspace()
        numbers.append(number if inside else -1)
    return numbers
