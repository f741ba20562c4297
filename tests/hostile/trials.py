"""Try a hostile file: in a process with limits, so that what it does to its reader is an outcome."""

import os
import random
import shutil
import tempfile
import time
import warnings
import zipfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from capsule_mt.catalog.archives import MEMORY as UNPACKER_MEMORY
from capsule_mt.catalog.archives import Unpacker
from capsule_mt.catalog.entries import CatalogError
from capsule_mt.files.digests import file_digest
from capsule_mt.files.sandbox.child import Limits
from capsule_mt.files.sandbox.worker import Sandbox
from capsule_mt.formats.reading import Source
from capsule_mt.formats.registry import format_of
from capsule_mt.formats.units import FormatError, Translated
from capsule_mt.formats.worker import Worker
from capsule_mt.models.loading import load_model
from capsule_mt.models.model_sandbox import ERRORS, error_report
from capsule_mt.models.weights import PICKLED_FILE
from tests.fuzz.cases import sound_folder
from tests.fuzz.pickles import archive
from tests.hostile.builders import FILES, NAMES
from tests.hostile.grammar import draw, draw_file, size_of
from tests.light.formats.test_hostile import COLUMNS

SECONDS, MEMORY = 10.0, 2 << 30
MAX_MESSAGE = 800  # characters
STOPPED, CRASHED = ("takes longer than", "takes more than"), "ended with code"


class Outcome(NamedTuple):
    """What a reader did with a file.

    name: "read", "refused", or "stopped" by a limit of the process, which is an error that names the file, too. A
        finding is "crashed", or "unnamed": an error that is long, or does not name the file.
    """

    name: str
    message: str
    seconds: float


def load(job: dict[str, Any], contents: list[bytes], limits: Limits) -> tuple[dict[str, Any], list[bytes]]:
    folder = job["name"]
    try:
        load_model(folder, shortlist=job["shortlist"])
        return {}, []
    except MemoryError:
        raise
    except BaseException as error:
        return error_report(error, folder)


class Loader(Sandbox):
    """A fork of this process that loads one model after the other."""

    answer, error_type = staticmethod(load), ValueError
    reported_types = {error.__name__: error for error in ERRORS}

    def try_folder(self, folder: str, *, shortlist: bool) -> None:
        self._send(folder, shortlist=shortlist)


def trials(kind: str, count: int, seed: int) -> Iterator[tuple[bytes, Outcome]]:
    """Draw files of a kind and try each; yield its content and its outcome."""
    generator = random.Random(f"{kind} {seed}")
    if kind == "archive":
        yield from _archives(count, generator)
    elif kind in FILES:
        yield from _models(kind, count, generator)
    else:
        yield from _files(kind, count, generator)


def _models(kind: str, count: int, generator: random.Random) -> Iterator[tuple[bytes, Outcome]]:
    sound, name, _ = FILES[kind]
    original = sound_folder(sound)
    with tempfile.TemporaryDirectory() as parent, Loader(SECONDS, MEMORY, forks=True) as loader:
        folder = Path(shutil.copytree(original, Path(parent) / "model"))
        if kind == "pickle":
            (folder / "model.safetensors").unlink()
            good, file = b"", folder / PICKLED_FILE
        elif kind == "candidates":
            good, file = FILES["header"][2]["many tensors"](3), folder / name
        else:
            file = folder / name if name else next(folder.glob(NAMES[kind]))
            good = file.read_bytes()
        for _ in range(count):
            content = draw(kind, good, generator)
            if kind == "pickle":
                archive(content, file)
            else:
                file.write_bytes(content)
            is_shortlist = kind in ("shortlist", "candidates")
            try_folder = partial(loader.try_folder, str(folder), shortlist=is_shortlist)
            yield content, _outcome(try_folder, str(folder))


def _files(suffix: str, count: int, generator: random.Random) -> Iterator[tuple[bytes, Outcome]]:
    with Worker(forks=True) as worker:
        for _ in range(count):
            name, content = draw_file(suffix, generator)
            format = format_of(name)
            assert format is not None
            source = Source(content, format, name, COLUMNS.get(format), "de")

            def read_and_write(source: Source = source) -> None:
                texts = worker.read(source, 1 << 22)
                if texts.units:
                    worker.write(source, [[Translated(unit.text) for unit in texts.units]])

            yield content, _outcome(read_and_write, name)


def _archives(count: int, generator: random.Random) -> Iterator[tuple[bytes, Outcome]]:
    """Zip files of models: names, ratios, counts and copies that are legal and absurd."""
    original = sound_folder("opus")
    with tempfile.TemporaryDirectory() as parent:
        file, folder = Path(parent) / "model.zip", Path(parent) / "unpacked"
        for _ in range(count):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # of names that come twice
                _write_archive(file, original, generator)
            content = file.read_bytes()

            def unpack() -> None:
                with Unpacker(SECONDS, UNPACKER_MEMORY, forks=True) as unpacker:
                    unpacker.unpack(os.fspath(file), file_digest(file), folder)

            yield content, _outcome(unpack, str(file))
            outside = [path for path in Path(parent).iterdir() if path not in (file, folder)]
            assert not outside, outside
            shutil.rmtree(folder, ignore_errors=True)


def _write_archive(file: Path, original: Path, generator: random.Random) -> None:
    size = size_of(generator)
    names = (
        "../" * 20 + "a.spm",
        "/etc/a.spm",
        "a" * 60_000,
        "a:b",
        "\ud7ff",
        "CON",
        ".",
        "..",
        "a\\b.npz",
        "",
        "a/../b",
    )
    method = generator.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA))
    prefix = generator.choice(("", "opus/", "a/" * min(size, 300), "./", "../"))
    with zipfile.ZipFile(file, "w", method) as written:
        for path in sorted(original.iterdir()):
            written.writestr(zipfile.ZipInfo(prefix + path.name), path.read_bytes())
        for index in range(generator.choice((0, 1, min(size, 3000)))):
            name = generator.choice((f"{prefix}{index}", f"{prefix}{generator.choice(names)}", f"{index}/model.npz"))
            written.writestr(zipfile.ZipInfo(name), b"0" * generator.choice((0, 1, 10 * size)), compress_type=method)
    content = bytearray(file.read_bytes())
    if generator.random() < 0.4:  # records that lie
        start = content.rfind(generator.choice((b"PK\1\2", b"PK\3\4", b"PK\5\6")))
        offset = start + generator.randrange(4, 22)
        content[offset : offset + 4] = generator.choice((0, 1, 2**31 - 1, 2**32 - 1)).to_bytes(4, "little")
        file.write_bytes(content)


def _outcome(read: Callable[[], object], named: str) -> Outcome:
    start, message = time.monotonic(), ""
    try:
        read()
        name = "read"
    except (*ERRORS, FormatError, CatalogError) as error:
        message = str(error)
        is_named = named in message or "is not supported by the engine" in message
        name = "refused" if is_named and len(message) < MAX_MESSAGE else "unnamed"
        if any(words in message for words in STOPPED):
            name = "stopped"
        elif CRASHED in message:
            name = "crashed"
    return Outcome(name, message, time.monotonic() - start)
