"""SentencePiece models: what a .spm file says, and text in the pieces that the library finds."""

import json
import random
import struct
from array import array
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from capsule_mt.conversions.to_pieces import write_pieces
from capsule_mt.engine.library import PieceTable, read_pieces
from capsule_mt.engine.program import UnsupportedModelError
from capsule_mt.models import piece_tokenizer
from capsule_mt.models.piece_tokenizer import Pieces, TokenEncoder, tokenizer_json
from capsule_mt.models.sentencepiece import (
    BYTE,
    CONTROL,
    NORMAL,
    UNKNOWN,
    USER_DEFINED,
    PieceTexts,
    SentencePieceEncoder,
    SentencePieceModel,
    joined_pieces,
    read_sentencepiece,
)
from capsule_mt.models.weights import CheckpointError
from tests.fixtures.marian_models import FOLDER, SOURCES, TARGETS

library = pytest.importorskip("sentencepiece", reason="the library writes the models")
LINES = ["the old man reads a book", "a man sells the old books", "she reads __mark__ to the men", "reading 3.5 books"]
TEXTS = [
    *LINES,
    "",
    " ",
    "the\u00a0old  \uff4d\uff41\uff4e",
    "e\u0301 ﬁ",
    "鱼 men",
    "__mark__ed __mark",
    "<s> <unk> </s>",
    "a\tb ",
]


def train(file, lines=LINES, **settings):
    settings = {"vocab_size": 60, "model_type": "unigram", "hard_vocab_limit": False} | settings
    with open(file, "wb") as stream:
        library.SentencePieceTrainer.train(
            sentence_iterator=iter(lines), model_writer=stream, minloglevel=2, **settings
        )
    return file


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"normalization_rule_name": "identity"},
        {"normalization_rule_name": "nmt_nfkc_cf"},
        {"byte_fallback": True, "vocab_size": 320},
        {"user_defined_symbols": "__mark__,é"},
        {"user_defined_symbols": "x" * 140},  # whose length takes two bytes: the pieces after it are read one by one
        {"remove_extra_whitespaces": False},
        {"add_dummy_prefix": False},
        {"split_by_whitespace": False},
        {"model_type": "bpe"},
        {"model_type": "bpe", "byte_fallback": True, "vocab_size": 320},
    ],
    ids=str,
)
def test_pieces_are_those_of_the_library(settings, tmp_path):
    file = train(tmp_path / "one.spm", **settings)
    encoder, processor = SentencePieceEncoder(read_sentencepiece(file)), library.SentencePieceProcessor(str(file))
    for text in TEXTS:
        pieces, offsets = encoder.encode(text)
        assert pieces == processor.encode(text, out_type=str), text
        assert len(offsets) == len(pieces)
        assert joined_pieces(pieces) == processor.decode_pieces(pieces).strip(" ")


def test_a_map_of_ascii_letters(tmp_path):
    rules = {"old": "young", "b": "B", "ma": "m", "e\u0301": "E", "rea": "reaa"}
    codes = ["\t".join(" ".join(f"{ord(letter):X}" for letter in text) for text in rule) for rule in rules.items()]
    (tmp_path / "rules.tsv").write_text("\n".join(codes) + "\n")
    file = train(tmp_path / "one.spm", normalization_rule_tsv=str(tmp_path / "rules.tsv"))
    encoder, processor = SentencePieceEncoder(read_sentencepiece(file)), library.SentencePieceProcessor(str(file))
    for text in [*TEXTS, "older ole b me\u0301n mare sells\x00man"]:
        assert encoder.encode(text)[0] == processor.encode(text, out_type=str), text


@pytest.mark.parametrize("settings", [{}, {"byte_fallback": True, "vocab_size": 320}, {"split_by_whitespace": False}])
def test_tokens_of_cached_words(settings, tmp_path, monkeypatch):
    vocabulary = Pieces(str(train(tmp_path / "one.spm", **settings)))
    tokens = TokenEncoder(vocabulary.encoder, vocabulary.tokens.__getitem__)
    monkeypatch.setattr(piece_tokenizer, "MAX_CACHED_WORDS", 3)
    for text in [*TEXTS, *TEXTS]:
        pieces, spans = vocabulary.encoder.encode(text)
        encoded = tokens.encode(text, [7])
        assert encoded.ids == [*(vocabulary.tokens[piece] for piece in pieces), 7]
        assert encoded.offsets == [*(span if span[0] < span[1] else None for span in spans), None]
        assert len(encoded.offsets) == len(encoded.ids)
        assert encoded.offsets[-1] is None
        assert encoded.may_have_bytes == bool(settings.get("byte_fallback"))


@pytest.mark.parametrize("name", ["mozilla.spm", "mozilla.zhen.spm"])
def test_symbols_of_the_user_in_mozillas_vocabularies(name):
    file = FOLDER / name
    encoder = assert_like_the_library(file, with_symbols(read_sentencepiece(file), [*SOURCES, *TARGETS]))
    assert encoder.words_of("The old man") == ["The", "old", "man"]  # as without symbols


@pytest.mark.parametrize("name", ["mozilla.spm", "mozilla.zhen.spm"])
def test_symbols_of_the_user_in_a_tokenizer_json(name, tmp_path):
    pieces, processor = Pieces(str(FOLDER / name)), library.SentencePieceProcessor(str(FOLDER / name))
    size = len(pieces.texts) + 1
    tokenizer = Tokenizer.from_str(json.dumps(tokenizer_json(pieces, size)))
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    write_pieces(str(tmp_path / "tokenizer.json"), str(tmp_path / "back.spm"), size - 1)
    back = library.SentencePieceProcessor(str(tmp_path / "back.spm"))
    texts = with_symbols(pieces.model, [*SOURCES, *TARGETS])
    for text in [*texts, "\uff41\uff3f\uff3fsource\uff3f\uff3f", "__end__\u0301"]:
        assert tokenizer.encode(text).ids == [*processor.encode(text), pieces.end], text
        assert back.encode(text) == processor.encode(text), text


@pytest.mark.parametrize(
    ("symbol", "settings"),
    [
        ("__mark__", {"model_type": "bpe"}),
        ("\ufb01", {}),  # a ligature, which becomes two letters
        ("x</s>y", {}),
        ("the old", {}),
    ],
)
def test_symbols_that_no_tokenizer_json_has(symbol, settings, tmp_path):
    file = train(
        tmp_path / "one.spm", user_defined_symbols=[symbol], bos_id=-1, eos_id=0, unk_id=1, pad_id=-1, **settings
    )
    pieces = Pieces(str(file))
    with pytest.raises(
        UnsupportedModelError, match=r"one\.spm: the symbol '.*' of `user_defined_symbols` cannot be stored"
    ):
        tokenizer_json(pieces, len(pieces.texts) + 1)


@pytest.mark.parametrize("model_type", ["unigram", "bpe"])
@pytest.mark.parametrize("byte_fallback", [False, True])
@pytest.mark.parametrize(
    "symbols",
    [
        ["__source__", "__target__", "__end__"],
        ["ab", "abc", "b", "e", "the", "\u00e9"],  # within words, within each other, and what is normalised
        ["the old", "a \u2581", "\u2581man"],  # over several words
    ],
)
def test_symbols_of_the_user(model_type, byte_fallback, symbols, tmp_path):
    file = train(
        tmp_path / "symbols.spm",
        model_type=model_type,
        byte_fallback=byte_fallback,
        vocab_size=320 if byte_fallback else 60,
        user_defined_symbols=symbols,
    )
    assert_like_the_library(file, with_symbols(read_sentencepiece(file), [*LINES, "abc e\u0301 \u00e9 cab"]))


def test_a_symbol_wins_over_the_likeliest_pieces(tmp_path):
    """Its score does not depend on theirs, which are all below zero."""
    lines = ["ebecedefege", "ehejekelemeneperesete"] * 5
    file = train(tmp_path / "one.spm", lines, vocab_size=40, user_defined_symbols=["ee"])
    encoder = assert_like_the_library(file, ["ee", "beeb eee", "eeee bee"])
    assert encoder.encode("beeb")[0] == ["\u2581", "b", "ee", "b"]


def with_symbols(model: SentencePieceModel, lines: list[str]) -> list[str]:
    """Return lines with symbols of the user between, within and beside their words, and cut off."""
    symbols = [text for text, kind in zip(model.texts, model.kinds, strict=True) if kind == USER_DEFINED]
    source, words = random.Random(1), " ".join(lines).split()
    texts = [*symbols, " ".join(symbols), "".join(symbols)]
    for _ in range(150):
        parts = source.choices([*symbols, *(symbol[:-1] for symbol in symbols)], k=3) + source.choices(words, k=3)
        source.shuffle(parts)
        texts.append("".join(part + source.choice(["", " ", "  "]) for part in parts))
    return texts


def assert_like_the_library(file: Path, texts: list[str]) -> SentencePieceEncoder:
    model, processor = read_sentencepiece(file), library.SentencePieceProcessor(str(file))
    encoder, num_symbols = SentencePieceEncoder(model), 0
    symbols = {text for text, kind in zip(model.texts, model.kinds, strict=True) if kind == USER_DEFINED}
    for text in texts:
        pieces, spans = encoder.encode(text)
        assert pieces == processor.encode(text, out_type=str), text
        assert len(spans) == len(pieces)
        num_symbols += len(symbols.intersection(pieces))
    assert 2 * num_symbols > len(texts)
    return encoder


def test_what_a_file_says(tmp_path):
    file = train(tmp_path / "one.spm", byte_fallback=True, vocab_size=320, user_defined_symbols="__mark__")
    processor = library.SentencePieceProcessor(str(file))
    model = read_sentencepiece(file)
    assert list(model.texts) == processor.id_to_piece(list(range(len(processor))))
    assert list(model.scores) == processor.get_score(list(range(len(processor))))
    assert set(model.kinds) == {NORMAL, UNKNOWN, CONTROL, USER_DEFINED, BYTE}
    assert (model.model_type, model.byte_fallback, model.add_dummy_prefix) == ("unigram", True, True)
    word_model = read_sentencepiece(train(tmp_path / "word.spm", model_type="word"))
    with pytest.raises(UnsupportedModelError, match="type 'word' is not read, only 'unigram' and 'bpe'"):
        SentencePieceEncoder(word_model)
    after = train(tmp_path / "after.spm", treat_whitespace_as_suffix=True)
    with pytest.raises(UnsupportedModelError, match="the space after a word"):
        read_sentencepiece(after)


@pytest.mark.parametrize("text", ["x" * 117, "x" * 118, "x" * 119, "x" * 120, "x" * 126, "x" * 128, "é" * 80])
def test_pieces_of_every_layout(text, tmp_path):
    """The engine reads pieces of the usual layout; at the first other one, Python goes on."""
    good = train(tmp_path / "one.spm").read_bytes()
    *_, end = read_pieces(good)
    first = 2 + good[1]
    for offset in (first, end):
        for has_kind in (False, True):
            piece = field(1, text.encode()) + b"\x15" + struct.pack("<f", -1.5) + b"\x18\x01" * has_kind
            content = good[:offset] + field(1, piece) + good[offset:]
            processor = library.SentencePieceProcessor(model_proto=content)
            file = tmp_path / "changed.spm"
            file.write_bytes(content)
            model = read_sentencepiece(file)
            numbers = list(range(len(processor)))
            assert list(model.texts) == [processor.id_to_piece(number) for number in numbers]
            assert list(model.scores) == [processor.get_score(number) for number in numbers]
            *_, read = read_pieces(content)
            assert read == (end + len(field(1, piece)) if len(piece) < 128 else offset)


def field(number: int, content: bytes) -> bytes:
    """Return a field of a message of protobuf, whose length takes one byte or two."""
    size = len(content)
    return bytes([number << 3 | 2, *([size] if size < 128 else [size & 127 | 128, size >> 7])]) + content


def test_a_piece_with_a_zero(tmp_path):
    """The library refuses it; here it is read as it is, and does not become two."""
    content = train(tmp_path / "one.spm").read_bytes()
    file = tmp_path / "changed.spm"
    file.write_bytes(field(1, field(1, b"a\0b") + b"\x15" + struct.pack("<f", -1.5)) + content)
    assert read_sentencepiece(file).texts[:2] == ["a\0b", "<unk>"]


def test_pieces_that_are_cut_off_anywhere(tmp_path):
    content = train(tmp_path / "one.spm").read_bytes()
    whole = read_sentencepiece(tmp_path / "one.spm")
    for size in range(200):
        content_of_texts, starts, scores, kinds, offset = read_pieces(content[:size])
        texts = list(PieceTexts(content_of_texts, starts))
        assert offset <= size
        assert (texts, list(scores)) == (whole.texts[: len(texts)], list(whole.scores[: len(texts)]))
        assert kinds == whole.kinds[: len(texts)]


def test_texts_that_no_file_has():
    """Pieces from damaged texts to empty ones, in a table of two pieces."""
    table = PieceTable(
        bytearray(b"a\0ab\0"), array("i", [0, 2, 5]), bytearray([1, 1]), array("f", [-1, -1]), None, 10.0
    )
    for text, lengths, indices in (
        ("", [], []),
        ("aba", [2, 1], [1, 0]),
        ("a\0b", [1, 1, 1], [0, -1, -1]),
        ("\ud800a\U0001f600", [1, 1, 1], [-1, 0, -1]),
    ):
        assert [list(numbers) for numbers in table.segment(text)] == [lengths, indices]
    assert [table.find(text) for text in ("a", "ab", "b", "", "a\0", "\ud800")] == [0, 1, None, None, None, None]


def test_texts_whose_hashes_are_similar_are_refused(tmp_path):
    """Looking each of them up among all others would take hours."""
    texts, number = [], 0
    while len(texts) < 1400:  # in 4,096 slots, of which these begin in the first 256
        number += 1
        value = 0xCBF29CE484222325
        for byte in str(number).encode():
            value = (value ^ byte) * 0x100000001B3 & 2**64 - 1
        if (value ^ value >> 32) % 4096 < 256:
            texts.append(str(number))
    file = tmp_path / "one.spm"
    unknown = field(1, field(1, b"<unk>") + b"\x15" + struct.pack("<f", 0) + b"\x18\x02")
    pieces = [field(1, field(1, text.encode()) + b"\x15" + struct.pack("<f", -1.5)) for text in texts]
    file.write_bytes(unknown + b"".join(pieces))
    with pytest.raises(
        CheckpointError, match=r"one\.spm: the native engine refused: too many pieces .* similar hashes"
    ):
        SentencePieceEncoder(read_sentencepiece(file))
    file.write_bytes(unknown + b"".join(pieces[:900]))
    assert SentencePieceEncoder(read_sentencepiece(file)).encode(texts[0])[0] == ["\u2581", texts[0]]


def test_damaged_files(tmp_path):
    file = tmp_path / "one.spm"
    good = train(file).read_bytes()
    for content in (b"", b"\x08" + b"\x80" * 20, good[: len(good) // 2]):
        file.write_bytes(content)
        with pytest.raises(CheckpointError, match=r"one\.spm: is not a SentencePiece model"):
            read_sentencepiece(file)
    # a map of characters that leads beyond its end
    position = good.index(read_sentencepiece_map(good))
    file.write_bytes(good[: position + 4] + struct.pack("<I", 0xFFFFFC00) + good[position + 8 :])
    with pytest.raises(CheckpointError, match="the map of its characters is damaged"):
        SentencePieceEncoder(read_sentencepiece(file)).encode("é")
    with pytest.raises(CheckpointError, match=r"none\.spm: no such file"):
        read_sentencepiece(tmp_path / "none.spm")


def test_a_map_that_makes_a_character_a_book_is_damaged(tmp_path):
    """Each character of a text would become the whole map."""
    model = read_sentencepiece(train(tmp_path / "one.spm"))
    size = 4 + int.from_bytes(model.charsmap[:4], "little")
    replacements = model.charsmap[size:-1].replace(b"\0", b"x") + b"\0"
    encoder = SentencePieceEncoder(model._replace(charsmap=model.charsmap[:size] + replacements))
    with pytest.raises(CheckpointError, match="the map of its characters is damaged"):
        encoder.encode("ﬁ")


def read_sentencepiece_map(content: bytes) -> bytes:
    """Return the first bytes of the map that nmt_nfkc has."""
    begins = content.index(b"nmt_nfkc") + len(b"nmt_nfkc")
    return content[begins + 4 : begins + 20]
