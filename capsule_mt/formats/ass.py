"""The dialogue of SubStation Alpha (.ass, .ssa): events with override tags, karaoke and drawings."""

import re
from itertools import accumulate

from capsule_mt.formats.cues import TAG, Block, Cue

SECTION = re.compile(r"\s*\[([^\]]*)\]")
FORMAT_LINE = re.compile(r"\s*Format:\s*(.*)", re.IGNORECASE)
DIALOGUE = re.compile(r"(\s*Dialogue:\s*)(.*)", re.IGNORECASE)
# those of a file without a `Format:` line
FIELDS: tuple[str, ...] = ("layer", "start", "end", "style", "name", "marginl", "marginr", "marginv", "effect", "text")
TIME = re.compile(r"(\d{1,3}):(\d{1,2}):(\d{1,2})[.:,](\d{1,3})")
COMMENT = re.compile(r"\{[^{}\\]*\}")
DRAWING = re.compile(r"\{[^{}]*\\p[1-9]")
FIXED_POSITION = re.compile(r"\{[^{}]*\\(?:pos|move|clip|org)\b")  # a sign: no part of the speech around it
KARAOKE = re.compile(r"\\([kK][fo]?)(\d{1,6})")
OVERRIDES = re.compile(r"\{[^{}]*\}")


def blocks(text: str) -> list[Block]:
    """Return the events that show text as cues, and all lines between them. Drawings are not text."""
    parts = list[Block]()
    section, fields = "", FIELDS
    for line in re.findall(r"[^\n]*\n|[^\n]+", text):
        if title := SECTION.match(line):
            section = title[1].strip().lower()
        elif section == "events" and (names := FORMAT_LINE.match(line)):
            fields = tuple(name.strip().lower() for name in names[1].split(","))
        cue = _cue(line, fields) if section == "events" else None
        parts.append(line if cue is None else cue)
    return parts


def _cue(line: str, fields: tuple[str, ...]) -> Cue | None:
    """Return the cue of a line of dialogue, or `None` if it does not show a text at times that can be read."""
    dialogue = DIALOGUE.match(line)
    values = dialogue[2].split(",", len(fields) - 1) if dialogue else []
    if dialogue is None or len(values) < len(fields) or fields[-1] != "text":
        return None
    event = dict(zip(fields, values, strict=True))
    start, end = TIME.match(event.get("start", "").strip()), TIME.match(event.get("end", "").strip())
    text = line[line.rindex(values[-1]) :] if values[-1] else ""
    if start is None or end is None or not text or DRAWING.search(text):
        return None
    head = line[: len(line) - len(text)]
    is_apart = FIXED_POSITION.search(text) or KARAOKE.search(text)
    track = f"{event.get('style')} {start[0] if is_apart else ''} {text if is_apart else ''}"
    return Cue(head, 0, _seconds(start), _seconds(end), text, track)


def _seconds(time: "re.Match[str]") -> float:
    hours, minutes, seconds, fraction = time.groups()
    return int(hours) * 3600 + int(minutes) * 60 + int(seconds) + int(fraction) / 10 ** len(fraction)


def lines(raw: str) -> str:
    """Return a text with line feeds, without comments and the times of karaoke."""
    text = OVERRIDES.sub(lambda tag: KARAOKE.sub("", tag[0]), COMMENT.sub("", raw)).replace("{}", "")
    return text.replace("\\N", "\n").replace("\\n", " ").replace("\\h", "\xa0")


def joined(raw: str, text: str) -> str:
    """Return a new text as SubStation Alpha writes it, with the comments and the karaoke of the old one."""
    times = _karaoke_times(raw)
    sung = _sung(text, *times) if times else text
    written = sung.replace("\xa0", "\\h").replace("\n", "\\N")
    return "".join(COMMENT.findall(raw)) + written + raw[len(raw.rstrip("\n")) :]


def _karaoke_times(raw: str) -> tuple[str, int, int] | None:
    """Return the tag of the syllables, the time before the first one, and that of all others, in centiseconds."""
    lead = total = 0
    tag = ""
    for part in re.split(r"(?=\{[^{}]*\\[kK][fo]?\d)", raw):
        time = sum(int(syllable[2]) for syllable in KARAOKE.finditer(part))
        tag = tag or next((syllable[1] for syllable in KARAOKE.finditer(part)), "")
        if total == 0 and not OVERRIDES.sub("", part).strip():
            lead += time
        else:
            total += time
    return (tag, lead, total) if tag else None


def _sung(text: str, tag: str, lead: int, total: int) -> str:
    """Return a text with the time of each word, in proportion to its length."""
    words = re.findall(r"(?:\{[^{}]*\}|\S)+\s*", text)
    lengths = [len(TAG.sub("", word).strip()) for word in words]
    ends = [total * length // max(sum(lengths), 1) for length in accumulate(lengths)]
    timed = (f"{{\\{tag}{end - start}}}{word}" for word, start, end in zip(words, [0, *ends], ends, strict=False))
    return (f"{{\\{tag}{lead}}}" if lead else "") + "".join(timed)


def escaped(text: str) -> str:
    """Escape braces, which would begin a tag."""
    return text.replace("{", "\\{").replace("}", "\\}")
