"""What a Trainer with `push_to_hub=True` pushes: the code of the model, too."""

from typing import Any

from transformers import PreTrainedModel, TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from hf_capsule_mt.configuration.common import CapsulePreTrainedConfig
from hf_capsule_mt.hub.exporting import begin_code_entries, write_code


class PushedCode(TrainerCallback):
    """Let the repository that a Trainer pushes to load where the package is not installed.

        Seq2SeqTrainer(model, arguments, ..., callbacks=[PushedCode()])

    `TranslationTrainer` has it from the start. A model that is not of the package is pushed as it is.
    """

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        if args.push_to_hub:  # before a checkpoint is written, whose config.json is pushed
            self.on_push_begin(args, state, control, **kwargs)

    def on_push_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        model = kwargs["model"]
        if (
            args.should_save
            and isinstance(model, PreTrainedModel)
            and isinstance(model.config, CapsulePreTrainedConfig)
        ):
            begin_code_entries(model.config)
            write_code(model, str(args.output_dir))
