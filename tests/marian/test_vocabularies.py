"""Vocabularies that `marian vocab` writes: every token of its YAML, with its quotes and escapes."""

import pytest

from capsule_mt.models.marian_yaml import read_vocabulary

pytestmark = pytest.mark.slow
# YAML gives a meaning to some of these words, and quotes others
WORDS = [
    "true",
    "no",
    "null",
    "~",
    "1",
    "1e3",
    "0x1F",
    ".inf",
    "-",
    "--",
    "---",
    "...",
    "a:",
    ":a",
    "a:b",
    "#",
    "a#b",
    "!!x",
]
MARKS = [
    "''",
    '""',
    "'a",
    "a'",
    '"a',
    'a"b',
    "\\",
    "\\n",
    "[a]",
    "{a}",
    "&a",
    "*a",
    "%a",
    "@a",
    "`a",
    "|",
    ">",
    "?",
    ",",
    "<<",
]
LETTERS = [*map(chr, range(33, 127)), *map(chr, range(0xA1, 0x180)), "\x85", "\xad", "\u200b", "\ufeff", "\U0001f600"]
PIECES = [f"\u2581{letter}" for letter in LETTERS[:154]]


def test_every_token_is_read(tmp_path, judge):
    tokens = list(dict.fromkeys([*WORDS, *MARKS, *LETTERS, *PIECES]))
    assert len(tokens) > 500
    text, file = tmp_path / "text", tmp_path / "vocab.yml"
    text.write_text("\n".join(tokens) + "\n", "utf-8", newline="\n")
    file.write_text(judge.run("vocab", stdin=text), "utf-8", newline="\n")
    numbers = read_vocabulary(str(file))
    assert set(numbers) == {"</s>", "<unk>", *tokens}
    assert sorted(numbers.values()) == list(range(len(tokens) + 2))
