"""The tables as data, and as Markdown beside our results."""

import pytest

from hf_capsule_mt import CapsuleMarianConfig
from lab.capsules_fairly import grid
from lab.paper_tables import CLAIMS, FAIR, RUNS, TABLES, baselines_of, runs_of, share_among_equals
from lab.records import Records
from lab.replication import PLANS
from lab.report import tables
from lab.tables import render_claims, render_table

SETTINGS = {
    "d_model": 64, "encoder_layers": 3, "decoder_layers": 3, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64,
}  # fmt: skip


def test_every_row_is_a_run_that_exists():
    for key, table in TABLES.items():
        assert table.rows, key
        for row in table.rows:
            assert row.run is None or row.run in RUNS, (key, row)
            assert row.baseline is None or row.baseline in RUNS, (key, row)
            assert set(row.printed) <= set(table.columns)
    for run in RUNS.values():
        assert set(run.needs) <= set(RUNS)
    used = {row.run for table in TABLES.values() for row in table.rows} - {None}
    planned = {name for plan in PLANS.values() for run in plan.runs for name in (run, *RUNS[run].needs)}
    tuned = {name for method in FAIR for name in grid(method)}
    assert set(RUNS) == used | planned | tuned, "a run that no table uses, or the other way round"


@pytest.mark.parametrize("name", [name for name, run in RUNS.items() if run.recipe.endswith("routing")])
def test_the_fields_of_a_run_are_fields_of_its_configuration(name):
    run = RUNS[name]
    assert set(run.model) <= set(CapsuleMarianConfig.__dataclass_fields__), (
        "a configuration would keep a misspelt field"
    )
    fields = {key: factor * SETTINGS[key] for key, factor in run.scale.items()} | run.model
    config = CapsuleMarianConfig(**SETTINGS | fields)
    assert {field: getattr(config, field) for field in fields} == fields


def test_runs_come_after_what_they_need():
    order = runs_of(["capsnmt1", "dou1"])
    assert len(order) == len(set(order))
    assert order.index("plain") < order.index("pooling") < order.index("pooling_distilled")
    assert order.index("pooling_distilled") < order.index("capsnmt_distilled")
    assert runs_of(["dou1"]) == ["plain", "linear", "dynamic_combination", "dynamic_routing", "em_routing"]
    assert baselines_of("capsnmt_distilled") == ["pooling_distilled", "capsnmt_ablated"]
    assert baselines_of("plain") == []
    with pytest.raises(ValueError, match="there is no table 'dou9'"):
        runs_of(["dou9"])


def result(run: str, seed: int, bleu: float, comparisons: dict) -> dict:
    score = {"score": bleu, "signature": "nrefs:1|case:mixed"}
    return {
        "run": run, "seed": seed, "parameters": 1_234_567, "scores": {"bleu": score}, "comparisons": comparisons,
        "coverage_difference_ratio": 0.5 + seed / 10,
    }  # fmt: skip


SPEEDS = {
    "name": "speeds",
    "models": {
        "plain": {"parameters": 1_234_567, "milliseconds": {"train": 7.0, "decode": 8.0, "sentence": 21.54}},
        "em_routing": {"parameters": 1_234_567, "milliseconds": {"train": 10.0, "decode": 10.0}},
        "linear": {"parameters": 2_345_678, "milliseconds": {"train": 14.0, "decode": 16.0}},
    },
}


def test_a_table_holds_what_the_results_hold():
    against_plain = {"plain": {"difference": 1.5, "p_bootstrap": 0.02}}
    worse = {"plain": {"difference": -0.5, "p_bootstrap": 0.4}}
    lost = {"plain": {"difference": -20.5, "p_bootstrap": 0.001}}
    results = {
        "plain": {1: result("plain", 1, 20.0, {}), 2: result("plain", 2, 21.0, {})},
        "em_routing": {1: result("em_routing", 1, 21.5, against_plain), 2: result("em_routing", 2, 20.5, worse)},
    }
    speeds = share_among_equals(SPEEDS["models"])
    # an equal model that is trained otherwise is as fast; one with other fields is not known to be
    assert speeds["plain_low_rate"] == speeds["plain_warm"] == speeds["plain"]
    assert speeds.keys().isdisjoint({"plain_big", "em_routing_big", "em_routing_8_capsules"})
    lines = render_table(TABLES["dou1"], results, speeds).splitlines()
    assert lines[0] == (
        "|  | parameters | train | decode | BLEU | difference | p | p, seeds "
        "| paper: parameters | paper: train | paper: decode | paper: BLEU |"
    )
    assert lines[2] == (
        "| Transformer-Base | 1.23M | 1.00 | 1.00 | 20.50 ± 0.71 (n=2) |  |  |  | 88.0M | 1.79 | 1.43 | 27.31 |"
    )
    assert lines[3].startswith("| + linear combination | 2.35M | 0.50 | 0.50 | not run |  |  |  | +14.7M")
    assert lines[4].startswith("| + dynamic combination |  |  |  | not run |  |  |  | +25.2M")
    assert lines[6] == (
        "| + EM routing | 1.23M | 0.70 | 0.80 | 21.00 ± 0.71 (n=2) | +0.50 | 0.020 / 0.400 | 0.705 "
        "| +56.8M | 1.10 | 1.15 | 28.81 |"
    )
    results["em_routing"][2] = result("em_routing", 2, 0.5, lost)
    apart = render_table(TABLES["dou1"], results, speeds)
    assert "| 11.00 ± 14.85 (n=2: 21.50 / 0.50) | -9.50 (+1.50 / -20.50) | 0.020 / 0.001 | 0.546 |" in apart
    worse["plain"]["over_seeds"] = {"seeds": [1, 2], "p_bootstrap": 0.125}
    results["em_routing"][2] = result("em_routing", 2, 20.5, worse)
    again = render_table(TABLES["dou1"], results, speeds)
    assert "| +0.50 | 0.125 | 0.705 |" in again
    assert "| 0.65 | 0.73 |" in render_table(TABLES["gdr3"], results, speeds)
    assert "| 21.5 | 225 |" in render_table(TABLES["capsnmt3"], results, speeds)
    assert "\n| EM routing | +1.50 | +0.50 (n=2, p=0.125 / 0.705) |\n" in render_claims({"embedded": results})


def test_a_setting_has_the_tables_that_are_begun(tmp_path):
    records = Records(tmp_path)

    def keep(setting: str, *runs: str, seeds: tuple[int, ...] = (1,)) -> str:
        for run in runs:
            for seed in seeds:
                records.keep(setting, result(run, seed, 21.0, {}))
        return tables(records)

    document = keep("embedded", "plain", "em_routing")
    assert "## The embedded corpus" in document
    assert "## Multi30k" not in document
    assert "### Dou et al. 2019, Table 1" not in document  # none of its rows has been run but headline rows
    assert "Tables that would add nothing are left out" in document
    assert "### Dou et al. 2019, Table 2" in keep("embedded", "em_routing_big")
    rows = ("plain", "linear", "dynamic_combination", "dynamic_routing", "em_routing")
    assert "### Dou et al. 2019, Table 1" not in keep("embedded", *rows)
    document = keep("embedded", *rows, seeds=(1, 2))
    assert "### Dou et al. 2019, Table 1" in document
    assert "| plain | 1.23M | 1.00 | 1.00 |" in document
    records.keep("embedded", SPEEDS)
    assert "| EM routing | 1.23M | 0.70 | 0.80 |" in tables(records)
    assert "### The headline rows" in document
    everything = {row.run for key in ("dou1", "li3", "capsnmt1", "gdr1") for row in TABLES[key].rows if row.run}
    assert "### The headline rows" not in keep("embedded", *everything, seeds=(1, 2))  # the others have them all
    multi30k = keep("multi30k", "plain").partition("## Multi30k")[2]
    assert "### The headline rows" in multi30k  # of a setting that has the plain model alone, too
    assert multi30k.count("###") == 1


def test_claims_are_differences_of_what_the_papers_print():
    printed = {(claim.table, claim.run): claim.printed for claims in CLAIMS.values() for claim in claims}
    assert printed["dou1", "em_routing"] == pytest.approx(28.81 - 27.31)
    assert printed["capsnmt1", "capsnmt"] == pytest.approx(25.7 - 21.3)  # to pooling, not to the plain model
    assert printed["gdr1", "rnmt_gdr"] == pytest.approx(38.45 - 36.61)
    assert [key for key, value in printed.items() if value is None] == [
        ("tried", "em_routing_big_low_rate"), ("tried", "head_em_lower_big_low_rate")
    ]  # fmt: skip
    assert all(value is None or value > 0 for value in printed.values()), "the papers claim gains"


def test_a_claim_beside_what_came_of_it():
    def compared(difference: float, p: float, baseline: str = "plain", **more) -> dict:
        return {"comparisons": {baseline: {"difference": difference, "p_bootstrap": p} | more}}

    two, three = ({"over_seeds": {"seeds": [1, 2, 3][:n], "p_bootstrap": 0.03}} for n in (2, 3))
    ours = {
        "em_routing": {1: compared(1.0, 0.2), 2: compared(1.1, 0.1), 3: compared(1.2, 0.1, **three)},
        "dynamic_combination": {1: compared(1.0, 0.2), 2: compared(2.0, 0.1, **two)},  # seeds differ too much
        "linear": {1: compared(-0.5, 0.01), 2: compared(0.25, 0.2)},  # nothing is known of both together
        "dynamic_routing": {1: compared(-0.5, 0.01)},
        "em_routing_big": {1: compared(-98.0, 0.001, "plain_big"), 2: compared(-0.1, 0.2, "plain_big")},
    }
    text = render_claims({"embedded": ours, "multi30k": {}})
    assert text.startswith("|  | paper | The embedded corpus | Multi30k |\n")
    assert "\n| EM routing | +1.50 | **+1.10** (n=3, p=0.030 / 0.003) |  |\n" in text
    assert "\n| dynamic combination | +1.02 | +1.50 (n=2, p=0.030 / 0.205) |  |\n" in text
    assert "\n| linear combination | +0.42 | -0.12 (n=2, p=? / 0.795) |  |\n" in text
    assert "\n| dynamic routing | +0.91 | -0.50 (n=1, p=0.010) |  |\n" in text
    assert "+0.39 | -49.05 (n=2: -98.00 / -0.10, p=? / 0.499) |" in text
    assert "\n| EM routing of the encoder's layers alone | +0.49 |  |  |\n" in text
    assert len({line.count("|") for line in text.splitlines()}) == 1
