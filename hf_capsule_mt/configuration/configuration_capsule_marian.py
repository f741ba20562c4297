"""Configuration of Capsule Marian: Marian's fields, and one group of fields for each of its four seams."""

import math
from collections.abc import Mapping
from dataclasses import field
from typing import Any, Literal

from transformers.activations import ACT2FN

from hf_capsule_mt.configuration.common import (
    MAX_ITERATIONS,
    MAX_LAYERS,
    MAX_POSITIONS,
    MAX_UNITS,
    MAX_VOCABULARY_SIZE,
    TargetVocabulary,
    capsule_config,
    check_divides,
    check_not_negative,
    check_probability,
    check_range,
)
from hf_capsule_mt.configuration.guided import GuidedConfig

LayerAggregationMethod = Literal[
    "none",
    "linear",
    "dynamic_combination",
    "dynamic_routing",
    "em_routing",
    "dense",
    "depth_attention",
    "mudd",
    "grn",
]
HeadAggregationMethod = Literal["concat", "simple_routing", "em_routing"]

# those that map whole layers; the sums of the others start at the top layer or at the layers' mean
METHODS_WITH_MAPS = ("linear", "dynamic_combination", "dynamic_routing", "em_routing")

# what `depth_connections` may put before every layer
CONNECTING_METHODS = ("dense", "depth_attention")

# the attentions that may aggregate their heads by routing, and the field that counts the layers they are in
HEAD_AGGREGATION_SITES = {
    "encoder_self": "encoder_layers",
    "decoder_self": "decoder_layers",
    "cross": "decoder_layers",
}


@capsule_config
class CapsuleMarianConfig(TargetVocabulary, GuidedConfig):
    r"""
    Configuration of [`CapsuleMarianModel`] and [`CapsuleMarianMTModel`]. With its defaults the model is Marian.

    The fields of [`~transformers.MarianConfig`] mean the same. Padding, and others:

    Args:
        pad_token_id (`int`, *optional*, defaults to 58100):
            The padding; by default the last token of a `vocab_size` up to 58100.
        label_smoothing (`float`, defaults to 0.0):
            Label smoothing of the loss in training mode, in place of the Trainer's `label_smoothing_factor`.
        layer_aggregation (`str`, defaults to `"none"`):
            How the outputs of all layers of a stack become its result (Dou et al. 2019): `"none"` takes the top
            layer's, `"linear"` a static linear combination, `"dynamic_combination"` one whose weights a feed-forward
            network computes for each position, `"dynamic_routing"` and `"em_routing"` route the layers, as input
            capsules, to output capsules that are concatenated. Later methods are weighted sums of the embedding and
            all layers. The weights are learnt (`"dense"`, DenseFormer), computed by attention with a learnt query
            (`"depth_attention"`, Attention Residuals), by a small network (`"mudd"`), or separately for each unit
            (`"grn"`, DeepCrossAttention).
        layer_aggregation_side (`str`, defaults to `"both"`):
            The stacks that aggregate their layers: `"both"`, `"encoder"` or `"decoder"`.
        depth_connections (`bool`, defaults to `False`):
            For `"dense"` and `"depth_attention"`: let each layer from the second on read a weighted sum of the
            embedding and all layers below it, in the stacks of `layer_aggregation_side`.
        layer_aggregation_num_capsules (`int`, *optional*):
            Number of output capsules, a divisor of `d_model`. `None` is `d_model` itself: capsules of width 1, the
            papers' best setting.
        layer_aggregation_num_iterations (`int`, defaults to 3):
            Routing iterations.
        layer_aggregation_capsule_input (`str`, defaults to `"all"`):
            Input of each input capsule: the outputs of `"all"` layers or of its `"own"` (the paper's Table 3).
        layer_aggregation_vote_input (`str`, defaults to `"all"`):
            Input of an input capsule's votes and activation: `"all"` input capsules, which gives the papers' parameter
            counts, or its `"own"`, which is their equation 7 taken literally.
        layer_aggregation_placement (`str`, defaults to `"replaces"`):
            Whether the aggregation `"replaces"` the top layer's output, as the papers print it, or `"adds"` to it,
            with a gain that starts at zero: training starts at the function of the model without aggregation. Its
            name was `layer_aggregation_residual`, false or true, which is still read.
        layer_aggregation_start (`str`, defaults to `"random"`):
            Where the maps of `"linear"`, of `"dynamic_combination"` and of routed layers start: at `"random"` weights,
            or so that the combination is of the `"layers"` themselves (their mean, or a routing of one capsule for
            each) or of the `"top"` one alone, which a plain model's result is. Noise is added to both. If the
            aggregation replaces that layer and there is no trained model to start from, it learns with one of
            these and a `layer_aggregation_update_scale` of 0.1.
        layer_aggregation_update_scale (`float`, defaults to 1.0):
            How fast these maps move in training, beside all other weights: their parameters are stored divided by it.
            peft refuses to adapt such maps: name other `target_modules`.
        layer_aggregation_normalize_total_input (`bool`, defaults to `True`):
            For `"dynamic_routing"`: divide an output capsule's total input by its total weight. `False` is the paper's
            equation 6, with which weights stay nearly uniform at 512 capsules.
        layer_aggregation_init_std (`float`, *optional*):
            Standard deviation of the initial weights that make input capsules, votes and activations where layers are
            routed. `None` is `init_std`, with which dynamic routing starts nearly uniform.
            1 / sqrt(layers * `d_model`) makes votes as large as what they come from.
        head_aggregation (`str`, defaults to `"concat"`):
            How the heads of an attention become its output (Li et al. 2019): `"concat"` and a linear map, or
            `"simple_routing"` or `"em_routing"` with the heads as input capsules.
        head_aggregation_sites (`list[str]`, defaults to `["encoder_self"]`):
            The attentions to which `head_aggregation` applies, among `"encoder_self"`, `"decoder_self"` and `"cross"`.
        head_aggregation_layers (`list[int]`, *optional*):
            The layers in which these attentions aggregate their heads, 0 being the lowest; `None` is all of them.
        head_aggregation_placement (`str`, defaults to `"replaces"`):
            Whether routing `"replaces"` the attention's linear map, as the paper prints it, or `"adds"` to its result,
            with a gain that starts at zero: training starts at the function of the model without it.
        head_aggregation_num_capsules (`int`, *optional*):
            Number of output capsules, a divisor of `d_model`; `None` is `d_model` itself.
        head_aggregation_num_iterations (`int`, defaults to 3):
            Routing iterations.
        head_aggregation_activation (`str`, defaults to `"relu"`):
            Nonlinearity of the input capsules, `"relu"` or `"tanh"`; the paper names none.
        head_aggregation_vote_input (`str`, defaults to `"all"`):
            Input of an input capsule's votes: `"all"` input capsules, which gives the paper's parameter counts, or its
            `"own"`, which is its equation 6 taken literally.
        head_aggregation_init_std (`float`, *optional*):
            Standard deviation of the initial weights that make input capsules and votes. `None` is one over the root
            of the width of what they read, with which votes are about as long as heads. With weights as small as
            `init_std`, the votes of a narrow model are much shorter.
        guided_routing (`str`, defaults to `"none"`):
            Guided dynamic routing of the source words to PAST and FUTURE (Zheng et al. 2019): `"guided"`, or its
            baselines `"classifier"` and `"attention"`. This field and the others that begin with `guided_` are those
            of [`GuidedConfig`].
        decoder_self (`str`, defaults to `"attention"`):
            How a decoder layer sees its own past: by `"attention"`, or as the one state of an `"ssru"`, Marian's
            simpler simple recurrent unit (Kim et al. 2019), which the students of Firefox Translations have. Such a
            decoder has no heads at `"decoder_self"` to aggregate, and gives no `decoder_attentions`.
        marian_positions (`bool`, defaults to `False`):
            Take the positions of Marian itself, whose longest wave is 10000 times as long as its shortest, rather than
            those of transformers' Marian. For models that were trained with Marian.
        layer_norm_eps (`float`, defaults to 1e-5):
            What layer normalisation adds to the variance: PyTorch's 1e-5, as in transformers' Marian. Marian itself
            has 1e-6.
        em_lambda_final (`float`, defaults to 0.01):
            End of the schedule of inverse temperatures of EM routing.
        em_min_variance (`float`, defaults to 5e-4):
            Added to every variance in EM routing.
        em_input_activation (`str`, defaults to `"vector"`):
            Activation of the input capsules of layer aggregation by EM routing: a `"vector"` (one for each output
            capsule), a `"scalar"`, or `"none"`.
    """

    model_type = "capsule_marian"
    loadable_types = ("marian",)
    # without `out_proj`, in whose place a routing of heads stands
    lora_target_modules = ("q_proj", "k_proj", "v_proj", "fc1", "fc2")
    keys_to_ignore_at_inference = ["cache", "past_key_values", "nll_loss", "bow_loss", "bca_loss", "routing_weights"]
    attribute_map = {
        "num_attention_heads": "encoder_attention_heads",
        "hidden_size": "d_model",
        "num_hidden_layers": "encoder_layers",
    }

    vocab_size: int = 58101
    decoder_vocab_size: int | None = None
    max_position_embeddings: int = 1024
    encoder_layers: int = 12
    encoder_ffn_dim: int = 4096
    encoder_attention_heads: int = 16
    decoder_layers: int = 12
    decoder_ffn_dim: int = 4096
    decoder_attention_heads: int = 16
    encoder_layerdrop: float | int = 0.0
    decoder_layerdrop: float | int = 0.0
    use_cache: bool = True
    is_encoder_decoder: bool = True
    activation_function: str = "gelu"
    d_model: int = 1024
    dropout: float | int = 0.1
    attention_dropout: float | int = 0.0
    activation_dropout: float | int = 0.0
    init_std: float = 0.02
    decoder_start_token_id: int = 58100
    scale_embedding: bool = False
    pad_token_id: int | None = 58100
    eos_token_id: int | list[int] | None = 0
    bos_token_id: int | None = None
    forced_eos_token_id: int | list[int] | None = 0
    share_encoder_decoder_embeddings: bool = True
    is_decoder: bool = False
    tie_word_embeddings: bool = True

    layer_aggregation: LayerAggregationMethod = "none"
    layer_aggregation_side: Literal["both", "encoder", "decoder"] = "both"
    depth_connections: bool = False
    layer_aggregation_num_capsules: int | None = None
    layer_aggregation_num_iterations: int = 3
    layer_aggregation_capsule_input: Literal["all", "own"] = "all"
    layer_aggregation_vote_input: Literal["all", "own"] = "all"
    layer_aggregation_placement: Literal["replaces", "adds"] = "replaces"
    layer_aggregation_start: Literal["random", "layers", "top"] = "random"
    layer_aggregation_update_scale: float | int = 1.0
    layer_aggregation_normalize_total_input: bool = True
    layer_aggregation_init_std: float | int | None = None

    head_aggregation: HeadAggregationMethod = "concat"
    head_aggregation_sites: list[str] | tuple[str, ...] = field(default_factory=lambda: ["encoder_self"])
    head_aggregation_layers: list[int] | tuple[int, ...] | None = None
    head_aggregation_placement: Literal["replaces", "adds"] = "replaces"
    head_aggregation_num_capsules: int | None = None
    head_aggregation_num_iterations: int = 3
    head_aggregation_vote_input: Literal["all", "own"] = "all"
    head_aggregation_activation: Literal["relu", "tanh"] = "relu"
    head_aggregation_init_std: float | int | None = None

    decoder_self: Literal["attention", "ssru"] = "attention"
    marian_positions: bool = False
    layer_norm_eps: float | int = 1e-5

    em_lambda_final: float | int = 0.01
    em_min_variance: float | int = 5e-4
    em_input_activation: Literal["vector", "scalar", "none"] = "vector"

    def __post_init__(self, **kwargs: Any) -> None:
        self.decoder_vocab_size = self.decoder_vocab_size or self.vocab_size
        self.head_aggregation_sites = list(self.head_aggregation_sites)
        if self.head_aggregation_layers is not None:
            self.head_aggregation_layers = list(self.head_aggregation_layers)
        super().__post_init__(**kwargs)

    @staticmethod
    def current_names(settings: Mapping[str, Any]) -> dict[str, Any]:
        """Turn `layer_aggregation_residual` into `layer_aggregation_placement`; refuse two that contradict."""
        current = dict(settings)
        residual = current.pop("layer_aggregation_residual", None)
        if residual is None:
            return current
        if not isinstance(residual, bool):
            raise ValueError(f"`layer_aggregation_residual` must be True or False, got {residual!r}")
        placement = current.setdefault("layer_aggregation_placement", "adds" if residual else "replaces")
        if residual != (placement == "adds"):
            raise ValueError(
                f"`layer_aggregation_residual` {residual}, the old name, contradicts `layer_aggregation_placement` "
                f"{placement!r}"
            )
        return current

    @property
    def layer_aggregation_residual(self) -> bool:
        """The old name of `layer_aggregation_placement`, read-only."""
        return self.layer_aggregation_placement == "adds"

    @property
    def aggregates_encoder_layers(self) -> bool:
        return self.layer_aggregation != "none" and self.layer_aggregation_side in ("both", "encoder")

    @property
    def aggregates_decoder_layers(self) -> bool:
        return self.layer_aggregation != "none" and self.layer_aggregation_side in ("both", "decoder")

    @property
    def aggregates_layers_or_heads(self) -> bool:
        return self.layer_aggregation != "none" or self.head_aggregation != "concat"

    def aggregates_heads(self, site: str, layer: int) -> bool:
        """Whether the attention at this site of this layer aggregates its heads by routing."""
        return (
            self.head_aggregation != "concat"
            and site in self.head_aggregation_sites
            and (self.head_aggregation_layers is None or layer in self.head_aggregation_layers)
        )

    def validate_sizes(self) -> None:
        check_range(self, 1, MAX_VOCABULARY_SIZE, "vocab_size", "decoder_vocab_size")
        check_range(self, 0, MAX_LAYERS, "encoder_layers", "decoder_layers")
        check_range(self, 1, MAX_UNITS, "d_model", "encoder_ffn_dim", "decoder_ffn_dim")
        check_range(self, 1, MAX_UNITS, "encoder_attention_heads", "decoder_attention_heads")
        check_range(self, 1, MAX_POSITIONS, "max_position_embeddings")
        check_divides(self, "encoder_attention_heads", "d_model")
        check_divides(self, "decoder_attention_heads", "d_model")
        check_probability(self, "dropout", "attention_dropout", "activation_dropout")
        check_probability(self, "encoder_layerdrop", "decoder_layerdrop")
        check_not_negative(self, "init_std")

    def validate_activation_function(self) -> None:
        if self.activation_function not in ACT2FN:
            names = ", ".join(ACT2FN)
            raise ValueError(f"`activation_function` is {self.activation_function!r}, choose one of {names}")

    def validate_routing(self) -> None:
        check_range(self, 1, MAX_ITERATIONS, "layer_aggregation_num_iterations", "head_aggregation_num_iterations")
        check_divides(self, "layer_aggregation_num_capsules", "d_model")
        check_divides(self, "head_aggregation_num_capsules", "d_model")
        check_not_negative(self, "layer_aggregation_init_std", "head_aggregation_init_std")
        for name in ("em_min_variance", "em_lambda_final"):
            if not 0 < getattr(self, name) < math.inf:
                raise ValueError(f"`{name}` must be positive and finite, got {getattr(self, name)}")

    def validate_marian_positions(self) -> None:
        if self.marian_positions and (self.d_model < 4 or self.d_model % 2):
            raise ValueError(f"`marian_positions` needs an even `d_model` of at least 4, got {self.d_model}")

    def validate_layer_norm_eps(self) -> None:
        if not 0 < self.layer_norm_eps < math.inf:
            raise ValueError(f"`layer_norm_eps` must be positive and finite, got {self.layer_norm_eps}")

    def validate_layer_aggregation(self) -> None:
        for aggregates, layers in (
            (self.aggregates_encoder_layers, "encoder_layers"),
            (self.aggregates_decoder_layers, "decoder_layers"),
        ):
            if aggregates and getattr(self, layers) == 0:
                raise ValueError(
                    f'`layer_aggregation` "{self.layer_aggregation}" with `layer_aggregation_side` '
                    f'"{self.layer_aggregation_side}" needs layers to aggregate, but `{layers}` is 0'
                )

    def validate_layer_aggregation_start(self) -> None:
        if not 0 < self.layer_aggregation_update_scale < math.inf:
            raise ValueError(
                "`layer_aggregation_update_scale` must be positive and finite, got "
                f"{self.layer_aggregation_update_scale}"
            )
        for name, default in (("layer_aggregation_start", "random"), ("layer_aggregation_update_scale", 1.0)):
            value = getattr(self, name)
            if value != default and self.layer_aggregation not in METHODS_WITH_MAPS:
                raise ValueError(
                    f"`{name}` {value!r} needs `layer_aggregation` {' or '.join(METHODS_WITH_MAPS)}, got "
                    f"{self.layer_aggregation!r}, which has no maps that start elsewhere"
                )
        is_routed = self.layer_aggregation.endswith("routing")
        if is_routed and self.layer_aggregation_start == "top" and self.layer_aggregation_capsule_input == "own":
            raise ValueError(
                '`layer_aggregation_start` "top" needs `layer_aggregation_capsule_input` "all": with "own", a capsule '
                "does not read the top layer"
            )

    def validate_depth_connections(self) -> None:
        if self.depth_connections and self.layer_aggregation not in CONNECTING_METHODS:
            raise ValueError(
                f"`depth_connections` True needs `layer_aggregation` {' or '.join(CONNECTING_METHODS)}, got "
                f"{self.layer_aggregation!r}"
            )

    def validate_head_aggregation(self) -> None:
        for site in self.head_aggregation_sites:
            if site not in HEAD_AGGREGATION_SITES:
                raise ValueError(
                    f"`head_aggregation_sites` has {site!r}, choose one of {', '.join(HEAD_AGGREGATION_SITES)}"
                )
        if self.head_aggregation == "concat":
            return
        if not self.head_aggregation_sites:
            raise ValueError(
                f'`head_aggregation` "{self.head_aggregation}" needs at least one of `head_aggregation_sites`, got []'
            )
        if self.decoder_self == "ssru" and "decoder_self" in self.head_aggregation_sites:
            raise ValueError(
                f'`head_aggregation_sites` {self.head_aggregation_sites} has "decoder_self", where `decoder_self` '
                '"ssru" has no heads'
            )
        if self.head_aggregation_layers is not None and not self.head_aggregation_layers:
            raise ValueError(
                f"`head_aggregation_layers` is [], which leaves `head_aggregation_sites` "
                f"{self.head_aggregation_sites} without a layer; None means all layers"
            )
        for site in self.head_aggregation_sites:
            layers = HEAD_AGGREGATION_SITES[site]
            num_layers = getattr(self, layers)
            if num_layers == 0:
                raise ValueError(f'`head_aggregation_sites` has "{site}", but `{layers}` is 0')
            for layer in self.head_aggregation_layers or ():
                if not 0 <= layer < num_layers:
                    raise ValueError(
                        f'`head_aggregation_layers` has {layer}, but "{site}" has the layers 0 to {num_layers - 1} '
                        f"(`{layers}` is {num_layers})"
                    )
