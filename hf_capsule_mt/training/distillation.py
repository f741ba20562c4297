"""Distill a teacher by translating the training set (sequence-level distillation, Kim and Rush 2016)."""

import contextlib
import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from accelerate import PartialState
from tqdm.auto import tqdm

from capsule_mt.files.digests import digest_of, joined
from capsule_mt.files.line_failures import Failure, translate_lines
from capsule_mt.files.lock import lock_output
from capsule_mt.files.outputs import read_object, remove_partials, write_output
from capsule_mt.files.windows import WindowedOutput, windows_of
from hf_capsule_mt.training.run_identity import check_same_facts

SETTINGS_FILE = "settings.json"
RESULT_FILE = "part-000000.jsonl"  # the first; the recipes read every `part-*.jsonl` of a folder
PARTS = "part-*.jsonl"
SUMMARY_FILE = "distilled.json"


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
    """Translate all sources with a teacher into files to train on (sequence-level distillation).

    Train on the result with `data: {train: {jsonl: "folder/part-*.jsonl"}}`. Each line is `{"index": ...,
    "translation": {...}}`, longest sources first. Processes translate parts of the sources in turn. A killed run
    resumes with the parts that are missing or damaged, on any number of processes. A line that cannot be translated is
    left out, and costs no other.

    Args:
        translate: a function from source texts to their translations, in order.
        lines_per_part: how many lines each file has; the last may have fewer.
        settings: what the translations depend on; resuming a folder with other settings, or other sources, raises an
            error.

    Returns:
        The content of `distilled.json`: the number of sources, the settings, and `failures`, the reason for each line
        that is left out, by its index. Where several processes finish it, only the main one gets `failures`.
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
    with contextlib.ExitStack() as stack:
        if processes.is_main_process:
            folder.mkdir(parents=True, exist_ok=True)
            stack.enter_context(lock_output(folder))
            remove_partials(folder)
        with processes.main_process_first():
            check_same_facts(
                folder / SETTINGS_FILE, facts, "holds another distillation", write=processes.is_main_process
            )
        earlier = read_object(summary)
        if earlier is not None and earlier["sha256"] == _digest_of_parts(folder):
            return {**earlier, "failures": {int(index): reason for index, reason in earlier["failures"].items()}}
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
                        rows += _rows(translate, sources, batch, (source_language, target_language), failures)
                        progress.update(len(batch))
                    parts.write([rows], failures)
                else:
                    progress.update(len(window.lines))
        processes.wait_for_everyone()
        if processes.is_main_process:
            failures_of_all = dict(sorted(parts.finish().items()))
            _split(result, lines_per_part)
            facts |= {"failures": failures_of_all, "sha256": _digest_of_parts(folder)}
            write_output(summary, json.dumps(facts, indent=2, ensure_ascii=False) + "\n")
    return facts


def _digest_of_parts(folder: Path) -> str:
    return digest_of(file.read_bytes() for file in sorted(folder.glob(PARTS)))


def _split(result: Path, lines_per_part: int) -> None:
    """Move the lines of the first file beyond `lines_per_part` into further ones."""
    with result.open("rb") as lines:
        for number in itertools.count():
            part = b"".join(itertools.islice(lines, lines_per_part))
            if not part and number > 0:
                break
            if number == 0:
                first = part
            else:
                write_output(result.with_name(f"part-{number:06d}.jsonl"), part)
    write_output(result, first)  # last, so that no kill loses a line


def _rows(
    translate: Callable[[list[str]], list[str]],
    sources: Sequence[str],
    batch: Sequence[int],
    languages: tuple[str, str],
    failures: dict[int, str],
) -> Iterator[str]:
    """Yield the lines of a part for a batch of sources, and note why others cannot be translated."""
    translations = translate_lines(translate, [sources[index] for index in batch])
    for index, translation in zip(batch, translations, strict=True):
        if isinstance(translation, Failure):
            failures[index] = translation.reason
        else:
            pair = dict(zip(languages, (sources[index], translation), strict=True))
            yield json.dumps({"index": index, "translation": pair}, ensure_ascii=False)
