"""Files that nobody has written: each is read, or refused with the one error, before anything is translated."""

import io
import random
import time
import zipfile

import pytest

from capsule_mt.formats import docx as docx_format
from capsule_mt.formats.reading import format_of, parse
from capsule_mt.formats.units import FormatError, Parsed, Translated
from capsule_mt.formats.worker import Source, Worker
from tests.light.formats.files import BODY, FILES, PO, XLIFF_2, content_of, docx

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


def mutated(content: bytes, source: random.Random) -> bytes:
    """Return a file with one to four changes: bytes replaced, cut out, repeated, swapped for others, tokens put in."""
    for _ in range(source.randint(1, 4)):
        start = source.randrange(len(content) + 1)
        end = min(len(content), start + source.choice((0, 1, 2, 10, 100, 1000)))
        part = source.choice(
            (
                b"",
                content[start:end] * 2,
                content[start:end][::-1],
                bytes([source.randrange(256)]),
                source.choice(TOKENS),
                source.choice(TOKENS) * 3,
            )
        )
        content = content[:start] + part + content[end:]
    return content


def repacked(content: bytes, source: random.Random) -> bytes:
    """Return a zip file with one part mutated, and sometimes its archive."""
    archive = zipfile.ZipFile(io.BytesIO(content))
    changed_part = source.choice([name for name in archive.namelist() if name.endswith(MARKUP_SUFFIXES)])
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", source.choice((zipfile.ZIP_DEFLATED, zipfile.ZIP_STORED))) as copy:
        for name in archive.namelist():
            part = archive.read(name)
            copy.writestr(name, mutated(part, source) if name == changed_part else part)
    return mutated(written.getvalue(), source) if source.random() < 0.2 else written.getvalue()


def changed(name: str, source: random.Random) -> bytes:
    """Return a file of `FILES` that was changed at random."""
    content = content_of(name)
    return (repacked if content.startswith(b"PK") else mutated)(content, source)


def parsed(name: str, content: bytes) -> Parsed | str:
    """Return a file, or why it is refused."""
    format = format_of(name)
    try:
        return parse(content, format, name=name, column=COLUMNS.get(format), language="de")
    except FormatError as error:
        return str(error)


def check(name: str, content: bytes) -> bool:
    """Read and write a file; return whether it is one of its format."""
    file = parsed(name, content)
    if isinstance(file, str):
        assert file.startswith(name)
        assert len(file) < 500
        return False
    for translate in (str, lambda text: None, lambda text: "<x> & [y](z) \ufffe"):
        file = parsed(name, content)
        assert isinstance(file.write([Translated(translate(unit.text)) for unit in file.units]), bytes)
    return True


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_was_changed_at_random_is_read_or_refused(name):
    source = random.Random(name)
    accepted = [check(name, changed(name, source)) for _ in range(ROUNDS)]
    assert any(accepted)
    assert not all(accepted) or name == "page.md"  # which takes everything that is UTF-8


@pytest.mark.parametrize("name", FILES)
def test_random_bytes_are_read_or_refused(name):
    source = random.Random(name)
    for length in (0, 1, 2, 10, 100, 1000):
        check(name, source.randbytes(length))
        check(name, b"".join(source.choices(TOKENS, k=length // 10)))


def docx_of(method: int, **parts: bytes) -> bytes:
    """Return a Word document that is compressed so, with further parts."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", method) as archive:
        archive.writestr("word/document.xml", zipfile.ZipFile(io.BytesIO(docx())).read("word/document.xml"))
        for name, content in parts.items():
            archive.writestr(f"word/{name}.xml", content)
    return stream.getvalue()


def header(plurals: str) -> bytes:
    return PO.replace("nplurals=2", f"nplurals={plurals}").encode()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.html", b"<p>a<![x]>b", "a.html: not html that can be read and written (AssertionError: unknown status"),
        ("a.html", b"<meta charset=unicode_escape>\\ud800", "a.html: `encoding` must be one that Python knows"),
        ("a.html", b"<meta charset=utf-7>", "a.html: `encoding` must be one that Python knows"),
        ("a.html", b"<meta charset=base64>", "a.html: `encoding` must be one that Python knows"),
        ("a.docx", docx_of(zipfile.ZIP_BZIP2), "word/document.xml is compressed by method 12; a Word document has 8"),
        ("a.docx", docx_of(zipfile.ZIP_LZMA), "word/document.xml is compressed by method 14"),
        ("a.docx", docx()[:-30], "a.docx: not a Word document, or a damaged one"),
        ("a.docx", docx(BODY + "</w:p>"), "a.docx, word/document.xml, line 1: not XML (mismatched tag)"),
        ("a.po", header("1000000"), "a.po, line 2: `nplurals` must be 1 to 10, got 1000000"),
        ("a.po", header("0"), "a.po, line 2: `nplurals` must be 1 to 10, got 0"),
        ("a.po", header("9" * 5000), "a.po, line 2: `nplurals` must be 1 to 10, got 9999"),
        ("a.po", b'msgid "a b"\nmsgstr[10] ""\n', "a.po, line 2: a catalog has"),
        ("a.srt", b"1\n" + b"9" * 5000 + b":00:00,000 --> 00:00:01,000\na\n", "a.srt: no line has times"),
        ("a.xliff", b"<xliff>&#xD800;</xliff>", "a.xliff, line 1: not XML (reference to invalid character number)"),
        ("a.xliff", "<xliff>\ufffe</xliff>".encode(), "a.xliff, line 1: not XML"),
    ],
)
def test_what_is_wrong_is_named(name, content, message):
    with pytest.raises(FormatError) as error:
        parse(content, format_of(name), name=name)
    assert message in str(error.value)
    assert len(str(error.value)) < 300


def test_what_cannot_be_written_fails_before_it_is_translated(monkeypatch):
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


def around(prefix: str, after: str = ""):
    return lambda part: prefix + part + after


# what repeated makes the patterns of a format crawl, and where
CRAWLING = {
    "spaces.md": (around("a", "b"), " "),
    "cell.md": (around("| a", "b |\n|-|\n| c | d |\n"), " "),
    "rule.md": (around("a | b\n", "x"), " "),
    "target.md": (around("[a](", "b"), " "),
    "titles.md": (around("[a](b", "c"), " "),
    "notes.md": (around("a "), "[^"),
    "comments.md": (around("a "), "<!--"),
    "braces.md": (around("a "), "{{"),
    "links.md": (around("a "), "[a"),
    "links and closers.md": (around("[a" * 10_000), "a_ "),
    "tags.md": (around("a "), "<b>"),
    "tags.html": (around("<p>a ", " b"), "<b>"),
    "attributes.html": (around("<p>a <b", ">b</b>"), " title='a"),
    "spaces.html": (around("<p>a <b a", ">b</b>"), " "),
    "lines.html": (around("<textarea>", "</textarea>"), "a\n"),
    "notes.html": (around("<p>a"), "<sup>a"),
    "lines.srt": (around("1\n00:00:01,000 --> 00:00:02,000\n"), "a\n"),
    "rolling.srt": (around(""), "00:00:01,000 --> 00:00:01,000\na\n"),
    "tags.ass": (around("[Events]\nDialogue: 0,0:00:01.00,0:00:02.00,,,0,0,0,,", "a"), "{\\k1"),
    "comments.ass": (around("[Events]\nDialogue: 0,0:00:01.00,0:00:02.00,,,0,0,0,,{\\k1}", "a"), "{a"),
    "overrides.ass": (around("[Events]\nDialogue: 0,0:00:01.00,0:00:02.00,,,0,0,0,,a"), "{\\b}"),
    "karaoke.ass": (around("[Events]\nDialogue: 0,0:00:01.00,0:00:02.00,,,0,0,0,,a"), "{\\k1}a "),
    "tags.srt": (around("1\n00:00:01,000 --> 00:00:02,000\n", "a"), "<i>"),
    "forms.po": (around('msgid ""\nmsgstr "plural=', '"\n\nmsgid "a b"\nmsgstr ""\n'), " "),
    "attribute.xliff": (
        around(
            XLIFF_2[: XLIFF_2.index("<segment>")] + "<segment a='", "'" + XLIFF_2[XLIFF_2.index("<segment>") + 8 :]
        ),
        " ",
    ),
    "declarations.xliff": (around(XLIFF_2 + "<!-- ", "-->"), "<?xml encoding "),
    "containers.md": (around("::: a", "{x}b"), " "),
    "admonitions.md": (around("!!! a", "b"), " "),
    "titles of blocks.md": (around("/// a", "b"), " "),
    "statements.md": (around("a {%", "b"), "% "),
    "environments.md": (around(""), "\\begin{a}\n"),
    "raw.md": (around(""), "{% raw %}\n"),
    "directives.md": (around(""), ":::{math}\n"),
    "components.md": (around(""), "<A\n"),
    "labels.md": (around("[a]: b\n\n" + "[a" * 10_000), "] "),
    "mathematics.md": (around("a "), "\\\\("),
    "expressions.md": (around("a "), "{a("),
    "attributes.md": (around("# a", "b"), " {.a"),
    "modules.md": (around("import a", "b"), " from "),
    "exports.md": (around("export function", "b"), " "),
    "formulas.md": (around(""), "\\[a\n"),
    "lists.md": (around(""), "- a\n"),
    "nested lists.md": (around("- "), "- "),
    "entities.md": (around("a"), "&amp"),
    "blocks.md": (around(""), "<p>a\n\n"),
    "fences.md": (around(""), "```{note}\n"),
    "lone tags.md": (around("<a", "b"), " b='"),
    "zeros.md": (around("a %"), "0"),
    "plurals.json": (around('{"a": [', "{}]}"), '{"b_one": "b c", "b_other": "b c"}, '),
    "branches.arb": (around('{"a": "', '"}'), "{a, plural, other {"),
    "spaces.yml": (around("a: b", "\n  c\n"), " "),
    "blank lines.yml": (around("a: b c\n"), "\n"),
    "keys.yml": (around(""), "'a"),
    "quotes.strings": (around('"a" = "', '";'), "\\'"),
    "spaces.properties": (around("a = b", "c"), " "),
    "escapes.properties": (around("a = b "), "\\\n "),
    "spaces.xml": (around("<resources><string name='a'>b", "c</string></resources>"), " "),
    "ticks.md": (around("a\n\n", " b ` c"), "`"),
    "lines of ticks.md": (around("a\n\n"), "```a` "),
}


# those that are no file of their format, by what the error says
REFUSED = {"keys.yml": "`key: text` is expected"}


# characters; those whose square is small are longer than the 60,000 of the others
LENGTHS = {
    "notes.md": 120_000,
    "comments.md": 120_000,
    "tags.html": 120_000,
    "notes.html": 240_000,
    "links.md": 240_000,
    "tags.srt": 240_000,
    "declarations.xliff": 400_000,
}


@pytest.mark.parametrize("name", CRAWLING)
def test_no_pattern_crawls(name):
    wrap, part = CRAWLING[name]
    length = LENGTHS.get(name, 60_000)
    source = Source(wrap(part * (length // len(part))).encode(), format_of(name), name)
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
    """They took a minute for a megabyte: each tag was searched for its end through all that follow."""
    start = time.process_time()
    assert docx_format.DIALECT.no_format.sub(b"", b"<w:lang " * 60_000 + b"<w:noProof/>") == b"<w:lang " * 60_000
    cue = b"1\n00:00:01,000 --> 00:00:02,000\n<i>a" + b"</i" * 60_000 + b"\n"
    assert parse(cue, "srt", name="a.srt").units
    assert time.process_time() - start < 3
