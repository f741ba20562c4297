"""Zip files of XML: presentations, OpenDocument, books; blanks of forms and descriptions of pictures in them."""

import io
import warnings
import zipfile

import pytest

from capsule_mt.formats.reading import parse
from capsule_mt.formats.registry import format_of
from capsule_mt.formats.units import FormatError, Translated
from tests.light.formats.files import BODY, BOOK, MANIFEST, PRESENTATION, SLIDE, TEXT, docx, zipped
from tests.light.formats.test_formats import parts_of, read, texts, translated, word

KINDS = {"slides.pptx": PRESENTATION, "text.odt": TEXT, "book.epub": BOOK}
MAIN_PARTS = {"slides.pptx": "ppt/presentation.xml", "text.odt": "content.xml", "book.epub": "META-INF/container.xml"}
TEXT_PARTS = {"slides.pptx": "ppt/slides/slide1.xml", "text.odt": "content.xml", "book.epub": "book/toc.ncx"}


def test_pptx():
    assert [(unit.location, unit.text) for unit in read("slides.pptx").units] == [
        ("slide 1, paragraph 1", "Der <g1>alte</g1> Mann"),
        ("slide 1, paragraph 1", "kauft & schläft."),
        ("slide 1, paragraph 2", "Seite <g1/>"),
    ]
    pptx = pytest.importorskip("pptx")
    slide = pptx.Presentation(io.BytesIO(translated("slides.pptx"))).slides[0]
    first, second = slide.shapes[0].text_frame.paragraphs
    assert first.text == "DER ALTE MANN\vKAUFT & SCHLÄFT."
    assert [(run.text, run.font.bold) for run in first.runs][:3] == [("DER ", None), ("ALTE", True), (" MANN", None)]
    assert (first.alignment, first._p[-1].tag.rpartition("}")[2]) == (pptx.enum.text.PP_ALIGN.CENTER, "endParaRPr")
    assert second.text == "SEITE 1"


def test_slides_are_in_the_order_of_their_numbers():
    parts = {f"ppt/slides/slide{number}.xml": SLIDE.replace("Seite", f"Folie {number} x") for number in (10, 2)}
    notes = {"ppt/notesSlides/notesSlide2.xml": SLIDE.replace("Seite", "Notiz")}
    units = read("slides.pptx", zipped({**PRESENTATION, **parts, **notes})).units
    assert [unit.location for unit in units][::3] == [
        *("slide 1, paragraph 1", "slide 2, paragraph 1", "slide 10, paragraph 1", "notes 2, paragraph 1")
    ]


def test_odt():
    assert [(unit.location, unit.text) for unit in read("text.odt").units] == [
        ("paragraph 1", "Der Hut"),
        ("paragraph 2", "Der <g1>alte</g1> Mann kauft einen <g2>Hut</g2>.<g3/>"),
        ("paragraph 2", "Er schläft & träumt."),
        ("paragraph 3", "Eine Note."),
        ("paragraph 4", "Name: {1} Seite {2}"),
        ("paragraph 5", "Das Wetter"),
        ("header or footer paragraph 1", "Kopf der Seite"),
    ]
    opendocument = pytest.importorskip("odf.opendocument")
    from odf import office, teletype, text

    document = opendocument.load(io.BytesIO(translated("text.odt")))
    paragraphs = document.getElementsByType(text.P)
    shown = [teletype.extractText(paragraph) for paragraph in paragraphs]
    assert "DER ALTE MANN KAUFT EINEN HUT.1" in shown[1].split("\n")[0]
    assert shown[1].endswith("ER SCHLÄFT & TRÄUMT.")
    assert shown[2:] == ["EINE NOTE.", "NAME: ________ SEITE 3", "DAS WETTER", "KOPF DER SEITE"]
    assert shown[0] == "Gelöscht"
    (link,) = document.getElementsByType(text.A)
    assert (link.getAttribute("href"), teletype.extractText(link)) == ("https://example.org", "HUT")
    bold = [span for span in document.getElementsByType(text.Span) if span.getAttribute("stylename") == "B"]
    assert [teletype.extractText(span) for span in bold] == ["ALTE"]
    assert document.getElementsByType(office.Text)


def test_epub(tmp_path):
    assert [unit.text for unit in read("book.epub").units] == [
        "Der alte Mann",
        *("Kapitel", "Der <g1>alte</g1> Mann", "schläft."),
        *("Inhalt", "Erstes Kapitel"),
        *("Der alte Mann", "Erstes Kapitel"),
    ]
    assert read("book.epub").units[2].location == "book/page 1.xhtml, line 1"
    epub = pytest.importorskip("ebooklib.epub")
    path = tmp_path / "book.epub"
    path.write_bytes(translated("book.epub"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        book = epub.read_epub(str(path))
    assert (book.title, book.language) == ("DER ALTE MANN", "en")
    assert [(link.href, link.title) for link in book.toc] == [("page%201.xhtml", "ERSTES KAPITEL")]
    page = parts_of(path.read_bytes())["book/page 1.xhtml"]
    assert '<p><a id="x"/>DER <b>ALTE</b> MANN<br/>SCHLÄFT.</p><pre>bleibt</pre>' in page
    assert 'lang="en" xml:lang="en"' in page
    first = zipfile.ZipFile(path).infolist()[0]
    assert (first.filename, first.compress_type) == ("mimetype", zipfile.ZIP_STORED)


def test_a_page_of_a_book_stays_xml():
    etree = pytest.importorskip("lxml.etree")
    page = parts_of(translated("book.epub", translate=lambda text: f"{text}\xa0& <x> \ufffe\x01"))["book/page 1.xhtml"]
    assert "\xa0&amp; &lt;x&gt;" in page
    assert etree.fromstring(page.encode()) is not None


@pytest.mark.parametrize("name", KINDS)
def test_limits_and_hostile_xml(name, monkeypatch):
    kind = KINDS[name]
    without_main = {part: content for part, content in kind.items() if part != MAIN_PARTS[name]}
    bomb = {**kind, "bomb.xml": " " * 1_000_000}
    entity = '<!DOCTYPE a [<!ENTITY b "c">]>' + kind[TEXT_PARTS[name]].split("?>")[-1].split('.dtd">')[-1]
    deep = {**kind, TEXT_PARTS[name]: "<a>" * 999}
    for content, message in (
        (zipped(without_main), f"it does not have {MAIN_PARTS[name]}"),
        (zipped({**kind, TEXT_PARTS[name]: entity}), "line 1: a DOCTYPE is refused, its entities are unsafe"),
        (zipped(deep), "elements are nested more than 200 deep"),
        (zipped(kind)[:-30], "or a damaged one"),
    ):
        with pytest.raises(FormatError, match=rf"^{name}.*{message}"):
            parse(content, format_of(name), name=name)
    monkeypatch.setattr("capsule_mt.formats.archive.MAX_BYTES", 100_000)
    with pytest.raises(FormatError, match=rf"^{name}: its parts have \d+ bytes, at most 100000 are read"):
        parse(zipped(bomb), format_of(name), name=name)


def test_what_is_encrypted_is_named():
    entry = '<m:file-entry m:full-path="content.xml" m:media-type="text/xml"><m:encryption-data/></m:file-entry>'
    encrypted = zipped({**TEXT, "META-INF/manifest.xml": f'<m:manifest xmlns:m="{MANIFEST}">{entry}</m:manifest>'})
    with pytest.raises(FormatError, match=r"^text\.odt: is encrypted: save it without a password"):
        parse(encrypted, "odt", name="text.odt")
    reference = '<e><d:CipherReference xmlns:d="http://www.w3.org/2001/04/xmlenc#" URI="book/page%201.xhtml"/></e>'
    with pytest.raises(FormatError, match=r"^book\.epub: book/page 1\.xhtml is encrypted: only books without copy"):
        parse(zipped({**BOOK, "META-INF/encryption.xml": reference}), "epub", name="book.epub")


def test_blanks_of_a_form_stay_and_soft_hyphens_go():
    body = (
        "<w:p><w:r><w:t>Name: __________ Datum: ..........</w:t></w:r></w:p>"
        "<w:p><w:r><w:t>Donau\xaddampf</w:t><w:softHyphen/><w:t>schiff</w:t></w:r></w:p>"
    )
    assert texts("a.docx", docx(body)) == ["Name: {1} Datum: {2}", "Donaudampfschiff"]
    written = word(translated("a.docx", docx(body)))
    assert "NAME: __________ DATUM: .........." in written
    assert "DONAUDAMPFSCHIFF" in written


PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010800000000 3a7e9b55"
    "0000000a49444154789c6360000000020001 48afa471 0000000049454e44ae426082"
)
DESCRIPTION = 'Ein "roter" Hut & ein Mann\nAutomatisch beschrieben'


def test_descriptions_of_pictures_in_word():
    python_docx = pytest.importorskip("docx")
    document = python_docx.Document()
    for description in (DESCRIPTION, "Foto 1.PNG"):
        document.add_paragraph("Der Hut").add_run().add_picture(io.BytesIO(PIXEL))._inline.docPr.set(
            "descr", description
        )
    stream = io.BytesIO()
    document.save(stream)
    units = read("a.docx", stream.getvalue()).units
    assert [(unit.location, unit.text) for unit in units if unit.location.startswith("picture")] == [
        ("picture 1", 'Ein "roter" Hut & ein Mann'),
        ("picture 1", "Automatisch beschrieben"),
    ]
    written = python_docx.Document(io.BytesIO(translated("a.docx", stream.getvalue())))
    assert [paragraph.text for paragraph in written.paragraphs] == ["DER HUT"] * 2
    descriptions = [shape._inline.docPr.get("descr") for shape in written.inline_shapes]
    assert descriptions == [DESCRIPTION.upper(), "Foto 1.PNG"]


def test_descriptions_of_tables_in_word():
    properties = (
        '<w:tblPr><w:tblCaption w:val="Das Wetter"/><w:tblDescription w:val="Am &quot;Montag&quot;"/></w:tblPr>'
    )
    content = docx(BODY.replace("<w:tblPr/>", properties))
    parsed = parse(content, "docx")
    units = {unit.text: unit.location for unit in parsed.units}
    assert (units["Das Wetter"], units['Am "Montag"']) == ("table 1", "table 1")
    written = word(parsed.write([Translated(unit.text.upper()) for unit in parsed.units]))
    assert '<w:tblCaption w:val="DAS WETTER"/>' in written
    assert '<w:tblDescription w:val="AM &quot;MONTAG&quot;"/>'


def test_descriptions_of_pictures_in_powerpoint():
    pptx = pytest.importorskip("pptx")
    presentation = pptx.Presentation()
    shapes = presentation.slides.add_slide(presentation.slide_layouts[6]).shapes
    for description in (DESCRIPTION, "hut.jpeg"):
        shapes.add_picture(io.BytesIO(PIXEL), 0, 0)._element.nvPicPr.cNvPr.set("descr", description)
    stream = io.BytesIO()
    presentation.save(stream)
    written = pptx.Presentation(io.BytesIO(translated("a.pptx", stream.getvalue()))).slides[0].shapes
    assert [shape._element.nvPicPr.cNvPr.get("descr") for shape in written] == [DESCRIPTION.upper(), "hut.jpeg"]
