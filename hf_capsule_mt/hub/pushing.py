"""Sending a checkpoint to the hub: card, weights, tokenizer and code, and nothing else."""

import fnmatch
import os
import time
from pathlib import Path
from typing import Any

from huggingface_hub import CommitInfo, HfApi, ModelCard
from huggingface_hub.errors import HfHubHTTPError
from transformers.utils import logging

from hf_capsule_mt.hub.cards import check_card
from hf_capsule_mt.hub.exporting import CODE_MODULE, check_export

push_logger = logging.get_logger("hf_capsule_mt.hub")

# everything else stays at home: `training_args.bin`, optimiser states, whatever is pickled, checkpoints, logs
SENT_FILES = (
    "README.md",
    "config.json",
    "generation_config.json",
    "model.safetensors",
    "model-*-of-*.safetensors",
    "model.safetensors.index.json",
    f"{CODE_MODULE}.py",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "target_vocab.json",
    "source.spm",
    "target.spm",
    "train_result.json",
    "*.png",
)
TRANSIENT_STATUS = frozenset({408, 429, 500, 502, 503, 504})
# that of the HTTP library, whichever the hub's client uses: connections that break
HTTP_ERROR: type[Exception] = HfHubHTTPError.__mro__[1]


def files_to_send(folder: Path) -> list[str]:
    """The files of a checkpoint folder that go to the hub."""
    names = sorted(path.name for path in folder.iterdir() if path.is_file())
    return [name for name in names if any(fnmatch.fnmatchcase(name, pattern) for pattern in SENT_FILES)]


def push(
    folder: str | os.PathLike[str],
    repo_id: str,
    *,
    private: bool | None = None,
    commit_message: str = "Upload the checkpoint",
    token: str | None = None,
    attempts: int = 4,
    wait: float = 2.0,
) -> CommitInfo:
    """Sends an exported folder with its card, as one commit.

    It refuses a folder without a card, and one that fails its load test. An upload that is interrupted is tried again;
    what had arrived is not sent twice.

    Args:
        folder: what `export` wrote, with a `README.md`.
        repo_id: "owner/name". The repository is made if there is none.
        attempts, wait: how often to try, and how many seconds to wait after the first failure, then twice as long.
    """
    path = Path(folder)
    if not (path / "README.md").is_file():
        raise ValueError(f"{path} has no README.md: a checkpoint goes out with its model card (`model_card`)")
    check_card(ModelCard.load(path / "README.md"))
    check_export(path)
    sent = files_to_send(path)
    kept = sorted({entry.name for entry in path.iterdir()} - set(sent))
    if kept:
        push_logger.warning(f"Not sent: {', '.join(kept)}")
    api = HfApi(token=token)
    for attempt in range(1, attempts + 1):
        try:
            api.create_repo(repo_id, private=private, exist_ok=True)
            return api.upload_folder(
                repo_id=repo_id,
                folder_path=path,
                allow_patterns=sent,
                commit_message=commit_message,
            )
        except (HTTP_ERROR, OSError) as error:
            if attempt == attempts or not _is_transient(error):
                raise
            push_logger.warning(f"The upload was interrupted ({error}); attempt {attempt + 1} of {attempts} follows.")
            time.sleep(wait * 2 ** (attempt - 1))
    raise AssertionError("the last attempt returns or raises")


def _is_transient(error: Exception) -> bool:
    """Whether trying again may help."""
    response: Any = getattr(error, "response", None)
    return response is None or response.status_code in TRANSIENT_STATUS
