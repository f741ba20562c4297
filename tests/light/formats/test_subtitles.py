"""Subtitles of other kinds than a film's .srt: SubStation Alpha, karaoke, YouTube's captions, and what can be read."""

import gzip
import re

import pytest

from capsule_mt.formats.reading import parse
from capsule_mt.formats.registry import format_of
from capsule_mt.formats.units import Translated
from tests.light.formats.files import ASS
from tests.light.formats.test_formats import read, texts, translated

YOUTUBE = """WEBVTT
Kind: captions
Language: en

00:00:00.160 --> 00:00:02.350 align:start position:0%
 
the old<00:00:00.400><c> man</c><00:00:00.800><c> buys</c>

00:00:02.350 --> 00:00:02.360 align:start position:0%
the old man buys
 

00:00:02.360 --> 00:00:03.990 align:start position:0%
the old man buys
a<00:00:02.600><c> red</c><00:00:02.800><c> hat.</c>

00:00:03.990 --> 00:00:04.000 align:start position:0%
a red hat.
 
"""  # noqa: W293  a line of one space is text


def events_of(content):
    pysubs2 = pytest.importorskip("pysubs2")
    text = content if isinstance(content, str) else content.decode()
    return list(pysubs2.SSAFile.from_string(text.replace("\r\n", "\n")))


def test_ass():
    assert [(unit.location, unit.text) for unit in read("film.ass").units] == [
        ("cues 1-2", "Der Mann, der <g1>gestern</g1> da war, schläft heute."),
        ("cue 3", "Café zum Hut"),
        ("cue 4", "Sternennacht"),
    ]
    original, after = events_of(ASS), events_of(translated("film.ass"))
    fields = ("start", "end", "style", "name", "layer", "marginl", "effect", "type")
    assert [[getattr(event, name) for name in fields] for event in after] == [
        [getattr(event, name) for name in fields] for event in original
    ]
    assert after[0].text == "{\\an8}{\\fad(9,9)}DER MANN, DER\\N{\\i1}GESTERN{\\i0} DA WAR,"
    assert after[1].text == "{a note, for the typesetter}SCHLÄFT HEUTE."
    assert after[2].text == "{\\pos(10,20)}CAFÉ ZUM HUT{\\r}"
    assert [event.text for event in after[4:]] == [event.text for event in original[4:]]  # drawing, comment, number


def test_the_words_of_karaoke_share_its_times():
    sung = events_of(translated("film.ass", translate=lambda text: "one three"))[3].text
    assert sung == "{\\k20}{\\k37}one {\\k63}three"
    times = [int(time) for time in re.findall(r"\\k(\d+)", sung)]
    assert sum(times) == sum(int(time) for time in re.findall(r"\\k(\d+)", events_of(ASS)[3].text))


def test_ass_of_windows_keeps_its_line_ends_and_escapes_braces():
    content = ASS.replace("\n", "\r\n").encode()
    written = translated("film.ass", content, lambda text: f"{text} {{x}}")
    assert written.count(b"\r\n") == written.count(b"\n") == content.count(b"\n")
    assert "heute. \\{x\\}" in written.decode()


@pytest.mark.parametrize("name", ["film.ass", "film.ssa"])
def test_ass_without_dialogue_and_what_is_not_ass(name):
    empty = b"[Script Info]\nTitle: x\n\n[Events]\n"
    assert read(name, empty).write([]) == empty
    with pytest.raises(ValueError, match=rf"^{name}: no line has times such as `Dialogue: 0,0:00:01"):
        read(name, b"Hello\n")


def test_the_rolling_lines_of_youtube_are_merged_without_inner_times():
    webvtt = pytest.importorskip("webvtt")
    assert texts("film.vtt", YOUTUBE.encode()) == ["the old man buys a red hat."]
    cues = list(webvtt.from_string(translated("film.vtt", YOUTUBE.encode()).decode()))
    assert [(cue.start, cue.end, cue.text) for cue in cues] == [
        ("00:00:00.160", "00:00:02.360", "THE OLD MAN BUYS"),
        ("00:00:02.360", "00:00:04.000", "A RED HAT."),
    ]


def test_rolling_lines_of_srt_are_merged_and_numbered():
    srt = pytest.importorskip("srt")
    lines = ["one two", "one two", "one two\nthree four", "three four", "three four\nfive."]
    content = "\n".join(
        f"{index + 1}\n00:00:0{index},000 --> 00:00:0{index + 1},000\n{text}\n" for index, text in enumerate(lines)
    )
    cues = list(srt.parse(translated("film.srt", content.encode()).decode()))
    assert [(cue.index, cue.start.seconds, cue.end.seconds, cue.content) for cue in cues] == [
        (1, 0, 2, "ONE TWO"),
        (2, 2, 4, "THREE FOUR"),
        (3, 4, 5, "FIVE."),
    ]


def test_a_line_that_a_film_repeats_stays():
    content = "".join(
        f"{index}\n00:00:0{index},000 --> 00:00:0{index + 1},000\n{text}\n\n"
        for index, text in enumerate(["No.", "No.", "Why?", "I said no."])
    )
    assert translated("film.srt", content.encode()).decode() == content.upper()


def test_a_line_of_spaces_does_not_end_a_cue_of_webvtt():
    webvtt = pytest.importorskip("webvtt")
    content = "WEBVTT\n\n00:01.000 --> 00:02.000\n \nHello you.\n\n00:02.000 --> 00:03.000\nBye.\n"
    assert texts("film.vtt", content.encode()) == ["Hello you.", "Bye."]
    cues = webvtt.from_string(translated("film.vtt", content.encode()).decode())
    assert [cue.text.strip() for cue in cues] == ["HELLO YOU.", "BYE."]


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["I thought you--", "- I know what."], ["I thought you--", "I know what."]),
        (["I thought you--", "<i>- I know what.</i>"], ["I thought you--", "I know what."]),
        (["I thought you--", "<i>I know what.</i>"], ["I thought you-- I know what."]),
        (["We went to the -", "- old market."], ["We went to the - old market."]),  # a Scandinavian continuation
    ],
)
def test_a_cue_that_begins_with_the_dash_of_a_speaker_begins_a_sentence(lines, expected):
    content = "".join(
        f"{index}\n00:00:0{index},000 --> 00:00:0{index + 1},000\n{line}\n\n" for index, line in enumerate(lines)
    )
    assert texts("film.srt", content.encode()) == expected


@pytest.mark.parametrize(
    "lines",
    [
        "- Yes.\n- [Knocks]",
        '- Yes.\n- "No".',
        "- Yes.\n-...no",
        "- <i>Yes.</i>\n- <i>No.</i>",
        "<i>- Yes.</i>\n<i>- No.</i>",
    ],
)
def test_a_dash_before_a_sound_a_quote_or_a_tag_is_a_speaker(lines):
    content = f"1\n00:00:01,000 --> 00:00:02,000\n{lines}\n"
    upper = content.upper().replace("<I>", "<i>").replace("</I>", "</i>")
    assert len(texts("film.srt", content.encode())) == 2
    assert translated("film.srt", content.encode()).decode() == upper


def test_cues_at_the_same_time_are_not_one_sentence():
    content = "1\n00:00:01,000 --> 00:00:02,000\nabove\n\n2\n00:00:01,000 --> 00:00:02,000\nbelow\n"
    assert texts("film.srt", content.encode()) == ["above", "below"]


def test_a_packed_file_stays_packed(monkeypatch):
    content = b"1\n00:00:01,000 --> 00:00:02,000\nOne.\n"
    parsed = parse(gzip.compress(content), format_of("film.srt.gz"), name="film.srt.gz")
    assert [unit.text for unit in parsed.units] == ["One."]
    assert gzip.decompress(parsed.write([Translated("Um.")])) == content.replace(b"One", b"Um")
    with pytest.raises(ValueError, match=r"^film\.srt\.gz: the gzip file is damaged"):
        parse(gzip.compress(content)[:-9], "srt", name="film.srt.gz")
    monkeypatch.setattr("capsule_mt.formats.reading.MAX_UNPACKED", 1000)
    with pytest.raises(ValueError, match=r"^film\.srt\.gz: unpacks to more than 1000 bytes"):
        parse(gzip.compress(b" " * 1_000_000), "srt", name="film.srt.gz")


SENTENCE = "The old man, whom nobody in the village had seen for many years, came back on a cold day in November."


@pytest.mark.parametrize("lines", [1, 2])
def test_a_line_is_not_longer_than_a_guide_allows(lines):
    content = "1\n00:00:01,000 --> 00:00:09,000\n" + "\n".join(["word"] * lines) + "\n"
    written = translated("film.srt", content.encode(), lambda text: SENTENCE).decode().split("\n")[2:]
    assert max(map(len, written)) <= 42
    assert " ".join(written).split() == SENTENCE.split()


def test_a_line_may_be_as_long_as_those_of_its_cue():
    content = f"1\n00:00:01,000 --> 00:00:09,000\n{'a' * 60}\n".encode()
    assert translated("film.srt", content, lambda text: "word " * 11 + "word").count(b"\n") == content.count(b"\n")


def test_a_cue_does_not_get_more_than_can_be_read_in_its_time():
    # a cut at the comma would give the first cue, of a second, 30 characters
    times = ["00:00:01,000 --> 00:00:02,000", "00:00:02,000 --> 00:00:06,000"]
    content = "".join(f"{number}\n{time}\nword\n\n" for number, time in enumerate(times, start=1))
    text = "When the long winter was over," + " he could finally sleep again" * 2
    written = translated("film.srt", content.encode(), lambda _: text).decode().split("\n\n")
    assert len(" ".join(written[0].split("\n")[2:])) <= 25


@pytest.mark.parametrize(("second", "are_titles"), [("The hat", True), ("and a hat", False)])
def test_titles_of_chapters_are_not_one_sentence(second, are_titles):
    lines = ["Prologue", second, "The old man", second, "Closing credits", second]
    cues = [f"00:0{index}.000 --> 00:0{index + 1}.000\n{line}\n" for index, line in enumerate(lines)]
    assert (texts("film.vtt", "\n".join(["WEBVTT\n", *cues]).encode()) == lines) == are_titles


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The Movie Team\nDirector: Bassam\nMusic: Jan", ["The Movie Team", "Director: Bassam", "Music: Jan"]),
        ("Emo: Cas\nMusic & Sound: Jan", ["Emo: Cas", "Music & Sound: Jan"]),
        ("The old man\nbuys\nA red hat.", ["The old man buys A red hat."]),
        ("He saw\nMartha.", ["He saw Martha."]),
    ],
)
def test_each_line_of_credits_is_a_text(text, expected):
    content = f"WEBVTT\n\n00:01.000 --> 00:02.000\n{text}\n"
    assert texts("film.vtt", content.encode()) == expected
    lines = text.count("\n") + 1
    assert translated("film.vtt", content.encode()).decode().strip().count("\n") == lines + 2


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[DOOR OPENS]\nJOHN: Where are\nyou?", ["[DOOR OPENS]", "JOHN: Where are you?"]),
        ("<i>[MUSIC]</i>\n(door\nslams)\nI am here.", ["[MUSIC]", "(door slams)", "I am here."]),
        ("THE OLD HOUSE\nHe lives here.", ["THE OLD HOUSE", "He lives here."]),
        ("He works for\nUNICEF (in Paris)\nand NATO.", ["He works for UNICEF (in Paris) and NATO."]),
    ],
)
def test_a_sound_a_speaker_and_a_sign_above_speech_are_texts_of_their_own(text, expected):
    content = f"WEBVTT\n\n00:01.000 --> 00:02.000\n{text}\n"
    assert texts("film.vtt", content.encode()) == expected
    assert translated("film.vtt", content.encode()).decode().strip().count("\n") == text.count("\n") + 3
