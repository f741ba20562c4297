"""The mixes of settings in which every family is tested: as a model, in its fast form, exported.

Whoever adds a setting adds a mix, and nothing else. Settings alone, without torch: the light distribution's tests read
them, too.
"""

from typing import Any

Mix = dict[str, Any]

GUIDED: Mix = {
    "guided_routing": "guided",
    "guided_num_redundant_capsules": 3,
    "guided_capsule_dim": 6,
    "guided_ffn_dim": 12,
}
NO_LOSSES: Mix = {"guided_bow_weight": 0.0, "guided_bca_weight": 0.0}

MARIAN: dict[str, Mix] = {
    "plain": {},
    "linear": {"layer_aggregation": "linear"},
    "combination": {"layer_aggregation": "dynamic_combination", "layer_aggregation_placement": "adds"},
    "dynamic": {"layer_aggregation": "dynamic_routing", "layer_aggregation_num_iterations": 2},
    "dynamic_as_printed": {
        "layer_aggregation": "dynamic_routing",
        "layer_aggregation_side": "decoder",
        "layer_aggregation_num_capsules": 4,
        "layer_aggregation_normalize_total_input": False,
    },
    "em": {"layer_aggregation": "em_routing"},
    "em_own": {
        "layer_aggregation": "em_routing",
        "layer_aggregation_side": "encoder",
        "layer_aggregation_capsule_input": "own",
        "layer_aggregation_vote_input": "own",
        "layer_aggregation_num_capsules": 4,
    },
    "linear_from_top": {
        "layer_aggregation": "linear",
        "layer_aggregation_start": "top",
        "layer_aggregation_update_scale": 0.1,
    },
    "combination_from_layers": {
        "layer_aggregation": "dynamic_combination",
        "layer_aggregation_start": "layers",
        "layer_aggregation_update_scale": 0.25,
    },
    "em_from_top": {
        "layer_aggregation": "em_routing",
        "layer_aggregation_start": "top",
        "layer_aggregation_update_scale": 0.1,
        "layer_aggregation_vote_input": "own",
    },
    "dense": {"layer_aggregation": "dense"},
    "dense_connections": {"layer_aggregation": "dense", "depth_connections": True},
    "depth_attention": {"layer_aggregation": "depth_attention", "layer_aggregation_side": "encoder"},
    "depth_connections": {
        "layer_aggregation": "depth_attention",
        "layer_aggregation_placement": "adds",
        "depth_connections": True,
    },
    "mudd": {"layer_aggregation": "mudd"},
    "grn": {"layer_aggregation": "grn"},
    "simple_heads": {
        "head_aggregation": "simple_routing",
        "head_aggregation_sites": ["encoder_self", "cross"],
        "head_aggregation_activation": "tanh",
    },
    "heads_own": {
        "head_aggregation": "simple_routing",
        "head_aggregation_sites": ["encoder_self", "cross"],
        "head_aggregation_vote_input": "own",
    },
    "heads_added": {
        "head_aggregation": "em_routing",
        "head_aggregation_sites": ["encoder_self", "decoder_self"],
        "head_aggregation_layers": [1],
        "head_aggregation_placement": "adds",
    },
    "heads": {"head_aggregation": "em_routing", "head_aggregation_sites": ["encoder_self", "decoder_self", "cross"]},
    "everything": {
        "layer_aggregation": "em_routing",
        "layer_aggregation_placement": "adds",
        "em_input_activation": "scalar",
        "head_aggregation": "em_routing",
        "head_aggregation_sites": ["encoder_self", "decoder_self", "cross"],
        "head_aggregation_layers": [0, 1],
        "head_aggregation_num_capsules": 4,
        "scale_embedding": True,
    },
    "guided": GUIDED,
    "guided_once": GUIDED
    | {
        "guided_num_iterations": 1,
        "guided_num_capsules": 1,
        "guided_bca_weight": 0.0,
        "guided_bow_bags": "exclusive",
    },
    "guided_released": GUIDED | {"guided_score": "released"},
    "classifier": GUIDED | {"guided_routing": "classifier"},
    "attention": GUIDED | {"guided_routing": "attention", "guided_bow_weight": 0.0},
    "combined": GUIDED
    | NO_LOSSES
    | {
        "guided_num_redundant_capsules": 0,
        "guided_num_iterations": 2,
        "layer_aggregation": "em_routing",
        "head_aggregation": "simple_routing",
        "head_aggregation_sites": ["encoder_self", "cross"],
        "scale_embedding": True,
    },
    "ssru": {"decoder_self": "ssru", "marian_positions": True, "layer_norm_eps": 1e-6},
    "ssru_combined": GUIDED
    | {
        "decoder_self": "ssru",
        "marian_positions": True,
        "layer_aggregation": "em_routing",
        "head_aggregation": "em_routing",
        "head_aggregation_sites": ["encoder_self", "cross"],
    },
}
CAPSNMT: dict[str, Mix] = {
    "capsules": {},
    "nothing_but_capsules": {
        "share_iteration_weights": True,
        "position_aware": False,
        "separable_scoring": False,
        "embedding_size": None,
        "scale_embedding": False,
    },
    "own_weights": {"position_aware": False, "separable_scoring": False, "num_iterations": 2},
    "shared_weights": {"share_iteration_weights": True, "separable_scoring": False, "num_capsules": 9},
    "scaled": {"score_scale": 0.25, "compared_capsule_scale": 4.0},
    "normalised": {"normalize_capsules": True},
    "pooling": {"aggregation": "pooling", "decoder_layers": 1},
    "hybrid": {"source_attention": True},
}
RNMT: dict[str, Mix] = {
    "rnmt": {},
    "rnmt_narrow": {"encoder_layers": 1, "decoder_layers": 1, "embedding_size": 16},
    "rnmt_guided": GUIDED,
    "rnmt_guided_narrow": GUIDED
    | {
        "guided_num_redundant_capsules": 0,
        "guided_num_capsules": 3,
        "guided_num_iterations": 2,
        "encoder_layers": 1,
        "decoder_layers": 1,
        "embedding_size": 16,
    },
    "rnmt_without_losses": GUIDED | NO_LOSSES,
    "rnmt_bag_of_words": GUIDED | {"guided_bca_weight": 0.0},
    "rnmt_classifier": GUIDED | {"guided_routing": "classifier"},
    "rnmt_attention": GUIDED | {"guided_routing": "attention", "guided_bow_bags": "exclusive"},
}
MIXES = {"capsule_marian": MARIAN, "capsnmt": CAPSNMT, "capsule_rnmt": RNMT}
FAMILIES = {name: family for family, mixes in MIXES.items() for name in mixes}  # of each mix

# what is not supported by the engine, and what differs from another in training alone
SLOW = {"guided_released", "classifier", "attention", "rnmt_classifier", "rnmt_attention", "scaled"}
OF_TRAINING = {"rnmt_without_losses", "rnmt_bag_of_words"}
FAST = [name for name in FAMILIES if name not in SLOW | OF_TRAINING]
