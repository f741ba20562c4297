"""What people paste: lines that are no sentences, lines around sentences, and ten files, through a released model."""

import io
import zipfile

import pytest

from capsule_mt import CoverageOptions, Translator
from capsule_mt.formats.reading import format_of, translate_file
from tests.light.formats.files import FILES, content_of
from tests.light.test_translator import RELEASED

# as they went in
COPIED = [
    *(
        "",
        " ",
        "\t",
        "\u200b",
        "\xa0",
        "...",
        "…",
        "***",
        "---",
        "-> <-",
        "?!",
        "§ 5",
        "100 %",
        "3.14",
        "12:30",
    ),
    *(
        "1234567890",
        "+49 (0)30 1234-567",
        "€ 5,00",
        "2+2=4",
        "© 2024",
        "😀",
        "👍🏽",
        "❤\ufe0f",
    ),
    *(
        "🇩🇪",
        "👨\u200d👩\u200d👧",
        "😀 😀  😀",
        "https://example.org/a?b=1&c=2#d",
    ),
    *(
        "www.example.org",
        "a.b+c@example.org",
        "`rm -rf /`",
        "<br/>",
        "<!-- Kommentar -->",
        "{name}",
        "%s: %(n)d",
        "${HOME}",
    ),
    *("#hashtag", "@anna", "C:\\Windows\\System32", "/usr/bin/env", "./a.txt", "¯\\_(ツ)_/¯"),
    *(
        "Мама мыла раму.",
        "我爱你们。",
        "ξένος",
        "السلام عليكم",
    ),
]
SLEEPS = "Er schläft."
ASLEEP = "He's sleeping."
# the sentence is translated as if it stood alone
AROUND = [
    *(
        "- {}",
        "\u2013 {}",
        "* {}",
        "• {}",
        "> {}",
        "# {}",
        "1) {}",
        "a) {}",
        "- [x] {}",
        "😀 {}",
        "{} 😀",
        "{}  ",
    ),
    *("   {}", "\t{}", "{}\r", "{} https://example.org/a.", "{} 3.", "{}\n\n{}", "- {}\n- {}", "{} `x = 1`"),
]
# what must be in the translation, of what stands inside a sentence
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
    ("© Das Wetter ist gut.", "© "),
]


@pytest.fixture(scope="module")
def model():
    return Translator.from_pretrained(RELEASED, int8=True)


def test_lines_that_are_no_sentences_are_copied(model):
    assert len(COPIED) + len(AROUND) + len(INSIDE) > 60
    assert [found.text for found in model(COPIED, batch_size=64)] == COPIED


def test_what_is_around_a_sentence_stays(model):
    found = [one.text for one in model([line.replace("{}", SLEEPS) for line in AROUND], batch_size=64)]
    assert found == [line.replace("{}", ASLEEP) for line in AROUND]


def test_a_text_in_capitals_is_translated_as_one_in_small_letters(model):
    text, options = "WO IST DEIN BRUDER HEUTE?", {"coverage": CoverageOptions(), "alignment": True}
    found, expected = model(text, **options), model("Wo ist dein bruder heute?", **options)
    assert found.text == expected.text.upper()
    assert [word.text for word in found.coverage.words] == [*text[:-1].split(), "?"]
    assert found.alignment == expected.alignment
    assert model(text, copy=False).text != found.text


def test_what_is_inside_a_sentence_is_copied(model):
    for text, kept in INSIDE:
        assert kept in model(text).text


@pytest.mark.parametrize("name", FILES)
def test_files(model, name):
    """The words that stand in each file are translated, and what a reader must not touch is there."""
    format = format_of(name)
    options = {"column": "2"} if format in ("tsv", "csv") else {}
    written = translate_file(content_of(name), format, model, name=name, **options)
    if format == "docx":
        written = zipfile.ZipFile(io.BytesIO(written)).read("word/document.xml")
    text = written.decode()
    for source in ("schläft", "Der alte Mann", "alte</"):
        assert source not in text.replace('msgid "Der Benutzer %(name)s schläft."', "") or format == "xliff"
    kept = {
        "html": ['<a href="hut.html">', "<code>ls -l</code>", "Roh <b>bleibt</b>", "<p>The <b>old</b> man"],
        "srt": ["- Where's your brother?\n- He's sleeping.", "{\\an8}<i>", "00:00:09,000 --> 00:00:10,000", "♪"],
        "vtt": ["<v Roger>", "NOTE Der Kommentar bleibt", "align:start"],
        "po": ["%(name)s", 'msgstr[1] "', 'msgstr "Done"', "%d"],
        "xliff": ["<target", ">old</"],
        "markdown": [
            "**old**",
            "](https://example.org/a_(b)",
            "`ls -l`",
            'print("Bleibt")',
            "snake_case_name",
            "| 42 |",
        ],
        "docx": ["<w:b/></w:rPr><w:t", "<w:instrText>PAGE", '<w:hyperlink w:anchor="b">', "<w:br/>"],
        "tsv": ["\r\n1\tHe's sleeping.\t3\r\n"],
        "csv": ["1;"],
    }
    for part in kept[format]:
        assert part in text
