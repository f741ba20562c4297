"""Catalogs of Java, Apple, Android, .NET and Qt, each read by its own library or program after the translation."""

import io
import plistlib
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from capsule_mt.formats.qt import qt_rule
from capsule_mt.formats.reading import parse
from capsule_mt.formats.registry import format_of
from capsule_mt.formats.units import FormatError, Translated
from capsule_mt.text.languages import LANGUAGES
from tests.light.formats.files import ANDROID, PROPERTIES, QT, RESX, STRINGS, STRINGSDICT
from tests.light.formats.test_formats import shout


def read(name, content, language="en"):
    content = content if isinstance(content, bytes) else content.encode()
    return parse(content, format_of(name), name=name, language=language)


def texts(name, content):
    return [unit.text for unit in read(name, content).units]


def translated(name, content, language="en", translate=shout, needs_review=False):
    parsed = read(name, content, language)
    return parsed.write([Translated(translate(unit.text), needs_review) for unit in parsed.units])


# ---- Java
def test_properties():
    expected = ["Der alte Mann", "Hallo {1}, das ist's\nund noch eine Zeile", "Öffnen"]
    assert texts("de.properties", PROPERTIES) == expected
    written = translated("de.properties", PROPERTIES).decode()
    assert written.startswith(
        "# Kopf\n! bleibt\ntitel = DER ALTE MANN\ngruss: HALLO {0}, DAS IST''S\\nUND NOCH EINE ZEILE\n"
    )
    assert written.endswith("leer=\npfad   C\\:\\\\temp\noffen=&ÖFFNEN\n")
    properties = pytest.importorskip("translate.storage.properties")
    store = properties.javautf8file()
    store.parse(written.encode())
    assert [str(unit.source) for unit in store.units if unit.name in ("titel", "offen")] == [
        "DER ALTE MANN",
        "&ÖFFNEN",
    ]


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_the_encoding_of_properties_stays(encoding):
    content = "a = Der M\xe4rz\nb = Ein Hut".encode(encoding, "ignore" if encoding == "ascii" else "strict")
    written = translated("a.properties", content, translate=lambda text: "L'été \U0001f600 à\tmoi")
    code = "L'été \U0001f600 à\\tmoi" if encoding == "utf-8" else "L'\\u00E9t\\u00E9 \\uD83D\\uDE00 \\u00E0\\tmoi"
    assert written.decode(encoding) == f"a = {code}\nb = {code}"
    javaproperties = pytest.importorskip("javaproperties")
    stream = io.StringIO(written.decode(encoding))
    assert javaproperties.load(stream) == dict.fromkeys("ab", "L'été \U0001f600 à\tmoi")


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("a = The {0} here\n", "a = l''x {0}\n"),  # for MessageFormat
        ("a = Can''t be\n", "a = l''x\n"),
        ("a = Can't be\n", "a = l'x\n"),
        ("a = Can't open {0}\nb = The {0} here\n", "a = l'x {0}\nb = l'x {0}\n"),  # for another function
    ],
)
def test_an_apostrophe_is_double_where_java_reads_a_pattern(content, expected):
    written = translated("a.properties", content, translate=lambda text: "l'x {1}" if "{1}" in text else "l'x")
    assert written.decode() == expected


# ---- Apple
def test_strings():
    assert texts("de.strings", STRINGS) == ['Der "alte" Mann', "{1} hat {2} Hüte\nund {3}", "Ein Überblick"]
    written = translated("de.strings", STRINGS).decode()
    assert written == (
        '/* Der Titel; = "x" */\n"title" = "DER \\"ALTE\\" MANN";\n'
        '"count" = "%1$@ HAT %2$d HÜTE\\nUND %%"; // bleibt\n'
        'plain = "EIN ÜBERBLICK";\n"flag" = YES;\n'
    )
    openstep_plist = pytest.importorskip("openstep_plist")
    assert openstep_plist.loads("{" + written + "}") == {
        "title": 'DER "ALTE" MANN',
        "count": "%1$@ HAT %2$d HÜTE\nUND %%",
        "plain": "EIN ÜBERBLICK",
        "flag": "YES",
    }


def test_a_key_of_strings_without_a_value_is_its_own_value():
    content = '"Der \\"alte\\" Mann" ; // bleibt\n"%d Hüte";\nYES;\n'
    written = translated("a.strings", content).decode()
    assert written == ('"Der \\"alte\\" Mann" = "DER \\"ALTE\\" MANN" ; // bleibt\n"%d Hüte" = "%d HÜTE";\nYES;\n')
    openstep_plist = pytest.importorskip("openstep_plist")
    assert openstep_plist.loads("{" + content + "}")["%d Hüte"] == "%d Hüte"
    assert openstep_plist.loads("{" + written + "}")["%d Hüte"] == "%d HÜTE"


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be", "utf-8"])
def test_the_encoding_of_strings_stays(encoding):
    content = ("\ufeff" + STRINGS).encode(encoding)
    written = translated("a.strings", content)
    assert written[:4] == content[:4]
    assert '"DER \\"ALTE\\" MANN"' in written.decode(encoding)


@pytest.mark.parametrize(
    ("encoding", "written"),
    [("utf-16-be", "utf-16-be"), ("UTF-16LE", "utf-16-le"), ("UTF16", "utf-16"), ("cp1252", "utf-8")],
)
def test_strings_in_an_encoding_that_the_caller_names(encoding, written):
    without_mark = STRINGS.encode(encoding).removeprefix("\ufeff".encode(f"utf-16-{sys.byteorder[0]}e"))
    parsed = parse(without_mark, "strings", encoding=encoding)
    content = parsed.write([Translated(shout(unit.text)) for unit in parsed.units])
    assert '"DER \\"ALTE\\" MANN"' in content.decode(written)


@pytest.mark.parametrize(
    ("language", "forms"),
    [("en", ["one", "other"]), ("ru", ["one", "few", "many", "other"]), ("ja", ["other"])],
)
def test_stringsdict(language, forms):
    assert texts("de.stringsdict", STRINGSDICT)[:1] == ["Du hast {1} hier"]
    written = translated("de.stringsdict", STRINGSDICT, language)
    catalog = plistlib.loads(written)["files"]
    assert catalog["NSStringLocalizedFormatKey"] == "DU HAST %#@files@ HIER"
    assert list(catalog["files"])[2:] == forms
    assert catalog["files"]["other"] == "%d DATEIEN"
    assert catalog["files"]["one" if language == "en" else "other"] == {"en": "EINE DATEI"}.get(language, "%d DATEIEN")
    if language == "en":
        expected = STRINGSDICT.replace("Du hast", "DU HAST").replace("hier", "HIER")
        assert written.decode() == expected.replace("eine Datei", "EINE DATEI").replace("Dateien<", "DATEIEN<")


def test_stringsdict_without_a_general_form():
    """As VisualDiffer has it: "left" for 0 and "right" for 1."""
    content = re.sub(r"<key>other</key>\s*<string>.*?</string>", "", STRINGSDICT)
    forms = plistlib.loads(translated("a.stringsdict", content, "ru"))["files"]["files"]
    assert {name: forms[name] for name in list(forms)[2:]} == {"one": "EINE DATEI"}


@pytest.mark.parametrize("rule", ["NSStringVariableWidthRuleType", "NSStringDeviceSpecificRuleType"])
def test_stringsdict_with_variants(rule):
    content = plistlib.dumps({"hat": {rule: {"20": "Ein Hut", "50": "Ein roter Hut mit %d Federn"}}})
    variants = plistlib.loads(translated("a.stringsdict", content))["hat"][rule]
    assert variants == {"20": "EIN HUT", "50": "EIN ROTER HUT MIT %d FEDERN"}


# ---- Android
def test_android():
    assert texts("strings.xml", ANDROID) == [
        'Der <g1>alte</g1> Mann\'s "Hut"',
        "Hallo {1},\n%2$d Punkte & mehr",
        "Der <i>alte</i> Mann",
        "Ein Hut",
        "Erster Tag",
        "@home und Über",
        "1 Datei",
        "%d Dateien",
    ]
    written = translated("strings.xml", ANDROID).decode()
    for line in (
        '<string name="titel">DER <b>ALTE</b> MANN\\\'S \\"HUT\\"</string>',
        '<string name="gruss">HALLO <xliff:g id="name">%1$s</xliff:g>,\\n%2$d PUNKTE &amp; MEHR</string>',
        '<string name="html"><![CDATA[DER <i>ALTE</i> MANN]]></string>',
        "<item>\\@HOME UND ÜBER</item>",
        '<string name="quotes">\\u0020\\u0020EIN HUT\\u0020\\u0020</string>',
        '        <item quantity="one">%d DATEI</item>\n        <item quantity="other">%d DATEIEN</item>\n',
    ):
        assert line in written
    aresource = pytest.importorskip("translate.storage.aresource")
    store = aresource.AndroidResourceFile()
    store.settargetlanguage("ru")
    store.parse(translated("strings.xml", ANDROID, "ru"))
    values = {unit.getid(): unit.target for unit in store.units}
    assert values["gruss"].startswith("HALLO ")
    assert values["dateien"].strings == ["%d DATEI", "%d DATEIEN", "%d DATEIEN"]  # it does not read "other"
    assert '<item quantity="other">%d DATEIEN</item>' in translated("strings.xml", ANDROID, "ru").decode()


def test_android_joins_the_halves_of_a_character():
    content = '<resources><string name="a">Ein \\uD83D\\uDE00 Hut</string></resources>'
    assert texts("a.xml", content) == ["Ein \U0001f600 Hut"]
    assert "EIN \U0001f600 HUT" in translated("a.xml", content).decode()
    with pytest.raises(FormatError, match=r"^a\.xml: not android that can be read"):
        read("a.xml", content.replace("\\uDE00", ""))


def test_aapt_compiles_what_is_written(tmp_path):
    if shutil.which("aapt") is None:
        pytest.skip("aapt is not installed (apt install aapt)")
    (tmp_path / "res/values").mkdir(parents=True)
    (tmp_path / "AndroidManifest.xml").write_text('<manifest package="a.b"/>')
    tricky = """ ?l'été "quoted"  \\ @ \n done """
    content = translated("strings.xml", ANDROID, "ru", lambda text: shout(text) + tricky)
    (tmp_path / "res/values/strings.xml").write_bytes(content)
    command = ["aapt", "package", "-f", "-S", "res", "-M", "AndroidManifest.xml", "-F", "a.apk"]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stderr
    values = subprocess.run(
        ["aapt", "dump", "--values", "resources", "a.apk"], cwd=tmp_path, capture_output=True, text=True, timeout=60
    ).stdout
    assert '"Erster' not in values
    assert "ERSTER TAG" + tricky.rstrip().replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") in values


# ---- .NET
def test_resx():
    assert texts("de.resx", RESX) == ["Der alte Mann & {0:N2}", "Öffnen"]
    written = translated("de.resx", RESX, translate=lambda text: shout(text).replace("{0:N2}", "{0:N2}"))
    assert written.decode() == RESX.replace("Der alte Mann", "DER ALTE MANN").replace("Öffnen", "ÖFFNEN")
    resx = pytest.importorskip("translate.storage.resx")
    store = resx.RESXFile()
    store.parse(written)
    assert [unit.target for unit in store.units][:2] == ["DER ALTE MANN & {0:N2}", "&ÖFFNEN"]


# ---- Qt
def test_qt():
    assert texts("app.ts", QT) == ["Datei öffnen %1", "%n Datei(en) gelesen"]
    written = translated("app.ts", QT).decode()
    assert "<translation>&amp;DATEI ÖFFNEN %1</translation>" in written
    form = "            <numerusform>%n DATEI(EN) GELESEN</numerusform>\n"
    assert f"<translation>\n{form}{form}        </translation>" in written
    assert '<translation type="unfinished">Done?</translation>' in written
    assert '<TS version="2.1" sourcelanguage="de" language="en">' in written
    assert '<translation type="unfinished">&amp;DATEI' in translated("app.ts", QT, needs_review=True).decode()
    with pytest.raises(
        FormatError, match=r"^app.ts, line 3: the catalog is for de_AT, but the model translates into pt"
    ):
        read("app.ts", QT.replace("sourcelanguage", 'language="de_AT" sourcelanguage'), "pt")


def tool_of_qt(name):
    paths = (shutil.which(name), f"/usr/lib/qt6/bin/{name}")
    path = next((path for path in paths if path and Path(path).exists()), None)
    return path or pytest.skip(f"{name} is not installed (apt install qt6-l10n-tools)")


def test_lrelease_compiles_what_is_written(tmp_path):
    (tmp_path / "a.ts").write_bytes(translated("app.ts", QT, "pl"))
    command = [tool_of_qt("lrelease"), "a.ts", "-qm", "a.qm"]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert run.returncode == 0
    assert "Generated 3 translation(s) (2 finished and 1 unfinished)" in run.stdout + run.stderr
    assert "plural" not in run.stdout + run.stderr  # it warns of a wrong number of forms


def test_plural_forms_are_those_of_qt(tmp_path):
    tool = tool_of_qt("lconvert")
    for language in LANGUAGES:
        (tmp_path / "a.ts").write_text(QT.replace("sourcelanguage", f'language="{language}" sourcelanguage'))
        command = [tool, "-i", "a.ts", "-o", "a.po"]
        subprocess.run(command, cwd=tmp_path, capture_output=True, check=True, timeout=60)
        count = re.search(r"nplurals=(\d)", (tmp_path / "a.po").read_text())
        assert len(qt_rule(language).categories) == int(count[1]), language


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.properties", "a = b c\nd = \\u12x", "a.properties, line 2: `\\u` must have four hexadecimal digits"),
        ("a.properties", "a = b c \\uD800", "a.properties, line 1: an unpaired surrogate"),
        ("a.strings", '"a" = "b";\n"c" = "d"', "a.strings, line 2: `;` is expected, got ''"),
        ("a.strings", '"a" "b";', "a.strings, line 1: `;` is expected, got '\"b\";'"),
        ("a.strings", '"a" = \u201cb\u201d;', "a.strings, line 1: a value in double quotes is expected after `=`"),
        ("a.strings", '"a" = "\\351t";', "a.strings, line 1: write the character for \\351"),
        (
            "a.strings",
            b"bplist00\xd1\x01",
            "a.strings: is a binary property list, as in a built app: translate the file",
        ),
        ("a.xml", "<html><p>a</p></html>", "a.xml, line 1: an .xml must be resources of Android, with the root"),
        ("a.xml", '<!DOCTYPE r [<!ENTITY a "b">]><resources/>', "a.xml, line 1: a DOCTYPE is refused"),
        ("a.stringsdict", "<dict/>", "a.stringsdict: the root of a .stringsdict must be <plist>"),
        ("a.stringsdict", '<!DOCTYPE p [<!ENTITY a "b">]><plist/>', "a.stringsdict, line 1: a DOCTYPE is refused"),
        ("a.stringsdict", '<!DOCTYPE p SYSTEM "x"><plist>&a;</plist>', "a.stringsdict, line 1: a DOCTYPE is refused"),
        ("a.resx", "<a/>", "a.resx, line 1: the root of a .resx must be <root>, got <a>"),
        ("a.ts", "<a/>", "a.ts: the root of a .ts must be <TS>"),
        ("a.ts", "const a = 1;", "a.ts, line 1: not XML"),
        (
            "a.ts",
            QT.replace("<TS", '<TS language="tlh"'),
            "a.ts, line 12: the plural forms of tlh are not known: name",
        ),
    ],
)
def test_what_is_wrong_is_refused_by_line(name, content, message):
    with pytest.raises(FormatError) as error:
        read(name, content, None)
    assert str(error.value).startswith(message)


def test_apostrophes_beside_expressions_stay_single():
    source = b"max=less than ${inclusive == true ? 'or equal to ' : ''}{value}\n"
    parsed = parse(source, "properties", name="a.properties", language="de")
    written = parsed.write([Translated(unit.text.replace("less than", "unter")) for unit in parsed.units])
    assert written == source.replace(b"less than", b"unter")
