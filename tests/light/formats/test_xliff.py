"""XLIFF as Trados, memoQ, Memsource and Angular write it, and messages of ICU."""

import re

import pytest

from capsule_mt.formats.icu import IcuMessage, NotIcuError
from capsule_mt.formats.plurals import rule_of
from capsule_mt.formats.reading import parse
from capsule_mt.formats.units import FormatError, Translated
from tests.light.formats.files import ANCHOR, ANGULAR, BOLD, COUNT, MEMOQ, TRADOS
from tests.light.formats.test_formats import shout


def read(content, language="en"):
    return parse(content.encode(), "xliff", name="a.xlf", language=language)


def texts(content, language="en"):
    return [unit.text for unit in read(content, language).units]


def translated(content, translate=shout, language="en"):
    parsed = read(content, language)
    return parsed.write([Translated(translate(unit.text)) for unit in parsed.units]).decode()


def test_a_file_for_another_language_is_refused():
    american = TRADOS.replace("source-language", 'target-language="en-US" source-language')
    message = r"^a.xlf, line 3: the file is for translations into en-US, but the model translates into pt: use another"
    with pytest.raises(FormatError, match=message):
        read(american, "pt")
    assert read(american, "en_gb").units


def read_by_toolkit(content):
    """Return sources and targets as translate-toolkit reads them."""
    xliff = pytest.importorskip("translate.storage.xliff")
    return [(str(unit.source), str(unit.target or "")) for unit in xliff.xlifffile.parsestring(content.encode()).units]


def test_segments_of_trados():
    assert texts(TRADOS) == ["Der alte Mann.", "<g1>Er schläft</g1>.", "Ein Hut.", "Ein Haus."]
    written = translated(TRADOS)
    assert '<g id="7"><mrk mtype="seg" mid="1">DER ALTE MANN.</mrk> <mrk mtype="seg" mid="2"><g id="8">ER S' in written
    assert '<mrk mtype="seg" mid="3">Done.</mrk>\n<mrk mtype="seg" mid="4"/></target>' in written
    assert '<sdl:seg id="1" conf="Draft" origin="mt"/>' in written
    assert '<sdl:seg id="3" conf="Translated"/><sdl:seg id="4" locked="true"/>' in written
    assert (
        '</seg-source><target><mrk mtype="seg" mid="5">EIN HUT.</mrk>\n'
        '<mrk mtype="seg" mid="6">EIN HAUS.</mrk></target>'
    ) in written
    targets = [target.split() for _, target in read_by_toolkit(written)]
    assert targets == [["DER", "ALTE", "MANN.", "ER", "SCHLÄFT.", "Done."], ["EIN", "HUT.", "EIN", "HAUS."], []]
    etree = pytest.importorskip("lxml.etree")
    marks = etree.fromstring(written.encode()).findall(".//{*}target//{*}mrk")
    assert [mark.get("mid") for mark in marks] == ["1", "2", "3", "4", "5", "6"]


def test_a_segment_that_failed_stays_empty():
    parsed = read(TRADOS)
    written = parsed.write([Translated(text) for text in ("One.", None, None, "A house.")]).decode()
    assert '<mrk mtype="seg" mid="1">One.</mrk> <mrk mtype="seg" mid="2"></mrk>' in written
    assert '<target><mrk mtype="seg" mid="5"></mrk>\n<mrk mtype="seg" mid="6">A house.</mrk></target>' in written
    assert '<sdl:seg id="2" conf="Draft" origin="tm"/>' in written


def test_memoq():
    assert texts(MEMOQ) == ["Der <g1>alte</g1>  Mann{2}."]
    written = translated(MEMOQ)
    assert (
        '<target xml:space="preserve">DER <bpt id="1" ctype="bold">{}</bpt>ALTE<ept\nid="1">{}</ept>  MANN<ph'
        in written
    )
    assert '<trans-unit id="1" mq:status="Pretranslated">' in written
    assert '<trans-unit id="2" mq:status="NotStarted" mq:locked="locked">' in written
    assert [target for _, target in read_by_toolkit(written)][1:] == ["", "A hat."]


def test_tags_of_angular_are_pairs():
    assert texts(ANGULAR)[0] == "Der <g1>alte</g1> Mann kauft <g2>einen Hut</g2>."
    moved = translated(ANGULAR, lambda text: "A <g2>hat</g2> <g1>b</g1>" if "<g2>" in text else shout(text))
    assert f">A {ANCHOR.format('hat')} {BOLD.format('b')}</target>" in moved


def test_messages_of_angular():
    assert texts(ANGULAR)[1:] == [
        "gerade jetzt",
        "vor einer Minute",
        "vor {1} Minuten",
        "<g1>er</g1> schläft",
        "sie schläft",
        "Ein Hut",
    ]
    written = translated(ANGULAR)
    plural = f"{{VAR_PLURAL, plural, =0 {{GERADE JETZT}} =1 {{VOR EINER MINUTE}} other {{VOR {COUNT} MINUTEN}}}}"
    assert plural.replace("other", f"one {{VOR {COUNT} MINUTEN}} other") in written
    assert f"{{VAR_SELECT, select, male {{{BOLD.format('ER')} SCHLÄFT}} other {{SIE SCHLÄFT}}}}</target>" in written
    # a branch that lost its placeholder stays as it was
    assert f"other {{vor {COUNT} Minuten}}" in translated(
        ANGULAR, lambda text: text.replace("{1}", "").replace("vor", "x")
    )


def test_states():
    written = translated(ANGULAR)
    assert '<target state="translated">EIN HUT</target>' in written  # it was a copy of the source
    assert '<target state="needs-translation">Some house</target>' in written  # a person's draft


@pytest.mark.parametrize(
    ("message", "language", "expected"),
    [
        ("{n, plural, one {# file} other {# files}}", "ja", "{n, plural, other {# FILES}}"),
        ("{n, plural, other {# files}}", "de", "{n, plural, one {# FILES} other {# FILES}}"),
        (
            "In {dir}: {n, plural, =0{no files} one{a file} other{{n} files}}.",
            "hr",
            "{n, plural, =0 {IN {dir}: NO FILES.} one {IN {dir}: {n} FILES.} few {IN {dir}: {n} FILES.} "
            "other {IN {dir}: {n} FILES.}}",
        ),
        (
            "{g, select, f {She has {n, plural, one {a cat} other {# cats}}} other {They}} now",
            "de",
            "{g, select, f {{n, plural, one {SHE HAS A CAT NOW} other {SHE HAS # CATS NOW}}} other {THEY NOW}}",
        ),
        ("{g, select, f {a cat} m {a dog}}", "de", "{g, select, f {A CAT} m {A DOG}}"),
        ("{n, selectordinal, one {#st} other {#th}} day", None, "{n, selectordinal, one {#ST DAY} other {#TH DAY}}"),
        (
            "{n, plural, one {It''s # file} other {They''re # files}}",
            "de",
            "{n, plural, one {IT''S # FILE} other {THEY''RE # FILES}}",
        ),
    ],
)
def test_messages_of_icu(message, language, expected):
    read_message = IcuMessage(message, rule_of(language))
    translations = [
        Translated(re.sub(r"[^{}]+(?![^{}]*\})", lambda match: match[0].upper(), text)) for text in read_message.texts
    ]
    assert read_message.filled(translations, lambda text, result: result.text) == expected


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ("no argument", "it does not have branches"),
        ("{n}", "it does not have branches"),
        ("{n, plural, one {a}}", "the branch `other` is missing"),
        ("{n, plural, one {a} other {b}", "its branches are not written as `name {text}`"),
        ("{n, plural, one {a} other {b", "a branch is not closed"),
        ("{n, plural, one {a {b {c}}} other {b}}", "a { is not closed, or has braces inside"),
        ("{n, plural, one {a} other {b}}}", "a } closes nothing"),
        ("{n, plural, one {'{a long text'} other {b}}", "an apostrophe quotes a long text, or to the end"),
        ("No. #1 {n, plural, one {a} other {b}}", "a # stands outside of the plural's branches"),
        ("{n, plural, other {" * 9 + "a" + "}}" * 9, "its branches are more than 5 deep"),
        ("{n, select, a {a} b {b} other {c}} " * 5, "it has more than 60 combinations of branches"),
    ],
)
def test_refused_messages_of_icu(message, reason):
    with pytest.raises(NotIcuError, match=re.escape(reason)):
        IcuMessage(message, rule_of("de"))


@pytest.mark.parametrize(
    ("translation", "expected"),
    [
        ("l'{name} a # l'", "l\u2019{name} a # l\u2019"),  # a brace follows the end, too
        ("aujourd'hui # {name}", "aujourd'hui # {name}"),
    ],
)
def test_apostrophes_of_a_translation_quote_nothing(translation, expected):
    message = IcuMessage("{n, plural, one {# of {name}} other {# of {name}}}")
    hashed = translation.replace("#", "{#}")
    results = [Translated(hashed) for _ in message.texts]
    assert message.filled(results, lambda text, result: result.text) == (
        f"{{n, plural, one {{{expected}}} other {{{expected}}}}}"
    )


def test_quoted_braces_of_icu_in_xliff():
    content = """<?xml version="1.0"?><xliff version="1.2"><file><body><trans-unit id="1"><source>
{n, plural, one {'{x}' is a file} other {'{x}' are files}}</source></trans-unit></body></file></xliff>"""
    assert "{n, plural, one {'{x}' IS A FILE} other {'{x}' ARE FILES}}</target>" in translated(content)
