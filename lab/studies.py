"""The sections of the report that are no tables of papers: studies, benchmarks and comparisons, as Markdown."""

from collections.abc import Callable, Mapping
from typing import Any

from hf_capsule_mt.evaluation.results import markdown_table
from lab.alarm import table as alarm_table
from lab.area_under_curve import auc_markdown
from lab.benchmark_tables import render_benchmark, render_campaign, render_lengths, render_throughput
from lab.by_hand import table as by_hand_table
from lab.engine_speed import render_engines
from lab.over_seeds import mean_and_spread, shown_p
from lab.published import table as published_table
from lab.records import Records
from lab.repair import table as repair_table

Record = Mapping[str, Any]


def adequacy(records: Records) -> str:
    """Return the areas under the ROC curve of each measure for each label."""
    return auc_markdown(records.named("studies")["adequacy-de-en"]["auc"])


def word_omissions(records: Records) -> str:
    """Return how well each method finds words that are missing, in references and in a model's own translations."""
    record = records.named("studies")["word-omissions-de-en"]
    dropped, greedy = (record["measures"][kind] for kind in ("references with words dropped", "own, greedy"))
    rows = []
    for method in dropped:
        cells = []
        for by_method in (dropped, greedy):
            cells += [_word_auc(by_method[method]), f"{by_method[method]['precision']['value']:.2f}"]
        time = record["time_relative_to_translation"].get(method)
        rows.append([f'`"{method}"`' if time else method, *cells, f"{time:.2f}" if time else ""])
    header = ["dropped words", "precision at recall 0.6", "own translations", "precision at recall 0.6", "time"]
    return markdown_table(["method", *header], rows)


def guided_marks(records: Records) -> str:
    """Return how well guided routing on a strong student finds dropped words, beside the student's best head."""
    omissions = _of_kind(records, "word omissions")
    guided = [record for record in omissions if record["checkpoint"].startswith("guided_frozen")]
    methods = ("guided", "attention", "length ratio")
    rows = []
    for record in guided:
        dropped = record["measures"]["references with words dropped"]
        rows.append([f"`{record['checkpoint']}`", *(_word_auc(dropped[method]) for method in methods)])
    return markdown_table(["model", '`"guided"`', '`"attention"`: the chosen head', "length ratio"], rows)


def alignment(records: Records) -> str:
    rows = [
        [
            "`lab.align`" if isinstance(record["aligner"], dict) else f"`{record['aligner']}`",
            f"{record['alignment_error_rate']:.3f}",
            f"{record['links']:,}",
            f"{record['seconds']:.0f}",
        ]
        for record in _of_kind(records, "word alignment")
    ]
    return markdown_table(["aligner", "alignment error rate", "links", "seconds"], rows)


def comparisons(records: Records) -> str:
    """Return the comparisons of single systems in BLEU, in all settings."""
    rows = []
    for setting in ("multi30k", "tatoeba"):
        for name, record in records.named(setting).items():
            for system, metrics in record.get("comparisons", {}).items():
                entry = metrics["bleu"]
                scores = (f"{entry[key]:.2f}" for key in ("baseline_score", "score"))
                p_values = (entry["p_bootstrap"], entry["p_randomisation"])
                cells = (*scores, f"{entry['difference']:+.2f}", *(shown_p(p) for p in p_values))
                rows.append([setting, f"`{name}`", f"{system} / {record['baseline']}", *cells])
    header = ["setting", "record", "systems", "baseline", "BLEU", "difference", "p, bootstrap", "p, randomisation"]
    return markdown_table(header, rows)


def quickstart(records: Records) -> str:
    record = records.named("studies")["quickstart"]
    rows = [[f"`{name}`", mean_and_spread(scores)] for name, scores in record["test_bleu"].items()]
    return markdown_table(["model", f"BLEU, {len(record['seeds'])} seeds"], rows)


def benchmarks(records: Records) -> str:
    """Return the training, memory and decoding tables of each benchmark run."""
    names = ("benchmark-cpu", "benchmark-routing-cpu", "benchmark-guided-cpu", "benchmark-decode-cpu")
    return "\n".join(render_benchmark(records.named("studies")[name]) for name in names)


def lengths(records: Records) -> str:
    return render_lengths(records.named("studies")["linear-time-cpu"])


def throughput(records: Records) -> str:
    return "\n\n".join(render_throughput(records.named("studies")[name]) for name in ("throughput", "throughput-256"))


def engines(records: Records) -> str:
    parts = []
    for record in _of_kind(records, "engines"):
        parts.append(
            f"{record['hardware']['cpu']}, {record['date'][:10]}, commit {record['commit'][:7]}, one thread, "
            f"processor time, median of {record['repeats']} turns."
        )
        parts.append(render_engines(record).strip())
    return "\n\n".join(parts)


def campaign(records: Records) -> str:
    record = records.named("studies")["campaign"]
    hardware, sections = record["hardware"], record["sections"].values()
    totals = [sum(section["tries"] for section in sections), sum(len(section["failures"]) for section in sections)]
    about = (
        f"{record['minutes']} minutes on a shared machine ({hardware['cpu']}, {hardware['cores']} cores), "
        f"seed {record['seed']}, commit {record['commit'][:7]}: {totals[0]} tries, {totals[1]} failures."
    )
    return f"{about}\n\n{render_campaign(record)}"


SECTIONS: dict[str, Callable[[Records], str]] = {
    function.__name__: function
    for function in (
        *(adequacy, word_omissions, guided_marks, alignment, comparisons, quickstart, benchmarks, engines, lengths),
        *(throughput, campaign),
    )
} | {
    # of all records of a kind
    "read_by_hand": lambda records: by_hand_table(_of_kind(records, "read by hand")),
    "alarm": lambda records: alarm_table(_of_kind(records, "alarm")),
    "labelled_by_people": lambda records: published_table(_of_kind(records, "labelled by people")),
    "repair": lambda records: repair_table(_of_kind(records, "repair")),
}


def _word_auc(measures: Mapping[str, Mapping[str, float]]) -> str:
    area = measures["word_auc"]
    return f"{area['value']:.2f} [{area['low']:.2f}, {area['high']:.2f}]"


def _of_kind(records: Records, kind: str) -> list[Record]:
    return [record for record in records.read("studies") if record.get("kind") == kind]
