"""Push a checkpoint to the hub: card, weights, tokenizer and code, and nothing else."""

import os
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from huggingface_hub import CommitInfo, HfApi
from huggingface_hub.utils import validate_repo_id

from hf_capsule_mt.hub.cards import model_card
from hf_capsule_mt.hub.exporting import check_export, export
from hf_capsule_mt.loading import load_checkpoint, stored_dtype

# transformers prefers a single file to shards, so weights of an earlier commit must go
WEIGHT_FILES = ("model*.safetensors", "pytorch_model*.bin", "*.index.json")


def write_folder(
    checkpoint: str | os.PathLike[str],
    folder: str | os.PathLike[str],
    name: str,
    results: Iterable[Mapping[str, Any]] = (),
    license: str | None = None,
) -> None:
    """Export a checkpoint with its card, whose title is the name, and test that it loads without the package.

    Args:
        results, license: for the card (`model_card`).
    """
    model, tokenizer = load_checkpoint(checkpoint, dtype=stored_dtype(checkpoint))
    export(model, tokenizer, folder)
    card = model_card(name, model.config.to_dict(), results, license=license)
    Path(folder, "README.md").write_text(str(card), encoding="utf-8")
    check_export(folder)


def push(
    checkpoint: str | os.PathLike[str],
    repo_id: str,
    *,
    private: bool | None = None,
    results: Iterable[Mapping[str, Any]] = (),
    license: str | None = None,
) -> CommitInfo:
    """Upload what `write_folder` makes of a checkpoint, as one commit; nothing else of its folder is sent.

    Weight files that the commit does not replace are removed from the repository. Call it again after an interruption:
    files that have arrived are not sent twice.

    Args:
        repo_id: "owner/name". The repository is created if it does not exist.
    """
    validate_repo_id(repo_id)
    with tempfile.TemporaryDirectory() as folder:
        write_folder(checkpoint, folder, repo_id, results, license)
        api = HfApi()
        api.create_repo(repo_id, private=private, exist_ok=True)
        return api.upload_folder(
            repo_id=repo_id,
            folder_path=folder,
            delete_patterns=list(WEIGHT_FILES),
            commit_message="Upload the checkpoint",
        )
