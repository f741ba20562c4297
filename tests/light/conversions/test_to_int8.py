"""`capsule-mt convert --to int8`: what it writes translates as the model that it read, in little memory."""

import os
import subprocess
import sys

import pytest

from capsule_mt import Translator
from capsule_mt.commands import convert
from capsule_mt.conversions.to_int8 import write_int8
from capsule_mt.engine.program import UnsupportedModelError
from capsule_mt.models.checksums import write_facts
from capsule_mt.models.int8_weights import FORMAT, Int8File
from capsule_mt.models.weights import CheckpointError, write_safetensors
from tests.conftest import GOLDEN
from tests.fixtures.students import write_student
from tests.light.models.files import read_header, write_m2m100

TEXTS = ["The old man buys a red hat.", "He sleeps.", "A dog, and 3 cats."]


@pytest.mark.parametrize("name", ["capsule_marian", "word_for_word", "student"])
def test_a_converted_model_translates_as_before(name, tmp_path, call, refusal_of):
    folder = write_student(tmp_path / "student") if name == "student" else GOLDEN / name
    _, printed, _ = call(convert, folder, tmp_path / "out", "--to", "int8")
    names = {os.path.basename(line) for line in printed.splitlines()}
    assert {"config.json", "generation_config.json", "int8.json", "int8.safetensors", "tokenizer.json"} <= names
    assert "model.safetensors" not in names
    settings = {"max_new_tokens": 12, "num_beams": 2}
    original, after = (Translator.from_pretrained(path, int8=True) for path in (folder, tmp_path / "out"))
    assert original(TEXTS, **settings) == after(TEXTS, **settings)
    assert after.loaded.calibration == original.loaded.calibration
    message = refusal_of(convert, folder, tmp_path / "out", "--to", "int8")
    assert "out: exists and is not empty; name a new folder\n" in message


def test_what_is_refused(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "t5"}')
    write_safetensors(tmp_path / "model.safetensors", {}, bytes, {})
    with pytest.raises(UnsupportedModelError, match="a model of type 't5' is not supported by the engine"):
        write_int8(tmp_path, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    damaged = tmp_path / "damaged"
    damaged.mkdir()
    for file in (GOLDEN / "capsule_marian").iterdir():
        (damaged / file.name).symlink_to(file)
    with pytest.raises(ValueError, match=r"is a link to .*, outside of the model's folder"):
        write_int8(damaged, tmp_path / "out")


def read_all(folder):
    weights = Int8File(folder)
    for name in weights:
        weights.read(name)


def test_every_changed_byte_is_noticed(tmp_path):
    write_int8(GOLDEN / "capsule_marian", tmp_path / "int8")
    file = tmp_path / "int8" / "int8.safetensors"
    content = file.read_bytes()
    read_all(tmp_path / "int8")
    header = 8 + int.from_bytes(content[:8], "little")
    ends = [entry["data_offsets"] for name, entry in read_header(file)[0].items() if name != "__metadata__"]
    for offset in {header + end for span in ends for end in (span[0], span[1] - 1)}:
        file.write_bytes(content[:offset] + bytes([content[offset] ^ 1]) + content[offset + 1 :])
        with pytest.raises(CheckpointError, match=r"int8\.safetensors: its checksum is \w+, but int8\.json says"):
            read_all(tmp_path / "int8")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        # two matrices of one shape change places; a matrix has another type; a name is changed
        (b"k_proj.weight.codes", b"q_proj.weight.codes", r"int8\.safetensors: its checksum is"),
        (b'"I8"', b'"U8"', "must be a matrix of I8"),
        (b"__metadata__", b"__metadatb__", "which is not a tensor"),
    ],
)
def test_a_changed_header_is_noticed(old, new, message, tmp_path):
    write_int8(GOLDEN / "capsule_marian", tmp_path / "int8")
    file = tmp_path / "int8" / "int8.safetensors"
    content = file.read_bytes()
    assert old in content
    swapped = content.replace(new, b"\0" * len(new)).replace(old, new).replace(b"\0" * len(new), old)
    file.write_bytes(swapped if new in content else content.replace(old, new))
    if old == b'"I8"':
        write_facts(str(file), FORMAT)
    with pytest.raises(CheckpointError, match=message):
        read_all(tmp_path / "int8")


ROWS, WIDTH, INNER, LAYERS = 40000, 512, 2048, 16
MEASURE = """
import resource, sys
def peak():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) * 1024
{imports}
before = peak()
{call}
print(peak() - before)
"""


def write_large(folder):
    """An M2M100 of ones, 142 MB in float16, whose table is two fifths of it; return the size of its weights."""
    half_ones = memoryview(b"\x00\x3c" * ROWS * WIDTH)
    fields = {"vocab_size": ROWS, "d_model": WIDTH, "max_position_embeddings": 64}
    fields |= {"encoder_layers": LAYERS, "decoder_layers": 0, "encoder_ffn_dim": INNER, "decoder_ffn_dim": INNER}
    fields |= {"encoder_attention_heads": 8, "decoder_attention_heads": 8}
    fields |= {"pad_token_id": 1, "decoder_start_token_id": 2, "eos_token_id": 2}
    return write_m2m100(folder, lambda _, count: half_ones[: 2 * count], **fields)


def measured(imports, call):
    code = MEASURE.format(imports=imports, call=call)
    return int(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="only Linux tells the peak of a process's memory")
def test_the_peak_of_memory_while_converting_and_loading_is_bounded_by_the_file(tmp_path):
    size, folder, out = write_large(tmp_path / "large"), str(tmp_path / "large"), str(tmp_path / "out")
    imports = "from capsule_mt.conversions.to_int8 import write_int8"
    assert measured(imports, f"write_int8({folder!r}, {out!r})") < 1.5 * size
    smaller = (tmp_path / "out" / "int8.safetensors").stat().st_size
    assert smaller < 0.51 * size
    imports = (
        "from capsule_mt.models.loading import open_checkpoint\n"
        "from capsule_mt.models.registry import write_program\n"
        "from capsule_mt.engine.engine import Engine"
    )
    load = "opened = open_checkpoint({!r}); Engine(write_program(opened.config, opened.weights)[0], int8=True)"
    # With the table mapped while all maps are in memory, these would be 1.04 and 1.38.
    assert measured(imports, load.format(folder)) < 0.85 * size
    assert measured(imports, load.format(out)) < 1.25 * smaller
