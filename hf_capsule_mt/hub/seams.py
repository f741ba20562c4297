"""What the code of an export leaves out: what its configuration does not use, and what only the package does.

A new method of a seam takes a line, and an entry of `ROUTINGS` if it has routing weights, or exports do not return
them. A definition that no line names is in every export that reaches it.
"""

from typing import Any

from transformers import PreTrainedConfig

_LAYERS = ("LayerAggregation", "TransformerStack.aggregated")
_STARTS = ("set_start", "move_to_start")
_MAPS = (*_LAYERS, "initialize_part")
_ROUTES = (*_MAPS, "RoutedCombination", "Router")
_SUMS = (*_LAYERS, "DepthAggregation", "initialize_part")
_HEADS = ("HeadAggregation", "Router", "initialize_part")
_GUIDANCE = ("PastFutureGuidance", "guided_cache", "PastFutureModel")
_TWO_VOCABULARIES = tuple(
    f"{owner}.{method}"
    for owner in ("EncoderDecoderModel", "TranslationModel", "CapsuleMarianMTModel")
    for method in (
        *("get_decoder_input_embeddings", "set_decoder_input_embeddings", "resize_decoder_token_embeddings"),
        "_check_separate_vocabularies",
    )
)
_RECURRENT = ("Stack.source_mask", "Stack.target_mask", "Stack.checked_mask")

# a field or a property of a configuration, its values, and what each of them needs
SEAMS: dict[str, dict[Any, tuple[str, ...]]] = {
    "model_type": {"capsnmt": _RECURRENT, "capsule_rnmt": _RECURRENT},
    "share_encoder_decoder_embeddings": {False: _TWO_VOCABULARIES},
    "layer_aggregation": {
        "linear": (*_MAPS, *_STARTS, "LinearCombination"),
        "dynamic_combination": (*_MAPS, *_STARTS, "DynamicCombination"),
        "dynamic_routing": (*_ROUTES, "dynamic_routing"),
        "em_routing": (*_ROUTES, "em_routing"),
        "dense": (*_SUMS, "DenseSum"),
        "depth_attention": (*_SUMS, "DepthAttention"),
        "mudd": (*_SUMS, "MultiwayDenseSum"),
        "grn": (*_SUMS, "GeneralizedResidual"),
    },
    "layer_aggregation_start": {"top": _STARTS, "layers": _STARTS},
    "layer_aggregation_placement": {"adds": ("ZeroGainLayerNorm",)},
    "layer_aggregation_capsule_input": {"own": ("PerCapsuleLinear",)},
    "layer_aggregation_vote_input": {"own": ("PerCapsuleLinear",)},
    "head_aggregation": {
        "simple_routing": (*_HEADS, "dynamic_routing"),
        "em_routing": (*_HEADS, "em_routing"),
    },
    "head_aggregation_placement": {"adds": ("AddedHeadAggregation", "ZeroGainLayerNorm")},
    "head_aggregation_vote_input": {"own": ("PerCapsuleLinear",)},
    "guided_routing": {
        "guided": (*_GUIDANCE, "GuidedRoutingGuidance"),
        "classifier": (*_GUIDANCE, "ClassifierGuidance"),
        "attention": (*_GUIDANCE, "AttentionGuidance"),
    },
    "has_guided_losses": {True: ("GuidedLosses", "build_guided_losses", "check_labels_given")},
    "decoder_self": {"ssru": ("SSRU", "mask_of_new_tokens")},
    "aggregation": {"capsules": ("SourceCapsules", "dynamic_routing"), "pooling": ("SourcePooling",)},
    "source_attention": {True: ("SourceAttention",)},
}

ROUTINGS = frozenset({"dynamic_routing", "em_routing", "simple_routing", "guided", "classifier", "capsules"})

# Fields and properties beside those of `SEAMS` whose value the code of an export takes for granted. A configuration
# with another one is refused.
FIXED = (
    *(
        "depth_connections",
        "layer_aggregation_side",
        "layer_aggregation_update_scale",
        "em_input_activation",
        "separable_scoring",
        "position_aware",
    ),
    *("aggregates_layers_or_heads", "aggregates_encoder_layers", "aggregates_decoder_layers"),
)

# a field, and the module that only passes on its input where the field is "none" or False
SLOTS = {
    "layer_aggregation": "layer_aggregation",
    "depth_connections": "depth_connections",
    "guided_routing": "guidance",
}

# What only users of the package need: models of other checkpoints, names of earlier versions, a short config.json,
# errors of a configuration, which was checked when it was exported, and errors that replace those of transformers and
# torch.
PACKAGE_ONLY = frozenset(
    {
        *("CapsuleMarianMTModel.from_marian", "CapsuleMarianConfig.layer_aggregation_residual"),
        *("CapsulePreTrainedConfig.from_dict", "CapsulePreTrainedConfig.get_config_dict"),
        *("CapsulePreTrainedConfig.register_for_auto_class", "CapsulePreTrainedConfig.to_dict"),
        *("CapsulePreTrainedConfig._same_values", "CapsulePreTrainedConfig.loadable_types"),
        *("CapsulePreTrainedConfig.current_names", "CapsuleMarianConfig.current_names"),
        *("CapsulePreTrainedConfig.__post_init__", "CapsulePreTrainedConfig.to_diff_dict"),
        *("CapsuleMarianConfig.loadable_types", "CapsuleMarianConfig.lora_target_modules"),
        *("CapsuleMarianPreTrainedModel.get_position_embeddings",),
        *("CapsuleMarianPreTrainedModel.resize_position_embeddings",),
        *("refuses_misspelt", "refuse_paged", "Stack.check_inputs", "Stack.num_tokens"),
        *("base_layer_of", "EncoderDecoderModel._check_special_tokens"),
        *("check_labels", "check_votes", "check_shape", "check_activation", "check_mask_shape", "check_separable"),
        *("TransformerStack.check_source_mask", "check_num_iterations", "PastFutureGuidance.start_without_effect"),
        *("CapsNMTConfig.lora_target_modules", "CapsuleRNMTConfig.lora_target_modules"),
        *("CapsulePreTrainedConfig.lora_target_modules", "CapsulePreTrainedConfig.coverage_calibration"),
        *("CapsulePreTrainedModel.__init__", "CapsulePreTrainedModel._has_config"),
        *("CapsulePreTrainedModel.from_pretrained", "CapsulePreTrainedModel._upload_modified_files"),
        *("CapsulePreTrainedModel.get_position_embeddings", "CapsulePreTrainedModel.resize_position_embeddings"),
        *("CapsulePreTrainedModel._why_no_positions", "TranslationModel._get_logits_processor"),
        "TranslationModel._prepare_cache_for_generation",
    }
)


def unused_definitions(config: PreTrainedConfig) -> frozenset[str]:
    """Return the definitions and methods that a model of this configuration does not need."""
    named: set[str] = set()
    needed: set[str] = set()
    if getattr(config, "layer_aggregation_update_scale", 1.0) == 1.0:
        named.add("ScaledLinear")
    if not routes(config):
        named |= {"TranslationModel.generate", "TranslationModel._force_routing_weights", "_only_routings"}
    for setting, values in SEAMS.items():
        named.update(*values.values())
        needed.update(values.get(getattr(config, setting, None), ()))
    return frozenset(named - needed)


def facts(config: PreTrainedConfig) -> dict[str, Any]:
    """Return the values that the code of an export takes for granted, by name."""
    return {name: getattr(config, name) for name in (*SEAMS, *FIXED) if hasattr(config, name)}


def matters(field: str, config: PreTrainedConfig) -> bool:
    """Return whether another value of a fixed field would change a model of this configuration."""
    if field == "em_input_activation":
        return bool(config.layer_aggregation == "em_routing")
    switch = "_".join(field.split("_")[:2])  # such as "layer_aggregation" of "layer_aggregation_side"
    return field == switch or getattr(config, switch, None) not in ("none", "concat")


def routes(config: PreTrainedConfig) -> bool:
    """Return whether a model has routing weights to return."""
    switches = ("layer_aggregation", "head_aggregation", "guided_routing", "aggregation")
    return not {getattr(config, switch, "none") for switch in switches}.isdisjoint(ROUTINGS)


def capsule_sources(config: PreTrainedConfig) -> set[str]:
    """Return what capsules and votes of a model are computed from: "all" capsules, or its "own" one."""
    fields = ["head_aggregation_vote_input"] if getattr(config, "head_aggregation", "concat") != "concat" else []
    if getattr(config, "layer_aggregation", "none") in ("dynamic_routing", "em_routing"):
        fields += ["layer_aggregation_capsule_input", "layer_aggregation_vote_input"]
    return {getattr(config, field) for field in fields}


def unused_arguments(config: PreTrainedConfig) -> dict[str, Any]:
    """Return arguments, fields of outputs and variables that no model of this configuration has, with their values."""
    unused: dict[str, Any] = {"detach_routing": False, "lambda_schedule": None}
    if getattr(config, "guided_routing", "none") == "none":
        unused |= {"output_guided_capsules": False}
        unused |= dict.fromkeys(("guided_capsules", "unguided_state", "guidance_constants", "bow_loss", "bca_loss"))
    if getattr(config, "layer_aggregation_update_scale", 1.0) == 1.0 and "own" not in capsule_sources(config):
        unused |= {"update_scale": 1.0}
    if not routes(config):
        unused |= {"output_routing_weights": False, "routing_weights": None, "routings": None}
    return unused


def empty_slots(config: PreTrainedConfig) -> set[str]:
    """Return the modules that only pass on what they are given, by their names in a stack."""
    return {slot for field, slot in SLOTS.items() if getattr(config, field, None) in ("none", False)}


def substitutes(config: PreTrainedConfig) -> dict[str, str]:
    """Return the names that simpler ones replace in the code of an export."""
    unguided = {"PastFutureModel": "TranslationModel"} if getattr(config, "guided_routing", "none") == "none" else {}
    return {"capsule_config": "strict", "summed_in_blocks": "summed", **unguided}
