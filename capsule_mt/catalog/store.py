"""The folder that keeps downloaded models, and names become folders."""

import difflib
import hashlib
import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from capsule_mt.catalog import hub, mozilla
from capsule_mt.catalog.entries import (
    HUB_OFFLINE,
    OFFLINE,
    PIVOT,
    CatalogError,
    Entry,
    cache_folder,
    is_offline,
    pair_named,
)
from capsule_mt.files.outputs import read_object

FACTS_FILE, NOTICE_FILE = "capsule-mt.json", "NOTICE.txt"
VERSION_FILE = ".version"  # which one a folder was begun with


class Kept(NamedTuple):
    """A model that is downloaded."""

    name: str
    folder: Path
    licence: str
    author: str
    size: int


def resolve(name_or_folder: str | os.PathLike[str]) -> str:
    """Return the folder of a model. A folder is returned as it is; a name is downloaded first if it is not there.

    A name is a pair of languages such as "en-pt" of Mozilla's registry, or one of the Hugging Face hub such as
    "Helsinki-NLP/opus-mt-de-en", or "opus-mt-de-en" for short.
    """
    if os.path.exists(name_or_folder):
        return os.fspath(name_or_folder)
    name = name_of(name_or_folder)
    return os.fspath(_folder_of(name) if _is_kept(name) else download_model(name))


def name_of(text: str | os.PathLike[str]) -> str:
    """Return a name as catalogs have it; refuse what is none, and what is rather a folder that is mistyped."""
    name = _name_of(text)
    if not _is_kept(name) and os.path.isdir(beside := os.path.dirname(text)):
        raise CatalogError(f"{os.fspath(text)}: no such folder (the hub is not asked, as there is a folder {beside})")
    return name


def legs_of(name_or_folder: str | os.PathLike[str]) -> tuple[str, ...]:
    """Return what translates one after the other: a single model, or two where only English connects a pair.

    What is downloaded comes first, then the registry's model of the pair, then the two.
    """
    if os.path.exists(name_or_folder):
        return (os.fspath(name_or_folder),)
    name = _name_of(name_or_folder)
    if pair_named(name) is None or _is_kept(name):
        return (name,)
    problem, listed = None, set[str]()
    try:
        listed = {entry.name for entry in mozilla.read_registry()}
    except (CatalogError, OSError) as error:
        problem = error
    through, to_be_had = _through_pivot(name), set() if is_offline() else listed
    if through and name not in to_be_had and all(one in to_be_had or _is_kept(one) for one in through):
        return through
    if name in listed:
        return (name,)
    if is_offline():
        raise _not_kept(name)
    raise problem or CatalogError(_unknown(name, listed))


def kept_folders(name_or_folder: str | os.PathLike[str]) -> list[str]:
    """Return the folders that a name stands for; none if they are not downloaded."""
    if os.path.exists(name_or_folder):
        return [os.fspath(name_or_folder)]
    name = _canonical(os.fspath(name_or_folder))
    for legs in ((name,), _through_pivot(name)) if name else ():
        if legs and all(map(_is_kept, legs)):
            return [os.fspath(_folder_of(leg)) for leg in legs]
    return []


def kept_folder(name: str) -> str | None:
    """Return the folder of a single model of the registry, if it is downloaded."""
    return os.fspath(_folder_of(name)) if pair_named(name) and _is_kept(name) else None


def kept_models() -> list[Kept]:
    """Return the models that are downloaded, by name."""
    found = []
    for file in cache_folder().glob(f"*/**/{FACTS_FILE}"):
        facts = read_object(file) or {}
        name, licence, author = (str(facts.get(one, "")) for one in ("name", "licence", "author"))
        if name:
            size = sum(one.stat().st_size for one in file.parent.iterdir() if one.is_file())
            found.append(Kept(name, file.parent, licence, author, size))
    return sorted(found)


def _entry_of(name: str) -> Entry:
    """Return what a catalog says of a name."""
    if pair_named(name) is None:
        return hub.entry_of(name)
    entries = {entry.name: entry for entry in mozilla.read_registry()}
    if name not in entries:
        raise CatalogError(_unknown(name, entries))
    return entries[name]


def download_model(name: str) -> Path:
    """Download a model; return its folder. Who asks for one that another process downloads waits for it."""
    from capsule_mt.catalog.download import download
    from capsule_mt.files.lock import lock_output
    from capsule_mt.files.progress import Progress, write_line

    name = _name_of(name)
    if is_offline():
        raise _not_kept(name)
    folder = _folder_of(name)
    with lock_output(folder.with_name(f"{folder.name}.download"), wait=True):
        if _is_kept(name):
            return folder
        entry = _entry_of(name)
        begun = folder.with_name(f"{folder.name}.partial")
        begun.mkdir(parents=True, exist_ok=True)
        _forget_others(begun, entry)
        write_line(f"{entry.name}: {entry.size / 1e6:.1f} MB of {entry.author}, licence {entry.licence}")
        sizes = [None if file.size is None or file.url.endswith(".gz") else file.size for file in entry.files]
        with Progress(None if None in sizes else entry.size // 1000, "kB") as progress:
            bytes_done = 0

            def count(number: int) -> None:
                nonlocal bytes_done
                before, bytes_done = bytes_done // 1000, bytes_done + number
                progress.update(bytes_done // 1000 - before)

            for file in entry.files:
                download(file, begun, count)
        for text_name, text in {**entry.texts, NOTICE_FILE: entry.notice}.items():
            (begun / text_name).write_text(text, encoding="utf-8")
        (begun / FACTS_FILE).write_text(json.dumps(_described(entry, begun), indent=2) + "\n", encoding="utf-8")
        if folder.exists():  # without its facts: of somebody else
            shutil.rmtree(folder)
        begun.rename(folder)
    return folder


def remove_model(name: str) -> Path:
    """Remove a downloaded model, or what was begun of one; return where it was."""
    from capsule_mt.files.lock import lock_output

    name = _name_of(name)
    folder = _folder_of(name)
    begun = folder.with_name(f"{folder.name}.partial")
    if not folder.exists() and not begun.exists():
        known = ", ".join(one.name for one in kept_models()) or "none"
        raise CatalogError(f"{name} is not downloaded; these are: {known}")
    with lock_output(folder.with_name(f"{folder.name}.download")):
        for one in (folder, begun):
            if one.exists():
                shutil.rmtree(one)
    return folder


def _name_of(text: str | os.PathLike[str]) -> str:
    name = _canonical(os.fspath(text))
    if name is None:
        raise CatalogError(
            f"{os.fspath(text)}: no such folder, and no name of a model: those are pairs such as en-pt, or of the hub "
            f"such as {hub.OPUS}/opus-mt-de-en"
        )
    return name


def _canonical(text: str) -> str | None:
    """Return a name as catalogs have it; `None` if it is none."""
    if pair_named(text):
        return text.lower()
    if text.startswith("opus-mt-"):
        text = f"{hub.OPUS}/{text}"
    parts = text.split("/")
    return text if hub.NAME.fullmatch(text) and not any(set(part) <= {"."} for part in parts) else None


def _through_pivot(name: str) -> tuple[str, ...]:
    """Return the names of the models from and into English that a pair of other languages takes."""
    pair = pair_named(name)
    if pair is None or pair["size"] or PIVOT in (pair["source"], pair["target"]):
        return ()
    return f"{pair['source']}-{PIVOT}", f"{PIVOT}-{pair['target']}"


def _is_kept(name: str) -> bool:
    return (_folder_of(name) / FACTS_FILE).is_file()


def _folder_of(name: str) -> Path:
    if pair_named(name):
        return cache_folder() / "mozilla" / name.replace(":", ".")
    return cache_folder() / "hugging_face" / Path(*name.split("/"))


def _forget_others(begun: Path, entry: Entry) -> None:
    """Remove what was begun of another version of a model."""
    identity = hashlib.sha256(repr([(file.url, file.sha256) for file in entry.files]).encode()).hexdigest()
    file = begun / VERSION_FILE
    if file.exists() and file.read_text() != identity:
        for one in begun.iterdir():
            one.unlink()
    file.write_text(identity)


def _described(entry: Entry, folder: Path) -> dict[str, Any]:
    """Return what is kept of an entry beside its files."""
    from capsule_mt.files.digests import file_digest

    (folder / VERSION_FILE).unlink()
    files = {
        file.name: {
            "url": file.url,
            "size": (folder / file.name).stat().st_size,
            "sha256": file_digest(folder / file.name),
        }
        for file in entry.files
    }
    names = ("name", "source", "target", "licence", "author", "page", "revision")
    return {**{name: getattr(entry, name) for name in names}, "files": files}


def _not_kept(name: str) -> CatalogError:
    return CatalogError(
        f"{name}: no such folder, and no model that is downloaded; {OFFLINE} or {HUB_OFFLINE} forbids to download it"
    )


def _unknown(name: str, listed: "set[str] | dict[str, Entry]") -> str:
    near: Sequence[str] = difflib.get_close_matches(name, listed, n=3)
    hint = f"; near it: {', '.join(near)}" if near else ""
    return f"{name}: no such folder, and no model of Mozilla's registry{hint}; `capsule-mt models search` lists them"
