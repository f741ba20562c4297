"""A model as a catalog describes it: name, languages, author, licence and files."""

import os
import re
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from capsule_mt.messages import shown
from capsule_mt.text.languages import REGION, TAG, without_region

if TYPE_CHECKING:
    from pathlib import Path

CACHE, OFFLINE, REGISTRY = "CAPSULE_MT_CACHE", "CAPSULE_MT_OFFLINE", "CAPSULE_MT_REGISTRY"
HUB, HUB_OFFLINE = "HF_ENDPOINT", "HF_HUB_OFFLINE"
PIVOT = "en"
FACTS_FILE = "capsule-mt.json"  # in the folder of a downloaded model: its origin, files and checks
LANGUAGE = r"[a-z]{2,3}(?:_[a-z0-9]+)*"
# "en-pt", or "en-pt:tiny" for one of several sizes; strings, as compiling both takes milliseconds at import
PAIR = rf"(?P<source>{LANGUAGE})-(?P<target>{LANGUAGE})(?::(?P<size>[a-z][a-z0-9-]*))?"
# opus-mt-en-de, opus-mt-tc-big-en-pt, outputs/en-de
PAIR_SUFFIX = r"(?:^|[-_/])(?P<source>[a-z]{2,3})-(?P<target>[a-z]{2,3})$"
# opus-mt-en-pt-BR, whose end would else be a pair: case matters
SUFFIX_WITH_REGIONS = (
    rf"(?:^|[-_/])(?P<source>[a-z]{{2,3}})(?:[-_]{REGION})?-(?P<target>[a-z]{{2,3}})(?:[-_]{REGION})?$"
)
# the parent of cache folders by platform: an environment variable, or else a folder in the user's home
CACHE_PARENTS = {
    "linux": ("XDG_CACHE_HOME", ".cache"),
    "darwin": ("XDG_CACHE_HOME", "Library/Caches"),
    "win32": ("LOCALAPPDATA", "AppData/Local"),
}
MAX_RATIO = 20  # of the unpacked size to the packed one: a tokenizer.json has 6, weights 1.1 to 1.3
MAX_SMALL = 1 << 16  # bytes: a smaller file may have any ratio
# file names from a catalog, which anybody may have written
SAFE_NAME = r"[A-Za-z0-9_][A-Za-z0-9._+-]*"


class CatalogError(ValueError):
    """A model is in no catalog, or cannot be downloaded or unpacked."""


class DownloadError(OSError):
    """A file could not be downloaded. The message names its URL; `status` is the server's answer if it is an error."""

    status: int | None = None


class RemoteFile(NamedTuple):
    """A file of a model: its URL, and its name in the folder.

    size, sha256: of the stored file, which is unpacked if the URL ends in .gz; `None` if the catalog omits them.
    """

    url: str
    name: str
    size: int | None = None
    sha256: str | None = None


class CatalogEntry(NamedTuple):
    """A model that can be downloaded.

    licence: as the catalog names it, mostly by its SPDX identifier; "unknown" if it does not.
    author, page: for attribution: who made the model, and the page that describes it.
    texts: names and contents of files that we write ourselves, beside the downloaded ones.
    problem: why this program cannot read the files; empty if it can.
    release: what the catalog says of this version: its `version`, `architecture` and `metrics`.
    """

    name: str
    source: str
    target: str
    licence: str
    author: str
    page: str
    files: tuple[RemoteFile, ...]
    texts: Mapping[str, str] = {}
    revision: str = ""
    problem: str = ""
    release: Mapping[str, Any] = {}

    @property
    def size(self) -> int:
        """The total bytes of the files whose size the catalog gives."""
        return sum(file.size or 0 for file in self.files)

    @property
    def notice(self) -> str:
        """The text of NOTICE.txt, which credits the author."""
        url = LICENCES.get(self.licence.lower(), "")
        suffix = f" ({url})" if url else ""
        return f"{self.name} is a model of {self.author}: {self.page}\nLicence: {self.licence}{suffix}\n"


LICENCES = {
    "apache-2.0": "https://www.apache.org/licenses/LICENSE-2.0",
    "cc-by-4.0": "https://creativecommons.org/licenses/by/4.0/",
    "mit": "https://opensource.org/license/mit",
    "mpl-2.0": "https://www.mozilla.org/MPL/2.0/",
}


def pair_named(name: str) -> re.Match[str] | None:
    """Match a name that is a language pair, such as "en-pt:tiny"; groups `source`, `target` and `size`."""
    code, separator, _ = name.replace("_", "-").partition("-")
    if not separator or len(code) not in (2, 3):  # a fast answer for most names: compiling the patterns takes 2 ms
        return None
    return re.fullmatch(PAIR, without_regions(name), re.IGNORECASE)


def without_regions(name: str) -> str:
    """Return a language pair without regions and most scripts ("en-pt" of "en-pt-BR"), and other names as they are."""
    if name.count("-") + name.count("_") < 2:  # a fast answer for pairs of two codes
        return name
    code = TAG.replace("?P<language>", "?:").replace("?P<subtag>", "?:")
    pair = re.fullmatch(rf"({code}|[a-z]{{2,3}})-({code}|[a-z]{{2,3}})(:.+)?", name)
    return f"{without_region(pair[1])}-{without_region(pair[2])}{pair[3] or ''}" if pair else name


def languages_in(name: str) -> tuple[str, str] | None:
    """Return the source and target language in the name of a model, if it names them; without their regions."""
    pair = pair_named(name) or re.search(SUFFIX_WITH_REGIONS, name) or re.search(PAIR_SUFFIX, name, re.IGNORECASE)
    return None if pair is None else (pair["source"].lower(), pair["target"].lower())


def languages_and_folder(text: str) -> tuple[str, str] | None:
    """Split a text such as "english-pt=outputs/one" or "en-pt:one/two", languages and a folder; `None` for others."""
    match = re.fullmatch(r"(?P<languages>[^/\\]{2,40})(?P<separator>=|:(?!//))\s*(?P<folder>.*)", text)
    if match is None or pair_named(text) or os.path.exists(text):
        return None
    folder = match["folder"]
    if match["separator"] == ":" and not (os.path.exists(folder) or "/" in folder or os.sep in folder):
        return None
    return match["languages"], folder or "FOLDER"


def no_such_folder(text: str) -> str:
    """Return the beginning of an error: "no such folder", with the folder that is spelt alike, if there is one."""
    import difflib  # late: this is an error
    from pathlib import Path

    path = Path()
    for part in () if pair_named(text) else Path(text).parts:
        try:
            names = [entry.name for entry in os.scandir(path) if entry.is_dir()]
        except OSError:
            names = []
        match = [part] if (path / part).is_dir() else difflib.get_close_matches(part, names, n=1, cutoff=0.75)
        if not match:
            return f"{text}: no such folder"
        path /= match[0]
    hint = f" (did you mean `{path}`?)" if path.parts else ""
    return f"{text}: no such folder{hint}"


def cache_folder() -> "Path":
    """Return the folder for downloaded models: `CAPSULE_MT_CACHE`, or one in the platform's folder for caches."""
    from pathlib import Path  # late: a model in a folder does not need the cache

    folder = os.environ.get(CACHE)
    if folder:
        return Path(folder)
    variable, under_home = CACHE_PARENTS.get(sys.platform, CACHE_PARENTS["linux"])
    parent = os.environ.get(variable)
    if parent:
        return Path(parent) / "capsule-mt"
    return Path.home() / under_home / "capsule-mt"


def is_archive(path: str | os.PathLike[str]) -> bool:
    """Return whether a path is an archive, which may have a model: see `capsule_mt.catalog.archives`."""
    return os.fspath(path).endswith((".zip", ".argosmodel")) and os.path.isfile(path)


def is_offline(*names: str) -> bool:
    """Return whether one of these environment variables forbids using the network."""
    return any(
        os.environ.get(name, "").lower() not in ("", "0", "false", "no") for name in names or (OFFLINE, HUB_OFFLINE)
    )


def safe_name(path: str, catalog: str) -> str:
    """Return the file name at the end of a catalog's path, which anybody may have written; refuse an unsafe one."""
    name = path.rpartition("/")[2]
    if not re.fullmatch(SAFE_NAME, name):
        raise CatalogError(f"{catalog}: {shown(path)} does not end in a safe file name (letters, digits and ._+-)")
    return name
