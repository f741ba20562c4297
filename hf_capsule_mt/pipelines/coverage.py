"""What a translation left out, word by word of the user's string, by PAST and FUTURE (Zheng et al. 2019)."""

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

import torch

from hf_capsule_mt.pipelines.pieces import Document
from hf_capsule_mt.pipelines.scores import encode_for_each
from hf_capsule_mt.pipelines.sentences import Span

# words, and each mark by itself
WORDS = re.compile(r"\w+(?:['\u2019\-]\w+)*|[^\w\s]")
# scripts that put no space between words, where a token of the vocabulary stands for a word
UNSPACED_SCRIPTS = re.compile(r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff]")
LONGEST_REPEATED_PHRASE = 6
# what is known of each token of a source
WORDWISE_COVERAGE = ("past", "future", "covered", "untranslated", "words")


def coverage_scores(
    model: Any, input_ids: torch.Tensor, attention_mask: torch.Tensor, sequences: torch.Tensor
) -> dict[str, torch.Tensor]:
    """What the model says of translations [B * returned, T] (after their start token) of the sources [B, S].

    `past`, `future`, `covered` and `untranslated` [B, returned, S], the source's `words` [B, S] and, of each
    translation, its `coverage`, how much of a word is `left` in FUTURE on average, and the average log-probability of
    its tokens in `scores` [B, returned].
    """
    if not hasattr(model, "score_coverage"):
        raise ValueError(f"coverage needs a model with guided routing, got a {type(model).__name__}")
    batch_size, returned = len(input_ids), len(sequences) // len(input_ids)
    scored = model.score_coverage(
        input_ids.repeat_interleave(returned, dim=0),
        attention_mask.repeat_interleave(returned, dim=0),
        labels=sequences[:, 1:],
        encoder_outputs=encode_for_each(model, input_ids, attention_mask, returned),
    )
    num_words = scored.words.sum(dim=-1).clamp(min=1)
    left = scored.future.masked_fill(~scored.words, 0).sum(dim=-1) / num_words
    return {
        "past": scored.past.reshape(batch_size, returned, -1),
        "future": scored.future.reshape(batch_size, returned, -1),
        "covered": scored.covered.reshape(batch_size, returned, -1),
        "untranslated": scored.untranslated.reshape(batch_size, returned, -1),
        "coverage": scored.score.reshape(batch_size, returned),
        "left": left.reshape(batch_size, returned),
        "scores": scored.log_prob.reshape(batch_size, returned),
        "words": scored.words.reshape(batch_size, returned, -1)[:, 0],
    }


def coverage_record(
    document: Document,
    rank: int,
    chosen: list[torch.Tensor],
    tokenizer: Any,
    prefix: str,
    threshold: float | None,
) -> dict[str, Any]:
    """The coverage of a text by its translation of some rank, whose token ids are given for each piece."""
    words, sentences, repetitions = [], [], []
    for piece, ids in zip(document.pieces, chosen, strict=True):
        coverage: Any = piece.coverage
        source = document.text[piece.span.start : piece.span.end]
        sentence = {**piece.span._asdict(), "score": float(coverage["coverage"][rank])}
        if threshold is not None:
            sentence["below_threshold"] = sentence["score"] < threshold
        sentences.append(sentence)
        repetitions += repeated_phrases(tokenizer.decode(ids, skip_special_tokens=True), source)
        offsets = token_offsets(tokenizer, source, piece.token_ids, prefix)
        for span, tokens in words_of(document.text, piece.span, offsets):
            words.append(
                {
                    "word": document.text[span.start : span.end],
                    **span._asdict(),
                    "past": float(coverage["past"][rank, tokens].mean()),
                    "future": float(coverage["future"][rank, tokens].mean()),
                    "covered": float(coverage["covered"][rank, tokens].mean()),
                    # most of its pieces are
                    "untranslated": float(coverage["untranslated"][rank, tokens].float().mean()) >= 0.5,
                }
            )
    weights = [float(piece.coverage["words"].sum()) for piece in document.pieces]  # type: ignore[index]
    weighted = sum(weight * sentence["score"] for weight, sentence in zip(weights, sentences, strict=True))
    score = weighted / sum(weights) if sum(weights) else 1.0
    return {"score": score, "sentences": sentences, "words": words, "repetitions": repetitions}


def words_of(text: str, span: Span, offsets: Sequence[tuple[int, int] | None]) -> list[tuple[Span, list[int]]]:
    """The words in a span of a text, and which tokens each is made of.

    offsets: for each token, the characters of the span that it stands for, or `None`.
    """
    part = text[span.start : span.end]
    words: list[tuple[Span, list[int]]] = []
    for match in WORDS.finditer(part):
        tokens = [
            n for n, place in enumerate(offsets) if place and place[0] < match.end() and match.start() < place[1]
        ]
        if UNSPACED_SCRIPTS.search(match[0]):
            places = sorted({(max(offsets[n][0], match.start()), min(offsets[n][1], match.end())) for n in tokens})  # type: ignore[index]
            groups = [(place, [n for n in tokens if _overlap(offsets[n], place)]) for place in places]
        else:
            groups = [((match.start(), match.end()), tokens)]
        words += [(Span(span.start + a, span.start + b), group) for (a, b), group in groups if group]
    return words


def token_offsets(tokenizer: Any, text: str, token_ids: list[int], prefix: str) -> list[tuple[int, int] | None]:
    """The characters of a text that each token stands for; `None` for special tokens and for the prefix's."""
    if getattr(tokenizer, "is_fast", False):
        encoded = tokenizer(prefix + text, return_offsets_mapping=True, verbose=False)
        if list(encoded["input_ids"])[: len(token_ids)] == token_ids:
            moved = [(start - len(prefix), end - len(prefix)) for start, end in encoded["offset_mapping"]]
            return [place if 0 <= place[0] < place[1] else None for place in moved][: len(token_ids)]
    return _offsets_by_search(tokenizer, prefix + text, token_ids, len(prefix))


def _offsets_by_search(tokenizer: Any, text: str, token_ids: list[int], skipped: int) -> list[tuple[int, int] | None]:
    """For tokenizers that do not tell: each token is looked for after the one before."""
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
    """Phrases that a translation says twice in a row, more often than its source does so with any."""
    allowed = sum(_doubled(source).values())
    found = _doubled(translation)
    return [] if sum(found.values()) <= allowed else list(found)


def _doubled(text: str) -> Counter[str]:
    """The phrases that follow on themselves at once, and how often they do."""
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


def _overlap(one: tuple[int, int] | None, other: tuple[int, int]) -> bool:
    return one is not None and one[0] < other[1] and other[0] < one[1]
