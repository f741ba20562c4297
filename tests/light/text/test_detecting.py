"""Which language a text is in: py3langid, and when it is silent."""

import pytest

pytest.importorskip("py3langid")

from capsule_mt.text.detecting import Detector

SENTENCES = {"de": "Das Wetter ist heute gut.", "en": "The weather is good today.", "pt": "O tempo hoje está bom."}


def test_another_language_is_found_in_short_texts():
    detector = Detector()
    for language, text in SENTENCES.items():
        assert detector.knows(language)
        for other in SENTENCES:
            assert detector.other_language(text, other) == (None if other == language else language)
    assert detector.other_language(SENTENCES["en"].upper(), "de") == "en"


def test_it_is_silent_where_nothing_can_be_said():
    detector = Detector()
    for text in ("", "Garden party", "Tom Mary", "https://example.org/the/weather is <b>good</b>", "1 2 3 4"):
        assert detector.other_language(text, "de") is None
    assert not detector.knows("xx")
    assert detector.other_language(SENTENCES["en"], "xx") is None
