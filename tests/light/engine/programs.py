"""Small programs with random weights, of every mix of settings that has a fast form: what the writers make of them."""

import random
from array import array
from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

from capsule_mt.engine.program import Linear, Program, Tensor, Vector
from capsule_mt.models import capsnmt, capsule_rnmt, marian
from capsule_mt.models.marian_variant import MarianVariant
from capsule_mt.models.parts import Parts
from capsule_mt.models.registry import write_program
from tests.mixes import FAMILIES, FAST, MIXES

VOCABULARY, PAD, END, POSITIONS = 61, 60, 0, 30
SOURCES = [[5, 6, 7, 8, END], [9, END], [11, 12, 13, 14, 15, 16, 17, 18, END], [20, 21, 22, END]]
TARGETS = [[30, 31, END], [32, 33, 34, 35, 36, 37, END], [END], [40, 41, 42, 43]]
WIDTH, HEADS = 20, 2
SIZES = {
    "vocab_size": VOCABULARY,
    "max_position_embeddings": POSITIONS,
    "d_model": WIDTH,
    "hidden_size": WIDTH,
    "embedding_size": 12,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "num_capsules": 3,
    "num_iterations": 2,
    "scale_embedding": True,
    "encoder_attention_heads": HEADS,
    "decoder_attention_heads": HEADS,
    "encoder_ffn_dim": 30,
    "decoder_ffn_dim": 30,
}
ONE_OF_EACH = {"guided_num_capsules": 1}  # capsules of PAST and of FUTURE


def tensor(values: list[float], *shape: int) -> Tensor:
    return Tensor(array("f", values), "F32", shape or (len(values),))


class Weights:
    """Random weights, the same for the same seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def numbers(self, count: int, scale: float) -> list[float]:
        return [self.random.gauss(0, scale) for _ in range(count)]

    def vector(self, count: int, scale: float = 0.3, around: float = 0.0) -> Vector:
        values = tensor([around + number for number in self.numbers(count, scale)])
        return Vector(count, lambda: values)

    def linear(self, outputs: int, inputs: int, with_bias: bool = True) -> Linear:
        weight = tensor(self.numbers(outputs * inputs, 1.5 * inputs**-0.5), outputs, inputs)
        bias = tensor(self.numbers(outputs, 0.3)) if with_bias else None
        return Linear(outputs, inputs, lambda: (weight, bias))


NOT_DRAWN = tensor([])


class DrawnWeights(dict[str, Tensor]):
    """The weights of a model, each drawn when the writer says which shape it expects."""

    def __init__(self, seed: int) -> None:
        super().__init__({"model.shared.weight": NOT_DRAWN})
        self.drawn = Weights(seed)

    def __iter__(self) -> Iterator[str]:
        return (name for name in super().__iter__() if self[name] is not NOT_DRAWN)

    def draw(self, name: str, shape: tuple[int, ...]) -> None:
        if name in self and self[name].shape == shape:
            return
        count = Tensor(b"", "F32", shape).size
        scale = 1.2 * shape[-1] ** -0.5 if len(shape) > 1 and "score" not in name else 0.3
        around = float("norm.weight" in name)
        self[name] = tensor([around + number for number in self.drawn.numbers(count, scale)], *shape)

    def shape(self, name: str) -> tuple[int, ...]:
        return self[name].shape

    def read(self, name: str) -> Tensor:
        return self[name]

    def problem(self, name: str, message: str) -> ValueError:
        return ValueError(message)


class DrawingParts(Parts):
    def expect(self, name: str, *shape: int) -> None:
        self.weights.draw(name, shape)
        super().expect(name, *shape)


def program_of(name: str, seed: int = 1) -> Program:
    """The program of a mix."""
    return written_program({"model_type": FAMILIES[name], **MIXES[FAMILIES[name]][name], **ONE_OF_EACH}, seed)


def program_of_variant(variant: MarianVariant, seed: int) -> Program:
    """The program of a model that Marian wrote."""
    fields = {"model_type": "capsule_marian", "decoder_self": variant.decoder_self, "marian_variant": variant}
    return written_program(fields, seed)


def written_program(fields: dict[str, Any], seed: int) -> Program:
    config = {**SIZES, **fields}
    with (
        patch.object(marian, "Parts", DrawingParts),
        patch.object(capsnmt, "Parts", DrawingParts),
        patch.object(capsule_rnmt, "Parts", DrawingParts),
    ):
        return write_program(config, DrawnWeights(seed))[0]


# together they have every step around a layer and every view of the past that Marian has beyond a Capsule Marian
VARIANTS = {
    "marian_average": MarianVariant(
        decoder_self="average", preprocess="n", postprocess="hr", postprocess_top="an", average_ffn_dim=WIDTH + 3
    ),
    "marian_ssru": MarianVariant(decoder_self="ssru", preprocess="r", ssru_layer_norm=True, rnn_projection=True),
    "marian_gru": MarianVariant(
        decoder_self="gru", normalises_keys=False, preprocess="n", sigmoid_gelu=True, decoder_ffn_depth=3
    ),
}
PROGRAMS = {name: program_of(name, seed) for seed, name in enumerate(FAST)}
PROGRAMS |= {name: program_of_variant(variant, seed) for seed, (name, variant) in enumerate(VARIANTS.items())}
# together they have every operation of today's mixes
SMALL_SET = ("combination", "dynamic", "combined", "ssru_combined", "rnmt_guided", "pooling", "hybrid", *VARIANTS)
