"""Subtitles: SubRip (.srt) and WebVTT (.vtt).

A sentence over several cues is one unit; its translation is cut again by the times of the cues.
"""

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
# a sound or a song: not part of the sentences around it
CAPTION = re.compile(r"\[.*\]|\(.*\)|([\u266a\u266b#*]).*\1")
SPEAKER = re.compile(r"[^\W\d_][\w.'\u2019 ]{0,24}:\s")  # "MARTHA: ...", with a capital first
MIN_TITLE = 5  # letters, all capitals, of a title or a sign
MAX_PAUSE = 2.0  # seconds between two cues of a sentence
MAX_SENTENCE_CUES = 8
MAX_LINES = 16  # into which a translation is broken, however many its cue had
MAX_TAGS = 16  # that are moved out of a line
MAX_LINE = 42  # characters, the limit of most subtitling guides
CLAUSE_ENDS = tuple(".,;:!?\u3002\u3001")
CLAUSE_SHIFT = 0.12  # share of a translation by which a cut may move to reach the end of a clause


@dataclass
class Line:
    """A speaker's words in a cue, of one or more lines; `prefix` and `suffix` are copied, such as a dash or a tag."""

    text: str
    prefix: str = ""
    suffix: str = ""
    lines: int = 1


@dataclass
class Cue:
    """A text shown from `start` to `end`, in seconds; `head` are its lines above the text."""

    head: str
    number: int
    start: float
    end: float
    raw: str
    speech: list[Line] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        return max(self.end - self.start, 0.001)  # a broken cue may end before it starts


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
            cue.speech = _speech_lines(cue.raw)
        self._sentences = list(_sentences(cues, is_vtt))
        self.units = [Unit(sentence.markup.text, _location(sentence.parts)) for sentence in self._sentences]

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
                lines = [line.prefix + line.text + line.suffix for line in block.speech]
                end = block.raw[len(block.raw.rstrip()) :]
                written.append(block.head + ("\n".join(lines) + end if block.number in changed else block.raw))
            else:
                written.append(block)
        return "".join(written).replace("\n", self._ending).encode("utf-8")


def _blocks(text: str, is_vtt: bool) -> "list[str | Cue]":
    """Return the cues of a file and all text between them.

    Readers of SubRip end a cue at the head of the next: blank lines may be missing between cues, and occur in their
    text. In WebVTT, a blank line ends a cue.
    """
    parts = re.split(r"((?:^|\n)[ \t]*(?:\n[ \t]*)*\n)", text) if is_vtt else [text]
    return [block for part in parts for block in _cues_of(re.findall(r"[^\n]*\n|[^\n]+", part))]


def _cues_of(lines: list[str]) -> "Iterator[str | Cue]":
    """Yield the text before the first cue, if any, and the cues."""
    matches = {index: match for index, line in enumerate(lines) if (match := TIMES.match(line)) is not None}
    heads = _heads(lines, list(matches))
    if preamble := "".join(lines[: heads[0] if heads else None]):
        yield preamble
    for (head, end_of_cue), (index, match) in zip(pairwise([*heads, len(lines)]), matches.items(), strict=True):
        start, end = (_seconds(match.groups()[group : group + 4]) for group in (0, 4))
        yield Cue("".join(lines[head : index + 1]), 0, start, end, "".join(lines[index + 1 : end_of_cue]))


def _heads(lines: list[str], times: list[int]) -> list[int]:
    """Return the first line of each cue: the one with its name above its times, or else the times."""
    names = [_name_above(lines, index, previous) for index, previous in zip(times, [-1, *times], strict=False)]
    if names and names[0] is None:  # cues without numbers: a number above later times is text
        return times
    return [index if name is None else name for index, name in zip(times, names, strict=True)]


def _name_above(lines: list[str], times: int, previous_times: int) -> int | None:
    """Return the index of the line with a cue's number, or with any name that follows a blank line, or `None`."""
    above = times - 1
    while above > previous_times and not lines[above].strip():
        above -= 1
    if above == previous_times:
        return None
    follows_blank = above == times - 1 and (above == 0 or not lines[above - 1].strip())
    return above if lines[above].strip().isdecimal() or follows_blank else None


def _seconds(groups: Sequence[str | None]) -> float:
    hours, minutes, seconds, fraction = (group or "0" for group in groups)
    return int(hours) * 3600 + int(minutes) * 60 + int(seconds) + int(fraction.ljust(3, "0")) / 1000


def _speech_lines(raw: str) -> list[Line]:
    """Cut the text of a cue at the dashes of its speakers."""
    speech: list[Line] = []
    lines = [line.strip() for line in raw.split("\n") if line.strip()]
    speakers = [line for line in lines if DASH.match(TAG.sub("", line))]
    for text in lines:
        dash = DASH.match(text) if speakers else None
        if speech and dash is None:
            speech[-1].text += f" {text}"
            speech[-1].lines += 1
        else:
            mark = dash[0] if dash else ""
            speech.append(Line(text[len(mark) :], mark))
    for line in speech:
        line.text = re.sub(r"</([ibu])> <\1>", " ", line.text)  # italics of two lines are one element
        _strip_tags(line)
    return speech


def _strip_tags(line: Line) -> None:
    """Move the tags that precede or enclose a whole line into its prefix and suffix."""
    for _ in range(MAX_TAGS):
        tag = TAG.match(line.text)
        if tag is None:
            return
        name = re.match(r"<([A-Za-z]+)", tag[0])
        content, end = line.text[tag.end() :], ""
        if name is not None:
            ends = list(re.finditer(rf"</{name[1]}[^>]*>", content))
            if len(ends) > 1 or (ends and content[ends[0].end() :].strip()):
                return
            end = ends[0][0] if ends else ""
            content = content[: ends[0].start()] if ends else content
        line.prefix, line.text, line.suffix = line.prefix + tag[0], content, end + line.suffix


def _sentences(cues: list[Cue], is_vtt: bool) -> "list[_Sentence]":
    """Join the lines of consecutive cues up to the end of a sentence."""
    sentences: list[_Sentence] = []
    group: list[tuple[Cue, Line]] = []

    def end_sentence() -> None:
        markup = Markup()
        for index, (_, line) in enumerate(group):
            _add(markup, line.text if index == 0 else f" {line.text}", is_vtt)
        if group and markup.has_words:
            sentences.append(_Sentence(markup, list(group)))
        group.clear()

    for cue in cues:
        if group and (cue.start - group[-1][0].end > MAX_PAUSE or len(group) >= MAX_SENTENCE_CUES):
            end_sentence()
        for line in cue.speech:
            text = TAG.sub("", line.text).strip()
            if group and (DASH.match(line.prefix) or group[-1][0] is cue or _is_new_start(group[-1][1], text)):
                end_sentence()
            group.append((cue, line))
            if END.search(text) or CAPTION.fullmatch(text):
                end_sentence()
    end_sentence()
    return sentences


def _is_new_start(last: Line, text: str) -> bool:
    """Return whether a text cannot continue the line before it: a sound, a speaker, or the start or end of a title."""
    is_speaker = text[:1].isupper() and SPEAKER.match(text)
    return bool(CAPTION.fullmatch(text) or is_speaker) or _is_title(TAG.sub("", last.text)) != _is_title(text)


def _is_title(text: str) -> bool:
    return text.isupper() and sum(map(str.isalpha, text)) >= MIN_TITLE


def _add(markup: Markup, text: str, is_vtt: bool) -> None:
    offset = 0
    for match in TAG.finditer(text):
        markup.add_text(html.unescape(text[offset : match.start()]) if is_vtt else text[offset : match.start()])
        markup.add_tag(match[0])
        offset = match.end()
    markup.add_text(html.unescape(text[offset:]) if is_vtt else text[offset:])


def cut(text: str, weights: Sequence[float]) -> list[str]:
    """Cut a text at spaces into parts in proportion to these weights, preferably at clause ends."""
    spaces = _spaces(text) or [offset for offset in range(1, len(text)) if text[offset - 1] in "\u3001\u3002\uff0c"]
    parts = [_shown(text[start:end]) for start, end in pairwise([0, *spaces])]
    ends_clause = {offset for offset, part in zip(spaces, parts, strict=True) if part.endswith(CLAUSE_ENDS)}
    shown_lengths = dict(zip(spaces, accumulate(map(len, parts)), strict=True))
    total, length, weight_so_far, cuts = sum(weights), len(_shown(text)), 0.0, [0]
    for number, weight in enumerate(weights[:-1], start=1):
        weight_so_far += weight
        aim = length * weight_so_far / total
        free = [offset for offset in spaces if offset > cuts[-1]]
        free = free[: len(free) - (len(weights) - 1 - number)] or free[:1]  # leave a space for each later cut
        if not free:
            cuts.append(len(text))
            continue

        def distance(offset: int, aim: float = aim) -> float:
            return abs(shown_lengths[offset] - aim) - CLAUSE_SHIFT * length * (offset in ends_clause)

        cuts.append(min(free, key=distance))
    return [text[start:end].strip() for start, end in zip(cuts, [*cuts[1:], len(text)], strict=True)]


def _spaces(text: str) -> list[int]:
    """Return the offsets of the spaces of a text, without those in tags."""
    offsets, start = [], 0
    for part in text.split("<"):
        end_of_tag = part.rfind(">")
        offsets += [start + match.start() for match in re.finditer(r"\s+", part) if match.end() > end_of_tag]
        start += len(part) + 1
    return offsets


def _shown(text: str) -> str:
    return html.unescape(TAG.sub("", text))


def wrapped(text: str, lines: int) -> str:
    """Break a text into this number of lines, or into two if it is too long for one line."""
    if lines == 1 and len(_shown(text)) <= MAX_LINE:
        return text
    return "\n".join(line for line in cut(text, [1.0] * min(max(lines, 2), MAX_LINES)) if line)


def _closed(parts: list[str]) -> list[str]:
    """Close the tags that a part leaves open, and reopen them in the next part."""
    closed, opened = [], list[str]()
    for part in parts:
        reopened = "".join(opened)
        for match in TAG.finditer(part):
            if match[0].startswith("</"):
                del opened[-1:]
            elif match[1]:
                opened.append(match[0])
        ends = "".join(f"</{re.split(r'[ .<>]', tag[1:])[0]}>" for tag in reversed(opened))
        closed.append(f"{reopened}{part}{ends}")
    return closed


def _location(parts: list[tuple[Cue, Line]]) -> str:
    first, last = parts[0][0].number, parts[-1][0].number
    return f"cue {first}" if first == last else f"cues {first}-{last}"


def _escaped(text: str) -> str:
    return html.escape(text, quote=False)
