"""Refuse to resume a run with another recipe or other data, which would end in weights that no recipe gives."""

import dataclasses
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from datasets import Dataset
from transformers import AutoConfig

from capsule_mt.text.digests import checkpoint_digests, digest_of, joined
from capsule_mt.text.outputs import write_output
from hf_capsule_mt.training.recipes import Recipe
from hf_capsule_mt.training.run_data import Corpus, files_of

RECIPE_FILE = "recipe.yaml"
DATA_FILE = "data.json"
ROWS_AT_ONCE = 10_000

# fields that leave the weights as they are, or set how long to train
MAY_CHANGE = {
    *((name, "") for name in ("about", "paper", "output_dir", "data_dir")),
    *(("data", name) for name in ("test", "num_proc")),
    *(
        ("training", name)
        for name in (
            *("max_steps", "num_train_epochs", "average_last", "early_stopping_patience"),
            *("disable_tqdm", "logging_steps", "report_to", "run_name", "save_total_limit", "save_steps"),
            *("dataloader_num_workers", "per_device_eval_batch_size", "ddp_timeout", "logging_first_step"),
        )
    ),
}
Facts = dict[str, dict[str, Any]]


def same_recipe_as_before(recipe: Recipe, output: Path, write: bool) -> None:
    """Raise if the folder holds a run of another recipe; else record this one."""
    file = output / RECIPE_FILE
    values = dataclasses.asdict(recipe)
    if file.exists():
        before = read_record(file)
        different = [
            f"{section}{key and f'.{key}'}: {old!r} then, {new!r} now"
            for section, key, old, new in _differences(before, values)
            if (section, key) not in MAY_CHANGE or (section == "data" and _is_embedded(old, new))
        ]
        if different:
            raise ValueError(
                f"{output} holds a run of another recipe ({'; '.join(different)}): choose another output folder, "
                "or remove the folder"
            )
    if write:
        output.mkdir(parents=True, exist_ok=True)
        write_output(file, yaml.safe_dump(values, sort_keys=False, allow_unicode=True))


def same_data_as_before(recipe: Recipe, output: Path, corpus: Corpus, parts: Mapping[str, Any]) -> None:
    """Raise if the run began with other data, tokens or checkpoints; else record them."""
    file = output / DATA_FILE
    facts = dict(_facts(recipe, corpus, parts))
    if file.exists():
        before = read_record(file)
        different = [
            _difference(name, before[name], now) for name, now in facts.items() if before.get(name, now) != now
        ]
        if different:
            changed = [str(path) for path in _changed_since(file, recipe, facts)]
            hint = f" Changed since the run began: {', '.join(changed)}." if changed else ""
            raise ValueError(
                f"the data are not those that the run in {output} began with: {'; '.join(different)}.{hint} Restore "
                "them, choose another output folder, or remove the folder to begin anew"
            )
    else:
        write_output(file, json.dumps(facts, indent=1))


# ---- recipe
def _is_embedded(*parts: object) -> bool:
    """Return whether a part is of the embedded corpus, whose training part is what the others leave."""
    sources = [source for part in parts if part for source in (part if isinstance(part, list) else [part])]
    return any(isinstance(source, dict) and "embedded" in source for source in sources)


def _differences(before: dict[str, Any], now: dict[str, Any]) -> list[tuple[str, str, Any, Any]]:
    found = []
    for section in before.keys() | now.keys():
        old, new = before.get(section), now.get(section)
        if isinstance(old, dict) and isinstance(new, dict):
            found += [
                (section, key, old.get(key), new.get(key))
                for key in sorted(old.keys() | new.keys())
                if old.get(key) != new.get(key)
            ]
        elif old != new and (old or new):  # a field of a later version is empty
            found.append((section, "", old, new))
    return found


# ---- data
def _facts(recipe: Recipe, corpus: Corpus, parts: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield what identifies the data that the weights depend on; the test part is none of them."""
    languages = (recipe.languages["source"], recipe.languages["target"])
    for name in ("train", "validation"):
        part = corpus.get(name)
        if part is not None:
            yield f"data.{name}", {"pairs": len(part), "texts": digest_of(_texts(part, languages))}
            yield f"data.{name}, tokens", {"ids": digest_of(_ids(parts[name]))}
    teacher = recipe.word_distillation.get("teacher")
    if teacher:
        revision = getattr(AutoConfig.from_pretrained(teacher), "_commit_hash", None)
        yield "word_distillation.teacher", checkpoint_digests(teacher, revision)


def _texts(part: Dataset, languages: tuple[str, str]) -> Iterator[bytes]:
    for batch in part.select_columns(["translation"]).iter(batch_size=ROWS_AT_ONCE):
        yield joined(pair[language] for pair in batch["translation"] for language in languages)


def _ids(part: Dataset) -> Iterator[bytes]:
    columns = part.select_columns(["input_ids", "labels"]).with_format("arrow")
    for batch in columns.iter(batch_size=ROWS_AT_ONCE):
        for name in ("input_ids", "labels"):
            yield np.asarray(batch[name].combine_chunks().flatten(), dtype="<i4").tobytes()


def _difference(name: str, before: dict[str, Any], now: dict[str, Any]) -> str:
    if "pairs" in before and before["pairs"] != now["pairs"]:
        return f"`{name}` had {before['pairs']:,} sentence pairs, now it has {now['pairs']:,}"
    if "texts" in before:
        return f"`{name}` has other texts"
    if "ids" in before:
        return f"`{name.split(',')[0]}` is tokenized differently (another tokenizer, or another version of tokenizers)"
    files = sorted(file for file in before.keys() | now.keys() if before.get(file) != now.get(file))
    return f"`{name}` differs in {', '.join(files)}"


def _changed_since(record: Path, recipe: Recipe, facts: Facts) -> Iterator[Path]:
    begin = record.stat().st_mtime
    for name in ("train", "validation"):
        if f"data.{name}" in facts:
            yield from (file for file in files_of(recipe, name) if os.path.getmtime(file) > begin)


def read_record(file: Path) -> dict[str, Any]:
    """Return what a run has recorded, or raise for a damaged file."""
    try:
        content = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        content = " ".join(str(error).split())
    if not isinstance(content, dict) or not content:
        raise ValueError(f"{file} is damaged ({str(content)[:100]!r}): restore it, or choose another output folder")
    return content
