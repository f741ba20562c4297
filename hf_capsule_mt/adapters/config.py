"""The configuration of an adapter: what `CapsuleMarianConfig` says of layer aggregation, for any model."""

import re
from dataclasses import dataclass
from typing import Any, Literal, get_args

from peft import PeftConfig

from hf_capsule_mt.adapters.registration import capsule_peft_type
from hf_capsule_mt.configuration.configuration_capsule_marian import (
    CONNECTING_METHODS,
    CapsuleMarianConfig,
    LayerAggregationMethod,
)

SHORT_NAMES = {"em": "em_routing", "dynamic": "dynamic_routing"}
# methods whose first weights are (0 ... 0, 1)
STARTS_AT_TOP = ("dense", "mudd")
Side = Literal[None, "both", "encoder", "decoder"]
Placement = Literal[None, "adds", "replaces"]
Where = Literal["top", "every"]
METHODS = (*SHORT_NAMES, *(method for method in get_args(LayerAggregationMethod) if method != "none"))
# fields of `CapsuleMarianConfig`, and their names here
FIELDS = {
    "layer_aggregation": "method",
    "layer_aggregation_placement": "placement",
    "layer_aggregation_num_capsules": "num_capsules",
    "layer_aggregation_num_iterations": "num_iterations",
    "layer_aggregation_capsule_input": "capsule_input",
    "layer_aggregation_vote_input": "vote_input",
    "layer_aggregation_start": "start",
    "layer_aggregation_update_scale": "update_scale",
    "layer_aggregation_normalize_total_input": "normalize_total_input",
    "em_input_activation": "input_activation",
}
CHOICES = {"method": METHODS, "side": get_args(Side), "placement": get_args(Placement), "where": get_args(Where)}


@dataclass
class CapsuleConfig(PeftConfig):
    """Combine the outputs of all layers of a stack into its result.

    Args:
        method: "linear", "dynamic_combination", "dynamic_routing" (or "dynamic"), "em_routing" (or "em"), "dense",
            "depth_attention", "mudd" or "grn", as in `CapsuleMarianConfig.layer_aggregation`.
        side: the stacks that aggregate: "encoder", "decoder" or "both". `None` is the encoder, and the decoder of a
            model without an encoder.
        placement: "adds" the aggregation to the top layer's output, with a gain that starts at zero, or "replaces"
            that output. `None` replaces with "dense", "mudd" and `where` "every", and adds elsewhere. Training then
            starts exactly at the old function, except for "depth_attention" with "every".
        where: "top" of the stack, before the norm that follows its layers if it has one; or before "every" layer, too,
            which then reads a weighted sum of all below ("dense" and "depth_attention", which must replace).
        num_capsules: output capsules, a divisor of the model's width; `None` is the width.
        num_iterations: routing iterations.
        capsule_input, vote_input: what a capsule and its votes read: its "own" layer or capsule, or "all", which gives
            the papers' parameter counts: with EM routing on both sides 906 million beside NLLB's 600 million.
        start, update_scale: where its maps start and how fast they move: as `layer_aggregation_start` and
            `layer_aggregation_update_scale` of `CapsuleMarianConfig`.
        normalize_total_input, input_activation, dropout, init_std: as `layer_aggregation_normalize_total_input`,
            `em_input_activation`, `dropout` and `init_std` of `CapsuleMarianConfig`.
    """

    method: str = "em_routing"
    side: Side = None
    placement: Placement = None
    where: Where = "top"
    num_capsules: int | None = None
    num_iterations: int = 3
    capsule_input: Literal["all", "own"] = "own"
    vote_input: Literal["all", "own"] = "own"
    start: Literal["random", "layers", "top"] = "random"
    update_scale: float = 1.0
    normalize_total_input: bool = True
    input_activation: Literal["vector", "scalar", "none"] = "vector"
    dropout: float = 0.1
    init_std: float = 0.02
    # the names of the stacks in the model, which the tuner sets
    target_modules: Any = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self.peft_type = capsule_peft_type()
        for name, choices in CHOICES.items():
            if getattr(self, name) not in choices:
                raise ValueError(f"`{name}` of CapsuleConfig must be one of {choices}, got {getattr(self, name)!r}")
        if self.where == "every" and self.method not in CONNECTING_METHODS:
            methods = " or ".join(f'"{method}"' for method in CONNECTING_METHODS)
            raise ValueError(f'`where` "every" needs `method` {methods}, got "{self.method}"')
        if self.num_capsules is not None and (type(self.num_capsules) is not int or self.num_capsules < 1):
            raise ValueError(
                "`num_capsules` of CapsuleConfig must be a positive divisor of the model's width, or None for the "
                f"width, got {self.num_capsules!r}"
            )
        self.method = SHORT_NAMES.get(self.method, self.method)
        self.placement = self.placement or ("replaces" if self.replaces_by_default else "adds")
        if self.where == "every" and self.placement == "adds":
            raise ValueError('`where` "every" makes each layer\'s input: `placement` must be "replaces", got "adds"')
        self.aggregation_settings(self.num_capsules or 1)  # refuses what the models refuse

    @property
    def replaces_by_default(self) -> bool:
        return self.method in STARTS_AT_TOP or self.where == "every"

    def side_of(self, is_encoder_decoder: bool) -> str:
        return self.side or ("encoder" if is_encoder_decoder else "decoder")

    def aggregation_settings(self, width: int) -> CapsuleMarianConfig:
        """Return what the aggregation classes read, for a stack of this width; errors name this class's fields."""
        try:
            return CapsuleMarianConfig(
                d_model=width,
                encoder_attention_heads=1,
                decoder_attention_heads=1,
                dropout=self.dropout,
                init_std=self.init_std,
                depth_connections=self.where == "every",
                **{theirs: getattr(self, field) for theirs, field in FIELDS.items()},
            )
        except ValueError as error:
            message = str(error).replace("`d_model`", "the stack's width")
            raise ValueError(re.sub(r"\w+", lambda word: FIELDS.get(word[0], word[0]), message)) from None
