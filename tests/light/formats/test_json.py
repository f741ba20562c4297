"""Catalogs in JSON: what is translated of them, and that their libraries and Python read what is written."""

import json
import re

import pytest

from capsule_mt.formats.reading import parse
from capsule_mt.formats.registry import format_of
from capsule_mt.formats.units import FormatError, Translated, note_of_branches
from tests.light.formats.files import ARB, CHROME, I18NEXT
from tests.light.formats.test_formats import shout

PLACEHOLDER = re.compile(r"\{\{?[\w#]+\}?\}")


def read(name, content, language):
    return parse(content.encode(), format_of(name), name=name, language=language)


def translated(name, content, language="en", translate=None):
    def by_default(text):
        placeholders = PLACEHOLDER.findall(text)
        return (
            "{}".join(map(shout, PLACEHOLDER.split(text))).replace("{}", "%s") % tuple(placeholders)
            if placeholders
            else shout(text)
        )

    parsed = read(name, content, language)
    return parsed.write([Translated((translate or by_default)(unit.text)) for unit in parsed.units]).decode()


def test_i18next():
    units = read("de.json", I18NEXT, "en").units
    assert [(unit.text, unit.location) for unit in units] == [
        ("Der alte Mann", "line 2"),
        ("Hallo {{name}}, <0>willkommen</0> bei {1}!", "line 3"),
        ("1 Datei", "line 4"),
        ("{{count}} Dateien", "line 4"),
        ("Ein Hut", "line 6"),
        ("{{count}} Hüte", "line 6"),
        ("Erster", "line 7"),
        ('Über "x"', "line 7"),
        ("Ein Haus", "line 8"),
        ("{{count}} Häuser", "line 8"),
    ]
    written = translated("de.json", I18NEXT)
    assert '\n    "datei_one": "{{count}} DATEI",\n    "datei_other": "{{count}} DATEIEN" ,\n' in written
    assert '"alt": "EIN HAUS", "alt_plural": "{{count}} HÄUSER", "url": "https://example.org"\n}\n' in written
    catalog = json.loads(written)
    assert list(catalog) == list(json.loads(I18NEXT))
    assert set(catalog["menu"]) == set(json.loads(I18NEXT)["menu"])
    assert catalog["gruss"] == "HALLO {{name}}, <0>WILLKOMMEN</0> BEI $t(titel)!"
    assert catalog["menu"]["liste"] == ["ERSTER", 'ÜBER "X"\n']
    assert (catalog["menu"]["hut_one"], catalog["menu"]["hut_other"]) == ("EIN HUT", "{{count}} HÜTE")
    jsonl10n = pytest.importorskip("translate.storage.jsonl10n")
    store = jsonl10n.I18NextV4File()
    store.parse(written.encode())
    plurals = [unit.target.strings for unit in store.units if hasattr(unit.target, "strings")]
    assert ["{{count}} DATEI", "{{count}} DATEIEN"] in plurals


@pytest.mark.parametrize(
    ("language", "names"),
    [("ru", ["one", "few", "many", "other"]), ("ja", ["other"]), ("sl", ["one", "two", "few", "other"])],
)
def test_i18next_has_the_plurals_of_the_language(language, names):
    catalog = json.loads(translated("de.json", I18NEXT, language))
    assert [key for key in catalog if key.startswith("datei")] == [f"datei_{name}" for name in names]
    assert {key for key in catalog["menu"] if key.startswith("hut")} == {f"hut_{name}" for name in names}
    assert all("{{count}}" in catalog[f"datei_{name}"] for name in names)
    old = [key for key in catalog if key.startswith("alt")]
    assert old == [f"alt_{index}" for index in range({"ru": 3, "ja": 1, "sl": 4}[language])]


def test_plurals_in_any_order_of_their_keys():
    content = '{"a_plural": "{{count}} Hüte", "b_other": "{{count}} Dateien", "a": "Ein Hut", "b_one": "Eine Datei"}'
    written = translated("a.json", content, "de")
    assert json.loads(written) == {
        "a": "EIN HUT",
        "a_plural": "{{count}} HÜTE",
        "b_one": "EINE DATEI",
        "b_other": "{{count}} DATEIEN",
    }
    assert written.count(":") == 4


def test_an_object_of_plural_forms_has_those_of_the_language():
    def in_capitals(text):
        return re.sub(r"(?<![.\w])\w+", lambda word: word[0].upper() if word[0] != "count" else word[0], text)

    go = {"description": "Der Zähler", "hash": "ab", "one": "Ein Hut", "other": "{{.Count}} Hüte"}
    vue = {"one": "Ein Hut", "other": "{{count}} Hüte"}
    content = {"go": go, "vue": vue, "list": {"one": "Eins", "other": "Mehr"}}
    written = json.loads(translated("a.json", json.dumps(content), "ru", in_capitals))
    many = dict.fromkeys(("one", "few", "many", "other"), "{{.Count}} HÜTE")
    assert written["go"] == {"description": "Der Zähler", "hash": "ab", **many}
    assert written["vue"] == dict.fromkeys(many, "{{count}} HÜTE")
    assert written["list"] == {"one": "EINS", "other": "MEHR"}  # without a number: not plural forms
    single = json.loads(translated("a.json", '{"a": {"description": "Der Zähler", "other": "Hallo"}}', "en"))
    assert single == {"a": {"description": "Der Zähler", "other": "HALLO"}}


def test_plurals_stay_as_they_are_without_a_language():
    catalog = json.loads(translated("de.json", I18NEXT, None))
    assert (catalog["datei_one"], catalog["datei_other"]) == ("{{count}} DATEI", "{{count}} DATEIEN")


def test_values_that_are_not_texts_stay():
    """Catalogs out of npm packages have a switch or two, such as `"rtl": false`."""
    content = (
        '{"rtl": false, "order" : -1.5e3,\n "none":null, "a": "Ein Hut", "a_plural": null, "b": ["Zwei", 3, "vier"],'
        ' "c": {"one": "Eins", "other": 2}, "d_one": 1, "d_other": "{{count}} Häuser"}'
    )
    written = translated("de.json", content)
    expected = content.replace("Ein Hut", "EIN HUT").replace("Zwei", "ZWEI").replace("vier", "VIER")
    assert written == expected.replace("Eins", "EINS").replace("Häuser", "HÄUSER")


# vue-i18n 11.4 shows, of "b", "no hats" for 0, "one hat" for 1, and else "2 hats"
VUE = {
    "a": "hat | hats",
    "b": "no hats |one hat| {count} hats",
    "c": "the sign {'|'} here\n|\n{n}",
    "d": "the {'a | b'} hat|the on\\|off hat",
    "e": "@:a in a box",
}


def test_texts_between_bars_are_translated_by_themselves():
    """vue-i18n takes one by its position: as many must be written, also in languages with more plural forms."""
    content = json.dumps(VUE)
    assert [unit.text for unit in read("a.json", content, "ru").units] == [
        *("hat", "hats", "no hats", "one hat", "{count} hats"),
        *("the sign {'|'} here", "the {'a | b'} hat", "the on\\|off hat", "@:a in a box"),
    ]

    def in_capitals(text):
        return "".join(part if part[:1] in "{@" else part.upper() for part in re.split(r"(\{[^}]*\}|@:a)", text))

    assert json.loads(translated("a.json", content, "ru", in_capitals)) == {
        "a": "HAT | HATS",
        "b": "NO HATS |ONE HAT| {count} HATS",
        "c": "THE SIGN {'|'} HERE\n|\n{n}",
        "d": "THE {'a | b'} HAT|THE ON\\|OFF HAT",
        "e": "@:a IN A BOX",
    }


def test_a_bar_without_spaces_separates_in_catalogs_of_vue_and_beside_a_count():
    texts = ["on|off", "Home | {{site}}", "{n, plural, one {a | b} other {c | d}}", "One post|{count} posts"]
    units = read("a.json", json.dumps(dict(enumerate(texts))), None).units
    assert [unit.text for unit in units] == ["on|off", "Home", "a | b", "c | d", "One post", "{count} posts"]


REFERENCES = {
    "a": "Hüte &amp; Häuser <em>für alle</em>&nbsp;Leute&hellip;",
    "b": "&lt;b&gt;Hut&lt;/b&gt;&#160;&raquo;",
    "c": "&amp; mit R&D, und <b>hier &lt; dort</b>",
    "d": "{n, plural, one {&#39;# Hut &neu;} other {# Hüte &quot;da&quot; &neu;}}",
}


def test_character_references_are_read_as_characters_and_written_back():
    """The models read "&nbsp;Leute" as a word, and left it as it was or tore it apart."""
    units = read("a.json", json.dumps(REFERENCES), None).units
    assert [unit.text for unit in units] == [
        "Hüte & Häuser <em>für alle</em>\xa0Leute\u2026",
        "<b>Hut</b>\xa0\xbb",
        "{1} mit R&D, und <b>hier {2} dort</b>",
        *("{1}{#} Hut {2}", '{#} Hüte "da" {3}'),
    ]
    catalog = json.loads(translated("a.json", json.dumps(REFERENCES), None, lambda text: text.replace("Hut", "Fuß")))
    assert catalog == {key: text.replace("Hut", "Fuß") for key, text in REFERENCES.items()}
    french = json.loads(translated("a.json", json.dumps(REFERENCES), None, lambda text: f"\xa0& {text} <".strip()))
    assert french["a"] == f"&amp; {REFERENCES['a']} <"
    assert french["c"] == f"& {REFERENCES['c']} <"


@pytest.mark.parametrize("translate", [lambda text: f"{text} | x", lambda text: text.replace("{count}", "")])
def test_texts_between_bars_stay_if_one_is_not_sound(translate):
    assert json.loads(translated("a.json", json.dumps(VUE), "ru", translate))["b"] == VUE["b"]


def test_angulars_catalog_states_its_locale():
    content = '{"locale": "de", "translations": {"a": "Ein Hut von {name}", "locale": "Ein Ort"}}'
    written = {"locale": "pt-BR", "translations": {"a": "EIN HUT VON {name}", "locale": "EIN ORT"}}
    assert json.loads(translated("messages.json", content, "pt_BR")) == written
    assert json.loads(translated("messages.json", '{"locale": "no place"}', "pt")) == {"locale": "NO PLACE"}


def test_messages_in_the_shape_of_chromes_may_have_branches():
    """Lighthouse's have."""
    content = (
        '{"a.js | b": {"message": "{n, plural, =1 {1 Hut} other {# Hüte}}"}, "c": {"message": "Hüte von {name}", '
        '"description": "Wer"}}'
    )
    written = json.loads(translated("en-US.json", content, "ru"))
    assert written["c"] == {"message": "HÜTE VON {name}", "description": "Wer"}
    pyicumessageformat = pytest.importorskip("pyicumessageformat")
    (plural,) = pyicumessageformat.Parser().parse(written["a.js | b"]["message"])
    assert (plural["name"], list(plural["options"])) == ("n", ["=1", "one", "few", "many", "other"])
    assert "# HÜTE" in written["a.js | b"]["message"]


def test_chrome():
    written = json.loads(translated("messages.json", CHROME))
    expected = json.loads(CHROME)
    expected["appName"]["message"] = "DER ALTE HUT"
    expected["greeting"]["message"] = "HALLO $USER$, DU HAST $1 PUNKTE FÜR $$5."
    assert written == expected
    jsonl10n = pytest.importorskip("translate.storage.jsonl10n")
    store = jsonl10n.WebExtensionJsonFile()
    store.parse(translated("messages.json", CHROME).encode())
    assert [unit.target for unit in store.units] == ["DER ALTE HUT", "HALLO $USER$, DU HAST $1 PUNKTE FÜR $$5."]


def test_flutter():
    written = translated("app_de.arb", ARB, "ru")
    catalog = json.loads(written)
    assert catalog["@@locale"] == "ru"
    assert catalog["@title"] == json.loads(ARB)["@title"]
    assert catalog["items"] == (
        "{n, plural, =0 {KEINE HÜTE VON {name}} one {{n} HÜTE VON {name}} few {{n} HÜTE VON {name}} "
        "many {{n} HÜTE VON {name}} other {{n} HÜTE VON {name}}}"
    )
    pyicumessageformat = pytest.importorskip("pyicumessageformat")
    (plural,) = pyicumessageformat.Parser().parse(catalog["items"])
    assert (plural["name"], list(plural["options"])) == ("n", ["=0", "one", "few", "many", "other"])


QUOTING = """{
  "a": "{n, plural, one {'{x}' has # file in {y}} other {'{x}' has # files in {y}}}",
  "b": "the file of {name}",
  "c": "No. #1 {n, plural, one {# file} other {# files}}",
  "d": "{n, plural, one {a file}}"
}"""


def test_what_icu_quotes_is_copied():
    catalog = json.loads(translated("en.json", QUOTING, "de"))
    assert catalog["a"] == "{n, plural, one {'{x}' HAS # FILE IN {y}} other {'{x}' HAS # FILES IN {y}}}"


def test_an_apostrophe_does_not_quote_an_argument():
    catalog = json.loads(translated("en.json", QUOTING, "fr", lambda text: text.replace("of {", "de l'{")))
    assert catalog["b"] == "the file de l\u2019{name}"


def test_branches_that_are_not_read_are_named():
    notes = {(unit.location, unit.note) for unit in read("en.json", QUOTING, "de").units if unit.note}
    assert notes == {
        (
            "line 4",
            "{n, plural, ...} stays as it is: a # stands outside of the plural's branches; translate it by hand",
        ),
        ("line 5", "{n, plural, ...} stays as it is: the branch `other` is missing; translate it by hand"),
    }


def test_broken_branches_and_texts_of_branches_alone_stay():
    catalog = '{"a": "{n, plural, one {# file} other {# files}", "b": "{0,choice,0#no files|1#one file}"}'
    assert translated("en.json", catalog, "de") == catalog
    notes = {(unit.note or note_of_branches(unit.text)) for unit in read("en.json", catalog, "de").units}
    assert {note.partition(" ...} ")[0] for note in notes} == {"{n, plural,", "{0,choice,"}


@pytest.mark.parametrize(
    "lossy", [lambda text: "x", lambda text: text + " {{more}}", lambda text: text.replace("<0>", "")]
)
def test_a_text_whose_placeholders_are_lost_stays(lossy):
    catalog = json.loads(translated("de.json", I18NEXT, "en", lossy))
    assert catalog["gruss"] == json.loads(I18NEXT)["gruss"]
    assert (catalog["datei_one"], catalog["datei_other"]) == ("{{count}} Datei", "{{count}} Dateien")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            '\n{"a": "b",\n "n": [5, -1.5e3]}',
            "a.json, line 2: a catalog holds mostly texts, this file has 1 of them and 2 numbers and the like",
        ),
        (
            '{"a": true, "b": null}',
            "a.json, line 1: a catalog holds mostly texts, this file has 0 of them and 1 numbers",
        ),
        ('{"a": "b",\n"n": 05}', "a.json, line 2: a value is expected, such as a text in double quotes, got '05'"),
        (
            '{"a": "b",\n"n": trueish}',
            "a.json, line 2: a value is expected, such as a text in double quotes, got 'trueish'",
        ),
        ('["a b"]', "a.json, line 1: a catalog is one object, `{...}`"),
        ('{"a": "b"} x', "a.json, line 1: the file goes on after its object"),
        ('{\n/ one\n"a": "b"}', "a.json, line 2: a key in double quotes is expected"),
        ('{"a": "b"\n "c": "d"}', 'a.json, line 2: `,` is expected, got \'"c": "d"}\''),
        ('{"a": "b",\n"a": "c"}', "a.json, line 2: the key 'a' occurs twice"),
        ('{"a": "b\n"}', "a.json, line 1: Invalid control character at"),
        ('{"a": ' * 60, "a.json, line 1: nested more than 50 deep"),
        ("", "a.json, line 1: a value is expected"),
    ],
)
def test_what_is_not_a_catalog_is_refused_by_line(content, message):
    with pytest.raises(FormatError) as error:
        read("a.json", content, "en")
    assert str(error.value).startswith(message)


def test_flutter_reads_the_last_value_of_a_key():
    """Dart's `json.decode` takes the last one, as Python's `json` does; translators' tools write such files."""
    content = """{
  "hat": "a red hat",
  "@hat": {"description": "worn"},
  "hat": "a blue hat",
  "@hat": {},
  "hat": "a green hat",
  "man": "an old man"
}"""
    written = translated("en.arb", content, "de")
    assert json.loads(written) == {"hat": "A GREEN HAT", "@hat": {}, "man": "AN OLD MAN"}
    unchanged = {index for index, line in enumerate(content.splitlines(), start=1) if line in written.splitlines()}
    assert unchanged == {1, 2, 3, 4, 5, 8}
    notes = [(unit.location, unit.note) for unit in read("en.arb", content, "de").units if unit.note]
    again = "occurs again below; programs read its last value, so this one stays as it is"
    assert notes == [
        ("line 2", f"the key 'hat' {again}"),
        ("line 3", f"the key '@hat' {again}"),
        ("line 4", f"the key 'hat' {again}"),
    ]


def test_the_form_for_nothing_stays_in_languages_without_it():
    """Flutter takes `zero` for 0 in every language; pyarb 1.2.0 has such a message."""
    pyicumessageformat = pytest.importorskip("pyicumessageformat")
    message = "{who} {n, plural, offset:1 zero{liked it} one{and 1 other liked it} other{and # others liked it}}"
    catalog = json.loads(translated("en.arb", json.dumps({"likes": message}), "pt"))
    (plural,) = pyicumessageformat.Parser().parse(catalog["likes"])
    assert list(plural["options"]) == ["zero", "one", "many", "other"]
    assert plural["options"]["zero"] == [{"name": "who"}, " LIKED IT"]


def test_mediawiki_chooses_among_whole_sentences():
    def written(text):
        return json.loads(translated("en.json", json.dumps({"a": text}), "de"))["a"]

    assert written("There {{plural:$1|is one hat|0=are no hats|are $1 hats}} here") == (
        "{{plural:$1|THERE IS ONE HAT HERE|0=THERE ARE NO HATS HERE|THERE ARE $1 HATS HERE}}"
    )
    assert written("{{GENDER:$1|his|her}} hat of $2") == "{{GENDER:$1|HIS HAT OF $2|HER HAT OF $2}}"
    assert written("{{PLURAL:$1|a|$1}} in {{PLURAL:$2|b|$2}}") == (
        "{{PLURAL:$1|{{PLURAL:$2|A IN B|A IN $2}}|{{PLURAL:$2|$1 IN B|$1 IN $2}}}}"
    )
    too_many = "{{PLURAL:$1|a|b}}" * 4
    assert written(too_many) == too_many
    (unit,) = read("en.json", json.dumps({"a": too_many}), "de").units
    assert unit.note == "a message with more than 3 choices stays as it is; translate it by hand"


def test_comments_stay_and_menu_keys_are_marked_in_messages_of_browsers():
    source = """{ // one
 "a": {"message": "&Reload Tab"}, /* two
 */
//  "b": {"message": "Off"},
 "c": {"message": "Off"}}"""
    written = translated("messages.json", source, "pt", lambda text: {"Reload Tab": "Recarregar", "Off": "NÃO"}[text])
    expected = source.replace("&Reload Tab", "&Recarregar")
    assert written == expected.replace('"c": {"message": "Off', '"c": {"message": "NÃO')


def test_the_label_of_a_markdown_link_is_translated():
    source = '{"a": "Go to [the storage]({url}) or [mail](mailto:a@b.c).", "b": "[x] (y)"}'
    catalog = json.loads(translated("a.json", source, "de", lambda text: text.replace("the storage", "DEM LAGER")))
    assert catalog["a"] == "Go to [DEM LAGER]({url}) or [mail](mailto:a@b.c)."
