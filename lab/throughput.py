"""Training in tokens per second, in turns in one process: a bare Trainer and this package's, in several precisions.

All train the same plain model on the same data. Tokens count source and target without padding.
"""

import contextlib
import io
import tempfile
import time
from statistics import median
from typing import Any

import torch
from transformers import (
    DataCollatorForSeq2Seq,
    Seq2SeqTrainer,
    Seq2SeqTrainingArguments,
    TrainerCallback,
    set_seed,
)

from hf_capsule_mt.configuration import CapsuleMarianConfig
from hf_capsule_mt.data import embedded_corpus, encode, train_tokenizer
from hf_capsule_mt.modeling import CapsuleMarianMTModel
from hf_capsule_mt.training.arguments import TranslationTrainingArguments
from hf_capsule_mt.training.trainer import TranslationTrainer

BARE = "bare Trainer"
TOKEN_BATCHES = "our Trainer, token batches"
PRECISIONS: dict[str, dict[str, Any]] = {
    f"{TOKEN_BATCHES}, medium precision": {"float32_matmul_precision": "medium"},
    f"{TOKEN_BATCHES}, bfloat16": {"bf16": True, "use_cpu": not torch.cuda.is_available()},
}
SYSTEMS = (BARE, "our Trainer, the same batches", TOKEN_BATCHES, *PRECISIONS)
STEPS = 20
WARM_UP = 2  # of them
BATCH_SIZE = 64  # sentences, where batches are not of tokens


class _Stopwatch(TrainerCallback):
    """Count the seconds from the end of the warm-up to the last step."""

    seconds = 0.0

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step == WARM_UP:
            self.start = time.perf_counter()
        elif state.global_step == STEPS:
            self.seconds = time.perf_counter() - self.start


class _Counting:
    """A collator that counts the real tokens of each batch."""

    def __init__(self, collator: Any) -> None:
        self.collator = collator
        self.tokens: list[int] = []

    def __call__(self, examples: list[dict[str, Any]]) -> Any:
        self.tokens.append(sum(len(example["input_ids"]) + len(example["labels"]) for example in examples))
        return self.collator(examples)


def measure(rounds: int, width: int, layers: int) -> dict[str, dict[str, float]]:
    """Return median and best tokens per second of each system, and the median ratio to the bare Trainer."""
    corpus = embedded_corpus(2000, 1, 1)["train"]
    tokenizer = train_tokenizer((side for pair in corpus["translation"] for side in pair.values()), 2000)
    data = encode(corpus, tokenizer, "en", "de")
    # as many tokens as the other batches have on average, padding included
    tokens = (max(data["source_length"]) + max(data["target_length"])) * BATCH_SIZE * 3 // 4
    speeds: dict[str, list[float]] = {system: [] for system in SYSTEMS}
    for number in range(rounds):
        for system in SYSTEMS if number % 2 == 0 else SYSTEMS[::-1]:
            speeds[system].append(_speed(system, data, tokenizer, tokens, width, layers))
    ratios = {
        system: median(speed / bare for speed, bare in zip(values, speeds[BARE], strict=True))
        for system, values in speeds.items()
    }
    return {
        system: {"median": median(values), "best": max(values), "ratio": ratios[system]}
        for system, values in speeds.items()
    }


def _speed(system: str, data: Any, tokenizer: Any, tokens: int, width: int, layers: int) -> float:
    set_seed(1)
    precision = torch.get_float32_matmul_precision()
    model = CapsuleMarianMTModel(
        CapsuleMarianConfig(
            vocab_size=len(tokenizer),
            d_model=width,
            encoder_layers=layers,
            decoder_layers=layers,
            encoder_attention_heads=4,
            decoder_attention_heads=4,
            encoder_ffn_dim=4 * width,
            decoder_ffn_dim=4 * width,
            pad_token_id=tokenizer.pad_token_id,
            eos_token_id=tokenizer.eos_token_id,
            decoder_start_token_id=tokenizer.pad_token_id,
            forced_eos_token_id=None,
        )
    )
    watch = _Stopwatch()
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        shared: dict[str, Any] = {
            "output_dir": folder,
            "max_steps": STEPS,
            "per_device_train_batch_size": BATCH_SIZE,
            "logging_steps": 10,
            "save_strategy": "no",
            "report_to": "none",
            "disable_tqdm": True,
            "dataloader_pin_memory": torch.cuda.is_available(),
        }
        settings: dict[str, Any] = {"model": model, "train_dataset": data, "callbacks": [watch]}
        if system == BARE:
            collator = _Counting(DataCollatorForSeq2Seq(tokenizer, model=model))
            trainer: Any = Seq2SeqTrainer(args=Seq2SeqTrainingArguments(**shared), data_collator=collator, **settings)
        else:
            collator = _Counting(DataCollatorForSeq2Seq(tokenizer))
            shared |= {"max_tokens_per_batch": tokens if system.startswith(TOKEN_BATCHES) else None}
            arguments = TranslationTrainingArguments(**shared, **PRECISIONS.get(system, {}))
            trainer = TranslationTrainer(args=arguments, data_collator=collator, **settings)
        try:
            trainer.train()
        finally:
            torch.set_float32_matmul_precision(precision)
    return sum(collator.tokens[WARM_UP:STEPS]) / watch.seconds
