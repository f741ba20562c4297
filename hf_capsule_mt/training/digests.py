"""Digests: whether files, texts and tensors are still what they were."""

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path

BLOCK = 1 << 20


def file_digest(file: str | os.PathLike[str]) -> str:
    """Return the SHA-256 of a file."""
    with open(file, "rb", buffering=0) as stream:
        return digest_of(iter(lambda: stream.read(BLOCK), b""))


def digest_of(blocks: Iterable[bytes]) -> str:
    """Return the SHA-256 of bytes that come in blocks."""
    digest = hashlib.sha256()
    for block in blocks:
        digest.update(block)
    return digest.hexdigest()


def joined(texts: Iterable[str]) -> bytes:
    """Return texts as bytes that no other texts give."""
    return "".join(f"{len(text)}:{text}" for text in texts).encode("utf-8", "surrogatepass")


def checkpoint_digests(checkpoint: str, revision: str | None = None) -> dict[str, str]:
    """Return the digest of each file of a model and its tokenizer, or the revision of one on the hub."""
    folder = Path(checkpoint)
    if not folder.is_dir():
        return {"revision": revision or "unknown"}
    named = ("config.json", "generation_config.json", "special_tokens_map.json", "added_tokens.json")
    wanted = [
        file
        for file in sorted(folder.iterdir())
        if file.name in named
        or file.suffix in (".safetensors", ".bin", ".spm", ".model")
        or (file.name.startswith(("tokenizer", "vocab", "merges", "source_", "target_")) and file.is_file())
    ]
    return {file.name: file_digest(file) for file in wanted}
