"""A call of the engine as plain values: the fields of `request_t` of native/engine.h, and the results read from them.

Legend: S source tokens, T target tokens.
"""

import struct
from array import array
from collections.abc import Iterable, Sequence
from itertools import chain, count
from operator import attrgetter
from typing import Any, NamedTuple, cast

from capsule_mt.engine.search import Candidates, Ids, Readings, Restriction, SearchOptions
from capsule_mt.options.table import offered, request_fields

_FIELDS = """
    num_sources: i; words, lengths, limits, forced: p; scored, start_token, end_token, pad_token: i;
    longest, longest_source, layer, head, num_threads: i; candidates: p; num_candidates: i;
    list_lengths, candidate_indices, prefixes, prefix_lengths: p;
    targets, target_lengths, scored_targets, target_log_probs: p;
    tokens, translation_lengths, scores, log_probs, first_logits, attention, encoded, stop: p
"""
# the fields of `request_t`, in order: numbers of 64 bits, pointers, floats; options come first
REQUEST_FIELDS = request_fields() | {
    name.strip(): kind.strip()
    for names, kind in (part.split(":") for part in _FIELDS.split(";"))
    for name in names.split(",")
}
OPTIONS = offered("engine")
values_of = attrgetter(*(option.name for option in OPTIONS))  # the values that `SearchOptions` has for `OPTIONS`
# a forced pass does not search, so its options are the defaults
_NO_SEARCH = {option.name: option.default for option in OPTIONS if option.kind in ("integer", "number")}


class SearchResult(NamedTuple):
    """What `Engine.search` returns for a source: lists with an entry for each translation, best first.

    tokens: those after the start token.
    scores: the log-probability over the length to the power of the length penalty; like tokens that `generate()`
        forces, those of a prefix and a forced end count in the length alone.
    log_probs: those of each token, of prefixes and forced ends, too.
    attention: of each token to the source [T][S], for each translation; `None` if no head was read.
    first_logits: those of the first step [vocabulary]; `None` if not requested.
    Without `SearchOptions.scores`, `scores` and `log_probs` of a greedy search mean nothing.
    """

    tokens: list[list[int]]
    scores: list[float]
    log_probs: list[list[float]]
    attention: list[list[list[float]]] | None
    first_logits: "array[float] | None"


class Scored(NamedTuple):
    """What `Engine.force` returns for a target: log-probabilities [T], NaN if not requested; any attention [T][S]."""

    log_probs: list[float]
    attention: list[list[float]] | None


class JointCandidates(NamedTuple):
    """The candidates that a shortlist has for several sources.

    candidates: the union of all, ascending. list_lengths: how many of them each source has.
    indices: where those of each are in the union, ascending, one source after the other, perhaps zeros at the end;
        `None` says that each has all.
    """

    candidates: Sequence[int]
    list_lengths: "array[int]"
    indices: "array[int] | None"


class SpecialTokens(NamedTuple):
    """The tokens that start, end and pad a target; `end` is -1 where there is none."""

    start: int
    end: int
    pad: int


class Call:
    """The fields of a call: `numbers`, and the `arrays` that the engine reads and writes."""

    def __init__(self, sources: Sequence[Ids], tokens: SpecialTokens, vocabulary: int) -> None:
        self.sources, self.vocabulary = sources, vocabulary
        self.width = max(map(len, sources))
        self.numbers: dict[str, Any] = {
            "num_sources": len(sources),
            "longest_source": self.width,
            "start_token": tokens.start,
            "end_token": tokens.end,
            "pad_token": tokens.pad,
        }
        self.arrays: dict[str, array[Any]] = {"lengths": array("q", map(len, sources))}
        self.arrays["words"] = self.tokens("q", "the sources", sources)

    def tokens(self, kind: str, name: str, lists: Sequence[Ids]) -> "array[int]":
        """Return the tokens of all lists; the engine refuses those outside its vocabulary."""
        try:
            return array(kind, chain.from_iterable(lists))
        except OverflowError:
            outlier = max(chain.from_iterable(lists), key=abs)
            raise ValueError(f"{name}: token {outlier} is outside the vocabulary of {self.vocabulary}") from None

    def restrict(self, joint: JointCandidates) -> None:
        """Restrict each source to its candidates."""
        self.numbers["num_candidates"] = len(joint.candidates)
        is_array = isinstance(joint.candidates, array) and joint.candidates.typecode == "i"  # as the engine takes them
        candidates = joint.candidates if is_array else self.tokens("i", "the shortlist", [joint.candidates])
        self.arrays["candidates"] = cast("array[int]", candidates)
        self.arrays["list_lengths"] = joint.list_lengths
        if joint.indices is not None:
            self.arrays["candidate_indices"] = joint.indices

    def request_attention(self, readings: Readings | None, num_tokens: int) -> None:
        """Ask the engine for the attention of `num_tokens` tokens, if the readings name a head."""
        head = None if readings is None else readings.head
        self.numbers["layer"], self.numbers["head"] = head or (-1, -1)
        if head is not None:
            self.arrays["attention"] = empty("f", num_tokens * self.width)

    def attention_of(self, first: int, count: int, source: Ids) -> list[list[float]] | None:
        """Return the attention to the source of `count` tokens from `first` on, if it was read."""
        attention = self.arrays.get("attention")
        if attention is None:
            return None
        starts = range(first * self.width, (first + count) * self.width, self.width)
        return [attention[start : start + len(source)].tolist() for start in starts]


class EncodingCall(Call):
    """Return what a model without a decoder makes of sources: rows of `width` numbers, one for each token."""

    def __init__(self, sources: Sequence[Ids], vocabulary: int, width: int) -> None:
        super().__init__(sources, SpecialTokens(0, -1, 0), vocabulary)  # the tokens of a decoder are ignored
        self.row_width = width
        self.arrays["encoded"] = empty("f", width * sum(self.arrays["lengths"]))

    def results(self) -> "list[array[float]]":
        encoded, results, first = self.arrays["encoded"], [], 0
        for length in self.arrays["lengths"]:
            end = first + length * self.row_width
            results.append(encoded[first:end])
            first = end
        return results


class ForcedCall(Call):
    """Score given targets; with `positions`, only these tokens of each.

    With a `restriction`, probabilities are among the tokens of its sources' shortlists and of the targets.
    """

    def __init__(
        self,
        sources: Sequence[Ids],
        targets: Sequence[Ids],
        readings: Readings,
        tokens: SpecialTokens,
        vocabulary: int,
        positions: Sequence[Iterable[int]] | None = None,
        restriction: Restriction | None = None,
    ) -> None:
        super().__init__(sources, tokens, vocabulary)
        lengths = array("q", map(len, targets))
        self.numbers |= _NO_SEARCH | {"longest": max(lengths)}
        self.arrays |= {"limits": lengths, "target_lengths": lengths}
        self.arrays["targets"] = self.tokens("q", "the targets", targets)
        self.arrays["target_log_probs"] = empty("f", sum(lengths))
        if positions is not None:
            scored, first = empty("b", sum(lengths)), 0
            for length, scored_positions in zip(lengths, positions, strict=True):
                for position in scored_positions:
                    scored[first + position] = 1
                first += length
            self.arrays["scored_targets"] = scored
        if restriction is not None:
            self.restrict(joint_candidates(restriction.shortlist, restriction.sources, targets))
        self.request_attention(readings, sum(lengths))

    def results(self) -> list[Scored]:
        log_probs, results, first = self.arrays["target_log_probs"], [], 0
        for source, length in zip(self.sources, self.arrays["target_lengths"], strict=True):
            end = first + length
            results.append(Scored(log_probs[first:end].tolist(), self.attention_of(first, length, source)))
            first = end
        return results


class SearchCall(Call):
    """Search for translations of sources; `rows` has the index of each source in the lists of the options."""

    def __init__(
        self,
        sources: Sequence[Ids],
        rows: Sequence[int],
        options: SearchOptions,
        tokens: SpecialTokens,
        vocabulary: int,
        *,
        first_logits: bool,
    ) -> None:
        super().__init__(sources, tokens, vocabulary)
        self.num_returned = options.num_return_sequences
        num_results, limits = len(sources) * self.num_returned, array("q", [options.limits[row] for row in rows])
        self.longest = max(limits)
        forced = [options.forces_end[row] for row in rows] if options.forces_end else [0] * len(sources)
        self.arrays |= {
            "limits": limits,
            "forced": array("i", forced),
            "tokens": empty("q", num_results * self.longest),
            "translation_lengths": empty("q", num_results),
            "scores": empty("f", num_results),
            "log_probs": empty("f", num_results * self.longest),
        }
        if first_logits:
            self.arrays["first_logits"] = empty("f", len(sources) * vocabulary)
        self.numbers |= {"longest": self.longest, "scored": int(options.scores)}
        prefixes = [options.prefixes[row] for row in rows] if options.prefixes else [()] * len(sources)
        if options.prefixes:
            self.arrays["prefixes"] = self.tokens("q", "`prefixes`", prefixes)
            self.arrays["prefix_lengths"] = array("q", map(len, prefixes))
        if options.shortlist is not None:
            end = [tokens.end] if tokens.end >= 0 else []
            self.restrict(joint_candidates(options.shortlist, sources, [[*end, *prefix] for prefix in prefixes]))
        self._set_options(options)
        self.request_attention(options.readings, num_results * self.longest)

    def _set_options(self, options: SearchOptions) -> None:
        for option, value in zip(OPTIONS, values_of(options), strict=True):
            name = option.name
            if option.kind == "tokens":
                self.arrays[name] = self.tokens("i", f"`{name}`", [value])
                self.numbers[f"num_{name}"] = len(value)
            else:
                self.numbers[name] = option.choices[value] if option.choices else value

    def results(self) -> list[SearchResult]:
        return [self._result(index, source) for index, source in enumerate(self.sources)]

    def _result(self, index: int, source: Ids) -> SearchResult:
        logits, size = self.arrays.get("first_logits"), self.vocabulary
        result = SearchResult(
            [],
            [],
            [],
            [] if "attention" in self.arrays else None,
            None if logits is None else logits[index * size : (index + 1) * size],
        )
        for row in range(index * self.num_returned, (index + 1) * self.num_returned):
            first, length = row * self.longest, self.arrays["translation_lengths"][row]
            if not length:  # the search has fewer translations than were requested
                continue
            result.tokens.append(self.arrays["tokens"][first : first + length].tolist())
            result.scores.append(self.arrays["scores"][row])
            result.log_probs.append(self.arrays["log_probs"][first : first + length].tolist())
            attention = self.attention_of(first, length, source)
            if result.attention is not None and attention is not None:
                result.attention.append(attention)
        return result


def joint_candidates(shortlist: Candidates, sources: Sequence[Ids], extra_tokens: Sequence[Ids]) -> JointCandidates:
    """Return the candidates of all sources, with the extra tokens of each."""
    of_sources = getattr(shortlist, "of_sources", None)
    if of_sources is not None:
        return cast(JointCandidates, of_sources(sources, extra_tokens))
    lists = [shortlist.of_source(source, *extras) for source, extras in zip(sources, extra_tokens, strict=True)]
    list_lengths = array("q", map(len, lists))
    if all(candidates is lists[0] for candidates in lists):
        return JointCandidates(lists[0], list_lengths, None)
    union = sorted(set().union(*lists))
    index_of = dict(zip(union, count(), strict=False))
    return JointCandidates(union, list_lengths, array("i", map(index_of.__getitem__, chain.from_iterable(lists))))


def empty(kind: str, count: int) -> "array[Any]":
    """Return an array of zeros."""
    return array(kind, bytes(count * struct.calcsize(kind)))
