"""Learning from a teacher: word-level distillation in the loss, sequence-level distillation of a training set."""

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from accelerate import PartialState
from torch import nn
from tqdm.auto import tqdm

from hf_capsule_mt.modeling.losses import IGNORE_INDEX

SETTINGS_FILE = "settings.json"
SUMMARY_FILE = "distilled.json"


class WordDistillation:
    """Word-level knowledge distillation (Kim and Rush 2016, section 3.1): the teacher's distribution as the target.

    loss = (1 - weight) * loss of the model + weight * temperature^2 * cross entropy of the model's and the teacher's
    distribution over the next word, both softened by the temperature, per target word.

    Args:
        teacher: a model with the vocabulary of the student, source and target.
        weight: the share of the teacher, 0 to 1.
        temperature: divides the logits of both.
    """

    def __init__(self, teacher: Any, weight: float = 0.5, temperature: float = 1.0) -> None:
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
        outputs: Any,
        inputs: dict[str, torch.Tensor],
        num_items_in_batch: torch.Tensor | int | None,
    ) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        """The mixed loss, and its new part by name; normalised as the model normalises its own."""
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
    lines_per_file: int = 1024,
    sentences_per_batch: int = 64,
    words_per_batch: int | None = None,
    show_progress: bool = True,
) -> dict[str, Any]:
    """Sequence-level distillation: a teacher translates all sources, into files that are a data source for training.

    The longest sources come first. Each file `part-*.jsonl` holds `lines_per_file` of them, in lines
    `{"index": ..., "translation": {...}}`, and appears when it is complete; the processes take turns. So a run that
    was killed goes on with the files that are not there yet, with any number of processes: no line is lost and none is
    there twice, which is checked at the end. Train on it with `data: {train: {jsonl: "folder/part-*.jsonl"}}`.

    Args:
        translate: source texts -> translations, in the same order.
        settings: whatever the translations depend on; a folder is not continued with others.
        words_per_batch: a bound on the words of a batch, counted as the longest source times their number.

    Returns:
        What `distilled.json` says: the number of lines and files, and the settings.
    """
    output = Path(output)
    # without being told, processes on a machine that has only CPUs would each think that they are alone
    processes = PartialState(cpu=not torch.accelerator.is_available())
    order = sorted(range(len(sources)), key=lambda index: (-len(sources[index].split()), index))
    files = -(-len(order) // lines_per_file)
    facts = {
        "lines": len(order),
        "files": files,
        "lines_per_file": lines_per_file,
        "languages": [source_language, target_language],
        **(settings or {}),
    }
    with processes.main_process_first():
        _same_settings_as_before(output, facts, write=processes.is_main_process)
    mine = range(processes.process_index, files, processes.num_processes)
    missing = [number for number in mine if not _part(output, number).exists()]
    done = sum(min(lines_per_file, len(order) - number * lines_per_file) for number in mine if number not in missing)
    total = sum(min(lines_per_file, len(order) - number * lines_per_file) for number in mine)
    with tqdm(
        total=total,
        initial=done,
        unit=" sentences",
        desc=f"Distilling ({processes.process_index + 1} of {processes.num_processes})",
        disable=not show_progress or not processes.is_local_main_process,
    ) as progress:
        for number in missing:
            indices = order[number * lines_per_file : (number + 1) * lines_per_file]
            partial = _part(output, number).with_suffix(".partial")
            with open(partial, "w", encoding="utf-8") as stream:
                for batch in _batches(indices, sources, sentences_per_batch, words_per_batch):
                    translations = translate([sources[index] for index in batch])
                    for index, translation in zip(batch, translations, strict=True):
                        pair = {source_language: sources[index], target_language: translation}
                        stream.write(json.dumps({"index": index, "translation": pair}, ensure_ascii=False) + "\n")
                    progress.update(len(batch))
            partial.replace(_part(output, number))
    processes.wait_for_everyone()
    with processes.main_process_first():
        if processes.is_main_process:
            check_distilled(output, len(order), files)
            (output / SUMMARY_FILE).write_text(
                json.dumps(facts, indent=2, ensure_ascii=False) + "\n", encoding="utf-8"
            )
    return facts


def check_distilled(output: Path, lines: int, files: int) -> None:
    """Every line is there once."""
    seen = bytearray(lines)
    for number in range(files):
        with open(_part(output, number), encoding="utf-8", newline="\n") as stream:
            for row in stream:
                index = json.loads(row)["index"]
                if seen[index]:
                    raise ValueError(f"{_part(output, number)}: line {index} of the source is there twice")
                seen[index] = 1
    if not all(seen):
        raise ValueError(f"{output}: line {seen.index(0)} of the source is missing")


def _part(output: Path, number: int) -> Path:
    return output / f"part-{number:06d}.jsonl"


def _same_settings_as_before(output: Path, facts: dict[str, Any], write: bool) -> None:
    file = output / SETTINGS_FILE
    if file.exists():
        before = json.loads(file.read_text(encoding="utf-8"))
        different = [key for key in {**before, **facts} if before.get(key) != facts.get(key)]
        if different:
            changes = "; ".join(f"{key}: {before.get(key)!r} then, {facts.get(key)!r} now" for key in different)
            raise ValueError(f"{output} holds another distillation ({changes}): choose another folder")
    elif write:
        output.mkdir(parents=True, exist_ok=True)
        partial = file.with_suffix(".partial")
        partial.write_text(json.dumps(facts, indent=2, ensure_ascii=False), encoding="utf-8")
        partial.replace(file)


def _batches(indices: Sequence[int], sources: Sequence[str], sentences: int, words: int | None) -> Iterator[list[int]]:
    """Neighbours in the order of length, as many as the bounds allow."""
    batch: list[int] = []
    for index in indices:
        longest = len(sources[(batch or [index])[0]].split())
        if batch and (len(batch) == sentences or (words is not None and (len(batch) + 1) * longest > words)):
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch


class Teacher:
    """Any sequence-to-sequence checkpoint, as a function from texts to translations.

    Args:
        generation: keywords of `generate`, such as `num_beams`.
        max_source_tokens: longer sources are cut.
    """

    def __init__(self, model: Any, tokenizer: Any, max_source_tokens: int | None = None, **generation: Any) -> None:
        self.model = model.eval()
        self.tokenizer = tokenizer
        self.max_source_tokens = max_source_tokens
        self.generation = generation

    def __call__(self, texts: list[str]) -> list[str]:
        cut = {"truncation": True, "max_length": self.max_source_tokens} if self.max_source_tokens else {}
        batch = self.tokenizer(texts, padding=True, return_tensors="pt", **cut).to(self.model.device)
        batch = {name: batch[name] for name in ("input_ids", "attention_mask")}
        with torch.inference_mode():
            ids = self.model.generate(**batch, **self.generation)
        # a line of the result is a line: a teacher that writes line ends must not break the file in two
        decoded = self.tokenizer.batch_decode(ids, skip_special_tokens=True)
        return [" ".join(text.split("\n")) for text in decoded]
