"""A Seq2SeqTrainer for translation: token-budget batches, every loss part logged, bit-exact resuming."""

import contextlib
import copy
import math
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader
from transformers import (
    PreTrainedModel,
    PreTrainedTokenizerBase,
    Seq2SeqTrainer,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)
from transformers.trainer_utils import TrainOutput

from capsule_mt.files.outputs import write_output
from hf_capsule_mt.data.encoding import DropoutDataset
from hf_capsule_mt.hub.trainer_pushes import PushedCode
from hf_capsule_mt.loading import drop_measurements, share_weights
from hf_capsule_mt.modeling.summed_losses import IGNORE_INDEX
from hf_capsule_mt.training.arguments import TranslationTrainingArguments
from hf_capsule_mt.training.batching import TokenBudgetBatchSampler
from hf_capsule_mt.training.checkpoints import (
    TRAINER_STATE,
    average_weights,
    failing_in_one_sentence,
    find_checkpoints,
    last_checkpoint,
    last_checkpoints,
    load_weights,
    mark_complete,
    remove_checkpoint,
    set_damaged_aside,
)
from hf_capsule_mt.training.curve import CURVE_FILE, training_curve
from hf_capsule_mt.training.encoder_variance import EncoderVariance
from hf_capsule_mt.training.evaluation_nll import EvaluationNLL
from hf_capsule_mt.training.metering import LOSS_PARTS, StepMeter, refuse_divergence
from hf_capsule_mt.training.sharding import (
    gather_weights,
    is_sharded,
    refuse_recomputed_dropout,
    shard_what_can_be,
)
from hf_capsule_mt.training.shown_translations import quoted, repeats_of, shown_translations, token_rows
from hf_capsule_mt.training.signals import first_signal

# Six methods of the Trainer are overridden, where it has no hook:
# - get_train_dataloader: its samplers give examples, not batches;
# - compute_loss: `compute_loss_func` takes the labels away, from which the models make their auxiliary losses;
# - evaluation_loop: nothing is called before an evaluation;
# - prediction_step: it changes the model's generation config;
# - train: nothing is called before a checkpoint is chosen and loaded, or after a failure;
# - _save_checkpoint: nothing is called before a checkpoint is written.


class TranslationTrainer(Seq2SeqTrainer):
    """Train as `TranslationTrainingArguments` asks, on top of [`~transformers.Seq2SeqTrainer`].

    Token-budget batches need the columns `source_length` and `target_length` in the training set (or attributes
    `source_lengths` and `target_lengths`). `train(resume_from_checkpoint="last")` resumes from the last complete
    checkpoint of `output_dir`, if there is one. On a CPU, a killed and resumed run ends bit for bit like an
    uninterrupted one. SIGTERM and SIGINT save a checkpoint after the step, end the training and set `stopped`; unless
    the run saves there anyway, it takes part in no average and goes when the next one is saved.

    With `predict_with_generate` and `compute_metrics`, each evaluation prints three translations. `training_curve.svg`
    in `output_dir` shows the losses so far.
    """

    args: TranslationTrainingArguments

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.is_fsdp_enabled:
            refuse_recomputed_dropout(self.accelerator, cast(nn.Module, self.model))
            shard_what_can_be(self.accelerator)
        self.output_dir = Path(str(self.args.output_dir))
        # the Trainer would delete a checkpoint before its successor is known to be complete
        self.keep_checkpoints = self.args.save_total_limit
        self.args.save_total_limit = None
        if self.args.device.type == "cpu" and (self.args.bf16 or self.args.float32_matmul_precision == "medium"):
            unwrapped(cast(nn.Module, self.model)).set_attn_implementation("eager")  # oneDNN is slow on sdpa's blocks
        if self.args.bpe_dropout and not isinstance(self.train_dataset, DropoutDataset | None):
            raise ValueError(
                f"`bpe_dropout` {self.args.bpe_dropout} has no effect on a training set that is encoded already: give "
                "a `hf_capsule_mt.data.DropoutDataset` with the same dropout, or train by a recipe"
            )
        # stock models of transformers take `num_items_in_batch`, and give the mean of the batch all the same
        model = without_adapter(unwrapped(cast(nn.Module, self.model)))
        self._model_divides_its_loss = getattr(model, "accepts_loss_kwargs", False)
        self.model_accepts_loss_kwargs = True
        self.averaged: list[Path] = []  # the checkpoints whose mean the model is, once it is trained
        self.dropped_measurements = False  # of the coverage of the model that training started from
        self.stopped = False
        self.stop_signal: int | None = None
        self._saved_step = -1
        self._saves_for_signal = False
        self._train_sampler: TokenBudgetBatchSampler | None = None
        self._nll = EvaluationNLL()
        self._encoder_variance = EncoderVariance()
        self._plain_model: PreTrainedModel | None = None  # generates in the place of a sharded one
        if self.is_fsdp_enabled and self.args.predict_with_generate:
            self._plain_model = copy.deepcopy(unwrapped(cast(nn.Module, self.model)))
        self.meter = StepMeter()
        self.callback_handler.callbacks.insert(0, self.meter)
        self.add_callback(self._nll)
        self.add_callback(_RunCallback(self))
        self.add_callback(PushedCode())

    @contextlib.contextmanager
    def _whole_model(self) -> Iterator[PreTrainedModel]:
        """Evaluate with a plain model of the same weights where the Trainer's own is sharded, and would generate."""
        model = cast(nn.Module, self.model)
        if self._plain_model is None or not is_sharded(model):
            yield unwrapped(model)
            return
        wrapped = self.model_wrapped
        self.model = self.model_wrapped = gather_weights(unwrapped(model), self._plain_model).to(self.args.device)
        try:
            yield self._plain_model
        finally:
            self.model, self.model_wrapped = model, wrapped
            cast(nn.Module, self._plain_model).to("cpu")

    # ---- batches
    def get_train_dataloader(self) -> DataLoader:
        if self.args.max_tokens_per_batch is None:
            return super().get_train_dataloader()
        dataset: Any = self.train_dataset
        if hasattr(dataset, "source_lengths"):
            lengths = (dataset.source_lengths, dataset.target_lengths)
        else:
            lengths = (dataset["source_length"], dataset["target_length"])
            dataset = dataset.select_columns(["input_ids", "labels"])
        self._train_sampler = TokenBudgetBatchSampler(
            *lengths,
            max_tokens=self.args.max_tokens_per_batch,
            multiple_of=self.accelerator.num_processes * self.args.gradient_accumulation_steps,
            seed=self.args.data_seed if self.args.data_seed is not None else self.args.seed,
        )
        loader: DataLoader = DataLoader(
            dataset,
            batch_sampler=self._train_sampler,
            collate_fn=self.data_collator,
            num_workers=self.args.dataloader_num_workers,
            pin_memory=self.args.dataloader_pin_memory,
            persistent_workers=self.args.dataloader_persistent_workers,
            prefetch_factor=self.args.dataloader_prefetch_factor,
        )
        # every process has the same number of batches, so accelerate need not pad the last ones
        dataloader_config = self.accelerator.dataloader_config
        even_batches, dataloader_config.even_batches = dataloader_config.even_batches, False
        try:
            return self.accelerator.prepare(loader)
        finally:
            dataloader_config.even_batches = even_batches

    # ---- loss
    def compute_loss(
        self,
        model: nn.Module,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: torch.Tensor | int | None = None,
    ) -> Any:
        if self.compute_loss_func is not None:
            return super().compute_loss(model, inputs, return_outputs, num_items_in_batch)
        counted = num_items_in_batch is not None
        divides = counted and self._model_divides_its_loss
        outputs = model(**inputs, **({"num_items_in_batch": num_items_in_batch} if divides else {}))
        loss = outputs["loss"]
        if counted and not divides:  # the mean over the batch; the step's batches have `num_items_in_batch` targets
            loss = loss * inputs["labels"].ne(IGNORE_INDEX).sum() / num_items_in_batch
        parts = {name: outputs[name] for name in LOSS_PARTS if outputs.get(name) is not None}
        if model.training:
            self.meter.add(parts, inputs)
        if counted:  # DDP averages gradients, but counted losses add up
            loss = loss * self.accelerator.num_processes
        return (loss, outputs) if return_outputs else loss

    # ---- evaluation
    def evaluation_loop(self, *args: Any, **kwargs: Any) -> Any:
        """Evaluate without touching the random state: training must not depend on when it evaluates."""
        # the sequence-to-sequence Trainer would also gather the examples that fill up a batch
        self.gather_function = self.accelerator.gather_for_metrics
        with (
            self.meter.paused(),
            _same_random_numbers(),
            self._whole_model() as model,
            self._nll.listening(model),
            self._encoder_variance.listening(model),
        ):
            output = super().evaluation_loop(*args, **kwargs)
        prefix = kwargs.get("metric_key_prefix", "eval")
        metrics = cast(dict[str, float], output.metrics)
        metrics.update(self._nll.take(prefix))
        metrics.update(self._encoder_variance.take(prefix, self.args.device, self.is_world_process_zero()))
        if self.args.predict_with_generate and output.predictions is not None and output.label_ids is not None:
            dataset = getattr(args[0] if args else kwargs["dataloader"], "dataset", None)
            metrics.update(self._look_at_translations(prefix, output.predictions, output.label_ids, dataset))
        return output

    def _look_at_translations(self, prefix: str, predictions: Any, labels: Any, dataset: Any) -> dict[str, float]:
        """Print three translations of an evaluation; return the share of its most frequent one."""
        tokenizer = cast(Any, self.processing_class)
        pad_token_id = getattr(tokenizer, "pad_token_id", None)
        if pad_token_id is None:
            pad_token_id = getattr(unwrapped(cast(nn.Module, self.model)).config, "pad_token_id", None)
        translations, references = token_rows(predictions, pad_token_id), token_rows(labels, pad_token_id)
        if not self.is_world_process_zero():
            return {}
        repeats = repeats_of(prefix, translations, references)
        if repeats is None:
            return {}
        if isinstance(tokenizer, PreTrainedTokenizerBase):
            sentence = f": {quoted(tokenizer, repeats.translation)}" if repeats.count > 1 else ""
            print(f"{prefix} at step {self.state.global_step}: {repeats}{sentence}")
            print("\n".join(shown_translations(tokenizer, dataset, translations, references)))
        return {f"{prefix}_same_sentence_share": repeats.count / repeats.total}

    def prediction_step(self, *args: Any, **kwargs: Any) -> Any:
        """Predict a batch, and keep the generation config as it is.

        The Trainer fills it with defaults, of which `max_length` makes `generate()` warn at every further batch.
        """
        model = without_adapter(unwrapped(cast(nn.Module, self.model)))
        generation_config = copy.deepcopy(model.generation_config)
        try:
            return super().prediction_step(*args, **kwargs)
        finally:
            model.generation_config = generation_config

    # ---- training
    def train(self, resume_from_checkpoint: str | bool | None = None, *args: Any, **kwargs: Any) -> Any:
        """Train, and end with the average that `average_last` asks for, unless a signal stopped the training.

        What was measured of the coverage of the old weights is dropped (`hf_capsule_mt.loading.drop_measurements`).
        """
        config = without_adapter(unwrapped(cast(nn.Module, self.model))).config
        self.dropped_measurements |= drop_measurements(config)
        output = self._train(resume_from_checkpoint, *args, **kwargs)
        if self.args.average_last and not self.stopped:
            self.averaged = last_checkpoints(self.output_dir, self.args.average_last)
            load_weights(unwrapped(cast(nn.Module, self.model)), average_weights(self.averaged))
        return output

    def _train(self, resume_from_checkpoint: str | bool | None, *args: Any, **kwargs: Any) -> Any:
        output_dir = self.output_dir
        if resume_from_checkpoint in ("last", True):
            if self.args.should_save:
                set_damaged_aside(output_dir)
                for folder in find_checkpoints(output_dir, complete=False):
                    remove_checkpoint(folder)
            self.accelerator.wait_for_everyone()
            last = last_checkpoint(output_dir)
            resume_from_checkpoint = None if last is None else str(last)
        if resume_from_checkpoint is not None and self._has_nothing_left(str(resume_from_checkpoint)):
            self._load_from_checkpoint(str(resume_from_checkpoint))
            self._tell(f"{resume_from_checkpoint} is complete: its step {self.state.global_step} was the last")
            self._saved_step = self.state.global_step
            if self.args.load_best_model_at_end and self.state.best_model_checkpoint is not None:
                self._load_best_model()
            return TrainOutput(self.state.global_step, float("nan"), {})
        if resume_from_checkpoint is not None:
            step = TrainerState.load_from_json(str(Path(str(resume_from_checkpoint)) / TRAINER_STATE)).global_step
            self._tell(f"Resuming after step {step}, from {resume_from_checkpoint}")
        # a dropout seed per process; a resumed one restores its generators from the checkpoint
        torch.manual_seed(self.args.seed + self.args.process_index)
        with first_signal(self._note_signal):
            return super().train(resume_from_checkpoint, *args, **kwargs)

    def _tell(self, line: str) -> None:
        """Print a line, once for all processes."""
        if self.is_world_process_zero():
            print(line)

    def _has_nothing_left(self, checkpoint: str) -> bool:
        """Return whether a checkpoint ends its run; the Trainer would take one more step."""
        state = TrainerState.load_from_json(str(Path(checkpoint) / TRAINER_STATE))
        if self.args.max_steps > 0:
            is_done = state.global_step >= self.args.max_steps
        else:
            is_done = (state.epoch or 0) > self.args.num_train_epochs - 1e-9
        if is_done or _is_out_of_patience(self.args, state.log_history):
            self.state = state
            return True
        return False

    def _note_signal(self, number: int) -> None:
        """Stop after the step; a second signal stops at once."""
        self.stop_signal = number

    def any_rank_stopping(self) -> bool:
        """Return whether any process got a signal, the same on all of them."""
        if self.accelerator.num_processes == 1:
            return self.stop_signal is not None
        stopping = torch.tensor(float(self.stop_signal is not None), device=self.args.device)
        return bool(self.accelerator.reduce(stopping, "sum").item())

    def draw_curve(self) -> None:
        """Write the picture of what was logged so far to the output folder."""
        curve = training_curve(self.state.log_history) if self.is_world_process_zero() else None
        if curve is not None:
            self.output_dir.mkdir(parents=True, exist_ok=True)
            write_output(self.output_dir / CURVE_FILE, curve)

    def save_for_signal(self) -> None:
        """Save a checkpoint of the last step unless there is one."""
        if self._saved_step != self.state.global_step:
            self._saves_for_signal = True
            self._save_checkpoint(self.model, None)

    def _save_checkpoint(self, *args: Any, **kwargs: Any) -> None:
        """Save as the Trainer does, mark the checkpoint complete, then delete those to be rotated out."""
        folder = self.output_dir / f"checkpoint-{self.state.global_step}"
        # a finite loss may have had an infinite gradient, so check the weights (of sharded ones the local part)
        weights = {
            name: weight.to_local() if hasattr(weight, "to_local") else weight
            for name, weight in unwrapped(cast(nn.Module, self.model)).named_parameters()
        }
        sums = {name: weight.sum(dtype=torch.float32).item() for name, weight in weights.items()}
        refuse_divergence(sums, self.state.global_step, self.args)
        with self.meter.paused(), failing_in_one_sentence(folder):
            if self.args.should_save:
                remove_checkpoint(folder)
            self.accelerator.wait_for_everyone()
            super()._save_checkpoint(*args, **kwargs)
            self.accelerator.wait_for_everyone()
            if self.args.should_save:
                share_weights(folder)
                mark_complete(folder, by_signal=self._saves_for_signal)
                self._delete_old_checkpoints(folder)
            self.accelerator.wait_for_everyone()
        self._saved_step = self.state.global_step
        self._saves_for_signal = False

    def _delete_old_checkpoints(self, newest: Path) -> None:
        for checkpoint in find_checkpoints(self.output_dir, by_signal=True):
            if checkpoint != newest:
                remove_checkpoint(checkpoint)
        if not self.keep_checkpoints:
            return
        checkpoints = find_checkpoints(self.output_dir, by_signal=False)
        names = {checkpoint.name for checkpoint in checkpoints[-max(self.keep_checkpoints, self.args.average_last) :]}
        names.add(Path(self.state.best_model_checkpoint or "").name)
        for checkpoint in checkpoints:
            if checkpoint.name not in names:
                remove_checkpoint(checkpoint)


@contextlib.contextmanager
def _same_random_numbers() -> Iterator[None]:
    """Restore all random generators afterwards."""
    states = (random.getstate(), np.random.get_state())
    devices = list(range(torch.cuda.device_count())) if torch.cuda.is_available() else []
    with torch.random.fork_rng(devices):
        try:
            yield
        finally:
            random.setstate(states[0])
            np.random.set_state(states[1])


class _RunCallback(TrainerCallback):
    """Handle epochs, signals, early stopping and the curve from the state that a checkpoint keeps."""

    def __init__(self, trainer: TranslationTrainer) -> None:
        self.trainer = trainer

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: object
    ) -> None:
        self.trainer._saved_step = -1
        if state.global_step == 0:
            _check_average(cast(TranslationTrainingArguments, args), state)

    def on_epoch_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: object
    ) -> None:
        """Forward `set_epoch` to the sampler and the dataset; accelerate's batch-skipping wrapper does not."""
        followers: tuple[Any, ...] = (self.trainer._train_sampler, self.trainer.train_dataset)
        for follower in followers:
            if hasattr(follower, "set_epoch"):
                follower.set_epoch(int(state.epoch or 0))

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: object
    ) -> None:
        if self.trainer.any_rank_stopping():
            self.trainer.stopped = control.should_training_stop = True
            if not _ends_an_epoch(state):  # else after the evaluation of the epoch
                self._save(state, control)

    def on_epoch_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: object
    ) -> None:
        if self.trainer.stopped and _ends_an_epoch(state):
            self._save(state, control)
        elif self.trainer.stopped:  # the Trainer takes the stop for the end of the epoch
            control.should_log = control.should_evaluate = control.should_save = False

    def _save(self, state: TrainerState, control: TrainerControl) -> None:
        """Save for a signal what the run does not save anyway."""
        if not control.should_save and self.trainer._saved_step != state.global_step:
            self.trainer._saves_for_signal = control.should_save = True

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: object) -> None:
        self.trainer.draw_curve()

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: object
    ) -> None:
        self.trainer.draw_curve()

    def on_evaluate(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: object
    ) -> None:
        if _is_out_of_patience(cast(TranslationTrainingArguments, args), state.log_history):
            control.should_training_stop = True


def _ends_an_epoch(state: TrainerState) -> bool:
    return state.epoch is not None and float(state.epoch).is_integer()


def _check_average(args: TranslationTrainingArguments, state: TrainerState) -> None:
    """Refuse an average of more checkpoints than the run will save: it would fail after the last step."""
    if args.save_strategy == "no":
        count = 0
    elif args.save_strategy == "epoch":
        count = state.num_train_epochs
    else:
        count = math.ceil(state.max_steps / state.save_steps)  # the last step is always saved
    if args.average_last > count:
        raise ValueError(
            f"`average_last` is {args.average_last}, but this run of {state.max_steps} steps saves only {count} "
            f"checkpoint{'' if count == 1 else 's'}: set `average_last` to at most {count}, or save more often "
            "(`save_strategy`, `save_steps`)"
        )


def _is_out_of_patience(args: TranslationTrainingArguments, log_history: list[dict[str, float]]) -> bool:
    """Return whether too many evaluations have passed since the best one."""
    if args.early_stopping_patience is None:
        return False
    key = f"eval_{str(args.metric_for_best_model).removeprefix('eval_')}"
    scores = [entry[key] if args.greater_is_better else -entry[key] for entry in log_history if key in entry]
    return bool(scores) and len(scores) - 1 - scores.index(max(scores)) >= args.early_stopping_patience


def unwrapped(model: nn.Module) -> PreTrainedModel:
    """Return the model inside wrappers for distribution and compilation."""
    while hasattr(model, "module") or hasattr(model, "_orig_mod"):
        model = getattr(model, "module", None) or cast(nn.Module, model._orig_mod)
    return cast(PreTrainedModel, model)


def without_adapter(model: PreTrainedModel) -> PreTrainedModel:
    """Return the model that stands inside a `PeftModel`, or the model itself."""
    return cast(Any, model).get_base_model() if hasattr(model, "get_base_model") else model
