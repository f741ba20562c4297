"""Hostile `pytorch_model.bin`: each is read, or refused by one sentence that begins with the file."""

import random
import tempfile
import zipfile
from pathlib import Path
from typing import Any

from capsule_mt.engine.program import UnsupportedModelError
from capsule_mt.models.state_dict import tensors_in
from capsule_mt.models.weights import PICKLED_FILE, CheckpointError
from tests.fuzz.parsers import check_message

Case = dict[str, Any]

# data.pkl of `torch.save(OrderedDict(x=torch.arange(6.0).reshape(2, 3)), ...)`, without its memo
SOUND = (
    b"\x80\x02ccollections\nOrderedDict\n)R(X\x01\x00\x00\x00xctorch._utils\n_rebuild_tensor_v2\n((X\x07\x00\x00\x00"
    b"storagectorch\nFloatStorage\nX\x01\x00\x00\x000X\x03\x00\x00\x00cpuK\x06tQK\x00K\x02K\x03\x86K\x03K\x01\x86\x89"
    b"ccollections\nOrderedDict\n)RtRu."
)
STORAGES = {"0": bytes.fromhex("000000000000803f0000004000004040000080400000a040")}
# opcodes that call, build or look up, numbers that are too large, and stacks that are too deep
OPCODES = (
    *(b"cos\nsystem\n", b"cbuiltins\neval\n", b"R", b"b", b"\x81", b"\x92", b"i__builtin__\neval\n", b"o", b"Q", b"t"),
    *(b"(", b"0", b"1", b"2", b"u", b"s", b".", b"h\xff", b"j\xff\xff\xff\x7f", b"r\xff\xff\xff\xff"),
    *(b"J\xff\xff\xff\xff", b"L99999999999999999999L\n", b"I01\n", b"p0\n", b"g0\n", b"}", b"]", b")"),
    *(b"\x8b\xff\xff\xff\x7f", b"\x8a\xff", b"X\xff\xff\xff\x7f", b"\x8d" + b"\xff" * 8, b"\x95" + b"\xff" * 8),
    *(b"(" * 20000, b"]" * 20000, b"K\x01" * 20000, b"\x85" * 20000, b"N", b"I99999999999999999999\n", b"F1e999\n"),
)


def archive(pickle: bytes, file: Path) -> None:
    """Write a file as `torch.save` does."""
    with zipfile.ZipFile(file, "w") as written:
        written.writestr("archive/data.pkl", pickle)
        written.writestr("archive/version", "3\n")
        for key, content in STORAGES.items():
            written.writestr(f"archive/data/{key}", content)


def make_pickle(generator: random.Random) -> Case:
    pickle = bytearray(SOUND)
    for _ in range(generator.randint(1, 3)):
        start = generator.randrange(len(pickle) + 1)
        end = min(len(pickle), start + generator.choice((0, 0, 1, 1, 4, 30)))
        byte = bytes([generator.randrange(256)])
        pickle[start:end] = generator.choice((byte, byte, generator.choice(OPCODES), bytes(pickle[start:end]) * 2))
    return {"pickle": pickle.decode("latin-1")}


def check_pickle(case: Case) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / PICKLED_FILE
        archive(case["pickle"].encode("latin-1"), file)
        try:
            size = file.stat().st_size  # in this process: starting another one takes longer than reading
            assert all(start + length <= size for *_, start, length in tensors_in(str(file)))
        except (CheckpointError, UnsupportedModelError) as error:
            check_message(error, str(file))
