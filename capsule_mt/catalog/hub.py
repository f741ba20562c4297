"""Models of the Hugging Face hub, such as Helsinki-NLP/opus-mt-de-en: their files by plain HTTP."""

import json
import os
import re
import urllib.parse
from typing import Any

from capsule_mt.catalog.entries import HUB, CatalogError, DownloadError, Entry, RemoteFile, safe_name

SITE = "https://huggingface.co"
OPUS = "Helsinki-NLP"
NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")
# opus-mt-en-de, opus-mt-tc-big-en-pt
LANGUAGES = re.compile(r"[-_](?P<source>[A-Za-z]{2,3})[-_](?P<target>[A-Za-z]{2,3})$")
WANTED = re.compile(
    r"config\.json|generation_config\.json|model(-\d+-of-\d+)?\.safetensors(\.index\.json)?|int8\.(safetensors|json)"
    r"|shortlist\.safetensors|(target_)?tokenizer\.json|tokenizer_config\.json|(target_)?vocab\.json|(source|target)\.spm"
)
WEIGHTS = re.compile(r"(model.*|int8)\.safetensors")


def site() -> str:
    return (os.environ.get(HUB) or SITE).rstrip("/")


def entry_of(name: str) -> Entry:
    """Return what the hub has under a name such as "Helsinki-NLP/opus-mt-de-en"."""
    quoted = urllib.parse.quote(name)
    facts = _get(f"/api/models/{quoted}", name)
    revision = facts.get("sha")
    if facts.get("gated") or facts.get("private"):
        raise CatalogError(f"{name}: asks for an account; download it with huggingface_hub and name its folder")
    if not isinstance(revision, str) or not re.fullmatch(r"[0-9a-f]{7,64}", revision):
        raise CatalogError(f"{name}: the hub names no revision of it")
    listed = _get(f"/api/models/{quoted}/tree/{revision}", name)
    if not isinstance(listed, list):
        raise CatalogError(f"{name}: the hub lists no files of it")
    _check_family(name, _get(f"/{quoted}/resolve/{revision}/config.json", name))
    files = [_file(name, revision, one) for one in listed if _is_wanted(one)]
    if not any(WEIGHTS.fullmatch(file.name) for file in files):
        pickled = any(one.get("path") == "pytorch_model.bin" for one in listed if isinstance(one, dict))
        how = (
            ", only pytorch_model.bin, which needs torch: where transformers is, save model and tokenizer with "
            f"`AutoModelForSeq2SeqLM.from_pretrained({name!r}).save_pretrained(FOLDER)` and name the folder"
        )
        raise CatalogError(f"{name}: has no model.safetensors{how if pickled else ''}")
    card = facts.get("cardData")
    licence = card.get("license") if isinstance(card, dict) else None
    languages = LANGUAGES.search(name)
    return Entry(
        name,
        languages["source"].lower() if languages else "",
        languages["target"].lower() if languages else "",
        licence if isinstance(licence, str) else "unknown",
        name.partition("/")[0],
        f"{site()}/{name}",
        tuple(files),
        revision=revision,
    )


def search_hub(query: str) -> list[Entry]:
    """Return OPUS-MT models whose names have all words of a query, without their files."""
    asked = urllib.parse.urlencode({"author": OPUS, "search": query, "limit": 20})
    found = []
    for one in _get(f"/api/models?{asked}", f"{OPUS}, {query!r}"):
        name, tags = (one.get("id"), one.get("tags")) if isinstance(one, dict) else (None, None)
        if not isinstance(name, str) or not NAME.fullmatch(name):
            continue
        licences = [tag.removeprefix("license:") for tag in tags or () if str(tag).startswith("license:")]
        languages = LANGUAGES.search(name)
        pair = (languages["source"], languages["target"]) if languages else ("", "")
        found.append(Entry(name, *pair, (licences or ["unknown"])[0], OPUS, f"{site()}/{name}", ()))
    return found


def _check_family(name: str, config: Any) -> None:
    """Refuse what the engine does not take before its weights are downloaded."""
    from capsule_mt.models.registry import WRITERS

    family = config.get("model_type") if isinstance(config, dict) else None
    if family not in WRITERS:
        known = ", ".join(WRITERS)
        raise CatalogError(
            f"{name}: is a model of type {family!r}, and the engine takes {known}; others need transformers"
        )


def _is_wanted(one: Any) -> bool:
    is_file = isinstance(one, dict) and one.get("type") == "file" and isinstance(one.get("path"), str)
    return is_file and WANTED.fullmatch(one["path"]) is not None


def _file(name: str, revision: str, facts: dict[str, Any]) -> RemoteFile:
    large = facts["lfs"] if isinstance(facts.get("lfs"), dict) else None
    size, digest = facts.get("size"), (large or {}).get("oid")
    return RemoteFile(
        f"{site()}/{urllib.parse.quote(name)}/resolve/{revision}/{facts['path']}",
        safe_name(facts["path"], name),
        size if type(size) is int else None,
        digest if isinstance(digest, str) else None,
        None if large or not isinstance(facts.get("oid"), str) else facts["oid"],
    )


def _get(path: str, name: str) -> Any:
    from capsule_mt.catalog.download import read_url

    try:
        return json.loads(read_url(site() + path))
    except DownloadError as error:
        if error.status in (401, 404):  # the hub hides what is not public
            raise CatalogError(f"{name}: no such folder, and {site()} has no public model of this name") from None
        raise
    except (ValueError, RecursionError) as error:
        if isinstance(error, CatalogError):
            raise
        raise CatalogError(f"{site() + path}: is no JSON ({error})") from None
