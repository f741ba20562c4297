"""The options of one call of a `Translator`, and how they become `SearchOptions`."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from math import ceil
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from capsule_mt.messages import warn_once
from capsule_mt.options.table import (
    BY_NAME,
    MAX_TOKEN_ID,
    NEUTRAL,
    SEARCH_FIELDS,
    Candidates,
    Readings,
    SearchOptions,
    nearest,
)
from capsule_mt.text.keeping import KEEP_KINDS

if TYPE_CHECKING:
    from capsule_mt.coverage.options import CoverageOptions

# how many batches of texts are read ahead, to make batches of sentences of about the same length
BATCHES_READ_AHEAD = 32
# how many texts (not batches) are read ahead with `batch_tokens`
TEXTS_READ_AHEAD = 2048
# entries of a generation config that do not concern the search, or that are read elsewhere
IGNORED = frozenset(
    {
        *("transformers_version", "cache_implementation", "output_attentions", "output_hidden_states"),
        *("eos_token_id", "pad_token_id", "bos_token_id", "decoder_start_token_id"),
    }
)
# special tokens of `generate()`; the engine takes `forced_eos_token_id` where it is the model's end token
SPECIAL_TOKENS = (
    *("eos_token_id", "pad_token_id", "bos_token_id", "decoder_start_token_id", "forced_eos_token_id"),
    "forced_bos_token_id",
)
SAMPLING_OPTIONS = frozenset(
    {"temperature", "top_k", "top_p", "top_h", "min_p", "typical_p", "epsilon_cutoff", "eta_cutoff"}
)
# values of `truncation`, with the names that transformers' tokenizers have
TRUNCATES = (True, "longest_first", "only_first")
KEEPS_ALL_TOKENS = (False, "do_not_truncate")
CLEAN_UP = "clean_up_tokenization_spaces"
# the options that a call may have besides the fields of `TranslationOptions`
NAMES = frozenset({*BY_NAME, *NEUTRAL, *SPECIAL_TOKENS, *SAMPLING_OPTIONS, *IGNORED, CLEAN_UP})
# what CTranslate2, EasyNMT and Marian call some of them
OTHER_NAMES = {
    "beam_size": "num_beams",
    "num_hypotheses": "num_return_sequences",
    "n_best": "num_return_sequences",
    "normalize": "length_penalty",
    "max_decoding_length": "max_new_tokens",
    "max_batch_size": "batch_size",
    "suppress_sequences": "bad_words_ids",
    "return_attention": "alignment",
    "return_scores": "scores",
    "replace_unknowns": "copy",
    "sampling_topk": "top_k",
    "perform_sentence_splitting": "split_sentences",
    "source_lang": "src_lang",
    "target_lang": "tgt_lang",
}
# what to do instead about arguments that `Translator.from_pretrained`, a call, or both do not take
THREADS_ADVICE = "set the number of threads by the environment variable OMP_NUM_THREADS"
LOADING_ADVICE = {
    "compute_type": "load with `int8=True` for int8; the default is float32",
    "use_vmap": "load with `shortlist=True`",
    **dict.fromkeys(("inter_threads", "intra_threads"), THREADS_ADVICE),
    **dict.fromkeys(
        ("device", "dtype", "backend", "ensemble", "task"),
        "only `from_pretrained` of `hf_capsule_mt.Translator` takes it",
    ),
    **dict.fromkeys(("int8", "shortlist", "reverse", "glossary"), "pass it to `from_pretrained`"),
}
_DEFAULTS = {option.name: option.default for option in SEARCH_FIELDS}


def _flat(value: object) -> list[object]:
    """Flatten a token, a list of tokens or a list of lists into one list."""
    return [token for part in value for token in _flat(part)] if isinstance(value, (list, tuple)) else [value]


def check_language_type(argument: str, language: object) -> None:
    """Refuse what is not the code of a language; `None` chooses none."""
    if language is not None and not isinstance(language, str):
        raise TypeError(f"`{argument}` must be the code of a language, such as 'de', got {language!r}")


def _is_token(value: object, minimum: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and minimum <= value <= MAX_TOKEN_ID


class TranslationOptions(NamedTuple):
    """The options of one call, which `TextTranslator.__call__` documents; a user's go through `checked()`.

    generate_kwargs: the options of the search, by their names in the table of options.
    """

    batch_size: int = 1
    batch_tokens: int | None = None
    coverage: "CoverageOptions | None" = None
    scores: bool | None = None
    split_sentences: bool = True
    truncation: bool | str = False
    src_lang: str | None = None
    tgt_lang: str | None = None
    copy: bool = True
    keep: Sequence[str] = ()
    alignment: bool = False
    copy_foreign: bool = False
    generate_kwargs: Mapping[str, Any] = {}

    @classmethod
    def from_call(cls, **options: Any) -> "TranslationOptions":
        """Return the options of a call; names that are not fields here are passed on to the search."""
        fields = {name: options.pop(name) for name in cls._fields[:-1] if name in options}
        return cls(**fields, generate_kwargs=options).checked()

    def checked(self) -> "TranslationOptions":
        """Return these options, or raise an error that names the first invalid one."""
        for name in ("batch_size", "batch_tokens"):
            number = getattr(self, name)
            if number is not None and not hasattr(type(number), "__index__"):
                raise TypeError(f"`{name}` must be a whole number, got {number!r}")
            if number is not None and number < 1:
                raise ValueError(f"`{name}` must be at least 1, got {number}")
        for name in ("split_sentences", "copy", "alignment", "copy_foreign"):
            if not isinstance(getattr(self, name), bool):
                raise TypeError(f"`{name}` must be True or False, got {getattr(self, name)!r}")
        if not isinstance(self.scores, (bool, type(None))):
            raise TypeError(f"`scores` must be True, False or None, got {self.scores!r}")
        for name in ("src_lang", "tgt_lang"):
            check_language_type(name, getattr(self, name))
        if self.truncation not in (*TRUNCATES, *KEEPS_ALL_TOKENS):
            raise ValueError(f"`truncation` must be True or False, got {self.truncation!r}")
        for name, value in self.generate_kwargs.items():
            if value is None:
                continue
            if name in BY_NAME:
                BY_NAME[name].check(value)
            elif name in SPECIAL_TOKENS:
                minimum = -1 if name == "eos_token_id" else 0  # at -1, all translations run up to their limit
                invalid = [token for token in _flat(value) if not _is_token(token, minimum)]
                if invalid:
                    raise ValueError(
                        f"`{name}` takes token ids, whole numbers from {minimum} to {MAX_TOKEN_ID:,} that the "
                        f"vocabulary has, got {invalid[0]!r}"
                    )
        if self.coverage is not None:
            from capsule_mt.coverage.options import CoverageOptions  # late: most calls lack it

            if not isinstance(self.coverage, CoverageOptions):
                raise TypeError(f"`coverage` must be a `CoverageOptions`, got {self.coverage!r}")
        # an iterator would be empty after this check
        if (
            isinstance(self.keep, str)
            or not isinstance(self.keep, Collection)
            or not set(self.keep) <= set(KEEP_KINDS)
        ):
            raise ValueError(f"`keep` takes a list of {', '.join(KEEP_KINDS)}, got {self.keep!r}")
        return self

    @property
    def window(self) -> int:
        """How many texts are read before the first of them is translated."""
        if self.batch_tokens is not None:
            return TEXTS_READ_AHEAD
        return 1 if self.batch_size == 1 else self.batch_size * BATCHES_READ_AHEAD


# a text whose translation is given is not split into sentences
SCORED = TranslationOptions(split_sentences=False, truncation=True, copy=False)


def refuse_unknown(options: Iterable[str], names: Collection[str] = NAMES) -> None:
    """Raise an error that names an option which is not among these."""
    for name in options:
        if name not in names:
            if name in OTHER_NAMES:
                hint = f"did you mean `{OTHER_NAMES[name]}`?"
            elif name in LOADING_ADVICE:
                hint = LOADING_ADVICE[name]
            else:
                known = {*names, *TranslationOptions._fields[:-1], *LOADING_ADVICE}
                hint = nearest(name, known) or f"it takes {', '.join(BY_NAME)}"
            raise ValueError(f"`{name}` is not an option of this translator: {hint}")


def refuse_unknown_arguments(unknown: Collection[str], function: Callable[..., object]) -> None:
    """Raise an error that names the first of these arguments, which `Translator.from_pretrained` does not take."""
    if not unknown:
        return
    import inspect  # late: this is an error

    parameters = inspect.signature(function).parameters.values()
    names = [parameter.name for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY]
    call_options = {*NAMES, *TranslationOptions._fields[:-1], *OTHER_NAMES}
    for name in unknown:
        our_name = OTHER_NAMES.get(name, name)
        if name in LOADING_ADVICE:
            hint = LOADING_ADVICE[name]
        elif our_name in names:
            hint = f"did you mean `{our_name}`?"
        elif name in call_options:
            hint = f"it is an option of a call: `translator(texts, {our_name}=...)`"
        else:
            hint = nearest(name, names) or f"it takes {', '.join(names)}"
        raise TypeError(f"`{name}` is not an argument of `Translator.from_pretrained`: {hint}")


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
    by_source: whether a translation may also have at most three times as many tokens as its source, plus thirty. A
        longer one repeats itself. This limit depends on its own source alone, so that batching does not change it.
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
    """Return how many tokens the checkpoint's settings and its positions allow in a translation."""
    limits = [] if model.longest_target is None else [model.longest_target - 1]
    new_tokens, length = (model.generation.get(name) for name in ("max_new_tokens", "max_length"))
    if new_tokens is not None:
        limits.append(int(new_tokens))
    elif length is not None:
        limits.append(int(length) - 1)
    return max(min(limits), 1) if limits else None
