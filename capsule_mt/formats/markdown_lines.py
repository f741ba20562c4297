"""Lines of Markdown with a meaning of their own, as GitHub and documentation sites write them.

Alerts, containers, admonitions, tabs, attributes, templates, MDX and mathematics.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

BLOCK_QUOTE = r"[ \t]{0,3}>(?:[ \t]{0,4}>)*[ \t]?"
INDENT = rf"(?:{BLOCK_QUOTE})?[ \t]*"
NAME = r"[A-Za-z][\w-]*"
# directives of MyST whose content and first line are text
TEXT_DIRECTIVES = (
    "admonition|attention|caution|danger|dropdown|error|hint|important|note|seealso|tip|warning|card|tab-item|tab-set"
    "|grid|grid-item|grid-item-card|margin|sidebar|topic|epigraph|versionadded|versionchanged|deprecated"
)
# what precedes a title that goes on to the end of the line
TITLE = re.compile(
    rf"{BLOCK_QUOTE}[ \t]*\[![\w-]+\][+-]?[ \t]*"  # > [!NOTE] Title: an alert of GitHub, or a callout of Obsidian
    rf"|{INDENT}(?::{{3,}}[ \t]*{NAME}(?![\w{{\[-])[ \t]*"  # ::: tip Title: containers of VitePress
    rf"|(?::{{3,}}|`{{3,}}|~{{3,}})[ \t]*\{{(?:{TEXT_DIRECTIVES})\}}[ \t]*"  # :::{admonition} Title: of MyST
    # /// note | Title: blocks of PyMdown
    rf"|/{{3,}}[ \t]*(?!(?:html|apply|settings|define)\b){NAME}[ \t]*\|[ \t]*)"
)
# :::note[Title]{#id}: containers of Docusaurus
BRACKETED_TITLE = re.compile(rf"{INDENT}:{{2,}}[ \t]*{NAME}(?:\{{[^{{}}\n]*\}})?\[")
# !!! note "Title", ??? note "Title", === "Title": of MkDocs
QUOTED_TITLE = re.compile(rf"{INDENT}(?:(?:!!!|\?\?\?\+?)[ \t]+(?=[\w\"])|===[!+]*[ \t]+(?=\"))")
# lines without text to translate
COPIED = re.compile(
    # the ends of containers, and containers without a title
    rf"{INDENT}(?:(?::{{3,}}|/{{3,}})[^\n]*"
    # attributes of a block, Liquid, shortcodes of Hugo
    r"|(?:\{[:#.%][^{}\n]*\}|\{%.*%\}|\{\{[<%].*[>%]\}\}"
    # a table of contents, a comment of MDX
    r"|\[\[?_?(?:TOC|toc)_?\]?\]|\{/\*.*\*/\})[ \t]*)"
    # a target of MyST, an abbreviation
    r"|\([\w:. -]{1,100}\)=[ \t]*|[ \t]{0,3}\*\[[^\[\]\n]+\]:.*"
)
# the options of a container are the lines below it; below MkDocs' `!!!` such lines are text
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
    """The span of a title in its line, and the mark that closes it ("" if there is none)."""

    start: int
    end: int
    end_mark: str


def title_of(line: str) -> Title | None:
    """Return the title, perhaps empty, of a line that opens a block; `None` for other lines."""
    if match := TITLE.match(line):
        start, text = match.end(), line.rstrip()
        end = text.rfind("{", start) if text.endswith("}") else len(text)
        return Title(start, max(start, len(line[: max(start, end)].rstrip())), "")
    if match := BRACKETED_TITLE.match(line):
        end = line.find("]", match.end())
        return Title(match.end(), end, "]") if end >= 0 else None
    if match := QUOTED_TITLE.match(line):
        start = line.find('"', match.end()) + 1
        return Title(start, max(start, line.rfind('"')), '"') if start else Title(match.end(), match.end(), "")
    return None


def is_copied(line: str) -> bool:
    return COPIED.fullmatch(line) is not None


def interrupts_paragraph(line: str) -> bool:
    """Return whether a line is copied or has a title, so that it cannot continue a paragraph."""
    return is_copied(line) or title_of(line) is not None


class RawBlocks:
    """Finds the blocks of a page that are not text."""

    def __init__(self, lines: Sequence[str]) -> None:
        self._lines = lines
        # patterns that do not match any further line: to search for them again would take quadratic time
        self._absent_patterns: set[str] = set()

    def end(self, first_index: int) -> int | None:
        """Return the index of the line after a block, or `None` if none begins at this line."""
        line = self._lines[first_index]
        if directive := RAW_DIRECTIVE.match(line):
            return self._line_after(first_index + 1, rf"[ \t>]*{directive[1]}[ \t]*$")
        if tag := RAW_TAG.match(line):
            end_pattern = rf".*?\{{%-?[ \t]*end{tag[1]}\b"
            return None if re.match(end_pattern, line) else self._line_after(first_index + 1, end_pattern)
        if opening := MATH_BEGIN.match(line):
            return self._end_of_math(first_index, opening)
        if MODULE.match(line):
            indices = range(first_index, len(self._lines))
            return next((index for index in indices if not self._lines[index].strip()), len(self._lines))
        return _end_of_component(self._lines, first_index) if COMPONENT.match(line) else None

    def _end_of_math(self, first_index: int, opening: "re.Match[str]") -> int | None:
        """Return the index of the line after a formula; only one whose `$$` stands alone may contain blank lines."""
        line = self._lines[first_index]
        end_mark = f"\\end{{{opening[2]}" if opening[2] else MATH_ENDS[opening[1]]
        content, closing, suffix = line[opening.end() :].partition(end_mark)
        if closing:  # on one line
            is_formula = opening[1] == "$$" or opening[2] or MATH_SIGN.search(content)
            return first_index + 1 if is_formula and not suffix.strip(" \t}*") else None
        if opening[1] == "$$" and not content.strip():
            return self._line_after(first_index + 1, rf".*?{re.escape(end_mark)}")
        for index in range(first_index + 1, min(first_index + MAX_FORMULA_LINES, len(self._lines))):
            if not self._lines[index].strip():
                return None
            if end_mark in self._lines[index]:
                return index + 1
        return None

    def _line_after(self, first_index: int, end_pattern: str) -> int | None:
        """Return the index after the first line from `first_index` on whose beginning matches `end_pattern`."""
        if end_pattern in self._absent_patterns:
            return None
        for index in range(first_index, len(self._lines)):
            if re.match(end_pattern, self._lines[index]):
                return index + 1
        self._absent_patterns.add(end_pattern)
        return None


def _end_of_component(lines: Sequence[str], first_index: int) -> int | None:
    """Return the index of the line after a component's tag; `None` if its lines hold anything but tags."""
    depth, in_tag, quote = 0, False, ""
    for index in range(first_index, min(first_index + MAX_TAG_LINES, len(lines))):
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
                return None  # text between tags: a paragraph
        if not in_tag:
            return index + 1
    return None


def end_of_options(lines: Sequence[str], opening: int) -> int:
    """Return the index of the first line below a container's opening line that is not one of its options."""
    index = opening + 1
    if FIELD_CONTAINER.match(lines[opening]):
        while index < len(lines) and FIELD.fullmatch(lines[index]):
            index += 1
    elif SLASH_CONTAINER.match(lines[opening]):
        while index < len(lines) and SLASH_OPTION.fullmatch(lines[index]):
            index += 1
    return index
