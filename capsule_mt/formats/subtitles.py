"""Subtitles, SubRip (.srt) and WebVTT (.vtt): a sentence over several cues is one unit, cut again by their times."""

import html
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise

from capsule_mt.formats.markup import MARKUP, Markup
from capsule_mt.formats.units import FormatError, Translated, Unit

TIME = r"(?:(\d{1,6}):)?(\d{1,2}):(\d{2})[.,](\d{1,3})"
TIMES = re.compile(rf"\s*{TIME}\s*-->\s*{TIME}(.*)")
TAG = re.compile(r"(</?[A-Za-z][^<>\n]*>)|(<[\d:.]+>|\{\\[^{}]*\})")
DASH = re.compile(r"\s*[-\u2010-\u2014]\s*(?=\w)")
END = re.compile(r"[.!?\u2026\u3002\uff01\uff1f:;\u266a][\"'\u201d\u2019\u00bb)\]]*$")
# a sound, a song: no part of the sentences around it
CAPTION = re.compile(r"\[.*\]|\(.*\)|([\u266a\u266b#*]).*\1")
SPEAKER = re.compile(r"[^\W\d_][\w.'\u2019 ]{0,24}:\s")  # "MARTHA: ..."; beginning with a capital
LEAST_TITLE = 5  # letters in capitals, of a title or a sign
LONGEST_PAUSE = 2.0  # seconds inside a sentence
LONGEST_SENTENCE = 8  # cues
MAX_LINES = 16  # of a cue that are broken as they were, and tags before a line that are taken off
LONGEST_LINE = 42  # characters, as most guides for subtitles have it
CLAUSE_ENDS = tuple(".,;:!?\u3002\u3001")
NEAR = 0.12  # of a translation: how far a cut moves to the end of a clause


@dataclass
class Line:
    """What one speaker says in a cue, in a line or several; what is `before` and `after` it stays, such as a dash."""

    text: str
    before: str = ""
    after: str = ""
    lines: int = 1


@dataclass
class Cue:
    """What is shown from `start` to `end`, in seconds. `head` is everything above its text."""

    head: str
    number: int
    start: float
    end: float
    raw: str
    said: list[Line] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        return max(self.end - self.start, 0.001)


@dataclass
class _Sentence:
    markup: Markup
    parts: list[tuple[Cue, Line]]


class SubtitleFile:
    """A film's subtitles. Numbers, times, settings, notes and styles stay as they are."""

    keep = MARKUP

    def __init__(self, text: str, is_vtt: bool, name: str = "subtitles") -> None:
        self.is_vtt = is_vtt
        self._ending = "\r\n" if "\r\n" in text else "\n"
        self._blocks = _blocks(text.replace("\r\n", "\n"), is_vtt)
        cues = [block for block in self._blocks if isinstance(block, Cue)]
        if not cues and text.strip():
            raise FormatError(f"{name}: no line has times such as `00:00:01,000 --> 00:00:02,500`")
        for number, cue in enumerate(cues, start=1):
            cue.number = number
            cue.said = _said(cue.raw)
        self._sentences = list(_sentences(cues, is_vtt))
        self.units = [Unit(one.markup.text, _place(one.parts)) for one in self._sentences]

    def write(self, translations: Sequence[Translated]) -> bytes:
        changed: set[int] = set()
        for sentence, translated in zip(self._sentences, translations, strict=True):
            if translated.text is None:
                continue
            changed |= {cue.number for cue, _ in sentence.parts}
            texts = [sentence.markup.filled(translated.text, _escaped if self.is_vtt else str)]
            if len(sentence.parts) > 1:
                texts = _closed(cut(texts[0], [cue.seconds for cue, _ in sentence.parts]))
            for (_, line), text in zip(sentence.parts, texts, strict=True):
                line.text = wrapped(text, line.lines)
        written = []
        for block in self._blocks:
            if isinstance(block, Cue):
                lines = [line.before + line.text + line.after for line in block.said]
                end = block.raw[len(block.raw.rstrip()) :]
                written.append(block.head + ("\n".join(lines) + end if block.number in changed else block.raw))
            else:
                written.append(block)
        return "".join(written).replace("\n", self._ending).encode("utf-8")


def _blocks(text: str, is_vtt: bool) -> "list[str | Cue]":
    """Return the cues of a file and all text between them.

    Programs that read SubRip end a cue where the next one begins: blank lines may be missing between two cues, and
    stand in the text of one. In WebVTT, a blank line ends a cue.
    """
    parts = re.split(r"((?:^|\n)[ \t]*(?:\n[ \t]*)*\n)", text) if is_vtt else [text]
    return [block for part in parts for block in _cues_of(re.findall(r"[^\n]*\n|[^\n]+", part))]


def _cues_of(lines: list[str]) -> "Iterator[str | Cue]":
    """Yield the text before the first cue, if there is any, and the cues."""
    matches = {index: match for index, line in enumerate(lines) if (match := TIMES.match(line)) is not None}
    heads = _heads(lines, list(matches))
    if before := "".join(lines[: heads[0] if heads else None]):
        yield before
    for (head, end_of_cue), (index, match) in zip(pairwise([*heads, len(lines)]), matches.items(), strict=True):
        start, end = (_seconds(match.groups()[at : at + 4]) for at in (0, 4))
        yield Cue("".join(lines[head : index + 1]), 0, start, end, "".join(lines[index + 1 : end_of_cue]))


def _heads(lines: list[str], times: list[int]) -> list[int]:
    """Return where cues begin: at what names them above their times, or else at the times."""
    names = [_name_above(lines, index, before) for index, before in zip(times, [-1, *times], strict=False)]
    if names and names[0] is None:  # cues have no numbers: a number above other times is a text
        return times
    return [index if name is None else name for index, name in zip(times, names, strict=True)]


def _name_above(lines: list[str], times: int, before: int) -> int | None:
    """Return the line with the number of a cue, or with any name that follows a blank line; `None` without one."""
    above = times - 1
    while above > before and not lines[above].strip():
        above -= 1
    if above == before:
        return None
    follows_blank = above == times - 1 and (above == 0 or not lines[above - 1].strip())
    return above if lines[above].strip().isdecimal() or follows_blank else None


def _seconds(groups: Sequence[str | None]) -> float:
    hours, minutes, seconds, fraction = (group or "0" for group in groups)
    return int(hours) * 3600 + int(minutes) * 60 + int(seconds) + int(fraction.ljust(3, "0")) / 1000


def _said(raw: str) -> list[Line]:
    """Cut the lines of a cue at the dashes of speakers."""
    said: list[Line] = []
    lines = [line.strip() for line in raw.split("\n") if line.strip()]
    speakers = [line for line in lines if DASH.match(TAG.sub("", line))]
    for line in lines:
        dash = DASH.match(line) if speakers else None
        if said and dash is None:
            said[-1].text += f" {line}"
            said[-1].lines += 1
        else:
            mark = dash[0] if dash else ""
            said.append(Line(line[len(mark) :], mark))
    for one in said:
        one.text = re.sub(r"</([ibu])> <\1>", " ", one.text)
        _set_apart(one)
    return said


def _set_apart(line: Line) -> None:
    """Take the tags off that enclose all of a line, or stand before it."""
    for _ in range(MAX_LINES):
        tag = TAG.match(line.text)
        if tag is None:
            return
        name = re.match(r"<([A-Za-z]+)", tag[0])
        rest, end = line.text[tag.end() :], ""
        if name is not None:
            ends = list(re.finditer(rf"</{name[1]}[^>]*>", rest))
            if len(ends) > 1 or (ends and rest[ends[0].end() :].strip()):
                return
            end = ends[0][0] if ends else ""
            rest = rest[: ends[0].start()] if ends else rest
        line.before, line.text, line.after = line.before + tag[0], rest, end + line.after


def _sentences(cues: list[Cue], is_vtt: bool) -> "list[_Sentence]":
    """Join what is said in cues that follow each other until a sentence ends."""
    found: list[_Sentence] = []
    group: list[tuple[Cue, Line]] = []

    def flush() -> None:
        markup = Markup()
        for place, (_, line) in enumerate(group):
            _add(markup, line.text if place == 0 else f" {line.text}", is_vtt)
        if group and markup.has_words:
            found.append(_Sentence(markup, list(group)))
        group.clear()

    for cue in cues:
        if group and (cue.start - group[-1][0].end > LONGEST_PAUSE or len(group) >= LONGEST_SENTENCE):
            flush()
        for line in cue.said:
            said = TAG.sub("", line.text).strip()
            if group and (DASH.match(line.before) or group[-1][0] is cue or _begins(group[-1][1], said)):
                flush()
            group.append((cue, line))
            if END.search(said) or CAPTION.fullmatch(said):
                flush()
    flush()
    return found


def _begins(last: Line, said: str) -> bool:
    """Return whether something new begins after a line: a sound, a speaker, a title in capitals and its end."""
    is_speaker = said[:1].isupper() and SPEAKER.match(said)
    return bool(CAPTION.fullmatch(said) or is_speaker) or _is_title(TAG.sub("", last.text)) != _is_title(said)


def _is_title(text: str) -> bool:
    return text.isupper() and sum(map(str.isalpha, text)) >= LEAST_TITLE


def _add(markup: Markup, text: str, is_vtt: bool) -> None:
    place = 0
    for match in TAG.finditer(text):
        markup.add_text(html.unescape(text[place : match.start()]) if is_vtt else text[place : match.start()])
        markup.add_tag(match[0])
        place = match.end()
    markup.add_text(html.unescape(text[place:]) if is_vtt else text[place:])


def cut(text: str, weights: Sequence[float]) -> list[str]:
    """Cut a text at spaces into parts that look about as long as these weights, rather at the end of a clause."""
    spaces = _spaces(text) or [place for place in range(1, len(text)) if text[place - 1] in "\u3001\u3002\uff0c"]
    parts = [_shown(text[start:end]) for start, end in pairwise([0, *spaces])]
    ends_clause = {place for place, part in zip(spaces, parts, strict=True) if part.endswith(CLAUSE_ENDS)}
    shown = dict(zip(spaces, accumulate(map(len, parts)), strict=True))
    total, length, reached, cuts = sum(weights), len(_shown(text)), 0.0, [0]
    for number, weight in enumerate(weights[:-1], start=1):
        reached += weight
        aim = length * reached / total
        free = [place for place in spaces if place > cuts[-1]]
        free = free[: len(free) - (len(weights) - 1 - number)] or free[:1]  # leave one for each cut to come
        if not free:
            cuts.append(len(text))
            continue

        def distance(place: int, aim: float = aim) -> float:
            return abs(shown[place] - aim) - NEAR * length * (place in ends_clause)

        cuts.append(min(free, key=distance))
    return [text[start:end].strip() for start, end in zip(cuts, [*cuts[1:], len(text)], strict=True)]


def _spaces(text: str) -> list[int]:
    """Return where the spaces of a text begin, but for those in tags."""
    found, begin = [], 0
    for part in text.split("<"):
        end_of_tag = part.rfind(">")
        found += [begin + match.start() for match in re.finditer(r"\s+", part) if match.end() > end_of_tag]
        begin += len(part) + 1
    return found


def _shown(text: str) -> str:
    return html.unescape(TAG.sub("", text))


def wrapped(text: str, lines: int) -> str:
    """Break a text into so many lines, or into two where it is too long for one."""
    if lines == 1 and len(_shown(text)) <= LONGEST_LINE:
        return text
    return "\n".join(line for line in cut(text, [1.0] * min(max(lines, 2), MAX_LINES)) if line)


def _closed(parts: list[str]) -> list[str]:
    """Close in each part the tags that it leaves open, and open them again in the next."""
    closed, opened = [], list[str]()
    for part in parts:
        before = "".join(opened)
        for match in TAG.finditer(part):
            if match[0].startswith("</"):
                del opened[-1:]
            elif match[1]:
                opened.append(match[0])
        after = "".join(f"</{re.split(r'[ .<>]', tag[1:])[0]}>" for tag in reversed(opened))
        closed.append(f"{before}{part}{after}")
    return closed


def _place(parts: list[tuple[Cue, Line]]) -> str:
    first, last = parts[0][0].number, parts[-1][0].number
    return f"cue {first}" if first == last else f"cues {first}-{last}"


def _escaped(text: str) -> str:
    return html.escape(text, quote=False)
