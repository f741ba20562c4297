"""Word alignments made by hand: reading their links, and how far an aligner is from them."""

import re
from collections.abc import Sequence

from hf_capsule_mt.evaluation.links import Links

# French contractions and elisions as the gold alignments of the Canadian Hansards write them
FRENCH_CONTRACTIONS: dict[str, tuple[str, ...]] = {
    "au": ("à", "le"),
    "aux": ("à", "les"),
    "du": ("de", "le"),
    "des": ("de", "les"),
    "c'": ("ce",),
    "d'": ("de",),
    "j'": ("je",),
    "jusqu'": ("jusque",),
    "l'": ("le",),
    "lorsqu'": ("lorsque",),
    "m'": ("me",),
    "n'": ("ne",),
    "puisqu'": ("puisque",),
    "qu'": ("que",),
    "quelqu'": ("quelque",),
    "s'": ("se",),
    "t'": ("te",),
}


def expand_french(words: list[str]) -> list[str]:
    """Write out French contractions and elisions: l' eau du lac -> le eau de le lac."""
    return [part for word in words for part in FRENCH_CONTRACTIONS.get(word.lower(), (word,))]


def alignment_error_rate(found: Sequence[Links], sure: Sequence[Links], possible: Sequence[Links]) -> float:
    """Return the AER of Och and Ney 2003 over all sentences.

    AER = 1 - (|A and S| + |A and P|) / (|A| + |S|),    S is part of P
    """
    hits = sum(len(a & s) + len(a & (s | p)) for a, s, p in zip(found, sure, possible, strict=True))
    size = sum(len(a) + len(s) for a, s in zip(found, sure, strict=True))
    if size == 0:
        raise ValueError("the alignment error rate needs at least one link, got none in `found` and `sure`")
    return 1.0 - hits / size


def read_gold_links(line: str) -> tuple[Links, Links]:
    """Return the sure links and all links of a line such as "1-1 2p3": counted from 1, "p" marks a possible link."""
    found = re.findall(r"(\d+)([-p])(\d+)", line)
    if len(found) != len(line.split()):
        raise ValueError(f"a line of gold links must be of links such as 1-1 or 2p3, got {line!r}")
    links = [(mark, (int(source) - 1, int(target) - 1)) for source, mark, target in found]
    return frozenset(link for mark, link in links if mark == "-"), frozenset(link for _, link in links)
