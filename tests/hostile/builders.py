"""Files of models that are built to be hostile: depth, sharing, counts, long names and numbers.

Each builder makes the content of one file for a size; the larger the size, the more hostile the file.
"""

import io
import json
import shutil
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from capsule_mt.models.weights import PICKLED_FILE
from tests.fuzz.pickles import SOUND, archive

Builder = Callable[[int], bytes]
PROTOCOL, KEY = b"\x80\x02", b"X\x01\x00\x00\x00a"
REBUILD = SOUND[SOUND.index(b"ctorch._utils") : -2]  # the call that makes the tensor of `SOUND`


def _text(size: int) -> bytes:
    return b"X" + size.to_bytes(4, "little") + b"a" * size


def tensors(names: int) -> bytes:
    """A dictionary that has one tensor under many names."""
    keys = b"".join(b"X\x06\x00\x00\x00%06dh\x00" % number for number in range(names))
    return b"}(" + KEY + REBUILD + b"q\x00" + keys + b"u"


def _shape(sizes: bytes) -> bytes:
    return REBUILD.replace(b"K\x02K\x03\x86", sizes)


PICKLES: dict[str, Builder] = {
    "deep": lambda size: b")" + b"\x85" * size,
    "deep keys": lambda size: b"})" + b"\x85" * size + b"Ns",
    "deep values": lambda size: b"}" + KEY + b")" + b"\x85" * size + b"s",
    "shared": lambda size: b"})" + b"q\x00h\x00\x86" * size + b"Ns",
    "shared storages": lambda size: b"X\x07\x00\x00\x00storage)" + b"q\x00h\x00h\x00\x87" * size + b"\x86Q",
    "shared arguments": lambda size: b"ccollections\nOrderedDict\n)" + b"q\x00h\x00\x86" * size + b"R",
    "marks": lambda size: b"(" * size,
    "closed marks": lambda size: b"(" * size + b"t" * size,
    "marks between values": lambda size: b"(K\x01" * size + b"u" * size,
    "dictionaries": lambda size: (b"}" + KEY) * size + b"}" + b"s" * size,
    "a dictionary in itself": lambda size: b"}q\x00" + (KEY + b"h\x00s") * size,
    "memo": lambda size: b"N" + b"".join(b"r" + number.to_bytes(4, "little") for number in range(size)),
    "far memo": lambda size: b"N" + b"r\xff\xff\xff\xff" * size + b"j\xff\xff\xff\xff",
    "long name": lambda size: b"}" + _text(size) + b"Ns",
    "cut name": lambda size: b"}X" + (size + 1).to_bytes(4, "little"),
    "wide": lambda size: b"(" + b"K\x01" * size + b"t",
    "wide in wide": lambda size: b"(" + b")" * size + b"tq\x00" + b"(" + b"h\x00" * size + b"tq\x00",
    "wide shape": lambda size: b"}" + KEY + _shape(b"(" + b"K\x01" * size + b"t") + b"s",
    "large shape": lambda size: b"}" + KEY + _shape(b"(" + b"J\xff\xff\xff\x7f" * min(size, 64) + b"t") + b"s",
    "shape without strides": lambda size: b"}" + KEY + _shape(b")") + b"s",
    "many tensors": tensors,
    "long integer": lambda size: b"\x8b" + size.to_bytes(4, "little") + b"\xff" * size,
    "long digits": lambda size: b"L" + b"9" * size + b"L\n",
    "long function": lambda size: b"c" + b"a" * size,
    "functions": lambda size: b"ccollections\nOrderedDict\n" * size,
    "calls": lambda size: b"ccollections\nOrderedDict\n)R" * size,
    "pops": lambda size: b"N" + b"b" * size,
    "frames": lambda size: b"\x95" + size.to_bytes(8, "little"),
}


def _header(header: object) -> bytes:
    content = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(content).to_bytes(8, "little") + content


def _tensor(shape: list[int], end: int = 0) -> dict[str, Any]:
    return {"dtype": "F32", "shape": shape, "data_offsets": [0, end]}


HEADERS: dict[str, Builder] = {
    "brackets": lambda size: _header(b'{"a":' + b"[" * size),
    "objects": lambda size: _header(b'{"a":' * size),
    "digits": lambda size: _header(b'{"a":{"shape":[1' + b"0" * size + b"]}}"),
    "wide shape": lambda size: _header({"a": _tensor([2**62] * size)}),
    "zeros": lambda size: _header({"a": _tensor([0] + [2**62] * size)}),
    "long name": lambda size: _header({"a" * size: _tensor([0])}),
    "many tensors": lambda size: _header({str(number): _tensor([0]) for number in range(2 * size)}),
    "metadata": lambda size: _header({"__metadata__": {str(number): "a" for number in range(size)}}),
}
JSONS: dict[str, Builder] = {
    "brackets": lambda size: b"[" * size,
    "objects": lambda size: b'{"a":' * size + b"1" + b"}" * size,
    "digits": lambda size: b'{"vocab_size": 1' + b"0" * size + b"}",
    "long name": lambda size: json.dumps({"model_type": "a" * size}).encode(),
    "keys": lambda size: json.dumps({str(number): number for number in range(size)}).encode(),
    "list": lambda size: json.dumps({"model_type": list(range(size)), "d_model": [[]] * size}).encode(),
}
YAMLS: dict[str, Builder] = {
    "items": lambda size: b"a:\n" + b"- a\n" * size,
    "dashes": lambda size: b"- " * size,
    "brackets": lambda size: b"a: " + b"[" * size,
    "commas": lambda size: b"a: [" + b"," * size + b"]",
    "keys": lambda size: b"".join(b"a%d: 1\n" % number for number in range(size)),
    "one key": lambda size: b"a: 1\n" * size,
    "spaces": lambda size: b"a:" + b" " * size + b"#" * size,
    "digits": lambda size: b"beam-size: 1" + b"0" * size,
    "anchors": lambda size: b"a: &a [a]\n" + b"b: *a\n" * size,
    "long name": lambda size: b"models: [" + b"a" * size + b"]",
    "vocabularies": lambda size: b"vocabs: [" + b"../../etc/passwd, " * size + b"a]",
}
VOCABULARIES: dict[str, Builder] = {
    "tokens": lambda size: b"".join(b"a%d: %d\n" % (number, number) for number in range(size)),
    "one number": lambda size: b"".join(b"a%d: 0\n" % number for number in range(size)),
    "digits": lambda size: b"a: 1" + b"0" * size,
    "quotes": lambda size: b"'" + b"'" * size + b": 0",
    "escapes": lambda size: b'"' + b"\\U0010FFFF" * size + b'": 0',
    "backslashes": lambda size: b'"' + b"\\" * size + b'": 0',
    "spaces": lambda size: b"a" + b" " * size + b": 0" + b" " * size,
}
PIECES: dict[str, Builder] = {  # fields of protobuf
    "nested": lambda size: b"\x0a\x7f" * size,
    "empty": lambda size: b"\x0a\x00" * size,
    "long": lambda size: b"\x0a\xff\xff\xff\xff\x0f" + b"a" * size,
    "numbers": lambda size: b"\x08" + b"\xff" * size,
    "groups": lambda size: b"\x0b" * size,
    "map": lambda size: b"\x1a" + _varint(size + 4) + b"\x12" + _varint(size) + b"\xff" * size,
}


def _varint(value: int) -> bytes:
    content = bytearray()
    while value > 127:
        content.append(value & 127 | 128)
        value >>= 7
    return bytes([*content, value])


def _binary(count: int, length: int = 1, dimensions: int = 0, padding: int = 0) -> bytes:
    headers = struct.pack("<QQQQ", length, 0x404, dimensions, 4) * min(count, 1_000_000)
    return struct.pack("<QQ", 1, count) + headers + b"a" * length + struct.pack("<Q", padding)


BINARIES: dict[str, Builder] = {
    "many": lambda size: _binary(size),
    "many more": lambda size: _binary(size**3),
    "long name": lambda size: _binary(1, length=size),
    "dimensions": lambda size: _binary(1, dimensions=size),
    "padding": lambda size: _binary(1, padding=2**63 + size),
}


def _numpy(header: bytes, name: str = "a.npy", count: int = 1) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as written:
        for number in range(count):
            member = zipfile.ZipInfo(name if count == 1 else f"{number}{name}")
            written.writestr(member, b"\x93NUMPY\1\0" + min(len(header), 65535).to_bytes(2, "little") + header)
    return stream.getvalue()


NUMPY = b"{'descr': '<f4', 'fortran_order': False, 'shape': (%s), }"
NUMPIES: dict[str, Builder] = {
    "many": lambda size: _numpy(NUMPY % b"0", count=min(size, 60_000)),
    "dimensions": lambda size: _numpy(NUMPY % (b"9," * min(size, 49))),
    "digits": lambda size: _numpy(NUMPY % (b"9" * min(size, 99))),
    "spaces": lambda size: _numpy(NUMPY % b"0" + b" " * size),
    "long name": lambda size: _numpy(NUMPY % b"0", f"{'a' * min(size, 60_000)}.npy"),
}
SHORTLISTS: dict[str, Builder] = {
    "offsets": lambda size: struct.pack("<6Q", 0xF11A48D5013417F5, 0, 2**40, 2**40, 2**61, size),
    "zeros": lambda size: struct.pack("<6Q", 0xF11A48D5013417F5, 0, 0, 0, size, 0) + bytes(8 * size),
    "falling": lambda size: struct.pack("<6Q", 0xF11A48D5013417F5, 0, 0, 0, size, 0) + b"\xff" * 8 * size,
}


def _candidates(**metadata: str) -> bytes:
    tensors = {
        name: {"dtype": "I32", "shape": [0], "data_offsets": [0, 0]} for name in ("starts", "tokens", "frequent")
    }
    return _header({"__metadata__": metadata, **tensors})


CANDIDATES: dict[str, Builder] = HEADERS | {
    "vocabulary": lambda size: _candidates(vocabulary="9" * size),
    "multiple": lambda size: _candidates(vocabulary="9", multiple="9" * size),
}
# for each kind of file: the sound folder that has it, its name, and what builds its content
FILES: dict[str, tuple[str, str, dict[str, Builder]]] = {
    "pickle": ("capsule_marian", PICKLED_FILE, PICKLES),
    "header": ("capsule_marian", "model.safetensors", HEADERS),
    "configuration": ("capsule_marian", "config.json", JSONS),
    "generation": ("capsule_marian", "generation_config.json", JSONS),
    "tokenizer": ("capsule_marian", "tokenizer.json", JSONS),
    "tokenizer configuration": ("capsule_marian", "tokenizer_config.json", JSONS),
    "facts": ("small", "small.json", JSONS),
    "decoder": ("opus", "decoder.yml", YAMLS),
    "vocabulary": ("opus", "joint.yml", VOCABULARIES),
    "pieces": ("opus", "source.spm", PIECES),
    "npz": ("opus", "model.npz", NUMPIES),
    "bin": ("int8", "", BINARIES),
    "shortlist": ("int8", "", SHORTLISTS),
    "candidates": ("capsule_marian", "shortlist.safetensors", CANDIDATES),
}
NAMES = {"bin": "model*.bin", "shortlist": "lex*.bin"}  # patterns of files whose names have a language pair


def write_hostile(kind: str, builder: str, size: int, folder: Path) -> Path:
    """Copy a sound folder, with a hostile file in it; return this file."""
    from tests.fuzz import cases  # late: it lists the targets of this file

    sound, name, builders = FILES[kind]
    shutil.copytree(cases.sound_folder(sound), folder)
    file = folder / name if name else next(folder.glob(NAMES[kind]))
    content = builders[builder](size)
    if kind == "pickle":
        (folder / "model.safetensors").unlink()
        archive(PROTOCOL + content + b".", file)
    else:
        file.write_bytes(content)
    return file
