"""Write output files: whole or not at all, through links, and directly into streams such as a pipe."""

import contextlib
import errno
import itertools
import json
import os
import re
import stat
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, BinaryIO

if TYPE_CHECKING:  # importing it takes 4 ms, and a run that writes to stdout does not need it
    from pathlib import Path

NAMES_OF_STREAMS = ("/dev/fd/", "/dev/stdin", "/dev/stdout", "/dev/stderr", "/proc/")
MAX_OBJECT, MAX_SMALL_OBJECT = 1 << 26, 1 << 20  # bytes
ERROR_OF_RUST = re.compile(r"\(os error (\d+)\)")  # safetensors and tokenizers have classes of their own
NO_ROOM = {errno.ENOSPC, errno.EFBIG, errno.EDQUOT}  # what only writing meets
NUMBERS = itertools.count()  # of partial files: a process may have several open at once


def check_outputs(outputs: "Iterable[Path | None]", inputs: "Iterable[Path | None]" = ()) -> None:
    """Raise an error for a file that cannot be written, that is written twice, or that is also read.

    `None` stands for an unused option. Call this before a model is loaded.
    """
    files = [path for path in outputs if path is not None and not is_stream(path)]
    for path in files:
        try:
            path.stat()
        except (FileNotFoundError, NotADirectoryError):
            pass
        except OSError as error:  # a link to itself, a name that is too long
            raise ValueError(f"{path} cannot be written: {error}") from None
        target = path.resolve()
        if target.is_dir():
            raise ValueError(f"{path} is a folder; a file is needed")
        if path.is_symlink() and not target.parent.exists():
            raise ValueError(f"{path} is a link to {target}, whose folder does not exist")
        check_output_folder(target.parent)
        if target.exists() and not os.access(target, os.W_OK):
            raise ValueError(f"{path}: no permission to write")
    for first, second in itertools.combinations(files, 2):
        if _is_same(first, second):
            raise ValueError(f"{first} and {second} are the same file: give each output its own file")
    for input_path in inputs:
        for path in files:
            if input_path is not None and _is_same(path, input_path):
                raise ValueError(f"{path} is read and written: choose another output")


def check_output_folder(path: "Path") -> None:
    """Raise an error if no files can be written into a folder of this name, which need not exist."""
    resolved = path.resolve()
    folder = next(ancestor for ancestor in (resolved, *resolved.parents) if ancestor.exists())
    if not folder.is_dir():
        raise ValueError(f"{path}: {folder} is a file; a folder is needed")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise ValueError(f"{path}: no permission to write into {folder}")


def check_new_folder(path: "Path") -> None:
    """Raise an error if a folder of this name cannot be written, has files already, or is the current one."""
    check_output_folder(path)
    if not path.exists():
        return
    if any(path.iterdir()):
        raise ValueError(f"{path}: exists and is not empty; name a new folder")
    if path.samefile(os.curdir):  # it would be removed, and relative paths would lead nowhere
        raise ValueError(f"{path}: is the current folder, which cannot be replaced; name a new folder")


def is_stream(path: str | os.PathLike[str]) -> bool:
    """Return whether a path names a device, a pipe or a descriptor, which must not be replaced by a file."""
    if os.path.abspath(path).startswith(NAMES_OF_STREAMS):
        return True
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


@contextlib.contextmanager
def naming_errors(path: str | os.PathLike[str]) -> Iterator[None]:
    """Name `path` in an error of writing that names no file, as that of a full disk does."""
    try:
        yield
    except OSError as error:
        if error.errno is not None and error.filename is None:
            error.filename = os.fspath(path)
        raise
    except Exception as error:
        match = ERROR_OF_RUST.search(str(error))
        if match is None or (number := int(match[1])) not in NO_ROOM:
            raise
        raise OSError(number, os.strerror(number), os.fspath(path)) from error


@contextlib.contextmanager
def open_output(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open a new file that replaces `path` once the block has ended without an error.

    A link stays, and the file that it names is replaced. A stream is written directly. Errors are named as
    by `naming_errors`.
    """
    with naming_errors(path):
        if is_stream(path):
            with open(path, "ab") as stream:
                yield stream
            return
        from pathlib import Path  # late: importing it takes 4 ms

        target = Path(path).resolve()
        target.parent.mkdir(parents=True, exist_ok=True)
        partial = target.with_name(f"{_beginning(target)}.{os.getpid()}.{next(NUMBERS)}.partial")
        try:
            with open(partial, "wb") as stream:
                yield stream
                stream.flush()
                os.fsync(stream.fileno())
            if target.exists():
                import shutil

                shutil.copymode(target, partial)
            partial.replace(target)
        except BaseException:
            partial.unlink(missing_ok=True)
            raise
        if os.name == "posix":  # so that the new name survives a loss of power, too
            folder = os.open(target.parent, os.O_RDONLY)
            os.fsync(folder)
            os.close(folder)


def write_output(path: str | os.PathLike[str], content: str | bytes) -> None:
    """Write a file as `open_output` does; text as UTF-8."""
    with open_output(path) as stream:
        stream.write(content.encode("utf-8") if isinstance(content, str) else content)


def read_object(path: str | os.PathLike[str], max_size: int = MAX_OBJECT) -> dict[str, Any] | None:
    """Return the object in a JSON file, or `None` if no such file of at most `max_size` bytes can be read."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):  # opening a pipe would wait for its writer
            return None
        with open(path, "rb") as stream:
            content = stream.read(max_size + 1)
        value = json.loads(content) if len(content) <= max_size else None
    except (OSError, ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def read_small_object(path: str | os.PathLike[str], max_size: int = MAX_SMALL_OBJECT) -> dict[str, Any]:
    """Return the object in a JSON file of a stranger, empty if the file is missing; refuse one that is not read."""
    value = read_object(path, max_size)
    if value is None and os.path.lexists(path):
        raise ValueError(f"{os.fspath(path)}: cannot be read as a JSON object of at most {max_size} bytes")
    return value or {}


def remove_partials(path: "Path") -> None:
    """Remove the partial files of a file, or of all files in a folder, that killed processes left behind.

    The caller holds the lock of the file or the folder.
    """
    target = path.resolve()
    folder, beginning = (target, ".+") if target.is_dir() else (target.parent, re.escape(_beginning(target)))
    for partial in folder.glob("*.partial"):
        if re.fullmatch(rf"{beginning}\.\d+\.\d+\.partial", partial.name):
            partial.unlink(missing_ok=True)


def _beginning(file: "Path") -> str:
    """Return the beginning of a file's partial names: its name, cut to what every file system takes."""
    if len(file.name) <= 40:
        return file.name
    import hashlib  # late: importing it takes a tenth of the start of a program that writes no file

    return f"{file.name[:32]}-{hashlib.sha256(os.fsencode(file.name)).hexdigest()[:8]}"


def _is_same(first: "Path", second: "Path") -> bool:
    """Return whether two paths, through links or not, lead to the same file, which need not exist."""
    if first.resolve() == second.resolve():
        return True
    return first.exists() and second.exists() and first.samefile(second)
