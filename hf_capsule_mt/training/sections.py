"""The sections of a recipe as strict dataclasses; null stands for the default."""

import typing
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, make_dataclass
from typing import Any, Literal

from huggingface_hub.dataclasses import strict
from transformers import CONFIG_MAPPING

from hf_capsule_mt.data import Cleaning
from hf_capsule_mt.data.settings import as_written, check_settings, limited, nearest
from hf_capsule_mt.data.sources import check_sources
from hf_capsule_mt.training.arguments import TranslationTrainingArguments

DATA_PARTS = ("train", "validation", "test")
# the same argument: its name from transformers 5.23 on, and its older name
CHECKPOINTING = ("activation_checkpointing", "gradient_checkpointing")


@strict
@dataclass
class Languages:
    source: str | None = None
    target: str | None = None

    def validate_languages(self) -> None:
        _require(self, "source", "target")


@strict
@dataclass
class Data:
    train: dict | list | None = None
    validation: dict | list | None = None
    test: dict | list | None = None
    max_length: int | None = limited(1)
    cleaning: dict | None = None
    num_proc: int | None = limited(1)

    def validate_parts(self) -> None:
        check_settings(Cleaning, self.cleaning or {}, "data.cleaning")
        _require(self, "train")
        for part in DATA_PARTS:
            check_sources(getattr(self, part) or [], f"data.{part}")


@strict
@dataclass
class Tokenizer:
    load: str | None = None
    vocab_size: int | None = limited(1)
    separate: bool | None = None
    target_vocab_size: int | None = limited(1)
    sentences: int | None = limited(1)

    def validate_source(self) -> None:
        if any(vars(self).values()) and bool(self.load) == bool(self.vocab_size):
            raise ValueError(f"needs either `load` or `vocab_size`, got {self.load} and {self.vocab_size}")


@strict
@dataclass
class Generation:
    num_beams: int | None = limited(1)
    length_penalty: float | int | None = None
    max_new_tokens: int | None = limited(1)
    early_stopping: bool | Literal["never"] | None = None
    no_repeat_ngram_size: int | None = limited(0)


METRICS = tuple(f"{prefix}{name}" for prefix in ("", "eval_") for name in ("bleu", "length_ratio", "loss", "nll_loss"))
TYPES = {
    **typing.get_type_hints(TranslationTrainingArguments),
    **dict.fromkeys(CHECKPOINTING, bool),
    # annotations of transformers that are too narrow: True turns sharding on, and metrics have these names
    "fsdp": bool | str,
    "report_to": str | list,
    "metric_for_best_model": Literal[METRICS],
}


def _validate_translations(self: Any) -> None:
    for key, value in (("predict_with_generate", True), ("prediction_loss_only", False)):
        if getattr(self, key) not in (None, value):
            raise ValueError(f"`{key}` must be {str(value).lower()}: a run ends with BLEU of its translations")


def _training_field(entry: Any) -> Any:
    """Return the field of an argument; a number must be at least 0, or at least its default if that is negative."""
    is_number = isinstance(entry.default, int | float) and not isinstance(entry.default, bool)
    return limited(min(entry.default, 0)) if is_number else field(default=None)


# the arguments of the section "training": `output_dir` and `seed` are not in it, but in the recipe itself
ARGUMENTS = {entry.name: entry for entry in fields(TranslationTrainingArguments) if entry.init}
NAMES = [name for name in dict.fromkeys([*ARGUMENTS, *CHECKPOINTING]) if name not in ("output_dir", "seed")]
Training: Any = strict(
    make_dataclass(
        "Training",
        [(name, as_written(TYPES[name]) | None, _training_field(ARGUMENTS.get(name, field()))) for name in NAMES],
        namespace={"validate_translations": _validate_translations},
    )
)

SECTIONS: dict[str, Any] = {
    "languages": Languages,
    "data": Data,
    "tokenizer": Tokenizer,
    "training": Training,
    "generation": Generation,
}


def config_class_of(model_type: str) -> Any:
    """Return the configuration class of a registered family."""
    try:
        return CONFIG_MAPPING[model_type]
    except KeyError:
        hint = nearest(model_type, list(CONFIG_MAPPING))
        raise ValueError(f"no model family `{model_type}` is registered{hint}") from None


def current_names(model: Mapping[str, Any]) -> dict[str, Any]:
    """Return a section `model` with the names of today, where fields of Capsule Marian have earlier ones."""
    names: dict[str, Any] = config_class_of("capsule_marian").current_names(model)
    return names


def _require(section: Any, *names: str) -> None:
    for name in names:
        if not getattr(section, name):
            raise ValueError(f"`{name}` is missing")
