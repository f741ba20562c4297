"""Digests of a run's inputs: while they are equal, an interrupted run may resume."""

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path

BLOCK = 1 << 20
# the files of a checkpoint that translations depend on
NAMES = (
    *("config.json", "generation_config.json", "special_tokens_map.json", "added_tokens.json", "metadata.json"),
    *("coverage.json", "coverage_calibration.json"),
)
BEGINNINGS = ("tokenizer", "vocab", "merges", "source_", "target_", "shared_")
ENDINGS = (".safetensors", ".bin", ".npz", ".spm", ".model", ".yml")
# loading compares these with the checksum in the JSON file of the same name
CHECKED_FILES = ("int8.safetensors", "small.safetensors")


def file_digest(file: str | os.PathLike[str]) -> str:
    """Return the SHA-256 of a file."""
    with open(file, "rb", buffering=0) as stream:
        return digest_of(iter(lambda: stream.read(BLOCK), b""))


def digest_of(blocks: Iterable[bytes]) -> str:
    """Return the SHA-256 of bytes in blocks."""
    digest = hashlib.sha256()
    for block in blocks:
        digest.update(block)
    return digest.hexdigest()


def joined(texts: Iterable[str]) -> bytes:
    """Return texts as bytes, each with its length, so that other texts never give the same bytes."""
    return "".join(f"{len(text)}:{text}" for text in texts).encode("utf-8", "surrogatepass")


def checkpoint_digests(checkpoint: str | os.PathLike[str], revision: str | None = None) -> dict[str, str]:
    """Return the digests of a model's and its tokenizer's files; of a model on the hub, its revision."""
    folder = Path(checkpoint)
    if not folder.is_dir():
        return {"revision": revision or "unknown"}
    # of a package of Argos Translate
    inner = folder / "model" if (folder / "metadata.json").is_file() else folder / ""
    files = sorted({*folder.iterdir(), *(inner.iterdir() if inner.is_dir() else ())})
    return {
        file.relative_to(folder).as_posix(): file_digest(_checksum_file(file))
        for file in files
        if file.is_file() and (file.name in NAMES or file.suffix in ENDINGS or file.name.startswith(BEGINNINGS))
    }


def _checksum_file(file: Path) -> Path:
    """Return the short file with the checksum of `file`, if loading reads it; else `file`."""
    checksum_file = file.with_suffix(".json")
    return checksum_file if file.name in CHECKED_FILES and checksum_file.is_file() else file
