"""Base of the configuration classes: strict fields, `ValueError`s, no mistyped keyword."""

import difflib
import functools
import json
import math
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from huggingface_hub.dataclasses import strict
from huggingface_hub.errors import StrictDataclassClassValidationError, StrictDataclassFieldValidationError
from transformers import GenerationConfig, PreTrainedConfig
from transformers.utils import cached_file, logging

config_logger = logging.get_logger("hf_capsule_mt.configuration")

# far above any model, and low enough that a configuration cannot occupy a machine for hours
MAX_ITERATIONS = 1000
MAX_LAYERS = 1000
MAX_CAPSULES = 2**17
MAX_UNITS = 2**20  # of a layer or an embedding
MAX_POSITIONS = 2**24
MAX_VOCABULARY_SIZE = 2**27
TOKEN_IDS = ("decoder_start_token_id", "pad_token_id", "eos_token_id", "bos_token_id", "forced_eos_token_id")

# fields that a short config.json has, too: without them, the engine or a conversion would not know them
ALWAYS_WRITTEN = frozenset(
    {
        *("decoder_start_token_id", "eos_token_id", "forced_eos_token_id", "pad_token_id"),
        *("vocab_size", "decoder_vocab_size", "d_model", "encoder_layers", "decoder_layers", "encoder_ffn_dim"),
        *("encoder_attention_heads", "activation_function", "decoder_self", "layer_aggregation"),
        *("share_encoder_decoder_embeddings", "tie_word_embeddings", "model_type", "transformers_version"),
    }
)
# what `capsule-mt calibrate` has fitted, beside the config.json of an export
CALIBRATION_FILE = "coverage.json"
# keywords of `from_pretrained` that say where a file is
OF_DOWNLOADS = ("cache_dir", "force_download", "local_files_only", "revision", "subfolder", "token")

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


def capsule_config(config_class: ConfigClass) -> ConfigClass:
    """Class decorator: `@strict` (typed fields, `validate_*` rules), with errors that are `ValueError`s.

    It also takes back the `__eq__` that a dataclass gets, which compares the fields alone.
    """
    strict(config_class)
    config_class.__eq__ = CapsulePreTrainedConfig._same_values  # type: ignore[method-assign, assignment]
    for name in ("__init__", "__setattr__", "validate"):
        setattr(config_class, name, _with_value_errors(getattr(config_class, name)))
    setattr(config_class, "__init__", _with_given(config_class.__init__))  # noqa: B010 - mypy: assigned to a method
    return config_class


def _with_given(method: Callable[..., None]) -> Callable[..., None]:
    """Turn what is given into fields of today; the same fields at their defaults would not say what was given.

    Pad with the last token, as Marian does, if the default pad token is outside of a given smaller vocabulary.
    """

    @functools.wraps(method)
    def wrapped(self: "CapsulePreTrainedConfig", *args: Any, **kwargs: Any) -> None:
        kwargs = self.current_names(kwargs)
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
        except (StrictDataclassFieldValidationError, StrictDataclassClassValidationError) as error:
            raise ValueError(str(error.__cause__ or error)) from None

    return wrapped


class CapsulePreTrainedConfig(PreTrainedConfig):
    """Base of the configuration classes."""

    loadable_types: ClassVar[tuple[str, ...]] = ()  # other families whose checkpoints the models load completely
    # what LoRA adapts unless `target_modules` says otherwise: linear layers that every setting of the family has
    lora_target_modules: ClassVar[tuple[str, ...]] = ()
    label_smoothing: float | int = 0.0
    # what `capsule-mt calibrate` has fitted: the curves "words" and "sentences" and the "threshold" of "attention" and
    # "deletion"; for "attention" also the layer and the number of the "head"; the curves of "verified", the weight of
    # "shortness", the name of its "reverse", its "alarm" and, if a reader checked them, how many of its marks were
    # right and how many were read ("right_marks"); the "optional_words" and "function_words" of the source; the
    # "optional_words" of the target as "support"; and the "length" of translations
    coverage_calibration: dict[str, Any] | None = None

    def __post_init__(self, **kwargs: Any) -> None:
        _refuse_misspelt(type(self), kwargs)
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
    def get_config_dict(
        cls, pretrained_model_name_or_path: str | os.PathLike[str], **kwargs: Any
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Read a configuration file; refuse a family that the models do not load."""
        values, unused = super().get_config_dict(pretrained_model_name_or_path, **kwargs)
        model_type = values.get("model_type")
        if model_type not in (None, cls.model_type, *cls.loadable_types):
            class_name = (values.get("architectures") or ["its own class"])[0]
            raise ValueError(
                f"{pretrained_model_name_or_path}: its config.json has the `model_type` {model_type!r}, so it cannot "
                f"be loaded as {cls.model_type!r}; use {class_name} or AutoModelForSeq2SeqLM"
            )
        return with_calibration(values, pretrained_model_name_or_path, kwargs), unused

    @staticmethod
    def current_names(settings: Mapping[str, Any]) -> dict[str, Any]:
        """Return settings with the names and values of today, where some have those of an earlier version."""
        return dict(settings)

    @classmethod
    def from_dict(cls, config_dict: dict[str, Any], **kwargs: Any) -> Any:
        kwargs = cls.current_names(kwargs)
        _refuse_misspelt(cls, kwargs)  # `from_pretrained(path, layer_agregation=...)`
        if "name_or_path" in kwargs:  # by an Auto class, which does not call `get_config_dict` of this class
            at_commit = {"revision": config_dict["_commit_hash"]} if config_dict.get("_commit_hash") else {}
            config_dict = with_calibration(config_dict, kwargs["name_or_path"], kwargs | at_commit)
        result = super().from_dict(config_dict, **kwargs)
        config = result[0] if isinstance(result, tuple) else result
        config.validate()  # keywords that override the file were set one by one
        return result

    @classmethod
    def register_for_auto_class(cls, auto_class: str = "AutoConfig") -> None:
        """Note the class as code that comes with a checkpoint, unless it is the package's: that stays installed."""
        if _is_exported(cls):
            super().register_for_auto_class(auto_class)

    def to_dict(self) -> dict[str, Any]:
        """Return all values, and tell peft, if it is in use, which layers LoRA adapts.

        peft calls this to get the `model_type`, whose layers it then looks up in a table of its own. It may be
        imported before or after this module, which must not import it.
        """
        constants = sys.modules.get("peft.utils.constants")
        targets = getattr(constants, "TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING", None)
        if targets is not None and self.lora_target_modules:
            targets.setdefault(self.model_type, list(self.lora_target_modules))
        values: dict[str, Any] = super().to_dict()
        return values

    def to_diff_dict(self) -> dict[str, Any]:
        """Return what config.json says: with code beside it only what differs from the defaults, and `ALWAYS_WRITTEN`.

        The calibration of coverage is then in a file of its own.
        """
        values: dict[str, Any] = super().to_diff_dict()
        if "auto_map" not in values:
            return values
        defaults = type(self)().to_dict() | {"coverage_calibration": values.get("coverage_calibration")}
        differing = {name for name, value in values.items() if name not in defaults or value != defaults[name]}
        return {name: value for name, value in values.items() if name in differing | ALWAYS_WRITTEN}

    def _same_values(self, other: object) -> bool:
        """Compare all values, but not the path and the version of transformers that configurations come from."""
        if type(self) is not type(other):
            return False
        ours, theirs = self.to_dict(), other.to_dict()
        return all(ours.get(key) == theirs.get(key) for key in (ours.keys() | theirs.keys()) - {"_name_or_path"})

    def validate_label_smoothing(self) -> None:
        check_probability(self, "label_smoothing")

    def validate_token_ids(self) -> None:
        """Raise if a token is outside of both vocabularies, or the start outside of the target's."""
        config: Any = self
        source, target = config.vocab_size, getattr(config, "target_vocab_size", config.vocab_size)
        for name in TOKEN_IDS:
            value = getattr(self, name, None)
            size = target if name == "decoder_start_token_id" else max(source, target)
            for token in value if isinstance(value, list) else [] if value is None else [value]:
                if not 0 <= token < size:
                    raise ValueError(f"`{name}` ({token}) must be a token of the vocabulary, 0 to {size - 1}")


class TargetVocabulary:
    """Mixin before `CapsulePreTrainedConfig`, for families with one vocabulary for both sides or one for each."""

    vocab_size: int
    decoder_vocab_size: int | None
    share_encoder_decoder_embeddings: bool

    @property
    def target_vocab_size(self) -> int:
        """The number of tokens that the decoder can read and write."""
        if self.share_encoder_decoder_embeddings or self.decoder_vocab_size is None:
            return self.vocab_size
        return self.decoder_vocab_size


def with_calibration(values: dict[str, Any], name_or_path: Any, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Add the calibration that an export has beside its config.json.

    settings: keywords of `from_pretrained`.
    """
    if "auto_map" not in values or "coverage_calibration" in values:
        return values
    file = cached_file(
        name_or_path,
        CALIBRATION_FILE,
        _raise_exceptions_for_gated_repo=False,
        _raise_exceptions_for_missing_entries=False,
        _raise_exceptions_for_connection_errors=False,
        **{name: value for name, value in settings.items() if name in OF_DOWNLOADS},
    )
    if file is None:
        return values
    return values | {"coverage_calibration": json.loads(Path(file).read_text(encoding="utf-8"))}


def _is_exported(config_class: type[PreTrainedConfig]) -> bool:
    """Return whether a class is of the code that comes with an exported checkpoint."""
    return config_class.__module__.startswith("transformers_modules")


def _refuse_misspelt(config_class: type[PreTrainedConfig], keywords: dict[str, Any]) -> None:
    fields_and_aliases = {field.name for field in fields(config_class)} | set(config_class.attribute_map)
    for keyword in keywords.keys() - fields_and_aliases - TRANSFORMERS_KEYWORDS - GenerationConfig().to_dict().keys():
        matches = difflib.get_close_matches(keyword, fields_and_aliases, n=1, cutoff=0.85)
        if matches:
            raise ValueError(f"{config_class.__name__} has no field `{keyword}`; did you mean `{matches[0]}`?")


def check_range(config: PreTrainedConfig, minimum: int, maximum: int, *names: str) -> None:
    """Raise a `ValueError` if a field is outside of a range; `None` passes."""
    for name in names:
        value = getattr(config, name)
        if value is not None and value < minimum:
            raise ValueError(f"`{name}` must be at least {minimum}, got {value}")
        if value is not None and value > maximum:
            raise ValueError(f"`{name}` must be at most {maximum}, got {value}")


def check_not_negative(config: PreTrainedConfig, *names: str) -> None:
    """Raise a `ValueError` if a field is negative or not finite; `None` passes."""
    for name in names:
        value = getattr(config, name)
        if value is not None and not 0 <= value < math.inf:
            raise ValueError(f"`{name}` must be a finite number of at least 0, got {value}")


def check_probability(config: PreTrainedConfig, *names: str) -> None:
    for name in names:
        if not 0 <= getattr(config, name) < 1:
            raise ValueError(f"`{name}` must be a probability in [0, 1), got {getattr(config, name)}")


def check_divides(config: PreTrainedConfig, divisor: str, dividend: str) -> None:
    """Raise a `ValueError` if one field does not divide another; a divisor of `None` stands for the dividend."""
    divisor_value, dividend_value = getattr(config, divisor), getattr(config, dividend)
    if divisor_value is not None and (divisor_value < 1 or dividend_value % divisor_value):
        raise ValueError(f"`{divisor}` ({divisor_value}) must divide `{dividend}` ({dividend_value})")
