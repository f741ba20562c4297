"""Which definitions of the models each setting needs: an export has those of its configuration alone.

Whoever adds a method to a seam adds a line. A definition that no line names is in every export that reaches it.
"""

from typing import Any

from transformers import PreTrainedConfig

_LAYERS = ("LayerAggregation",)
_MAPS = (*_LAYERS, "ScaledLinear")
_ROUTES = (*_MAPS, "RoutedCombination", "Router")
_SUMS = (*_LAYERS, "DepthAggregation")
_GUIDANCE = ("PastFutureGuidance", "guided_cache")

# a field or a property of a configuration, its values, and what each of them needs
SEAMS: dict[str, dict[Any, tuple[str, ...]]] = {
    "layer_aggregation": {
        "linear": (*_MAPS, "LinearCombination"),
        "dynamic_combination": (*_MAPS, "DynamicCombination"),
        "dynamic_routing": (*_ROUTES, "dynamic_routing"),
        "em_routing": (*_ROUTES, "em_routing"),
        "dense": (*_SUMS, "DenseSum"),
        "depth_attention": (*_SUMS, "DepthAttention"),
        "mudd": (*_SUMS, "MultiwayDenseSum"),
        "grn": (*_SUMS, "GeneralizedResidual"),
    },
    "layer_aggregation_placement": {"adds": ("ZeroGainLayerNorm",)},
    "layer_aggregation_capsule_input": {"own": ("PerCapsuleLinear",)},
    "layer_aggregation_vote_input": {"own": ("PerCapsuleLinear",)},
    "head_aggregation": {
        "simple_routing": ("HeadAggregation", "Router", "dynamic_routing"),
        "em_routing": ("HeadAggregation", "Router", "em_routing"),
    },
    "head_aggregation_placement": {"adds": ("AddedHeadAggregation", "ZeroGainLayerNorm")},
    "head_aggregation_vote_input": {"own": ("PerCapsuleLinear",)},
    "guided_routing": {
        "guided": (*_GUIDANCE, "GuidedRoutingGuidance"),
        "classifier": (*_GUIDANCE, "ClassifierGuidance"),
        "attention": (*_GUIDANCE, "AttentionGuidance"),
    },
    "has_guided_losses": {True: ("GuidedLosses",)},
    "decoder_self": {"ssru": ("SSRU", "mask_of_new_tokens")},
    "aggregation": {"capsules": ("SourceCapsules",), "pooling": ("SourcePooling",)},
    "source_attention": {True: ("SourceAttention",)},
}


def unused_definitions(config: PreTrainedConfig) -> frozenset[str]:
    """Return the definitions of `SEAMS` that a model of this configuration does not need."""
    named: set[str] = set()
    needed: set[str] = set()
    for setting, values in SEAMS.items():
        if hasattr(config, setting):
            named.update(*values.values())
            needed.update(values.get(getattr(config, setting), ()))
    return frozenset(named - needed)
