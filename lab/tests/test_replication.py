"""Plans: what they train, choose and answer where the truth is known; a widened model."""

import argparse
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from transformers import AutoModelForSeq2SeqLM

from hf_capsule_mt.training import load_recipe
from hf_capsule_mt.training.models import build_config
from lab import replication
from lab.effects import Gains, answer, draw_effects, effects_table, estimated
from lab.over_seeds import spread_of
from lab.paper_tables import RUNS
from lab.rates import chosen_rate
from lab.records import Records
from lab.replication import NO_RATE, PLANS, RUNNING_PLANS, failures, gains, main, spread, table, tried_rates, widen
from lab.report import LAB
from lab.reproduce import log_of

IDS = {"pad_token_id": 0, "eos_token_id": 1, "decoder_start_token_id": 0, "forced_eos_token_id": None}
SIZES = {"d_model": 16, "encoder_layers": 2, "decoder_layers": 2, "encoder_ffn_dim": 24, "decoder_ffn_dim": 24}
COUNTED = {PLANS["as_printed"].run(arm) for pair in PLANS["as_printed"].contrasts.values() for arm in pair}


def build_model():
    fields = {"model_type": "capsule_marian", "encoder_attention_heads": 2, "decoder_attention_heads": 2, **SIZES}
    return AutoModelForSeq2SeqLM.from_config(build_config(fields, {"vocab_size": 30, **IDS})).eval()


def test_a_widened_model_computes_the_same_and_trains_its_new_units():
    narrow, source = build_model(), torch.arange(2, 12).view(2, 5)
    weight = narrow.state_dict()["model.encoder.layers.0.fc1.weight"].clone()
    wide = widen(narrow, 40, seed=1)
    assert not wide.training
    num_added = sum(p.numel() for p in wide.parameters()) - sum(p.numel() for p in narrow.parameters())
    assert num_added == 4 * 16 * (2 * 16 + 1)  # 4 layers, 16 new units each, with both maps and a bias
    logits = [model(input_ids=source, decoder_input_ids=source).logits for model in (narrow, wide)]
    torch.testing.assert_close(*logits)
    assert torch.equal(wide.state_dict()["model.encoder.layers.0.fc1.weight"][:24], weight)
    logits[1].square().sum().backward()
    assert wide.model.encoder.layers[0].fc2.weight.grad[:, 24:].abs().max() > 0


class Rows(Records):
    """Made-up BLEU of the runs of a plan, by arm and seed."""

    def __init__(self, name, scores, **fields):
        super().__init__("nowhere")
        self.by_run = {
            PLANS[name].run(arm): {
                seed: {"scores": {"bleu": {"score": bleu}}, "parameters": 1000, **fields.get(arm, {})}
                for seed, bleu in zip(PLANS[name].seeds, values, strict=False)
            }
            for arm, values in scores.items()
        }

    def runs(self, setting):
        return self.by_run


def answers(truth, repetitions=300):
    """Return the shares of each contrast's answers if arms differ from the plain model by `truth`."""
    chance, counts = np.random.default_rng(1), {title: Counter() for title in PLANS["as_printed"].contrasts}
    for _ in range(repetitions):
        seeds = chance.normal(32, 0.5, 8)
        scores = {arm: seeds + chance.normal(truth.get(arm, 0), 0.15, 8) for arm in PLANS["as_printed"].arms}
        for title, gain in gains(Rows("as_printed", scores), "as_printed").items():
            if title in counts:
                counts[title][answer(gain)] += 1
    return [{words: count / repetitions for words, count in counter.items()} for counter in counts.values()]


def test_answers_where_the_truth_is_known(monkeypatch):
    monkeypatch.setitem(PLANS, "as_printed", replace(PLANS["as_printed"], lacks={}))
    without_effects = answers({})
    assert (
        sum(share for shares in without_effects for words, share in shares.items() if "h" in words[:1]) < 0.08
    )  # of 5 %
    assert all(0.5 < shares["equivalent within 0.2 BLEU"] < 0.8 for shares in without_effects)
    at_margin, margin_hurts, *_ = answers({"em_routing_replaces": 0.2, "dynamic_routing_replaces": -0.2})
    for shares, words in ((at_margin, "helps"), (margin_hurts, "hurts")):
        assert sum(share for answer_words, share in shares.items() if "equivalent" in answer_words) < 0.08  # of 5 %
        assert 0.3 < shares[words] < 0.8
    assert answers({"em_routing_replaces": 0.6}, 50)[0] == {"helps": 1.0}


def test_an_arm_with_a_run_that_did_not_learn_has_no_mean(monkeypatch):
    monkeypatch.setitem(PLANS, "as_printed", replace(PLANS["as_printed"], lacks={12: ["linear_replaces"]}))
    scores = {arm: [32.0, 33.1, 31.9, 32.4, 32.2, 32.8, 32.1, 31.7] for arm in PLANS["as_printed"].arms}
    scores["em_routing_replaces"] = [15.9, *scores["plain"][1:]]
    rows = Rows("as_printed", scores, linear_replaces={"most_frequent": 0.51}, linear_adds={"most_frequent": 0.5})
    em, linear = (PLANS["as_printed"].run(arm) for arm in ("em_routing_replaces", "linear_replaces"))
    assert failures(rows, "as_printed").keys() == {em, linear}
    assert spread(rows, "as_printed").scores.keys() == COUNTED - {em, linear}, "explored arms change no answer"
    by_title = gains(rows, "as_printed")
    assert answer(by_title["Layers: EM routing, as printed"]) == f"{em} learns 7 of 8"
    assert not by_title["Layers: EM routing, as printed"].values
    assert answer(by_title["Layers: dynamic routing, as printed"]) == "equivalent within 0.2 BLEU"
    assert "| Layers: EM routing, as printed |  | " in effects_table({"column": by_title})
    assert "<svg" in draw_effects({"column": by_title})
    columns = [{"column": {"a method": Gains(values, 8)}} for values in ([], [0.5], [0.5, 0.6])]
    assert [draw_effects(column).count("<circle") for column in columns] == [1, 2, 2]  # one is in the legend
    text = table(rows, "as_printed")
    assert "| learns 7 of 8 (seed 11: low BLEU) |  |" in text
    assert "| learns 0 of 7 (seed 11: one translation for most sources, seed 13" in text, "seed 12 lacks this arm"
    scores = {
        "plain": [32.0, 3.0],
        "dynamic_routing_replaces": [0.0, 4.0],
    }  # a plain model has no better one beside it
    text = table(Rows("as_printed", scores), "as_printed")
    assert "| learns 1 of 2 (seed 12: low BLEU) |" in text
    assert "dynamic routing, replacing | 1,000 | 0.00 | 4.00 | learns 1 of 2 (seed 11: low BLEU) |" in text


def test_rows_of_a_seed_have_one_start_one_processor_and_clean_commits():
    kinds = {}
    for name in ("as_printed_rates", "as_printed"):
        for row in Records(LAB / "results").read(name):
            start = row.get("start_sha256", "not recorded before seed 12")
            kinds.setdefault(row["seed"], set()).add((start, row["hardware"]["cpu"]))
            assert not row["commit"].endswith("+"), f"{row['run']}, seed {row['seed']}"
    assert all(len(kinds[seed]) == 1 for seed in kinds), kinds


def test_other_scores_stand_beside_bleu_and_answer_nothing():
    chance, plan = np.random.default_rng(2), PLANS["as_printed"]
    rows = Rows("as_printed", {arm: chance.normal(32, 0.2, 8) for arm in plan.arms})
    by_bleu = gains(rows, "as_printed")
    chrf = {run: {seed: 57 + chance.normal(0, 0.2) for seed in plan.seeds_of(run)} for run in rows.by_run}
    for run, by_seed in rows.by_run.items():
        for seed, row in by_seed.items():
            row["scores"]["chrf"] = {"score": chrf[run].get(seed, 0.0)}
            if seed < 13:  # not all are judged
                row["scores"]["left_out"] = {"score": 12.0 - seed if run == plan.baseline else 3.0}
    assert gains(rows, "as_printed") == by_bleu
    em, text = plan.run("em_routing_replaces"), table(rows, "as_printed")
    chrf_gain = estimated(spread_of("blocks", {run: chrf[run] for run in COUNTED}).difference(em, plan.baseline))
    # differences of 2 and 3: t(1) = 12.71
    assert f"| Layers: EM routing, as printed | {chrf_gain}, n = 8 | +2.50 [-3.85, +8.85], n = 2 |  |" in text
    assert "| gain over the baseline (0.50 % of source words left out, n = 2) |" in text
    assert "| gain over the baseline (no % of words made up yet) |" in text


class Judge:
    """Every word is left out and made up with a probability of a tenth of the translation's words."""

    numbers = SimpleNamespace(encoder="an encoder")

    def score(self, sources, translations):
        for source, text in zip(sources, translations, strict=True):
            words = [
                [SimpleNamespace(probability=len(text.split()) / 10)] * len(side.split()) for side in (source, text)
            ]
            yield SimpleNamespace(source_words=words[0], target_words=words[1]) if text else None


def test_rows_that_lack_it_are_judged(tmp_path, monkeypatch):
    monkeypatch.setattr("lab.records.stamped", dict)  # the environment takes a quarter of a second for each
    monkeypatch.setattr(replication, "Judge", SimpleNamespace(from_pretrained=lambda model, num_threads: Judge()))
    settings = {"setting": "embedded", "study": "study", "seeds": [11], "changes": [], "data_dir": None}
    settings |= {"plan": "depth_deep", "work": tmp_path, "results": tmp_path, "budget": 1}
    study = replication.Replication(argparse.Namespace(**settings))
    study.test_set = ["a b c d", "e f", "g"], ["w x y z u", "v w", "p"]
    for run, seed, bleu in (("plain", 11, 100.0), ("plain", 12, 100.0), ("em_routing", 11, 99.0), ("linear", 11, 0.0)):
        study.records.keep("study", {"run": run, "seed": seed, "date": "d", "scores": {"bleu": {"score": bleu}}})
        study.records.keep_translations("study", run, seed, study.test_set[1] if bleu else ["", "v w", ""])
    study.records.keep("study", {"run": "dense", "seed": 11, "date": "d", "scores": {"bleu": {"score": 0.0}}})
    before = study.records.runs("study")
    failed = study.judge(["plain", "em_routing", "linear", "dense"], "e5")  # em_routing's translations have other BLEU
    assert failed == [f"{run}, seed 11: study.hyp.jsonl lacks its translations" for run in ("em_routing", "dense")]
    after = study.records.runs("study")
    judged = {"left_out": pytest.approx(100 * (4 * 0.5 + 2 * 0.2 + 0.1) / 7, rel=1e-5), "made_up": 37.5}
    assert {name: after["plain"][11]["scores"][name]["score"] for name in judged} == judged
    assert after["linear"][11]["scores"]["left_out"]["score"] == pytest.approx(100 * (4 + 2 * 0.2 + 1) / 7, rel=1e-5)
    del after["plain"][11]["scores"]["left_out"], after["plain"][11]["scores"]["made_up"], after["linear"]
    assert after == {run: by_seed for run, by_seed in before.items() if run != "linear"}, "nothing else has changed"
    assert study.judge(["plain", "linear"], "e5") == []


def test_arms_are_sorted_and_missing_ones_named():
    text = table(Rows("depth_deep", {"plain": [60.0, 61.0, 1.0], "dense": [71.0, 72.0, 72.0]}), "depth_deep")
    assert text.index("| dense sum |") < text.index("| the top layer alone |")
    assert "| learns 2 of 3 (seed 3: low BLEU) |" in text
    assert "| 71.67 ± 0.58, n = 3 |  |" in text  # a plain model that does not translate is no baseline
    assert "Not yet trained: dense sum before every layer; depth attention before every layer; depth attention" in text


def test_a_plan_without_its_baseline_has_a_table():
    text = table(Rows("as_printed", {"em_routing_replaces": [32.0]}), "as_printed")
    assert "| EM routing, replacing | 1,000 | 32.00 | 32.00, n = 1 |  |" in text
    assert "Not yet trained: plain, trained as long; " in text


def test_rates_are_chosen_by_the_rows():
    tried = {
        arm: rates
        for name in ("as_printed_rates", "depth_rates")
        for arm, rates in tried_rates(Records(LAB / "results"), name).items()
    }
    for name in ("as_printed", "depth"):
        for arm, rate in PLANS[name].rates.items():
            assert rate in (None, chosen_rate(tried[arm])), f"{name}: {arm}"
    rows = Rows(
        "as_printed_rates",
        {f"em_routing_adds_further_at_{rate}": [bleu] for rate, bleu in (("0.0005", 40.0), ("0.001", 40.2))},
    )
    assert "| em_routing_adds | 40.00 | 40.20 | the best is at the edge: train 0.002 |" in table(
        rows, "as_printed_rates"
    )


def test_an_arm_without_a_rate_is_not_trained(monkeypatch):
    monkeypatch.setattr("sys.argv", ["lab.replication", "as_printed", "--runs", "plain"])
    monkeypatch.setitem(PLANS["as_printed"].rates, "plain", None)
    with pytest.raises(SystemExit, match=rf"as_printed: no run plain {NO_RATE}: see `rates` in lab/plans.yaml"):
        main()


def test_what_a_seed_lacks_is_not_trained(monkeypatch):
    monkeypatch.setattr(
        "sys.argv", ["lab.replication", "as_printed", "--seeds", "12", "--runs", "plain", "linear_replaces"]
    )
    with pytest.raises(SystemExit, match=r"does not train linear_replaces_further_at_0\.0005, seed 12: see `lacks`"):
        main()


@pytest.mark.parametrize("name", RUNNING_PLANS)
def test_every_run_of_a_plan_is_a_model(name):
    plan = PLANS[name]
    assert plan.seed_changes == PLANS[plan.shares or name].seed_changes
    settings = {"setting": plan.setting, "study": name, "changes": [*plan.all_changes.items()], "data_dir": None}
    settings |= {"plan": name, "work": Path("w"), "results": Path("r"), "budget": 1, "seeds": [11, 12, 13]}
    reproduction = replication.Replication(argparse.Namespace(**settings))
    assert ("linear_replaces_further_at_0.0005", 12) not in reproduction.asked(plan.runs)
    for run in plan.runs:
        if run.endswith(NO_RATE):
            continue
        recipe = load_recipe(reproduction.recipe(RUNS[run].recipe), reproduction.overrides(RUNS[run], 1))
        recipe_13 = load_recipe(reproduction.recipe(RUNS[run].recipe), reproduction.overrides(RUNS[run], 13))
        assert reproduction.changes(13) == plan.all_changes | plan.seed_changes.get(13, {})
        assert recipe_13.training.get("bf16") is (False if plan.seed_changes else recipe.training.get("bf16"))
        arm, _, rate = run.partition("_further_at_")
        config = build_config(recipe.model, {"vocab_size": 30, **IDS})
        if rate:
            assert recipe.training["learning_rate"] == float(rate)
            assert arm.startswith("plain") or arm.endswith(config.layer_aggregation_placement)
            assert arm.startswith(("plain", config.layer_aggregation))
            assert recipe.init_from.endswith("/plain_widened-seed1" if arm == "plain_widened" else "/plain-seed1")
    assert log_of(Path("w/em_further_at_0.0005-seed11")) == Path("w/em_further_at_0.0005-seed11.log")
