"""A `.zip` in the place of a folder, as OPUS-MT publishes models."""

import os
import shutil
import time
import zipfile
import zlib

import pytest

from capsule_mt import Translator, load
from capsule_mt.catalog import archives
from capsule_mt.catalog.archives import Unpacker, unpacked
from capsule_mt.catalog.entries import FACTS_FILE, CatalogError
from capsule_mt.commands import translate
from capsule_mt.models.weights import CheckpointError
from tests.fixtures.marian_models import marian_folder

TEXT = ">>eng<< Mach mit!"


@pytest.fixture
def zip_file(tmp_path, monkeypatch):
    """An archive like those of the Tatoeba Challenge: a model's folder, and files that no model needs."""
    monkeypatch.setenv("CAPSULE_MT_CACHE", str(tmp_path / "cache"))
    folder, file = marian_folder("yml", tmp_path / "folder"), tmp_path / "opus-2021-02-22.zip"
    (folder / "preprocess.sh").write_text("#!/bin/bash\n")
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for member in folder.iterdir():
            archive.write(member, f"opus/{member.name}")
        archive.writestr("../../outside", "x")
        archive.writestr("opus/sub/further.txt", "x")
    return file


def test_it_translates_as_its_folder_does(zip_file, tmp_path):
    expected = Translator.from_pretrained(tmp_path / "folder")(TEXT).text
    assert Translator.from_pretrained(zip_file)(TEXT).text == expected
    folder = unpacked(zip_file)
    names = {path.name for path in (tmp_path / "folder").iterdir()}
    assert {path.name for path in folder.iterdir()} == {*names, FACTS_FILE}
    assert folder.parent == tmp_path / "cache" / "archives"
    (folder / "decoder.yml").touch()  # the second time, nothing is written
    status = (folder / "model.npz").stat()
    assert load(str(zip_file))(TEXT).text == expected
    assert (folder / "model.npz").stat() == status
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]


@pytest.mark.slow
@pytest.mark.parametrize("has_facts", [True, False])
def test_an_unpacked_file_that_changes_is_never_used(has_facts, zip_file):
    """Of a folder that an older version unpacked, there are no facts: it is unpacked again."""
    expected, folder = load(zip_file)(TEXT).text, unpacked(zip_file)
    weights = (folder / "model.npz").read_bytes()
    (folder / "model.npz").write_bytes(weights[:-1] + bytes([weights[-1] ^ 1]))
    if has_facts:
        with pytest.raises(CheckpointError, match=rf"model\.npz: its content has changed .*: remove {folder}, "):
            load(zip_file)
        shutil.rmtree(folder)
    else:
        (folder / FACTS_FILE).unlink()
    assert load(zip_file)(TEXT).text == expected
    assert (folder / "model.npz").read_bytes() == weights


def test_what_is_not_an_archive_of_a_model(tmp_path, monkeypatch):
    monkeypatch.setenv("CAPSULE_MT_CACHE", str(tmp_path / "cache"))
    file = tmp_path / "model.zip"
    file.write_bytes(b"PK" * 100)
    with pytest.raises(CatalogError, match=r"model\.zip: is not a `\.zip`, or it is damaged"):
        load(file)
    for names, message in (
        (["README.md"], "has no model; needs one folder with a model"),
        (["a/model.npz", "b/model.npz"], "has models in the folders 'a', 'b'; needs one folder"),
    ):
        with zipfile.ZipFile(file, "w") as archive:
            for name in names:
                archive.writestr(name, "x")
        with pytest.raises(CatalogError, match=message):
            load(file)
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("model.npz", "x" * 1000)
        archive.writestr("source.spm", "x")
    file.write_bytes(file.read_bytes().replace(b"x" * 1000, b"y" * 1000))
    with pytest.raises(CatalogError, match="is damaged"):
        load(file)
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("model.npz", "x" * 1000)
        archive.writestr("source.spm", "x")
    content = file.read_bytes()
    start = 30 + len("model.npz")  # of the deflated bytes; \xff begins a block of an unknown type
    file.write_bytes(content[:start] + b"\xff" + content[start + 1 :])
    with pytest.raises(CatalogError, match="is damaged"):
        load(file)
    assert not list((tmp_path / "cache" / "archives").iterdir())


def test_a_command_takes_it_for_a_model_and_not_for_a_file_to_translate(zip_file, call):
    code, printed, _ = call(translate, zip_file, text=f"{TEXT}\n")
    assert not code
    assert printed == f"{load(zip_file)(TEXT).text}\n"


def rewritten(file, edited, compression=zipfile.ZIP_DEFLATED):
    """Return another archive, in which some files have another content, or are missing if it is `None`."""
    with zipfile.ZipFile(file) as archive:
        contents = {name: archive.read(name) for name in archive.namelist()} | edited
    other = file.with_name("other.zip")
    with zipfile.ZipFile(other, "w", compression) as archive:
        for name, content in contents.items():
            if content is not None:
                archive.writestr(zipfile.ZipInfo(name), content, compression)
    return other


def suffix_with_checksum(content, checksum):
    """Return four bytes that give the content the CRC-32 `checksum`."""
    table = [zlib.crc32(bytes([byte])) ^ zlib.crc32(b"\0") for byte in range(256)]
    inverse = {value >> 24: (index, value) for index, value in enumerate(table)}
    register, indices = checksum ^ 0xFFFFFFFF, []
    for _ in range(4):
        index, value = inverse[register >> 24]
        indices.append(index)
        register = ((register ^ value) << 8 | index) & 0xFFFFFFFF
    register, suffix = zlib.crc32(content) ^ 0xFFFFFFFF, bytearray()
    for index in reversed(indices):
        suffix.append((register ^ index) & 0xFF)
        register = table[index] ^ register >> 8
    return bytes(suffix)


def test_an_archive_with_forged_checksums_is_another_model(zip_file):
    """Four bytes at its end give any file any CRC-32: names, sizes and checksums do not tell two archives apart."""
    genuine_text, forged_text = b"genuine, with 4 bytes", b"forged,  with the"
    forged_text += suffix_with_checksum(forged_text, zlib.crc32(genuine_text))
    genuine = rewritten(zip_file, {"opus/README.md": genuine_text}).rename(zip_file.with_name("genuine.zip"))
    forged = rewritten(zip_file, {"opus/README.md": forged_text})
    described = []
    for file in (genuine, forged):
        with zipfile.ZipFile(file) as archive:
            described.append([(member.filename, member.CRC, member.file_size) for member in archive.infolist()])
    assert described[0] == described[1]
    assert unpacked(genuine) != unpacked(forged)
    assert (unpacked(forged) / "README.md").read_bytes() == forged_text
    assert (unpacked(genuine) / "README.md").read_bytes() == genuine_text


BOMB = bytes(3 << 20)  # deflates to 3 kB


@pytest.mark.parametrize(
    ("edited", "message"),
    [
        ({"opus/bomb": BOMB}, r"'bomb' has 3145728 bytes, packed into \d+; at most 20 times as many are read$"),
        (
            {f"opus/small{index}": bytes(1 << 16) for index in range(300)},
            r"other\.zip: has \d+ bytes unpacked, but \d+ packed; at most 20 times as many are read$",
        ),
        (
            {f"opus/{index}": b"" for index in range(1000)},
            r"other\.zip: has 1006 files beside its model; at most 1000 are read$",
        ),
        (
            {"opus/joint.yml": None, "opus/source.spm": None, "opus/target.spm": None},
            r"other\.zip: has no vocabulary beside its model, such as source\.spm or tokenizer\.json$",
        ),
        (
            {"opus/model.npz": None, "opus/model.safetensors": b"x"},
            r"other\.zip: has no config\.json beside its model$",
        ),
        ({"opus/model.npz": b"PK"}, r"other\.zip/model\.npz: is not a `\.npz`, or it is damaged"),
        ({"opus/joint.yml": b"a: 1\n"}, r"other\.zip/joint\.yml: its 1 tokens must have the numbers 0 to 0"),
        ({"opus/source.spm": b"x"}, r"other\.zip/source\.spm: is not a SentencePiece model, or it is damaged"),
        ({"opus/decoder.yml": b"- " * 30_000}, r"other\.zip/decoder\.yml:1: .* is neither"),
    ],
)
def test_what_does_not_load_does_not_stay_in_the_cache(edited, message, zip_file, tmp_path):
    other = rewritten(zip_file, edited)
    with pytest.raises(ValueError, match=message):
        load(other)
    assert not list((tmp_path / "cache").rglob("*.*"))


def test_a_bomb_is_refused_before_it_is_unpacked(zip_file, monkeypatch):
    """Nothing is written: the process may not even write one of its files."""
    monkeypatch.setattr(archives, "_write_members", None)
    monkeypatch.setattr(Unpacker, "unpack", unpack_here)
    with pytest.raises(CatalogError, match="bomb"):
        unpacked(rewritten(zip_file, {"opus/bomb": BOMB}))


def unpack_here(self, file, digest, folder):
    answer, _ = archives.answer({"name": file, "digest": digest, "folder": folder}, [], None)
    raise CatalogError(answer["error"])


def test_an_archive_that_changes_while_it_is_read_is_refused(zip_file, monkeypatch):
    monkeypatch.setattr(archives, "file_digest", lambda file: "0" * 64)
    with pytest.raises(CatalogError, match=r"opus-2021-02-22\.zip: has changed while it was read: load it again$"):
        unpacked(zip_file)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "opus/" + "n" * 300,
            r"other\.zip: the name 'n{196}\.\.\. of a file beside its model has 300 bytes; at most 200",
        ),
        ("opus/" + "\u00fc" * 101, r"of a file beside its model has 202 bytes; at most 200 are read$"),
        ("opus/model.npz:stream", r"other\.zip: 'opus/model\.npz:stream' is not a plain name of a file$"),
        ("opus/c:", r"other\.zip: 'opus/c:' is not a plain name of a file$"),
    ],
)
def test_names_that_are_not_plain_are_refused(name, message, zip_file, tmp_path):
    with pytest.raises(CatalogError, match=message):
        load(rewritten(zip_file, {name: b"x"}))
    assert not list((tmp_path / "cache").rglob("*.*"))


def test_a_name_with_a_nul_is_refused(zip_file):
    """Python would cut it there, and unpack another file."""
    other = rewritten(zip_file, {"opus/notes.txt": b"x"})
    other.write_bytes(other.read_bytes().replace(b"opus/notes.txt", b"opus/note\0.txt"))
    with pytest.raises(CatalogError, match=r"other\.zip: 'opus/note\\x00\.txt' is not a plain name of a file$"):
        load(other)


def test_a_file_without_a_name_is_none_of_the_model(zip_file):
    with zipfile.ZipFile(zip_file, "a") as archive:
        archive.writestr(zipfile.ZipInfo(""), "x")
    assert load(str(zip_file))(TEXT).text


def test_models_in_many_folders_are_not_all_listed(zip_file):
    names = {f"{index:04}{'d' * 400}/model.npz": b"x" for index in range(300)}
    message = r"has models in the folders '0000d+\.\.\., .*, \.\.\.; needs one"
    with pytest.raises(CatalogError, match=message) as refusal:
        load(rewritten(zip_file, names))
    assert len(str(refusal.value)) < 1200


@pytest.mark.parametrize("moved", [-20, 20, 1 << 20])
def test_an_archive_whose_table_is_elsewhere_is_damaged(moved, zip_file):
    content = zip_file.read_bytes()
    start = content.rindex(b"PK\5\6") + 16  # of the offset of the table
    offset = int.from_bytes(content[start : start + 4], "little") + moved
    zip_file.write_bytes(content[:start] + offset.to_bytes(4, "little") + content[start + 4 :])
    with pytest.raises(CatalogError, match=r"opus-2021-02-22\.zip: is not a `\.zip`, or it is damaged \("):
        load(zip_file)


def test_a_full_disk_is_named(zip_file, monkeypatch):
    def fail(source, target):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(archives.shutil, "copyfileobj", fail)
    monkeypatch.setattr(Unpacker, "unpack", unpack_here)
    with pytest.raises(CatalogError, match=r"opus-2021-02-22\.zip: .*No space left on device$"):
        load(zip_file)


def test_unpacking_removes_what_killed_processes_left(zip_file, tmp_path):
    cache = tmp_path / "cache" / "archives"
    other, digest = "0" * 64, "1" * 64
    for name, age in (
        (digest, 10**6),
        (f"{digest}.0123456789abcdef.partial", 10**5),
        (f"{other}.0123456789abcdef.partial", 0),
        ("opus-2021-02-22-123", 0),
    ):
        (cache / name).mkdir(parents=True)
        (cache / name / "model.npz").write_text("x")
        os.utime(cache / name, (time.time() - age,) * 2)
    kept = {digest, f"{other}.0123456789abcdef.partial", unpacked(zip_file).name}
    assert {path.name for path in cache.iterdir()} == kept
