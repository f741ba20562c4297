"""The model and the pipeline of this checkpoint, made by hf_capsule_mt from its own source. Do not edit.

With hf_capsule_mt installed, this file is not used. Licence: Apache-2.0."""


from collections import Counter
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from collections.abc import Sized
from contextlib import contextmanager
from dataclasses import asdict
from dataclasses import dataclass
from dataclasses import field
from dataclasses import fields
from dataclasses import replace
from functools import partial
from hashlib import sha256
from huggingface_hub import load_state_dict_from_file
from huggingface_hub.dataclasses import strict
from huggingface_hub.errors import StrictDataclassClassValidationError
from huggingface_hub.errors import StrictDataclassFieldValidationError
from itertools import islice
from itertools import repeat
from itertools import takewhile
from pathlib import Path
from threading import get_ident
from torch import nn
from torch.nn.functional import linear
from torch.utils.data import Dataset
from transformers import AutoConfig
from transformers import AutoModelForSeq2SeqLM
from transformers import AutoTokenizer
from transformers import GenerationConfig
from transformers import GenerationMixin
from transformers import LogitsProcessor
from transformers import LogitsProcessorList
from transformers import MarianMTModel
from transformers import Pipeline
from transformers import PreTrainedConfig
from transformers import PreTrainedModel
from transformers import PreTrainedTokenizerBase
from transformers import initialization as init
from transformers.activations import ACT2FN
from transformers.cache_utils import Cache
from transformers.cache_utils import DynamicCache
from transformers.cache_utils import EncoderDecoderCache
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.modeling_outputs import BaseModelOutput
from transformers.modeling_outputs import BaseModelOutputWithPastAndCrossAttentions
from transformers.modeling_outputs import Seq2SeqLMOutput
from transformers.modeling_outputs import Seq2SeqModelOutput
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING
from transformers.models.auto.modeling_auto import MODEL_MAPPING
from transformers.utils import ModelOutput
from transformers.utils import can_return_tuple
from transformers.utils import logging
from typing import Any
from typing import ClassVar
from typing import Generic
from typing import Literal
from typing import NamedTuple
from typing import Protocol
from typing import TypeVar
from typing import cast
from typing import get_args
from typing import overload
import contextlib
import copy
import difflib
import enum
import functools
import importlib
import inspect
import json
import math
import os
import re
import torch
import unicodedata


# -------------------- hf_capsule_mt.configuration.common

config_logger = logging.get_logger("hf_capsule_mt.configuration")

# far above any model, and low enough that a configuration cannot occupy a machine for hours
MOST_ITERATIONS = 1000
MOST_LAYERS = 1000
MOST_CAPSULES = 2**17
MOST_UNITS = 2**20  # of a layer or an embedding
MOST_POSITIONS = 2**24
MOST_TOKENS = 2**27  # of a vocabulary

# the file beside a checkpoint that transformers runs with `trust_remote_code=True`
CODE_MODULE = "modeling_hf_capsule_mt"
LOADER = """\"\"\"Lead transformers to the package hf_capsule_mt: pip install hf-capsule-mt

After `import hf_capsule_mt`, this file and `trust_remote_code=True` are not needed. `capsule-mt export` writes a
checkpoint whose own code is here, so that it needs no package.
\"\"\"

from hf_capsule_mt import {names}  # noqa: F401
"""

ConfigClass = TypeVar("ConfigClass", bound=type[PreTrainedConfig])

# keywords that `PreTrainedConfig` takes beside its fields, or finds in a config.json
TRANSFORMERS_KEYWORDS = frozenset(
    {
        "_commit_hash",
        "_name_or_path",
        "attn_implementation",
        "auto_map",
        "custom_pipelines",
        "experts_implementation",
        "model_type",
        "name_or_path",
        "num_labels",
        "output_attentions",
        "per_layer_config",
        "quantization_config",
        "torch_dtype",
    }
)


class InvalidFieldError(StrictDataclassFieldValidationError, ValueError):
    """A field has a value of the wrong type, or one that is not among its choices."""

    def __init__(self, cause: BaseException) -> None:
        ValueError.__init__(self, str(cause))


class InvalidConfigurationError(StrictDataclassClassValidationError, ValueError):
    """Fields contradict one another."""

    def __init__(self, cause: BaseException) -> None:
        ValueError.__init__(self, str(cause))


def capsule_config(config_class: ConfigClass) -> ConfigClass:
    """Class decorator: `@strict` (typed fields, `validate_*` rules), with errors that are `ValueError`s.

    It also takes back the `__eq__` that a dataclass gets, which compares the fields alone.
    """
    strict(config_class)
    config_class.__eq__ = CapsuleConfig._same_values  # type: ignore[method-assign, assignment]
    for name in ("__init__", "__setattr__", "validate"):
        setattr(config_class, name, _with_value_errors(getattr(config_class, name)))
    setattr(config_class, "__init__", _with_pad_token(config_class.__init__))  # noqa: B010 - mypy: assigned to a method
    return config_class


def _with_pad_token(method: Callable[..., None]) -> Callable[..., None]:
    """Pad with the last token, as Marian does, if the default pad token is outside of a given smaller vocabulary."""

    @functools.wraps(method)
    def wrapped(self: PreTrainedConfig, *args: Any, **kwargs: Any) -> None:
        size, default = kwargs.get("vocab_size"), getattr(type(self), "pad_token_id", None)
        if "pad_token_id" not in kwargs and isinstance(size, int) and default is not None and 1 <= size <= default:
            kwargs["pad_token_id"] = size - 1
        method(self, *args, **kwargs)

    return wrapped


def _with_value_errors(method: Callable[..., None]) -> Callable[..., None]:
    """Turn the errors of a strict dataclass, which derive from `Exception` alone, into `ValueError`s."""

    @functools.wraps(method)
    def wrapped(*args: Any, **kwargs: Any) -> None:
        try:
            method(*args, **kwargs)
        except (InvalidFieldError, InvalidConfigurationError):
            raise
        except StrictDataclassFieldValidationError as error:
            raise InvalidFieldError(error.__cause__ or error) from None
        except StrictDataclassClassValidationError as error:
            raise InvalidConfigurationError(error.__cause__ or error) from None

    return wrapped


class CapsuleConfig(PreTrainedConfig):
    """Base of the configuration classes: refuse misspelt keywords and compare by value."""

    # fields of older versions, each with the one value that still describes what the models do
    removed_fields: ClassVar[dict[str, str]] = {}
    label_smoothing: float | int = 0.0
    # what `capsule-mt calibrate` has fitted: the curves "words" and "sentences" and the "threshold" of "attention",
    # "guided", "deletion"; for "attention" also the layer and the number of the "head"; and the "optional_words" and
    # "function_words" of the source
    coverage_calibration: dict[str, Any] | None = None
    _writes_loader: ClassVar[bool] = True

    def __post_init__(self, **kwargs: Any) -> None:
        _refuse_misspelt(type(self), kwargs)
        _drop_removed_fields(type(self), kwargs)
        if not _is_exported(type(self)):
            # they name the code that comes with an exported checkpoint, in whose place the package runs: kept, they
            # would demand `trust_remote_code=True`, and point at nothing once the model is saved elsewhere
            kwargs.pop("auto_map", None)
            kwargs.pop("custom_pipelines", None)
        for keyword in kwargs.keys() - TRANSFORMERS_KEYWORDS - GenerationConfig().to_dict().keys():
            config_logger.warning(
                f"{type(self).__name__} has no field `{keyword}`: it is kept as an attribute and changes nothing."
            )
        super().__post_init__(**kwargs)

    @classmethod
    def from_dict(cls, config_dict: dict[str, Any], **kwargs: Any) -> Any:
        _refuse_misspelt(cls, kwargs)  # `from_pretrained(path, layer_agregation=...)`
        _drop_removed_fields(cls, kwargs)
        result = super().from_dict(config_dict, **kwargs)
        config = result[0] if isinstance(result, tuple) else result
        config.validate()  # keywords that override the file were set one by one
        return result

    def save_pretrained(
        self, save_directory: str | os.PathLike[str], push_to_hub: bool = False, **kwargs: Any
    ) -> None:
        """Also save a file that imports the package, for `trust_remote_code=True` where nobody has imported it."""
        references = {} if _is_exported(type(self)) or not self._writes_loader else code_references(type(self))
        if references:
            names = ", ".join(sorted(reference.partition(".")[2] for reference in references.values()))
            os.makedirs(save_directory, exist_ok=True)
            (Path(save_directory) / f"{CODE_MODULE}.py").write_text(LOADER.format(names=names), encoding="utf-8")
            vars(self)["auto_map"] = references
        try:
            super().save_pretrained(save_directory, push_to_hub, **kwargs)
        finally:
            vars(self).pop("auto_map", None)

    @classmethod
    def register_for_auto_class(cls, auto_class: str = "AutoConfig") -> None:
        """Note the class as code that comes with a checkpoint, unless it is the package's: that stays installed."""
        if _is_exported(cls):
            super().register_for_auto_class(auto_class)

    @classmethod
    @contextmanager
    def without_loader(cls) -> Iterator[None]:
        """Save configurations alone, as in the checkpoints of a training."""
        CapsuleConfig._writes_loader = False
        try:
            yield
        finally:
            CapsuleConfig._writes_loader = True

    def _same_values(self, other: object) -> bool:
        """Compare all values, but not the path and the version of transformers that configurations come from."""
        if type(self) is not type(other):
            return False
        ours, theirs = self.to_dict(), other.to_dict()
        return all(ours.get(key) == theirs.get(key) for key in (ours.keys() | theirs.keys()) - {"_name_or_path"})

    def validate_label_smoothing(self) -> None:
        check_probability(self, "label_smoothing")

    def validate_coverage_calibration(self) -> None:
        of_methods = dict(self.coverage_calibration or {})
        for name in ("optional_words", "function_words"):
            of_methods.pop(name, None)
        for method, curves in of_methods.items():
            wanted = {"words", "sentences"} | ({"head"} if method == "attention" else set())
            found = set(curves) - {"threshold"}
            if method not in ("attention", "guided", "deletion") or found != wanted or not all(curves.values()):
                raise ValueError(
                    '`coverage_calibration` has the curves "words" and "sentences" and the "threshold" of "attention" '
                    '(and its "head"), "guided" or "deletion", "optional_words" and "function_words", got '
                    f"{method!r}: {sorted(curves)}"
                )
            if method == "attention":
                _check_head(self, curves["head"])


class TargetVocabulary:
    """Mixin before `CapsuleConfig`, for families with one vocabulary for both sides or one for each."""

    vocab_size: int
    decoder_vocab_size: int | None
    share_encoder_decoder_embeddings: bool

    @property
    def target_vocab_size(self) -> int:
        """The number of words that the decoder can read and write."""
        if self.share_encoder_decoder_embeddings or self.decoder_vocab_size is None:
            return self.vocab_size
        return self.decoder_vocab_size


def code_references(config_class: type[PreTrainedConfig]) -> dict[str, str]:
    """Return the `auto_map` of a config.json, which names classes of `CODE_MODULE`; empty for an unknown class."""
    classes: dict[str, Any] = {
        "AutoConfig": config_class,
        "AutoModel": MODEL_MAPPING.get(config_class, None),
        "AutoModelForSeq2SeqLM": MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING.get(config_class, None),
    }
    if None in classes.values():
        return {}
    return {auto: f"{CODE_MODULE}.{found.__name__}" for auto, found in classes.items()}


def _is_exported(config_class: type[PreTrainedConfig]) -> bool:
    """Return whether a class is of the code that comes with an exported checkpoint."""
    return config_class.__module__.startswith("transformers_modules")


def _refuse_misspelt(config_class: type[PreTrainedConfig], keywords: dict[str, Any]) -> None:
    fields_and_aliases = {field.name for field in fields(config_class)} | set(config_class.attribute_map)
    for keyword in keywords.keys() - fields_and_aliases - TRANSFORMERS_KEYWORDS - GenerationConfig().to_dict().keys():
        matches = difflib.get_close_matches(keyword, fields_and_aliases, n=1, cutoff=0.85)
        if matches:
            raise ValueError(f"{config_class.__name__} has no field `{keyword}`; did you mean `{matches[0]}`?")


def _drop_removed_fields(config_class: type[CapsuleConfig], keywords: dict[str, Any]) -> None:
    """Drop what config.json files of older versions still hold, if it asks for the behaviour that is left."""
    for name, kept in config_class.removed_fields.items():
        value = keywords.pop(name, kept)
        if value != kept:
            raise ValueError(
                f'{config_class.__name__} no longer has `{name}`: only "{kept}" is left, got {value!r}; load such a '
                "checkpoint with the version of the package that made it"
            )


def check_range(config: PreTrainedConfig, minimum: int, maximum: int, *names: str) -> None:
    """Raise a `ValueError` if a field is outside of a range; `None` passes."""
    for name in names:
        value = getattr(config, name)
        if value is not None and value < minimum:
            raise ValueError(f"`{name}` must be at least {minimum}, got {value}")
        if value is not None and value > maximum:
            raise ValueError(f"`{name}` must be at most {maximum}, got {value}")


def _check_head(config: PreTrainedConfig, place: Sequence[int]) -> None:
    """Check the layer and the head of the decoder that `coverage_calibration` names."""
    sizes = [getattr(config, name, 0) for name in ("decoder_layers", "decoder_attention_heads")]
    is_place = len(place) == 2 and all(type(number) is int for number in place)
    if not is_place or not all(0 <= number < size for number, size in zip(place, sizes, strict=True)):
        raise ValueError(
            f'`coverage_calibration["attention"]["head"]` must be a layer below {sizes[0]} and a head below '
            f"{sizes[1]}, got {place}"
        )


def check_not_negative(config: PreTrainedConfig, *names: str) -> None:
    """Raise a `ValueError` if a field is negative or not finite; `None` passes."""
    for name in names:
        value = getattr(config, name)
        if value is not None and not 0 <= value < math.inf:
            raise ValueError(f"`{name}` must be a finite number of at least 0, got {value}")


def check_token_ids(config: PreTrainedConfig, *names: str) -> None:
    """Raise a `ValueError` if a special token is outside of the vocabulary, the larger one of two; `None` passes."""
    source, target = config.vocab_size, getattr(config, "target_vocab_size", config.vocab_size)
    for name in names:
        value = getattr(config, name)
        size = target if name == "decoder_start_token_id" else max(source, target)
        for token in value if isinstance(value, list) else [] if value is None else [value]:
            if not 0 <= token < size:
                raise ValueError(f"`{name}` ({token}) must be a token of the vocabulary, 0 to {size - 1}")


def check_probability(config: PreTrainedConfig, *names: str) -> None:
    for name in names:
        if not 0 <= getattr(config, name) < 1:
            raise ValueError(f"`{name}` must be a probability in [0, 1), got {getattr(config, name)}")


def check_divides(config: PreTrainedConfig, divisor: str, dividend: str) -> None:
    """A divisor of `None` stands for the dividend itself."""
    divisor_value, dividend_value = getattr(config, divisor), getattr(config, dividend)
    if divisor_value is not None and (divisor_value < 1 or dividend_value % divisor_value):
        raise ValueError(f"`{divisor}` ({divisor_value}) must divide `{dividend}` ({dividend_value})")


# -------------------- hf_capsule_mt.configuration.guided

GuidedRoutingMethod = Literal["none", "guided", "classifier", "attention"]


class GuidedConfig(CapsuleConfig):
    r"""
    Base of the configurations of models that assign source words to PAST (translated) and FUTURE (untranslated).

    Args:
        guided_routing (`str`, defaults to `"none"`):
            How PAST and FUTURE are computed from the source words at each step and added to the decoder's top state;
            `"none"` for a plain decoder. `"guided"` is guided dynamic routing;
            `"classifier"` (one softmax over PAST, FUTURE and neither for each word) and `"attention"` (two attention
            modules) are the paper's baselines.
        guided_num_capsules (`int`, defaults to 2):
            Capsules of each of PAST and FUTURE.
        guided_num_redundant_capsules (`int`, defaults to 8):
            Capsules for words that belong to neither group; they compete for words and are then discarded. 0 for none.
            `"guided"` only.
        guided_capsule_dim (`int`, defaults to 256):
            Width of a capsule.
        guided_num_iterations (`int`, defaults to 3):
            Routing iterations. `"guided"` only.
        guided_ffn_dim (`int`, defaults to 512):
            Width of the hidden layer that joins capsules and decoder state.
        guided_bow_weight (`float`, defaults to 1.0):
            Weight of the bag-of-words loss in training; 0 for none, and no parameters for it.
        guided_bca_weight (`float`, defaults to 1.0):
            Weight of the loss of bilingual content agreement in training; 0 for none, and no parameters for it.
        guided_bow_bags (`str`, defaults to `"inclusive"`):
            Whether the word that a step predicts is in both its PAST and its FUTURE bag (`"inclusive"`, as printed) or
            in neither (`"exclusive"`).
    """

    removed_fields: ClassVar[dict[str, str]] = {"guided_bow_reduction": "mean", "guided_bca_reduction": "mean"}

    guided_routing: GuidedRoutingMethod = "none"
    guided_num_capsules: int = 2
    guided_num_redundant_capsules: int = 8
    guided_capsule_dim: int = 256
    guided_num_iterations: int = 3
    guided_ffn_dim: int = 512
    guided_bow_weight: float | int = 1.0
    guided_bca_weight: float | int = 1.0
    guided_bow_bags: Literal["inclusive", "exclusive"] = "inclusive"

    @property
    def has_guided_losses(self) -> bool:
        """Whether training adds a loss that teaches PAST and FUTURE."""
        return self.guided_routing != "none" and (self.guided_bow_weight > 0 or self.guided_bca_weight > 0)

    def validate_guided_routing(self) -> None:
        check_range(self, 1, MOST_CAPSULES, "guided_num_capsules")
        check_range(self, 0, MOST_CAPSULES, "guided_num_redundant_capsules")
        check_range(self, 1, MOST_UNITS, "guided_capsule_dim", "guided_ffn_dim")
        check_range(self, 1, MOST_ITERATIONS, "guided_num_iterations")
        check_not_negative(self, "guided_bow_weight", "guided_bca_weight")


# -------------------- hf_capsule_mt.configuration.configuration_capsule_marian

LayerAggregationMethod = Literal["none", "linear", "dynamic_combination", "dynamic_routing", "em_routing"]
HeadAggregationMethod = Literal["concat", "simple_routing", "em_routing"]

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

    The fields of [`~transformers.MarianConfig`] mean what they mean there. The others:

    Args:
        pad_token_id (`int`, *optional*, defaults to 58100):
            The padding; by default the last token of a `vocab_size` up to 58100.
        label_smoothing (`float`, defaults to 0.0):
            Label smoothing of the loss that the model computes, in place of the Trainer's `label_smoothing_factor`.
        layer_aggregation (`str`, defaults to `"none"`):
            How the outputs of all layers of a stack become its result (Dou et al. 2019): `"none"` takes the top
            layer's, `"linear"` a static linear combination, `"dynamic_combination"` one whose weights a feed-forward
            network computes for each position, `"dynamic_routing"` and `"em_routing"` route the layers, as input
            capsules, to output capsules that are concatenated.
        layer_aggregation_side (`str`, defaults to `"both"`):
            The stacks that aggregate their layers: `"both"`, `"encoder"` or `"decoder"`.
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
        layer_aggregation_residual (`bool`, defaults to `False`):
            Add the aggregation to the top layer's output, with a gain that starts at zero, rather than replace it:
            training starts at the function of the model without aggregation.
        layer_aggregation_normalize_total_input (`bool`, defaults to `True`):
            For `"dynamic_routing"`: divide an output capsule's total input by its total weight. `False` is the paper's
            equation 6, with which no routing happens at 512 capsules.
        layer_aggregation_init_std (`float`, *optional*):
            Standard deviation of the initial weights that make input capsules, votes and activations where layers are
            routed. `None` is `init_std`, with which dynamic routing starts uniform. 1 / sqrt(layers * `d_model`)
            makes votes as large as what they come from.
        head_aggregation (`str`, defaults to `"concat"`):
            How the heads of an attention become its output (Li et al. 2019): `"concat"` and a linear map, or
            `"simple_routing"` or `"em_routing"` with the heads as input capsules.
        head_aggregation_sites (`list[str]`, defaults to `["encoder_self"]`):
            The attentions that aggregate their heads so, among `"encoder_self"`, `"decoder_self"` and `"cross"`.
        head_aggregation_layers (`list[int]`, *optional*):
            The layers in which they do, 0 being the lowest; `None` is all of them.
        head_aggregation_num_capsules (`int`, *optional*):
            Number of output capsules, a divisor of `d_model`; `None` is `d_model` itself.
        head_aggregation_num_iterations (`int`, defaults to 3):
            Routing iterations.
        head_aggregation_activation (`str`, defaults to `"relu"`):
            Nonlinearity of the input capsules, `"relu"` or `"tanh"`; the paper names none.
        head_aggregation_init_std (`float`, *optional*):
            Standard deviation of the initial weights that make input capsules and votes. `None` is
            1 / sqrt(`d_model`), with which votes are about as long as heads. With weights as small as `init_std` the
            routing of a narrow model learns little, and at `"cross"`, if it is trained from scratch, nothing.
        guided_routing (`str`, defaults to `"none"`):
            Guided dynamic routing of the source words to PAST and FUTURE (Zheng et al. 2019): `"guided"`, or its
            baselines `"classifier"` and `"attention"`. This field and the others that begin with `guided_` are those
            of [`GuidedConfig`].
        em_lambda_final (`float`, defaults to 0.01):
            End of the schedule of inverse temperatures of EM routing.
        em_min_variance (`float`, defaults to 5e-4):
            Added to every variance in EM routing.
        em_input_activation (`str`, defaults to `"vector"`):
            Activation of the input capsules of layer aggregation by EM routing: a `"vector"` (one for each output
            capsule), a `"scalar"`, or `"none"`.
    """

    model_type = "capsule_marian"
    removed_fields: ClassVar[dict[str, str]] = GuidedConfig.removed_fields | {"em_density": "product"}
    keys_to_ignore_at_inference = ["past_key_values", "nll_loss", "bow_loss", "bca_loss", "routing_weights"]
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
    layer_aggregation_num_capsules: int | None = None
    layer_aggregation_num_iterations: int = 3
    layer_aggregation_capsule_input: Literal["all", "own"] = "all"
    layer_aggregation_vote_input: Literal["all", "own"] = "all"
    layer_aggregation_residual: bool = False
    layer_aggregation_normalize_total_input: bool = True
    layer_aggregation_init_std: float | int | None = None

    head_aggregation: HeadAggregationMethod = "concat"
    head_aggregation_sites: list[str] | tuple[str, ...] = field(default_factory=lambda: ["encoder_self"])
    head_aggregation_layers: list[int] | tuple[int, ...] | None = None
    head_aggregation_num_capsules: int | None = None
    head_aggregation_num_iterations: int = 3
    head_aggregation_activation: Literal["relu", "tanh"] = "relu"
    head_aggregation_init_std: float | int | None = None

    em_lambda_final: float | int = 0.01
    em_min_variance: float | int = 5e-4
    em_input_activation: Literal["vector", "scalar", "none"] = "vector"

    def __post_init__(self, **kwargs: Any) -> None:
        self.decoder_vocab_size = self.decoder_vocab_size or self.vocab_size
        self.head_aggregation_sites = list(self.head_aggregation_sites)
        if self.head_aggregation_layers is not None:
            self.head_aggregation_layers = list(self.head_aggregation_layers)
        super().__post_init__(**kwargs)

    @property
    def is_plain_marian(self) -> bool:
        """Whether every capsule switch is off."""
        return self.layer_aggregation == "none" and self.head_aggregation == "concat" and self.guided_routing == "none"

    @property
    def aggregates_encoder_layers(self) -> bool:
        return self.layer_aggregation != "none" and self.layer_aggregation_side in ("both", "encoder")

    @property
    def aggregates_decoder_layers(self) -> bool:
        return self.layer_aggregation != "none" and self.layer_aggregation_side in ("both", "decoder")

    def aggregates_heads(self, site: str, layer: int) -> bool:
        """Whether the attention at this site of this layer aggregates its heads by routing."""
        return (
            self.head_aggregation != "concat"
            and site in self.head_aggregation_sites
            and (self.head_aggregation_layers is None or layer in self.head_aggregation_layers)
        )

    def validate_sizes(self) -> None:
        check_range(self, 1, MOST_TOKENS, "vocab_size", "decoder_vocab_size")
        check_range(self, 0, MOST_LAYERS, "encoder_layers", "decoder_layers")
        check_range(self, 1, MOST_UNITS, "d_model", "encoder_ffn_dim", "decoder_ffn_dim")
        check_range(self, 1, MOST_UNITS, "encoder_attention_heads", "decoder_attention_heads")
        check_range(self, 1, MOST_POSITIONS, "max_position_embeddings")
        check_divides(self, "encoder_attention_heads", "d_model")
        check_divides(self, "decoder_attention_heads", "d_model")
        check_probability(self, "dropout", "attention_dropout", "activation_dropout")
        check_probability(self, "encoder_layerdrop", "decoder_layerdrop")
        check_not_negative(self, "init_std")

    def validate_token_ids(self) -> None:
        check_token_ids(self, "decoder_start_token_id", "pad_token_id", "eos_token_id", "bos_token_id")
        check_token_ids(self, "forced_eos_token_id")

    def validate_activation_function(self) -> None:
        if self.activation_function not in ACT2FN:
            known = ", ".join(ACT2FN)
            raise ValueError(f"`activation_function` is {self.activation_function!r}, choose among {known}")

    def validate_routing(self) -> None:
        check_range(self, 1, MOST_ITERATIONS, "layer_aggregation_num_iterations", "head_aggregation_num_iterations")
        check_divides(self, "layer_aggregation_num_capsules", "d_model")
        check_divides(self, "head_aggregation_num_capsules", "d_model")
        check_not_negative(self, "layer_aggregation_init_std", "head_aggregation_init_std")
        check_not_negative(self, "em_min_variance", "em_lambda_final")
        if self.em_lambda_final == 0:
            raise ValueError(f"`em_lambda_final` must be positive, got {self.em_lambda_final}")

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

    def validate_head_aggregation(self) -> None:
        for site in self.head_aggregation_sites:
            if site not in HEAD_AGGREGATION_SITES:
                raise ValueError(
                    f"`head_aggregation_sites` has {site!r}, choose among {', '.join(HEAD_AGGREGATION_SITES)}"
                )
        if self.head_aggregation == "concat":
            return
        if not self.head_aggregation_sites:
            raise ValueError(
                f'`head_aggregation` "{self.head_aggregation}" needs at least one of `head_aggregation_sites`, got []'
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


# -------------------- hf_capsule_mt.routing.common

HOST = "cpu"


class RoutingOutput(NamedTuple):
    """The result of a routing function.

    capsules: the output capsules [..., M, D], in the dtype of the votes.
    weights: the assignment probabilities [..., N, M], one tensor per iteration, as they entered that iteration's
        weighted sum. Over the output capsules they sum to one for every input capsule that the mask keeps, and are
        zero for the others. `None` when they were not asked for.
    """

    capsules: torch.Tensor
    weights: tuple[torch.Tensor, ...] | None


def check_votes(votes: torch.Tensor, num_iterations: int, mask: torch.Tensor | None) -> None:
    """Check that votes are [..., N, M, D], iterations at least one, and a mask bools [..., N]."""
    if votes.dim() < 3 or not votes.is_floating_point():
        raise ValueError(
            f"`votes` must be a floating point tensor of shape [..., N, M, D], got {votes.dtype} of shape "
            f"{list(votes.shape)}"
        )
    if 0 in votes.shape[-3:]:
        raise ValueError(f"`votes` [..., N, M, D] needs at least one of each, got shape {list(votes.shape)}")
    check_num_iterations(num_iterations)
    if mask is not None:
        check_shape("mask", mask, votes.shape[:-2], votes)
        if mask.dtype != torch.bool:
            raise ValueError(f"`mask` must be a bool tensor in which True keeps an input capsule, got {mask.dtype}")


def check_num_iterations(num_iterations: int) -> None:
    if isinstance(num_iterations, bool) or not isinstance(num_iterations, int) or num_iterations < 1:
        raise ValueError(f"`num_iterations` must be an integer of at least 1, got {num_iterations!r}")


def check_shape(name: str, tensor: torch.Tensor, expected: torch.Size, votes: torch.Tensor) -> None:
    if tensor.shape != expected:
        raise ValueError(
            f"`{name}` must have shape {list(expected)} for `votes` of shape {list(votes.shape)}, "
            f"got {list(tensor.shape)}"
        )


def is_on_host(tensor: torch.Tensor) -> bool:
    """Return whether a tensor is in the memory of the CPU."""
    return tensor.device.type == HOST


def reads_are_free(tensor: torch.Tensor) -> bool:
    """Return whether a decision may depend on the values of a tensor.

    Not on an accelerator, where the host would wait for all work that is queued, and not while a compiler traces.
    """
    return is_on_host(tensor) and not torch.compiler.is_compiling() and not torch.jit.is_tracing()


def iteration_dtype(votes: torch.Tensor) -> torch.dtype:
    """Return the dtype that routing iterates in: float64 for float64 votes, else float32."""
    return torch.promote_types(votes.dtype, torch.float32)


def without_autocast(tensor: torch.Tensor) -> contextlib.AbstractContextManager[Any]:
    """Disable autocast: matrix products inside keep the dtype of their arguments."""
    if tensor.device.type == "meta":
        return contextlib.nullcontext()
    return torch.autocast(tensor.device.type, enabled=False)


# -------------------- hf_capsule_mt.routing.chunks

def chunk_numbers(tensor: torch.Tensor, total: int | None = None) -> int:
    """Return how many numbers an elementwise pass should hold at once, of the `total` that it goes through.

    On a CPU about 2^18 numbers (one MiB) stay in the cache. On a GPU a chunk has to be large enough to keep it busy,
    and the dozen buffers of one chunk small beside the whole: a sixteenth, from 2^22 to 2^25 numbers. Only powers of
    two, because each size is a compilation of its own. By default the total is the size of the tensor.
    """
    if is_on_host(tensor):
        return 2**18
    sixteenth = (tensor.numel() if total is None else total) // 16
    return min(max(1 << sixteenth.bit_length(), 2**22), 2**25)


def product_numbers(tensor: torch.Tensor) -> int:
    """Return how many numbers the result of a matrix product should hold at once.

    More than in an elementwise pass: each product reads the whole matrix again.
    """
    return 2**22 if is_on_host(tensor) else 2**26


def chunk_rows(votes: torch.Tensor) -> int:
    """Return how many of the P positions of votes [P, N, M, D] to work on at once."""
    return max(1, chunk_numbers(votes) // votes.shape[1:].numel())


def flatten_positions(tensor: torch.Tensor | None, num_trailing: int) -> torch.Tensor | None:
    """[..., trailing] -> [positions, trailing]."""
    return None if tensor is None else tensor.reshape(-1, *tensor.shape[tensor.dim() - num_trailing :])


def chunk_slices(votes: torch.Tensor) -> list[slice]:
    """Split the positions of votes [positions, N, M, D] into slices of `chunk_rows`."""
    size = chunk_rows(votes)
    return [slice(start, start + size) for start in range(0, len(votes), size)]


def chunk_values(
    rows: slice, votes: torch.Tensor, mask: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Return the votes [P, N, M, D] of one chunk, in the dtype of the iterations, and its mask [P, N, 1]."""
    return votes[rows].to(iteration_dtype(votes)), None if mask is None else mask[rows].unsqueeze(-1)


def exponential_weights(
    log_mass: torch.Tensor, keep: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Split log R [P, N, M] into R over its peak [P, N, M], the sum of that over n [P, M], and the log peak [P, M]."""
    if keep is not None:
        log_mass = log_mass.masked_fill(~keep, torch.finfo(log_mass.dtype).min)
    peak = log_mass.amax(dim=1, keepdim=True)  # [P, 1, M]
    weight = (log_mass - peak).exp_()
    if keep is not None:
        weight.mul_(keep)
    total = weight.sum(dim=1).clamp_(min=1)  # at least 1, unless the mask keeps nothing
    return weight, total, peak.squeeze(1)


def sum_width(tensor: torch.Tensor) -> torch.Tensor:
    """[P, N, M, D] -> [P, N, M]; without a copy where D is 1, the setting of the papers."""
    return tensor.squeeze(-1) if tensor.shape[-1] == 1 else tensor.sum(dim=-1)


def weighted_sum(weight: torch.Tensor | None, values: torch.Tensor) -> torch.Tensor:
    """sum_n weight_nm x_nmd: [P, N, M] (None stands for ones) and [P, N, M, D] -> [P, M, D]."""
    return (values if weight is None else weight.unsqueeze(-1) * values).sum(dim=1)


def times_weight(weight: torch.Tensor | None, values: torch.Tensor) -> torch.Tensor:
    """weight_nm x_nmd: [P, N, M] (None stands for ones) and [P, N or 1, M, D] -> [P, N or 1, M, D]."""
    return values if weight is None else weight.unsqueeze(-1) * values


# -------------------- hf_capsule_mt.modeling.losses

losses_logger = logging.get_logger(__name__)

IGNORE_INDEX = -100


def token_log_probs(logits: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    """Return the log-probabilities [B, T] that logits [B, T, V] give to tokens [B, T]."""
    return logits.gather(-1, tokens.unsqueeze(-1)).squeeze(-1) - logits.logsumexp(dim=-1)


def decoder_inputs_from_labels(labels: torch.Tensor, config: PreTrainedConfig) -> torch.Tensor:
    """Shift labels [B, T] right by one, after the start token: the tokens that predict them."""
    if config.pad_token_id is None or config.decoder_start_token_id is None:
        raise ValueError(
            "labels need `pad_token_id` and `decoder_start_token_id` in the configuration, which has "
            f"{config.pad_token_id} and {config.decoder_start_token_id}"
        )
    shifted = labels.roll(1, dims=-1)
    shifted[:, 0] = config.decoder_start_token_id
    return shifted.masked_fill(shifted == IGNORE_INDEX, config.pad_token_id)


def check_labels_given(
    labels: torch.Tensor | None, num_items_in_batch: torch.Tensor | int | None, has_other_losses: bool = False
) -> None:
    """Raise where the Trainer kept the labels, as it does to smooth them, and the model has losses beside.

    Without other losses the Trainer's smoothing takes the place of the model's, with one warning.
    """
    if labels is None and num_items_in_batch is not None and not has_other_losses:
        losses_logger.warning_once(
            "The Trainer computes the loss of this training, by `label_smoothing_factor` or a `compute_loss_func`; "
            "`config.label_smoothing` has no part in it."
        )
    elif labels is None and num_items_in_batch is not None:
        raise ValueError(
            "The Trainer counted the targets of this batch but kept the labels to itself, so the model cannot "
            "compute its losses. If `label_smoothing_factor` is set, set `model.config.label_smoothing` instead, or "
            "take `hf_capsule_mt.training.TranslationTrainer`, which does. "
            "If you have a `compute_loss_func`, set `model.accepts_loss_kwargs = False` before making the Trainer."
        )


def translation_loss(
    logits: torch.Tensor,
    labels: torch.Tensor,
    label_smoothing: float,
    num_items_in_batch: torch.Tensor | int | None,
) -> torch.Tensor:
    """Return the `cross_entropy` of logits [B, T, V], after a check that labels [B, T] belong to them."""
    if labels.shape != logits.shape[:2]:
        raise ValueError(
            f"`labels` of shape {list(labels.shape)} do not fit the {list(logits.shape[:2])} positions that "
            "the decoder was given"
        )
    return cross_entropy(logits, labels, label_smoothing=label_smoothing, num_items_in_batch=num_items_in_batch)


def cross_entropy(
    logits: torch.Tensor,
    labels: torch.Tensor,
    *,
    label_smoothing: float = 0.0,
    num_items_in_batch: torch.Tensor | int | None = None,
) -> torch.Tensor:
    """Return the cross entropy per token; `label_smoothing` spreads a share of the target over the vocabulary.

    Args:
        logits: [B, T, V].
        labels: [B, T], `IGNORE_INDEX` where there is no target.
        num_items_in_batch: what to divide the sum by, the number of targets in all batches that make one step, which
            the Trainer gives; by default the number of targets in `labels`.
    """
    labels = labels.to(logits.device)
    if torch.compiler.is_compiling():  # it fuses the passes over the vocabulary by itself
        total = nn.functional.cross_entropy(
            logits.flatten(0, -2).to(torch.promote_types(logits.dtype, torch.float32)),
            labels.flatten(),
            ignore_index=IGNORE_INDEX,
            reduction="sum",
            label_smoothing=label_smoothing,
        )
    else:
        total = _SummedCrossEntropy.apply(logits.flatten(0, -2), labels.flatten(), label_smoothing)
    if num_items_in_batch is None:
        num_items_in_batch = labels.ne(IGNORE_INDEX).sum().clamp(min=1)
    elif isinstance(num_items_in_batch, torch.Tensor):
        num_items_in_batch = num_items_in_batch.to(logits.device)
    return total / num_items_in_batch


class _SummedCrossEntropy(torch.autograd.Function):
    """Compute loss and gradient together, a few rows at a time, which stay in the processor's cache.

    Keep the gradient alone for the backward pass, in the dtype of the logits: no float32 copy of the logits, nor of
    their logarithms. With float16 logits the gradient is float32, as small values would underflow before loss scaling.
    """

    @staticmethod
    def forward(ctx: Any, logits: torch.Tensor, labels: torch.Tensor, label_smoothing: float) -> torch.Tensor:
        """Logits [R, V] and labels [R] -> the sum over rows, in float32 or higher."""
        dtype = torch.promote_types(logits.dtype, torch.float32)
        target, everywhere = 1 - label_smoothing, label_smoothing / logits.shape[-1]
        ignored = labels.eq(IGNORE_INDEX).unsqueeze(-1)  # [R, 1]
        words = labels.unsqueeze(-1).masked_fill(ignored, 0)  # [R, 1]
        grad_dtype = dtype if logits.dtype == torch.float16 else logits.dtype
        grad_logits = torch.empty_like(logits, dtype=grad_dtype) if ctx.needs_input_grad[0] else None
        loss = logits.new_zeros((), dtype=dtype)
        rows_at_once = max(1, chunk_numbers(logits) // logits.shape[-1])
        for start in range(0, len(logits), rows_at_once):
            rows = slice(start, start + rows_at_once)
            log_probabilities = logits[rows].log_softmax(dim=-1, dtype=dtype)  # [r, V]
            of_words = log_probabilities.gather(1, words[rows])  # [r, 1]
            losses = -target * of_words
            if everywhere:
                losses -= everywhere * log_probabilities.sum(dim=-1, keepdim=True)
            loss += losses.masked_fill(ignored[rows], 0).sum()
            if grad_logits is not None:
                grad = log_probabilities.exp_().sub_(everywhere)
                grad.scatter_(1, words[rows], of_words.exp() - everywhere - target)
                grad_logits[rows] = grad.masked_fill_(ignored[rows], 0)
        ctx.save_for_backward(grad_logits)
        ctx.dtype = logits.dtype
        return loss

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad_loss: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        (grad_logits,) = ctx.saved_tensors
        return (grad_logits * grad_loss).to(ctx.dtype), None, None


# -------------------- hf_capsule_mt.modeling.generation

def generation_settings(model: PreTrainedModel, given: GenerationConfig | None) -> GenerationConfig:
    """Return the generation config that `generate()` uses: the given one, completed by the model's own."""
    settings = copy.deepcopy(GenerationConfig() if given is None else given)
    own = model.generation_config.to_dict()
    settings.update(**own, defaults_only=True, allow_custom_entries=True)
    return settings


def generation_setting(model: PreTrainedModel, given: GenerationConfig | None, name: str) -> Any:
    """Return one field of these settings, without making all of them."""
    value = getattr(given, name, None)
    return getattr(model.generation_config, name, None) if value is None else value


class TranslationModel(PreTrainedModel, GenerationMixin):
    """Base of the generation models: a base `model` and its projection `lm_head` to the vocabulary."""

    model: PreTrainedModel
    lm_head: nn.Linear
    accepts_loss_kwargs = True  # the Trainer's `num_items_in_batch`

    def set_output_embeddings(self, new_embeddings: nn.Module) -> None:
        self.lm_head = cast(nn.Linear, new_embeddings)

    def _prepare_decoder_input_ids_for_generation(self, *args: Any, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        """Also drop a source mask that masks nothing: asked here, once a sentence, and at no step."""
        prepared: Any = super()._prepare_decoder_input_ids_for_generation(*args, **kwargs)  # type: ignore[misc]
        input_ids, model_kwargs = prepared
        mask = model_kwargs.get("attention_mask")
        if mask is not None and bool(mask.all()):
            model_kwargs["attention_mask"] = None
        return input_ids, model_kwargs

    def prepare_decoder_input_ids_from_labels(self, labels: torch.Tensor) -> torch.Tensor:
        """Shift labels [B, T] right by one, after the start token: the tokens that predict them."""
        return decoder_inputs_from_labels(labels, self.config)

    @torch.no_grad()
    def generate(  # type: ignore[override]
        self,
        inputs: torch.Tensor | None = None,
        *args: Any,
        output_routing_weights: bool = False,
        **kwargs: Any,
    ) -> ModelOutput | torch.Tensor:
        """Generate as in transformers; with `output_routing_weights=True` the result has a field `routing_weights`.

        It needs `return_dict_in_generate=True`. `routing_weights` is a dictionary like that of the model's output. A
        decoder's weights have one position for each token of `sequences` but the last, and one row for each returned
        sequence; so have an encoder's.

        The weights are those of one forward pass over the returned sequences, which computes at each position what the
        decoding step computed there. They follow the winning beam, sampling and speculative decoding by themselves,
        and decoding keeps its speed.
        """
        output = super().generate(inputs, *args, **kwargs)  # type: ignore[misc]
        if not output_routing_weights:
            return output
        if not isinstance(output, ModelOutput):
            raise ValueError("`output_routing_weights=True` needs `return_dict_in_generate=True` to return them in")
        if inputs is not None:
            kwargs[self.main_input_name] = inputs
        output["routing_weights"] = self._force_routing_weights(output["sequences"], kwargs)
        return output

    def _force_routing_weights(self, sequences: torch.Tensor, generate_kwargs: dict[str, Any]) -> Any:
        """Return the routing weights of a forward pass that is forced to produce `sequences` [B * returned, T]."""
        names = ("input_ids", "inputs_embeds", "attention_mask", "encoder_outputs")
        source = {name: generate_kwargs[name] for name in names if generate_kwargs.get(name) is not None}
        pad_token_id = self.config.pad_token_id
        if "input_ids" in source and "attention_mask" not in source and pad_token_id is not None:
            source["attention_mask"] = source["input_ids"].ne(pad_token_id).long()  # as `generate` does
        source = {name: _repeat_rows(value, len(sequences)) for name, value in source.items()}
        return self(
            **source, decoder_input_ids=sequences[:, :-1], use_cache=False, output_routing_weights=True
        ).routing_weights


def _repeat_rows(value: Any, num_rows: int) -> Any:
    """Repeat each row of a tensor, or of the tensors of an encoder's output, for the sequences returned for it."""
    if isinstance(value, torch.Tensor):
        return value.repeat_interleave(num_rows // len(value), dim=0)
    if isinstance(value, ModelOutput):
        return type(value)(**{key: _repeat_rows(item, num_rows) for key, item in value.items()})
    return value


# -------------------- hf_capsule_mt.modeling.guided_losses

class GuidedLossParts(NamedTuple):
    """The two losses, weighted and normalised as they are added to the cross entropy; `None` where the weight is 0."""

    bow_loss: torch.Tensor | None
    bca_loss: torch.Tensor | None


class GuidedLosses(nn.Module):
    """Both losses and their parameters, which exist where a weight is not 0, and which only training needs.

    The cross entropy is summed over the tokens of a batch and divided by their number N. A guided loss is averaged
    over the steps of a sentence, summed over the sentences, and divided by the same N: the proportions of the paper,
    whose sentences count their cross entropy as a sum over steps and the other two as averages.
    """

    def __init__(self, config: GuidedConfig, width: int, embedding_width: int | None = None) -> None:
        """`width` is that of the decoder's states, `embedding_width` that of the target words, if it is another."""
        super().__init__()
        # Deviation: both losses average where the paper prints a sum: over the words of a bag, and over the squares of
        # a difference. With weights of 1 the sums would outweigh the cross entropy by the length of a sentence and by
        # the width of the capsules; the authors' code averages as well
        self.bow_weight = config.guided_bow_weight
        self.bca_weight = config.guided_bca_weight
        self.bow_bags = config.guided_bow_bags
        group_width = config.guided_num_capsules * config.guided_capsule_dim
        if self.bow_weight > 0:  # W_BoW, applied to the sum of a group's capsules
            self.past_words = nn.Linear(config.guided_capsule_dim, embedding_width or width, bias=False)
            self.future_words = nn.Linear(config.guided_capsule_dim, embedding_width or width, bias=False)
        if self.bca_weight > 0:  # W_BCA, to the concatenation of a group's capsules
            self.past_content = nn.Linear(width, group_width, bias=False)
            self.future_content = nn.Linear(width, group_width, bias=False)

    def forward(
        self,
        capsules: torch.Tensor,
        state: torch.Tensor,
        labels: torch.Tensor,
        embeddings: torch.Tensor,
        num_items_in_batch: torch.Tensor | int | None = None,
    ) -> GuidedLossParts:
        """Compute the losses of a batch.

        Args:
            capsules: PAST (the first half) and FUTURE [B, T, 2 n, D].
            state: the decoder's states z [B, T, d] before guidance.
            labels: [B, T], `IGNORE_INDEX` where there is no target.
            embeddings: of the target words [V, d], those that the output projection multiplies with.
            num_items_in_batch: as in `cross_entropy`.
        """
        labels = labels.to(capsules.device)
        keep = labels.ne(IGNORE_INDEX)  # [B, T]
        lengths = keep.sum(dim=-1, keepdim=True).clamp(min=1)  # [B, 1]
        if num_items_in_batch is None:
            num_items_in_batch = keep.sum().clamp(min=1)
        elif isinstance(num_items_in_batch, torch.Tensor):
            num_items_in_batch = num_items_in_batch.to(capsules.device)
        shares = keep / (lengths * num_items_in_batch)  # of each step in the losses [B, T]
        bow_loss = bca_loss = None
        if self.bow_weight > 0:
            words = torch.stack(self.word_states(capsules))  # [2, B, T, d]
            bags = torch.stack(bag_shares(keep, self.bow_bags))  # [2, B, T, T]
            bow_loss = bag_of_words_loss(words, embeddings, labels, self.bow_weight * shares.unsqueeze(-1) * bags)
        if self.bca_weight > 0:
            bca_loss = self.bca_weight * (self.disagreement(capsules, state, keep) * shares).sum()
        return GuidedLossParts(bow_loss, bca_loss)

    def word_states(self, capsules: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return W_BoW Omega [B, T, d] of PAST and of FUTURE; times the embeddings they are the logits of the bags."""
        if self.bow_weight == 0:
            raise ValueError("`guided_bow_weight` is 0: the model has no weights to predict bags of words")
        past, future = (group.sum(dim=-2) for group in capsules.chunk(2, dim=-2))  # [B, T, D]
        return self.past_words(past), self.future_words(future)

    def disagreement(self, capsules: torch.Tensor, state: torch.Tensor, keep: torch.Tensor) -> torch.Tensor:
        """|Omega^P - W^P mean(z_1..z_t)|^2 + |Omega^F - W^F mean(z_t..z_T)|^2 over the width, for each step [B, T]."""
        groups = torch.stack([group.flatten(-2) for group in capsules.chunk(2, dim=-2)])  # [2, B, T, n D]
        past_state, future_state = (average.to(state.dtype) for average in running_averages(state, keep))
        contents = torch.stack([self.past_content(past_state), self.future_content(future_state)])
        dtype = torch.promote_types(state.dtype, torch.float32)
        return (groups.to(dtype) - contents.to(dtype)).square().mean(dim=-1).sum(dim=0)


def running_averages(state: torch.Tensor, keep: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the means of z_1..z_t and of z_t..z_T [B, T, d] over the positions that `keep` [B, T] keeps."""
    values = state.to(torch.promote_types(state.dtype, torch.float32)) * keep.unsqueeze(-1)
    counts = keep.cumsum(dim=-1).unsqueeze(-1)  # [B, T, 1]
    sums = values.cumsum(dim=1)
    remaining_counts = counts[:, -1:] - counts + keep.unsqueeze(-1)
    remaining_sums = sums[:, -1:] - sums + values
    return sums / counts.clamp(min=1), remaining_sums / remaining_counts.clamp(min=1)


def bag_shares(keep: torch.Tensor, bags: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the share of each target word [B, step, word] in the PAST and the FUTURE bag of each step.

    Args:
        keep: [B, T], the positions of real target words.
        bags: "inclusive" if the word that a step predicts is in both bags, "exclusive" if it is in neither.

    The shares of a bag sum to one; those of an empty bag are zero.
    """
    pairs = keep.unsqueeze(1) & keep.unsqueeze(2)  # [B, T, T]
    offset = 0 if bags == "inclusive" else 1
    shares = []
    for bag in (pairs.tril(-offset), pairs.triu(offset)):
        share = bag.float()
        shares.append(share / share.sum(dim=-1, keepdim=True).clamp(min=1))
    return shares[0], shares[1]


def bag_of_words_loss(
    states: torch.Tensor, embeddings: torch.Tensor, labels: torch.Tensor, shares: torch.Tensor
) -> torch.Tensor:
    """-sum share log p(word) over all words of all bags, with p = softmax(embeddings . state) of the bag's step.

    Args:
        states: [2, B, T, d].
        embeddings: [V, d].
        labels: the words [B, T].
        shares: of each word in each bag [2, B, T steps, T words]; 0 where the label is `IGNORE_INDEX`.

    The logits [R, V] exist a few rows at a time: the gradients are computed with them in the forward pass.
    """
    num_groups, batch_size, length = states.shape[:3]
    sentences = torch.arange(batch_size, device=states.device).expand(num_groups, batch_size)
    sentences = sentences.unsqueeze(-1).expand(-1, -1, length).flatten()  # [R]
    states, shares = states.flatten(0, 2), shares.flatten(0, 2)  # [R, d], [R, T]
    if reads_are_free(shares):  # steps of padding cost nothing
        rows = shares.any(dim=-1).nonzero().squeeze(-1)
        states, shares, sentences = states[rows], shares[rows], sentences[rows]
    return _BagOfWordsLoss.apply(states, embeddings, labels.clamp(min=0)[sentences], shares)


class _BagOfWordsLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, states: torch.Tensor, embeddings: torch.Tensor, words: torch.Tensor, shares: torch.Tensor
    ) -> torch.Tensor:
        """States [R, d], embeddings [V, d], the words of each row's sentence [R, T] and their shares -> the loss."""
        dtype = torch.promote_types(states.dtype, torch.float32)
        # in float16 small gradients would underflow before loss scaling
        exact, kept = (dtype if one == torch.float16 else one for one in (states.dtype, embeddings.dtype))
        wants_grad = ctx.needs_input_grad[0] or ctx.needs_input_grad[1]
        grad_states = torch.empty_like(states, dtype=exact) if wants_grad else None
        grad_embeddings = torch.zeros_like(embeddings, dtype=kept) if wants_grad else None
        matrix = embeddings.to(states.dtype)
        loss = states.new_zeros((), dtype=dtype)
        rows_at_once = max(1, product_numbers(states) // len(embeddings))
        with without_autocast(states):
            for start in range(0, len(states), rows_at_once):
                rows = slice(start, start + rows_at_once)
                logits = torch.mm(states[rows], matrix.t()).to(dtype)  # [r, V]
                share = shares[rows].to(dtype)  # [r, T]
                mass = share.sum(dim=-1, keepdim=True)  # [r, 1]
                loss -= (share * logits.gather(1, words[rows])).sum()
                peak = logits.amax(dim=-1, keepdim=True)
                exponentials = logits.sub_(peak).exp_()
                total = exponentials.sum(dim=-1, keepdim=True)
                loss += (mass * (peak + total.log())).sum()
                if grad_states is not None and grad_embeddings is not None:
                    grad_logits = exponentials.mul_(mass / total).scatter_add_(1, words[rows], -share)
                    grad_logits = grad_logits.to(exact)
                    grad_states[rows] = torch.mm(grad_logits, matrix.to(exact))
                    if kept == exact:
                        grad_embeddings.addmm_(grad_logits.t(), states[rows].to(exact))
                    else:
                        grad_embeddings += torch.mm(grad_logits.t(), states[rows].to(exact))
        ctx.save_for_backward(grad_states, grad_embeddings)
        ctx.dtypes = states.dtype, embeddings.dtype
        return loss

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad_loss: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        grad_states, grad_embeddings = ctx.saved_tensors
        of_states, of_embeddings = ctx.dtypes
        return (grad_states * grad_loss).to(of_states), (grad_embeddings * grad_loss).to(of_embeddings), None, None


def build_guided_losses(config: GuidedConfig, width: int, embedding_width: int | None = None) -> GuidedLosses | None:
    """Return the configured losses, or `None` if there are none."""
    return GuidedLosses(config, width, embedding_width) if config.has_guided_losses else None


# -------------------- hf_capsule_mt.modeling.coverage

# a word whose FUTURE falls by less has not been seen to be translated
SMALLEST_FALL = 1e-3
# coverage begins to suffer when FUTURE holds more than 1 - 1 / 2.5, which is 0.6, of a word at the end
SHARE_AT_THE_END = 2.5


class PastFutureCurves(NamedTuple):
    """For each source word, how its assignment changes as the translation grows: [B, S, T] each, summing to one.

    At step t the words before the t-th have been read, and the t-th is predicted. Padded source words are 0 in all.
    """

    past: torch.Tensor
    future: torch.Tensor
    redundant: torch.Tensor


def past_future_curves(weights: torch.Tensor, num_capsules: int) -> PastFutureCurves:
    """Return the assignment probabilities of one iteration, `routing_weights["decoder.guidance"][-1]`, as curves.

    Args:
        weights: [B, T, S, M], the first `num_capsules` of the M for PAST, as many for FUTURE, the rest redundant.
        num_capsules: `model.capsules_per_group`.
    """
    if num_capsules < 1 or weights.shape[-1] < 2 * num_capsules:
        raise ValueError(
            f"`num_capsules` ({num_capsules}) of each of PAST and FUTURE do not fit `weights` of shape "
            f"{list(weights.shape)}"
        )
    groups = weights.split([num_capsules, num_capsules, weights.shape[-1] - 2 * num_capsules], dim=-1)
    return PastFutureCurves(*(group.sum(dim=-1).transpose(1, 2) for group in groups))


@dataclass
class CoverageScore:
    """The coverage of given translations, by PAST and FUTURE.

    past, future, redundant: [B, S], the shares of each source word when the whole translation has been read; 0 for
        padding.
    covered: [B, S], how much of what left FUTURE left it with words that the model agreed to, and less if most of it
        is still there; 0 for padding.
    words: [B, S], which positions count: neither padding nor one of the special tokens.
    untranslated: [B, S], the words whose coverage is below the threshold.
    score: [B], the mean coverage of the words of a sentence; 1 for a sentence without words.
    balance: [B], the mean of PAST less FUTURE over the words of a sentence, when the whole translation has been read;
        1 for a sentence without words.
    log_prob: [B], the average log-probability of a token of the translation, of its end token too if it has one.
    """

    past: torch.Tensor
    future: torch.Tensor
    redundant: torch.Tensor
    covered: torch.Tensor
    words: torch.Tensor
    untranslated: torch.Tensor
    score: torch.Tensor
    balance: torch.Tensor
    log_prob: torch.Tensor


class PastFutureModel(TranslationModel):
    """Base of the generation models with guidance: coverage of given translations, and dropping the guided losses."""

    guided_losses: GuidedLosses | None

    @property
    def _guided_config(self) -> GuidedConfig:
        return cast(GuidedConfig, self.config)

    @torch.no_grad()
    def score_coverage(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        *,
        labels: torch.Tensor,
        threshold: float = 0.8,
        encoder_outputs: BaseModelOutput | None = None,
    ) -> CoverageScore:
        """Return how much of each source word given translations cover, by forced decoding.

        At the end most is PAST, also of a translation that left words out: the model sees the full stop, and believes
        it. What tells is how a word left FUTURE. When its translation is read, the model expected that; when the next
        words are read instead, it did not, or was of two minds. So each step's fall of a word's FUTURE counts by the
        step's agreement, the odds of the word read against the best other one, and coverage is the part of the fall
        that is agreed to:

            agreement_t = p(word read) / (p(word read) + max p(another word))
            covered_s = sum_t fall_ts agreement_t / sum_t fall_ts

        A word that never was in FUTURE is covered. One that is mostly FUTURE at the end is covered the less for it.

        Args:
            input_ids: source tokens [B, S].
            attention_mask: [B, S]; without it everything but `pad_token_id` counts as a word.
            labels: the translations [B, T], padded on the right with -100 or `pad_token_id`, with or without an end
                token.
            threshold: words whose coverage is less count as untranslated.
            encoder_outputs: of these sources, where they are already there.
        """
        config = self._guided_config
        if not self.has_coverage:
            raise ValueError(
                '`score_coverage` reads PAST and FUTURE, which need `guided_routing` "guided" or "classifier", got '
                f'"{config.guided_routing}"'
            )
        if attention_mask is None:
            attention_mask = input_ids.ne(config.pad_token_id).long()
        forced, last = _decoder_inputs(labels.to(input_ids.device), config)
        if len(labels) != len(input_ids):
            raise ValueError(f"`labels` are {len(labels)} translations, but `input_ids` {len(input_ids)} sources")
        was_training = self.training
        self.eval()
        try:
            output = self(
                input_ids,
                attention_mask=attention_mask,
                decoder_input_ids=forced,
                encoder_outputs=encoder_outputs,
                use_cache=False,
                output_routing_weights=True,
                return_dict=True,
            )
        finally:
            self.train(was_training)
        weights = output.routing_weights["decoder.guidance"][-1].float()  # [B, T, S, M]
        curves = past_future_curves(weights, self.capsules_per_group)
        steps = last[:, None, None].expand(-1, input_ids.shape[1], 1)
        was_read = torch.arange(forced.shape[1] - 1, device=last.device) < last.unsqueeze(-1)  # [B, T - 1]
        logits = output.logits.float()
        log_prob = _mean_log_prob(logits, labels.to(last.device), last, config)
        logits, read = logits[:, :-1], forced[:, 1:].unsqueeze(-1)
        of_read = logits.gather(-1, read).squeeze(-1)  # [B, T - 1]
        of_another = logits.scatter_(-1, read, -torch.inf).amax(dim=-1)  # in place: nobody reads them again
        agreement = (of_read - of_another).sigmoid()
        falls = (curves.future[..., :-1] - curves.future[..., 1:]).clamp(min=0)  # [B, S, T - 1]
        falls = falls * was_read.unsqueeze(1)
        return self.coverage_of_falls(
            input_ids,
            attention_mask,
            *(curve.gather(-1, steps).squeeze(-1) for curve in (curves.past, curves.future)),
            fall=falls.sum(dim=-1),
            agreed=(falls * agreement.unsqueeze(1)).sum(dim=-1),
            log_prob=log_prob,
            threshold=threshold,
        )

    def coverage_of_falls(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        past: torch.Tensor,
        future: torch.Tensor,
        *,
        fall: torch.Tensor,
        agreed: torch.Tensor,
        log_prob: torch.Tensor,
        threshold: float = 0.8,
    ) -> CoverageScore:
        """Coverage from what `score_coverage`, or a decoder while it decodes, sees of the source words [B, S].

        Args:
            past, future: the shares when the whole translation has been read, 0 for padding.
            fall: the sum of the falls of FUTURE.
            agreed: the sum of the falls, each times the agreement of its step.
            log_prob: [B].
            input_ids, attention_mask, threshold: see `score_coverage`.
        """
        words = attention_mask.bool() & ~torch.isin(input_ids, _special_tokens(self.config, input_ids))
        covered = torch.where(fall > SMALLEST_FALL, agreed / fall.clamp(min=SMALLEST_FALL), 1)
        covered = covered * (SHARE_AT_THE_END * (1 - future)).clamp(max=1) * attention_mask.bool()
        return CoverageScore(
            past=past,
            future=future,
            redundant=(1 - past - future) * attention_mask.bool(),
            covered=covered,
            words=words,
            untranslated=words & (covered < threshold),
            score=_mean_of_words(covered, words),
            balance=_mean_of_words(past - future, words),
            log_prob=log_prob,
        )

    @property
    def has_coverage(self) -> bool:
        """Return whether the model assigns words to PAST and FUTURE, which `score_coverage` reads."""
        return self._guided_config.guided_routing in ("guided", "classifier")

    @property
    def capsules_per_group(self) -> int:
        """Return how many columns of `routing_weights["decoder.guidance"]` belong to PAST; FUTURE has as many."""
        config = self._guided_config
        return config.guided_num_capsules if config.guided_routing == "guided" else 1

    def drop_guided_losses(self) -> None:
        """Drop the parameters of the guided losses, which decoding does not need: an export becomes smaller."""
        self.guided_losses = None
        self._guided_config.guided_bow_weight = 0.0
        self._guided_config.guided_bca_weight = 0.0


def _mean_of_words(values: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
    """The mean over the words of each sentence [B]; 1 for a sentence without words."""
    total = torch.where(words, values, 0).sum(dim=-1)
    return total / words.sum(dim=-1).clamp(min=1) + (~words.any(dim=-1)).float()


def _mean_log_prob(
    logits: torch.Tensor, labels: torch.Tensor, last: torch.Tensor, config: PreTrainedConfig
) -> torch.Tensor:
    """The average log-probability [B] of the first `last` labels, and of the end token if one follows them."""
    labels = nn.functional.pad(labels, (0, 1), value=config.pad_token_id)[:, : logits.shape[1]]
    positions = torch.arange(labels.shape[1], device=labels.device)
    follows = (positions == last.unsqueeze(-1)) & torch.isin(labels, _end_tokens(config, labels))
    counts = (positions < last.unsqueeze(-1)) | follows
    log_probs = token_log_probs(logits, labels.masked_fill(~counts, config.pad_token_id))
    return log_probs.masked_fill(~counts, 0).sum(dim=-1) / counts.sum(dim=-1).clamp(min=1)


def _decoder_inputs(labels: torch.Tensor, config: PreTrainedConfig) -> tuple[torch.Tensor, torch.Tensor]:
    """Labels [B, T] -> what the decoder reads [B, T + 1], and the position [B] at which it has read all words."""
    if labels.dim() != 2 or labels.shape[1] == 0:
        raise ValueError(f"`labels` must be [batch, target], an end token at least, got shape {list(labels.shape)}")
    ends = _end_tokens(config, labels)
    words = labels.ne(IGNORE_INDEX) & labels.ne(config.pad_token_id) & ~torch.isin(labels, ends)
    positions = torch.arange(1, labels.shape[1] + 1, device=labels.device)
    last = (words * positions).amax(dim=-1)  # [B]
    start = labels.new_full((len(labels), 1), config.decoder_start_token_id)
    read = labels.masked_fill(positions > last.unsqueeze(-1), config.pad_token_id)
    return torch.cat([start, read], dim=-1)[:, : int(last.max()) + 1], last


def _end_tokens(config: PreTrainedConfig, like: torch.Tensor) -> torch.Tensor:
    ends = config.eos_token_id if isinstance(config.eos_token_id, (list, tuple)) else [config.eos_token_id]
    return torch.tensor([end for end in ends if end is not None], device=like.device, dtype=like.dtype)


def _special_tokens(config: PreTrainedConfig, like: torch.Tensor) -> torch.Tensor:
    """The tokens of a source sentence that no translation has to cover."""
    others = (config.pad_token_id, config.bos_token_id, config.decoder_start_token_id)
    ids = [token for token in others if token is not None]
    return torch.cat([_end_tokens(config, like), torch.tensor(ids, device=like.device, dtype=like.dtype)])


# -------------------- hf_capsule_mt.modeling.initial_std

class _HasInitialStd(Protocol):
    init_std: float


def set_initial_std(module: nn.Module, std: float) -> None:
    """Let the model draw this weight with `std` when it initialises its modules."""
    cast(_HasInitialStd, module).init_std = std


def get_initial_std(module: nn.Module) -> float | None:
    """Return what `set_initial_std` set, or `None`."""
    std: float | None = vars(module).get("init_std")
    return std


# -------------------- hf_capsule_mt.modeling.matrices

def is_plain(linear: nn.Linear) -> bool:
    """Return whether no library has quantised a linear layer or put an adapter (LoRA) around it."""
    return isinstance(linear, nn.Linear) and type(linear.weight) is nn.Parameter and linear.weight.is_floating_point()


def is_bare(linear: nn.Module) -> bool:
    """Return whether a call of the module is the product with its weight, and nothing else."""
    if not isinstance(linear, nn.Linear) or not is_plain(linear):
        return False
    return not (linear._forward_hooks or linear._forward_pre_hooks or linear._backward_hooks)


def matrix_of(linear: nn.Linear) -> torch.Tensor:
    """Return the weight [out, in] of a linear layer as numbers.

    A quantised layer may keep integers, or an object that only its own product understands, and the weight of a layer
    with an adapter lacks the adapter's part. The matrix is then the product with the unit matrix.
    """
    weight = linear.weight
    if is_plain(linear) or (torch.compiler.is_compiling() and isinstance(linear, nn.Linear)):
        return weight
    device = getattr(weight, "device", None)  # of torch.ao's layers `weight` is a method
    unit = torch.eye(linear.in_features, device=device if isinstance(device, torch.device) else None)
    learns = any(parameter.requires_grad for parameter in linear.parameters())
    with torch.set_grad_enabled(learns and torch.is_grad_enabled()):
        return (linear(unit) - linear(torch.zeros_like(unit[:1]))).t()


def vector_of(linear: nn.Linear) -> torch.Tensor:
    """Return the bias [out] of a linear layer that has one."""
    bias = linear.bias
    return bias() if callable(bias) and not isinstance(bias, torch.Tensor) else bias


# -------------------- hf_capsule_mt.modeling.outputs

# The assignment probabilities [..., N, M] of one routing, one tensor per iteration
IterationWeights = tuple[torch.Tensor, ...]
# The same for all routings of a model, by where they are, such as "encoder.layers.0.self_attn"
RoutingWeights = dict[str, IterationWeights]


@dataclass
class CapsuleEncoderOutput(BaseModelOutput):
    """[`~transformers.modeling_outputs.BaseModelOutput`] and `routing_weights`, if asked for."""

    routing_weights: RoutingWeights | None = None


@dataclass
class SourceCapsulesOutput(CapsuleEncoderOutput):
    """What the encoder of CapsNMT returns: the states of the source, and what the decoder gets of them.

    capsules: [B, M, d], the source in a fixed number of vectors.
    """

    capsules: torch.Tensor | None = None


@dataclass
class CapsuleDecoderOutput(BaseModelOutputWithPastAndCrossAttentions):
    """The decoder output of transformers and, if asked for, `routing_weights` and what guided losses are made of.

    guided_capsules: the capsules [batch, positions, 2 n, width] of PAST (the first half) and FUTURE.
    unguided_state: the decoder's states [batch, positions, d] before PAST and FUTURE are added to them.
    """

    routing_weights: RoutingWeights | None = None
    guided_capsules: torch.Tensor | None = None
    unguided_state: torch.Tensor | None = None


@dataclass
class CapsuleSeq2SeqModelOutput(Seq2SeqModelOutput):
    """[`~transformers.modeling_outputs.Seq2SeqModelOutput`] and, if asked for, `routing_weights` of both stacks and
    the `guided_capsules` and `unguided_state` of the decoder."""

    routing_weights: RoutingWeights | None = None
    guided_capsules: torch.Tensor | None = None
    unguided_state: torch.Tensor | None = None


@dataclass
class CapsuleSeq2SeqLMOutput(Seq2SeqLMOutput):
    """[`~transformers.modeling_outputs.Seq2SeqLMOutput`], the parts of `loss`, and `routing_weights`, if asked for.

    nll_loss: the cross entropy, smoothed and normalised as in `loss`, of which it is a part.
    bow_loss, bca_loss: the other parts, if the model has guided losses: bag of words and bilingual content agreement,
        weighted and normalised as in `loss`, which is the sum of the three.
    routing_weights: for each routing of the model, named by where it is, the assignment probabilities
        [batch, positions, N input capsules, M output capsules] of each iteration. Positions of padding have them too.
    """

    nll_loss: torch.Tensor | None = None
    bow_loss: torch.Tensor | None = None
    bca_loss: torch.Tensor | None = None
    routing_weights: RoutingWeights | None = None


def resolve_output_flags(
    config: PreTrainedConfig, output_attentions: bool | None, output_hidden_states: bool | None
) -> tuple[bool, bool]:
    """Resolve `output_attentions` and `output_hidden_states` against the config defaults."""
    return (
        bool(config.output_attentions if output_attentions is None else output_attentions),
        bool(config.output_hidden_states if output_hidden_states is None else output_hidden_states),
    )


def as_encoder_output(encoder_outputs: tuple[Any, ...] | BaseModelOutput) -> BaseModelOutput:
    """Name the fields of encoder outputs that are given as a tuple."""
    if isinstance(encoder_outputs, BaseModelOutput):
        return encoder_outputs
    return CapsuleEncoderOutput(*encoder_outputs[:3])  # its state, hidden states and attentions


def join_stacks(
    encoded: BaseModelOutput, decoded: CapsuleDecoderOutput, output_routing_weights: bool
) -> CapsuleSeq2SeqModelOutput:
    """Return the outputs of encoder and decoder as those of one model."""
    routing_weights: RoutingWeights | None = None
    if output_routing_weights:
        routing_weights = (getattr(encoded, "routing_weights", None) or {}) | (decoded.routing_weights or {})
    return CapsuleSeq2SeqModelOutput(
        last_hidden_state=decoded.last_hidden_state,
        past_key_values=cast(EncoderDecoderCache | None, decoded.past_key_values),
        decoder_hidden_states=decoded.hidden_states,
        decoder_attentions=decoded.attentions,
        cross_attentions=decoded.cross_attentions,
        encoder_last_hidden_state=encoded.last_hidden_state,
        encoder_hidden_states=encoded.hidden_states,
        encoder_attentions=encoded.attentions,
        routing_weights=routing_weights,
        guided_capsules=decoded.guided_capsules,
        unguided_state=decoded.unguided_state,
    )


def translation_output(
    outputs: CapsuleSeq2SeqModelOutput,
    logits: torch.Tensor,
    nll_loss: torch.Tensor | None,
    bow_loss: torch.Tensor | None = None,
    bca_loss: torch.Tensor | None = None,
) -> CapsuleSeq2SeqLMOutput:
    """Return a base model's outputs with logits [B, T, V] and losses, of which `loss` is the sum."""
    loss = None
    if nll_loss is not None:
        loss = nll_loss + sum(part for part in (bow_loss, bca_loss) if part is not None)
    return CapsuleSeq2SeqLMOutput(
        loss=loss,
        logits=logits,
        past_key_values=outputs.past_key_values,
        decoder_hidden_states=outputs.decoder_hidden_states,
        decoder_attentions=outputs.decoder_attentions,
        cross_attentions=outputs.cross_attentions,
        encoder_last_hidden_state=outputs.encoder_last_hidden_state,
        encoder_hidden_states=outputs.encoder_hidden_states,
        encoder_attentions=outputs.encoder_attentions,
        nll_loss=nll_loss,
        bow_loss=bow_loss,
        bca_loss=bca_loss,
        routing_weights=outputs.routing_weights,
    )


# -------------------- hf_capsule_mt.routing.forms

class RoutingForm(enum.Enum):
    """The forms, which give the same numbers.

    PLAIN: the reference, a few lines per equation. It keeps every intermediate tensor for the backward pass, and a
        compiler can fuse it.
    CHUNKED: the same arithmetic over a few positions at a time, in buffers that stay in the processor's cache, with
        a backward pass written by hand that recomputes them. Several times faster in eager PyTorch, and its memory
        is that of the votes and their gradient.
    COMPILED: CHUNKED with `torch.compile` of the work on a chunk: up to twice as fast again, after some ten seconds of
        compilation. It needs a C++ compiler on a CPU and Triton on a GPU, so it has to be asked for. Guided routing
        has no such form and takes the chunked one.
    TRITON: kernels for a GPU, which read the votes once and iterate in registers. They need Triton and the package
        itself, run on CUDA tensors that are not float64, and hold at most 2^13 numbers of a position, N, M and D each
        rounded up to a power of two: 512 output capsules of width 1 for up to 16 input capsules, 1,024 for up to 8.
        What they do not take is CHUNKED. They have not run on a GPU yet, so they have to be asked for.
    """

    PLAIN = "plain"
    CHUNKED = "chunked"
    COMPILED = "compiled"
    TRITON = "triton"


class KernelRouting(Protocol):
    """The form TRITON: what `fast/triton_routing.py` registers, as the core imports nothing but PyTorch."""

    def takes(self, tensor: torch.Tensor) -> bool:
        """Return whether the kernels run on this device, in this dtype."""

    def takes_votes(self, votes: torch.Tensor, num_iterations: int) -> bool:
        """Return whether they also hold a position of these votes [..., N, M, D]."""

    def em_routing(
        self,
        votes: torch.Tensor,
        mask: torch.Tensor | None,
        input_activation: torch.Tensor | None,
        beta_a: torch.Tensor,
        beta_u: torch.Tensor,
        lambdas: tuple[float, ...],
        min_variance: float,
    ) -> torch.Tensor:
        """Return what `em_routing_chunked` returns."""

    def dynamic_routing(
        self, votes: torch.Tensor, mask: torch.Tensor | None, num_iterations: int, normalize_total_input: bool
    ) -> torch.Tensor:
        """Return what `dynamic_routing_chunked` returns."""

    def additive_scores(self, query: torch.Tensor, keys: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        """Queries [R, T, D], keys [R, N, D] and w [D], in float32 -> [R, T, N]."""


_kernels: list[KernelRouting] = []
_preferred = RoutingForm(os.environ.get("HF_CAPSULE_MT_ROUTING", "chunked"))


def register_kernels(kernels: KernelRouting) -> None:
    """Offer the kernels that the form TRITON runs."""
    _kernels[:] = [kernels]


def kernels_for(votes: torch.Tensor, num_iterations: int) -> KernelRouting | None:
    """Return the kernels, if they are preferred and take these votes [..., N, M, D]."""
    if _preferred is not RoutingForm.TRITON or not _kernels or not _kernels[0].takes_votes(votes, num_iterations):
        return None
    return _kernels[0]


def kernels_for_scores(tensor: torch.Tensor) -> KernelRouting | None:
    """Return the kernels, if they are preferred and take scores of this device and dtype."""
    if _preferred is not RoutingForm.TRITON or not _kernels or not _kernels[0].takes(tensor):
        return None
    return _kernels[0]


def use_routing_form(form: RoutingForm | str) -> RoutingForm:
    """Prefer a form from now on, and return the previous one. HF_CAPSULE_MT_ROUTING sets the first.

    The plain form runs anyway when routing weights are returned or a compiler traces the call. Guided routing returns
    weights from its chunked form too.
    """
    global _preferred
    previous, _preferred = _preferred, RoutingForm(form)
    return previous


def choose_form(votes: torch.Tensor, *, return_weights: bool, detach_routing: bool) -> RoutingForm:
    """Return the plain form for weights, detached weights and compilers, else the preferred one."""
    if return_weights or detach_routing or torch.compiler.is_compiling() or votes.device.type == "meta":
        return RoutingForm.PLAIN
    return _preferred


def on_chunk(function: Callable[..., Any], num_rows: int, votes: torch.Tensor) -> Callable[..., Any]:
    """Return the function for a chunk of `num_rows`: compiled, if that form is preferred.

    The last chunk of a batch is shorter than the others and not worth a compilation of its own.
    """
    if _preferred is RoutingForm.COMPILED and num_rows == chunk_rows(votes):
        return _compiled(function)
    return function


@functools.cache
def _compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    return torch.compile(function, dynamic=False)


# -------------------- hf_capsule_mt.routing.additive

# e^(2q) and e^(2k) of numbers up to this size and their product are either good float32 numbers, or so large or small
# that the tanh of the sum is one
LARGEST_SEPARABLE = 40.0


def additive_scores(query: torch.Tensor, keys: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Return w . tanh(q_t + k_n) for all t and n, without holding more than a slice of the [..., T, N, D] tensor.

    Args:
        query: q [..., T, D].
        keys: k [..., N, D], with the same leading sizes.
        weight: w [D].

    Returns:
        Scores [..., T, N], in float32 at least.
    """
    dtype = iteration_dtype(keys)
    query, keys, weight = query.to(dtype), keys.to(dtype), weight.to(dtype)
    with without_autocast(keys):
        if choose_form(keys, return_weights=False, detach_routing=False) is RoutingForm.PLAIN:
            return torch.matmul(torch.tanh(query.unsqueeze(-2) + keys.unsqueeze(-3)), weight)
        rows = keys.shape[:-2].numel()
        kernels = kernels_for_scores(keys)
        score = _AdditiveScores.apply if kernels is None else kernels.additive_scores
        scores = score(query.reshape(rows, *query.shape[-2:]), keys.reshape(rows, *keys.shape[-2:]), weight)
        return scores.view(*query.shape[:-1], keys.shape[-2])


class _AdditiveScores(torch.autograd.Function):
    """With r = sigmoid(-2 (q + k)): tanh(q + k) = 1 - 2 r, and its slope is 4 r (1 - r).

    The gates r are computed a chunk at a time, and once more in the backward pass. On a CPU, where a tanh costs as
    much as forty multiplications, r = 1 / (1 + e^(2q) e^(2k)): exponentials of queries and keys, not of their pairs.
    """

    @staticmethod
    def forward(ctx: Any, query: torch.Tensor, keys: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        """[R, T, D], [R, N, D] and [D] -> [R, T, N]."""
        ctx.save_for_backward(query, keys, weight)
        scores = query.new_empty(*query.shape[:2], keys.shape[1])
        for rows, steps, gates in _chunks_of_gates(query, keys):
            scores[rows, steps] = torch.mv(gates.view(-1, len(weight)), weight).view(gates.shape[:-1])
        return scores.mul_(-2).add_(weight.sum())

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad_scores: torch.Tensor) -> tuple[torch.Tensor, ...]:
        query, keys, weight = ctx.saved_tensors
        grad_query, grad_keys = torch.zeros_like(query), torch.zeros_like(keys)
        grad_weight = torch.zeros_like(weight)
        with without_autocast(query):
            for rows, steps, gates in _chunks_of_gates(query, keys):
                grad = grad_scores[rows, steps]  # [R, T, N]
                of_rows = torch.bmm(grad.reshape(len(grad), 1, -1), gates.flatten(1, 2))  # short sums
                grad_weight += of_rows.sum(dim=(0, 1))
                slopes = torch.ops.aten.sigmoid_backward(grad.unsqueeze(-1), gates)  # g r (1 - r) [R, T, N, D]
                grad_query[rows, steps] = slopes.sum(dim=2)
                grad_keys[rows] += slopes.sum(dim=1)
        grad_weight = grad_scores.sum() - 2 * grad_weight
        return grad_query.mul_(4 * weight), grad_keys.mul_(4 * weight), grad_weight


def _chunks_of_gates(query: torch.Tensor, keys: torch.Tensor) -> Iterator[tuple[slice, slice, torch.Tensor]]:
    """Yield the gates r of queries [R, T, D] and keys [R, N, D] by chunks: rows, queries and r [R', T', N, D]."""
    num_rows, num_queries, _ = query.shape
    if query.numel() == 0 or keys.numel() == 0:
        return
    of_a_query = keys[0].numel()
    numbers = chunk_numbers(keys, num_rows * num_queries * of_a_query)
    queries_at_once = min(num_queries, max(1, numbers // of_a_query))
    rows_at_once = min(num_rows, max(1, numbers // (queries_at_once * of_a_query)))
    separable = reads_are_free(query) and num_queries > 1 and _all_below(LARGEST_SEPARABLE, query, keys)
    buffer = query.new_empty(rows_at_once * queries_at_once * of_a_query)
    one = query.new_ones(())
    for row in range(0, num_rows, rows_at_once):
        rows = slice(row, row + rows_at_once)
        of_keys = (2 * keys[rows]).exp_() if separable else keys[rows]
        of_keys = of_keys.unsqueeze(1)  # [R', 1, N, D]
        for step in range(0, num_queries, queries_at_once):
            steps = slice(step, step + queries_at_once)
            of_queries = (2 * query[rows, steps]).exp_() if separable else query[rows, steps]
            of_queries = of_queries.unsqueeze(2)  # [R', T', 1, D]
            shape = (of_queries.shape[0], of_queries.shape[1], *of_keys.shape[2:])
            gates = buffer[: torch.Size(shape).numel()].view(shape)
            if separable:
                torch.addcmul(one, of_queries, of_keys, out=gates)
                yield rows, steps, gates.reciprocal_()
            else:
                torch.add(-2 * of_queries, of_keys, alpha=-2, out=gates)
                yield rows, steps, gates.sigmoid_()


def _all_below(limit: float, *tensors: torch.Tensor) -> bool:
    return all(bool(tensor.abs().amax() < limit) for tensor in tensors)


# -------------------- hf_capsule_mt.routing.squash

SQUASH_EPSILON = 1e-9


def squash(capsules: torch.Tensor) -> torch.Tensor:
    """Shrink each capsule [..., D] to a length below one, keeping its direction.

    squash(s) = |s|^2 / (1 + |s|^2) * s / |s|, written as s * sqrt(|s|^2 + 1e-9) / (1 + |s|^2), whose gradient is
    finite at s = 0, where the usual form gives NaN.

    Relations: for D = 1 it is s|s| / (1 + s^2); a long capsule keeps almost its unit vector, a short one its square.
    """
    # in float32 at least: the squared norm of a half-precision capsule of length 300 is already infinite
    values = capsules.to(torch.promote_types(capsules.dtype, torch.float32))
    squared_norm = values.square().sum(dim=-1, keepdim=True)  # [..., 1]
    return (values * (squared_norm + SQUASH_EPSILON).sqrt() / (1 + squared_norm)).to(capsules.dtype)


def squash_backward(capsules: torch.Tensor, grad_squashed: torch.Tensor) -> torch.Tensor:
    """Return the gradient by s [..., D] of `squash(s)`, given the gradient by its result."""
    squared_norm = capsules.square().sum(dim=-1, keepdim=True)  # [..., 1]
    norm = (squared_norm + SQUASH_EPSILON).sqrt()
    scale = norm / (1 + squared_norm)
    scale_slope = (0.5 / norm - scale) / (1 + squared_norm)  # d scale / d |s|^2
    return grad_squashed * scale + 2 * capsules * scale_slope * (capsules * grad_squashed).sum(dim=-1, keepdim=True)


# -------------------- hf_capsule_mt.routing.dynamic_chunked

def dynamic_routing_chunked(
    votes: torch.Tensor, mask: torch.Tensor | None, num_iterations: int, normalize_total_input: bool
) -> torch.Tensor:
    """Return the output capsules [..., M, D] of `dynamic_routing_plain` for the same arguments."""
    capsules = _DynamicRouting.apply(
        flatten_positions(votes, 3), flatten_positions(mask, 1), num_iterations, normalize_total_input
    )
    return capsules.view(*votes.shape[:-3], *votes.shape[-2:])


class _DynamicStep(NamedTuple):
    """One iteration, as the backward pass needs it."""

    log_assignment: torch.Tensor | None  # log C [P, N, M], None in the first iteration, where it is constant
    weight: torch.Tensor | None  # what multiplies the votes [P, N, M]; None where it is the same for all inputs
    scale: float  # and what multiplies it
    total_input: torch.Tensor  # S [P, M, D]
    capsules: torch.Tensor  # Omega [P, M, D]


def _route_dynamic(
    values: torch.Tensor, keep: torch.Tensor | None, num_iterations: int, normalize_total_input: bool
) -> list[_DynamicStep]:
    """Run the iterations over one chunk of votes [P, N, M, D]."""
    num_inputs, num_outputs = values.shape[1:3]
    steps: list[_DynamicStep] = []
    logits = None  # B [P, N, M]
    for iteration in range(num_iterations):
        log_assignment, weight, scale = None, None, 1.0
        if logits is None and keep is None:
            scale = 1 / num_inputs if normalize_total_input else 1 / num_outputs
        else:
            if logits is None:
                logits = values.new_zeros(values.shape[:-1])
            log_assignment = logits.log_softmax(dim=-1)
            if normalize_total_input:
                weight = _shares(log_assignment, keep)
            else:
                weight = log_assignment.exp()
                if keep is not None:
                    weight.mul_(keep)
        total_input = weighted_sum(weight, values) * scale  # [P, M, D]
        capsules = squash(total_input)
        steps.append(_DynamicStep(log_assignment, weight, scale, total_input, capsules))
        if iteration < num_iterations - 1:
            agreement = sum_width(values * capsules.unsqueeze(1))  # [P, N, M]
            logits = agreement if logits is None else logits + agreement
    return steps


def _shares(log_assignment: torch.Tensor, keep: torch.Tensor | None) -> torch.Tensor:
    """Return C / sum_n C [P, N, M] without dividing by a tiny sum."""
    if keep is None:
        return log_assignment.softmax(dim=1)
    lowest = torch.finfo(log_assignment.dtype).min
    return log_assignment.masked_fill(~keep, lowest).softmax(dim=1).mul_(keep)


class _DynamicRouting(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, votes: torch.Tensor, mask: torch.Tensor | None, num_iterations: int, normalize_total_input: bool
    ) -> torch.Tensor:
        ctx.save_for_backward(votes, mask)
        ctx.settings = (num_iterations, normalize_total_input)
        capsules = votes.new_empty(votes.shape[0], *votes.shape[2:])
        for rows in chunk_slices(votes):
            values, keep = chunk_values(rows, votes, mask)
            run = on_chunk(_dynamic_forward, len(values), votes)
            capsules[rows] = run(values, keep, num_iterations, normalize_total_input)
        return capsules

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad_capsules: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        votes, mask = ctx.saved_tensors
        grad_votes = torch.empty_like(votes)
        for rows in chunk_slices(votes):
            values, keep = chunk_values(rows, votes, mask)
            run = on_chunk(_dynamic_backward, len(values), votes)
            grad_votes[rows] = run(grad_capsules[rows].to(values.dtype), values, keep, *ctx.settings)
        return grad_votes, None, None, None


def _dynamic_forward(
    values: torch.Tensor, keep: torch.Tensor | None, num_iterations: int, normalize_total_input: bool
) -> torch.Tensor:
    """Return the output capsules [P, M, D] of one chunk."""
    return _route_dynamic(values, keep, num_iterations, normalize_total_input)[-1].capsules


def _dynamic_backward(
    grad_capsules: torch.Tensor,
    values: torch.Tensor,
    keep: torch.Tensor | None,
    num_iterations: int,
    normalize_total_input: bool,
) -> torch.Tensor:
    """Return the gradient by the votes [P, N, M, D] of one chunk."""
    steps = _route_dynamic(values, keep, num_iterations, normalize_total_input)
    grad_values = torch.zeros_like(values)
    grad_logits = None  # by the logits B of the following iteration [P, N, M]
    for step in reversed(steps):
        # B of the following iteration = B + Omega . V
        if grad_logits is not None:
            grad_capsules = weighted_sum(grad_logits, values)  # [P, M, D]
            grad_values.addcmul_(grad_logits.unsqueeze(-1), step.capsules.unsqueeze(1))

        # Omega = squash(scale sum_n weight V)
        grad_total_input = squash_backward(step.total_input, grad_capsules).unsqueeze(1) * step.scale  # [P, 1, M, D]
        grad_values.add_(times_weight(step.weight, grad_total_input))
        if step is steps[0] or step.weight is None or step.log_assignment is None:
            break  # the logits of the first iteration are constant
        grad_weight = sum_width(values * grad_total_input)  # [P, N, M]

        # weight = softmax_n(log C), or C
        if normalize_total_input:
            grad_weight -= (step.weight * grad_weight).sum(dim=1, keepdim=True)
        grad_log_assignment = grad_weight.mul_(step.weight)

        # log C = log_softmax_m(B)
        total = grad_log_assignment.sum(dim=-1, keepdim=True)
        through_assignment = grad_log_assignment.addcmul_(step.log_assignment.exp(), total, value=-1)
        grad_logits = through_assignment if grad_logits is None else grad_logits.add_(through_assignment)
    return grad_values


# -------------------- hf_capsule_mt.routing.dynamic

def dynamic_routing(
    votes: torch.Tensor,
    *,
    num_iterations: int,
    mask: torch.Tensor | None = None,
    normalize_total_input: bool = False,
    detach_routing: bool = False,
    return_weights: bool = True,
) -> RoutingOutput:
    """Route N input capsules to M output capsules by the scalar product of a vote with the capsule it votes for.

    With B = 0 at the start, each of the T iterations computes, for inputs n and outputs m,

        C_nm    = softmax_m(B_nm)
        S_m     = sum_n C_nm V_nm        (divided by sum_n C_nm if `normalize_total_input`)
        Omega_m = squash(S_m)
        B_nm   += Omega_m . V_nm         (not after the last)

    Args:
        votes: V [..., N, M, D].
        num_iterations: T, the number of weighted sums.
        mask: [..., N], True keeps an input capsule.
        normalize_total_input: equation 7 of Li et al., which makes this their simple routing. Many output capsules
            need it: at M = 512 and D = 1 the total input is a sum of a few votes times 1/512, squash squares it, and
            no routing happens.
        detach_routing: treat C as a constant in the backward pass.
        return_weights: whether to return C of every iteration; without them a faster form may run.

    Returns:
        `RoutingOutput`: Omega [..., M, D] and T tensors C [..., N, M], in the dtype of the votes.

    Relations: one iteration is `squash` of the sum (of the mean) of the votes over M; one output capsule makes the
    result independent of T; votes that are equal for all outputs stay uniformly routed.
    """
    check_votes(votes, num_iterations, mask)
    if mask is not None:
        votes = votes.masked_fill(~mask[..., None, None], 0)  # whatever padding holds, even NaN, must not spread
    if choose_form(votes, return_weights=return_weights, detach_routing=detach_routing) is not RoutingForm.PLAIN:
        kernels = kernels_for(votes, num_iterations)
        route = dynamic_routing_chunked if kernels is None else kernels.dynamic_routing
        return RoutingOutput(route(votes, mask, num_iterations, normalize_total_input), None)
    return dynamic_routing_plain(votes, mask, num_iterations, normalize_total_input, detach=detach_routing)


def dynamic_routing_plain(
    votes: torch.Tensor, mask: torch.Tensor | None, num_iterations: int, normalize_total_input: bool, *, detach: bool
) -> RoutingOutput:
    """The reference form: the equations, line by line."""
    values = votes.to(iteration_dtype(votes))  # [..., N, M, D]
    logits = values.new_zeros(values.shape[:-1])  # [..., N, M]
    keep = None if mask is None else mask.unsqueeze(-1)  # [..., N, 1]
    weights = []
    for iteration in range(num_iterations):
        log_assignment = logits.log_softmax(dim=-1)  # [..., N, M]
        if detach:
            log_assignment = log_assignment.detach()
        assignment = log_assignment.exp()
        if keep is not None:
            assignment = assignment * keep
        weights.append(assignment.to(votes.dtype))
        share = shares(log_assignment, keep) if normalize_total_input else assignment
        capsules = squash((share.unsqueeze(-1) * values).sum(dim=-3))  # [..., M, D]
        if iteration < num_iterations - 1:
            logits = logits + (capsules.unsqueeze(-3) * values).sum(dim=-1)
    return RoutingOutput(capsules.to(votes.dtype), tuple(weights))


def shares(log_assignment: torch.Tensor, keep: torch.Tensor | None) -> torch.Tensor:
    """Return C_nm / sum_n C_nm [..., N, M] as a softmax over the inputs: exact, without dividing by a tiny sum."""
    if keep is None:
        return log_assignment.softmax(dim=-2)
    lowest = torch.finfo(log_assignment.dtype).min
    return log_assignment.masked_fill(~keep, lowest).softmax(dim=-2) * keep


# -------------------- hf_capsule_mt.routing.em_chunked

ENTROPY_CONSTANT = 1 + math.log(2 * math.pi)
# Up to this width the mass of an output capsule cannot underflow: some input is within one standard deviation per
# dimension, so its density is at worst some e^-18 of the largest, to the power of the width, for votes up to 1e6.
LARGEST_DIRECT_WIDTH = 4
LARGEST_DIRECT_WIDTH_WITH_ACTIVATION = 2  # which may be 1e-20
SMALLEST_ACTIVATION = 1e-20  # what is multiplied by 1 / A in a backward pass must not overflow


def em_routing_chunked(
    votes: torch.Tensor,
    mask: torch.Tensor | None,
    input_activation: torch.Tensor | None,
    beta_a: torch.Tensor,
    beta_u: torch.Tensor,
    lambdas: tuple[float, ...],
    min_variance: float,
) -> torch.Tensor:
    """Return the output capsules [..., M, D] of `em_routing_plain` for the same arguments."""
    capsules = _EMRouting.apply(
        flatten_positions(votes, 3),
        flatten_positions(mask, 1),
        flatten_positions(input_activation, 2),
        beta_a,
        beta_u,
        lambdas,
        min_variance,
    )
    return capsules.view(*votes.shape[:-3], *votes.shape[-2:])


class _EMStep(NamedTuple):
    """One iteration, as the backward pass needs it."""

    assignment: torch.Tensor | None  # C [P, N, M], None in the first iteration, where it is constant
    weight: torch.Tensor | None  # R / sum_n R [P, N, M], or R over its peak; None where it is the same for all inputs
    scale: torch.Tensor  # weight * scale = R / sum_n R [P, M, 1] or []
    total_mass: torch.Tensor  # sum_n R [P, M]
    mean: torch.Tensor  # mu [P, M, D]
    variance: torch.Tensor  # sigma [P, M, D]
    half_entropy: torch.Tensor  # cost / sum_n R [P, M]
    log_output_activation: torch.Tensor  # log a [P, M]


def _route_em(
    values: torch.Tensor,
    keep: torch.Tensor | None,
    activation: torch.Tensor | None,
    beta_a: torch.Tensor,
    beta_u: torch.Tensor,
    lambdas: tuple[float, ...],
    min_variance: float,
) -> list[_EMStep]:
    """Run the iterations over one chunk of votes [P, N, M, D], with the input activation [P, N, M]."""
    steps: list[_EMStep] = []
    logits = None
    for iteration, inverse_temperature in enumerate(lambdas):
        # M-step
        assignment, weight, total_mass, scale = _weights(values, logits, keep, activation)
        mean = weighted_sum(weight, values).mul_(scale)  # [P, M, D]
        squared_distance = (values - mean.unsqueeze(1)).square_()  # [P, N, M, D]
        variance = weighted_sum(weight, squared_distance).mul_(scale).add_(min_variance)  # [P, M, D]
        log_variance = variance.log().sum(dim=-1)  # [P, M]
        half_entropy = (log_variance + values.shape[-1] * ENTROPY_CONSTANT).mul_(0.5)
        log_output_activation = torch.nn.functional.logsigmoid(
            inverse_temperature * (beta_a - (beta_u + half_entropy) * total_mass)
        )  # [P, M]
        steps.append(
            _EMStep(assignment, weight, scale, total_mass, mean, variance, half_entropy, log_output_activation)
        )

        # E-step; the constant part of the log density is the same for every output and cancels in the softmax
        if iteration < len(lambdas) - 1:
            offset = (log_output_activation - 0.5 * log_variance).unsqueeze(1)  # [P, 1, M]
            half_precision = (0.5 / variance).unsqueeze(1)  # [P, 1, M, D]
            if values.shape[-1] == 1:
                logits = torch.addcmul(
                    offset, squared_distance.squeeze(-1), half_precision.squeeze(-1), value=-1
                )  # [P, N, M]
            else:
                logits = offset - squared_distance.mul_(half_precision).sum(dim=-1)
    return steps


def _weights(
    values: torch.Tensor, logits: torch.Tensor | None, keep: torch.Tensor | None, activation: torch.Tensor | None
) -> tuple[torch.Tensor | None, torch.Tensor | None, torch.Tensor, torch.Tensor]:
    """Return C from its logits [P, N, M] (None in the first iteration), the weight, the mass [P, M] and the scale."""
    num_inputs, num_outputs, width = values.shape[1:]
    if logits is None and activation is None and keep is None:
        mass = values.new_full((values.shape[0], num_outputs), num_inputs / num_outputs)
        return None, None, mass, values.new_full((), 1 / num_inputs)

    if width > (LARGEST_DIRECT_WIDTH if activation is None else LARGEST_DIRECT_WIDTH_WITH_ACTIVATION):
        if logits is None:
            log_assignment = values.new_full(values.shape[:-1], -math.log(num_outputs))
        else:
            log_assignment = logits.log_softmax(dim=-1)
        assignment = None if logits is None else log_assignment.exp()
        log_mass = log_assignment
        if activation is not None:
            log_mass = log_mass + activation.log()
        weight, total, peak = exponential_weights(log_mass, keep)
        return assignment, weight, peak.exp() * total, (1 / total).unsqueeze(-1)

    if logits is None:
        assignment, weight = None, values.new_full(values.shape[:-1], 1 / num_outputs)
    else:
        assignment = weight = logits.softmax(dim=-1)
    if activation is not None:
        weight = weight * activation
    if keep is not None:
        weight = weight * keep
    mass = weight.sum(dim=1)
    # divided, not multiplied by 1 / mass, which would leave an input that is alone at a rounding error from its mean
    share = weight / mass.clamp(min=torch.finfo(mass.dtype).tiny).unsqueeze(1)
    return assignment, share, mass, values.new_ones(())


class _EMRouting(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        votes: torch.Tensor,
        mask: torch.Tensor | None,
        input_activation: torch.Tensor | None,
        beta_a: torch.Tensor,
        beta_u: torch.Tensor,
        lambdas: tuple[float, ...],
        min_variance: float,
    ) -> torch.Tensor:
        ctx.save_for_backward(votes, mask, input_activation, beta_a, beta_u)
        ctx.settings = (lambdas, min_variance)
        capsules = votes.new_empty(votes.shape[0], *votes.shape[2:])
        for rows in chunk_slices(votes):
            values, keep = chunk_values(rows, votes, mask)
            activation = _chunk_of_activation(rows, input_activation, values)
            run = on_chunk(_em_forward, len(values), votes)
            capsules[rows] = run(values, keep, activation, beta_a, beta_u, lambdas, min_variance)
        return capsules

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad_capsules: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        votes, mask, input_activation, beta_a, beta_u = ctx.saved_tensors
        lambdas, min_variance = ctx.settings
        grad_votes = torch.empty_like(votes)
        grad_activation = None if input_activation is None else torch.empty_like(input_activation)
        grad_beta_a, grad_beta_u = torch.zeros_like(beta_a), torch.zeros_like(beta_u)
        for rows in chunk_slices(votes):
            values, keep = chunk_values(rows, votes, mask)
            activation = _chunk_of_activation(rows, input_activation, values)
            grad_chunk = grad_capsules[rows].to(values.dtype)
            run = on_chunk(_em_backward, len(values), votes)
            grads = run(grad_chunk, values, keep, activation, beta_a, beta_u, lambdas, min_variance)
            grad_votes[rows] = grads[0]
            if input_activation is not None and grad_activation is not None:
                clamped = input_activation[rows].to(values.dtype) < SMALLEST_ACTIVATION
                grad_activation[rows] = grads[1].masked_fill_(clamped, 0)
            grad_beta_a += grads[2]
            grad_beta_u += grads[3]
        return grad_votes, None, grad_activation, grad_beta_a, grad_beta_u, None, None


def _chunk_of_activation(
    rows: slice, input_activation: torch.Tensor | None, values: torch.Tensor
) -> torch.Tensor | None:
    """Return the input activation [P, N, M] of one chunk, in the dtype of its values, without copying the others."""
    return None if input_activation is None else input_activation[rows].to(values.dtype).clamp(min=SMALLEST_ACTIVATION)


def _em_forward(
    values: torch.Tensor,
    keep: torch.Tensor | None,
    activation: torch.Tensor | None,
    beta_a: torch.Tensor,
    beta_u: torch.Tensor,
    lambdas: tuple[float, ...],
    min_variance: float,
) -> torch.Tensor:
    """Return the output capsules [P, M, D] of one chunk."""
    last = _route_em(values, keep, activation, beta_a, beta_u, lambdas, min_variance)[-1]
    return last.log_output_activation.exp().unsqueeze(-1) * last.mean


def _em_backward(
    grad_capsules: torch.Tensor,
    values: torch.Tensor,
    keep: torch.Tensor | None,
    activation: torch.Tensor | None,
    beta_a: torch.Tensor,
    beta_u: torch.Tensor,
    lambdas: tuple[float, ...],
    min_variance: float,
) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor, torch.Tensor]:
    """Return the gradients by the votes [P, N, M, D], the input activation [P, N, M], beta_a [M] and beta_u [M]."""
    steps = _route_em(values, keep, activation, beta_a, beta_u, lambdas, min_variance)
    last = steps[-1]
    grad_mean = grad_capsules * last.log_output_activation.exp().unsqueeze(-1)  # [P, M, D]
    grad_log_output_activation = (grad_mean * last.mean).sum(dim=-1)  # [P, M]
    grad_values = torch.zeros_like(values)
    grad_log_activation = None if activation is None else values.new_zeros(values.shape[:-1])
    grad_beta_a, grad_beta_u = torch.zeros_like(beta_u), torch.zeros_like(beta_u)
    grad_logits = None  # by the logits of the next iteration's C [P, N, M]
    for step, inverse_temperature in zip(reversed(steps), reversed(lambdas), strict=True):
        offset = values - step.mean.unsqueeze(1)  # V - mu [P, N, M, D]
        precision = 1 / step.variance  # [P, M, D]
        grad_variance = torch.zeros_like(precision)

        # E-step: logits = log a - sum_d (log sigma + (V - mu)^2 / sigma) / 2
        if grad_logits is not None:
            product = grad_logits.unsqueeze(-1) * offset  # [P, N, M, D]
            grad_mean = product.sum(dim=1).mul_(precision)
            second_moment = product.mul_(offset).sum(dim=1)
            grad_log_output_activation = grad_logits.sum(dim=1)  # [P, M]
            grad_variance = 0.5 * precision * (precision * second_moment - grad_log_output_activation.unsqueeze(-1))

        # log a = logsigmoid(lambda (beta_a - (beta_u + half_entropy) mass))
        gate = grad_log_output_activation * inverse_temperature * -torch.expm1(step.log_output_activation)  # [P, M]
        gated_mass = gate * step.total_mass
        grad_beta_a += gate.sum(dim=0)
        grad_beta_u -= gated_mass.sum(dim=0)
        grad_variance -= 0.5 * gated_mass.unsqueeze(-1) * precision
        grad_log_mass = -gated_mass * (beta_u + step.half_entropy)  # [P, M]

        # M-step: mu = sum_n share V, sigma = sum_n share (V - mu)^2 + min_variance, share = softmax_n(log R). The
        # softmax takes from each input's gradient the mean over the inputs, which is that of the variance:
        # sum_n share (V - mu) = 0, and sum_n share (V - mu)^2 = sigma - min_variance
        common = grad_log_mass - (grad_variance * (step.variance - min_variance)).sum(dim=-1)  # [P, M]
        scaled_mean = (grad_mean * step.scale).unsqueeze(1)  # [P, 1, M, D]
        scaled_variance = (grad_variance * step.scale).unsqueeze(1)
        slope = times_weight(step.weight, 2 * scaled_variance)  # [P, N, M, D], or [P, 1, M, D]
        if grad_logits is not None:
            slope = torch.addcmul(slope, grad_logits.unsqueeze(-1), precision.unsqueeze(1), value=-1)
        grad_values.add_(times_weight(step.weight, scaled_mean)).addcmul_(offset, slope)
        if step is steps[0] and grad_log_activation is None:
            break  # its C is constant
        inner = torch.addcmul(scaled_mean, offset, scaled_variance).mul_(offset)  # [P, N, M, D]
        grad_log_weight = sum_width(inner).add_((common.unsqueeze(-1) * step.scale).transpose(1, 2))
        grad_log_weight = times_weight(step.weight, grad_log_weight.unsqueeze(-1)).squeeze(-1)
        if grad_log_activation is not None:
            grad_log_activation += grad_log_weight

        # C = softmax_m(logits)
        if step.assignment is not None:
            total = grad_log_weight.sum(dim=-1, keepdim=True)
            grad_logits = grad_log_weight.addcmul_(step.assignment, total, value=-1)
    if grad_log_activation is None or activation is None:
        return grad_values, None, grad_beta_a, grad_beta_u
    return grad_values, grad_log_activation.div_(activation), grad_beta_a, grad_beta_u


# -------------------- hf_capsule_mt.routing.em

LOG_TWO_PI = math.log(2 * math.pi)


def em_lambda_schedule(num_iterations: int, lambda_final: float = 0.01) -> tuple[float, ...]:
    """Return the inverse temperatures lambda_t = lambda_final * (1 - 0.95^(t+1)), t = 0 ... T-1, of Hinton et al."""
    return tuple(lambda_final * (1 - 0.95 ** (iteration + 1)) for iteration in range(num_iterations))


def em_routing(
    votes: torch.Tensor,
    *,
    num_iterations: int,
    mask: torch.Tensor | None = None,
    input_activation: torch.Tensor | None = None,
    beta_a: torch.Tensor,
    beta_u: torch.Tensor,
    lambda_final: float = 0.01,
    min_variance: float = 5e-4,
    lambda_schedule: Sequence[float] | None = None,
    detach_routing: bool = False,
    return_weights: bool = True,
) -> RoutingOutput:
    """Route N input capsules to M Gaussians fitted to their votes.

    With C_nm = 1/M at the start, each of the T iterations computes, for inputs n, outputs m and dimensions d,

        M-step  R_nm     = C_nm A_n                              (A: the input activation, 1 if there is none)
                mu_md    = sum_n R_nm V_nmd / sum_n R_nm
                sigma_md = sum_n R_nm (V_nmd - mu_md)^2 / sum_n R_nm + min_variance       (the variance)
                cost_m   = sum_d (log(sigma_md) + 1 + log 2 pi) / 2 * sum_n R_nm
                a_m      = logistic(lambda_t (beta_a - beta_u sum_n R_nm - cost_m))
        E-step  C_nm     = softmax_m(log a_m + log N(V_nm; mu_m, sigma_m))                (not after the last)

    and the output capsule is a_m mu_m. Everything that can be tiny is kept as a logarithm.

    Args:
        votes: V [..., N, M, D].
        num_iterations: T, the number of M-steps.
        mask: [..., N], True keeps an input capsule.
        input_activation: A, the probability that an input capsule is present, [..., N] or, one for each output that
            it votes for, [..., N, M]. Less than 1e-20 counts as 1e-20.
        beta_a, beta_u: the learned costs [M].
        lambda_final, lambda_schedule: the inverse temperatures, as the end of Hinton's schedule or one by one.
        min_variance: added to every variance.
        detach_routing: treat C as a constant in the backward pass.
        return_weights: whether to return C of every iteration; without them a faster form may run.

    Returns:
        `RoutingOutput`: a mu [..., M, D] and T tensors C [..., N, M] (before they meet A), in the dtype of the votes.

    Relations: one iteration gives the (A-weighted) mean of the votes times a; shifting all votes for one output by a
    constant shifts its mu and changes nothing else. With the default temperatures and M = 512, a stays within 1e-3
    of one half and the betas hardly matter.
    """
    # Deviation: the density is divided by sigma, not by sigma^2 as both papers print it: the text says "probability
    # density under the Gaussian", which the printed form is not. The densities of the D dimensions are multiplied, as
    # in Hinton et al. and Dou et al.; Li et al. print a sum. At D = 1, the setting of every table, both are the same.
    check_votes(votes, num_iterations, mask)
    num_outputs = votes.shape[-2]
    for name, beta in (("beta_a", beta_a), ("beta_u", beta_u)):
        check_shape(name, beta, torch.Size([num_outputs]), votes)
    if input_activation is not None:
        if input_activation.dim() == votes.dim() - 2:
            check_shape("input_activation", input_activation, votes.shape[:-2], votes)
            input_activation = input_activation.unsqueeze(-1).expand(votes.shape[:-1])
        else:
            check_shape("input_activation", input_activation, votes.shape[:-1], votes)
    lambdas = em_lambda_schedule(num_iterations, lambda_final) if lambda_schedule is None else tuple(lambda_schedule)
    if len(lambdas) != num_iterations:
        raise ValueError(f"`lambda_schedule` has {len(lambdas)} values for `num_iterations` {num_iterations}")
    if mask is not None:  # whatever padding holds, even NaN, must not spread
        votes = votes.masked_fill(~mask[..., None, None], 0)
        if input_activation is not None:
            input_activation = input_activation.masked_fill(~mask.unsqueeze(-1), 1)

    beta_a, beta_u = beta_a.to(iteration_dtype(votes)), beta_u.to(iteration_dtype(votes))
    form = choose_form(votes, return_weights=return_weights, detach_routing=detach_routing)
    if form is not RoutingForm.PLAIN:
        kernels = kernels_for(votes, num_iterations)
        route = em_routing_chunked if kernels is None else kernels.em_routing
        capsules = route(votes, mask, input_activation, beta_a, beta_u, lambdas, min_variance)
        return RoutingOutput(capsules, None)
    return em_routing_plain(
        votes, mask, input_activation, beta_a, beta_u, lambdas, min_variance, detach=detach_routing
    )


def em_routing_plain(
    votes: torch.Tensor,
    mask: torch.Tensor | None,
    input_activation: torch.Tensor | None,
    beta_a: torch.Tensor,
    beta_u: torch.Tensor,
    lambdas: tuple[float, ...],
    min_variance: float,
    *,
    detach: bool,
) -> RoutingOutput:
    """The reference form: the equations, line by line."""
    values = votes.to(iteration_dtype(votes))  # [..., N, M, D]
    keep = None if mask is None else mask.unsqueeze(-1)  # [..., N, 1]
    log_assignment = values.new_full(values.shape[:-1], -math.log(values.shape[-2]))  # [..., N, M]
    weights = []
    for iteration, inverse_temperature in enumerate(lambdas):
        if detach:
            log_assignment = log_assignment.detach()
        assignment = log_assignment.exp()
        weights.append((assignment if keep is None else assignment * keep).to(votes.dtype))

        # M-step
        log_mass = log_assignment  # [..., N, M]
        if input_activation is not None:
            log_mass = log_mass + input_activation.to(values.dtype).clamp(min=SMALLEST_ACTIVATION).log()
        share = shares(log_mass, keep).unsqueeze(-1)  # R / sum R [..., N, M, 1]
        if keep is not None:
            log_mass = log_mass.masked_fill(~keep, -math.inf)
        total_mass = log_mass.exp().sum(dim=-2)  # [..., M]
        mean = (share * values).sum(dim=-3)  # [..., M, D]
        squared_distance = (values - mean.unsqueeze(-3)).square()  # [..., N, M, D]
        variance = (share * squared_distance).sum(dim=-3) + min_variance  # [..., M, D]
        cost = 0.5 * (variance.log() + 1 + LOG_TWO_PI).sum(dim=-1) * total_mass  # [..., M]
        log_output_activation = torch.nn.functional.logsigmoid(
            inverse_temperature * (beta_a - beta_u * total_mass - cost)
        )  # [..., M]

        # E-step
        if iteration < len(lambdas) - 1:
            log_density = -0.5 * (
                squared_distance / variance.unsqueeze(-3) + variance.log().unsqueeze(-3) + LOG_TWO_PI
            )
            log_density = log_density.sum(dim=-1)  # [..., N, M]
            log_assignment = (log_output_activation.unsqueeze(-2) + log_density).log_softmax(dim=-1)
    capsules = log_output_activation.exp().unsqueeze(-1) * mean  # [..., M, D]
    return RoutingOutput(capsules.to(votes.dtype), tuple(weights))


# -------------------- hf_capsule_mt.routing.guided

class GuidedScorer(NamedTuple):
    """The weights of the scores: W_z [D, d], W_v [D, D], W_o [D, D] and w [D]."""

    query_weight: torch.Tensor
    vote_weight: torch.Tensor
    capsule_weight: torch.Tensor
    score_weight: torch.Tensor


class GuidedVotes(NamedTuple):
    """The votes, shared by all queries, with the output capsules in front: weighted sums are then matrix products.

    votes: V [..., M, N, D], zero where the mask is False.
    projected: W_v V [..., M, N, D].
    """

    votes: torch.Tensor
    projected: torch.Tensor


def guided_routing(
    votes: torch.Tensor,
    query: torch.Tensor,
    *,
    query_weight: torch.Tensor,
    vote_weight: torch.Tensor,
    capsule_weight: torch.Tensor,
    score_weight: torch.Tensor,
    num_iterations: int,
    mask: torch.Tensor | None = None,
    return_weights: bool = True,
) -> RoutingOutput:
    """Route N input capsules (source words) to M output capsules, anew for each of T queries (decoder states).

    With B = 0 at the start, each of the iterations computes, for query t, inputs n and outputs m,

        C_tnm    = softmax_m(B_tnm)
        Omega_tm = squash(sum_n C_tnm V_nm)
        B_tnm   += w . tanh(W_b [z_t; V_nm; Omega_tm])       (not after the last)

    where W_b [z; V; Omega] = W_z z + W_v V + W_o Omega, so that a vote is projected once and not once per query.

    Args:
        votes: V [..., N, M, D], the same for all queries.
        query: z [..., T, d].
        query_weight, vote_weight, capsule_weight: W_z [D, d], W_v [D, D] and W_o [D, D].
        score_weight: w [D].
        num_iterations: the number of weighted sums.
        mask: [..., N], True keeps an input capsule.
        return_weights: whether to return C of every iteration.

    Returns:
        `RoutingOutput`: Omega [..., T, M, D] and, for each iteration, C [..., T, N, M], in the dtype of the votes.

    Relations: with w = 0, or one iteration, C is uniform and the query has no influence. `project_votes` and then
    `route_guided_votes` for each query give the same: a decoder does that, and projects once per sentence.
    """
    check_votes(votes, num_iterations, mask)
    width = votes.shape[-1]
    if query.dim() != votes.dim() - 1 or query.shape[:-2] != votes.shape[:-3]:
        raise ValueError(
            f"`query` must be [..., T, d] with the leading sizes of `votes`, got {list(query.shape)} for `votes` of "
            f"shape {list(votes.shape)}"
        )
    check_shape("query_weight", query_weight, torch.Size([width, query.shape[-1]]), votes)
    check_shape("vote_weight", vote_weight, torch.Size([width, width]), votes)
    check_shape("capsule_weight", capsule_weight, torch.Size([width, width]), votes)
    check_shape("score_weight", score_weight, torch.Size([width]), votes)
    scorer = GuidedScorer(query_weight, vote_weight, capsule_weight, score_weight)
    prepared = project_votes(votes.transpose(-2, -3).contiguous(), vote_weight, mask)
    return route_guided_votes(
        prepared, query, scorer, num_iterations=num_iterations, mask=mask, return_weights=return_weights
    )


def project_votes(
    votes: torch.Tensor, vote_weight: torch.Tensor | None, mask: torch.Tensor | None = None
) -> GuidedVotes:
    """Mask votes V [..., M, N, D] by [..., N] and project them by W_v; without W_v, which one iteration does not need,
    return the votes in its place."""
    if mask is not None:
        votes = votes.masked_fill(~mask[..., None, :, None], 0)  # whatever padding holds, even NaN, must not spread
    if vote_weight is None:
        return GuidedVotes(votes, votes)
    dtype = iteration_dtype(votes)
    with without_autocast(votes):
        return GuidedVotes(votes, linear(votes.to(dtype), vote_weight.to(dtype)))


def route_guided_votes(
    prepared: GuidedVotes,
    query: torch.Tensor,
    scorer: GuidedScorer | None,
    *,
    num_iterations: int,
    mask: torch.Tensor | None = None,
    return_weights: bool = True,
) -> RoutingOutput:
    """Route votes that `project_votes` prepared with the same mask [..., N], as `guided_routing` does.

    Args:
        prepared: V and W_v V, each [..., M, N, D].
        query: z [..., T, d].
        scorer: `None` for a single iteration, which scores nothing.
    """
    votes = prepared.votes
    check_num_iterations(num_iterations)
    if scorer is None and num_iterations > 1:
        raise ValueError(f"`scorer` must be given for `num_iterations` {num_iterations}, got None")
    dtype = iteration_dtype(votes)
    with without_autocast(votes):
        form = choose_form(votes, return_weights=False, detach_routing=False)
        route = guided_routing_plain if form is RoutingForm.PLAIN else guided_routing_chunked
        capsules, weights = route(
            GuidedVotes(*(tensor.to(dtype) for tensor in prepared)),
            query.to(dtype),
            None if scorer is None else GuidedScorer(*(weight.to(dtype) for weight in scorer)),
            num_iterations,
            mask,
        )
    if not return_weights:
        return RoutingOutput(capsules.to(votes.dtype), None)
    # [..., T, M, N] -> [..., T, N, M]
    return RoutingOutput(
        capsules.to(votes.dtype), tuple(assignment.transpose(-2, -1).to(votes.dtype) for assignment in weights)
    )


def guided_routing_plain(
    prepared: GuidedVotes,
    query: torch.Tensor,
    scorer: GuidedScorer | None,
    num_iterations: int,
    mask: torch.Tensor | None,
) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """The reference form: the equations, line by line. It holds tensors of [..., T, M, N, D]."""
    votes, projected = (tensor.unsqueeze(-4) for tensor in prepared)  # [..., 1, M, N, D]
    keep = 1.0 if mask is None else mask[..., None, None, :]  # [..., 1, 1, N]
    logits = votes.new_zeros(*query.shape[:-1], *votes.shape[-3:-1])  # [..., T, M, N]
    weights = []
    for iteration in range(num_iterations):
        assignment = logits.softmax(dim=-2) * keep
        weights.append(assignment)
        capsules = squash((assignment.unsqueeze(-1) * votes).sum(dim=-2))  # [..., T, M, D]
        if scorer is not None and iteration < num_iterations - 1:
            from_query = linear(query, scorer.query_weight)[..., None, None, :]  # [..., T, 1, 1, D]
            from_capsules = linear(capsules, scorer.capsule_weight).unsqueeze(-2)  # [..., T, M, 1, D]
            scores = torch.tanh(from_query + projected + from_capsules)  # [..., T, M, N, D]
            logits = logits + torch.matmul(scores, scorer.score_weight)
    return capsules, weights


def guided_routing_chunked(
    prepared: GuidedVotes,
    query: torch.Tensor,
    scorer: GuidedScorer | None,
    num_iterations: int,
    mask: torch.Tensor | None,
) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """The same arithmetic with the queries behind the output capsules, so that weighted sums are matrix products.

    The first iteration does not depend on the query and is computed once for all of them. The tensors of
    [..., M, T, N, D] inside the scores exist a slice at a time: see `additive_scores`. A training step holds about
    12 M D numbers for each word of the batch, whatever the length of its sentence, and the assignments [..., T, M, N].
    """
    votes, projected = prepared  # [..., M, N, D]
    num_outputs, num_inputs = votes.shape[-3:-1]
    uniform = votes.new_full((*query.shape[:-1], num_outputs, num_inputs), 1 / num_outputs)  # [..., T, M, N]
    weights = [uniform if mask is None else uniform * mask[..., None, None, :]]
    capsules = squash(votes.sum(dim=-2, keepdim=True) / num_outputs)  # [..., M, 1, D], as masked votes are zero
    if scorer is not None:
        projected_query = linear(query, scorer.query_weight).unsqueeze(-3)  # [..., 1, T, D]
        logits = None
        for _ in range(num_iterations - 1):
            guide = projected_query + linear(capsules, scorer.capsule_weight)  # [..., M, T, D]
            scores = additive_scores(guide, projected, scorer.score_weight)  # [..., M, T, N]
            logits = scores if logits is None else logits + scores
            assignment = logits.softmax(dim=-3)
            if mask is not None:
                assignment = assignment * mask[..., None, None, :]
            weights.append(assignment.transpose(-2, -3))
            capsules = squash(torch.matmul(assignment, votes))  # [..., M, T, D]
    capsules = capsules.expand(*votes.shape[:-2], query.shape[-2], votes.shape[-1])
    return capsules.transpose(-2, -3), weights  # [..., T, M, D]


# -------------------- hf_capsule_mt.routing.separable

class ScoringNetwork(NamedTuple):
    """The weights of g(x) = W_2 ReLU(W_1 x + b_1) + b_2: W_1 [K, D], b_1 [K], W_2 [K', K], b_2 [K']."""

    inner_weight: torch.Tensor
    inner_bias: torch.Tensor
    outer_weight: torch.Tensor
    outer_bias: torch.Tensor

    def __call__(self, values: torch.Tensor) -> torch.Tensor:
        """[..., D] -> [..., K'], in the dtype of the values."""
        inner_weight, inner_bias, outer_weight, outer_bias = (weight.to(values.dtype) for weight in self)
        return linear(linear(values, inner_weight, inner_bias).relu(), outer_weight, outer_bias)


def separable_routing(
    votes: Sequence[torch.Tensor],
    *,
    mask: torch.Tensor | None = None,
    capsule_positions: torch.Tensor | None = None,
    inputs: torch.Tensor | None = None,
    scoring: ScoringNetwork | None = None,
    score_scale: float = 1.0,
    comparison_scale: float = 1.0,
) -> RoutingOutput:
    """Route N input capsules (words) to M output capsules, with separate votes for each iteration.

    With B = 0 at the start, iteration t of T computes, for inputs n and outputs m,

        C_nm    = softmax_m(B_nm)
        Omega_m = squash(sum_n C_nm V^t_nm)
        B_nm   += s (k Omega_m + P_m) . V^t_nm      (equation 12; not after the last)
        or        s g(k Omega_m + P_m) . g(h_n)     (equation 14, if `scoring` is given)

    Args:
        votes: for each of the T iterations V^t [..., N, M, D]; the same tensor where iterations share their weights.
        mask: [..., N], True keeps an input capsule.
        capsule_positions: P [M, D], the positional encodings of the output capsules, which take part in the comparison
            alone and not in the result; none if it is not given.
        inputs: h [..., N, D], the input capsules that g compares, with their positional encodings; only for `scoring`.
        scoring: the weights of g.
        score_scale: s, the factor of every score; 1 in the paper.
        comparison_scale: k, the factor of the output capsules where they are compared; 1 in the paper, where P, of
            length sqrt(D / 2), is much longer than Omega.

    Returns:
        `RoutingOutput`: Omega [..., M, D] and T tensors C [..., N, M], in the dtype of the votes.

    Relations: with the same votes in all iterations, no positions and no scoring network it is `dynamic_routing`.
    """
    num_iterations = len(votes)
    for iteration_votes in votes:
        check_votes(iteration_votes, num_iterations, mask)
        check_shape("votes", iteration_votes, votes[0].shape, votes[0])
    if not votes:
        raise ValueError("`votes` must have the votes of at least one iteration, got none")
    *batch, num_inputs, num_outputs, width = votes[0].shape
    if (inputs is None) != (scoring is None):
        raise ValueError("`inputs` and `scoring` go together: give both or neither")
    if inputs is not None:
        check_shape("inputs", inputs, torch.Size([*batch, num_inputs, width]), votes[0])
    if capsule_positions is not None:
        check_shape("capsule_positions", capsule_positions, torch.Size([num_outputs, width]), votes[0])

    with without_autocast(votes[0]):
        return _routed(votes, mask, capsule_positions, inputs, scoring, score_scale, comparison_scale)


def _routed(
    votes: Sequence[torch.Tensor],
    mask: torch.Tensor | None,
    capsule_positions: torch.Tensor | None,
    inputs: torch.Tensor | None,
    scoring: ScoringNetwork | None,
    score_scale: float,
    comparison_scale: float,
) -> RoutingOutput:
    *batch, num_inputs, num_outputs, _ = votes[0].shape
    num_iterations = len(votes)
    dtype = iteration_dtype(votes[0])
    keep = None if mask is None else mask.unsqueeze(-1)  # [..., N, 1]
    words = None
    if scoring is not None and inputs is not None:
        words = scoring(inputs.to(dtype) if keep is None else inputs.to(dtype).masked_fill(~keep, 0))  # [..., N, K']
    logits = torch.zeros((*batch, num_inputs, num_outputs), dtype=dtype, device=votes[0].device)
    weights = []
    for iteration, iteration_votes in enumerate(votes):
        values = iteration_votes.to(dtype).transpose(-3, -2)  # [..., M, N, D]
        assignment = logits.softmax(dim=-1)
        if keep is not None:  # whatever padding holds, even NaN, must not spread
            values = values.masked_fill(~keep.unsqueeze(-3), 0)
            assignment = assignment * keep
        weights.append(assignment.to(votes[0].dtype))
        totals = torch.matmul(assignment.transpose(-2, -1).unsqueeze(-2), values).squeeze(-2)
        capsules = squash(totals)  # [..., M, D]
        if iteration < num_iterations - 1:
            compared = comparison_scale * capsules
            if capsule_positions is not None:
                compared = compared + capsule_positions.to(dtype)
            if words is not None and scoring is not None:
                scores = torch.matmul(words, scoring(compared).transpose(-2, -1))  # [..., N, M]
            else:
                scores = torch.matmul(values, compared.unsqueeze(-1)).squeeze(-1).transpose(-2, -1)
            logits = logits + score_scale * scores
    return RoutingOutput(capsules.to(votes[0].dtype), tuple(weights))


# -------------------- hf_capsule_mt.modeling.router

class RoutingMethod(NamedTuple):
    """How a router calls one routing function.

    route: a function of votes [..., N, M, D], of `num_iterations` and `return_weights`, and of the arguments below.
    settings: its keyword arguments that come from the configuration, and the fields that hold them.
    constants: its keyword arguments that this method fixes.
    parameters: its keyword arguments that are learned, each a tensor [M] that starts at zero.
    takes_input_activation: whether it has an argument `input_activation`.
    """

    route: Callable[..., RoutingOutput]
    settings: Mapping[str, str] = {}
    constants: Mapping[str, bool] = {}
    parameters: tuple[str, ...] = ()
    takes_input_activation: bool = False


# Every routing method that `layer_aggregation` and `head_aggregation` can name
ROUTING_METHODS: dict[str, RoutingMethod] = {
    # Algorithm 1 of Dou et al. 2019.
    # Deviation: the total input is divided by its total weight by default, as Li et al. do. Equation 6 of Dou et al.
    # does not divide, which leaves C uniform to 1e-2 at the 512 capsules of their best setting.
    "dynamic_routing": RoutingMethod(
        dynamic_routing, settings={"normalize_total_input": "layer_aggregation_normalize_total_input"}
    ),
    # Algorithm 1 of Li et al. 2019, which normalises the total input before it is squashed
    "simple_routing": RoutingMethod(dynamic_routing, constants={"normalize_total_input": True}),
    # Algorithm 2 of Dou et al. and of Li et al. The betas start at zero: Hinton et al. start with half the capsules
    # active.
    "em_routing": RoutingMethod(
        em_routing,
        settings={"lambda_final": "em_lambda_final", "min_variance": "em_min_variance"},
        parameters=("beta_a", "beta_u"),
        takes_input_activation=True,
    ),
}


class Router(nn.Module):
    """Base of the modules that route votes to output capsules by one of `ROUTING_METHODS`.

    A seam inherits from it and calls `add_routing` in its `__init__`. So the parameters of the method are the seam's
    own, and a checkpoint names them after the seam: `encoder.layer_aggregation.beta_a`.
    """

    method: RoutingMethod
    num_capsules: int

    def add_routing(self, config: CapsuleMarianConfig, method: str, num_capsules: int, num_iterations: int) -> None:
        """Set up routing by `method` to `num_capsules` output capsules, and register the method's parameters."""
        self.method = ROUTING_METHODS[method]
        self.num_capsules = num_capsules
        settings = {argument: getattr(config, field) for argument, field in self.method.settings.items()}
        self.arguments = {"num_iterations": num_iterations, **self.method.constants, **settings}
        for name in self.method.parameters:
            self.register_parameter(name, nn.Parameter(torch.zeros(num_capsules)))

    def reset_parameters(self) -> None:
        """Initialise the parameters of the method, and no other of the seam."""
        for name in self.method.parameters:
            init.zeros_(getattr(self, name))

    def route(
        self, votes: torch.Tensor, *, input_activation: torch.Tensor | None = None, return_weights: bool = False
    ) -> RoutingOutput:
        """Route votes [..., N, M, D] to capsules [..., M, D], with routing weights [..., N, M] if asked for.

        Args:
            input_activation: [..., N] or [..., N, M], for methods that take one.
        """
        tensors = {name: getattr(self, name) for name in self.method.parameters}
        if input_activation is not None:
            tensors["input_activation"] = input_activation
        return self.method.route(votes, return_weights=return_weights, **self.arguments, **tensors)


# -------------------- hf_capsule_mt.modeling.layer_aggregation

# From so many positions for each unit of all layers a backward pass without the input capsules costs little: it saves
# a product of P rows and takes up to four of L * d
POSITIONS_PER_WIDTH = 2


class TopLayer(nn.Module):
    """No aggregation: the output of the top layer."""

    def forward(
        self, layer_outputs: list[torch.Tensor], output_routing_weights: bool = False
    ) -> tuple[torch.Tensor, None]:
        return layer_outputs[-1], None


class ZeroGainLayerNorm(nn.LayerNorm):
    """Layer normalisation whose gain starts at zero, so that at first it adds nothing to a residual."""

    def reset_parameters(self) -> None:
        super().reset_parameters()
        init.zeros_(self.weight)


class LayerAggregation(nn.Module):
    """H~ = LayerNorm(dropout(aggregate(H^1 ... H^L))), which replaces H^L or, with a residual, is added to it."""

    def __init__(self, config: CapsuleMarianConfig, num_layers: int) -> None:
        super().__init__()
        self.num_layers = num_layers
        self.width = config.d_model
        self.dropout = config.dropout
        self.residual = config.layer_aggregation_residual
        # Deviation: with a residual the paper's code would be LayerNorm(H^L + H~), which is not H^L for any H~. Here
        # it is H^L + LayerNorm(H~) with a gain that starts at zero: training starts exactly at the model without
        # aggregation, at the same number of parameters.
        self.layer_norm = ZeroGainLayerNorm(config.d_model) if self.residual else nn.LayerNorm(config.d_model)

    def aggregate(
        self, layer_outputs: list[torch.Tensor], output_routing_weights: bool
    ) -> tuple[torch.Tensor, IterationWeights | None]:
        """L tensors [B, S, d] -> H~ [B, S, d] before dropout and norm, and the routing weights [B, S, L, N]."""
        raise NotImplementedError

    def forward(
        self, layer_outputs: list[torch.Tensor], output_routing_weights: bool = False
    ) -> tuple[torch.Tensor, IterationWeights | None]:
        aggregated, weights = self.aggregate(layer_outputs, output_routing_weights)
        aggregated = nn.functional.dropout(aggregated, p=self.dropout, training=self.training)
        aggregated = self.layer_norm(aggregated)
        if self.residual:
            aggregated = layer_outputs[-1] + aggregated
        return aggregated, weights


class LinearCombination(LayerAggregation):
    """Equation 3: H~ = sum_l W_l H^l, the same at every position.

    W_l = U S_l through a hidden width of 4d without nonlinearity: the only reading of "trainable parameter matrices"
    that has the paper's number of parameters.
    """

    def __init__(self, config: CapsuleMarianConfig, num_layers: int) -> None:
        super().__init__(config, num_layers)
        self.fc1 = nn.Linear(num_layers * self.width, 4 * self.width)
        self.fc2 = nn.Linear(4 * self.width, self.width)

    def aggregate(
        self, layer_outputs: list[torch.Tensor], output_routing_weights: bool
    ) -> tuple[torch.Tensor, IterationWeights | None]:
        return self.fc2(self.fc1(torch.cat(layer_outputs, dim=-1))), None


class DynamicCombination(LayerAggregation):
    """Equation 4: H~ = sum_l G_l * H^l elementwise, with weights G = FFN(H^1 ... H^L) for each position and unit."""

    def __init__(self, config: CapsuleMarianConfig, num_layers: int) -> None:
        super().__init__(config, num_layers)
        self.fc1 = nn.Linear(num_layers * self.width, 4 * self.width)
        self.fc2 = nn.Linear(4 * self.width, num_layers * self.width)

    def aggregate(
        self, layer_outputs: list[torch.Tensor], output_routing_weights: bool
    ) -> tuple[torch.Tensor, IterationWeights | None]:
        concatenated = torch.cat(layer_outputs, dim=-1)  # [B, S, L * d]
        gates = self.fc2(nn.functional.relu(self.fc1(concatenated)))  # [B, S, L * d]
        return (gates * concatenated).unflatten(-1, (self.num_layers, self.width)).sum(dim=-2), None


class RoutedCombination(LayerAggregation, Router):
    """Equations 5 to 16: the layers are input capsules, routed to N output capsules whose concatenation is H~."""

    def __init__(self, config: CapsuleMarianConfig, num_layers: int) -> None:
        super().__init__(config, num_layers)
        num_capsules = config.layer_aggregation_num_capsules or config.d_model
        # F_l: each input capsule, from all layers or its own
        self.input_capsules = _capsule_map(config.layer_aggregation_capsule_input, num_layers, self.width, self.width)
        # V_l->*: each input capsule's votes for all outputs, from all input capsules or its own
        self.votes = _capsule_map(config.layer_aggregation_vote_input, num_layers, self.width, self.width, bias=False)
        self.add_routing(config, config.layer_aggregation, num_capsules, config.layer_aggregation_num_iterations)
        self.input_activation: nn.Module | None = None
        if self.method.takes_input_activation and config.em_input_activation != "none":
            # Deviation: equation 10 is linear, but what it computes is called a probability: a sigmoid follows
            self.activates_each_output = config.em_input_activation == "vector"
            activations = num_capsules if self.activates_each_output else 1
            self.input_activation = _capsule_map(
                config.layer_aggregation_vote_input, num_layers, self.width, activations
            )
        if config.layer_aggregation_init_std is not None:
            for one in (self.input_capsules, self.votes, self.input_activation):
                if one is not None:
                    set_initial_std(one, config.layer_aggregation_init_std)

    def aggregate(
        self, layer_outputs: list[torch.Tensor], output_routing_weights: bool
    ) -> tuple[torch.Tensor, IterationWeights | None]:
        maps = [self.votes] if self.input_activation is None else [self.votes, self.input_activation]
        if self._keeps_little(layer_outputs[0], maps):
            linears = [tensor for one in (self.input_capsules, *maps) for tensor in (one.weight, one.bias)]
            mapped = _VotesOfLayers.apply(self.num_layers, *layer_outputs, *linears)
        else:
            input_capsules = self.input_capsules(torch.cat(layer_outputs, dim=-1))  # [B, S, L * d]
            mapped = [one(input_capsules) for one in maps]
        votes = mapped[0].unflatten(-1, (self.num_layers, self.num_capsules, -1))
        activation = None
        if self.input_activation is not None:
            activation = mapped[1].sigmoid()  # [B, S, L * N], or [B, S, L] for a scalar
            if self.activates_each_output:
                activation = activation.unflatten(-1, (self.num_layers, self.num_capsules))
        routed = self.route(votes, input_activation=activation, return_weights=output_routing_weights)
        return routed.capsules.flatten(-2), routed.weights

    def _keeps_little(self, layer_output: torch.Tensor, maps: list[nn.Module]) -> bool:
        """Return whether the backward pass should compute the input capsules' gradients without the input capsules."""
        if not torch.is_grad_enabled() or torch.compiler.is_compiling() or torch.jit.is_tracing():
            return False
        few = layer_output.shape[:-1].numel() < POSITIONS_PER_WIDTH * self.num_layers * self.width
        if few or layer_output.device.type == "meta":
            return False
        return all(is_bare(linear) for linear in (self.input_capsules, *maps))


class _VotesOfLayers(torch.autograd.Function):
    """The maps W_k (F X + b) + b_k of the concatenated layers X [P, L * d], which keeps nothing of that size but X.

    With the gradient g_k [P, out] by the result of map k, G_k = g_k^T X and s_k = sum_p g_k, the gradients are

        by W_k: G_k F^T + s_k b^T       by F: sum_k W_k^T G_k       by b: sum_k W_k^T s_k       by b_k: s_k

    so the input capsules F X + b are not needed: one product of P rows less, and two more of matrices for each map.
    """

    @staticmethod
    def forward(ctx: Any, num_layers: int, *tensors: torch.Tensor | None) -> tuple[torch.Tensor, ...]:
        """L layers [B, S, d], F, b, and W_k, b_k of every map -> its result [B, S, out]."""
        concatenated = torch.cat(tensors[:num_layers], dim=-1)  # type: ignore[arg-type]
        device = concatenated.device.type
        dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else concatenated.dtype
        # without autocast the layers keep their outputs anyway, else a copy in the dtype of the products
        kept = tensors[:num_layers] if dtype == concatenated.dtype else (concatenated.to(dtype),)
        ctx.save_for_backward(*kept, *tensors[num_layers:])
        ctx.num_kept, ctx.dtype = len(kept), dtype
        weight, bias, *maps = (None if tensor is None else tensor.to(dtype) for tensor in tensors[num_layers:])
        capsules = nn.functional.linear(concatenated.to(dtype), weight, bias)  # type: ignore[arg-type]
        return tuple(
            nn.functional.linear(capsules, matrix, vector)  # type: ignore[arg-type]
            for matrix, vector in zip(maps[::2], maps[1::2], strict=True)
        )

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        kept, linears = ctx.saved_tensors[: ctx.num_kept], ctx.saved_tensors[ctx.num_kept :]
        weight, bias = (tensor.to(ctx.dtype) for tensor in linears[:2])
        grad_capsules: Any = 0
        grad_weight: Any = 0
        grad_bias: Any = 0
        grads_of_maps: list[torch.Tensor | None] = []
        concatenated = torch.cat(kept, dim=-1).flatten(0, -2)  # X [P, L * d]
        for grad, map_weight, map_bias in zip(grads, linears[2::2], linears[3::2], strict=True):
            matrix, by_rows = map_weight.to(ctx.dtype), grad.flatten(0, -2)  # [out, L * d], [P, out]
            product, total = by_rows.t() @ concatenated, by_rows.sum(dim=0)  # G_k, s_k
            grads_of_maps += [torch.addr(product @ weight.t(), total, bias), None if map_bias is None else total]
            grad_weight = grad_weight + matrix.t() @ product
            grad_bias = grad_bias + matrix.t() @ total
            grad_capsules = grad_capsules + grad @ matrix
        grad_layers = (grad_capsules @ weight).chunk(len(ctx.needs_input_grad) - len(linears) - 1, dim=-1)
        return None, *grad_layers, grad_weight, grad_bias, *grads_of_maps


class PerCapsuleLinear(nn.Module):
    """A linear map of its own for each of L capsules: [..., L * in] -> [..., L * out]."""

    def __init__(self, num_capsules: int, in_features: int, out_features: int, bias: bool = True) -> None:
        super().__init__()
        self.num_capsules = num_capsules
        self.weight = nn.Parameter(torch.empty(num_capsules, out_features, in_features))
        self.bias = nn.Parameter(torch.empty(num_capsules * out_features)) if bias else None

    def reset_parameters(self, std: float) -> None:
        """Initialise as transformers initialises a linear map."""
        init.normal_(self.weight, mean=0.0, std=std)
        if self.bias is not None:
            init.zeros_(self.bias)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        capsules = hidden.unflatten(-1, (self.num_capsules, -1))  # [..., L, in]
        mapped = torch.einsum("...li,loi->...lo", capsules, self.weight).flatten(-2)  # [..., L * out]
        return mapped if self.bias is None else mapped + self.bias


def _capsule_map(source: str, num_capsules: int, in_features: int, out_features: int, bias: bool = True) -> nn.Module:
    """L * in -> L * out: each result from "all" capsules, or from its "own"."""
    if source == "own":
        return PerCapsuleLinear(num_capsules, in_features, out_features, bias)
    return nn.Linear(num_capsules * in_features, num_capsules * out_features, bias)


# Every method that is not one of `ROUTING_METHODS`
COMBINATIONS: dict[str, type[LayerAggregation]] = {
    "linear": LinearCombination,
    "dynamic_combination": DynamicCombination,
}


def build_layer_aggregation(config: CapsuleMarianConfig, num_layers: int, enabled: bool) -> nn.Module:
    """Return what follows a stack of layers: the configured aggregation, or the top layer's output as it is."""
    if not enabled:
        return TopLayer()
    return COMBINATIONS.get(config.layer_aggregation, RoutedCombination)(config, num_layers)


# -------------------- hf_capsule_mt.modeling.sentence_cache

# Which rows of a batch translate the same sentence
SENTENCES = "sentences"


class SentenceConstants:
    """Mixin before a `Cache` of transformers: tensors that depend on the source alone.

    constants: tensors with the batch dimension first, which a step reads and never changes. They follow the rows of
        the batch, as the other tensors of the cache do.
    """

    constants: dict[str, torch.Tensor]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.constants = {}

    def number_sentences(self, source: torch.Tensor) -> None:
        """Note which neighbouring rows have the same source [B, S, d], so that beams do not move their constants."""
        if SENTENCES not in self.constants:
            changes = (source[1:] != source[:-1]).flatten(1).any(dim=1)
            self.constants[SENTENCES] = nn.functional.pad(changes.cumsum(dim=0), (1, 0))  # [B]

    def reset(self) -> None:
        cast(Cache, super()).reset()
        self.constants = {}

    def reorder_cache(self, beam_idx: torch.Tensor) -> None:
        cast(Cache, super()).reorder_cache(cast(torch.LongTensor, beam_idx))
        sentences = self.constants.get(SENTENCES)
        if (
            sentences is not None
            and reads_are_free(sentences)
            and torch.equal(sentences[beam_idx.to(sentences.device)], sentences)
        ):
            return  # every beam follows one of its own sentence, which has the same constants
        self._change_constants(lambda tensor: tensor.index_select(0, beam_idx.to(tensor.device)))

    def batch_repeat_interleave(self, repeats: int) -> None:
        cast(Cache, super()).batch_repeat_interleave(repeats)
        self._change_constants(lambda tensor: tensor.repeat_interleave(repeats, dim=0))

    def batch_select_indices(self, indices: torch.Tensor) -> None:
        cast(Cache, super()).batch_select_indices(indices)
        self._change_constants(lambda tensor: tensor[indices.to(tensor.device)])

    def _change_constants(self, change: Callable[[torch.Tensor], torch.Tensor]) -> None:
        self.constants = {name: change(tensor) for name, tensor in self.constants.items()}


class GuidedCache(SentenceConstants, EncoderDecoderCache):
    """The cache of a guided Transformer decoder: keys and values of its layers, and the constants of each sentence."""

    _is_user_defined: bool  # set by `generate` on a cache that outlives it


def guided_cache(cache: Cache) -> GuidedCache:
    """Return the cache itself if it has a place for constants, else one that shares its keys and values."""
    if isinstance(cache, GuidedCache):
        return cache
    if not isinstance(cache, EncoderDecoderCache):
        raise TypeError(f"`past_key_values` must be an EncoderDecoderCache, got {type(cache).__name__}")
    guided = GuidedCache(cache.self_attention_cache, cache.cross_attention_cache)
    guided.is_updated = cache.is_updated
    if getattr(cache, "_is_user_defined", False):
        guided._is_user_defined = True
    return guided


# -------------------- hf_capsule_mt.modeling.past_future_guidance

# What guidance computes once per sentence: two tensors [B, capsules, S, D], and their names in a decoding cache
GuidanceSources = tuple[torch.Tensor, torch.Tensor]
SOURCE_NAMES = ("guidance_0", "guidance_1")


class GuidanceOutput(NamedTuple):
    """The result of guidance.

    state: o [B, T, d], which takes the place of the decoder's state.
    capsules: PAST (the first half) and FUTURE [B, T, 2 n, D]; `None` without guidance.
    weights: assignment probabilities [B, T, S, M] for each iteration, if they were asked for and there are any.
    """

    state: torch.Tensor
    capsules: torch.Tensor | None
    weights: IterationWeights | None


class NoGuidance(nn.Module):
    """No PAST and no FUTURE: the decoder's state as it is."""

    def forward(self, state: torch.Tensor) -> GuidanceOutput:
        return GuidanceOutput(state, None, None)


class PastFutureGuidance(nn.Module):
    """Section 3.2: o_t = z_t + FF(z_t, PAST, FUTURE). Subclasses gather the capsules of PAST and FUTURE."""

    def __init__(self, config: GuidedConfig, width: int, source_width: int | None = None) -> None:
        """`width` is that of the decoder's states, `source_width` that of the encoder's, if it is another."""
        super().__init__()
        self.width = width
        self.source_width = source_width or width
        self.num_capsules = config.guided_num_capsules
        self.capsule_dim = config.guided_capsule_dim
        # Deviation: dropout before the residual, as after the models' other feed-forward networks; none is printed
        self.dropout = config.dropout
        self.fc1 = nn.Linear(width + 2 * self.num_capsules * self.capsule_dim, config.guided_ffn_dim)
        self.fc2 = nn.Linear(config.guided_ffn_dim, width)

    @torch.no_grad()
    def start_without_effect(self) -> None:
        """Set the last layer to zero: o_t equals z_t exactly, until training changes it."""
        self.fc2.weight.zero_()
        self.fc2.bias.zero_()

    def prepare(
        self, encoder_states: torch.Tensor | None, mask: torch.Tensor | None, cache: SentenceConstants | None = None
    ) -> GuidanceSources:
        """Return what depends on the encoder's states [B, S, d] alone: from the cache, or computed and put there."""
        if cache is not None and SOURCE_NAMES[0] in cache.constants:
            return cache.constants[SOURCE_NAMES[0]], cache.constants[SOURCE_NAMES[1]]
        if encoder_states is None:
            raise ValueError(
                "`guided_routing` assigns source words, so the decoder needs `encoder_hidden_states`, got None"
            )
        sources = self.project(encoder_states, mask)
        if cache is not None:
            cache.constants.update(zip(SOURCE_NAMES, sources, strict=True))
            cache.number_sentences(encoder_states)
        return sources

    def project(self, encoder_states: torch.Tensor, mask: torch.Tensor | None) -> GuidanceSources:
        """Encoder states [B, S, d] and their mask [B, S] -> two tensors [B, capsules, S, D]."""
        raise NotImplementedError

    def gather(
        self, state: torch.Tensor, sources: GuidanceSources, mask: torch.Tensor | None, output_routing_weights: bool
    ) -> tuple[torch.Tensor, IterationWeights | None]:
        """States z [B, T, d] -> PAST and FUTURE capsules [B, T, 2 n, D], and the weights [B, T, S, M]."""
        raise NotImplementedError

    def forward(
        self,
        state: torch.Tensor,
        sources: GuidanceSources,
        mask: torch.Tensor | None,
        output_routing_weights: bool = False,
    ) -> GuidanceOutput:
        """States z [B, T, d], what `prepare` returned and the mask [B, S] of source words -> `GuidanceOutput`."""
        capsules, weights = self.gather(state, sources, mask, output_routing_weights)
        joined = torch.cat([state, capsules.flatten(-2).to(state.dtype)], dim=-1)  # [B, T, d + 2 n D]
        added = self.fc2(nn.functional.relu(self.fc1(joined)))
        added = nn.functional.dropout(added, p=self.dropout, training=self.training)
        return GuidanceOutput(state + added, capsules, weights)

    def _split(self, capsules: torch.Tensor, num_capsules: int) -> torch.Tensor:
        """[B, S, M * D] -> [B, M, S, D]."""
        return capsules.unflatten(-1, (num_capsules, self.capsule_dim)).transpose(1, 2).contiguous()


class GuidedRoutingGuidance(PastFutureGuidance):
    """Section 3.1: guided dynamic routing of the source words to PAST, FUTURE and redundant capsules."""

    def __init__(self, config: GuidedConfig, width: int, source_width: int | None = None) -> None:
        super().__init__(config, width, source_width)
        self.num_iterations = config.guided_num_iterations
        self.num_outputs = 2 * self.num_capsules + config.guided_num_redundant_capsules
        self.votes = nn.Linear(self.source_width, self.num_outputs * self.capsule_dim, bias=False)  # W_j
        # W_b in three parts, and w. One iteration has no scores, and so no parameters for them
        if self.num_iterations > 1:
            self.query_projection = nn.Linear(width, self.capsule_dim, bias=False)
            self.vote_projection = nn.Linear(self.capsule_dim, self.capsule_dim, bias=False)
            self.capsule_projection = nn.Linear(self.capsule_dim, self.capsule_dim, bias=False)
            self.score = nn.Linear(self.capsule_dim, 1, bias=False)

    def project(self, encoder_states: torch.Tensor, mask: torch.Tensor | None) -> GuidanceSources:
        """Return the votes [B, M, S, D] and their projection; a single iteration scores nothing and needs none."""
        votes = self._split(self.votes(encoder_states), self.num_outputs)
        return project_votes(votes, matrix_of(self.vote_projection) if self.num_iterations > 1 else None, mask)

    def gather(
        self, state: torch.Tensor, sources: GuidanceSources, mask: torch.Tensor | None, output_routing_weights: bool
    ) -> tuple[torch.Tensor, IterationWeights | None]:
        output = route_guided_votes(
            GuidedVotes(*sources),
            state,
            self._scorer(),
            num_iterations=self.num_iterations,
            mask=mask,
            return_weights=output_routing_weights,
        )
        return output.capsules[..., : 2 * self.num_capsules, :], output.weights

    def _scorer(self) -> GuidedScorer | None:
        if self.num_iterations == 1:
            return None
        return GuidedScorer(
            matrix_of(self.query_projection),
            matrix_of(self.vote_projection),
            matrix_of(self.capsule_projection),
            matrix_of(self.score)[0],
        )


class ClassifierGuidance(PastFutureGuidance):
    """The baseline CLF of Figure 6: one softmax over PAST, FUTURE and neither for each source word.

    p_tn = softmax_x(w_x . tanh(W_z z_t + W_h h_n)), and the capsules of x are sum_n p_tn^x W^x h_n.
    """

    def __init__(self, config: GuidedConfig, width: int, source_width: int | None = None) -> None:
        super().__init__(config, width, source_width)
        self.values = nn.Linear(self.source_width, 2 * self.num_capsules * self.capsule_dim, bias=False)
        self.keys = nn.Linear(self.source_width, self.capsule_dim, bias=False)
        self.query_projection = nn.Linear(width, self.capsule_dim, bias=False)
        self.score = nn.Linear(self.capsule_dim, 3, bias=False)

    def project(self, encoder_states: torch.Tensor, mask: torch.Tensor | None) -> GuidanceSources:
        """Keys [B, 1, S, D] and values [B, 2 n, S, D]."""
        if mask is not None:
            encoder_states = encoder_states.masked_fill(~mask.unsqueeze(-1), 0)
        return self.keys(encoder_states).unsqueeze(1), self._split(self.values(encoder_states), 2 * self.num_capsules)

    def gather(
        self, state: torch.Tensor, sources: GuidanceSources, mask: torch.Tensor | None, output_routing_weights: bool
    ) -> tuple[torch.Tensor, IterationWeights | None]:
        keys, values = sources
        query = self.query_projection(state)  # [B, T, D]
        logits = [additive_scores(query, keys[:, 0], weight) for weight in matrix_of(self.score)]
        probabilities = torch.stack(logits, dim=-1).softmax(dim=-1)  # [B, T, S, 3]
        if mask is not None:
            probabilities = probabilities * mask[:, None, :, None]
        weights = (probabilities.to(state.dtype),)
        capsules = _weighted_sums(probabilities[..., :2], values, self.num_capsules)
        return capsules, weights if output_routing_weights else None


class AttentionGuidance(PastFutureGuidance):
    """The baseline ATTN of Figure 6: two attention modules, one that looks for PAST and one for FUTURE.

    Its weights are distributions over the source words, not over PAST and FUTURE, so it assigns no word to either and
    has no routing weights.
    """

    def __init__(self, config: GuidedConfig, width: int, source_width: int | None = None) -> None:
        super().__init__(config, width, source_width)
        self.values = nn.Linear(self.source_width, 2 * self.num_capsules * self.capsule_dim, bias=False)
        self.keys = nn.Linear(self.source_width, 2 * self.capsule_dim, bias=False)
        self.query_projection = nn.Linear(width, 2 * self.capsule_dim, bias=False)
        self.score = nn.Linear(self.capsule_dim, 2, bias=False)

    def project(self, encoder_states: torch.Tensor, mask: torch.Tensor | None) -> GuidanceSources:
        """Keys [B, 2, S, D] and values [B, 2 n, S, D]."""
        if mask is not None:
            encoder_states = encoder_states.masked_fill(~mask.unsqueeze(-1), 0)
        return (
            self._split(self.keys(encoder_states), 2),
            self._split(self.values(encoder_states), 2 * self.num_capsules),
        )

    def gather(
        self, state: torch.Tensor, sources: GuidanceSources, mask: torch.Tensor | None, output_routing_weights: bool
    ) -> tuple[torch.Tensor, IterationWeights | None]:
        keys, values = sources
        query = self._split(self.query_projection(state), 2)  # [B, 2, T, D]
        logits = [
            additive_scores(query[:, group], keys[:, group], weight)
            for group, weight in enumerate(matrix_of(self.score))
        ]
        scores = torch.stack(logits, dim=-1)  # [B, T, S, 2]
        if mask is not None:
            scores = scores.masked_fill(~mask[:, None, :, None], torch.finfo(scores.dtype).min)
        return _weighted_sums(scores.softmax(dim=-2), values, self.num_capsules), None


def _weighted_sums(weights: torch.Tensor, values: torch.Tensor, num_capsules: int) -> torch.Tensor:
    """Weights [B, T, S, 2] of PAST and FUTURE, values [B, 2 n, S, D] -> capsules [B, T, 2 n, D]."""
    shares = weights.permute(0, 3, 1, 2).repeat_interleave(num_capsules, dim=1).to(values.dtype)  # [B, 2 n, T, S]
    return torch.matmul(shares, values).transpose(1, 2)


GUIDANCES: dict[str, type[PastFutureGuidance]] = {
    "guided": GuidedRoutingGuidance,
    "classifier": ClassifierGuidance,
    "attention": AttentionGuidance,
}


def build_guidance(
    config: GuidedConfig, width: int, source_width: int | None = None
) -> NoGuidance | PastFutureGuidance:
    """Return the configured guidance between the decoder's states [B, T, width] and the output projection."""
    if config.guided_routing == "none":
        return NoGuidance()
    return GUIDANCES[config.guided_routing](config, width, source_width)


def source_mask(attention_mask: torch.Tensor | None, ask: bool = True) -> torch.Tensor | None:
    """Return the padding mask [B, S] as bools, or `None` if it keeps everything; `ask` that only once a sentence."""
    if attention_mask is None:
        return None
    if attention_mask.dim() != 2:
        raise ValueError(
            f"guided routing needs the padding mask [batch, source] of the encoder, got shape "
            f"{list(attention_mask.shape)}"
        )
    mask = attention_mask.bool()
    if ask and reads_are_free(mask) and bool(mask.all()):
        return None
    return mask


# -------------------- hf_capsule_mt.modeling.head_aggregation

# of the input capsules: the paper says "non-linear" and no more
ACTIVATIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {"relu": torch.relu, "tanh": torch.tanh}


class HeadAggregation(Router):
    """Equations 5 to 12: the heads become input capsules, routed to N output capsules whose concatenation is O.

    Input capsules have no activation, also with EM routing (algorithm 2 of Li et al.).
    """

    def __init__(self, config: CapsuleMarianConfig, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.activation = ACTIVATIONS[config.head_aggregation_activation]
        # f_h, H maps d -> d / H of all heads; and the votes of each of the H capsules, made from all of them
        self.input_capsules = nn.Linear(config.d_model, config.d_model)
        self.votes = nn.Linear(config.d_model, num_heads * config.d_model, bias=False)
        std = config.head_aggregation_init_std
        for linear in (self.input_capsules, self.votes):
            set_initial_std(linear, config.d_model**-0.5 if std is None else std)
        num_capsules = config.head_aggregation_num_capsules or config.d_model
        self.add_routing(config, config.head_aggregation, num_capsules, config.head_aggregation_num_iterations)

    def forward(
        self, heads: torch.Tensor, output_routing_weights: bool = False
    ) -> tuple[torch.Tensor, IterationWeights | None]:
        """Concatenated heads [B, T, d] -> O [B, T, d] and the routing weights [B, T, H, N]."""
        input_capsules = self.activation(self.input_capsules(heads))  # [B, T, d]
        votes = self.votes(input_capsules).unflatten(-1, (self.num_heads, self.num_capsules, -1))
        routed = self.route(votes, return_weights=output_routing_weights)
        return routed.capsules.flatten(-2), routed.weights


def build_output_projection(config: CapsuleMarianConfig, num_heads: int, site: str, layer: int) -> nn.Module:
    """Return the output projection of an attention: a linear map W^O, or routing."""
    if config.aggregates_heads(site, layer):
        return HeadAggregation(config, num_heads)
    return nn.Linear(config.d_model, config.d_model)


def project_heads(
    projection: nn.Module, heads: torch.Tensor, output_routing_weights: bool
) -> tuple[torch.Tensor, IterationWeights | None]:
    """Apply a linear map or routing to concatenated heads; only routing returns weights."""
    if isinstance(projection, HeadAggregation):
        return projection(heads, output_routing_weights)
    return projection(heads), None


# -------------------- hf_capsule_mt.modeling.transformer

def sinusoids(num_positions: int, width: int, device: torch.device | None = None) -> torch.Tensor:
    """Compute Marian's positions [positions, d] in float64: sines in the first half of the width, then cosines."""
    exponents = 2 * (torch.arange(width, dtype=torch.float64, device=device) // 2) / width
    angles = torch.arange(num_positions, dtype=torch.float64, device=device)[:, None] / 10000**exponents
    return torch.cat([angles[:, 0::2].sin(), angles[:, 1::2].cos()], dim=1)


class SinusoidalPositions(nn.Embedding):
    """Marian's fixed positions: the sines in the first half of the width, the cosines in the second."""

    def __init__(self, num_positions: int, width: int) -> None:
        super().__init__(num_positions, width, _freeze=True)

    def create_weight(self) -> torch.Tensor:
        """[positions, d], computed in float64 as Marian does."""
        return sinusoids(*self.weight.shape).to(self.weight.dtype)

    @torch.no_grad()
    def forward(self, length: int, start: int | torch.Tensor = 0) -> torch.Tensor:  # type: ignore[override]
        """Return the positions [length, d] from `start` on."""
        return super().forward(torch.arange(length, device=self.weight.device) + start)


def bidirectional_mask(
    padding_mask: torch.Tensor | None, query_length: int, dtype: torch.dtype, implementation: str, ask: bool = True
) -> torch.Tensor | None:
    """Expand a padding mask [B, K] to the form that `attend` takes [B, 1, T, K]; `None` if nothing is masked.

    A mask that has this form already is returned as it is. `ask` whether anything is masked only once a sentence.
    """
    if padding_mask is None or padding_mask.dim() == 4:
        return padding_mask
    keep = padding_mask.bool()
    if ask and reads_are_free(keep) and bool(keep.all()):
        return None
    keep = keep[:, None, None, :].expand(-1, 1, query_length, -1)  # [B, 1, T, K]
    return keep if implementation == "sdpa" else additive_mask(keep, dtype)


def causal_mask(
    padding_mask: torch.Tensor | None,
    hidden: torch.Tensor,
    cache: Cache | None,
    implementation: str,
) -> torch.Tensor | None:
    """Build the mask [B, 1, T, K] of decoder states [B, T, d] that follow those in the cache.

    `None` where nothing is masked, or only the future is and the "sdpa" implementation can see that by itself.
    """
    if padding_mask is not None and padding_mask.dim() == 4:
        return padding_mask
    batch_size, query_length = hidden.shape[:2]
    past_length = 0 if cache is None else cache.get_seq_length()
    key_length = query_length if cache is None else cache.get_mask_sizes(query_length, 0)[0]
    keep = None if padding_mask is None else padding_mask.bool()
    if keep is not None and reads_are_free(keep) and bool(keep.all()):
        keep = None
    preallocated = cache is not None and cache.is_compileable  # its unused slots must be masked
    if keep is None and implementation == "sdpa" and not preallocated and query_length in (1, key_length):
        return None
    queries = torch.arange(query_length, device=hidden.device) + past_length
    keys = torch.arange(key_length, device=hidden.device)
    mask = (keys <= queries[:, None])[None, None]  # [1, 1, T, K]
    if keep is not None:
        if keep.shape[1] < key_length:
            keep = nn.functional.pad(keep, (0, key_length - keep.shape[1]))
        mask = mask & keep[:, None, None, :key_length]
    mask = mask.expand(batch_size, 1, query_length, key_length)
    return mask if implementation == "sdpa" else additive_mask(mask, hidden.dtype)


def additive_mask(keep: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Return 0 where `keep` is True and the lowest number elsewhere, to be added to attention scores."""
    return torch.where(keep, torch.zeros((), device=keep.device, dtype=dtype), torch.finfo(dtype).min)


class MultiHead(nn.Module):
    """Scaled dot-product attention over several heads; `out_proj` is the linear map W^O, or routing between heads."""

    def __init__(self, config: CapsuleMarianConfig, site: str, layer: int) -> None:
        super().__init__()
        self.config = config
        self.layer = layer
        self.num_heads = config.encoder_attention_heads if site == "encoder_self" else config.decoder_attention_heads
        self.head_width = config.d_model // self.num_heads
        self.is_causal = site == "decoder_self"
        self.is_cross = site == "cross"
        self.k_proj = nn.Linear(config.d_model, config.d_model)
        self.v_proj = nn.Linear(config.d_model, config.d_model)
        self.q_proj = nn.Linear(config.d_model, config.d_model)
        self.out_proj = build_output_projection(config, self.num_heads, site, layer)

    def split_heads(self, hidden: torch.Tensor) -> torch.Tensor:
        """[B, T, d] -> [B, H, T, d / H]."""
        return hidden.unflatten(-1, (self.num_heads, self.head_width)).transpose(1, 2)

    def keys_and_values(
        self, source: torch.Tensor, past_key_values: EncoderDecoderCache | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Project keys and values [B, H, K, d / H]: the encoder's once per sentence, the decoder's into the cache."""
        if past_key_values is None:
            return self.split_heads(self.k_proj(source)), self.split_heads(self.v_proj(source))
        if self.is_cross and past_key_values.is_updated.get(self.layer):
            cached: Any = past_key_values.cross_attention_cache.layers[self.layer]
            return cached.keys, cached.values
        cache: Cache = past_key_values.cross_attention_cache if self.is_cross else past_key_values.self_attention_cache
        keys, values = cache.update(
            self.split_heads(self.k_proj(source)), self.split_heads(self.v_proj(source)), self.layer
        )
        if self.is_cross:
            past_key_values.is_updated[self.layer] = True
        return keys, values

    def forward(
        self,
        hidden: torch.Tensor,
        mask: torch.Tensor | None = None,
        encoder_hidden: torch.Tensor | None = None,
        past_key_values: EncoderDecoderCache | None = None,
        output_attentions: bool = False,
        output_routing_weights: bool = False,
    ) -> tuple[torch.Tensor, torch.Tensor | None, IterationWeights | None]:
        """Queries [B, T, d] -> output [B, T, d], attention weights [B, H, T, K] and routing weights, if asked for."""
        queries = self.split_heads(self.q_proj(hidden))
        keys, values = self.keys_and_values(hidden if encoder_hidden is None else encoder_hidden, past_key_values)
        dropout = self.config.attention_dropout if self.training else 0.0
        heads, attention_weights = self.attend(queries, keys, values, mask, dropout, output_attentions)
        heads = heads.transpose(1, 2).flatten(-2)  # [B, T, d]
        output, routing_weights = project_heads(self.out_proj, heads, output_routing_weights)
        return output, attention_weights, routing_weights

    def attend(
        self,
        queries: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
        mask: torch.Tensor | None,
        dropout: float,
        output_attentions: bool,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """[B, H, T, d / H] -> [B, H, T, d / H] and the attention weights [B, H, T, K], if asked for."""
        scaling = self.head_width**-0.5
        if self.config._attn_implementation == "sdpa" and not output_attentions:
            query_length = queries.shape[2]
            is_causal = query_length > 1 and mask is None and self.is_causal
            if is_causal and keys.shape[2] > query_length:  # the first call with a preallocated cache
                keys, values = keys[:, :, :query_length], values[:, :, :query_length]
            output = nn.functional.scaled_dot_product_attention(
                queries, keys, values, attn_mask=mask, dropout_p=dropout, scale=scaling, is_causal=is_causal
            )
            return output, None
        scores = torch.matmul(queries, keys.transpose(2, 3)) * scaling
        if mask is not None:
            scores = scores + (additive_mask(mask, scores.dtype) if mask.dtype == torch.bool else mask)
        weights = nn.functional.dropout(scores.softmax(dim=-1), p=dropout)
        return torch.matmul(weights, values), weights if output_attentions else None


class TransformerLayer(GradientCheckpointingLayer):
    """Base of both kinds of layer: dropout, and the feed-forward network."""

    config: CapsuleMarianConfig
    fc1: nn.Linear
    fc2: nn.Linear

    def dropout(self, hidden: torch.Tensor) -> torch.Tensor:
        return nn.functional.dropout(hidden, p=self.config.dropout, training=self.training)

    def feed_forward(self, hidden: torch.Tensor) -> torch.Tensor:
        inner = ACT2FN[self.config.activation_function](self.fc1(hidden))
        inner = nn.functional.dropout(inner, p=self.config.activation_dropout, training=self.training)
        return self.fc2(inner)


class EncoderLayer(TransformerLayer):
    """Self-attention and feed-forward, each followed by dropout, residual and layer normalisation."""

    def __init__(self, config: CapsuleMarianConfig, layer: int) -> None:
        super().__init__()
        self.config = config
        self.self_attn = MultiHead(config, "encoder_self", layer)
        self.self_attn_layer_norm = nn.LayerNorm(config.d_model)
        self.fc1 = nn.Linear(config.d_model, config.encoder_ffn_dim)
        self.fc2 = nn.Linear(config.encoder_ffn_dim, config.d_model)
        self.final_layer_norm = nn.LayerNorm(config.d_model)

    def forward(
        self,
        hidden: torch.Tensor,
        mask: torch.Tensor | None,
        output_attentions: bool = False,
        output_routing_weights: bool = False,
    ) -> tuple[torch.Tensor, torch.Tensor | None, IterationWeights | None]:
        """[B, S, d] -> [B, S, d], the attention weights and the routing weights."""
        attended, attentions, weights = self.self_attn(
            hidden, mask, output_attentions=output_attentions, output_routing_weights=output_routing_weights
        )
        hidden = self.self_attn_layer_norm(hidden + self.dropout(attended))
        hidden = self.final_layer_norm(hidden + self.dropout(self.feed_forward(hidden)))
        if hidden.dtype == torch.float16:  # as Marian does: what overflowed becomes the largest number
            limit = torch.finfo(hidden.dtype).max - 1000
            hidden = torch.clamp(hidden, min=-limit, max=limit)
        return hidden, attentions, weights


# The result [B, T, d] of a decoder layer, the attention weights of its self- and its cross-attention, and the routing
# weights of both. A plain tuple: reentrant gradient checkpointing turns any other into one.
DecoderLayerOutput = tuple[
    torch.Tensor, torch.Tensor | None, torch.Tensor | None, IterationWeights | None, IterationWeights | None
]


class DecoderLayer(TransformerLayer):
    """Causal self-attention, attention to the encoder, and feed-forward, each followed as in the encoder's layer."""

    def __init__(self, config: CapsuleMarianConfig, layer: int) -> None:
        super().__init__()
        self.config = config
        self.self_attn = MultiHead(config, "decoder_self", layer)
        self.self_attn_layer_norm = nn.LayerNorm(config.d_model)
        self.encoder_attn = MultiHead(config, "cross", layer)
        self.encoder_attn_layer_norm = nn.LayerNorm(config.d_model)
        self.fc1 = nn.Linear(config.d_model, config.decoder_ffn_dim)
        self.fc2 = nn.Linear(config.decoder_ffn_dim, config.d_model)
        self.final_layer_norm = nn.LayerNorm(config.d_model)

    def forward(
        self,
        hidden: torch.Tensor,
        mask: torch.Tensor | None,
        encoder_hidden: torch.Tensor | None,
        encoder_mask: torch.Tensor | None,
        past_key_values: EncoderDecoderCache | None = None,
        output_attentions: bool = False,
        output_routing_weights: bool = False,
    ) -> DecoderLayerOutput:
        """[B, T, d] and the encoder's states [B, S, d] -> [B, T, d]."""
        asked = {"output_attentions": output_attentions, "output_routing_weights": output_routing_weights}
        attended, attentions, weights = self.self_attn(hidden, mask, None, past_key_values, **asked)
        hidden = self.self_attn_layer_norm(hidden + self.dropout(attended))
        cross_attentions = cross_weights = None
        if encoder_hidden is not None:
            attended, cross_attentions, cross_weights = self.encoder_attn(
                hidden, encoder_mask, encoder_hidden, past_key_values, **asked
            )
            hidden = self.encoder_attn_layer_norm(hidden + self.dropout(attended))
        hidden = self.final_layer_norm(hidden + self.dropout(self.feed_forward(hidden)))
        return hidden, attentions, cross_attentions, weights, cross_weights


# -------------------- hf_capsule_mt.configuration.configuration_capsule_rnmt

@capsule_config
class CapsuleRNMTConfig(TargetVocabulary, GuidedConfig):
    r"""
    Configuration of [`CapsuleRNMTModel`] and [`CapsuleRNMTForConditionalGeneration`].

    Args:
        vocab_size (`int`, defaults to 32000):
            Number of words of the vocabulary; of the source's alone with `share_encoder_decoder_embeddings=False`.
        decoder_vocab_size (`int`, *optional*):
            Number of words of a separate target vocabulary. `None` is `vocab_size`.
        hidden_size (`int`, defaults to 512):
            Width of the states of encoder and decoder, even: the encoder has one half for each direction.
        embedding_size (`int`, *optional*):
            Width of the embeddings. `None` is `hidden_size`.
        encoder_layers (`int`, defaults to 2):
            Number of bidirectional GRU layers of the encoder.
        decoder_layers (`int`, defaults to 2):
            Number of layers of the decoder: the lowest is the conditional GRU that attends to the source, those above
            it are GRUs.
        dropout (`float`, defaults to 0.1):
            Probability of dropout on the embeddings and on the output of each layer.
        init_std (`float`, defaults to 0.02):
            Standard deviation of the embeddings at the start.
        label_smoothing (`float`, defaults to 0.0):
            Label smoothing of the loss that the model computes, in place of the Trainer's `label_smoothing_factor`.
        share_encoder_decoder_embeddings (`bool`, defaults to `True`):
            One vocabulary for source and target.
        tie_word_embeddings (`bool`, defaults to `True`):
            One matrix for the embeddings of the target words and the output projection and, with one vocabulary, for
            the embeddings of the source words too.
        guided_routing (`str`, defaults to `"none"`):
            Guided dynamic routing of the source words to PAST and FUTURE (Zheng et al. 2019): `"guided"`, or its
            baselines `"classifier"` and `"attention"`. This field and the others that begin with `guided_` are those
            of [`GuidedConfig`].
    """

    model_type = "capsule_rnmt"
    keys_to_ignore_at_inference = ["past_key_values", "nll_loss", "bow_loss", "bca_loss", "routing_weights"]
    attribute_map = {"num_hidden_layers": "encoder_layers", "d_model": "hidden_size"}

    vocab_size: int = 32000
    decoder_vocab_size: int | None = None
    hidden_size: int = 512
    embedding_size: int | None = None
    encoder_layers: int = 2
    decoder_layers: int = 2
    dropout: float | int = 0.1
    init_std: float = 0.02
    use_cache: bool = True
    is_encoder_decoder: bool = True
    pad_token_id: int | None = 0
    eos_token_id: int | list[int] | None = 1
    bos_token_id: int | None = None
    decoder_start_token_id: int = 0
    share_encoder_decoder_embeddings: bool = True
    tie_word_embeddings: bool = True

    def __post_init__(self, **kwargs: Any) -> None:
        if self.decoder_vocab_size is None:
            self.decoder_vocab_size = self.vocab_size
        if self.embedding_size is None:
            self.embedding_size = self.hidden_size
        super().__post_init__(**kwargs)

    @property
    def embedding_width(self) -> int:
        return self.hidden_size if self.embedding_size is None else self.embedding_size

    def validate_sizes(self) -> None:
        if self.hidden_size < 2 or self.hidden_size % 2:
            raise ValueError(
                f"`hidden_size` must be even and at least 2, one half for each direction of the encoder, got "
                f"{self.hidden_size}"
            )
        check_range(self, 1, MOST_TOKENS, "vocab_size", "decoder_vocab_size")
        check_range(self, 1, MOST_LAYERS, "encoder_layers", "decoder_layers")
        check_range(self, 0, MOST_UNITS, "hidden_size")
        check_range(self, 1, MOST_UNITS, "embedding_size")
        check_probability(self, "dropout")
        check_not_negative(self, "init_std")

    def validate_token_ids(self) -> None:
        check_token_ids(self, "decoder_start_token_id", "pad_token_id", "eos_token_id", "bos_token_id")


# -------------------- hf_capsule_mt.modeling.vocabulary

# Of one vocabulary, where the weights are those of `shared`: in a base model, and in a generation model around it
TIED_TO_SHARED = {
    "decoder.embed_tokens.weight": "shared.weight",
    "encoder.embed_tokens.weight": "shared.weight",
}
ALL_TIED_TO_SHARED = {
    "lm_head.weight": "model.shared.weight",
    "model.decoder.embed_tokens.weight": "model.shared.weight",
    "model.encoder.embed_tokens.weight": "model.shared.weight",
}


def _vocabularies(config: PreTrainedConfig) -> CapsuleMarianConfig | CapsuleRNMTConfig:
    """Narrow the type of a config to those that know of separate vocabularies."""
    return cast(CapsuleMarianConfig | CapsuleRNMTConfig, config)


def decode_target(tokenizer: Any, sequence: Iterable[int], clean_up_tokenization_spaces: bool | None = None) -> str:
    """Return the text of a generated sequence, from the decoder's start token on, without its special tokens.

    `MarianTokenizer` has the ids of special tokens in the source vocabulary alone. In another target vocabulary they
    may be words, which it would leave out.
    """
    clean_up = clean_up_tokenization_spaces
    if not getattr(tokenizer, "separate_vocabs", False):
        return str(tokenizer.decode(sequence, skip_special_tokens=True, clean_up_tokenization_spaces=clean_up))
    special = set(tokenizer.all_special_tokens)
    words = [tokenizer.decoder.get(int(token), tokenizer.unk_token) for token in sequence][1:]
    words = [word for word in takewhile(lambda word: word != tokenizer.eos_token, words) if word not in special]
    tokenizer._decode_use_source_tokenizer = False
    text = str(tokenizer.convert_tokens_to_string(words))
    return str(tokenizer.clean_up_tokenization(text)) if clean_up else text


def target_vocabulary(tokenizer: Any) -> dict[str, int]:
    """Return the ids of a tokenizer's target tokens, which may have a vocabulary of their own."""
    backend = getattr(tokenizer, "_target_backend", None)  # of a SeparateVocabulariesTokenizer
    own = backend.get_vocab() if backend is not None else getattr(tokenizer, "target_encoder", None)
    return tokenizer.get_vocab() if own is None else own


def vocabularies_of(tokenizer: Any) -> list[dict[str, int]]:
    """Return what the tokens of a tokenizer mean, of the source and of the target."""
    return [tokenizer.get_vocab(), target_vocabulary(tokenizer)]


class EmbeddingStack(Protocol):
    """An encoder or a decoder."""

    embed_tokens: nn.Embedding


class VocabularyModel(PreTrainedModel):
    """Base of the base models: an `encoder`, a `decoder` and, of one vocabulary, `shared` embeddings."""

    encoder: EmbeddingStack
    decoder: EmbeddingStack
    shared: nn.Embedding

    def get_input_embeddings(self) -> nn.Embedding:
        return self.encoder.embed_tokens

    def set_input_embeddings(self, value: nn.Module) -> None:
        value = cast(nn.Embedding, value)
        self.encoder.embed_tokens = value
        if _vocabularies(self.config).share_encoder_decoder_embeddings:
            self.shared = value
            self.decoder.embed_tokens = value

    def get_decoder_input_embeddings(self) -> nn.Embedding:
        self._check_separate_vocabularies("get_decoder_input_embeddings", "get_input_embeddings")
        return self.decoder.embed_tokens

    def set_decoder_input_embeddings(self, value: nn.Embedding) -> None:
        self._check_separate_vocabularies("set_decoder_input_embeddings", "set_input_embeddings")
        self.decoder.embed_tokens = value

    def _resize_token_embeddings(
        self, new_num_tokens: int, pad_to_multiple_of: int | None = None, mean_resizing: bool = True
    ) -> nn.Embedding:
        def resize(embeddings: nn.Embedding) -> nn.Embedding:
            return self._get_resized_embeddings(embeddings, new_num_tokens, pad_to_multiple_of, mean_resizing)

        if not _vocabularies(self.config).share_encoder_decoder_embeddings:
            self.encoder.embed_tokens = resize(self.encoder.embed_tokens)
        elif self.config.tie_word_embeddings:
            self.set_input_embeddings(resize(self.encoder.embed_tokens))
        else:  # one vocabulary, but three matrices
            self.shared = resize(self.shared)
            for stack in (self.encoder, self.decoder):
                stack.embed_tokens = resize(stack.embed_tokens)
        if _vocabularies(self.config).share_encoder_decoder_embeddings:
            _vocabularies(self.config).decoder_vocab_size = self.encoder.embed_tokens.num_embeddings
        return self.encoder.embed_tokens

    def resize_decoder_token_embeddings(self, new_num_tokens: int) -> nn.Embedding:
        """Resize the embeddings of a separate target vocabulary."""
        self._check_separate_vocabularies("resize_decoder_token_embeddings", "resize_token_embeddings")
        self.decoder.embed_tokens = self._get_resized_embeddings(self.decoder.embed_tokens, new_num_tokens)
        _vocabularies(self.config).decoder_vocab_size = self.decoder.embed_tokens.num_embeddings
        return self.decoder.embed_tokens

    def _check_separate_vocabularies(self, method: str, instead: str) -> None:
        if _vocabularies(self.config).share_encoder_decoder_embeddings:
            raise ValueError(f"`{method}` needs `share_encoder_decoder_embeddings=False`, use `{instead}`")


class VocabularyTranslationModel(TranslationModel):
    """Base of the generation models around a `VocabularyModel`."""

    model: VocabularyModel

    def _resize_token_embeddings(
        self, new_num_tokens: int, pad_to_multiple_of: int | None = None, mean_resizing: bool = True
    ) -> nn.Embedding:
        embeddings = self.model._resize_token_embeddings(new_num_tokens, pad_to_multiple_of, mean_resizing)
        if _vocabularies(self.config).share_encoder_decoder_embeddings and not self.config.tie_word_embeddings:
            self.lm_head = self._get_resized_lm_head(self.lm_head, embeddings.num_embeddings)
        return embeddings

    def resize_decoder_token_embeddings(self, new_num_tokens: int) -> nn.Embedding:
        """Resize the embeddings, and the output projection, of a separate target vocabulary."""
        embeddings = self.model.resize_decoder_token_embeddings(new_num_tokens)
        if not self.config.tie_word_embeddings:
            self.lm_head = self._get_resized_lm_head(self.lm_head, new_num_tokens)
        self.tie_weights()
        self.lm_head.out_features = new_num_tokens
        return embeddings


# -------------------- hf_capsule_mt.modeling.warm_start

warm_start_logger = logging.get_logger("hf_capsule_mt.modeling")

# keywords of `from_pretrained` that it takes from its **kwargs
LOADING_KEYWORDS = frozenset(
    {
        "attn_implementation",
        "device_map",
        "dtype",
        "max_memory",
        "offload_folder",
        "subfolder",
        "trust_remote_code",
    }
)


def warm_start(
    model_class: Any, model_or_path: PreTrainedModel | str | os.PathLike[str], settings: dict[str, Any]
) -> tuple[Any, dict[str, list[str]]]:
    """Return a model of the class with all weights of a Marian model, and the names of new and dropped weights."""
    config_fields = {field.name for field in fields(CapsuleMarianConfig)}
    accepted = LOADING_KEYWORDS | set(inspect.signature(PreTrainedModel.from_pretrained).parameters)
    loading = {key: settings[key] for key in settings.keys() - config_fields}
    for keyword in loading.keys() - accepted:
        matches = difflib.get_close_matches(keyword, config_fields, n=1)
        hint = f"; did you mean `{matches[0]}`?" if matches else ""
        raise ValueError(f"`from_marian` got `{keyword}`, which is no field of CapsuleMarianConfig{hint}")

    if isinstance(model_or_path, PreTrainedModel):
        if loading:
            raise ValueError(f"{sorted(loading)} apply to a checkpoint, but `from_marian` was given a model")
        source = model_or_path
    else:
        source = AutoModelForSeq2SeqLM.from_pretrained(model_or_path, **loading)
    if not isinstance(source, (MarianMTModel, model_class)):
        raise ValueError(
            f"`from_marian` needs a MarianMTModel or a {model_class.__name__}, got a {type(source).__name__}"
        )

    values: dict[str, Any] = {key: value for key, value in source.config.to_dict().items() if key in config_fields}
    values |= {key: value for key, value in settings.items() if key in config_fields}
    values["attn_implementation"] = source.config._attn_implementation
    config = CapsuleMarianConfig(**values)
    config.architectures = [model_class.__name__]
    model = model_class(config).to(source.dtype)
    model.generation_config = copy.deepcopy(source.generation_config)
    if isinstance(model.model.decoder.guidance, PastFutureGuidance):
        model.model.decoder.guidance.start_without_effect()
    missing, unexpected = model.load_state_dict(source.state_dict(), strict=False)
    replaced = re.compile(r"\.(self_attn|encoder_attn)\.out_proj\.(weight|bias)$")
    surprising = [name for name in unexpected if not replaced.search(name)]
    if surprising:
        raise ValueError(f"the settings leave no place for these weights of the model: {surprising}")
    if missing:
        warm_start_logger.warning(f"New weights, to be trained: {', '.join(missing)}.")
    if unexpected:
        warm_start_logger.warning(f"Replaced by routing between heads, and dropped: {', '.join(unexpected)}.")
    model.train(source.training)
    return model.to(source.device), {"new_weights": missing, "dropped_weights": unexpected}


# -------------------- hf_capsule_mt.modeling.modeling_capsule_marian

class CapsuleMarianPreTrainedModel(PreTrainedModel):
    """Base of all classes of the family: initialisation, and what transformers asks of each."""

    config: CapsuleMarianConfig
    config_class = CapsuleMarianConfig
    base_model_prefix = "model"
    supports_gradient_checkpointing = True
    _supports_sdpa = True
    _supports_flash_attn = False
    _supports_flex_attn = False
    _can_compile_fullgraph = True
    _no_split_modules = ["EncoderLayer", "DecoderLayer"]
    _keys_to_ignore_on_load_missing = [r"final_logits_bias", r"embed_positions\.weight"]

    def __init__(self, config: CapsuleMarianConfig) -> None:
        config.validate()  # a field may have been set since the configuration was made
        super().__init__(config)

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if isinstance(module, SinusoidalPositions):
            init.copy_(module.weight, module.create_weight())
        elif isinstance(module, CapsuleMarianMTModel):
            init.zeros_(module.final_logits_bias)
        elif isinstance(module, nn.Linear) and (std := get_initial_std(module)) is not None:
            init.normal_(module.weight, std=std)
        elif isinstance(module, PerCapsuleLinear):
            std = get_initial_std(module)
            module.reset_parameters(self.config.init_std if std is None else std)
        elif isinstance(module, (Router, ZeroGainLayerNorm)):
            module.reset_parameters()

    @property
    def dummy_inputs(self) -> dict[str, torch.Tensor]:
        input_ids = torch.tensor([[0, 6, 10, 4, 2], [0, 8, 12, 2, 2]], device=self.device)
        return {"input_ids": input_ids, "decoder_input_ids": input_ids}


class TransformerStack(CapsuleMarianPreTrainedModel):
    """Base of the encoder and the decoder: embedding, positions and LayerDrop."""

    embed_tokens: nn.Embedding
    embed_positions: SinusoidalPositions
    gradient_checkpointing = False

    def embed(
        self, input_ids: torch.Tensor | None, inputs_embeds: torch.Tensor | None, start: int | torch.Tensor = 0
    ) -> torch.Tensor:
        """Token ids [B, T], or their embeddings [B, T, d], at the positions from `start` on -> [B, T, d]."""
        tokens = input_ids if inputs_embeds is None else inputs_embeds
        if tokens is None or (input_ids is not None and inputs_embeds is not None):
            raise ValueError(f"{type(self).__name__} needs exactly one of `input_ids` and `inputs_embeds`")
        length = tokens.shape[1]
        if isinstance(start, int) and start + length > self.embed_positions.num_embeddings:
            raise ValueError(
                f"{type(self).__name__} got a sequence of {start + length} tokens, but `max_position_embeddings` is "
                f"{self.embed_positions.num_embeddings}"
            )
        if inputs_embeds is None:
            inputs_embeds = self.embed_tokens(input_ids)
            scaled = self.config.scale_embedding
        else:
            scaled = self.config.scale_embedding and self.scales_given_embeddings
        if scaled:
            inputs_embeds = inputs_embeds * math.sqrt(self.config.d_model)
        hidden = inputs_embeds + self.embed_positions(length, start)
        return nn.functional.dropout(hidden, p=self.config.dropout, training=self.training)

    # transformers' Marian scales the embeddings that it is given in the decoder but not in the encoder
    scales_given_embeddings = True

    def drops_layer(self, probability: float) -> bool:
        """Decide whether to skip a layer this time (LayerDrop). A skipped layer's output is its input."""
        return self.training and probability > 0.0 and bool(torch.rand([]) < probability)


class CapsuleMarianEncoder(TransformerStack):
    """Transformer layers, and the seam after them: the top layer's output, or an aggregation of all layers."""

    scales_given_embeddings = False

    def __init__(self, config: CapsuleMarianConfig) -> None:
        super().__init__(config)
        self.embed_tokens = nn.Embedding(config.vocab_size, config.d_model, config.pad_token_id)
        self.embed_positions = SinusoidalPositions(config.max_position_embeddings, config.d_model)
        self.layers = nn.ModuleList([EncoderLayer(config, layer) for layer in range(config.encoder_layers)])
        self.layer_aggregation = build_layer_aggregation(
            config, config.encoder_layers, config.aggregates_encoder_layers
        )
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        output_routing_weights: bool = False,
    ) -> CapsuleEncoderOutput:
        """Encode token ids [B, S] with their mask [B, S] to states [B, S, d]."""
        output_attentions, output_hidden_states = resolve_output_flags(
            self.config, output_attentions, output_hidden_states
        )
        hidden = self.embed(input_ids, inputs_embeds)
        mask = bidirectional_mask(attention_mask, hidden.shape[1], hidden.dtype, self.config._attn_implementation)
        states, attentions, routings = [hidden], [], {}
        for number, layer in enumerate(self.layers):
            if not self.drops_layer(self.config.encoder_layerdrop):
                hidden, layer_attentions, weights = layer(hidden, mask, output_attentions, output_routing_weights)
                attentions.append(layer_attentions)
                routings[f"encoder.layers.{number}.self_attn"] = weights
            states.append(hidden)
        hidden, weights = _aggregate(self.layer_aggregation, states, output_routing_weights)
        routings["encoder.layer_aggregation"] = weights
        return CapsuleEncoderOutput(
            last_hidden_state=hidden,
            hidden_states=(*states[:-1], hidden) if output_hidden_states else None,
            attentions=tuple(attentions) if output_attentions else None,
            routing_weights=_only_routings(routings) if output_routing_weights else None,
        )


class CapsuleMarianDecoder(TransformerStack):
    """Transformer layers, the seam after them as in the encoder, and the seam for PAST and FUTURE."""

    def __init__(self, config: CapsuleMarianConfig) -> None:
        super().__init__(config)
        self.embed_tokens = nn.Embedding(config.target_vocab_size, config.d_model, config.pad_token_id)
        self.embed_positions = SinusoidalPositions(config.max_position_embeddings, config.d_model)
        self.layers = nn.ModuleList([DecoderLayer(config, layer) for layer in range(config.decoder_layers)])
        self.layer_aggregation = build_layer_aggregation(
            config, config.decoder_layers, config.aggregates_decoder_layers
        )
        self.guidance = build_guidance(config, config.d_model)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        encoder_hidden_states: torch.Tensor | None = None,
        encoder_attention_mask: torch.Tensor | None = None,
        past_key_values: Cache | None = None,
        inputs_embeds: torch.Tensor | None = None,
        use_cache: bool | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        output_routing_weights: bool = False,
        output_guided_capsules: bool = False,
    ) -> CapsuleDecoderOutput:
        """Decode token ids [B, T] after those in the cache, over encoder states [B, S, d], to states [B, T, d]."""
        output_attentions, output_hidden_states = resolve_output_flags(
            self.config, output_attentions, output_hidden_states
        )
        if use_cache is None:
            use_cache = self.config.use_cache
        if self.gradient_checkpointing and self.training:
            use_cache, past_key_values = False, None
        if use_cache and past_key_values is None:
            past_key_values = DynamicCache(config=self.config)
        if past_key_values is not None and not isinstance(past_key_values, EncoderDecoderCache):
            past_key_values = EncoderDecoderCache(past_key_values, DynamicCache(config=self.config))
        if past_key_values is not None and self.config.guided_routing != "none":
            past_key_values = guided_cache(past_key_values)
        self_attention_cache = None if past_key_values is None else past_key_values.self_attention_cache
        start = 0 if self_attention_cache is None else self_attention_cache.get_seq_length()
        hidden = self.embed(input_ids, inputs_embeds, start)
        implementation = "eager" if output_attentions else self.config._attn_implementation
        mask = causal_mask(attention_mask, hidden, self_attention_cache, implementation)
        begins = isinstance(start, int) and start == 0  # a sentence; its mask is not asked again at each step
        encoder_mask = bidirectional_mask(
            encoder_attention_mask, hidden.shape[1], hidden.dtype, implementation, ask=begins
        )
        states, attentions, cross_attentions, routings = [hidden], [], [], {}
        for number, layer in enumerate(self.layers):
            if not self.drops_layer(self.config.decoder_layerdrop):
                hidden, layer_attentions, layer_cross_attentions, weights, cross_weights = layer(
                    hidden,
                    mask,
                    encoder_hidden_states,
                    encoder_mask,
                    past_key_values=past_key_values,
                    output_attentions=output_attentions,
                    output_routing_weights=output_routing_weights,
                )
                attentions.append(layer_attentions)
                cross_attentions.append(layer_cross_attentions)
                routings[f"decoder.layers.{number}.self_attn"] = weights
                routings[f"decoder.layers.{number}.encoder_attn"] = cross_weights
            states.append(hidden)
        hidden, weights = _aggregate(self.layer_aggregation, states, output_routing_weights)
        routings["decoder.layer_aggregation"] = weights
        guided = self.guide(
            hidden,
            encoder_hidden_states,
            encoder_attention_mask,
            past_key_values,
            output_routing_weights,
            begins,
        )
        routings["decoder.guidance"] = guided.weights
        has_cross = output_attentions and encoder_hidden_states is not None
        return CapsuleDecoderOutput(
            last_hidden_state=guided.state,
            past_key_values=past_key_values,
            hidden_states=(*states[:-1], guided.state) if output_hidden_states else None,
            attentions=tuple(attentions) if output_attentions else None,
            cross_attentions=tuple(cross_attentions) if has_cross else None,
            routing_weights=_only_routings(routings) if output_routing_weights else None,
            guided_capsules=guided.capsules if output_guided_capsules else None,
            unguided_state=hidden if output_guided_capsules else None,
        )

    def guide(
        self,
        hidden: torch.Tensor,
        encoder_hidden_states: torch.Tensor | None,
        encoder_attention_mask: torch.Tensor | None,
        past_key_values: EncoderDecoderCache | None,
        output_routing_weights: bool,
        begins: bool,
    ) -> GuidanceOutput:
        """Add PAST and FUTURE of the encoder's states [B, S, d] to states [B, T, d]."""
        guidance = self.guidance
        if isinstance(guidance, NoGuidance):
            return guidance(hidden)
        mask = source_mask(encoder_attention_mask, ask=begins)
        cache = None if past_key_values is None else guided_cache(past_key_values)
        sources = guidance.prepare(encoder_hidden_states, mask, cache)
        return guidance(hidden, sources, mask, output_routing_weights)


def _aggregate(
    layer_aggregation: nn.Module, states: list[torch.Tensor], output_routing_weights: bool
) -> tuple[torch.Tensor, IterationWeights | None]:
    """Aggregate the layer outputs of a stack; `states` are its embeddings, then one output for each layer."""
    return layer_aggregation(states[1:] or states, output_routing_weights)


def _only_routings(routings: dict[str, IterationWeights | None]) -> RoutingWeights:
    """Keep the places that have a routing."""
    return {place: iterations for place, iterations in routings.items() if iterations is not None}


class CapsuleMarianModel(CapsuleMarianPreTrainedModel, VocabularyModel):
    """Encoder and decoder without the projection to the vocabulary."""

    encoder: CapsuleMarianEncoder
    decoder: CapsuleMarianDecoder

    def __init__(self, config: CapsuleMarianConfig) -> None:
        super().__init__(config)
        if config.share_encoder_decoder_embeddings:
            self.shared = nn.Embedding(config.vocab_size, config.d_model, config.pad_token_id)
            self._tied_weights_keys = dict(TIED_TO_SHARED)
        self.encoder = CapsuleMarianEncoder(config)
        self.decoder = CapsuleMarianDecoder(config)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        decoder_input_ids: torch.Tensor | None = None,
        decoder_attention_mask: torch.Tensor | None = None,
        encoder_outputs: tuple[torch.Tensor, ...] | BaseModelOutput | None = None,
        past_key_values: Cache | None = None,
        inputs_embeds: torch.Tensor | None = None,
        decoder_inputs_embeds: torch.Tensor | None = None,
        use_cache: bool | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        output_routing_weights: bool = False,
        output_guided_capsules: bool = False,
    ) -> CapsuleSeq2SeqModelOutput:
        """Encode source ids [B, S], decode target ids [B, T] and return the decoder's states [B, T, d].

        Args:
            attention_mask: [B, S], and `decoder_attention_mask` [B, T]: True or 1 keeps a token.
            encoder_outputs: of the same source; the encoder is then not run.
            past_key_values: the cache of the tokens before `decoder_input_ids`.
            output_routing_weights: return the assignment probabilities of every routing at every iteration.
            output_guided_capsules: return the capsules of PAST and FUTURE, and the states before they are added.
        """
        if encoder_outputs is None:
            encoded: BaseModelOutput = self.encoder(
                input_ids=input_ids,
                attention_mask=attention_mask,
                inputs_embeds=inputs_embeds,
                output_attentions=output_attentions,
                output_hidden_states=output_hidden_states,
                output_routing_weights=output_routing_weights,
                return_dict=True,
            )
        else:
            encoded = as_encoder_output(encoder_outputs)
        decoded: CapsuleDecoderOutput = self.decoder(
            input_ids=decoder_input_ids,
            attention_mask=decoder_attention_mask,
            encoder_hidden_states=encoded.last_hidden_state,
            encoder_attention_mask=attention_mask,
            past_key_values=past_key_values,
            inputs_embeds=decoder_inputs_embeds,
            use_cache=use_cache,
            output_attentions=output_attentions,
            output_hidden_states=output_hidden_states,
            output_routing_weights=output_routing_weights,
            output_guided_capsules=output_guided_capsules,
            return_dict=True,
        )
        return join_stacks(encoded, decoded, output_routing_weights)


class CapsuleMarianMTModel(CapsuleMarianPreTrainedModel, VocabularyTranslationModel, PastFutureModel, GenerationMixin):
    """The translation model: a [`CapsuleMarianModel`] and its projection to the vocabulary."""

    model: CapsuleMarianModel

    _tied_weights_keys = {"lm_head.weight": "model.decoder.embed_tokens.weight"}

    def __init__(self, config: CapsuleMarianConfig) -> None:
        super().__init__(config)
        self.model = CapsuleMarianModel(config)
        if config.share_encoder_decoder_embeddings:
            self._tied_weights_keys = dict(ALL_TIED_TO_SHARED)
        # When it resumes, the Trainer warns of missing weights unless they are exactly those that are not saved
        self._keys_to_ignore_on_save = [
            "model.encoder.embed_positions.weight",
            "model.decoder.embed_positions.weight",
            *(self._tied_weights_keys if config.tie_word_embeddings else ()),
        ]
        self.final_logits_bias: torch.Tensor
        self.register_buffer("final_logits_bias", torch.zeros((1, config.target_vocab_size)))
        self.lm_head: nn.Linear = nn.Linear(config.d_model, config.target_vocab_size, bias=False)
        self.guided_losses: GuidedLosses | None = build_guided_losses(config, config.d_model)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        decoder_input_ids: torch.Tensor | None = None,
        decoder_attention_mask: torch.Tensor | None = None,
        encoder_outputs: tuple[torch.Tensor, ...] | BaseModelOutput | None = None,
        past_key_values: Cache | None = None,
        inputs_embeds: torch.Tensor | None = None,
        decoder_inputs_embeds: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
        use_cache: bool | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        output_routing_weights: bool = False,
        num_items_in_batch: torch.Tensor | int | None = None,
    ) -> CapsuleSeq2SeqLMOutput:
        """Encode source ids [B, S], decode target ids [B, T] and return logits [B, T, V].

        Args:
            labels: [B, T], -100 where there is no target. With them comes `loss`, the cross entropy smoothed by
                `config.label_smoothing`, summed over the targets and divided by their number, plus the losses of
                `guided_routing`. Its parts come as `nll_loss`, `bow_loss` and `bca_loss`.
            num_items_in_batch: divide the losses by this instead. The Trainer gives the number of targets in all
                batches, on all processes, that make one step.
            output_routing_weights: return the assignment probabilities of every routing at every iteration.
        """
        check_labels_given(labels, num_items_in_batch, self.guided_losses is not None)
        if labels is not None:
            use_cache = False
            if decoder_input_ids is None and decoder_inputs_embeds is None:
                decoder_input_ids = self.prepare_decoder_input_ids_from_labels(labels)
        outputs: CapsuleSeq2SeqModelOutput = self.model(
            input_ids,
            attention_mask=attention_mask,
            decoder_input_ids=decoder_input_ids,
            decoder_attention_mask=decoder_attention_mask,
            encoder_outputs=encoder_outputs,
            past_key_values=past_key_values,
            inputs_embeds=inputs_embeds,
            decoder_inputs_embeds=decoder_inputs_embeds,
            use_cache=use_cache,
            output_attentions=output_attentions,
            output_hidden_states=output_hidden_states,
            output_routing_weights=output_routing_weights,
            output_guided_capsules=labels is not None and self.guided_losses is not None,
            return_dict=True,
        )
        # [B, T, V]
        logits = self.lm_head(outputs.last_hidden_state) + self.final_logits_bias
        if labels is None:
            return translation_output(outputs, logits, None)
        nll_loss = translation_loss(logits, labels, self.config.label_smoothing, num_items_in_batch)
        if self.guided_losses is None:
            return translation_output(outputs, logits, nll_loss)
        bow_loss, bca_loss = self.guided_losses(
            outputs.guided_capsules, outputs.unguided_state, labels, self.lm_head.weight, num_items_in_batch
        )
        return translation_output(outputs, logits, nll_loss, bow_loss, bca_loss)

    @classmethod
    def from_marian(
        cls,
        model_or_path: PreTrainedModel | str | os.PathLike[str],
        *,
        output_loading_info: bool = False,
        **settings: Any,
    ) -> Any:
        """Add capsules to a Marian (OPUS-MT) model: keep all its weights, initialise what the settings switch on.

        New weights are random and listed in a log message. The model starts as the old one with `guided_routing`,
        whose last layer starts at zero, and with `layer_aggregation_residual=True`. Without a residual, and with head
        aggregation, which replaces the old output projection, train it before it translates.

        Args:
            model_or_path: a `MarianMTModel`, a name on the hub, or a folder. A `CapsuleMarianMTModel` works too, to
                add capsules to a baseline; settings that are not given keep its values.
            output_loading_info: return the model and a dictionary with the `new_weights` and the `dropped_weights`.
            **settings: fields of `CapsuleMarianConfig`, and keywords of `from_pretrained` (`revision`, `dtype`, ...).
        """
        model, info = warm_start(cls, model_or_path, settings)
        return (model, info) if output_loading_info else model

    def resize_token_embeddings(
        self, new_num_tokens: int | None = None, pad_to_multiple_of: int | None = None, mean_resizing: bool = True
    ) -> nn.Embedding:
        embeddings = super().resize_token_embeddings(new_num_tokens, pad_to_multiple_of, mean_resizing)
        if self.config.share_encoder_decoder_embeddings:
            self._resize_final_logits_bias(embeddings.num_embeddings)
        return embeddings

    def resize_decoder_token_embeddings(self, new_num_tokens: int) -> nn.Embedding:
        """For a separate target vocabulary."""
        embeddings = super().resize_decoder_token_embeddings(new_num_tokens)
        self._resize_final_logits_bias(new_num_tokens)
        return embeddings

    def _resize_final_logits_bias(self, new_num_tokens: int) -> None:
        kept = self.final_logits_bias[:, :new_num_tokens]
        self.final_logits_bias = nn.functional.pad(kept, (0, new_num_tokens - kept.shape[1]))


# -------------------- hf_capsule_mt.pipelines.results

CoveredBy = Literal["attention", "guided", "deletion"]
CoverageMethod = Literal["auto", CoveredBy]
# what a translation may keep as it is in the source
KEPT = ("tags", "urls", "placeholders", "numbers")

# how many batches of texts are read ahead, to make batches of sentences of about the same length
BATCHES_READ_AHEAD = 32
# the same for batches by tokens
TEXTS_READ_AHEAD = 2048


@dataclass(frozen=True)
class CoverageOptions:
    """Ask for coverage, and say what to do with it.

    Attributes:
        method: "attention" reads the attention of one head that `capsule-mt calibrate` has chosen, and "guided" reads
            PAST and FUTURE, which a model with guided routing computes: as a fast backend translates, else in one more
            forced pass of the decoder. "deletion" takes any model: it deletes each word of the source and compares how
            probable the translation is with and without it, which costs a pass of encoder and decoder for each word.
            "auto" is "attention" where a head was chosen, else "guided" where the model has it, else "deletion".
        threshold: warn of sentences whose coverage is below this.
        retry_beams: translate those sentences again with so many beams, rescored by `weight` (5 by default), and keep
            the translation that leaves less out.
        weight: rank the hypotheses of beam search by their score less `weight` times the mean share of the source
            that is left out: what is in FUTURE by "guided", else what is not covered before calibration.
    """

    threshold: float | None = None
    retry_beams: int | None = None
    weight: float | None = None
    method: CoverageMethod = "auto"

    def __post_init__(self) -> None:
        if self.method not in get_args(CoverageMethod):
            raise ValueError(f'`method` must be "auto", "attention", "guided" or "deletion", got {self.method!r}')
        if self.retry_beams is not None and self.retry_beams < 2:
            raise ValueError(f"`retry_beams` must be at least 2, got {self.retry_beams}")
        if self.retry_beams is not None and self.threshold is None:
            raise ValueError(f"`retry_beams` ({self.retry_beams}) needs a `threshold`, got None")


@dataclass(frozen=True)
class TranslationOptions:
    """The settings of one call of a `Translator`, whose docstring explains them."""

    batch_size: int = 1
    batch_tokens: int | None = None
    coverage: CoverageOptions | None = None
    scores: bool = True
    split_sentences: bool = True
    max_source_tokens: int | None = None
    truncation: bool | str = False
    src_lang: str | None = None
    tgt_lang: str | None = None
    clean_up_tokenization_spaces: bool | None = None
    keep: Sequence[str] = ()
    generate_kwargs: Mapping[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, smallest in (("batch_size", 1), ("batch_tokens", 1), ("max_source_tokens", 2)):
            number = getattr(self, name)
            if number is not None and number < smallest:
                raise ValueError(f"`{name}` must be at least {smallest}, got {number}")
        num_beams = self.generate_kwargs.get("num_beams")
        if isinstance(num_beams, int) and num_beams < 1:
            raise ValueError(f"`num_beams` must be at least 1, got {num_beams}")
        if isinstance(self.keep, str) or not set(self.keep) <= set(KEPT):
            raise ValueError(f"`keep` takes a list of {', '.join(KEPT)}, got {self.keep!r}")
        if self.keep and self.coverage is not None:
            raise ValueError(f"`keep` ({', '.join(self.keep)}) and `coverage` exclude each other: leave one out")

    @property
    def window(self) -> int:
        """How many texts are read before the first of them is translated."""
        if self.batch_tokens is not None:
            return TEXTS_READ_AHEAD
        return 1 if self.batch_size == 1 else self.batch_size * BATCHES_READ_AHEAD


@dataclass(frozen=True)
class Word:
    """A word of the source, the characters `start` to `end` of the text, and its coverage.

    `covered` is how much of it was translated, by whichever method; once calibrated, a probability. A word that mostly
    was not is `untranslated`; so is one that the vocabulary does not know, which has a `covered` of 0. Optional words,
    which calibration finds, are never `untranslated`. `past` and `future` are its shares of PAST and FUTURE after the
    last token by the method "guided", else `None`.
    """

    text: str
    start: int
    end: int
    covered: float
    untranslated: bool
    past: float | None = None
    future: float | None = None


@dataclass(frozen=True)
class SentenceCoverage:
    """The coverage of the characters `start` to `end` of the text."""

    start: int
    end: int
    score: float


@dataclass(frozen=True)
class Coverage:
    """How much of a text was translated, by its words, its sentences, and as one `score` between 0 and 1.

    `repetitions` are phrases that the translation says twice in a row and the source does not. A blank text has the
    score 1.
    """

    score: float
    words: tuple[Word, ...]
    sentences: tuple[SentenceCoverage, ...]
    repetitions: tuple[str, ...]

    @property
    def untranslated(self) -> tuple[Word, ...]:
        """The words that were left out."""
        return tuple(word for word in self.words if word.untranslated)


@dataclass(frozen=True)
class Segment:
    """One sentence of a text, or a part of one that is too long: what went through the model at once.

    `target_ids` are from the decoder's start token to the end token. `was_cut` says that they reached their limit.
    """

    start: int
    end: int
    source_ids: tuple[int, ...]
    target_ids: tuple[int, ...]
    was_cut: bool


@dataclass(frozen=True)
class Translation:
    """The translation of one text.

    `score` is `None` where scores were not asked for and for a blank text, `coverage` where it was not asked for.
    """

    text: str
    score: float | None
    coverage: Coverage | None
    segments: tuple[Segment, ...]

    @property
    def token_ids(self) -> tuple[int, ...]:
        """The token ids of all segments in a row."""
        return tuple(token_id for segment in self.segments for token_id in segment.target_ids)

    @property
    def was_cut(self) -> bool:
        """Whether a segment reached the limit of its length, so that the translation may be incomplete."""
        return any(segment.was_cut for segment in self.segments)


# -------------------- hf_capsule_mt.pipelines.backends

BACKENDS = ("auto", "native", "torch", "transformers")
FAST_ROOM = "hf_capsule_mt.fast"


class FastDecoder(Protocol):
    """What the pipelines need of a `hf_capsule_mt.fast.FastTranslator`."""

    int8: bool

    @property
    def backend(self) -> str: ...

    def decode(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        limits: torch.Tensor | None,
        options: Mapping[str, Any],
        *,
        coverage: bool | Sequence[int] = False,
    ) -> tuple[torch.Tensor, torch.Tensor, CoverageScore | torch.Tensor | None] | None: ...


def choose_backend(
    model: PreTrainedModel, members: list[PreTrainedModel], int8: bool, backend: str, shortlist: bool | str | Path
) -> FastDecoder | None:
    """Return what decodes in the place of `generate()`, if anything does."""
    if backend not in BACKENDS:
        raise ValueError(f"`backend` must be {', '.join(map(repr, BACKENDS[:-1]))} or 'transformers', got {backend!r}")
    fast = _fast_decoder(model, members, int8, backend, shortlist)
    if shortlist and fast is None:
        raise ValueError(
            "`shortlist` is for one float32 model on a CPU that `to_fast` takes, with another `backend` than "
            f'"transformers"; got `backend={backend!r}` and a {type(model).__name__}'
        )
    return fast


def _fast_decoder(
    model: PreTrainedModel, members: list[PreTrainedModel], int8: bool, backend: str, shortlist: bool | str | Path
) -> FastDecoder | None:
    if backend == "transformers":
        if int8:
            raise ValueError('`int8=True` needs another `backend` than "transformers"')
        return None
    weight = next(model.parameters())
    if not (weight.is_cpu and weight.dtype == torch.float32):
        if int8 or backend != "auto":
            wanted = "int8" if int8 else f"`backend={backend!r}`"
            raise ValueError(f"{wanted} is for float32 models on a CPU, got {weight.dtype} on {weight.device}")
        return None
    if backend != "auto" and members:
        raise ValueError(f'an ensemble needs `backend="auto"` or "transformers", got {backend!r}')
    fast = _fast_room()
    if fast is None:
        if int8 or backend != "auto":
            raise ImportError(
                "`int8` and `backend` need hf-capsule-mt, which is not installed: pip install hf-capsule-mt"
            )
        return None
    if backend != "auto" or (not members and fast.takes_fast(model)):
        translator: FastDecoder = fast.to_fast(model, int8=int8, backend=backend, shortlist=shortlist)
        return translator
    for member in (model, *members):
        fast.use_fast_linears(member, int8=int8)
    return None


def _fast_room() -> Any:
    """Import `hf_capsule_mt.fast`, which an exported checkpoint does not bring along."""
    try:
        return importlib.import_module(FAST_ROOM)
    except ImportError:
        return None


# -------------------- hf_capsule_mt.modeling.loading

Loaded = TypeVar("Loaded")
NameOrPath = str | os.PathLike[str]

# of other families, weights without a place are common and harmless
STRICT_FAMILIES = frozenset({"marian", "capsule_marian", "capsule_rnmt", "capsnmt"})
HUB_NAME = re.compile(r"[\w-][\w.-]*(/[\w-][\w.-]*)?")
WEIGHTS_FILE = "model.safetensors"
# what `to_fast(model).save` writes: rounded matrices as `NAME.codes` [out, in] and `NAME.largest` [out], others as
# they are; and the SHA-256 of that file
INT8_FILE = "int8.safetensors"
INT8_FACTS = "int8.json"
INT8_FORMAT = 1
LARGEST_CODE = 127
WEIGHTS_INDEX = "model.safetensors.index.json"
FLOATING_TYPES = frozenset({"F64", "F32", "F16", "BF16"})
LONGEST_HEADER = 100_000_000  # bytes, as safetensors allows
# a vocabulary may be rounded up to a multiple of one of these
PADDED_TO = (8, 16, 32, 64, 128)


class CheckpointError(ValueError):
    """A checkpoint is damaged, or its weights, configuration and tokenizer do not fit together."""


class CheckedSeq2SeqLM(AutoModelForSeq2SeqLM):
    """Loads like `AutoModelForSeq2SeqLM`, and notes in `loading_problem` what does not fit; `check_weights` raises it.

    `transformers.pipeline` tries further classes after an error, so that an error here would be lost.
    """

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path: NameOrPath, *args: Any, **kwargs: Any) -> Any:
        model, problem = _load(pretrained_model_name_or_path, *args, **kwargs)
        model.loading_problem = problem
        return model


def load_checkpoint(name_or_path: NameOrPath, **kwargs: Any) -> tuple[Any, PreTrainedTokenizerBase]:
    """Return a model in evaluation mode, and its tokenizer; `kwargs` are those of the model's `from_pretrained`.

    Raise a `CheckpointError` that names the file, and the tensor or the field, if anything does not fit.
    """
    model = load_model(name_or_path, **kwargs)
    tokenizer = load_tokenizer(name_or_path, model.config)
    check_tokenizer(model, tokenizer)
    return model, tokenizer


def load_model(name_or_path: NameOrPath, **kwargs: Any) -> Any:
    """Return a model in evaluation mode; raise a `CheckpointError` if its weights do not fit its configuration."""
    model = CheckedSeq2SeqLM.from_pretrained(name_or_path, **kwargs)
    check_weights(model)
    return model


def load_tokenizer(name_or_path: NameOrPath, config: Any = None) -> PreTrainedTokenizerBase:
    """Return the tokenizer of a checkpoint; every error names the checkpoint.

    Args:
        config: that of its model, which saves reading it again.
    """
    check_place(name_or_path)
    tokenizer: Any = _named(
        name_or_path, lambda: AutoTokenizer.from_pretrained(name_or_path, config=config), "the tokenizer"
    )
    for keyword in ("is_local", "local_files_only"):  # `save_pretrained` would write how it was loaded
        tokenizer.init_kwargs.pop(keyword, None)
    return cast(PreTrainedTokenizerBase, tokenizer)


def check_place(name_or_path: NameOrPath) -> None:
    """Raise a `CheckpointError` for the path of a missing folder, which transformers would ask the hub for."""
    text, path = os.fspath(name_or_path), Path(name_or_path)
    if path.exists():
        return
    if HUB_NAME.fullmatch(text) is None:
        raise CheckpointError(f"{text}: no such folder, and no name on the hub (owner/name)")
    if "/" in text and path.parent.is_dir():
        raise CheckpointError(f"{text}: no such folder (the hub is not asked, as there is a folder {path.parent})")


def checked_weight_files(folder: NameOrPath) -> list[Path]:
    """Return the safetensors files of a checkpoint; raise a `CheckpointError` if one is damaged."""
    files = []
    for file, header in _headers(Path(folder)):
        wanted = _header_length(file) + max((facts["data_offsets"][1] for facts in header.values()), default=0)
        if wanted != file.stat().st_size:
            raise CheckpointError(f"{file}: is {file.stat().st_size} bytes long, but its header describes {wanted}")
        files.append(file)
    return files


@torch.no_grad()
def check_weights(model: PreTrainedModel) -> None:
    """Raise a `CheckpointError` if loading left a problem, or a weight or a logit of the first token is not finite."""
    problem = getattr(model, "loading_problem", None)
    if problem is not None:
        raise CheckpointError(str(problem))
    name = model.name_or_path or type(model).__name__
    for weight, tensor in (*model.named_parameters(), *model.named_buffers()):
        # one sum reads the memory once; it may overflow where every number is finite
        if tensor.is_floating_point() and not tensor.is_meta and not tensor.sum().isfinite():
            wrong = tensor.isnan() if weight in dict(model.named_buffers()) else ~tensor.isfinite()
            if wrong.any():
                number = f"{int(wrong.sum())} of {wrong.numel()}"
                raise CheckpointError(f"{_file_of(name, weight)}: `{weight}` has {number} numbers that are not finite")
    config = model.config
    start = getattr(model.generation_config, "decoder_start_token_id", None)
    start = getattr(config, "decoder_start_token_id", None) if start is None else start
    if config.model_type not in STRICT_FAMILIES or start is None or next(model.parameters()).is_meta:
        return
    start_ids = torch.tensor([[start]], device=model.device)
    source = {"input_ids": torch.zeros_like(start_ids), "attention_mask": torch.ones_like(start_ids)}
    logits = model(**source, decoder_input_ids=start_ids, use_cache=False).logits
    if logits.isnan().any() or logits.isposinf().any():  # minus infinity forbids a token
        raise CheckpointError(f"{_file_of(name)}: the logits are not finite")


def check_tokenizer(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
    """Raise a `CheckpointError` if a tokenizer has other tokens than the vocabularies of a model."""
    name, config = model.name_or_path or type(model).__name__, model.config
    embedding, head = model.get_input_embeddings(), model.get_output_embeddings()
    if not isinstance(embedding, nn.Embedding):
        return
    num_tokens, largest = len(tokenizer), max(tokenizer.get_vocab().values(), default=-1)
    num_target = getattr(tokenizer, "target_vocab_size", None)
    if num_target is None and getattr(tokenizer, "separate_vocabs", False):
        num_target = len(tokenizer.target_encoder)
    sizes = [("source", embedding.num_embeddings, max(num_tokens, largest + 1))]
    if head is not None and hasattr(head, "weight"):
        sizes.append(("target", len(head.weight), max(num_tokens, largest + 1) if num_target is None else num_target))
    for side, size, tokens in sizes:
        if tokens > size or (config.model_type in STRICT_FAMILIES and not _is_padded(size, tokens)):
            raise CheckpointError(
                f"{name}: the tokenizer has {tokens} tokens, but the {side} vocabulary of the model has {size}"
            )
    if config.model_type in STRICT_FAMILIES:
        for field in ("pad_token_id", "eos_token_id"):
            ours, theirs = getattr(tokenizer, field, None), getattr(config, field, None)
            if ours is not None and theirs is not None and ours not in _as_list(theirs):
                raise CheckpointError(
                    f"{name}: `{field}` is {ours} in the tokenizer, but {theirs} in the configuration of the model"
                )


def _load(name_or_path: NameOrPath, *args: Any, **kwargs: Any) -> tuple[Any, str | None]:
    """Load a model; return it with a sentence about weights that are missing, superfluous or of another shape."""

    def named(load: Callable[[], Any]) -> Any:
        try:
            return _named(name_or_path, load)
        except CheckpointError:
            _check_family(folder / "config.json", kwargs)
            raise

    check_place(name_or_path)
    folder = Path(name_or_path)
    # only the mode without an error tells which tensors have another shape
    settings = {"ignore_mismatched_sizes": True} | kwargs | {"output_loading_info": True}
    if folder.is_dir():
        checked_weight_files(folder)
        # or transformers asks whether to trust code in the folder, and waits
        settings["trust_remote_code"] = bool(kwargs.get("trust_remote_code"))
    source: NameOrPath | None = name_or_path
    model_class: Any = AutoModelForSeq2SeqLM
    if (folder / INT8_FILE).is_file():
        if kwargs.get("dtype") == "auto":
            settings["dtype"] = torch.float32
        trust = settings["trust_remote_code"]
        config = settings.get("config") or named(lambda: AutoConfig.from_pretrained(folder, trust_remote_code=trust))
        source, settings = None, settings | {"config": config, "state_dict": _int8_state(folder)}
        model_class = MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING[type(config)]
    model, found = named(lambda: model_class.from_pretrained(source, *args, **settings))
    if source is None:
        model.name_or_path = model.config.name_or_path = os.fspath(name_or_path)
        if (folder / "generation_config.json").is_file():
            model.generation_config = named(lambda: GenerationConfig.from_pretrained(folder))
    if (folder / "generation_config.json").is_file():  # transformers takes the defaults for one that it cannot read
        named(lambda: GenerationConfig.from_pretrained(folder))
    problem = _loading_problem(model, found, name_or_path)
    if problem is None and model.config.model_type in STRICT_FAMILIES:
        problem = _token_problem(model, name_or_path)
    if problem is None and folder.is_dir():
        problem = _type_problem(model, folder)
    return model.eval(), problem


def from_codes(codes: torch.Tensor, largest: torch.Tensor) -> torch.Tensor:
    """Return the weight [out, in] whose rows have these codes of int8 and this largest magnitude [out].

    Rounding it again gives the same codes and the same largest magnitude, bit for bit.
    """
    weight = codes.float() * (largest / LARGEST_CODE)[:, None]
    return torch.where(codes.abs() == LARGEST_CODE, largest[:, None] * codes.sign(), weight)


def _int8_state(folder: Path) -> dict[str, torch.Tensor]:
    """Return the weights of an int8 checkpoint in float32."""
    file, facts_file = folder / INT8_FILE, folder / INT8_FACTS
    if not facts_file.is_file():
        raise CheckpointError(f"{facts_file} is missing, which has the digest of {INT8_FILE}")
    facts = _json(facts_file, facts_file.read_bytes())
    if facts.get("format") != INT8_FORMAT:
        raise CheckpointError(f"{facts_file}: `format` must be {INT8_FORMAT}, got {facts.get('format')!r}")
    found = sha256()
    with open(file, "rb") as stream:
        while block := stream.read(1 << 20):
            found.update(block)
    if found.hexdigest() != facts.get("sha256"):
        raise CheckpointError(
            f"{file}: its SHA-256 is {found.hexdigest()}, but {INT8_FACTS} says {facts.get('sha256')}"
        )
    saved = cast("dict[str, torch.Tensor]", load_state_dict_from_file(file))
    state = {name: tensor.float() for name, tensor in saved.items() if not name.endswith((".codes", ".largest"))}
    for name in [name.removesuffix(".codes") for name in saved if name.endswith(".codes")]:
        state[name] = from_codes(saved[f"{name}.codes"], saved[f"{name}.largest"])
    return state


def _check_family(file: Path, kwargs: Mapping[str, Any]) -> None:
    """Refuse a model type that nothing here knows; code in the folder is for those who trust it."""
    if not file.is_file() or "config" in kwargs or kwargs.get("trust_remote_code"):
        return
    model_type = _json(file, file.read_bytes()).get("model_type")
    if isinstance(model_type, str) and model_type not in CONFIG_MAPPING:
        raise CheckpointError(
            f"{file}: `model_type` must be one that transformers or this package knows, got {model_type!r}; a model "
            "with code of its own needs `trust_remote_code=True`"
        )


def _loading_problem(model: PreTrainedModel, found: dict[str, Any], name_or_path: NameOrPath) -> str | None:
    reshaped = sorted(found["mismatched_keys"])
    if reshaped:
        tensor, saved, wanted = reshaped[0]
        return (
            f"{_file_of(name_or_path, tensor)}: `{tensor}` is {list(saved)}, but the configuration asks for "
            f"{list(wanted)}{_and_more(reshaped)}"
        )
    missing = sorted(found["missing_keys"])
    if missing:
        return f"{_file_of(name_or_path)}: lacks `{missing[0]}`, which the configuration asks for{_and_more(missing)}"
    superfluous = sorted(found["unexpected_keys"])
    if superfluous and model.config.model_type in STRICT_FAMILIES:
        tensor = superfluous[0]
        return (
            f"{_file_of(name_or_path, tensor)}: has `{tensor}`, for which the configuration has no place"
            f"{_and_more(superfluous)}"
        )
    return None


def _token_problem(model: PreTrainedModel, name_or_path: NameOrPath) -> str | None:
    """Find a token id of the generation configuration that is outside of the vocabulary."""
    head = model.get_output_embeddings()
    size = len(cast(torch.Tensor, head.weight))
    for field in ("decoder_start_token_id", "forced_bos_token_id", "forced_eos_token_id", "eos_token_id"):
        for token in _as_list(getattr(model.generation_config, field, None)):
            if not 0 <= token < size:
                file = Path(name_or_path) / "generation_config.json"
                return f"{file}: `{field}` is {token}, but the vocabulary has the tokens 0 to {size - 1}"
    return None


def _type_problem(model: PreTrainedModel, folder: Path) -> str | None:
    """Find a weight that is saved as whole numbers, which loading turns into floating-point ones without a scale."""
    if getattr(model.config, "quantization_config", None) is not None:
        return None
    state = model.state_dict()
    for file, header in _headers(folder):
        for tensor, facts in header.items():
            if tensor in state and state[tensor].is_floating_point() and facts["dtype"] not in FLOATING_TYPES:
                wanted = ", ".join(sorted(FLOATING_TYPES))
                return f"{file}: `{tensor}` is saved as {facts['dtype']}, choose among {wanted}"
    return None


def _header_length(file: Path) -> int:
    with open(file, "rb") as stream:
        return 8 + int.from_bytes(stream.read(8), "little")


def _headers(folder: Path) -> Iterable[tuple[Path, dict[str, Any]]]:
    """Yield the safetensors files of a folder that transformers loads, each with the entries of its header."""
    names = [WEIGHTS_FILE, INT8_FILE]
    if not (folder / WEIGHTS_FILE).exists() and (folder / WEIGHTS_INDEX).exists():
        names = sorted(set(_weight_map(folder).values()))
    for file in (folder / name for name in names):
        if not file.exists():
            continue
        length = _header_length(file)
        if not 8 < length <= min(file.stat().st_size, LONGEST_HEADER):
            raise CheckpointError(f"{file} is no safetensors file, or it is cut off")
        with open(file, "rb") as stream:
            stream.seek(8)
            header = _json(file, stream.read(length - 8))
        header.pop("__metadata__", None)
        if not all(_describes_a_tensor(facts) for facts in header.values()):
            raise CheckpointError(f"{file}: is no safetensors file, its header describes no tensors")
        yield file, header


def _describes_a_tensor(facts: Any) -> bool:
    offsets = facts.get("data_offsets") if isinstance(facts, dict) else None
    is_range = isinstance(offsets, list) and [type(offset) for offset in offsets] == [int, int]
    return is_range and isinstance(facts.get("dtype"), str)


def _weight_map(folder: Path) -> dict[str, str]:
    index = folder / WEIGHTS_INDEX
    weight_map = _json(index, index.read_bytes()).get("weight_map")
    if not isinstance(weight_map, dict) or not all(isinstance(name, str) for name in weight_map.values()):
        raise CheckpointError(f"{index}: `weight_map` must name the file of each tensor")
    return weight_map


def _json(file: Path, content: bytes) -> dict[str, Any]:
    try:
        value = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{file}: is no JSON ({error})") from None
    if not isinstance(value, dict):
        raise CheckpointError(f"{file}: must be a JSON object, got a {type(value).__name__}")
    return value


def _named(name_or_path: NameOrPath, load: Callable[[], Loaded], what: str = "the checkpoint") -> Loaded:
    """Call `load`, and turn what the libraries raise for a damaged file into an error that names the checkpoint."""
    try:
        return load()
    except (CheckpointError, ImportError):
        raise
    except Exception as error:  # the libraries raise many kinds, some derived from `Exception` alone
        said = " ".join(str(error).split())
        raise CheckpointError(
            f"{os.fspath(name_or_path)}: {what} does not load: {type(error).__name__}: {said}"
        ) from error


def _file_of(name_or_path: NameOrPath, tensor: str | None = None) -> str:
    """Return the file that has a tensor, or should have it; the checkpoint's name if there is no such file."""
    folder = Path(name_or_path)
    for file in (WEIGHTS_FILE, INT8_FILE):
        if (folder / file).exists():
            return str(folder / file)
    if (folder / WEIGHTS_INDEX).exists():
        return str(folder / _weight_map(folder).get(tensor or "", WEIGHTS_INDEX))
    return str(name_or_path)


def _is_padded(size: int, tokens: int) -> bool:
    return size == tokens or any(size == -(-tokens // multiple) * multiple for multiple in PADDED_TO)


def _as_list(value: Any) -> list[Any]:
    return [] if value is None else list(value) if isinstance(value, (list, tuple)) else [value]


def _and_more(names: list[Any]) -> str:
    return f", and {len(names) - 1} more" if len(names) > 1 else ""


# -------------------- hf_capsule_mt.pipelines.ensemble

def load_members(
    first: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    others: Iterable[PreTrainedModel | str | os.PathLike[str]],
) -> list[PreTrainedModel]:
    """Load the other models of an ensemble where they are paths, and put them on the device of the first.

    A path's tokenizer must be `tokenizer`, that of the first; a loaded model has none to compare.
    """
    members: list[PreTrainedModel] = []
    if isinstance(others, (str, os.PathLike)):
        raise TypeError(f"`ensemble` must be a list of models or paths, got {os.fspath(others)!r} alone")
    for other in others:
        member: Any = other
        if isinstance(other, (str, os.PathLike)):
            check_same_vocabulary(tokenizer, other)
            member = CheckedSeq2SeqLM.from_pretrained(other, dtype=first.dtype)
        check_weights(member)
        ours, theirs = (len(model.get_output_embeddings().weight) for model in (first, member))
        if ours != theirs:
            raise ValueError(
                f"the models of an ensemble must have one vocabulary, got {ours} and {theirs} tokens ({other})"
            )
        members.append(member.to(first.device).eval())
    return members


def check_same_vocabulary(tokenizer: PreTrainedTokenizerBase, path: str | os.PathLike[str]) -> None:
    """Raise where the tokens of the checkpoint at a path mean other words."""
    if vocabularies_of(load_tokenizer(path)) != vocabularies_of(tokenizer):
        raise ValueError(
            f"{path}: its tokens mean other words than those of {tokenizer.name_or_path}; the models of an ensemble "
            "need one tokenizer"
        )


class EnsembleLogits(LogitsProcessor):
    """Averages, at every step, the probabilities of the model that decodes with those of the other members.

    Each member keeps a cache of its own. A member's cache of a hypothesis depends on its tokens alone, so after a step
    of beam search a row takes the cache of any row of the step before with the same tokens.
    """

    def __init__(self, members: list[PreTrainedModel], input_ids: torch.Tensor, attention_mask: torch.Tensor) -> None:
        """The sources [B, S] and their mask [B, S], 1 keeps."""
        self.members = members
        self.input_ids = input_ids
        self.attention_mask = attention_mask
        self.encoded: list[ModelOutput] = []
        self.caches: list[EncoderDecoderCache | None] = [None] * len(members)
        self.seen: torch.Tensor | None = None

    @torch.no_grad()
    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """The hypotheses [B * beams, T] and the scores of the next token [B * beams, V] -> log-probabilities."""
        rows = len(input_ids)
        if not self.encoded:
            repeats = rows // len(self.input_ids)
            self.attention_mask = self.attention_mask.repeat_interleave(repeats, dim=0)
            for member in self.members:
                encoded = member.get_encoder()(
                    input_ids=self.input_ids, attention_mask=self.attention_mask[::repeats], return_dict=True
                )
                for key, value in encoded.items():
                    if isinstance(value, torch.Tensor):
                        encoded[key] = value.repeat_interleave(repeats, dim=0)
                self.encoded.append(encoded)
        elif self.seen is not None:
            self._reorder(input_ids, self.seen)
        self.seen = input_ids
        logs = [scores.float().log_softmax(dim=-1)]
        for number, member in enumerate(self.members):
            output = member(
                encoder_outputs=self.encoded[number],
                attention_mask=self.attention_mask,
                decoder_input_ids=input_ids if self.caches[number] is None else input_ids[:, -1:],
                past_key_values=self.caches[number],
                use_cache=True,
            )
            self.caches[number] = output.past_key_values
            logs.append(output.logits[:, -1].float().log_softmax(dim=-1))
        average = torch.stack(logs).logsumexp(dim=0) - math.log(len(logs))
        return average.masked_fill(scores == -torch.inf, -torch.inf).to(scores.dtype)  # what is forbidden stays so

    def _reorder(self, input_ids: torch.Tensor, seen: torch.Tensor) -> None:
        """Give each row the caches of a row of its source that had its tokens at the step before."""
        rows, sources = len(input_ids), len(self.input_ids)
        source = torch.arange(rows, device=input_ids.device) // (rows // sources)
        same = (input_ids[:, None, :-1] == seen[None]).all(dim=2) & (source[:, None] == source[None])  # [rows, rows]
        parents = same.long().argmax(dim=1)
        if not torch.equal(parents, torch.arange(rows, device=parents.device)):
            for cache in self.caches:
                if cache is not None:
                    cache.reorder_cache(cast(torch.LongTensor, parents))


# -------------------- hf_capsule_mt.pipelines.limits

LIMIT_NAMES = ("max_length", "max_new_tokens")
# what transformers puts into a generation config by itself, which nobody has chosen
TRANSFORMERS_MAX_LENGTH = 20
# a tokenizer's `model_max_length` above this says that it knows none
NO_LIMIT = 1_000_000

# where transformers has moved constrained beam search
CONSTRAINED_SEARCH = "transformers-community/constrained-beam-search"


class SourceLengthLimit(LogitsProcessor):
    """Ends each translation at a limit of its own, by leaving nothing but the end token.

    A translation then does not depend on the other sources of its batch.
    """

    def __init__(self, limits: torch.Tensor, last_limit: int | None, end_token_id: int) -> None:
        """limits [B]: how many tokens may follow the decoder's start token, the end token included.

        At `last_limit`, and so at a limit beyond it, `generate()` stops by itself, without an end token.
        """
        self.limits = limits
        self.last_limit = last_limit
        self.lowest = int(limits.min())
        self.end_token_id = end_token_id

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """The tokens of each hypothesis [B * beams, T], the start token included; scores [B * beams, V]."""
        length = input_ids.shape[1]
        if length < self.lowest or length == self.last_limit:
            return scores
        at_limit = (self.limits <= length).repeat_interleave(len(scores) // len(self.limits))
        ended = torch.full_like(scores, -torch.inf)
        ended[:, self.end_token_id] = 0.0
        return torch.where(at_limit[:, None], ended, scores)


class TargetPrefix(LogitsProcessor):
    """Begins each translation with given tokens, by leaving nothing else at its first steps."""

    def __init__(self, prefixes: list[list[int]], first: int) -> None:
        """prefixes: the tokens of each of B sources, which may be none; `first`: how many tokens come before them."""
        self.prefixes = prefixes
        self.first = first

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """The tokens of each hypothesis [B * beams, T], the start token included; scores [B * beams, V]."""
        place, copies = input_ids.shape[1] - self.first, len(scores) // len(self.prefixes)
        given = [prefix[place] if 0 <= place < len(prefix) else -1 for prefix in self.prefixes]
        if max(given) < 0:
            return scores
        tokens = torch.tensor(given, device=scores.device).repeat_interleave(copies)[:, None]
        only = torch.full_like(scores, -torch.inf).scatter(1, tokens.clamp(min=0), 0.0)
        return torch.where(tokens >= 0, only, scores)


def limits_for_backend(settings: dict[str, Any]) -> tuple[dict[str, Any], torch.Tensor | None]:
    """Turn a `SourceLengthLimit` among the settings of `generate()` into the `limits` of a fast backend."""
    processors = list(settings.get("logits_processor") or ())
    if len(processors) != 1 or not isinstance(processors[0], SourceLengthLimit):
        return settings, None
    limit = processors[0]
    longest = settings.get("max_new_tokens") or settings["max_length"] - 1
    kept = {name: value for name, value in settings.items() if name not in ("logits_processor", "max_length")}
    # below the checkpoint's limit the end token is forced for the longest translation, too
    kept["max_new_tokens"] = longest + int(longest != limit.last_limit)
    return kept, limit.limits


def max_source_tokens(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> int | None:
    """Return the longest source in tokens that the model has positions for, or `None` if neither knows one."""
    known = (getattr(model.config, "max_position_embeddings", None), getattr(tokenizer, "model_max_length", None))
    limits = [limit for limit in known if limit is not None and 0 < limit < NO_LIMIT]
    return min(limits, default=None)


def max_target_tokens(model: PreTrainedModel) -> int | None:
    """Return how many tokens after the start token the model has positions for: the last one needs none."""
    return getattr(model.config, "max_position_embeddings", None)


def limits_by_source(source_lengths: torch.Tensor) -> torch.Tensor:
    """Return how many tokens the translations of sources with so many tokens [B] may have: [B].

    Three times the source and thirty more is beyond any real translation: what gets there repeats itself.
    """
    return 3 * source_lengths + 30


def limit_of_checkpoint(model: PreTrainedModel) -> int | None:
    """Return how many tokens after the start token the checkpoint allows, or has positions for."""
    saved = model.generation_config
    positions = getattr(model.config, "max_position_embeddings", None)
    limits = [] if positions is None else [positions - 1]
    if saved.max_new_tokens is not None:
        limits.append(saved.max_new_tokens)
    elif saved.max_length is not None and saved.max_length != TRANSFORMERS_MAX_LENGTH:
        limits.append(saved.max_length - 1)
    return max(min(limits), 1) if limits else None


def with_limits(
    model: PreTrainedModel, inputs: Mapping[str, torch.Tensor], generate_kwargs: Mapping[str, Any]
) -> dict[str, Any]:
    """Add a limit for each source by its own length to the settings of `generate()`, unless they have one.

    `limits` [B] among the result is not for `generate()`: how many tokens may follow each start token.
    """
    settings = dict(generate_kwargs)
    config = settings.get("generation_config")
    if any(settings.get(name) is not None or getattr(config, name, None) is not None for name in LIMIT_NAMES):
        return settings
    by_source = limits_by_source(inputs["attention_mask"].sum(dim=1))
    of_checkpoint = limit_of_checkpoint(model)
    limits = by_source if of_checkpoint is None else by_source.clamp(max=of_checkpoint)
    settings["limits"] = limits
    # both of them would give a warning, and so would one beside a generation config
    own = {"max_new_tokens": int(limits.max())}
    if setting_of(model, generate_kwargs, "max_length") is not None:
        own = {"max_length": int(limits.max()) + 1}
    if config is None:
        settings |= own
    else:
        settings["generation_config"] = copy.deepcopy(config)
        settings["generation_config"].update(**own)
    ends = end_token_ids(model, generate_kwargs)
    if ends and (of_checkpoint is None or bool((by_source < of_checkpoint).any())):
        processors = settings.get("logits_processor") or ()
        settings["logits_processor"] = LogitsProcessorList(
            [*processors, SourceLengthLimit(by_source, of_checkpoint, ends[0])]
        )
    return settings


def check_constraints(generate_kwargs: Mapping[str, Any]) -> None:
    """Refuse words that a translation must contain, which transformers leaves to code from the Hub."""
    for name in ("force_words_ids", "constraints"):
        given = generate_kwargs.get(name) or getattr(generate_kwargs.get("generation_config"), name, None)
        if given and generate_kwargs.get("custom_generate") is None:
            raise ValueError(
                f"`{name}` is no longer a part of transformers: with a network, add "
                f'`custom_generate="{CONSTRAINED_SEARCH}", trust_remote_code=True`, which runs code from the Hub. '
                "What a translation begins with needs no such code: give a `PrefixedText`"
            )


def setting_of(model: PreTrainedModel, generate_kwargs: Mapping[str, Any], name: str) -> Any:
    """Return what `generate()` takes for a setting: the argument, which may be None, or a generation config's."""
    if name in generate_kwargs:
        return generate_kwargs[name]
    return generation_setting(model, generate_kwargs.get("generation_config"), name)


def given_limit(model: PreTrainedModel, generate_kwargs: Mapping[str, Any]) -> int:
    """Return how many tokens after the start token `generate()` stops at under these settings."""
    new_tokens, length = (setting_of(model, generate_kwargs, name) for name in ("max_new_tokens", "max_length"))
    if new_tokens is not None:
        return int(new_tokens)
    if length is not None:
        return int(length) - 1
    positions = getattr(model.config, "max_position_embeddings", None)
    return TRANSFORMERS_MAX_LENGTH if positions is None else min(TRANSFORMERS_MAX_LENGTH, positions - 1)


def end_token_ids(model: PreTrainedModel, generate_kwargs: Mapping[str, Any]) -> list[int]:
    """Return the tokens that end a translation under these settings."""
    ids = setting_of(model, generate_kwargs, "eos_token_id")
    if ids is None:
        ids = getattr(model.config, "eos_token_id", None)
    if ids is None:
        return []
    return [int(ids)] if isinstance(ids, int) else [int(token_id) for token_id in ids]


def generated_lengths(sequences: torch.Tensor, end_ids: list[int]) -> torch.Tensor:
    """Count the tokens after the start token of each sequence [N, T], to the first end token, which counts: [N]."""
    body = sequences[:, 1:]
    is_end = torch.isin(body, torch.tensor(end_ids, device=body.device))
    before_first_end = is_end.cumsum(dim=1).eq(0)
    return before_first_end.sum(dim=1) + is_end.any(dim=1).long()


# -------------------- hf_capsule_mt.pipelines.sentences

class Span(NamedTuple):
    """The characters `start` to `end` of a text."""

    start: int
    end: int


# ends of sentences that a space need not follow, and those that one must follow
UNSPACED_STOPS = "。！？｡．"
SPACED_STOPS = ".!?…‽؟۔।॥။។։።"
CLOSING = "\"'”’»)]}›」』）】》〉"
SPACED_CLOSING = CLOSING + "“‘«‹"  # German closes with what English opens with
OPENING = "\"'“‘„‚«»([{‹›¿¡「『（【《〈-–—"

ABBREVIATIONS = {
    "en": "mr mrs ms dr prof st sr jr rev gen col sgt capt lt hon messrs vs e.g i.e cf al fig figs eq vol pp ed eds "
    "etc inc ltd co corp dept est approx a.m p.m jan feb mar apr jun jul aug sep sept oct nov dec",
    "de": "hr fr frl dr prof dipl ing st str nr bd hg hrsg vgl bzw ca evtl ggf inkl usw usf z.b d.h u.a o.ä u.ä s.o "
    "i.d.r z.t z.zt v.a abb aufl jan feb mär apr jun jul aug sep sept okt nov dez mio mrd tel geb gest",
    "fr": "m mm mme mlle dr pr st ste av bd fig vol p.ex c.-à-d cf env ed éd janv févr avr juil sept oct nov déc",
    "es": "sr sra srta sres dr dra ud uds d dña prof av avda p.ej pág págs núm vol ed ee.uu etc",
    "it": "sig sigg sig.ra dott dott.ssa prof ing avv ecc pag pagg es p.es vol cfr art",
    "pt": "sr sra srta dr dra prof av p.ex pág vol ed etc núm v.exa",
    "nl": "dhr mevr dr drs ir ing mr prof bijv b.v d.w.z o.a enz nr blz vgl ca jl t.a.v",
}
REACH = 40  # how many characters on either side of a full stop are looked at
LONGEST_CHARACTER = 64  # code points of one character as a reader sees it: an emoji of a family, a letter with accents

# "No. 5", but not "Did he? No."
BEFORE_NUMBERS = frozenset(
    {"no", "nos", "nr", "n", "art", "p", "pp", "s", "fig", "abb", "kap", "bd", "vol", "sec", "§"}
)
# languages that write an ordinal number with a full stop: "am 3. Oktober"
ORDINAL_LANGUAGES = frozenset(
    {"de", "da", "nb", "nn", "no", "fi", "cs", "sk", "hu", "pl", "hr", "sl", "sr", "bs", "et"}
)

_STOPS = re.escape(SPACED_STOPS)
_ENDS = re.compile(
    rf"(?<![{_STOPS}])[{_STOPS}]+[{re.escape(SPACED_CLOSING)}]*(?=\s)"
    rf"|[{re.escape(UNSPACED_STOPS)}]+[{re.escape(CLOSING)}]*"
)
_GREEK_ENDS = re.compile(_ENDS.pattern + r"|[;\u037e](?=\s)")
_LINE_BREAKS = re.compile(r"[\r\n\v\f\x1c-\x1e\x85\u2028\u2029]+")
_CLAUSE_ENDS = re.compile(r"(?<=[,;:،؛、，；：])\s*|(?<!\s)\s+(?=[–—(])")
_SPACES = re.compile(r"\s+")


def split_sentences(text: str, language: str | None = None) -> list[Span]:
    """Return the spans of the sentences of a text, without the space between them; none for a blank text.

    A line break ends a sentence. `language` is a code such as "de", "de_DE" or "deu_Latn"; without it, an abbreviation
    of any of the languages is one.
    """
    code = language_code(language)
    known = _ABBREVIATIONS.get(code) if code is not None else None
    abbreviations = _ALL_ABBREVIATIONS if known is None else known
    has_ordinals = code is None or code in ORDINAL_LANGUAGES
    spans = []
    for line in _between(_LINE_BREAKS, text, Span(0, len(text))):
        start = line.start
        for match in (_GREEK_ENDS if code == "el" else _ENDS).finditer(text, line.start, line.end):
            if match.end() < line.end and _ends_sentence(text, start, match, abbreviations, has_ordinals):
                spans.append(Span(start, match.end()))
                start = match.end()
        spans.append(Span(start, line.end))
    return [stripped for span in spans if (stripped := _strip(text, span)).start < stripped.end]


def split_to_fit(text: str, span: Span, fits: Callable[[str], bool]) -> list[Span]:
    """Cut a span until each piece fits: after a comma or the like, else at a space, else anywhere, near the middle.

    A single character that does not fit is left for the caller to refuse.
    """
    pieces: list[Span] = []
    waiting = [_strip(text, span)]  # the leftmost last
    while waiting:
        piece = waiting.pop()
        if piece.end - piece.start <= 1 or fits(text[piece.start : piece.end]):
            pieces.append(piece)
            continue
        cut = _best_cut(text, piece)
        halves = (_strip(text, half) for half in (Span(cut, piece.end), Span(piece.start, cut)))
        waiting += [half for half in halves if half.start < half.end]
    return pieces


def language_code(language: str | None) -> str | None:
    """Return the two letters of "de", "de_DE", "deu_Latn" or "german", or the part before "_" if it knows none."""
    if not language:
        return None
    first = re.split(r"[_\-]", language.lower())[0]
    return _CODES.get(first, first)


_CODES = {
    "eng": "en", "english": "en", "deu": "de", "ger": "de", "german": "de", "fra": "fr", "fre": "fr", "french": "fr",
    "spa": "es", "spanish": "es", "ita": "it", "italian": "it", "por": "pt", "portuguese": "pt", "nld": "nl",
    "dut": "nl", "dutch": "nl", "ell": "el", "gre": "el", "greek": "el", "dan": "da", "nob": "nb", "nno": "nn",
    "fin": "fi", "ces": "cs", "cze": "cs", "slk": "sk", "slo": "sk", "hun": "hu", "pol": "pl", "hrv": "hr",
    "slv": "sl", "srp": "sr", "bos": "bs", "est": "et",
}  # fmt: skip
_ABBREVIATIONS = {code: frozenset(words.split()) for code, words in ABBREVIATIONS.items()}
_ALL_ABBREVIATIONS = frozenset().union(*_ABBREVIATIONS.values())


def _ends_sentence(
    text: str, start: int, match: re.Match[str], abbreviations: frozenset[str], has_ordinals: bool
) -> bool:
    """Return whether the sentence that begins at `start` ends with this stop."""
    stop = match[0]
    if stop[0] in UNSPACED_STOPS:
        return True
    next_word = text[match.end() : match.end() + REACH].lstrip().lstrip(OPENING)
    if next_word[:1].islower():
        return False  # "etc. and so on", "Yahoo! is"
    if stop.rstrip(SPACED_CLOSING) != ".":
        return True
    before = text[max(start, match.start() - REACH) : match.start()].rsplit(maxsplit=1)
    last = before[-1].lstrip(OPENING).lower() if before else ""
    if not last:
        return False
    if last.isdecimal():
        return not (has_ordinals and len(last) <= 2)
    if last in BEFORE_NUMBERS and next_word[:1].isdecimal():
        return False
    if len(last) == 1 and last.isalpha():
        return False  # an initial: "J. S. Bach"
    return last not in abbreviations


def _best_cut(text: str, span: Span) -> int:
    """Return the best place to cut a span in two: the nearest to its middle of the best kind there is."""
    middle, quarter = (span.start + span.end) // 2, (span.end - span.start) // 4
    for pattern, reach in ((_CLAUSE_ENDS, quarter), (_SPACES, quarter), (_SPACES, 2 * quarter)):
        low, high = max(span.start + 1, middle - reach), min(span.end - 1, middle + reach)
        places = [match.end() for match in pattern.finditer(text, low, high) if span.start < match.end() < span.end]
        if places:
            return min(places, key=lambda place: abs(place - middle))
    middle = max(middle, span.start + 1)
    after = range(middle, min(middle + LONGEST_CHARACTER, span.end))
    before = range(middle - 1, max(middle - LONGEST_CHARACTER, span.start), -1)
    places = [place for place in (*after, *before) if not _continues_a_character(text, place)]
    return places[0] if places else middle  # a longer run of marks is no character that anybody reads


def _continues_a_character(text: str, place: int) -> bool:
    """Return whether the code point at `place` belongs to the one before: accents, parts of an emoji."""
    here, before = text[place], text[place - 1]
    return unicodedata.category(here) in ("Mn", "Mc", "Me") or "\u200d" in (here, before)


def _between(pattern: re.Pattern[str], text: str, span: Span) -> list[Span]:
    """Return the spans between the matches of a pattern."""
    spans, start = [], span.start
    for match in pattern.finditer(text, span.start, span.end):
        spans.append(Span(start, match.start()))
        start = match.end()
    return [*spans, Span(start, span.end)]


def _strip(text: str, span: Span) -> Span:
    piece = text[span.start : span.end]
    return Span(span.end - len(piece.lstrip()), span.start + len(piece.rstrip()))


# -------------------- hf_capsule_mt.pipelines.words

# words, and each mark by itself
WORDS = re.compile(r"\w+(?:['\u2019\-]\w+)*|[^\w\s]")
# scripts that put no space between words, where a token of the vocabulary stands for a word
UNSPACED_SCRIPTS = re.compile(r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff]")
LONGEST_UNKNOWN = 64  # characters in a row that a vocabulary lacks
Offsets = Sequence[tuple[int, int] | None]


class WordLists(NamedTuple):
    """Words of the source language, case-folded, that coverage does not treat like any other.

    Complete translations often leave an `optional` word without a counterpart: it is neither marked nor counted.
    `function` words are the most frequent ones: only those that are marked are counted.
    """

    optional: frozenset[str] = frozenset()
    function: frozenset[str] = frozenset()


NO_LISTS = WordLists()


class SourceWord(NamedTuple):
    """The characters `span` of a text, and which tokens of its piece they are.

    A mark has neither letters nor digits, so a translation may drop it. An unknown word has a token that stands for
    whatever the vocabulary lacks, so no model can translate it. Optional words and function words are those of
    `WordLists`.
    """

    span: Span
    tokens: list[int]
    is_mark: bool
    is_unknown: bool
    is_optional: bool = False
    is_function: bool = False


def source_words(
    text: str,
    span: Span,
    offsets: Offsets,
    token_ids: Sequence[int],
    unknown_id: int | None,
    lists: WordLists = NO_LISTS,
) -> list[SourceWord]:
    """Return the words in a span of a text, whose tokens have these ids and stand for these characters of the span."""
    return [
        SourceWord(
            place,
            tokens,
            is_mark=is_mark(text[place.start : place.end]),
            is_unknown=unknown_id is not None and any(token_ids[n] == unknown_id for n in tokens),
            is_optional=text[place.start : place.end].casefold() in lists.optional,
            is_function=text[place.start : place.end].casefold() in lists.function,
        )
        for place, tokens in words_of(text, span, offsets)
    ]


def is_mark(word: str) -> bool:
    """Whether a word has neither letters nor digits."""
    return not any(map(str.isalnum, word))


def words_of(text: str, span: Span, offsets: Offsets) -> list[tuple[Span, list[int]]]:
    """Return the words in a span of a text, and which tokens each is made of.

    offsets: for each token, the characters of the span that it stands for, or `None`.
    """
    part = text[span.start : span.end]
    words: list[tuple[Span, list[int]]] = []
    for match in WORDS.finditer(part):
        places = {n: place for n, place in enumerate(offsets) if place and _overlap(place, match.span())}
        if UNSPACED_SCRIPTS.search(match[0]):
            cut = {(max(start, match.start()), min(end, match.end())) for start, end in places.values()}
            groups = [(part_of, [n for n in places if _overlap(places[n], part_of)]) for part_of in sorted(cut)]
        else:
            groups = [(match.span(), list(places))]
        words += [(Span(span.start + start, span.start + end), tokens) for (start, end), tokens in groups if tokens]
    return words


def token_offsets(tokenizer: PreTrainedTokenizerBase, text: str, token_ids: list[int], prefix: str) -> Offsets:
    """Return the characters of a text that each token stands for; `None` for special tokens and for the prefix's."""
    if getattr(tokenizer, "is_fast", False):
        encoded = tokenizer(prefix + text, return_offsets_mapping=True, verbose=False)
        if list(encoded["input_ids"])[: len(token_ids)] == token_ids:
            return without_prefix(encoded["offset_mapping"][: len(token_ids)], prefix)
    return _offsets_by_search(tokenizer, prefix + text, token_ids, len(prefix))


def target_ends(tokenizer: PreTrainedTokenizerBase, sequence: Sequence[int], clean_up: bool | None) -> list[int]:
    """Return where each token of a translation ends in its text, after the decoder's start token."""
    ends = [0]
    for length in range(2, len(sequence) + 1):
        text = decode_target(tokenizer, sequence[:length], clean_up_tokenization_spaces=clean_up)
        ends.append(max(ends[-1], len(text)))
    return ends[1:]


def without_prefix(offset_mapping: Sequence[tuple[int, int]], prefix: str) -> Offsets:
    """Count characters from the end of the prefix; `None` for the tokens before it and for special ones."""
    moved = [(start - len(prefix), end - len(prefix)) for start, end in offset_mapping]
    return [place if 0 <= place[0] < place[1] else None for place in moved]


def _offsets_by_search(tokenizer: PreTrainedTokenizerBase, text: str, token_ids: list[int], skipped: int) -> Offsets:
    """Look for each token after the one before, for tokenizers that do not know its place.

    Unknown tokens stand for what is between their neighbours.
    """
    special, unknown_id, place = set(tokenizer.all_special_ids), getattr(tokenizer, "unk_token_id", None), 0
    offsets: list[tuple[int, int] | None] = []
    waiting: list[int] = []  # unknown tokens whose end has not been found
    missed = 0  # characters of the tokens since then that are not in the text as they are
    text, places = _normalized(text)

    def add(first: int, last: int, numbers: list[int]) -> None:
        if first == last:  # nothing is left for them
            return
        start, end = places[first][0], places[last - 1][1]
        for number in numbers:
            offsets[number] = (start - skipped, end - skipped) if start >= skipped else None

    tokens = tokenizer.convert_ids_to_tokens(token_ids)
    if getattr(tokenizer, "separate_vocabs", False):  # those were of the target
        of_source = {number: token for token, number in tokenizer.encoder.items()}
        tokens = [of_source.get(token_id, "") for token_id in token_ids]
    for token_id, token in zip(token_ids, tokens, strict=True):
        offsets.append(None)
        if token_id == unknown_id:
            waiting.append(len(offsets) - 1)
            continue
        surface = _normalized(token.replace("▁", " ").strip())[0]
        reach = place + len(surface) + missed + (LONGEST_UNKNOWN if waiting else 8)
        found = text.find(surface, place, reach) if surface else -1
        if token_id in special or found < 0:
            missed += 0 if token_id in special else len(surface)
            continue
        add(place, found, waiting)
        waiting, place, missed = [], found + len(surface), 0
        add(found, place, [len(offsets) - 1])
    add(place, len(text), waiting)
    return offsets


def _normalized(text: str) -> tuple[str, list[tuple[int, int]]]:
    """Return a text as sentencepiece reads it (NFKC, one space at a time), and what each character was made of."""
    found: list[str] = []
    places: list[tuple[int, int]] = []
    start = 0
    for end in range(1, len(text) + 1):
        if end < len(text) and _goes_on(text[start:end], text[end]):
            continue
        for character in unicodedata.normalize("NFKC", text[start:end]):
            if character.isspace():
                character = " "
            if unicodedata.category(character) in ("Cc", "Cf") or (character == " " and found[-1:] == [" "]):
                continue
            found.append(character)
            places.append((start, end))
        start = end
    return "".join(found), places


def _goes_on(text: str, character: str) -> bool:
    """Return whether a character composes with those before, as vowels of Hangul do."""
    composed = character > "\u02ff" and unicodedata.normalize("NFC", text + character)
    return bool(composed) and (
        unicodedata.combining(character) > 0 or len(str(composed)) <= len(unicodedata.normalize("NFC", text))
    )


def _overlap(one: tuple[int, int], other: tuple[int, int]) -> bool:
    return one[0] < other[1] and other[0] < one[1]


# -------------------- hf_capsule_mt.pipelines.source_batch

class WordTokens(NamedTuple):
    """The words of B sources, W at most, of S tokens at most.

    Shapes: `tokens` [B, W, S], True where a token is a part of a word; `counts` [B, W], True for words that are no
    marks; `is_unknown`, `is_optional`, `is_function` [B, W].
    """

    tokens: torch.Tensor
    counts: torch.Tensor
    is_unknown: torch.Tensor
    is_optional: torch.Tensor
    is_function: torch.Tensor

    @classmethod
    def of(cls, sources: Sequence[Sequence[SourceWord]], attention_mask: torch.Tensor) -> "WordTokens":
        """Collect the words of each source, whose tokens stand where the mask [B, S] is 1."""
        most = max((len(words) for words in sources), default=0)
        tokens = torch.zeros(len(sources), most, attention_mask.shape[1], dtype=torch.bool)
        flags = torch.zeros(4, len(sources), most, dtype=torch.bool)
        first = attention_mask.argmax(dim=1).tolist()  # padding may stand on the left
        places = [(row, number, word) for row, words in enumerate(sources) for number, word in enumerate(words)]
        if places:
            of_tokens = [(row, number, first[row] + token) for row, number, word in places for token in word.tokens]
            tokens[torch.tensor(of_tokens).unbind(dim=1)] = True
            rows, numbers = torch.tensor([(row, number) for row, number, _ in places]).unbind(dim=1)
            flags[:, rows, numbers] = torch.tensor(
                [(not word.is_mark, word.is_unknown, word.is_optional, word.is_function) for _, _, word in places]
            ).T
        return cls(*(values.to(attention_mask.device) for values in (tokens, *flags)))


@dataclass
class SourceBatch:
    """Sources [B, S] and their mask [B, S], 1 keeps. The encoder's outputs are kept once they are computed."""

    input_ids: torch.Tensor
    attention_mask: torch.Tensor
    # what the tokenizer gives for `generate()`, such as the language of the translation
    settings: Mapping[str, object] = field(default_factory=dict)
    encoder_outputs: ModelOutput | None = None
    words: WordTokens | None = None
    # the tokens that the translation of each source begins with; empty if no source has any
    prefixes: list[list[int]] = field(default_factory=list)

    def rows(self, indices: list[int]) -> "SourceBatch":
        """Return the batch of some of the sources."""
        index = torch.tensor(indices, device=self.input_ids.device)
        encoded, words = self.encoder_outputs, self.words
        if encoded is not None:
            encoded = type(encoded)(**{name: values[index] for name, values in encoded.items()})
        if words is not None:
            words = WordTokens(*(values[index] for values in words))
        prefixes = [self.prefixes[row] for row in indices] if self.prefixes else []
        return SourceBatch(self.input_ids[index], self.attention_mask[index], self.settings, encoded, words, prefixes)

    @torch.no_grad()
    def encoded(self, model: PreTrainedModel, copies: int = 1) -> ModelOutput:
        """Return the encoder's outputs, each row `copies` times. The encoder runs at the first call."""
        if self.encoder_outputs is None:
            outputs = model.get_encoder()(
                input_ids=self.input_ids, attention_mask=self.attention_mask, return_dict=True
            )
            tensors = {name: value for name, value in outputs.items() if isinstance(value, torch.Tensor)}
            self.encoder_outputs = type(outputs)(**tensors)
        kept = self.encoder_outputs
        return type(kept)(**{name: value.repeat_interleave(copies, dim=0) for name, value in kept.items()})


@torch.no_grad()
def target_log_probs(model: PreTrainedModel, batch: SourceBatch, sequences: torch.Tensor) -> torch.Tensor:
    """Return the log-probability of each token of translations [B * R, T] after the start token: [B * R, T - 1]."""
    copies = len(sequences) // len(batch.input_ids)
    logits = model(
        encoder_outputs=batch.encoded(model, copies),
        attention_mask=batch.attention_mask.repeat_interleave(copies, dim=0),
        decoder_input_ids=sequences[:, :-1],
        use_cache=False,
    ).logits.float()
    return token_log_probs(logits, sequences[:, 1:])


@torch.no_grad()
def sequence_log_probs(
    model: PreTrainedModel, batch: SourceBatch, sequences: torch.Tensor, lengths: torch.Tensor
) -> torch.Tensor:
    """Return the log-probability of each translation, the end token included: [B * R].

    Args:
        batch: B sources.
        sequences: the translations [B * R, T], each after its start token; those of a source stand together.
        lengths: how many tokens after the start token count [B * R].
    """
    log_probs = target_log_probs(model, batch, sequences)
    counts = torch.arange(log_probs.shape[1], device=log_probs.device) < lengths.to(log_probs.device)[:, None]
    return log_probs.masked_fill(~counts, 0.0).sum(dim=1)


# -------------------- hf_capsule_mt.pipelines.attention

PROJECTIONS = ("q_proj", "k_proj")  # of queries and keys


def cross_attentions(model: PreTrainedModel) -> list[nn.Module]:
    """Return the attention of each decoder layer to the encoder; none if it is not built like Marian's."""
    layers = getattr(model.get_decoder(), "layers", ())
    found = [getattr(layer, "encoder_attn", None) for layer in layers]
    return [module for module in found if isinstance(module, nn.Module) and hasattr(module, "q_proj")]


def all_heads(model: PreTrainedModel) -> list[tuple[int, int]]:
    """Return every layer and head of the attention to the encoder."""
    return [
        (layer, head)
        for layer in range(len(cross_attentions(model)))
        for head in range(model.config.decoder_attention_heads)
    ]


@torch.no_grad()
def received_attention(
    model: PreTrainedModel, batch: SourceBatch, sequences: torch.Tensor, lengths: torch.Tensor, place: Sequence[int]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the mean log-probability of a token [B * R] of translations, and what source tokens receive: [B * R, S].

        received_s = max over t of softmax_s(q_t . k_s / sqrt(d_h))

    where t are the steps that write a target token, the end token included: a head that aligns words often attends to
    the word that the decoder has just read, and only the last step reads the last word. It is 0 if nothing was said.

    Args:
        batch: B sources.
        sequences: [B * R, T], each after its start token; those of a source stand together.
        lengths: how many tokens after the start token count [B * R].
        place: the layer and the head.
    """
    layer, head = place
    with _queries_and_keys(cross_attentions(model)[layer]) as found:
        log_probs = sequence_log_probs(model, batch, sequences, lengths)
    width = found["q_proj"].shape[-1] // model.config.decoder_attention_heads
    own = slice(head * width, (head + 1) * width)
    queries, keys = (found[name][..., own].float() for name in PROJECTIONS)
    scores = queries @ keys.transpose(1, 2) * width**-0.5  # [B * R, T, S]
    keep = batch.attention_mask.bool().repeat_interleave(len(sequences) // len(batch.input_ids), dim=0)
    attention = scores.masked_fill(~keep[:, None], -torch.inf).softmax(dim=-1)
    given = torch.arange(scores.shape[1], device=scores.device) < lengths.to(scores.device)[:, None]
    ends = torch.tensor(end_token_ids(model, {}), device=sequences.device, dtype=sequences.dtype)
    given &= ~torch.isin(sequences[:, 1:2], ends)
    received = attention.masked_fill(~given[..., None], 0.0).amax(dim=1)
    return log_probs / lengths.clamp(min=1).to(log_probs.device), received


@contextmanager
def _queries_and_keys(attention: nn.Module) -> Iterator[dict[str, torch.Tensor]]:
    """Collect the queries [N, T, d] and keys [N, S, d] of a module, under the names of their projections.

    Calls of the model by other threads are not looked at.
    """
    found: dict[str, torch.Tensor] = {}
    thread = get_ident()

    def keep(name: str, module: nn.Module, inputs: object, output: torch.Tensor) -> None:
        if get_ident() == thread:
            found[name] = output

    handles = [attention.get_submodule(name).register_forward_hook(partial(keep, name)) for name in PROJECTIONS]
    try:
        yield found
    finally:
        for handle in handles:
            handle.remove()


# -------------------- hf_capsule_mt.pipelines.deletion

# numbers of the logits that are computed at once
LOGITS_AT_ONCE = 2**23


@torch.no_grad()
def deletion_log_probs(
    model: PreTrainedModel, batch: SourceBatch, sequences: torch.Tensor, lengths: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the log-probabilities of translations: [B, R], and [B, R, W] without each word of their source.

    All deletions of some sources go through the encoder at once, and through the decoder with their translations. A
    mark is not deleted: its values are those of the whole source.

    Args:
        batch: B sources with their `words`.
        sequences: [B * R, T], each after its start token; those of a source stand together.
        lengths: how many tokens after the start token count [B * R].
    """
    if batch.words is None:
        raise RuntimeError("the batch has no words")
    copies = len(sequences) // len(batch.input_ids)
    whole = sequence_log_probs(model, batch, sequences, lengths).unflatten(0, (-1, copies))  # [B, R]
    without = whole[..., None].repeat(1, 1, batch.words.counts.shape[1])
    sources, words = batch.words.counts.nonzero(as_tuple=True)  # [N] each
    at_once = rows_at_once(model, copies * sequences.shape[1])
    sequences, lengths = (values.unflatten(0, (-1, copies)) for values in (sequences, lengths))
    for first in range(0, len(sources), at_once):
        rows, deleted = sources[first : first + at_once], words[first : first + at_once]
        shortened = without_tokens(batch, rows, batch.words.tokens[rows, deleted], model.config.pad_token_id or 0)
        found = sequence_log_probs(model, shortened, sequences[rows].flatten(0, 1), lengths[rows].flatten())
        without[rows, :, deleted] = found.unflatten(0, (-1, copies))
    return whole, without


@torch.no_grad()
def deletion_effects(
    model: PreTrainedModel, batch: SourceBatch, sequence: torch.Tensor, deleted: torch.Tensor
) -> torch.Tensor:
    """Return how many nats each token of a translation [1, T] of one source loses without some tokens.

    The tokens are those where `deleted` [N, S] is True, in N ways: [N, T - 1].
    """
    without = []
    for some in deleted.split(rows_at_once(model, sequence.shape[1])):
        rows = torch.zeros(len(some), dtype=torch.long, device=some.device)
        shortened = without_tokens(batch, rows, some, model.config.pad_token_id or 0)
        without.append(target_log_probs(model, shortened, sequence.expand(len(some), -1)))
    return target_log_probs(model, batch, sequence) - torch.cat(without)


def rows_at_once(model: PreTrainedModel, tokens: int) -> int:
    """Return how many rows of so many target tokens go through the decoder at once."""
    head = model.get_output_embeddings()
    vocabulary = len(head.weight) if head is not None else model.config.vocab_size
    return max(1, LOGITS_AT_ONCE // (tokens * vocabulary))


def without_tokens(batch: SourceBatch, rows: torch.Tensor, deleted: torch.Tensor, pad_token_id: int) -> SourceBatch:
    """Return the sources of these rows [N] without the tokens where `deleted` [N, S] is True.

    The others close ranks and keep their order; a source of which nothing is left keeps one padding token.
    """
    kept = batch.attention_mask[rows].bool() & ~deleted
    length = max(1, int(kept.sum(dim=1).max()))
    # the kept tokens first, in their order
    order = (~kept).long().argsort(dim=1, stable=True)[:, :length]
    mask = kept.gather(1, order)
    input_ids = batch.input_ids[rows].gather(1, order).masked_fill(~mask, pad_token_id)
    mask[:, 0] = True
    return SourceBatch(input_ids, mask.to(batch.attention_mask.dtype), batch.settings)


# -------------------- hf_capsule_mt.pipelines.word_coverage

# the logit of a share that float32 cannot tell from 0 or 1
LARGEST_EVIDENCE = 16.0
CALIBRATED_THRESHOLD = 0.5  # of curves that were fitted before they had one

Calibration = dict[str, Any]


def calibration_of(config: Any, method: str) -> Calibration | None:
    """Return the curves of one method, its "threshold", and the "head" of "attention", if there are any."""
    found: Calibration | None = (getattr(config, "coverage_calibration", None) or {}).get(method)
    return found


def word_lists_of(config: Any) -> WordLists:
    """Return the words that calibration found optional, and those so frequent that it calls them function words."""
    found = getattr(config, "coverage_calibration", None) or {}
    return WordLists(*(frozenset(found.get(name, ())) for name in ("optional_words", "function_words")))


def head_of(model: PreTrainedModel) -> list[int]:
    """Return the layer and the head of "attention"."""
    calibration = calibration_of(model.config, "attention")
    if calibration is None:
        raise RuntimeError("no head was chosen")
    return cast(list[int], calibration["head"])


def evidence_of(covered: torch.Tensor) -> torch.Tensor:
    """Return the logit of shares, which is finite: by deletion, how much a word helps the translation, in nats."""
    return covered.logit(eps=torch.finfo(covered.dtype).tiny).clamp(-LARGEST_EVIDENCE, LARGEST_EVIDENCE)


def on_curve(points: list[list[float]], values: torch.Tensor) -> torch.Tensor:
    """Read a curve of points (x, y) at these values, by linear interpolation; constant beyond its ends."""
    x, y = (torch.tensor(column, device=values.device, dtype=values.dtype) for column in zip(*points, strict=True))
    if len(x) == 1:
        return y.expand_as(values)
    right = torch.searchsorted(x, values.contiguous()).clamp(1, len(x) - 1)
    share = ((values - x[right - 1]) / (x[right] - x[right - 1])).clamp(0, 1)
    return y[right - 1] + share * (y[right] - y[right - 1])


# below this, a word of a model without guidance counts as untranslated: the translation is as probable without it
DELETION_THRESHOLD = 0.5
# the same for the attention that a word receives, until curves are fitted
ATTENTION_THRESHOLD = 0.2


class WordCoverage(NamedTuple):
    """What R translations of each of B sources cover.

    Of each word, [B, R, W]: how much of it is `covered`, whether it is `untranslated` and, by "guided" alone, its
    shares of `past` and `future` at the end. Of each translation, [B, R]: the mean coverage of the words that count in
    `score`, and the mean share of the source that is `left`: in FUTURE, or not covered before calibration.
    """

    covered: torch.Tensor
    untranslated: torch.Tensor
    score: torch.Tensor
    left: torch.Tensor
    past: torch.Tensor | None = None
    future: torch.Tensor | None = None

    def map(self, function: Callable[[torch.Tensor], torch.Tensor]) -> "WordCoverage":
        """Return what a function makes of each tensor."""
        return WordCoverage(*(cast(Any, values if values is None else function(values)) for values in self))


def coverage_method(model: PreTrainedModel, method: CoverageMethod) -> CoveredBy:
    """Return what "auto" stands for with this model, and refuse a method that the model does not have."""
    has_head = calibration_of(model.config, "attention") is not None
    if method == "auto":
        is_guided = bool(getattr(model, "has_coverage", False))
        return "attention" if has_head else "guided" if is_guided else "deletion"
    if method == "guided" and not hasattr(model, "score_coverage"):
        raise ValueError(
            f'`method="guided"` needs a model with guided routing, got a {type(model).__name__}; "deletion" takes any'
        )
    if method == "attention" and not cross_attentions(model):
        raise ValueError(
            '`method="attention"` needs a decoder built like Marian\'s, '
            f'got a {type(model).__name__}; "deletion" takes any'
        )
    if method == "attention" and not has_head:
        raise ValueError(
            '`method="attention"` needs a head that aligns words, which `capsule-mt calibrate` chooses; "deletion" '
            "needs none"
        )
    return method


def score_coverage(model: PreTrainedModel, batch: SourceBatch, sequences: torch.Tensor) -> CoverageScore:
    """Return the coverage of translations [B * R, T] by a guided model, by one more pass of its decoder."""
    copies = len(sequences) // len(batch.input_ids)
    scored: CoverageScore = cast(Any, model).score_coverage(
        batch.input_ids.repeat_interleave(copies, dim=0),
        batch.attention_mask.repeat_interleave(copies, dim=0),
        labels=sequences[:, 1:],
        encoder_outputs=batch.encoded(model, copies),
    )
    return scored


def guided_coverage(batch: SourceBatch, scored: CoverageScore, calibration: Calibration | None = None) -> WordCoverage:
    """Return the coverage of the words of B sources from that of the tokens of B * R."""
    copies = len(scored.past) // len(batch.input_ids)
    words = _words(batch)
    past, future, covered, untranslated = (
        _mean_of_tokens(values.float().unflatten(0, (-1, copies)), words.tokens)
        for values in (scored.past, scored.future, scored.covered, scored.untranslated)
    )
    num_words = scored.words.sum(dim=-1).clamp(min=1)
    left = scored.future.masked_fill(~scored.words, 0).sum(dim=-1) / num_words
    left = left.unflatten(0, (-1, copies))
    # most tokens of the word are
    finished = _finished(words, covered, untranslated >= 0.5, left, calibration)
    return finished._replace(past=past, future=future)


def attention_coverage(
    model: PreTrainedModel,
    batch: SourceBatch,
    sequences: torch.Tensor,
    lengths: torch.Tensor,
    log_probs: torch.Tensor | None = None,
    received: torch.Tensor | None = None,
) -> tuple[torch.Tensor, WordCoverage]:
    """Return the mean log-probability of a token [B * R] of translations [B * R, T], and their coverage.

    A word is covered by the most attention that it receives from the chosen head: `log_probs` and what source tokens
    have `received` [B * R, S] are computed where they are not known.
    """
    words = _words(batch)
    if log_probs is None or received is None:
        log_probs, received = received_attention(model, batch, sequences, lengths, head_of(model))
    of_tokens = received.unflatten(0, (len(batch.input_ids), -1))[:, :, None]  # [B, R, 1, S]
    covered = of_tokens.masked_fill(~words.tokens[:, None], 0.0).amax(dim=-1)
    counts = words.counts[:, None]
    covered = covered.masked_fill(~counts, 1.0)
    left = (1 - covered).sum(dim=-1) / counts.sum(dim=-1).clamp(min=1)
    calibration = calibration_of(model.config, "attention") or {}
    curves = calibration if "words" in calibration else None  # there are none while `capsule-mt calibrate` fits them
    return log_probs, _finished(words, covered, covered < ATTENTION_THRESHOLD, left, curves)


def deletion_coverage(
    model: PreTrainedModel, batch: SourceBatch, sequences: torch.Tensor, lengths: torch.Tensor
) -> tuple[torch.Tensor, WordCoverage]:
    """Return the mean log-probability of a token [B * R] of translations [B * R, T], and their coverage.

    A word is covered by p / (p + q), where p is the probability of the translation, and q that without the word.
    """
    words = _words(batch)
    whole, without = deletion_log_probs(model, batch, sequences, lengths)
    counts = words.counts[:, None]
    covered = (whole[..., None] - without).sigmoid().masked_fill(~counts, 1.0)
    left = (1 - covered).sum(dim=-1) / counts.sum(dim=-1).clamp(min=1)
    calibration = calibration_of(model.config, "deletion")
    coverage = _finished(words, covered, covered < DELETION_THRESHOLD, left, calibration)
    return whole.flatten() / lengths.clamp(min=1).to(whole.device), coverage


def _finished(
    words: WordTokens,
    covered: torch.Tensor,
    untranslated: torch.Tensor,
    left: torch.Tensor,
    calibration: Calibration | None,
) -> WordCoverage:
    """Calibrate, count unknown words as missing, and average over the words that count.

    Marks and optional words do not, and function words only where they are `untranslated`. A calibrated score is at
    most the share of these words that is not `untranslated`.
    """
    unknown, optional = words.is_unknown[:, None], words.is_optional[:, None]
    if calibration is not None:
        covered = on_curve(calibration["words"], evidence_of(covered)).masked_fill(~words.counts[:, None], 1.0)
        untranslated = (covered < calibration.get("threshold", CALIBRATED_THRESHOLD)) & ~optional
    covered, untranslated = covered.masked_fill(unknown, 0.0), untranslated | unknown
    counts = words.counts[:, None] & ~optional & (untranslated | ~words.is_function[:, None])
    total = covered.masked_fill(~counts, 0.0).sum(dim=-1)
    score = total / counts.sum(dim=-1).clamp(min=1)
    if calibration is not None:
        missing = (untranslated & counts).sum(dim=-1) / counts.sum(dim=-1).clamp(min=1)
        score = on_curve(calibration["sentences"], score).minimum(1 - missing)
    score = torch.where(counts.any(dim=-1), score, 1.0)
    return WordCoverage(covered, untranslated, score, left)


def _mean_of_tokens(values: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    """[B, R, S] of tokens -> [B, R, W] of the words that they make up, `tokens` [B, W, S]."""
    total = torch.einsum("brs,bws->brw", values, tokens.to(values.dtype))
    return total / tokens.sum(dim=-1).clamp(min=1)[:, None]


def _words(batch: SourceBatch) -> WordTokens:
    if batch.words is None:
        raise RuntimeError("the batch has no words")
    return batch.words


# -------------------- hf_capsule_mt.pipelines.decoding

class Hypotheses(NamedTuple):
    """R translations of each of B sources, the best first; those of one piece are without the dimension B.

    Shapes: `sequences` [B, R, T], from the start token on and padded on the right; `was_cut` [B, R]; `log_probs`
    [B, R], the mean log-probability of a token.
    """

    sequences: torch.Tensor
    was_cut: torch.Tensor
    log_probs: torch.Tensor | None = None
    coverage: WordCoverage | None = None

    def select(self, best: torch.Tensor) -> "Hypotheses":
        """Keep the translations with the indices `best` [B, R'], in this order."""

        def chosen(values: torch.Tensor) -> torch.Tensor:
            return values.take_along_dim(best.reshape(*best.shape, *[1] * (values.dim() - 2)), dim=1)

        return Hypotheses(
            chosen(self.sequences),
            chosen(self.was_cut),
            None if self.log_probs is None else chosen(self.log_probs),
            None if self.coverage is None else self.coverage.map(chosen),
        )

    def of_source(self, row: int) -> "Hypotheses":
        """Take the translations of one source, on the CPU."""

        def own(values: torch.Tensor) -> torch.Tensor:
            return values[row].cpu()

        return Hypotheses(
            own(self.sequences),
            own(self.was_cut),
            None if self.log_probs is None else own(self.log_probs),
            None if self.coverage is None else self.coverage.map(own),
        )


class FiniteLogits(LogitsProcessor):
    """Raises an error where the logits of a step are not numbers; a hidden state that is none makes all of them so."""

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """The tokens of each hypothesis [B * beams, T]; scores [B * beams, V], of which it looks at every 64th."""
        _refuse_nan(scores[:, ::64])
        return scores


def _refuse_nan(scores: torch.Tensor) -> None:
    if scores.isnan().any():
        raise ValueError("the model's logits are not finite: its weights are damaged, or overflow in this dtype")


@dataclass
class BatchDecoder:
    """Translates batches with one model, or with the other `members` of an ensemble too."""

    model: PreTrainedModel
    members: list[PreTrainedModel]
    fast: FastDecoder | None = None

    @torch.no_grad()
    def __call__(
        self,
        batch: SourceBatch,
        generate_kwargs: Mapping[str, object],
        *,
        scores: bool = False,
        coverage: CoverageOptions | None = None,
    ) -> Hypotheses:
        """Translate a batch; with a `weight`, rank the hypotheses of beam search by what they leave out."""
        check_constraints(generate_kwargs)
        weight = None if coverage is None else coverage.weight
        inputs = {"input_ids": batch.input_ids, "attention_mask": batch.attention_mask}
        settings = with_limits(self.model, inputs, generate_kwargs)
        limits = settings.pop("limits", None)
        if self.members:
            ensemble = EnsembleLogits(self.members, **inputs)
            settings["logits_processor"] = LogitsProcessorList([ensemble, *(settings.get("logits_processor") or ())])
        if batch.prefixes:
            prefix = TargetPrefix(batch.prefixes, 1 + self._forces_first_token({**batch.settings, **settings}))
            settings["logits_processor"] = LogitsProcessorList([*(settings.get("logits_processor") or ()), prefix])
        returned = self.num_returned(settings)
        if weight:
            settings["num_return_sequences"] = self._num_beams(settings)
        method = None if coverage is None else coverage_method(self.model, coverage.method)
        followed: bool | Sequence[int] = method == "guided"
        if method == "attention":
            followed = head_of(self.model)
        sequences, log_probs, scored = self._decode(
            batch, settings, encodes=scores or coverage is not None, coverage=followed
        )
        lengths = generated_lengths(sequences, end_token_ids(self.model, settings))
        if limits is None:
            limits = torch.full((len(batch.input_ids),), given_limit(self.model, settings))
        copies = len(sequences) // len(batch.input_ids)
        was_cut = lengths >= limits.to(lengths.device).repeat_interleave(copies)
        word_coverage = None
        if method is not None:
            log_probs, word_coverage = self.cover(batch, sequences, lengths, method, scored, log_probs)
        elif not scores:
            log_probs = None
        elif log_probs is None:
            log_probs = sequence_log_probs(self.model, batch, sequences, lengths) / lengths.clamp(min=1)
        found = Hypotheses(
            sequences.unflatten(0, (-1, copies)),
            was_cut.unflatten(0, (-1, copies)),
            None if log_probs is None else log_probs.unflatten(0, (-1, copies)),
            word_coverage,
        )
        if not weight or found.log_probs is None or found.coverage is None:
            return found
        # beam search's own score, which divides by a power of the length
        powers = lengths.clamp(min=1).reshape_as(found.log_probs) ** (1 - self._length_penalty(settings))
        return found.select((found.log_probs * powers - weight * found.coverage.left).topk(returned, dim=1).indices)

    def cover(
        self,
        batch: SourceBatch,
        sequences: torch.Tensor,
        lengths: torch.Tensor,
        method: Literal["attention", "guided", "deletion"],
        scored: CoverageScore | torch.Tensor | None = None,
        log_probs: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, WordCoverage]:
        """Return the mean log-probability of a token [B * R] of translations [B * R, T], and their coverage.

        scored, log_probs: what the search has said already of these translations, by this method and at all.
        """
        if method == "attention":
            received = scored if isinstance(scored, torch.Tensor) else None
            return attention_coverage(self.model, batch, sequences, lengths, log_probs, received)
        if method == "deletion":
            return deletion_coverage(self.model, batch, sequences, lengths)
        if not isinstance(scored, CoverageScore):
            scored = score_coverage(self.model, batch, sequences)
        return scored.log_prob, guided_coverage(batch, scored, calibration_of(self.model.config, "guided"))

    def _decode(
        self, batch: SourceBatch, settings: dict[str, Any], *, encodes: bool, coverage: bool | Sequence[int]
    ) -> tuple[torch.Tensor, torch.Tensor | None, CoverageScore | torch.Tensor | None]:
        """Search: sequences [B * R, T] and, from a fast backend, log-probabilities of a token [B * R] and coverage."""
        if self.fast is not None:
            options, limits = limits_for_backend({**batch.settings, **settings})
            decoded = self.fast.decode(batch.input_ids, batch.attention_mask, limits, options, coverage=coverage)
            if decoded is not None:
                _refuse_nan(decoded[1])
                return decoded
        if encodes:
            settings = {**settings, "encoder_outputs": batch.encoded(self.model)}
        settings["logits_processor"] = LogitsProcessorList([*(settings.get("logits_processor") or ()), FiniteLogits()])
        inputs = {"input_ids": batch.input_ids, "attention_mask": batch.attention_mask}
        output = self.model.generate(**inputs, **{**batch.settings, **settings})  # type: ignore[operator]
        return (output if isinstance(output, torch.Tensor) else output["sequences"]), None, None

    def num_returned(self, generate_kwargs: Mapping[str, Any]) -> int:
        """Return how many translations each text has."""
        return int(setting_of(self.model, generate_kwargs, "num_return_sequences") or 1)

    def _forces_first_token(self, generate_kwargs: Mapping[str, Any]) -> bool:
        """Return whether `generate()` begins with a token of its own, such as the language."""
        return setting_of(self.model, generate_kwargs, "forced_bos_token_id") is not None

    def _num_beams(self, generate_kwargs: Mapping[str, Any]) -> int:
        beams = int(setting_of(self.model, generate_kwargs, "num_beams") or 1)
        if beams < 2:
            raise ValueError(f"the `weight` of coverage needs at least 2 beams: `num_beams` is {beams}")
        return beams

    def _length_penalty(self, generate_kwargs: Mapping[str, Any]) -> float:
        penalty = setting_of(self.model, generate_kwargs, "length_penalty")
        return 1.0 if penalty is None else float(penalty)


# -------------------- hf_capsule_mt.pipelines.segments

pipeline_logger = logging.get_logger("hf_capsule_mt.pipelines")

LONE_SURROGATES = re.compile("[\ud800-\udfff]")
LANGUAGE_TOKEN = re.compile(r"\s*(>>[^<\s]+<<)\s*")  # a multilingual OPUS-MT source begins with its target language
Result = TypeVar("Result")


class EncodedText(NamedTuple):
    """The token ids of a text, what else the tokenizer gives for `generate()`, and the characters of each token."""

    token_ids: list[int]
    settings: dict[str, object]
    offset_mapping: list[tuple[int, int]] | None
    was_cut: bool = False


@dataclass
class Piece:
    """What goes through the model at once: a sentence of a text, or a part of one that is too long.

    Its words are known where coverage is asked for.
    """

    span: Span
    source: EncodedText
    words: list[SourceWord] = field(default_factory=list)
    target_prefix: list[int] = field(default_factory=list)
    hypotheses: Hypotheses | None = None

    @property
    def translations(self) -> Hypotheses:
        """The hypotheses of this piece, which has been translated."""
        if self.hypotheses is None:
            raise RuntimeError(f"the piece {self.span} has not been translated yet")
        return self.hypotheses


class PrefixedText(str):
    """A text whose translation begins with `target_prefix`; of several sentences, the first translation does.

        translator(PrefixedText("The old man buys a red hat.", "Der alte"))

    The prefix is forced token by token, so it should end where a word ends.
    """

    target_prefix: str

    def __new__(cls, text: str, target_prefix: str) -> "PrefixedText":
        prefixed = super().__new__(cls, text)
        prefixed.target_prefix = target_prefix
        return prefixed


@dataclass
class Document:
    """One of the texts that the user gave, and the pieces it is translated in."""

    text: str
    pieces: list[Piece] = field(default_factory=list)


@dataclass
class Segmenter:
    """Turns texts into documents: cuts them, tokenises each piece once.

    limit: the most tokens of a source. prefix: what a T5 checkpoint reads before each source.
    """

    tokenizer: PreTrainedTokenizerBase
    limit: int | None
    prefix: str = ""
    split_sentences: bool = True
    truncation: bool | str = False
    src_lang: str | None = None
    tgt_lang: str | None = None
    with_words: bool = False
    lists: WordLists = NO_LISTS

    def document(self, text: str) -> Document:
        """Cut a text into pieces that fit, and leave out those without a token, and unknown marks."""
        if not isinstance(text, str):
            raise TypeError(f"a text must be a string, got a {type(text).__name__}")
        document = Document(LONE_SURROGATES.sub("\ufffd", text))
        of_text, unknown_id = self._language_of(document.text), self.tokenizer.unk_token_id
        for start, end in self._sentences(document.text):
            begins, token = self.language_token(document.text[start:end])
            segmenter, special = self, set(self.tokenizer.all_special_ids)
            if token := token or of_text:
                segmenter = replace(self, prefix=f"{self.prefix}{token} ")
                special.add(cast(int, self.tokenizer.convert_tokens_to_ids(token)))
            if start + begins == end:
                continue
            for span, source in segmenter._fitting(document.text, Span(start + begins, end)):
                is_unknown = unknown_id in source.token_ids and not is_mark(document.text[span.start : span.end])
                if is_unknown or set(source.token_ids) - special:
                    words = segmenter._words(document.text, span, source) if self.with_words else []
                    document.pieces.append(Piece(span, source, words))
        if isinstance(text, PrefixedText) and document.pieces:
            encoded = self.tokenizer(text_target=text.target_prefix, add_special_tokens=False)
            document.pieces[0].target_prefix = list(encoded["input_ids"])
        return document

    def language_token(self, text: str) -> tuple[int, str]:
        """Return the token of a target language that a text begins with, or "", and where the rest begins."""
        given = LANGUAGE_TOKEN.match(text)
        is_one = given is not None and given[1] in language_tokens(self.tokenizer)
        return (given.end(), given[1]) if given is not None and is_one else (0, "")

    def _language_of(self, text: str) -> str:
        """Return the token of the target language for the sentences of a text that have none of their own."""
        tokens, token = language_tokens(self.tokenizer), self.language_token(text)[1] or f">>{self.tgt_lang}<<"
        if token in tokens:
            return token
        if tokens and self.tgt_lang is not None:
            shown = ", ".join(known.strip("<>") for known in tokens[:8])
            pipeline_logger.warning_once(f"`tgt_lang` {self.tgt_lang!r} is none of the tokenizer's: {shown}")
        return ""

    def _words(self, text: str, span: Span, source: EncodedText) -> list[SourceWord]:
        if source.offset_mapping is None:
            offsets = token_offsets(self.tokenizer, text[span.start : span.end], source.token_ids, self.prefix)
        else:
            offsets = without_prefix(source.offset_mapping, self.prefix)
        return source_words(text, span, offsets, source.token_ids, self.tokenizer.unk_token_id, self.lists)

    def _sentences(self, text: str) -> list[Span]:
        if self.split_sentences:
            return split_sentences(text, self.src_lang)
        start = len(text) - len(text.lstrip())
        return [Span(start, max(start, len(text.rstrip())))] if text.strip() else []

    def _fitting(self, text: str, sentence: Span) -> list[tuple[Span, EncodedText]]:
        """Encode a sentence; if it is too long, cut it (`truncation`) or split it into parts that fit."""
        source = self.encode(text[sentence.start : sentence.end])
        length = len(source.token_ids)
        if self.limit is None or length <= self.limit:
            return [(sentence, source)]
        if self.truncation:
            pipeline_logger.warning(f"A source of {length} tokens was cut to {self.limit} (`truncation`).")
            return [(sentence, self.encode(text[sentence.start : sentence.end], truncate=True))]
        if not self.split_sentences:
            raise ValueError(
                f"a source of {length} tokens is longer than the {self.limit} that the model takes: "
                f"{text[sentence.start : sentence.start + 40]!r}... Leave `split_sentences` on, or set "
                "`truncation=True` to cut it."
            )
        encoded = {text[sentence.start : sentence.end]: source}

        def fits(part: str) -> bool:
            if part not in encoded:
                encoded[part] = self.encode(part)
            return len(encoded[part].token_ids) <= cast(int, self.limit)

        parts = split_to_fit(text, sentence, fits)
        for span in parts:
            part = text[span.start : span.end]
            if not fits(part):
                raise ValueError(
                    f"the character {part!r} alone is {len(encoded[part].token_ids)} tokens, more than the "
                    f"{self.limit} that a source may have (`max_source_tokens`)"
                )
        return [(span, encoded[text[span.start : span.end]]) for span in parts]

    def encode(self, text: str, truncate: bool = False) -> EncodedText:
        """Tokenise a text, after the prefix if there is one."""
        options: dict[str, object] = {"truncation": self.truncation, "max_length": self.limit} if truncate else {}
        if self.with_words and self.tokenizer.is_fast:
            options["return_offsets_mapping"] = True
        build = getattr(self.tokenizer, "_build_translation_inputs", None)
        if build is not None:  # tokenizers of many languages
            for name in ("src_lang", "tgt_lang"):
                check_language(self.tokenizer, name, getattr(self, name))
            encoded = build(
                self.prefix + text, return_tensors=None, src_lang=self.src_lang, tgt_lang=self.tgt_lang, **options
            )
        else:
            encoded = self.tokenizer(self.prefix + text, verbose=False, **options)
        taken = ("input_ids", "attention_mask", "token_type_ids", "offset_mapping")
        settings = {key: value for key, value in encoded.items() if key not in taken}
        return EncodedText(list(encoded["input_ids"]), settings, encoded.get("offset_mapping"), was_cut=truncate)


def language_tokens(tokenizer: PreTrainedTokenizerBase) -> list[str]:
    """Return the tokens of target languages of a multilingual OPUS-MT model; none for any other."""
    return list(getattr(tokenizer, "supported_language_codes", None) or ())


def check_language(tokenizer: PreTrainedTokenizerBase, name: str, code: str | None) -> None:
    """Raise where a tokenizer of many languages, whose tokens are special or added ones, does not have this one."""
    if code is None or {code, f"__{code.strip('_')}__"} & tokenizer.get_added_vocab().keys():
        return
    tokens = {*tokenizer.all_special_tokens, *(getattr(tokenizer, "lang_code_to_id", None) or ())}
    known = sorted(token.strip("_") for token in tokens if not token.startswith(("<", "[")))
    if not known or code.strip("_") in known:
        return
    near = [word for word in known if word.startswith(code[:2])] or known
    raise ValueError(
        f"`{name}` {code!r} is no language of {type(tokenizer).__name__}; it has {', '.join(near[:8])}"
        + (", ..." if len(near) > 8 else "")
    )


def source_length(piece: Piece) -> int:
    """Return how many tokens the source of a piece has."""
    return len(piece.source.token_ids)


def batches_of(
    pieces: list[Piece],
    batch_size: int,
    batch_tokens: int | None,
    length: Callable[[Piece], int] = source_length,
) -> Iterator[list[Piece]]:
    """Yield batches of pieces of similar length, longest first, of so many pieces or padded tokens."""
    in_order = sorted(pieces, key=length, reverse=True)
    first = 0
    while first < len(in_order):
        size = batch_size if batch_tokens is None else max(1, batch_tokens // length(in_order[first]))
        yield in_order[first : first + size]
        first += size


def join_translations(document: Document, translations: list[str]) -> str:
    """Join the translations of the pieces with the space that is between them in the text.

    Where there is none, as in Chinese, there is one in a translation that does not end as Chinese does.
    """
    joined = ""
    for number, (piece, translation) in enumerate(zip(document.pieces, translations, strict=True)):
        if number > 0:
            between = document.text[document.pieces[number - 1].span.end : piece.span.start]
            joined += between or ("" if joined.endswith(tuple(UNSPACED_STOPS)) else " ")
        joined += translation
    return joined


class TranslationIterator(Generic[Result]):
    """Reads texts in windows, translates each window at once, and gives its results one by one."""

    def __init__(self, texts: object, translate: Callable[[list[str]], list[Result]], window: int) -> None:
        """`texts`: an iterable, or what only has a length and `[]`, such as a `KeyDataset`."""
        self.texts = texts
        self.translate = translate
        self.window = window

    def __len__(self) -> int:
        return len(cast(Sized, self.texts))  # a generator has no length, and says so

    def __iter__(self) -> Iterator[Result]:
        texts = iter(self.texts) if hasattr(self.texts, "__iter__") else self._items()
        while window := list(islice(texts, self.window)):
            yield from self.translate(window)

    def _items(self) -> Iterator[str]:
        texts = cast("Dataset[str]", self.texts)
        return (texts[index] for index in range(len(self)))


class TextsOf(Dataset[str]):
    """A sized iterable, as what transformers' base class reads lazily."""

    def __init__(self, texts: Iterable[str]) -> None:
        self.texts = texts

    def __len__(self) -> int:
        return len(cast(Sized, self.texts))

    def __iter__(self) -> Iterator[str]:
        return iter(self.texts)


# -------------------- hf_capsule_mt.pipelines.coverage

LONGEST_REPEATED_PHRASE = 6


def coverage_of(document: Document, rank: int, translations: list[str]) -> Coverage:
    """Return the coverage of a text by its translation of some rank, whose text is given for each piece."""
    words: list[Word] = []
    sentences, weights, repetitions = [], [], []
    for piece, translation in zip(document.pieces, translations, strict=True):
        coverage = piece.translations.coverage
        if coverage is None:
            raise RuntimeError("the piece was translated without coverage")
        sentences.append(SentenceCoverage(*piece.span, score=float(coverage.score[rank])))
        repetitions += repeated_phrases(translation, document.text[piece.span.start : piece.span.end])
        of_words = (coverage.covered, coverage.untranslated, coverage.past, coverage.future)
        values = (repeat(None) if tensor is None else tensor[rank].tolist() for tensor in of_words)
        weights.append(0)
        for word, covered, untranslated, past, future in zip(piece.words, *values, strict=False):
            text = document.text[word.span.start : word.span.end]
            is_missing = untranslated and not word.is_mark
            weights[-1] += is_missing or not (word.is_mark or word.is_optional or word.is_function)
            words.append(Word(text, word.span.start, word.span.end, covered, is_missing, past, future))
    weighted = sum(weight * sentence.score for weight, sentence in zip(weights, sentences, strict=True))
    score = weighted / sum(weights) if sum(weights) else 1.0
    return Coverage(score, tuple(words), tuple(sentences), tuple(repetitions))


def repeated_phrases(translation: str, source: str) -> list[str]:
    """Return the phrases that a translation says twice in a row, unless its source repeats itself as often."""
    allowed = sum(_doubled(source).values())
    found = _doubled(translation)
    return [] if sum(found.values()) <= allowed else list(found)


def _doubled(text: str) -> Counter[str]:
    """Count the phrases that are followed by themselves."""
    words = [match[0].casefold() for match in WORDS.finditer(text)]
    found: Counter[str] = Counter()
    if len(set(words)) == len(words):
        return found
    place = 0
    while place < len(words):
        for length in range(LONGEST_REPEATED_PHRASE, 0, -1):
            phrase = words[place : place + length]
            is_phrase = len(phrase) == length and any(character.isalnum() for word in phrase for character in word)
            if is_phrase and words[place + length : place + 2 * length] == phrase:
                found[" ".join(phrase)] += 1
                place += length
                break
        else:
            place += 1
    return found


# -------------------- hf_capsule_mt.pipelines.keeping

KEPT_PATTERNS = {
    "tags": r"<!--.*?-->|</?[A-Za-z][^<>]*>",
    "urls": r"(?:https?://|www\.)[^\s<>\"']*[\w/]|(?<![\w.+-])[\w.+-]{1,64}@[\w-]+(?:\.[\w-]+)+",
    "placeholders": r"\$?\{\{?[^{}\s]*\}\}?|%(?:\(\w+\)|\d+\$)?[sdif]\b|%\w+%",
    "numbers": r"(?<!\w)(?<!\d[.,:/\-])\d+(?:[.,:/\-]\d+)*(?!\w|[.,:/\-]\d)",
}
TAG = re.compile(r"<(/?)([\w:-]+)")
# a sentence ends at these
BLOCK_TAG = re.compile(
    r"</?(?:p|div|br|hr|h[1-6]|[uod]l|li|d[td]|table|thead|tbody|tr|t[dh]|pre|blockquote|section|article)\b", re.I
)
# the more a model has seen of them, the better it copies them
STAND_INS = {
    "name": ("Tom", "John", "Boston", "Paris", "London", "David", "Berlin", "Peter", "Anna", "Maria"),
    "year": ("2013", "1999", "2005", "1980", "2000", "1970"),
    "amount": ("20", "30", "10", "50", "40", "100", "15", "60", "5", "7"),
}
YEAR = re.compile(r"(?:1[5-9]|20)\d\d")
MOST_ATTEMPTS = 5
MOST_EVIDENCE = 8.0  # nats that one token may count for
EVIDENCE_OF_MARK = -0.01  # a mark goes with the words on both sides of it

# of a source, its segment, and N spans of the source: how many nats each of the T tokens after the start token of its
# translation loses without each of them [N, T]
Effects = Callable[[str, Segment, list[Span]], torch.Tensor]


class Item(str):
    """A part of a text that is kept; its `kind` is one of `KEPT`."""

    kind: str

    def __new__(cls, text: str, kind: str) -> "Item":
        item = super().__new__(cls, text)
        item.kind = kind
        return item

    @property
    def stand_ins(self) -> tuple[str, ...]:
        if self.kind != "numbers":
            return STAND_INS["name"]
        return STAND_INS["year" if YEAR.fullmatch(self) else "amount"]


def parts_of(text: str, kinds: Sequence[str]) -> list[str]:
    """Cut a text into strings and `Item`s of these kinds, which joined give the text."""
    pattern = "|".join(f"(?P<{kind}>{KEPT_PATTERNS[kind]})" for kind in KEPT if kind in kinds)
    parts: list[str] = []
    place = 0
    for match in re.finditer(pattern, text, re.DOTALL):
        parts += [text[place : match.start()], Item(match[0], str(match.lastgroup))]
        place = match.end()
    return [part for part in [*parts, text[place:]] if part]


def is_kind(part: str, kind: str) -> bool:
    return isinstance(part, Item) and part.kind == kind


def overlaps(span: Span, others: Iterable[Span]) -> bool:
    return any(span.start < end and start < span.end for start, end in others)


def partners_of(parts: Sequence[str]) -> dict[int, int]:
    """Return the index of the end tag of each start tag among the parts that has one."""
    opened: list[tuple[int, str]] = []
    partners = {}
    for number, part in enumerate(parts):
        tag = TAG.match(part) if is_kind(part, "tags") else None
        if tag is None or part.endswith("/>"):
            continue
        if not tag[1]:
            opened.append((number, tag[2].lower()))
            continue
        fitting = [place for place, (_, name) in enumerate(opened) if name == tag[2].lower()]
        if fitting:
            partners[opened[fitting[-1]][0]] = number
            del opened[fitting[-1] :]
    return partners


@dataclass
class Sentence:
    """The parts of a sentence, the stand-ins of some of them by their index, and what becomes of it."""

    parts: list[str]
    stand_ins: dict[int, str] = field(default_factory=dict)
    attempts: int = 0
    is_part: bool = False  # of a sentence that was cut
    text: str = ""
    translations: list[Translation] = field(default_factory=list)

    @property
    def source(self) -> str:
        """What the model translates: stand-ins, and no tags."""
        return "".join(text for _, text in self.written)

    @property
    def written(self) -> list[tuple[int, str]]:
        """The index and the text of each part but the tags."""
        parts = enumerate(self.parts)
        return [(n, self.stand_ins.get(n, part)) for n, part in parts if not is_kind(part, "tags")]

    def places(self, translation: str) -> tuple[dict[int, Span], list[int]]:
        """Return where the items, or their stand-ins, are in a translation, and which are not there as often."""
        of_text: dict[str, list[int]] = {}
        for number, text in self.written:
            if isinstance(self.parts[number], Item):
                of_text.setdefault(text, []).append(number)
        found: dict[int, Span] = {}
        lost: list[int] = []
        numbers: list[int] = []
        taken: list[Span] = []
        for text, wanted in sorted(of_text.items(), key=lambda item: -len(item[0])):  # one may begin as another does
            if is_kind(self.parts[wanted[0]], "numbers"):
                numbers += wanted
                continue
            before, after = ("(?<!\\w)" if text[0].isalnum() else "", "(?!\\w)" if text[-1].isalnum() else "")
            spans = [Span(*match.span()) for match in re.finditer(before + re.escape(text) + after, translation)]
            spans = [span for span in spans if not overlaps(span, taken)]
            taken += spans
            found.update(zip(wanted, spans, strict=False))
            lost += wanted if len(spans) != len(wanted) else []
        matches = re.finditer(KEPT_PATTERNS["numbers"], translation)
        free = [match for match in matches if not overlaps(Span(*match.span()), taken)]
        if numbers:
            count = Counter(match[0] for match in free)
            missing = [n for n in numbers if count[self.written_as(n)] != len(of_text[self.written_as(n)])]
            lost += missing or (numbers if len(free) != len(numbers) else [])  # one too many
        for number in numbers:
            place = next((match for match in free if match[0] == self.written_as(number)), None)
            if place is not None:
                free.remove(place)
                found[number] = Span(*place.span())
        return found, lost

    def written_as(self, number: int) -> str:
        return self.stand_ins.get(number, self.parts[number])

    def stand_in(self, lost: Iterable[int]) -> bool:
        """Give the lost items other stand-ins; return whether there are any left."""
        self.attempts += 1
        for number in lost:
            item = self.parts[number]
            if not isinstance(item, Item):
                raise TypeError(f"{item!r} is no item")
            first = item.stand_ins.index(self.stand_ins[number]) + 1 if number in self.stand_ins else 0
            free = next((one for one in item.stand_ins[first:] if one not in self.source), None)
            if free is None:
                return False
            self.stand_ins[number] = free
        return self.attempts < MOST_ATTEMPTS


def without_edges(parts: list[str]) -> list["str | Sentence"]:
    """Return a sentence between the tags and spaces at its ends, or nothing but its parts if it has no words."""
    first, last = 0, len(parts)
    partner = partners_of(parts)
    partner |= {end: start for start, end in partner.items()}

    def is_edge(number: int) -> bool:
        part = parts[number]
        return not part.strip() or (is_kind(part, "tags") and number not in partner)

    while first < last:
        if is_edge(first):
            first += 1
        elif is_edge(last - 1):
            last -= 1
        elif partner.get(first) == last - 1:
            first, last = first + 1, last - 1
        else:
            break
    inner = parts[first:last]
    if not any(not isinstance(part, Item) and any(map(str.isalpha, part)) for part in inner):
        return list(parts)
    before, after = "", ""
    if not isinstance(inner[0], Item):
        before, inner[0] = inner[0][: len(inner[0]) - len(inner[0].lstrip())], inner[0].lstrip()
    if not isinstance(inner[-1], Item):
        after, inner[-1] = inner[-1][len(inner[-1].rstrip()) :], inner[-1].rstrip()
    return [*parts[:first], before, Sentence(inner), after, *parts[last:]]


def cut_at(parts: list[str], places: Iterable[int]) -> list["str | Sentence"]:
    """Cut a sentence at some of its parts, which stay as they are."""
    found: list[str | Sentence] = []
    first = 0
    for place in [*sorted(places), len(parts)]:
        inner = parts[first:place]
        marks = re.match(r"\W*", inner[0]) if inner and not isinstance(inner[0], Item) else None
        if marks and marks.end() < len(inner[0]):
            found, inner = [*found, marks[0]], [inner[0][marks.end() :], *inner[1:]]
        found += [*without_edges(inner), *parts[place : place + 1]]
        first = place + 1
    for piece in found:
        if isinstance(piece, Sentence):
            piece.is_part = True
    return found


def joined(parts: Iterable["str | Sentence"]) -> str:
    """Join what a text or a sentence was cut into; items stay apart from the words around them."""
    text = ""
    for part in parts:
        new = part.text if isinstance(part, Sentence) else part
        is_word = isinstance(part, (Sentence, Item))
        text += " " if is_word and text[-1:].isalnum() and new[:1].isalnum() else ""
        text += new
    return text


class Layout:
    """Where the tags of a sentence go in its translation.

    `runs` are the spans of the source between the tags, those with words; `sources` are the words of the source,
    `words` those of the translation, where an item is one; `evidence` [runs, words] is how much each word depends on
    each run.
    """

    def __init__(self, sentence: Sentence, translation: str, items: Iterable[Span]) -> None:
        self.parts = sentence.parts
        self.partners = partners_of(self.parts)
        self.runs: list[Span] = []
        self.runs_before: dict[int, int] = {}  # of each tag
        begin = end = 0
        texts = dict(sentence.written)
        for number in range(len(self.parts) + 1):
            if number in texts:
                end += len(texts[number])
                continue
            if any(map(str.isalnum, sentence.source[begin:end])):
                self.runs.append(Span(begin, end))
            self.runs_before[number], begin = len(self.runs), end
        taken = list(items)
        words = [Span(*match.span()) for match in WORDS.finditer(translation)]
        self.words = sorted([*(word for word in words if not overlaps(word, taken)), *taken])
        self.sources = [
            Span(*match.span()) for match in WORDS.finditer(sentence.source) if any(map(str.isalnum, match[0]))
        ]
        self.is_mark = torch.tensor([is_mark(translation[start:end]) for start, end in self.words], dtype=torch.bool)
        self.evidence = torch.ones(len(self.runs), len(self.words)).masked_fill(self.is_mark, 0.0)

    def measure(self, effects: torch.Tensor, ends: list[int]) -> None:
        """Set the evidence from the effect of each of `sources` on each token [N, T], and where each token ends."""
        words_of_runs = [[n for n, word in enumerate(self.sources) if overlaps(word, [run])] for run in self.runs]
        of_run = [effects[words].amax(dim=0) for words in words_of_runs]
        effects = torch.stack(of_run).clamp(0.0, MOST_EVIDENCE)
        for number, (start, end) in enumerate(self.words):
            tokens = [t for t, at in enumerate(ends) if at > start and ([0, *ends][t]) < end]
            self.evidence[:, number] = effects[:, tokens].sum(dim=1) if not self.is_mark[number] else 0.0

    def tags(self) -> list[tuple[int, str]] | None:
        """Return each tag and before which character it goes, in their order; `None` if they do not fit."""
        paired = {*self.partners, *self.partners.values()}
        loose = [n for n, part in enumerate(self.parts) if is_kind(part, "tags") and n not in paired]
        names = [TAG.match(self.parts[n]) for n in loose]
        opened = {name[2].lower() for name in names if name and not name[1]}
        if opened & {name[2].lower() for name in names if name and name[1]}:
            return None  # they overlap: no order of words says which comes first
        if not self.words:
            return None
        least, found = 0, []
        for at, number in self._placed(range(len(self.parts)), 0, len(self.words)):
            least = max(least, at)
            found.append((least, self._spaced(number, least)))
        return found

    def _spaced(self, number: int, at: int) -> str:
        """Return a tag, with a space if it stands between two, and no end of anything."""
        tag, around = self.parts[number], self.parts[max(0, number - 1) : number + 2]
        alone = number not in self.partners and number not in self.partners.values()
        if not alone or len(around) < 3 or not (around[0][-1:].isspace() and around[2][:1].isspace()):
            return tag
        return f"{tag} " if any(at == word.start for word in self.words) else f" {tag}"

    def _placed(self, numbers: Iterable[int], first: int, last: int) -> list[tuple[int, int]]:
        """Return the character and the index of each tag among some parts, all of it in words first ... last - 1."""
        elements: list[tuple[int, int, int]] = []  # first word, start tag, the word after the last
        end = -1
        least = first  # points keep their order
        for number in numbers:
            if number <= end or not is_kind(self.parts[number], "tags"):
                continue
            end = self.partners.get(number, number)
            begin, stop = self._interval(self.runs_before[number], self.runs_before[end])
            if begin == stop:
                begin = stop = least = max(begin, least)
            elements.append((min(max(begin, first), last), number, min(stop, last)))
        found: list[tuple[int, int]] = []
        place = first
        for begin, number, stop in sorted(elements):
            begin = max(begin, place)  # what comes before is another tag's
            place, end = max(begin, stop), self.partners.get(number, number)
            if begin < stop:
                inner = self._placed(range(number + 1, end), begin, stop)
                found += [(self.words[begin].start, number), *inner, (self.words[stop - 1].end, end)]
            else:
                after = begin == last or (begin > 0 and self.parts[number].startswith("</"))
                at = self.words[begin - 1].end if after else self.words[begin].start
                found += [(at, n) for n in range(number, end + 1) if is_kind(self.parts[n], "tags")]
        return found

    def _point(self, run: int) -> int:
        """Return before which word what comes after some runs of the source begins."""
        spoken = (~self.is_mark).nonzero().flatten().tolist() or [0]
        if run == 0:
            return int(spoken[0])
        if run == len(self.runs):
            return int(spoken[-1]) + 1
        margin = self.evidence[:run].amax(dim=0) - self.evidence[run:].amax(dim=0)
        before = torch.cat([torch.zeros(1), margin.cumsum(dim=0)])
        return int((2 * before - before[-1]).argmax())

    def _interval(self, first: int, last: int) -> tuple[int, int]:
        """Return the first, and the one after the last, of the words in a row that depend most on some runs.

        Both are the same if there are no such runs, or if no word depends on them.
        """
        if first == last or not self.evidence[first:last].any():
            return self._point(first), self._point(first)
        inside = self.evidence[first:last].amax(dim=0)
        others = torch.cat([self.evidence[:first], self.evidence[last:]])
        outside = others.amax(dim=0) if len(others) else torch.full_like(inside, -1.0)
        margin = (inside - outside).masked_fill(self.is_mark, EVIDENCE_OF_MARK).tolist()
        strongest = int(inside.argmax())
        best, found, total, begin = 0.0, (strongest, strongest + 1), 0.0, 0
        for place, value in enumerate(margin):
            if total <= 0.0:
                total, begin = 0.0, place
            total += value
            if total > best:
                best, found = total, (begin, place + 1)
        return found


class Keeper:
    """Translates texts, and keeps the items of some kinds.

    Args:
        kinds: of `KEPT`.
        translate: translates sentences.
        effects: see `Effects`.
        ends: the end in the translation of each of the tokens of a segment after the start token.
        split: cut texts into sentences, by the rules of `language`.
    """

    def __init__(
        self,
        kinds: Sequence[str],
        translate: Callable[[list[str]], list[Translation]],
        effects: Effects,
        ends: Callable[[Segment], list[int]],
        *,
        split: bool = True,
        language: str | None = None,
    ) -> None:
        self.kinds, self.translate, self.effects, self.ends = kinds, translate, effects, ends
        self.split, self.language = split, language

    def __call__(self, texts: Iterable[str]) -> list[Translation]:
        """Translate texts. The `segments` of a translation have the place of their sentence in the text."""
        found = [self._sentences(text) for text in texts]
        self._translate([part for parts in found for part, _ in parts if isinstance(part, Sentence)])
        results = []
        for parts in found:
            text = joined(part for part, _ in parts)
            segments: list[Segment] = []
            total, num_tokens, is_scored = 0.0, 0, True
            for part, span in parts:
                for translation in part.translations if isinstance(part, Sentence) else ():
                    own = [replace(one, start=span.start, end=span.end) for one in translation.segments]
                    length = sum(len(one.target_ids) - 1 for one in own)
                    is_scored &= translation.score is not None or not own
                    total, num_tokens = total + (translation.score or 0.0) * length, num_tokens + length
                    segments += own
            score = total / num_tokens if num_tokens and is_scored else None
            results.append(Translation(text, score, None, tuple(segments)))
        return results

    def _sentences(self, text: str) -> list[tuple["Sentence | str", Span]]:
        """Cut a text into sentences and what stands between them, each with its place in the text."""
        blocks, place = [Span(0, 0)], 0
        for part in parts_of(text, self.kinds):
            end = place + len(part)
            if is_kind(part, "tags") and BLOCK_TAG.match(part):
                blocks.append(Span(end, end))
            else:
                blocks[-1] = Span(blocks[-1].start, end)
            place = end
        found: list[tuple[Sentence | str, Span]] = []
        place = 0
        for block in blocks:
            for span in self._spans(text, block):
                found.append((text[place : span.start], Span(place, span.start)))
                own = parts_of(text[span.start : span.end], self.kinds)
                found += ((part, span) for part in without_edges(own))
                place = span.end
        return [*found, (text[place:], Span(place, len(text)))]

    def _spans(self, text: str, block: Span) -> list[Span]:
        """Return the sentences of a part of a text, with the tags that touch them."""
        plain, place = "", block.start  # without tags, and with items that hold no marks
        places: list[int] = []  # of its characters in the text
        for part in parts_of(text[block.start : block.end], self.kinds):
            if not is_kind(part, "tags"):
                if isinstance(part, Item):
                    plain += ("1" if part.kind == "numbers" else "x") * len(part)
                else:
                    plain += part
                places += range(place, place + len(part))
            place += len(part)
        spans = split_sentences(plain, self.language) if self.split else [Span(0, len(plain))]
        found: list[Span] = []
        reached = block.start
        for start, end in spans:
            if not plain[start:end].strip():
                continue
            first, last = places[start], places[end - 1] + 1
            if "tags" in self.kinds:
                tags = f"(?:{KEPT_PATTERNS['tags']})"
                before = re.search(f"{tags}*$", text[reached:first])
                after = re.match(r"(?:</[^<>]*>)*", text[last : block.end])
                first -= len(before[0]) if before else 0
                last += len(after[0]) if after else 0
            reached = last
            found.append(Span(first, last))
        return found

    def _translate(self, sentences: list[Sentence]) -> None:
        """Translate sentences, and cut those in which something finds no place."""
        waiting, pieces = sentences, []
        while waiting:
            translations = self.translate([sentence.source for sentence in waiting])
            again = []
            for sentence, translation in zip(waiting, translations, strict=True):
                places, lost = sentence.places(translation.text)
                if not lost:
                    tags = self._tags(sentence, translation, places)
                    if tags is not None:
                        self._write(sentence, translation, places, tags)
                        continue
                    lost = [n for n, part in enumerate(sentence.parts) if is_kind(part, "tags")]
                elif sentence.stand_in(lost):
                    again.append(sentence)
                    continue
                pieces.append((sentence, cut_at(sentence.parts, lost)))
            waiting = again
        if not pieces:
            return
        self._translate([piece for _, own in pieces for piece in own if isinstance(piece, Sentence)])
        for sentence, own in pieces:
            sentence.text = joined(own)
            sentence.translations = [found for one in own if isinstance(one, Sentence) for found in one.translations]

    def _tags(
        self, sentence: Sentence, translation: Translation, places: dict[int, Span]
    ) -> list[tuple[int, str]] | None:
        """Return before which characters of a translation the tags go; `None` if they do not fit."""
        if not any(is_kind(part, "tags") for part in sentence.parts):
            return []
        layout = Layout(sentence, translation.text, places.values())
        if len(layout.runs) > 1 and layout.words:
            if len(translation.segments) != 1:
                return None
            (segment,) = translation.segments
            layout.measure(self.effects(sentence.source, segment, layout.sources), self.ends(segment))
        return layout.tags()

    def _write(
        self, sentence: Sentence, translation: Translation, places: dict[int, Span], tags: list[tuple[int, str]]
    ) -> None:
        """Put the items and the tags into a translation, and take out what the model has invented of their kinds."""
        text = translation.text
        edits = [(at, 0, order, at, tag) for order, (at, tag) in enumerate(tags)]
        edits += [(start, 1, 0, end, sentence.parts[n]) for n, (start, end) in places.items()]
        kinds = [kind for kind in self.kinds if kind != "numbers"]
        for match in re.finditer("|".join(KEPT_PATTERNS[kind] for kind in kinds), text) if kinds else ():
            if not overlaps(Span(*match.span()), places.values()):
                edits.append((match.start(), 1, 0, match.end(), ""))
        written, place = "", 0
        for start, _, _, end, new in sorted(edits):
            written += text[place:start] + new
            place = max(place, end)
        written += text[place:]
        if sentence.is_part and sentence.source[-1:].isalnum():
            written = re.sub(r"(?<=\w)[.!?]$", "", written)  # the model ends what it takes for a sentence
        sentence.text = written
        sentence.translations = [translation]


# -------------------- hf_capsule_mt.pipelines.translator

TASK_WITH_LANGUAGES = re.compile(r"translation_(?P<source>[^_]+(?:_[^_]+)*?)_to_(?P<target>.+)")
# of what is left out against the mean log-probability of a token, where nobody sets another
DEFAULT_COVERAGE_WEIGHT = 5.0


class Translator:
    """Translates texts with a sequence-to-sequence model of transformers, ours or any other.

        >>> translator = Translator.from_pretrained("checkpoints/capsule-marian-de-en")
        >>> translation = translator("Der alte Mann kauft einen roten Hut.", coverage=CoverageOptions())
        >>> translation.text, translation.score, [word.text for word in translation.coverage.untranslated]

    Args:
        model: the model, which is put into evaluation mode.
        tokenizer: its tokenizer.
        ensemble: further models (or paths) of the same vocabulary, whose probabilities are averaged with the model's.
        int8: multiply by int8 copies of the matrices, which is faster on a CPU.
        backend: what decodes. "native" and "torch" are those of `to_fast`, which copies the weights; "transformers" is
            `generate()`; "auto" takes the fastest that there is for a float32 model on a CPU. Models that `to_fast`
            does not take, and ensembles, get faster linear maps in place, which train and save as before.
        shortlist: score only the tokens that the words of a source are likely to become, which `capsule-mt shortlist`
            finds out: its file, or True for the one beside the checkpoint.
        task: "translation", or with languages, as "translation_en_to_de", which T5 checkpoints have settings for.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        *,
        ensemble: Iterable[PreTrainedModel | str | os.PathLike[str]] = (),
        int8: bool = False,
        backend: str = "auto",
        shortlist: bool | str | Path = False,
        task: str = "translation",
    ) -> None:
        self.model = model.eval()
        check_weights(model)
        check_tokenizer(model, tokenizer)
        self.tokenizer = tokenizer
        self.task = task
        self.members = load_members(model, tokenizer, ensemble)
        self.fast = choose_backend(model, self.members, int8, backend, shortlist)

    @classmethod
    def from_pretrained(
        cls,
        name_or_path: str | os.PathLike[str],
        *,
        device: str | torch.device | None = None,
        dtype: str | torch.dtype = "auto",
        ensemble: Iterable[PreTrainedModel | str | os.PathLike[str]] = (),
        int8: bool = False,
        backend: str = "auto",
        shortlist: bool | str | Path = False,
        task: str = "translation",
    ) -> "Translator":
        """Load a checkpoint and its tokenizer, onto the first accelerator if there is one and `device` names none.

        Weights that are missing, superfluous or not finite, and a tokenizer that does not fit, are errors. On a CPU,
        `dtype="auto"` computes in float32 with weights that are stored in half precision.
        """
        model = CheckedSeq2SeqLM.from_pretrained(name_or_path, dtype=dtype)
        tokenizer = load_tokenizer(name_or_path)
        device = torch.device(device or torch.accelerator.current_accelerator(check_available=True) or "cpu")
        if dtype == "auto" and device.type == "cpu" and model.dtype in (torch.float16, torch.bfloat16):
            model = model.float()
        return cls(
            model.to(device), tokenizer, ensemble=ensemble, int8=int8, backend=backend, shortlist=shortlist, task=task
        )

    @overload
    def __call__(self, texts: str, *, num_return_sequences: int, **options: Any) -> list[Translation]: ...
    @overload
    def __call__(self, texts: str, *, coverage: CoverageOptions | None = None, **options: Any) -> Translation: ...
    @overload
    def __call__(
        self, texts: list[str] | tuple[str, ...], *, coverage: CoverageOptions | None = None, **options: Any
    ) -> list[Translation]: ...
    @overload
    def __call__(
        self, texts: Iterable[str], *, coverage: CoverageOptions | None = None, **options: Any
    ) -> Iterable[Translation]: ...
    def __call__(
        self,
        texts: str | Iterable[str],
        *,
        coverage: CoverageOptions | None = None,
        scores: bool = True,
        batch_size: int = 1,
        batch_tokens: int | None = None,
        split_sentences: bool = True,
        max_source_tokens: int | None = None,
        truncation: bool | str = False,
        src_lang: str | None = None,
        tgt_lang: str | None = None,
        clean_up_tokenization_spaces: bool | None = None,
        keep: Sequence[str] = (),
        **generate_kwargs: object,
    ) -> Translation | list[Translation] | Iterable[Translation | list[Translation]]:
        """Translate one string, a list of strings, or lazily any other iterable of strings.

        A text of several sentences is translated sentence by sentence, and the space between them is kept; a blank
        text stays blank. A sentence that is longer than the model takes is translated in pieces. A translation that
        reaches its limit is reported by a warning. Lone surrogates, which are no characters, are read as U+FFFD.

        Args:
            texts: what to translate. A `PrefixedText` also has what its translation begins with.
            coverage: find what was left out, and how.
            scores: compute `Translation.score`. Where `generate()` decodes, it takes one more pass of the decoder.
            batch_size: how many sentences go through the model at once.
            batch_tokens: how many of their tokens, padding included, instead of how many sentences.
            split_sentences: False translates each text as if it were one sentence, and refuses one that is too long.
            max_source_tokens: translate in pieces of at most so many tokens, fewer than the model takes.
            truncation: cut a source to what the model takes, with a warning.
            src_lang, tgt_lang: for tokenizers that have languages, and for the rules about sentences.
            clean_up_tokenization_spaces: for the tokenizer.
            keep: of "tags", "urls", "placeholders" and "numbers": those that a translation has as its source does.
            generate_kwargs: for `generate()`: `num_beams`, `max_new_tokens`, ... Without a limit among them, a
                translation has at most three times the tokens of its source and thirty more, and what the checkpoint
                allows.

        Returns:
            A `Translation` for a string, a list of them for a list or a tuple, an iterable for any other iterable,
            in the order of the texts. With `num_return_sequences` above one, each text has a list of its own.
        """
        options = TranslationOptions(
            batch_size=batch_size,
            batch_tokens=batch_tokens,
            coverage=coverage,
            scores=scores,
            split_sentences=split_sentences,
            max_source_tokens=max_source_tokens,
            truncation=truncation,
            src_lang=src_lang,
            tgt_lang=tgt_lang,
            clean_up_tokenization_spaces=clean_up_tokenization_spaces,
            keep=keep,
            generate_kwargs=generate_kwargs,
        )
        if isinstance(texts, (bytes, dict)) or not (hasattr(texts, "__iter__") or hasattr(texts, "__getitem__")):
            raise TypeError(f"`texts` must be a string or an iterable of strings, got a {type(texts).__name__}")

        def translate(window: list[str]) -> list[Translation | list[Translation]]:
            return [found[0] if len(found) == 1 else found for found in self.translate(window, options)]

        if isinstance(texts, str):
            return translate([texts])[0]
        found = TranslationIterator(texts, translate, options.window)
        return list(iter(found)) if isinstance(texts, (list, tuple)) else found

    def translate(self, texts: list[str], options: TranslationOptions) -> list[list[Translation]]:
        """Translate these texts, sorted by length into batches, and return the best translations of each."""
        if options.keep:
            return [[translation] for translation in self._keeping(texts, options)]
        segmenter = self._segmenter(options)
        documents = [segmenter.document(text) for text in texts]
        pieces = [piece for document in documents for piece in document.pieces]
        self._translate_pieces(batches_of(pieces, options.batch_size, options.batch_tokens), options)
        num_returned = self._decoder.num_returned(self._generate_kwargs(options))
        return [[self._translation(document, rank, options) for rank in range(num_returned)] for document in documents]

    def _keeping(self, texts: list[str], options: TranslationOptions) -> list[Translation]:
        """Translate texts, and keep what `options.keep` names."""
        returned = self._decoder.num_returned(self._generate_kwargs(options))
        if returned > 1:
            raise ValueError(
                f"`keep` goes with one translation of each text, got `num_return_sequences` of {returned}"
            )
        for text in texts:
            if not isinstance(text, str):
                raise TypeError(f"a text must be a string, got a {type(text).__name__}")
            if isinstance(text, PrefixedText):
                raise TypeError("`keep` does not go with a `PrefixedText`: leave one of them out")
        plain = replace(options, keep=())
        segmenter, clean_up = self._segmenter(options), options.clean_up_tokenization_spaces
        for text in texts:
            if token := segmenter.language_token(text)[1]:
                raise ValueError(f"`keep` does not go with {token} in a text: give `tgt_lang={token.strip('<>')!r}`")
        keeper = Keeper(
            options.keep,
            lambda sentences: [found for (found,) in self.translate(sentences, plain)],
            self._effects,
            lambda segment: target_ends(self.tokenizer, segment.target_ids, clean_up),
            split=options.split_sentences,
            language=segmenter.src_lang,
        )
        return keeper(LONE_SURROGATES.sub("\ufffd", text) for text in texts)

    def _effects(self, source: str, segment: Segment, spans: list[Span]) -> torch.Tensor:
        """Return how many nats each token of a translation loses without each span of its source: [N, T]."""
        ids, device = list(segment.source_ids), self.model.device
        offsets = token_offsets(self.tokenizer, source[segment.start : segment.end], ids, self.source_prefix)
        middles = [None if place is None else segment.start + sum(place) / 2 for place in offsets]
        deleted = [[at is not None and start <= at < end for at in middles] for start, end in spans]
        input_ids = torch.tensor([ids], device=device)
        batch = SourceBatch(input_ids, torch.ones_like(input_ids), {})
        sequence = torch.tensor([segment.target_ids], device=device)
        return deletion_effects(self.model, batch, sequence, torch.tensor(deleted, device=device)).cpu()

    def cover(
        self,
        texts: Sequence[str],
        translations: Sequence[str],
        *,
        coverage: CoverageOptions | None = None,
        batch_size: int = 16,
    ) -> list[Coverage]:
        """Return what given translations cover: the `coverage` of what `score` returns."""
        coverage = coverage or CoverageOptions()
        found = self.score(texts, translations, coverage=coverage, batch_size=batch_size)
        return [translation.coverage for translation in found if translation.coverage is not None]

    @torch.no_grad()
    def score(
        self,
        texts: Sequence[str],
        translations: Sequence[str],
        *,
        coverage: CoverageOptions | None = None,
        batch_size: int = 16,
        batch_tokens: int | None = None,
    ) -> list[Translation]:
        """Return given translations, such as another system's, with their scores and what they cover.

        Each text is taken as one sentence. A source or a translation that is longer than the model takes is cut, with
        a warning, and `was_cut` says so. A blank text has no score.

        Args:
            texts: the sources.
            translations: a translation of each.
            coverage: find what was left out, and how.
            batch_size: how many pairs go through the model at once.
            batch_tokens: how many of their tokens, padding included, of the longer side; instead of how many pairs.
        """
        for name, given in (("texts", texts), ("translations", translations)):
            if isinstance(given, str):
                raise TypeError(f"`{name}` must be a list of strings, got the string {given[:40]!r}")
        if len(texts) != len(translations):
            raise ValueError(f"`texts` are {len(texts)}, but `translations` {len(translations)}")
        options = TranslationOptions(batch_size, batch_tokens, coverage, split_sentences=False, truncation=True)
        segmenter, decoder = self._segmenter(options), self._decoder
        if segmenter.tgt_lang is not None and hasattr(self.tokenizer, "tgt_lang"):
            self.tokenizer.tgt_lang = segmenter.tgt_lang  # of the translations
        method = None if coverage is None else coverage_method(self.model, coverage.method)
        documents = [segmenter.document(text) for text in texts]
        # a text that is not cut into sentences is one piece, or none if it is blank
        target_of = {
            id(piece): self._target_ids(translation)
            for document, translation in zip(documents, translations, strict=True)
            for piece in document.pieces
        }
        start = self.model.generation_config.decoder_start_token_id
        start = self.model.config.decoder_start_token_id if start is None else start
        pieces = [piece for document in documents for piece in document.pieces]

        def length(piece: Piece) -> int:
            return max(len(piece.source.token_ids), len(target_of[id(piece)][0]))

        for batch_pieces in batches_of(pieces, batch_size, batch_tokens, length):
            targets, was_cut = zip(*(target_of[id(piece)] for piece in batch_pieces), strict=True)
            lengths = torch.tensor([len(ids) for ids in targets])
            sequences = torch.full((len(targets), 1 + int(lengths.max())), self.tokenizer.pad_token_id or 0)
            for row, ids in enumerate(targets):
                sequences[row, : 1 + len(ids)] = torch.tensor([start, *ids])
            batch, device = self._collate(batch_pieces), self.model.device
            if method is None:
                found = None
                log_probs = sequence_log_probs(self.model, batch, sequences.to(device), lengths.to(device))
                log_probs = log_probs / lengths.clamp(min=1).to(device)
            else:
                log_probs, found = decoder.cover(batch, sequences.to(device), lengths.to(device), method)
            _enter(
                batch_pieces, Hypotheses(sequences[:, None], torch.tensor(was_cut)[:, None], log_probs[:, None], found)
            )
        results = []
        for document, translation in zip(documents, translations, strict=True):
            segments, log_prob = [], None
            for piece in document.pieces:
                target_ids, is_cut = target_of[id(piece)]
                is_cut = is_cut or piece.source.was_cut
                segments.append(Segment(*piece.span, tuple(piece.source.token_ids), (start, *target_ids), is_cut))
                log_prob = float(cast(torch.Tensor, piece.translations.log_probs)[0])
            covered = coverage_of(document, 0, [translation] * len(segments)) if coverage is not None else None
            results.append(Translation(translation, log_prob, covered, tuple(segments)))
        return results

    def _target_ids(self, translation: str) -> tuple[list[int], bool]:
        """Return the token ids of a given translation, and whether it was cut."""
        ids = list(self.tokenizer(text_target=translation, verbose=False)["input_ids"])
        limit = max_source_tokens(self.model, self.tokenizer)
        if limit is None or len(ids) <= limit:
            return ids, False
        pipeline_logger.warning(f"A given translation of {len(ids)} tokens was cut to {limit}.")
        return list(self.tokenizer(text_target=translation, truncation=True, max_length=limit)["input_ids"]), True

    def source_words(self, text: str, segment: Segment) -> list[tuple[Span, list[int]]]:
        """Return the words of a segment of `text`, and which of its `source_ids` each is made of."""
        span = Span(segment.start, segment.end)
        source = LONE_SURROGATES.sub("\ufffd", text[span.start : span.end])
        offsets = token_offsets(self.tokenizer, source, list(segment.source_ids), self.source_prefix)
        return words_of(text, span, offsets)

    @property
    def source_prefix(self) -> str:
        """What a T5 checkpoint reads before each source."""
        return str(self._task_settings.get("prefix") or getattr(self.model.config, "prefix", None) or "")

    @property
    def _task_settings(self) -> dict[str, object]:
        """What a T5 checkpoint says of the task "translation_en_to_de": a prefix and settings of `generate()`."""
        of_tasks = getattr(self.model.config, "task_specific_params", None) or {}
        return dict(of_tasks.get(self.task) or {})

    @property
    def _decoder(self) -> BatchDecoder:
        return BatchDecoder(self.model, self.members, self.fast)

    def _generate_kwargs(self, options: TranslationOptions) -> dict[str, object]:
        settings = {**self._task_settings, **options.generate_kwargs}
        settings.pop("prefix", None)
        return settings

    def _segmenter(self, options: TranslationOptions) -> Segmenter:
        src_lang, tgt_lang = options.src_lang, options.tgt_lang
        if src_lang is None and tgt_lang is None:
            src_lang, tgt_lang = languages_of_task(self.task)
        known = (max_source_tokens(self.model, self.tokenizer), options.max_source_tokens)
        return Segmenter(
            self.tokenizer,
            limit=min((number for number in known if number is not None), default=None),
            prefix=self.source_prefix,
            split_sentences=options.split_sentences,
            truncation=options.truncation,
            src_lang=src_lang,
            tgt_lang=tgt_lang,
            with_words=options.coverage is not None,
            lists=word_lists_of(self.model.config),
        )

    def _translate_pieces(self, batches: Iterator[list[Piece]], options: TranslationOptions) -> None:
        """Translate the pieces of these batches, and enter the results in them."""
        coverage, settings = options.coverage or CoverageOptions(), self._generate_kwargs(options)
        num_pieces, num_cut, num_short = 0, 0, 0
        for pieces in batches:
            batch = self._collate(pieces)
            found = self._decoder(batch, settings, scores=options.scores, coverage=options.coverage)
            _enter(pieces, found)
            short = _short_of(pieces, coverage.threshold)
            if short and coverage.retry_beams:
                weighted = replace(coverage, weight=coverage.weight or DEFAULT_COVERAGE_WEIGHT)
                beams = max(coverage.retry_beams, self._decoder.num_returned(settings))
                again = {**settings, "num_beams": beams}
                found = self._decoder(batch.rows(short), again, coverage=weighted)
                _enter([pieces[row] for row in short], found)
                short = _short_of(pieces, coverage.threshold)
            num_pieces += len(pieces)
            num_short += len(short)
            num_cut += sum(bool(piece.translations.was_cut.any()) for piece in pieces)
        if num_cut:
            pipeline_logger.warning(
                f"{num_cut} of {num_pieces} translations reached the limit of their length and may be incomplete. "
                "`max_new_tokens` sets a higher one."
            )
        if num_short:
            pipeline_logger.warning(
                f"The coverage of {num_short} of {num_pieces} translations is below {coverage.threshold}: they may "
                "leave something out."
            )

    def _collate(self, pieces: list[Piece]) -> SourceBatch:
        """Pad the pieces on the side that the tokenizer pads on."""
        lengths = [len(piece.source.token_ids) for piece in pieces]
        input_ids = torch.full((len(pieces), max(lengths)), self.tokenizer.pad_token_id or 0)
        mask = torch.zeros_like(input_ids)
        on_the_left = self.tokenizer.padding_side == "left"
        for row, (piece, length) in enumerate(zip(pieces, lengths, strict=True)):
            place = slice(max(lengths) - length, max(lengths)) if on_the_left else slice(0, length)
            input_ids[row, place] = torch.tensor(piece.source.token_ids)
            mask[row, place] = 1
        device = self.model.device
        words = WordTokens.of([piece.words for piece in pieces], mask.to(device))
        prefixes = [piece.target_prefix for piece in pieces]
        return SourceBatch(
            input_ids.to(device),
            mask.to(device),
            pieces[0].source.settings,
            words=words,
            prefixes=prefixes if any(prefixes) else [],
        )

    def _translation(self, document: Document, rank: int, options: TranslationOptions) -> Translation:
        """Put the translation of a text together from those of its pieces."""
        segments, texts, total, num_tokens = [], [], 0.0, 0
        ends = end_token_ids(self.model, {})
        for piece in document.pieces:
            found = piece.translations
            ids = found.sequences[rank]
            ids = ids[: 1 + int(generated_lengths(ids[None], ends))]
            target_ids = tuple(ids.tolist())
            source_ids = tuple(piece.source.token_ids)
            segments.append(Segment(*piece.span, source_ids, target_ids, was_cut=bool(found.was_cut[rank])))
            clean_up = options.clean_up_tokenization_spaces
            texts.append(decode_target(self.tokenizer, ids.tolist(), clean_up_tokenization_spaces=clean_up))
            if found.log_probs is not None:
                total += float(found.log_probs[rank]) * (len(ids) - 1)
                num_tokens += len(ids) - 1
        coverage = None
        if options.coverage is not None:
            coverage = coverage_of(document, rank, texts)
        score = total / num_tokens if num_tokens else None
        return Translation(join_translations(document, texts), score, coverage, tuple(segments))


def languages_of_task(task: str) -> tuple[str | None, str | None]:
    """Return the languages of a task such as "translation_en_to_de", if it names any."""
    languages = TASK_WITH_LANGUAGES.fullmatch(task)
    return (None, None) if languages is None else (languages["source"], languages["target"])


def _enter(pieces: list[Piece], found: Hypotheses) -> None:
    """Give each piece its hypotheses, unless those that it has leave less out."""
    for row, piece in enumerate(pieces):
        own = found.of_source(row)
        before = None if piece.hypotheses is None else piece.hypotheses.coverage
        if before is None or own.coverage is None or float(own.coverage.left[0]) < float(before.left[0]):
            piece.hypotheses = own


def _short_of(pieces: list[Piece], threshold: float | None) -> list[int]:
    """Return which of the pieces have a coverage below a threshold."""
    coverages = [piece.translations.coverage for piece in pieces]
    if threshold is None:
        return []
    return [row for row, found in enumerate(coverages) if found is not None and float(found.score[0]) < threshold]


# -------------------- hf_capsule_mt.pipelines.translation

Records = list[dict[str, object]]


class TranslationPipeline(Pipeline):
    """Translates strings, with the interface that transformers' own pipeline had until version 5.

        >>> translator = pipeline("translation", model=path)
        >>> translator("Hello!")
        [{'translation_text': 'Hallo!'}]

    A string gives a list of one dictionary, a list of strings a list of dictionaries; any other iterable of strings (a
    generator, a `KeyDataset`) is translated as it is read. With `num_return_sequences` above one, each string has a
    list of its own. Results come in the order of the texts.

    `Translator` explains how texts are translated, and these parameters, which may be given at construction or at a
    call: `batch_size`, `batch_tokens`, `src_lang`, `tgt_lang`, `split_sentences`, `max_source_tokens`, `truncation`,
    `keep`, `clean_up_tokenization_spaces`, and all of `generate()`. The pipeline has further:

    - `return_tensors`: token ids (`translation_token_ids`) in place of text, those of all sentences in a row;
    - `return_scores`: add `score`, the mean log-probability of a token of the translation;
    - `return_coverage`: add `coverage`, a dictionary of the `score` of the text, its
      `sentences` and its `words`, each with `start` and `end` in the text, and the `repetitions`. A word has how much
      of it is `covered`, whether it counts as `untranslated` and, by the method "guided" alone, its shares of `past`
      and `future` at the end; a repetition is what is said twice in a row; `coverage_method` is the `method` of
      `CoverageOptions`;
    - `coverage_threshold`: warn of sentences whose score is less, and mark them; with `coverage_retry`, a number of
      beams, translate them again with so many and take what `coverage_weight` finds best, if it leaves less out;
    - `coverage_weight`: rank the hypotheses of beam search by their score less `coverage_weight` times the share
      of the source that is left out.

    `ensemble`, `int8`, `backend` and `shortlist` of `Translator` are for construction alone.
    """

    _load_processor: Any = False
    _load_image_processor: Any = False
    _load_feature_extractor: Any = False
    _load_tokenizer: Any = True

    def __init__(
        self,
        model: PreTrainedModel,
        *args: Any,
        ensemble: Iterable[PreTrainedModel | str | os.PathLike[str]] = (),
        int8: bool = False,
        backend: str = "auto",
        shortlist: bool | str | Path = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(model, *args, **kwargs)
        if self.tokenizer is None:
            raise ValueError("the translation pipeline needs a `tokenizer`, got None")
        self.translator = Translator(
            self.model,
            self.tokenizer,
            ensemble=ensemble,
            int8=int8,
            backend=backend,
            shortlist=shortlist,
            task=self.task or "translation",
        )

    @property
    def members(self) -> list[PreTrainedModel]:
        """The other models of the ensemble."""
        return self.translator.members

    def _sanitize_parameters(
        self,
        return_tensors: bool | None = None,
        return_text: bool | None = None,
        return_scores: bool | None = None,
        batch_tokens: int | None = None,
        return_coverage: bool | None = None,
        coverage_threshold: float | None = None,
        coverage_retry: int | None = None,
        coverage_weight: float | None = None,
        coverage_method: CoverageMethod | None = None,
        clean_up_tokenization_spaces: bool | None = None,
        truncation: bool | str | None = None,
        split_sentences: bool | None = None,
        max_source_tokens: int | None = None,
        src_lang: str | None = None,
        tgt_lang: str | None = None,
        keep: Sequence[str] | None = None,
        **generate_kwargs: object,
    ) -> tuple[dict[str, object], dict[str, object], dict[str, object]]:
        """Sort the parameters: of the source, of decoding, of the records."""
        given = getattr(self, "_preprocess_params", {})  # when the pipeline was made
        if src_lang is None and tgt_lang is None and not given.keys() & {"src_lang", "tgt_lang"}:
            src_lang, tgt_lang = languages_of_task(self.task or "")
        if return_tensors is not None and return_text is not None and return_tensors == return_text:
            raise ValueError(f"`return_tensors` and `return_text` exclude each other, got {return_tensors} for both")
        if coverage_retry is not None and coverage_retry < 2:
            raise ValueError(f"`coverage_retry` must be at least 2, got {coverage_retry}")
        preprocess = {
            "truncation": truncation,
            "split_sentences": split_sentences,
            "max_source_tokens": max_source_tokens,
            "src_lang": src_lang,
            "tgt_lang": tgt_lang,
            "keep": keep,
        }
        decoding = {
            "return_scores": return_scores,
            "batch_tokens": batch_tokens,
            "return_coverage": return_coverage or coverage_threshold is not None or None,
            "coverage_threshold": coverage_threshold,
            "coverage_retry": coverage_retry,
            "coverage_weight": coverage_weight,
            "coverage_method": coverage_method,
            "clean_up_tokenization_spaces": clean_up_tokenization_spaces,
        }
        postprocess = {
            "return_tensors": return_tensors if return_text is None else not return_text,
            "return_scores": return_scores,
            "return_coverage": return_coverage,
            "coverage_threshold": coverage_threshold,
        }
        return _given(preprocess), {**generate_kwargs, **_given(decoding)}, _given(postprocess)

    def __call__(self, inputs: object, *args: object, **kwargs: object) -> Any:
        """Translate a string or a list of strings into a list of dictionaries, and any other iterable lazily."""
        if isinstance(inputs, tuple):
            inputs = list(inputs)
        if isinstance(inputs, list) and not inputs:
            return []
        if isinstance(inputs, Iterable) and not isinstance(inputs, (str, bytes, dict, list, Dataset)):
            inputs = TextsOf(inputs) if isinstance(inputs, Sized) else (text for text in inputs)
        results = super().__call__(inputs, *args, **kwargs)
        if isinstance(inputs, list) and all(len(result) == 1 for result in results):
            return [result[0] for result in results]
        return results

    def run_single(self, inputs: object, *parameters: dict[str, Any]) -> Records:
        """Return the records of one text."""
        return next(iter(self.get_iterator([inputs], 0, 1, *parameters)))

    def get_iterator(
        self,
        inputs: object,
        num_workers: int,
        batch_size: int,
        preprocess_params: dict[str, Any],
        forward_params: dict[str, Any],
        postprocess_params: dict[str, Any],
    ) -> TranslationIterator[Records]:
        """Return the records of each text, lazily, in order."""
        settings = dict(forward_params)
        threshold, retry_beams, weight = (
            settings.pop(name, None) for name in ("coverage_threshold", "coverage_retry", "coverage_weight")
        )
        if retry_beams and threshold is None:
            raise ValueError("`coverage_retry` needs a `coverage_threshold`, below which it translates again")
        method = settings.pop("coverage_method", "auto")
        covers = settings.pop("return_coverage", False) or weight
        options = TranslationOptions(
            batch_size=batch_size,
            batch_tokens=settings.pop("batch_tokens", None),
            coverage=CoverageOptions(threshold, retry_beams, weight, method) if covers else None,
            scores=settings.pop("return_scores", False),
            clean_up_tokenization_spaces=settings.pop("clean_up_tokenization_spaces", None),
            **preprocess_params,
            generate_kwargs=settings,
        )

        def translate(texts: list[str]) -> list[Records]:
            found = self.forward([self.preprocess(text) for text in texts], options=options)
            return [self.postprocess(translations, **postprocess_params) for translations in found]

        return TranslationIterator(inputs, translate, options.window)

    def preprocess(self, input_: str) -> str:  # type: ignore[override]
        """Check that a text is one."""
        if not isinstance(input_, str):
            raise ValueError(f"the pipeline translates strings and lists of strings, got a {type(input_).__name__}")
        return input_

    def _forward(  # type: ignore[override]
        self, input_tensors: list[str], options: TranslationOptions
    ) -> list[list[Translation]]:
        """Translate a window of texts."""
        return self.translator.translate(input_tensors, options)

    def postprocess(  # type: ignore[override]
        self,
        model_outputs: list[Translation],
        return_tensors: bool = False,
        return_scores: bool = False,
        return_coverage: bool = False,
        coverage_threshold: float | None = None,
    ) -> Records:
        """Return the records of the translations of one text."""
        records: Records = []
        for translation in model_outputs:
            record: dict[str, object] = {"translation_text": translation.text}
            if return_tensors:
                record = {"translation_token_ids": torch.tensor(translation.token_ids, dtype=torch.long)}
            if return_scores and translation.score is not None:
                record["score"] = translation.score
            if return_coverage or coverage_threshold is not None:
                record["coverage"] = coverage_record(translation.coverage, coverage_threshold)
            records.append(record)
        return records


def coverage_record(coverage: Coverage | None, threshold: float | None = None) -> dict[str, object]:
    """Return the dictionary of a coverage, as the pipeline returns it."""
    if coverage is None:
        raise RuntimeError("the text was translated without coverage")
    sentences = [asdict(sentence) for sentence in coverage.sentences]
    if threshold is not None:
        sentences = [{**sentence, "below_threshold": sentence["score"] < threshold} for sentence in sentences]
    words = []
    for word in coverage.words:
        fields = _given(asdict(word))  # without PAST and FUTURE where they were not read
        words.append({"word": fields.pop("text"), **fields})
    repetitions = list(coverage.repetitions)
    return {"score": coverage.score, "sentences": sentences, "words": words, "repetitions": repetitions}


def _given(parameters: Mapping[str, object]) -> dict[str, object]:
    """Keep the parameters that somebody set."""
    return {name: value for name, value in parameters.items() if value is not None}
