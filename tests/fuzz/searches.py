"""Hostile calls of the engine: every field of a search, and of what is read while searching, sound or odd."""

import math
import random
import shutil
import struct
import tempfile
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

from capsule_mt.engine.decoder import EngineDecoder
from capsule_mt.engine.library import TIER
from capsule_mt.engine.search import Ids, Readings, SearchOptions
from capsule_mt.models.loading import load_model
from capsule_mt.options.table import SEARCH_FIELDS, Option
from tests.fixtures.marian_models import marian_folder
from tests.light.models.files import FOLDER as GOLDEN
from tests.light.models.files import TOKENIZER_FILES, golden, write_m2m100

Case = dict[str, Any]
MODELS = ("capsule_marian", "capsule_rnmt", "capsnmt", "ssru")  # the first two have PAST and FUTURE
VOCABULARY, WIDTH, PAD, END, POSITIONS = 700, 32, 0, 1, 64
NUMBERS = [0, 1, 2, 3, 5, 64, 65, 700, -1, -(2**31), 2**31, 2**40, 2**63 - 1, 2**64 + 1, True]
SOUND_TOKENS, ODD_TOKENS = [1, 5, 6, 7, 300, 699], [700, -1, 2**31, 2**64]


def draw_number(*sound: int) -> Callable[[random.Random, int], int]:
    return lambda generator, _: generator.choice(sound if generator.random() < 0.9 else NUMBERS)


def draw_choice(*values: Any) -> Callable[[random.Random, int], Any]:
    return lambda generator, _: generator.choice(values)


def draw_tokens(generator: random.Random, max_tokens: int = 4) -> list[int]:
    tokens = SOUND_TOKENS if generator.random() < 0.95 else SOUND_TOKENS + ODD_TOKENS
    return generator.choices(tokens, k=generator.randint(0, max_tokens))


def draw_limits(generator: random.Random, num_sources: int) -> list[int]:
    values = [1, 4, 20, POSITIONS - 1, POSITIONS, 0, POSITIONS + 1, -1, 2**40]
    return generator.choices(values, [20, 40, 20, 8, 8, 1, 1, 1, 1], k=num_sources)


def draw_length(generator: random.Random, num_sources: int) -> int:
    """Return how many values there are for the sources; rarely too many."""
    return num_sources + (generator.random() < 0.05)


def draw_option(option: Option) -> Callable[[random.Random, int], Any]:
    if option.kind == "integer":
        return draw_number(option.range[0] or 3, 2, 3, 5)
    if option.kind == "tokens":
        return lambda generator, _: draw_tokens(generator)
    sound = [*option.choices] or ([0.0005, 0.6, 1.0, 1.3, 5.0] if option.kind == "number" else [True, False])
    odd = [0.0, -3.0, 1e30, -1e30, math.inf, math.nan, None, *([] if option.kind == "number" else ["x"])]
    return lambda generator, _: generator.choice(sound if generator.random() < 0.7 else odd)


# each draws the value of a field for so many sources
READINGS: dict[str, Callable[[random.Random, int], Any]] = {
    "head": draw_choice(*[[0, 1]] * 4, [1, 3], [1, 4], [2, 0], [-1, 0], [0, -1], [2**31, 2**40]),
}
SEARCH: dict[str, Callable[[random.Random, int], Any]] = {
    "limits": draw_limits,
    "forces_end": lambda generator, count: generator.choices([True, False], k=draw_length(generator, count)),
    "prefixes": lambda generator, count: [draw_tokens(generator) for _ in range(draw_length(generator, count))],
    "shortlist": lambda generator, _: draw_tokens(generator, max_tokens=20),
    "scores": draw_choice(True, False),
    "readings": lambda generator, count: {
        name: draw(generator, count) for name, draw in READINGS.items() if generator.random() < 0.7
    },
    "transformers_only": draw_choice({}, {}, {}, {"top_k": 5}),
    **{option.name: draw_option(option) for option in SEARCH_FIELDS},
}


class Listed:
    """A shortlist of these tokens and the source's; sources with the same tokens share a list."""

    def __init__(self, tokens: Ids) -> None:
        self.tokens = tokens
        self._lists: dict[tuple[int, ...], Sequence[int]] = {}

    def of_source(self, source: Ids, *extra_tokens: int) -> Sequence[int]:
        tokens = sorted({*self.tokens, *source, *extra_tokens})
        return self._lists.setdefault(tuple(tokens), tokens)


def random_m2m100(folder: Path) -> Path:
    """Write an M2M100 of the size of the golden checkpoints, with random weights and their tokenizer."""
    sizes = {"layers": 2, "attention_heads": 4, "ffn_dim": 64}
    fields = {f"{side}_{size}": value for side in ("encoder", "decoder") for size, value in sizes.items()}
    fields |= {"vocab_size": VOCABULARY, "d_model": WIDTH, "max_position_embeddings": POSITIONS}
    fields |= {"pad_token_id": PAD, "decoder_start_token_id": END, "eos_token_id": END}
    generator = random.Random(0)

    def halves(name: str, count: int) -> bytes:
        mean, deviation = (1.0, 0.2) if name.endswith("norm.weight") else (0.0, 0.35)
        numbers = [generator.gauss(mean, deviation) for _ in range(count)]
        if name == "model.shared.weight":  # a token is not its own best successor, and translations end
            numbers = [number / 4 for number in numbers]
            numbers[END * WIDTH : (END + 1) * WIDTH] = [2 * number for number in numbers[END * WIDTH :][:WIDTH]]
        return struct.pack(f"<{count}e", *numbers)

    write_m2m100(folder, halves, **fields)
    for file in TOKENIZER_FILES:
        shutil.copy(GOLDEN / "capsule_marian" / file, folder)
    return folder


@cache
def decoder_of(name: str, int8: bool, tier: str | None = None) -> EngineDecoder:
    """Load a golden checkpoint, a random `m2m_100`, or a model that Marian wrote, as in "marian/aan"."""
    target = Path(tempfile.mkdtemp()) / Path(name).name
    if name.startswith("marian/"):
        folder = marian_folder(name.removeprefix("marian/"), target)
    else:
        folder = random_m2m100(target) if name == "m2m_100" else golden(name, target)
    with patch.dict("os.environ", {TIER: tier} if tier else {}):
        decoder = load_model(folder, int8=int8).decoder
    assert isinstance(decoder, EngineDecoder)
    return decoder


def make_search(generator: random.Random) -> Case:
    case: Case = {"model": generator.choice(MODELS), "int8": generator.random() < 0.3}
    case["threads"] = generator.choice((1, 1, 3))
    case["sources"] = [
        generator.choices([*SOUND_TOKENS, *(ODD_TOKENS if generator.random() < 0.02 else [])], k=length)
        for length in generator.choices([0, 1, 3, 64, 65], [1, 40, 40, 8, 1], k=generator.randint(1, 4))
    ]
    for name, draw in SEARCH.items():
        if name == "limits" or generator.random() < 0.3:
            case[name] = draw(generator, len(case["sources"]))
    return case


def options_of(case: Case) -> SearchOptions:
    fields = {name: case[name] for name in SEARCH if name in case}
    if "shortlist" in fields:
        fields["shortlist"] = Listed(fields["shortlist"])
    if "readings" in fields:
        fields["readings"] = Readings(**fields["readings"])
    return SearchOptions(**fields)


def check_search(case: Case) -> None:
    """A search is a `ValueError`, or gives tokens of the vocabulary and reads what a forced pass reads of them."""
    decoder = decoder_of(case.get("model", MODELS[0]), case.get("int8", False), case.get("tier"))
    options = options_of(case)
    decoder.engine.num_threads = case.get("threads", 1)
    readings = options.readings or Readings()
    try:
        results = decoder.translate(case["sources"], options)
    except ValueError:
        return
    for source, limit, hypotheses in zip(case["sources"], case["limits"], results, strict=True):
        assert len(hypotheses) <= options.num_return_sequences
        for hypothesis in hypotheses:
            ids = hypothesis.ids
            assert 0 < len(ids) <= limit
            assert all(0 <= token < VOCABULARY for token in ids)
            if options.scores or options.num_beams > 1:
                assert all(math.isfinite(log_prob) for log_prob in hypothesis.log_probs)
            if PAD in ids[:-1]:  # a forced pass reads up to the padding
                continue
            (forced,) = decoder.force([source], [ids], readings)
            assert forced.attention == hypothesis.attention or ids == [decoder.end]
