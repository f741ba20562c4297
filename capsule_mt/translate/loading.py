"""`load`: return the translator for a folder, a model name or a language pair; a pair may need two models."""

import os
from collections.abc import Mapping, MutableMapping
from typing import TYPE_CHECKING, Any

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
    loaded: MutableMapping[str, Translator] | None = None,
) -> "Translator | PivotTranslator":
    """Load the model in a folder or of a name, or both models of a pair that goes through English.

    The arguments are those of `Translator.from_pretrained`, and `loaded`. `reverse`, `glossary`, `src_lang` and
    `tgt_lang` cannot be used with a pair that goes through English. A `PivotTranslator` translates, and finds what was
    left out; it does not have what needs a single model, such as `score`.

    Args:
        loaded: the translators of earlier calls with the same `int8` and `shortlist`, by folder: their models are
            shared, and new ones are added. A model that is loaded with one of the other arguments is neither taken
            from here nor added.
    """
    if os.path.isdir(name_or_folder):
        folders = [os.fspath(name_or_folder)]
    else:
        from capsule_mt.catalog.store import model_folders  # late: a folder needs no catalog

        folders = model_folders(name_or_folder)
    single: dict[str, Any] = {"reverse": reverse, "glossary": glossary, "src_lang": src_lang, "tgt_lang": tgt_lang}
    options = [name for name, value in single.items() if value is not None]
    if len(folders) == 1 and options:
        return Translator.from_pretrained(folders[0], int8=int8, shortlist=shortlist, **single)
    if options:
        raise ValueError(f"`{options[0]}` needs one model, and {name_or_folder} goes through English by two")
    loaded = {} if loaded is None else loaded
    for folder in folders:
        if folder not in loaded:
            loaded[folder] = Translator.from_pretrained(folder, int8=int8, shortlist=shortlist)
    if len(folders) == 1:
        return loaded[folders[0]]
    from capsule_mt.translate.pivot import PivotTranslator

    return PivotTranslator(*(loaded[folder] for folder in folders))
