"""The tokenizer in a folder. tests/decoding/test_transformers_tokenizer.py compares it with transformers'."""

import json

import pytest

from capsule_mt.catalog.hub import MODEL_FILES
from capsule_mt.conversions.to_huggingface import write_huggingface
from capsule_mt.conversions.to_int8 import write_int8
from capsule_mt.engine.program import UnsupportedModelError
from capsule_mt.models.checkpoint_tokenizer import FileTokenizer
from capsule_mt.models.loading import load_model
from capsule_mt.models.piece_tokenizer import PieceTokenizer
from capsule_mt.models.weights import CheckpointError
from tests.fixtures.students import write_student
from tests.light.models.files import edit_json, golden
from tests.light.models.test_marian_checkpoint import KINDS, SOURCES


@pytest.fixture
def folder(tmp_path):
    return golden("capsule_marian", tmp_path / "model")


def test_text_that_looks_like_a_special_token_is_split_by_default(folder):
    text = "A </s> in a <pad>."
    tokenizer = FileTokenizer(folder)
    assert tokenizer.decode(tokenizer.encode(text).ids) == text
    edit_json(folder / "tokenizer_config.json", split_special_tokens=False)
    assert FileTokenizer(folder).encode(text).ids.count(1) == 2


def test_spaces_are_cleaned_up_if_the_configuration_says_so(folder):
    ids = FileTokenizer(folder).encode("He does n't sing , he reads .").ids
    edit_json(folder / "tokenizer_config.json", clean_up_tokenization_spaces=True, unk_token={"content": "<unk>"})
    tokenizer = FileTokenizer(folder)
    assert tokenizer.decode(ids) == "He doesn't sing, he reads."
    assert tokenizer.unknown_id == 2


def test_a_folder_without_tokenizer_json_is_refused(folder):
    (folder / "tokenizer.json").unlink()
    with pytest.raises(UnsupportedModelError, match=r"tokenizer\.json: no such file; .* needs hf-capsule-mt"):
        FileTokenizer(folder)


def converted(folder, kind="ssru"):
    """Return the folder that a student becomes."""
    options, targets = KINDS[kind]
    write_huggingface(write_student(folder / "student", options=options, targets=targets), folder / "out")
    return folder / "out"


@pytest.mark.parametrize("kind", ["ssru", "two of other sizes"])
def test_a_converted_student_has_its_pieces_beside_tokenizer_json(kind, tmp_path):
    out = converted(tmp_path, kind)
    assert [path.name for path in sorted(out.glob("*.spm"))] == ["source.spm", "target.spm"][: 1 + ("two" in kind)]
    tokenizer, by_json = load_model(out).tokenizer, FileTokenizer(out)
    assert isinstance(tokenizer, PieceTokenizer)
    for text in (*SOURCES, "a </s> b<unk>", "  the  man ", "ox", "<pad>", "<unused 12>", "\ufb01\u0301", ""):
        assert tokenizer.encode(text).ids == by_json.encode(text).ids
        assert tokenizer.encode_target(text) == by_json.encode_target(text)
    for name in ("vocabulary_sizes", "special_ids", "unknown_id", "byte_ids", "target_byte_ids", "language_tokens"):
        assert getattr(tokenizer, name) == getattr(by_json, name)
    (out / "source.spm").unlink()
    assert isinstance(load_model(out).tokenizer, FileTokenizer)


@pytest.mark.parametrize(
    "name", ["source.spm", "target.spm", "tokenizer.json", "target_tokenizer.json", "tokenizer_config.json"]
)
def test_pieces_are_not_read_if_a_file_of_the_tokenizer_has_changed(name, tmp_path):
    out = converted(tmp_path, "two of other sizes")
    (out / name).write_bytes((out / name).read_bytes() + b"\n")
    assert isinstance(load_model(out).tokenizer, FileTokenizer)
    (out / name).unlink()
    if name.endswith(".spm"):
        assert isinstance(load_model(out).tokenizer, FileTokenizer)


def test_an_empty_piece_file_counts_as_changed(tmp_path):
    out = converted(tmp_path)
    (out / "source.spm").write_bytes(b"")
    assert isinstance(load_model(out).tokenizer, FileTokenizer)


@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json"])
def test_an_empty_file_of_a_tokenizer_is_named(name, tmp_path):
    out = converted(tmp_path)
    (out / name).write_bytes(b"")
    with pytest.raises(CheckpointError, match=rf"/{name}: "):
        load_model(out)


def test_checksums_without_pieces_are_ignored(tmp_path):
    out = converted(tmp_path)
    (out / "source.spm").unlink()
    checksums = json.loads((out / "pieces.json").read_text())
    del checksums["source.spm"]
    (out / "pieces.json").write_text(json.dumps(checksums))
    assert isinstance(load_model(out).tokenizer, FileTokenizer)


def test_pieces_stay_beside_tokenizer_json_when_a_folder_is_converted_or_downloaded(tmp_path):
    write_int8(converted(tmp_path), tmp_path / "int8")
    assert isinstance(load_model(tmp_path / "int8", int8=True).tokenizer, PieceTokenizer)
    assert all(MODEL_FILES.fullmatch(path.name) for path in (tmp_path / "int8").iterdir())


def test_an_error_is_not_as_long_as_the_value_that_it_refuses(folder):
    edit_json(folder / "tokenizer.json", model="a" * 5000)
    with pytest.raises(CheckpointError, match=r"tokenizer\.json: does not load: ") as refusal:
        FileTokenizer(folder)
    assert len(str(refusal.value)) < 600
