"""Signs of ASCII that a vocabulary with byte fallback writes as bytes: the model does not read them."""

from pathlib import Path

import pytest

from capsule_mt.models.checkpoint_tokenizer import FileTokenizer
from capsule_mt.text.segments import Segmenter
from capsule_mt.text.tokenizer_protocol import byte_ids_of, unknown_tokens
from capsule_mt.text.vocabulary import Vocabulary
from tests.fixtures.vectors import vectors
from tests.light.text.fakes import ByteTokenizer, CharacterTokenizer

VECTORS = vectors("lacked")
RELEASED = Path(__file__).resolve().parents[3] / "checkpoints" / "capsule-marian-de-en"


@pytest.mark.parametrize("case", VECTORS["cases"], ids=repr)
def test_what_a_model_reads_of_signs_that_it_lacks(case):
    tokenizer, text = ByteTokenizer(VECTORS["bytes"]), case["text"]
    document = Segmenter(tokenizer, None, split_sentences=case.get("splits", True), src_lang="en").document(text)
    signs = [edit.back for edit in document.form.edits if edit.row == "lacked sign"]
    unknown = sorted(unknown_tokens(tokenizer, text, tokenizer.encode(text)))
    assert [unknown, [piece.text for piece in document.pieces], signs] == [
        case["unknown"],
        case["read"],
        case["signs"],
    ]
    assert document.unknown == 0.0  # signs of ASCII do not tell that a text is in another language


def test_a_vocabulary_of_each_language_covers_no_bytes():
    vocabulary = Vocabulary(ByteTokenizer("&"))
    for side in (vocabulary, vocabulary.for_target):
        assert (side.covers("&"), side.covers("b"), side.lacked("a & b - c")) == (False, True, {"&"})


def test_a_vocabulary_without_bytes_lacks_nothing():
    tokenizer = CharacterTokenizer("Tom &Mari.")
    (piece,) = Segmenter(tokenizer, None).document("Tom & Maria.").pieces
    assert piece.text == "Tom & Maria."


def test_the_bytes_of_a_released_vocabulary_are_signs():
    tokenizer = FileTokenizer(RELEASED)
    assert tokenizer.byte_ids == tokenizer.target_byte_ids
    assert sorted(map(tokenizer.decode, ([token] for token in tokenizer.byte_ids))) == sorted(
        "#$%&()*+/:;<=>@[\\]^_`{|}~"
    )
    assert Vocabulary(tokenizer).lacked("Tom & Maria: 5 % [x] #1") == set("&[]#")


def test_byte_ids_are_those_of_pieces_that_the_vocabulary_has():
    assert byte_ids_of({"<0x26>": 5, "<0x41>": 6}.get, 0) == {5}  # no vocabulary lacks "A"
    assert byte_ids_of(lambda piece: 0, 0) == set()
