"""The papers that a model card cites, and the corpora whose licences it names."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple


def _paper(key: str, title: str, authors: str, venue: str, year: int) -> str:
    fields = {"title": title, "author": authors, "booktitle": venue, "year": year}
    lines = ",\n".join(f"  {name} = {{{value}}}" for name, value in fields.items())
    return f"```bibtex\n@inproceedings{{{key},\n{lines}\n}}\n```"


PAPERS = {
    "layer_aggregation": _paper(
        "dou2019dynamic",
        "Dynamic Layer Aggregation for Neural Machine Translation with Routing-by-Agreement",
        "Dou, Zi-Yi and Tu, Zhaopeng and Wang, Xing and Wang, Longyue and Shi, Shuming and Zhang, Tong",
        "AAAI Conference on Artificial Intelligence",
        2019,
    ),
    "head_aggregation": _paper(
        "li2019information",
        "Information Aggregation for Multi-Head Attention with Routing-by-Agreement",
        "Li, Jian and Yang, Baosong and Dou, Zi-Yi and Wang, Xing and Lyu, Michael R. and Tu, Zhaopeng",
        "NAACL-HLT",
        2019,
    ),
    "guided_routing": _paper(
        "zheng2019dynamic",
        "Dynamic Past and Future for Neural Machine Translation",
        "Zheng, Zaixiang and Huang, Shujian and Tu, Zhaopeng and Dai, Xin-Yu and Chen, Jiajun",
        "EMNLP-IJCNLP",
        2019,
    ),
    "ssru": _paper(
        "kim2019research",
        "From Research to Production and Back: Ludicrously Fast Neural Machine Translation",
        "Kim, Young Jin and Junczys-Dowmunt, Marcin and Hassan, Hany and Fikri Aji, Alham and Heafield, Kenneth and "
        "Grundkiewicz, Roman and Bogoychev, Nikolay",
        "Workshop on Neural Generation and Translation",
        2019,
    ),
    "capsnmt": _paper(
        "wang2019towards",
        "Towards Linear Time Neural Machine Translation with Capsule Networks",
        "Wang, Mingxuan and Xie, Jun and Tan, Zhixing and Su, Jinsong and Xiong, Deyi and Li, Lei",
        "EMNLP-IJCNLP",
        2019,
    ),
    "marian": _paper(
        "junczys2018marian",
        "Marian: Fast Neural Machine Translation in C++",
        "Junczys-Dowmunt, Marcin and Grundkiewicz, Roman and Dwojak, Tomasz and Hoang, Hieu and Heafield, Kenneth "
        "and Neckermann, Tom and Seide, Frank and Germann, Ulrich and Aji, Alham Fikri and Bogoychev, Nikolay and "
        "Martins, André F. T. and Birch, Alexandra",
        "ACL, System Demonstrations",
        2018,
    ),
    "rnmt": _paper(
        "bahdanau2015neural",
        "Neural Machine Translation by Jointly Learning to Align and Translate",
        "Bahdanau, Dzmitry and Cho, Kyunghyun and Bengio, Yoshua",
        "ICLR",
        2015,
    ),
}
ARCHITECTURES = {"capsule_marian": "marian", "capsule_rnmt": "rnmt", "capsnmt": "capsnmt"}


def papers_of(config: Mapping[str, Any]) -> list[str]:
    """The papers that a configuration follows: first its capsules', then its architecture's."""
    switches = ("layer_aggregation", "head_aggregation", "guided_routing")
    methods = [switch for switch in switches if config.get(switch) not in (None, "none", "concat")]
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
    folder = str(recipe.get("data_dir") or "")
    each = [sources] if isinstance(sources, Mapping) else sources
    return list(dict.fromkeys(corpus for one in each for corpus in _corpora(one, folder)))


def corpora_with_bases(recipe: Mapping[str, Any]) -> list[Corpus] | None:
    """Return also the corpora of the local checkpoints that training started from; None if one does not tell them."""
    found, seen = corpora_of(recipe), set()
    while base := recipe.get("init_from"):
        path = Path(str(base)) / "train_result.json"
        try:
            recipe = json.loads(path.read_text(encoding="utf-8"))["recipe"]
        except (OSError, ValueError, KeyError, TypeError):
            return None
        if path in seen or not isinstance(recipe, Mapping):
            return None
        seen.add(path)
        found = [*corpora_of(recipe), *found]
    return list(dict.fromkeys(found))


def _corpora(source: Mapping[str, Any], folder: str) -> list[Corpus]:
    """Return the known corpora among the files of a source, and one of all unknown files."""
    hub_name = source.get("hub")
    if "embedded" in source:
        return [CORPORA["embedded"]]
    files = next(value for key, value in source.items() if key in ("hub", "text", "tsv", "jsonl", "parquet"))
    found: list[Corpus] = []
    unknown: list[str] = []
    for place in _flat(files):
        words = re.split(r"[\W_]+", " ".join([folder, place, str(source.get("config", ""))]).lower())
        known = [
            key for key in CORPORA if key != "embedded" and any(re.fullmatch(rf"{key}\d*", word) for word in words)
        ]
        if known:
            found.append(CORPORA[known[0]]._replace(hub_name=hub_name))
        else:
            unknown.append(Path(place).name)
    if unknown:
        found.append(Corpus(f"`{hub_name or ', '.join(unknown)}`", UNKNOWN_LICENCE, False, hub_name))
    return found


def _flat(files: Any) -> list[str]:
    return [str(files)] if isinstance(files, (str, Path)) else [place for entry in files for place in _flat(entry)]
