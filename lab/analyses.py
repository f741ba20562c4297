"""The analyses of the four papers: the results that they print, our results, and the command that measures them.

Our numbers come from lab/results: named records of `capsule-mt analyze` in studies.jsonl, and the training runs.
"""

from collections.abc import Callable, Sequence
from statistics import fmean
from typing import NamedTuple

from hf_capsule_mt.evaluation.results import markdown_table
from lab.effects import mean_over_seeds
from lab.records import Records, Runs
from lab.tables import provenance, provenance_of_names

GUIDED, GUIDED_EN_DE, CAPSNMT = "analysis-guided-de-en", "analysis-guided-en-de", "analysis-capsnmt-de-en"
OVERLAPS = tuple(f"analysis-gdr2-seed{seed}" for seed in (1, 2, 3))
ROUTED = tuple(f"analysis-em-seed{seed}" for seed in (1, 2, 3))
PROBES, EVALUATED = "probes-en-de", "plain-beside-guided-de-en"
NAMED = (GUIDED, GUIDED_EN_DE, CAPSNMT, *OVERLAPS, *ROUTED, PROBES, EVALUATED)
_AT_COMMIT = "at commit `22c480d5`"


class Analysis(NamedTuple):
    """An analysis of a paper.

    paper: where the paper has it.
    about: what it measures.
    theirs: the result that the paper prints.
    ours: returns our result.
    how: the data, and the command if it is not `capsule-mt analyze`.
    """

    paper: str
    about: str
    theirs: str
    ours: Callable[[Records], str]
    how: str


def _named(records: Records, name: str) -> dict:
    return records.named("studies")[name]


def _entropies(records: Records) -> str:
    """Return the mean entropy and diversity over seeds, for each iteration."""
    by_seed = [_named(records, name)["routings"]["encoder.layer_aggregation"] for name in ROUTED]
    parts = []
    for key in ("entropy", "diversity"):
        by_iteration = zip(*([entry[key] for entry in iterations] for iterations in by_seed), strict=True)
        parts.append(f"{key} {' / '.join(_mean_and_range(list(values)) for values in by_iteration)}")
    return f"{'; '.join(parts)}, {len(by_seed)} seeds"


def _mean_and_range(values: Sequence[float]) -> str:
    extremes = f" ({min(values):.2f} to {max(values):.2f})" if max(values) - min(values) >= 0.005 else ""
    return f"{fmean(values):.2f}{extremes}"


def _probes(records: Records) -> str:
    """Return the mean accuracy over the tasks of the released encoder, and of an untrained one."""
    by_encoder: dict[str, list[float]] = {}
    for result in _named(records, PROBES)["results"]:
        by_encoder.setdefault(result["encoder"], []).append(100 * result["accuracy"])
    trained, untrained = (fmean(values) for values in by_encoder.values())
    return f"mean of the ten: {trained:.1f} for the released encoder, {untrained:.1f} for an untrained one"


def _movement(records: Records) -> str:
    by_offset = {entry["offset"]: entry for entry in _named(records, GUIDED)["around_the_step"]}
    offsets = (-1, 0, 1, 2)
    past, future = (" / ".join(f"{by_offset[offset][kind]:.2f}" for offset in offsets) for kind in ("past", "future"))
    return f"PAST {past}; FUTURE {future}, {by_offset[0]['words']:,} words"


def _overlap(records: Records) -> str:
    rates = [_named(records, name)["overlap_rates"] for name in OVERLAPS]
    past, future = (_mean_and_range([rate[kind] for rate in rates]) for kind in ("past", "future"))
    return f"PAST {past}, FUTURE {future}, {len(rates)} seeds"


def _capsules(records: Records) -> str:
    last = _named(records, CAPSNMT)["routings"]["encoder.aggregation"][-1]
    decided = f"{last['decided']:.0%} of the words give more than 0.9 to one capsule"
    return f"{decided}; entropy {last['entropy']:.2f}; {last['effective_capsules']:.1f} of 8 capsules in use"


def _lost(records: Records) -> str:
    """Return how often the first and the last of joined sentences is named if it is lost, over both models."""
    parts = []
    for name in ("1 of 2", "2 of 2", "1 of 3", "3 of 3", "1 of 4", "4 of 4"):
        answers = [_named(records, model)["lost_sentences"][name] for model in (GUIDED, GUIDED_EN_DE)]
        cases = sum(answer["cases"] for answer in answers)
        shares = (sum(answer[key] for answer in answers) / cases for key in ("past_future", "attention"))
        parts.append("{}: {:.0%}, {:.0%}".format(name, *shares))
    return "; ".join(parts)


def _difference_in_coverage(records: Records) -> str:
    systems = _named(records, EVALUATED)["systems"]
    plain, guided = (systems[system]["coverage_difference_ratio"] for system in ("plain", "guided"))
    return f"{plain:.3f} plain, {guided:.3f} guided"


ANALYSES = (
    Analysis(
        "Dou, eq. 17, 18, Figure 4", "entropy and diversity of assignments by iteration",
        "entropy 6.24 / 5.93 / 5.86; diversity 0.0 / 0.09 / 0.18, encoder", _entropies,
        "EM routing, 200 sentences of the grammar corpus; with equal assignments, the entropy is ln 128 = 4.85 here, "
        "and ln 512 = 6.24 in the paper",
    ),
    Analysis(
        "Li, Table 1", "ten probing tasks", "accuracies, with 100,000 sentences for each task", _probes,
        f"at most 8,758 sentences of the English Web Treebank (`lab.probe` {_AT_COMMIT})",
    ),
    Analysis(
        "Zheng, Figures 1 and 4", "a word moves from FUTURE to PAST when it is translated", "drawn for one sentence",
        _movement,
        "`capsule-marian-de-en`, 500 sentences of Tatoeba's test set: mean shares of a source word one step before "
        "its translation is predicted, at this step, and at the next two",
    ),
    Analysis(
        "Zheng, abstract", "which of joined sentences is lost: by PAST and FUTURE, by the best head", "none", _lost,
        "both `capsule-marian`, 500 sentences of Tatoeba's test set (`--joined 2 3 4`); half of them choose the head",
    ),
    Analysis(
        "Zheng, 4.3", "overlap rate r_OL of predicted bags of words", "PAST 0.72, FUTURE 0.70", _overlap,
        "models with two iterations, 200 sentences of the grammar corpus, whose small vocabulary allows no comparison",
    ),
    Analysis(
        "Zheng, Table 3", "coverage difference ratio (CDR)", "0.73 Transformer, 0.79 with guided routing",
        _difference_in_coverage,
        "`capsule-marian-de-en` beside the plain model that it was made from, Tatoeba's test set "
        f"(`lab.plain_beside_guided` {_AT_COMMIT})",
    ),
    Analysis(
        "Wang, Table 4", "assignments of words to capsules", '"very close to 0 or 1"', _capsules,
        "`capsnmt-de-en`, 500 sentences of Tatoeba's test set; at the last iteration; the entropy is 0 if each word "
        "goes to one capsule, and ln 8 = 2.08 if all share it equally",
    ),
)  # fmt: skip


class LengthCurve(NamedTuple):
    """A method and its baseline by source length: their runs in a study of lab/results, with the seeds of both."""

    paper: str
    about: str
    study: str
    run: str
    baseline: str


CURVES = (
    LengthCurve(
        "Dou, Figure 5", "EM routing of layers, Multi30k", "eight_seeds", "em_routing_further", "plain_further"
    ),
    LengthCurve("Zheng, Figure 5", "guided routing, Multi30k", "replication", "gdr_both", "plain"),
    LengthCurve("Zheng, Figure 5", "guided routing, recurrent model, Multi30k", "recurrent", "rnmt_gdr", "rnmt"),
    LengthCurve("Wang, Figure 4", "CapsNMT (baseline: pooling), grammar corpus", "embedded", "capsnmt", "pooling"),
    LengthCurve("Wang, Figure 4", "CapsNMT (baseline: pooling), Multi30k", "multi30k", "capsnmt", "pooling"),
    LengthCurve(
        "Wang, Figure 4", "CapsNMT (baseline: a Marian of its size), distilled, Multi30k",
        "linear_time", "capsnmt_distilled_longer", "plain_small_distilled_longer",
    ),
)  # fmt: skip
MIN_BIN = 30  # sentences; BLEU of fewer is noise


def _curve(curve: LengthCurve, runs: Runs, seeds: Sequence[int]) -> list[list[str]]:
    """Return a row for each bin of source lengths: both scores, the gain over seeds, and the words per translation."""
    bins_by_run = [[runs[run][seed]["by_length"] for seed in seeds] for run in (curve.baseline, curve.run)]
    rows = []
    for index, bucket in enumerate(bins_by_run[0][0]):
        if bucket["sentences"] < MIN_BIN:
            continue
        scores, words = (
            [[bins[index][key] for bins in bins_of_seeds] for bins_of_seeds in bins_by_run]
            for key in ("score", "hypothesis_words")
        )
        gains, added_words = (
            [method - baseline for baseline, method in zip(*values, strict=True)] for values in (scores, words)
        )
        rows.append([
            *(curve.paper, curve.about, bucket["label"], f"{bucket['sentences']:,}"),
            *(f"{fmean(values):.2f}" for values in scores),
            mean_over_seeds(gains),
            f"{fmean(words[0]):.2f}",
            mean_over_seeds(added_words),
            f"{bucket['reference_words']:.2f}",
        ])  # fmt: skip
    return rows


def by_length(records: Records) -> str:
    """Return BLEU and length by source length of each curve, and the coverage difference ratio of the same runs."""
    rows, coverage, rows_of = [], [], []
    for curve in CURVES:
        runs, names = records.runs(curve.study), (curve.baseline, curve.run)
        if not (seeds := sorted(set.intersection(*(set(runs.get(name, {})) for name in names)))):
            continue  # not yet trained
        rows += _curve(curve, runs, seeds)
        rows_of.append(provenance(records, curve.study, names, seeds))
        pairs = [[runs[name][seed]["coverage_difference_ratio"] for name in names] for seed in seeds]
        coverage.append([
            *(curve.paper, curve.about),
            *(f"{fmean(values):.3f}" for values in zip(*pairs, strict=True)),
            mean_over_seeds([method - baseline for baseline, method in pairs], "+.3f"),
            str(len(pairs)),
        ])  # fmt: skip
    header = ["paper", "method", "source words", "sentences", "BLEU, baseline", "BLEU, method", "gain in BLEU"]
    header += ["words per translation, baseline", "additional words with the method", "words per reference"]
    ratios = ["paper", "method", "ratio, baseline", "ratio, method", "gain", "seeds"]
    parts = [markdown_table(header, rows), "The coverage difference ratio of the same translations:"]
    return "\n\n".join([*parts, markdown_table(ratios, coverage), *rows_of])


def table(records: Records) -> str:
    """Return a row for each analysis, in the papers' order."""
    rows = [[entry.paper, entry.about, entry.theirs, entry.ours(records), entry.how] for entry in ANALYSES]
    header = ["paper", "analysis", "result of the paper", "our result", "how we measured"]
    return f"{markdown_table(header, rows)}\n\n{provenance_of_names(records, 'studies', NAMED)}"
