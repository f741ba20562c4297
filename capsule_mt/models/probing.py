"""Load the models of strangers in a process of its own first: of downloads, of archives, and all models of a server.

This process loads a model once that process has loaded the same files within its limits of time and memory: a damaged
file ends or blocks only that one.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:  # late: most commands load a model that is the user's own
    from capsule_mt.models.probe import ProbeProcess

# the names, devices, numbers, sizes and times of files, which say that they have not changed
Identity: TypeAlias = tuple[tuple[str, int, int, int, int, int], ...]

MAX_SIZE = 64 << 30  # bytes: a larger model does not get more time and memory

_is_required = False
_loaded: set[tuple[Identity, bool, str]] = set()  # what a process has loaded, with which options
_running: "set[ProbeProcess]" = set()
_lock = Lock()  # of `_running`, over which one thread loops while another one changes it


@contextmanager
def probing_every_model() -> Iterator[None]:
    """In the block, `probe_if_required` probes, as a server needs it; its end stops the running processes."""
    global _is_required
    _is_required = True
    try:
        yield
    finally:
        _is_required = False
        with _lock:
            for process in _running:
                process.stop()


def probe_if_required(folder: str, *, int8: bool, shortlist: bool | str | os.PathLike[str] | None) -> None:
    """Probe a model if this process serves."""
    if _is_required:
        probe(folder, int8=int8, shortlist=shortlist)


def probe(folder: str, *, int8: bool = False, shortlist: bool | str | os.PathLike[str] | None = None) -> None:
    """Load a model as `load_model` does, in a process of its own, unless it did so before, alike.

    Args:
        shortlist: `None` for the one beside the model, if there is one.

    Raises:
        CheckpointError: the process has reached a limit or has crashed, or the files have changed meanwhile.
    """
    from capsule_mt.models.opening import CheckpointError
    from capsule_mt.models.probe import ProbeProcess

    identity = identity_of(folder)
    key = identity, int8, str(shortlist)
    if key in _loaded:
        return
    with ProbeProcess(size_of(folder)) as process:
        with _lock:
            _running.add(process)
        try:
            shortlist = os.fspath(shortlist) if isinstance(shortlist, os.PathLike) else shortlist
            process.load(folder, int8=int8, shortlist=shortlist)
        finally:
            with _lock:
                _running.discard(process)
    if identity_of(folder) != identity:
        raise CheckpointError(f"{folder}: has changed while it was read: load it again")
    _loaded.add(key)


def identity_of(folder: str) -> Identity:
    """Return what says that the files of a folder have not changed; empty for what is not a folder."""
    if not os.path.isdir(folder):
        return ()
    identity = []
    for name in _files_of(folder):
        file = os.path.join(folder, name)
        status = os.stat(file, follow_symlinks=os.path.exists(file))
        numbers = status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
        identity.append((name, *numbers))
    return tuple(identity)


def _files_of(folder: str) -> list[str]:
    """Return the paths in a folder that a model may have: of its files, and those in a package of Argos Translate."""
    names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
    inner = os.path.join(folder, "model")
    if "metadata.json" in names and os.path.isdir(inner):
        names += [os.path.join("model", name) for name in sorted(os.listdir(inner))]
    return names


def size_of(folder: str) -> int:
    """Return the bytes that the files of a folder have on the disk, without holes; at most `MAX_SIZE`."""
    total = 0
    for name in _files_of(folder):
        file = os.path.join(folder, name)
        if os.path.isfile(file):
            status = os.stat(file)
            on_disk = 512 * getattr(status, "st_blocks", MAX_SIZE)  # Windows does not count blocks
            total += min(status.st_size, on_disk)
    return min(total, MAX_SIZE)
