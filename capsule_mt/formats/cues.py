"""The cues of SubRip (.srt) and WebVTT (.vtt): their times and texts, and everything between them."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

TIME = r"(?:(\d{1,6}):)?(\d{1,2}):(\d{2})[.,](\d{1,3})"
TIMES = re.compile(rf"\s*{TIME}\s*-->\s*{TIME}(.*)")
END_TIME = re.compile(r"(-->\s*)([\d:.,]+)")
TAG = re.compile(r"(</?[A-Za-z][^<>\n]*>)|(<[\d:.]+>|\{\\[^{}]*\})")
INNER_TIME = re.compile(r"<[\d:.]+>")
CLASS = re.compile(r"</?c(?:\.[^<>\s]*)?>")
MIN_ROLLING_CUES = 3
ROLLING_SHARE = 0.5  # of cues that repeat the end of the one before; a film has a few such cues, too
MAX_ROLLING_PAUSE = 0.1  # seconds between such cues


@dataclass
class Line:
    """A speaker's words in a cue, of one or more lines; `prefix` and `suffix` are copied, such as a dash or a tag.

    max_line: the characters of its longest line.
    """

    text: str
    prefix: str = ""
    suffix: str = ""
    num_lines: int = 1
    max_line: int = 0


@dataclass
class Cue:
    """A text shown from `start` to `end`, in seconds; `head` is everything before the text.

    A sentence continues only in cues of the same `track`.
    """

    head: str
    number: int
    start: float
    end: float
    raw: str
    track: str = ""
    speech: list[Line] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        return max(self.end - self.start, 0.001)  # a broken cue may end before it starts


Block = str | Cue


def srt_blocks(text: str) -> list[Block]:
    """Return the cues of SubRip, rolling ones merged, and all text between them.

    Its readers end a cue at the head of the next: blank lines may be missing between cues, and occur in their text.
    """
    blocks = list(_cues_of(_lines(text)))
    merged = _merged(blocks)
    if len(merged) < len(blocks):
        _renumber(merged)
    return merged


def vtt_blocks(text: str) -> list[Block]:
    """Return the cues of WebVTT, rolling ones merged, and all text between them.

    An empty line ends a cue; one of spaces does not.
    """
    parts = re.split(r"((?:^|\n)\n+)", text)
    return _merged([block for part in parts for block in _cues_of(_lines(part))])


def _lines(text: str) -> list[str]:
    return re.findall(r"[^\n]*\n|[^\n]+", text)


def _cues_of(lines: list[str]) -> Iterator[Block]:
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


def _merged(blocks: list[Block]) -> list[Block]:
    """Return the blocks with each line in one cue, if the cues roll as YouTube's do: each repeats the last line.

    A cue without a new line is dropped, and the one before it lasts until its end.
    """
    cues = [block for block in blocks if isinstance(block, Cue)]
    shown = [_shown_lines(cue.raw) for cue in cues]
    repeated = [0] * len(cues)  # lines at the start of each cue that the one before ends with
    for index in range(1, len(cues)):
        if abs(cues[index].start - cues[index - 1].end) <= MAX_ROLLING_PAUSE:
            repeated[index] = _overlap(shown[index - 1], shown[index])
    if len(cues) < MIN_ROLLING_CUES or sum(map(bool, repeated)) < ROLLING_SHARE * len(cues):
        return blocks
    merged: list[Block] = []
    last: Cue | None = None
    is_dropped, indices = False, iter(range(len(cues)))
    for block in blocks:
        if isinstance(block, str):
            if not (is_dropped and not block.strip()):
                merged.append(block)
            continue
        index = next(indices)
        is_dropped = 0 < repeated[index] == len(shown[index])
        if is_dropped and last is not None:
            _extend(last, block)
            continue
        if repeated[index]:
            lines = [line for line in block.raw.split("\n") if line.strip()]
            end = block.raw[len(block.raw.rstrip("\n")) :]
            block.raw = "\n".join(lines[repeated[index] :]) + end
        merged.append(block)
        last = block
    return merged


def _shown_lines(raw: str) -> list[str]:
    lines = (" ".join(TAG.sub("", line).split()) for line in raw.split("\n"))
    return [line for line in lines if line]


def _overlap(previous: list[str], lines: list[str]) -> int:
    """Return how many lines at the end of a cue the next one starts with."""
    lengths = range(min(len(previous), len(lines)), 0, -1)
    return next((length for length in lengths if previous[-length:] == lines[:length]), 0)


def _extend(cue: Cue, until: Cue) -> None:
    """Let a cue last until the end of a later one."""
    end = END_TIME.search(until.head)
    if end is not None:
        cue.end = until.end
        cue.head = END_TIME.sub(lambda match: match[1] + end[2], cue.head)


def _renumber(blocks: list[Block]) -> None:
    """Number the cues of SubRip from 1, as far as they have numbers."""
    cues = (block for block in blocks if isinstance(block, Cue))
    for number, cue in enumerate(cues, start=1):
        cue.head = re.sub(r"\A(\s*)\d+([ \t]*\n)", rf"\g<1>{number}\2", cue.head)


def without_inner_times(raw: str) -> str:
    """Drop the times inside a cue, at which its words appear: those of the translation are not known."""
    if INNER_TIME.search(raw) is None:
        return raw
    return CLASS.sub("", INNER_TIME.sub("", raw))
