"""Word alignment of a source and its translation, read from an attention head."""

import difflib
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from capsule_mt.text.reading import Piece
from capsule_mt.text.segments import Document
from capsule_mt.text.sentences import Span
from capsule_mt.text.vocabulary import folded
from capsule_mt.text.words import WORDS, SourceWord, is_mark, target_words

# The best of 20 pairs of values, by the links of a word aligner on 400 sentences of Tatoeba
MIN_SHARE = 0.3  # of a word's attention that a link needs
MIN_SHARE_OF_BEST = 0.8  # of the best source word's share that a further link needs


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
    """Return the links of a piece; target spans count characters of the decoded translation.

    Args:
        words: the words of the source, with their tokens.
        ids: the tokens of the translation.
        rows: how much each token of the translation attends to each token of the source [T][S].
    """
    links, text = [], decode(ids)
    sums = [sum(share for share in row if share > 0.0) or 1.0 for row in rows]
    for target, tokens in target_words(decode, ids):
        # marks align with marks only: their attention says little
        candidates = [word for word in words if word.is_mark == is_mark(text[target.start : target.end])]
        shares = [
            sum(rows[t][s] / sums[t] for t in tokens for s in word.tokens) / max(len(tokens), 1) for word in candidates
        ]
        threshold = max(MIN_SHARE, MIN_SHARE_OF_BEST * max(shares, default=0.0))
        pairs = zip(candidates, shares, strict=True)
        links += [Link(word.span, target) for word, share in pairs if share >= threshold]
    return links


def restored_links(source: Piece, links: Iterable[Link], decoded: str, text: str) -> list[Link]:
    """Move links of a decoded translation to the words that its restored text has, and link kept items to copies."""
    decoded_words, words = list(WORDS.finditer(folded(decoded))), list(WORDS.finditer(folded(text)))
    matcher = difflib.SequenceMatcher(
        None, [word[0] for word in decoded_words], [word[0] for word in words], autojunk=False
    )
    moved = {
        decoded_words[block.a + n].span(): Span(*words[block.b + n].span())
        for block in matcher.get_matching_blocks()
        for n in range(block.size)
    }
    moved_links = [Link(link.source, moved[link.target]) for link in links if link.target in moved]
    for part in source.parts:
        start = text.find(part.written) if part.edit.is_item else -1
        if start >= 0:
            moved_links.append(Link(part.edit.span, Span(start, start + len(part.written))))
    return moved_links


def numbered_links(
    document: Document, translation: str, texts: Sequence[str], links: Sequence[Sequence[Link]]
) -> tuple[tuple[int, int], ...]:
    """Return the links between the words of a text and of its translation, as indices into `str.split`.

    The text between two pieces is linked to its copy.

    Args:
        texts: the translations of the pieces.
        links: the links of each piece.
    """
    text_links: list[Link] = []
    source_end, target_end = 0, 0
    copied_text = document.with_blank_languages
    for index, (piece, text, piece_links) in enumerate(zip(document.pieces, texts, links, strict=True)):
        start = translation.find(text, target_end)
        if index or document.copies:
            text_links += _copy_links(copied_text, Span(source_end, piece.span.start), start)
        text_links += [Link(source, Span(start + target.start, start + target.end)) for source, target in piece_links]
        source_end, target_end = piece.span.end, start + len(text)
    if document.copies:
        text_links += _copy_links(copied_text, Span(source_end, len(document.text)), len(translation))
    source_indices, target_indices = _word_indices(document.text), _word_indices(translation)
    split_source, split_target = document.text.split(), translation.split()
    pairs = set()
    for source, target in text_links:
        pair = source_indices[source.start], target_indices[target.start]
        if min(pair) < 0:  # a space inside of the quotes of French has no counterpart
            continue
        # the link of a mark at the end of a word says nothing about the word
        words = split_source[pair[0]] + split_target[pair[1]]
        if not is_mark(document.text[source.start : source.end]) or is_mark(words):
            pairs.add(pair)
    return tuple(sorted(pairs))


def _copy_links(text: str, span: Span, copy_end: int) -> list[Link]:
    """Return the links of a span to its copy, which ends at this offset of the translation."""
    shift = copy_end - span.end
    words = (Span(*match.span()) for match in WORDS.finditer(text, span.start, span.end))
    return [Link(word, Span(word.start + shift, word.end + shift)) for word in words]


def _word_indices(text: str) -> list[int]:
    """Return for each character of a text the index of its word in `text.split()`, or -1 for a space."""
    indices, index, in_word = [], -1, False
    for character in text:
        index += not character.isspace() and not in_word
        in_word = not character.isspace()
        indices.append(index if in_word else -1)
    return indices
