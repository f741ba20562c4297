"""What people paste: lines that are no sentences, and lines around sentences, through a released model."""

import pytest

from capsule_mt import CoverageOptions, Translator
from tests.light.test_translator import RELEASED

# lines that come out as they went in
COPIED = [
    *("", "\t", "\u200b", "\xa0", "…", "-> <-", "§ 5", "12:30", "+49 (0)30 1234-567", "2+2=4", "© 2024"),
    *("👍🏽", "🇩🇪", "👨\u200d👩\u200d👧", "😀 😀  😀", "https://example.org/a?b=1&c=2#d", "<!-- Kommentar -->"),
    *("%s: %(n)d", "#hashtag", "@anna", "C:\\Windows\\System32", "/usr/bin/env", "¯\\_(ツ)_/¯"),
    *("Мама мыла раму.", "我爱你们。", "ξένος", "السلام عليكم"),
]
SLEEPS = "Er schläft."
ASLEEP = "He's sleeping."
# the sentence is translated as if it stood alone
AROUND = [
    *("- {}", "• {}", "> {}", "# {}", "1) {}", "a) {}", "- [x] {}", "* [ ] {}", "> # {}"),
    *("😀 {}", "{} 😀", "{}  ", "\t{}", "{}\r"),
    *("{} https://example.org/a.", "{} 3.", "{}\n\n{}", "- {}\n- {}", "{} `x = 1`"),
]
# a sentence, and the item in it that its translation must have
INSIDE = [
    ("Die Datei C:\\a\\b.txt ist mit snake_case_name in `x = 1` gut.", "C:\\a\\b.txt"),
    ("Der Mann hat snake_case_name in `x = 1` gekauft.", "snake_case_name"),
    ("Der Mann hat snake_case_name in `x = 1` gekauft.", "`x = 1`"),
    ("Kennst du https://example.org/a?b=1 oder a@b.de?", "https://example.org/a?b=1"),
    ("Das hat {name} gekauft.", "{name}"),
    ("Er 😴 schläft heute.", "😴"),
    ("Herr Čech schläft.", "Čech"),
    ("Er kauft 漢字 und einen Hut.", "漢字"),
    ("Er ♥ den Hut.", "♥"),
    ("Das ist Λógos.", "Λógos"),
    ("%d Hüte sind rot.", "%d"),
    ("Er hat [drei] Hunde.", "[three] dogs"),
    ("Er kauft Brot &.", "bread &."),
    ("Wo sind Tom & Maria?", "Tom & Mary?"),
    ("Was ist das *?", "that *?"),
    ("© Das Wetter ist gut.", "© "),
]


@pytest.fixture(scope="module")
def model():
    return Translator.from_pretrained(RELEASED, int8=True)


def test_lines_that_are_no_sentences_are_copied(model):
    assert [translation.text for translation in model(COPIED, batch_size=64)] == COPIED


def test_what_is_around_a_sentence_stays(model):
    translations = [
        translation.text for translation in model([line.replace("{}", SLEEPS) for line in AROUND], batch_size=64)
    ]
    assert translations == [line.replace("{}", ASLEEP) for line in AROUND]


def test_a_text_in_capitals_is_translated_as_one_in_small_letters(model):
    text, options = "WO IST DEIN BRUDER HEUTE?", {"coverage": CoverageOptions(), "alignment": True}
    translation, expected = model(text, **options), model("Wo ist dein Bruder heute?", **options)
    assert translation.text == expected.text.upper()
    assert [word.text for word in translation.coverage.words] == [*text[:-1].split(), "?"]
    assert translation.alignment == expected.alignment
    assert model(text, copy=False).text != translation.text


def test_what_is_inside_a_sentence_is_copied(model):
    for text, item in INSIDE:
        assert item in model(text).text
