"""The tables of the four papers as data: what to train for each row, and what the paper prints there.

A run is a training with a name, which rows of several tables may share. It is a recipe of a setting (a folder of
recipes: "embedded", "multi30k", "tatoeba") with some fields changed. The sizes are ours, the figures the papers'.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any


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
PAPERS_WIDTH = dict.fromkeys(
    ("d_model", "encoder_ffn_dim", "decoder_ffn_dim"), 4
)  # 512, from the embedded corpus' 128
FURTHER = {"num_train_epochs": 5, "learning_rate": 5e-4, "warmup_steps": 100}
# with 4 + 4 layers of a width of 256, 0.04 % more parameters than EM routing of the layers has
WIDENED = {"encoder_ffn_dim": 2560, "decoder_ffn_dim": 2560}
# of lab/as_printed.md: what stands in the place of the top layer's output, and the rates that each arm chooses from
AS_PRINTED = {
    f"{method}_{placement}": Run(method, {"layer_aggregation_placement": placement}, init_from="plain")
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
    activation: str = "relu",
    init_std: float | None = None,
    init_from: str | None = None,
) -> Run:
    """Routing of the heads, of the encoder's self-attention unless other sites are named, in all layers by default."""
    model = {
        "head_aggregation": method,
        "head_aggregation_layers": layers,
        "head_aggregation_sites": sites or ["encoder_self"],
        "head_aggregation_activation": activation,
        "head_aggregation_init_std": init_std,
    }
    return Run("head_em_routing", model, init_from=init_from)


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
    # as many capsules as the paper's best row, which needs its width; the second shows what the width alone does
    "em_routing_512_capsules": Run("em_routing", {"layer_aggregation_num_capsules": 512}, scale=PAPERS_WIDTH),
    "em_routing_512_wide": Run("em_routing", {"layer_aggregation_num_capsules": 128}, scale=PAPERS_WIDTH),
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
    "capsnmt_softer": Run("capsnmt", {"score_scale": 128**-0.5}),  # 1 / the root of the width on the embedded corpus
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
    # experiments for rows without a gain
    "em_routing_no_residual": Run("em_routing", {"layer_aggregation_placement": "replaces"}),
    "em_routing_warm": Run("em_routing", init_from="plain"),
    "dynamic_routing_warm": Run("dynamic_routing", init_from="plain"),
    "plain_warm": Run("plain", init_from="plain"),
    # trained as in the papers, each from the same trained plain model
    "plain_further": Run("plain", training=FURTHER, init_from="plain"),
    "linear_further": Run("linear", training=FURTHER, init_from="plain"),
    "dynamic_combination_further": Run("dynamic_combination", training=FURTHER, init_from="plain"),
    "em_routing_further": Run("em_routing", training=FURTHER, init_from="plain"),
    "gdr_further": Run("gdr", {"guided_capsule_dim": 128}, FURTHER, init_from="plain"),
    "plain_widened": Run("plain", WIDENED, init_from="plain"),  # computed: see lab/widening.py
    "plain_widened_further": Run("plain", WIDENED, FURTHER, init_from="plain_widened"),
    **{
        f"{name}_further_at_{rate:g}": replace(arm, training=FURTHER | {"learning_rate": rate})
        for name, arm in AS_PRINTED.items()
        for rate in CANDIDATE_RATES
    },
    # votes near 1 at the start, so that what is squashed is routed from the first step; at a width of 256
    "dynamic_routing_routed": Run("dynamic_routing", {"layer_aggregation_init_std": 0.036}),
    "head_simple_lower_routed": _heads([0, 1], method="simple_routing", init_std=0.16),
    "em_routing_low_rate": Run("em_routing", training={"learning_rate": 7e-4}),
    "plain_low_rate": Run("plain", training={"learning_rate": 7e-4}),
    "em_routing_big_low_rate": Run("em_routing", training={"learning_rate": 7e-4}, scale=BIG),
    "plain_big_low_rate": Run("plain", training={"learning_rate": 7e-4}, scale=BIG),
    "head_em_lower_big_low_rate": Run(
        "head_em_routing", {"head_aggregation_layers": [0, 1]}, {"learning_rate": 7e-4}, scale=BIG
    ),
    # sums over depth, the successors of routing the layers: lab/depth.py
    "dense": Run("plain", {"layer_aggregation": "dense"}),
    "depth_attention": Run("plain", {"layer_aggregation": "depth_attention", "layer_aggregation_placement": "adds"}),
    "mudd": Run("plain", {"layer_aggregation": "mudd"}),
    "grn": Run("plain", {"layer_aggregation": "grn"}),
    "dense_everywhere": Run("plain", {"layer_aggregation": "dense", "depth_connections": True}),
    "depth_attention_everywhere": Run("plain", {"layer_aggregation": "depth_attention", "depth_connections": True}),
    "head_em_cross_tanh": _heads(sites=["cross"], activation="tanh"),
    "head_em_cross_small_weights": _heads(sites=["cross"], init_std=0.02),
    "head_em_cross_warm": _heads(sites=["cross"], init_from="plain"),
}


def _table(
    title: str,
    columns: str,
    *rows: tuple[str, str | None, str] | tuple[str, str | None, str, str],
    note: str = "",
) -> Table:
    """Return a table from columns and figures in strings with spaces, "-" for none; rows may end with a baseline."""
    names = tuple(name.replace("_", " ") for name in columns.split())
    captions = []
    for label, run, figures, *baseline in rows:
        values = figures.split()
        if len(values) != len(names):
            raise ValueError(f"{title}, {label}: {len(names)} columns, but {len(values)} figures")
        printed = {name: value for name, value in zip(names, values, strict=True) if value != "-"}
        captions.append(Row(label, run, printed, baseline[0] if baseline else "plain"))
    return Table(title, names, tuple(captions), note)


TABLES: dict[str, Table] = {
    "headline": _table(
        "The headline rows",
        "BLEU",
        ("plain", "plain", "27.31"),
        ("linear combination", "linear", "27.73"),
        ("dynamic combination", "dynamic_combination", "28.33"),
        ("dynamic routing", "dynamic_routing", "28.22"),
        ("EM routing", "em_routing", "28.81"),
        ("EM routing of the heads, two lowest encoder layers", "head_em_lower", "28.26"),
        ("GDR with both losses", "gdr_both", "28.10"),
        ("CapsNMT, pooling", "pooling", "21.3"),
        ("CapsNMT", "capsnmt", "25.7", "pooling"),
        ("CapsNMT, pooling + KD", "pooling_distilled", "23.4", "pooling"),
        ("CapsNMT + KD", "capsnmt_distilled", "26.9", "pooling_distilled"),
        note="The papers' figures are of WMT14 English-German.",
    ),
    "dou1": _table(
        "Dou et al. 2019, Table 1: layer aggregation, WMT14 English-German",
        "parameters train decode BLEU",
        ("Transformer-Base", "plain", "88.0M 1.79 1.43 27.31"),
        ("+ linear combination", "linear", "+14.7M 1.57 1.36 27.73"),
        ("+ dynamic combination", "dynamic_combination", "+25.2M 1.50 1.30 28.33"),
        ("+ dynamic routing", "dynamic_routing", "+37.8M 1.37 1.24 28.22"),
        ("+ EM routing", "em_routing", "+56.8M 1.10 1.15 28.81"),
    ),
    "dou2": _table(
        "Dou et al. 2019, Table 2: larger models",
        "parameters BLEU_en-de BLEU_zh-en",
        ("Transformer-Base", "plain", "88M 27.31 24.13"),
        ("+ EM routing", "em_routing", "123M 28.81 24.81"),
        ("Transformer-Big", "plain_big", "264M 28.58 24.56"),
        ("+ EM routing", "em_routing_big", "490M 28.97 25.00", "plain_big"),
        note="The 123M contradicts the +56.8M of Table 1; another version of the paper has 144M.",
    ),
    "dou3": _table(
        "Dou et al. 2019, Table 3: what input capsules are made of",
        "BLEU",
        ("base", "plain", "25.84"),
        ("F_l(H^l)", "em_routing_own_input", "26.18"),
        ("F_l(H^1, ..., H^L)", "em_routing", "26.62"),
    ),
    "dou4": _table(
        "Dou et al. 2019, Table 4: encoder and decoder",
        "BLEU",
        ("base", "plain", "25.84"),
        ("encoder", "em_routing_encoder", "26.33"),
        ("decoder", "em_routing_decoder", "26.34"),
        ("both", "em_routing", "26.62"),
    ),
    "dou_capsules": _table(
        "Dou et al. 2019, Figure 2: output capsules (the figures are in a plot)",
        "BLEU",
        ("base", "plain", "25.84"),
        ("8", "em_routing_8_capsules", "-"),
        ("32", "em_routing_32_capsules", "-"),
        ("64", "em_routing_64_capsules", "-"),
        ("as many as the width", "em_routing", "26.62"),
    ),
    "dou_iterations": _table(
        "Dou et al. 2019, Figure 3: routing iterations (the figures are in a plot)",
        "BLEU",
        ("base", "plain", "25.84"),
        ("1", "em_routing_1_iterations", "-"),
        ("2", "em_routing_2_iterations", "-"),
        ("3", "em_routing", "26.62"),
        ("4", "em_routing_4_iterations", "-"),
        ("5", "em_routing_5_iterations", "-"),
    ),
    "li2": _table(
        "Li et al. 2019, Table 2: which attention, WMT14 English-German",
        "parameters train decode BLEU",
        ("Transformer-Base", "plain", "88.0M 1.92 1.67 27.31"),
        ("encoder self, simple", "head_simple_all", "+12.6M 1.23 1.66 27.98"),
        ("encoder self, EM", "head_em_all", "+12.6M 1.20 1.65 28.28"),
        ("cross, EM", "head_em_cross", "+12.6M 1.20 1.21 27.94"),
        ("decoder self, EM", "head_em_decoder_self", "+12.6M 1.21 1.21 28.15"),
        ("encoder self and cross, EM", "head_em_encoder_self_cross", "+25.2M 0.87 1.20 28.45"),
        ("all three, EM", "head_em_everywhere", "+37.8M 0.66 0.89 28.47"),
    ),
    "li3": _table(
        "Li et al. 2019, Table 3: which layers of the encoder",
        "parameters train BLEU",
        ("none", "plain", "88.0M 1.92 27.31"),
        ("[1-6]; ours: all three", "head_em_all", "100.6M 1.20 28.28"),
        ("[4-6]; ours: the upper two", "head_em_upper", "94.3M 1.54 28.26"),
        ("[1-3]; ours: the lower two", "head_em_lower", "94.3M 1.54 28.27"),
        ("[1,2]; ours: the lower two", "head_em_lower", "92.2M 1.67 28.26"),
        ("[6]; ours: the top one", "head_em_top", "90.1M 1.88 27.68"),
        ("[1]", "head_em_bottom", "90.1M 1.88 27.75"),
        note="Our encoders have three layers, so that two of the rows are one run.",
    ),
    "li4": _table(
        "Li et al. 2019, Table 4: larger models",
        "parameters BLEU_en-de BLEU_zh-en",
        ("Transformer-Base", "plain", "88M 27.31 24.13"),
        ("+ effective aggregation", "head_em_lower", "92M 28.26 24.68"),
        ("Transformer-Big", "plain_big", "264M 28.58 24.56"),
        ("+ effective aggregation", "head_em_lower_big", "297M 28.96 25.00", "plain_big"),
    ),
    "capsnmt1": _table(
        "CapsNMT, Table 1: WMT14",
        "time BLEU_en-fr BLEU_en-de",
        ("Transformer (base)", "plain", "|S||T|+|T||T| 38.1 27.3"),
        ("simple aggregation", "pooling", "c|S|+c|T| 37.1 21.3"),
        ("CapsNMT", "capsnmt", "c|S|+c|T| 39.6 25.7", "pooling"),
        ("CapsNMT, big", "capsnmt_big", "c|S|+c|T| 40.0 26.4", "pooling"),
        ("simple aggregation + KD", "pooling_distilled", "c|S|+c|T| 38.6 23.4", "pooling"),
        ("CapsNMT + KD", "capsnmt_distilled", "c|S|+c|T| 40.4 26.9", "pooling_distilled"),
        ("CapsNMT, big + KD", "capsnmt_big_distilled", "c|S|+c|T| 40.6 27.6", "pooling_distilled"),
    ),
    "capsnmt2": _table(
        "CapsNMT, Table 2: its parts, English-German",
        "BLEU",
        ("base CapsNMT", "capsnmt_ablated", "24.7"),
        ("+ non-weight sharing", "capsnmt_own_weights", "25.1", "capsnmt_ablated"),
        ("+ position-aware routing", "capsnmt_positions", "25.3", "capsnmt_ablated"),
        ("+ separable composition and scoring", "capsnmt", "25.7", "capsnmt_ablated"),
        ("+ knowledge distillation", "capsnmt_distilled", "26.9", "capsnmt_ablated"),
    ),
    "capsnmt3": _table(
        "CapsNMT, Table 3: time for a sentence",
        "milliseconds",
        ("Transformer", "plain", "225"),
        ("CapsNMT, 4 capsules", "capsnmt_4_capsules", "146"),
        ("CapsNMT, 6 capsules", "capsnmt", "153"),
        ("CapsNMT, 8 capsules", "capsnmt_8_capsules", "168"),
    ),
    "capsnmt_iterations": _table(
        "CapsNMT, Figure 3: routing iterations with different numbers of capsules (the figures are in a plot)",
        "BLEU",
        ("2 capsules, 2 iterations", "capsnmt_2_capsules_2_iterations", "-", "pooling"),
        ("2 capsules, 3 iterations", "capsnmt_2_capsules", "-", "pooling"),
        ("2 capsules, 4 iterations", "capsnmt_2_capsules_4_iterations", "-", "pooling"),
        ("4 capsules, 2 iterations", "capsnmt_4_capsules_2_iterations", "-", "pooling"),
        ("4 capsules, 3 iterations", "capsnmt_4_capsules", "-", "pooling"),
        ("4 capsules, 4 iterations", "capsnmt_4_capsules_4_iterations", "-", "pooling"),
        ("6 capsules, 2 iterations", "capsnmt_2_iterations", "-", "pooling"),
        ("6 capsules, 3 iterations", "capsnmt", "25.7", "pooling"),
        ("6 capsules, 4 iterations", "capsnmt_4_iterations", "-", "pooling"),
        ("8 capsules, 2 iterations", "capsnmt_8_capsules_2_iterations", "-", "pooling"),
        ("8 capsules, 3 iterations", "capsnmt_8_capsules", "-", "pooling"),
        ("8 capsules, 4 iterations", "capsnmt_8_capsules_4_iterations", "-", "pooling"),
    ),
    "capsnmt_hybrid": _table(
        "CapsNMT with attention beside it (Wang et al. 2019, abstract; without numbers)",
        "BLEU",
        ("CapsNMT", "capsnmt", "25.7", "pooling"),
        ("hybrid: CapsNMT and attention to the source", "capsnmt_hybrid", "-", "capsnmt"),
    ),
    "dou_512_capsules": _table(
        "Dou et al. 2019, Figure 2, at the paper's width",
        "BLEU",
        ("EM routing, 128 capsules", "em_routing_512_wide", "-"),
        ("EM routing, 512 capsules", "em_routing_512_capsules", "-", "em_routing_512_wide"),
        note="Planned before either row was trained: one seed, and half as many steps as the other rows "
        "(`--study capsules_512 --set training.num_train_epochs 1.25`). One seed can show that 512 capsules train at "
        "this width, and about what they reach; it cannot show a gain of less than a BLEU. With the corpus' learning "
        "rate, the row of 128 capsules did not learn (0.69 BLEU). Planned next, before its rows were trained: a "
        "quarter of the rate, as the width is four times the corpus' (`--study capsules_512_slower --set "
        "training.num_train_epochs 1.25 --set training.learning_rate 3.75e-4`).",
    ),
    "capsnmt_softer": _table(
        "CapsNMT with softer assignments (not in the paper)",
        "BLEU",
        ("scores as printed", "capsnmt", "-", "pooling"),
        ("scores divided by the root of the width", "capsnmt_softer", "-", "capsnmt"),
        note="[The plan](capsnmt_loops.md) says why.",
    ),
    "gdr1": _table(
        "Zheng et al. 2019, Table 1: NIST Chinese-English",
        "parameters train decode BLEU",
        ("Transformer", "plain", "66.1m 1.00 1.00 44.06"),
        ("GDR", "gdr", "68.9m 0.77 0.94 44.91"),
        ("+ BoW", "gdr_bow", "69.2m 0.70 0.94 45.58"),
        ("+ BCA", "gdr_bca", "69.4m 0.75 0.94 45.43"),
        ("+ BoW + BCA (ours)", "gdr_both", "69.7m 0.67 0.94 45.65"),
        ("ours - redundant capsules", "gdr_no_redundant", "68.7m 0.69 0.94 45.30"),
        ("RNMT", "rnmt", "50.2m 1.00 1.00 36.61", "rnmt"),
        ("+ PFRNN (Zheng et al. 2018)", None, "- 0.54 0.74 37.85"),
        ("+ AOL (Kong et al. 2019)", None, "- 0.57 1.00 38.16"),
        ("RNMT, ours", "rnmt_gdr", "53.9m 0.62 0.90 38.45", "rnmt"),
    ),
    "gdr2": _table(
        "Zheng et al. 2019, Table 2: WMT",
        "BLEU_en-de BLEU_en-ro",
        ("Transformer", "plain", "27.14 32.10"),
        ("ours", "gdr_both", "28.10 32.96"),
    ),
    "gdr3": _table(
        "Zheng et al. 2019, Table 3: adequacy",
        "CDR",
        ("Transformer", "plain", "0.73"),
        ("ours", "gdr_both", "0.79"),
    ),
    "gdr6": _table(
        "Zheng et al. 2019, Figure 6: simple baselines with the same losses (the figures are in a plot)",
        "BLEU",
        ("Transformer", "plain", "44.06"),
        ("classifier", "gdr_classifier", "-"),
        ("attention", "gdr_attention", "-"),
        ("ours", "gdr_both", "45.65"),
    ),
    "gdr_iterations": _table(
        "Zheng et al. 2019, appendix: iterations of guided routing (our copy of the paper does not have it)",
        "BLEU",
        ("Transformer", "plain", "-"),
        ("1", "gdr_1_iterations", "-"),
        ("2", "gdr_2_iterations", "-"),
        ("3", "gdr_both", "-"),
        ("4", "gdr_4_iterations", "-"),
        ("5", "gdr_5_iterations", "-"),
        note="With one iteration two of three seeds did not learn (BLEU 0.7), and one did (97.0).",
    ),
    "tried": _table(
        "What was tried to find out why a row does not gain",
        "BLEU",
        ("plain", "plain", "-"),
        ("EM routing", "em_routing", "-"),
        ("EM routing, no residual", "em_routing_no_residual", "-"),
        ("plain, trained for as long again", "plain_warm", "-"),
        ("EM routing on top of the trained plain model", "em_routing_warm", "-", "plain_warm"),
        ("dynamic routing on top of the trained plain model", "dynamic_routing_warm", "-", "plain_warm"),
        ("plain, lower learning rate", "plain_low_rate", "-"),
        ("EM routing, lower learning rate", "em_routing_low_rate", "-", "plain_low_rate"),
        ("plain, big, lower learning rate", "plain_big_low_rate", "-", "plain_big"),
        ("EM routing, big, lower learning rate", "em_routing_big_low_rate", "-", "plain_big_low_rate"),
        (
            "EM routing of the heads of the lower two layers, big, lower learning rate",
            "head_em_lower_big_low_rate",
            "-",
            "plain_big_low_rate",
        ),
        ("EM routing of the heads, cross", "head_em_cross", "-"),
        ("the same, initial weights as small as Marian's", "head_em_cross_small_weights", "-"),
        ("the same, tanh in the place of rectifiers", "head_em_cross_tanh", "-"),
        ("the same on top of the trained plain model", "head_em_cross_warm", "-", "plain_warm"),
    ),
}


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


def baselines_of(run: str) -> list[str]:
    """Return the runs that a run is compared with in any table."""
    rows = [row for table in TABLES.values() for row in table.rows if row.run == run]
    return list(dict.fromkeys(row.baseline for row in rows if row.baseline not in (None, run)))


def shared_with_equal_models(models: dict[str, Any]) -> dict[str, Any]:
    """Return the values of models for all runs with an equal model, that is, which differ in training alone."""

    def model_of(run: Run) -> str:
        return repr((run.recipe, sorted(run.model.items()), sorted(run.scale.items())))

    measured = {model_of(RUNS[name]): value for name, value in models.items() if name in RUNS}
    return models | {
        name: measured[model_of(run)] for name, run in RUNS.items() if name not in models and model_of(run) in measured
    }
