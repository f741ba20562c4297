"""Refuse to resume a run with another recipe or other data, which would end in weights that no recipe gives."""

import dataclasses
import json
from collections.abc import Container, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from datasets import Dataset

from capsule_mt.files.digests import digest_of, joined
from capsule_mt.files.outputs import write_output
from hf_capsule_mt.training.recipes import Recipe
from hf_capsule_mt.training.run_data import Corpus
from hf_capsule_mt.training.sections import current_names

RECIPE_FILE = "recipe.yaml"
DATA_FILE = "data.json"
ROWS_AT_ONCE = 10_000
DIGEST_LENGTH = 64  # of a SHA-256, which tells a reader nothing

# fields that leave the weights as they are, or set how long to train
MAY_CHANGE = {
    *("about", "paper", "output_dir", "data_dir", "data.num_proc"),
    "tokenizer.model",  # of earlier versions
    *("training.max_steps", "training.num_train_epochs", "training.average_last", "training.early_stopping_patience"),
    *("training.disable_tqdm", "training.logging_steps", "training.report_to", "training.run_name"),
    *("training.save_total_limit", "training.save_steps", "training.dataloader_num_workers"),
    *("training.per_device_eval_batch_size", "training.ddp_timeout", "training.logging_first_step"),
}


def check_same_recipe(recipe: Recipe, output: Path, write: bool) -> None:
    """Raise if the folder holds a run of a recipe that gives other weights; else record this one if `write`."""
    train = recipe.data["train"]
    sources = train if isinstance(train, list) else [train]
    is_embedded = any("embedded" in source for source in sources)  # its training part is what the test part leaves
    may_change = MAY_CHANGE if is_embedded else MAY_CHANGE | {"data.test"}
    facts = dataclasses.asdict(recipe)
    check_same_facts(output / RECIPE_FILE, facts, "holds a run of another recipe", write=write, may_change=may_change)


def check_same_data(recipe: Recipe, output: Path, corpus: Corpus, parts: Mapping[str, Any]) -> None:
    """Raise if the run began with other data or tokens; else record them."""
    facts = dict(_data_facts(recipe, corpus, parts))
    check_same_facts(output / DATA_FILE, facts, "holds a run on other data", write=True)


def check_same_facts(
    file: Path, facts: dict[str, Any], complaint: str, *, write: bool, may_change: Container[str] = ()
) -> None:
    """Raise if an earlier run in the folder has recorded otherwise; else record what a run depends on if `write`.

    Args:
        facts: by name, or by section and name.
        complaint: what the folder holds if a fact is another one.
        may_change: the names of facts, or section.name, that may be others.
    """
    if file.exists():
        earlier, now = _flat(read_record(file)), _flat(facts)
        different = [
            _difference(name, earlier.get(name), now.get(name))
            for name in {**earlier, **now}
            if name not in may_change and earlier.get(name) != now.get(name)
        ]
        if different:
            raise ValueError(
                f"{file.parent} {complaint} ({'; '.join(different)}): restore what changed, choose another output "
                "folder, or remove the folder to start again"
            )
    if write:
        file.parent.mkdir(parents=True, exist_ok=True)
        if file.suffix == ".json":
            write_output(file, json.dumps(facts, indent=1))
        else:
            write_output(file, yaml.safe_dump(facts, sort_keys=False, allow_unicode=True))


def _flat(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return facts by section.name, without empty ones, so that a record still fits that lacks a later field."""
    flat: dict[str, Any] = {}
    for section, value in facts.items():
        if isinstance(value, dict):
            value = current_names(value)
            flat |= {f"{section}.{name}": entry for name, entry in value.items()}
        elif value:
            flat[section] = value
    return flat


def _difference(name: str, earlier: Any, now: Any) -> str:
    if any(isinstance(value, str) and len(value) == DIGEST_LENGTH for value in (earlier, now)):
        return f"{name} differs"
    return f"{name}: {earlier!r} then, {now!r} now"


def _data_facts(recipe: Recipe, corpus: Corpus, parts: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield what identifies the data that the weights depend on; the test part is none of them."""
    languages = (recipe.languages["source"], recipe.languages["target"])
    for name in ("train", "validation"):
        part = corpus.get(name)
        if part is not None:
            yield f"data.{name}", {"pairs": len(part), "texts": digest_of(_texts(part, languages))}
            yield f"data.{name}, tokens", {"ids": digest_of(_ids(parts[name]))}


def _texts(part: Dataset, languages: tuple[str, str]) -> Iterator[bytes]:
    for batch in part.select_columns(["translation"]).iter(batch_size=ROWS_AT_ONCE):
        yield joined(pair[language] for pair in batch["translation"] for language in languages)


def _ids(part: Dataset) -> Iterator[bytes]:
    columns = part.select_columns(["input_ids", "labels"]).with_format("arrow")
    for batch in columns.iter(batch_size=ROWS_AT_ONCE):
        for name in ("input_ids", "labels"):
            yield np.asarray(batch[name].combine_chunks().flatten(), dtype="<i4").tobytes()


def read_record(file: Path) -> dict[str, Any]:
    """Return what a run has recorded, or raise for a damaged file."""
    try:
        content = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        content = " ".join(str(error).split())
    if not isinstance(content, dict) or not content:
        raise ValueError(f"{file} is damaged ({str(content)[:100]!r}): restore it, or choose another output folder")
    return content
