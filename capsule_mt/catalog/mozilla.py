"""Mozilla's registry of Firefox Translations models: one JSON file that lists packed model files.

    {"baseUrl": "https://...", "models": {"en-pt": [{"architecture": "base-memory", "releaseStatus": "Release",
     "files": {"model": {"path": ..., "uncompressedSize": ..., "uncompressedHash": ...}, "vocab": {"path": ...},
               "lexicalShortlist": {"path": ...}}, "metrics": {"flores200-plus": {"bleu": ...}}}]}}

Models with one vocabulary a language have `srcVocab` and `trgVocab` instead of `vocab`.
"""

import json
import os
import re
import time
import urllib.parse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from capsule_mt.catalog.entries import (
    REGISTRY,
    CatalogEntry,
    CatalogError,
    DownloadError,
    RemoteFile,
    cache_folder,
    is_offline,
    pair_named,
    safe_name,
)
from capsule_mt.files.outputs import read_object, write_output
from capsule_mt.messages import shown

BUCKET = "https://storage.googleapis.com/moz-fx-translations-data--303e-prod-translations-data"
REGISTRY_PATH = "/db/models.json"
FRESH_SECONDS = 24 * 3600
# best first: for Firefox on desktops, then on small devices
STATUSES = ("Release", "Release Desktop", "Release Android")
SIZES = ("base-memory", "base", "tiny")
FILES = ("model", "vocab", "srcVocab", "trgVocab", "lexicalShortlist")
# the newest format that is read, as Firefox counts: 2 adds base models and a vocabulary a language, 3 packs by zstd
MAX_VERSION = 3
ZSTD = ".zst"
RELEASE_FIELDS = ("version", "architecture", "metrics")
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
    return os.environ.get(REGISTRY) or BUCKET + REGISTRY_PATH


def read_registry() -> list[CatalogEntry]:
    """Return the entries of the registry, the best of each pair first.

    A cached copy serves for a day, and longer while no newer one can be downloaded.
    """
    from capsule_mt.catalog.download import read_json  # late: downloaded models need no HTTP

    url, file = registry_url(), cache_folder() / "mozilla" / "models.json"
    cached = _cached_registry(file, url)
    if cached is None or not (is_offline() or time.time() - file.stat().st_mtime < FRESH_SECONDS):
        try:
            registry = read_json(url)
        except (CatalogError, DownloadError):
            if cached is None:
                raise
        else:
            entries = entries_of(registry, url)
            file.parent.mkdir(parents=True, exist_ok=True)
            write_output(file, json.dumps({"url": url, "registry": registry}))
            return entries
    return entries_of(cached, url)


def _cached_registry(file: Path, url: str) -> Any:
    """Return the cached copy of the registry at a URL, if `file` has one."""
    content = read_object(file) or {}
    return content.get("registry") if content.get("url") == url else None


def entries_of(registry: Any, url: str) -> list[CatalogEntry]:
    """Return the entries of a registry that was read from `url`."""
    models, base = (registry.get(name) if isinstance(registry, dict) else None for name in ("models", "baseUrl"))
    if not isinstance(models, dict) or not isinstance(base, str):
        raise CatalogError(f"{url}: is not a registry of models: it needs `baseUrl` and `models`")
    if base.rstrip("/") == BUCKET and url.endswith(REGISTRY_PATH):  # a mirror has the files beside the registry
        base = url.removesuffix(REGISTRY_PATH)
    if urllib.parse.urlsplit(base).scheme not in ("https", urllib.parse.urlsplit(url).scheme):
        raise CatalogError(f"{url}: `baseUrl` must begin with https://, got {shown(base)}")
    versions_of: dict[tuple[str, str], list[Any]] = {}  # en-pt has those of en-pt-BR, too: names ignore regions
    for pair_name, versions in models.items():
        pair = pair_named(pair_name)
        if pair is not None and not pair["size"] and isinstance(versions, list):
            versions_of.setdefault((pair["source"], pair["target"]), []).extend(filter(_is_usable, versions))
    entries: list[CatalogEntry] = []
    for (source, target), versions in versions_of.items():
        for index, version in enumerate(sorted(versions, key=_rank)):
            suffix = f":{version['architecture']}" if index else ""
            entries.append(_entry(f"{source}-{target}{suffix}", source, target, version, base, url))
    return entries


def _is_usable(version: Any) -> bool:
    files = version.get("files") if isinstance(version, dict) else None
    if not isinstance(files, dict) or not isinstance(version.get("architecture"), str):
        return False
    listed = {name: files[name] for name in FILES if isinstance(files.get(name), dict)}
    paths = {name for name, facts in listed.items() if isinstance(facts.get("path"), str)}
    return paths == set(listed) and "model" in paths and ("vocab" in paths or {"srcVocab", "trgVocab"} <= paths)


def _entry(name: str, source: str, target: str, version: Mapping[str, Any], base: str, url: str) -> CatalogEntry:
    files, names = [], {}
    for kind in FILES:
        facts = version["files"].get(kind)
        if not isinstance(facts, dict):
            continue
        path, size, digest = facts["path"], facts.get("uncompressedSize"), facts.get("uncompressedHash")
        names[kind] = safe_name(path.removesuffix(".gz"), url)
        files.append(
            RemoteFile(
                f"{base.rstrip('/')}/{urllib.parse.quote(path)}",
                names[kind],
                size if type(size) is int and 0 <= size < 2**63 else None,
                digest if isinstance(digest, str) else None,
            )
        )
    if len(set(names.values())) != len(names):
        raise CatalogError(f"{url}: two files of {name} have the same name")
    source_file, target_file = (names.get(kind, names.get("vocab", "")) for kind in ("srcVocab", "trgVocab"))
    config = f"{CONFIG}models: [{names['model']}]\nvocabs: [{source_file}, {target_file}]\n"
    if "lexicalShortlist" in names:
        config += f"shortlist: [{names['lexicalShortlist']}, false]\n"
    texts = {"config.intgemm8bitalpha.yml": config}
    return CatalogEntry(
        *(name, source, target, LICENCE, AUTHOR, PAGE, tuple(files), texts),
        problem=_problem(name, version, url),
        release={field: version[field] for field in RELEASE_FIELDS if field in version},
    )


def _problem(name: str, version: Mapping[str, Any], url: str) -> str:
    """Return why a version of a model cannot be read; an empty text if it can."""
    format_version = version.get("version")
    match = re.match(r"v?(\d{1,9})(?:\.|$)", format_version) if isinstance(format_version, str) else None
    if match and int(match[1]) > MAX_VERSION:
        return (
            f"{name}: its format has version {shown(format_version)} in {url}, newer than this program, which reads "
            f"versions up to {MAX_VERSION}: update capsule-mt"
        )
    paths = [version["files"][kind]["path"] for kind in FILES if isinstance(version["files"].get(kind), dict)]
    packed = [path for path in paths if path.endswith(ZSTD)]
    if packed:
        return (
            f"{name}: {shown(packed[0])} in {url} is packed by zstd, which is not unpacked here: download the files, "
            f"unpack them by `zstd -d *{ZSTD}`, and name their folder"
        )
    return ""


def _rank(version: Mapping[str, Any]) -> tuple[bool, int, int]:
    """Return a sorting key: `STATUSES` and `SIZES` in their order, then other values; unreadable versions last."""
    status, size = version.get("releaseStatus"), version["architecture"]
    return (
        bool(_problem("", version, "")),
        STATUSES.index(status) if status in STATUSES else len(STATUSES),
        SIZES.index(size) if size in SIZES else len(SIZES),
    )
