"""The table of rules: each row changes its own example as it says; the edits of any text lead back to it."""

import random
import re
import string

import pytest

from capsule_mt.text.finishing import with_french_spaces
from capsule_mt.text.rewriting import Rewriter
from capsule_mt.text.rules import COPIED_KINDS, KEEP_KINDS, ROWS
from capsule_mt.text.segments import Segmenter, edits_of
from capsule_mt.text.vocabulary import Vocabulary
from tests.light.text.fakes import CharacterTokenizer, WordTokenizer

VOCABULARY = ["so", "of", "is", "it", *string.printable, "\u20ac", "\xe0"]


class Multilingual(CharacterTokenizer):
    language_tokens = (">>por<<",)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.id)
def test_a_row_reads_its_example_as_it_says(row):
    if row.stage == "back":
        assert with_french_spaces(row.example) == row.read
        return
    kinds = (row.kind,) if row.kind in KEEP_KINDS else ()
    is_multilingual = row.kind == "languages"
    tokenizer = (Multilingual if is_multilingual else CharacterTokenizer)(VOCABULARY)
    target = None if is_multilingual else "pt"
    document = Segmenter(tokenizer, None, src_lang="en", tgt_lang=target, keep=kinds).document(row.example)
    assert " ".join(piece.text for piece in document.pieces) == row.read
    rows = {edit.row for edit in edits_of(document)}
    assert row.id in rows or row.stage in ("before", "after", "ending")


ALPHABET = (
    *" \n\t.,:;!?'\"()[]{}<>/\\|_*~`#@&%$=+-^0123456789aAbBeEnN",
    *(
        "\xe1",
        "\xc0",
        "\u2019",
        "\u201c",
        "\xab",
        "\xbb",
        "\u2026",
        "\u2014",
        "\xa0",
        "\u200b",
        "\xad",
        "\u0301",
        "\ufb01",
    ),
    *(
        "\U0001f600",
        "\u2192",
        "\xa3",
        "\u2264",
        "\u0436",
        "\u65e5",
        "\u3002",
        "\ue000",
        "\x1e",
        "&nbsp;",
        "<b>",
        "</b>",
    ),
    *("{n}", "%s", "https://a.de/b", "1,234.50", "THE RED HAT", "sooo", ">>por<<", "**", "__", "\\n"),
)


@pytest.mark.parametrize("seed", range(20))
def test_edits_that_are_inverted_give_the_users_text(seed):
    generator = random.Random(seed)
    vocabulary = Vocabulary(CharacterTokenizer([*string.printable, "\xe1"]))
    for _ in range(25):
        text = "".join(generator.choices(ALPHABET, k=generator.randrange(40)))
        form = Rewriter(vocabulary, (*COPIED_KINDS, "numbers"), src_lang="en", tgt_lang="pt").read(text)
        inverted, end, length = "", 0, 0
        for offset, edit in zip(form.offsets, form.edits, strict=True):
            assert end <= edit.start < edit.end
            assert offset - length == edit.start - end
            inverted += text[end : edit.start] + text[edit.start : edit.end]
            end, length = edit.end, offset + len(edit.in_form)
        assert inverted + text[end:] == text
        assert len(form.text) - length == len(text) - end
        for index in range(len(form.text)):
            start, stop = form.user_span(index, index + 1)
            is_changed = any(edit.start <= start < edit.end for edit in form.edits)
            assert is_changed or text[start:stop].casefold() == form.text[index].casefold() or start + 1 == stop


def test_edits_of_a_text():
    text = "- It\u2019s in {name}, www.a.de\u2026"
    document = Segmenter(WordTokenizer(unknown=("a\u2019a",)), None, src_lang="en").document(text)
    edits = {edit.row: (text[edit.start : edit.end], edit.model, edit.back) for edit in edits_of(document)}
    assert edits["character"] == ("\u2019", "'", None)
    assert edits["placeholder"] == ("{name}", "{name}", "{name}")
    assert edits["edge"] == ("- ", "", "- ")
    assert not re.search("\u2019", document.pieces[0].text)
