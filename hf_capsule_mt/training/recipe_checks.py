"""What a recipe may say: the keys of each section, and the values that a key takes."""

import difflib
import enum
import re
import types
import typing
from collections.abc import Iterable, Mapping
from dataclasses import fields
from functools import reduce
from math import inf
from operator import or_
from typing import TYPE_CHECKING, Any, Literal

from huggingface_hub.dataclasses import type_validator
from huggingface_hub.errors import StrictDataclassClassValidationError, StrictDataclassFieldValidationError
from transformers import CONFIG_MAPPING
from transformers.integrations import INTEGRATION_TO_CALLBACK

from hf_capsule_mt.data import Cleaning
from hf_capsule_mt.data.sources import COMMON_SETTINGS, SOURCE_SETTINGS
from hf_capsule_mt.training.arguments import TranslationTrainingArguments

if TYPE_CHECKING:
    from hf_capsule_mt.training.recipes import Recipe

DATA_PARTS = ("train", "validation", "test")
# of an evaluation, with or without "eval_"
METRICS = ("bleu", "length_ratio", "loss", "nll_loss")
LOGGERS = ("all", "auto", "none", *INTEGRATION_TO_CALLBACK)
_TRAINING = typing.get_type_hints(TranslationTrainingArguments)

# section -> key -> type; every value may also be null, which is the default
SECTIONS: dict[str, dict[str, Any]] = {
    "languages": {"source": str, "target": str},
    "data": {
        **dict.fromkeys(DATA_PARTS, dict | list),
        "max_length": int,
        "cleaning": dict,
        "streaming": bool,
        "shuffle_buffer": int,
        "num_proc": int,
    },
    "tokenizer": {
        "load": str,
        "model": Literal["bpe", "unigram"],
        "vocab_size": int,
        "separate": bool,
        "target_vocab_size": int,
        "sentences": int,
    },
    # the run's own fields come from the recipe
    "training": {
        entry.name: _TRAINING[entry.name]
        for entry in fields(TranslationTrainingArguments)
        if entry.init and entry.name not in ("output_dir", "seed")
    }
    # two names for one thing, before and from transformers 5.23 on
    | dict.fromkeys(("activation_checkpointing", "gradient_checkpointing"), bool | None)
    # transformers annotates neither True, which turns sharding on, nor the names
    | {"fsdp": bool | str, "report_to": Literal[LOGGERS] | list}
    | {"metric_for_best_model": Literal[tuple(f"{prefix}{name}" for prefix in ("", "eval_") for name in METRICS)]},
    "generation": {
        "num_beams": int,
        "length_penalty": float,
        "max_new_tokens": int,
        "early_stopping": bool | Literal["never"],
        "no_repeat_ngram_size": int,
    },
    "word_distillation": {"teacher": str, "weight": float, "temperature": float},
}
QUOTED = r"'(\w+)'"
NEEDED = (("languages", "source"), ("languages", "target"), ("data", "train"), ("model", "model_type"))
# the least and the greatest value of a number, for those whose wrong values would end in a traceback, or never
ABOVE_0 = 1e-9
BOUNDS: dict[str, tuple[float, float]] = {
    f"{section}.{key}": bounds
    for section, bounds, keys in (
        ("data", (1, inf), "max_length shuffle_buffer num_proc"),
        ("tokenizer", (1, inf), "vocab_size target_vocab_size sentences"),
        ("generation", (1, inf), "num_beams max_new_tokens"),
        ("generation", (0, inf), "no_repeat_ngram_size"),
        ("training", (1, inf), "per_device_train_batch_size per_device_eval_batch_size gradient_accumulation_steps"),
        ("training", (1, inf), "save_total_limit max_tokens_per_batch early_stopping_patience"),
        ("training", (0, inf), "learning_rate weight_decay warmup_steps max_grad_norm num_train_epochs adam_epsilon"),
        ("training", (0, inf), "dataloader_num_workers"),
        ("training", (0, 1), "adam_beta1 adam_beta2 bpe_dropout label_smoothing_factor"),
        ("training", (ABOVE_0, inf), "eval_steps save_steps logging_steps"),
        ("training", (-1, inf), "max_steps"),
        ("word_distillation", (0, 1), "weight"),
        ("word_distillation", (ABOVE_0, inf), "temperature"),
    )
    for key in keys.split()
} | {"seed": (0, 2**32 - 1)}
SOURCE_VALUES: dict[str, Any] = {
    **dict.fromkeys(("hub", "disk", "config", "split", "revision"), str),
    **dict.fromkeys(("tsv", "jsonl", "parquet"), str | list),
    **dict.fromkeys(("text", "columns"), list),
    **dict.fromkeys(("embedded", "first", "seed"), int),
    "header": bool,
}
TOP = {
    **dict.fromkeys(("about", "paper", "output_dir", "data_dir", "init_from"), str),
    "freeze": Literal["old"],
    "train_only": Literal["capsules"],
}


def nearest(word: object, known: Iterable[str]) -> str:
    """Return "; did you mean `...`?", or nothing if no known word is near."""
    near = difflib.get_close_matches(str(word), list(known), n=1)
    return f"; did you mean `{near[0]}`?" if near else ""


def refuse_unknown(keys: Iterable[str], known: Iterable[str], place: str) -> None:
    """Raise for a key that is not known, and name the nearest one."""
    known = list(known)
    for key in keys:
        if key not in known:
            raise ValueError(f"{place} has no key `{key}`{nearest(key, known) or f'; there are {sorted(known)}'}")


def takes_null(key: str) -> bool:
    """Return whether null is a value of a key of `training`, and not only its default."""
    return type(None) in typing.get_args(SECTIONS["training"][key])


def check_recipe(recipe: "Recipe") -> None:
    """Raise for an unknown key, a missing one, or a value that its key does not take."""
    for section in (*SECTIONS, "model"):
        if not isinstance(getattr(recipe, section), Mapping):
            raise ValueError(f"`{section}` must be a mapping of keys to values, got {getattr(recipe, section)!r}")
    _check_value(recipe.seed, int, "`seed`")
    _check_bounds(recipe.seed, "seed")
    _check_section({key: getattr(recipe, key) for key in TOP}, TOP, "")
    for section, known in SECTIONS.items():
        _check_section(getattr(recipe, section), known, section)
    _check_section(recipe.data.get("cleaning") or {}, typing.get_type_hints(Cleaning), "data.cleaning")
    for section, key in NEEDED:
        if not getattr(recipe, section).get(key):
            raise ValueError(f"`{section}.{key}` is missing")
    if recipe.word_distillation and not recipe.word_distillation.get("teacher"):
        raise ValueError("`word_distillation.teacher` is missing")
    if recipe.freeze and recipe.init_from is None:
        raise ValueError("`freeze: old` needs `init_from`, whose weights are the old ones")
    if recipe.freeze and recipe.train_only:
        raise ValueError("`freeze` and `train_only` both say what to train: give one of them")
    for part in DATA_PARTS:
        sources = recipe.data.get(part) or []
        for source in sources if isinstance(sources, list) else [sources]:
            _check_source(source, f"`data.{part}`")
    tokenizer = recipe.tokenizer
    if not tokenizer and recipe.init_from is None:
        raise ValueError("`tokenizer` is missing, and there is no `init_from` to take one from")
    if tokenizer and bool(tokenizer.get("load")) == bool(tokenizer.get("vocab_size")):
        raise ValueError(f"`tokenizer` needs either `load` or `vocab_size`, it has {sorted(tokenizer)}")
    for key, value in (("predict_with_generate", True), ("prediction_loss_only", False)):
        if recipe.training.get(key) not in (None, value):
            wanted = str(value).lower()
            raise ValueError(f"`training.{key}` must be {wanted}: a run ends with BLEU of its translations")
    _check_model(recipe.model, complete=recipe.init_from is None)


def config_class_of(model_type: str) -> Any:
    """Return the configuration class of a registered family."""
    try:
        return CONFIG_MAPPING[model_type]
    except KeyError:
        near = nearest(model_type, list(CONFIG_MAPPING))
        raise ValueError(f"no model family `{model_type}` is registered{near}") from None


def _check_section(values: Mapping[str, Any], known: Mapping[str, Any], section: str) -> None:
    refuse_unknown(values, known, f"`{section}`")
    for key, value in values.items():
        if value is not None:
            name = f"{section}.{key}" if section else key
            _check_value(value, known[key], f"`{name}`")
            _check_bounds(value, name)


def _check_bounds(value: object, name: str) -> None:
    least, most = BOUNDS.get(name, (-inf, inf))
    if not isinstance(value, (int, float)) or least <= value <= most:
        return
    wanted = f"in [{least:g}, {most:.10g}]" if most < inf else f"at least {least:g}"
    raise ValueError(f"`{name}` must be {'greater than 0' if least == ABOVE_0 else wanted}, got {value!r}")


def _as_written(kind: Any) -> Any:
    """Return a type as YAML writes its values: choices by their names, and 1 and 1e5 where numbers are taken."""
    if isinstance(kind, types.UnionType) or typing.get_origin(kind) is typing.Union:
        kinds = typing.get_args(kind)
        has_choices = any(isinstance(entry, type) and issubclass(entry, enum.Enum) for entry in kinds)
        return reduce(or_, (_as_written(entry) for entry in kinds if not (has_choices and entry is str)))
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return Literal[tuple(member.value for member in kind)]
    return float | int if kind is float else kind


def _check_value(value: Any, kind: Any, place: str) -> None:
    """Raise unless a value is of a type."""
    kind = _as_written(kind)
    try:
        type_validator(place, int(value) if isinstance(value, float) and value.is_integer() else value, kind)
    except TypeError:
        named = kind.__name__ if isinstance(kind, type) else str(kind)
        wanted = re.sub(r"typing\.Literal\[(.*?)\]", r"one of \1", named)
        near = nearest(value, re.findall(r"'(\w+)'", wanted))
        raise ValueError(f"{place} must be {wanted}, got {value!r}{near}") from None


def _check_source(source: object, place: str) -> None:
    if not isinstance(source, Mapping):
        raise ValueError(f"{place} must be a source, such as {{tsv: corpus.tsv}}, or a list of them, got {source!r}")
    kinds = [kind for kind in SOURCE_SETTINGS if kind in source]
    if len(kinds) == 1:
        refuse_unknown(source, {kinds[0], *SOURCE_SETTINGS[kinds[0]], *COMMON_SETTINGS}, f"{place}, `{kinds[0]}`,")
        for key, value in source.items():
            if value is None and key != kinds[0]:
                continue
            _check_value(value, SOURCE_VALUES[key], f"{place}, `{key}`,")
            if isinstance(value, float):
                raise ValueError(f"{place}, `{key}`, must be written as a whole number, got {value!r}")
            if key in ("embedded", "first") and value < 1:
                raise ValueError(f"{place}, `{key}`, must be at least 1, got {value!r}")
        for key in ("text", "columns"):
            if source.get(key) is not None and len(source[key]) != 2:
                raise ValueError(f"{place}, `{key}`, must be two, one for each language, got {source[key]!r}")
        return
    unknown = next((key for key in source if key not in COMMON_SETTINGS), "")
    raise ValueError(
        f"{place} must have one of the keys {', '.join(SOURCE_SETTINGS)}, got {dict(source)}"
        f"{nearest(unknown, SOURCE_SETTINGS) if not kinds else ''}"
    )


def _check_model(model: Mapping[str, Any], complete: bool) -> None:
    """Raise for what the configuration refuses; of rules between fields only if no checkpoint adds fields."""
    config_class = config_class_of(model["model_type"])
    known = {entry.name for entry in fields(config_class) if entry.init} | set(config_class.attribute_map)
    settings = {key: value for key, value in model.items() if key != "model_type"}
    refuse_unknown(settings, known, f"`model` ({config_class.__name__})")
    try:
        config_class(**settings)
    except StrictDataclassFieldValidationError as error:
        words = set(re.findall(QUOTED, str(error)))
        for key, value in settings.items():  # a choice, of which the nearest is worth naming
            if isinstance(value, str) and repr(key) in str(error):
                raise ValueError(f"`model`: {error}{nearest(value, words - {value})}") from None
        raise ValueError(f"`model`: {error}") from None
    except StrictDataclassClassValidationError as error:
        if complete:
            raise ValueError(f"`model`: {error}") from None
