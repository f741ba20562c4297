"""Firefox' students by name: from a registry to a translation."""

import pytest

from capsule_mt import CoverageOptions, Translator
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
