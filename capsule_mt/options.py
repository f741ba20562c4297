"""What a call of a `Translator` is asked, and how its options become options of a search."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from capsule_mt.engine.search import COUNTS, SEARCHED, Candidates, Readings, SearchOptions, nearest
from capsule_mt.text.keeping import KEPT

if TYPE_CHECKING:
    from capsule_mt.coverage.options import CoverageOptions

# how many batches of texts are read ahead, to make batches of sentences of about the same length
BATCHES_READ_AHEAD = 32
# the same for batches by tokens
TEXTS_READ_AHEAD = 2048
# of transformers, which puts it into a generation config by itself: nobody has chosen it
UNCHOSEN_MAX_LENGTH = 20
# options of `generate()` that change nothing with these values
NEUTRAL: dict[str, Any] = {
    "do_sample": False,
    "use_cache": True,
    "repetition_penalty": 1.0,
    "return_dict_in_generate": False,
    "encoder_repetition_penalty": 1.0,
    "encoder_no_repeat_ngram_size": 0,
    "num_beam_groups": 1,
    "diversity_penalty": 0.0,
    "guidance_scale": 1.0,
}
# what a generation config says beside the search, and what is read elsewhere
IGNORED = frozenset(
    {
        *("transformers_version", "cache_implementation", "output_attentions", "output_hidden_states"),
        *("eos_token_id", "pad_token_id", "bos_token_id", "decoder_start_token_id"),
    }
)
TOKENS = (
    *("eos_token_id", "pad_token_id", "bos_token_id", "decoder_start_token_id", "forced_eos_token_id"),
    *("forced_bos_token_id", "suppress_tokens", "bad_words_ids"),
)
MOST_TOKEN = 2**31 - 1
SAMPLED = frozenset({"temperature", "top_k", "top_p", "min_p", "typical_p", "epsilon_cutoff", "eta_cutoff"})

# what else transformers' `generate()` and its configuration take: without a value, they change nothing
OF_TRANSFORMERS = (
    *("assistant_confidence_threshold", "assistant_early_exit", "assistant_ensemble_weight", "assistant_lookbehind"),
    *("assistant_model", "assistant_tokenizer", "begin_suppress_tokens", "cache_config", "compile_config"),
    *("constraints", "continuous_batching_config", "custom_generate", "disable_compile", "dola_layers"),
    *("exponential_decay_length_penalty", "force_words_ids", "generation_config", "is_assistant", "logits_processor"),
    *("low_memory", "max_cache_len", "max_matching_ngram_size", "negative_prompt_attention_mask"),
    *("negative_prompt_ids", "num_assistant_tokens", "num_assistant_tokens_schedule", "output_logits"),
    *("output_scores", "penalty_alpha", "prefill_chunk_size", "prefix_allowed_tokens_fn", "prompt_lookup_num_tokens"),
    *("remove_invalid_values", "sequence_bias", "speculation_type", "stop_strings", "stopping_criteria", "streamer"),
    *("synced_gpus", "target_lookbehind", "token_healing", "tokenizer", "top_h", "use_mtp", "use_model_defaults"),
    *("watermarking_config", "clean_up_tokenization_spaces"),
)


def refuse_misspelt(options: Mapping[str, Any], further: Iterable[str] = ()) -> None:
    """Refuse an unknown option without a value (`None` or `False`), which no decoder gets to see.

    The decoders refuse an unknown option with a value themselves.

    Args:
        further: names that are accepted beside those of `TranslationOptions` and of transformers.
    """
    accepted = {*TranslationOptions._fields[:-1], *SEARCHED, *NEUTRAL, *IGNORED, *TOKENS, *SAMPLED, *OF_TRANSFORMERS}
    accepted.update(further)
    for name, value in options.items():
        if (value is None or value is False) and name not in accepted:
            raise ValueError(f"a translation has no option `{name}`{nearest(name, accepted)}")


def _is_whole(value: object, least: int, most: float = math.inf) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def _flat(value: object) -> list[object]:
    """Flatten a token, a list of tokens or a list of lists into one list."""
    return [one for part in value for one in _flat(part)] if isinstance(value, (list, tuple)) else [value]


class TranslationOptions(NamedTuple):
    """The settings of one call of a `Translator`, whose docstring explains them; of users, they are `checked`.

    most_repeated: end a translation once so many tokens in a row only repeat; 0 never does.
    generate_kwargs: how to search, by the names of transformers.
    """

    batch_size: int = 1
    batch_tokens: int | None = None
    coverage: "CoverageOptions | None" = None
    scores: bool = True
    split_sentences: bool = True
    truncation: bool | str = False
    src_lang: str | None = None
    tgt_lang: str | None = None
    copy: bool = True
    keep: Sequence[str] = ()
    alignment: bool = False
    most_repeated: int = 0
    generate_kwargs: Mapping[str, Any] = {}

    @classmethod
    def of(cls, **given: Any) -> "TranslationOptions":
        """Return the options of a call; what is none of them here is of the search."""
        own = {name: given.pop(name) for name in cls._fields[:-1] if name in given}
        return cls(**own, generate_kwargs=given).checked()

    def checked(self) -> "TranslationOptions":
        """Return these options, or raise an error that names the one that cannot be."""
        for name in ("batch_size", "batch_tokens"):
            number = getattr(self, name)
            if number is not None and number < 1:
                raise ValueError(f"`{name}` must be at least 1, got {number}")
        for name, (smallest, _) in COUNTS.items():
            number = self.generate_kwargs.get(name)
            if number is not None and not _is_whole(number, smallest):
                raise ValueError(f"`{name}` must be a whole number of at least {smallest}, got {number!r}")
        for name in TOKENS:
            given = self.generate_kwargs.get(name)
            smallest = -1 if name == "eos_token_id" else 0  # -1 is no token, so nothing ends before its limit
            wrong = [token for token in _flat(given) if not _is_whole(token, smallest, MOST_TOKEN)]
            if given is not None and wrong:
                raise ValueError(
                    f"`{name}` takes token ids, whole numbers from 0 to {MOST_TOKEN} that the vocabulary has, "
                    f"got {wrong[0]!r}"
                )
        seconds = self.generate_kwargs.get("max_time")
        is_number = isinstance(seconds, (int, float)) and not isinstance(seconds, bool)
        if seconds is not None and not (is_number and seconds > 0):
            raise ValueError(f"`max_time` must be a number of seconds above 0, got {seconds!r}")
        if self.coverage is not None:
            from capsule_mt.coverage.options import CoverageOptions  # late: few ask for it

            if not isinstance(self.coverage, CoverageOptions):
                wanted = "`coverage` must be `CoverageOptions()`, with what is to be set"
                raise TypeError(f"{wanted}, got {self.coverage!r}")
        if isinstance(self.keep, str) or not set(self.keep) <= set(KEPT):
            raise ValueError(f"`keep` takes a list of {', '.join(KEPT)}, got {self.keep!r}")
        return self

    @property
    def window(self) -> int:
        """How many texts are read before the first of them is translated."""
        if self.batch_tokens is not None:
            return TEXTS_READ_AHEAD
        return 1 if self.batch_size == 1 else self.batch_size * BATCHES_READ_AHEAD


class Searched(Protocol):
    """What a search asks of a `LoadedModel`."""

    @property
    def generation(self) -> Mapping[str, Any]: ...
    @property
    def end(self) -> int: ...
    @property
    def longest_target(self) -> int | None: ...
    @property
    def shortlist(self) -> Candidates | None: ...


def setting(model: Searched, given: Mapping[str, Any], name: str) -> Any:
    """Return an option of the search: of the call, or else of the checkpoint."""
    return given[name] if given.get(name) is not None else model.generation.get(name)


def search_options(
    model: Searched,
    lengths: Sequence[int],
    given: Mapping[str, Any],
    *,
    prefixes: Sequence[Sequence[int]] = (),
    scores: bool = True,
    readings: Readings | None = None,
    most_repeated: int = 0,
) -> SearchOptions:
    """Return how to search for translations of sources with so many tokens.

    Without a limit among the options, a translation has at most three times the tokens of its source and thirty more:
    what gets there repeats itself. It ends there, and does not depend on the other sources of its batch.
    """

    def get(name: str, default: Any) -> Any:
        value = setting(model, given, name)
        return default if value is None else value

    limits, forces_end = _limits(model, lengths, given)
    bad_words = [words for words in get("bad_words_ids", []) if list(words) != [model.end]]
    samples = bool(get("do_sample", False))
    own = {name: value for name, value in model.generation.items() if name not in IGNORED and not name.startswith("_")}
    further = {
        name: value
        for name, value in {**own, **given}.items()
        if not (name in SEARCHED or (name in SAMPLED and not samples) or name == "clean_up_tokenization_spaces")
        and value is not None
        and value is not False
        and value != NEUTRAL.get(name, ())
        and not (name == "forced_eos_token_id" and value in (model.end, [model.end]))
    }
    if any(len(words) != 1 for words in bad_words):
        further["bad_words_ids"] = bad_words
        bad_words = []
    least = get("min_new_tokens", None)
    return SearchOptions(
        limits=limits,
        forces_end=forces_end,
        num_beams=int(get("num_beams", 1)),
        num_return_sequences=int(get("num_return_sequences", 1)),
        length_penalty=float(get("length_penalty", 1.0)),
        early_stopping=get("early_stopping", False),
        no_repeat_ngram_size=int(get("no_repeat_ngram_size", 0)),
        renormalize_logits=bool(get("renormalize_logits", False)),
        min_new_tokens=max(int(get("min_length", 0)) - 1, 0) if least is None else int(least),
        suppress_tokens=[*(words[0] for words in bad_words), *get("suppress_tokens", [])],
        prefixes=prefixes if any(prefixes) else (),
        shortlist=model.shortlist,
        max_time=get("max_time", None),
        scores=scores,
        readings=readings,
        most_repeated=most_repeated,
        further=further,
    )


def _limits(model: Searched, lengths: Sequence[int], given: Mapping[str, Any]) -> tuple[list[int], list[bool]]:
    """Return how many tokens each translation may have, and whether its end is forced there."""
    ends = model.end >= 0
    forced = ends and setting(model, given, "forced_eos_token_id") in (model.end, [model.end])
    if given.get("max_new_tokens") is not None or given.get("max_length") is not None:
        # as in `generate()`, where the checkpoint's `max_new_tokens` goes before a `max_length`, unless it is None
        new_tokens = {"max_new_tokens": model.generation.get("max_new_tokens"), **given}["max_new_tokens"]
        longest = int(given["max_length"]) - 1 if new_tokens is None else int(new_tokens)
        return [longest] * len(lengths), [forced] * len(lengths)
    allowed = limit_of_checkpoint(model)
    by_source = [3 * length + 30 for length in lengths]
    limits = by_source if allowed is None else [min(limit, allowed) for limit in by_source]
    return limits, [ends and (forced or allowed is None or limit < allowed) for limit in by_source]


def limit_of_checkpoint(model: Searched) -> int | None:
    """Return how many tokens a translation may have by the checkpoint's settings and its positions."""
    limits = [] if model.longest_target is None else [model.longest_target - 1]
    new_tokens, length = (model.generation.get(name) for name in ("max_new_tokens", "max_length"))
    if new_tokens is not None:
        limits.append(int(new_tokens))
    elif length is not None and length != UNCHOSEN_MAX_LENGTH:
        limits.append(int(length) - 1)
    return max(min(limits), 1) if limits else None
