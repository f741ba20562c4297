"""A model in a `.zip`, as OPUS-MT and the Tatoeba Challenge publish them: unpacked once, into the cache.

The cache is keyed by the SHA-256 of the archive. A process with limits of time and memory reads the archive, and
another one loads the model: what does not load does not stay in the cache. A package of Argos Translate (.argosmodel)
is such an archive, too: its model is in the folder `model`, beside its metadata and its tokenizer.
"""

import errno
import json
import os
import re
import secrets
import shutil
import time
import zipfile
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import IO, Any

from capsule_mt.catalog.entries import FACTS_FILE, MAX_RATIO, MAX_SMALL, CatalogError, cache_folder
from capsule_mt.files.digests import BLOCK, digest_of, file_digest
from capsule_mt.files.sandbox.child import Limits, reported
from capsule_mt.files.sandbox.worker import Sandbox
from capsule_mt.messages import cut, shown

MAX_BYTES = 1 << 34  # of all files, unpacked: the largest models of OPUS-MT have 1 GB
MAX_FILES = 1000  # beside a model; OPUS-MT has about ten
MAX_NAME = 200  # bytes
MAX_LISTED = 4  # folders in an error
MAX_AGE = 24 * 3600  # seconds: unpacking takes minutes
VOCABULARY = r"\.spm$|\.model$|vocab|^tokenizer\.json$|^(?!.*decoder\.|config).*\.ya?ml$"
MODELS = (".npz", ".bin", ".safetensors")
HUB_MODELS = ("pytorch_model.bin", ".safetensors")  # those of transformers, which need a configuration
HUB_CONFIG = "config.json"
OF_PACKAGE = ("metadata.json", "sentencepiece.model", "bpe.model")  # of Argos Translate, beside the model's folder
SECONDS, SECONDS_PER_BYTE = 60.0, 600 / (1 << 30)  # of the processor to unpack an archive
MEMORY = 512 << 20  # bytes


def unpacked(file: str | os.PathLike[str]) -> Path:
    """Return the folder with the files of a model's archive; unpack them unless the cache has them.

    Raises:
        CatalogError: a damaged archive, or one without a model or with models in several folders.
    """
    file = os.fspath(file)
    digest = file_digest(file)
    folder = cache_folder() / "archives" / digest
    if not (folder / FACTS_FILE).is_file():
        shutil.rmtree(folder, ignore_errors=True)  # an older version unpacked it, and kept no digests
        _unpack(file, digest, folder)
    return folder


def _unpack(file: str, digest: str, folder: Path) -> None:
    """Unpack an archive into a new folder, which appears when its model has been loaded once."""
    from capsule_mt.models.probing import probe  # late: most archives are in the cache

    _remove_leftovers(folder.parent)
    partial = folder.with_name(f"{folder.name}.{secrets.token_hex(8)}.partial")
    try:
        with Unpacker(SECONDS + SECONDS_PER_BYTE * os.path.getsize(file), MEMORY, forks=True) as unpacker:
            unpacker.unpack(file, digest, partial)
        try:
            _write_facts(partial)
            probe(os.fspath(partial))
        except (OSError, ValueError) as error:
            raise type(error)(str(error).replace(os.fspath(partial), file)) from None
        try:
            partial.rename(folder)
        except OSError:
            if not folder.is_dir():  # else another process was faster
                raise
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _write_facts(folder: Path) -> None:
    """Write the sizes and digests of the files, by which each use finds out whether they have changed."""
    files = {
        path.name: {"size": path.stat().st_size, "sha256": file_digest(path)}
        for path in sorted(folder.iterdir())
        if path.name != FACTS_FILE
    }
    (folder / FACTS_FILE).write_text(json.dumps({"files": files}, indent=2) + "\n", encoding="utf-8")


def _remove_leftovers(cache: Path) -> None:
    """Remove what killed processes have left, and what is not named by a digest."""
    for entry in cache.iterdir() if cache.is_dir() else ():
        name, *suffixes = entry.name.split(".")
        if re.fullmatch("[0-9a-f]{64}", name) is None or (suffixes and _is_old(entry)):
            shutil.rmtree(entry, ignore_errors=True)


def _is_old(entry: Path) -> bool:
    try:
        return entry.stat().st_mtime < time.time() - MAX_AGE
    except OSError:  # another process has removed or renamed it
        return False


# ---- in the sandbox
def answer(job: dict[str, Any], contents: list[bytes], limits: Limits) -> tuple[dict[str, Any], list[bytes]]:
    """Unpack the model of an archive into a folder, which is made once the list of its files has been checked."""
    file = job["name"]
    try:
        with open(file, "rb") as stream:
            if digest_of(iter(lambda: stream.read(BLOCK), b"")) != job["digest"]:
                raise CatalogError(f"{file}: has changed while it was read: load it again")
            with zipfile.ZipFile(stream) as archive:
                _write_members(archive, _model_members(file, stream, archive), Path(job["folder"]))
    except CatalogError as error:
        return reported(error)
    except OSError as error:
        if error.errno == errno.EINVAL:  # its table names offsets before its beginning
            return reported(CatalogError(f"{file}: is not a `.zip`, or it is damaged ({error})"))
        return reported(OSError(f"{file}: {error}"))
    except (zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, EOFError, ValueError) as error:
        return reported(CatalogError(f"{file}: is not a `.zip`, or it is damaged ({cut(error)})"))
    return {}, []


class Unpacker(Sandbox):
    """A process that unpacks an archive."""

    answer, error_type, reported_types = staticmethod(answer), CatalogError, {"OSError": OSError}

    def unpack(self, file: str, digest: str, folder: Path) -> None:
        self._send(file, digest=digest, folder=os.fspath(folder))


def _model_members(file: str, stream: IO[bytes], archive: zipfile.ZipFile) -> dict[str, zipfile.ZipInfo]:
    """Return the files beside the model by their names, whatever folder of the archive they are in."""
    # `is_dir` of Python 3.11 fails on an empty name
    members = [member for member in archive.infolist() if not member.filename.endswith("/")]
    folders = {os.path.dirname(member.filename) for member in members if member.filename.endswith(MODELS)}
    if len(folders) != 1:
        listed = ", ".join(map(shown, sorted(folders)[:MAX_LISTED])) + (", ..." if len(folders) > MAX_LISTED else "")
        problem = f"models in the folders {listed}" if folders else "no model"
        raise CatalogError(f"{file}: has {problem}; needs one folder with a model ({', '.join(MODELS)})")
    (folder,) = folders
    beside = {_name_in(member): member for member in members if _is_in(member.filename, folder)}
    package = [member for member in members if _is_in(member.filename, os.path.dirname(folder))]
    if os.path.basename(folder) == "model" and any(_name_in(member) == "metadata.json" for member in package):
        beside |= {_name_in(member): member for member in package if _name_in(member) in OF_PACKAGE}
    total = sum(member.file_size for member in beside.values())
    if total > MAX_BYTES:
        raise CatalogError(f"{file}: has {total} bytes unpacked; at most {MAX_BYTES} are read")
    if len(beside) > MAX_FILES:
        raise CatalogError(f"{file}: has {len(beside)} files beside its model; at most {MAX_FILES} are read")
    _check_plain_names(file, beside)
    _check_names(file, beside)
    _check_ratios(file, os.fstat(stream.fileno()).st_size, beside)
    return beside


def _check_plain_names(file: str, members: Mapping[str, zipfile.ZipInfo]) -> None:
    """Refuse names that some system cannot write as they are, or would write into another file."""
    for name, member in members.items():
        size = len(name.encode("utf-8", "surrogatepass"))
        if size > MAX_NAME:
            raise CatalogError(
                f"{file}: the name {shown(name)} of a file beside its model has {size} bytes; "
                f"at most {MAX_NAME} are read"
            )
        if ":" in name or "\0" in member.orig_filename:  # Windows' streams of a file; Python cuts a name at a NUL
            raise CatalogError(f"{file}: {shown(member.orig_filename)} is not a plain name of a file")


def _check_names(file: str, names: Iterable[str]) -> None:
    """Refuse a model without the files that it needs to load, before anything is unpacked."""
    if HUB_CONFIG not in names and any(name.endswith(HUB_MODELS) for name in names):
        raise CatalogError(f"{file}: has no {HUB_CONFIG} beside its model")
    if not any(re.search(VOCABULARY, name) for name in names):
        raise CatalogError(f"{file}: has no vocabulary beside its model, such as source.spm or tokenizer.json")


def _check_ratios(file: str, size: int, members: Mapping[str, zipfile.ZipInfo]) -> None:
    """Refuse an archive of `size` bytes that would become much larger."""
    for name, member in members.items():
        if member.file_size > max(MAX_SMALL, MAX_RATIO * member.compress_size):
            raise CatalogError(
                f"{file}: {shown(name)} has {member.file_size} bytes, packed into {member.compress_size}; at most "
                f"{MAX_RATIO} times as many are read"
            )
    total = sum(member.file_size for member in members.values())
    if total > MAX_RATIO * size:
        raise CatalogError(
            f"{file}: has {total} bytes unpacked, but {size} packed; at most {MAX_RATIO} times as many are read"
        )


def _name_in(member: zipfile.ZipInfo) -> str:
    return os.path.basename(member.filename)


def _is_in(name: str, folder: str) -> bool:
    return os.path.dirname(name) == folder and "\\" not in name and os.path.basename(name) not in ("", ".", "..")


def _write_members(archive: zipfile.ZipFile, members: Mapping[str, zipfile.ZipInfo], folder: Path) -> None:
    folder.mkdir(parents=True)
    for name, member in members.items():
        with archive.open(member) as source, open(folder / name, "xb") as target:
            shutil.copyfileobj(source, target)
