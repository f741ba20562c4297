"""The papers whose methods the models have, as a model card cites them."""

from collections.abc import Mapping
from typing import Any


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
    """The papers that a configuration follows: first those of its capsules, then that of its architecture."""
    switches = ("layer_aggregation", "head_aggregation", "guided_routing")
    methods = [switch for switch in switches if config.get(switch) not in (None, "none", "concat")]
    architecture = ARCHITECTURES.get(str(config.get("model_type")))
    return methods if architecture is None else [*methods, architecture]
