"""Mark checkpoints complete, find and choose them, and average their weights."""

import contextlib
import json
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import cast

import torch
from safetensors import safe_open
from torch import nn
from tqdm.auto import tqdm
from transformers import PreTrainedModel
from transformers.utils import logging

from capsule_mt.files.digests import file_digest
from capsule_mt.files.outputs import write_output
from hf_capsule_mt.loading import (
    WEIGHTS_FILE,
    CheckpointError,
    drop_measurements,
    load_checkpoint,
    share_weights,
    stored_weights,
)

checkpoints_logger = logging.get_logger("hf_capsule_mt.training")

MARKER = "complete.json"
TRAINER_STATE = "trainer_state.json"


def mark_complete(folder: str | os.PathLike[str], by_signal: bool = False) -> None:
    """Record sizes and digests of all files of a checkpoint in a marker, written atomically after everything else.

    Args:
        by_signal: whether a signal asked for the checkpoint, between those that the run saves anyway.
    """
    folder = Path(folder)
    files = {
        str(file.relative_to(folder)): {"size": file.stat().st_size, "sha256": file_digest(file)}
        for file in sorted(folder.rglob("*"))
        if file.is_file() and file.name != MARKER
    }
    write_output(folder / MARKER, json.dumps({"by_signal": by_signal, "files": files}, indent=1))


def find_damage(folder: Path, digests: bool = True) -> str | None:
    """Return in words which file of a marked checkpoint is no longer as it was saved, or `None`.

    Args:
        digests: compare digests, not sizes alone.
    """
    try:
        files = json.loads((folder / MARKER).read_bytes())["files"]
        expected = {name: (int(entry["size"]), str(entry["sha256"])) for name, entry in files.items()}
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        return f"{MARKER} is damaged ({type(error).__name__}: {error})"
    for name, (size, digest) in expected.items():
        try:
            now = (folder / name).stat().st_size
            if now != size:
                return f"{name} has {now:,} bytes, it had {size:,}"
            if digests and file_digest(folder / name) != digest:
                return f"{name} has other bytes than were saved"
        except OSError as error:
            return f"{name} cannot be read ({error.strerror})"
    return None


def set_damaged_aside(output_dir: str | os.PathLike[str]) -> None:
    """Rename damaged checkpoints of a run and name them in a warning. Digests are compared until one is intact."""
    intact: Path | None = None
    damaged: dict[Path, str] = {}
    for folder in reversed(_folders(output_dir)):
        if not (folder / MARKER).exists():
            continue
        damage = find_damage(folder, digests=intact is None)
        if damage is not None:
            damaged[folder] = damage
        elif intact is None:
            intact = folder
    for folder, damage in damaged.items():
        aside = folder.with_name(f"damaged-{folder.name}")
        shutil.rmtree(aside, ignore_errors=True)
        folder.replace(aside)
        start = f"from {intact.name}" if intact else "from the beginning, as no checkpoint is left"
        checkpoints_logger.warning(f"{folder} is damaged: {damage}. It is now {aside.name}; the run resumes {start}.")


def remove_checkpoint(folder: str | os.PathLike[str]) -> None:
    """Delete a checkpoint, its marker first, so that a half-deleted one counts as incomplete."""
    (Path(folder) / MARKER).unlink(missing_ok=True)
    shutil.rmtree(folder, ignore_errors=True)


def find_checkpoints(
    output_dir: str | os.PathLike[str], complete: bool = True, by_signal: bool | None = None
) -> list[Path]:
    """Return the complete (or incomplete) checkpoints of a run, sorted by step.

    Args:
        by_signal: return only checkpoints that a signal saved (True), or only the others (False).
    """
    folders = [folder for folder in _folders(output_dir) if (find_damage(folder, digests=False) is None) == complete]
    return [folder for folder in folders if by_signal is None or by_signal == _is_by_signal(folder)]


def _is_by_signal(checkpoint: Path) -> bool:
    return bool(json.loads((checkpoint / MARKER).read_bytes()).get("by_signal"))


def _folders(output_dir: str | os.PathLike[str]) -> list[Path]:
    numbers = {folder: folder.name.removeprefix("checkpoint-") for folder in Path(output_dir).glob("checkpoint-*")}
    return sorted((folder for folder in numbers if numbers[folder].isdecimal()), key=lambda entry: int(numbers[entry]))


def last_checkpoint(output_dir: str | os.PathLike[str]) -> Path | None:
    checkpoints = find_checkpoints(output_dir)
    return checkpoints[-1] if checkpoints else None


def last_checkpoints(run: str | os.PathLike[str], number: int) -> list[Path]:
    """Return the last checkpoints of a run that no signal saved; raise if too few are there, or one is damaged."""
    checkpoints = find_checkpoints(run, by_signal=False)
    if not 0 < number <= len(checkpoints):
        raise ValueError(
            f"{number} checkpoints are to be averaged, but {run} has {len(checkpoints)} that are complete: choose a "
            "smaller number (`--last`, or `--average_last` of `capsule-mt train`)"
        )
    for checkpoint in checkpoints[-number:]:
        damage = find_damage(checkpoint)
        if damage is not None:
            raise ValueError(f"{checkpoint} is damaged: {damage}. Remove it, and average fewer or others")
    return checkpoints[-number:]


def read_weights(checkpoint: str | os.PathLike[str]) -> dict[str, torch.Tensor]:
    """Read all tensors of a safetensors checkpoint, sharded or not."""
    weights: dict[str, torch.Tensor] = {}
    stored = stored_weights(checkpoint)
    if stored is None:
        raise CheckpointError(f"{checkpoint}: has no {WEIGHTS_FILE}")
    for path in stored.files:
        with safe_open(path, framework="pt") as file:
            weights |= {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 - not a mapping
    for name, value in weights.items():
        if value.is_floating_point() and not value.isfinite().all():
            raise CheckpointError(f"{checkpoint}: `{name}` has numbers that are not finite")
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
    """Save a model with the average weights, and the last checkpoint's tokenizer.

    An average of several does not keep what was measured of their coverage.
    """
    if not checkpoints:
        raise ValueError("there is no checkpoint to average")
    model, tokenizer = load_checkpoint(checkpoints[-1])
    load_weights(model, average_weights(checkpoints))
    if len(checkpoints) > 1:
        drop_measurements(model.config)
    save_atomically(output, model.save_pretrained, tokenizer.save_pretrained)


def load_weights(model: nn.Module, weights: dict[str, torch.Tensor]) -> None:
    """Load all weights into a model; weights missing from the checkpoint must be tied to others."""
    unexpected = model.load_state_dict(weights, strict=False).unexpected_keys
    if unexpected:
        raise ValueError(f"the model does not have the weights {unexpected[:3]} of the checkpoint")
    if hasattr(model, "tie_weights"):
        cast(PreTrainedModel, model).tie_weights()


@contextlib.contextmanager
def failing_in_one_sentence(folder: str | os.PathLike[str]) -> Iterator[None]:
    """Raise what fails while saving, such as a full disk, as an `OSError` that names the folder and what to do."""
    try:
        yield
    except Exception as error:  # safetensors, tokenizers, torch and Python each have their own
        raise OSError(
            f"{folder} could not be saved ({type(error).__name__}: {error}); earlier checkpoints are undamaged. "
            "Free some space, then run the same command again to resume"
        ) from error


def save_atomically(output: str | os.PathLike[str], *savers: Callable[[str], object]) -> None:
    """Let each saver write into a temporary subfolder of the output, then move its files into place one by one."""
    output = Path(output)
    partial = output / "partial"
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    with failing_in_one_sentence(output):
        for save in savers:
            save(str(partial))
        share_weights(partial)
    for file in sorted(partial.iterdir()):
        file.replace(output / file.name)
    partial.rmdir()
