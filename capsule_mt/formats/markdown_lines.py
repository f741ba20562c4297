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
# what precedes a title that goes on to the end of the line
TITLE = re.compile(
    rf"{QUOTES}[ \t]*\[![\w-]+\][+-]?[ \t]*"  # > [!NOTE] Title: an alert of GitHub, or a callout of Obsidian
    rf"|{INDENT}(?::{{3,}}[ \t]*{NAME}(?![\w{{\[-])[ \t]*"  # ::: tip Title: containers of VitePress
    rf"|(?::{{3,}}|`{{3,}}|~{{3,}})[ \t]*\{{(?:{TEXT_DIRECTIVES})\}}[ \t]*"  # :::{{admonition}} Title: of MyST
    # /// note | Title: blocks of PyMdown
    rf"|/{{3,}}[ \t]*(?!(?:html|apply|settings|define)\b){NAME}[ \t]*\|[ \t]*)"
)
# :::note[Title]{#id}: containers of Docusaurus
BRACKETED_TITLE = re.compile(rf"{INDENT}:{{2,}}[ \t]*{NAME}(?:\{{[^{{}}\n]*\}})?\[")
# !!! note "Title", ??? note "Title", === "Title": of MkDocs
QUOTED_TITLE = re.compile(rf"{INDENT}(?:(?:!!!|\?\?\?\+?)[ \t]+(?=[\w\"])|===[!+]*[ \t]+(?=\"))")
COPIED = re.compile(
    rf"{INDENT}(?:(?::{{3,}}|/{{3,}})[^\n]*"  # the ends of containers, and containers without a title
    r"|(?:\{[:#.%][^{}\n]*\}|\{%.*%\}|\{\{[<%].*[>%]\}\}"  # attributes of a block, Liquid, shortcodes of Hugo
    r"|\[\[?_?(?:TOC|toc)_?\]?\]|\{/\*.*\*/\})[ \t]*)"  # a table of contents, a comment of MDX
    r"|\([\w:. -]{1,100}\)=[ \t]*|[ \t]{0,3}\*\[[^\[\]\n]+\]:.*"  # a target of MyST, an abbreviation
)
# the options of a container, in the lines below it; in MkDocs, those lines are text
FIELD_CONTAINER = re.compile(r"[ \t>]*(?::{3,}|`{3,}|~{3,})[ \t]*[{\w]")
FIELD = re.compile(r"[ \t>]*:[\w-]+:(?:[ \t].*)?")
SLASH_CONTAINER = re.compile(r"[ \t>]*/{3,}[ \t]*\w")
SLASH_OPTION = re.compile(r"[ \t>]* {4}[\w-]+:[ \t].*")
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
    if match := TITLE.match(line):
        start, text = match.end(), line.rstrip()
        end = text.rfind("{", start) if text.endswith("}") else len(text)
        return Title(start, max(start, len(line[: max(start, end)].rstrip())), "")
    if match := BRACKETED_TITLE.match(line):
        end = line.find("]", match.end())
        return Title(match.end(), end, "]") if end >= 0 else None
    if match := QUOTED_TITLE.match(line):
        first = line.find('"', match.end()) + 1
        return Title(first, max(first, line.rfind('"')), '"') if first else Title(match.end(), match.end(), "")
    return None


def is_copied(line: str) -> bool:
    return COPIED.fullmatch(line) is not None


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
    if FIELD_CONTAINER.match(lines[opening]):
        while index < len(lines) and FIELD.fullmatch(lines[index]):
            index += 1
    elif SLASH_CONTAINER.match(lines[opening]):
        while index < len(lines) and SLASH_OPTION.fullmatch(lines[index]):
            index += 1
    return index
