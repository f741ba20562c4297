"""Vocabularies that `marian vocab` writes: every token of its YAML, with its quotes and escapes."""

import pytest

from capsule_mt.engine.search import Readings
from capsule_mt.models.loading import load_model
from capsule_mt.models.marian_yaml import read_vocabulary
from tests.fixtures.marian_models import FOLDER, PRINTED_STEP
from tests.marian.variants import options_of

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


@pytest.mark.parametrize(("name", "num_unknown"), [("default", 6), ("two-spm", 6), ("mozilla", 0), ("yml", 6)])
def test_unknown_characters_are_pieces_as_for_marian(name, num_unknown, judge):
    """Runs of them are one `<unk>`; a vocabulary of Mozilla's has bytes, and ligatures become letters."""
    folder, (_, vocabularies) = judge.train(name), options_of(name)
    model = load_model(folder)
    sources, targets = ((FOLDER / f"unknown.{side}").read_text("utf-8").splitlines() for side in ("de", "en"))
    source_ids = [model.tokenizer.encode(text).ids for text in sources]
    target_ids = [model.tokenizer.encode_target(text) for text in targets]
    assert sum(token == model.tokenizer.unknown_id for ids in source_ids for token in ids) == num_unknown
    expected = judge.scores(folder, folder / "model.npz", vocabularies, "unknown")
    for hypothesis, scores in zip(model.decoder.force(source_ids, target_ids, Readings()), expected, strict=True):
        assert hypothesis.log_probs == pytest.approx(scores, abs=2 * PRINTED_STEP)
