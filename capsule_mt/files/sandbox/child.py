"""The process that reads untrusted files within limits; `worker.py` starts it and kills it.

A message is the length of a JSON object in four bytes, the object, and the files, whose lengths the object states.
"""

import contextlib
import json
import os
import signal
import struct
import sys
from collections.abc import Callable, Sequence
from typing import Any, BinaryIO, NamedTuple, TypeAlias

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
    """Return the next message; raise an `EOFError` at the end of the stream, or for an incomplete or too large one."""
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


# what a process does with a job and the contents of files: it returns an object for JSON, and files
Answer: TypeAlias = Callable[[dict[str, Any], list[bytes], Limits], tuple[dict[str, Any], list[bytes]]]


def main(answer: Answer) -> None:
    limits = Limits(float(sys.argv[1]), *map(int, sys.argv[2:]))
    serve(sys.stdin.buffer, sys.stdout.buffer, limits, answer)


def serve(stdin: BinaryIO, stdout: BinaryIO, limits: Limits, answer_job: Answer) -> None:
    """Answer messages until the other process ends, or until this one holds much memory."""
    # a service manager signals every process of a service, but the server still answers the requests it accepted
    for name in (signal.SIGINT, signal.SIGTERM):
        signal.signal(name, signal.SIG_IGN)
    _limit("RLIMIT_AS", limits.memory + _memory()[0])
    _limit("RLIMIT_CORE", 0)
    # where memory is scarcer than the limit, Linux ends this process and not the server
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w", encoding="ascii") as adjustment:
        adjustment.write("1000")
    resident = _memory()[1]
    while True:
        try:
            job, contents = receive(stdin, limits.max_head, limits.max_contents)
        except EOFError:
            return  # the server has ended
        _limit_seconds(limits.seconds)
        answer, files = _answer(job, contents, limits, answer_job)
        _limit_seconds(0)
        answer["is_last"] = answer.get("is_last", False) or _memory()[1] > resident + MAX_GROWTH
        send(stdout, answer, files)
        if answer["is_last"]:
            return


def _answer(
    job: dict[str, Any], contents: list[bytes], limits: Limits, answer: Answer
) -> tuple[dict[str, Any], list[bytes]]:
    try:
        return answer(job, contents, limits)
    except MemoryError:
        pass  # leave the handler first: the traceback holds the objects that filled the memory
    message = f"{job['name']}: takes more than {limits.memory >> 20} MB of memory to read or write"
    return {"error": message, "is_last": True}, []


def reported(error: BaseException) -> tuple[dict[str, Any], list[bytes]]:
    """Return the answer that reports an error, which `Sandbox.reported_types` maps to a type."""
    return {"error": str(error), "kind": type(error).__name__}, []


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
