"""Recipes: everything about a training run, in YAML, with inheritance and without unknown keys."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

from hf_capsule_mt.data.settings import check_field, check_fields, check_settings, limited, refuse_unknown
from hf_capsule_mt.training.adapters import SECTION, adapter_fields, check_adapter, check_beside_adapter
from hf_capsule_mt.training.recipe_files import Values, read_values
from hf_capsule_mt.training.sections import SECTIONS, config_class_of, current_names


@dataclass(frozen=True)
class Recipe:
    """One training run. A wrong key or value raises when it is made; with `init_from`, the rules between the fields of
    `model` wait for the checkpoint.

    Args:
        about: one sentence.
        paper: the system, table and row of a paper that this is.
        output_dir: the folder of the run; by default `outputs/` and the recipe's name, or the names of its folder and
            file, joined by an underscore.
        seed: of the weights, the dropout, the order of the data and BPE-dropout.
        languages: `source` and `target`, the keys of `translation`.
        data_dir: the folder of relative file names in `data`. Names that begin with `./` are relative to the working
            directory, like `output_dir`.
        data: `train`, `validation` and `test`, each a source or a list of them
            ([`~hf_capsule_mt.data.load_translation_data`]); `max_length`, the tokens of a side above which a training
            pair is dropped; `cleaning` of the training pairs ([`~hf_capsule_mt.data.Cleaning`]); `num_proc`.
        tokenizer: `load`, a folder or a name; or what to train, by BPE: `vocab_size`, `separate` for
            a vocabulary for each side, with `target_vocab_size`; `sentences`, on how many pairs, all by default.
        init_from: a checkpoint to start from, of the same family, or of a Marian for Capsule Marian; its tokenizer is
            taken, too, unless `tokenizer.load` names another one.
        freeze: "old" freezes the weights that come from `init_from`, and trains what is new.
        adapter: `method`, `side` and other fields of [`~hf_capsule_mt.adapters.CapsuleConfig`]. The model is a
            sequence-to-sequence model of transformers in `init_from`, and the adapter alone is trained and saved.
        model: `model_type` and the fields of its configuration.
        training: the fields of [`TranslationTrainingArguments`], but `output_dir` and `seed`.
        generation: fields of `generation_config`: `num_beams`, `length_penalty`, `max_new_tokens`, `early_stopping`,
            `no_repeat_ngram_size`.
    """

    about: str = ""
    paper: str = ""
    output_dir: str = ""
    seed: int = limited(0, 2**32 - 1, default=1)
    languages: dict[str, str] = field(default_factory=dict)
    data_dir: str | None = None
    data: dict[str, Any] = field(default_factory=dict)
    tokenizer: dict[str, Any] = field(default_factory=dict)
    init_from: str | None = None
    freeze: Literal["old"] | None = None
    adapter: dict[str, Any] | None = None
    model: dict[str, Any] = field(default_factory=dict)
    training: dict[str, Any] = field(default_factory=dict)
    generation: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for section in (*SECTIONS, "model", *([] if self.adapter is None else [SECTION])):
            if not isinstance(getattr(self, section), Mapping):
                raise ValueError(f"`{section}` must be a mapping of keys to values, got {getattr(self, section)!r}")
        for section, kind in SECTIONS.items():
            check_settings(
                kind, {key: _without_fraction(value) for key, value in getattr(self, section).items()}, section
            )
        for entry in fields(self):
            check_field(entry, getattr(self, entry.name), entry.name)
        if self.freeze and self.init_from is None:
            raise ValueError("`freeze: old` needs `init_from`, whose weights are the old ones")
        if not self.tokenizer and self.init_from is None:
            raise ValueError("`tokenizer` is missing, and there is no `init_from` to take one from")
        if self.adapter is not None:
            check_beside_adapter(self)
            check_adapter(self.adapter)
            return
        model = dict(self.model)
        if not model.get("model_type"):
            raise ValueError("`model.model_type` is missing")
        config_class = config_class_of(model.pop("model_type"))
        # a checkpoint adds fields to `model`: the rules between fields wait for it
        check = check_settings if self.init_from is None else check_fields
        check(config_class, model, "model")


def _without_fraction(value: object) -> object:
    """Return a whole number as an int: YAML reads 1e5 as a float."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


FIELDS = [entry.name for entry in fields(Recipe)]


def load_recipe(recipe: str | Path, overrides: Mapping[str, Any] | None = None) -> Recipe:
    """Return a recipe with all its bases, changed by the overrides.

    Args:
        recipe: the name of one of the package's recipes ("embedded/em_routing"), or a YAML file.
        overrides: `section.key`, a field of the recipe, or a key that only one section has, with its new value.
    """
    values = read_values(recipe, FIELDS)
    try:
        for name, value in (overrides or {}).items():
            _override(values, name, value)
        return Recipe(**values)
    except ValueError as error:
        raise ValueError(f"{recipe}: {error}") from None


def _override(values: Values, name: str, value: object) -> None:
    """Set one value in place, in the section that its name says or implies."""
    given = name.rpartition(".")[-1]
    for current, current_value in current_names({given: value}).items():
        name, value = name.removesuffix(given) + current, current_value
    section, dot, key = name.partition(".")
    if not dot and name in FIELDS:
        values[name] = value
        return
    fields_of: dict[str, Any] = {section: [entry.name for entry in fields(kind)] for section, kind in SECTIONS.items()}
    model = values.get("model")
    if values.get(SECTION) is not None or section == SECTION:
        fields_of[SECTION] = adapter_fields()
    elif isinstance(model, Mapping) and model.get("model_type"):
        fields_of["model"] = [entry.name for entry in fields(config_class_of(model["model_type"]))]
    else:
        raise ValueError("`model.model_type` is missing")
    if not dot:
        sections = [candidate for candidate, keys in fields_of.items() if name in keys]
        if len(sections) > 1:
            raise ValueError(f"--{name} may be {' or '.join(f'--{part}.{name}' for part in sections)}")
        if not sections:
            refuse_unknown([name], {*FIELDS, *(key for keys in fields_of.values() for key in keys)}, "the recipe")
        section, key = sections[0], name
    refuse_unknown([section], fields_of, "the recipe")
    old = values.get(section) or {}
    if not isinstance(old, Mapping):
        raise ValueError(f"`{section}` must be a mapping of keys to values, got {old!r}")
    values[section] = {**old, key: value}
