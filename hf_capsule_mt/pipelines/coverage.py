"""What a translation left out, word by word of the user's string, by PAST and FUTURE (Zheng et al. 2019)."""

import re
from collections import Counter
from collections.abc import Sequence

from transformers import PreTrainedTokenizerBase

from hf_capsule_mt.pipelines.results import Coverage, SentenceCoverage, Word
from hf_capsule_mt.pipelines.segments import Document, Piece
from hf_capsule_mt.pipelines.sentences import Span

# words, and each mark by itself
WORDS = re.compile(r"\w+(?:['\u2019\-]\w+)*|[^\w\s]")
# scripts that put no space between words, where a token of the vocabulary stands for a word
UNSPACED_SCRIPTS = re.compile(r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff]")
LONGEST_REPEATED_PHRASE = 6
Offsets = Sequence[tuple[int, int] | None]


def coverage_of(
    document: Document, rank: int, translations: list[str], tokenizer: PreTrainedTokenizerBase, prefix: str
) -> Coverage:
    """Return the coverage of a text by its translation of some rank, whose text is given for each piece."""
    words: list[Word] = []
    sentences, weights, repetitions = [], [], []
    for piece, translation in zip(document.pieces, translations, strict=True):
        coverage = piece.translations.coverage
        if coverage is None:
            raise RuntimeError("the piece was translated without coverage")
        source = document.text[piece.span.start : piece.span.end]
        sentences.append(SentenceCoverage(*piece.span, score=float(coverage.score[rank])))
        weights.append(float(coverage.words[rank].sum()))
        repetitions += repeated_phrases(translation, source)
        for span, tokens in words_of(document.text, piece.span, piece_offsets(piece, source, tokenizer, prefix)):
            past, future, covered, untranslated = (
                float(values[rank, tokens].float().mean())
                for values in (coverage.past, coverage.future, coverage.covered, coverage.untranslated)
            )
            word = document.text[span.start : span.end]
            words.append(Word(word, *span, past, future, covered, untranslated=untranslated >= 0.5))  # most tokens are
    weighted = sum(weight * sentence.score for weight, sentence in zip(weights, sentences, strict=True))
    score = weighted / sum(weights) if sum(weights) else 1.0
    return Coverage(score, tuple(words), tuple(sentences), tuple(repetitions))


def words_of(text: str, span: Span, offsets: Offsets) -> list[tuple[Span, list[int]]]:
    """Return the words in a span of a text, and which tokens each is made of.

    offsets: for each token, the characters of the span that it stands for, or `None`.
    """
    part = text[span.start : span.end]
    words: list[tuple[Span, list[int]]] = []
    for match in WORDS.finditer(part):
        places = {n: place for n, place in enumerate(offsets) if place and _overlap(place, match.span())}
        if UNSPACED_SCRIPTS.search(match[0]):
            cut = {(max(start, match.start()), min(end, match.end())) for start, end in places.values()}
            groups = [(part_of, [n for n in places if _overlap(places[n], part_of)]) for part_of in sorted(cut)]
        else:
            groups = [(match.span(), list(places))]
        words += [(Span(span.start + start, span.start + end), tokens) for (start, end), tokens in groups if tokens]
    return words


def piece_offsets(piece: Piece, source: str, tokenizer: PreTrainedTokenizerBase, prefix: str) -> Offsets:
    """Return the characters of a piece that each of its tokens stands for, as its own tokenisation says if it does."""
    if piece.source.offset_mapping is None:
        return token_offsets(tokenizer, source, piece.source.token_ids, prefix)
    return _without_prefix(piece.source.offset_mapping, prefix)


def token_offsets(tokenizer: PreTrainedTokenizerBase, text: str, token_ids: list[int], prefix: str) -> Offsets:
    """Return the characters of a text that each token stands for; `None` for special tokens and for the prefix's."""
    if getattr(tokenizer, "is_fast", False):
        encoded = tokenizer(prefix + text, return_offsets_mapping=True, verbose=False)
        if list(encoded["input_ids"])[: len(token_ids)] == token_ids:
            return _without_prefix(encoded["offset_mapping"][: len(token_ids)], prefix)
    return _offsets_by_search(tokenizer, prefix + text, token_ids, len(prefix))


def _without_prefix(offset_mapping: Sequence[tuple[int, int]], prefix: str) -> Offsets:
    moved = [(start - len(prefix), end - len(prefix)) for start, end in offset_mapping]
    return [place if 0 <= place[0] < place[1] else None for place in moved]


def _offsets_by_search(tokenizer: PreTrainedTokenizerBase, text: str, token_ids: list[int], skipped: int) -> Offsets:
    """Look for each token after the one before, for tokenizers that do not know its place."""
    special, place = set(tokenizer.all_special_ids), 0
    offsets: list[tuple[int, int] | None] = []
    for token_id, token in zip(token_ids, tokenizer.convert_ids_to_tokens(token_ids), strict=True):
        surface = token.replace("▁", " ").strip()
        found = text.find(surface, place, place + len(surface) + 8) if surface else -1
        if token_id in special or found < 0:
            offsets.append(None)
            continue
        place = found + len(surface)
        offsets.append((found - skipped, place - skipped) if found >= skipped else None)
    return offsets


def repeated_phrases(translation: str, source: str) -> list[str]:
    """Return the phrases that a translation says twice in a row, unless its source repeats itself as often."""
    allowed = sum(_doubled(source).values())
    found = _doubled(translation)
    return [] if sum(found.values()) <= allowed else list(found)


def _doubled(text: str) -> Counter[str]:
    """Count the phrases that are followed by themselves."""
    words = [match[0].casefold() for match in WORDS.finditer(text)]
    found: Counter[str] = Counter()
    place = 0
    while place < len(words):
        for length in range(LONGEST_REPEATED_PHRASE, 0, -1):
            phrase = words[place : place + length]
            is_phrase = len(phrase) == length and any(character.isalnum() for word in phrase for character in word)
            if is_phrase and words[place + length : place + 2 * length] == phrase:
                found[" ".join(phrase)] += 1
                place += length
                break
        else:
            place += 1
    return found


def _overlap(one: tuple[int, int], other: tuple[int, int]) -> bool:
    return one[0] < other[1] and other[0] < one[1]
