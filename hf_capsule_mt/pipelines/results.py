"""What a `Translator` takes and returns: frozen dataclasses of plain Python values.

Each number has one name. `TranslationPipeline` keeps the keys that its dictionaries always had.

| number | name | key in the pipeline's dictionaries |
|---|---|---|
| mean log-probability of a token of the translation, end token included | `Translation.score` | `score` |
| share of the source's words that was translated | `Coverage.score` | `coverage["score"]` |
| the same of one sentence | `SentenceCoverage.score` | `coverage["sentences"][i]["score"]` |
| share of one word that was translated | `Word.covered` | `coverage["words"][i]["covered"]` |
| share of one word in PAST, in FUTURE, after the last token | `Word.past`, `Word.future` | `["past"]`, `["future"]` |
| coverage below which a sentence falls short | `CoverageOptions.threshold` | `coverage_threshold` |
| beams with which such a sentence is translated again | `CoverageOptions.retry_beams` | `coverage_retry` |
| weight of FUTURE against the log-probability | `CoverageOptions.weight` | `coverage_weight` |
| how coverage is found | `CoverageOptions.method` | `coverage_method` |
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, get_args

from capsule_mt.text.keeping import KEPT

CoveredBy = Literal["attention", "guided", "deletion"]
CoverageMethod = Literal["auto", CoveredBy]

# how many batches of texts are read ahead, to make batches of sentences of about the same length
BATCHES_READ_AHEAD = 32
# the same for batches by tokens
TEXTS_READ_AHEAD = 2048


@dataclass(frozen=True)
class CoverageOptions:
    """Ask for coverage, and say what to do with it.

    Attributes:
        method: "attention" reads the attention of one head that `capsule-mt calibrate` has chosen, and "guided" reads
            PAST and FUTURE, which a model with guided routing computes: as a fast backend translates, else in one more
            forced pass of the decoder. "deletion" takes any model: it deletes each word of the source and compares how
            probable the translation is with and without it, which costs a pass of encoder and decoder for each word.
            "auto" is "attention" where a head was chosen, else "guided" where the model has it, else "deletion".
        threshold: warn of sentences whose coverage is below this.
        retry_beams: translate those sentences again with so many beams, rescored by `weight` (5 by default), and keep
            the translation that leaves less in FUTURE.
        weight: rank the hypotheses of beam search by their score less `weight` times the mean share of a source word
            that is still in FUTURE.
    """

    threshold: float | None = None
    retry_beams: int | None = None
    weight: float | None = None
    method: CoverageMethod = "auto"

    def __post_init__(self) -> None:
        if self.method not in get_args(CoverageMethod):
            raise ValueError(f'`method` must be "auto", "attention", "guided" or "deletion", got {self.method!r}')
        if self.retry_beams is not None and self.retry_beams < 2:
            raise ValueError(f"`retry_beams` must be at least 2, got {self.retry_beams}")
        if self.retry_beams is not None and self.threshold is None:
            raise ValueError(f"`retry_beams` ({self.retry_beams}) needs a `threshold`, got None")


@dataclass(frozen=True)
class TranslationOptions:
    """The settings of one call of a `Translator`, whose docstring explains them."""

    batch_size: int = 1
    batch_tokens: int | None = None
    coverage: CoverageOptions | None = None
    scores: bool = True
    split_sentences: bool = True
    max_source_tokens: int | None = None
    truncation: bool | str = False
    src_lang: str | None = None
    tgt_lang: str | None = None
    clean_up_tokenization_spaces: bool | None = None
    keep: Sequence[str] = ()
    generate_kwargs: Mapping[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, smallest in (("batch_size", 1), ("batch_tokens", 1), ("max_source_tokens", 2)):
            number = getattr(self, name)
            if number is not None and number < smallest:
                raise ValueError(f"`{name}` must be at least {smallest}, got {number}")
        num_beams = self.generate_kwargs.get("num_beams")
        if isinstance(num_beams, int) and num_beams < 1:
            raise ValueError(f"`num_beams` must be at least 1, got {num_beams}")
        if isinstance(self.keep, str) or not set(self.keep) <= set(KEPT):
            raise ValueError(f"`keep` takes a list of {', '.join(KEPT)}, got {self.keep!r}")

    @property
    def window(self) -> int:
        """How many texts are read before the first of them is translated."""
        if self.batch_tokens is not None:
            return TEXTS_READ_AHEAD
        return 1 if self.batch_size == 1 else self.batch_size * BATCHES_READ_AHEAD


@dataclass(frozen=True)
class Word:
    """A word of the source, the characters `start` to `end` of the text, and its coverage.

    `covered` is how much of it was translated. A word that mostly was not is `untranslated`; so is one that the
    vocabulary does not know, which has a `covered` of 0. Optional words, which calibration finds, are never
    `untranslated`. By attention, `past` is the most attention that it received, by deletion how much of it was
    translated; `future` is the rest.
    """

    text: str
    start: int
    end: int
    past: float
    future: float
    covered: float
    untranslated: bool


@dataclass(frozen=True)
class SentenceCoverage:
    """The coverage of the characters `start` to `end` of the text."""

    start: int
    end: int
    score: float


@dataclass(frozen=True)
class Coverage:
    """How much of a text was translated, by its words, its sentences, and as one `score` between 0 and 1.

    `repetitions` are phrases that the translation says twice in a row and the source does not. A blank text has the
    score 1.
    """

    score: float
    words: tuple[Word, ...]
    sentences: tuple[SentenceCoverage, ...]
    repetitions: tuple[str, ...]

    @property
    def untranslated(self) -> tuple[Word, ...]:
        """The words that were left out."""
        return tuple(word for word in self.words if word.untranslated)


@dataclass(frozen=True)
class Segment:
    """One sentence of a text, or a part of one that is too long: what went through the model at once.

    `target_ids` are from the decoder's start token to the end token. `was_cut` says that they reached their limit.
    """

    start: int
    end: int
    source_ids: tuple[int, ...]
    target_ids: tuple[int, ...]
    was_cut: bool


@dataclass(frozen=True)
class Translation:
    """The translation of one text.

    `score` is `None` where scores were not asked for and for a blank text, `coverage` where it was not asked for.
    """

    text: str
    score: float | None
    coverage: Coverage | None
    segments: tuple[Segment, ...]

    @property
    def token_ids(self) -> tuple[int, ...]:
        """The token ids of all segments in a row."""
        return tuple(token_id for segment in self.segments for token_id in segment.target_ids)

    @property
    def was_cut(self) -> bool:
        """Whether a segment reached the limit of its length, so that the translation may be incomplete."""
        return any(segment.was_cut for segment in self.segments)
