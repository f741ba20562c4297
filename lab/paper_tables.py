"""What to train for each row of the four papers' tables (paper_tables.yaml), and for the plans and tasks.

A run is a training with a name, which rows of several tables may share. It is a recipe of a setting (a folder of
recipes: "embedded", "multi30k", "tatoeba") with some fields changed.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml


@dataclass(frozen=True)
class Run:
    """A training.

    recipe: the recipe, by its name in the folder of the setting.
    model, training: fields that are changed in these sections.
    scale: fields of the model that are multiplied: the papers' "big".
    distilled: train on translations of the run of this name, instead of the references.
    init_from: start from the weights of the run of this name.
    """

    recipe: str
    model: dict[str, Any] = field(default_factory=dict)
    training: dict[str, Any] = field(default_factory=dict)
    scale: dict[str, int] = field(default_factory=dict)
    distilled: str | None = None
    init_from: str | None = None

    @property
    def needs(self) -> tuple[str, ...]:
        """The runs that must be trained before this one."""
        return tuple(name for name in (self.distilled, self.init_from) if name)


@dataclass(frozen=True)
class Row:
    """A row of a table.

    run: `None` for a row that only the paper has.
    printed: the paper's figures, by column; columns without a figure for this row are missing.
    baseline: the run that it is compared with.
    """

    label: str
    run: str | None
    printed: dict[str, str]
    baseline: str | None = "plain"


@dataclass(frozen=True)
class Table:
    """A table with the columns of a paper; columns for our results are added to each table."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    note: str = ""


BIG = dict.fromkeys(
    ("d_model", "encoder_ffn_dim", "decoder_ffn_dim", "encoder_attention_heads", "decoder_attention_heads"), 2
)
FURTHER = {"num_train_epochs": 5, "learning_rate": 5e-4, "warmup_steps": 100}
# with 4 + 4 layers of a width of 256, 0.04 % more parameters than EM routing of the layers has
WIDENED = {"encoder_ffn_dim": 2560, "decoder_ffn_dim": 2560}
# of lab/as_printed.md: what stands in the place of the top layer's output, and the rates that each arm chooses from
AS_PRINTED = {
    f"{method}_{placement}": Run(method, {"layer_aggregation_residual": placement == "adds"}, init_from="plain")
    for method in ("linear", "dynamic_routing", "em_routing")
    for placement in ("replaces", "adds")
} | {
    "plain": Run("plain", init_from="plain"),
    "plain_widened": Run("plain", WIDENED, init_from="plain_widened"),
}
CANDIDATE_RATES = (2.5e-4, 5e-4, 1e-3)
ABLATED = {"share_iteration_weights": True, "position_aware": False, "separable_scoring": False}


def _heads(
    layers: list[int] | None = None,
    sites: list[str] | None = None,
    method: str = "em_routing",
    init_std: float | None = None,
) -> Run:
    """Routing of the heads, of the encoder's self-attention unless other sites are named, in all layers by default."""
    model = {
        "head_aggregation": method,
        "head_aggregation_layers": layers,
        "head_aggregation_sites": sites or ["encoder_self"],
        "head_aggregation_init_std": init_std,
    }
    return Run("head_em_routing", model)


RUNS: dict[str, Run] = {
    "plain": Run("plain"),
    "plain_big": Run("plain", scale=BIG),
    "plain_wide": Run("plain", {"encoder_ffn_dim": 1712, "decoder_ffn_dim": 1712}),  # as many parameters as linear
    # Dou et al. 2019
    "linear": Run("linear"),
    "dynamic_combination": Run("dynamic_combination"),
    "dynamic_routing": Run("dynamic_routing"),
    "em_routing": Run("em_routing"),
    "em_routing_big": Run("em_routing", scale=BIG),
    "em_routing_own_input": Run("em_routing", {"layer_aggregation_capsule_input": "own"}),
    "em_routing_encoder": Run("em_routing", {"layer_aggregation_side": "encoder"}),
    "em_routing_decoder": Run("em_routing", {"layer_aggregation_side": "decoder"}),
    **{
        f"em_routing_{number}_capsules": Run("em_routing", {"layer_aggregation_num_capsules": number})
        for number in (8, 32, 64)
    },
    **{
        f"em_routing_{number}_iterations": Run("em_routing", {"layer_aggregation_num_iterations": number})
        for number in (1, 2, 4, 5)
    },
    # Li et al. 2019
    "head_simple_all": _heads(method="simple_routing"),
    "head_em_all": _heads(),
    "head_em_cross": _heads(sites=["cross"]),
    "head_em_decoder_self": _heads(sites=["decoder_self"]),
    "head_em_encoder_self_cross": _heads(sites=["encoder_self", "cross"]),
    "head_em_everywhere": _heads(sites=["encoder_self", "cross", "decoder_self"]),
    "head_em_upper": _heads([1, 2]),
    "head_em_lower": _heads([0, 1]),
    "head_em_top": _heads([2]),
    "head_em_bottom": _heads([0]),
    "head_em_lower_big": Run("head_em_routing", {"head_aggregation_layers": [0, 1]}, scale=BIG),
    # CapsNMT
    "pooling": Run("capsnmt_pooling"),
    "capsnmt": Run("capsnmt"),
    "capsnmt_big": Run("capsnmt", scale={"hidden_size": 2}),
    "pooling_distilled": Run("capsnmt_pooling", distilled="plain"),
    "capsnmt_distilled": Run("capsnmt", distilled="plain"),
    "capsnmt_big_distilled": Run("capsnmt", scale={"hidden_size": 2}, distilled="plain"),
    "capsnmt_ablated": Run("capsnmt", ABLATED),
    "capsnmt_own_weights": Run("capsnmt", ABLATED | {"share_iteration_weights": False}),
    "capsnmt_positions": Run("capsnmt", ABLATED | {"share_iteration_weights": False, "position_aware": True}),
    "capsnmt_hybrid": Run("capsnmt", {"source_attention": True}),
    **{f"capsnmt_{number}_capsules": Run("capsnmt", {"num_capsules": number}) for number in (2, 4, 8)},
    **{f"capsnmt_{times}_iterations": Run("capsnmt", {"num_iterations": times}) for times in (2, 4)},
    **{
        f"capsnmt_{number}_capsules_{times}_iterations": Run(
            "capsnmt", {"num_capsules": number, "num_iterations": times}
        )
        for number in (2, 4, 8)
        for times in (2, 4)
    },
    # Zheng et al. 2019
    "gdr": Run("gdr", {"guided_bow_weight": 0.0, "guided_bca_weight": 0.0}),
    "gdr_bow": Run("gdr", {"guided_bca_weight": 0.0}),
    "gdr_bca": Run("gdr", {"guided_bow_weight": 0.0}),
    "gdr_both": Run("gdr"),
    "gdr_no_redundant": Run("gdr", {"guided_num_redundant_capsules": 0}),
    "gdr_classifier": Run("gdr", {"guided_routing": "classifier"}),
    "gdr_attention": Run("gdr", {"guided_routing": "attention"}),
    **{f"gdr_{number}_iterations": Run("gdr", {"guided_num_iterations": number}) for number in (1, 2, 4, 5)},
    "rnmt": Run("rnmt"),
    "rnmt_gdr": Run("rnmt_gdr"),
    # trained as in the papers, each from the same trained plain model
    "plain_further": Run("plain", training=FURTHER, init_from="plain"),
    "linear_further": Run("linear", training=FURTHER, init_from="plain"),
    "dynamic_combination_further": Run("dynamic_combination", training=FURTHER, init_from="plain"),
    "em_routing_further": Run("em_routing", training=FURTHER, init_from="plain"),
    "gdr_further": Run("gdr", {"guided_capsule_dim": 128}, FURTHER, init_from="plain"),
    "plain_widened": Run("plain", WIDENED, init_from="plain"),  # computed: see `widen` of lab/replication.py
    "plain_widened_further": Run("plain", WIDENED, FURTHER, init_from="plain_widened"),
    **{
        f"{name}_further_at_{rate:g}": replace(arm, training=FURTHER | {"learning_rate": rate})
        for name, arm in AS_PRINTED.items()
        for rate in CANDIDATE_RATES
    },
    # votes near 1 at the start, so that what is squashed is routed from the first step; at a width of 256
    "dynamic_routing_routed": Run("dynamic_routing", {"layer_aggregation_init_std": 0.036}),
    "head_simple_lower_routed": _heads([0, 1], method="simple_routing", init_std=0.16),
    # sums over depth, the successors of routing the layers: lab/depth.py
    "dense": Run("plain", {"layer_aggregation": "dense"}),
    "depth_attention": Run("plain", {"layer_aggregation": "depth_attention", "layer_aggregation_residual": True}),
    "mudd": Run("plain", {"layer_aggregation": "mudd"}),
    "grn": Run("plain", {"layer_aggregation": "grn"}),
    "dense_everywhere": Run("plain", {"layer_aggregation": "dense", "depth_connections": True}),
    "depth_attention_everywhere": Run("plain", {"layer_aggregation": "depth_attention", "depth_connections": True}),
}


def read_tables(path: Path) -> dict[str, Table]:
    """Return the tables of a file: see the first lines of paper_tables.yaml."""
    tables = {}
    for key, fields in yaml.safe_load(path.read_text("utf-8")).items():
        rows, columns = [], tuple(fields["columns"])
        for label, run, figures, *baseline in fields["rows"]:
            values = figures.split()
            if len(values) != len(columns):
                raise ValueError(f"{path}: {key}, {label}: {len(columns)} columns, but {len(values)} figures")
            printed = {name: value for name, value in zip(columns, values, strict=True) if value != "-"}
            rows.append(Row(label, run, printed, *baseline))
        tables[key] = Table(fields["title"], columns, tuple(rows), fields.get("note", ""))
    return tables


TABLES = read_tables(Path(__file__).with_name("paper_tables.yaml"))


def runs_of(tables: Sequence[str]) -> list[str]:
    """Return the runs that tables need, each once; baselines, teachers and initial models come before their users."""
    order: list[str] = []

    def add(name: str) -> None:
        for needed_run in RUNS[name].needs:
            add(needed_run)
        if name not in order:
            order.append(name)

    for key in tables:
        if key not in TABLES:
            raise ValueError(f"there is no table {key!r}, but {', '.join(TABLES)}")
        for row in TABLES[key].rows:
            if row.run is not None:
                if row.baseline:
                    add(row.baseline)
                add(row.run)
    return order


def shared_with_equal_models(models: dict[str, Any]) -> dict[str, Any]:
    """Return the values of models for all runs with an equal model, that is, which differ in training alone."""

    def model_of(run: Run) -> str:
        return repr((run.recipe, sorted(run.model.items()), sorted(run.scale.items())))

    measured = {model_of(RUNS[name]): value for name, value in models.items() if name in RUNS}
    return models | {
        name: measured[model_of(run)] for name, run in RUNS.items() if name not in models and model_of(run) in measured
    }
