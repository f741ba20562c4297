"""A model that was read from a folder, with what it takes to translate by it."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from capsule_mt.engine.search import Candidates, Decoder
from capsule_mt.text.tokenizer_protocol import Tokenizer


class LoadedModel(NamedTuple):
    """A decoder, its tokenizer, and the settings of the model.

    generation: the model's defaults of `num_beams`, `max_new_tokens` and so on.
    calibration: the model's `coverage_calibration`, empty if there is none.
    longest_source, longest_target: the most tokens of a source, and of a translation after the start token; `None`
        where the model has no limit.
    length_factor: a translation has at most this many times the tokens of its source, rounded up, as Marian's
        `max-length-factor` says; `None` for the limit of other models.
    head_shape: how many decoder layers, and heads in each, attend to the source; (0, 0) if none can be read.
    """

    decoder: Decoder
    tokenizer: Tokenizer
    name: str
    start: int
    end: int
    pad: int
    generation: Mapping[str, Any] = {}
    calibration: Mapping[str, Any] = {}
    longest_source: int | None = None
    longest_target: int | None = None
    head_shape: tuple[int, int] = (0, 0)
    shortlist: Candidates | None = None
    length_factor: float | None = None
