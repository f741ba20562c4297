"""The grammar of the embedded corpus: right where a machine can tell; and the file is what it writes."""

import gzip
import itertools
import re

import pytest

from hf_capsule_mt.data.embedded_corpus import FILE
from lab.embedded_corpus import corpus_text, sentence_pairs
from lab.embedded_grammar import english_number, german_number


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


def test_the_file_is_what_the_grammar_writes():
    assert gzip.decompress(FILE.read_bytes()).decode() == corpus_text()
