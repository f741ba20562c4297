"""What is legal and absurd in each kind of file: depth, sharing, counts, names and ratios, in any combination.

`draw` makes the content of one file. A kind is one of `builders.FILES`, or the suffix of a file to translate.
"""

import json
import math
import random
import struct
from collections.abc import Callable
from typing import Any

from tests.fuzz.built import MAKERS, NESTED
from tests.fuzz.pickles import SOUND
from tests.hostile.builders import FILES, KEY, PICKLES, PROTOCOL, REBUILD

MAX_SIZE = 70_000
ABSURD = (0, 1, 2, 127, 255, 2**15, 2**16 - 1, 2**24, 2**31 - 1, 2**32 - 1, 2**40, 2**53 + 1, 2**62, 2**63, 2**64 - 1)
JSON_KINDS = ("configuration", "generation", "tokenizer", "tokenizer configuration", "facts")
TEXT_KINDS = ("decoder", "vocabulary")
FILE_KINDS = tuple(sorted(NESTED))
KINDS = (*FILES, *FILE_KINDS, "archive")
# opcodes that are legal in a pickle of tensors, each with its argument
OPCODES = (
    *(
        b"}",
        b"]",
        b")",
        b"(",
        b"t",
        b"\x85",
        b"\x86",
        b"\x87",
        b"u",
        b"s",
        b"e",
        b"a",
        b"0",
        b"1",
        b"2",
        b"N",
        b"K\x01",
    ),
    *(
        b"q\x00",
        b"h\x00",
        b"q\x01",
        b"h\x01",
        b"r\x00\x01\x00\x00",
        b"\x94",
        KEY,
        REBUILD,
        b"\x89",
        b"\x88",
        b"R",
        b"Q",
    ),
    *(
        b"ccollections\nOrderedDict\n",
        b"ctorch\nFloatStorage\n",
        b"\x8a\x00",
        b"J\xff\xff\xff\x7f",
        b"\x95" + bytes(8),
    ),
)


def size_of(generator: random.Random) -> int:
    """Draw a size: as often from 1 to 10 as from 10,000 to 70,000."""
    return int(math.exp(generator.uniform(0, math.log(MAX_SIZE)))) - 1


def draw(kind: str, sound: bytes, generator: random.Random) -> bytes:
    """Return the content of a hostile file; `sound` is that of a good one."""
    if kind == "pickle":
        return _pickle(generator)
    if kind in JSON_KINDS and generator.random() < 0.7:
        return _json(sound, generator)
    if kind in TEXT_KINDS and generator.random() < 0.6:
        return _text(sound, generator)
    if kind in FILES and kind not in JSON_KINDS and generator.random() < 0.6:
        return _numbers(sound, generator)
    builders = FILES[kind][2]
    return builders[generator.choice(sorted(builders))](size_of(generator))


def _pickle(generator: random.Random) -> bytes:
    """Return a pickle of builders and opcodes; some are repeated, others share what the memo has."""
    parts = []
    for _ in range(generator.choice((1, 2, 4))):
        choice = generator.random()
        if choice < 0.4:
            parts.append(PICKLES[generator.choice(sorted(PICKLES))](size_of(generator)))
        elif choice < 0.8:
            opcodes = b"".join(generator.choices(OPCODES, k=generator.randint(1, 12)))
            parts.append(opcodes * max(1, size_of(generator) // len(opcodes)))
        else:
            parts.append(SOUND[2:-1])
    return PROTOCOL + b"".join(parts) + b"."


def _value(generator: random.Random, depth: int = 0) -> Any:
    """Return a value of JSON: numbers that no computer has, long and deep lists, names that are almost equal."""
    size = size_of(generator) // 10
    makers: tuple[Callable[[], Any], ...] = (
        lambda: generator.choice(ABSURD) * generator.choice((1, -1)),
        lambda: int("9" * generator.choice((20, 300, 4000))),
        lambda: generator.choice((1e308, -0.0, 5e-324, float("nan"), float("inf"))),
        lambda: generator.choice(("a", "\0", "\ud800", "\u202e", "\\", '"')) * size,
        lambda: [[]] * size,
        lambda: _nested(min(size, 900)),
        lambda: {f"k{index}": index for index in range(size)},
        lambda: {"": _value(generator, depth + 1), "\u200b": None, "a" * size: []} if depth < 3 else None,
        lambda: [generator.choice((True, None, "", 0, 1.5, [], {}))],
    )
    return generator.choice(makers)()


def _nested(depth: int) -> Any:
    value: Any = []
    for index in range(depth):
        value = [value] if index % 2 else {"a": value}
    return value


def _json(sound: bytes, generator: random.Random) -> bytes:
    content = json.loads(sound)
    holder = content
    while True:  # down to some field
        keys = sorted(holder) if isinstance(holder, dict) else range(min(len(holder), 50))
        if not keys:
            break
        key = generator.choice(list(keys))
        if not isinstance(holder[key], dict | list) or not holder[key] or generator.random() < 0.4:
            holder[key] = _value(generator)
            break
        holder = holder[key]
    text = json.dumps(content)
    if generator.random() < 0.2:  # the same name twice is legal
        text = "{" + f'"{generator.choice(sorted(content))}": {json.dumps(_value(generator))}, ' + text[1:]
    return text.encode("utf-8", "surrogatepass")


def _text(sound: bytes, generator: random.Random) -> bytes:
    """Return lines of YAML, some of them absurd."""
    lines = sound.split(b"\n")
    size = size_of(generator)
    absurd = (
        *(b"- a" * size, b"a: [" + b"a, " * size + b"a]", b" " * size, b"#" * size, b"'" + b"''" * size + b"': 0"),
        *(b"beam-size: " + str(generator.choice(ABSURD)).encode(), b"normalize: 1e999", b"max-length-factor: .nan"),
        *(
            b'"' + b"\\x41" * size + b'": 1',
            b"a" * size + b": 1",
            b"vocabs: ~",
            b"models: []",
            b"models: [a, a]",
            b"? a",
        ),
    )
    for _ in range(generator.choice((1, 2, 5))):
        lines.insert(generator.randrange(len(lines) + 1), generator.choice(absurd))
    return b"\n".join(lines)


def _numbers(sound: bytes, generator: random.Random) -> bytes:
    """Replace numbers of a header, and lengths of what follows them."""
    content = bytearray(sound)
    head = min(len(content), generator.choice((64, 512, 8192)))
    for _ in range(generator.choice((1, 1, 2, 4))):
        size, form = generator.choice(((8, "<Q"), (4, "<I"), (2, "<H"), (1, "<B")))
        offset = generator.randrange(max(head - size, 1))
        value = generator.choice((*ABSURD, len(content), len(content) - 1, len(content) + 1))
        content[offset : offset + size] = struct.pack(form, value % (1 << 8 * size))
    if generator.random() < 0.2:
        start = generator.randrange(len(content))
        content[start:start] = bytes(content[start : start + 64]) * (size_of(generator) // 64)
    return bytes(content)


def draw_file(suffix: str, generator: random.Random) -> tuple[str, bytes]:
    """Return the name and the content of a file to translate, with parts that are nested, opened or repeated."""
    if generator.random() < 0.25:
        return generator.choice(MAKERS)(generator)
    content = b""
    for _ in range(generator.choice((1, 2, 4))):
        opening, _, closing = generator.choice(NESTED[suffix]).partition("|")
        depth, filler = (
            size_of(generator) // 4,
            generator.choice(("a", " ", "\n", "&amp;", "&", "<", "\\", "'", "{0}", "%s")),
        )
        body = filler * generator.choice((0, 1, depth))
        content += generator.choice(
            (
                (opening * depth + body + closing * depth),
                (opening + body + closing) * depth,
                opening * depth + body,
                body + closing * depth,
            )
        ).encode("utf-8", "surrogatepass")
    return f"hostile.{suffix}", content[: 1 << 20]
