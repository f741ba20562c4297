"""Arguments and memory settings that these commands and `lab` share; see also `capsule_mt.commands.console`."""

import argparse
import ctypes
import functools
import os
import sys
from pathlib import Path

from capsule_mt.commands.console import checkpoint_folder

KEEP_EVERYTHING = {-3: 2**30, -1: 2**31 - 1}  # M_MMAP_THRESHOLD and M_TRIM_THRESHOLD of malloc.h, in bytes


def keep_freed_memory() -> bool:
    """Let glibc keep freed memory for the next tensors; return whether it does.

    A training step frees what the next one allocates. glibc returns large blocks to the system and pays a page fault
    for each page of the next allocation.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # macOS, musl; Windows
        return False
    return all(mallopt(option, value) for option, value in KEEP_EVERYTHING.items())


def checkpoint(text: str) -> str:
    """An `argparse` type: a folder with a saved model, or a name on the hub."""
    if Path(text).exists():
        return str(checkpoint_folder(text))
    from capsule_mt.catalog.entries import HUB_OFFLINE, no_such_folder
    from capsule_mt.catalog.hub import NAME

    if NAME.fullmatch(text) is None:
        raise argparse.ArgumentTypeError(f"{no_such_folder(text)}, and not a name on the hub (owner/name)")
    reason = why_offline()
    if reason is not None:  # set before huggingface_hub is imported, which would try each file for half a minute
        os.environ[HUB_OFFLINE] = "1"
        if not _is_cached(text):
            raise argparse.ArgumentTypeError(f"{no_such_folder(text)}, and not in the cache of the hub; {reason}")
    from hf_capsule_mt.loading import check_name_or_path  # late: importing it takes seconds

    try:
        check_name_or_path(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    where = "looked for on the hub" if reason is None else "read from the cache of the hub"
    print(f"{no_such_folder(text)}, {where}", file=sys.stderr)
    return text


@functools.cache  # asked once, and before `checkpoint` sets the variable
def why_offline() -> str | None:
    """Return why models can only be loaded from the cache of the hub; `None` if the hub answers."""
    from capsule_mt.catalog.entries import HUB_OFFLINE, OFFLINE, is_offline
    from capsule_mt.catalog.hub import connection_error

    return f"{OFFLINE} or {HUB_OFFLINE} forbids downloading it" if is_offline() else connection_error()


def _is_cached(name: str) -> bool:
    """Return whether the cache of the hub has a model of this name, or an adapter."""
    from huggingface_hub import try_to_load_from_cache

    from capsule_mt.models.loading import ADAPTER_CONFIG, CONFIG_FILE

    return any(isinstance(try_to_load_from_cache(name, file), str) for file in (CONFIG_FILE, ADAPTER_CONFIG))
