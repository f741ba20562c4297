"""Push a checkpoint to the hub: what `write_folder` makes of it, and nothing else."""

import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from huggingface_hub import CommitInfo, HfApi, ModelCard
from huggingface_hub.utils import validate_repo_id
from yaml import YAMLError

from hf_capsule_mt.hub.cards import model_card, renamed_card
from hf_capsule_mt.hub.exporting import check_export, export
from hf_capsule_mt.loading import load_checkpoint, stored_dtype

CARD = "README.md"
# transformers prefers a single file to shards, so weights of an earlier commit must go
WEIGHT_FILES = ("model*.safetensors", "pytorch_model*.bin", "*.index.json")
# a push is one commit, which the hub makes as a whole or not at all
AFTER_FAILURE = (
    "the repository has its old files or all of the new ones; to try again, run the same command: files that arrived "
    "are not sent twice"
)


def write_folder(
    checkpoint: str | os.PathLike[str],
    folder: str | os.PathLike[str],
    name: str,
    results: Iterable[Mapping[str, Any]] = (),
    license: str | None = None,
) -> None:
    """Export a checkpoint with its card, whose title is the name, and test that it loads without the package.

    A checkpoint that has a card, as released ones do, keeps it, unless the results have a recipe to make one from.

    Args:
        results, license: for the card (`model_card`).
    """
    results = list(results)
    old_card = _card_of(Path(checkpoint), results)
    model, tokenizer = load_checkpoint(checkpoint, dtype=stored_dtype(checkpoint))
    export(model, tokenizer, folder)
    if old_card is None:
        languages = [tokenizer.init_kwargs.get(field) for field in ("source_lang", "target_lang")]
        card = model_card(name, model.config.to_dict(), results, license=license, languages=languages)
    else:
        card = renamed_card(old_card, name, license=license)
    Path(folder, CARD).write_text(str(card), encoding="utf-8")
    check_export(folder)


def _card_of(checkpoint: Path, results: Iterable[Mapping[str, Any]]) -> str | None:
    """Return the card of a checkpoint; `None` if it lacks one, or if the results have a recipe to make one from."""
    file = checkpoint / CARD
    if any(isinstance(result.get("recipe"), Mapping) for result in results) or not file.is_file():
        return None
    try:
        card = file.read_text(encoding="utf-8")
        if not card.startswith("---"):  # a README of another kind, without a card's metadata
            return None
        ModelCard(card)
    except (ValueError, YAMLError) as error:  # a UnicodeDecodeError is a ValueError
        reason = " ".join(str(error).split())
        raise ValueError(f"{file} is not a model card that can be read ({reason}): correct or remove it") from None
    if results:
        raise ValueError(
            f"{file} is the card that the export keeps, and result files cannot be added to it: leave them out, or "
            "add the checkpoint's `train_result.json`, from which a new card is made"
        )
    return card


def push(
    checkpoint: str | os.PathLike[str],
    repo_id: str,
    *,
    private: bool | None = None,
    results: Iterable[Mapping[str, Any]] = (),
    license: str | None = None,
) -> CommitInfo:
    """Upload what `write_folder` makes of a checkpoint, as one commit; nothing else of its folder is sent.

    Weight files (`WEIGHT_FILES`) that the commit does not replace are removed from the repository. After an
    interruption, the repository has its old files or all of the new ones. Call it again: files that have arrived are
    not sent twice.

    Args:
        repo_id: "owner/name". The repository is created if it does not exist.
    """
    check_repo_id(repo_id)
    with tempfile.TemporaryDirectory() as folder:
        write_folder(checkpoint, folder, repo_id, results, license)
        api = HfApi()
        with _explained_failures(repo_id):
            api.create_repo(repo_id, private=private, exist_ok=True)
            return api.upload_folder(
                repo_id=repo_id,
                folder_path=folder,
                delete_patterns=list(WEIGHT_FILES),
                commit_message="Upload the checkpoint",
            )


def check_repo_id(repo_id: str) -> None:
    """Refuse a name that is not "owner/name": the hub would create `name` as the user's, and then refuse its files."""
    validate_repo_id(repo_id)
    if "/" not in repo_id:
        raise ValueError(f"`repo_id` must be owner/name, such as your-name/{repo_id}, got {repo_id!r}")


@contextmanager
def _explained_failures(repo_id: str) -> Iterator[None]:
    """Say after an error or Ctrl-C what the repository has, and what to do."""
    try:
        yield
    except KeyboardInterrupt as interrupt:
        raise KeyboardInterrupt(AFTER_FAILURE) from interrupt
    except Exception as error:  # of huggingface_hub or of its HTTP library, which changes with its version
        reasons = [str(reason) for reason in (error, error.__cause__) if reason is not None]
        raise ConnectionError(f"{repo_id}: the upload failed ({': '.join(reasons)}); {AFTER_FAILURE}") from error
