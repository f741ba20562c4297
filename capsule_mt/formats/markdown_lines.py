"""Lines of Markdown with a meaning of their own, as GitHub and documentation sites write them.

Alerts, containers, admonitions, tabs, attributes, templates, MDX and mathematics.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

QUOTES = r"[ \t]{0,3}>(?:[ \t]{0,4}>)*[ \t]?"
INDENT = rf"(?:{QUOTES})?[ \t]*"
NAME = r"[A-Za-z][\w-]*"
# directives of MyST whose content and first line are text
TEXT_DIRECTIVES = (
    "admonition|attention|caution|danger|dropdown|error|hint|important|note|seealso|tip|warning|card|tab-item|tab-set"
    "|grid|grid-item|grid-item-card|margin|sidebar|topic|epigraph|versionadded|versionchanged|deprecated"
)
# what precedes a title, and where that ends: at the end of the line, at a bracket, or at a quotation mark
TITLED_LINES = (
    # > [!NOTE] Title: an alert of GitHub, or a callout of Obsidian
    (re.compile(rf"{QUOTES}[ \t]*\[![\w-]+\][+-]?[ \t]*"), ""),
    # :::note[Title]{#id} and ::: tip Title: containers of Docusaurus, VitePress, Pandoc
    (re.compile(rf"{INDENT}:{{2,}}[ \t]*{NAME}(?:\{{[^{{}}\n]*\}})?\["), "]"),
    (re.compile(rf"{INDENT}:{{3,}}[ \t]*{NAME}(?![\w{{\[-])[ \t]*"), ""),
    # :::{admonition} Title: of MyST
    (re.compile(rf"{INDENT}(?::{{3,}}|`{{3,}}|~{{3,}})[ \t]*\{{(?:{TEXT_DIRECTIVES})\}}[ \t]*"), ""),
    # !!! note "Title", ??? note "Title", === "Title": of MkDocs
    (re.compile(rf"{INDENT}(?:!!!|\?\?\?\+?)[ \t]+(?=[\w\"])"), '"'),
    (re.compile(rf"{INDENT}===[!+]*[ \t]+(?=\")"), '"'),
    # /// note | Title: blocks of PyMdown
    (re.compile(rf"{INDENT}/{{3,}}[ \t]*(?!(?:html|apply|settings|define)\b){NAME}[ \t]*\|[ \t]*"), ""),
)
COPIED_LINES = (
    re.compile(rf"{INDENT}(?::{{3,}}|/{{3,}})[^\n]*"),  # the ends of containers, and containers without a title
    re.compile(rf"{INDENT}\{{[:#.%][^{{}}\n]*\}}[ \t]*"),  # the attributes of a block, {{: .note }}
    re.compile(rf"{INDENT}\{{%.*%\}}[ \t]*"),  # statements of Liquid
    re.compile(rf"{INDENT}\{{\{{[<%].*[>%]\}}\}}[ \t]*"),  # shortcodes of Hugo
    re.compile(r"[ \t]*\[\[?_?TOC_?\]?\][ \t]*", re.IGNORECASE),
    re.compile(r"\([\w:. -]{1,100}\)=[ \t]*"),  # the target of a reference in MyST
    re.compile(r"[ \t]{0,3}\*\[[^\[\]\n]+\]:.*"),  # an abbreviation
    re.compile(r"[ \t]*\{/\*.*\*/\}[ \t]*"),  # a comment of MDX
)
# the options of a container, in the lines below it; in MkDocs, those lines are text
OPTIONS = (
    (re.compile(r"[ \t>]*(?::{3,}|`{3,}|~{3,})[ \t]*[{\w]"), re.compile(r"[ \t>]*:[\w-]+:(?:[ \t].*)?")),
    (re.compile(r"[ \t>]*/{3,}[ \t]*\w"), re.compile(r"[ \t>]* {4}[\w-]+:[ \t].*")),
)
# a fence of MyST whose content is text
TEXT_FENCE = re.compile(rf"[ \t>]*(`{{3,}}|~{{3,}})[ \t]*\{{(?:div|{TEXT_DIRECTIVES})\}}")
# directives of MyST whose content is not text
RAW_DIRECTIVE = re.compile(
    r"[ \t>]*(:{3,})[ \t]*\{(?:code|code-block|code-cell|sourcecode|literalinclude|include|math|mermaid|graphviz"
    r"|toctree|csv-table|image|eval-rst|raw|bibliography|autodoc|automodule|autoclass|autofunction|doctest|parsed-literal)\}"
)
RAW_TAG = re.compile(r"[ \t>]*\{%-?[ \t]*(highlight|raw|comment|mermaid|math|verbatim)\b")
MODULE = re.compile(
    r"import\s+(?:[\w*{].*\sfrom\s+)?[\"']|import\s*(?:\w+\s*,\s*)?\{"
    r"|export\s+(?:(?:const|let|var)\s+[\w{\[][^=]*="
    r"|default\s+(?:[({<]|\w+[;(]?[ \t]*$|(?:async\s+)?(?:function|class)\b)"
    r"|(?:async\s+)?function\b[\s*]*\w+\s*\(|class\s+\w+[^{]*\{|\{|\*)"
)
MATH_BEGIN = re.compile(r"[ \t>]*(\$\$|\\{1,2}\[|\\begin\{(\w+)\*?\})")
MATH_SIGN = re.compile(r"[\\^_={}]")
MATH_ENDS = {"$$": "$$", "\\[": "\\]", "\\\\[": "\\\\]"}
COMPONENT = re.compile(r"[ \t>]*</?[A-Z][\w.]*")
MAX_TAG_LINES = 100
MAX_FORMULA_LINES = 200


class Title(NamedTuple):
    """Where a line has a title, which ends at the mark `end_mark` if there is one."""

    start: int
    end: int
    end_mark: str


def title_of(line: str) -> Title | None:
    """Return the title of a line that opens a block, which may be empty, or `None` for other lines."""
    for pattern, end_mark in TITLED_LINES:
        match = pattern.match(line)
        if match is None:
            continue
        start = match.end()
        if not end_mark:
            text = line.rstrip()
            end = text.rfind("{", start) if text.endswith("}") else len(text)
            return Title(start, max(start, len(line[: max(start, end)].rstrip())), end_mark)
        if end_mark == '"':
            first = line.find('"', start)
            return (
                Title(first + 1, max(first + 1, line.rfind('"')), end_mark) if first >= 0 else Title(start, start, "")
            )
        end = line.find(end_mark, start)
        return Title(start, end, end_mark) if end >= 0 else None
    return None


def is_copied(line: str) -> bool:
    return any(pattern.fullmatch(line) for pattern in COPIED_LINES)


def is_special(line: str) -> bool:
    """Return whether a line cannot continue a paragraph."""
    return is_copied(line) or title_of(line) is not None


class RawBlocks:
    """Finds the blocks of a page that are not text."""

    def __init__(self, lines: Sequence[str]) -> None:
        self._lines = lines
        self._missing: set[str] = set()  # ends that no further line has: to search again would take quadratic time

    def end(self, first: int) -> int | None:
        """Return the index of the line after a block, or `None` if none begins at this line."""
        line = self._lines[first]
        if directive := RAW_DIRECTIVE.match(line):
            return self._line_after(first + 1, rf"[ \t>]*{directive[1]}[ \t]*$")
        if tag := RAW_TAG.match(line):
            end = rf".*?\{{%-?[ \t]*end{tag[1]}\b"
            return None if re.match(end, line) else self._line_after(first + 1, end)
        if math := MATH_BEGIN.match(line):
            return self._end_of_math(first, math)
        if MODULE.match(line):
            indices = range(first, len(self._lines))
            return next((index for index in indices if not self._lines[index].strip()), len(self._lines))
        return _end_of_component(self._lines, first) if COMPONENT.match(line) else None

    def _end_of_math(self, first: int, math: "re.Match[str]") -> int | None:
        """Return the index of the line after a formula, which a blank line only interrupts if `$$` stands alone."""
        line = self._lines[first]
        end = f"\\end{{{math[2]}" if math[2] else MATH_ENDS[math[1]]
        content, mark, suffix = line[math.end() :].partition(end)
        if mark:  # on one line
            is_formula = math[1] == "$$" or math[2] or MATH_SIGN.search(content)
            return first + 1 if is_formula and not suffix.strip(" \t}*") else None
        if math[1] == "$$" and not content.strip():
            return self._line_after(first + 1, rf".*?{re.escape(end)}")
        for index in range(first + 1, min(first + MAX_FORMULA_LINES, len(self._lines))):
            if not self._lines[index].strip():
                return None
            if end in self._lines[index]:
                return index + 1
        return None

    def _line_after(self, first: int, end: str) -> int | None:
        if end in self._missing:
            return None
        for index in range(first, len(self._lines)):
            if re.match(end, self._lines[index]):
                return index + 1
        self._missing.add(end)
        return None


def _end_of_component(lines: Sequence[str], first: int) -> int | None:
    """Return the index of the line after the tag of a component, if only tags stand on its lines."""
    depth, in_tag, quote = 0, False, ""
    for index in range(first, min(first + MAX_TAG_LINES, len(lines))):
        for character in lines[index]:
            if quote:
                quote = "" if character == quote else quote
            elif in_tag and character in "\"'`":
                quote = character
            elif character in "{}" and in_tag:
                depth += 1 if character == "{" else -1
            elif character in "<>" and depth == 0:
                in_tag = character == "<"
            elif not in_tag and not character.isspace() and character != "/":
                return None  # a text between tags: a paragraph
        if not in_tag:
            return index + 1
    return None


def end_of_options(lines: Sequence[str], opening: int) -> int:
    """Return the index of the first line below a container that is not an option of it."""
    index = opening + 1
    for container, option in OPTIONS:
        if container.match(lines[opening]):
            while index < len(lines) and option.fullmatch(lines[index]):
                index += 1
    return index
