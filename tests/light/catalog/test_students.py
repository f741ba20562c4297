"""Firefox' students by name: from a registry to a translation."""

import sys

import pytest

from capsule_mt import CoverageOptions, Translator
from capsule_mt.commands import convert
from tests.fixtures.students import OPTIONS, PIECES, write_student

SOURCES = ["the old man buys a red hat.", "a hat"]


def registry_files(folder):
    """Return a student's files by the names of their kinds in the registry."""
    kinds = {"model": "model", "vocab": "vocab", "lex": "lexicalShortlist"}
    kinds |= {"srcvocab": "srcVocab", "trgvocab": "trgVocab"}
    files = (file for file in folder.iterdir() if file.name.partition(".")[0] in kinds)
    return {kinds[file.name.partition(".")[0]]: file.read_bytes() for file in files if file.suffix in (".bin", ".spm")}


@pytest.mark.parametrize(
    "targets", [None, ["</s>", "<unk>", *reversed(PIECES[2:])]], ids=["one vocabulary", "two vocabularies"]
)
def test_a_student_by_name_translates_as_from_its_folder(targets, registry, tmp_path):
    tied = {"tied-embeddings-all": targets is None, "tied-embeddings": targets is not None}
    folder = write_student(tmp_path / "student", targets=targets, options=OPTIONS | tied)
    registry.add("en-cs", content=registry_files(folder))
    registry.publish()
    for settings in ({}, {"int8": True, "shortlist": True}):
        translations = Translator.from_pretrained("en-cs", **settings)(
            SOURCES, max_new_tokens=9, coverage=CoverageOptions()
        )
        expected = Translator.from_pretrained(folder, **settings)(
            SOURCES, max_new_tokens=9, coverage=CoverageOptions()
        )
        assert translations == expected


def test_a_student_by_name_keeps_its_licence_when_it_is_converted(registry, tmp_path, monkeypatch):
    registry.add("en-cs", content=registry_files(write_student(tmp_path / "student")))
    registry.models["en-cs"][0] |= {"version": "2.1", "metrics": {"flores200-plus": {"chrf": 57.3}}}
    registry.publish()
    monkeypatch.setattr(sys, "argv", ["convert", "en-cs", str(tmp_path / "out"), "--to", "huggingface"])
    convert.main()
    card = (tmp_path / "out" / "README.md").read_text("utf-8")
    assert card.startswith("---\nlanguage:\n- en\n- cs\nlicense: mpl-2.0\n")
    assert "- Version: 2.1.\n- Kind: base-memory.\n" in card
    assert "| flores200-plus chrf | 57.3 |" in card
    monkeypatch.setattr(
        sys, "argv", ["convert", str(tmp_path / "student"), str(tmp_path / "other"), "--to", "huggingface"]
    )
    convert.main()
    assert not (tmp_path / "other" / "README.md").exists()  # whose licence nobody knows
