"""The embedded corpus: grammatical where a machine can tell, distinct, disjoint, and the same from the same seed."""

import itertools
import re

import pytest

from hf_capsule_mt.data import embedded_corpus, sentence_pairs
from hf_capsule_mt.data.embedded_grammar import english_number, german_number


@pytest.mark.parametrize(
    ("number", "english", "german"),
    [
        (12, "twelve", "zwölf"),
        (16, "sixteen", "sechzehn"),
        (21, "twenty-one", "einundzwanzig"),
        (77, "seventy-seven", "siebenundsiebzig"),
        (234, "two hundred and thirty-four", "zweihundertvierunddreißig"),
        (999, "nine hundred and ninety-nine", "neunhundertneunundneunzig"),
    ],
)
def test_numbers(number, english, german):
    assert english_number(number) == english
    assert german_number(number) == german


def test_known_sentences():
    first = dict(itertools.islice(sentence_pairs(1), 200))
    assert first["What does my uncle offer?"] == "Was bietet mein Onkel an?"
    assert first["Under the bridge this baker stops."] == "Unter der Brücke hört dieser Bäcker auf."
    assert (
        first["Every friendly cook will sell the doctor no small ships in forty-two years."]
        == "Jeder freundliche Koch wird in zweiundvierzig Jahren der Ärztin keine kleinen Schiffe verkaufen."
    )
    assert first["Does this man stop?"] == "Hört dieser Mann auf?"


def test_sentences_are_well_formed_and_distinct():
    pairs = list(itertools.islice(sentence_pairs(3), 5000))
    assert len({english for english, _ in pairs}) == len({german for _, german in pairs}) == 5000
    for sentence in itertools.chain.from_iterable(pairs):
        assert re.fullmatch(r"[A-ZÄÖÜ][A-Za-zÄÖÜäöüß, -]+[.?]", sentence), sentence
        assert "  " not in sentence
    for english, german in pairs:
        assert english[-1] == german[-1]
        assert not re.search(r"\ba [aeio]|\ban [^aeiou]", english), english
        # verbs of a subordinate clause come last
        for clause in re.findall(r"(?:weil|obwohl|während|bevor|dass) ([^,.?]+)", german):
            assert re.search(r"(t|n|weiß|kann|muss|soll|darf|wird|sind)$", clause), german


def test_parts_are_disjoint_and_reproducible():
    small, large = embedded_corpus(50, 20, 30, seed=5), embedded_corpus(80, 20, 30, seed=5)
    assert {name: len(part) for name, part in small.items()} == {"train": 50, "validation": 20, "test": 30}
    for name in ("validation", "test"):
        assert small[name]["translation"] == large[name]["translation"]
    assert small["train"]["translation"] == large["train"]["translation"][:50]
    assert embedded_corpus(5, 1, 1, seed=6)["train"]["translation"] != small["train"]["translation"][:5]
    sides = [pair["en"] for part in large.values() for pair in part["translation"]]
    assert len(set(sides)) == len(sides)
