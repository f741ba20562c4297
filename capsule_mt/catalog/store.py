"""The cache of downloaded models, and how a model's name resolves to its folder."""

import difflib
import hashlib
import json
import os
import shutil
from collections.abc import Collection
from pathlib import Path
from typing import Any, NamedTuple

from capsule_mt.catalog import hub, mozilla
from capsule_mt.catalog.entries import (
    FACTS_FILE,
    HUB_OFFLINE,
    OFFLINE,
    PIVOT,
    CatalogEntry,
    CatalogError,
    cache_folder,
    is_archive,
    is_offline,
    languages_and_folder,
    no_such_folder,
    pair_named,
    without_regions,
)
from capsule_mt.files.outputs import MAX_SMALL_OBJECT, read_object

NOTICE_FILE = "NOTICE.txt"
PARTIAL = ".partial"  # ends the name of a folder whose download is not finished
VERSION_FILE = ".version"  # in a partial folder: a hash of the entry's files


class DownloadedModel(NamedTuple):
    """A model in the cache."""

    name: str
    folder: Path
    licence: str
    author: str
    size: int


def resolve(name_or_folder: str | os.PathLike[str]) -> str:
    """Return the folder of a model: a folder as it is, an archive unpacked, a name after downloading it if necessary.

    A name is a language pair of Mozilla's registry such as "en-pt", or a model of the Hugging Face hub such as
    "Helsinki-NLP/opus-mt-de-en" ("opus-mt-de-en" for short).
    """
    if is_archive(name_or_folder):
        from capsule_mt.catalog.archives import unpacked  # late: most models are not in one

        return os.fspath(unpacked(name_or_folder))
    if os.path.exists(name_or_folder):
        return os.fspath(name_or_folder)
    name = name_of(name_or_folder)
    return os.fspath(_folder_of(name) if _is_downloaded(name) else download_model(name))


def name_of(text: str | os.PathLike[str]) -> str:
    """Return a name in the catalogs' spelling; refuse anything else, above all a mistyped folder."""
    name = _name_of(text)
    if not _is_downloaded(name) and os.path.isdir(parent := os.path.dirname(text)):
        raise CatalogError(
            f"{no_such_folder(os.fspath(text))}; not looked up on the hub, as there is a folder {parent}"
        )
    return name


def legs_of(name_or_folder: str | os.PathLike[str]) -> tuple[str, ...]:
    """Return the chain of models that translates: one model, or two that pivot through English.

    A downloaded model of the pair is preferred, then, unless offline, the registry's, then two models.
    """
    if os.path.exists(name_or_folder):
        return (os.fspath(name_or_folder),)
    name = _name_of(name_or_folder)
    if pair_named(name) is None or _is_downloaded(name):
        return (name,)
    problem, registry_names = None, set[str]()
    try:
        registry_names = {entry.name for entry in mozilla.read_registry()}
    except (CatalogError, OSError) as error:
        problem = error
    legs, downloadable = _pivot_legs(name), set() if is_offline() else registry_names
    if legs and name not in downloadable and all(leg in downloadable or _is_downloaded(leg) for leg in legs):
        return legs
    if name in registry_names:
        return (name,)
    if is_offline():
        raise _offline_error(name)
    raise problem or CatalogError(_unknown_name(name, registry_names))


def model_folders(name_or_folder: str | os.PathLike[str]) -> list[str]:
    """Return the folders of a name's chain of models; download those that are missing."""
    return [resolve(leg) for leg in legs_of(name_or_folder)]


def model_folder(name_or_folder: str | os.PathLike[str], advice: str) -> str:
    """Return the folder of a model, downloaded if necessary; refuse a pair that takes two models.

    Args:
        advice: what to do instead if there are two models; it ends the error.
    """
    legs = legs_of(name_or_folder)
    if len(legs) > 1:
        raise ValueError(
            f"{os.fspath(name_or_folder)} goes through English by two models, {' and '.join(legs)}: {advice}"
        )
    return resolve(legs[0])


def downloaded_folders(name_or_folder: str | os.PathLike[str]) -> list[str]:
    """Return the one or two folders of a name's models; an empty list unless all are downloaded."""
    if os.path.exists(name_or_folder):
        return [resolve(name_or_folder)]
    name = _canonical(os.fspath(name_or_folder))
    for legs in ((name,), _pivot_legs(name)) if name else ():
        if legs and all(map(_is_downloaded, legs)):
            return [os.fspath(_folder_of(leg)) for leg in legs]
    return []


def downloaded_folder(name: str) -> str | None:
    """Return the folder of a model of the registry, if it is downloaded."""
    canonical = _canonical(name) if pair_named(name) else None
    return os.fspath(_folder_of(canonical)) if canonical and _is_downloaded(canonical) else None


def downloaded_models() -> list[DownloadedModel]:
    """Return the downloaded models, sorted by name."""
    models = []
    for file in cache_folder().glob(f"*/**/{FACTS_FILE}"):
        if file.parent.name.endswith(PARTIAL):  # whose download was stopped before its last step
            continue
        facts = read_object(file, MAX_SMALL_OBJECT) or {}
        name, licence, author = (str(facts.get(key, "")) for key in ("name", "licence", "author"))
        if name:
            size = sum(path.stat().st_size for path in file.parent.iterdir() if path.is_file())
            models.append(DownloadedModel(name, file.parent, licence, author, size))
    return sorted(models)


def _entry_of(name: str) -> CatalogEntry:
    """Return the entry of a name, from the hub or the registry."""
    if pair_named(name) is None:
        return hub.entry_of(name)
    entries = {entry.name: entry for entry in mozilla.read_registry()}
    if name not in entries:
        raise CatalogError(_unknown_name(name, entries))
    return entries[name]


def download_model(name: str) -> Path:
    """Download a model and return its folder. If another process is downloading it, wait for that one."""
    from capsule_mt.catalog.download import download
    from capsule_mt.files.lock import lock_output
    from capsule_mt.files.progress import Progress, write_line

    name = _name_of(name)
    if is_offline():
        raise _offline_error(name)
    folder = _folder_of(name)
    with lock_output(folder.with_name(f"{folder.name}.download"), wait=True):
        if _is_downloaded(name):
            return folder
        entry = _entry_of(name)
        if entry.problem:
            raise CatalogError(entry.problem)
        partial = folder.with_name(f"{folder.name}{PARTIAL}")
        partial.mkdir(parents=True, exist_ok=True)
        _remove_other_version(partial, entry)
        write_line(f"{entry.name}: {entry.size / 1e6:.1f} MB of {entry.author}, licence {entry.licence}")
        sizes = [None if file.size is None or file.url.endswith(".gz") else file.size for file in entry.files]
        with Progress(None if None in sizes else entry.size // 1000, "kB") as progress:
            bytes_done = 0

            def count(num_bytes: int) -> None:
                nonlocal bytes_done
                old_kilobytes = bytes_done // 1000
                bytes_done += num_bytes
                progress.update(bytes_done // 1000 - old_kilobytes)

            for file in entry.files:
                download(file, partial, count)
        for text_name, text in {**entry.texts, NOTICE_FILE: entry.notice}.items():
            (partial / text_name).write_text(text, encoding="utf-8")
        (partial / FACTS_FILE).write_text(json.dumps(_facts(entry, partial), indent=2) + "\n", encoding="utf-8")
        (partial / VERSION_FILE).unlink()
        if folder.exists():  # it lacks FACTS_FILE: a removal was interrupted, or this function did not write it
            shutil.rmtree(folder)
        partial.rename(folder)
    return folder


def remove_model(name: str) -> Path:
    """Remove a downloaded model, or an unfinished download; return the model's folder."""
    from capsule_mt.files.lock import lock_output

    name = _name_of(name)
    folder = _folder_of(name)
    partial = folder.with_name(f"{folder.name}{PARTIAL}")
    if not folder.exists() and not partial.exists():
        names = ", ".join(model.name for model in downloaded_models()) or "none"
        raise CatalogError(f"{name} is not downloaded; downloaded models: {names}")
    with lock_output(folder.with_name(f"{folder.name}.download")):
        (folder / FACTS_FILE).unlink(missing_ok=True)  # first: without it, what an interruption leaves is no model
        for path in (folder, partial):
            if path.exists():
                shutil.rmtree(path)
    return folder


def _name_of(text: str | os.PathLike[str]) -> str:
    name = _canonical(os.fspath(text))
    if name is None and (mistyped := languages_and_folder(os.fspath(text))):
        raise CatalogError(
            f"{text}: name the folder alone, {mistyped[1]}; only `capsule-mt serve` takes languages before it"
        )
    if url := hub.URL.fullmatch(os.fspath(text)):
        raise CatalogError(f"{text}: name the model without its URL: {url['name']}")
    if name is None:
        raise CatalogError(
            f"{no_such_folder(os.fspath(text))}, and not the name of a model: name a pair such as en-pt, or a "
            f"model of the hub such as {hub.OPUS}/opus-mt-de-en"
        )
    return name


def _canonical(text: str) -> str | None:
    """Return a name in the catalogs' spelling; `None` if `text` cannot be a name."""
    text = without_regions(text)
    if pair_named(text):
        return text.lower()
    if text.startswith("opus-mt-"):
        text = f"{hub.OPUS}/{text}"
    parts = text.split("/")
    return text if hub.NAME.fullmatch(text) and not any(set(part) <= {"."} for part in parts) else None


def _pivot_legs(name: str) -> tuple[str, ...]:
    """Return the names of the models into and from English for a pair of other languages; () for other names."""
    pair = pair_named(name)
    if pair is None or pair["size"] or PIVOT in (pair["source"], pair["target"]):
        return ()
    return f"{pair['source']}-{PIVOT}", f"{PIVOT}-{pair['target']}"


def _is_downloaded(name: str) -> bool:
    return (_folder_of(name) / FACTS_FILE).is_file()


def _folder_of(name: str) -> Path:
    if pair_named(name):
        return cache_folder() / "mozilla" / name.replace(":", ".")
    return cache_folder() / "hugging_face" / Path(*name.split("/"))


def _remove_other_version(partial: Path, entry: CatalogEntry) -> None:
    """Empty a partial folder if another version of the model, or an unknown one, was downloaded into it."""
    identity = hashlib.sha256(repr([(file.url, file.sha256) for file in entry.files]).encode()).hexdigest()
    version_file = partial / VERSION_FILE
    if not version_file.exists() or version_file.read_text() != identity:
        for path in partial.iterdir():
            if path != version_file:  # last, by writing it: an interruption leaves the folder one of another version
                path.unlink()
    version_file.write_text(identity)


def _facts(entry: CatalogEntry, folder: Path) -> dict[str, Any]:
    """Return the content of FACTS_FILE for an entry whose files are in `folder`."""
    from capsule_mt.files.digests import file_digest

    files = {
        file.name: {
            "url": file.url,
            "size": (folder / file.name).stat().st_size,
            "sha256": file_digest(folder / file.name),
        }
        for file in entry.files
    }
    names = ("name", "source", "target", "licence", "author", "page", "revision")
    release = {"release": dict(entry.release)} if entry.release else {}
    return {**{name: getattr(entry, name) for name in names}, **release, "files": files}


def _offline_error(name: str) -> CatalogError:
    return CatalogError(
        f"{no_such_folder(name)}, and not a downloaded model; {OFFLINE} or {HUB_OFFLINE} forbids downloading it"
    )


def _unknown_name(name: str, registry_names: Collection[str]) -> str:
    similar = difflib.get_close_matches(name, registry_names, n=3)
    hint = f"; similar names: {', '.join(similar)}" if similar else ""
    return f"{name}: no such folder, and not in Mozilla's registry{hint}; `capsule-mt models search` lists its models"
