"""Compare runs over seeds, by plans that were fixed before (plans.yaml): what to train, and the answer.

    python -m lab.replication --data-dir data/multi30k-en-de --budget 600
    python -m lab.replication as_printed_rates --data-dir data/multi30k-en-de --budget 600
    python -m lab.replication depth --data-dir data/multi30k-en-de --budget 600 --runs grn_replaces
    python -m lab.replication as_printed --data-dir data/multi30k-en-de --judge data/multilingual-e5-small
    python -m lab.replication depth_deep --budget 60                       # on the embedded corpus
    for i in $(seq 14); do python -m lab.replication depth_top --data-dir data/multi30k-en-de --budget 10 & done; wait

Each plan was committed before any of its rows translated the test set with its seeds. A training that the budget stops
resumes in the next call. The same call in further processes, in the same folder, shares the work: the last line is for
one GPU, where `nvidia-cuda-mps-control -d` lets small trainings run at once. To compare a further method, add its run
to runs.yaml and its arm to a plan, and name it by --runs.
"""

import argparse
import copy
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from tqdm import tqdm
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, PreTrainedModel

from capsule_mt import Judge, __version__
from capsule_mt.commands.console import HelpFormatter, run
from hf_capsule_mt.commands.arguments import keep_freed_memory
from hf_capsule_mt.evaluation.metrics import score_corpus
from hf_capsule_mt.evaluation.results import markdown_table
from lab.effects import Gains, answer, differences, effect, estimated, shown
from lab.over_seeds import LEARNT_SHARE, Scores, Spread, corrected, paired, shown_p, spread_of
from lab.paper_tables import PLANNED, RUNS, run_at
from lab.rates import chosen_rate, next_rates
from lab.records import BLEU, Metric, Records, Runs, scores_by_seed
from lab.reproduce import Reproduction, add_training_options
from lab.tables import arms_table, provenance

NO_RATE = "without a rate"


@dataclass(frozen=True)
class Plan:
    """What is compared over seeds.

    contrasts: {title: (arm, baseline)} that Holm's correction counts; the first baseline is that of the plan.
    uncounted: contrasts that it does not count: controls and explorations.
    column: the heading of its gains where all methods stand together, if they do.
    setting: the recipes for a corpus.
    changes: fields of every recipe.
    seed_changes: further fields, by seed.
    lacks: the arms that are not trained with a seed.
    shares: the plan, of the same changes, that trains the baseline.
    blocks: seeds are blocks: all runs of a seed start from the same model, or see the same batches.
    test: the parts of the test set, if it is not the recipe's.
    on_gpu: whether it was trained on a GPU, in float32 with TF32 products; other plans on CPUs, in bfloat16.
    ended: how its runs are repeated, if their program is no longer here.
    arms: descriptions of the arms, for a table of their scores, the best first.
    failed: a BLEU below which a run has not learnt to translate; without it, half of the baseline's of the same seed.
    equivalence: a margin in BLEU. Differences that two one-sided tests at 5 % find within it are "equivalent".
    rates: the rate of each arm that chooses one, none if it has not yet.
    candidates: the rates that arms choose from. Such a plan has no contrasts.
    """

    title: str
    seeds: list[int]
    contrasts: dict[str, list[str]] = field(default_factory=dict)
    uncounted: dict[str, list[str]] = field(default_factory=dict)
    column: str | None = None
    setting: str = "multi30k"
    changes: dict[str, str] = field(default_factory=dict)
    seed_changes: dict[int, dict[str, str]] = field(default_factory=dict)
    lacks: dict[int, list[str]] = field(default_factory=dict)
    shares: str | None = None
    blocks: bool = False
    test: list[str] = field(default_factory=list)
    on_gpu: bool = False
    ended: str | None = None
    arms: dict[str, str] = field(default_factory=dict)
    failed: float | None = None
    equivalence: float | None = None
    rates: dict[str, float | None] = field(default_factory=dict)
    candidates: dict[str, list[float]] = field(default_factory=dict)

    def run(self, arm: str) -> str:
        """Return the run of an arm: that at its rate."""
        rate = self.rates.get(arm, 0.0)
        return f"{arm} {NO_RATE}" if rate is None else run_at(arm, rate) if rate else arm

    def seeds_of(self, *runs: str) -> list[int]:
        """Return the seeds that train all of these runs."""
        return [seed for seed in self.seeds if not {self.run(arm) for arm in self.lacks.get(seed, [])} & set(runs)]

    @property
    def pairs(self) -> dict[str, tuple[str, str]]:
        """The runs of all contrasts, by title."""
        contrasts = self.contrasts | self.uncounted
        return {title: (self.run(arm), self.run(baseline)) for title, (arm, baseline) in contrasts.items()}

    @property
    def baseline(self) -> str:
        return self.run(next(iter(self.arms), None) or next(iter(self.contrasts.values()))[1])

    @property
    def all_changes(self) -> dict[str, str]:
        files = [{"text": [f"{part}.{language}.gz" for language in ("en", "de")]} for part in self.test]
        return self.changes | (_ON_GPU if self.on_gpu else {}) | ({"data.test": json.dumps(files)} if files else {})

    @property
    def runs(self) -> list[str]:
        """The runs, baselines first."""
        candidates = [run_at(arm, rate) for arm, rates in self.candidates.items() for rate in rates]
        baselines = [baseline for _, baseline in self.pairs.values()]
        arms = [self.run(arm) for arm in self.arms]
        return list(dict.fromkeys([*candidates, *arms, *baselines, *(run for run, _ in self.pairs.values())]))


_ON_GPU = {"training.bf16": "false", "training.float32_matmul_precision": '"high"'}
# by the name of the file in lab/results
PLANS = {name: Plan(**fields) for name, fields in PLANNED.items()}
CORPORA = {"multi30k": "Multi30k", "embedded": "The grammar corpus"}
# what tables show beside BLEU, by unit: of plans whose rows all have it, and of plans with a margin of equivalence
IN_PAIRS: dict[str, Metric] = {"BLEU": ("joined", "bleu")}
EXPLORED: dict[str, Metric] = {
    "chrF": ("scores", "chrf"),
    "% of source words left out": ("scores", "left_out"),
    "% of words made up": ("scores", "made_up"),
}


def _runs(records: Records, name: str) -> Runs:
    """Return the runs of a plan with their seeds."""
    plan = PLANS[name]
    study = records.runs(plan.shares or name)
    seeds = {run: [seed for seed in plan.seeds_of(run) if seed in study.get(run, {})] for run in plan.runs}
    return {run: {seed: study[run][seed] for seed in seeds[run]} for run in plan.runs}


def _scores(records: Records, name: str, metric: Metric = BLEU) -> Scores:
    runs = _runs(records, name)
    return {run: scores_by_seed(runs, run, metric) for run in runs}


def failures(records: Records, name: str) -> dict[str, str]:
    """Return how many runs of an arm have learnt to translate, for each arm with one that has not.

    A run has not if its BLEU is too low, or if more than half of its translations are the same.
    """
    plan, runs = PLANS[name], _runs(records, name)
    scores, texts = _scores(records, name), {}
    plain = scores[plan.baseline]
    for arm, by_seed in runs.items():
        causes = []
        for seed, record in by_seed.items():
            half = LEARNT_SHARE * (max(plain.values()) if arm == plan.baseline else plain.get(seed, 0.0))
            if scores[arm][seed] < (half if plan.failed is None else plan.failed):
                causes.append(f"seed {seed}: low BLEU")
            elif record.get("most_frequent", 0.0) > LEARNT_SHARE:
                causes.append(f"seed {seed}: one translation for most sources")
        if causes:
            texts[arm] = f"learns {len(by_seed) - len(causes)} of {len(by_seed)} ({', '.join(causes)})"
    return texts


def spread(records: Records, name: str, metric: Metric = BLEU) -> Spread | None:
    """Return the spread of a plan: that of its blocks, or else of all arms of its study, pooled.

    Arms with a run that has not learnt do not count. In blocks, neither do arms without all seeds, and those that only
    uncounted contrasts have: which of them are trained may not change an answer.
    """
    plan = PLANS[name]
    scores: dict[str, dict[int, float]] = {}
    for plan_name, other_plan in PLANS.items():
        if plan_name == name or (not plan.blocks and (other_plan.shares or plan_name) == (plan.shares or name)):
            failed = failures(records, plan_name)
            for run, by_seed in _scores(records, plan_name, metric).items():
                if run not in failed:
                    scores.setdefault(run, {}).update(by_seed)
    if plan.blocks:
        explored = {run for title in plan.uncounted for run in plan.pairs[title]}
        explored -= {run for title in plan.contrasts for run in plan.pairs[title]}
        complete = {run: by_seed for run, by_seed in scores.items() if len(by_seed) == len(plan.seeds_of(run))}
        return spread_of("blocks", {run: by_seed for run, by_seed in complete.items() if run not in explored})
    return spread_of("pooled", scores)


def gains(records: Records, name: str, metric: Metric = BLEU) -> dict[str, Gains]:
    """Return the gains of what a plan compares, by their titles.

    With all its seeds a gain has a p-value, corrected for all tests of the plan.
    """
    plan = PLANS[name]
    scores, failed, arms = _scores(records, name, metric), failures(records, name), spread(records, name, metric)
    values_by_title = {
        title: [] if failed.keys() & {run, baseline} else values
        for title, (run, baseline) in plan.pairs.items()
        if (values := differences(scores[run], scores[baseline]))
    }
    planned = {title: len(plan.seeds_of(*runs)) for title, runs in plan.pairs.items()}
    complete = [title for title, values in values_by_title.items() if len(values) == planned[title]]
    alone = {title: paired(values_by_title[title]) for title in complete}
    estimates = {title: arms and arms.difference(*plan.pairs[title]) for title in complete}
    by_spread = {title: estimates[title] or alone[title] for title in complete}
    if plan.blocks:  # where an arm varies more: a paired test of the two alone
        estimates = by_spread
    p_alone, p_by_spread = (
        corrected({title: estimate and estimate.p for title, estimate in tests.items()}, list(plan.contrasts))
        for tests in (alone, by_spread)
    )
    gains_by_title = {}
    for title, values in values_by_title.items():
        estimate, p = estimates.get(title), p_by_spread.get(title)
        if estimate is not None and p is not None:
            estimate = estimate._replace(p=p)
        failure = "; ".join(f"{run} {failed[run].partition(' (')[0]}" for run in plan.pairs[title] if run in failed)
        gains_by_title[title] = Gains(
            values, planned[title], p_alone.get(title), estimate, plan.equivalence, failure, title in plan.uncounted
        )
    return gains_by_title


def table(records: Records, name: str) -> str:
    """Return the tables of a plan: its arms, its contrasts with their intervals; empty if nothing has been trained."""
    plan, runs = PLANS[name], _runs(records, name)
    if not any(runs.values()):
        return ""
    data = " --data-dir data/multi30k-en-de" if plan.setting == "multi30k" else ""
    command = plan.ended or f"python -m lab.replication {name}{data} --budget 600{'' if plan.on_gpu else ' --cpu'}"
    parts = [f"**{CORPORA[plan.setting]}, {plan.title}** (`{command}`):"]
    parts += [_rates_table(tried_rates(records, name))] if plan.candidates else []
    parts += [_arms_table(records, name)] if plan.arms else []
    parts += [_contrasts_table(records, name)] if plan.contrasts else []
    if all("joined" in record for by_seed in runs.values() for record in by_seed.values()):
        parts += ["On its sentences in pairs, of 25 to 30 source words:", _gains_table(records, name, IN_PAIRS)]
    if plan.equivalence is not None:
        about = "Explorations, which are neither counted nor corrected; fewer words left out or made up are better:"
        parts += [about, _gains_table(records, name, EXPLORED)]
    return "\n\n".join(filter(None, [*parts, provenance(records, plan.shares or name, plan.runs, plan.seeds)]))


def _arms_table(records: Records, name: str) -> str:
    """Return a row for each arm, the best first, and those with a run that has not learnt last."""
    plan, runs, failed = PLANS[name], _runs(records, name), failures(records, name)
    titles = {plan.run(arm): title for arm, title in plan.arms.items()}
    means = {run: fmean(by_seed.values()) for run, by_seed in _scores(records, name).items() if by_seed}
    by_rank = sorted((run for run in titles if run in means), key=lambda run: (run in failed, -means[run]))
    missing = "; ".join(title for run, title in titles.items() if run not in means)
    in_order = {run: titles[run] for run in by_rank}
    shown_arms = arms_table(runs, in_order, plan.baseline, failed, spread(records, name))
    return f"{shown_arms}\n\nNot yet trained: {missing}." if missing else shown_arms


def _contrasts_table(records: Records, name: str) -> str:
    """Return a row for each contrast, those with the plan's baseline first, the best gain first."""
    plan, by_title = PLANS[name], gains(records, name)
    ranks = {
        title: (plan.pairs[title][1] != plan.baseline, -fmean(gain.values or [-math.inf]))
        for title, gain in by_title.items()
    }
    lines = []
    for title in sorted(by_title, key=ranks.__getitem__):
        gain = by_title[title]
        p = "" if gain.plan_estimate is None or title in plan.uncounted else shown_p(gain.plan_estimate.p)
        interval = estimated(gain.plan_estimate, with_90=plan.equivalence is not None)
        lines.append([title, effect(gain.values), shown_p(gain.p), interval, p, answer(gain)])
    header = [
        "method",
        _gain_heading(records, name, "BLEU", BLEU),
        "p over seeds (Holm)",
        f"by the plan's spread ({spread(records, name) or 'not yet known'})",
        "p (Holm)",
        "answer",
    ]
    return markdown_table(header, lines) if lines else ""


def _gains_table(records: Records, name: str, metrics: Mapping[str, Metric]) -> str:
    """Return the gain of each contrast in further scores, by their units."""
    columns = [gains(records, name, metric) for metric in metrics.values()]
    rows = [
        [title, *(shown(by_title[title]) if title in by_title else "" for by_title in columns)]
        for title in gains(records, name)
    ]
    return markdown_table(["difference", *(_gain_heading(records, name, *entry) for entry in metrics.items())], rows)


def _gain_heading(records: Records, name: str, unit: str, metric: Metric) -> str:
    plan, scores = PLANS[name], _scores(records, name, metric)
    values = scores[plan.baseline].values()
    baseline = f"{fmean(values):.2f} {unit}, n = {len(values)}" if values else f"no {unit} yet"
    return f"gain over the baseline ({failures(records, name).get(plan.baseline, baseline).partition(' (')[0]})"


def tried_rates(records: Records, name: str) -> dict[str, dict[float, float]]:
    """Return the BLEU of each arm of a plan with candidates at each rate that is trained, by its only seed."""
    plan, scores = PLANS[name], _scores(records, name)
    return {
        arm: {rate: bleu for rate in rates for bleu in scores[run_at(arm, rate)].values()}
        for arm, rates in plan.candidates.items()
    }


def _rates_table(tried: Mapping[str, Mapping[float, float]]) -> str:
    """Return a row for each arm: the BLEU at each rate, and the rate that it gets, or those that it is to train."""
    rates = sorted({rate for scores in tried.values() for rate in scores})
    rows = []
    for arm, scores in tried.items():
        missing = ", ".join(f"{rate:g}" for rate in next_rates(scores))
        at_edge = "the best is at the edge: " if len(scores) > 1 else ""
        result = f"{at_edge}train {missing}" if missing else f"{chosen_rate(scores):g}"
        rows.append([arm, *(f"{scores[rate]:.2f}" if rate in scores else "" for rate in rates), result])
    return markdown_table(["arm", *(f"BLEU at {rate:g}" for rate in rates), "rate"], rows)


def runs_to_train(records: Records, name: str) -> list[str]:
    """Return the runs of a plan, or of its candidates those that its arms are to train next."""
    plan, tried = PLANS[name], tried_rates(records, name)
    return [run_at(arm, rate) for arm in tried for rate in next_rates(tried[arm])] if tried else plan.runs


class Replication(Reproduction):
    """The runs of a plan, one of which is computed."""

    def changes(self, seed: int) -> dict[str, str]:
        return super().changes(seed) | PLANS[self.arguments.plan].seed_changes.get(seed, {})

    def asked(self, names: Sequence[str]) -> list[tuple[str, int]]:
        plan = PLANS[self.arguments.plan]
        return [(name, seed) for name, seed in super().asked(names) if seed in plan.seeds_of(name)]

    def train(self, name: str, seed: int) -> bool:
        if name != "plain_widened":
            return super().train(name, seed)
        folder = self.folder(name, seed)
        if not self.train("plain", seed):
            return False
        if not folder.exists():
            widen_checkpoint(self.folder("plain", seed), folder, RUNS[name].model["encoder_ffn_dim"], seed)
        return True

    def judge(self, runs: Sequence[str], model: str) -> list[str]:
        """Add a judge's scores to rows that lack them; return which translations are not here."""
        self.check_data()
        translations, failed = self.records.translations(self.file), []
        sources, references = self.test_set
        judge = Judge.from_pretrained(model, num_threads=1)  # trainings may run beside it
        rows_by_run = self.records.runs(self.file)
        rows = [row for run in runs for row in rows_by_run.get(run, {}).values()]
        rows = [row for row in rows if row["seed"] in self.arguments.seeds and "left_out" not in row["scores"]]
        for row in tqdm(rows, desc="judged", unit="run"):
            texts, scores = translations.get((row["run"], row["seed"]), []), row["scores"]
            is_here = len(texts) == len(sources)
            bleu = score_corpus(texts, [references], ["bleu"])["bleu"].score if is_here else math.inf
            if abs(bleu - scores["bleu"]["score"]) > 0.001:
                failed.append(f"{row['run']}, seed {row['seed']}: {self.file}.hyp.jsonl lacks its translations")
                continue
            self.records.keep(self.file, row | {"scores": scores | judged(judge, sources, texts)})
        return failed


def judged(judge: Judge, sources: Sequence[str], translations: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return the expected percentages of source words that are left out, and of words that are made up."""
    left_out, made_up = list[float](), list[float]()
    for source, judgement in zip(sources, judge.score(sources, translations), strict=True):
        if judgement is None:  # a blank translation leaves out everything
            left_out += [1.0] * len(source.split())
        else:
            left_out += [word.probability for word in judgement.source_words]
            made_up += [word.probability for word in judgement.target_words]
    signature = f"encoder:{judge.numbers.encoder}|int8:yes|version:{__version__}"
    shares = {"left_out": left_out, "made_up": made_up or [0.0]}
    return {name: {"score": 100 * fmean(share), "signature": signature} for name, share in shares.items()}


@torch.no_grad()
def widen(model: PreTrainedModel, size: int, seed: int) -> PreTrainedModel:
    """Return a model with all weights of another and further hidden units in each feed-forward layer.

    The new units start as in a new model, and what they add starts at zero.

    Args:
        size: units of each feed-forward layer, at least as many as there are.
        seed: of the new units.
    """
    config = copy.deepcopy(model.config)
    narrow = max(config.encoder_ffn_dim, config.decoder_ffn_dim)
    if size < narrow:
        raise ValueError(f"`size` must be at least {narrow}, the units that the model has, got {size}")
    config.encoder_ffn_dim = config.decoder_ffn_dim = size
    torch.manual_seed(seed)
    wide = type(model)(config)
    old = model.state_dict()
    for name, weight in wide.state_dict().items():
        if name.endswith("fc2.weight"):
            weight.zero_()
        weight[tuple(map(slice, old[name].shape))] = old[name]
    wide.generation_config = copy.deepcopy(model.generation_config)
    return wide.train(model.training)


def widen_checkpoint(folder: Path, output: Path, size: int, seed: int) -> None:
    """Write a widened checkpoint with its tokenizer at once: `output` is there complete or not at all."""
    partial = output.with_name(f"{output.name}.partial")
    widen(AutoModelForSeq2SeqLM.from_pretrained(folder), size, seed).save_pretrained(partial)
    AutoTokenizer.from_pretrained(folder).save_pretrained(partial)
    partial.replace(output)


RUNNING_PLANS = [name for name, plan in PLANS.items() if plan.ended is None]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=HelpFormatter)
    parser.add_argument("plan", nargs="?", choices=RUNNING_PLANS, default="replication", help="(default: %(default)s)")
    add_training_options(parser)
    parser.add_argument("--seeds", type=int, nargs="+", help="only these of the plan")
    parser.add_argument("--runs", nargs="+", metavar="RUN", help="only these of the plan, or its arms")
    parser.add_argument("--cpu", action="store_true", help="train on the CPU even where there is a GPU")
    parser.add_argument(
        "--judge", metavar="MODEL", help="train nothing, but judge the translations of rows by this encoder, a folder"
    )
    arguments = parser.parse_args()
    plan = PLANS[arguments.plan]
    seeds = arguments.seeds or list(plan.seeds)
    runs = [plan.run(arm) for arm in arguments.runs or []]
    runs = runs or (plan.runs if arguments.judge else runs_to_train(Records(arguments.results), arguments.plan))
    if not arguments.judge and (unknown := ", ".join(name for name in runs if name not in RUNS)):
        raise SystemExit(f"lab.replication {arguments.plan}: no run {unknown}: see `rates` in lab/plans.yaml")
    for option, values, planned in (("--seeds", seeds, plan.seeds), ("--runs", runs, plan.runs)):
        if not set(values) <= set(planned):
            raise SystemExit(f"lab.replication {option}: the plan has {planned}; got {values}")
    lacked = [f"{run}, seed {seed}" for run in runs for seed in seeds if seed not in plan.seeds_of(run)]
    if arguments.runs and arguments.seeds and lacked:
        raise SystemExit(
            f"lab.replication: the plan does not train {'; '.join(lacked)}: see `lacks` in lab/plans.yaml"
        )
    keep_freed_memory()
    on_cpu = arguments.cpu or not torch.cuda.is_available()  # the Trainer wants to be told to use bfloat16 on a CPU
    changes = list((plan.all_changes | ({"training.use_cpu": "true"} if on_cpu else {})).items())
    settings = vars(arguments) | {"setting": plan.setting, "study": plan.shares or arguments.plan, "seeds": seeds}
    reproduction = Replication(argparse.Namespace(**settings, changes=changes))
    failed = reproduction.judge(runs, arguments.judge) if arguments.judge else reproduction.train_and_score(runs)
    print(table(reproduction.records, arguments.plan) or "No model has been trained yet.")
    print("\n".join(failed))
    return 1 if failed else 0


if __name__ == "__main__":
    run(main)
