"""The table of search options, from which code and docs are made.

To add an option: a row in `SEARCH_OPTIONS`, a field of `SearchOptions`, and its code in native/search.c. Made from the
table are the checks, the fields of `request_t`, the flags of `capsule-mt translate`, the server's fields, the npm
package's options, and docs/options.md (`python -m capsule_mt.options`).

This file imports nothing of the package, since engine/build.py also reads it where the package is not installed.
"""

import math
import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, Protocol

Ids = Sequence[int]
OptionKind = Literal["integer", "number", "switch", "choice", "tokens", "phrases"]
Interface = Literal["engine", "flag", "server", "browser"]

MAX_TOKENS = 2**24
MAX_TOKEN_ID = 2**31 - 1
ENGINE: tuple[Interface, ...] = ("engine",)
EVERYWHERE: tuple[Interface, ...] = ("engine", "flag", "server", "browser")


class Option(NamedTuple):
    """A row of the table.

    name: transformers' where it has one, also in C, JavaScript and JSON; the flag has dashes for underscores.
    default: what a search does without the option; this value changes nothing.
    interfaces: "engine" for a field of the C struct `request_t`, "flag" for one of `capsule-mt translate`, "server"
        for a field of POST /translate, "browser" for the npm package. Python has all of them.
    range: the smallest and the largest number; `excludes_minimum` refuses the smallest itself.
    choices: accepted values, and the code of each in C.
    forbids_preview: whether a value other than the default needs all logits of a step.
    beams_only: whether a greedy search ignores it.
    ours: whether transformers lacks it.
    """

    name: str
    kind: OptionKind
    default: Any
    interfaces: tuple[Interface, ...]
    help: str
    range: tuple[float, float] = (-math.inf, math.inf)
    excludes_minimum: bool = False
    choices: Mapping[Any, int] = {}
    forbids_preview: bool = False
    beams_only: bool = False
    ours: bool = False

    @property
    def flag(self) -> str:
        """The flag of the command, such as "--num-beams"."""
        return "--" + self.name.replace("_", "-")

    @property
    def expected(self) -> str:
        """What the option takes, as it follows "must be"."""
        minimum, maximum = self.range
        if self.kind == "integer":
            return f"a whole number from {minimum:,.0f} to {maximum:,.0f}"
        if self.kind == "number":
            start = f"above {minimum:g}" if self.excludes_minimum else f"from {minimum:g}"
            end = "" if maximum == math.inf else f" {'and at most' if self.excludes_minimum else 'to'} {maximum:g}"
            return f"a number {start}{end}"
        if self.kind == "choice":
            *names, last = (f'"{choice}"' if isinstance(choice, str) else str(choice) for choice in self.choices)
            return f"{', '.join(names)} or {last}"
        token_ids = f"token ids from 0 to {MAX_TOKEN_ID:,}"
        lists = {"tokens": f"a list of {token_ids}", "phrases": f"a list of lists of {token_ids}"}
        return lists.get(self.kind, "True or False")

    def accepts(self, value: object) -> bool:
        """Return whether the option takes a value."""
        if self.kind == "switch":
            return isinstance(value, bool)
        if self.kind == "choice":
            return any(type(value) is type(choice) and value == choice for choice in self.choices)
        if self.kind == "tokens":
            return _are_tokens(value)
        if self.kind == "phrases":
            return isinstance(value, (list, tuple)) and all(map(_are_tokens, value))
        if isinstance(value, bool) or not isinstance(value, int if self.kind == "integer" else (int, float)):
            return False
        minimum, maximum = self.range
        return minimum <= value <= maximum and not (value == minimum and self.excludes_minimum) and value != math.inf

    def check(self, value: object) -> None:
        """Raise an error unless the option takes a value."""
        if not self.accepts(value):
            raise ValueError(f"`{self.name}` must be {self.expected}, got {value!r}")

    def parse(self, text: str) -> int | float:
        """Return the number that a command line names, for an option that takes one."""
        try:
            value = int(text) if self.kind == "integer" else float(text)
        except ValueError:
            value = math.nan
        if not self.accepts(value):
            raise ValueError(f"must be {self.expected}, got {text}")
        return value


def _are_tokens(value: object) -> bool:
    return isinstance(value, (list, tuple)) and all(
        isinstance(token, int) and not isinstance(token, bool) and 0 <= token <= MAX_TOKEN_ID for token in value
    )


# fmt: off
SEARCH_OPTIONS = (
    Option("num_beams", "integer", 1, EVERYWHERE,
           "number of hypotheses that beam search keeps; 1 is a greedy search", (1, 256), forbids_preview=True),
    Option("num_return_sequences", "integer", 1, ENGINE,
           "number of translations of each text, at most `num_beams`", (1, 256)),
    Option("max_new_tokens", "integer", None, ("flag",),
           "maximum number of tokens in a translation; by default, three times the number of source tokens plus 30, "
           "or what a folder of Marian sets",
           (1, MAX_TOKENS)),
    Option("max_length", "integer", None, (),
           "the same as `max_new_tokens`, but also counts the start token; ignored if the call or the checkpoint sets "
           "`max_new_tokens`",
           (1, MAX_TOKENS)),
    Option("min_new_tokens", "integer", 0, ("engine", "server", "browser"),
           "minimum number of tokens in a translation", (0, MAX_TOKENS)),
    Option("min_length", "integer", 0, (),
           "the same as `min_new_tokens`, but also counts the start token", (0, MAX_TOKENS)),
    Option("length_penalty", "number", 1.0, EVERYWHERE,
           "a score is divided by the length to the power of this number; above 0 favours long translations",
           (-100, 100), beams_only=True),
    Option("early_stopping", "choice", False, ("engine", "browser"),
           'when the search ends: at `num_beams` finished hypotheses (True), once a better one is unlikely (False), '
           'or once a better one is impossible ("never")',
           choices={False: 0, True: 1, "never": 2}, beams_only=True),
    Option("repetition_penalty", "number", 1.0, EVERYWHERE,
           "above 1 makes tokens that are already written less likely (also the start token), below 1 more likely",
           (0.01, 100), forbids_preview=True),
    Option("no_repeat_ngram_size", "integer", 0, EVERYWHERE,
           "no sequence of this many tokens may occur twice, which prevents loops; 0 turns this off",
           (0, MAX_TOKENS), forbids_preview=True),
    Option("renormalize_logits", "switch", False, ("engine", "browser"),
           "renormalise probabilities over the allowed tokens"),
    Option("suppress_tokens", "tokens", (), ("engine", "browser"),
           "tokens that are never written"),
    Option("bad_words_ids", "phrases", (), (),
           "sequences of tokens that are never written; the engine supports only sequences of one token"),
    Option("max_time", "number", None, (),
           "seconds after which a batch ends and returns the translations so far",
           (0, math.inf), excludes_minimum=True),
    Option("most_repeated", "integer", 0, ("engine", "browser"),
           "ends a translation once this many tokens repeat a cycle of 1 to 16 tokens; 0 turns this off",
           (0, MAX_TOKENS), ours=True),
)
# fmt: on

# options of transformers' `generate()` that the engine lacks, each with the value that changes nothing
NEUTRAL: dict[str, Any] = {
    "do_sample": False,
    "use_cache": True,
    "return_dict_in_generate": False,
    "encoder_repetition_penalty": 1.0,
    "encoder_no_repeat_ngram_size": 0,
    "num_beam_groups": 1,
    "diversity_penalty": 0.0,
    "guidance_scale": 1.0,
}
# All options of `generate()` that the engine lacks and that change a translation. Those of sampling and of contrastive
# search do nothing without `do_sample` and `penalty_alpha`.
CHANGES_TRANSLATIONS = (
    *("do_sample", "penalty_alpha", "num_beam_groups", "diversity_penalty", "constraints", "force_words_ids"),
    *("encoder_repetition_penalty", "encoder_no_repeat_ngram_size", "guidance_scale", "dola_layers"),
    *("begin_suppress_tokens", "forced_decoder_ids", "sequence_bias", "exponential_decay_length_penalty"),
    *("stop_strings", "token_healing", "watermarking_config"),
)
# other fields of `request_t` that need all logits of a step where they are set, as options with `forbids_preview` do:
# the shortlist's candidates, given targets, scores, and the first step's logits
NEED_LOGITS = ("candidates", "targets", "scored", "first_logits")
BY_NAME = {option.name: option for option in SEARCH_OPTIONS}
# With these options, scores are computed while searching: the search needs all logits anyway, or its scores are
# normalised over other tokens than those of a later forced pass.
SCORED_WHILE_SEARCHING = tuple(
    option for option in SEARCH_OPTIONS if option.forbids_preview or option.name == "renormalize_logits"
)
DEFAULTS = {option.name: option.default for option in SEARCH_OPTIONS}


class Candidates(Protocol):
    """A lexical shortlist: the tokens that the translation of a source may have.

    If it also has `of_sources`, which returns a `JointCandidates` for a batch, that is called instead.
    """

    def of_source(self, source: Ids, *extra_tokens: int) -> Sequence[int]:
        """Return the tokens, ascending, with these extra ones."""
        ...


class Readings(NamedTuple):
    """What a pass returns besides tokens: the attention of a layer and a head to the source."""

    head: tuple[int, int] | None = None


class SearchOptions(NamedTuple):
    """What a decoder gets: how to search, by the names and meanings of the table, for sources in a batch.

    limits: the most tokens after the start token, for each source.
    forces_end: for each source, whether the end token is forced at its limit; empty for none.
    prefixes: for each source, what its translations begin with; empty for none.
    shortlist: restricts translations to the tokens that it has for their source.
    scores: whether `Hypothesis.score` is needed: transformers takes one more pass for it, and without it a greedy
        search of the engine is a little faster.
    readings: what to return besides translations.
    transformers_only: options of `generate()` that the engine lacks.
    """

    limits: Sequence[int]
    forces_end: Sequence[bool] = ()
    prefixes: Sequence[Ids] = ()
    shortlist: Candidates | None = None
    scores: bool = True
    readings: Readings | None = None
    transformers_only: Mapping[str, object] = {}
    num_beams: int = DEFAULTS["num_beams"]
    num_return_sequences: int = DEFAULTS["num_return_sequences"]
    length_penalty: float = DEFAULTS["length_penalty"]
    early_stopping: bool | str = DEFAULTS["early_stopping"]
    repetition_penalty: float = DEFAULTS["repetition_penalty"]
    no_repeat_ngram_size: int = DEFAULTS["no_repeat_ngram_size"]
    most_repeated: int = DEFAULTS["most_repeated"]
    renormalize_logits: bool = DEFAULTS["renormalize_logits"]
    min_new_tokens: int = DEFAULTS["min_new_tokens"]
    suppress_tokens: Ids = DEFAULTS["suppress_tokens"]
    max_time: float | None = DEFAULTS["max_time"]


# the options that a decoder gets as they are; the others become limits and tokens: `search_of`
SEARCH_FIELDS = tuple(option for option in SEARCH_OPTIONS if option.name in SearchOptions._fields)


def offered(interface: Interface) -> tuple[Option, ...]:
    """Return the options that the engine, the command, the server or the browser takes."""
    return tuple(option for option in SEARCH_OPTIONS if interface in option.interfaces)


def request_fields() -> dict[str, str]:
    """Return the fields of `request_t` that are options: "i" for 64 bits, "f" for a float, "p" for a pointer."""
    fields = {}
    for option in offered("engine"):
        fields[option.name] = {"number": "f", "tokens": "p"}.get(option.kind, "i")
        if option.kind == "tokens":
            fields[f"num_{option.name}"] = "i"
    return fields


def request_layout() -> int:
    """Return 16 bits that change with these fields: a library that was built from another table is refused."""
    return zlib.crc32(repr(request_fields()).encode()) & 0xFFFF


def nearest(name: str, names: Iterable[str], form: str = "{}") -> str:
    """Return "did you mean ...?" in this form, or an empty text if no name is spelt alike."""
    import difflib  # imported late: misspelt names are rare

    matches = difflib.get_close_matches(name, sorted(names), n=1)
    return form.format(f"did you mean `{matches[0]}`?") if matches else ""
