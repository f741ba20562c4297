"""Where recipes come from: the user's YAML files, and the package's by name."""

import copy
import functools
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from hf_capsule_mt.data.settings import nearest, refuse_unknown
from hf_capsule_mt.training.sections import current_names

PACKAGED = Path(__file__).parents[1] / "recipes"
CORPORA, METHODS = PACKAGED / "corpora.yaml", PACKAGED / "methods.yaml"
PLAIN = "plain"  # the method of a corpus alone
NOT_INHERITED = ("about", "paper", "output_dir")  # a recipe does not inherit these
Values = dict[str, Any]


def recipe_names() -> list[str]:
    """Return the names of the package's recipes: every method on every corpus, then the rows of the papers."""
    methods = [PLAIN, *_packaged(METHODS)]
    small = [f"{corpus}/{method}" for corpus in _packaged(CORPORA) for method in methods]
    return small + [f"{paper}/{row}" for paper, file in _papers().items() for row in _packaged(file)]


def read_values(
    recipe: str | Path, keys: Iterable[str], folder: Path = Path(), ancestors: tuple[str, ...] = ()
) -> Values:
    """Return the merged values of a recipe and of its bases; of their keys only the outermost are checked.

    Args:
        recipe: a YAML file, relative to `folder`, or the name of one of the package's recipes.
        keys: the keys that a recipe may have.
        ancestors: the recipes that are based on this one.
    """
    if not isinstance(recipe, (str, Path)):
        raise TypeError(f"a recipe must be a name or a YAML file, got {recipe!r}")
    if isinstance(recipe, Path) or recipe.endswith((".yaml", ".yml")):
        path = (folder / recipe).resolve()
        if not path.is_file():
            raise ValueError(f"{path}: no such file; `capsule-mt recipes` lists the recipes with names")
        values, origin = read_yaml(path), str(path)
        refuse_unknown(values, [*keys, "base"], origin)
        values.setdefault("output_dir", f"outputs/{path.parent.name}_{path.stem}")
    else:
        values, origin = _read_named(recipe), recipe
        values["output_dir"] = f"outputs/{recipe.replace('/', '_')}"
    if isinstance(values.get("model"), Mapping):
        values["model"] = current_names(values["model"])  # before those of bases come to it
    if origin in ancestors:
        raise ValueError(f"{origin}: a recipe cannot be based on itself ({' -> '.join([*ancestors, origin])})")
    base = values.pop("base", None)
    if base is None:
        return values
    if not isinstance(base, str):
        raise ValueError(f"{origin}: `base` must be a YAML file or the name of a recipe, got {base!r}")
    inherited = read_values(base, keys, Path(origin).parent, (*ancestors, origin))
    return merge({key: value for key, value in inherited.items() if key not in NOT_INHERITED}, values)


def merge(base: Mapping[str, Any], changes: Mapping[str, Any]) -> Values:
    """Return the changes over a base; the keys of a section replace the base's one by one.

    The base's section goes if `model` is of another family or gives way to `adapter`, or a `tokenizer` is loaded.
    """
    merged = dict(base)
    if changes.get("adapter") is not None:  # it stands beside a pretrained model
        merged.pop("model", None)
    for key, value in changes.items():
        old: Any = merged.get(key)
        are_sections = isinstance(value, dict) and isinstance(old, dict)
        if are_sections and key == "model" and value.get("model_type", old.get("model_type")) != old.get("model_type"):
            are_sections = False  # another family: the fields of the base mean nothing to it
        if are_sections and key == "tokenizer" and ("load" in value or "load" in old):
            are_sections = False
        merged[key] = {**old, **value} if are_sections else value
    return merged


# ---- the package's recipes
def _papers() -> dict[str, Path]:
    return {file.stem: file for file in sorted((PACKAGED / "papers").glob("*.yaml"))}


@functools.cache
def _packaged(file: Path) -> Values:
    return read_yaml(file)


def _read_named(name: str) -> Values:
    """Return the values of a packaged recipe: a row of a paper with its `base`, or a method on a corpus."""
    group, _, row = name.partition("/")
    papers, corpora = _papers(), _packaged(CORPORA)
    if group in papers and row in _packaged(papers[group]):
        return copy.deepcopy(_packaged(papers[group])[row])
    if group not in corpora or row not in (PLAIN, *_packaged(METHODS)):
        raise ValueError(
            f"no recipe is called {name!r}{_suggestion(name)} (`capsule-mt recipes` lists the names; a file ends in "
            ".yaml)"
        )
    values = copy.deepcopy(corpora[group])
    title, changed = values.pop("title"), values.pop("methods", {})
    if row == PLAIN:
        return values
    if "base" in values:
        values = merge(_read_named(values.pop("base")), values)
    for step in _steps(row):
        values = merge(values, merge(_method(step, group), changed.get(step, {})))
    values["about"] += f", on {title}."
    return values


def _suggestion(name: str) -> str:
    """Return a hint for an unknown name: the recipes of a group, method or row, or else a similar name."""
    names = recipe_names()
    if any(full_name.startswith(f"{name}/") for full_name in names):
        return f", but a group of recipes, which `capsule-mt recipes {name}` lists"
    if "/" not in name and (same_row := [full_name for full_name in names if full_name.endswith(f"/{name}")]):
        return f"; a name begins with its corpus or paper: {', '.join(f'`{full_name}`' for full_name in same_row)}"
    parts = {part for full_name in names for part in full_name.split("/", 1)}
    return nearest(name, names if "/" in name else parts)


def _steps(method: str) -> list[str]:
    """Return the methods that a method is based on, the first one first, and itself."""
    base = _packaged(METHODS)[method].get("base")
    return [*(_steps(base) if base else []), method]


def _method(name: str, corpus: str) -> Values:
    """Return what a method changes, for a corpus."""

    def filled(value: object) -> object:
        if isinstance(value, dict):
            return {key: filled(entry) for key, entry in value.items()}
        return value.replace("{corpus}", corpus) if isinstance(value, str) else value

    return {key: filled(value) for key, value in _packaged(METHODS)[name].items() if key != "base"}


# ---- YAML
class _RecipeLoader(yaml.SafeLoader):
    """YAML in which 7e-4 is a number, "no" is a word, and a key that stands twice is an error."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = []
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=deep)
            if key in keys:
                mark = key_node.start_mark
                raise ValueError(f"{mark.name}, line {mark.line + 1}: the key `{key}` occurs twice")
            keys.append(key)
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


def read_yaml(path: Path) -> Values:
    try:
        with open(path, encoding="utf-8") as stream:
            values = yaml.load(stream, Loader=_RecipeLoader)
    except yaml.YAMLError as error:
        raise ValueError(f"{path}: not YAML ({' '.join(str(error).split())})") from None
    if not isinstance(values, dict):
        raise ValueError(f"{path}: a recipe must be a mapping of keys to values")
    return values


def parse_overrides(words: Sequence[str]) -> dict[str, Any]:
    """Return `--training.max_steps 100 --seed=2` as a mapping; values are read as YAML."""
    overrides: dict[str, Any] = {}
    pending = list(words)
    while pending:
        word = pending.pop(0)
        if not word.startswith("--") or len(word) < 3:
            raise ValueError(f"expected --field value, got {word!r}")
        name, equals, text = word[2:].partition("=")
        if not equals:
            if not pending:
                raise ValueError(f"--{name} needs a value")
            text = pending.pop(0)
        try:
            overrides[name] = yaml.load(text, Loader=_RecipeLoader)
        except yaml.YAMLError as error:
            raise ValueError(f"--{name} {text!r} is not YAML ({' '.join(str(error).split())})") from None
    return overrides
