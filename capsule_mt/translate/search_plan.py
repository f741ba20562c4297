"""How a call searches: its options and those of the checkpoint as `SearchOptions`, and the limits of its sources."""

from collections.abc import Mapping, Sequence
from math import ceil
from typing import Any, NamedTuple, Protocol

from capsule_mt.messages import warn_once
from capsule_mt.options.table import BY_NAME, NEUTRAL, SEARCH_FIELDS, Candidates, Readings, SearchOptions
from capsule_mt.translate.options import CLEAN_UP, IGNORED, SAMPLING_OPTIONS

_DEFAULTS = {option.name: option.default for option in SEARCH_FIELDS}


class SearchedModel(Protocol):
    """The fields of a `LoadedModel` that the options of a search depend on."""

    @property
    def generation(self) -> Mapping[str, Any]: ...
    @property
    def end(self) -> int: ...
    @property
    def longest_target(self) -> int | None: ...
    @property
    def shortlist(self) -> Candidates | None: ...
    @property
    def length_factor(self) -> float | None: ...


def setting(model: SearchedModel, call_options: Mapping[str, Any], name: str) -> Any:
    """Return the value of a search option: the call's, or else the checkpoint's."""
    return call_options[name] if call_options.get(name) is not None else model.generation.get(name)


class LengthLimits(NamedTuple):
    """How many tokens translations may have, and whether the end token is forced there.

    maximum: the most tokens of any translation; `None` if nothing sets one.
    by_source: whether a translation may also have at most three times as many tokens as its source, plus thirty, which
        ends one that repeats itself. This limit depends on its own source alone, so that batching does not change it.
    forces_end: whether the end token is forced at the maximum.
    has_end: whether there is an end token: it is forced at a limit that follows from the source.
    length_factor: a limit that follows from the source is this many times its tokens, and the end is not forced there,
        as in Marian; `None` for three times and thirty.
    """

    maximum: int | None
    by_source: bool
    forces_end: bool
    has_end: bool
    length_factor: float | None = None

    def of_sources(self, lengths: Sequence[int]) -> tuple[list[int], list[bool]]:
        """Return the limit of each source, and whether the end is forced there."""
        maximum = self.maximum
        if maximum is not None and not self.by_source:
            return [maximum] * len(lengths), [self.forces_end] * len(lengths)
        has_end = self.has_end
        if self.length_factor is None:
            by_source = [3 * length + 30 for length in lengths]
        else:  # 0.1 * 30 is more than 3
            has_end, by_source = False, [ceil(self.length_factor * length - 1e-6) for length in lengths]
        if maximum is None:
            return by_source, [has_end] * len(lengths)
        forces_end = [has_end if limit < maximum else self.forces_end for limit in by_source]
        return [min(limit, maximum) for limit in by_source], forces_end


class Search(NamedTuple):
    """How a call searches: what is the same for all of its batches, and how the limits follow from their sources."""

    options: SearchOptions
    limits: LengthLimits

    def with_options(self, **options: Any) -> "Search":
        """Return this search with other values of some options."""
        return self._replace(options=self.options._replace(**options))

    def for_batch(
        self, lengths: Sequence[int], prefixes: Sequence[Sequence[int]] = (), readings: Readings | None = None
    ) -> SearchOptions:
        """Return the options for sources of these lengths."""
        limits, forces_end = self.limits.of_sources(lengths)
        prefixes = prefixes if any(prefixes) else ()
        return self.options._replace(limits=limits, forces_end=forces_end, prefixes=prefixes, readings=readings)


def search_options(
    model: SearchedModel, lengths: Sequence[int], call_options: Mapping[str, Any], *, scores: bool = True
) -> SearchOptions:
    """Return the options of a search for translations of sources of these lengths."""
    return search_of(model, call_options, scores=scores).for_batch(lengths)


def search_of(model: SearchedModel, call_options: Mapping[str, Any], *, scores: bool = True) -> Search:
    """Return how a call with these options searches."""
    values = dict(_DEFAULTS)
    for settings in (model.generation, call_options):
        values |= {name: value for name, value in settings.items() if value is not None}
    phrases = [list(phrase) for phrase in values.get("bad_words_ids", ()) if list(phrase) != [model.end]]
    are_single_tokens = all(len(phrase) == 1 for phrase in phrases)  # the engine forbids single tokens only
    fields = {name: values[name] for name in _DEFAULTS}
    if phrases and are_single_tokens:
        fields["suppress_tokens"] = [*(phrase[0] for phrase in phrases), *fields["suppress_tokens"]]
    if setting(model, call_options, "min_new_tokens") is None:
        fields["min_new_tokens"] = max(values.get("min_length", 0) - 1, 0)
    transformers_only = _transformers_only(model, call_options)
    if not are_single_tokens:
        transformers_only["bad_words_ids"] = phrases
    options = SearchOptions(
        limits=(), shortlist=model.shortlist, scores=scores, transformers_only=transformers_only, **fields
    )
    return Search(options, _limits(model, call_options))


def _transformers_only(model: SearchedModel, call_options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that the engine lacks, without those whose values do not change a search."""
    checkpoint = model.generation
    options = {name: checkpoint[name] for name in checkpoint.keys() - BY_NAME.keys() - IGNORED if name[0] != "_"}
    options |= {name: value for name, value in call_options.items() if name not in BY_NAME}
    samples = bool(options.get("do_sample"))
    return {
        name: value
        for name, value in options.items()
        if value is not None
        and value is not False
        and value != NEUTRAL.get(name, ())
        and name != CLEAN_UP
        and (samples or name not in SAMPLING_OPTIONS)
        and not (name == "forced_eos_token_id" and value in (model.end, [model.end]))
    }


def _limits(model: SearchedModel, call_options: Mapping[str, Any]) -> LengthLimits:
    """Return the limits of a call; without one of its own, they are the checkpoint's, and follow from the source."""
    has_end = model.end >= 0
    is_forced = has_end and setting(model, call_options, "forced_eos_token_id") in (model.end, [model.end])
    if call_options.get("max_new_tokens") is None and call_options.get("max_length") is None:
        return LengthLimits(limit_of_checkpoint(model), True, is_forced, has_end, model.length_factor)
    # as in `generate()`: the checkpoint's `max_new_tokens` wins over `max_length`, unless the call sets it to None
    new_tokens = {"max_new_tokens": model.generation.get("max_new_tokens"), **call_options}["max_new_tokens"]
    if new_tokens is not None and "max_new_tokens" not in call_options:
        warn_once(
            f"`max_length` is ignored, as in transformers' `generate()`: the checkpoint sets `max_new_tokens` to "
            f"{new_tokens}; set `max_new_tokens`"
        )
    longest = int(call_options["max_length"]) - 1 if new_tokens is None else int(new_tokens)
    return LengthLimits(longest, False, is_forced, has_end)


def limit_of_checkpoint(model: SearchedModel) -> int | None:
    """Return how many tokens the checkpoint's settings and positions allow in a translation, if they set a limit."""
    limits = [] if model.longest_target is None else [model.longest_target - 1]
    new_tokens, length = (model.generation.get(name) for name in ("max_new_tokens", "max_length"))
    if new_tokens is not None:
        limits.append(int(new_tokens))
    elif length is not None:
        limits.append(int(length) - 1)
    return max(min(limits), 1) if limits else None
