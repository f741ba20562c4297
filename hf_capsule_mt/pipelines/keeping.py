"""Tags, placeholders, URLs and numbers that a translation keeps, each as often as its source has it.

A placeholder, a URL or a number stays where the model copies it. If it does not, the sentence is translated again with
a stand-in that models copy more often, such as a name. If no stand-in is copied, the sentence is cut there, and its
parts are translated alone. Tags are taken out of the sentence. They come back around the words that depend most on the
words that they enclosed: those that become less probable when these are deleted.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

import torch

from capsule_mt.text.sentences import Span, split_sentences
from hf_capsule_mt.pipelines.results import KEPT, Segment, Translation
from hf_capsule_mt.pipelines.words import WORDS, is_mark

KEPT_PATTERNS = {
    "tags": r"<!--.*?-->|</?[A-Za-z][^<>]*>",
    "urls": r"(?:https?://|www\.)[^\s<>\"']*[\w/]|(?<![\w.+-])[\w.+-]{1,64}@[\w-]+(?:\.[\w-]+)+",
    "placeholders": r"\$?\{\{?[^{}\s]*\}\}?|%(?:\(\w+\)|\d+\$)?[sdif]\b|%\w+%",
    "numbers": r"(?<!\w)(?<!\d[.,:/\-])\d+(?:[.,:/\-]\d+)*(?!\w|[.,:/\-]\d)",
}
TAG = re.compile(r"<(/?)([\w:-]+)")
# a sentence ends at these
BLOCK_TAG = re.compile(
    r"</?(?:p|div|br|hr|h[1-6]|[uod]l|li|d[td]|table|thead|tbody|tr|t[dh]|pre|blockquote|section|article)\b", re.I
)
# the more a model has seen of them, the better it copies them
STAND_INS = {
    "name": ("Tom", "John", "Boston", "Paris", "London", "David", "Berlin", "Peter", "Anna", "Maria"),
    "year": ("2013", "1999", "2005", "1980", "2000", "1970"),
    "amount": ("20", "30", "10", "50", "40", "100", "15", "60", "5", "7"),
}
YEAR = re.compile(r"(?:1[5-9]|20)\d\d")
MOST_ATTEMPTS = 5
MOST_EVIDENCE = 8.0  # nats that one token may count for
EVIDENCE_OF_MARK = -0.01  # a mark goes with the words on both sides of it

# of a source, its segment, and N spans of the source: how many nats each of the T tokens after the start token of its
# translation loses without each of them [N, T]
Effects = Callable[[str, Segment, list[Span]], torch.Tensor]


class Item(str):
    """A part of a text that is kept; its `kind` is one of `KEPT`."""

    kind: str

    def __new__(cls, text: str, kind: str) -> "Item":
        item = super().__new__(cls, text)
        item.kind = kind
        return item

    @property
    def stand_ins(self) -> tuple[str, ...]:
        if self.kind != "numbers":
            return STAND_INS["name"]
        return STAND_INS["year" if YEAR.fullmatch(self) else "amount"]


def parts_of(text: str, kinds: Sequence[str]) -> list[str]:
    """Cut a text into strings and `Item`s of these kinds, which joined give the text."""
    pattern = "|".join(f"(?P<{kind}>{KEPT_PATTERNS[kind]})" for kind in KEPT if kind in kinds)
    parts: list[str] = []
    place = 0
    for match in re.finditer(pattern, text, re.DOTALL):
        parts += [text[place : match.start()], Item(match[0], str(match.lastgroup))]
        place = match.end()
    return [part for part in [*parts, text[place:]] if part]


def is_kind(part: str, kind: str) -> bool:
    return isinstance(part, Item) and part.kind == kind


def overlaps(span: Span, others: Iterable[Span]) -> bool:
    return any(span.start < end and start < span.end for start, end in others)


def partners_of(parts: Sequence[str]) -> dict[int, int]:
    """Return the index of the end tag of each start tag among the parts that has one."""
    opened: list[tuple[int, str]] = []
    partners = {}
    for number, part in enumerate(parts):
        tag = TAG.match(part) if is_kind(part, "tags") else None
        if tag is None or part.endswith("/>"):
            continue
        if not tag[1]:
            opened.append((number, tag[2].lower()))
            continue
        fitting = [place for place, (_, name) in enumerate(opened) if name == tag[2].lower()]
        if fitting:
            partners[opened[fitting[-1]][0]] = number
            del opened[fitting[-1] :]
    return partners


@dataclass
class Sentence:
    """The parts of a sentence, the stand-ins of some of them by their index, and what becomes of it."""

    parts: list[str]
    stand_ins: dict[int, str] = field(default_factory=dict)
    attempts: int = 0
    is_part: bool = False  # of a sentence that was cut
    text: str = ""
    translations: list[Translation] = field(default_factory=list)

    @property
    def source(self) -> str:
        """What the model translates: stand-ins, and no tags."""
        return "".join(text for _, text in self.written)

    @property
    def written(self) -> list[tuple[int, str]]:
        """The index and the text of each part but the tags."""
        parts = enumerate(self.parts)
        return [(n, self.stand_ins.get(n, part)) for n, part in parts if not is_kind(part, "tags")]

    def places(self, translation: str) -> tuple[dict[int, Span], list[int]]:
        """Return where the items, or their stand-ins, are in a translation, and which are not there as often."""
        of_text: dict[str, list[int]] = {}
        for number, text in self.written:
            if isinstance(self.parts[number], Item):
                of_text.setdefault(text, []).append(number)
        found: dict[int, Span] = {}
        lost: list[int] = []
        numbers: list[int] = []
        taken: list[Span] = []
        for text, wanted in sorted(of_text.items(), key=lambda item: -len(item[0])):  # one may begin as another does
            if is_kind(self.parts[wanted[0]], "numbers"):
                numbers += wanted
                continue
            before, after = ("(?<!\\w)" if text[0].isalnum() else "", "(?!\\w)" if text[-1].isalnum() else "")
            spans = [Span(*match.span()) for match in re.finditer(before + re.escape(text) + after, translation)]
            spans = [span for span in spans if not overlaps(span, taken)]
            taken += spans
            found.update(zip(wanted, spans, strict=False))
            lost += wanted if len(spans) != len(wanted) else []
        matches = re.finditer(KEPT_PATTERNS["numbers"], translation)
        free = [match for match in matches if not overlaps(Span(*match.span()), taken)]
        if numbers:
            count = Counter(match[0] for match in free)
            missing = [n for n in numbers if count[self.written_as(n)] != len(of_text[self.written_as(n)])]
            lost += missing or (numbers if len(free) != len(numbers) else [])  # one too many
        for number in numbers:
            place = next((match for match in free if match[0] == self.written_as(number)), None)
            if place is not None:
                free.remove(place)
                found[number] = Span(*place.span())
        return found, lost

    def written_as(self, number: int) -> str:
        return self.stand_ins.get(number, self.parts[number])

    def stand_in(self, lost: Iterable[int]) -> bool:
        """Give the lost items other stand-ins; return whether there are any left."""
        self.attempts += 1
        for number in lost:
            item = self.parts[number]
            if not isinstance(item, Item):
                raise TypeError(f"{item!r} is no item")
            first = item.stand_ins.index(self.stand_ins[number]) + 1 if number in self.stand_ins else 0
            free = next((one for one in item.stand_ins[first:] if one not in self.source), None)
            if free is None:
                return False
            self.stand_ins[number] = free
        return self.attempts < MOST_ATTEMPTS


def without_edges(parts: list[str]) -> list["str | Sentence"]:
    """Return a sentence between the tags and spaces at its ends, or nothing but its parts if it has no words."""
    first, last = 0, len(parts)
    partner = partners_of(parts)
    partner |= {end: start for start, end in partner.items()}

    def is_edge(number: int) -> bool:
        part = parts[number]
        return not part.strip() or (is_kind(part, "tags") and number not in partner)

    while first < last:
        if is_edge(first):
            first += 1
        elif is_edge(last - 1):
            last -= 1
        elif partner.get(first) == last - 1:
            first, last = first + 1, last - 1
        else:
            break
    inner = parts[first:last]
    if not any(not isinstance(part, Item) and any(map(str.isalpha, part)) for part in inner):
        return list(parts)
    before, after = "", ""
    if not isinstance(inner[0], Item):
        before, inner[0] = inner[0][: len(inner[0]) - len(inner[0].lstrip())], inner[0].lstrip()
    if not isinstance(inner[-1], Item):
        after, inner[-1] = inner[-1][len(inner[-1].rstrip()) :], inner[-1].rstrip()
    return [*parts[:first], before, Sentence(inner), after, *parts[last:]]


def cut_at(parts: list[str], places: Iterable[int]) -> list["str | Sentence"]:
    """Cut a sentence at some of its parts, which stay as they are."""
    found: list[str | Sentence] = []
    first = 0
    for place in [*sorted(places), len(parts)]:
        inner = parts[first:place]
        marks = re.match(r"\W*", inner[0]) if inner and not isinstance(inner[0], Item) else None
        if marks and marks.end() < len(inner[0]):
            found, inner = [*found, marks[0]], [inner[0][marks.end() :], *inner[1:]]
        found += [*without_edges(inner), *parts[place : place + 1]]
        first = place + 1
    for piece in found:
        if isinstance(piece, Sentence):
            piece.is_part = True
    return found


def joined(parts: Iterable["str | Sentence"]) -> str:
    """Join what a text or a sentence was cut into; items stay apart from the words around them."""
    text = ""
    for part in parts:
        new = part.text if isinstance(part, Sentence) else part
        is_word = isinstance(part, (Sentence, Item))
        text += " " if is_word and text[-1:].isalnum() and new[:1].isalnum() else ""
        text += new
    return text


class Layout:
    """Where the tags of a sentence go in its translation.

    `runs` are the spans of the source between the tags, those with words; `sources` are the words of the source,
    `words` those of the translation, where an item is one; `evidence` [runs, words] is how much each word depends on
    each run.
    """

    def __init__(self, sentence: Sentence, translation: str, items: Iterable[Span]) -> None:
        self.parts = sentence.parts
        self.partners = partners_of(self.parts)
        self.runs: list[Span] = []
        self.runs_before: dict[int, int] = {}  # of each tag
        begin = end = 0
        texts = dict(sentence.written)
        for number in range(len(self.parts) + 1):
            if number in texts:
                end += len(texts[number])
                continue
            if any(map(str.isalnum, sentence.source[begin:end])):
                self.runs.append(Span(begin, end))
            self.runs_before[number], begin = len(self.runs), end
        taken = list(items)
        words = [Span(*match.span()) for match in WORDS.finditer(translation)]
        self.words = sorted([*(word for word in words if not overlaps(word, taken)), *taken])
        self.sources = [
            Span(*match.span()) for match in WORDS.finditer(sentence.source) if any(map(str.isalnum, match[0]))
        ]
        self.is_mark = torch.tensor([is_mark(translation[start:end]) for start, end in self.words], dtype=torch.bool)
        self.evidence = torch.ones(len(self.runs), len(self.words)).masked_fill(self.is_mark, 0.0)

    def measure(self, effects: torch.Tensor, ends: list[int]) -> None:
        """Set the evidence from the effect of each of `sources` on each token [N, T], and where each token ends."""
        words_of_runs = [[n for n, word in enumerate(self.sources) if overlaps(word, [run])] for run in self.runs]
        of_run = [effects[words].amax(dim=0) for words in words_of_runs]
        effects = torch.stack(of_run).clamp(0.0, MOST_EVIDENCE)
        for number, (start, end) in enumerate(self.words):
            tokens = [t for t, at in enumerate(ends) if at > start and ([0, *ends][t]) < end]
            self.evidence[:, number] = effects[:, tokens].sum(dim=1) if not self.is_mark[number] else 0.0

    def tags(self) -> list[tuple[int, str]] | None:
        """Return each tag and before which character it goes, in their order; `None` if they do not fit."""
        paired = {*self.partners, *self.partners.values()}
        loose = [n for n, part in enumerate(self.parts) if is_kind(part, "tags") and n not in paired]
        names = [TAG.match(self.parts[n]) for n in loose]
        opened = {name[2].lower() for name in names if name and not name[1]}
        if opened & {name[2].lower() for name in names if name and name[1]}:
            return None  # they overlap: no order of words says which comes first
        if not self.words:
            return None
        least, found = 0, []
        for at, number in self._placed(range(len(self.parts)), 0, len(self.words)):
            least = max(least, at)
            found.append((least, self._spaced(number, least)))
        return found

    def _spaced(self, number: int, at: int) -> str:
        """Return a tag, with a space if it stands between two, and no end of anything."""
        tag, around = self.parts[number], self.parts[max(0, number - 1) : number + 2]
        alone = number not in self.partners and number not in self.partners.values()
        if not alone or len(around) < 3 or not (around[0][-1:].isspace() and around[2][:1].isspace()):
            return tag
        return f"{tag} " if any(at == word.start for word in self.words) else f" {tag}"

    def _placed(self, numbers: Iterable[int], first: int, last: int) -> list[tuple[int, int]]:
        """Return the character and the index of each tag among some parts, all of it in words first ... last - 1."""
        elements: list[tuple[int, int, int]] = []  # first word, start tag, the word after the last
        end = -1
        least = first  # points keep their order
        for number in numbers:
            if number <= end or not is_kind(self.parts[number], "tags"):
                continue
            end = self.partners.get(number, number)
            begin, stop = self._interval(self.runs_before[number], self.runs_before[end])
            if begin == stop:
                begin = stop = least = max(begin, least)
            elements.append((min(max(begin, first), last), number, min(stop, last)))
        found: list[tuple[int, int]] = []
        place = first
        for begin, number, stop in sorted(elements):
            begin = max(begin, place)  # what comes before is another tag's
            place, end = max(begin, stop), self.partners.get(number, number)
            if begin < stop:
                inner = self._placed(range(number + 1, end), begin, stop)
                found += [(self.words[begin].start, number), *inner, (self.words[stop - 1].end, end)]
            else:
                after = begin == last or (begin > 0 and self.parts[number].startswith("</"))
                at = self.words[begin - 1].end if after else self.words[begin].start
                found += [(at, n) for n in range(number, end + 1) if is_kind(self.parts[n], "tags")]
        return found

    def _point(self, run: int) -> int:
        """Return before which word what comes after some runs of the source begins."""
        spoken = (~self.is_mark).nonzero().flatten().tolist() or [0]
        if run == 0:
            return int(spoken[0])
        if run == len(self.runs):
            return int(spoken[-1]) + 1
        margin = self.evidence[:run].amax(dim=0) - self.evidence[run:].amax(dim=0)
        before = torch.cat([torch.zeros(1), margin.cumsum(dim=0)])
        return int((2 * before - before[-1]).argmax())

    def _interval(self, first: int, last: int) -> tuple[int, int]:
        """Return the first, and the one after the last, of the words in a row that depend most on some runs.

        Both are the same if there are no such runs, or if no word depends on them.
        """
        if first == last or not self.evidence[first:last].any():
            return self._point(first), self._point(first)
        inside = self.evidence[first:last].amax(dim=0)
        others = torch.cat([self.evidence[:first], self.evidence[last:]])
        outside = others.amax(dim=0) if len(others) else torch.full_like(inside, -1.0)
        margin = (inside - outside).masked_fill(self.is_mark, EVIDENCE_OF_MARK).tolist()
        strongest = int(inside.argmax())
        best, found, total, begin = 0.0, (strongest, strongest + 1), 0.0, 0
        for place, value in enumerate(margin):
            if total <= 0.0:
                total, begin = 0.0, place
            total += value
            if total > best:
                best, found = total, (begin, place + 1)
        return found


class Keeper:
    """Translates texts, and keeps the items of some kinds.

    Args:
        kinds: of `KEPT`.
        translate: translates sentences.
        effects: see `Effects`.
        ends: the end in the translation of each of the tokens of a segment after the start token.
        split: cut texts into sentences, by the rules of `language`.
    """

    def __init__(
        self,
        kinds: Sequence[str],
        translate: Callable[[list[str]], list[Translation]],
        effects: Effects,
        ends: Callable[[Segment], list[int]],
        *,
        split: bool = True,
        language: str | None = None,
    ) -> None:
        self.kinds, self.translate, self.effects, self.ends = kinds, translate, effects, ends
        self.split, self.language = split, language

    def __call__(self, texts: Iterable[str]) -> list[Translation]:
        """Translate texts. The `segments` of a translation have the place of their sentence in the text."""
        found = [self._sentences(text) for text in texts]
        self._translate([part for parts in found for part, _ in parts if isinstance(part, Sentence)])
        results = []
        for parts in found:
            text = joined(part for part, _ in parts)
            segments: list[Segment] = []
            total, num_tokens, is_scored = 0.0, 0, True
            for part, span in parts:
                for translation in part.translations if isinstance(part, Sentence) else ():
                    own = [replace(one, start=span.start, end=span.end) for one in translation.segments]
                    length = sum(len(one.target_ids) - 1 for one in own)
                    is_scored &= translation.score is not None or not own
                    total, num_tokens = total + (translation.score or 0.0) * length, num_tokens + length
                    segments += own
            score = total / num_tokens if num_tokens and is_scored else None
            results.append(Translation(text, score, None, tuple(segments)))
        return results

    def _sentences(self, text: str) -> list[tuple["Sentence | str", Span]]:
        """Cut a text into sentences and what stands between them, each with its place in the text."""
        blocks, place = [Span(0, 0)], 0
        for part in parts_of(text, self.kinds):
            end = place + len(part)
            if is_kind(part, "tags") and BLOCK_TAG.match(part):
                blocks.append(Span(end, end))
            else:
                blocks[-1] = Span(blocks[-1].start, end)
            place = end
        found: list[tuple[Sentence | str, Span]] = []
        place = 0
        for block in blocks:
            for span in self._spans(text, block):
                found.append((text[place : span.start], Span(place, span.start)))
                own = parts_of(text[span.start : span.end], self.kinds)
                found += ((part, span) for part in without_edges(own))
                place = span.end
        return [*found, (text[place:], Span(place, len(text)))]

    def _spans(self, text: str, block: Span) -> list[Span]:
        """Return the sentences of a part of a text, with the tags that touch them."""
        plain, place = "", block.start  # without tags, and with items that hold no marks
        places: list[int] = []  # of its characters in the text
        for part in parts_of(text[block.start : block.end], self.kinds):
            if not is_kind(part, "tags"):
                if isinstance(part, Item):
                    plain += ("1" if part.kind == "numbers" else "x") * len(part)
                else:
                    plain += part
                places += range(place, place + len(part))
            place += len(part)
        spans = split_sentences(plain, self.language) if self.split else [Span(0, len(plain))]
        found: list[Span] = []
        reached = block.start
        for start, end in spans:
            if not plain[start:end].strip():
                continue
            first, last = places[start], places[end - 1] + 1
            if "tags" in self.kinds:
                tags = f"(?:{KEPT_PATTERNS['tags']})"
                before = re.search(f"{tags}*$", text[reached:first])
                after = re.match(r"(?:</[^<>]*>)*", text[last : block.end])
                first -= len(before[0]) if before else 0
                last += len(after[0]) if after else 0
            reached = last
            found.append(Span(first, last))
        return found

    def _translate(self, sentences: list[Sentence]) -> None:
        """Translate sentences, and cut those in which something finds no place."""
        waiting, pieces = sentences, []
        while waiting:
            translations = self.translate([sentence.source for sentence in waiting])
            again = []
            for sentence, translation in zip(waiting, translations, strict=True):
                places, lost = sentence.places(translation.text)
                if not lost:
                    tags = self._tags(sentence, translation, places)
                    if tags is not None:
                        self._write(sentence, translation, places, tags)
                        continue
                    lost = [n for n, part in enumerate(sentence.parts) if is_kind(part, "tags")]
                elif sentence.stand_in(lost):
                    again.append(sentence)
                    continue
                pieces.append((sentence, cut_at(sentence.parts, lost)))
            waiting = again
        if not pieces:
            return
        self._translate([piece for _, own in pieces for piece in own if isinstance(piece, Sentence)])
        for sentence, own in pieces:
            sentence.text = joined(own)
            sentence.translations = [found for one in own if isinstance(one, Sentence) for found in one.translations]

    def _tags(
        self, sentence: Sentence, translation: Translation, places: dict[int, Span]
    ) -> list[tuple[int, str]] | None:
        """Return before which characters of a translation the tags go; `None` if they do not fit."""
        if not any(is_kind(part, "tags") for part in sentence.parts):
            return []
        layout = Layout(sentence, translation.text, places.values())
        if len(layout.runs) > 1 and layout.words:
            if len(translation.segments) != 1:
                return None
            (segment,) = translation.segments
            layout.measure(self.effects(sentence.source, segment, layout.sources), self.ends(segment))
        return layout.tags()

    def _write(
        self, sentence: Sentence, translation: Translation, places: dict[int, Span], tags: list[tuple[int, str]]
    ) -> None:
        """Put the items and the tags into a translation, and take out what the model has invented of their kinds."""
        text = translation.text
        edits = [(at, 0, order, at, tag) for order, (at, tag) in enumerate(tags)]
        edits += [(start, 1, 0, end, sentence.parts[n]) for n, (start, end) in places.items()]
        kinds = [kind for kind in self.kinds if kind != "numbers"]
        for match in re.finditer("|".join(KEPT_PATTERNS[kind] for kind in kinds), text) if kinds else ():
            if not overlaps(Span(*match.span()), places.values()):
                edits.append((match.start(), 1, 0, match.end(), ""))
        written, place = "", 0
        for start, _, _, end, new in sorted(edits):
            written += text[place:start] + new
            place = max(place, end)
        written += text[place:]
        if sentence.is_part and sentence.source[-1:].isalnum():
            written = re.sub(r"(?<=\w)[.!?]$", "", written)  # the model ends what it takes for a sentence
        sentence.text = written
        sentence.translations = [translation]
