"""Damaged and hostile files: each is read, or refused with a `FormatError`, before anything is translated."""

import codecs
import gzip
import io
import random
import re
import sys
import time
import zipfile

import pytest

from capsule_mt.files.sandbox.worker import SECONDS
from capsule_mt.formats import docx as docx_format
from capsule_mt.formats.reading import Source, parse
from capsule_mt.formats.registry import format_of
from capsule_mt.formats.units import FormatError, Parsed, Translated
from capsule_mt.formats.worker import Worker
from tests.light.formats.files import BODY, BOOK, FILES, PO, XLIFF_2, content_of, docx, zipped

ROUNDS = 120
COLUMNS = {"tsv": "2", "csv": "text"}
MARKUP = (
    rb"< > </ <!-- <![ ]]> <? & &# &#xd800; &#xFFFE; <g1> </g1> {1} {{ $$ ]( ] * ` | \ ' "
    rb"<sup> </b> <code> <pre> <xliff> </source> <target/> <w:p> </w:r> --> 00:00:01,000 -1"
).split()
MARKUP_SUFFIXES = (".xml", ".xhtml", ".opf", ".ncx")
TOKENS = (
    *MARKUP,
    *(b"\x00", b"\xff", b"\xef\xbf\xbe", b"\n", b"\r", b"\r\n\r\n", b"\t", b" ", b'"', b"9" * 5000),
    *(b"charset=punycode\n", b"encoding='utf-7'", b"msgstr[9] ", b"msgid ", b'msgstr ""\n'),
    b'<w:fldChar w:fldCharType="end"/>',
)


def mutated(content: bytes, generator: random.Random) -> bytes:
    """Return a file with one to four random changes: bytes deleted, doubled, reversed, or replaced by tokens."""
    for _ in range(generator.randint(1, 4)):
        start = generator.randrange(len(content) + 1)
        end = min(len(content), start + generator.choice((0, 1, 2, 10, 100, 1000)))
        part = generator.choice(
            (
                b"",
                content[start:end] * 2,
                content[start:end][::-1],
                bytes([generator.randrange(256)]),
                generator.choice(TOKENS),
                generator.choice(TOKENS) * 3,
            )
        )
        content = content[:start] + part + content[end:]
    return content


def repacked(content: bytes, generator: random.Random) -> bytes:
    """Return a zip file with one part mutated; in a fifth of the cases, mutate the archive's bytes, too."""
    archive = zipfile.ZipFile(io.BytesIO(content))
    changed_part = generator.choice([name for name in archive.namelist() if name.endswith(MARKUP_SUFFIXES)])
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", generator.choice((zipfile.ZIP_DEFLATED, zipfile.ZIP_STORED))) as copy:
        for name in archive.namelist():
            part = archive.read(name)
            copy.writestr(name, mutated(part, generator) if name == changed_part else part)
    return mutated(written.getvalue(), generator) if generator.random() < 0.2 else written.getvalue()


def changed(name: str, generator: random.Random) -> bytes:
    """Return a file of `FILES` with random changes."""
    content = content_of(name)
    return (repacked if content.startswith(b"PK") else mutated)(content, generator)


def parsed(name: str, content: bytes) -> Parsed | str:
    """Return the parsed file, or the message of the error that refuses it."""
    format = format_of(name)
    try:
        return parse(content, format, name=name, column=COLUMNS.get(format), language="de")
    except FormatError as error:
        return str(error)


def check(name: str, content: bytes) -> bool:
    """Read a file and write it three times; return whether the format accepts it."""
    file = parsed(name, content)
    if isinstance(file, str):
        assert file.startswith(name)
        assert len(file) < 500
        return False
    for translate in (str, lambda text: None, lambda text: "<x> & [y](z) \ufffe"):
        file = parsed(name, content)
        assert isinstance(file.write([Translated(translate(unit.text)) for unit in file.units]), bytes)
    return True


def seconds_of_children() -> float:
    """Return the processor time of the processes that have ended."""
    import resource

    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


@pytest.mark.parametrize("name", FILES)
def test_a_randomly_changed_file_is_read_or_refused(name):
    generator = random.Random(name)
    accepted = [check(name, changed(name, generator)) for _ in range(ROUNDS)]
    assert any(accepted)
    assert not all(accepted) or name == "page.md"  # any UTF-8 is Markdown


@pytest.mark.parametrize("name", FILES)
def test_random_bytes_are_read_or_refused(name):
    generator = random.Random(name)
    for length in (0, 1, 2, 10, 100, 1000):
        check(name, generator.randbytes(length))
        check(name, b"".join(generator.choices(TOKENS, k=length // 10)))


def docx_of(method: int, **parts: bytes) -> bytes:
    """Return a Word document that is compressed by a method of `zipfile`, with more parts."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", method) as archive:
        archive.writestr("word/document.xml", zipfile.ZipFile(io.BytesIO(docx())).read("word/document.xml"))
        for name, content in parts.items():
            archive.writestr(f"word/{name}.xml", content)
    return stream.getvalue()


def with_far_directory(content: bytes) -> bytes:
    """Return a zip file that says that the list of its parts is behind its end."""
    end = content.rindex(b"PK\5\6")
    return content[: end + 16] + b"\xff\xff\xff\0" + content[end + 20 :]


def po_with_nplurals(plurals: str) -> bytes:
    return PO.replace("nplurals=2", f"nplurals={plurals}").encode()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.html", b"<p>a<![x]>b", "a.html: not html that can be read and written (AssertionError: unknown status"),
        ("a.html", b"<meta charset=unicode_escape>\\ud800", "a.html: `encoding` must be a text encoding such as"),
        ("a.html", b"<meta charset=utf-7>", "a.html: `encoding` must be a text encoding such as"),
        ("a.html", b"<meta charset=base64>", "a.html: `encoding` must be a text encoding such as"),
        ("a.docx", docx_of(zipfile.ZIP_BZIP2), "word/document.xml is compressed by method 12; a Word document has 8"),
        ("a.docx", docx_of(zipfile.ZIP_LZMA), "word/document.xml is compressed by method 14"),
        ("a.docx", docx()[:-30], "a.docx: not a Word document, or a damaged one"),
        ("a.docx", with_far_directory(docx()), "a.docx: not a Word document, or a damaged one (negative seek value"),
        (
            "a.ts",
            f'<TS language="{"9" * 5000}"><context><message numerus="yes"><source>%n</source><translation/></message>'
            "</context></TS>".encode(),
            "a.ts, line 1: the plural forms of 9999",
        ),
        ("a.docx", docx(BODY + "</w:p>"), "a.docx, word/document.xml, line 1: not XML (mismatched tag)"),
        (
            "a.po",
            b'msgid ""\nmsgstr ""\n"Language: %b\\n"\n\nmsgid "a"\nmsgid_plural "b"\nmsgstr[0] ""\n' % (b"x" * 5000),
            "a.po, line 1: the plural forms of xxxx",
        ),
        ("a.po", po_with_nplurals("1000000"), "a.po, line 2: `nplurals` must be 1 to 10, got 1000000"),
        ("a.po", po_with_nplurals("0"), "a.po, line 2: `nplurals` must be 1 to 10, got 0"),
        ("a.po", po_with_nplurals("9" * 5000), "a.po, line 2: `nplurals` must be 1 to 10, got 9999"),
        ("a.po", b'msgid "a b"\nmsgstr[10] ""\n', "a.po, line 2: a catalog has"),
        ("a.srt", b"1\n" + b"9" * 5000 + b":00:00,000 --> 00:00:01,000\na\n", "a.srt: no line has times"),
        ("a.xliff", b"<xliff>&#xD800;</xliff>", "a.xliff, line 1: not XML (reference to invalid character number)"),
        ("a.xliff", "<xliff>\ufffe</xliff>".encode(), "a.xliff, line 1: not XML"),
    ],
)
def test_the_error_names_the_fault(name, content, message):
    with pytest.raises(FormatError) as error:
        parse(content, format_of(name), name=name)
    assert message in str(error.value)
    assert len(str(error.value)) < 300


@pytest.mark.parametrize("content", [b"", codecs.BOM_UTF8])
def test_an_empty_page_does_not_have_texts(content):
    page = parse(content, "html")
    assert page.units == []
    assert page.write([]) == content


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("page.html", "<p title='Ein {} Titel'>Ein {} Satz.</p><textarea>Ein {} Feld</textarea>"),
        ("page.html", "<p>Ein <b class='{}'>roter</b> Hut<sup>{}</sup>.</p>"),
        ("page.md", "Ein Satz.\n\n<p title='{}'>Ein {} Absatz.</p>\n"),
        ("film.srt", "1\n00:00:01,000 --> 00:00:03,000\nEin {} Satz.\n"),
        ("film.vtt", "WEBVTT\n\n00:01.000 --> 00:03.000\nEin {} Satz.\n"),
    ],
)
def test_a_reference_may_have_any_number_of_digits(name, content):
    zeros = "0" * 5000
    for reference, short in (
        (f"&#{'1' * 5000};", "&#99999999;"),
        (f"&#{zeros}65;", "&#65;"),
        (f"&#{zeros};", "&#0;"),
        (f"&#1{zeros}", "&#99999999"),
    ):
        long_file, short_file = (parsed(name, content.replace("{}", text).encode()) for text in (reference, short))
        assert [unit.text.replace(reference, short) for unit in long_file.units] == [
            unit.text for unit in short_file.units
        ]
        unchanged = [Translated(unit.text) for unit in long_file.units]
        assert b"Satz" in long_file.write(unchanged) or b"Hut" in long_file.write(unchanged)


def test_an_unforeseen_error_names_the_page_of_a_book(monkeypatch):
    monkeypatch.setattr("capsule_mt.formats.html.unescaped", lambda text: {}[text])
    message = "a.epub, book/page 1.xhtml: not XHTML that can be read and written (KeyError: 'a word')"
    assert parsed("a.epub", zipped(BOOK | {"book/page 1.xhtml": "<p>a word</p>"})) == message


def test_a_file_that_cannot_be_written_is_refused_before_translation(monkeypatch):
    monkeypatch.setattr("capsule_mt.formats.markdown.MarkdownFile.write", lambda file, translations: {}["mark"])
    with pytest.raises(FormatError, match=r"^a.md: not markdown that can be read and written \(KeyError: 'mark'\)$"):
        parse(b"a b", "markdown", name="a.md")


def test_all_parts_of_an_archive_together_are_limited(monkeypatch):
    monkeypatch.setattr("capsule_mt.formats.archive.MAX_BYTES", 10_000)
    assert parse(docx_of(zipfile.ZIP_DEFLATED, a=b" " * 5000), "docx").units
    with pytest.raises(FormatError, match=r"its parts have \d+ bytes, at most 10000 are read"):
        parse(docx_of(zipfile.ZIP_DEFLATED, a=b" " * 5000, b=b" " * 5000), "docx")


def test_a_part_is_not_inflated_beyond_what_it_states():
    import tracemalloc

    content = docx_of(zipfile.ZIP_DEFLATED, styles=b" " * 50_000_000)
    content = content.replace((50_000_000).to_bytes(4, "little"), (10).to_bytes(4, "little"))
    tracemalloc.start()
    with pytest.raises(FormatError, match="Bad CRC-32"):
        parse(content, "docx")
    assert tracemalloc.get_traced_memory()[1] < 5_000_000
    tracemalloc.stop()


def surround_by(prefix: str, suffix: str = ""):
    return lambda repeats: prefix + repeats + suffix


# files whose pattern would take quadratic time: the text around the repeats, and what is repeated
CRAWLING = {
    "spaces.md": (surround_by("a", "b"), " "),
    "cell.md": (surround_by("| a", "b |\n|-|\n| c | d |\n"), " "),
    "rule.md": (surround_by("a | b\n", "x"), " "),
    "target.md": (surround_by("[a](", "b"), " "),
    "titles.md": (surround_by("[a](b", "c"), " "),
    "notes.md": (surround_by("a "), "[^"),
    "comments.md": (surround_by("a "), "<!--"),
    "braces.md": (surround_by("a "), "{{"),
    "links.md": (surround_by("a "), "[a"),
    "links and closers.md": (surround_by("[a" * 10_000), "a_ "),
    "tags.md": (surround_by("a "), "<b>"),
    "tags.html": (surround_by("<p>a ", " b"), "<b>"),
    "attributes.html": (surround_by("<p>a <b", ">b</b>"), " title='a"),
    "spaces.html": (surround_by("<p>a <b a", ">b</b>"), " "),
    "lines.html": (surround_by("<textarea>", "</textarea>"), "a\n"),
    "notes.html": (surround_by("<p>a"), "<sup>a"),
    "lines.srt": (surround_by("1\n00:00:01,000 --> 00:00:02,000\n"), "a\n"),
    "rolling.srt": (surround_by(""), "00:00:01,000 --> 00:00:01,000\na\n"),
    "tags.ass": (surround_by("[Events]\nDialogue: 0,0:00:01.00,0:00:02.00,,,0,0,0,,", "a"), "{\\k1"),
    "comments.ass": (surround_by("[Events]\nDialogue: 0,0:00:01.00,0:00:02.00,,,0,0,0,,{\\k1}", "a"), "{a"),
    "overrides.ass": (surround_by("[Events]\nDialogue: 0,0:00:01.00,0:00:02.00,,,0,0,0,,a"), "{\\b}"),
    "karaoke.ass": (surround_by("[Events]\nDialogue: 0,0:00:01.00,0:00:02.00,,,0,0,0,,a"), "{\\k1}a "),
    "tags.srt": (surround_by("1\n00:00:01,000 --> 00:00:02,000\n", "a"), "<i>"),
    "forms.po": (surround_by('msgid ""\nmsgstr "plural=', '"\n\nmsgid "a b"\nmsgstr ""\n'), " "),
    "attribute.xliff": (
        surround_by(
            XLIFF_2[: XLIFF_2.index("<segment>")] + "<segment a='", "'" + XLIFF_2[XLIFF_2.index("<segment>") + 8 :]
        ),
        " ",
    ),
    "declarations.xliff": (surround_by(XLIFF_2 + "<!-- ", "-->"), "<?xml encoding "),
    "containers.md": (surround_by("::: a", "{x}b"), " "),
    "admonitions.md": (surround_by("!!! a", "b"), " "),
    "titles of blocks.md": (surround_by("/// a", "b"), " "),
    "statements.md": (surround_by("a {%", "b"), "% "),
    "environments.md": (surround_by(""), "\\begin{a}\n"),
    "raw.md": (surround_by(""), "{% raw %}\n"),
    "directives.md": (surround_by(""), ":::{math}\n"),
    "components.md": (surround_by(""), "<A\n"),
    "labels.md": (surround_by("[a]: b\n\n" + "[a" * 10_000), "] "),
    "mathematics.md": (surround_by("a "), "\\\\("),
    "expressions.md": (surround_by("a "), "{a("),
    "attributes.md": (surround_by("# a", "b"), " {.a"),
    "modules.md": (surround_by("import a", "b"), " from "),
    "exports.md": (surround_by("export function", "b"), " "),
    "formulas.md": (surround_by(""), "\\[a\n"),
    "lists.md": (surround_by(""), "- a\n"),
    "nested lists.md": (surround_by("- "), "- "),
    "entities.md": (surround_by("a"), "&amp"),
    "blocks.md": (surround_by(""), "<p>a\n\n"),
    "fences.md": (surround_by(""), "```{note}\n"),
    "lone tags.md": (surround_by("<a", "b"), " b='"),
    "zeros.md": (surround_by("a %"), "0"),
    "plurals.json": (surround_by('{"a": [', "{}]}"), '{"b_one": "b c", "b_other": "b c"}, '),
    "branches.arb": (surround_by('{"a": "', '"}'), "{a, plural, other {"),
    "spaces.yml": (surround_by("a: b", "\n  c\n"), " "),
    "blank lines.yml": (surround_by("a: b c\n"), "\n"),
    "keys.yml": (surround_by(""), "'a"),
    "quotes.strings": (surround_by('"a" = "', '";'), "\\'"),
    "spaces.properties": (surround_by("a = b", "c"), " "),
    "escapes.properties": (surround_by("a = b "), "\\\n "),
    "spaces.xml": (surround_by("<resources><string name='a'>b", "c</string></resources>"), " "),
    "ticks.md": (surround_by("a\n\n", " b ` c"), "`"),
    "lines of ticks.md": (surround_by("a\n\n"), "```a` "),
}


# those of `CRAWLING` that the format refuses, with the error's message
REFUSED = {"keys.yml": "`key: text` is expected"}


# in characters; a quadratic pattern shows in these only from more than the usual 60,000
LENGTHS = {
    "notes.md": 120_000,
    "comments.md": 120_000,
    "tags.html": 120_000,
    "notes.html": 240_000,
    "links.md": 240_000,
    "tags.srt": 240_000,
    "declarations.xliff": 400_000,
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if name in LENGTHS else []) for name in CRAWLING]
)
def test_every_pattern_takes_linear_time(name):
    wrap, repeated = CRAWLING[name]
    length = LENGTHS.get(name, 60_000)
    source = Source(wrap(repeated * (length // len(repeated))).encode(), format_of(name), name)
    worker = Worker(seconds=10)  # a quadratic pattern needs minutes
    try:
        if name in REFUSED:
            with pytest.raises(FormatError, match=REFUSED[name]):
                worker.read(source, max_characters=10_000_000)
            return
        texts = worker.read(source, max_characters=10_000_000)
        assert worker.write(source, [[Translated(unit.text) for unit in texts.units]])
    finally:
        worker.stop()


def test_tags_that_do_not_end_take_linear_time():
    """A search for the end of each tag that scans the rest of the file takes a minute for a megabyte."""
    start = time.process_time()
    assert (
        docx_format.DIALECT.ignored_properties.sub(b"", b"<w:lang " * 60_000 + b"<w:noProof/>") == b"<w:lang " * 60_000
    )
    cue = b"1\n00:00:01,000 --> 00:00:02,000\n<i>a" + b"</i" * 60_000 + b"\n"
    assert parse(cue, "srt", name="a.srt").units
    assert time.process_time() - start < 3


LARGEST_REQUEST = 125_536  # bytes, by default
BEGINNINGS = (
    "<a ",
    "<a b=",
    "<a b='",
    "<a/",
    "<!--",
    "<!",
    "<?",
    "</",
    "</a ",
    "<b><i>",
    "&",
    "<![CDATA[",
    "<p title='x' ",
)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="it needs the processor time of children")
@pytest.mark.parametrize("beginning", BEGINNINGS)
def test_a_hostile_page_of_the_largest_size_takes_at_most_the_seconds_of_a_file(beginning):
    """html.parser takes quadratic time for some of them, which would be minutes."""
    content = (beginning * LARGEST_REQUEST)[:LARGEST_REQUEST].encode()
    message = None
    with Worker() as worker:
        worker.read(Source(b"", "html", "a.html"), 0)  # a new process; Python now counts those that earlier tests left
        before = seconds_of_children()
        try:
            worker.read(Source(content, "html", "a.html"), 10**9)
        except FormatError as error:
            message = str(error)
    assert message in (None, "a.html: takes longer than 5 s to read or write")
    assert seconds_of_children() - before < SECONDS + 1  # and the start of the process


BOMBS = {
    "report.docx": "word/document.xml",
    "slides.pptx": "ppt/slides/slide1.xml",
    "text.odt": "content.xml",
    "book.epub": "book/page 1.xhtml",
}


def bomb(name: str, size: int) -> bytes:
    """Return a file that unpacks to so many bytes more, in the part with its text."""
    content = content_of(name.removesuffix(".gz"))
    if name.endswith(".gz"):
        return gzip.compress(content + b" " * size, mtime=0)
    archive = zipfile.ZipFile(io.BytesIO(content))
    parts = {part: archive.read(part) for part in archive.namelist()}
    parts[BOMBS[name]] = parts[BOMBS[name]].replace(b"</", b" " * size + b"</", 1)
    return zipped(parts)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("name", "size"),  # 160 MB are unpacked, but their tree needs more memory than a file may take
    [
        ("report.docx", 160 << 20),
        *((name, 300 << 20) for name in (*BOMBS, "film.srt.gz", "messages.po.gz", "page.md.gz")),
    ],
)
def test_a_bomb_is_refused_and_the_next_file_is_read(name, size):
    content = bomb(name, size)
    assert len(content) < size / 100
    with Worker() as worker:
        with pytest.raises(FormatError) as error:
            worker.read(Source(content, format_of(name), name), 10**9)
        assert re.fullmatch(rf"{name}: .*(at most|more than|longer than) .*", str(error.value))
        assert worker.read(Source(b"<p>a", "html", "a.html"), 10**9).units
