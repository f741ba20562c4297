"""Recipes: YAML files that say everything about a training run, with inheritance and without unknown keys."""

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import yaml
from transformers import CONFIG_MAPPING

from hf_capsule_mt.data import Cleaning
from hf_capsule_mt.training.arguments import TranslationTrainingArguments

DATA_PARTS = ("train", "validation", "test")


@dataclass
class Recipe:
    """One training run.

    Args:
        about: one sentence.
        paper: the system, table and row of a paper that this is.
        output_dir: the folder of the run; by default, in `outputs`, the names of the recipe's folder and file.
        seed: of the weights, the dropout, the order of the data and BPE-dropout.
        languages: `source` and `target`, the keys of `translation`.
        data_dir: what relative names of files in `data` are relative to, but for those that begin with `./`: they are
            relative to where the program runs, like `output_dir`.
        data: `train`, `validation` and `test`, each a source or a list of them
            ([`~hf_capsule_mt.data.load_translation_data`]); `max_length`, the tokens of a side above which a training
            pair is dropped (of a stream: cut); `cleaning` of the training pairs ([`~hf_capsule_mt.data.Cleaning`]);
            `streaming`, `shuffle_buffer` and `num_proc`.
        tokenizer: `load`, a folder or a name; or what to train: `model` (bpe or unigram), `vocab_size`, `separate` for
            a vocabulary for each side, with `target_vocab_size`; `sentences`, on how many pairs, all by default.
        init_from: a checkpoint to start from, of a Marian model or of the same family; its tokenizer is taken, too,
            unless `tokenizer.load` names another one.
        model: `model_type` and the fields of its configuration.
        training: the fields of [`TranslationTrainingArguments`].
        generation: the fields of `generation_config`: `num_beams`, `length_penalty`, `max_new_tokens`.
        word_distillation: `teacher`, a checkpoint with the same vocabulary, `weight` and `temperature`.
    """

    about: str = ""
    paper: str = ""
    output_dir: str = ""
    seed: int = 1
    languages: dict[str, str] = field(default_factory=dict)
    data_dir: str | None = None
    data: dict[str, Any] = field(default_factory=dict)
    tokenizer: dict[str, Any] = field(default_factory=dict)
    init_from: str | None = None
    model: dict[str, Any] = field(default_factory=dict)
    training: dict[str, Any] = field(default_factory=dict)
    generation: dict[str, Any] = field(default_factory=dict)
    word_distillation: dict[str, Any] = field(default_factory=dict)


SECTION_KEYS: dict[str, frozenset[str]] = {
    "languages": frozenset({"source", "target"}),
    "data": frozenset({*DATA_PARTS, "max_length", "cleaning", "streaming", "shuffle_buffer", "num_proc"}),
    "tokenizer": frozenset({"load", "model", "vocab_size", "separate", "target_vocab_size", "sentences"}),
    # the run's own fields come from the recipe
    "training": frozenset(entry.name for entry in fields(TranslationTrainingArguments) if entry.init)
    - {"output_dir", "seed"},
    "generation": frozenset(
        {"num_beams", "length_penalty", "max_new_tokens", "early_stopping", "no_repeat_ngram_size"}
    ),
    "word_distillation": frozenset({"teacher", "weight", "temperature"}),
}
CLEANING_KEYS = frozenset(entry.name for entry in fields(Cleaning))


def load_recipe(path: str | Path, overrides: Mapping[str, Any] | None = None) -> Recipe:
    """Reads a recipe and those that it is based on, applies overrides, and checks every key."""
    values = _read_with_bases(Path(path), ())
    place = Path(path).resolve()
    recipe = Recipe(**{"output_dir": f"outputs/{place.parent.name}_{place.stem}", **values})
    for name, value in (overrides or {}).items():
        recipe = _override(recipe, name, value)
    check_recipe(recipe, str(path))
    return recipe


def check_recipe(recipe: Recipe, place: str) -> None:
    """Every key is known, and what has to be there is."""
    for section in (*SECTION_KEYS, "model"):
        if not isinstance(getattr(recipe, section) or {}, Mapping):
            raise ValueError(
                f"{place}: `{section}` must be a mapping of keys to values, got {getattr(recipe, section)!r}"
            )
    for section, known in SECTION_KEYS.items():
        _refuse_unknown(getattr(recipe, section), known, f"{place}: `{section}`")
    _refuse_unknown(recipe.data.get("cleaning") or {}, CLEANING_KEYS, f"{place}: `data.cleaning`")
    for section, key in (("languages", "source"), ("languages", "target"), ("data", "train"), ("model", "model_type")):
        if not getattr(recipe, section).get(key):
            raise ValueError(f"{place}: `{section}.{key}` is missing")
    if not recipe.tokenizer and recipe.init_from is None:
        raise ValueError(f"{place}: `tokenizer` is missing, and there is no `init_from` to take one from")
    if recipe.tokenizer and ("load" in recipe.tokenizer) == ("vocab_size" in recipe.tokenizer):
        raise ValueError(
            f"{place}: `tokenizer` needs either `load` or `vocab_size`, it has {sorted(recipe.tokenizer)}"
        )
    for entry in fields(TranslationTrainingArguments):
        value, default = recipe.training.get(entry.name), entry.default
        is_number = isinstance(default, (int, float)) and not isinstance(default, bool)
        if is_number and value is not None and not isinstance(value, (int, float)):
            raise ValueError(f"{place}: `training.{entry.name}` must be a number, got {value!r}")
    check_model_fields(recipe.model, place)


def config_class_of(model_type: str, place: str = "recipe") -> Any:
    """The configuration class of a registered family."""
    try:
        return CONFIG_MAPPING[model_type]
    except KeyError:
        near = difflib.get_close_matches(model_type, list(CONFIG_MAPPING), n=1)
        hint = f"; did you mean `{near[0]}`?" if near else ""
        raise ValueError(f"{place}: no model family `{model_type}` is registered{hint}") from None


def check_model_fields(model: Mapping[str, Any], place: str) -> None:
    config_class = config_class_of(model["model_type"], place)
    known = {entry.name for entry in fields(config_class) if entry.init} | set(config_class.attribute_map)
    _refuse_unknown(model.keys() - {"model_type"}, known, f"{place}: `model` ({config_class.__name__})")


def _refuse_unknown(keys: Iterable[str], known: Iterable[str], place: str) -> None:
    for key in keys:
        if key not in known:
            near = difflib.get_close_matches(str(key), list(known), n=1)
            hint = f"did you mean `{near[0]}`?" if near else f"there are {sorted(known)}"
            raise ValueError(f"{place} has no key `{key}`; {hint}")


# ------------------------------------------------------------------------------------------------------------- reading
def _read_with_bases(path: Path, seen: tuple[Path, ...]) -> dict[str, Any]:
    """The values of a recipe over those of its base: keys of a section replace the base's keys, one by one."""
    path = path.resolve()
    if path in seen:
        raise ValueError(f"{path}: a recipe cannot be based on itself ({' -> '.join(map(str, [*seen, path]))})")
    values = read_yaml(path)
    base = values.pop("base", None)
    _refuse_unknown(values, [entry.name for entry in fields(Recipe)] + ["base"], str(path))
    if base is None:
        return values
    merged = _read_with_bases(path.parent / base, (*seen, path))
    for own in ("about", "paper", "output_dir"):  # what is of one recipe alone
        merged.pop(own, None)
    for key, value in values.items():
        inherits = isinstance(value, dict) and isinstance(merged.get(key), dict)
        if (
            inherits
            and key == "model"
            and value.get("model_type", merged[key].get("model_type")) != merged[key].get("model_type")
        ):
            inherits = False  # another family: the fields of the base mean nothing to it
        if inherits and key == "tokenizer" and ("load" in value or "load" in merged[key]):
            inherits = False
        merged[key] = {**merged[key], **value} if inherits else value
    return merged


class _RecipeLoader(yaml.SafeLoader):
    """YAML in which 7e-4 is a number, "no" is a word, and a key that stands twice is an error."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        keys = [self.construct_object(key, deep=deep) for key, _ in node.value]
        for key in keys:
            if keys.count(key) > 1:
                mark = node.start_mark
                raise ValueError(f"{mark.name}, line {mark.line + 1}: the key `{key}` stands twice")
        return super().construct_mapping(node, deep)


# the booleans of YAML 1.2: else `eval_strategy: no` would be False
_RecipeLoader.yaml_implicit_resolvers = {
    first: [entry for entry in resolvers if entry[0] != "tag:yaml.org,2002:bool"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_RecipeLoader.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile("(true|false)$"), ["t", "f"])
_RecipeLoader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+$"), list("-+.0123456789")
)


def read_yaml(path: Path) -> dict[str, Any]:
    try:
        with open(path, encoding="utf-8") as stream:
            values = yaml.load(stream, Loader=_RecipeLoader)
    except yaml.YAMLError as error:
        raise ValueError(f"{path}: no YAML ({' '.join(str(error).split())})") from None
    if not isinstance(values, dict):
        raise ValueError(f"{path}: a recipe is a mapping of keys to values")
    return values


def parse_overrides(words: Sequence[str]) -> dict[str, Any]:
    """`--training.max_steps 100 --seed=2` as a mapping; values are read as YAML."""
    overrides: dict[str, Any] = {}
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if not word.startswith("--") or len(word) < 3:
            raise ValueError(f"expected --field value, got {word!r}")
        name, equals, text = word[2:].partition("=")
        if not equals:
            if not rest:
                raise ValueError(f"--{name} needs a value")
            text = rest.pop(0)
        overrides[name] = yaml.load(text, Loader=_RecipeLoader)
    return overrides


def _override(recipe: Recipe, name: str, value: Any) -> Recipe:
    """`section.key`, a field of the recipe, or a key that only one section can have."""
    section, dot, key = name.partition(".")
    own = {entry.name for entry in fields(Recipe)}
    if not dot and name in own:
        return replace(recipe, **{name: value})
    keys = {**SECTION_KEYS, "model": {entry.name for entry in fields(config_class_of(recipe.model["model_type"]))}}
    if not dot:
        sections = [candidate for candidate, known in keys.items() if name in known]
        if len(sections) > 1:
            raise ValueError(f"--{name} may be {' or '.join(f'--{place}.{name}' for place in sections)}")
        if not sections:
            _refuse_unknown([name], {*own, *(known for names in keys.values() for known in names)}, "the recipe")
        section, key = sections[0], name
    if section not in keys:
        _refuse_unknown([section], keys, "the recipe")
    changed: dict[str, Any] = {section: {**getattr(recipe, section), key: value}}
    return replace(recipe, **changed)
