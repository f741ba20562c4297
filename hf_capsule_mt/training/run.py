"""A recipe from text to a trained checkpoint; the same call again goes on where it was interrupted."""

import dataclasses
import functools
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from accelerate import PartialState
from datasets import Dataset, IterableDataset
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, set_seed

from hf_capsule_mt.data import (
    BPEDropout,
    Cleaning,
    DropoutDataset,
    TranslationCollator,
    clean,
    drop_long,
    encode,
    load_translation_data,
    train_separate_tokenizers,
    train_tokenizer,
)
from hf_capsule_mt.evaluation import write_result
from hf_capsule_mt.evaluation.metrics import metric_signature
from hf_capsule_mt.training.arguments import TranslationTrainingArguments
from hf_capsule_mt.training.checkpoints import average_weights, choose_checkpoints, load_weights, save_atomically
from hf_capsule_mt.training.distillation import WordDistillation
from hf_capsule_mt.training.models import build_model
from hf_capsule_mt.training.recipe_checks import DATA_PARTS
from hf_capsule_mt.training.recipes import Recipe
from hf_capsule_mt.training.trainer import TranslationTrainer, bleu_metric, unwrapped

RECIPE_FILE = "recipe.yaml"
RESULT_FILE = "train_result.json"


def run_recipe(recipe: Recipe) -> dict[str, Any] | None:
    """Trains, averages, evaluates and saves. Returns the scores, or None if a signal stopped it before the end."""
    output = Path(recipe.output_dir)
    arguments = TranslationTrainingArguments(output_dir=str(output), seed=recipe.seed, **_training_settings(recipe))
    with arguments.main_process_first(desc="data and tokenizer"):
        _same_recipe_as_before(recipe, output, write=arguments.should_save)
        corpus = load_corpus(recipe)
        tokenizer = load_or_train_tokenizer(recipe, corpus, output / "tokenizer")
        parts = {name: _encoded(recipe, corpus, name, tokenizer) for name in corpus}
    set_seed(recipe.seed)
    model = build_model(recipe.model, tokenizer, recipe.init_from)
    set_generation(model, recipe.generation)
    trainer = TranslationTrainer(
        model=model,
        args=arguments,
        train_dataset=_training_set(recipe, parts["train"], tokenizer, arguments),
        eval_dataset=parts["validation"].select_columns(["input_ids", "labels"]) if "validation" in parts else None,
        data_collator=TranslationCollator(tokenizer.pad_token_id, arguments.pad_to_multiple_of),
        compute_metrics=_bleu_of(parts["validation"], tokenizer, recipe) if "validation" in parts else None,
        processing_class=tokenizer,
        word_distillation=_word_distillation(recipe),
    )
    _say(f"{sum(p.numel() for p in model.parameters()):,} parameters; training set: {_size(parts['train'])}")
    trainer.train(resume_from_checkpoint="last")
    if trainer.stopped:
        return None
    return _finish(trainer, recipe, parts, tokenizer)


def _training_settings(recipe: Recipe) -> dict[str, Any]:
    """The recipe's over what is the same for all of them."""
    settings = {
        "predict_with_generate": True,
        "per_device_eval_batch_size": 50,
        "logging_steps": 50,
        "dataloader_pin_memory": torch.cuda.is_available(),
        **recipe.training,
    }
    if recipe.data.get("streaming") and settings.get("max_tokens_per_batch") is not None:
        raise ValueError(
            "`data.streaming` knows no lengths to make batches of `max_tokens_per_batch` from: use "
            "`per_device_train_batch_size` and `max_steps`, or no streaming"
        )
    if settings.get("fsdp") and (settings.get("average_last") or settings.get("average_best")):
        raise ValueError("with `fsdp` no process has the whole model to average: use `capsule-mt average` afterwards")
    return settings


def _same_recipe_as_before(recipe: Recipe, output: Path, write: bool) -> None:
    """A folder holds one run: going on with other settings would end in weights that no recipe gives."""
    file = output / RECIPE_FILE
    values = dataclasses.asdict(recipe)
    if file.exists():
        before = yaml.safe_load(file.read_text(encoding="utf-8"))
        different = [
            f"{section}.{key}: {old!r} then, {new!r} now"
            for section, key, old, new in _differences(before, values)
            if (section, key) not in MAY_CHANGE or (section == "data" and _is_embedded(old, new))
        ]
        if different:
            raise ValueError(
                f"{output} holds a run of another recipe ({'; '.join(different)}): choose another --output_dir, "
                "or remove the folder"
            )
    if write:
        output.mkdir(parents=True, exist_ok=True)
        partial = file.with_name(f"{RECIPE_FILE}.partial")
        partial.write_text(yaml.safe_dump(values, sort_keys=False, allow_unicode=True), encoding="utf-8")
        partial.replace(file)


# what does not change the weights, or says how long to train
MAY_CHANGE = {
    *((name, "") for name in ("about", "paper", "output_dir", "data_dir")),
    *(("data", name) for name in ("test", "num_proc")),
    *(
        ("training", name)
        for name in (
            *("max_steps", "num_train_epochs", "average_last", "average_best", "early_stopping_patience"),
            *("disable_tqdm", "logging_steps", "report_to", "run_name", "save_total_limit", "save_steps"),
            *("dataloader_num_workers", "per_device_eval_batch_size", "ddp_timeout", "logging_first_step"),
        )
    ),
}


def _is_embedded(*parts: Any) -> bool:
    """Whether a part of the data is of the embedded corpus, whose training part is what the others leave."""
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
        elif old != new:
            found.append((section, "", old, new))
    return found


# ---------------------------------------------------------------------------------------------------------------- data
def load_corpus(recipe: Recipe, parts: Sequence[str] = DATA_PARTS) -> Any:
    """Return the parts of the recipe's data that it has, the training part cleaned."""
    settings = recipe.data
    languages = (recipe.languages["source"], recipe.languages["target"])
    rules = Cleaning.from_settings(settings.get("cleaning") or {})
    sources = {name: _in_folder(settings[name], recipe.data_dir) for name in parts if settings.get(name)}
    allow_empty = ["train"] if rules.drop_empty else []
    if settings.get("streaming") and "train" in sources:
        stream = load_translation_data(
            {"train": sources.pop("train")}, *languages, streaming=True, allow_empty=allow_empty
        )
        train, _ = clean(stream["train"], rules, *languages)
        train = train.shuffle(seed=recipe.seed, buffer_size=settings.get("shuffle_buffer", 10_000))
        return {"train": train, **(load_translation_data(sources, *languages) if sources else {})}
    num_proc = settings.get("num_proc")
    corpus = dict(load_translation_data(sources, *languages, num_proc=num_proc, allow_empty=allow_empty))
    if "train" in corpus and rules != Cleaning():
        corpus["train"], report = clean(corpus["train"], rules, *languages)
        _say(f"Cleaning: {report}")
    return corpus


def _say(text: str) -> None:
    """Prints, in one process of several."""
    if PartialState().is_main_process:
        print(text)


def _in_folder(sources: Any, folder: str | None) -> Any:
    """Relative names of files, under a folder; those that begin with "./" stay as they are."""
    if folder is None:
        return sources
    if isinstance(sources, list):
        return [_in_folder(source, folder) for source in sources]

    def under(value: Any) -> Any:
        if isinstance(value, list):
            return [under(entry) for entry in value]
        return value if value.startswith("./") else os.path.join(folder, value)

    return {
        key: under(value) if key in ("text", "tsv", "jsonl", "parquet") else value for key, value in sources.items()
    }


def load_or_train_tokenizer(recipe: Recipe, corpus: Any, folder: Path) -> Any:
    """The tokenizer that the run has, or that the recipe names; or a new one, kept in the folder of the run."""
    if (folder / "tokenizer_config.json").exists():
        return AutoTokenizer.from_pretrained(folder)
    settings = recipe.tokenizer
    if "load" in settings or recipe.init_from is not None:
        return AutoTokenizer.from_pretrained(settings.get("load") or recipe.init_from)
    size, model = settings["vocab_size"], settings.get("model", "bpe")
    train = corpus["train"]
    if settings.get("sentences") is not None:
        train = train.take(settings["sentences"])
    sides = [recipe.languages["source"], recipe.languages["target"]]

    def texts(*languages: str) -> Any:
        return (row["translation"][language] for row in train for language in languages)

    tokenizer: Any
    if settings.get("separate"):
        tokenizer = train_separate_tokenizers(
            texts(sides[0]), texts(sides[1]), size, settings.get("target_vocab_size"), model, show_progress=True
        )
    else:
        tokenizer = train_tokenizer(texts(*sides), size, model, show_progress=True)
    save_atomically(folder, tokenizer.save_pretrained)
    return tokenizer


def _encoded(recipe: Recipe, corpus: Any, name: str, tokenizer: Any) -> Any:
    """Token ids; the parts that are held out keep their texts, and are sorted by length to be decoded faster."""
    languages = (recipe.languages["source"], recipe.languages["target"])
    max_length, training = recipe.data.get("max_length"), name == "train"
    keep_text = not training or bool(recipe.training.get("bpe_dropout"))
    encoded = encode(
        corpus[name],
        tokenizer,
        *languages,
        max_length=max_length if not training or recipe.data.get("streaming") else None,
        num_proc=recipe.data.get("num_proc"),
        keep_text=keep_text,
    )
    if isinstance(encoded, IterableDataset):
        return encoded
    if not training:
        return encoded.sort("source_length", reverse=True)
    if max_length is not None:
        encoded, dropped = drop_long(encoded, max_length)
        if dropped:
            _say(f"{dropped} training pairs with more than {max_length} tokens on a side are left out")
    return encoded


def _training_set(recipe: Recipe, encoded: Any, tokenizer: Any, arguments: TranslationTrainingArguments) -> Any:
    if not arguments.bpe_dropout:
        return encoded
    if isinstance(encoded, IterableDataset):
        raise ValueError("`bpe_dropout` needs to know which example it sees: `data.streaming` must be false")
    dropout = BPEDropout(tokenizer, arguments.bpe_dropout, seed=recipe.seed)
    return DropoutDataset(encoded, dropout, recipe.languages["source"], recipe.languages["target"])


def _size(dataset: Any) -> str:
    return f"{len(dataset):,} sentence pairs" if isinstance(dataset, Dataset) else "a stream"


# --------------------------------------------------------------------------------------------------- model, the ending
def set_generation(model: Any, settings: dict[str, Any]) -> None:
    """How the model decodes unless told otherwise; saved with it."""
    config = model.generation_config
    config._from_model_config = False
    config.max_length = None
    if config.max_new_tokens is None:
        config.max_new_tokens = 256
    for key, value in settings.items():
        setattr(config, key, value)


def _word_distillation(recipe: Recipe) -> WordDistillation | None:
    if not recipe.word_distillation:
        return None
    settings = dict(recipe.word_distillation)
    return WordDistillation(AutoModelForSeq2SeqLM.from_pretrained(settings.pop("teacher")), **settings)


def _bleu_of(part: Dataset, tokenizer: Any, recipe: Recipe) -> Any:
    references = [pair[recipe.languages["target"]] for pair in part["translation"]]

    def decode(predictions: np.ndarray) -> list[str]:
        ids = np.where(predictions < 0, tokenizer.pad_token_id, predictions)
        return tokenizer.batch_decode(ids, skip_special_tokens=True)

    return bleu_metric(decode, references)


def _finish(trainer: TranslationTrainer, recipe: Recipe, parts: Any, tokenizer: Any) -> dict[str, Any]:
    """Averages if asked to, evaluates with the recipe's search, saves the model and a result file."""
    arguments = trainer.args
    output = Path(recipe.output_dir)
    model = unwrapped(trainer.model)
    averaged = []
    if arguments.average_last or arguments.average_best:
        averaged = choose_checkpoints(
            output,
            last=arguments.average_last or None,
            best=arguments.average_best or None,
            metric=arguments.metric_for_best_model or "bleu",
            greater_is_better=bool(arguments.greater_is_better),
        )
        load_weights(model, average_weights(averaged))
    scores: dict[str, float] = {}
    for name in ("validation", "test"):
        if name in parts:
            trainer.compute_metrics = _bleu_of(parts[name], tokenizer, recipe)
            columns = parts[name].select_columns(["input_ids", "labels"])
            beams = model.generation_config.num_beams
            measured = trainer.evaluate(columns, metric_key_prefix=name, num_beams=beams)
            scores |= {key: measured[key] for key in (f"{name}_bleu", f"{name}_loss", f"{name}_length_ratio")}
    result = {
        "recipe": dataclasses.asdict(recipe),
        "scores": scores,
        "signature": metric_signature("bleu"),
        "generation": {"num_beams": 1, **recipe.generation},
        "steps": trainer.state.global_step,
        "parameters": sum(p.numel() for p in model.parameters()),
        "averaged": [checkpoint.name for checkpoint in averaged],
        "log": [entry for entry in trainer.state.log_history if "eval_bleu" in entry],
    }
    gathered = trainer.accelerator.get_state_dict(trainer.model_wrapped) if trainer.is_fsdp_enabled else None
    if trainer.is_world_process_zero():
        save_model = functools.partial(model.save_pretrained, state_dict=gathered)
        save_atomically(output, save_model, tokenizer.save_pretrained)
        write_result(output / RESULT_FILE, result)
    trainer.accelerator.wait_for_everyone()
    return result
