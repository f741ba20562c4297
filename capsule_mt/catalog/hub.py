"""Models of the Hugging Face hub, such as Helsinki-NLP/opus-mt-de-en: their files by plain HTTP."""

import os
import re
import urllib.parse
from typing import Any

from capsule_mt.catalog.entries import HUB, CatalogError, DownloadError, Entry, RemoteFile, languages_in, safe_name

SITE = "https://huggingface.co"
OPUS = "Helsinki-NLP"
NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")
WANTED = re.compile(
    r"config\.json|generation_config\.json|model(-\d+-of-\d+)?\.safetensors(\.index\.json)?|int8\.(safetensors|json)"
    r"|shortlist\.safetensors|(target_)?tokenizer\.json|tokenizer_config\.json|(target_)?vocab\.json|(source|target)\.spm"
)
WEIGHTS_FILE, PICKLED = "model.safetensors", "pytorch_model.bin"
CONVERTER, CONVERSION = "SFconvertbot", "Adding `safetensors` variant of this model"
WEIGHTS = re.compile(r"(model.*|int8)\.safetensors")


def site() -> str:
    return (os.environ.get(HUB) or SITE).rstrip("/")


def entry_of(name: str) -> Entry:
    """Return what the hub has under a name such as "Helsinki-NLP/opus-mt-de-en"."""
    revision, facts = _revision(name)
    if facts.get("gated") or facts.get("private"):
        raise CatalogError(f"{name}: asks for an account; download it with huggingface_hub and name its folder")
    _check_family(name, _get(f"/{urllib.parse.quote(name)}/resolve/{revision}/config.json", name))
    listed = _listed(name, revision)
    files = [_file(name, revision, one) for path, one in listed.items() if WANTED.fullmatch(path)]
    if not any(map(WEIGHTS.fullmatch, listed)):
        files += _converted(name, listed)
    card = facts.get("cardData")
    licence = card.get("license") if isinstance(card, dict) else None
    return Entry(
        name,
        *(languages_in(name) or ("", "")),
        licence if isinstance(licence, str) else "unknown",
        name.partition("/")[0],
        f"{site()}/{name}",
        tuple(files),
        revision=revision,
    )


def _converted(name: str, listed: dict[str, dict[str, Any]]) -> list[RemoteFile]:
    """Return the weights that the hub's own converter has made of pytorch_model.bin and put into a pull request.

    transformers takes them, too. Nobody else's pull requests count, nor those for another pytorch_model.bin.
    """
    if PICKLED not in listed:
        raise CatalogError(f"{name}: has no model.safetensors")
    query = urllib.parse.urlencode({"type": "pull_request", "status": "open", "author": CONVERTER, "p": 0})
    found = _get(f"/api/models/{urllib.parse.quote(name)}/discussions?{query}", name)
    for one in found.get("discussions") or () if isinstance(found, dict) else ():
        author, number = one.get("author"), one.get("num")
        is_by_converter = isinstance(author, dict) and author.get("name") == CONVERTER and type(number) is int
        if is_by_converter and one.get("title") == CONVERSION:
            revision, _ = _revision(name, f"refs/pr/{number}")
            theirs = _listed(name, revision)
            same = [files.get(PICKLED, {}).get("lfs") for files in (listed, theirs)]
            if same[0] and same[0] == same[1] and WEIGHTS_FILE in theirs:
                return [_file(name, revision, theirs[WEIGHTS_FILE])]
    raise CatalogError(
        f"{name}: has no model.safetensors, only {PICKLED}, which needs torch: where transformers is, save model and "
        f"tokenizer with `AutoModelForSeq2SeqLM.from_pretrained({name!r}).save_pretrained(FOLDER)` and name the folder"
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
        pair = languages_in(name) or ("", "")
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


def _revision(name: str, reference: str = "main") -> tuple[str, dict[str, Any]]:
    """Return the commit that a branch or a pull request of a model is at, and what the hub says of it."""
    facts = _get(f"/api/models/{urllib.parse.quote(name)}/revision/{urllib.parse.quote(reference, safe='')}", name)
    revision = facts.get("sha") if isinstance(facts, dict) else None
    if not isinstance(revision, str) or not re.fullmatch(r"[0-9a-f]{7,64}", revision):
        raise CatalogError(f"{name}: the hub names no revision of it")
    return revision, facts


def _listed(name: str, revision: str) -> dict[str, dict[str, Any]]:
    """Return what the hub says of each file at a commit."""
    listed = _get(f"/api/models/{urllib.parse.quote(name)}/tree/{revision}", name)
    files = (one for one in listed if isinstance(one, dict)) if isinstance(listed, list) else ()
    return {one["path"]: one for one in files if one.get("type") == "file" and isinstance(one.get("path"), str)}


def _file(name: str, revision: str, facts: dict[str, Any]) -> RemoteFile:
    large = facts["lfs"] if isinstance(facts.get("lfs"), dict) else None
    size, digest = facts.get("size"), (large or {}).get("oid")
    return RemoteFile(
        f"{site()}/{urllib.parse.quote(name)}/resolve/{revision}/{facts['path']}",
        safe_name(facts["path"], name),
        size if type(size) is int else None,
        digest if isinstance(digest, str) else None,
    )


def _get(path: str, name: str) -> Any:
    from capsule_mt.catalog.download import read_json

    try:
        return read_json(site() + path)
    except DownloadError as error:
        if error.status in (401, 404):  # the hub hides what is not public
            raise CatalogError(f"{name}: no such folder, and {site()} has no public model of this name") from None
        raise
