"""Models without a decoder: what `Engine.encode` returns, against plain loops, and what it refuses."""

from typing import Any
from unittest.mock import patch

import pytest

from capsule_mt.engine.engine import Engine
from capsule_mt.engine.program import Program, Space, Writer
from capsule_mt.engine.request import ForcedCall, SpecialTokens
from capsule_mt.engine.search import Readings, SearchOptions
from capsule_mt.models import bert
from capsule_mt.models.registry import write_encoder
from tests.light.engine.conftest import needs_engine
from tests.light.engine.plain import Plain
from tests.light.engine.programs import END, PAD, PROGRAMS, SOURCES, VOCABULARY, WIDTH, DrawingParts, DrawnWeights

LAYERS = [0, 1, 3]
CONFIG: dict[str, Any] = {
    "model_type": "bert",
    "vocab_size": VOCABULARY,
    "hidden_size": WIDTH,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 33,
    "max_position_embeddings": 12,
}


def encoder_program(layers: list[int] | None = None, **fields: Any) -> Program:
    with patch.object(bert, "Parts", DrawingParts):
        return write_encoder({**CONFIG, **fields}, DrawnWeights(5), layers=layers)[0]


def check_encoding(tier: str | None = None, num_threads: int = 1) -> None:
    """The numbers of plain loops, for each source of a batch as for the source alone."""
    program = encoder_program(LAYERS)
    engine = Engine(program, int8=False, tier=tier, num_threads=num_threads)
    encoded = engine.encode(SOURCES)
    for source, numbers in zip(SOURCES, encoded, strict=True):
        expected = Plain(program, source, PAD).values[program.logits]
        assert list(numbers) == pytest.approx([number for row in expected for number in row], abs=2e-5)
        assert list(engine.encode([source])[0]) == list(numbers)


@needs_engine
def test_every_tier_encodes_as_plain_loops_do(tier):
    check_encoding(tier)


@needs_engine
@pytest.mark.parametrize("int8", [False, True])
def test_a_batch_and_threads_change_no_bit(int8):
    sources = [SOURCES[index % 4] for index in range(90)]  # more than a part of a batch has
    engines = [Engine(encoder_program(LAYERS), int8=int8, num_threads=number) for number in (1, 3)]
    alone = {tuple(source): engines[0].encode([source])[0] for source in SOURCES}
    assert all(engine.encode(sources) == [alone[tuple(source)] for source in sources] for engine in engines)
    assert engines[0].encode([]) == []


@needs_engine
def test_the_last_layer_alone_has_the_same_numbers():
    width, joined = len(LAYERS) * WIDTH, Engine(encoder_program(LAYERS), int8=False).encode(SOURCES)
    for layers in (None, [3]):
        encoded = Engine(encoder_program(layers), int8=False).encode(SOURCES)
        for numbers, wide in zip(encoded, joined, strict=True):
            rows = [wide[start + 2 * WIDTH : start + width] for start in range(0, len(wide), width)]
            assert list(numbers) == [number for row in rows for number in row]


@needs_engine
def test_positions_and_tokens_are_limits():
    engine = Engine(encoder_program(), int8=False)
    assert len(engine.encode([[1] * 12])[0]) == 12 * WIDTH
    with pytest.raises(ValueError, match="a source of 13 tokens, but there are positions for 12"):
        engine.encode([[1] * 13])
    with pytest.raises(ValueError, match="the source: token 61 is outside the vocabulary of 61"):
        engine.encode([[VOCABULARY]])
    with pytest.raises(ValueError, match="source 1 has no token"):
        engine.encode([[1], []])


@needs_engine
def test_a_model_does_what_its_programs_are_for():
    encoder, translator = Engine(encoder_program(), int8=False), Engine(PROGRAMS["plain"], int8=False)
    with pytest.raises(ValueError, match="the model has no decoder"):
        encoder.force(SOURCES[:1], [[1]], Readings(), start=PAD, end=END, pad=PAD)
    with pytest.raises(ValueError, match="the model has no decoder"):
        encoder.search(SOURCES[:1], SearchOptions(limits=[3]), start=PAD, end=END, pad=PAD)
    with pytest.raises(ValueError, match="the model has a decoder"):
        translator.encode(SOURCES)
    # the engine refuses it, too
    call = ForcedCall(SOURCES[:1], [[1]], Readings(), SpecialTokens(PAD, END, PAD), VOCABULARY)
    call.arrays["encoded"] = call.arrays["target_log_probs"]
    call.numbers["num_threads"] = 1
    with pytest.raises(ValueError, match="the model has a decoder"):
        translator._model.translate(call.numbers, call.arrays)


@needs_engine
def test_a_program_that_returns_nothing_is_refused():
    program = encoder_program()
    program.logits = program.buffer(Space.WORDS, WIDTH)  # which no operation writes
    with pytest.raises(ValueError, match="the encoder writes no buffer of words that is returned"):
        Engine(program, int8=False)
    mean = program.buffer(Space.SOURCES, WIDTH)
    Writer(program, program.encoder, Space.SOURCES).run("MEAN_WORDS", mean, words=0)
    program.logits = mean
    with pytest.raises(ValueError, match="the encoder writes no buffer of words that is returned"):
        Engine(program, int8=False)
