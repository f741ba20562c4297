"""Models of the Hugging Face hub, such as Helsinki-NLP/opus-mt-de-en, read without huggingface_hub."""

import http.client
import json
import os
import re
import ssl
import urllib.error
import urllib.parse
import urllib.request
from typing import Any

from capsule_mt.catalog.entries import (
    HUB,
    CatalogEntry,
    CatalogError,
    DownloadError,
    RemoteFile,
    languages_in,
    no_such_folder,
    safe_name,
)
from capsule_mt.messages import shown

SITE = "https://huggingface.co"
OPUS = "Helsinki-NLP"
NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")
URL = re.compile(rf"(?:https?:/{{1,2}})?(?:huggingface|hf)\.co/(?P<name>{NAME.pattern})(?:[/?#].*)?")
MODEL_FILES = re.compile(
    r"config\.json|generation_config\.json|model(-\d+-of-\d+)?\.safetensors(\.index\.json)?|int8\.(safetensors|json)"
    r"|shortlist\.safetensors|(target_)?tokenizer\.json|tokenizer_config\.json|(target_)?vocab\.json|(source|target)\.spm"
    r"|pieces\.json|sentencepiece\.bpe\.model"
)
PICKLED_FILES = re.compile(r"pytorch_model(-\d+-of-\d+)?\.bin(\.index\.json)?")
WEIGHTS_FILE, PICKLED = "model.safetensors", "pytorch_model.bin"
CONVERTER, CONVERSION = "SFconvertbot", "Adding `safetensors` variant of this model"
WEIGHTS = re.compile(r"(model.*|int8)\.safetensors")
PROBE_TIMEOUT = 10.0  # seconds


def site() -> str:
    return (os.environ.get(HUB) or SITE).rstrip("/")


def connection_error() -> str | None:
    """Return why the hub cannot be reached; `None` if it answers anything.

    `None` also if this Python does not trust its certificate: huggingface_hub brings certificates of its own.
    """
    try:
        urllib.request.urlopen(urllib.request.Request(site(), method="HEAD"), timeout=PROBE_TIMEOUT).close()
    except urllib.error.HTTPError:
        return None
    except OSError as error:
        reason = getattr(error, "reason", error)
        return None if isinstance(reason, ssl.SSLError) else f"{site()} cannot be reached ({reason})"
    except (ValueError, http.client.HTTPException) as error:
        return f"{HUB} {site()!r} is no address that can be asked ({error})"
    return None


def entry_of(name: str) -> CatalogEntry:
    """Return the entry of a model on the hub, such as "Helsinki-NLP/opus-mt-de-en"."""
    revision, facts = _revision(name)
    if facts.get("gated") or facts.get("private"):
        raise CatalogError(f"{name}: requires an account; download it with huggingface_hub and name its folder")
    _check_family(name, _get(f"/{urllib.parse.quote(name)}/resolve/{revision}/config.json", name))
    listing = _file_listing(name, revision)
    files = [_file(name, revision, file_facts) for path, file_facts in listing.items() if MODEL_FILES.fullmatch(path)]
    if not any(map(WEIGHTS.fullmatch, listing)):
        files += _converted_weights(name, listing) or _pickled_weights(name, revision, listing)
    card = facts.get("cardData")
    licence = card.get("license") if isinstance(card, dict) else None
    return CatalogEntry(
        name,
        *(languages_in(name) or ("", "")),
        licence if isinstance(licence, str) else "unknown",
        name.partition("/")[0],
        f"{site()}/{name}",
        tuple(files),
        texts=_pooling(name, revision, listing),
        revision=revision,
    )


def _pooling(name: str, revision: str, listing: dict[str, dict[str, Any]]) -> dict[str, str]:
    """Return how a model of sentence-transformers makes a vector of its tokens, as a file beside the others."""
    from capsule_mt.models.encoder_loading import POOLING_FILES

    if "modules.json" not in listing:
        return {}
    path, flat_name = POOLING_FILES
    pooling = _get(f"/{urllib.parse.quote(name)}/resolve/{revision}/{path}", name)
    return {flat_name: json.dumps(pooling)} if isinstance(pooling, dict) else {}


def _converted_weights(name: str, listing: dict[str, dict[str, Any]]) -> list[RemoteFile]:
    """Return the safetensors that the hub's converter made from pytorch_model.bin, if they are in its pull request.

    transformers loads them, too. Ignored are pull requests by others, and one that converts another pytorch_model.bin.
    """
    if PICKLED not in listing:
        return []
    query = urllib.parse.urlencode({"type": "pull_request", "status": "open", "author": CONVERTER, "p": 0})
    answer = _get(f"/api/models/{urllib.parse.quote(name)}/discussions?{query}", name)
    for discussion in answer.get("discussions") or () if isinstance(answer, dict) else ():
        author, number = discussion.get("author"), discussion.get("num")
        is_by_converter = isinstance(author, dict) and author.get("name") == CONVERTER and type(number) is int
        if is_by_converter and discussion.get("title") == CONVERSION:
            revision, _ = _revision(name, f"refs/pr/{number}")
            converted = _file_listing(name, revision)
            digests = [files.get(PICKLED, {}).get("lfs") for files in (listing, converted)]
            if digests[0] and digests[0] == digests[1] and WEIGHTS_FILE in converted:
                return [_file(name, revision, converted[WEIGHTS_FILE])]
    return []


def _pickled_weights(name: str, revision: str, listing: dict[str, dict[str, Any]]) -> list[RemoteFile]:
    files = [_file(name, revision, facts) for path, facts in listing.items() if PICKLED_FILES.fullmatch(path)]
    if not files:
        raise CatalogError(f"{name}: has neither {WEIGHTS_FILE} nor {PICKLED}")
    return files


def search_hub(query: str) -> list[CatalogEntry]:
    """Return the entries, without files, of at most 20 OPUS-MT models that the hub finds by a query."""
    parameters = urllib.parse.urlencode({"author": OPUS, "search": query, "limit": 20})
    entries = []
    for facts in _get(f"/api/models?{parameters}", f"{OPUS}, {query!r}"):
        name, tags = (facts.get("id"), facts.get("tags")) if isinstance(facts, dict) else (None, None)
        if not isinstance(name, str) or not NAME.fullmatch(name):
            continue
        licences = [tag.removeprefix("license:") for tag in tags or () if str(tag).startswith("license:")]
        pair = languages_in(name) or ("", "")
        entries.append(CatalogEntry(name, *pair, (licences or ["unknown"])[0], OPUS, f"{site()}/{name}", ()))
    return entries


def _check_family(name: str, config: Any) -> None:
    """Refuse a model that the engine cannot run, before its weights are downloaded."""
    from capsule_mt.models.registry import ENCODERS, WRITERS

    family = config.get("model_type") if isinstance(config, dict) else None
    if family not in [*WRITERS, *ENCODERS]:
        supported = ", ".join([*WRITERS, *ENCODERS])
        raise CatalogError(
            f"{name}: its model_type is {shown(family)}, and the engine runs {supported}; other models need "
            "transformers"
        )


def _revision(name: str, reference: str = "main") -> tuple[str, dict[str, Any]]:
    """Return the commit of a model's branch or pull request, and the hub's facts about it."""
    facts = _get(f"/api/models/{urllib.parse.quote(name)}/revision/{urllib.parse.quote(reference, safe='')}", name)
    revision = facts.get("sha") if isinstance(facts, dict) else None
    if not isinstance(revision, str) or not re.fullmatch(r"[0-9a-f]{7,64}", revision):
        raise CatalogError(f"{name}: the hub does not give a commit for it")
    return revision, facts


def _file_listing(name: str, revision: str) -> dict[str, dict[str, Any]]:
    """Return the hub's facts about each file at a commit, by path."""
    tree = _get(f"/api/models/{urllib.parse.quote(name)}/tree/{revision}", name)
    items = (item for item in tree if isinstance(item, dict)) if isinstance(tree, list) else ()
    return {item["path"]: item for item in items if item.get("type") == "file" and isinstance(item.get("path"), str)}


def _file(name: str, revision: str, facts: dict[str, Any]) -> RemoteFile:
    large_file = facts["lfs"] if isinstance(facts.get("lfs"), dict) else None
    size, digest = facts.get("size"), (large_file or {}).get("oid")
    return RemoteFile(
        f"{site()}/{urllib.parse.quote(name)}/resolve/{revision}/{facts['path']}",
        safe_name(facts["path"], name),
        size if type(size) is int and 0 <= size < 2**63 else None,
        digest if isinstance(digest, str) else None,
    )


def _get(path: str, name: str) -> Any:
    from capsule_mt.catalog.download import read_json

    try:
        return read_json(site() + path)
    except DownloadError as error:
        if error.status in (401, 404):  # 401: the hub does not tell a private model from a missing one
            message = f"{no_such_folder(name)}, and {site()} has no public model of this name"
            raise CatalogError(message) from None
        if error.status is None:
            raise DownloadError(f"{no_such_folder(name)}; {error}") from None
        raise
