"""Files of weights: what is read is what was saved, and a damaged or hostile file is an error that names it."""

import json
import math
import random
import struct
from array import array

import pytest

from capsule_mt.engine.library import checksum, widened
from capsule_mt.models import opening
from capsule_mt.models.checksums import write_facts
from capsule_mt.models.int8_weights import FORMAT, Int8File
from capsule_mt.models.weights import CheckpointError, SafetensorsFile, write_safetensors
from tests.light.models.files import read_header, write_file, write_tensors

FACTS = {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}
DATA = bytes(24)


def numbers(tensor):
    return array("f", bytes(widened(tensor).buffer)).tolist()


def test_types(tmp_path):
    values = [0.5, -1.25, 3.0, 0.0, -0.0078125, 2.0]
    halves = b"".join(struct.pack("<f", value)[2:] for value in values)
    stored = {
        "F64": struct.pack("<6d", *values),
        "F32": struct.pack("<6f", *values),
        "F16": struct.pack("<6e", *values),
        "BF16": halves,
        "I64": struct.pack("<6q", *range(6)),
    }
    file = tmp_path / "model.safetensors"
    write_tensors(file, {name: (name, [3, 2], content) for name, content in stored.items()})
    file_of_types = SafetensorsFile(file)
    for name in ("F64", "F32", "F16", "BF16"):
        assert file_of_types.shape(name) == (3, 2)
        assert numbers(file_of_types.read(name)) == values
    with pytest.raises(CheckpointError, match=r"model\.safetensors: `I64` is saved as I64, choose one of F64, F32"):
        file_of_types.read("I64")
    with pytest.raises(CheckpointError, match=r"model\.safetensors: lacks `F8`, which the configuration requires"):
        file_of_types.shape("F8")


@pytest.mark.parametrize(
    ("header", "data", "message"),
    [
        (b"{", DATA, "is not JSON"),
        (b"[" * 100_000, DATA, "is not JSON"),
        (b'{"x": {"shape": [1, ' + b"9" * 5000 + b"]}}", DATA, "'shape' has a number of 5,000 digits; at most 4,300"),
        (b"[[" + b"9" * 5000 + b"]]", DATA, "has a number of more than 4,300 digits"),
        *(
            ({"x": facts}, DATA, "`x` is .*, which is not a tensor: ")
            for facts in (
                5,
                FACTS | {"dtype": "F33"},
                FACTS | {"shape": [2, -3]},
                FACTS | {"shape": [2**62, 2**62, 6]},
                FACTS | {"data_offsets": [24, 0]},
                FACTS | {"data_offsets": [0, 2**70]},
            )
        ),
        ({"x": FACTS | {"data_offsets": [8, 32]}}, DATA + bytes(8), "`data_offsets` of `x` must begin at 0, got 8"),
        ({"x": FACTS, "y": FACTS}, DATA, "`data_offsets` of `y` must begin at 24, got 0"),
        ({"x": FACTS}, DATA + b"0", "bytes long, but its header describes"),
        ({"__metadata__": 5, "x": FACTS}, DATA, "`__metadata__` must be an object"),
    ],
)
def test_hostile_headers(header, data, message, tmp_path):
    file = tmp_path / "model.safetensors"
    write_file(file, header, data)
    with pytest.raises(CheckpointError, match=message) as error:
        SafetensorsFile(file)
    assert str(file) in str(error.value)


@pytest.mark.parametrize("content", [b"", b"1234567", bytes(8), (2**63).to_bytes(8, "little") + b"{}", b"\xff" * 99])
def test_what_is_no_safetensors_file(content, tmp_path):
    file = tmp_path / "model.safetensors"
    file.write_bytes(content)
    with pytest.raises(CheckpointError, match=r"model\.safetensors: is not a safetensors file, or it is cut off"):
        SafetensorsFile(file)


def sharded(tmp_path, **edited):
    """A checkpoint in two parts, with an index that may say something else of a tensor."""
    for number, name in enumerate("xy", start=1):
        write_tensors(tmp_path / f"part-{number}.safetensors", {name: ("F32", [2, 3], bytes([number] * 24))})
    weight_map = {"x": "part-1.safetensors", "y": "part-2.safetensors"} | edited
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    return tmp_path


def test_parts(tmp_path):
    sharded_file = SafetensorsFile.in_folder(sharded(tmp_path))
    assert sorted(sharded_file) == ["x", "y"]
    assert (bytes(sharded_file.content("x")), bytes(sharded_file.content("y"))) == (bytes([1] * 24), bytes([2] * 24))
    with pytest.raises(CheckpointError, match=r"part-2\.safetensors: `y`"):
        raise sharded_file.problem("y", "`y`")


@pytest.mark.parametrize(
    ("edited", "message"),
    [
        *(
            ({"y": part}, r"index\.json: `weight_map` has .* for `y`, which is not a file beside it")
            for part in ("../part-2.safetensors", "/etc/passwd", "a\\b", "C:b", "a\0b", 5)
        ),
        ({"y": "part-3.safetensors"}, r"part-3\.safetensors: no such file"),
        ({"z": "part-1.safetensors"}, r"index\.json: `weight_map` has `z`, which is not in part-1"),
        ({"z" * 5000: 5}, r"index\.json: `weight_map` has 5 for `z{200}`, which is not a file beside it$"),
        ({"z" * 5000: "part-1.safetensors"}, r"index\.json: `weight_map` has `z{200}`, which is not in part-1"),
        ({"z": "p" * 5000}, r"index\.json: `weight_map` has 'p{196}\.\.\. for `z`, which is not a file beside it$"),
    ],
)
def test_an_index_that_does_not_fit(edited, message, tmp_path):
    with pytest.raises(CheckpointError, match=message):
        SafetensorsFile.in_folder(sharded(tmp_path, **edited))


def test_a_folder_of_other_weights(tmp_path):
    with pytest.raises(CheckpointError, match=r"model\.safetensors: no such file"):
        SafetensorsFile.in_folder(tmp_path)


@pytest.mark.parametrize("min_mapped_size", [0, opening.MIN_MAPPED_SIZE])
def test_a_file_that_shrinks_while_it_is_open(min_mapped_size, tmp_path, monkeypatch):
    monkeypatch.setattr(opening, "MIN_MAPPED_SIZE", min_mapped_size)
    file = tmp_path / "model.safetensors"
    write_tensors(file, {"x": ("F32", [2, 3], DATA)})
    open_file = SafetensorsFile(file)
    header, data = read_header(file)
    write_file(file, header, data[:-4])
    with pytest.raises(CheckpointError, match="was cut off while it was read"):
        open_file.read("x")


def checksum_in_words(content):
    lanes = [0] * 8
    words = [int.from_bytes(content[start : start + 8], "little") for start in range(0, len(content), 8)]
    words += [0] * (len(content) // 64 * 8 + 8 - len(words))  # the last block has 0 to 63 bytes, and zeros

    def added(total, word):
        return ((total << 31 | total >> 33) % 2**64 ^ word) * 0x9E3779B97F4A7C15 % 2**64

    for index, word in enumerate(words):
        lanes[index % 8] = added(lanes[index % 8], word)
    total = 0
    for lane in lanes:
        total = added(total, lane)
    return total


@pytest.mark.parametrize("size", [0, 1, 63, 64, 65, 200])
def test_checksums(size):
    content = random.Random(size).randbytes(size)
    assert checksum(content) == checksum(array("b", content)) == checksum_in_words(content)
    assert checksum(content + b"1") != checksum(content)


@pytest.mark.parametrize(
    ("codes", "largest", "message"),
    [
        (b"\x01\x80\x7f\x00", [1.0, 2.0], r"`w\.codes` has the code -128"),
        (b"\x01\x02\x7f\x00", [1.0, -2.0], r"`w\.largest` has a negative number"),
        (b"\x01\x02\x7f\x00", [1.0, math.nan], r"`w\.largest` has 1 of 2 numbers that are not finite"),
    ],
)
@pytest.mark.parametrize("is_mapped", [True, False])
@pytest.mark.parametrize("is_aligned", [True, False])  # a map that is not aligned is copied
def test_codes_that_no_number_is_rounded_to(tmp_path, codes, largest, message, is_aligned, is_mapped, monkeypatch):
    if is_mapped:
        monkeypatch.setattr(opening, "MIN_MAPPED_SIZE", 0)
    file = tmp_path / "int8.safetensors"
    named = {"w.codes": ("I8", [2, 2], codes), "w.largest": ("F32", [2], array("f", largest).tobytes())}
    if is_aligned:
        shapes = {name: (dtype, shape) for name, (dtype, shape, _) in named.items()}
        write_safetensors(file, shapes, lambda name: named[name][2], {})
    else:
        write_tensors(file, named)
    assert isinstance(SafetensorsFile(file).content("w.codes"), memoryview) == (is_mapped and is_aligned)
    write_facts(str(file), FORMAT)
    with pytest.raises(CheckpointError, match=message):
        Int8File(tmp_path).read("w")
