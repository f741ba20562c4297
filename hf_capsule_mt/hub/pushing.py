"""Push a checkpoint to the hub: card, weights, tokenizer and code, and nothing else."""

import json
import os
import re
from pathlib import Path

from huggingface_hub import CommitInfo, HfApi
from transformers.utils import logging

from hf_capsule_mt.hub.exporting import CODE_MODULE, TOKENIZER_CODE, check_export

push_logger = logging.get_logger("hf_capsule_mt.hub")

INDEX = "model.safetensors.index.json"
SAFETENSORS = ("model.safetensors", "model-*-of-*.safetensors", INDEX)
# Weights that transformers would load from a repository, of which it prefers a single file to shards
WEIGHT_FILES = (*SAFETENSORS, "pytorch_model.bin", "pytorch_model-*-of-*.bin", "pytorch_model.bin.index.json")
# Everything else stays local: `training_args.bin`, optimiser states, pickles, checkpoints, logs
SENT_FILES = (
    "README.md",
    "config.json",
    "generation_config.json",
    f"{CODE_MODULE}.py",
    f"{TOKENIZER_CODE}.py",
    "tokenizer.json",
    "target_tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "target_vocab.json",
    "source.spm",
    "target.spm",
)
SHOWN_PICTURE = re.compile(r"!\[[^\]]*\]\(([\w.-]+\.png)\)")


def files_to_send(folder: Path) -> list[str]:
    """Return the names of the files in a checkpoint folder that `push` uploads.

    Those of `SENT_FILES`, the weights, or the shards that their index names, and the pictures that the card shows.
    """
    names = {path.name for path in folder.iterdir() if path.is_file()}
    weights = {"model.safetensors"}
    if INDEX in names:
        weights = {INDEX, *json.loads((folder / INDEX).read_text(encoding="utf-8"))["weight_map"].values()}
    pictures = SHOWN_PICTURE.findall((folder / "README.md").read_text(encoding="utf-8"))
    return sorted(names & {*SENT_FILES, *weights, *pictures})


def push(
    folder: str | os.PathLike[str],
    repo_id: str,
    *,
    private: bool | None = None,
    commit_message: str = "Upload the checkpoint",
    token: str | None = None,
) -> CommitInfo:
    """Upload an exported folder with its card, as one commit.

    Refuse a folder without a card, one with links in the place of files, and one that fails its load test. Remove
    weight files from the repository that the commit does not replace, because transformers would prefer an old
    `model.safetensors` to new shards. Call it again after an interruption: files that have arrived are not sent twice.

    Args:
        folder: what `export` wrote, with a `README.md`.
        repo_id: "owner/name". The repository is created if it does not exist.
    """
    path = Path(folder)
    if not (path / "README.md").is_file():
        raise ValueError(f"{path} has no README.md: push a checkpoint with its model card (`model_card`)")
    sent = files_to_send(path)
    links = [name for name in sent if (path / name).is_symlink()]
    if links:
        raise ValueError(f"{path} has links, whose targets would be published: replace {', '.join(links)} by copies")
    check_export(path)
    kept = sorted({entry.name for entry in path.iterdir()} - set(sent))
    if kept:
        push_logger.warning(f"Not sent: {', '.join(kept)}")
    api = HfApi(token=token)
    api.create_repo(repo_id, private=private, exist_ok=True)
    return api.upload_folder(
        repo_id=repo_id,
        folder_path=path,
        allow_patterns=sent,
        delete_patterns=list(WEIGHT_FILES),
        commit_message=commit_message,
    )
