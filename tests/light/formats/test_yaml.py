"""Catalogs in YAML: PyYAML reads what is written as the same structure, with the texts translated."""

import pytest

from capsule_mt.formats.reading import parse
from capsule_mt.formats.units import FormatError, Translated
from tests.light.formats.files import YAML
from tests.light.formats.test_formats import shout

yaml = pytest.importorskip("yaml")


def read(content, language="de"):
    return parse(content.encode(), "yaml", name="a.yml", language=language)


def translated(content, language="de", translate=shout):
    parsed = read(content, language)
    return parsed.write([Translated(translate(unit.text)) for unit in parsed.units]).decode()


def texts(content):
    return [unit.text for unit in read(content).units]


def shouted(value):
    """Return a value with its texts in capitals, but for keys and placeholders."""
    if isinstance(value, dict):
        return {key: shouted(child) for key, child in value.items()}
    if isinstance(value, list):
        return [shouted(child) for child in value]
    verbatim = (":symbol", "%d. %B %Y")
    return shout(value) if isinstance(value, str) and value not in verbatim else value


def test_rails():
    expected = [
        "Der alte Mann",
        'Hallo %{name},\nÜber: "x"',
        "Eine lange Zeile, die weitergeht",
        "Er sagt: 'Gut' und geht",
        "Erster",
        "Zweiter, Tag",
        "Ein Hut",
        "Ein Haus",
        "Eine Datei",
        "%{count} Dateien",
        "Erste Zeile\n  Zweite Zeile\n\nDritte",
        "Ein langer Satz\nNoch einer",
    ]
    content = YAML.replace("    anders: *de\n", "")  # an alias inside of its own anchor
    assert texts(content) == expected
    original, after = yaml.safe_load(content), yaml.safe_load(translated(content))
    shouted_values = shouted(original)
    shouted_values["de"]["gruss"] = 'HALLO %{name},\nÜBER: "X"'
    shouted_values["de"]["dateien"]["other"] = "%{count} DATEIEN"
    assert after == shouted_values
    assert "  titel: DER ALTE MANN  # bleibt\n" in translated(YAML)


@pytest.mark.parametrize(
    ("language", "forms"), [("ru", ["one", "few", "many", "other"]), ("ja", ["other"]), ("en", ["one", "other"])]
)
def test_rails_has_the_language_and_its_plurals(language, forms):
    catalog = yaml.safe_load(translated(YAML, language))
    assert list(catalog) == [language]
    assert list(catalog[language]["dateien"]) == forms
    assert catalog[language]["dateien"]["other"] == "%{count} DATEIEN"


@pytest.mark.parametrize(
    ("root", "written"),
    [("de", "pt"), ("'de'", "'pt'"), ("de-AT", "pt"), ("zh-cn", "pt"), ("no_results", "no_results")],
)
def test_only_a_root_that_is_a_language_becomes_the_target(root, written):
    assert translated(f"{root}:\n  a: Ein Hut\n", "pt") == f"{written}:\n  a: EIN HUT\n"


@pytest.mark.parametrize(
    "translation",
    [
        "plain",
        "yes",
        "null",
        "5.0",
        "a: b",
        "a #b",
        "# a",
        "- a",
        "it's",
        '"quoted"',
        "{a b",
        "[a], b",
        "%a",
        "@a",
        "a:",
        ":a",
        "a\nb",
        "a\tb",
        "\\n",
        "é, ü",
        "a\u2028b",
        "*a",
        "&a",
        "!a",
        "| a",
        "~",
    ],
)
@pytest.mark.parametrize("scalar", ["Ein Hut", '"Ein Hut"', "'Ein Hut'", "[Ein Hut]"])
def test_every_text_is_written_so_that_it_is_read_back(translation, scalar):
    written = translated(f"a: {scalar}\nb: Ein Haus # x\n", translate=lambda text: translation)
    expected = [translation] if scalar[0] == "[" else translation
    assert yaml.safe_load(written) == {"a": expected, "b": translation}


@pytest.mark.parametrize("translation", ["a\nb", "a: b", "# a", "a\n\nb"])
@pytest.mark.parametrize("header", ["|", "|-", ">", ">-", ">+"])
def test_blocks_are_read_back(header, translation):
    content = f"a:\n  b: {header}\n    Ein Hut\n\n    Ein Haus\n  c: Ende gut\n"
    written = yaml.safe_load(translated(content, translate=lambda text: translation))
    assert written["a"]["b"].strip("\n") == translation
    assert written["a"]["c"] == translation


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a: !ruby/sym b c", "a.yml, line 1: `!` is not read here: write texts in quotes"),
        ("a: {b: c d}", "a.yml, line 1: `{` is not read here"),
        ("a: b c\n---\nd: e f", "a.yml, line 2: directives and several documents in a file are not read"),
        ("a:\n\tb: c d", "a.yml, line 2: YAML is indented by spaces, not by tabs"),
        ("a: b c\nd e f", "a.yml, line 2: `key: text` is expected, got 'd e f'"),
        ("a: 'b c", "a.yml, line 1: the text does not end with '"),
        ('a: "b c" d', "a.yml, line 1: the end of the line is expected, got ' d'"),
        ('a: "b \\q"', "a.yml, line 1: \\q is not an escape of YAML"),
        ("a: [b c,\n  d\n  e]", "a.yml, line 1: a list in brackets holds texts: write"),
        ("a: [b c, [d]]", "a.yml, line 1: a list in brackets holds texts: write"),
        ("a: b c\n  d: e f", "a.yml, line 2: a text goes on here, and has a key in it"),
        ("a: >\n  b c\n    d", "a.yml, line 3: a line of a text is indented differently"),
        ("? a\n: b", "a.yml, line 1: `key: text` is expected"),
        ("a: %b c", "a.yml, line 1: `%` is not read here"),
    ],
)
def test_what_is_not_read_is_refused_by_line(content, message):
    with pytest.raises(FormatError) as error:
        read(content)
    assert str(error.value).startswith(message)


@pytest.mark.parametrize(
    "value",
    ["1.0e-4", "6.02E+23", "0x1F", ".inf", "-.Inf", ".NaN", "12:30:00", "2001-12-14 21:59:43.10 -5", "1_000", "off"],
)
@pytest.mark.parametrize("form", ["a: {}\n", "a: [{}]\n", "a:\n- {}\n"])
def test_what_pyyaml_does_not_read_as_a_text_stays(form, value):
    assert not isinstance(yaml.safe_load(value), str)
    assert translated(form.format(value)) == form.format(value)


@pytest.mark.parametrize("space", ["\xa0", "\u202f", "\u3000"])
def test_other_spaces_are_parts_of_a_text(space):
    content = f"a{space}b: Ein Hut{space}? Ja\nc: [Ein{space}Hut]\n"
    values = yaml.safe_load(content)
    assert list(values.values()) == [f"Ein Hut{space}? Ja", [f"Ein{space}Hut"]]
    assert yaml.safe_load(translated(content)) == shouted(values)


def test_a_list_in_brackets_may_have_several_lines():
    content = "a: [ 'Ein Hut' , Ein Haus,\n  1, \"Ein\n  Tag\",\n\n  Rot\n  ]  # x\nb: Ende\n"
    assert yaml.safe_load(translated(content)) == shouted(yaml.safe_load(content))
    assert translated(content, translate=lambda text: text) == content.replace("Ein\n  Tag", "Ein Tag")


def test_texts_between_bars_are_translated_by_themselves():
    """vue-i18n also reads catalogs in YAML."""
    content = "a: no hats | one hat | many hats\nb: on|off\n"
    assert texts(content) == ["no hats", "one hat", "many hats", "on|off"]
    assert translated(content) == "a: NO HATS | ONE HAT | MANY HATS\nb: ON|OFF\n"
