"""Hostile folders of models: one file is a pipe, a device, a link, or another kind of content."""

import os
import random
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from capsule_mt.engine.program import UnsupportedModelError
from capsule_mt.models.loading import load_model
from capsule_mt.models.weights import CheckpointError

Case = dict[str, Any]
Damage = Callable[[Path], object]


def _link_to(target: str) -> Damage:
    return lambda file: file.symlink_to(target)


def _content(content: bytes) -> Damage:
    return lambda file: file.write_bytes(content)


def _link_to_pipe_beside(file: Path) -> None:
    os.mkfifo(file.with_name("pipe"))
    file.symlink_to("pipe")


def _link_through_linked_folder(file: Path) -> None:
    file.with_name("elsewhere").symlink_to("/etc")
    file.symlink_to("elsewhere/passwd")


def _sparse(file: Path) -> None:
    file.write_bytes(b"{}")
    os.truncate(file, 1 << 36)


# each makes the file, which was removed
REPLACED: dict[str, Damage] = {
    "pipe": lambda file: os.mkfifo(file),
    "folder": Path.mkdir,
    "sparse": _sparse,
    "link to a pipe beside it": _link_to_pipe_beside,
    "link through a linked folder": _link_through_linked_folder,
    **{
        f"link to {target}": _link_to(target)
        for target in (
            "/dev/zero",
            "/dev/stdin",
            "/etc/passwd",
            "../../../../etc/hostname",
            "/proc/self/mem",
            "nothing",
        )
    },
    "empty": _content(b""),
    "brackets": _content(b"[" * 200_000),
    "objects": _content(b'{"a":' * 100_000 + b"1" + b"}" * 100_000),
    "lists": _content(b"- " * 100_000),
    "number": _content(b'{"vocab_size": ' + b"9" * 100_000 + b"}"),
    "page": _content(b"<!DOCTYPE html><title>404 Not Found</title>"),
    "pointer": _content(b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"a" * 64 + b"\nsize 5\n"),
}
# each makes the content from that of the file
CHANGED: dict[str, Callable[[bytes], bytes]] = {
    "half": lambda content: content[: len(content) // 2],
    "twice": lambda content: content * 2,
    "mark": lambda content: b"\xef\xbb\xbf" + content,
    "UTF-16": lambda content: content.decode("utf-8", "replace").encode("utf-16"),
    "packed": lambda content: b"\x1f\x8b\x08" + content,
    "zeros": lambda content: bytes(len(content)),
    "ones": lambda content: b"\xff" * len(content),
}


def sound_folder(kind: str) -> Path:
    from tests.fuzz import cases  # late: it lists the targets of this file

    return cases.sound_folder(kind)


def make_folder(generator: random.Random) -> Case:
    from tests.fuzz.cases import KINDS

    kind = generator.choice(KINDS)
    name = generator.choice(sorted(file.name for file in sound_folder(kind).iterdir()))
    return {"kind": kind, "file": name, "damage": generator.choice([*REPLACED, *CHANGED])}


def check_folder(case: Case) -> None:
    """The model loads, or one sentence names the folder; nothing waits for a pipe or reads a device."""
    with tempfile.TemporaryDirectory() as parent:
        folder = Path(shutil.copytree(sound_folder(case["kind"]), Path(parent) / "model"))
        file = folder / case["file"]
        content = file.read_bytes()
        file.unlink()
        if case["damage"] in CHANGED:
            file.write_bytes(CHANGED[case["damage"]](content))
        else:
            REPLACED[case["damage"]](file)
        try:
            load_model(folder, shortlist=case["file"].startswith(("lex", "shortlist")))
        except (CheckpointError, UnsupportedModelError) as error:
            message = str(error)
        else:
            return
    assert str(folder) in message, message
    assert len(message) < 600, message
