"""The corpora that recipes train on, with the licences that a model card names."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple


class Corpus(NamedTuple):
    """Title and licence of a training corpus."""

    title: str
    licence: str
    allows_any_use: bool
    hub_name: str | None = None


CORPORA = {
    "embedded": Corpus("the embedded corpus, sentence pairs that a grammar of this package makes", "Apache-2.0", True),
    "tatoeba": Corpus("sentence pairs of tatoeba.org, by its contributors", "CC BY 2.0 FR", True),
    "multi30k": Corpus("Multi30k, task 1", "CC BY-NC-SA 4.0, non-commercial", False),
    "wmt": Corpus("training data of the WMT news translation task", "for research; cite its overview paper", False),
    "newstest": Corpus(
        "test sets of the WMT news translation tasks", "for research; cite the overview paper of each year", False
    ),
    "iwslt": Corpus("TED talks of the IWSLT evaluation", "CC BY-NC-ND, non-commercial", False),
}
UNKNOWN_LICENCE = "licence not recorded"


def corpora_of(recipe: Mapping[str, Any]) -> list[Corpus]:
    """Return the corpora that a recipe trains on, each once."""
    sources = (recipe.get("data") or {}).get("train") or []
    return list(dict.fromkeys(_corpus(one) for one in ([sources] if isinstance(sources, Mapping) else sources)))


def _corpus(source: Mapping[str, Any]) -> Corpus:
    hub_name = source.get("hub")
    if "embedded" in source:
        return CORPORA["embedded"]
    named = " ".join(str(value) for value in source.values()).lower()
    for key, corpus in CORPORA.items():
        if key in named:
            return corpus._replace(hub_name=hub_name)
    files = next(value for key, value in source.items() if key in ("hub", "text", "tsv", "jsonl", "parquet"))
    names = ", ".join(Path(file).name for file in ([files] if isinstance(files, str) else files))
    return Corpus(f"`{hub_name or names}`", UNKNOWN_LICENCE, False, hub_name)
