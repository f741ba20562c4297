"""A model in a `.zip`, as OPUS-MT and the Tatoeba Challenge publish them: unpacked once, into the cache.

Packages of Argos Translate are refused: they have models of CTranslate2.
"""

import hashlib
import os
import re
import shutil
import tempfile
import zipfile
import zlib
from pathlib import Path

from capsule_mt.catalog.entries import CatalogError, cache_folder

MAX_BYTES = 1 << 34  # of all files, unpacked: the largest models of OPUS-MT have 1 GB
MODELS = (".npz", ".bin", ".safetensors")


def unpacked(file: str | os.PathLike[str]) -> Path:
    """Return the folder with the files of a model's archive; unpack them unless the cache has them.

    Raises:
        CatalogError: a damaged archive, or one without a model or with models in several folders.
    """
    file = os.fspath(file)
    try:
        with zipfile.ZipFile(file) as archive:
            members = _model_members(file, archive)
            description = "".join(f"{name} {member.CRC} {member.file_size}\n" for name, member in members.items())
            folder = cache_folder() / "archives" / hashlib.sha256(description.encode()).hexdigest()[:32]
            if not folder.is_dir():
                _unpack(archive, members, folder)
            return folder
    except (zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, EOFError) as error:
        raise CatalogError(f"{file}: is not a `.zip`, or it is damaged ({error})") from None


def _model_members(file: str, archive: zipfile.ZipFile) -> dict[str, zipfile.ZipInfo]:
    """Return the files beside the model by their names, whatever folder of the archive they are in."""
    members = [member for member in archive.infolist() if not member.is_dir()]
    if any(re.fullmatch(r"[^/]*/model/model\.bin", member.filename) for member in members):
        raise CatalogError(
            f"{file}: is a package of Argos Translate; its model is one of CTranslate2, which cannot be read. Use one "
            "by name, such as en-pt: see `capsule-mt models search LANGUAGE`"
        )
    folders = {os.path.dirname(member.filename) for member in members if member.filename.endswith(MODELS)}
    if len(folders) != 1:
        problem = f"models in the folders {', '.join(map(repr, sorted(folders)))}" if folders else "no model"
        raise CatalogError(f"{file}: has {problem}; needs one folder with a model ({', '.join(MODELS)})")
    (folder,) = folders
    beside = {os.path.basename(member.filename): member for member in members if _is_in(member.filename, folder)}
    total = sum(member.file_size for member in beside.values())
    if total > MAX_BYTES:
        raise CatalogError(f"{file}: has {total} bytes unpacked; at most {MAX_BYTES} are read")
    return beside


def _is_in(name: str, folder: str) -> bool:
    return os.path.dirname(name) == folder and "\\" not in name and os.path.basename(name) not in ("", ".", "..")


def _unpack(archive: zipfile.ZipFile, members: dict[str, zipfile.ZipInfo], folder: Path) -> None:
    """Write the files to a new folder, which appears when all are there."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(dir=folder.parent))
    try:
        for name, member in members.items():
            with archive.open(member) as source, open(partial / name, "xb") as target:
                shutil.copyfileobj(source, target)
        try:
            partial.rename(folder)
        except OSError:
            if not folder.is_dir():  # else another process was faster
                raise
    finally:
        shutil.rmtree(partial, ignore_errors=True)
