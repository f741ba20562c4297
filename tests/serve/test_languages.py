"""Which languages a checkpoint translates between."""

import json

import pytest

pytest.importorskip("fastapi")

from hf_capsule_mt.serve.languages import LanguagePair, describe_languages, language_pairs


def folder(path, **files):
    path.mkdir(parents=True)
    for name, content in files.items():
        (path / f"{name}.json").write_text(json.dumps(content), encoding="utf-8")
    return str(path)


def test_a_pair_comes_from_the_command_line_the_recipe_the_tokenizer_or_the_name(tmp_path):
    trained = folder(tmp_path / "a-b-fr-es", train_result={"recipe": {"languages": {"source": "en", "target": "de"}}})
    marian = folder(tmp_path / "marian", tokenizer_config={"source_lang": "fi", "target_lang": "sv"})
    named = folder(tmp_path / "capsule-marian-de-en", train_result={"recipe": None}, tokenizer_config={})
    assert language_pairs(
        [trained, marian, named, "Helsinki-NLP/opus-mt-en-ru", "eng_Latn-fr=x=y", f"cs-pl={trained}"]
    ) == {
        ("en", "de"): trained,
        ("fi", "sv"): marian,
        ("de", "en"): named,
        ("en", "ru"): "Helsinki-NLP/opus-mt-en-ru",
        ("eng_Latn", "fr"): "x=y",
        ("cs", "pl"): trained,
    }


def test_languages_that_are_unknown_or_served_twice():
    with pytest.raises(
        ValueError, match="outputs/gdr: its languages are not known; name them, as in en-de=outputs/gdr"
    ):
        language_pairs(["outputs/gdr"])
    with pytest.raises(ValueError, match="en-de: one checkpoint for each language pair, got one and two"):
        language_pairs(["en-de=one", "en-de=two"])


def test_the_list_is_that_of_libretranslate():
    pairs = [LanguagePair("en", "fr"), LanguagePair("tlh", "en"), LanguagePair("en", "de")]
    assert describe_languages(pairs) == [
        {"code": "en", "name": "English", "targets": ["de", "fr"]},
        {"code": "tlh", "name": "tlh", "targets": ["en"]},
    ]
