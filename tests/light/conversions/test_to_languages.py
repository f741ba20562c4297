"""Encoders with the pieces of some languages: the numbers of the whole, and what falls into smaller pieces."""

import json
import os
import struct
from pathlib import Path

import pytest

from capsule_mt import Encoder, UnsupportedModelError
from capsule_mt.conversions.to_languages import Cut, write_languages
from capsule_mt.models.sentencepiece import CONTROL, NORMAL, UNKNOWN, read_sentencepiece
from capsule_mt.models.weights import CheckpointError
from tests.light.judge.encoders import write_encoder
from tests.light.test_translator import RELEASED

CYRILLIC = ("\u2581ди", "\u2581мид", "ид")
LATIN = ("\u2581be", "\u2581bed", "d", "ge", "\u2581geb", "b")
LETTERS = ("\u2581", "b", "e", "d", "g", "д", "и", "м", "漢")


def field(number: int, content: bytes) -> bytes:
    return bytes([number << 3 | 2, len(content)]) + content


def piece(text: str, score: float, kind: int = NORMAL) -> bytes:
    return field(1, field(1, text.encode()) + b"\x15" + struct.pack("<f", score) + b"\x18" + bytes([kind]))


def write_xlm_r(folder: Path) -> list[str]:
    """Write the small encoder with pieces instead of words; return the pieces."""
    write_encoder(folder)
    texts = list(dict.fromkeys([*CYRILLIC, *LATIN, *LETTERS]))
    parts = [piece(text, 0.0, kind) for text, kind in (("<unk>", UNKNOWN), ("<s>", CONTROL), ("</s>", CONTROL))]
    parts += [piece(text, -1.0 / len(text) - index / 100) for index, text in enumerate(texts)]
    trainer, normalizer = field(2, b"\x18\x01"), field(3, field(1, b"identity") + b"\x18\x01\x20\x01\x28\x01")
    (folder / "sentencepiece.bpe.model").write_bytes(b"".join([*parts, trainer, normalizer]))
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "XLMRobertaTokenizer"}')
    return texts


def test_pieces_of_other_scripts_go_and_the_numbers_stay(tmp_path):
    texts = write_xlm_r(tmp_path / "whole")
    cut = write_languages(tmp_path / "whole", tmp_path / "cut", ["en", "deu_Latn"])
    left = [text for text in texts if text not in CYRILLIC]
    assert list(read_sentencepiece(tmp_path / "cut" / "sentencepiece.bpe.model").texts)[3:] == left
    assert cut == Cut(len(texts) + 3, len(left) + 3, 0, 0)
    assert str(cut) == f"{len(left) + 3} of {len(texts) + 3} pieces are left"
    assert json.loads((tmp_path / "cut" / "config.json").read_text())["vocab_size"] == len(left) + 5
    assert not (tmp_path / "cut" / "tokenizer.json").exists()
    whole, smaller = (Encoder.from_pretrained(tmp_path / name, int8=True) for name in ("whole", "cut"))
    for text in ("bed gebed 漢", "", "d unknown: 7"):
        [expected], [hidden] = whole.hidden_states([text]), smaller.hidden_states([text])
        assert hidden.states == expected.states
        assert list(hidden.offsets) == list(expected.offsets)
    assert len(smaller.hidden_states(["мид"])[0].ids) > len(whole.hidden_states(["мид"])[0].ids)


def test_lines_choose_the_pieces_and_every_tenth_tells_what_is_lost(tmp_path):
    write_xlm_r(tmp_path / "whole")
    lines = ["gebed bed", *["bed"] * 9]
    cut = write_languages(tmp_path / "whole", tmp_path / "cut", ["en"], lines)
    kept = set(read_sentencepiece(tmp_path / "cut" / "sentencepiece.bpe.model").texts)
    assert "\u2581bed" in kept
    assert kept.isdisjoint({"\u2581geb", "\u2581be", "ge", *CYRILLIC})
    assert kept >= set(LETTERS)
    tokens = Encoder.from_pretrained(tmp_path / "whole").tokenize(lines[0]).ids
    assert (cut.tokens, cut.split) == (len(tokens), 1)
    assert "1 fall into smaller pieces" in str(cut)


def test_codes_are_cut_as_they_are(tmp_path):
    write_xlm_r(tmp_path / "whole")
    write_languages(tmp_path / "whole", tmp_path / "two", ["en", "ru"])
    write_languages(tmp_path / "two", tmp_path / "one", ["en"])
    write_languages(tmp_path / "whole", tmp_path / "at_once", ["en"])
    names = sorted(os.listdir(tmp_path / "one"))
    assert names == sorted(os.listdir(tmp_path / "at_once"))
    for name in names:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "at_once" / name).read_bytes(), name


def test_what_cannot_be_cut_is_refused_by_name(tmp_path):
    write_encoder(tmp_path / "words")
    with pytest.raises(UnsupportedModelError, match=r"only a vocabulary in sentencepiece\.bpe\.model is cut"):
        write_languages(tmp_path / "words", tmp_path / "out", ["en"])
    with pytest.raises(
        UnsupportedModelError, match="a model of type 'capsule_marian' is not cut to languages, only encoders"
    ):
        write_languages(RELEASED, tmp_path / "out", ["en"])
    with pytest.raises(CheckpointError, match="no such file"):
        write_languages(tmp_path / "none", tmp_path / "out", ["en"])
