"""`load`: a folder, a name, or a pair of languages becomes the translator that it takes, of one model or of two."""

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

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
) -> "Translator | PivotTranslator":
    """Load the model in a folder or of a name, or both models of a pair that goes through English.

    The arguments are those of `Translator.from_pretrained`. A `PivotTranslator` translates, and finds what was left
    out; what needs one model, such as `score`, it does not have.
    """
    translator = Translator.from_pretrained(
        name_or_folder, int8=int8, shortlist=shortlist, reverse=reverse, glossary=glossary
    )
    return cast("Translator | PivotTranslator", translator)
