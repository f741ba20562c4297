"""The data of a recipe: from sources to encoded parts, and the tokenizer."""

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from accelerate import PartialState
from datasets import Dataset
from transformers import PreTrainedTokenizerBase

from hf_capsule_mt.data import (
    BPEDropout,
    Cleaning,
    DropoutDataset,
    clean,
    drop_long,
    encode,
    load_translation_data,
    train_separate_tokenizers,
    train_tokenizer,
)
from hf_capsule_mt.data.settings import check_settings
from hf_capsule_mt.loading import load_tokenizer
from hf_capsule_mt.training.arguments import TranslationTrainingArguments
from hf_capsule_mt.training.checkpoints import save_atomically
from hf_capsule_mt.training.recipes import Recipe
from hf_capsule_mt.training.sections import DATA_PARTS

Source = Mapping[str, Any]
Corpus = Mapping[str, Dataset]
Files = str | list["Files"]
FILES = {"text", "tsv", "csv", "jsonl", "parquet"}


def load_corpus(recipe: Recipe, parts: Sequence[str] = DATA_PARTS) -> Any:
    """Return the parts of the recipe's data that it has, the training part cleaned."""
    settings = recipe.data
    languages = (recipe.languages["source"], recipe.languages["target"])
    rules = check_settings(Cleaning, settings.get("cleaning") or {}, "data.cleaning")
    all_parts = {name: _in_folder(settings[name], recipe.data_dir) for name in DATA_PARTS if settings.get(name)}
    sources = {name: all_parts[name] for name in parts if name in all_parts}
    allow_empty = ["train"] if rules.drop_empty else []
    num_proc = settings.get("num_proc")
    corpus = dict(
        load_translation_data(sources, *languages, num_proc=num_proc, allow_empty=allow_empty, other_parts=all_parts)
    )
    if "train" in corpus and rules != Cleaning():
        corpus["train"], dropped = clean(corpus["train"], rules, *languages)
        reasons = "".join(f"; dropped {count:,} {reason}" for reason, count in dropped.items())
        print_once(f"Cleaning: kept {len(corpus['train']):,} pairs{reasons}")
    return corpus


def print_once(text: str) -> None:
    """Print in the main process only."""
    if PartialState().is_main_process:
        print(text)


def _in_folder(sources: Source | list[Source], folder: str | None) -> Source | list[Source]:
    """Put relative file names under a folder, except those that begin with "./"."""
    if folder is None:
        return sources
    if isinstance(sources, list):
        return [cast(Source, _in_folder(source, folder)) for source in sources]

    def under(value: Files) -> Files:
        if isinstance(value, list):
            return [under(entry) for entry in value]
        return value if value.startswith("./") else os.path.join(folder, value)

    return {key: under(value) if key in FILES else value for key, value in sources.items()}


def load_named_tokenizer(recipe: Recipe) -> PreTrainedTokenizerBase | None:
    """Return the tokenizer that the recipe names, or that of the model from which it starts, if any."""
    name = recipe.tokenizer.get("load") or recipe.init_from
    return None if name is None else load_tokenizer(name)


def load_or_train_tokenizer(recipe: Recipe, corpus: Corpus, folder: Path) -> PreTrainedTokenizerBase:
    """Return the tokenizer that the run has trained, or train one and save it in the folder."""
    if (folder / "tokenizer_config.json").exists():
        return load_tokenizer(folder)
    settings = recipe.tokenizer
    size: int = settings["vocab_size"]
    train = corpus["train"]
    if settings.get("sentences") is not None:
        train = train.take(settings["sentences"])
    sides = [recipe.languages["source"], recipe.languages["target"]]

    def texts(*languages: str) -> Iterator[str]:
        return (row["translation"][language] for row in train for language in languages)

    tokenizer: PreTrainedTokenizerBase
    if settings.get("separate"):
        tokenizer = train_separate_tokenizers(
            texts(sides[0]), texts(sides[1]), size, settings.get("target_vocab_size"), show_progress=True
        )
    else:
        tokenizer = train_tokenizer(texts(*sides), size, show_progress=True)
    save_atomically(folder, tokenizer.save_pretrained)
    return tokenizer


def encode_part(recipe: Recipe, corpus: Corpus, name: str, tokenizer: PreTrainedTokenizerBase) -> Any:
    """Encode a part. Held-out parts keep their texts and are sorted by length, which decodes faster."""
    languages = (recipe.languages["source"], recipe.languages["target"])
    max_length, training = recipe.data.get("max_length"), name == "train"
    keep_text = not training or bool(recipe.training.get("bpe_dropout"))
    encoded = encode(
        corpus[name],
        tokenizer,
        *languages,
        max_length=None if training else max_length,
        num_proc=recipe.data.get("num_proc"),
        keep_text=keep_text,
    )
    if not training:
        # not by `sort`, which warns with pyarrow 25
        lengths = list(encoded["source_length"])
        if max_length is not None and (cut := sum(length >= max_length for length in lengths)):
            print_once(f"{name}: {cut} sources of {max_length} tokens or more are cut there (`data.max_length`)")
        return encoded.select(sorted(range(len(lengths)), key=lengths.__getitem__, reverse=True))
    if max_length is not None:
        encoded, dropped = drop_long(encoded, max_length)
        if dropped:
            print_once(f"Dropped {dropped} training pairs with more than {max_length} tokens on a side")
    return encoded


def training_set(
    recipe: Recipe,
    encoded: Dataset,
    tokenizer: PreTrainedTokenizerBase,
    arguments: TranslationTrainingArguments,
) -> Dataset | DropoutDataset:
    """Return the encoded training part, with BPE-dropout if asked for."""
    if not arguments.bpe_dropout:
        return encoded
    dropout = BPEDropout(tokenizer, arguments.bpe_dropout, seed=recipe.seed)
    return DropoutDataset(encoded, dropout, recipe.languages["source"], recipe.languages["target"])
