"""Which of two vocabularies of Marian is the source's, told from the names of the files and of their folder."""

import os
import re
from collections.abc import Sequence

from capsule_mt.text.languages import TWO_LETTER_CODES, language_of

SOURCE_NAME, TARGET_NAME = r"(?:^|[._-])(?:src|source)", r"(?:^|[._-])(?:trg|tgt|target)"
CODE = r"[A-Za-z]{2,3}(?:[_-][A-Za-z]{2,4})?"
BETWEEN_CODES = r"(?:[._-]?(?:to|2)?[._-]?)"
DIGEST = "[0-9a-f]{40}"  # begins the name of a cache's folder, where "de" and "fa" are digits


def order_of_vocabularies(folder: str, names: Sequence[str], vocabularies: Sequence[str]) -> list[str] | None:
    """Return the source's vocabulary and the target's; `None` if the names do not tell which is which.

    A name tells it by "src" or "trg", as in srcvocab.fren.spm; or by a language, as in vocab.fr.spm, if the folder or
    one of the files in it is named after the pair, as in model.fren.npz.

    Args:
        names: the files in the folder.
    """
    first, second = vocabularies
    title = os.path.basename(os.path.abspath(folder))
    titles = [] if re.match(DIGEST, title) else [title]
    titles += [name for name in names if name not in vocabularies]
    orders = [
        [source, target]
        for source, target in ((first, second), (second, first))
        if _are_named_by_side(source, target) or _are_named_by_language(source, target, titles)
    ]
    return orders[0] if len(orders) == 1 else None


def _are_named_by_side(source: str, target: str) -> bool:
    def is_like(name: str, pattern: str) -> bool:
        return re.search(pattern, name) is not None

    is_source, is_target = is_like(source, SOURCE_NAME), is_like(target, TARGET_NAME)
    return (is_source or is_target) and not (is_like(source, TARGET_NAME) or is_like(target, SOURCE_NAME))


def _are_named_by_language(source: str, target: str, titles: Sequence[str]) -> bool:
    """Whether both vocabularies are named after languages, and a title after the pair."""
    for separator in (r"\.", r"[._-]"):  # a code may be zh_hant
        parts = zip(re.split(separator, source), re.split(separator, target), strict=False)
        codes = [pair for pair in parts if pair[0] != pair[1]]
        if len(codes) == 1 and all(re.fullmatch(CODE, code) for code in codes[0]):
            first, second = map(_spellings, codes[0])
            pair = rf"(?i:(?<![A-Za-z])(?:{first}){BETWEEN_CODES}(?:{second})(?![A-Za-z]))"
            return any(re.search(pair, title) for title in titles)
    return False


def _spellings(code: str) -> str:
    """Return a pattern of the codes that mean the language of a code: fr and fra; also zh for zh_hant."""
    language = language_of(code)
    others = (three for three, two in TWO_LETTER_CODES.items() if two == language)
    return "|".join(dict.fromkeys((code, re.split("[_-]", code)[0], language, *others)))
