"""Which language a text is in: py3langid, and when it is silent."""

import pytest

pytest.importorskip("py3langid")

from capsule_mt import CoverageOptions, PivotTranslator
from capsule_mt.commands import translate
from capsule_mt.text import detecting
from capsule_mt.text.detecting import Detector
from tests.light.decoders import END, Echo, translator
from tests.light.text.fakes import WordTokenizer

SENTENCES = {"de": "Das Wetter ist heute gut.", "en": "The weather is good today.", "pt": "O tempo hoje está bom."}


def test_another_language_is_found_in_short_texts():
    detector = Detector()
    for language, text in SENTENCES.items():
        assert detector.knows(language)
        for code in SENTENCES:
            assert detector.other_language(text, code) == (None if code == language else language)
    assert detector.other_language(SENTENCES["en"].upper(), "de") == "en"


def test_it_is_silent_where_nothing_can_be_said():
    detector = Detector()
    for text in ("", "Garden party", "Tom Mary", "https://example.org/the/weather is <b>good</b>", "1 2 3 4"):
        assert detector.other_language(text, "de") is None
    assert not detector.knows("xx")
    assert detector.other_language(SENTENCES["en"], "xx") is None


def test_a_confidence_is_among_all_languages():
    """As LibreTranslate's: its `Detector(("de", "en"))` gives the Portuguese sentence a confidence of 0."""
    everything, served = Detector(), Detector({"de", "en", "xx"})
    for language, text in SENTENCES.items():
        ranked = served.rank(text)
        assert {detected.language for detected in ranked} == {"de", "en"}
        assert ranked == [detected for detected in everything.rank(text) if detected.language in ("de", "en")]
        assert ranked[0].language == language or language == "pt"
        assert ranked[0].confidence < 0.01 if language == "pt" else ranked[0].confidence > 0.9
    assert not served.knows("pt")
    assert Detector({"xx"}).rank(SENTENCES["en"]) == []


# py3langid prefers another language by a factor of 5 to 50 for each
SHORT_LINES = (
    ("en", "He paid 1,250 euros."),
    ("en", "Total: 15 euros net"),
    ("en", "Default zoom level"),
    ("en", "Karl Schmidt smiled."),
    ("en", "Yes, Sir Galahad."),
    ("en", "Lotta ran 12 km."),
    ("en", "Per annum rent"),
    ("fr", "Anna a perdu 300 euros."),
    ("de", "Video in Galerie"),
    ("pt", "Menu de contexto"),
)


def test_short_lines_with_names_and_numbers_are_not_foreign():
    detector = Detector()
    foreign = {line: detector.other_language(line, language) for language, line in SHORT_LINES}
    assert foreign == dict.fromkeys(foreign)


class Shouting(Echo):
    """Writes the words of each source in capitals."""

    def __init__(self):
        super().__init__()
        self.tokenizer = WordTokenizer()

    def hypothesis(self, source, lost, limit):
        hypothesis = super().hypothesis(source, lost, limit)
        words = [self.tokenizer.words[token] for token in hypothesis.ids[:-1]]
        hypothesis.ids = [*(self.tokenizer.id(word.upper()) for word in words), END]
        return hypothesis


def shouting():
    decoder = Shouting()
    return translator(decoder, decoder.tokenizer)


LINES = ("The weather is good today.", "Das Wetter ist heute gut.", "I do")


def test_foreign_lines_are_copied():
    shout = shouting()
    text = "\n".join(LINES)
    assert shout(text).text == text.upper()
    translation = shout(text, copy_foreign=True, src_lang="en", coverage=CoverageOptions(), alignment=True)
    assert translation.text == "\n".join((LINES[0].upper(), LINES[1], LINES[2].upper()))
    assert [(word.text, word.covered) for word in translation.coverage.words[6:12]] == [
        *((word, 1.0) for word in ["Das", "Wetter", "ist", "heute", "gut", "I"])
    ]
    assert {(index, index) for index in range(5, 10)} <= set(translation.alignment)
    assert shout(text, copy_foreign=True, src_lang="de").text == "\n".join((LINES[0], LINES[1].upper(), "I DO"))
    unsplit = shout(LINES[1], copy_foreign=True, src_lang="eng_Latn", split_sentences=False, copy=False)
    assert unsplit.text == LINES[1]
    pivot = PivotTranslator(shouting(), shouting())
    assert pivot(text, copy_foreign=True, src_lang="de").text == "\n".join((LINES[0], LINES[1].upper(), "I DO"))


def test_what_copying_foreign_lines_needs(monkeypatch):
    with pytest.raises(ValueError, match="the model does not state it: give `src_lang`"):
        translator()("one", copy_foreign=True)
    with pytest.raises(ValueError, match="a source language that py3langid knows, got 'xx'"):
        translator()("one", copy_foreign=True, src_lang="xx")
    detecting._detector.cache_clear()
    monkeypatch.setattr(detecting, "find_spec", lambda name: None)
    with pytest.raises(ModuleNotFoundError, match="`copy_foreign` needs py3langid: pip install"):
        translator()("one", copy_foreign=True, src_lang="en")


def test_detectors_share_the_model_of_py3langid():
    first, second = (Detector(languages) for languages in ({"en", "de"}, {"pt"}))
    assert (first.rank("Wann schläft das Kind?")[0].language, second.rank("Quem ri?")[0].language) == ("de", "pt")
    assert detecting._identifier.cache_info().currsize == 1


def test_a_command_loads_nothing_for_short_lines(word_for_word, tmp_path, monkeypatch):
    """Loading py3langid takes longer than all else that a short line needs."""
    monkeypatch.setattr(detecting, "_identifier", lambda: pytest.fail("loaded"))
    source, target = tmp_path / "in.txt", tmp_path / "out.txt"
    source.write_text("Das Wetter\n", encoding="utf-8")
    arguments = ("--input", source, "--output", target, "--src-lang", "de")
    monkeypatch.setattr("sys.argv", ["translate", str(word_for_word), *map(str, arguments)])
    translate.main()
    assert target.read_text(encoding="utf-8")


def test_a_command_copies_foreign_lines(word_for_word, tmp_path, monkeypatch):
    source, target = tmp_path / "in.txt", tmp_path / "out.txt"
    source.write_text("Das Wetter ist heute gut.\nThe weather is good today.\n", encoding="utf-8")
    arguments = ("--input", source, "--output", target, "--copy-foreign", "--src-lang", "de")
    monkeypatch.setattr("sys.argv", ["translate", str(word_for_word), *map(str, arguments)])
    translate.main()
    assert target.read_text(encoding="utf-8").splitlines()[1] == "The weather is good today."
