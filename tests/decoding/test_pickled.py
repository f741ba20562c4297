"""`pytorch_model.bin` as torch writes it, read without torch; and files that are no such thing."""

import json
import pickle
import random
import zipfile

import pytest
import torch

from capsule_mt.engine.program import UnsupportedModelError
from capsule_mt.models.loading import weights_in
from capsule_mt.models.pickled import PickledFile
from capsule_mt.models.registry import write_program
from capsule_mt.models.state_dict import tensors_in
from capsule_mt.models.weights import CheckpointError, read_json, write_safetensors
from tests.decoding.models import build
from tests.decoding.test_programs import contents
from tests.fuzz.pickles import SOUND, STORAGES, archive

NAME = "pytorch_model.bin"


def rewritten(file, edit):
    """Write a zip file again with another pickle."""
    with zipfile.ZipFile(file) as archive:
        content = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(file, "w") as archive:
        for name, data in content.items():
            archive.writestr(name, edit(data) if name.endswith("data.pkl") else data)
    return file


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
def test_tensors_are_those_that_torch_saved(dtype, tmp_path):
    saved = {
        "matrix": torch.randn(5, 7, dtype=dtype),
        "part": torch.randn(9, 4, dtype=dtype)[3:6],  # of a larger storage
        "parameter": torch.nn.Parameter(torch.randn(3, dtype=dtype)),
        "one": torch.randn(1, 4, dtype=dtype).t(),
        "numbers": torch.arange(4),
    }
    torch.save({**saved, "tied": saved["matrix"]}, tmp_path / NAME)
    weights = weights_in(str(tmp_path))
    assert isinstance(weights, PickledFile)
    assert list(weights) == list(saved)
    for name, tensor in saved.items():
        assert weights.shape(name) == tuple(tensor.shape)
        content = bytes(weights.content(name))
        assert content == tensor.detach().flatten().clone().view(torch.uint8).numpy().tobytes(), name
    with pytest.raises(CheckpointError, match="`numbers` is saved as I64"):
        weights.read("numbers")


@pytest.mark.parametrize("name", ["bart", "m2m_100", "stock"])
def test_a_model_is_the_same_program(name, tmp_path):
    model = build(name)
    model.save_pretrained(tmp_path / "safe")
    (tmp_path / "pickled").mkdir()
    state = {key: value for key, value in model.state_dict().items() if "embed_positions" not in key or name == "bart"}
    torch.save(state, tmp_path / "pickled" / NAME)
    config = read_json(tmp_path / "safe" / "config.json")
    programs = [write_program(config, weights_in(str(tmp_path / folder)))[0] for folder in ("safe", "pickled")]
    expected, actual = map(contents, programs)
    assert actual == expected


def test_parts_of_a_checkpoint(tmp_path):
    first, second = {"x": torch.randn(2, 3)}, {"y": torch.randn(4)}
    torch.save(first, tmp_path / "pytorch_model-00001-of-00002.bin")
    torch.save(second, tmp_path / "pytorch_model-00002-of-00002.bin")
    index = '{"weight_map": {"x": "pytorch_model-00001-of-00002.bin", "y": "pytorch_model-00002-of-00002.bin"}}'
    (tmp_path / "pytorch_model.bin.index.json").write_text(index)
    weights = weights_in(str(tmp_path))
    assert [weights.shape(name) for name in ("x", "y")] == [(2, 3), (4,)]
    write_safetensors(tmp_path / "model.safetensors", {}, lambda name: b"", {})
    assert list(weights_in(str(tmp_path))) == []  # safetensors goes first


def test_tied_tensors_of_a_part(tmp_path):
    """As in the parts of NLLB-200's 3.3B checkpoint, whose index lists each name of the embeddings."""
    table, parts = torch.randn(2, 3), [f"pytorch_model-0000{number}-of-00002.bin" for number in (1, 2)]
    torch.save({"shared": table, "encoder": table}, tmp_path / parts[0])
    torch.save({"decoder": table, "head": table}, tmp_path / parts[1])
    names = {"shared": parts[0], "encoder": parts[0], "decoder": parts[1], "head": parts[1]}
    (tmp_path / "pytorch_model.bin.index.json").write_text(json.dumps({"weight_map": names}))
    assert list(weights_in(str(tmp_path))) == ["shared", "decoder"]
    torch.save({"decoder": table}, tmp_path / parts[1])
    with pytest.raises(CheckpointError, match="`weight_map` has `head`, which is not in pytorch_model-00002-of-00002"):
        weights_in(str(tmp_path))


class Hostile:
    def __reduce__(self):
        return (exec, ("raise SystemExit('executed')",))


def test_nothing_is_executed(tmp_path):
    torch.save({"x": Hostile()}, tmp_path / NAME)
    with pytest.raises(CheckpointError, match=r"its pickle names '.*exec', which is not of a tensor: not loaded"):
        weights_in(str(tmp_path))
    torch.save({"x": torch.ones(2), "y": {1, 2}}, tmp_path / NAME)
    with pytest.raises(CheckpointError, match=r"its pickle names '.*set', which is not of a tensor"):
        weights_in(str(tmp_path))
    rewritten(tmp_path / NAME, lambda content: pickle.dumps({"x": b"1"}, protocol=3))
    with pytest.raises(CheckpointError, match="its pickle has the opcode SHORT_BINBYTES, which named tensors do not"):
        weights_in(str(tmp_path))


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({"x": 5}, "its pickle is not a dictionary of named tensors"),
        ([torch.ones(2)], "opcode APPEND|not a dictionary of named tensors"),
        ({"x": torch.ones(2, 3).t()}, "a tensor whose numbers are not in row-major order"),
        ({5: torch.ones(2)}, "its pickle is not a dictionary of named tensors"),
    ],
)
def test_what_is_no_state_dict(state, message, tmp_path):
    torch.save(state, tmp_path / NAME)
    with pytest.raises(CheckpointError, match=message):
        weights_in(str(tmp_path))


def test_other_files(tmp_path):
    torch.save({"x": torch.ones(2)}, tmp_path / NAME, _use_new_zipfile_serialization=False)
    with pytest.raises(UnsupportedModelError, match="is not a zip file, as torch has written"):
        weights_in(str(tmp_path))
    torch.save({"x": torch.ones(999)}, tmp_path / NAME)
    content = (tmp_path / NAME).read_bytes()
    (tmp_path / NAME).write_bytes(content[: len(content) // 2])
    with pytest.raises(CheckpointError, match=r"pytorch_model\.bin: is cut off, or damaged"):
        weights_in(str(tmp_path))


def test_the_pickle_that_the_fuzzer_changes_is_one_of_torch(tmp_path):
    archive(SOUND, tmp_path / NAME)
    (loaded,) = torch.load(tmp_path / NAME, weights_only=True).values()
    assert torch.equal(loaded, torch.arange(6.0).reshape(2, 3))
    assert bytes(weights_in(str(tmp_path)).content("x")) == STORAGES["0"]


@pytest.mark.parametrize("dimensions", [b"(" + b"K\x02" * 20000 + b"t", b"(" + b"K\x01" * 20000 + b"t"])
def test_a_tensor_of_too_many_dimensions(dimensions, tmp_path):
    """Their steps take quadratic time, in numbers of quadratic length."""
    archive(SOUND.replace(b"K\x02K\x03\x86", dimensions), tmp_path / NAME)
    with pytest.raises(CheckpointError, match="a tensor of 20000 dimensions"):
        weights_in(str(tmp_path))


def test_a_tensor_beyond_its_storage(tmp_path):
    torch.save({"x": torch.ones(77)}, tmp_path / NAME)
    rewritten(tmp_path / NAME, lambda content: content.replace(b"KM\x85", b"KN\x85"))
    with pytest.raises(CheckpointError, match="`x` has 312 bytes from 0 on of 308"):
        weights_in(str(tmp_path))


def test_damaged_pickles_load_or_are_one_error(tmp_path):
    """3,000 pickles with some wrong bytes."""
    torch.save({"x": torch.randn(2, 3), "y": torch.nn.Parameter(torch.randn(4))}, tmp_path / NAME)
    with zipfile.ZipFile(tmp_path / NAME) as archive:
        content = {name: archive.read(name) for name in archive.namelist()}
    (pickle_name,) = (name for name in content if name.endswith("data.pkl"))
    generator, num_errors = random.Random(7), 0
    for _ in range(3000):
        damaged = bytearray(content[pickle_name])
        for _ in range(generator.randrange(1, 4)):
            index = generator.randrange(len(damaged))
            damaged[index : index + generator.randrange(2)] = bytes([generator.randrange(256)])
        with zipfile.ZipFile(tmp_path / NAME, "w") as archive:
            for name, data in content.items():
                archive.writestr(name, bytes(damaged) if name == pickle_name else data)
        try:  # in this process: 3,000 others would take minutes
            size = (tmp_path / NAME).stat().st_size
            assert all(start + length <= size for *_, start, length in tensors_in(str(tmp_path / NAME)))
        except CheckpointError:
            num_errors += 1
    assert 1500 < num_errors < 3000
