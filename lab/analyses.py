"""The analyses of the four papers: the results that they print, our results, and how we measured them.

Our numbers come from lab/results: named records of `capsule-mt analyze` and `lab.plain_beside_guided` in
studies.jsonl, and scores by source length in the results of training runs.
"""

from collections.abc import Callable, Mapping
from statistics import fmean
from typing import Any, NamedTuple

from hf_capsule_mt.evaluation.results import markdown_table
from lab.over_seeds import interval_over_seeds
from lab.records import Records, Runs

Named = Mapping[str, Mapping[str, Any]]
GUIDED, CAPSNMT = "analysis-guided-de-en", "analysis-capsnmt-de-en"
OVERLAPS = tuple(f"analysis-gdr2-seed{seed}" for seed in (1, 2, 3))
ROUTED = tuple(f"analysis-em-seed{seed}" for seed in (1, 2, 3))
PROBES = "probes-en-de"
EVALUATED, READ_BLIND = "plain-beside-guided-de-en", "read-plain-guided-de-en"
WIDE = "capsules_512_slower"  # the study of as many capsules as the paper's best row, at its width
EMBEDDED = "embedded"
NUMBERS_OF_CAPSULES = ("em_routing_8_capsules", "em_routing_32_capsules", "em_routing_64_capsules", "em_routing")
ITERATIONS = tuple("em_routing" if number == 3 else f"em_routing_{number}_iterations" for number in range(1, 6))
GUIDED_ITERATIONS = tuple("gdr_both" if number == 3 else f"gdr_{number}_iterations" for number in range(1, 6))
ANALYZE = "`capsule-mt analyze`"
_IN_REPORT = "[report](../lab/REPORT.md)"


class Analysis(NamedTuple):
    """An analysis of a paper.

    paper: where the paper has it.
    about: what it measures.
    theirs: the result that the paper prints.
    ours: returns our result, from the records by name, among them the runs of the studies WIDE and EMBEDDED.
    how: how we measured.
    """

    paper: str
    about: str
    theirs: str
    ours: Callable[[Named], str]
    how: str


def _entropies(named: Named) -> str:
    """Return the mean entropy and diversity over the measured seeds, for each iteration."""
    by_seed = [named[name]["routings"]["encoder.layer_aggregation"] for name in ROUTED if name in named]
    parts = []
    for key in ("entropy", "diversity"):
        by_iteration = zip(*([entry[key] for entry in iterations] for iterations in by_seed), strict=True)
        parts.append(f"{key} {' / '.join(_mean_and_range(list(values)) for values in by_iteration)}")
    seeds = f"{len(by_seed)} seeds" if len(by_seed) > 1 else "one seed"
    return f"{'; '.join(parts)}, encoder, {seeds}"


def _mean_and_range(values: list[float]) -> str:
    extremes = f" ({min(values):.2f} to {max(values):.2f})" if max(values) - min(values) >= 0.005 else ""
    return f"{fmean(values):.2f}{extremes}"


def _probes(named: Named) -> str:
    """Return the mean accuracy over the tasks of the released encoder, and of an untrained one."""
    if PROBES not in named:
        return _IN_REPORT
    by_encoder: dict[str, list[float]] = {}
    for result in named[PROBES]["results"]:
        by_encoder.setdefault(result["encoder"], []).append(100 * result["accuracy"])
    trained, untrained = (fmean(values) for values in by_encoder.values())
    means = f"{trained:.1f} for the released encoder, {untrained:.1f} for an untrained one"
    return f"{_IN_REPORT}; mean of the ten: {means}"


def _bleu(named: Named, run: str) -> str:
    """Return the mean BLEU of a run on the embedded corpus, and its range over seeds."""
    return _mean_and_range([record["scores"]["bleu"]["score"] for record in named[EMBEDDED][run].values()])


def _scores(runs: tuple[str, ...]) -> Callable[[Named], str]:
    return lambda named: f"BLEU {' / '.join(_bleu(named, run) for run in runs)}; plain {_bleu(named, 'plain')}"


def _numbers_of_capsules(named: Named) -> str:
    """Return the BLEU by number of capsules, and that of 512 capsules beside 128 in a model of the same width."""
    runs = named[WIDE]
    most, fewer = (runs[f"em_routing_512_{rest}"][1]["scores"]["bleu"]["score"] for rest in ("capsules", "wide"))
    wide = f"at width 512: {most:.2f} with 512 capsules, {fewer:.2f} with 128, one seed"
    return f"{_scores(NUMBERS_OF_CAPSULES)(named)}; {wide}"


def _hybrid(named: Named) -> str:
    hybrid, capsnmt, transformer = (_bleu(named, run) for run in ("capsnmt_hybrid", "capsnmt", "plain"))
    return f"BLEU {hybrid} with attention, {capsnmt} without; Transformer {transformer}"


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
    return f"entropy {last['entropy']:.2f}; {last['effective_capsules']:.1f} of 8 capsules in use"


def _difference_in_coverage(named: Named) -> str:
    systems = named[EVALUATED]["systems"]
    plain, guided = (systems[system]["coverage_difference_ratio"] for system in ("plain", "guided"))
    return f"{plain:.3f} plain, {guided:.3f} guided"


def _blind_reading(named: Named) -> str:
    parts = []
    for measure, entry in named[READ_BLIND]["measures"].items():
        low, high = entry["interval"]
        values = f"{entry['plain']:.2f} plain, {entry['guided']:.2f} guided ({low:+.2f} to {high:+.2f})"
        parts.append(f"{measure.upper()} {values}")
    return "; ".join(parts)


def _text(text: str) -> Callable[[Named], str]:
    return lambda named: text


ANALYSES = (
    Analysis(
        "Dou, eq. 17, 18, Figure 4",
        "entropy and diversity of assignments by iteration",
        "entropy 6.24 / 5.93 / 5.86; diversity 0.0 / 0.09 / 0.18, encoder",
        _entropies,
        f"{ANALYZE} on EM routing, 200 sentences of the embedded corpus (96.7 BLEU). If all assignments are equal, "
        "the entropy is ln 128 = 4.85 with our 128 capsules, and ln 512 = 6.24 with the paper's 512",
    ),
    Analysis(
        "Dou, Figure 2", "number of capsules, up to 512", "BLEU generally rises with the number", _numbers_of_capsules,
        "8, 32, 64 and 128 capsules, three seeds of the embedded corpus. 512 capsules need a model of width 512: "
        "`python -m lab.reproduce dou_512_capsules --study capsules_512_slower --set training.num_train_epochs 1.25 "
        "--set training.learning_rate 3.75e-4`, half as many steps as the other rows, at a quarter of their learning "
        "rate. At their rate, neither model learns (0.57 and 0.69 BLEU). One seed shows what 512 capsules reach, "
        "but not a gain of less than a BLEU",
    ),
    Analysis(
        "Dou, Figure 3", "number of iterations", "best at 3", _scores(ITERATIONS),
        "1 to 5, three seeds of the embedded corpus",
    ),
    Analysis(
        "Dou, Figure 5; Zheng, Figure 5; Wang, Figure 4", "BLEU and length by source length", "plots",
        _text("[below](#by-source-length)"),
        "`capsule-mt evaluate --sources` scores any translations by bins of source length",
    ),
    Analysis(
        "Li, Table 1", "ten probing tasks", "accuracies, with 100,000 sentences for each task", _probes,
        "`python -m lab.probe`: trains an encoder on each task, or probes the encoder of a checkpoint. Our "
        "tasks have at most 8,758 sentences, because the English Web Treebank does not have more",
    ),
    Analysis(
        "Zheng, Figures 1 and 4", "a word moves from FUTURE to PAST when it is translated", "drawn for one sentence",
        _movement,
        f"{ANALYZE} on the released `capsule-marian-de-en`, 500 sentences of Tatoeba's test set. The values "
        "are mean shares of a source word at four steps: the one before its translation is predicted, the one that "
        "predicts it, and the next two. A word aligner finds the translation of each word",
    ),
    Analysis(
        "Zheng, 4.3", "overlap rate r_OL of predicted bags of words", "PAST 0.72, FUTURE 0.70", _overlap,
        f"{ANALYZE} on models with two iterations, 200 sentences of the embedded corpus. Its vocabulary is small, so "
        "the rates cannot be compared with the paper's",
    ),
    Analysis(
        "Zheng, Table 3", "coverage difference ratio (CDR)", "0.73 Transformer, 0.79 with guided routing",
        _difference_in_coverage,
        "`capsule-mt evaluate --align-with`, Tatoeba's test set. The guided model is the released "
        "`capsule-marian-de-en`; the plain model is the one that guided routing was added to. "
        "[Below](#by-source-length) are models trained from the start on Multi30k, and what CDR means",
    ),
    Analysis(
        "Zheng, Table 3",
        "blind reading: QUALITY from 1 to 5, OVER- and UNDER-translation in percent of the source's words",
        "fewer errors with guided routing; UNDER 3.83 Transformer, 2.41 with guided routing", _blind_reading,
        "`lab.plain_beside_guided`. The two models translate 200 of 2,116 sentences differently. One reader, a "
        "language model, read 100 of these 200. Parentheses hold the 95 % interval of guided minus plain",
    ),
    Analysis(
        "Zheng, appendix", "number of iterations of guided routing",
        "more than one is better; our copy of the paper does not have the appendix", _scores(GUIDED_ITERATIONS),
        "1 to 5, three seeds of the embedded corpus; with one iteration two of them do not learn",
    ),
    Analysis(
        "Wang, Table 4", "assignments of words to capsules", '"very close to 0 or 1"', _capsules,
        f"{ANALYZE} on the released `capsnmt-de-en`, 500 sentences of Tatoeba's test set. The entropy is 0 if each "
        "word goes to one capsule, and ln 8 = 2.08 if each word is shared equally, so these assignments are far from "
        "0 and 1. The command also draws the [words of each capsule](#the-words-of-each-capsule)",
    ),
    Analysis(
        "Wang, abstract", "the hybrid with attention", "mentioned, without numbers",
        _hybrid,
        "`source_attention: true`, one seed of the embedded corpus, beside three of CapsNMT and of the Transformer. "
        "The corpus is easy for any model with attention, so this does not show that capsules help",
    ),
    Analysis(
        "Wang, Table 1", "tokenised BLEU (multi-bleu)", "BLEU", _text("sacreBLEU only"),
        "our scores of CapsNMT are not directly comparable with tokenised ones",
    ),
)  # fmt: skip


class LengthCurve(NamedTuple):
    """A method and its baseline by source length: their runs in a study of lab/results, and the seeds."""

    paper: str
    about: str
    study: str
    run: str
    baseline: str
    seeds: tuple[int, ...]


CURVES = (
    LengthCurve(
        "Dou, Figure 5", "EM routing of layers, Multi30k", "eight_seeds", "em_routing_further", "plain_further",
        (5, 6, 7, 8, 9, 10),
    ),
    LengthCurve("Zheng, Figure 5", "guided routing, Multi30k", "replication", "gdr_both", "plain", (2, 3, 4, 5)),
    LengthCurve(
        "Zheng, Figure 5", "guided routing, recurrent model, Multi30k", "recurrent", "rnmt_gdr", "rnmt", (2, 3, 4)
    ),
    LengthCurve(
        "Wang, Figure 4", "CapsNMT (baseline: pooling), embedded corpus", "embedded", "capsnmt", "pooling", (1, 2, 3)
    ),
    LengthCurve("Wang, Figure 4", "CapsNMT (baseline: pooling), Multi30k", "multi30k", "capsnmt", "pooling", (1,)),
)  # fmt: skip
MIN_BIN = 30  # sentences; BLEU of fewer is noise


def _curve(curve: LengthCurve, runs: Runs) -> list[list[str]]:
    """Return a row for each bin of source lengths: both scores, the gain over seeds, and the words per translation."""
    bins_by_run = [[runs[run][seed]["by_length"] for seed in curve.seeds] for run in (curve.baseline, curve.run)]
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
            _mean(gains),
            f"{fmean(words[0]):.2f}",
            _mean(added_words),
            f"{bucket['reference_words']:.2f}",
        ])  # fmt: skip
    return rows


def _mean(values: list[float], form: str = "+.2f") -> str:
    """Return a mean with its interval over seeds."""
    interval = interval_over_seeds(values)
    bounds = "" if interval is None else f" [{interval[0]:{form}}, {interval[1]:{form}}]"
    return f"{fmean(values):{form}}{bounds}"


def by_length(records: Records) -> str:
    """Return BLEU and length by source length of each curve, and the coverage difference ratio of the same runs."""
    rows, coverage = [], []
    for curve in CURVES:
        runs = records.runs(curve.study)
        rows += _curve(curve, runs)
        pairs = [
            [runs[run][seed]["coverage_difference_ratio"] for run in (curve.baseline, curve.run)]
            for seed in curve.seeds
        ]
        coverage.append([
            *(curve.paper, curve.about),
            *(f"{fmean(values):.3f}" for values in zip(*pairs, strict=True)),
            _mean([method - baseline for baseline, method in pairs], "+.3f"),
            str(len(pairs)),
        ])  # fmt: skip
    header = ["paper", "method", "source words", "sentences", "BLEU, baseline", "BLEU, method", "gain in BLEU"]
    header += ["words per translation, baseline", "additional words with the method", "words per reference"]
    ratio = (
        "The coverage difference ratio (CDR) of the same translations: of the source words that the reference\n"
        "translates, the share that the translation translates, too."
    )
    parts = [markdown_table(header, rows), ratio]
    return "\n\n".join(
        [*parts, markdown_table(["paper", "method", "ratio, baseline", "ratio, method", "gain", "seeds"], coverage)]
    )


def table(records: Records) -> str:
    """Return a row for each analysis, in the papers' order."""
    named = records.named("studies") | {study: records.runs(study) for study in (WIDE, EMBEDDED)}
    rows = [[entry.paper, entry.about, entry.theirs, entry.ours(named), entry.how] for entry in ANALYSES]
    return markdown_table(["paper", "analysis", "result of the paper", "our result", "how we measured"], rows)
