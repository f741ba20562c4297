"""The marks inside a paragraph of Markdown: emphasis, links, images, code, mathematics and tags."""

import html
import re
from collections.abc import Callable

from capsule_mt.formats.markup import Markup, Raw

# the target of a link, with its title: (address "title"), (<address> 'title')
TITLE = r"(?:\"[^\"]*\"|'[^']*'|\([^()]*\))"
TARGET = (
    r"\(\s*(?:(?:(?:<[^<>\n]*>|[^()\s<][^()\s]*(?:\([^()\s]*\)[^()\s]*)*)"
    rf"(?:\s+{TITLE})?|{TITLE})\s*)?\)"
)
# tags of Liquid, Jinja, Hugo and Vue; comments and expressions of MDX; attribute lists (kramdown, attr_list)
TEMPLATE = (
    r"\{\{.{0,200}?\}\}|\{%.{0,300}?%\}|\{#.{0,200}?#\}|\{/\*.{0,300}?\*/\}"
    r"|\{[A-Za-z_][\w.]{0,80}(?:\([^(){}]{0,80}\))?\}|\{:?[ \t]*[.#][\w\\-][^{}]{0,200}\}"
)
# of MathJax: \( x^2 \) and \\( x^2 \\); in `\(see below\)`, the backslashes only escape
MATH = r"\\\\\(.{1,200}?\\\\\)|\\\((?=[^()\n]{0,200}(?:[\^_={}]|\\[A-Za-z])).{1,200}?\\\)"
ATTRIBUTES = r"\{:?[ \t]*[.#\w-][^{}\n]{0,200}\}"  # of a link or a span: {target=_blank}
INLINE = re.compile(
    rf"(?P<math>{MATH})"
    r"|(?P<escape>\\[!-/:-@\[-`{-~])"
    r"|(?P<code>(?:\{[\w:+-]{1,40}\})?(?<!`)(?P<ticks>`+)(?!`).+?(?<!`)(?P=ticks)(?!`))"
    r"|(?P<fixed><(?:https?|mailto):[^\s<>]+>|\$\$[^$]+\$\$|\$[^$\s](?:[^$]*[^$\s])?\$(?!\d)|:[a-z_]+:(?![\w])"
    + rf"|{TEMPLATE})"
    r"|(?P<tag></?[A-Za-z][^<>]*>|<![A-Za-z][^<>]*>|<\?[^<>]*\?>|<!--(?:(?!<!--).)*?-->)"
    r"|(?P<note>\[\^[^\[\]\s]+\])"
    r"|(?P<image>!\[(?P<alt>[^\[\]]*)\](?P<source>(?:" + TARGET + r"|\[[^\]]*\])" + f"(?:{ATTRIBUTES})?))"
    r"|(?P<link>\[(?=[^\]]))"
    r"|(?P<closed>\](?:(?:" + TARGET + r"|\[[^\]]*\])" + f"(?:{ATTRIBUTES})?|{ATTRIBUTES})?)"
    r"|(?P<mark>\*{1,3}|_{1,3}|~~)",
    re.DOTALL,
)
KINDS = ("math", "escape", "code", "fixed", "tag", "note", "image", "link", "closed", "mark")  # the groups of `INLINE`
LINK = "["
MAX_LABEL = 999  # characters, as CommonMark says
IN_PAGE = re.compile(r"(\]\(\s*#)([^\s)]+)(.*)", re.DOTALL)
ENTITY = re.compile(r"&#?\w{1,40};")
SPECIAL = re.compile(r"([\\`*_\[\]<>])")
# what begins a list, a heading or a quote at the beginning of a paragraph: a sign, or a number before its full stop
BLOCK_START = re.compile(r"([-+*](?=[ \t])|#{1,6}(?=[ \t])|>)|\d{1,9}(?=[.)][ \t])")


class References:
    """What links of a page refer to.

    labels: the normalised labels of its definitions.
    anchor: maps a heading's anchor in the source to its anchor after translation.
    """

    def __init__(self, labels: frozenset[str] = frozenset(), anchor: Callable[[str], str] = str) -> None:
        self.labels, self.anchor = labels, anchor

    def closing(self, text: str, start: int, match: "re.Match[str]") -> Raw | None:
        """Return the end of a link whose text begins at `start`; `None` if it is not a link.

        A link whose text is its label, `[text]` or `[text][]`, becomes `[translation][text]` to keep the label.
        """
        raw = match[0]
        if raw == "]" or raw.startswith("][]"):
            label = text[start : min(match.start(), start + MAX_LABEL + 1)]
            if len(label) > MAX_LABEL or normalised(label) not in self.labels:
                return None
            return f"][{label}]{raw.removeprefix('][]').removeprefix(']')}"
        in_page = IN_PAGE.fullmatch(raw)
        if in_page is None:
            return raw
        opening, anchor, end = in_page.groups()
        return lambda: f"{opening}{self.anchor(anchor)}{end}"


def normalised(label: str) -> str:
    """Return the form in which labels are compared."""
    return " ".join(label.split()).casefold()


def add_inline(markup: Markup, text: str, references: References) -> None:
    """Add a text with its marks of emphasis, links and code."""
    tokens = list(INLINE.finditer(text))
    partners = _partners(text, tokens, references)
    # in ***a** b*, `**` and `*` each close a part of `***`: such marks cannot be paired whole
    has_parts = any(len(match["mark"] or "") > 1 and index not in partners for index, match in enumerate(tokens))
    offset = 0
    for index, match in enumerate(tokens):
        kind, raw = next(name for name in KINDS if match[name] is not None), match[0]
        markup.add_text(unescaped(text[offset : match.start()]))
        offset = match.end()
        if kind == "escape" and raw != r"\|":  # a bare | would end a table cell
            markup.add_text(raw[1:])
        elif kind in ("math", "escape", "code", "fixed"):
            markup.add_fixed(raw)
        elif kind in ("tag", "note"):
            markup.add_tag(raw)
        elif kind == "image":
            _add_image(markup, match)
        elif index not in partners:
            (markup.add_point if kind == "mark" and has_parts else markup.add_text)(raw)
        elif kind == "mark":
            if partners[index] > index:
                markup.open(raw, raw, vanishes=True)  # four asterisks would be read as text
            else:
                markup.close(raw, raw)
        elif partners[index] > index:
            markup.open(raw, "link")
        else:
            closing = references.closing(text, tokens[partners[index]].end(), match)
            markup.close(raw if closing is None else closing, "link")
    markup.add_text(unescaped(text[offset:]))


def _add_image(markup: Markup, match: "re.Match[str]") -> None:
    alt, source = match["alt"], match["source"]
    if not any(map(str.isalpha, alt)):
        markup.add_point(match[0])
        return
    markup.open("![", "image")
    markup.add_text(alt)
    markup.close(f"][{alt}]{source[2:]}" if source.startswith("[]") else f"]{source}", "image")


def _partners(text: str, tokens: list["re.Match[str]"], references: References) -> dict[int, int]:
    """Return the index of each mark's partner, in both directions; elements that cross have none."""
    opened: list[int] = []
    open_indices: dict[str, list[int]] = {}  # the indices in `opened` of each kind of mark
    partners: dict[int, int] = {}

    def open_mark(token_index: int, kind: str) -> None:
        open_indices.setdefault(kind, []).append(len(opened))
        opened.append(token_index)

    def forget(index: int) -> None:
        """Drop the marks in `opened` from an index on."""
        for indices in open_indices.values():
            while indices and indices[-1] >= index:
                indices.pop()
        del opened[index:]

    for token_index, match in enumerate(tokens):
        previous, following = text[match.start() - 1 : match.start()], text[match.end() : match.end() + 1]
        if match["link"] is not None:
            open_mark(token_index, LINK)
        elif match["closed"] is not None:
            if links := open_indices.get(LINK):
                start = opened[links[-1]]
                if references.closing(text, tokens[start].end(), match) is not None:
                    partners[start], partners[token_index] = token_index, start
                forget(links[-1])
        elif match["mark"] is not None:
            is_underscore = match[0][0] == "_"  # which marks nothing inside a word, as in snake_case
            in_word = is_underscore and previous.isalnum() and following.isalnum()
            index = next(reversed(open_indices.get(match[0], ())), None)
            link = next(reversed(open_indices.get(LINK, ())), -1)
            if index is not None and index > link and not previous.isspace() and not in_word:
                start = opened[index]
                partners[start], partners[token_index] = token_index, start
                forget(index)
            elif following and not following.isspace() and not in_word and not (is_underscore and previous.isalnum()):
                open_mark(token_index, match[0])
    return partners


def unescaped(text: str) -> str:
    """Decode what Markdown names; unlike in HTML, a name needs its semicolon, and `?a=1&copy=2` is an address."""
    return ENTITY.sub(lambda match: html.unescape(match[0]), text)


def escaped(text: str) -> str:
    """Escape signs that would be read as marks."""
    text = re.sub(r"&(?=#?\w{1,40};)", "&amp;", text)
    if not SPECIAL.search(text):
        return text
    text = re.sub(r"\\(?=[!-/:-@\[-`{-~])", r"\\\\", text)  # else it would escape the sign after it
    written = re.sub(r"(?<!\w)([*_`])(?=\S)|(?<=\S)([*`])(?!\w)", r"\\\g<0>", text)
    # an opening bracket makes a link only if one of these follows the next closing bracket
    parts = written.split("]")
    is_link = [part.startswith(("(", "[", ":")) for part in parts[1:]] + [False]
    written = "]".join(
        part.replace("[", r"\[") if linked else part for part, linked in zip(parts, is_link, strict=True)
    )
    return re.sub(r"<(?=[A-Za-z/!?])", r"\\<", written)


def escaped_start(text: str) -> str:
    """Escape what would begin a list, a heading or a quote at the beginning of a paragraph."""
    match = BLOCK_START.match(text)
    if match is None:
        return text
    offset = 0 if match[1] else match.end()
    return f"{text[:offset]}\\{text[offset:]}"
