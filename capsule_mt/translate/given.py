"""Given translations, such as another system's: as a model reads them, and as the tokens that it is to score."""

import re
from collections.abc import Sequence, Sized
from typing import TypeVar

from capsule_mt.engine.search import Hypothesis
from capsule_mt.messages import warn
from capsule_mt.text.reading import Piece, parts_in
from capsule_mt.text.rewriting import Form, keep_edits, known_form
from capsule_mt.text.rules import BREAK, TAG
from capsule_mt.text.segments import Document, Segmenter
from capsule_mt.text.vocabulary import vocabulary_of
from capsule_mt.text.words import SourceWord
from capsule_mt.translate.texts import check_texts
from capsule_mt.translate.translator_model import TranslatorModel

# the warning of a translation that was cut, with its tokens and those of them that remain
TARGET_WAS_CUT = "A given translation of {} tokens was cut to {}."
Pair = tuple[Piece, Hypothesis]
Result = TypeVar("Result")


def check_paired(texts: Sequence[str], translations: Sequence[str]) -> None:
    """Refuse strings, what has no length, and two different lengths."""
    for name, argument in (("texts", texts), ("translations", translations)):
        if isinstance(argument, str):
            raise TypeError(f"`{name}` must be a list of strings, got the string {argument[:40]!r}")
        if not isinstance(argument, Sized):
            raise TypeError(f"`{name}` must be a list of strings, got a {type(argument).__name__}")
    if len(texts) != len(translations):
        raise ValueError(
            f"there must be one of `translations` for each of `texts`, got {len(translations)} for {len(texts)}"
        )


def pairs_of(
    model: TranslatorModel,
    segmenter: Segmenter,
    texts: Sequence[str],
    translations: Sequence[str],
    *,
    with_tags: bool = False,
    cut_warning: str = TARGET_WAS_CUT,
) -> tuple[list[Document], list[Pair]]:
    """Tokenise texts and their translations; blank texts have no pair. The model reads tags only `with_tags`."""
    check_texts(texts, "texts")
    check_texts(translations, "translations")
    segmenter = segmenter._replace(normalises=True)
    documents = [segmenter.document(text) if with_tags else _document(text, segmenter) for text in texts]
    # a text that is not cut into sentences is one piece, or none if it is blank
    target_texts = [translation if with_tags else model_text(translation) for translation in translations]
    pairs = [
        (document.pieces[0], _target(model, text, segmenter, cut_warning))
        for document, text in zip(documents, target_texts, strict=True)
        if document.pieces
    ]
    for document, translation in zip(documents, translations, strict=True):
        for piece in document.pieces:
            piece.words = [_copied_into(translation, word, document.text[slice(*word.span)]) for word in piece.words]
    return documents, pairs


def by_text(documents: Sequence[Document], results: Sequence[Result]) -> list[Result | None]:
    """Return the results of the texts that are not blank, with `None` for those that are."""
    pending = iter(results)
    return [next(pending) if document.pieces else None for document in documents]


def model_text(translation: str) -> str:
    """Return a given translation without its tags and `BREAK`s, which the model does not read."""
    if BREAK not in translation and re.search(TAG, translation) is None:
        return translation
    target = without_tags(translation)
    if target.form.edits or BREAK in translation:  # the latter if `translation` is what another model read of a text
        return target.text.replace(BREAK, " ").strip()
    return translation


def without_tags(translation: str) -> Piece:
    """Return a given translation as a model reads it without its tags."""
    form = Form(translation, keep_edits(translation, ("tags",)))
    return Piece(form, parts_in(form, 0, len(form.text)))


def _document(text: str, segmenter: Segmenter) -> Document:
    """Return a text as one piece, without its tags, as when it is translated."""
    if re.search(TAG, text) is None:
        return segmenter.document(text)
    document = segmenter._replace(keep=("tags",), joins_blocks=True).document(text)
    document.copies = False  # the translation is complete: the text around the piece is not copied into it
    return document


def _target(model: TranslatorModel, translation: str, segmenter: Segmenter, cut_warning: str) -> Hypothesis:
    """Return the tokens of a given translation, cut to the model's limit with a warning."""
    tokenizer = segmenter.tokenizer
    # the model writes what its vocabulary lacks in another way: curly quotes as straight ones
    ids = model.labels(known_form(translation, vocabulary_of(tokenizer).for_target), tokenizer)
    limit = model.loaded.longest_target
    if limit is None or len(ids) <= limit:
        return Hypothesis(ids, [], was_cut=False)
    warn(cut_warning.format(len(ids), limit))
    return Hypothesis([*ids[: limit - 1], ids[-1]], [], was_cut=True)


def _copied_into(translation: str, word: SourceWord, text: str) -> SourceWord:
    """Return a word, marked as copied if the vocabulary lacks it and the translation contains it."""
    return word._replace(is_unknown=False, is_copied=True) if word.is_unknown and text in translation else word
