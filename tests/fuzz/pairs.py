"""Try every pair of options on every kind of model: no call breaks, and no source changes the result of another.

    python -m tests.fuzz.pairs                      # all models, minutes
    python -m tests.fuzz.pairs --models ssru        # one of them
    tests/fuzz/sanitized.sh pairs                   # under the address and undefined-behaviour sanitizers
    tests/fuzz/sanitized.sh threads                 # under the thread sanitizer

Options are tested alone elsewhere. Here each takes a value that is not its default, with each other one that does, in
float32 and int8, on one thread and on two. The kernels of this processor's other tiers count as an option.
"""

import argparse
import sys
from collections.abc import Iterator
from itertools import combinations
from typing import Any

from capsule_mt.options.table import SEARCH_FIELDS
from tests.fuzz.searches import Case, check_search, decoder_of, options_of
from tests.light.engine.conftest import TIERS

MODELS = (
    *("capsule_marian", "capsule_rnmt", "capsnmt", "ssru", "m2m_100"),
    *("marian/aan", "marian/rnn-gru", "marian/highway"),
)
SOURCES = [[5, 6, 7, 1], [90, 5, 5, 6, 8, 1], [7, 1], [6, 90, 1]]
LIMITS = [12, 5, 20, 9]
# of each field of a search, values that change what it does
VALUES: dict[str, list[Any]] = {
    "num_beams": [2, 5],
    "num_return_sequences": [2],
    "min_new_tokens": [4],
    "length_penalty": [0.0, -2.0],
    "early_stopping": [True, "never"],
    "repetition_penalty": [1.3, 0.5],
    "no_repeat_ngram_size": [1, 3],
    "renormalize_logits": [True],
    "suppress_tokens": [[5, 90]],
    "most_repeated": [2],
    "forces_end": [[True, False, True, True]],
    "prefixes": [[[7], [], [6, 5], [90]]],
    "shortlist": [[5, 6, 7, 8, 9, 10, 11, 12, 95], [1, 5, 6, 7, 8, 9, 90, 95]],  # all `SOURCES` share the second one
    "scores": [True],
    "readings": [{"head": [0, 0]}],
    "tier": TIERS[1:],  # the first is the default
}
NOT_TRIED = {"max_time"}  # its results depend on the clock
WITHOUT_HEADS = {"capsnmt", "capsule_rnmt"}  # that attend to the source in layers of the decoder
BY_SOURCE = ("forces_end", "prefixes")


def cases(models: tuple[str, ...] = MODELS) -> Iterator[Case]:
    """Yield a call for each pair of values of two fields."""
    missing = {option.name for option in SEARCH_FIELDS} - VALUES.keys() - NOT_TRIED
    assert not missing, f"give {', '.join(sorted(missing))} a value that is not the default"
    pairs = [
        {first: first_value, second: second_value}
        for first, second in combinations(VALUES, 2)
        for first_value in VALUES[first]
        for second_value in VALUES[second]
    ]
    for model in models:
        for int8 in (False, True):
            for threads in (1, 2):
                for pair in pairs:
                    if model in WITHOUT_HEADS and "readings" in pair:
                        continue
                    case: Case = {"model": model, "int8": int8, "threads": threads, **pair}
                    if case.get("num_return_sequences", 1) > case.get("num_beams", 1):
                        case["num_beams"] = case["num_return_sequences"]
                    yield case


def check_pair(case: Case) -> None:
    """The call passes `check_search`, and each source alone gets the same hypotheses as in the batch."""
    batch = {**case, "sources": SOURCES, "limits": LIMITS}
    check_search(batch)
    decoder = decoder_of(case["model"], case["int8"], case.get("tier"))
    together = decoder.translate(SOURCES, options_of(batch))
    for index, source in enumerate(SOURCES):
        single = {**case, "limits": [LIMITS[index]]}
        single |= {name: [case[name][index]] for name in BY_SOURCE if name in case}
        (alone,) = decoder.translate([source], options_of(single))
        assert [hypothesis.ids for hypothesis in alone] == [hypothesis.ids for hypothesis in together[index]]
        assert [hypothesis.score for hypothesis in alone] == [hypothesis.score for hypothesis in together[index]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=",".join(MODELS), help="the models to try, apart by commas")
    arguments = parser.parse_args()
    tried = failed = 0
    for case in cases(tuple(arguments.models.split(","))):
        tried += 1
        try:
            check_pair(case)
        except Exception as error:
            failed += 1
            print(f"{case}: {type(error).__name__}: {' '.join(str(error).split())[:200]}", flush=True)
    print(f"{tried} calls with pairs of {len(VALUES)} fields, {failed} failed")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
