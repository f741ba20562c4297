"""Mozilla's registry of Firefox Translations models: one JSON file of all, whose files are packed with gzip.

    {"baseUrl": "https://...", "models": {"en-pt": [{"architecture": "base-memory", "releaseStatus": "Release",
     "files": {"model": {"path": ..., "uncompressedSize": ..., "uncompressedHash": ...}, "vocab": {"path": ...},
               "lexicalShortlist": {"path": ...}}, "metrics": {"flores200-plus": {"bleu": ...}}}]}}

Models with a vocabulary for each language have `srcVocab` and `trgVocab` instead of `vocab`.
"""

import json
import os
import time
import urllib.parse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from capsule_mt.catalog.entries import (
    REGISTRY,
    CatalogError,
    DownloadError,
    Entry,
    RemoteFile,
    cache_folder,
    is_offline,
    pair_named,
    safe_name,
)
from capsule_mt.files.outputs import read_object, write_output

BUCKET = "https://storage.googleapis.com/moz-fx-translations-data--303e-prod-translations-data"
PLACE = "/db/models.json"
FRESH_SECONDS = 24 * 3600
# the best first: Firefox for desktops, and then for small devices
STATUSES = ("Release", "Release Desktop", "Release Android")
SIZES = ("base-memory", "base", "tiny")
FILES = ("model", "vocab", "srcVocab", "trgVocab", "lexicalShortlist")
LICENCE, AUTHOR = "MPL-2.0", "Mozilla (Firefox Translations)"
PAGE = "https://github.com/mozilla/translations"
CONFIG = """\
# how Marian's own decoders run this model
relative-paths: true
beam-size: 1
normalize: 1.0
word-penalty: 0
max-length-factor: 2.5
gemm-precision: int8shiftAlphaAll
"""


def registry_url() -> str:
    return os.environ.get(REGISTRY) or BUCKET + PLACE


def read_registry() -> list[Entry]:
    """Return the models of the registry, the best of each pair first.

    A copy of it is kept for a day, and for as long as there is no network.
    """
    from capsule_mt.catalog.download import read_json  # late: what is downloaded needs no HTTP

    url, file = registry_url(), cache_folder() / "mozilla" / "models.json"
    kept = _kept(file, url)
    if kept is None or not (is_offline() or time.time() - file.stat().st_mtime < FRESH_SECONDS):
        try:
            registry = read_json(url)
        except (CatalogError, DownloadError):
            if kept is None:
                raise
        else:
            entries = entries_of(registry, url)
            file.parent.mkdir(parents=True, exist_ok=True)
            write_output(file, json.dumps({"url": url, "registry": registry}))
            return entries
    return entries_of(kept, url)


def _kept(file: Path, url: str) -> Any:
    """Return the copy of the registry at a URL, if there is one."""
    found = read_object(file) or {}
    return found.get("registry") if found.get("url") == url else None


def entries_of(registry: Any, url: str) -> list[Entry]:
    """Return what a registry says that was read from a URL."""
    models, base = (registry.get(name) if isinstance(registry, dict) else None for name in ("models", "baseUrl"))
    if not isinstance(models, dict) or not isinstance(base, str):
        raise CatalogError(f"{url}: is no registry of models: it needs `baseUrl` and `models`")
    if base.rstrip("/") == BUCKET and url.endswith(PLACE):  # a mirror has the files beside the registry
        base = url.removesuffix(PLACE)
    if urllib.parse.urlsplit(base).scheme not in ("https", urllib.parse.urlsplit(url).scheme):
        raise CatalogError(f"{url}: `baseUrl` must begin with https://, got {base!r}")
    found: list[Entry] = []
    for pair, versions in models.items():
        given = pair_named(pair)
        usable = [one for one in versions if _is_usable(one)] if isinstance(versions, list) else []
        if given is None or given["size"]:
            continue
        usable.sort(key=lambda one: (_place(STATUSES, one.get("releaseStatus")), _place(SIZES, one["architecture"])))
        for number, one in enumerate(usable):
            name = pair if number == 0 else f"{pair}:{one['architecture']}"
            found.append(_entry(name, given["source"], given["target"], one, base, url))
    return found


def _is_usable(version: Any) -> bool:
    files = version.get("files") if isinstance(version, dict) else None
    if not isinstance(files, dict) or not isinstance(version.get("architecture"), str):
        return False
    paths = {name for name in FILES if isinstance(files.get(name), dict) and isinstance(files[name].get("path"), str)}
    return "model" in paths and ("vocab" in paths or {"srcVocab", "trgVocab"} <= paths)


def _entry(name: str, source: str, target: str, version: Mapping[str, Any], base: str, url: str) -> Entry:
    files, named = [], {}
    for kind in FILES:
        facts = version["files"].get(kind)
        if not isinstance(facts, dict):
            continue
        path, size, digest = facts["path"], facts.get("uncompressedSize"), facts.get("uncompressedHash")
        named[kind] = safe_name(path.removesuffix(".gz"), url)
        files.append(
            RemoteFile(
                f"{base.rstrip('/')}/{urllib.parse.quote(path)}",
                named[kind],
                size if type(size) is int else None,
                digest if isinstance(digest, str) else None,
            )
        )
    if len(set(named.values())) != len(named):
        raise CatalogError(f"{url}: two files of {name} have one name")
    source_file, target_file = (named.get(kind, named.get("vocab", "")) for kind in ("srcVocab", "trgVocab"))
    config = f"{CONFIG}models: [{named['model']}]\nvocabs: [{source_file}, {target_file}]\n"
    if "lexicalShortlist" in named:
        config += f"shortlist: [{named['lexicalShortlist']}, false]\n"
    return Entry(name, source, target, LICENCE, AUTHOR, PAGE, tuple(files), {"config.intgemm8bitalpha.yml": config})


def _place(order: tuple[str, ...], value: object) -> int:
    return order.index(value) if value in order else len(order)
