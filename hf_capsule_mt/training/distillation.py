"""Distill a teacher: word-level in the loss, sequence-level by translating the training set."""

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from accelerate import PartialState
from torch import nn
from tqdm.auto import tqdm
from transformers import PreTrainedModel

from capsule_mt.text.digests import digest_of, joined
from capsule_mt.text.line_failures import Failure, translate_lines
from capsule_mt.text.lock import lock_output
from capsule_mt.text.outputs import remove_partials, write_output
from hf_capsule_mt.modeling.losses import IGNORE_INDEX
from hf_capsule_mt.modeling.target_text import decode_target

SETTINGS_FILE = "settings.json"
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
    lines_per_file: int = 1024,
    sentences_per_batch: int = 64,
    words_per_batch: int | None = None,
    show_progress: bool = True,
) -> dict[str, Any]:
    """Translate all sources with a teacher into files to train on (sequence-level distillation).

    Train on the result with `data: {train: {jsonl: "folder/part-*.jsonl"}}`. Each file `part-*.jsonl` holds
    `lines_per_file` lines `{"index": ..., "translation": {...}}`, longest sources first, and appears once complete.
    Processes take files in turn. A killed run resumes with the files that are missing or damaged, on any number of
    processes. A line that cannot be translated is left out, and costs no other. A check at the end raises an error if
    another line is missing or a line occurs twice.

    Args:
        translate: a function from source texts to their translations, in order.
        settings: what the translations depend on; resuming a folder with other settings, or other sources, raises an
            error.
        words_per_batch: the limit on longest source (in words) x number of sources in a batch.

    Returns:
        The content of `distilled.json`: the number of lines and files, the settings, and `failures`, the reason for
        each line that is left out, by its index.
    """
    output = Path(output)
    # without `cpu=True`, each process on a CPU-only machine takes itself for the only one
    processes = PartialState(cpu=not torch.accelerator.is_available())
    order = sorted(range(len(sources)), key=lambda index: (-len(sources[index].split()), index))
    files = -(-len(order) // lines_per_file)
    facts = {
        "lines": len(order),
        "files": files,
        "lines_per_file": lines_per_file,
        "languages": [source_language, target_language],
        "sources": digest_of([joined(sources)]),
        **(settings or {}),
    }
    with contextlib.ExitStack() as held:
        if processes.is_main_process:
            output.mkdir(parents=True, exist_ok=True)
            held.enter_context(lock_output(output))
            remove_partials(output)
        with processes.main_process_first():
            _same_settings_as_before(output, facts, write=processes.is_main_process)
        mine = range(processes.process_index, files, processes.num_processes)
        indices = {number: order[number * lines_per_file : (number + 1) * lines_per_file] for number in mine}
        missing = [number for number in mine if _failures_of(output, number) is None]
        with tqdm(
            total=sum(map(len, indices.values())),
            initial=sum(len(indices[number]) for number in mine if number not in missing),
            unit=" sentences",
            desc=f"Distilling ({processes.process_index + 1} of {processes.num_processes})",
            disable=not show_progress or not processes.is_local_main_process,
        ) as progress:
            for number in missing:
                rows: list[str] = []
                failures: dict[int, str] = {}
                for batch in _batches(indices[number], sources, sentences_per_batch, words_per_batch):
                    translations = translate_lines(translate, [sources[index] for index in batch])
                    for index, translation in zip(batch, translations, strict=True):
                        if isinstance(translation, Failure):
                            failures[index] = translation.reason
                            continue
                        pair = {source_language: sources[index], target_language: translation}
                        rows.append(json.dumps({"index": index, "translation": pair}, ensure_ascii=False) + "\n")
                    progress.update(len(batch))
                _write_part(output, number, "".join(rows), failures)
        processes.wait_for_everyone()
        with processes.main_process_first():
            if processes.is_main_process:
                facts["failures"] = check_distilled(output, len(order), files)
                write_output(output / SUMMARY_FILE, json.dumps(facts, indent=2, ensure_ascii=False) + "\n")
    return facts


def check_distilled(output: Path, lines: int, files: int) -> dict[int, str]:
    """Check that every line occurs exactly once, or failed; return why lines failed, by their index."""
    seen = bytearray(lines)
    failures: dict[int, str] = {}
    for number in range(files):
        failed = _failures_of(output, number)
        if failed is None:
            raise ValueError(
                f"{_part(output, number)} is missing or damaged: the same command again translates its lines again"
            )
        failures |= failed
        for index in (*_indices(_part(output, number).read_bytes()), *failed):
            if index not in range(lines):
                raise ValueError(f"{_part(output, number)}: there is no line {index} of the source")
            if seen[index]:
                raise ValueError(f"{_part(output, number)}: line {index} of the source is there twice")
            seen[index] = 1
    if not all(seen):
        raise ValueError(f"{output}: line {seen.index(0)} of the source is missing")
    return dict(sorted(failures.items()))


def _write_part(output: Path, number: int, rows: str, failures: dict[int, str]) -> None:
    """Write a part, and then the record that states its digest and why lines failed."""
    content = rows.encode("utf-8")
    write_output(_part(output, number), content)
    stated = {"sha256": digest_of([content]), "failures": failures}
    write_output(_record(output, number), json.dumps(stated, ensure_ascii=False))


def _failures_of(output: Path, number: int) -> dict[int, str] | None:
    """Return why lines of a part failed, or `None` if it or its record is missing, or does not fit the other."""
    try:
        content = _part(output, number).read_bytes()
        stated = json.loads(_record(output, number).read_bytes())
        if digest_of([content]) != stated["sha256"]:
            return None
        return {int(index): reason for index, reason in stated["failures"].items()}
    except (FileNotFoundError, ValueError, TypeError, KeyError):
        return None


def _indices(content: bytes) -> Iterator[int]:
    """Yield the index of each row; raise `ValueError` or the like for a row that is none."""
    for row in content.decode("utf-8").removesuffix("\n").split("\n") if content else ():
        yield int(json.loads(row)["index"])


def _part(output: Path, number: int) -> Path:
    return output / f"part-{number:06d}.jsonl"


def _record(output: Path, number: int) -> Path:
    return output / f"part-{number:06d}.json"


def _same_settings_as_before(output: Path, facts: dict[str, Any], write: bool) -> None:
    file = output / SETTINGS_FILE
    if file.exists():
        before = _read_settings(file)
        different = [
            _difference(key, before.get(key), facts.get(key))
            for key in {**before, **facts}
            if before.get(key) != facts.get(key)
        ]
        if different:
            raise ValueError(
                f"{output} holds another distillation ({'; '.join(different)}): restore what changed, or choose "
                "another folder"
            )
    elif write:
        write_output(file, json.dumps(facts, indent=2, ensure_ascii=False))


def _read_settings(file: Path) -> dict[str, Any]:
    try:
        content = json.loads(file.read_bytes())
    except (ValueError, RecursionError) as error:
        content = str(error)
    if not isinstance(content, dict) or not content:
        raise ValueError(f"{file} is damaged ({str(content)[:100]!r}): choose another folder")
    return content


def _difference(key: str, before: Any, now: Any) -> str:
    if key == "sources":
        return "sources: other texts than then"
    if key == "teacher_files" and isinstance(before, dict) and isinstance(now, dict):
        files = sorted(file for file in before.keys() | now.keys() if before.get(file) != now.get(file))
        return f"teacher: other content in {', '.join(files)}"
    return f"{key}: {before!r} then, {now!r} now"


def _batches(indices: Sequence[int], sources: Sequence[str], sentences: int, words: int | None) -> Iterator[list[int]]:
    """Group neighbours, which are sorted by length, into batches within both limits."""
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
    """Wrap any sequence-to-sequence model as a function from texts to translations.

    Args:
        decoder: what generates in the place of the model, such as `to_fast(model, int8=False)`.
        max_source_tokens: truncate longer sources.
        generation: arguments of `generate`, such as `num_beams`.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        max_source_tokens: int | None = None,
        decoder: Any | None = None,
        **generation: Any,
    ) -> None:
        self.model = model.eval()
        self.decoder = model if decoder is None else decoder
        self.tokenizer = tokenizer
        self.max_source_tokens = max_source_tokens
        self.generation = generation

    def __call__(self, texts: list[str]) -> list[str]:
        cut = {"truncation": True, "max_length": self.max_source_tokens} if self.max_source_tokens else {}
        batch = self.tokenizer(texts, padding=True, return_tensors="pt", **cut).to(self.model.device)
        batch = {name: batch[name] for name in ("input_ids", "attention_mask")}
        with torch.inference_mode():
            ids = self.decoder.generate(**batch, **self.generation)
        # keep each translation on one line, also if the teacher generates line breaks
        decoded = [decode_target(self.tokenizer, sequence) for sequence in ids]
        return [" ".join(text.split("\n")) for text in decoded]
