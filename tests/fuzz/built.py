"""Files that are built to be hostile: nested parts, numbers and encodings that lie, archives inside archives."""

import gzip
import io
import random
import zipfile
from collections.abc import Callable
from typing import Any

from capsule_mt.formats.reading import parse
from capsule_mt.formats.registry import format_of
from capsule_mt.formats.units import FormatError, Translated
from tests.fuzz.parsers import check_message
from tests.light.formats.files import FILES, content_of
from tests.light.formats.test_hostile import COLUMNS, MARKUP_SUFFIXES

Case = dict[str, Any]
# what opens and closes a part in each format
NESTED = {
    "html": ("<div>|</div>", "<b>|</b>", "<ul><li>|</li></ul>", "<!--|-->", "<![CDATA[|]]>", "<?x |?>", "<template>|"),
    "md": (
        "> |",
        "- |",
        "1. |",
        "[|](a)",
        "![|](a)",
        "*|*",
        "_*|*_",
        "`|`",
        "<b>|</b>",
        "{{|}}",
        "$|$",
        "[^a]: |",
        "| ||",
    ),
    "json": ('[|"a"]', '{"a":|1}', '{"a": "{a, plural, other {|}}"}', '{"a": "$t(|)"}'),
    "arb": ('{"a": "{a, select, other {|}}"}', '{"a": "\'{|"}'),
    "yml": ("de:\n  a: [|]", "de:\n  a: {a: |}", "de:\n  - |a"),
    "xliff": ("<g>|</g>", "<group>|</group>", "<source>|</source>"),
    "xml": ("<string name='a'>|</string>", "<b>|</b>"),
    "po": ('"a"\n|', "#~ |", 'msgid "<b>|"\n'),
    "properties": ("a=\\\n|", "a=\\u00|", "a={0,|}"),
    "strings": ("/*|*/", '"a" = "\\|";', '"a" = "%1$|";'),
    "ass": ("[Events]\nDialogue: ,|", "{\\k(|)}"),
    "vtt": ("WEBVTT\n\n00:01.000 --> 00:02.000\n<c.a>|</c>", "NOTE\n|"),
    "srt": ("1\n00:00:01,000 --> 00:00:02,000\n<i>|</i>", "9|"),
    "csv": ('text\n"|', "text,|"),
}
NUMBERS = ("-1", "1e999", "9" * 400, "9" * 5000, "NaN", "0x10", "\uff11", "\u0663", "\u00b2", "1_0", "+1", "\u200b1")
ENCODINGS = ("utf-16", "utf-16-be", "utf-32", "utf-8-sig", "cp1252", "shift_jis", "utf-7", "cp037", "gb18030")
NOT_TEXT = (
    b"\xed\xa0\x80",
    b"\xc0\x80",
    b"\xf4\x90\x80\x80",
    bytes(100),
    b"\x1b[31m",
    "\u2028\x85\ufffe\u202e".encode(),
)
MARKS = (b"\xff\xfe", b"\xfe\xff", b"\xef\xbb\xbf\xff\xfe", b"\x00\x00\xfe\xff", b"+/v8")
XML = (
    *(b"", b"\0", b"<a/>", b"<a>" * 5000, b"<a" + b" b='c'" * 20_000 + b"/>", "<a/>".encode("utf-16")),
    *(b"<!DOCTYPE a [<!ENTITY b 'c'>]><a>&b;</a>", b"<!DOCTYPE a SYSTEM 'file:///etc/passwd'><a/>"),
)
NAMES = ("../../etc/passwd", "/absolute", "a\0b", "a" * 60_000, "word/", "WORD/DOCUMENT.XML", "./word/document.xml")
RECORDS = {b"PK\1\2": 46, b"PK\3\4": 30, b"PK\5\6": 22}  # of a zip file, and their lengths


def nested(generator: random.Random) -> tuple[str, bytes]:
    suffix = generator.choice(sorted(NESTED))
    start, _, end = generator.choice(NESTED[suffix]).partition("|")
    depth = generator.choice((10, 300, 3000))
    opening, closing = generator.choice(((start * depth, end * depth), (start, end), (start * depth, end)))
    return f"nested.{suffix}", f"{opening}Hallo{'a' * (depth if opening == start else 0)}{closing}\n".encode()


def with_other_numbers(generator: random.Random) -> tuple[str, bytes]:
    name = generator.choice(sorted(FILES))
    content = content_of(name)
    digits = [position for position, byte in enumerate(content) if chr(byte).isdigit()]
    for position in sorted(generator.sample(digits, min(len(digits), 3)), reverse=True):
        content = content[:position] + generator.choice(NUMBERS).encode() + content[position + 1 :]
    return name, content


def encoded(generator: random.Random) -> tuple[str, bytes]:
    """Return a file in another encoding than it states, with the mark of another, or with bytes that are not text."""
    name = generator.choice([name for name in sorted(FILES) if not content_of(name).startswith(b"PK")])
    content = content_of(name)
    start = generator.randrange(len(content) + 1)
    return name, generator.choice(
        (
            content.decode("utf-8", "replace").encode(generator.choice(ENCODINGS), "replace"),
            generator.choice(MARKS) + content,
            content[:start] + generator.choice(NOT_TEXT) + content[start:],
        )
    )


def packed(generator: random.Random) -> tuple[str, bytes]:
    """Return an archive with other parts, with an archive as a part, or with records that lie."""
    name = generator.choice([name for name in sorted(FILES) if content_of(name).startswith(b"PK")])
    content = content_of(name)
    archive = zipfile.ZipFile(io.BytesIO(content))
    parts = {part: archive.read(part) for part in archive.namelist()}
    kind = generator.randrange(4)
    if kind == 0:
        changed = bytearray(content)
        record, length = generator.choice(sorted(RECORDS.items()))
        starts = [start for start in range(len(content)) if content.startswith(record, start)]
        offset = generator.choice(starts) + generator.randrange(4, length - 1)
        changed[offset : offset + 2] = generator.choice((b"\xff\xff", b"\0\0", b"\1\0", b"\xff\x7f"))
        return name, bytes(changed)
    if kind == 1:
        return name, generator.choice(
            (content + content, b"MZ" * 1000 + content, content + bytes(70_000), content[:-9])
        )
    if kind == 2:
        parts[generator.choice(NAMES)] = generator.choice((b"", content))
    else:
        part = generator.choice([part for part in parts if part.endswith(MARKUP_SUFFIXES)])
        parts[part] = generator.choice((*XML, content, parts[part][: len(parts[part]) // 2], parts[part] * 2))
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", zipfile.ZIP_DEFLATED) as copy:
        for part, part_content in parts.items():
            copy.writestr(part, part_content)
    return name, written.getvalue()


def compressed(generator: random.Random) -> tuple[str, bytes]:
    content = gzip.compress(content_of("film.srt"), mtime=0)
    start = generator.randrange(len(content))
    return "film.srt.gz", generator.choice(
        (
            content[:start],
            content[:start] + b"\xff" + content[start + 1 :],
            content + b"garbage",
            content * 50,
            gzip.compress(b"", mtime=0) * 1000 + content,
            gzip.compress(content, mtime=0),
            gzip.compress(bytes(1 << 20), mtime=0),
        )
    )


MAKERS: tuple[Callable[[random.Random], tuple[str, bytes]], ...] = (
    nested,
    with_other_numbers,
    encoded,
    packed,
    compressed,
)


def make_built(generator: random.Random) -> Case:
    name, content = generator.choice(MAKERS)(generator)
    return {"file": name, "content": content.decode("latin-1")}


def check_built(case: Case) -> None:
    """A file is read and written, or refused by one sentence."""
    name, content = case["file"], case["content"].encode("latin-1")
    format = format_of(name)
    assert format is not None
    try:
        parsed = parse(content, format, name=name, column=COLUMNS.get(format), language="de")
    except FormatError as error:
        check_message(error, name)
        return
    parsed.write([Translated(unit.text) for unit in parsed.units])
