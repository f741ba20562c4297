"""`load`: return the translator for a folder, a model name or a language pair; a pair may need two models."""

import os
from collections.abc import Mapping, MutableMapping
from typing import TYPE_CHECKING, Any

from capsule_mt.models.opening import check_name_or_folder
from capsule_mt.translate.translator import Translator

if TYPE_CHECKING:  # late: most calls load one model without a glossary
    from capsule_mt.text.glossary import Glossary
    from capsule_mt.translate.pivot import PivotTranslator
    from capsule_mt.translate.scorer import Scorer


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
    """Load a model by its folder or name, or both models of a language pair that goes through English.

    All options but `loaded` are those of `Translator.from_pretrained`. `reverse`, `glossary`, `src_lang` and
    `tgt_lang` need a single model. So do some methods, such as `score`: a `PivotTranslator`, which translates through
    English, only translates and marks omissions.

    Args:
        loaded: translators by folder, from earlier calls with the same `int8` and `shortlist`. A model that is here is
            not loaded again; a new one is added. Ignored for a model with `reverse`, `glossary`, `src_lang` or
            `tgt_lang`.
    """
    check_name_or_folder(name_or_folder, "name_or_folder")
    if os.path.isdir(name_or_folder):
        folders = [os.fspath(name_or_folder)]
    else:
        from capsule_mt.catalog.store import model_folders  # late: a folder needs no catalog

        folders = model_folders(name_or_folder)
    single_model_options: dict[str, Any] = {
        "reverse": reverse,
        "glossary": glossary,
        "src_lang": src_lang,
        "tgt_lang": tgt_lang,
    }
    used_options = [name for name, value in single_model_options.items() if value is not None]
    if len(folders) == 1 and used_options:
        return Translator.from_pretrained(folders[0], int8=int8, shortlist=shortlist, **single_model_options)
    if used_options:
        raise ValueError(f"`{used_options[0]}` needs one model, but {name_or_folder} goes through English with two")
    loaded = {} if loaded is None else loaded
    for folder in folders:
        if folder not in loaded:
            loaded[folder] = Translator.from_pretrained(folder, int8=int8, shortlist=shortlist)
    if len(folders) == 1:
        return loaded[folders[0]]
    from capsule_mt.translate.pivot import PivotTranslator

    return PivotTranslator(*(loaded[folder] for folder in folders))
