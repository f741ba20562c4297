"""The papers that a model card cites, and the corpora whose licences it names."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from huggingface_hub import ModelCard
from yaml import YAMLError

PAPERS = {
    "layer_aggregation": "Dou et al. 2019, [Dynamic Layer Aggregation for Neural Machine Translation with "
    "Routing-by-Agreement](https://arxiv.org/abs/1902.05770)",
    "dense": "Pagliardini et al. 2024, [DenseFormer: Enhancing Information Flow in Transformers via Depth Weighted "
    "Averaging](https://arxiv.org/abs/2402.02622)",
    "depth_attention": "[Attention Residuals](https://arxiv.org/abs/2603.15031), 2026",
    "mudd": "Xiao et al. 2025, [MUDDFormer: Breaking Residual Bottlenecks in Transformers via Multiway Dynamic Dense "
    "Connections](https://arxiv.org/abs/2502.12170)",
    "grn": "Heddes et al. 2025, [DeepCrossAttention: Supercharging Transformer Residual Connections]"
    "(https://arxiv.org/abs/2502.06785)",
    "head_aggregation": "Li et al. 2019, [Information Aggregation for Multi-Head Attention with "
    "Routing-by-Agreement](https://arxiv.org/abs/1904.03100)",
    "guided_routing": "Zheng et al. 2019, [Dynamic Past and Future for Neural Machine Translation]"
    "(https://arxiv.org/abs/1904.09646)",
    "ssru": "Kim et al. 2019, [From Research to Production and Back: Ludicrously Fast Neural Machine Translation]"
    "(https://aclanthology.org/D19-5632)",
    "capsnmt": "Wang et al. 2019, [Towards Linear Time Neural Machine Translation with Capsule Networks]"
    "(https://arxiv.org/abs/1811.00287)",
    "marian": "Junczys-Dowmunt et al. 2018, [Marian: Fast Neural Machine Translation in C++]"
    "(https://arxiv.org/abs/1804.00344)",
    "rnmt": "Bahdanau et al. 2015, [Neural Machine Translation by Jointly Learning to Align and Translate]"
    "(https://arxiv.org/abs/1409.0473)",
}
ARCHITECTURES = {"capsule_marian": "marian", "capsule_rnmt": "rnmt", "capsnmt": "capsnmt"}


def papers_of(config: Mapping[str, Any]) -> list[str]:
    """Return the keys in `PAPERS` that a configuration follows: first its capsules', then its architecture's."""
    switches = ("layer_aggregation", "head_aggregation", "guided_routing")
    methods = [switch for switch in switches if config.get(switch) not in (None, "none", "concat")]
    if config.get("layer_aggregation") in PAPERS:  # of a paper of its own
        methods[0] = str(config["layer_aggregation"])
    methods += ["ssru"] if config.get("decoder_self") == "ssru" else []
    architecture = ARCHITECTURES.get(str(config.get("model_type")))
    return methods if architecture is None else [*methods, architecture]


class Corpus(NamedTuple):
    """Title and licence of a training corpus."""

    title: str
    licence: str
    allows_any_use: bool
    hub_name: str | None = None


CORPORA = {
    "embedded": Corpus("the embedded corpus, sentence pairs of this package, made by a grammar", "Apache-2.0", True),
    "tatoeba": Corpus("sentence pairs of tatoeba.org, by its contributors", "CC BY 2.0 FR", True),
    "multi30k": Corpus("Multi30k, task 1", "CC BY-NC-SA 4.0, non-commercial", False),
    "wmt": Corpus("training data of the WMT news translation task", "for research; cite its overview paper", False),
    "newstest": Corpus(
        "test sets of the WMT news translation tasks", "for research; cite the overview paper of each year", False
    ),
    "iwslt": Corpus("TED talks of the IWSLT evaluation", "CC BY-NC-ND, non-commercial", False),
}
UNKNOWN_LICENCE = "licence not recorded"
# keys of a recipe's source that name a data set or files
FILE_KINDS = ("hub", "text", "tsv", "csv", "jsonl", "parquet")


def corpora_of(recipe: Mapping[str, Any]) -> tuple[list[Corpus], bool]:
    """Return the corpora that a recipe and the local checkpoints below it were trained on, each once.

    Returns:
        The corpora, and whether that is all: not if training started from a checkpoint that does not tell its own.
    """
    sources = (recipe.get("data") or {}).get("train") or []
    listed = [sources] if isinstance(sources, Mapping) else sources
    corpora = [corpus for source in listed for corpus in _corpora(source, str(recipe.get("data_dir") or ""))]
    is_all = True
    if base := recipe.get("init_from"):
        try:
            below = json.loads(Path(base, "train_result.json").read_text(encoding="utf-8"))["recipe"]
            earlier, is_all = corpora_of(below)
            corpora = [*earlier, *corpora]
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            is_all = False
    return list(dict.fromkeys(corpora)), is_all


def license_of_base(recipe: Mapping[str, Any]) -> str | None:
    """Return the licence in the card of the local checkpoint that training started from, if it has one."""
    if not recipe.get("init_from"):
        return None
    file = Path(str(recipe["init_from"]), "README.md")
    try:
        license = ModelCard.load(file).data.get("license") if file.is_file() else None
    except (OSError, ValueError, YAMLError):
        return None
    return license if isinstance(license, str) else None


def _corpora(source: Mapping[str, Any], folder: str) -> list[Corpus]:
    """Return the known corpora among the files of a source, and one of all unknown files."""
    hub_name = source.get("hub")
    if "embedded" in source:
        return [CORPORA["embedded"]]
    files = next(value for key, value in source.items() if key in FILE_KINDS)
    corpora: list[Corpus] = []
    unknown: list[str] = []
    for file in _flat(files):
        words = re.split(r"[\W_]+", " ".join([folder, file, str(source.get("config", ""))]).lower())
        keys = [
            key for key in CORPORA if key != "embedded" and any(re.fullmatch(rf"{key}\d*", word) for word in words)
        ]
        if keys:
            corpora.append(CORPORA[keys[0]]._replace(hub_name=hub_name))
        else:
            unknown.append(Path(file).name)
    if unknown:
        corpora.append(Corpus(f"`{hub_name or ', '.join(unknown)}`", UNKNOWN_LICENCE, False, hub_name))
    return corpora


def _flat(files: Any) -> list[str]:
    return [str(files)] if isinstance(files, (str, Path)) else [file for entry in files for file in _flat(entry)]
