"""Searching and forced passes, against plain loops and against each other."""

import math
import os
import signal
from pathlib import Path

import pytest

from capsule_mt.engine.decoder import EngineDecoder
from capsule_mt.engine.engine import Engine
from capsule_mt.engine.program import Codes, Program, Tensor, operations
from capsule_mt.engine.search import Readings, Restriction, SearchOptions
from capsule_mt.options.table import offered
from tests.light.engine.conftest import TIERS
from tests.light.engine.plain import Plain, log_probs_of
from tests.light.engine.programs import (
    END,
    PAD,
    POSITIONS,
    PROGRAMS,
    SIZES,
    SMALL_SET,
    SOURCES,
    TARGETS,
    DrawnWeights,
    program_of,
    tensor,
)

SEARCHES = {
    "greedy": {},
    "beams": {"num_beams": 4, "num_return_sequences": 3},
    "short": {"num_beams": 3, "length_penalty": 0.6, "early_stopping": True},
    "long": {"num_beams": 3, "length_penalty": 1.4, "early_stopping": "never", "no_repeat_ngram_size": 2},
}
names = pytest.mark.parametrize("name", SMALL_SET)


def decoder_of(program: Program, *, int8: bool = False, num_threads: int = 1) -> EngineDecoder:
    return EngineDecoder(Engine(program, int8=int8, num_threads=num_threads), PAD, END, PAD)


def readings_of(decoder: EngineDecoder) -> Readings:
    engine = decoder.engine
    return Readings(head=(1, 1) if engine.head_shape[0] else None)


def options(limit: int = 12, **settings) -> SearchOptions:
    settings.setdefault("suppress_tokens", [PAD])
    return SearchOptions(limits=[limit] * len(SOURCES), **settings)


def all_results(decoder: EngineDecoder, limit: int = 12):
    """All that searches and forced passes give."""
    readings = readings_of(decoder)
    beams = [decoder.translate(SOURCES, options(limit, readings=readings, **search)) for search in SEARCHES.values()]
    return beams, decoder.force(SOURCES, TARGETS, readings)


def length_until_repeated(ids, max_repeated: int) -> int:
    """Count the tokens up to the end of the first `max_repeated` that repeat those 1 to 16 places before them."""
    for length in range(1, len(ids) + 1):
        for cycle in range(1, min(16, length - max_repeated) + 1):
            if ids[length - max_repeated : length] == ids[length - max_repeated - cycle : length - cycle]:
                return length
    return len(ids)


@pytest.mark.parametrize("name", ["plain", "rnmt_guided"])
def test_what_repeats_itself_ends(name):
    decoder, never = decoder_of(PROGRAMS[name]), {"suppress_tokens": [END]}  # random models repeat themselves
    full_length = [shortened[0].ids for shortened in decoder.translate(SOURCES, options(POSITIONS, **never))]
    repeated_until = [beams[0] for beams in decoder.translate(SOURCES, options(POSITIONS, most_repeated=3, **never))]
    lengths = [length_until_repeated(ids, 3) for ids in full_length]
    assert [beams.ids for beams in repeated_until] == [
        ids[:length] for ids, length in zip(full_length, lengths, strict=True)
    ]
    assert any(length < POSITIONS for length in lengths)
    assert [beams.was_cut for beams in repeated_until] == [True] * len(SOURCES)
    several = options(POSITIONS, num_beams=3, num_return_sequences=3, most_repeated=3)
    for hypotheses in decoder.translate(SOURCES, several):
        assert [len(beams.ids) for beams in hypotheses] == [
            length_until_repeated(beams.ids, 3) for beams in hypotheses
        ]
    begun = options(POSITIONS, most_repeated=2, prefixes=[[5] * 6] * len(SOURCES))  # what is given may repeat itself
    assert all(beams[0].ids[:6] == [5] * 6 for beams in decoder.translate(SOURCES, begun))


def check_plain(name: str) -> None:
    """Forced tokens have the log-probabilities, and the attention of plain loops."""
    decoder = decoder_of(PROGRAMS[name])
    readings = readings_of(decoder)
    readings_found = decoder.force(SOURCES, TARGETS, readings)
    for source, target, forced in zip(SOURCES, TARGETS, readings_found, strict=True):
        plain = Plain(PROGRAMS[name], source, PAD)
        steps = [log_probs_of(plain.read(token)) for token in (PAD, *target)]
        expected = [row[token] for row, token in zip(steps[:-1], target, strict=True)]
        assert forced.log_probs == pytest.approx(expected, abs=2e-4)
        if readings.head is not None:
            for row, share in zip(forced.attention, plain.attended[1, 1], strict=False):
                assert row == pytest.approx(share, abs=2e-5)


@names
def test_forced_tokens_have_the_numbers_of_plain_loops(name, tier):
    check_plain(name)


@names
def test_a_greedy_search_without_scores_has_the_same_tokens(name):
    decoder = decoder_of(PROGRAMS[name])
    for settings in ({}, {"num_beams": 3}, {"prefixes": [[5]] * len(SOURCES)}, {"min_new_tokens": 5}):
        scored, unscored = (decoder.translate(SOURCES, options(scores=scores, **settings)) for scores in (True, False))
        assert [best.ids for beams in unscored for best in beams] == [best.ids for beams in scored for best in beams]


class CodedWeights(DrawnWeights):
    """The weights of a model whose table of tokens is large, and given as codes."""

    def draw(self, name, shape):
        if len(shape) < 2 or shape[0] < 1000:
            super().draw(name, shape)
        elif not isinstance(self.get(name), Codes):
            content = self.drawn.random.randbytes(shape[0] * shape[1]).replace(b"\x80", b"\0")
            self[name] = Codes(Tensor(content, "I8", shape), tensor([1.0] * shape[0]))

    def shape(self, name):
        return self[name].codes.shape if isinstance(self[name], Codes) else self[name].shape


@pytest.mark.parametrize("tier", [tier for tier in TIERS if tier not in ("avx2", "portable")])
def test_a_sentence_alone_has_its_tokens_of_a_batch_with_a_large_vocabulary_too(monkeypatch, tier):
    """For a single row, most logits are only estimated; for many rows, none is stored."""
    monkeypatch.setenv("HF_CAPSULE_MT_TIER", tier)
    monkeypatch.setitem(SIZES, "vocab_size", 70_000)
    for name in ("d_model", "hidden_size"):
        monkeypatch.setitem(SIZES, name, 64)
    monkeypatch.setattr("tests.light.engine.programs.DrawnWeights", CodedWeights)
    decoder, suppressed = decoder_of(program_of("plain"), int8=True), [PAD, END]
    for _ in range(6):
        asked = options(POSITIONS, suppress_tokens=suppressed, scores=False)
        batch = [best.ids for beams in decoder.translate(SOURCES, asked) for best in beams]
        for decoder.engine.num_threads in (3, 1):
            alone = [decoder.translate([source], asked._replace(limits=[POSITIONS])) for source in SOURCES]
            assert [best.ids for beams in alone for best in beams[0]] == batch
        large_batch = decoder.translate(SOURCES * 5, asked._replace(limits=[POSITIONS] * 5 * len(SOURCES)))
        assert [best.ids for beams in large_batch for best in beams] == 5 * batch
        suppressed += {token for ids in batch for token in ids}


@pytest.mark.parametrize("tier", [tier for tier in TIERS if tier not in ("avx2", "portable")])
def test_a_preview_of_the_logits_loses_no_option(monkeypatch, tier):
    """Without scores most logits are estimated, unless an option needs all of them."""
    monkeypatch.setenv("HF_CAPSULE_MT_TIER", tier)
    monkeypatch.setitem(SIZES, "vocab_size", 70_000)
    for name in ("d_model", "hidden_size"):
        monkeypatch.setitem(SIZES, name, 64)
    monkeypatch.setattr("tests.light.engine.programs.DrawnWeights", CodedWeights)
    decoder, chosen = decoder_of(program_of("plain"), int8=True), {"integer": 1, "number": 1.3, "tokens": [PAD, END]}
    for _ in range(20):  # until the previews begin
        decoder.translate(SOURCES[:1], SearchOptions([POSITIONS], scores=False))
    for option in offered("engine"):
        settings = {option.name: chosen.get(option.kind, True)}
        scored, unscored = (
            [decoder.translate([source], SearchOptions([POSITIONS], scores=scores, **settings)) for source in SOURCES]
            for scores in (True, False)
        )
        assert [result[0][0].ids for result in scored] == [result[0][0].ids for result in unscored], option.name
    # ragged prefixes, so that sources go on at different steps; then equal ones, whose steps read no logits at all
    prefixes = [[7 * index % 50 + 3] * (index % 4) for index in range(len(SOURCES))]
    for settings in (prefixes, [[5, 6]] * len(SOURCES)):
        scored, unscored = (
            decoder.translate(SOURCES, options(POSITIONS, scores=scores, prefixes=settings))
            for scores in (True, False)
        )
        assert [result[0].ids for result in unscored] == [result[0].ids for result in scored]
        alone = [
            decoder.translate(
                [source], SearchOptions([POSITIONS], scores=False, suppress_tokens=[PAD], prefixes=[ids])
            )
            for source, ids in zip(SOURCES, settings, strict=True)
        ]
        assert [result[0][0].ids for result in alone] == [result[0].ids for result in scored]


@pytest.mark.parametrize("name", [name for name in PROGRAMS if name not in SMALL_SET])
def test_every_mix_has_the_numbers_of_plain_loops(name):
    check_plain(name)


def test_the_programs_have_every_operation():
    used = {
        instruction.kind.name for program in PROGRAMS.values() for instruction in (*program.encoder, *program.decoder)
    }
    assert used == set(operations())


@names
def test_a_greedy_search_takes_the_likeliest_token_of_plain_loops(name):
    for source, (hypothesis,) in zip(SOURCES, decoder_of(PROGRAMS[name]).translate(SOURCES, options()), strict=True):
        plain, expected = Plain(PROGRAMS[name], source, PAD), [PAD]
        while len(expected) < 13 and expected[-1] != END:
            logits = plain.read(expected[-1])
            expected.append(max(range(PAD), key=logits.__getitem__))
        assert hypothesis.ids == expected[1:]
        assert hypothesis.was_cut == (expected[-1] != END)


@pytest.mark.parametrize("int8", [False, True])
@pytest.mark.parametrize("limit", [12, 3])
@names
def test_forcing_what_a_search_found_reads_the_same_bit_for_bit(name, limit, int8, tier):
    decoder = decoder_of(PROGRAMS[name], int8=int8)
    readings = readings_of(decoder)
    for search in ("greedy", "beams"):
        results = decoder.translate(SOURCES, options(limit, readings=readings, **SEARCHES[search]))
        for source, hypotheses in zip(SOURCES, results, strict=True):
            for hypothesis in hypotheses:
                (forced,) = decoder.force([source], [hypothesis.ids], readings)
                assert forced.log_probs == pytest.approx(hypothesis.log_probs, abs=1e-6)
                if readings.head is not None and hypothesis.ids != [END]:
                    assert forced.attention == hypothesis.attention


@pytest.mark.parametrize("int8", [False, True])
@names
def test_batches_and_threads_change_nothing(name, int8):
    alone, together = decoder_of(PROGRAMS[name], int8=int8), decoder_of(PROGRAMS[name], int8=int8, num_threads=3)
    readings = readings_of(alone)
    assert all_results(alone) == all_results(together)
    for row, (source, target) in enumerate(zip(SOURCES, TARGETS, strict=True)):
        assert alone.force([source], [target], readings) == [alone.force(SOURCES, TARGETS, readings)[row]]
        for search in SEARCHES.values():
            single = SearchOptions(limits=[12], suppress_tokens=[PAD], readings=readings, **search)
            batch = alone.translate(SOURCES, options(readings=readings, **search))
            assert alone.translate([source], single) == [batch[row]]


@pytest.mark.parametrize("int8", [False, True])
@names
def test_more_words_than_are_worked_on_at_once_change_nothing(name, int8):
    decoder, times = decoder_of(PROGRAMS[name], int8=int8, num_threads=2), 12
    readings, asked = readings_of(decoder), options()
    asked = asked._replace(limits=[*asked.limits] * times)
    assert decoder.translate(SOURCES * times, asked) == decoder.translate(SOURCES, options()) * times
    forced = decoder.force(SOURCES, TARGETS, readings)
    assert decoder.force(SOURCES * times, TARGETS * times, readings) == forced * times


@pytest.mark.parametrize("int8", [False, True])
@names
def test_requested_positions_alone_are_scored_bit_for_bit(name, int8):
    decoder = decoder_of(PROGRAMS[name], int8=int8, num_threads=2)
    readings = readings_of(decoder)
    positions = [range(len(target))[row % 2 :: row + 1] for row, target in enumerate(TARGETS)]
    complete = decoder.force(SOURCES, TARGETS, readings)
    partial = decoder.force(SOURCES, TARGETS, readings, positions)
    assert [forced.attention for forced in partial] == [forced.attention for forced in complete]
    for scored_positions, full, forced in zip(positions, complete, partial, strict=True):
        for position, log_prob in enumerate(forced.log_probs):
            is_scored = position in scored_positions
            assert log_prob == full.log_probs[position] if is_scored else math.isnan(log_prob)
    assert all(map(math.isnan, decoder.force(SOURCES[:1], TARGETS[:1], readings, [()])[0].log_probs))


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="the test counts threads as Linux does")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_threads_wait_for_the_next_call_and_a_fork_has_its_own():
    decoder, single = decoder_of(PROGRAMS["combination"], num_threads=3), SearchOptions(limits=[12])
    expected = decoder.translate(SOURCES[:1], single)
    threads = os.listdir("/proc/self/task")
    assert decoder.translate(SOURCES[:1], single) == expected
    assert os.listdir("/proc/self/task") == threads
    child = os.fork()
    if not child:
        signal.alarm(300)
        is_same = decoder.translate(SOURCES[:1], single) == expected
        os._exit(0 if is_same and len(os.listdir("/proc/self/task")) == 3 else 1)
    assert os.waitpid(child, 0)[1] == 0


@names
def test_translations_begin_with_their_prefixes(name):
    decoder = decoder_of(PROGRAMS[name])
    readings = readings_of(decoder)
    for search in SEARCHES.values():
        prefixes = [[33], [], [40, 41, 42], [50, 51]]
        results = decoder.translate(SOURCES, options(prefixes=prefixes, readings=readings, **search))
        for source, prefix, hypotheses in zip(SOURCES, prefixes, results, strict=True):
            assert hypotheses
            for hypothesis in hypotheses:
                assert hypothesis.ids[: len(prefix)] == prefix
                (forced,) = decoder.force([source], [hypothesis.ids], readings)
                assert forced.log_probs == pytest.approx(hypothesis.log_probs, abs=1e-6)


class Listed:
    """A shortlist of a few tokens."""

    def __init__(self, end: int = 50) -> None:
        self.tokens = range(30, end)

    def of_source(self, source, *extra_tokens):
        return sorted({*self.tokens, *source, *extra_tokens})


@names
def test_only_listed_tokens_are_written(name):
    """The likeliest of them by a greedy search; the scores of beams are among these tokens, too."""
    decoder = decoder_of(PROGRAMS[name])
    for label, search in SEARCHES.items():
        listed = decoder.translate(SOURCES, options(shortlist=Listed(), **search))
        for source, hypotheses in zip(SOURCES, listed, strict=True):
            tokens = Listed().of_source(source, END)
            assert all(set(hypothesis.ids) <= set(tokens) for hypothesis in hypotheses)
            unlisted = sorted(set(range(PAD + 1)) - set(tokens))
            (expected,) = decoder.translate([source], SearchOptions(limits=[12], suppress_tokens=unlisted))
            assert label != "greedy" or hypotheses[0].ids == expected[0].ids


@pytest.mark.parametrize("int8", [False, True])
def test_restricted_probabilities_are_shares_of_the_list(int8):
    """They are those of a search with that list, and by plain loops: p over the sum of p of the list."""
    decoder, limits = decoder_of(PROGRAMS["plain"], int8=int8, num_threads=2), [12] * len(SOURCES)
    results = decoder.translate(SOURCES, SearchOptions(limits, shortlist=Listed()))
    targets = [hypotheses[0].ids for hypotheses in results]
    restriction = Restriction(Listed(), SOURCES)
    forced = decoder.force(SOURCES, targets, Readings(), restriction=restriction)
    for hypotheses, scored in zip(results, forced, strict=True):
        assert scored.log_probs == pytest.approx(hypotheses[0].log_probs, abs=1e-6)
    assert decoder.force(SOURCES[1:2], targets[1:2], Readings(), restriction=Restriction(Listed(), SOURCES[1:2])) == [
        forced[1]
    ]
    shorter = [source[1:] for source in SOURCES if len(source) > 1]  # the list stays that of the complete source
    complete = [source for source in SOURCES if len(source) > 1]
    kept_targets = [target for source, target in zip(SOURCES, targets, strict=True) if len(source) > 1]
    forced = decoder.force(shorter, kept_targets, Readings(), restriction=Restriction(Listed(), complete))
    for source, full_source, target, scored in zip(shorter, complete, kept_targets, forced, strict=True):
        plain, tokens = Plain(PROGRAMS["plain"], source, PAD), Listed().of_source(full_source, *target)
        steps = [log_probs_of(plain.read(token)) for token in (PAD, *target)][:-1]
        for token, log_probs, log_prob in zip(target, steps, scored.log_probs, strict=True):
            share = log_probs[token] - math.log(sum(math.exp(log_probs[listed]) for listed in tokens))
            assert log_prob == pytest.approx(share, abs=0.05 if int8 else 2e-4)


class Unsorted:
    """A shortlist that breaks the rule of `Candidates`."""

    def of_source(self, source, *extra_tokens):
        return [40, 30]


class Shared:
    """A list of tokens for every source: one object, or a copy for each."""

    def __init__(self, *, copies: bool) -> None:
        self.copies, self.tokens = copies, [END, *range(20, 50)]

    def of_source(self, source, *extra_tokens):
        return list(self.tokens) if self.copies else self.tokens


def test_an_end_is_forced_even_if_the_list_lacks_it():
    decoder, shortlist = decoder_of(PROGRAMS["plain"]), Shared(copies=False)
    shortlist.tokens.remove(END)
    for search in SEARCHES.values():
        fields = {**search, "shortlist": shortlist, "forces_end": [True] * len(SOURCES)}
        for hypotheses in decoder.translate(SOURCES, options(**fields)):
            assert all(hypothesis.ids[-1] == END for hypothesis in hypotheses)
            assert all({*hypothesis.ids[:-1]} <= {*shortlist.tokens} for hypothesis in hypotheses)


def test_a_list_that_sources_share_is_as_a_list_of_each():
    decoder = decoder_of(PROGRAMS["plain"])
    for search in SEARCHES.values():
        shared, separate = (
            decoder.translate(SOURCES, options(shortlist=Shared(copies=copies), **search)) for copies in (False, True)
        )
        assert shared == separate
        assert {token for hypotheses in shared for token in hypotheses[0].ids} <= {*range(20, 50), END}


class OfSource:
    """For each source, tokens by its first one that others lack, and shared tokens; the first of several lists all."""

    def __init__(self, num_unshared: int, shared: list[int]) -> None:
        self.num_unshared, self.shared = num_unshared, shared

    def of_source(self, source, *extra_tokens):
        index = source[0] - 5
        unshared = range(index * self.num_unshared, (index + 1) * self.num_unshared)
        return [*range(PAD + 1)] if self.shared and not index else sorted({*unshared, *self.shared})


@pytest.mark.parametrize("int8", [False, True])
@pytest.mark.parametrize(
    ("num_sources", "shortlist"),
    [(8, OfSource(7, [])), (17, OfSource(3, [END, *range(52, 60)]))],
    ids=["unshared", "shared"],
)
def test_a_sentence_is_itself_beside_sources_with_other_lists(num_sources, shortlist, int8, tier):
    """A batch computes the tokens that few sources list for these sources alone."""
    sources = [[5 + i, 20 + i, 40 - i] for i in range(num_sources)]
    decoder = decoder_of(PROGRAMS["plain"], int8=int8)
    two_threads = decoder_of(PROGRAMS["plain"], int8=int8, num_threads=2)
    prefixes = [[58, 59][: i % 3] for i in range(len(sources))]
    for search in (
        {},
        {"scores": False},
        {"num_beams": 3, "num_return_sequences": 2},
        {"num_beams": 2, "repetition_penalty": 1.3},
        {"num_beams": 2, "prefixes": prefixes},
    ):

        def translate(decoder, first, end, search=search):
            fields = {**search, "prefixes": prefixes[first:end]} if "prefixes" in search else search
            limits = [4 + i % 5 for i in range(first, end)]
            return decoder.translate(sources[first:end], SearchOptions(limits, shortlist=shortlist, **fields))

        alone = [translate(decoder, i, i + 1)[0] for i in range(len(sources))]
        assert translate(decoder, 0, len(sources)) == alone
        assert translate(two_threads, 0, len(sources)) == alone


class Twice(OfSource):
    """Lists that name a token of a source more often than there are candidates."""

    def of_source(self, source, *extra_tokens):
        return [*super().of_source(source), *[7 * (source[0] - 5)] * 80]


def test_a_batch_of_lists_that_name_a_token_twice():
    sources, limits = [[5 + i, 20 + i] for i in range(8)], [6] * 8
    decoder = decoder_of(PROGRAMS["plain"])
    twice, once = (
        decoder.translate(sources, SearchOptions(limits, shortlist=shortlist, scores=False))
        for shortlist in (Twice(7, []), OfSource(7, []))
    )
    assert [beams[0].ids for beams in twice] == [beams[0].ids for beams in once]


def test_options_of_generate_are_refused():
    with pytest.raises(ValueError, match=r"not support `top_k`, `num_beam` \(did you mean `num_beams`\?\)$"):
        decoder_of(PROGRAMS["plain"]).translate(SOURCES, options(transformers_only={"top_k": 5, "num_beam": 5}))
    with pytest.raises(ValueError, match=r"not support `bad_words_ids` with sequences of several tokens$"):
        decoder_of(PROGRAMS["plain"]).translate(SOURCES, options(transformers_only={"bad_words_ids": [[5, 6]]}))


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda d: d.translate([[5, 61]], SearchOptions([5])), "token 61 is outside the vocabulary of 61"),
        (lambda d: d.translate([[]], SearchOptions([5])), "source 0 has no token"),
        (lambda d: d.translate([[5] * 31], SearchOptions([5])), "31 tokens, but there are positions for 30"),
        (
            lambda d: d.translate([[5]], SearchOptions([31])),
            "`limits` .`max_new_tokens`, or `max_length` minus 1. must be a whole number from 1 to 30, got 31",
        ),
        (
            lambda d: d.translate([[5]], SearchOptions([5], num_return_sequences=2)),
            "`num_return_sequences` must be .* from 1 to 1 .`num_beams`., got 2",
        ),
        (lambda d: d.translate([[5]], SearchOptions([5], prefixes=[[1] * 6])), "prefix 0 has 6 tokens"),
        (
            lambda d: d.translate([[5]], SearchOptions([5], transformers_only={"forced_bos_token_id": 61})),
            "`forced_bos_token_id` must be a token id from 0 to 60, got 61",
        ),
        (lambda d: d.translate([[5]], SearchOptions([5], readings=Readings((2, 0)))), "no head 0 in layer 2"),
        (lambda d: d.translate([[5]], SearchOptions([5, 5])), "`limits` must be one for each of the 1 sources, got 2"),
        (lambda d: d.translate([[5]], SearchOptions([5], shortlist=Listed(62))), "the shortlist: token 61"),
        (
            lambda d: d.translate([[5]], SearchOptions([5], shortlist=Unsorted())),
            "the shortlist: tokens must ascend, but 30 follows 40",
        ),
        (lambda d: d.translate([[2**63]], SearchOptions([5])), f"the sources: token {2**63} is outside .* of 61"),
        (
            lambda d: d.translate([[5]], SearchOptions([5], suppress_tokens=[-(2**31) - 1])),
            "`suppress_tokens` must be",
        ),
        (lambda d: d.translate([[5 + 2**40]], SearchOptions([5], shortlist=Listed())), "the shortlist: token 1099"),
        (lambda d: d.translate([[5]], SearchOptions([5], prefixes=[[2**64]])), "`prefixes`: token 1844674407"),
        (lambda d: d.force([[5]], [[2**64]], Readings()), "the targets: token 18446744073709551616"),
        (lambda d: d.translate([[5]], SearchOptions([5], most_repeated=-1)), "`most_repeated` .* from 0 to .* got -1"),
        (lambda d: d.translate([[5]], SearchOptions([5], min_new_tokens=2**64 + 1)), "`min_new_tokens` must be"),
        (lambda d: d.translate([[5]], SearchOptions([5], no_repeat_ngram_size=2.0)), "`no_repeat_ngram_size` must be"),
        (lambda d: d.force([[5]], [[]], Readings()), "target 0 has no token"),
        (lambda d: d.force([[5]], [[7], [8]], Readings()), "as many as the 1 sources, got 2"),
        (lambda d: d.force([[5]], [[7]], Readings(), [[], []]), "`positions` must be as many as the 1 sources, got 2"),
        (lambda d: d.force([[5]], [[7]], Readings(), [[1]]), "target 0 has 1 tokens, and so no position 1"),
    ],
)
def test_a_request_that_does_not_fit_is_refused(ask, message):
    with pytest.raises(ValueError, match=message):
        ask(decoder_of(PROGRAMS["plain"]))
