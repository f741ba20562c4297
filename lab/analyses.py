"""The analyses of the four papers: what they print, what ours are, and how each is made.

Numbers come from records of `capsule-mt analyze` in lab/results/studies.jsonl, by their names.
"""

from collections.abc import Callable, Mapping
from statistics import fmean
from typing import Any, NamedTuple

from hf_capsule_mt.evaluation.results import markdown_table
from lab.records import Records

Named = Mapping[str, Mapping[str, Any]]
GUIDED, CAPSNMT = "analysis-guided-de-en", "analysis-capsnmt-de-en"
OVERLAPS = tuple(f"analysis-gdr2-seed{seed}" for seed in (1, 2, 3))
ANALYZE = "`capsule-mt analyze`"


class Analysis(NamedTuple):
    """An analysis of a paper: where it is, what is printed, ours from the records, and how it is made."""

    paper: str
    about: str
    theirs: str
    ours: Callable[[Named], str]
    how: str


def _movement(named: Named) -> str:
    by_offset = {entry["offset"]: entry for entry in named[GUIDED]["around_the_step"]}
    offsets = (-1, 0, 1, 2)
    past, future = (" / ".join(f"{by_offset[offset][kind]:.2f}" for offset in offsets) for kind in ("past", "future"))
    return f"PAST {past}; FUTURE {future}, {by_offset[0]['words']:,} words"


def _overlap(named: Named) -> str:
    rates = [named[record]["overlap_rates"] for record in OVERLAPS]
    parts = []
    for kind in ("past", "future"):
        values = [rate[kind] for rate in rates]
        parts.append(f"{fmean(values):.2f} ({min(values):.2f} to {max(values):.2f})")
    return f"PAST {parts[0]}, FUTURE {parts[1]}, three seeds"


def _capsules(named: Named) -> str:
    last = named[CAPSNMT]["routings"]["encoder.aggregation"][-1]
    return f"{last['decided']:.0%} beyond 0.1 and 0.9; {last['effective_capsules']:.1f} of 8 capsules in use"


def _text(text: str) -> Callable[[Named], str]:
    return lambda named: text


_IN_REPORT = "[report](report.md)"
_NOT_MEASURED = "not measured: "
ANALYSES = (
    Analysis(
        "Dou, eq. 17, 18, Figure 4",
        "entropy and diversity of assignments by iteration",
        "entropy 6.24 / 5.93 / 5.86; diversity 0.0 / 0.09 / 0.18, encoder",
        _text(_NOT_MEASURED + "no released checkpoint routes its layers, and none of the trained ones was kept"),
        f"{ANALYZE} on a checkpoint with `layer_aggregation`",
    ),
    Analysis(
        "Dou, Figure 2", "8 to 512 capsules", "BLEU rises with each doubling", _text(_IN_REPORT),
        "8 to 128 capsules, three seeds. 512 need a model of width 512, beyond our small sizes",
    ),
    Analysis("Dou, Figure 3", "iterations", "best at 3", _text(_IN_REPORT), "1 to 5, three seeds"),
    Analysis(
        "Dou, Figure 5; Zheng, Figure 5; Wang, Figure 4", "BLEU and length by source length", "plots",
        _text(_NOT_MEASURED + "no pair of a plain and a capsule model was at hand with its translations"),
        "`capsule-mt evaluate --sources` scores any translations by bins",
    ),
    Analysis(
        "Li, Table 1", "ten probing tasks", "accuracies, 100,000 sentences a task", _text(_IN_REPORT),
        "8,758 sentences. The command that trained the probes is not in this version",
    ),
    Analysis(
        "Zheng, Figures 1 and 4", "a word moves from FUTURE to PAST when it is said", "drawn for one sentence",
        _movement,
        f"{ANALYZE} on the released `capsule-marian-de-en`, 500 sentences of Tatoeba's test part. One step before the "
        "step that predicts a word's translation, at that step, one and two after. Links of a word aligner",
    ),
    Analysis(
        "Zheng, 4.3", "overlap rate r_OL of predicted bags of words", "PAST 0.72, FUTURE 0.70", _overlap,
        f"{ANALYZE} on models with two iterations, 200 sentences of the embedded corpus, whose vocabulary is small",
    ),
    Analysis(
        "Zheng, Table 3", "coverage difference ratio (CDR)", "higher than the Transformer's", _text(_IN_REPORT),
        "in the tables of Zheng et al.; near 1 on the embedded corpus, where it cannot tell models apart",
    ),
    Analysis(
        "Zheng, Table 3", "errors that readers count: OVER, UNDER, QUALITY", "fewer with guided routing",
        _text(_NOT_MEASURED + "nobody has read plain and guided translations blind yet"), "",
    ),
    Analysis("Zheng, appendix", "iterations of guided routing", "a plot", _text(_IN_REPORT), "1 to 5, three seeds"),
    Analysis(
        "Wang, Table 4", "assignments of words to capsules", '"very close to 0 or 1"', _capsules,
        f"{ANALYZE} on the released `capsnmt-de-en`, 500 sentences of Tatoeba's test part; it also draws the words of "
        "each capsule",
    ),
    Analysis(
        "Wang, abstract", "the hybrid with attention", "named, without numbers",
        _text(_NOT_MEASURED + "no hybrid was trained on real text"), "`source_attention: true`",
    ),
    Analysis(
        "Wang, Table 1", "tokenised BLEU (multi-bleu)", "BLEU", _text("sacreBLEU alone"),
        "our scores of CapsNMT are not comparable with tokenised ones, digit by digit",
    ),
)  # fmt: skip


def table(records: Records) -> str:
    """Return a row for each analysis, in the papers' order."""
    named = records.named("studies")
    rows = [[entry.paper, entry.about, entry.theirs, entry.ours(named), entry.how] for entry in ANALYSES]
    return markdown_table(["paper", "analysis", "theirs", "ours", "how"], rows)
