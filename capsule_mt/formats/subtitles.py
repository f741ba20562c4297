"""Subtitles: SubRip (.srt), WebVTT (.vtt) and SubStation Alpha (.ass, .ssa).

A sentence over several cues is one unit; its translation is cut again by the times of the cues.
"""

import html
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import NamedTuple

from capsule_mt.formats import ass
from capsule_mt.formats.cues import TAG, Block, Cue, Line, srt_blocks, vtt_blocks, without_inner_times
from capsule_mt.formats.format import Format
from capsule_mt.formats.markup import MARKUP, Markup, unescaped
from capsule_mt.formats.units import FormatError, Translated, Unit

# of a speaker: before a word, a sound, a quote, a song or an ellipsis
DASH = re.compile(
    rf"\s*[-\u2010-\u2014]\s*(?=(?:{TAG.pattern})*(?:[\w\[(\"'\u201c\u00ab\u266a\u266b\u00bf\u00a1\u2026]|\.\.))"
)
END = re.compile(r"[.!?\u2026\u3002\uff01\uff1f:;\u266a][\"'\u201d\u2019\u00bb)\]]*$")
# a sound or a song: not part of the sentences around it
CAPTION = re.compile(r"\[.*\]|\(.*\)|([\u266a\u266b#*]).*\1")
SPEAKER = re.compile(r"[^\W\d_][\w.'\u2019 ]{0,24}:\s")  # "MARTHA: ...", with a capital first
LABEL = re.compile(r"[^\W\d_][^:\n]{0,40}:\s\S")  # "Art Director: ..."
TOGGLE = re.compile(r"\{\\([ibus])([01])\}")  # italics, bold, underline or strike-out on or off, in SubStation Alpha
LAST_OVERRIDE = re.compile(r"\{\\[^{}]*\}\Z")
# Each cue is a text of its own if, of those that do not end a sentence, this share is followed by a capital. The share
# is 100 % in chapters, lyrics and descriptions, 8 % and 17 % in two films, whose sentences go on with a name or "I".
TITLES_SHARE = 0.8
MIN_TITLES = 4  # such cues
MIN_LIST_LINES = 3  # of a cue
MIN_TITLE = 5  # letters, all capitals, of a title or a sign
MAX_SIGN_LINES = 8  # of a sign or a sound
MAX_PAUSE = 2.0  # seconds between two cues of a sentence
MAX_SENTENCE_CUES = 8
MAX_LINES = 16  # of a translation in a cue, even if its source has more
MAX_TAGS = 16  # moved out of each end of a line
MAX_LINE = 42  # characters, the limit of most subtitling guides
CLAUSE_ENDS = tuple(".,;:!?\u3002\u3001")
CLAUSE_SHIFT = 0.12
MAX_SPEED = 20.0  # characters a second, the limit of most subtitling guides


class CueSyntax(NamedTuple):
    """How one format of subtitles is read and written.

    example: a line with times, for messages.
    blocks: cuts a file into its cues and the text between them.
    lines: returns the text of a cue, in lines that end with line feeds, from its raw text in the file.
    joined: returns the raw text for new lines, from the old raw text and these lines.
    unescaped, escaped: decode and encode special characters, such as "&amp;".
    max_line: characters after which a line is broken; `None` if the player breaks lines.
    title: how every such file begins, even one without cues.
    """

    example: str
    blocks: Callable[[str], list[Block]]
    lines: Callable[[str], str] = str
    joined: Callable[[str, str], str] = lambda raw, text: text + raw[len(raw.rstrip()) :]
    unescaped: Callable[[str], str] = str
    escaped: Callable[[str], str] = str
    max_line: int | None = MAX_LINE
    title: str | None = None


def _escaped(text: str) -> str:
    return html.escape(text, quote=False)


SRT_SYNTAX = CueSyntax("00:00:01,000 --> 00:00:02,500", srt_blocks)
VTT_SYNTAX = CueSyntax(
    "00:01.000 --> 00:02.500",
    vtt_blocks,
    without_inner_times,
    unescaped=unescaped,
    escaped=_escaped,
    title="WEBVTT",
)
ASS_SYNTAX = CueSyntax(
    "Dialogue: 0,0:00:01.00,0:00:02.50,Default,,0,0,0,,Text",
    ass.blocks,
    ass.lines,
    ass.joined,
    escaped=ass.escaped,
    max_line=None,
    title="[Script Info]",
)
LINES = f"a line has at most {MAX_LINE} characters, or as many as its source, if its words allow"
CUES = "sentences, also over several cues; sounds, speakers, signs and titles in capitals, each by itself"
SRT = Format(
    name="srt",
    suffixes=(".srt",),
    title="SubRip subtitles",
    reader=lambda file: SubtitleFile(file.text, SRT_SYNTAX, file.name),
    needs_line_feeds=True,
    translated=CUES,
    unchanged="numbers, times, speaker dashes, tags",
    limits=f"{LINES}; lines that automatic captions repeat are written once, in fewer cues",
    judges="srt",
)
VTT = Format(
    name="vtt",
    suffixes=(".vtt",),
    title="WebVTT subtitles",
    reader=lambda file: SubtitleFile(file.text, VTT_SYNTAX, file.name),
    needs_line_feeds=True,
    translated=CUES,
    unchanged="identifiers, times, settings, notes, styles, speaker dashes, tags",
    limits=f"{LINES}; lines that automatic captions repeat are written once, in fewer cues; times of single words are "
    "dropped",
    judges="webvtt-py",
)
ASS = Format(
    name="ass",
    suffixes=(".ass", ".ssa"),
    title="SubStation Alpha subtitles",
    reader=lambda file: SubtitleFile(file.text, ASS_SYNTAX, file.name),
    needs_line_feeds=True,
    translated=CUES,
    unchanged="times, styles, effects, override tags, drawings, comments, speaker dashes",
    limits="each word of karaoke gets a time in proportion to its length",
    judges="pysubs2",
)


@dataclass
class _Sentence:
    markup: Markup
    parts: list[tuple[Cue, Line]]


class SubtitleFile:
    """A film's subtitles. Numbers, times, settings, notes and styles stay, but for rolling cues, which are merged."""

    keep = MARKUP

    def __init__(self, text: str, syntax: CueSyntax, name: str = "subtitles") -> None:
        self._syntax = syntax
        self._ending = "\r\n" if "\r\n" in text else "\n"
        self._blocks = self._syntax.blocks(text.replace("\r\n", "\n"))
        cues = [block for block in self._blocks if isinstance(block, Cue)]
        is_empty = not text.strip() or (self._syntax.title is not None and text.startswith(self._syntax.title))
        if not cues and not is_empty:
            raise FormatError(f"{name}: no line has times such as `{syntax.example}`")
        for number, cue in enumerate(cues, start=1):
            cue.number = number
            cue.speech = _speech_lines(self._syntax.lines(cue.raw))
        self._sentences = _sentences(cues, self._syntax.unescaped)
        self.units = [Unit(sentence.markup.text, _location(sentence.parts)) for sentence in self._sentences]

    def write(self, translations: Sequence[Translated]) -> bytes:
        changed_numbers: set[int] = set()
        for sentence, translated in zip(self._sentences, translations, strict=True):
            if translated.text is None:
                continue
            changed_numbers |= {cue.number for cue, _ in sentence.parts}
            texts = [sentence.markup.filled(translated.text, self._syntax.escaped)]
            if len(sentence.parts) > 1:
                texts = _closed(_timed(texts[0], sentence.parts))
            for (_, line), text in zip(sentence.parts, texts, strict=True):
                max_line = self._syntax.max_line
                line.text = wrapped(text, line.num_lines, None if max_line is None else max(max_line, line.max_line))
        output = []
        for block in self._blocks:
            if isinstance(block, Cue):
                lines = "\n".join(line.prefix + line.text + line.suffix for line in block.speech)
                is_changed = block.number in changed_numbers
                output.append(block.head + (self._syntax.joined(block.raw, lines) if is_changed else block.raw))
            else:
                output.append(block)
        return "".join(output).replace("\n", self._ending).encode("utf-8")


def _speech_lines(raw: str) -> list[Line]:
    """Cut the text of a cue at the dashes and names of its speakers, and around sounds and signs."""
    speech: list[Line] = []
    lines = [line.strip() for line in raw.split("\n") if line.strip()]
    shown_lines = [TAG.sub("", line) for line in lines]
    is_list = _is_list(shown_lines)
    for text, shown in zip(lines, shown_lines, strict=True):
        if speech and not is_list and not DASH.match(shown) and not _begins_speech(speech[-1], text):
            speech[-1].text += f" {text}"
            speech[-1].num_lines += 1
        else:
            speech.append(Line(text))
            _strip_dash(speech[-1])
        speech[-1].max_line = max(speech[-1].max_line, len(_shown(text)))
    for line in speech:
        line.text = re.sub(r"</([ibu])> <\1>", " ", line.text)  # italics of two lines are one element
        _strip_tags(line)
        _strip_dash(line)  # "<i>- Yes.</i>"
        _strip_tags(line)  # "- <i>Yes.</i>"
    return speech


def _begins_speech(line: Line, text: str) -> bool:
    """Return whether a line of a cue begins a new text: a sound, a speaker, or a text below a sign."""
    last, text = TAG.sub("", line.text) if line.num_lines <= MAX_SIGN_LINES else "", TAG.sub("", text)
    is_below_sign = _is_title(last) and text[:1].isupper() and not _is_title(text)
    return bool(CAPTION.fullmatch(last) or CAPTION.fullmatch(text)) or _is_speaker(text) or is_below_sign


def _is_list(lines: list[str]) -> bool:
    """Return whether each line of a cue is a text, as in credits; the lines of a sentence begin in lowercase."""
    if len(lines) > 1 and all(map(LABEL.match, lines)):
        return True
    has_end = any(END.search(line) for line in lines[:-1])
    return len(lines) >= MIN_LIST_LINES and not has_end and not any(line[:1].islower() for line in lines)


def _strip_dash(line: Line) -> None:
    """Move the dash of a speaker into the prefix."""
    dash = DASH.match(line.text)
    if dash is not None:
        line.prefix, line.text = line.prefix + dash[0], line.text[dash.end() :]


def _strip_tags(line: Line) -> None:
    """Move the tags that precede, follow or enclose a whole line into its prefix and suffix."""
    _strip_first_tags(line)
    for _ in range(MAX_TAGS):
        tag = LAST_OVERRIDE.search(line.text)
        if tag is None or (tag[0].endswith("0}") and f"{tag[0][:-2]}1}}" in line.text):
            return
        line.text, line.suffix = line.text[: tag.start()], tag[0] + line.suffix


def _strip_first_tags(line: Line) -> None:
    for _ in range(MAX_TAGS):
        tag = TAG.match(line.text)
        if tag is None:
            return
        element = re.match(r"<([A-Za-z]+)", tag[0])
        content, closing_tag = line.text[tag.end() :], ""
        if element is not None:
            closing_tags = list(re.finditer(rf"</{element[1]}[^<>]*>", content))
            if len(closing_tags) > 1 or (closing_tags and content[closing_tags[0].end() :].strip()):
                return
            closing_tag = closing_tags[0][0] if closing_tags else ""
            content = content[: closing_tags[0].start()] if closing_tags else content
        line.prefix, line.text, line.suffix = line.prefix + tag[0], content, closing_tag + line.suffix


def _sentences(cues: list[Cue], unescaped: Callable[[str], str]) -> list[_Sentence]:
    """Join the lines of consecutive cues up to the end of a sentence."""
    sentences: list[_Sentence] = []
    group: list[tuple[Cue, Line]] = []

    def end_sentence() -> None:
        markup = Markup()
        for index, (_, line) in enumerate(group):
            _add(markup, line.text if index == 0 else f" {line.text}", unescaped)
        if group and markup.has_words:
            sentences.append(_Sentence(markup, list(group)))
        group.clear()

    are_titles = _are_titles(cues)
    for cue in cues:
        if group and (are_titles or _is_apart(group[-1][0], cue) or len(group) >= MAX_SENTENCE_CUES):
            end_sentence()
        for line in cue.speech:
            text = TAG.sub("", line.text).strip()
            if group and (group[-1][0] is cue or _is_new_start(group[-1][1], line, text)):
                end_sentence()
            group.append((cue, line))
            if END.search(text) or CAPTION.fullmatch(text):
                end_sentence()
    end_sentence()
    return sentences


def _are_titles(cues: list[Cue]) -> bool:
    """Return whether each cue is a text of its own, although it does not end a sentence."""
    texts = [TAG.sub("", cue.speech[-1].text).strip() for cue in cues if cue.speech]
    starts = [TAG.sub("", cue.speech[0].text).strip()[:1] for cue in cues if cue.speech]
    following = [start for text, start in zip(texts, starts[1:], strict=False) if text and not END.search(text)]
    return len(following) >= MIN_TITLES and sum(map(str.isupper, following)) >= TITLES_SHARE * len(following)


def _is_apart(last: Cue, cue: Cue) -> bool:
    return last.track != cue.track or cue.start <= last.start or cue.start - last.end > MAX_PAUSE


def _is_new_start(last: Line, line: Line, text: str) -> bool:
    """Return whether a line cannot continue the one before it: a sound, a speaker, or the start or end of a title.

    text: of the line, without tags.
    """
    is_caption = CAPTION.fullmatch(text) is not None
    has_dash = TAG.sub("", line.prefix).strip() != ""
    is_speaker = _is_speaker(text) or (has_dash and not text[:1].islower())  # "- and so on" may continue a sentence
    return is_caption or is_speaker or _is_title(TAG.sub("", last.text)) != _is_title(text)


def _is_speaker(text: str) -> bool:
    return text[:1].isupper() and SPEAKER.match(text) is not None


def _is_title(text: str) -> bool:
    return text.isupper() and sum(map(str.isalpha, text)) >= MIN_TITLE


def _add(markup: Markup, text: str, unescaped: Callable[[str], str]) -> None:
    offset = 0
    for match in TAG.finditer(text):
        markup.add_text(unescaped(text[offset : match.start()]))
        toggle = TOGGLE.fullmatch(match[0])
        if toggle is None:
            markup.add_tag(match[0])
        elif toggle[2] == "1":
            markup.open(match[0], toggle[1])
        else:
            markup.close(match[0], toggle[1])
        offset = match.end()
    markup.add_text(unescaped(text[offset:]))


def _timed(text: str, parts: list[tuple[Cue, Line]]) -> list[str]:
    """Cut a text by the times of its cues: at clause ends, unless a cue then has too much text to read in its time."""
    seconds = [cue.seconds for cue, _ in parts]
    readable = [max(MAX_SPEED * cue.seconds, len(_shown(line.text))) for cue, line in parts]

    def excess(texts: list[str]) -> float:
        return sum(max(0.0, len(_shown(text)) - limit) for text, limit in zip(texts, readable, strict=True))

    return min(cut(text, seconds), cut(text, seconds, clause_shift=0.0), key=excess)


def cut(text: str, weights: Sequence[float], clause_shift: float = CLAUSE_SHIFT) -> list[str]:
    """Cut a text at spaces, or else at CJK marks, into parts in proportion to weights, preferably at clause ends.

    clause_shift: the share of the text by which a cut may move to reach the end of a clause.
    """
    spaces = _spaces(text) or [offset for offset in range(1, len(text)) if text[offset - 1] in "\u3001\u3002\uff0c"]
    parts = [_shown(text[start:end]) for start, end in pairwise([0, *spaces])]
    ends_clause = {offset for offset, part in zip(spaces, parts, strict=True) if part.endswith(CLAUSE_ENDS)}
    shown_lengths = dict(zip(spaces, accumulate(map(len, parts)), strict=True))
    total, length, weight_so_far, cuts = sum(weights), len(_shown(text)), 0.0, [0]
    for number, weight in enumerate(weights[:-1], start=1):
        weight_so_far += weight
        target_length = length * weight_so_far / total
        candidates = [offset for offset in spaces if offset > cuts[-1]]
        num_later_cuts = len(weights) - 1 - number
        candidates = candidates[: len(candidates) - num_later_cuts] or candidates[:1]  # leave a space for each
        if not candidates:
            cuts.append(len(text))
            continue

        def distance(offset: int, target_length: float = target_length) -> float:
            return abs(shown_lengths[offset] - target_length) - clause_shift * length * (offset in ends_clause)

        cuts.append(min(candidates, key=distance))
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
    return unescaped(TAG.sub("", text))


def wrapped(text: str, num_lines: int, max_line: int | None) -> str:
    """Break a text at spaces into `num_lines` lines, or up to `MAX_LINES` if one has over `max_line` characters."""
    if num_lines == 1 and (max_line is None or len(_shown(text)) <= max_line):
        return text
    if max_line is None:
        return "\n".join(filter(None, cut(text, [1.0] * min(num_lines, MAX_LINES))))
    broken_lines = list[str]()
    for count in range(min(max(num_lines, 2), MAX_LINES), MAX_LINES + 1):
        for clause_shift in (CLAUSE_SHIFT, 0.0):
            broken_lines = list(filter(None, cut(text, [1.0] * count, clause_shift)))
            if max(map(len, map(_shown, broken_lines)), default=0) <= max_line:
                return "\n".join(broken_lines)
        if len(broken_lines) < count:  # the text has too few spaces for more lines
            break
    return "\n".join(broken_lines)


def _closed(parts: list[str]) -> list[str]:
    """Close the tags that a part leaves open, and reopen them in the next part."""
    closed_parts, open_tags = [], list[str]()
    for part in parts:
        reopening_tags = "".join(open_tags)
        for match in TAG.finditer(part):
            if match[0].startswith("</"):
                del open_tags[-1:]
            elif match[1]:
                open_tags.append(match[0])
        closing_tags = "".join(f"</{re.split(r'[ .<>]', tag[1:])[0]}>" for tag in reversed(open_tags))
        closed_parts.append(f"{reopening_tags}{part}{closing_tags}")
    return closed_parts


def _location(parts: list[tuple[Cue, Line]]) -> str:
    first, last = parts[0][0].number, parts[-1][0].number
    return f"cue {first}" if first == last else f"cues {first}-{last}"
