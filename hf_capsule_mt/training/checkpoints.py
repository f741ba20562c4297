"""Mark checkpoints complete, find and choose them, and average their weights."""

import json
import os
import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import torch
from safetensors import safe_open
from torch import nn
from tqdm.auto import tqdm
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, PreTrainedModel

MARKER = "complete.json"
TRAINER_STATE = "trainer_state.json"


def mark_complete(folder: str | os.PathLike[str]) -> None:
    """Record the sizes of all files of a checkpoint in a marker, written atomically after everything else."""
    folder = Path(folder)
    sizes = {
        str(file.relative_to(folder)): file.stat().st_size
        for file in sorted(folder.rglob("*"))
        if file.is_file() and file.name != MARKER
    }
    partial = folder / f"{MARKER}.partial"
    partial.write_text(json.dumps(sizes, indent=1), encoding="utf-8")
    partial.replace(folder / MARKER)


def is_complete(folder: str | os.PathLike[str]) -> bool:
    """Return whether a checkpoint has its marker, and all files in the recorded sizes."""
    folder = Path(folder)
    try:
        sizes = json.loads((folder / MARKER).read_text(encoding="utf-8"))
        return all((folder / name).stat().st_size == size for name, size in sizes.items())
    except (OSError, ValueError):
        return False


def remove_checkpoint(folder: str | os.PathLike[str]) -> None:
    """Delete a checkpoint, its marker first, so that a half-deleted one counts as incomplete."""
    (Path(folder) / MARKER).unlink(missing_ok=True)
    shutil.rmtree(folder, ignore_errors=True)


def find_checkpoints(output_dir: str | os.PathLike[str], complete: bool = True) -> list[Path]:
    """Return the complete (or incomplete) checkpoints of a run, sorted by step."""
    found = [
        (int(match.group(1)), folder)
        for folder in Path(output_dir).glob("checkpoint-*")
        if (match := re.fullmatch(r"checkpoint-(\d+)", folder.name)) and is_complete(folder) == complete
    ]
    return [folder for _, folder in sorted(found)]


def last_checkpoint(output_dir: str | os.PathLike[str]) -> Path | None:
    checkpoints = find_checkpoints(output_dir)
    return checkpoints[-1] if checkpoints else None


def step_of(checkpoint: Path) -> int:
    return int(checkpoint.name.rpartition("-")[2])


def scores_by_step(log_history: Sequence[dict[str, Any]], metric: str) -> dict[int, float]:
    """Return the values of an evaluation metric by step."""
    key = metric if metric.startswith("eval_") else f"eval_{metric}"
    return {entry["step"]: entry[key] for entry in log_history if key in entry}


def best_checkpoints(
    checkpoints: Sequence[Path], scores: dict[int, float], number: int, greater_is_better: bool
) -> list[Path]:
    """Return the `number` best-scored checkpoints, best first; the earlier one wins a tie."""
    scored = [checkpoint for checkpoint in checkpoints if step_of(checkpoint) in scores]
    sign = -1 if greater_is_better else 1
    return sorted(scored, key=lambda checkpoint: (sign * scores[step_of(checkpoint)], step_of(checkpoint)))[:number]


def choose_checkpoints(
    run: str | os.PathLike[str],
    *,
    last: int | None = None,
    best: int | None = None,
    metric: str = "bleu",
    greater_is_better: bool = True,
) -> list[Path]:
    """Return the last or the best checkpoints of a run; raise an error if it has too few."""
    checkpoints = find_checkpoints(run)
    if (last is None) == (best is None):
        raise ValueError(f"either `last` or `best` must be given, got {last} and {best}")
    if last is not None:
        chosen = checkpoints[-last:] if last > 0 else []
    else:
        history = []
        if checkpoints:
            history = json.loads((checkpoints[-1] / TRAINER_STATE).read_text(encoding="utf-8"))["log_history"]
        chosen = best_checkpoints(checkpoints, scores_by_step(history, metric), best or 0, greater_is_better)
    wanted = last if last is not None else best
    if len(chosen) != wanted or not chosen:
        kind = "complete" if last is not None else f"complete and scored (`eval_{metric}`)"
        raise ValueError(f"{wanted} checkpoints are asked for, {run} has {len(chosen)} that are {kind}")
    return chosen


def read_weights(checkpoint: str | os.PathLike[str]) -> dict[str, torch.Tensor]:
    """Read all tensors of a safetensors checkpoint, sharded or not."""
    folder = Path(checkpoint)
    index = folder / "model.safetensors.index.json"
    names = ["model.safetensors"]
    if index.exists():
        names = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
    weights: dict[str, torch.Tensor] = {}
    for name in names:
        with safe_open(folder / name, framework="pt") as file:
            weights |= {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 - not a mapping
    return weights


def average_weights(checkpoints: Sequence[str | os.PathLike[str]]) -> dict[str, torch.Tensor]:
    """Average each floating-point tensor in float64; take other tensors from the last checkpoint."""
    total: dict[str, torch.Tensor] = {}
    for checkpoint in tqdm(checkpoints, desc="Averaging", unit=" checkpoints", disable=len(checkpoints) < 3):
        weights = read_weights(checkpoint)
        if total and weights.keys() != total.keys():
            different = sorted(weights.keys() ^ total.keys())
            raise ValueError(f"{checkpoint} is a checkpoint of another model than the others: {different[:3]} differ")
        for name, value in weights.items():
            if not value.is_floating_point() or name not in total:
                total[name] = value.double() if value.is_floating_point() else value
            else:
                if value.shape != total[name].shape:
                    raise ValueError(f"{checkpoint}: `{name}` is {list(value.shape)}, not {list(total[name].shape)}")
                total[name] += value.double()
    return {
        name: (value / len(checkpoints)).to(weights[name].dtype) if value.is_floating_point() else value
        for name, value in total.items()
    }


def average_checkpoints(checkpoints: Sequence[str | os.PathLike[str]], output: str | os.PathLike[str]) -> None:
    """Save a model with the average weights, and the last checkpoint's tokenizer."""
    if not checkpoints:
        raise ValueError("there is no checkpoint to average")
    model = AutoModelForSeq2SeqLM.from_pretrained(checkpoints[-1])
    load_weights(model, average_weights(checkpoints))
    save_atomically(output, model.save_pretrained, AutoTokenizer.from_pretrained(checkpoints[-1]).save_pretrained)


def load_weights(model: nn.Module, weights: dict[str, torch.Tensor]) -> None:
    """Load all weights into a model; weights missing from the checkpoint must be tied to others."""
    unexpected = model.load_state_dict(weights, strict=False).unexpected_keys
    if unexpected:
        raise ValueError(f"the model has no place for {unexpected[:3]}")
    if hasattr(model, "tie_weights"):
        cast(PreTrainedModel, model).tie_weights()


def save_atomically(output: str | os.PathLike[str], *savers: Callable[[str], object]) -> None:
    """Let each saver write into a temporary subfolder of the output, then move its files into place one by one."""
    output = Path(output)
    partial = output / "partial"
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    for save in savers:
        save(str(partial))
    for file in sorted(partial.iterdir()):
        file.replace(output / file.name)
    partial.rmdir()
