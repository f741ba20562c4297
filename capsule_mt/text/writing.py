"""Write the translation of a piece: with what it has of its source, and as the target language writes that."""

import re
from collections.abc import Callable, Sequence

from capsule_mt.text.casing import capital, has_dotless_i, restored_case
from capsule_mt.text.entities import with_entities
from capsule_mt.text.finishing import (
    as_label,
    has_french_spaces,
    quotes_of,
    typographic_quotes_of,
    with_copied_numbers,
    with_ending,
    with_french_spaces,
    with_marks,
    with_quotes,
    without_marks,
)
from capsule_mt.text.reading import Piece
from capsule_mt.text.tokenizer_protocol import Tokenizer
from capsule_mt.text.vocabulary import vocabulary_of


def written(
    piece: Piece,
    ids: Sequence[int],
    tokenizer: Tokenizer,
    align: Callable[[], Sequence[Sequence[float]]],
    languages: tuple[str | None, str | None],
    follows_source: bool,
) -> str:
    """Return the translation of a piece, with what it has of its source, as the target language writes that.

    ids: the tokens of the translation.
    align: how much each of them attends to each token of the source [T][S]; called only if there are tags.
    follows_source: otherwise, only items and the case are those of the source.
    """
    if not piece.keeps:
        text = tokenizer.decode(ids)
    else:
        from capsule_mt.text.restoring import restored  # late: few texts have protected items

        text = restored(piece, ids, tokenizer.decode, align)
    (src_lang, tgt_lang), case, vocabulary = languages, piece.case, vocabulary_of(tokenizer)
    if not (follows_source or case):
        return text  # as the model wrote it
    quotes = typographic_quotes_of(piece)
    is_changed = piece.is_label or piece.mark is not None or case is not None or quotes or has_french_spaces(tgt_lang)
    if follows_source and not (is_changed or piece.form.edits or re.search(r"\d\D\d", text)):
        return text  # most sentences
    text, items = with_marks(text)
    if not follows_source:
        return without_marks(restored_case(text, case, vocabulary, tgt_lang), items)
    if "numbers" not in piece.form.kinds:
        text = with_copied_numbers(text, piece.text, src_lang, tgt_lang)
    if piece.is_label:
        text = as_label(text, piece.user_text, has_dotless_i(tgt_lang))
    elif piece.has_lowercased_first:
        text = capital(text[:1], has_dotless_i(tgt_lang)) + text[1:] if text else text
    if (ending := piece.ending) is not None:
        text = with_ending(text, ending)
    if quotes:
        text = with_quotes(text, quotes, quotes_of(tgt_lang))
    if has_french_spaces(tgt_lang):
        text = with_french_spaces(text)
    text = restored_case(text, case, vocabulary, tgt_lang)
    return with_entities(without_marks(text, items), piece.user_text)
