"""`load`: a folder, a name, or a pair of languages becomes the translator that it takes, of one model or of two."""

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from capsule_mt.translate.translator import Translator

if TYPE_CHECKING:  # late: most models are one, and have no glossary
    from capsule_mt.text.glossary import Glossary
    from capsule_mt.translate.pivot import PivotTranslator
    from capsule_mt.translate.scoring import Scorer


def load(
    name_or_folder: str | os.PathLike[str],
    *,
    int8: bool = False,
    shortlist: bool | str | os.PathLike[str] = False,
    reverse: "Scorer | str | os.PathLike[str] | None" = None,
    glossary: "Glossary | Mapping[str, str] | str | os.PathLike[str] | None" = None,
    src_lang: str | None = None,
    tgt_lang: str | None = None,
) -> "Translator | PivotTranslator":
    """Load the model in a folder or of a name, or both models of a pair that goes through English.

    The arguments are those of `Translator.from_pretrained`; all but `int8` and `shortlist` need one model. A
    `PivotTranslator` translates, and finds what was left out; what needs one model, such as `score`, it does not have.
    """
    first, *others = _folders_of(name_or_folder)
    if not others:
        return Translator.from_pretrained(
            first,
            int8=int8,
            shortlist=shortlist,
            reverse=reverse,
            glossary=glossary,
            src_lang=src_lang,
            tgt_lang=tgt_lang,
        )
    from capsule_mt.translate.pivot import PivotTranslator

    single = {"reverse": reverse, "glossary": glossary, "src_lang": src_lang, "tgt_lang": tgt_lang}
    for name, value in single.items():
        if value is not None:
            raise ValueError(f"`{name}` needs one model, and {name_or_folder} goes through English by two")
    return PivotTranslator(
        *(Translator.from_pretrained(folder, int8=int8, shortlist=shortlist) for folder in (first, *others))
    )


def _folders_of(name_or_folder: str | os.PathLike[str]) -> list[str | os.PathLike[str]]:
    """Return the folders of the models that translate one after the other; download what is not there."""
    if os.path.isdir(name_or_folder):
        return [name_or_folder]
    from capsule_mt.catalog.store import legs_of, resolve  # late: a folder needs no catalog

    return [resolve(leg) for leg in legs_of(name_or_folder)]
