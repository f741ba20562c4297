"""The options of one call of a `Translator`."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from capsule_mt.options.table import (
    BY_NAME,
    MAX_TOKEN_ID,
    NEUTRAL,
    nearest,
)
from capsule_mt.text.rules import KEEP_KINDS

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


def _flat(value: object) -> list[object]:
    """Flatten a token, a list of tokens or a list of lists into one list."""
    return [token for part in value for token in _flat(part)] if isinstance(value, (list, tuple)) else [value]


def check_language_type(argument: str, language: object) -> None:
    """Refuse what is not a string, as the code of a language is; `None` chooses none."""
    if language is not None and not isinstance(language, str):
        raise TypeError(f"`{argument}` must be the code of a language, such as 'de', got {language!r}")


def _is_token(value: object, minimum: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and minimum <= value <= MAX_TOKEN_ID


class TranslationOptions(NamedTuple):
    """The options of one call, which `TextTranslator.__call__` documents; a user's go through `checked()`.

    generate_kwargs: the options of the search, by their names.
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
