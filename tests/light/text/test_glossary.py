"""Glossaries: which terms a text has, and that its translation has what they become."""

import re

import pytest

from capsule_mt import Translator
from capsule_mt.text.glossary import Glossary, glossary_of, missing_terms, next_word, with_term
from tests.light.decoders import translator
from tests.light.test_translator import RELEASED


@pytest.mark.parametrize(
    ("terms", "text", "expected"),
    [
        ({"Hut": "hat", "roter Hut": "red cap"}, "Ein roter Hut und ein hut.", ["red cap", "hat"]),  # the longest
        ({"Hut": "hat"}, "Hutmacher, Strohhut, Hut-Ecke", ["hat"]),
        ({"IT": "computing"}, "it is IT", ["computing"]),
        (
            {"E-Mail": "mail", "Open Source": "open source"},
            "e mail, E\u2011Mail, Open-Source",
            ["mail", "mail", "open source"],
        ),
        ({"Haus*": "house*"}, "Hausbau im Haus", ["house*", "house*"]),
        ({"Čech": ""}, "Herr Čech", ["Čech"]),
        ({"C++": "C++"}, "in C++ und C", ["C++"]),
    ],
)
def test_terms_in_a_text(terms, text, expected):
    assert [term.target for term in Glossary(terms).find(text)] == expected


def test_what_a_translation_lacks():
    terms = Glossary({"Hut": "hat", "Haus*": "house*"}).find("Hut Hut Haus")
    assert [term.target for term in missing_terms(terms, "The hats and housing.")] == ["hat", "house*"]
    assert missing_terms(terms, "Hat, hat, houses") == []


@pytest.mark.parametrize("terms", [{"cat": 5}, {5: "cat"}, {"cat": None}])
def test_terms_are_strings(terms):
    ((source, target),) = terms.items()
    with pytest.raises(TypeError, match=f"a glossary maps strings to strings, got {source!r}: {target!r}$"):
        Glossary(terms)


def test_a_glossary_may_be_assigned(tmp_path):
    model, file = translator(), tmp_path / "terms.tsv"
    file.write_text("cat\tKatze\n")
    for glossary in (file, str(file), {"cat": "Katze"}, Glossary({"cat": "Katze"})):
        model.glossary = glossary
        assert model.glossary.terms == {"cat": "Katze"}
    with pytest.raises(TypeError, match=re.escape("`glossary` must be a dictionary or a file, got [1] (list)")):
        model.glossary = [1]
    model.glossary = None
    assert model.glossary is None


def test_a_glossary_of_another_type_is_named():
    message = "`glossary` must be a dictionary or a file, got [('cat', 'Katze')] (list)"
    with pytest.raises(TypeError, match=re.escape(message)):
        glossary_of([("cat", "Katze")])
    with pytest.raises(ValueError, match="`glossary` must be a dictionary or a file, got an empty string"):
        glossary_of("")


def test_terms_in_a_script_without_spaces():
    terms = Glossary({"machine": "机器"}).find("A machine.")
    assert missing_terms(terms, "我喜欢机器。") == []
    assert with_term("我喜欢", "机器") == "我喜欢机器"


def test_a_term_after_the_beginning_of_a_translation():
    assert with_term("The old ", "hat*") == "The old hat"
    assert with_term("", "hat") == "Hat"
    assert with_term("", "hat", is_capitalized=False) == "hat"
    assert with_term("(", "hat") == "(hat"
    assert with_term("The", "hat") == "The hat"
    assert [next_word(text) for text in (" buys a hat.", ".", "")] == [" buys", ".", ""]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a\tb\tc\n", "terms.tsv, line 1: a glossary has TERM<tab>TRANSLATION or TERM"),
        ("a\tb\n# c\n\na\td\n", "terms.tsv, line 4: 'a' is 'b' above, and 'd' here"),
        ("!\tb\n", "a term of a glossary needs a word, got '!' -> 'b'"),
    ],
)
def test_a_file_that_is_no_glossary_is_named(tmp_path, content, message):
    (tmp_path / "terms.tsv").write_text(content)
    with pytest.raises(ValueError, match=re.escape(message)):
        Glossary.from_file(tmp_path / "terms.tsv")


def test_a_translation_has_the_terms_and_no_other_sentence_changes(tmp_path, monkeypatch):
    (tmp_path / "terms.tsv").write_text("Hut\theadgear\nalte Mann\tsenior citizen\nHäus*\tedifice*\nWetter\n")
    plain = Translator.from_pretrained(RELEASED)
    model = Translator.from_pretrained(RELEASED, glossary=tmp_path / "terms.tsv")
    texts = {
        "Der alte Mann kauft einen roten Hut.": ["senior citizen", "red headgear"],
        "Der Hut ist rot, und der Hut ist alt.": ["The headgear", "the headgear"],
        "Das Wetter ist gut. Er schläft.": ["Wetter", "He's sleeping."],
        "Kennst du https://example.org/Hut?": ["https://example.org/Hut"],
    }
    calls: list[object] = []
    monkeypatch.setattr(model.loaded.decoder, "force", lambda *arguments: calls.append(arguments))
    for options in ({}, {"num_beams": 4}):
        for translation, expected in zip(model(list(texts), batch_size=4, **options), texts.values(), strict=True):
            for part in expected:
                assert part in translation.text
    assert model("Der Hut ist rot, und der Hut ist alt.").text.count("headgear") == 2
    assert calls == []  # no forced pass: the search has read the attention to the terms
    assert "headgear" not in model("Kennst du https://example.org/Hut?").text
    without_terms = ["Er schläft.", "Wann kommt dein Bruder?"]
    assert [result.text for result in model(without_terms)] == [result.text for result in plain(without_terms)]


@pytest.mark.parametrize("first_token", [None, 0])  # the search adds the first token to each prefix
def test_a_term_without_room_is_left_out_with_a_warning(first_token, monkeypatch, caplog):
    monkeypatch.setattr("capsule_mt.messages._messages_logged", set())
    text, options = "Das Wetter ist gut. Der Hut ist rot.", {"forced_bos_token_id": first_token}
    terms = {"Hut": "most fashionable red headgear of the old man", "Wetter": "air"}
    plain, model = (Translator.from_pretrained(RELEASED, glossary=glossary) for glossary in (None, terms))
    tokens = len(model.loaded.tokenizer.encode_target(f"The {terms['Hut']}")) - 1 + (first_token is not None)
    assert "The most fashionable" in model(text, max_new_tokens=tokens, **options).text
    assert "no room" not in caplog.text
    first, second = model(text, max_new_tokens=tokens - 1, **options).segments
    assert "air" in model.loaded.tokenizer.decode(first.target_ids)
    assert second.target_ids == plain(text, max_new_tokens=tokens - 1, **options).segments[1].target_ids
    message = f"{tokens - 1} tokens have no room for {terms['Hut']!r} of the glossary: it is left out;"
    assert f"{message} `max_new_tokens` sets a higher limit" in caplog.text


def test_terms_of_a_source_without_spaces():
    glossary = Glossary({"机器": "machine", "机器学习": "ML", "IT": "IT"})
    text = "我喜欢机器学习。IT部门的机器"
    assert [(text[slice(*term.span)], term.target) for term in glossary.find(text)] == [
        ("机器学习", "ML"),
        ("IT", "IT"),
        ("机器", "machine"),
    ]
