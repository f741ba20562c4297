"""A `.zip` in the place of a folder, as OPUS-MT publishes models."""

import zipfile

import pytest

from capsule_mt import Translator, load
from capsule_mt.catalog.archives import unpacked
from capsule_mt.catalog.entries import CatalogError
from capsule_mt.commands import translate
from capsule_mt.models.opening import CheckpointError
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
    assert {path.name for path in folder.iterdir()} == {path.name for path in (tmp_path / "folder").iterdir()}
    assert folder.parent == tmp_path / "cache" / "archives"
    (folder / "decoder.yml").touch()  # the second time, nothing is written
    status = (folder / "model.npz").stat()
    assert load(str(zip_file))(TEXT).text == expected
    assert (folder / "model.npz").stat() == status
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]


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
    file.write_bytes(file.read_bytes().replace(b"x" * 1000, b"y" * 1000))
    with pytest.raises(CatalogError, match="is damaged"):
        load(file)
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("model.npz", "x" * 1000)
    content = file.read_bytes()
    start = 30 + len("model.npz")  # of the deflated bytes; \xff begins a block of an unknown type
    file.write_bytes(content[:start] + b"\xff" + content[start + 1 :])
    with pytest.raises(CatalogError, match="is damaged"):
        load(file)
    assert not list((tmp_path / "cache" / "archives").iterdir())


def test_a_package_of_argos_translate_is_refused_by_name(tmp_path, monkeypatch, call):
    """A model file begins as CTranslate2 4.8.5 writes it."""
    monkeypatch.setenv("CAPSULE_MT_CACHE", str(tmp_path / "cache"))
    model = tmp_path / "translate-en_pt-1_9" / "model"
    model.mkdir(parents=True)
    (model / "model.bin").write_bytes(b"\x06\0\0\0\x10\0TransformerSpec\0\x07\0\0\0S\0\0\0" + bytes(100))
    (model / "config.json").write_text("{}")
    for folder in (model, model.parent):
        with pytest.raises(
            CheckpointError, match=r"has a model of CTranslate2, .* Use the model that it was converted"
        ):
            load(folder)
    package = tmp_path / "translate-en_pt-1_9.argosmodel"
    with zipfile.ZipFile(package, "w") as archive:
        archive.writestr("translate-en_pt-1_9/metadata.json", "{}")
        archive.write(model / "model.bin", "translate-en_pt-1_9/model/model.bin")
    with pytest.raises(CatalogError, match=r"1_9\.argosmodel: is a package of Argos Translate; its model is one of"):
        call(translate, package, text="a")
    assert not (tmp_path / "cache").exists()


def test_a_command_takes_it_for_a_model_and_not_for_a_file_to_translate(zip_file, call):
    code, printed, _ = call(translate, zip_file, text=f"{TEXT}\n")
    assert not code
    assert printed == f"{load(zip_file)(TEXT).text}\n"
