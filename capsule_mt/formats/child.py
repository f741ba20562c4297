"""The process that reads and writes an untrusted file within limits; `worker.py` starts it and kills it.

A message is the length of a JSON object in four bytes, the object, and the files, whose lengths the object states.
"""

import json
import os
import signal
import struct
import sys
from collections.abc import Sequence
from typing import Any, BinaryIO, NamedTuple

from capsule_mt.formats.reading import NamedFile, read, read_after_trial
from capsule_mt.formats.units import FormatError, Translated, named_errors

LENGTH = struct.Struct(">I")
MAX_HEAD = 8 << 20  # bytes of JSON: parsing more would block the server
MAX_CONTENTS = 64 << 20  # bytes
LIMITS_SECONDS = hasattr(signal, "setitimer")  # not on Windows
MAX_GROWTH = 48 << 20  # bytes; a process that holds more after a file exits, which frees them


def send(stream: BinaryIO, message: dict[str, Any], contents: Sequence[bytes] = ()) -> None:
    head = json.dumps({**message, "lengths": list(map(len, contents))}).encode()
    stream.write(b"".join([LENGTH.pack(len(head)), head, *contents]))
    stream.flush()


def receive(
    stream: BinaryIO, max_head: int = MAX_HEAD, max_contents: int = MAX_CONTENTS
) -> tuple[dict[str, Any], list[bytes]]:
    """Return the next message; raise an `EOFError` at the end of the stream, or in an incomplete message."""
    (length,) = LENGTH.unpack(_exactly(stream, LENGTH.size))
    if length > max_head:
        raise EOFError(f"a message of {length} bytes")
    message = json.loads(_exactly(stream, length))
    lengths = message.pop("lengths")
    if sum(lengths) > max_contents:
        raise EOFError(f"contents of {sum(lengths)} bytes")
    return message, [_exactly(stream, length) for length in lengths]


def _exactly(stream: BinaryIO, length: int) -> bytes:
    content = stream.read(length)
    if len(content) < length:
        raise EOFError("the other process has ended")
    return content


class Limits(NamedTuple):
    """The limits of a process: seconds of the processor and bytes of memory for a file, bytes of JSON and of files."""

    seconds: float
    memory: int
    max_head: int
    max_contents: int


def main() -> None:
    limits = Limits(float(sys.argv[1]), *map(int, sys.argv[2:]))
    serve(sys.stdin.buffer, sys.stdout.buffer, limits)


def serve(stdin: BinaryIO, stdout: BinaryIO, limits: Limits) -> None:
    """Answer messages until the other process ends, or until this one holds much memory."""
    # a service manager signals every process of a service, but the server still answers the requests it accepted
    for name in (signal.SIGINT, signal.SIGTERM):
        signal.signal(name, signal.SIG_IGN)
    _limit("RLIMIT_AS", limits.memory + _memory()[0])
    _limit("RLIMIT_CORE", 0)
    resident = _memory()[1]
    while True:
        try:
            job, (content,) = receive(stdin, limits.max_head, limits.max_contents)
        except EOFError:
            return  # the server has ended
        _limit_seconds(limits.seconds)
        answer, files = _answer(job, content, limits)
        _limit_seconds(0)
        answer["is_last"] = answer.get("is_last", False) or _memory()[1] > resident + MAX_GROWTH
        send(stdout, answer, files)
        if answer["is_last"]:
            return


def _answer(job: dict[str, Any], content: bytes, limits: Limits) -> tuple[dict[str, Any], list[bytes]]:
    try:
        return _read(job, content) if job["translations"] is None else _write(job, content, limits.max_contents)
    except FormatError as error:
        return {"error": str(error)}, []
    except MemoryError:
        pass  # leave the handler first: the traceback holds the objects that filled the memory
    message = f"{job['name']}: takes more than {limits.memory >> 20} MB of memory to read or write"
    return {"error": message, "is_last": True}, []


def _read(job: dict[str, Any], content: bytes) -> tuple[dict[str, Any], list[bytes]]:
    with named_errors(job["name"], job["format"]):
        file = read_after_trial(content, *_options(job))
    characters = sum(len(unit.text) for unit in file.units)
    units = list(file.units) if characters <= job["max_characters"] else []
    return {"units": units, "keep": list(file.keep), "characters": characters}, []


def _write(job: dict[str, Any], content: bytes, max_contents: int) -> tuple[dict[str, Any], list[bytes]]:
    files = []
    with named_errors(job["name"], job["format"]):
        for translations in job["translations"]:
            file = read(content, *_options(job))  # once per translation: writing changes the parsed file
            file = NamedFile(file, job["name"], job["format"], job["flag_all"])
            files.append(file.write([Translated(*translated) for translated in translations]))
    if sum(map(len, files)) > max_contents:
        raise FormatError(f"{job['name']}: its translation has more than {max_contents} bytes")
    return {}, files


def _options(job: dict[str, Any]) -> tuple[str, str, str | None, str | None, str | None]:
    return job["format"], job["name"], job["encoding"], job["column"], job["language"]


def _limit(name: str, value: int) -> None:
    """Limit a resource of this process, if the system can."""
    try:
        import resource

        _, hard = resource.getrlimit(getattr(resource, name))
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(getattr(resource, name), (value, hard))
    except (ImportError, AttributeError, ValueError, OSError):  # Windows; macOS for memory
        pass


def _limit_seconds(seconds: float) -> None:
    """End this process after these seconds of processor time; 0 for no limit."""
    if LIMITS_SECONDS:
        signal.setitimer(signal.ITIMER_PROF, seconds)


def _memory() -> tuple[int, int]:
    """Return this process's bytes of addresses and of resident memory; `ru_maxrss` would start at its parent's."""
    try:
        with open("/proc/self/statm", encoding="ascii") as sizes:
            addresses, resident, *_ = sizes.read().split()
    except OSError:  # not Linux
        return 0, 0
    page = os.sysconf("SC_PAGE_SIZE")
    return int(addresses) * page, int(resident) * page
