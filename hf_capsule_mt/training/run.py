"""Run a recipe from text to a trained checkpoint; the same call again resumes an interrupted run."""

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from datasets import Dataset
from torch import nn
from transformers import DataCollatorForSeq2Seq, PreTrainedModel, PreTrainedTokenizerBase, set_seed
from transformers.trainer_utils import EvalPrediction

from capsule_mt.files.lock import lock_output
from capsule_mt.files.outputs import remove_partials
from hf_capsule_mt.data.settings import without_nulls
from hf_capsule_mt.evaluation import write_result
from hf_capsule_mt.evaluation.metrics import metric_signature, sacrebleu_metric
from hf_capsule_mt.loading import check_name_or_path, limit_tokenizer
from hf_capsule_mt.modeling.target_text import decode_target
from hf_capsule_mt.training.adapters import build_adapted
from hf_capsule_mt.training.arguments import TranslationTrainingArguments
from hf_capsule_mt.training.checkpoints import save_atomically
from hf_capsule_mt.training.languages import first_token, set_languages
from hf_capsule_mt.training.models import build_model, check_vocabulary
from hf_capsule_mt.training.recipes import Recipe
from hf_capsule_mt.training.run_data import (
    encode_part,
    load_corpus,
    load_named_tokenizer,
    load_or_train_tokenizer,
    print_once,
    training_set,
)
from hf_capsule_mt.training.run_identity import check_same_data, check_same_recipe
from hf_capsule_mt.training.sections import CHECKPOINTING
from hf_capsule_mt.training.signals import StoppedBySignal, first_signal, stop
from hf_capsule_mt.training.trainer import TranslationTrainer, unwrapped

RESULT_FILE = "train_result.json"


def run_recipe(recipe: Recipe) -> dict[str, Any] | None:
    """Train, average, evaluate and save. Return the result, or None if a signal stopped the run.

    A signal while the data are read or the last translations are made stops at once; what was trained is saved.
    """
    output = Path(recipe.output_dir)
    arguments = TranslationTrainingArguments(output_dir=str(output), seed=recipe.seed, **_training_settings(recipe))
    trainer: TranslationTrainer | None = None
    is_trained = False
    try:
        with first_signal(stop), _locked(output, arguments):
            tokenizer, parts = _read_data(recipe, output, arguments)
            trainer = _make_trainer(recipe, arguments, tokenizer, parts)
            trainer.train(resume_from_checkpoint="last")
            if trainer.stopped:
                return None
            is_trained = True
            return _finish(trainer, recipe, parts, tokenizer)
    except StoppedBySignal as signal:
        if trainer is not None and trainer.stop_signal is not None:  # the second signal
            print_once("Stopped at once. The same command resumes from the last checkpoint.")
            raise SystemExit(128 + signal.number) from None
        # save the last step, unless the recipe does, if the model still has its weights
        other_weights = arguments.average_last or arguments.load_best_model_at_end
        if trainer is not None and is_trained and not other_weights and arguments.world_size == 1:
            trainer.save_for_signal()
        return None


def _training_settings(recipe: Recipe) -> dict[str, Any]:
    """Return the recipe's settings over those that all recipes share."""
    settings = {
        "predict_with_generate": True,
        "per_device_eval_batch_size": 50,
        "logging_steps": 50,
        "dataloader_pin_memory": torch.cuda.is_available(),
        **without_nulls(TranslationTrainingArguments, recipe.training),
    }
    _rename_checkpointing(settings)
    if settings.get("fsdp") and settings.get("average_last"):
        raise ValueError("with `fsdp` no process has the whole model to average: run `capsule-mt average` afterwards")
    return settings


def _rename_checkpointing(settings: dict[str, Any]) -> None:
    """Treat `gradient_checkpointing` and `activation_checkpointing`, its name from transformers 5.23 on, as one."""
    names = {entry.name for entry in dataclasses.fields(TranslationTrainingArguments)}
    name = next(name for name in CHECKPOINTING if name in names)
    for suffix in ("", "_kwargs"):
        values = [settings.pop(old + suffix) for old in CHECKPOINTING if old + suffix in settings]
        if values:
            settings[name + suffix] = values[-1]


@contextlib.contextmanager
def _locked(output: Path, arguments: TranslationTrainingArguments) -> Iterator[None]:
    """Let the main process of the launch lock the folder."""
    if not arguments.should_save:
        yield
        return
    output.mkdir(parents=True, exist_ok=True)
    with lock_output(output):
        remove_partials(output)
        yield


def _read_data(
    recipe: Recipe, output: Path, arguments: TranslationTrainingArguments
) -> tuple[PreTrainedTokenizerBase, dict[str, Any]]:
    """Return the tokenizer and the encoded parts, or raise if the run in the folder began with others."""
    if recipe.init_from:
        check_name_or_path(recipe.init_from)
    with arguments.main_process_first(desc="data and tokenizer"):
        check_same_recipe(recipe, output, write=False)
        corpus, tokenizer = load_corpus(recipe), load_named_tokenizer(recipe)
        # only now: a recipe that names what cannot be read leaves nothing that its corrected form would have to fit
        check_same_recipe(recipe, output, write=arguments.should_save)
        if tokenizer is None:
            tokenizer = load_or_train_tokenizer(recipe, corpus, output / "tokenizer")
        set_languages(tokenizer, recipe.languages["source"], recipe.languages["target"])
        parts = {name: encode_part(recipe, corpus, name, tokenizer) for name in corpus}
        if arguments.should_save:
            check_same_data(recipe, output, corpus, parts)
    return tokenizer, parts


# ---- the model and its Trainer
def _make_trainer(
    recipe: Recipe,
    arguments: TranslationTrainingArguments,
    tokenizer: PreTrainedTokenizerBase,
    parts: Mapping[str, Any],
) -> TranslationTrainer:
    set_seed(recipe.seed)
    if recipe.adapter is None:
        model = build_model(recipe.model, tokenizer, recipe.init_from, recipe.freeze)
    else:
        model = build_adapted(str(recipe.init_from), recipe.adapter)
        check_vocabulary(model, tokenizer, str(recipe.init_from))
    set_generation(model, first_token(tokenizer) | recipe.generation)
    limit_tokenizer(tokenizer, model.config)
    validation = parts.get("validation")
    trainer = TranslationTrainer(
        model=model,
        args=arguments,
        train_dataset=training_set(recipe, parts["train"], tokenizer, arguments),
        eval_dataset=validation and validation.select_columns(["input_ids", "labels"]),
        data_collator=DataCollatorForSeq2Seq(tokenizer),
        compute_metrics=validation and _bleu_of(validation, tokenizer, recipe),
        processing_class=tokenizer,
    )
    number = sum(p.numel() for p in model.parameters())
    trained = sum(p.numel() for p in model.parameters() if p.requires_grad)
    counted = f"{number:,} parameters" if trained == number else f"{trained:,} of {number:,} parameters are trained"
    print_once(f"{counted}; {len(parts['train']):,} sentence pairs")
    return trainer


def set_generation(model: PreTrainedModel, settings: dict[str, Any]) -> None:
    """Set how the model decodes by default; saved with it."""
    config = model.generation_config
    config._from_model_config = False
    config.max_length = None
    if config.max_new_tokens is None:
        config.max_new_tokens = 256
    for key, value in settings.items():
        if value is not None:
            setattr(config, key, value)


def _bleu_of(
    part: Dataset, tokenizer: PreTrainedTokenizerBase, recipe: Recipe
) -> Callable[[EvalPrediction], dict[str, float]]:
    """Return `compute_metrics` for `predict_with_generate`: sacreBLEU against the texts of a part."""
    references = [pair[recipe.languages["target"]] for pair in part["translation"]]

    def compute(prediction: EvalPrediction) -> dict[str, float]:
        ids = np.asarray(prediction.predictions)
        ids = np.where(ids < 0, tokenizer.pad_token_id, ids)
        translations = [decode_target(tokenizer, sequence) for sequence in ids]
        if len(translations) != len(references):
            raise ValueError(f"{len(translations)} translations for {len(references)} references")
        score: Any = sacrebleu_metric("bleu").corpus_score(translations, [references])
        return {"bleu": score.score, "length_ratio": score.ratio}

    return compute


# ---- the ending
def _finish(
    trainer: TranslationTrainer, recipe: Recipe, parts: Mapping[str, Dataset], tokenizer: PreTrainedTokenizerBase
) -> dict[str, Any]:
    """Save the model, evaluate with the recipe's search, and write a result file.

    The weights are saved first: whatever fails in the evaluation, they are there.
    """
    output = Path(recipe.output_dir)
    model = unwrapped(cast(nn.Module, trainer.model))
    _save(trainer, model, tokenizer, output)
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
        "averaged": [checkpoint.name for checkpoint in trainer.averaged],
        "log": [entry for entry in trainer.state.log_history if "eval_bleu" in entry],
    }
    if trainer.is_world_process_zero():
        write_result(output / RESULT_FILE, result)
    if trainer.dropped_measurements:
        _tell_of_calibration(recipe)
    trainer.accelerator.wait_for_everyone()
    return result


def _tell_of_calibration(recipe: Recipe) -> None:
    """Print how to calibrate coverage anew; an adapter alone has no place for the result."""
    model, merge = recipe.output_dir, ""
    if recipe.adapter is not None:
        model, merge = "MERGED", f"`capsule-mt export {recipe.output_dir} MERGED`, then "
    dev = " ".join(f"dev.{recipe.languages[side]}" for side in ("source", "target"))
    print_once(
        f"The calibration of {recipe.init_from} was measured with other weights and is dropped. To mark well what "
        f"translations leave out, calibrate anew: {merge}`capsule-mt calibrate {model} {dev} --reverse REVERSE`"
    )


def _save(
    trainer: TranslationTrainer, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, output: Path
) -> None:
    gathered = trainer.accelerator.get_state_dict(trainer.model_wrapped) if trainer.is_fsdp_enabled else None
    if trainer.is_world_process_zero():
        save_model = functools.partial(model.save_pretrained, state_dict=gathered)
        # peft saves an adapter without the settings of its search
        save_search = model.generation_config.save_pretrained
        save_atomically(output, save_model, save_search, tokenizer.save_pretrained)
    trainer.accelerator.wait_for_everyone()
