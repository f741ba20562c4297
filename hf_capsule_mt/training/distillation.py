"""Distill a teacher: word-level in the loss, sequence-level by translating the training set."""

import contextlib
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from accelerate import PartialState
from torch import nn
from tqdm.auto import tqdm
from transformers import PreTrainedModel

from capsule_mt.text.digests import digest_of, file_digest, joined
from capsule_mt.text.line_failures import Failure, translate_lines
from capsule_mt.text.lock import lock_output
from capsule_mt.text.outputs import read_object, remove_partials, write_output
from capsule_mt.text.windows import WindowedOutput, windows_of
from hf_capsule_mt.modeling.losses import IGNORE_INDEX
from hf_capsule_mt.training.run_identity import same_as_before

SETTINGS_FILE = "settings.json"
RESULT_FILE = "part-000000.jsonl"  # the recipes read every `part-*.jsonl` of a folder
SUMMARY_FILE = "distilled.json"


class WordDistillation:
    """Word-level knowledge distillation (Kim and Rush 2016, section 3.1): train towards the teacher's distribution.

    loss = (1 - weight) * model loss + weight * temperature^2 * cross entropy(teacher, student), per target word; the
    temperature softens both distributions over the next word.

    Args:
        teacher: a model with the vocabulary of the student, source and target.
        weight: the weight of the distillation term, 0 to 1.
        temperature: the divisor of both models' logits.
    """

    def __init__(self, teacher: PreTrainedModel, weight: float = 0.5, temperature: float = 1.0) -> None:
        if not 0 <= weight <= 1:
            raise ValueError(f"`weight` must be in [0, 1], got {weight}")
        if temperature <= 0:
            raise ValueError(f"`temperature` must be positive, got {temperature}")
        self.teacher = teacher.eval().requires_grad_(False)
        self.weight = weight
        self.temperature = temperature

    def __call__(
        self,
        loss: torch.Tensor,
        outputs: Mapping[str, torch.Tensor],
        inputs: dict[str, torch.Tensor],
        num_items_in_batch: torch.Tensor | int | None,
    ) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        """Return the mixed loss and the distillation term by name, normalised like the model's own loss."""
        labels = inputs["labels"]
        logits = outputs["logits"]  # [B, T, V]
        self.teacher.to(logits.device)
        with torch.no_grad():
            teacher_logits = self.teacher(
                input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"], labels=labels
            ).logits
        if teacher_logits.shape != logits.shape:
            raise ValueError(
                f"the teacher's vocabulary has {teacher_logits.shape[-1]} words, the student's {logits.shape[-1]}: "
                "word-level distillation needs the same tokenizer for both"
            )
        kept = labels.ne(IGNORE_INDEX)  # [B, T]
        student = nn.functional.log_softmax(logits[kept].float() / self.temperature, dim=-1)
        target = nn.functional.softmax(teacher_logits[kept].float() / self.temperature, dim=-1)
        total = -(target * student).sum() * self.temperature**2
        count = kept.sum() if num_items_in_batch is None else num_items_in_batch
        part = total / count
        return (1 - self.weight) * loss + self.weight * part, {"word_distillation_loss": part}


def distill(
    translate: Callable[[list[str]], list[str]],
    sources: Sequence[str],
    output: str | Path,
    *,
    source_language: str,
    target_language: str,
    settings: dict[str, Any] | None = None,
    lines_per_part: int = 1024,
    sentences_per_batch: int = 64,
) -> dict[str, Any]:
    """Translate all sources with a teacher into a file to train on (sequence-level distillation).

    Train on the result with `data: {train: {jsonl: "folder/part-*.jsonl"}}`. Each line is `{"index": ...,
    "translation": {...}}`, longest sources first. Processes translate parts of the sources in turn. A killed run
    resumes with the parts that are missing or damaged, on any number of processes. A line that cannot be translated is
    left out, and costs no other.

    Args:
        translate: a function from source texts to their translations, in order.
        settings: what the translations depend on; resuming a folder with other settings, or other sources, raises an
            error.

    Returns:
        The content of `distilled.json`: the number of lines, the settings, and `failures`, the reason for each line
        that is left out, by its index.
    """
    folder = Path(output)
    result, summary = folder / RESULT_FILE, folder / SUMMARY_FILE
    # without `cpu=True`, each process on a CPU-only machine takes itself for the only one
    processes = PartialState(cpu=not torch.accelerator.is_available())
    facts = {
        "lines": len(sources),
        "lines_per_part": lines_per_part,
        "languages": [source_language, target_language],
        "sources": digest_of([joined(sources)]),
        **(settings or {}),
    }
    longest_first = sorted(range(len(sources)), key=lambda index: (-len(sources[index].split()), index))
    with contextlib.ExitStack() as held:
        if processes.is_main_process:
            folder.mkdir(parents=True, exist_ok=True)
            held.enter_context(lock_output(folder))
            remove_partials(folder)
        with processes.main_process_first():
            same_as_before(
                folder / SETTINGS_FILE, facts, "holds another distillation", write=processes.is_main_process
            )
        done = read_object(summary)
        if done is not None and result.exists() and done["sha256"] == file_digest(result):
            return {**done, "failures": {int(index): reason for index, reason in done["failures"].items()}}
        processes.wait_for_everyone()  # before anything is written
        with processes.main_process_first():
            parts = WindowedOutput([result], facts, is_main=processes.is_main_process)
        with tqdm(
            total=len(sources),
            unit=" sentences",
            desc=f"Distilling ({processes.process_index + 1} of {processes.num_processes})",
            disable=not processes.is_local_main_process,
        ) as progress:
            for window in windows_of(longest_first, lines_per_part):
                parts.begin(window)
                if window.number % processes.num_processes == processes.process_index and not parts.is_done():
                    rows: list[str] = []
                    failures: dict[int, str] = {}
                    for start in range(0, len(window.lines), sentences_per_batch):
                        batch = window.lines[start : start + sentences_per_batch]
                        translations = translate_lines(translate, [sources[index] for index in batch])
                        for index, translation in zip(batch, translations, strict=True):
                            if isinstance(translation, Failure):
                                failures[index] = translation.reason
                                continue
                            pair = {source_language: sources[index], target_language: translation}
                            rows.append(json.dumps({"index": index, "translation": pair}, ensure_ascii=False))
                        progress.update(len(batch))
                    parts.write([rows], failures)
                else:
                    progress.update(len(window.lines))
        processes.wait_for_everyone()
        if processes.is_main_process:
            facts |= {"failures": dict(sorted(parts.finish().items())), "sha256": file_digest(result)}
            write_output(summary, json.dumps(facts, indent=2, ensure_ascii=False) + "\n")
    return facts
