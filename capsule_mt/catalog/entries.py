"""What a catalog says of a model: its name, its languages, whose it is, and its files."""

import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

CACHE, OFFLINE, REGISTRY = "CAPSULE_MT_CACHE", "CAPSULE_MT_OFFLINE", "CAPSULE_MT_REGISTRY"
HUB, HUB_OFFLINE = "HF_ENDPOINT", "HF_HUB_OFFLINE"
PIVOT = "en"
CODE = r"[a-z]{2,3}(?:_[a-z0-9]+)*"
# "en-pt", or "en-pt:tiny" for one of several sizes; both take milliseconds to compile
PAIR = rf"(?P<source>{CODE})-(?P<target>{CODE})(?::(?P<size>[a-z][a-z0-9-]*))?"
# opus-mt-en-de, opus-mt-tc-big-en-pt, outputs/en-de
AT_THE_END = r"(?:^|[-_/])(?P<source>[a-z]{2,3})-(?P<target>[a-z]{2,3})$"
# of caches, by platform: a variable, or a folder of the user's
PLACES = {
    "linux": ("XDG_CACHE_HOME", ".cache"),
    "darwin": ("XDG_CACHE_HOME", "Library/Caches"),
    "win32": ("LOCALAPPDATA", "AppData/Local"),
}
# of a folder that others write into
SAFE_NAME = r"[A-Za-z0-9_][A-Za-z0-9._+-]*"


class CatalogError(ValueError):
    """A model that no catalog has, or that cannot be had now. The message says what to do."""


class DownloadError(OSError):
    """A file could not be had. The message names its URL; `status` is what the server answered, if it did."""

    status: int | None = None


class RemoteFile(NamedTuple):
    """A file of a model: where it is, and its name in the folder.

    size, sha256: of what is kept, which is unpacked where the URL ends in .gz; `None` if the catalog does not say.
    """

    url: str
    name: str
    size: int | None = None
    sha256: str | None = None


class Entry(NamedTuple):
    """A model that can be downloaded.

    licence: as SPDX names it; "unknown" if the catalog does not say.
    author, page: whom to attribute it to, and where it is described.
    texts: files that are written beside the catalog's.
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

    @property
    def size(self) -> int:
        """The bytes of the files whose size the catalog says: nearly all."""
        return sum(file.size or 0 for file in self.files)

    @property
    def notice(self) -> str:
        """The text that gives credit."""
        licence = LICENCES.get(self.licence.lower(), "")
        where = f" ({licence})" if licence else ""
        return f"{self.name} is a model of {self.author}: {self.page}\nLicence: {self.licence}{where}\n"


LICENCES = {
    "apache-2.0": "https://www.apache.org/licenses/LICENSE-2.0",
    "cc-by-4.0": "https://creativecommons.org/licenses/by/4.0/",
    "mit": "https://opensource.org/license/mit",
    "mpl-2.0": "https://www.mozilla.org/MPL/2.0/",
}


def pair_named(name: str) -> re.Match[str] | None:
    """Return the `source`, the `target` and the `size` in a name that is a pair, such as "en-pt:tiny"."""
    return re.fullmatch(PAIR, name, re.IGNORECASE)


def languages_in(name: str) -> tuple[str, str] | None:
    """Return the languages in the name of a model, if it has them."""
    found = pair_named(name) or re.search(AT_THE_END, name, re.IGNORECASE)
    return None if found is None else (found["source"].lower(), found["target"].lower())


def cache_folder() -> Path:
    """Return where models are kept: `CAPSULE_MT_CACHE`, or the place that the platform has for caches."""
    given = os.environ.get(CACHE)
    if given:
        return Path(given)
    variable, under_home = PLACES.get(sys.platform, PLACES["linux"])
    base = os.environ.get(variable)
    if base:
        return Path(base) / "capsule-mt"
    return Path.home() / under_home / "capsule-mt"


def is_offline(*names: str) -> bool:
    """Whether the environment forbids the network, by one of these variables."""
    return any(
        os.environ.get(name, "").lower() not in ("", "0", "false", "no") for name in names or (OFFLINE, HUB_OFFLINE)
    )


def safe_name(name: str, place: str) -> str:
    """Return the last part of a path in a catalog, which may come from anywhere; refuse one that is no file's name."""
    last = name.rpartition("/")[2]
    if not re.fullmatch(SAFE_NAME, last):
        raise CatalogError(f"{place}: {name!r} is no name for a file")
    return last
