"""Markdown as GitHub and documentation sites write it: what their parsers find is the same before and after."""

import re
from itertools import pairwise

import pytest

from tests.light.formats.files import SITE
from tests.light.formats.test_formats import read, texts, translated

# parts of constructs that no parser here reads, which stay as they are
LITERALS = re.compile(
    r"\{%.*?%\}|\{\{.*?\}\}|\{[#:.][^{}\n]*\}|^[ \t>]*:{3,}[ \t]*\{?[\w-]*|^[ \t>]*(?:!!!|\?\?\?|===)[ \t]*\w*"
    r"|^(?:import|export).*|^/// ?\w*|\[![A-Za-z]+\]|^\*\[.*|</?[A-Z]\w*|\\\\\(.*?\\\\\)|\\\(e.*?\\\)|\{/.*?/\}"
    r"|\{[\w.]+\}|^:class:.*|\[TOC\]",
    re.MULTILINE,
)


def slug(text):
    return re.sub(r"[^\w\- ]", "", text.strip().lower()).replace(" ", "-")


def shape(page):
    """The blocks and the marks in them, with what is not text; a link in the page counts as its heading."""
    markdown_it = pytest.importorskip("markdown_it")
    pytest.importorskip("mdit_py_plugins")
    from mdit_py_plugins import attrs, deflist, dollarmath, footnote, front_matter

    parser = markdown_it.MarkdownIt("gfm-like", {"linkify": False})
    for plugin in (deflist.deflist_plugin, dollarmath.dollarmath_plugin, footnote.footnote_plugin):
        parser.use(plugin)
    parser.use(front_matter.front_matter_plugin).use(attrs.attrs_plugin, spans=True).use(attrs.attrs_block_plugin)
    tokens = parser.parse(page)
    anchors = []
    for token, inner in pairwise(tokens):
        if token.type == "heading_open":
            anchor = slug("".join(child.content for child in inner.children))
            anchors.append(f"{anchor}-{anchors.count(anchor)}" if anchor in anchors else anchor)
    blocks = []
    for token in tokens:
        marks = [child for child in token.children or () if child.type not in ("text", "softbreak", "text_special")]
        links = [str(mark.attrs.get("href", mark.attrs.get("src", ""))) for mark in marks]
        links = [anchors.index(link[1:]) if link[1:] in anchors else link for link in links]
        verbatim = [mark.content for mark in marks if mark.type in ("code_inline", "html_inline", "math_inline")]
        # CommonMark takes text for code in admonitions of MkDocs and in fenced notes of MyST
        has_text = token.type in ("html_block", "code_block") or token.info == "{note}"
        body = "" if token.type == "inline" else token.content.upper() if has_text else token.content
        classes = [str(mark.attrs.get("class", "")) for mark in marks]
        blocks.append((token.type, token.tag, token.level, str(token.attrs), body, links, verbatim, classes))
    return blocks


def test_a_page_of_a_documentation_site():
    written = translated("site.mdx").decode()
    assert shape(written) == shape(SITE)
    assert LITERALS.findall(written) == LITERALS.findall(SITE)
    for snippet in ("code stays", 'puts "stays"', "and more", "stays &= stays", "label: 'stays'", "x^2 + word"):
        assert snippet in written
    for text in (
        "> [!NOTE]\n> USEFUL *INFORMATION* GOES HERE.",
        "> [!tip]- A FOLDED CALLOUT\n",
        "::: warning WATCH OUT {#w}\nDO NOT OPEN **THIS**.\n:::",
        ":::note[YOUR **TITLE**]{.x}",
        ":::{admonition} MY TITLE\n:class: tip\n\nCONTENT.",
        "```{note}\nA NOTE IN A FENCE.\n```",
        '!!! danger "BE CAREFUL"\n\n    INDENTED CONTENT IS TEXT.',
        '=== "FIRST TAB"\n\n    IN A TAB.',
        "/// note | A TITLE\nTEXT\n///",
        "TERM ONE\n: ITS DEFINITION, WITH `code`.\n: ANOTHER ONE.",
        '[LINK](https://example.org){:target="_blank"} AND A WORD{.x}.\n{: .note }',
        "THE [GUIDE][guide], THE [API][API], [OTHER][ref] AND [NOT A LINK].",
        "INSIDE **THE TAB** IS {props.version} TEXT.",
        'USE <Button kind="x">THE BUTTON</Button> HERE.',
        "<summary>CLICK <b>ME</b></summary>",
        "BUT (SEE BELOW).",
        "AT&T \\<b> COSTS 5 €.",
    ):
        assert text in written


def test_links_in_a_page_follow_their_headings():
    page = b"[a](#the-old-man) [b](#the-old-man-1) [c](#x) [d](#code) [e](#set)\n\n"
    page += b"# The *old* man\n\n## The old man\n\n## `code`\n\n# Fixed {#x}\n\nSet\n===\n"
    written = translated("a.md", page, lambda text: text.replace("The", "O").replace("Set", "Conjunto"))
    assert written.startswith(b"[a](#o-old-man) [b](#o-old-man-1) [c](#x) [d](#code) [e](#conjunto)\n")
    assert b"# Fixed {#x}" in written


def test_a_label_that_is_the_text_of_a_link_stays_the_label():
    page = b"The [`old` hat][] and ![a hat][] and [see] [x].\n\n[`old` hat]: a\n[a hat]: b\n[SEE]: c\n"
    written = translated("a.md", page)
    assert written.startswith(b"THE [`old` HAT][`old` hat] AND ![A HAT][a hat] AND [SEE][see] [X].\n")
    assert shape(written.decode()) == shape(page.decode())


def test_an_id_may_have_an_escaped_sign():
    assert translated("a.md", b"one{#\\_x_1} two\n") == b"ONE{#\\_x_1} TWO\n"


def test_code_after_a_heading_and_in_lists():
    page = b"# One\n    code\n    more\n\n- two\n\n      code\n\n  text\n\nlast\n    goes on\n"
    assert texts("a.md", page) == ["One", "two", "text", "last goes on"]
    assert shape(translated("a.md", page).decode()) == shape(page.decode())


@pytest.mark.parametrize(
    "page",
    [
        b"text\n> quote\n",
        b"one <!doctype> two <?php x ?> three\n",
        b"a [span]{.red #x} and [link](y){target=_blank}\n",
        b"***bold** and italic*\n",
        b'5 &lt; 6 &amp;amp; [a](b "c")\n',
        b"| a &#124; b | c |\n|---|---|\n| one | two |\n",
        b'<a href="x">\n<img src="y">\n</a>\n\ntext <b>bold</b>\n',
        b'<p align="center">\n  one\n</p>\ntwo *three*\n\nfour *five*\n',
    ],
)
def test_marks_and_blocks_stay(page):
    assert shape(translated("a.md", page).decode()) == shape(page.decode())


@pytest.mark.parametrize(
    "text",
    [
        r"Use \\\\server\\share here, a \\. and C:\dir.",
        "See https://x.com/?a=1&copy=2&reg=3 &copy; me.",
    ],
)
def test_backslashes_and_addresses_are_shown_as_they_were(text):
    markdown_it = pytest.importorskip("markdown_it")
    render = markdown_it.MarkdownIt("commonmark").render
    assert render(translated("a.md", text.encode(), lambda text: text).decode()) == render(text)


@pytest.mark.parametrize("start", ["*", "-", "+", "1.", "24)", ">", "##", "\\\\*", "#tag", "3.5", "-5"])
@pytest.mark.parametrize("prefix", ["", "- ", "> "])
def test_what_a_translation_begins_with_does_not_begin_a_block(prefix, start):
    page = f"{prefix}Ein Hut\n"
    written = translated("a.md", page.encode(), lambda text: f"{start} Hut").decode()
    assert shape(written) == shape(page)


def test_a_heading_may_have_a_short_underline_and_a_paragraph_bars():
    page = "Ein Hut\n--\n\n* Ein Haus\n\n_Unter A|B|C\nund D|E|F_\n"
    assert shape(translated("a.md", page.encode()).decode()) == shape(page)


def test_emphasis_of_nothing_is_not_written():
    page = "Ein ___alter___ Hut von [hier](a.md) und <b>da</b>\n"
    empty = "Hut <g1></g1><g2></g2><g3></g3>"
    assert translated("a.md", page.encode(), lambda text: empty).decode() == "Hut [](a.md)<b></b>\n"


def test_a_title_in_quotes_does_not_get_more_of_them():
    written = translated("a.md", b'!!! note "Title"\n\n:::tip[Title]\n:::\n', lambda text: 'a "b" [c]')
    assert written == b'!!! note "a \'b\' [c]"\n\n:::tip[a "b" (c)]\n:::\n'


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        ("$$ costs\n\nmore than $$ this\n", ["$$ costs", "more than $$ this"]),
        ("\\[one\n\ntwo\\]\n", ["[one", "two]"]),
        ("$$\nx\n\ny\n$$\n\nz is\n", ["z is"]),
        ("!!! note\n    Warning: this is text.\n", ["Warning: this is text."]),
        ("/// note\n    type: tip\n\nThis is text.\n///\n", ["This is text."]),
        (":::{note} A first line\nmore\n:::\n", ["A first line", "more"]),
        ("See.[^1]\n\n[^1]: One.\n\n    More of it.\n", ["See.<g1/>", "One.", "More of it."]),
        ("prefer\n\n```a => b```\n\nover this\n", ["prefer", "over this"]),
        ("{% raw %}{{ x }}{% endraw %} is text\n", ["{1}{2}{3} is text"]),
        ("<div>\n<![x]>\nstays\n</div>\n\ntext\n", ["text"]),
    ],
)
def test_what_only_looks_like_code_is_text(page, expected):
    assert texts("a.md", page.encode()) == expected


def test_prose_that_looks_like_code_of_a_module_is_text():
    prose = [
        "import data into it",
        "export your work",
        "export default settings with care",
        "\\[not a formula\\] here",
    ]
    assert texts("a.md", "\n\n".join(prose).encode()) == [*prose[:3], "[not a formula] here"]
    assert read("a.mdx", b"import x from 'y'\n\nexport default z\n\ntext").units[0].location == "line 5"
