"""Files of each format: what is translated of them, and that the format's own library reads what is written."""

import io
import json
import re
import time
import zipfile
from functools import partial
from types import SimpleNamespace

import pytest

from capsule_mt.checks.results import Check
from capsule_mt.commands.files import OutputFormat
from capsule_mt.commands.translate import records_of
from capsule_mt.coverage.results import Coverage
from capsule_mt.files.encodings import likely_encoding
from capsule_mt.formats.markup import Markup
from capsule_mt.formats.reading import parse, translate_file
from capsule_mt.formats.registry import INDEX, format_named, format_of
from capsule_mt.formats.subtitles import cut
from capsule_mt.formats.units import FormatError, Translated
from capsule_mt.text.segments import MAX_UNKNOWN_SHARE
from capsule_mt.translate.pivot import PivotTranslator
from capsule_mt.translate.results import Translation
from tests.light.decoders import translator
from tests.light.formats.files import BODY, FILES, HTML, MARKDOWN, PO, SRT, VTT, XLIFF, content_of, docx

COLUMNS = {"tsv": "2", "csv": "text"}
KEPT_OR_WORD = re.compile(r"<[^>]*>|\{\d+\}|%\S+|[^\W\d_]+")


def shout(text):
    """A translation: every word in capitals, what is kept as it is."""
    return KEPT_OR_WORD.sub(lambda match: match[0].upper() if match[0].isalpha() else match[0], text)


def read(name, content=None, **options):
    format = format_of(name)
    options = {"column": COLUMNS.get(format), "language": "en"} | options
    return parse(content_of(name) if content is None else content, format, name=name, **options)


def translated(name, content=None, translate=shout, needs_review=False, **options):
    parsed = read(name, content, **options)
    return parsed.write([Translated(translate(unit.text), needs_review) for unit in parsed.units])


def texts(name, content=None, **options):
    return [unit.text for unit in read(name, content, **options).units]


@pytest.mark.parametrize("name", FILES)
def test_what_is_not_translated_stays_byte_for_byte(name):
    parsed = read(name, language="de")
    assert parsed.units
    written = parsed.write([Translated(None)] * len(parsed.units))
    if content_of(name).startswith(b"PK"):
        written, expected = parts_of(written), parts_of(content_of(name))
        if name == "book.epub":  # its language is that of the translation
            expected = {part: text.replace(">en<", ">de<") for part, text in expected.items()}
    else:
        expected = content_of(name).decode()
        written = written.decode()
    if name in ("page.md", "site.mdx"):  # lines of a paragraph are joined
        written, expected = written.split(), re.sub(r"\n> (?=über|goes)", " ", expected).split()
    assert written == expected


@pytest.mark.parametrize(
    "name", [name for name in FILES if not content_of(name).startswith(b"PK") and name[-3:] != ".po"]
)
def test_a_byte_order_mark_stays(name):
    parsed = read(name, b"\xef\xbb\xbf" + content_of(name))
    assert parsed.write([Translated(None)] * len(parsed.units)).startswith(b"\xef\xbb\xbf" + content_of(name)[:3])


def parts_of(content):
    archive = zipfile.ZipFile(io.BytesIO(content))
    return {part: archive.read(part).decode() for part in archive.namelist()}


def word(content):
    return parts_of(content)["word/document.xml"]


def test_html():
    assert texts("page.html") == [
        "Der Mann & das Meer",
        "Eine Geschichte.",
        "Willkommen",
        "Der <g1>alte</g1> Mann kauft einen <g2>roten\xa0Hut</g2>. Er schläft.",
        "Ein Hut",
        "Erster Punkt",
        "Zweiter Punkt",
        "Rufe {1} auf.",
        "Danach 3 < 4.",
        "Dein Name",
    ]
    assert texts("a.html", b"<p>&copy; <b>Hut<wbr><a/></b> alt</p>") == ["© <g1>Hut<g2/><g3/></g1> alt"]
    assert [unit.location for unit in read("page.html").units][:4] == ["line 3", "line 4", "line 8", "line 9"]
    html5lib = pytest.importorskip("html5lib")

    def shape(page):
        shapes = []
        for element in html5lib.parse(page, namespaceHTMLElements=False).iter():
            shapes.append(
                (element.tag, element.get("href"), element.text if element.tag in ("script", "pre") else None)
            )
        return shapes

    page = translated("page.html").decode()
    assert shape(page) == shape(HTML)
    paragraph = 'DER <b>ALTE</b> MANN KAUFT EINEN <a href="hut.html">ROTEN&nbsp;HUT</a>. ER SCHLÄFT.'
    for part in (paragraph, 'alt="EIN HUT"', "RUFE <code>ls -l</code> AUF.<br>DANACH 3 &lt; 4.", '<html lang="en">'):
        assert part in page


FORM = """<form title="Ein Formular">
<p>Der <a href="x" title='Zum "Hut"'>alte <img title="Ein Bild" alt="Ein Hut"></a> Mann.</p>
<input type="submit" value=Senden><input type="text" value="Bleibt" placeholder="Dein Name">
<button title="Klick" value="bleibt">Los</button>
<p>Text <textarea rows=2 placeholder="Dein Text">
Erste Zeile &amp; mehr

  zweite Zeile </textarea> davor</p>
<textarea translate="no" title="bleibt">bleibt</textarea>
<select><optgroup label="Eine Gruppe"><option value="bleibt" label="Ein Hut">Ein Hut</optgroup></select>
<div data-x=" title='bleibt'" translate=no title="bleibt">bleibt</div>
</form>"""


@pytest.mark.parametrize("start", ["</html", "<b", '<a href="x y'])
def test_an_unfinished_tag_at_the_end_of_a_page_is_not_text(start):
    page = f"<p>one two</p>\nthree{start}".encode()
    assert translated("a.html", page) == page.replace(b"one two", b"ONE TWO").replace(b"three", b"THREE")
    assert translated("a.html", f"<script>one{start}".encode()) == f"<script>one{start}".encode()


@pytest.mark.parametrize("meta", ["", '<meta charset="utf-8">'])
def test_browsers_read_the_encoding_of_a_page_that_does_not_state_one(meta):
    html5lib = pytest.importorskip("html5lib")
    page = f"<html><head>{meta}<title>Hut</title><body><p title=Hut>Hut &amp; Haus".encode()
    written = translated("a.html", page, lambda text: "ação &")
    body = html5lib.parse(written, namespaceHTMLElements=False)
    assert body.find("head/title").text == body.find("body/p").text == body.find("body/p").attrib["title"] == "ação &"
    assert ("ação".encode() in written) == (meta != "")
    assert translated("a.html", b"<p>Hut", lambda text: "ação") == "<p>ação".encode()


def test_html_attributes_and_forms():
    page = FORM.encode()
    assert texts("form.html", page) == [
        "Ein Formular",
        *("Der <g1>alte <g2/></g1> Mann.", 'Zum "Hut"', "Ein Bild", "Ein Hut"),
        *("Senden", "Dein Name", "Klick", "Los"),
        *("Text", "Dein Text", "Erste Zeile & mehr", "zweite Zeile", "davor"),
        *("Eine Gruppe", "Ein Hut", "Ein Hut"),
    ]
    untouched = read("form.html", page)
    assert untouched.write([Translated(None)] * len(untouched.units)) == page
    html = pytest.importorskip("lxml.html")
    original, after = (list(html.fromstring(text).iter()) for text in (FORM, translated("form.html", page).decode()))
    shown = {"title", "alt", "placeholder", "label"}
    for old, new in zip(original, after, strict=True):
        assert old.tag == new.tag
        is_button = old.get("type") == "submit"
        for name, value in old.attrib.items():
            is_shown = (name in shown or (name == "value" and is_button)) and value != "bleibt"
            assert new.get(name) == (value.upper() if is_shown else value)
    assert [element.text for element in after if element.tag == "textarea"] == [
        "\nERSTE ZEILE & MEHR\n\n  ZWEITE ZEILE ",
        "bleibt",
    ]


def test_an_attribute_of_a_sentence_that_failed_is_translated():
    page = b'<p>Ein <b title="Zum Hut">Hut</b>.'
    parsed = read("a.html", page)
    assert parsed.write([Translated(None), Translated("To the hat")]) == page.replace(b"Zum Hut", b"To the hat")
    assert parsed.write([Translated("A <g1>hat</g1>."), Translated(None)]) == b'<p>A <b title="Zum Hut">hat</b>.'


def test_a_sign_without_a_letter_is_no_part_of_the_text():
    page = b'one<sup><a href="#1">[1]</a></sup> two m<sup>2</sup> x<sup>th</sup><sup>*</sup>'
    assert texts("page.html", page) == ["one<g1/> two m<g2/> x<g3>th</g3><g4/>"]
    assert translated("page.html", page, str) == page


def test_srt_translates_a_sentence_of_several_cues_as_one_and_cuts_it_by_time():
    units = read("film.srt").units
    assert [(unit.location, unit.text) for unit in units] == [
        ("cues 1-2", "Der alte Mann, der gestern einen roten Hut gekauft hat, schläft heute sehr lange."),
        ("cue 3", "Wo ist dein Bruder?"),
        ("cue 3", "Er schläft."),
        ("cue 4", "Das Wetter ist gut."),
    ]
    srt = pytest.importorskip("srt")
    original, after = list(srt.parse(SRT)), list(srt.parse(translated("film.srt").decode()))
    assert [(cue.index, cue.start, cue.end) for cue in after] == [(cue.index, cue.start, cue.end) for cue in original]
    assert after[2].content == "- WO IST DEIN BRUDER?\n- ER SCHLÄFT."
    assert after[3].content == "{\\an8}<i>DAS WETTER IST GUT.</i>"
    assert translated("film.srt").endswith(b"\n")
    assert f"{after[0].content} {after[1].content}".split() == shout(units[0].text).split()
    assert max(len(line) for cue in after for line in cue.content.split("\n")) <= 43


# cues without blank lines between them, and with blank lines in them
CUES = [("Der Mann kauft", "1984"), ("einen Hut.",), ("Er schläft.",), ("Wo?",)]


@pytest.mark.parametrize(("gap", "inner", "has_numbers"), [("", "\n", True), ("\n", "\n\n", True), ("", "\n", False)])
def test_srt_with_blank_lines_missing_or_too_many(gap, inner, has_numbers):
    content = ""
    for number, lines in enumerate(CUES, start=1):
        name = f"{number}\n" if has_numbers else ""
        content += f"{name}00:00:0{number},000 --> 00:00:0{number},900\n{inner.join(lines)}\n{gap}"
    parsed = read("film.srt", content.encode())
    assert [(unit.location, unit.text) for unit in parsed.units] == [
        ("cues 1-2", "Der Mann kauft 1984 einen Hut."),
        ("cue 3", "Er schläft."),
        ("cue 4", "Wo?"),
    ]
    assert parsed.write([Translated(None)] * 3) == content.encode()
    written = translated("film.srt", content.encode()).decode()
    assert re.findall(r".* --> .*", written) == re.findall(r".* --> .*", content)
    if has_numbers:  # without, the library takes 1984 for one
        srt = pytest.importorskip("srt")
        original, after = list(srt.parse(content)), list(srt.parse(written))
        assert [(cue.index, cue.start, cue.end) for cue in after] == [
            (cue.index, cue.start, cue.end) for cue in original
        ]
        assert " ".join(cue.content for cue in after).split() == shout(" ".join(map(" ".join, CUES))).split()


def test_vtt_without_blank_lines():
    content = "WEBVTT\nKind: captions\n00:01.000 --> 00:02.000\nDer Mann.\n00:02.000 --> 00:03.000\nEin Hut.\n"
    assert texts("film.vtt", content.encode()) == ["Der Mann.", "Ein Hut."]
    written = translated("film.vtt", content.encode()).decode()
    assert written == content.replace("Der Mann", "DER MANN").replace("Ein Hut", "EIN HUT")
    webvtt = pytest.importorskip("webvtt")
    assert [cue.text for cue in webvtt.from_string(written)] == ["DER MANN.", "EIN HUT."]


def test_sounds_speakers_and_titles_are_no_parts_of_a_sentence():
    lines = [
        "[DOOR SLAMS]",
        "MARTHA: Who is",
        "there now?",
        "{\\an8}12 YEARS LATER",
        "The house on",
        "the HILL",
        "NASA built",
        "(laughs)",
        "is empty",
        "\u266a Sailing home \u266a",
        "Anna:",
        "Come in",
        "Mr. Collins: No",
    ]
    content = "\n".join(f"{n}\n00:00:{n:02},000 --> 00:00:{n:02},900\n{line}\n" for n, line in enumerate(lines))
    numbers = [unit.location.split()[1] for unit in read("film.srt", content.encode()).units]
    assert numbers == ["1", "2-3", "4", "5-7", "8", "9", "10", "11", "12", "13"]


def test_a_sentence_is_cut_in_proportion_to_times_at_clauses():
    assert cut("one two three four five six", [2, 1]) == ["one two three four", "five six"]
    assert cut("one two, three four five", [1, 1]) == ["one two,", "three four five"]
    assert cut("one two", [1, 1, 1]) == ["one", "two", ""]
    assert cut("a <i>b c d</i> e f", [1, 1]) == ["a <i>b c", "d</i> e f"]
    assert cut("<v Roger Bingham>one two three <i>four,</i> five six seven", [1, 1])[1] == "five six seven"


def test_vtt():
    webvtt = pytest.importorskip("webvtt")
    written = translated("film.vtt").decode()
    cues = webvtt.from_string(written)
    assert [(cue.start, cue.end, cue.voice) for cue in cues] == [
        (cue.start, cue.end, cue.voice) for cue in webvtt.from_string(VTT)
    ]
    assert cues[0].identifier == "intro"
    assert " ".join(cue.text for cue in cues) == "DER ALTE MANN KAUFT EINEN ROTEN &amp; GROSSEN HUT."
    for part in ("NOTE Der Kommentar bleibt", "::cue { color: white }", "align:start"):
        assert part in written


def test_tags_that_a_cut_divides_are_closed_and_opened_again():
    content = SRT[: SRT.index("3\n")].replace("hat,", "<i>hat,").replace("schläft", "schläft</i>").encode()
    written = translated("film.srt", content, lambda text: "one <g1>two three four five six</g1> seven").decode()
    assert written.count("<i>") == written.count("</i>") == 2


def test_lines_in_the_same_tags_are_in_one_pair_of_them():
    content = b"1\n00:00:01,000 --> 00:00:02,000\n<i>one</i>\n<i>two</i>\n"
    assert translated("film.srt", content) == content.upper().replace(b"I>", b"i>").replace(b"</i>\n<i>", b"\n")


def test_a_line_is_as_long_as_what_is_seen_of_it():
    content = f"WEBVTT\n\n00:01.000 --> 00:02.000\n{'&lt;' * 20}a b\n".encode()
    assert translated("film.vtt", content) == content.replace(b"a b", b"A B")


def test_po():
    polib = pytest.importorskip("polib")
    catalog = polib.pofile(translated("messages.po").decode())
    by_id = {entry.msgid: entry for entry in catalog}
    plural = by_id['%d Datei ist "weg".\n']
    assert plural.msgstr_plural == {0: '%d DATEI IST "WEG".\n', 1: '%d DATEIEN SIND "WEG".\n'}
    assert plural.flags == ["c-format"]
    guess = by_id["Der Benutzer %(name)s schläft."]
    assert (guess.msgstr, guess.flags) == ("Old guess", ["fuzzy", "python-format"])
    assert by_id["Eine lange Zeile, die geteilt ist."].msgctxt == "Menü"
    assert by_id["Eine lange Zeile, die geteilt ist."].msgstr == "EINE LANGE ZEILE, DIE GETEILT IST."
    assert by_id["Fertig"].msgstr == "Done"
    assert [entry.msgid for entry in catalog.obsolete_entries()] == ["Alt"]
    assert catalog.metadata["Language"] == "en"


@pytest.mark.parametrize(
    ("source", "model_input", "translation", "written"),
    [
        ("_Open...", "Open...", "Abrir...", "_Abrir..."),
        ("Save _As", "Save As", "Salvar como", "S_alvar como"),
        ("E&xit", "Exit", "Sair", "&Sair"),
        ("&Help", "Help", "Ajuda (Help)", "Ajuda (&Help)"),
        ("R&D costs &amp; snake_case", "R&D costs &amp; snake_case", "Custos", "Custos"),
        ("_One _Two", "_One _Two", "Um", "Um"),
        ("Match #&2", "Match #2", "Jogo #2", "Jogo #&2"),
        ("Errors (2>&1)", "Errors (2>&1)", "Erros (2>&1)", "Erros (2>&1)"),
        ("C_onnect", "Connect", "Ligar", "_Ligar"),
        ("C_onnect to host", "Connect to host", "Ligar ao host", "Ligar a_o host"),
        ("The page a?b=1&c=2", "The page a?b=1&c=2", "A página a?b=1&c=2", "A página a?b=1&c=2"),
        ("Max_size of user_id", "Max_size of user_id", "Tamanho", "Tamanho"),
        ("&Save {size}", "Save {size}", "{size} guardar", "{size} &guardar"),
    ],
)
def test_the_key_of_a_menu_is_marked_in_its_translation(source, model_input, translation, written):
    catalog = f'msgid "{source}"\nmsgstr ""\n'.encode()
    assert texts("a.po", catalog) == [model_input]
    assert f'msgstr "{written}"' in translated("a.po", catalog, lambda text: translation).decode()


def test_po_marks_what_needs_a_review_as_fuzzy():
    polib = pytest.importorskip("polib")
    reviewed = polib.pofile(translated("messages.po", needs_review=True).decode())
    assert [entry.fuzzy for entry in reviewed if not entry.obsolete] == [True, True, True, False]


@pytest.mark.parametrize(
    ("language", "forms"),
    [("ja", ["DATEIEN"]), ("ru", ["DATEI", "DATEIEN", "DATEIEN"]), ("en_GB", ["DATEI", "DATEIEN"])],
)
def test_po_has_as_many_plurals_as_the_language(language, forms):
    polib = pytest.importorskip("polib")
    catalog = PO.replace("nplurals=2; plural=(n != 1);", "nplurals=INTEGER; plural=EXPRESSION;").encode()
    parsed = polib.pofile(translated("messages.po", catalog, language=language).decode())
    assert [text.split()[1] for text in parsed[0].msgstr_plural.values()] == forms
    assert parsed.metadata["Plural-Forms"].startswith(f"nplurals={len(forms)};")


@pytest.mark.parametrize(("language", "first"), [("ru", "%d FILES"), ("pl", "A FILE"), ("en", "A FILE")])
def test_a_plural_form_of_many_numbers_has_the_number(language, first):
    entry = 'msgid "a file"\nmsgid_plural "%d files"\nmsgstr[0] ""\nmsgstr[1] ""\n'
    catalog = 'msgid ""\nmsgstr "Plural-Forms: nplurals=INTEGER; plural=EXPRESSION;\\n"\n\n' + entry
    assert f'msgstr[0] "{first}"' in translated("a.po", catalog.encode(), language=language).decode()


def test_xliff():
    assert texts("file.xliff") == ["Der <g1>alte</g1> Mann kauft {2} & einen Hut.", "Er schläft."]
    xliff = pytest.importorskip("translate.storage.xliff")
    parsed = xliff.xlifffile.parsestring(translated("file.xliff"))
    assert [str(unit.target) for unit in parsed.units] == [
        "DER ALTE MANN KAUFT & EINEN HUT.",
        "ER SCHLÄFT.",
        "Done",
        "None",
    ]
    written = translated("file.xliff").decode()
    assert (
        '<target state="translated">DER <g id="1">ALTE</g> MANN KAUFT <x id="INTERPOLATION"/> &amp; EINEN' in written
    )
    assert 'target-language="en"' in written
    assert 'state="needs-review-translation"' in translated("file.xliff", needs_review=True).decode()

    protected = XLIFF.replace("Er schläft.", 'Er <mrk mtype="protected">schläft</mrk>.').encode()
    written = translated("a.xlf", protected).decode()
    assert '<target state="translated">ER <mrk mtype="protected">schläft</mrk>.</target>' in written


def test_xliff_2():
    pytest.importorskip("translate.storage.xliff")
    written = translated("two.xlf").decode()
    assert 'trgLang="en"' in written
    assert '<segment state="translated">' in written
    assert '</source><target>DER <pc id="1">ALTE</pc> MANN.</target></segment>' in written


def test_markdown():
    markdown_it = pytest.importorskip("markdown_it")
    parser = markdown_it.MarkdownIt("gfm-like", {"linkify": False})

    def shape(page):
        """The blocks and the marks in them, with what is no text."""
        shapes = []
        for token in parser.parse(page):
            children = token.children or []
            verbatim = [child.content for child in children if child.type in ("code_inline", "html_inline")]
            links = [child.attrs.get("href", child.attrs.get("src")) for child in children if child.attrs]
            marks = [child.type for child in children if child.type not in ("text", "softbreak")]
            body = token.content if token.type in ("fence", "code_block") else ""
            shapes.append((token.type, token.tag, body, verbatim, links, marks))
        return shapes

    notes = "See.[^1]\n\n[^1]: one <b>two</b>.\n[^2]: three\nfour.\n"
    assert translated("page.md", notes.encode()) == b"SEE.[^1]\n\n[^1]: ONE <b>TWO</b>.\n[^2]: THREE FOUR.\n"
    for page in (
        """[one](<a b> 'T "x"') [two]( <> (T)) [three][] [four](\na\n"T")\n\n[three]: x\n""",
        "| one \\| two | `x\\|y` |\n|---|---|\n| three \\| | |\n",
        "one*two*three **four**five\n",
    ):
        assert shape(translated("page.md", page.encode()).decode()) == shape(page)
    assert translated("page.md", b"one $x^2$ costs $5 or $6 and $a b$.\n") == b"ONE $x^2$ COSTS $5 OR $6 AND $a b$.\n"
    written = translated("page.md").decode()
    assert shape(written) == shape(MARKDOWN)
    assert 'DER **ALTE** MANN KAUFT EINEN [ROTEN HUT](https://example.org/a_(b) "T"). RUFE `ls -l` AUF' in written
    assert "| NAME | WERT |" in written
    assert "> EIN ZITAT ÜBER ZWEI ZEILEN." in written
    assert "![EIN ROTER HUT](hut.png) UND <https://example.org>. DAS IST 5\\* GUT." in written


def test_docx():
    assert texts("report.docx") == [
        "Der <g1>alte<g2/><g3/></g1> Mann kauft <g4><g5>einen Hut</g5></g4>.",
        "Er schläft & träumt.",
        "Seite <g1>1</g1>",
        "Das Wetter",
        "<g1/>Neben dem Kasten",
        "Im Kasten",
    ]
    python_docx = pytest.importorskip("docx")
    document = python_docx.Document(io.BytesIO(translated("report.docx")))
    first = document.paragraphs[0]
    assert first.text == "DER ALTE MANN KAUFT EINEN HUT.\nER SCHLÄFT & TRÄUMT."
    assert [(run.text, run.bold) for run in first.runs][:3] == [("DER ", None), ("ALTE", True), (" MANN KAUFT ", None)]
    assert [(run.text, run.italic) for run in first.hyperlinks[0].runs] == [("EINEN HUT", True)]
    assert document.tables[0].cell(0, 0).text == "DAS WETTER"
    assert "IM KASTEN" in word(translated("report.docx"))
    assert "PAGE" in document.paragraphs[1]._p.xml


def test_tables():
    written = translated("table.tsv").decode()
    assert written == "id\tTEXT\tn\r\n1\tER SCHLÄFT.\t3\r\n2\tDER ALTE MANN.\t4\r\n"
    odd = "a\u2028b\tc\n".encode()
    assert translated("table.tsv", odd, lambda text: "1\t2\n3") == "a\u2028b\t1 2 3\n".encode()
    assert translated("table.csv").decode() == 'id;text\n1;"ER SAGT: ""GUT""; JA."\n'


@pytest.mark.parametrize("delimiter", [";", "\t", "#"])
def test_the_first_line_in_which_excel_names_the_delimiter(delimiter):
    content = f"sep={delimiter}\r\nid{delimiter}text\r\n1{delimiter}ja, ja, ja, ja\r\n"
    assert translated("table.csv", content.encode()) == content.replace("ja, ja, ja, ja", "JA, JA, JA, JA").encode()
    file = parse(content.encode(), "csv", column="2")
    assert [unit.location for unit in file.units] == ["row 2", "row 3"]  # as Excel and editors count
    assert parse(f"sep={delimiter}".encode(), "csv", column="2").write([]) == f"sep={delimiter}".encode()


def test_an_empty_table_stays_empty():
    for content in (b"", b"\n", b"sep=;\n"):
        assert parse(content, "csv", column="2").write([]) == content


def test_a_table_whose_cells_are_all_quoted_stays_so():
    content = b'"id","text"\r\n"1","Er schl\xc3\xa4ft."\r\n'
    assert translated("table.csv", content).decode() == '"id","text"\r\n"1","ER SCHLÄFT."\r\n'
    unended = content.removesuffix(b"\r\n")  # its last row has no end either
    assert translated("table.csv", unended).decode() == '"id","text"\r\n"1","ER SCHLÄFT."'


def test_markup_that_a_translation_lost_or_crossed_is_put_behind_it():
    markup = Markup()
    markup.open("<b>")
    markup.add_text("old <g7> ")
    markup.close("</b>")
    markup.add_fixed("<code>x</code>")
    assert markup.text == "<g1>old {2} </g1>{3}"
    assert markup.filled("{3} <g1>{2}</g1>") == "<code>x</code> <b><g7></b>"
    for broken in ("{3} alt {2}", "</g1>{3} alt {2}<g1>"):
        assert markup.filled(broken) == " alt <b><g7></b><code>x</code>".replace(" alt ", MARKS.sub("", broken))


MARKS = re.compile(r"</?g\d>|\{\d\}")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.xliff", b'<!DOCTYPE x [<!ENTITY a "aaaa">]><xliff>&a;</xliff>', "a.xliff, line 1: a DOCTYPE is refused"),
        ("a.xliff", b"<xliff><file>", "a.xliff, line 1: not XML (no element found)"),
        ("a.xliff", b"<html/>", "a.xliff: the root of an XLIFF file must be <xliff>"),
        ("a.xliff", b"<xliff>" + b"<a>" * 9999, "elements are nested more than 200 deep"),
        (
            "a.docx",
            docx(head='<!DOCTYPE a [<!ENTITY b "c">]>'),
            "a.docx, word/document.xml, line 1: a DOCTYPE is refused",
        ),
        (
            "a.html",
            b"%PDF-1.7\n",
            "a.html: is a PDF, not text: convert it by `pdftotext FILE.pdf FILE.txt`, or save it as",
        ),
        ("a.md", b"a\0b", "a.md: is not text in UTF-8, since it has NUL bytes"),
        ("a.docx", b"PK", "a.docx: not a Word document, or a damaged one (File is not a zip file)"),
        ("a.po", b'msgid "a"\nfoo\n', "a.po, line 2: a catalog has"),
        ("a.srt", b"Hallo\n", "a.srt: no line has times"),
        ("a.tsv", b"a\tb\nc\n", "a.tsv, row 2: column 2 (`--column`) is missing, the row has 1"),
        ("a.csv", b"a;b\n", "a.csv: `--column` takes a number from 1 or one of a, b; got 'text'"),
        ("a.csv", b"", "a.csv: has no row of names; name the column by its number from 1, not by `--column text`"),
        ("a.csv", f"{'a' * 300};b\n".encode(), f"takes a number from 1 or one of {'a' * 197}...; got 'text'"),
        (
            "a.md",
            "Er schläft.".encode("cp1252"),
            "a.md, line 1: not UTF-8 (invalid continuation byte at byte 7); it looks",
        ),
    ],
)
def test_errors_name_the_file_the_place_and_what_is_taken(name, content, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        read(name, content)


def test_a_document_that_unpacks_to_too_much_is_refused_before_it_is_unpacked(monkeypatch):
    monkeypatch.setattr("capsule_mt.formats.archive.MAX_BYTES", 10_000)
    started = time.process_time()
    with pytest.raises(ValueError, match="at most 10000 are read"):
        read("a.docx", docx(BODY + "<w:p/>" * 1_000_000))
    assert time.process_time() - started < 5


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        ("Der Bär frißt süße Äpfel, und größere Hüte gefallen ihm.", "cp1252"),
        ("Старый человек вчера купил красную шляпу.", "cp1251"),
        ("昨日、おじいさんは赤い帽子を買いました。", "shift_jis"),
        ("老人昨天买了一顶红色的帽子。", "gb18030"),
        ("Er schläft.", "utf-16"),
        ("Er schläft.", "utf-16-le"),
    ],
)
def test_the_encoding_that_a_file_looks_like(text, encoding):
    assert likely_encoding(text.encode(encoding)) == encoding


def test_what_is_no_format_and_what_a_format_needs():
    for format, options, message in (
        ("pdf", {}, "`format` must be one of html, srt"),
        ("csv", {}, "a table needs the column to translate"),
        ("po", {"column": "2"}, r"`column` is for tables \(tsv, csv\), this is po"),
    ):
        with pytest.raises(ValueError, match=message):
            parse(b"", format, **options)


@pytest.mark.parametrize(
    ("format", "content", "mark"),
    [
        ("po", b'msgid "Hello %s"\nmsgstr ""\n', b"#, fuzzy"),
        (
            "xliff",
            b'<xliff version="1.2"><file source-language="en" target-language="de" datatype="x" original="x"><body>'
            b'<trans-unit id="1"><source>Hello %s</source></trans-unit></body></file></xliff>',
            b'state="needs-review-translation"',
        ),
        ("json", b'{"greeting": "Hello %s"}', b"Hello %s"),  # it cannot flag the entry, and keeps its text
    ],
)
def test_an_entry_that_lost_a_placeholder_needs_review(format, content, mark, caplog):
    complete = translate_file(content, format, lambda texts, keep: [SimpleNamespace(text="Hallo %s") for _ in texts])
    assert caplog.messages == []
    lossy = translate_file(content, format, lambda texts, keep: [SimpleNamespace(text="Hallo") for _ in texts])
    (message,) = caplog.messages
    assert message.startswith("the file, ")
    assert "placeholders of the translation differ" in message
    assert mark in lossy
    assert mark not in complete


XLIFF_PLURAL = (
    b'<xliff version="1.2"><file source-language="en" target-language="de" datatype="x" original="x"><body>'
    b'<trans-unit id="1"><source>{n, plural, one {# file} other {# files}}</source></trans-unit></body></file></xliff>'
)


@pytest.mark.parametrize(
    ("format", "content", "written"),
    [
        ("po", b'msgid "%d file"\nmsgid_plural "%d files"\nmsgstr[0] ""\nmsgstr[1] ""\n', '#, fuzzy\nmsgid "%d file"'),
        (
            "qt",
            b'<TS language="de"><context><name>a</name><message numerus="yes"><source>%n file(s)</source>'
            b'<translation type="unfinished"></translation></message></context></TS>',
            '"unfinished"><numerusform>%n Dateien</numerusform><numerusform>%n Dateien</numerusform>',
        ),
        (
            "xliff",
            XLIFF_PLURAL,
            '<target state="needs-review-translation">{n, plural, one {# Dateien} other {# Dateien}}',
        ),
        ("json", b'{"a": "{n, plural, one {# file} other {# files}}"}', "one {# Dateien} other {# Dateien}"),
        ("json", b'{"a_one": "{{count}} file", "a_other": "{{count}} files"}', '"a_one": "{{count}} Dateien"'),
    ],
)
def test_a_plural_form_that_another_one_replaces_is_named(format, content, written, caplog):
    """Its own translation, which a report has, lost the number: the file has the other form's, for review."""

    def translate(texts, keep):
        german = {"1 file": "eine Datei"}
        return [SimpleNamespace(text=german.get(text, text.replace("files", "Dateien"))) for text in texts]

    assert written in translate_file(content, format, translate, language="de").decode()
    (message,) = caplog.messages
    assert message.endswith(": Not in the file: a plural form must have its number 1 once.")
    caplog.clear()
    translate_file(content, format, lambda texts, keep: [SimpleNamespace(text=text) for text in texts], language="de")
    assert caplog.messages == []


CATALOG = b'msgid "Hello there, 3 people"\nmsgstr ""\n'
CHECKED = Coverage(1.0, (), (), (), checks=(Check("numbers", "3", ""),))


@pytest.mark.parametrize(
    ("facts", "is_flagged"),
    [
        ({}, False),
        ({"unknown": MAX_UNKNOWN_SHARE}, False),
        ({"unknown": MAX_UNKNOWN_SHARE + 0.01}, True),
        ({"coverage": Coverage(1.0, (), (), ())}, False),
        ({"coverage": CHECKED}, True),
    ],
)
def test_what_the_command_flags_is_flagged(facts, is_flagged):
    translation = Translation(**{"text": "Hallo", "score": -1.0, "coverage": None, "segments": ()} | facts)
    written = translate_file(CATALOG, "po", lambda texts, keep: [translation])
    assert (b"#, fuzzy" in written) is is_flagged
    line = OutputFormat(labels=["line 1"]).columns(0, "Hello there, 3 people", records_of([translation]))[0][0]
    assert bool(json.loads(line)[1]) is is_flagged


def test_an_option_of_a_translator_is_sent_to_a_partial():
    message = r"`translate_file` does not have an option `num_beams`.*`translate_file\(content, 'po', partial\("
    with pytest.raises(TypeError, match=message):
        translate_file(CATALOG, "po", translator(), num_beams=4)
    with pytest.raises(ValueError, match="`num_return_sequences` must be 1"):
        translate_file(CATALOG, "po", partial(translator(), num_beams=2, num_return_sequences=2))


def named(folder, **languages):
    """Return a translator that knows its languages by the name of its folder, or by `languages`."""
    translate = translator()
    translate.loaded = translate.loaded._replace(name=folder)
    translate.languages = (languages.get("src_lang"), languages.get("tgt_lang"))
    return translate


TRANSLATORS = {
    "folder": lambda: named("models/en-ru"),
    "tgt_lang": lambda: named("m2m100", src_lang="en", tgt_lang="ru"),
    "pivot": lambda: PivotTranslator(named("de-en"), named("en-ru")),
    "options": lambda: partial(named("models/en-ru"), num_beams=2),
    "option": lambda: partial(named("m2m100"), tgt_lang="ru"),
}


@pytest.mark.parametrize("kind", TRANSLATORS)
def test_a_file_gets_the_language_of_its_translator(kind, caplog):
    translate = TRANSLATORS[kind]()
    page = b'<html lang="en"><p>one two'
    assert translate_file(page, "html", translate) == b'<html lang="ru"><p>one two'
    assert translate_file(page, "html", translate, language="fr") == b'<html lang="fr"><p>one two'
    with pytest.raises(FormatError, match="the file is for translations into de, but the model translates into ru"):
        translate_file(XLIFF.replace("datatype", 'target-language="de" datatype').encode(), "xliff", translate)
    catalog = b'msgid ""\nmsgstr "Language: %s\\n"\n\nmsgid "one file"\nmsgid_plural "files"\nmsgstr[0] ""\n'
    assert b"nplurals=3" in translate_file(catalog % b"ru", "po", translate)
    assert caplog.text == ""
    assert b"Language: ru" in translate_file(catalog % b"fr", "po", translate, name="fr.po")
    assert "fr.po, line 4: the header's `Language: fr` becomes `Language: ru`" in caplog.text


@pytest.mark.parametrize(
    ("language", "of_page", "of_catalog"),
    [
        ("deu_Latn", "de", "de"),
        ("zho_Hant", "zh-Hant", "zh_Hant"),
        ("ace_Arab", "ace-Arab", "ace_Arab"),
        ("lij_Latn", "lij", "lij"),
        ("pt_BR", "pt-BR", "pt_BR"),
    ],
)
def test_a_file_states_a_language_as_its_format_does(language, of_page, of_catalog):
    page, catalog = b'<html lang="en"><p>one two', b'{"@@locale": "en", "title": "one two"}'
    written = translate_file(page, "html", translator(), language=language)
    assert written == f'<html lang="{of_page}"><p>one two'.encode()
    written = translate_file(catalog, "arb", translator(), language=language)
    assert json.loads(written)["@@locale"] == of_catalog


def test_a_file_keeps_what_its_format_and_the_options_keep():
    calls = []

    def translate(texts, keep):
        calls.append(list(keep))
        return [SimpleNamespace(text=text) for text in texts]

    translate_file(b"<p>one two", "html", partial(translate, keep=["numbers"]))
    translate_file(b"one two", "text", partial(translate, keep=["numbers"]))
    translate_file(b"<p>one two", "html", translate)
    with pytest.raises(ValueError, match="`keep` takes a list of"):
        translate_file(b"<p>one two", "html", partial(translator(), keep="numbers"))
    assert calls == [["tags", "placeholders", "numbers"], ["numbers"], ["tags", "placeholders"]]


def test_a_translator_without_a_language_leaves_that_of_a_file():
    assert translate_file(b'<html lang="en"><p>one two', "html", translator()) == b'<html lang="en"><p>one two'


@pytest.mark.parametrize("format", [name for name in INDEX if format_named(name).needs_line_feeds])
def test_lines_that_end_with_cr_alone_are_refused(format):
    with pytest.raises(FormatError, match=f"a.{format}: its lines end with CR alone"):
        parse(b"one=1\rtwo=2\r", format, name=f"a.{format}", column="1" if format in ("csv", "tsv") else None)


def test_the_delimiter_of_a_csv_is_counted_outside_quotes() -> None:
    for row, cell in (('"a, b, c";n', "a, b, c"), ('"a,\nb, c";n', "a,\nb, c"), ('5" disk;n', '5" disk')):
        assert [unit.text for unit in parse(f"{row}\n".encode(), "csv", column="1").units] == [cell]
